/* page.h: the memory that the harness shares with the daemon under test.
 *
 * The harness chooses a kind of call, a number and whether the fault lasts; the daemon's wrapped
 * calls count themselves and fail when their number is up.  Live blocks are counted always. */
#ifndef TESTS_FAULT_PAGE_H
#define TESTS_FAULT_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_VARIABLE "FAULT_PAGE" /* the descriptor of the page, inherited by the daemon */

enum fault_kind {
    FAULT_MEMORY,    /* allocations of attnd, libattn and jansson */
    FAULT_TRANSPORT, /* of libmicrohttpd */
    FAULT_OPEN,      /* opening files and directories */
    FAULT_WRITE,     /* nothing is written */
    FAULT_SHORT,     /* the same calls: a half is written, then nothing more */
    FAULT_SYNC,      /* fsync, fdatasync, syncfs */
    FAULT_RENAME,
    FAULT_ACCEPT,
    FAULT_THREAD,
    FAULT_OTHER, /* read, mmap, ftruncate, posix_fallocate, eventfd, socket, dup, mkdir, flock */
    FAULT_KINDS
};

struct fault_page {
    _Atomic int kind;                    /* FAULT_KINDS: none is armed */
    _Atomic bool lasting;                /* all calls from number `at` on fail, not it alone */
    _Atomic uint64_t at;                 /* from 1; 0: calls are only counted */
    _Atomic uint64_t calls[FAULT_KINDS]; /* since they were set to zero */
    _Atomic uint64_t failed;             /* since the same */
    _Atomic uint64_t caller;             /* of the first that failed, from the program's base */
    _Atomic int64_t blocks;              /* taken and not given back */
};

#endif
