/* cpu.c: how many CPUs the machine offers this process.
 *
 * A container's share shows in the affinity mask, in cgroup v2's cpu.max and in cgroup v1's
 * cfs quota.  A quota binds everything below it, so the files of the process's own group and of all
 * its ancestors are read and the smallest wins.  A file that cannot be read sets no limit. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>

#include "attn_limits.h"
#include "basics/mem.h"
#include "machine/cgroup.h"

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
