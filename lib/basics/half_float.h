/* half_float.h: conversion of one 16-bit float: to float32 exactly, from float32 to the nearest,
 * ties to even.
 *
 * Bits are moved as integers, so neither rounding nor flush-to-zero modes matter, and nothing
 * branches: loops over these functions become vector code. */
#ifndef ATTN_LIB_BASICS_HALF_FLOAT_H
#define ATTN_LIB_BASICS_HALF_FLOAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t attn_float_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float attn_bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* All ones where `condition` holds, else 0: selects between two values without a branch. */
static inline uint32_t attn_all_ones(bool condition) { return 0u - (uint32_t)condition; }

/* IEEE half to float.  A half has 1 sign, 5 exponent and 10 fraction bits; a float 1, 8 and 23.  A
 * half with exponent field 0 is fraction x 2^-24, which is built as (2^-14 + fraction) - 2^-14;
 * exponent field 31 means infinity or NaN and becomes the float's 255. */
static inline float attn_f16_to_float(uint16_t half)
{
    const uint32_t shift = 112u << 23;    /* between the biases of the exponents, 127 and 15 */
    const uint32_t smallest = 113u << 23; /* 2^-14, the least normal half */
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = rest & 0x0f800000u;
    uint32_t normal = rest + shift + (shift & attn_all_ones(exponent == 0x0f800000u));
    uint32_t small =
        attn_float_to_bits(attn_bits_to_float(rest + smallest) - attn_bits_to_float(smallest));
    uint32_t is_small = attn_all_ones(exponent == 0);
    return attn_bits_to_float(sign | (small & is_small) | (normal & ~is_small));
}

/* Bfloat16 to float. */
static inline float attn_bf16_to_float(uint16_t half)
{
    return attn_bits_to_float((uint32_t)half << 16);
}

/* Float to bfloat16.  x is not NaN; beyond the largest bfloat16 it becomes an infinity. */
static inline uint16_t attn_float_to_bf16(float x)
{
    uint32_t bits = attn_float_to_bits(x);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* Float to IEEE half.  x is not NaN; from 65520 on it becomes an infinity.  Below 2^-14 halves are
 * multiples of 2^-24: adding 0.5, whose last bit counts 2^-24, rounds x to a multiple. */
static inline uint16_t attn_float_to_f16(float x)
{
    const uint32_t infinity = 0x7c00, limit = 143u << 23; /* 2^16 */
    uint32_t bits = attn_float_to_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t small = attn_float_to_bits(attn_bits_to_float(size) + 0.5f) - attn_float_to_bits(0.5f);
    uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1)) >> 13;
    uint32_t is_small = attn_all_ones(size < 113u << 23);
    uint32_t is_large = attn_all_ones(size >= limit);
    uint32_t half = (small & is_small) | (normal & ~is_small);
    return (uint16_t)(sign | (infinity & is_large) | (half & ~is_large));
}

#endif
