/* check.h: the error of a result against attention computed in double. */
#ifndef TESTS_BENCH_CHECK_H
#define TESTS_BENCH_CHECK_H

#include "work.h"

/* The error of the last run's result in work->out, by the first, middle and last row of the first
 * and last sequence: the largest difference in a row, divided by the row's largest value; infinite
 * for a NaN.  Only the engine's threads are used, not its kernels. */
double bench_check(const struct bench_work *work, struct attn_engine *engine);

/* The same for a decode of a latent layer. */
double bench_check_latent(const struct bench_work *work, struct attn_engine *engine);

#endif
