/* sums.h: the state of an online softmax over some keys, and merging two such states. */
#ifndef ATTN_LIB_ATTENTION_SUMS_H
#define ATTN_LIB_ATTENTION_SUMS_H

#include "basics/tile.h"
#include "kernels/kernels.h"

/* Of each row over the keys seen so far: the largest score m, the sum of e^(score - m), and the sum
 * of e^(score - m) value. */
struct attn_sums {
    float *out;       /* [rows][Dv] */
    float *max, *sum; /* [rows]; -inf and 0 where the row has seen no key */
};

/* Floats that hold the sums of so many rows, and the sums placed in as many floats. */
static inline size_t attn_sums_floats(size_t rows, size_t dv) { return rows * (dv + 2); }
struct attn_sums attn_sums_in(float *floats, size_t rows, size_t dv);

/* Makes them the sums over no keys. */
void attn_sums_clear(struct attn_sums sums, size_t rows, size_t dv);

/* total = total e^(total max - m) + sums e^(max - m), m the larger maximum, for each row.  Where
 * one of the two has seen no key the result is the other, bit for bit. */
void attn_sums_merge(const struct attn_kernels *kernels, struct attn_sums total,
                     struct attn_sums sums, size_t rows, size_t dv);

#endif
