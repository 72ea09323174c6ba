/* widen.c: the loops run over blocks of fixed length, which compilers turn into vector code at -O2
 * too. */
#include "basics/widen.h"

#include "basics/half_float.h"

#define BLOCK 64
#define F16 0x7c00 /* exponents, all ones */
#define BF16 0x7f80

/* `exponent` (constant) says which format it is. */
static inline __attribute__((always_inline)) bool widen(float *restrict out,
                                                        const uint16_t *restrict in, size_t n,
                                                        const uint16_t exponent)
{
    uint32_t special = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++) {
            out[i + j] =
                exponent == BF16 ? attn_bf16_to_float(in[i + j]) : attn_f16_to_float(in[i + j]);
            special |= (in[i + j] & exponent) == exponent;
        }
    for (; i < n; i++) {
        out[i] = exponent == BF16 ? attn_bf16_to_float(in[i]) : attn_f16_to_float(in[i]);
        special |= (in[i] & exponent) == exponent;
    }
    return special == 0;
}

bool attn_widen_f16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    return widen(out, in, n, F16);
}

bool attn_widen_bf16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    return widen(out, in, n, BF16);
}

bool attn_all_finite(const float *x, size_t n)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t special = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++)
            special |= (attn_float_to_bits(x[i + j]) & exponent) == exponent;
    for (; i < n; i++)
        special |= (attn_float_to_bits(x[i]) & exponent) == exponent;
    return special == 0;
}
