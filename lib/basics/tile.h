/* tile.h: keys and values of ATTN_TILE tokens, in the form that attention reads.
 *
 * For one key/value head a tile holds the keys transposed, [D][ATTN_TILE], and the values in panels
 * of attn_tile_panel components, [ATTN_TILE][width] each, the last panel as wide as what is left.
 * Scores and weighted sums are therefore both row-major products without horizontal sums, and
 * reading a tile is one stream from its first byte to its last.  Blocks of a cache hold tiles;
 * attention over given rows packs them on the way.
 *
 * The numbers are of any dtype, rounded to the nearest, ties to even.  A number of int8 is a
 * multiple of the scale that its token has for its key, or for its value: max|x| / 127.  A byte is
 * the integer + 128.  Four int8 that are multiplied one after the other share a word: keys are
 * panels [words of D][panel tokens][4], values panels [ATTN_TILE / 4][width][4]. */
#ifndef ATTN_LIB_BASICS_TILE_H
#define ATTN_LIB_BASICS_TILE_H

#include "attn.h"

#define ATTN_TILE 64 /* tokens */

struct attn_tile {
    void *k, *v;              /* of dtype, as above */
    float *k_scale, *v_scale; /* [ATTN_TILE] each; NULL but for int8 */
    /* The last `third` components of a value lie by themselves, as keys do, with scales of their
     * own: the key of an indexer, in latent attention.  0: none. */
    void *t;
    float *t_scale;
    size_t third;
    enum attn_dtype dtype;
    bool second_key; /* values lie as keys do, transposed: the shared part of latent attention */
    bool pairs;      /* keys [D/2][ATTN_TILE][2] and values [ATTN_TILE/2][Dv][2], of bf16, as
                        attn_kernels' pair_keys and pair_values make them; never a cache's */
};

/* Columns of a panel, of keys (tokens) and of values (components). */
static inline size_t attn_tile_panel(enum attn_dtype dtype) { return dtype == ATTN_INT8 ? 32 : 64; }

/* How many of n columns are in the panel that begins with column j. */
static inline size_t attn_tile_width(enum attn_dtype dtype, size_t n, size_t j)
{
    return n - j < attn_tile_panel(dtype) ? n - j : attn_tile_panel(dtype);
}

/* Bytes of a token's value [Dv], of its key [D] (whole words), and of its two scales. */
static inline size_t attn_tile_value_bytes(enum attn_dtype dtype, size_t dv)
{
    return dv * (dtype == ATTN_F32 ? 4 : dtype == ATTN_INT8 ? 1 : 2);
}

static inline size_t attn_tile_key_bytes(enum attn_dtype dtype, size_t d)
{
    return dtype == ATTN_INT8 ? (d + 3) / 4 * 4 : attn_tile_value_bytes(dtype, d);
}

static inline size_t attn_tile_scale_bytes(enum attn_dtype dtype)
{
    return dtype == ATTN_INT8 ? 2 * sizeof(float) : 0;
}

/* Stores one token's key [D] and value [Dv] in slot `slot`.  False where a number is beyond the
 * largest of the dtype: the slot then holds an infinity.  Only f16 has a largest number below
 * ATTN_MAX_MAGNITUDE. */
bool attn_tile_put(const struct attn_tile *tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv);

/* As attn_tile_put, of a value alone. */
bool attn_tile_put_value(const struct attn_tile *tile, size_t slot, const float *value, size_t dv);

/* The largest number that a tile of the dtype gives back of those within ATTN_MAX_MAGNITUDE.  Of
 * int8 that is a little more, since scales are rounded up: what is stored is bounded by this, and
 * what callers give by ATTN_MAX_MAGNITUDE. */
float attn_tile_largest(enum attn_dtype dtype);

/* Reads one token's key [D] and value [Dv], exactly the numbers that attention computes with;
 * either may be NULL. */
void attn_tile_get(float *key, float *value, const struct attn_tile *tile, size_t slot, size_t d,
                   size_t dv);

#endif
