/* largest.h: the k largest of a row of weights. */
#ifndef ATTN_LIB_LARGEST_H
#define ATTN_LIB_LARGEST_H

#include "pool.h"

/* index[i], value[i], i < k: the k largest of values [n] and where they stand, largest first, of
 * equal ones the lower index first.  k is 1 to n; no value is NaN.  O(n log k),
 * with pauses as this thread of the pool (NULL: without any). */
void attn_largest(uint32_t *index, float *value, size_t k, const float *values, size_t n,
                  struct attn_pool *pool, unsigned thread);

#endif
