/* log.h: the operations of a daemon on its state directory, in the order in which they happened, in
 * memory that the recorder in the daemon (recorder.c) shares with the harness.
 *
 * An entry is a struct power_op and `size` bytes, padded to eight.  A sync is two entries, as it
 * covers what was before its beginning and counts from its end on. */
#ifndef TESTS_POWER_LOG_H
#define TESTS_POWER_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWER_LOG_VARIABLE "POWER_LOG"             /* path of the log's file */
#define POWER_DIRECTORY_VARIABLE "POWER_DIRECTORY" /* the state directory */

#define POWER_LOG_BYTES ((size_t)64 << 20) /* of the log's file, which is sparse */
#define POWER_NAME 64
#define POWER_FILES 8192

/* Numbers of files: the directory, all files (syncfs), and files of the directory in the order of
 * their creation. */
#define POWER_DIRECTORY 0u
#define POWER_ALL 1u
#define POWER_FIRST_FILE 2u

enum power_kind {
    POWER_CREATE,      /* bytes: the name; the file is new and empty */
    POWER_WRITE,       /* bytes: the content at `at` */
    POWER_SIZE,        /* the length becomes `at`: cut, or grown with zeros */
    POWER_RENAME,      /* bytes: two names, each with its NUL */
    POWER_UNLINK,      /* bytes: the name */
    POWER_SYNC_BEGIN,  /* fsync, fdatasync of `file`, or syncfs */
    POWER_SYNC_END,    /* `at`: index of the entry that began it; only where it succeeded */
    POWER_SYNC_FAILED, /* the same where it did not */
};

struct power_op {
    uint32_t kind, file;
    uint64_t at, size;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
};

struct power_log {
    _Atomic uint64_t count, used;        /* entries, and their bytes */
    _Atomic bool full;                   /* entries are missing */
    _Atomic uint32_t slow_ms;            /* that a sync of a journal takes longer */
    _Atomic uint32_t failing;            /* syncs until one fails; 0: none does */
    _Atomic bool spares_journals;        /* syncs of journals are not among them */
    uint32_t files;                      /* the next file's number */
    char names[POWER_FILES][POWER_NAME]; /* of each file now; "" where it was removed */
    _Alignas(8) unsigned char entries[]; /* up to POWER_LOG_BYTES */
};

#endif
