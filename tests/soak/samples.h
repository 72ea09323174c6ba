/* samples.h: memory, descriptors and threads of the daemon's process over time. */
#ifndef TESTS_SOAK_SAMPLES_H
#define TESTS_SOAK_SAMPLES_H

#include <stddef.h>
#include <sys/types.h>

struct usage {
    size_t resident_kib, descriptors, threads;
};

/* Returns the present usage of the process, from /proc. */
struct usage usage_of(pid_t pid);

#define SAMPLES_MAX 4096

struct samples {
    double minutes[SAMPLES_MAX], kib[SAMPLES_MAX];
    size_t count;
};

void samples_add(struct samples *samples, double minutes, double kib); /* while there is room */

/* Fits a line through the samples from `first` on, by least squares over the means, or the least
 * values, of SLOPE_BLOCKS equal stretches: neighbouring samples are too much alike to count one by
 * one.  The slope may be zero where its absolute value is within `error`, three times its standard
 * error. */
#define SLOPE_BLOCKS 16

enum slope_of { SLOPE_OF_MEANS, SLOPE_OF_LEAST };

struct slope {
    double per_minute, error, end_kib;
};

void samples_slope(struct slope *out, const struct samples *samples, size_t first,
                   enum slope_of what);

#endif
