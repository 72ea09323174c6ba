/* attention_sums.h: what attention has summed up over some keys, and how two of that are one. */
#ifndef ATTN_LIB_ATTENTION_SUMS_H
#define ATTN_LIB_ATTENTION_SUMS_H

#include "kernels/kernels.h"
#include "tile.h"

/* For each row the largest score m, the sum of e^(score - m), and that of e^(score - m) value. */
struct attn_sums {
    float *out;       /* [rows][Dv] */
    float *max, *sum; /* [rows]; -inf and 0 where nothing was seen */
};

/* Floats of the sums of so many rows, and these sums in as many. */
static inline size_t attn_sums_floats(size_t rows, size_t dv) { return rows * (dv + 2); }
struct attn_sums attn_sums_in(float *floats, size_t rows, size_t dv);

/* Of nothing. */
void attn_sums_clear(struct attn_sums sums, size_t rows, size_t dv);

/* total = total e^(total max - m) + sums e^(max - m), m the larger, for each row; where one is of
 * nothing, the other as it is, bit for bit. */
void attn_sums_merge(const struct attn_kernels *kernels, struct attn_sums total,
                     struct attn_sums sums, size_t rows, size_t dv);

#endif
