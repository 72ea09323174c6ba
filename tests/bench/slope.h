/* slope.h: the cost of a decode as its context grows. */
#ifndef TESTS_BENCH_SLOPE_H
#define TESTS_BENCH_SLOPE_H

#include "attn.h"
#include "ceilings.h"
#include "shapes.h"

/* Decodes one row over 1,024 to 131,072 cached tokens, checks and times it, and prints the times,
 * the straight line through them and their distances from it.  False where a result is wrong. */
bool bench_slope(const struct bench_dtype *dtype, struct attn_engine *engine,
                 struct bench_meter *meter);

#endif
