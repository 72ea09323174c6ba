/* neon.h: helpers shared by the files of the arm64 levels: partial vectors, products with
 * one lane, exp. */
#ifndef ATTN_LIB_KERNELS_NEON_H
#define ATTN_LIB_KERNELS_NEON_H

#include <arm_neon.h>
#include <math.h>

#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/tiling.h"

/* A loop over the registers of a tile, unrolled so that each array element is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

#define LANES 4

/* Loads the first `count` floats, or LANES of them; the other lanes are `fill`.  Nothing beyond is
 * read. */
INLINE float32x4_t load_first(const float *from, size_t count, float fill)
{
    const float32x2_t none = vdup_n_f32(fill);
    switch (count) {
    case 0:
        return vdupq_n_f32(fill);
    case 1:
        return vcombine_f32(vld1_lane_f32(from, none, 0), none);
    case 2:
        return vcombine_f32(vld1_f32(from), none);
    case 3:
        return vcombine_f32(vld1_f32(from), vld1_lane_f32(from + 2, none, 0));
    default:
        return vld1q_f32(from);
    }
}

/* Stores the first `count` lanes, or all LANES. */
INLINE void store_first(float *to, float32x4_t v, size_t count)
{
    if (count >= LANES) {
        vst1q_f32(to, v);
        return;
    }
    if (count >= 2)
        vst1_f32(to, vget_low_f32(v));
    if (count == 1)
        vst1q_lane_f32(to, v, 0);
    if (count == 3)
        vst1q_lane_f32(to + 2, v, 2);
}

/* ---- The operations of rows.h --------------------------------------------------------------- */

typedef float32x4_t vec;
typedef int32x4_t vec_int;
typedef size_t vec_mask; /* how many lanes, the first ones */

INLINE vec_mask first_lanes(size_t count) { return attn_min(count, LANES); }
INLINE vec vec_all(float x) { return vdupq_n_f32(x); }
INLINE vec vec_load(const float *from) { return vld1q_f32(from); }
INLINE vec vec_load_first(const float *from, vec_mask mask) { return load_first(from, mask, 0); }
INLINE vec vec_load_scores(const float *from, vec_mask mask)
{
    return load_first(from, mask, -INFINITY);
}
INLINE vec_int vec_load_ints(const int32_t *from, vec_mask mask)
{
    return vreinterpretq_s32_f32(load_first((const float *)from, mask, 0));
}
INLINE void vec_store(float *to, vec v) { vst1q_f32(to, v); }
INLINE void vec_store_first(float *to, vec_mask mask, vec v) { store_first(to, v, mask); }
INLINE vec vec_max(vec a, vec b) { return vmaxq_f32(a, b); }
INLINE vec vec_multiply_add(vec a, vec b, vec sum) { return vfmaq_f32(sum, a, b); }
INLINE vec vec_where_greater(vec a, float limit, vec v)
{
    const uint32x4_t greater = vcgtq_f32(a, vdupq_n_f32(limit));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), greater));
}
INLINE float vec_max_lane(vec v) { return vmaxvq_f32(v); }
INLINE float vec_sum_lanes(vec v)
{
    const float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}

INLINE void vec_hide_key(float *s, int key, vec_int first, vec_int end, vec_mask mask)
{
    const int32x4_t at = vdupq_n_s32(key);
    const uint32x4_t hidden = vorrq_u32(vcltq_s32(at, first), vcgeq_s32(at, end));
    store_first(s, vbslq_f32(hidden, vdupq_n_f32(-INFINITY), load_first(s, mask, 0)), mask);
}

INLINE vec exp_lanes(vec x)
{
    const float32x4_t round = vdupq_n_f32(EXP_ROUND);
    float32x4_t rounded = vfmaq_f32(round, x, vdupq_n_f32(EXP_LOG2E));
    float32x4_t n = vsubq_f32(rounded, round);
    float32x4_t power = vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(rounded), 23));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(EXP_LN2_HI));
    r = vfmsq_f32(r, n, vdupq_n_f32(EXP_LN2_LO));
    float32x4_t q = vfmaq_f32(vdupq_n_f32(EXP_Q3), vdupq_n_f32(EXP_Q4), r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q2), q, r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q1), q, r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q0), q, r);
    float32x4_t p = vfmaq_f32(r, vmulq_f32(r, r), q);
    float32x4_t e = vmulq_f32(vaddq_f32(p, vdupq_n_f32(1)), power);
    uint32x4_t normal = vcgeq_f32(x, vdupq_n_f32(EXP_LOWEST));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(e), normal));
}

#define EXP_VECTORS 4 /* of rows, side by side in rows.h */
#define MAX_CHAINS 2  /* maxima of keys that do not wait for one another */
#define ROW_VECTORS 1 /* of one row */

INLINE void exp_vectors(vec x[], const int count)
{
    unroll_for(i, count)
        x[i] = exp_lanes(x[i]);
}

INLINE void transpose_lanes(vec out[LANES], vec in[LANES])
{
    float32x4_t t[LANES];
    unroll_for(i, 2) {
        t[i] = vzip1q_f32(in[i], in[i + 2]);
        t[2 + i] = vzip2q_f32(in[i], in[i + 2]);
    }
    unroll_for(i, 2) {
        out[2 * i] = vzip1q_f32(t[2 * i], t[2 * i + 1]);
        out[2 * i + 1] = vzip2q_f32(t[2 * i], t[2 * i + 1]);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------- */

/* Loads a vector of a tile.  Where `masked` (constant) only `count` floats are read. */
INLINE float32x4_t load_part(const float *from, size_t count, const bool masked)
{
    return masked ? load_first(from, count, 0) : vld1q_f32(from);
}

INLINE void store_part(float *to, float32x4_t v, size_t count, const bool masked)
{
    store_first(to, v, masked ? count : LANES);
}

/* OPERATION "by element": sum + v * factors[lane], lane constant, in one instruction.  Assembler,
 * because the compiler would first duplicate the lane and then multiply by the copy. */
#define BY_ELEMENT(operation, sum, v, factors, lane, of, element) \
    switch (lane) {                                               \
    case 0:                                                       \
        __asm__(operation " %0.4s, %1." of ", %2." element "[0]"  \
                : "+w"(sum)                                       \
                : "w"(v), "w"(factors));                          \
        break;                                                    \
    case 1:                                                       \
        __asm__(operation " %0.4s, %1." of ", %2." element "[1]"  \
                : "+w"(sum)                                       \
                : "w"(v), "w"(factors));                          \
        break;                                                    \
    case 2:                                                       \
        __asm__(operation " %0.4s, %1." of ", %2." element "[2]"  \
                : "+w"(sum)                                       \
                : "w"(v), "w"(factors));                          \
        break;                                                    \
    default:                                                      \
        __asm__(operation " %0.4s, %1." of ", %2." element "[3]"  \
                : "+w"(sum)                                       \
                : "w"(v), "w"(factors));                          \
    }

INLINE float32x4_t multiply_add(float32x4_t sum, float32x4_t v, float32x4_t factors, const int lane)
{
    BY_ELEMENT("fmla", sum, v, factors, lane, "4s", "s")
    return sum;
}

#endif
