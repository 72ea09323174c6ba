/* widen.c: loops over blocks of fixed length, which compilers turn into vector code at -O2 too. */
#include "widen.h"

#include <string.h>

#define BLOCK 64

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* All ones where `condition` holds: a choice between two values without a branch. */
static inline uint32_t mask_of(bool condition) { return 0u - (uint32_t)condition; }

/* Half: 1 sign, 5 exponent, 10 fraction bits; float: 1, 8, 23.  An exponent field of 0 means
 * fraction x 2^-24, which is built as (2^-14 + fraction) - 2^-14; 31 means infinity or NaN and
 * needs the float's 255. */
static inline float widen_f16(uint16_t half)
{
    const uint32_t shift = 112u << 23;    /* between the biases of the exponents, 127 and 15 */
    const uint32_t smallest = 113u << 23; /* 2^-14, the least normal half */
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = rest & 0x0f800000u;
    uint32_t normal = rest + shift + (shift & mask_of(exponent == 0x0f800000u));
    uint32_t small = float_bits(bits_float(rest + smallest) - bits_float(smallest));
    uint32_t is_small = mask_of(exponent == 0);
    return bits_float(sign | (small & is_small) | (normal & ~is_small));
}

static inline float widen_bf16(uint16_t half) { return bits_float((uint32_t)half << 16); }

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
            out[i + j] = widen_f16(in[i + j]);
            special |= is_special(in[i + j], 0x7c00);
        }
    for (; i < n; i++) {
        out[i] = widen_f16(in[i]);
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
            out[i + j] = widen_bf16(in[i + j]);
            special |= is_special(in[i + j], 0x7f80);
        }
    for (; i < n; i++) {
        out[i] = widen_bf16(in[i]);
        special |= is_special(in[i], 0x7f80);
    }
    return special == 0;
}

bool attn_widen_check(const float *x, size_t n)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t special = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++)
            special |= (float_bits(x[i + j]) & exponent) == exponent;
    for (; i < n; i++)
        special |= (float_bits(x[i]) & exponent) == exponent;
    return special == 0;
}
