/* widen.c: the loops run over blocks of fixed length, which compilers turn into vector code at -O2
 * too. */
#include "basics/widen.h"

#include "basics/half_float.h"

#define BLOCK 64

static inline uint32_t is_special(uint16_t half, uint16_t exponent)
{
    return (half & exponent) == exponent;
}

bool attn_widen_f16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    uint32_t special = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++) {
            out[i + j] = attn_f16_to_float(in[i + j]);
            special |= is_special(in[i + j], 0x7c00);
        }
    for (; i < n; i++) {
        out[i] = attn_f16_to_float(in[i]);
        special |= is_special(in[i], 0x7c00);
    }
    return special == 0;
}

bool attn_widen_bf16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    uint32_t special = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++) {
            out[i + j] = attn_bf16_to_float(in[i + j]);
            special |= is_special(in[i + j], 0x7f80);
        }
    for (; i < n; i++) {
        out[i] = attn_bf16_to_float(in[i]);
        special |= is_special(in[i], 0x7f80);
    }
    return special == 0;
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
