/* samples.h: the median of times, and how far they are from being one time. */
#ifndef TESTS_BENCH_SAMPLES_H
#define TESTS_BENCH_SAMPLES_H

#include <stddef.h>

/* The relative difference of two rates or times: 0.1 is 10 %. */
double bench_gap(double before, double after);

/* The median of values [count], which are sorted. */
double bench_median(double *values, size_t count);

/* How far the times of calls, in their order, are from one time: the larger of the distance of
 * their quartiles as a part of the median, and of the gap between the medians of their first and
 * last half.  Sorts the values. */
double bench_spread(double *values, size_t count);

#endif
