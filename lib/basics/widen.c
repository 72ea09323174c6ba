/* widen.c: loops that gcc makes vector code of at -O3 (Makefile).
 *
 * The exponent of an infinity or NaN is ones alone, and of no other number: adding the exponent's
 * lowest bit carries into the place of the sign. */
#include "basics/widen.h"

#include "basics/half_float.h"

bool attn_widen_f16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    uint16_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = attn_f16_to_float(in[i]);
        seen |= (uint16_t)((in[i] & 0x7c00u) + 0x0400u);
    }
    return seen >> 15 == 0;
}

bool attn_widen_bf16(float *restrict out, const uint16_t *restrict in, size_t n)
{
    uint16_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = attn_bf16_to_float(in[i]);
        seen |= (uint16_t)((in[i] & 0x7f80u) + 0x0080u);
    }
    return seen >> 15 == 0;
}

bool attn_all_finite(const float *x, size_t n)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++)
        seen |= (attn_float_to_bits(x[i]) & 0x7f800000u) + 0x00800000u;
    return seen >> 31 == 0;
}

size_t attn_first_non_finite(const float *x, size_t n)
{
    size_t i = attn_all_finite(x, n) ? n : 0;
    while (i < n && attn_all_finite(&x[i], 1))
        i++;
    return i;
}
