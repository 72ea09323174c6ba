/* oracle.h: attention as the textbook writes it, in double, one score at a time.
 *
 * Slow, obvious, and compiled without any licence to reorder: what fast paths are compared with.
 * It takes the argument structs of attn.h but shares no code with the library. */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include "attn.h"

/* Results in double; NULL = not wanted.  Shapes as in struct attn_outputs. */
struct oracle_outputs {
    double *output, *weights, *average, *lse;
};

/* Weightless attention.  args->outputs is ignored. */
void oracle_core(struct oracle_outputs *out, const struct attn_core_args *args);

/* The largest error of `got` against `want`, relative to the largest |want| of each row of `width`
 * values or to 0.1, whichever is more: a sum that cancels has no relative accuracy.  Infinite for a
 * NaN. */
double oracle_error(const float *got, const double *want, size_t rows, size_t width);

#endif
