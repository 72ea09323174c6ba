/* samples.h: what the daemon's process takes, over time. */
#ifndef TESTS_SOAK_SAMPLES_H
#define TESTS_SOAK_SAMPLES_H

#include <stddef.h>
#include <sys/types.h>

struct usage {
    size_t resident_kib, descriptors, threads;
};

/* As /proc has it now. */
struct usage usage_of(pid_t pid);

#define SAMPLES_MAX 4096

struct samples {
    double minutes[SAMPLES_MAX], kib[SAMPLES_MAX];
    size_t count;
};

void samples_add(struct samples *samples, double minutes, size_t kib); /* those beyond are lost */

/* The slope of the line through the samples from `first` on, by least squares; its end, KiB. */
double samples_slope(double *end_kib, const struct samples *samples, size_t first);

#endif
