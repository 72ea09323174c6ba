/* neon.h: helpers shared by the files of the arm64 levels: partial vectors, products with
 * one lane, exp. */
#ifndef ATTN_LIB_KERNELS_NEON_H
#define ATTN_LIB_KERNELS_NEON_H

#include <arm_neon.h>
#include <math.h>

#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))
/* A loop over the registers of a tile, unrolled so that each array element is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

#define LANES 4

/* Loads the first `count` floats, or LANES of them; the other lanes are `fill`.  Nothing beyond is
 * read. */
INLINE float32x4_t load_first_neon(const float *from, size_t count, float fill)
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
INLINE void store_first_neon(float *to, float32x4_t v, size_t count)
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

/* Loads a vector of a tile.  Where `masked` (constant) only `count` floats are read. */
INLINE float32x4_t load_neon(const float *from, size_t count, const bool masked)
{
    return masked ? load_first_neon(from, count, 0) : vld1q_f32(from);
}

INLINE void store_neon(float *to, float32x4_t v, size_t count, const bool masked)
{
    store_first_neon(to, v, masked ? count : LANES);
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

INLINE float32x4_t multiply_add_neon(float32x4_t sum, float32x4_t v, float32x4_t factors,
                                     const int lane)
{
    BY_ELEMENT("fmla", sum, v, factors, lane, "4s", "s")
    return sum;
}

/* exp(x) of each lane, see exp.h. */
INLINE float32x4_t exp_lanes_neon(float32x4_t x)
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

/* The sum of all lanes, the upper half added to the lower until one lane is left. */
INLINE float sum_lanes_neon(float32x4_t v)
{
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}

/* Ends a step of the softmax for `count` rows, whose maxima are now `top`: stores the maxima, the
 * factors of the sums before the step, and the sums, to which the step adds `total`. */
INLINE void softmax_end_neon(float32x4_t top, float32x4_t total, float *max, float *sum,
                             float *rescale, size_t count)
{
    uint32x4_t seen = vcgtq_f32(top, vdupq_n_f32(-INFINITY));
    uint32x4_t change =
        vreinterpretq_u32_f32(vsubq_f32(load_first_neon(max, count, -INFINITY), top));
    /* 1 where no key was seen */
    float32x4_t scale = exp_lanes_neon(vreinterpretq_f32_u32(vandq_u32(change, seen)));
    total = vfmaq_f32(total, load_first_neon(sum, count, 0), scale);
    store_first_neon(max, top, count);
    store_first_neon(sum, total, count);
    store_first_neon(rescale, scale, count);
}

#endif
