/* cgroup.h: what the control groups of this process allow.
 *
 * Groups nest, and each may set less than those above it: what counts is the least on the path from
 * the process's own group up to the mount, in v2's hierarchy and in v1's of a controller. */
#ifndef ATTN_LIB_CGROUP_H
#define ATTN_LIB_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* What one directory of a hierarchy allows; SIZE_MAX or more than any real value: nothing said. */
typedef size_t attn_cgroup_read_limit(const char *directory);

/* The least of what `look` finds for v1's `controller` and for v2; SIZE_MAX where nothing is said.
 * `root` stands before /proc and /sys: "" but for tests. */
size_t attn_cgroup_least(const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit);

/* The first line of a file in that directory, "" where it cannot be read; whether it could. */
bool attn_cgroup_line(char *line, int size, const char *directory, const char *file);

/* Bytes of memory that the groups under `root` allow, SIZE_MAX where they do not say. */
size_t attn_cgroup_memory(const char *root);

#endif
