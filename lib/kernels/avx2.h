/* avx2.h: helpers shared by the files of the AVX2 level: masks, loads and stores, exp. */
#ifndef ATTN_LIB_KERNELS_AVX2_H
#define ATTN_LIB_KERNELS_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))
/* A loop over the registers of a tile, unrolled so that each array element is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

#define CACHE_LINE 64
#define LANES 8

/* A mask of the first `count` lanes, all bits set; of all lanes where count is LANES or more. */
INLINE __m256i first_lanes_avx2(size_t count)
{
    static const int32_t ones_and_zeros[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *from = ones_and_zeros + LANES - attn_min(count, LANES);
    return _mm256_loadu_si256((const __m256i *)from);
}

/* exp(x) of each lane, see exp.h. */
INLINE __m256 exp_lanes_avx2(__m256 x)
{
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 rounded = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    __m256 n = _mm256_sub_ps(rounded, round);
    __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(rounded), 23));
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LO), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(EXP_Q4), r, _mm256_set1_ps(EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q0));
    __m256 p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
    __m256 e = _mm256_mul_ps(_mm256_add_ps(p, _mm256_set1_ps(1.0f)), power);
    return _mm256_and_ps(e, _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_GE_OQ));
}

/* Loads a vector of a tile.  Where `masked` (constant) only the lanes of the mask are read. */
INLINE __m256 load_avx2(const float *from, __m256i mask, const bool masked)
{
    return masked ? _mm256_maskload_ps(from, mask) : _mm256_loadu_ps(from);
}

INLINE void store_avx2(float *to, __m256i mask, __m256 v, const bool masked)
{
    if (masked)
        _mm256_maskstore_ps(to, mask, v);
    else
        _mm256_storeu_ps(to, v);
}

/* Loads scores; lanes outside of the mask become -inf, the neutral element of max and of a sum of
 * exp. */
INLINE __m256 load_scores_avx2(const float *s, __m256i mask)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(s, mask),
                            _mm256_castsi256_ps(mask));
}

#endif
