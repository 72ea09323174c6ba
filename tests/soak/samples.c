/* samples.c: reads figures from /proc, and fits a straight line through samples. */
#include "samples.h"

#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number after `name` in a file of "name: number" lines. */
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

/* Reads memory from smaps_rollup, which counts page by page: the kernel's cheaper figures lag by up
 * to 256 KiB for each thread. */
struct usage usage_of(pid_t pid)
{
    return (struct usage){.resident_kib = number_of(pid, "smaps_rollup", "Rss"),
                          .descriptors = count_entries(pid, "fd"),
                          .threads = number_of(pid, "status", "Threads")};
}

void samples_add(struct samples *samples, double minutes, double kib)
{
    if (samples->count == SAMPLES_MAX)
        return;
    samples->minutes[samples->count] = minutes;
    samples->kib[samples->count++] = kib;
}

struct blocks {
    double minutes[SLOPE_BLOCKS], kib[SLOPE_BLOCKS];
    double x, y; /* means of all */
};

static void take_blocks(struct blocks *out, const struct samples *samples, size_t first,
                        enum slope_of what)
{
    size_t n = (samples->count - first) / SLOPE_BLOCKS;
    *out = (struct blocks){0};
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < SLOPE_BLOCKS; i++) {
        const double *minutes = samples->minutes + first + i * n,
                     *kib = samples->kib + first + i * n;
        double sum = 0, least = kib[0];
        for (size_t j = 0; j < n; j++) {
            sum += kib[j];
            least = fmin(least, kib[j]);
        }
        out->minutes[i] = (minutes[0] + minutes[n - 1]) / 2;
        out->kib[i] = what == SLOPE_OF_LEAST ? least : sum / (double)n;
        out->x += out->minutes[i] / SLOPE_BLOCKS;
        out->y += out->kib[i] / SLOPE_BLOCKS;
    }
}

void samples_slope(struct slope *out, const struct samples *samples, size_t first,
                   enum slope_of what)
{
    struct blocks blocks;
    double xx = 0, xy = 0, residual = 0;
    take_blocks(&blocks, samples, first, what);
    for (size_t i = 0; i < SLOPE_BLOCKS; i++) {
        double dx = blocks.minutes[i] - blocks.x;
        xx += dx * dx;
        xy += dx * (blocks.kib[i] - blocks.y);
    }
    for (size_t i = 0; i < SLOPE_BLOCKS; i++) {
        double off = blocks.kib[i] - blocks.y - xy / xx * (blocks.minutes[i] - blocks.x);
        residual += off * off;
    }
    out->per_minute = xy / xx;
    out->error = 3 * sqrt(residual / (SLOPE_BLOCKS - 2) / xx);
    out->end_kib = blocks.y + xy / xx * (blocks.minutes[SLOPE_BLOCKS - 1] - blocks.x);
}
