/* avx512.h: helpers shared by the files of the AVX-512 levels: masks, exp, transposing. */
#ifndef ATTN_LIB_KERNELS_AVX512_H
#define ATTN_LIB_KERNELS_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/tiling.h"

/* A loop over the registers of a tile, unrolled so that each array element is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

#define LANES 16

/* ---- The operations of rows.h --------------------------------------------------------------- */

typedef __m512 vec;
typedef __m512i vec_int;
typedef __mmask16 vec_mask;

INLINE vec_mask first_lanes(size_t count)
{
    return (vec_mask)(count >= LANES ? 0xffffu : (1u << count) - 1u);
}

/* The empty assembler keeps gcc from making a slow memset of a loop that clears vectors. */
INLINE vec vec_all(float x)
{
    vec v = _mm512_set1_ps(x);
    __asm__("" : "+v"(v));
    return v;
}

INLINE vec vec_load(const float *from) { return _mm512_loadu_ps(from); }
INLINE vec vec_load_first(const float *from, vec_mask mask)
{
    return _mm512_maskz_loadu_ps(mask, from);
}
INLINE vec vec_load_scores(const float *from, vec_mask mask)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), mask, from);
}
INLINE vec_int vec_load_ints(const int32_t *from, vec_mask mask)
{
    return _mm512_maskz_loadu_epi32(mask, from);
}
INLINE void vec_store(float *to, vec v) { _mm512_storeu_ps(to, v); }
INLINE void vec_store_first(float *to, vec_mask mask, vec v) { _mm512_mask_storeu_ps(to, mask, v); }
INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE vec vec_multiply_add(vec a, vec b, vec sum) { return _mm512_fmadd_ps(a, b, sum); }
INLINE vec vec_where_greater(vec a, float limit, vec v)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_set1_ps(limit), _CMP_GT_OQ), v);
}
INLINE float vec_max_lane(vec v) { return _mm512_reduce_max_ps(v); }
INLINE float vec_sum_lanes(vec v) { return _mm512_reduce_add_ps(v); }

INLINE void vec_hide_key(float *s, int key, vec_int first, vec_int end, vec_mask mask)
{
    const __m512i at = _mm512_set1_epi32(key);
    const vec_mask hidden = _mm512_cmplt_epi32_mask(at, first) | _mm512_cmple_epi32_mask(end, at);
    _mm512_mask_storeu_ps(s, mask & hidden, _mm512_set1_ps(-INFINITY));
}

/* All `count` vectors take a step before any takes the next: the chain of exp is long, and the
 * processor does not look far enough ahead to overlap the iterations of a loop.  Lanes below
 * EXP_LOWEST get r = 0 and power = 0 early in the chain, so that no mask is kept through it. */
#define EXP_VECTORS 8
#define MAX_CHAINS 4  /* maxima of keys that do not wait for one another */
#define ROW_VECTORS 4 /* of one row */

INLINE void exp_vectors(vec x[], const int count)
{
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    __m512 power[EXP_VECTORS], q[EXP_VECTORS];
    unroll_for(i, count)
        power[i] = _mm512_fmadd_ps(x[i], _mm512_set1_ps(EXP_LOG2E), round);
    unroll_for(i, count) {
        __mmask16 normal = _mm512_cmp_ps_mask(x[i], _mm512_set1_ps(EXP_LOWEST), _CMP_GE_OQ);
        __m512 n = _mm512_sub_ps(power[i], round);
        x[i] = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HI), x[i]);
        x[i] = _mm512_maskz_fnmadd_ps(normal, n, _mm512_set1_ps(EXP_LN2_LO), x[i]);
        power[i] =
            _mm512_castsi512_ps(_mm512_maskz_slli_epi32(normal, _mm512_castps_si512(power[i]), 23));
    }
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(_mm512_set1_ps(EXP_Q4), x[i], _mm512_set1_ps(EXP_Q3));
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(q[i], x[i], _mm512_set1_ps(EXP_Q2));
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(q[i], x[i], _mm512_set1_ps(EXP_Q1));
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(q[i], x[i], _mm512_set1_ps(EXP_Q0));
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(q[i], x[i], _mm512_set1_ps(1.0f));
    unroll_for(i, count)
        q[i] = _mm512_fmadd_ps(q[i], x[i], _mm512_set1_ps(1.0f));
    unroll_for(i, count)
        x[i] = _mm512_mul_ps(q[i], power[i]);
}

INLINE vec exp_lanes(vec x)
{
    exp_vectors(&x, 1);
    return x;
}

INLINE void transpose_lanes(vec out[LANES], vec in[LANES])
{
    __m512 t[LANES];
    unroll_for(i, 8) {
        t[2 * i] = _mm512_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    unroll_for(i, 4)
        unroll_for(h, 2) {
            __m512d a = _mm512_castps_pd(t[4 * i + h]), b = _mm512_castps_pd(t[4 * i + 2 + h]);
            in[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            in[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* quarter q of in[4 i + c] is now column 4 q + c of rows 4 i to 4 i + 3 */
    unroll_for(c, 4) {
        __m512 low = _mm512_shuffle_f32x4(in[c], in[4 + c], 0x88);
        __m512 odd = _mm512_shuffle_f32x4(in[c], in[4 + c], 0xdd);
        __m512 high = _mm512_shuffle_f32x4(in[8 + c], in[12 + c], 0x88);
        __m512 rest = _mm512_shuffle_f32x4(in[8 + c], in[12 + c], 0xdd);
        out[c] = _mm512_shuffle_f32x4(low, high, 0x88);
        out[8 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
        out[4 + c] = _mm512_shuffle_f32x4(odd, rest, 0x88);
        out[12 + c] = _mm512_shuffle_f32x4(odd, rest, 0xdd);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------- */

/* Broadcasts the factor of a row.  The empty assembler hides where the value comes from: else the
 * compiler loads it anew for each use and saturates the load ports. */
INLINE __m512 load_factor(const float *x)
{
    __m512 v = _mm512_set1_ps(*x);
    __asm__("" : "+v"(v));
    return v;
}

/* Returns its argument, in a way that the compiler cannot see through.  Row addresses made from
 * such an offset are computed before the loop of a tile and again after it.  Otherwise the compiler
 * keeps the addresses of all rows through the loop, which costs more than a hundred cycles. */
INLINE size_t opaque(size_t offset)
{
    __asm__("" : "+r"(offset));
    return offset;
}

#endif
