/* page.h: the memory that the harness shares with the daemon under test.
 *
 * The harness chooses a kind of call, a number and whether the fault lasts, and the same for a
 * second fault, whose calls are counted from the first fault on.  The daemon's wrapped calls are
 * counted, and fail when that number is reached.  Live blocks are always counted. */
#ifndef TESTS_FAULT_PAGE_H
#define TESTS_FAULT_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_VARIABLE "FAULT_PAGE" /* the descriptor of the page, inherited by the daemon */

enum fault_kind {
    FAULT_MEMORY,    /* allocations of attnd, libattn and jansson */
    FAULT_TRANSPORT, /* allocations of libmicrohttpd */
    FAULT_OPEN,      /* opening files and directories */
    FAULT_WRITE,     /* writes of which nothing is written */
    FAULT_SHORT,     /* the same calls: half is written, then nothing more */
    FAULT_SYNC,      /* fsync, fdatasync */
    FAULT_RENAME,
    FAULT_ACCEPT,
    FAULT_THREAD,
    FAULT_OTHER, /* read, mmap, ftruncate, fallocate, eventfd, socket, dup, mkdir, flock */
    FAULT_KINDS
};

struct armed_fault {
    _Atomic int kind;                    /* FAULT_KINDS: none is armed */
    _Atomic bool lasting;                /* all calls from number `at` on fail, not only that one */
    _Atomic uint64_t at;                 /* from 1; 0: calls are only counted */
    _Atomic uint64_t calls[FAULT_KINDS]; /* since they were set to zero */
    _Atomic uint64_t failed;             /* calls that failed since then */
    _Atomic uint64_t caller; /* address of the first failed call, from the program's base */
};

struct fault_page {
    struct armed_fault faults[2];
    _Atomic int64_t blocks; /* allocated and not freed */
};

#endif
