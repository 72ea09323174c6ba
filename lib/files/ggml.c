/* ggml.c: blocks of ggml's number formats -> float32.
 *
 * In the comments d and m are the scale and the minimum of a block (halves), lo and hi the nibbles
 * of a byte.  A super-block of 256 numbers has 8 parts of 32 numbers, or 16 of 16, each with a
 * small scale of its own. */
#include "files/gguf.h"

#include <string.h>

#include "basics/half_float.h"

#define BLOCK 32
#define SUPER 256

static float half_at(const uint8_t *block)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return attn_f16_to_float(half);
}

static uint32_t word_at(const uint8_t *block)
{
    uint32_t word;
    memcpy(&word, block, sizeof word);
    return word;
}

/* ---- One number a block ---------------------------------------------------------------------- */

static void decode_f32(float *out, const uint8_t *block) { memcpy(out, block, sizeof *out); }

static void decode_f16(float *out, const uint8_t *block) { *out = half_at(block); }

static void decode_bf16(float *out, const uint8_t *block)
{
    *out = attn_bf16_to_float((uint16_t)(block[0] | block[1] << 8));
}

/* ---- Blocks of 32: numbers 0 to 15 are lo, 16 to 31 hi --------------------------------------- */

/* d, 32 signed bytes q: q * d. */
static void decode_q8_0(float *out, const uint8_t *block)
{
    const float d = half_at(block);
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)(int8_t)block[2 + i] * d;
}

/* d, 16 bytes: (nibble - 8) * d. */
static void decode_q4_0(float *out, const uint8_t *block)
{
    const float d = half_at(block);
    const uint8_t *bytes = block + 2;
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = (float)((bytes[i] & 15) - 8) * d;
        out[i + BLOCK / 2] = (float)((bytes[i] >> 4) - 8) * d;
    }
}

/* d, m, 16 bytes: nibble * d + m. */
static void decode_q4_1(float *out, const uint8_t *block)
{
    const float d = half_at(block), m = half_at(block + 2);
    const uint8_t *bytes = block + 4;
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = (float)(bytes[i] & 15) * d + m;
        out[i + BLOCK / 2] = (float)(bytes[i] >> 4) * d + m;
    }
}

/* Number i of 32: a nibble, and bit i of `high` above it. */
static int five_bits(const uint8_t *bytes, uint32_t high, int i)
{
    const int nibble = i < BLOCK / 2 ? bytes[i] & 15 : bytes[i - BLOCK / 2] >> 4;
    return nibble | (int)(high >> i & 1) << 4;
}

/* d, a word of high bits, 16 bytes: (q - 16) * d. */
static void decode_q5_0(float *out, const uint8_t *block)
{
    const float d = half_at(block);
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)(five_bits(block + 6, word_at(block + 2), i) - 16) * d;
}

/* d, m, a word of high bits, 16 bytes: q * d + m. */
static void decode_q5_1(float *out, const uint8_t *block)
{
    const float d = half_at(block), m = half_at(block + 2);
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)five_bits(block + 8, word_at(block + 4), i) * d + m;
}

/* The 16 numbers of the formats IQ4, which lie denser near 0. */
static const int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

/* scale * t[nibble] of 16 bytes. */
static void decode_iq4(float *out, const uint8_t *bytes, float scale)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = scale * (float)iq4_numbers[bytes[i] & 15];
        out[i + BLOCK / 2] = scale * (float)iq4_numbers[bytes[i] >> 4];
    }
}

static void decode_iq4_nl(float *out, const uint8_t *block)
{
    decode_iq4(out, block + 2, half_at(block));
}

/* ---- Super-blocks of 256 --------------------------------------------------------------------- */

/* d, a half-word H, 4 bytes of nibbles, 128 bytes: part j has the scale
 * d * (nibble j + 16 * (bits 2j and 2j + 1 of H) - 32). */
static void decode_iq4_xs(float *out, const uint8_t *block)
{
    const float d = half_at(block);
    const unsigned high = (unsigned)(block[2] | block[3] << 8);
    for (int j = 0; j < SUPER / BLOCK; j++) {
        const unsigned nibble = block[4 + j / 2] >> 4 * (j % 2) & 15u;
        const int scale = (int)(nibble | (high >> 2 * j & 3u) << 4) - 32;
        decode_iq4(out + j * BLOCK, block + 8 + j * BLOCK / 2, d * (float)scale);
    }
}

/* The scale and the minimum of part j of Q4_K and Q5_K, of six bits each in 12 bytes. */
static void six_bits(int *scale, int *minimum, const uint8_t *s, int j)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* d, m, 12 bytes of scales and minima, [32 bytes of high bits,] 128 bytes: parts 2i and 2i + 1 are
 * lo and hi of bytes 32i to 32i + 31; d * scale * q - m * minimum. */
static void decode_q4_q5(float *out, const uint8_t *block, const uint8_t *high,
                         const uint8_t *bytes)
{
    const float d = half_at(block), m = half_at(block + 2);
    for (int j = 0; j < SUPER / BLOCK; j++) {
        int scale, minimum;
        six_bits(&scale, &minimum, block + 4, j);
        const float step = d * (float)scale, least = m * (float)minimum;
        for (int i = 0; i < BLOCK; i++) {
            int q = bytes[j / 2 * BLOCK + i] >> 4 * (j % 2) & 15;
            q |= high != NULL ? (high[i] >> j & 1) << 4 : 0;
            *out++ = step * (float)q - least;
        }
    }
}

static void decode_q4_k(float *out, const uint8_t *block)
{
    decode_q4_q5(out, block, NULL, block + 16);
}

static void decode_q5_k(float *out, const uint8_t *block)
{
    decode_q4_q5(out, block, block + 16, block + 48);
}

/* 16 bytes of scales (lo) and minima (hi), 64 bytes, d, m.  In half n part k, of 32 numbers, has
 * bits 2k and 2k + 1 of bytes 32n to 32n + 31; d * scale * q - m * minimum. */
static void decode_q2_k(float *out, const uint8_t *block)
{
    const float d = half_at(block + 80), m = half_at(block + 82);
    for (int p = 0; p < SUPER / 16; p++) { /* parts of 16 numbers */
        const float step = d * (float)(block[p] & 15), least = m * (float)(block[p] >> 4);
        const uint8_t *bytes = block + 16 + p / 8 * BLOCK + p % 2 * 16;
        for (int i = 0; i < 16; i++)
            *out++ = step * (float)(bytes[i] >> 2 * (p % 8 / 2) & 3) - least;
    }
}

/* 32 bytes of high bits h, 64 bytes, 12 bytes of scales s, d.  q as in Q2_K, less 4 where bit
 * 4n + k of h is 0; the scale of part p, of 16 numbers, is six bits in s, less 32. */
static void decode_q3_k(float *out, const uint8_t *block)
{
    const uint8_t *s = block + 96;
    const float d = half_at(block + 108);
    for (int p = 0; p < SUPER / 16; p++) {
        const int low = p < 8 ? s[p] & 15 : s[p - 8] >> 4;
        const float step = d * (float)((low | (s[8 + p % 4] >> 2 * (p / 4) & 3) << 4) - 32);
        const uint8_t *bytes = block + 32 + p / 8 * BLOCK + p % 2 * 16, *high = block + p % 2 * 16;
        for (int i = 0; i < 16; i++) {
            const int q = bytes[i] >> 2 * (p % 8 / 2) & 3;
            *out++ = step * (float)(q - (high[i] >> p / 2 & 1 ? 0 : 4));
        }
    }
}

/* 128 bytes L, 64 bytes H, 16 signed scales, d.  In half n part k, of 32 numbers, has a nibble of L
 * (lo for k < 2) and bits 2k and 2k + 1 of H; d * scale * (q - 32), a scale for 16 numbers. */
static void decode_q6_k(float *out, const uint8_t *block)
{
    const float d = half_at(block + 208);
    for (int p = 0; p < SUPER / 16; p++) {
        const int n = p / 8, k = p % 8 / 2, first = p % 2 * 16;
        const uint8_t *low = block + 64 * n + BLOCK * (k % 2) + first;
        const uint8_t *high = block + 128 + BLOCK * n + first;
        const float step = d * (float)(int8_t)block[192 + p];
        for (int i = 0; i < 16; i++) {
            const int q = (low[i] >> 4 * (k / 2) & 15) | (high[i] >> 2 * k & 3) << 4;
            *out++ = step * (float)(q - 32);
        }
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

/* ggml's number of a format in files, its name, numbers and bytes of a block, and the function that
 * decodes one; then those that ggml knows and attnd does not read. */
#define READ(X)                            \
    X(0, F32, 1, 4, decode_f32)            \
    X(1, F16, 1, 2, decode_f16)            \
    X(2, Q4_0, 32, 18, decode_q4_0)        \
    X(3, Q4_1, 32, 20, decode_q4_1)        \
    X(6, Q5_0, 32, 22, decode_q5_0)        \
    X(7, Q5_1, 32, 24, decode_q5_1)        \
    X(8, Q8_0, 32, 34, decode_q8_0)        \
    X(10, Q2_K, 256, 84, decode_q2_k)      \
    X(11, Q3_K, 256, 110, decode_q3_k)     \
    X(12, Q4_K, 256, 144, decode_q4_k)     \
    X(13, Q5_K, 256, 176, decode_q5_k)     \
    X(14, Q6_K, 256, 210, decode_q6_k)     \
    X(20, IQ4_NL, 32, 18, decode_iq4_nl)   \
    X(23, IQ4_XS, 256, 136, decode_iq4_xs) \
    X(30, BF16, 1, 2, decode_bf16)
#define NOT_READ(X)         \
    X(9, Q8_1, 32, 36)      \
    X(15, Q8_K, 256, 292)   \
    X(16, IQ2_XXS, 256, 66) \
    X(17, IQ2_XS, 256, 74)  \
    X(18, IQ3_XXS, 256, 98) \
    X(19, IQ1_S, 256, 50)   \
    X(21, IQ3_S, 256, 110)  \
    X(22, IQ2_S, 256, 82)   \
    X(24, I8, 1, 1)         \
    X(25, I16, 1, 2)        \
    X(26, I32, 1, 4)        \
    X(27, I64, 1, 8)        \
    X(28, F64, 1, 8)        \
    X(29, IQ1_M, 256, 56)   \
    X(34, TQ1_0, 256, 54)   \
    X(35, TQ2_0, 256, 66)   \
    X(39, MXFP4, 32, 17)    \
    X(40, NVFP4, 64, 36)    \
    X(41, Q1_0, 128, 18)    \
    X(42, Q2_0, 64, 18)

#define DECODE_BLOCKS(number, name, numbers, bytes, decode)                  \
    static void read_##name(float *out, const uint8_t *blocks, size_t count) \
    {                                                                        \
        for (; count > 0; count--, out += numbers, blocks += bytes)          \
            decode(out, blocks);                                             \
    }
READ(DECODE_BLOCKS)

#define READ_ROW(number, name, numbers, bytes, decode) \
    [number] = {{#name, (8 * bytes + numbers - 1) / numbers, true}, numbers, bytes, read_##name},
#define NOT_READ_ROW(number, name, numbers, bytes) \
    [number] = {{#name, (8 * bytes + numbers - 1) / numbers, false}, numbers, bytes, NULL},
static const struct attn_ggml_type types[] = {READ(READ_ROW) NOT_READ(NOT_READ_ROW)};

const struct attn_ggml_type *attn_ggml_type(uint32_t number)
{
    return number < sizeof types / sizeof types[0] ? &types[number] : NULL;
}
