/* tile.c: storing a token in a tile, and reading it back.
 *
 * A token's numbers are first converted to the tile's dtype, side by side, and then moved to their
 * places: words of a key a panel's width apart, a value panel by panel.  All that depends on the
 * dtype is a row of the table `formats`; no loop asks for the dtype.  Loops over numbers are
 * plain: gcc makes vector code of them at -O3 (Makefile). */
#include "basics/tile.h"

#include <float.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "basics/widen.h"

#define INLINE static inline __attribute__((always_inline))

#define INT8_LARGEST 127
#define WORD 4 /* bytes, and numbers of int8 */

/* ---- Converting ------------------------------------------------------------------------------ */

static bool encode_bf16(void *restrict out, float *scale, const float *restrict x, size_t n)
{
    uint16_t *to = out;
    (void)scale;
    for (size_t i = 0; i < n; i++)
        to[i] = attn_float_to_bf16(x[i]);
    return true;
}

static bool encode_f16(void *restrict out, float *scale, const float *restrict x, size_t n)
{
    uint16_t *to = out;
    int16_t largest = 0; /* bits without sign, ordered as magnitudes */
    (void)scale;
    for (size_t i = 0; i < n; i++) {
        to[i] = attn_float_to_f16(x[i]);
        const int16_t size = (int16_t)(to[i] & 0x7fffu);
        largest = size > largest ? size : largest;
    }
    return largest < 0x7c00;
}

/* max |x| */
static float magnitude(const float *x, size_t n)
{
    int32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(attn_float_to_bits(x[i]) & 0x7fffffffu);
        largest = size > largest ? size : largest;
    }
    return attn_bits_to_float((uint32_t)largest);
}

/* The nearest integer to x, which is within +-127, plus 128.  Near 1.5 * 2^23 the last bit of a
 * float counts 1, so the addition rounds and leaves the integer in the low byte. */
INLINE uint8_t nearest(float x)
{
    return (uint8_t)((attn_float_to_bits(x + 12582912.0f) & 0xffu) ^ 0x80u);
}

/* The scale by which `largest` is 127 steps, rounded up to 17 bits.  127 steps are then exactly a
 * float, and numbers read from a tile are stored again as the same integers. */
static float scale_of(float largest)
{
    return attn_bits_to_float((attn_float_to_bits(largest / INT8_LARGEST) + 0x7fu) & ~0x7fu);
}

float attn_tile_largest(enum attn_dtype dtype)
{
    return dtype == ATTN_INT8 ? INT8_LARGEST * scale_of(ATTN_MAX_MAGNITUDE) : ATTN_MAX_MAGNITUDE;
}

/* Where the scale would not be a normal float all numbers become 0. */
static bool encode_int8(void *restrict out, float *scale, const float *restrict x, size_t n)
{
    uint8_t *to = out;
    float largest = magnitude(x, n);
    bool zero = largest < INT8_LARGEST * FLT_MIN;
    float step = zero ? 0 : scale_of(largest), per_step = zero ? 0 : 1 / step;
    for (size_t i = 0; i < n; i++)
        to[i] = nearest(x[i] * per_step);
    for (size_t i = n; i % WORD != 0; i++)
        to[i] = nearest(0);
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
    const uint8_t *from = in;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(from[i] - 128) * scale;
}

/* ---- Moving ---------------------------------------------------------------------------------- */

/* Copies n numbers of `size` bytes (constant), which are `from` numbers apart in `in` and `to`
 * apart in `out`. */
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

/* The same for numbers that are side by side in both. */
static void copy_2(void *out, size_t to, const void *in, size_t from, size_t n)
{
    (void)to, (void)from;
    memcpy(out, in, n * 2);
}

static void copy_4(void *out, size_t to, const void *in, size_t from, size_t n)
{
    (void)to, (void)from;
    memcpy(out, in, n * 4);
}

struct format {
    size_t bytes; /* of a number */
    size_t each;  /* numbers moved together: a word of four int8, else one number */
    bool (*encode)(void *out, float *scale, const float *x, size_t n); /* whole words; NULL: the
                                                                          dtype is float32 */
    void (*decode)(float *out, const void *in, float scale, size_t n);
    void (*move_words)(void *out, size_t to, const void *in, size_t from, size_t n);
    void (*move)(void *out, size_t to, const void *in, size_t from, size_t n);
};

static const struct format formats[] = {
    [ATTN_F32] = {4, 1, NULL, decode_f32, move_4, copy_4},
    [ATTN_BF16] = {2, 1, encode_bf16, decode_bf16, move_2, copy_2},
    [ATTN_F16] = {2, 1, encode_f16, decode_f16, move_2, copy_2},
    [ATTN_INT8] = {1, WORD, encode_int8, decode_int8, move_4, move_1},
};

static size_t words_of(const struct format *format, size_t n)
{
    return attn_ceil_div(n, format->each);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static float *scale_at(float *scales, size_t slot) { return scales != NULL ? scales + slot : NULL; }

/* One token's key or value in the tile's dtype. */
struct row {
    _Alignas(64) unsigned char numbers[ATTN_MAX_HEAD_DIM * sizeof(float)];
};

/* Converts x to the tile's dtype: *numbers becomes x itself where that is float32, else
 * row->numbers.  False where a number is beyond the largest of the dtype. */
static bool encode(const unsigned char **numbers, struct row *row, const struct format *format,
                   float *scale, const float *x, size_t n)
{
    *numbers = format->encode != NULL ? row->numbers : (const unsigned char *)x;
    return format->encode == NULL || format->encode(row->numbers, scale, x, n);
}

/* The byte of a tile's keys where the key of a slot begins; its words are a panel apart. */
static size_t key_at(const struct attn_tile *tile, size_t slot, size_t d)
{
    const struct format *format = &formats[tile->dtype];
    const size_t panel = attn_tile_panel(tile->dtype);
    return slot / panel * panel * attn_tile_key_bytes(tile->dtype, d) +
           slot % panel * format->each * format->bytes;
}

/* The byte of a tile's values where the value of a slot begins in the panel of components [j, j +
 * width). */
static size_t value_at(const struct format *format, size_t slot, size_t j, size_t width)
{
    const size_t each = format->each;
    return (j * ATTN_TILE + slot / each * each * width + slot % each) * format->bytes;
}

/* Stores a key [d] at `k`, where the keys of the tile or its second keys begin. */
static bool put_key(unsigned char *k, float *scale, const struct attn_tile *tile, size_t slot,
                    const float *key, size_t d)
{
    const struct format *format = &formats[tile->dtype];
    const unsigned char *numbers;
    struct row row;
    bool fits = encode(&numbers, &row, format, scale_at(scale, slot), key, d);
    format->move_words(k + key_at(tile, slot, d), attn_tile_panel(tile->dtype), numbers, 1,
                       words_of(format, d));
    return fits;
}

bool attn_tile_put_value(const struct attn_tile *tile, size_t slot, const float *value, size_t dv)
{
    const struct format *format = &formats[tile->dtype];
    unsigned char *v = tile->v;
    const unsigned char *numbers;
    struct row row;
    if (tile->second_key) {
        const size_t second = dv - tile->third;
        bool both = put_key(v, tile->v_scale, tile, slot, value, second);
        return (tile->third == 0 ||
                put_key(tile->t, tile->t_scale, tile, slot, value + second, tile->third)) &&
               both;
    }
    bool fits = encode(&numbers, &row, format, scale_at(tile->v_scale, slot), value, dv);
    for (size_t j = 0, width; j < dv; j += width) {
        width = attn_tile_width(tile->dtype, dv, j);
        format->move(v + value_at(format, slot, j, width), format->each,
                     numbers + j * format->bytes, 1, width);
    }
    return fits;
}

bool attn_tile_put(const struct attn_tile *tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv)
{
    bool fits = put_key(tile->k, tile->k_scale, tile, slot, key, d);
    return attn_tile_put_value(tile, slot, value, dv) && fits;
}

static void get_key(float *key, const unsigned char *k, const float *scale,
                    const struct attn_tile *tile, size_t slot, size_t d)
{
    const struct format *format = &formats[tile->dtype];
    struct row row;
    format->move_words(row.numbers, 1, k + key_at(tile, slot, d), attn_tile_panel(tile->dtype),
                       words_of(format, d));
    format->decode(key, row.numbers, scale != NULL ? scale[slot] : 1, d);
}

void attn_tile_get(float *key, float *value, const struct attn_tile *tile, size_t slot, size_t d,
                   size_t dv)
{
    const struct format *format = &formats[tile->dtype];
    const unsigned char *v = tile->v;
    struct row row;
    if (key != NULL)
        get_key(key, tile->k, tile->k_scale, tile, slot, d);
    if (value != NULL && tile->second_key) {
        get_key(value, v, tile->v_scale, tile, slot, dv - tile->third);
        if (tile->third > 0)
            get_key(value + dv - tile->third, tile->t, tile->t_scale, tile, slot, tile->third);
        return;
    }
    for (size_t j = 0, width; value != NULL && j < dv; j += width) {
        width = attn_tile_width(tile->dtype, dv, j);
        format->move(row.numbers, 1, v + value_at(format, slot, j, width), format->each, width);
        format->decode(value + j, row.numbers, tile->v_scale != NULL ? tile->v_scale[slot] : 1,
                       width);
    }
}
