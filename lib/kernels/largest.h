/* largest.h: the k largest of a row of weights. */
#ifndef ATTN_LIB_KERNELS_LARGEST_H
#define ATTN_LIB_KERNELS_LARGEST_H

#include "machine/pool.h"

/* Finds the k largest of values [n]: value[i] and its index[i], i < k, largest first, equal values
 * by ascending index.  k is 1 to n; no value is NaN.  Cost: O(n log k).  Pauses as `thread` of the
 * pool; a NULL pool means no pauses. */
void attn_largest(uint32_t *index, float *value, size_t k, const float *values, size_t n,
                  struct attn_pool *pool, unsigned thread);

#endif
