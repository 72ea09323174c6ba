/* portable.h: helpers shared by the files of the portable level: lanes and exp. */
#ifndef ATTN_LIB_KERNELS_PORTABLE_H
#define ATTN_LIB_KERNELS_PORTABLE_H

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernels/exp.h"
#include "kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))

#define LANES 32 /* columns or partial sums side by side; gcc makes no vector loop of fewer */

/* The sum of all lanes, the upper half added to the lower until one lane is left. */
INLINE float sum_lanes_portable(float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* exp(x), see exp.h.  The comparison becomes a mask because the compiler does not vectorise
 * a choice between a result and 0. */
INLINE float exp_portable(float x)
{
    float rounded = x * EXP_LOG2E + EXP_ROUND, n = rounded - EXP_ROUND;
    float r = (x - n * EXP_LN2_HI) - n * EXP_LN2_LO;
    float q = (((EXP_Q4 * r + EXP_Q3) * r + EXP_Q2) * r + EXP_Q1) * r + EXP_Q0;
    float e = (1.0f + (r + r * r * q)) * attn_bits_to_float(attn_float_to_bits(rounded) << 23);
    return attn_bits_to_float(attn_float_to_bits(e) & -(uint32_t)(x >= EXP_LOWEST));
}

#endif
