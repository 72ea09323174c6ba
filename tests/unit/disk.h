/* disk.h: this program's own calls to the disk, which can be made slow or to fail, and are noted in
 * the order in which they ended; and its own wall clock. */
#ifndef TESTS_UNIT_DISK_H
#define TESTS_UNIT_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed at first, and by disk_reset. */
struct disk {
    atomic_uint fsync_ms, fdatasync_ms, pread_ms; /* that each call takes longer */
    atomic_uint pread_s;                          /* that `monotonic_s` grows by in each pread */
    atomic_int unreadable;                        /* errno with which pread fails; 0 */
    atomic_int unreadable_blocks;                 /* likewise of files of blocks alone */
    atomic_size_t read_bytes;                     /* that pread has given */
    atomic_bool no_flush;                         /* fdatasync fails for all files */
    atomic_bool no_cut;                           /* ftruncate fails, for all files */
    atomic_bool no_patch;                         /* pwrite of a few bytes fails */
    atomic_bool full;                             /* pwrite and fallocate fail, for want of room */
    atomic_bool no_manifest;                      /* fdatasync fails for manifests */
    atomic_bool image_times; /* all files have one inode and one time, as of an image's */
    atomic_uint_fast64_t unsafe_manifest; /* fsync fails where this one is named; 0: none */
    atomic_llong wall_s, monotonic_s;     /* seconds by which these clocks are ahead */
};
extern struct disk disk;

enum disk_call { DISK_PWRITE, DISK_FDATASYNC, DISK_FSYNC, DISK_RENAME, DISK_UNLINK };

void disk_reset(void); /* and forgets what was noted */

/* The number of the first such call from number `from` on, for a file whose name ends like that (of
 * a directory, its own name; of DISK_RENAME, the new name); SIZE_MAX where there is none. */
size_t disk_find(enum disk_call call, const char *end, size_t from);
size_t disk_count(enum disk_call call, const char *end);

#endif
