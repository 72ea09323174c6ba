/* cgroup.c: how many CPUs and how much memory the machine offers this process.
 *
 * A container's share shows in the limits of control groups, and that of CPUs in the affinity mask
 * too.  Groups nest, and each may set less than its parents: the limit that holds is the least on
 * the path from the process's own group up to the mount, in the hierarchy of v2 and in that of a v1
 * controller.  A file that cannot be read sets no limit. */
#include "machine/cgroup.h"

#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_limits.h"
#include "basics/mem.h"

#define MAX_LINES 64
#define MAX_DIRECTORY 1024 /* bytes of a directory's name */

bool attn_cgroup_line(char *line, int size, const char *directory, const char *name)
{
    char path[MAX_DIRECTORY + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    bool got = file != NULL && fgets(line, size, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (!got)
        line[0] = '\0';
    return got;
}

/* The least limit from mount/group up to the mount itself.  In a container `group` may be a path of
 * the host that is not visible here; the walk then finds the container's own group at the top. */
static size_t least_up_to_mount(const char *mount, const char *group,
                                attn_cgroup_read_limit *read_limit)
{
    char directory[MAX_DIRECTORY];
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return SIZE_MAX;
    size_t least = SIZE_MAX;
    for (size_t top = strlen(mount); strlen(directory) >= top;) {
        least = attn_min(least, read_limit(directory));
        *strrchr(directory, '/') = '\0';
    }
    return least;
}

/* Whether the list, such as "cpu,cpuacct", names the controller. */
static bool list_names(const char *list, const char *controller)
{
    size_t length = strlen(controller);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* The limit of one line of /proc/self/cgroup: "0::/path" is v2's; "4:cpu,cpuacct:/path" is v1's,
 * whose hierarchy is mounted under the name of its list. */
static size_t line_least(char *line, const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit)
{
    char mount[MAX_DIRECTORY];
    char *list = strchr(line, ':');
    char *group = list != NULL ? strchr(list + 1, ':') : NULL;
    if (group == NULL)
        return SIZE_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    list++;
    if (list[0] != '\0' && !list_names(list, controller))
        return SIZE_MAX;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, list[0] != '\0' ? "/" : "", list);
    return least_up_to_mount(mount, group, read_limit);
}

size_t attn_cgroup_least(const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit)
{
    char line[MAX_DIRECTORY];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    if (file == NULL)
        return SIZE_MAX;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < MAX_LINES && fgets(line, sizeof line, file) != NULL; i++)
        least = attn_min(least, line_least(line, root, controller, read_limit));
    fclose(file);
    return least;
}

/* ---- Memory ---- */

/* memory.max of v2, which is "max" without a limit, or v1's file, which then holds a number beyond
 * any machine. */
static size_t directory_memory(const char *directory)
{
    char line[64];
    if ((!attn_cgroup_line(line, sizeof line, directory, "memory.max") &&
         !attn_cgroup_line(line, sizeof line, directory, "memory.limit_in_bytes")) ||
        line[0] < '0' || line[0] > '9')
        return SIZE_MAX;
    return strtoull(line, NULL, 10);
}

size_t attn_cgroup_memory(const char *root)
{
    return attn_cgroup_least(root, "memory", directory_memory);
}

/* ---- CPUs ---- */

/* The CPUs that `quota` microseconds out of every `period` amount to, rounded up. */
static unsigned quota_cpus(long quota, long period)
{
    if (quota <= 0 || period <= 0)
        return UINT_MAX;
    long cpus = quota / period + (quota % period != 0);
    return cpus < UINT_MAX ? (unsigned)cpus : UINT_MAX;
}

/* The quota that one cgroup directory sets, by v2's file or v1's two. */
static size_t directory_cpus(const char *directory)
{
    char line[64];
    long quota = 0, period = 0;
    if (attn_cgroup_line(line, sizeof line, directory, "cpu.max")) /* "max 100000" */
        return sscanf(line, "%ld %ld", &quota, &period) == 2 ? quota_cpus(quota, period) : UINT_MAX;
    if (!attn_cgroup_line(line, sizeof line, directory, "cpu.cfs_quota_us") ||
        sscanf(line, "%ld", &quota) != 1)
        return UINT_MAX;
    if (!attn_cgroup_line(line, sizeof line, directory, "cpu.cfs_period_us") ||
        sscanf(line, "%ld", &period) != 1)
        return UINT_MAX;
    return quota_cpus(quota, period);
}

/* The kernel refuses masks smaller than its own, so a machine of more than CPU_SETSIZE processors
 * counts as CPU_SETSIZE. */
unsigned attn_usable_cpus(void)
{
    cpu_set_t set;
    const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    const size_t affinity = known ? attn_max((size_t)CPU_COUNT(&set), 1) : CPU_SETSIZE;
    return (unsigned)attn_min(affinity, attn_cgroup_least("", "cpu", directory_cpus));
}
