/* tile.c: tokens into and out of a tile.
 *
 * A token's numbers are first brought into the tile's dtype, side by side, and then moved to where
 * they stand: keys a tile's width apart, values panel by panel.  What depends on the dtype is a
 * row of the table `formats`; loops never ask for it.  Loops over numbers run over blocks of fixed
 * length, which compilers turn into vector code at -O2 too. */
#include "tile.h"

#include <float.h>
#include <string.h>

#include "half_float.h"
#include "widen.h"

#define INLINE static inline __attribute__((always_inline))

#define BLOCK 16 /* numbers */
#define INT8_LARGEST 127

/* ---- Numbers to a dtype and back ------------------------------------------------------------- */

static bool encode_f32(void *out, float *scale, const float *x, size_t n)
{
    (void)scale;
    memcpy(out, x, n * sizeof *x);
    return true;
}

static bool encode_bf16(void *out, float *scale, const float *x, size_t n)
{
    uint16_t *to = out;
    size_t i = 0;
    (void)scale;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++)
            to[i + j] = attn_float_bf16(x[i + j]);
    for (; i < n; i++)
        to[i] = attn_float_bf16(x[i]);
    return true;
}

static bool encode_f16(void *out, float *scale, const float *x, size_t n)
{
    uint16_t *to = out;
    uint32_t largest[BLOCK] = {0}, most = 0; /* as bits, which are in the order of magnitudes */
    size_t i = 0;
    (void)scale;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++) {
            uint16_t half = attn_float_f16(x[i + j]);
            uint32_t size = half & 0x7fffu;
            largest[j] = size > largest[j] ? size : largest[j];
            to[i + j] = half;
        }
    for (; i < n; i++) {
        to[i] = attn_float_f16(x[i]);
        most = (to[i] & 0x7fffu) > most ? to[i] & 0x7fffu : most;
    }
    for (size_t j = 0; j < BLOCK; j++)
        most = largest[j] > most ? largest[j] : most;
    return most < 0x7c00;
}

/* max |x| */
static float magnitude(const float *x, size_t n)
{
    uint32_t largest[BLOCK] = {0}, most = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++) {
            uint32_t size = attn_float_bits(x[i + j]) & 0x7fffffffu;
            largest[j] = size > largest[j] ? size : largest[j];
        }
    for (; i < n; i++)
        most = (attn_float_bits(x[i]) & 0x7fffffffu) > most ? attn_float_bits(x[i]) & 0x7fffffffu
                                                            : most;
    for (size_t j = 0; j < BLOCK; j++)
        most = largest[j] > most ? largest[j] : most;
    return attn_bits_float(most);
}

/* The nearest integer to x, which is within +-127: beside 1.5 * 2^23 the last bit of a float counts
 * 1, so adding rounds, and the low byte is the integer. */
INLINE int8_t nearest(float x)
{
    return (int8_t)(uint8_t)(attn_float_bits(x + 12582912.0f) & 0xffu);
}

/* The scale of 127 steps to `largest`, rounded up to 17 bits: so 127 steps are a float exactly, and
 * numbers that were read from a tile come back as the same integers. */
static float scale_of(float largest)
{
    return attn_bits_float((attn_float_bits(largest / INT8_LARGEST) + 0x7fu) & ~0x7fu);
}

/* Numbers whose scale would not be a normal float become 0. */
static bool encode_int8(void *out, float *scale, const float *x, size_t n)
{
    int8_t *to = out;
    float largest = magnitude(x, n);
    bool zero = largest < INT8_LARGEST * FLT_MIN;
    float step = zero ? 0 : scale_of(largest), per_step = zero ? 0 : 1 / step;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t j = 0; j < BLOCK; j++)
            to[i + j] = nearest(x[i + j] * per_step);
    for (; i < n; i++)
        to[i] = nearest(x[i] * per_step);
    *scale = step;
    return true;
}

static void decode_f32(float *out, const void *in, float scale, size_t n)
{
    (void)scale;
    memcpy(out, in, n * sizeof *out);
}

static void decode_bf16(float *out, const void *in, float scale, size_t n)
{
    (void)scale;
    (void)attn_widen_bf16(out, in, n);
}

static void decode_f16(float *out, const void *in, float scale, size_t n)
{
    (void)scale;
    (void)attn_widen_f16(out, in, n);
}

static void decode_int8(float *out, const void *in, float scale, size_t n)
{
    const int8_t *from = in;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)from[i] * scale;
}

/* ---- Numbers to where they stand ------------------------------------------------------------- */

/* n numbers of `size` bytes, `to` and `from` of them apart. */
INLINE void move(unsigned char *out, size_t to, const unsigned char *in, size_t from, size_t n,
                 const size_t size)
{
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * to * size, in + i * from * size, size);
}

static void move_1(void *out, size_t to, const void *in, size_t from, size_t n)
{
    move(out, to, in, from, n, 1);
}

static void move_2(void *out, size_t to, const void *in, size_t from, size_t n)
{
    move(out, to, in, from, n, 2);
}

static void move_4(void *out, size_t to, const void *in, size_t from, size_t n)
{
    move(out, to, in, from, n, 4);
}

struct format {
    size_t bytes;       /* of a number */
    size_t scale_bytes; /* of a token: for its key and its value */
    bool (*encode)(void *out, float *scale, const float *x, size_t n);
    void (*decode)(float *out, const void *in, float scale, size_t n);
    void (*move)(void *out, size_t to, const void *in, size_t from, size_t n);
};

static const struct format formats[] = {
    [ATTN_F32] = {4, 0, encode_f32, decode_f32, move_4},
    [ATTN_BF16] = {2, 0, encode_bf16, decode_bf16, move_2},
    [ATTN_F16] = {2, 0, encode_f16, decode_f16, move_2},
    [ATTN_INT8] = {1, 2 * sizeof(float), encode_int8, decode_int8, move_1},
};

size_t attn_tile_number_bytes(enum attn_dtype dtype) { return formats[dtype].bytes; }

size_t attn_tile_scale_bytes(enum attn_dtype dtype) { return formats[dtype].scale_bytes; }

/* ---- Tokens ---------------------------------------------------------------------------------- */

static float *scale_at(float *scales, size_t slot) { return scales != NULL ? scales + slot : NULL; }

/* One token's key or value in the tile's dtype. */
struct row {
    _Alignas(64) unsigned char numbers[ATTN_MAX_HEAD_DIM * sizeof(float)];
};

bool attn_tile_put_value(const struct attn_tile *tile, size_t slot, const float *value, size_t dv)
{
    const struct format *format = &formats[tile->dtype];
    const size_t bytes = format->bytes;
    unsigned char *v = tile->v;
    struct row row;
    bool fits = format->encode(row.numbers, scale_at(tile->v_scale, slot), value, dv);
    for (size_t j = 0, width; j < dv; j += width) {
        width = attn_tile_width(dv, j);
        memcpy(v + (j * ATTN_TILE + slot * width) * bytes, row.numbers + j * bytes, width * bytes);
    }
    return fits;
}

bool attn_tile_put(const struct attn_tile *tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv)
{
    const struct format *format = &formats[tile->dtype];
    unsigned char *k = tile->k;
    struct row row;
    bool fits = format->encode(row.numbers, scale_at(tile->k_scale, slot), key, d);
    format->move(k + slot * format->bytes, ATTN_TILE, row.numbers, 1, d);
    return attn_tile_put_value(tile, slot, value, dv) && fits;
}

void attn_tile_get(float *key, float *value, const struct attn_tile *tile, size_t slot, size_t d,
                   size_t dv)
{
    const struct format *format = &formats[tile->dtype];
    const size_t bytes = format->bytes;
    const unsigned char *k = tile->k, *v = tile->v;
    struct row row;
    if (key != NULL) {
        format->move(row.numbers, 1, k + slot * bytes, ATTN_TILE, d);
        format->decode(key, row.numbers, tile->k_scale != NULL ? tile->k_scale[slot] : 1, d);
    }
    for (size_t j = 0, width; value != NULL && j < dv; j += width) {
        width = attn_tile_width(dv, j);
        format->decode(value + j, v + (j * ATTN_TILE + slot * width) * bytes,
                       tile->v_scale != NULL ? tile->v_scale[slot] : 1, width);
    }
}
