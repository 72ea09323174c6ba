/* widen.h: reading the keys of a tile as float32, common to all levels.
 *
 * The loops are plain C of constant length, which gcc turns into the vectors of the file that
 * includes this header.  Widening is exact, and a product with a scale rounds once, so all levels
 * have the same bits. */
#ifndef ATTN_LIB_KERNELS_WIDEN_H
#define ATTN_LIB_KERNELS_WIDEN_H

#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "basics/tile.h"

#define WIDEN_WORD 4   /* numbers of int8 that share a word */
#define WIDEN_PANEL 32 /* tokens of a panel of int8: attn_tile_panel */

static inline void widen_bf16(float *restrict out, const uint16_t *restrict in)
{
    for (size_t t = 0; t < ATTN_TILE; t++)
        out[t] = attn_bf16_to_float(in[t]);
}

static inline void widen_f16(float *restrict out, const uint16_t *restrict in)
{
    for (size_t t = 0; t < ATTN_TILE; t++)
        out[t] = attn_f16_to_float(in[t]);
}

/* One of the four numbers of a panel's words, `shift` bits up in each. */
static inline void widen_byte(float *restrict out, const uint32_t *restrict words,
                              const float *restrict scale, unsigned shift)
{
    for (size_t t = 0; t < WIDEN_PANEL; t++)
        out[t] = (float)((int32_t)(words[t] >> shift & 0xff) - 128) * scale[t];
}

/* Component i of a tile's d int8 components. */
static inline void widen_int8(float *out, const char *keys, const float *scale, size_t d, size_t i)
{
    const size_t panel_bytes = attn_ceil_div(d, WIDEN_WORD) * WIDEN_PANEL * WIDEN_WORD;
    uint32_t words[WIDEN_PANEL];
    for (size_t first = 0; first < ATTN_TILE; first += WIDEN_PANEL) {
        memcpy(words, keys + first / WIDEN_PANEL * panel_bytes + i / WIDEN_WORD * sizeof words,
               sizeof words);
        widen_byte(out + first, words, scale + first, 8 * (unsigned)(i % WIDEN_WORD));
    }
}

/* The kernel widen_keys. */
static inline void widen_keys(float *out, const void *keys, const float *scale,
                              enum attn_dtype dtype, size_t d)
{
    const uint16_t *halves = keys;
    for (size_t i = 0; i < d; i++, out += ATTN_TILE) {
        if (dtype == ATTN_BF16)
            widen_bf16(out, halves + i * ATTN_TILE);
        else if (dtype == ATTN_F16)
            widen_f16(out, halves + i * ATTN_TILE);
        else if (dtype == ATTN_INT8)
            widen_int8(out, keys, scale, d, i);
        else
            memcpy(out, (const float *)keys + i * ATTN_TILE, ATTN_TILE * sizeof *out);
    }
}

#endif
