/* samples.c: medians, gaps and spreads of measured times. */
#include "samples.h"

#include <math.h>
#include <stdlib.h>

double bench_gap(double before, double after)
{
    return before > after ? before / after - 1 : after / before - 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

double bench_spread(double *values, size_t count)
{
    const size_t half = count / 2;
    if (count < 2)
        return 0;
    const double first = bench_median(values, half);
    const double drift = bench_gap(first, bench_median(values + count - half, half));
    const double median = bench_median(values, count);
    return fmax(drift, (values[count - 1 - count / 4] - values[count / 4]) / median);
}
