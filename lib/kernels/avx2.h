/* avx2.h: helpers shared by the files of the AVX2 level: masks, loads and stores, exp. */
#ifndef ATTN_LIB_KERNELS_AVX2_H
#define ATTN_LIB_KERNELS_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/tiling.h"

/* A loop over the registers of a tile, unrolled so that each array element is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

#define LANES 8

/* ---- The operations of rows.h --------------------------------------------------------------- */

typedef __m256 vec;
typedef __m256i vec_int, vec_mask; /* all bits of a lane are set, or none */

INLINE vec_mask first_lanes(size_t count)
{
    static const int32_t ones_and_zeros[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *from = ones_and_zeros + LANES - attn_min(count, LANES);
    return _mm256_loadu_si256((const __m256i *)from);
}

INLINE vec vec_all(float x) { return _mm256_set1_ps(x); }
INLINE vec vec_load(const float *from) { return _mm256_loadu_ps(from); }
INLINE vec vec_load_first(const float *from, vec_mask mask)
{
    return _mm256_maskload_ps(from, mask);
}
INLINE vec vec_load_scores(const float *from, vec_mask mask)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(from, mask),
                            _mm256_castsi256_ps(mask));
}
INLINE vec_int vec_load_ints(const int32_t *from, vec_mask mask)
{
    return _mm256_maskload_epi32(from, mask);
}
INLINE void vec_store(float *to, vec v) { _mm256_storeu_ps(to, v); }
INLINE void vec_store_first(float *to, vec_mask mask, vec v) { _mm256_maskstore_ps(to, mask, v); }
INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
INLINE vec vec_multiply_add(vec a, vec b, vec sum) { return _mm256_fmadd_ps(a, b, sum); }
INLINE vec vec_where_greater(vec a, float limit, vec v)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(a, _mm256_set1_ps(limit), _CMP_GT_OQ));
}

INLINE float vec_max_lane(vec v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE float vec_sum_lanes(vec v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE void vec_hide_key(float *s, int key, vec_int first, vec_int end, vec_mask mask)
{
    const __m256i at = _mm256_set1_epi32(key);
    const __m256i seen =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(first, at), _mm256_cmpgt_epi32(end, at));
    _mm256_maskstore_ps(s, _mm256_andnot_si256(seen, mask), _mm256_set1_ps(-INFINITY));
}

INLINE vec exp_lanes(vec x)
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

#define EXP_VECTORS 2 /* of rows, side by side in rows.h */
#define MAX_CHAINS 2  /* maxima of keys that do not wait for one another */
#define ROW_VECTORS 1 /* of one row */

INLINE void exp_vectors(vec x[], const int count)
{
    unroll_for(i, count)
        x[i] = exp_lanes(x[i]);
}

INLINE void transpose_lanes(vec out[LANES], vec in[LANES])
{
    __m256 t[LANES], u[LANES];
    unroll_for(i, 4) {
        t[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    unroll_for(i, 2)
        unroll_for(h, 2) {
            u[4 * i + 2 * h] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0x44);
            u[4 * i + 2 * h + 1] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0xee);
        }
    /* half q of u[4 i + c] is now column 4 q + c of rows 4 i to 4 i + 3 */
    unroll_for(c, 4) {
        out[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        out[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------- */

/* Loads a vector of a tile.  Where `masked` (constant) only the lanes of the mask are read. */
INLINE __m256 load_part(const float *from, __m256i mask, const bool masked)
{
    return masked ? _mm256_maskload_ps(from, mask) : _mm256_loadu_ps(from);
}

INLINE void store_part(float *to, __m256i mask, __m256 v, const bool masked)
{
    if (masked)
        _mm256_maskstore_ps(to, mask, v);
    else
        _mm256_storeu_ps(to, v);
}

#endif
