/* check.h: whether a result is right, by attention computed again in double. */
#ifndef TESTS_BENCH_CHECK_H
#define TESTS_BENCH_CHECK_H

#include "work.h"

/* The error of what the last run left in work->out, looked at in the first, middle and last row of
 * the first and last sequence: the largest difference of a row in units of the row's largest
 * value, infinite for a NaN.  The engine lends its threads, not its kernels. */
double bench_check(const struct bench_work *work, struct attn_engine *engine);

#endif
