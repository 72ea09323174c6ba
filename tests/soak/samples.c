/* samples.c: reading /proc, and a straight line through what was read. */
#include "samples.h"

#include <check.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number behind `name` in a file of "name: number" lines. */
static size_t number_of(pid_t pid, const char *file, const char *name)
{
    char path[64], line[256];
    size_t value = 0, length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, file);
    FILE *lines = fopen(path, "r");
    ck_assert_msg(lines != NULL, "%s: the daemon is gone", path);
    while (!found && fgets(line, sizeof line, lines) != NULL)
        found = strncmp(line, name, length) == 0 && sscanf(line + length, ": %zu", &value) == 1;
    fclose(lines);
    ck_assert_msg(found, "%s has no %s", path, name);
    return value;
}

static size_t count_entries(pid_t pid, const char *directory)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, directory);
    DIR *entries = opendir(path);
    ck_assert_ptr_nonnull(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(entries);
    return count;
}

/* Of the memory, what smaps_rollup counts page by page: the kernel's cheaper figures lag behind by
 * up to 256 KiB for each thread. */
struct usage usage_of(pid_t pid)
{
    return (struct usage){.resident_kib = number_of(pid, "smaps_rollup", "Rss"),
                          .descriptors = count_entries(pid, "fd"),
                          .threads = number_of(pid, "status", "Threads")};
}

void samples_add(struct samples *samples, double minutes, size_t kib)
{
    if (samples->count == SAMPLES_MAX)
        return;
    samples->minutes[samples->count] = minutes;
    samples->kib[samples->count++] = (double)kib;
}

double samples_slope(double *end_kib, const struct samples *samples, size_t first)
{
    double n = (double)(samples->count - first), x = 0, y = 0, xx = 0, xy = 0;
    ck_assert_uint_gt(samples->count, first + 2);
    for (size_t i = first; i < samples->count; i++) {
        x += samples->minutes[i] / n;
        y += samples->kib[i] / n;
    }
    for (size_t i = first; i < samples->count; i++) {
        double dx = samples->minutes[i] - x;
        xx += dx * dx;
        xy += dx * (samples->kib[i] - y);
    }
    *end_kib = y + xy / xx * (samples->minutes[samples->count - 1] - x);
    return xy / xx;
}
