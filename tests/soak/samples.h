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

void samples_add(struct samples *samples, double minutes, double kib); /* those beyond are lost */

/* Of the line through the samples from `first` on, by least squares over the means, or the least,
 * of SLOPE_BLOCKS equal stretches: samples that follow one another are too much alike to count as
 * so many.  Zero is not excluded where the slope is within `error`, three times its standard
 * error. */
#define SLOPE_BLOCKS 16

enum slope_of { SLOPE_OF_MEANS, SLOPE_OF_LEAST };

struct slope {
    double per_minute, error, end_kib;
};

void samples_slope(struct slope *out, const struct samples *samples, size_t first,
                   enum slope_of what);

#endif
