/* kernels_avx2.h: what the files of the AVX2 level share. */
#ifndef ATTN_LIB_KERNELS_AVX2_H
#define ATTN_LIB_KERNELS_AVX2_H

#include <immintrin.h>

#include "kernels.h"
#include "mem.h"

#define INLINE static inline __attribute__((always_inline))
/* Loops over the registers of a tile: unrolled, so that an index is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

#define LANES 8

/* All bits of the first `count` lanes; of all where count is LANES or more. */
INLINE __m256i first_lanes(size_t count)
{
    static const int32_t ones_and_zeros[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *from = ones_and_zeros + LANES - attn_min(count, LANES);
    return _mm256_loadu_si256((const __m256i *)from);
}

#endif
