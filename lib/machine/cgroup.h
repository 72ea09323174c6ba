/* cgroup.h: the limits that control groups set for this process; attn_limits.h has the CPUs. */
#ifndef ATTN_LIB_MACHINE_CGROUP_H
#define ATTN_LIB_MACHINE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the limit that one directory of a hierarchy sets; SIZE_MAX, or more than any real value,
 * where it sets none. */
typedef size_t attn_cgroup_read_limit(const char *directory);

/* The least that `read_limit` finds for v1's `controller` and for v2; SIZE_MAX where there is no
 * limit.  `root` is put before /proc and /sys: "" but for tests. */
size_t attn_cgroup_least(const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit);

/* Reads the first line of a file in that directory; false, with line "", where it cannot be
 * read. */
bool attn_cgroup_line(char *line, int size, const char *directory, const char *file);

/* Bytes of memory that the groups under `root` allow, SIZE_MAX where they set no limit. */
size_t attn_cgroup_memory(const char *root);

#endif
