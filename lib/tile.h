/* tile.h: keys and values of ATTN_TILE tokens, in the form that attention reads.
 *
 * A tile holds for one key/value head the keys transposed, [D][ATTN_TILE], and the values in
 * panels of ATTN_TILE_PANEL components, [ATTN_TILE][width] each, the last one as wide as what is
 * left.  So scores and weighted sums are both row-major products without horizontal sums, and
 * reading them is one stream from the tile's first byte to its last.  Cache blocks hold tiles;
 * attention over given rows makes them on the way.
 *
 * Its numbers are of any dtype.  Those of int8 are multiples of a scale that each token has for its
 * key and for its value, max|x| / 127; all are rounded to the nearest, ties to even.  A byte is the
 * integer + 128, and four numbers that are multiplied one after the other share a word: keys are
 * [words of D][ATTN_TILE][4], a panel of values [ATTN_TILE / 4][width][4]. */
#ifndef ATTN_LIB_TILE_H
#define ATTN_LIB_TILE_H

#include "attn.h"

#define ATTN_TILE 64 /* tokens */

struct attn_tile {
    void *k, *v;              /* of dtype, as above */
    float *k_scale, *v_scale; /* [ATTN_TILE] each; NULL but for int8 */
    enum attn_dtype dtype;
};

/* Columns of a panel. */
static inline size_t attn_tile_panel(enum attn_dtype dtype) { return dtype == ATTN_INT8 ? 32 : 64; }

/* Of n columns those in the panel that begins with column j. */
static inline size_t attn_tile_width(enum attn_dtype dtype, size_t n, size_t j)
{
    return n - j < attn_tile_panel(dtype) ? n - j : attn_tile_panel(dtype);
}

/* Bytes of a token's value [Dv], of its key [D], which is whole words, and of its scales. */
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

/* Stores one token's key [D] and value [Dv] in slot `slot`.  False where one of the numbers is
 * beyond the largest of the dtype, which only f16 has below ATTN_MAX_MAGNITUDE: the slot then
 * holds an infinity. */
bool attn_tile_put(const struct attn_tile *tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv);

/* Its value alone. */
bool attn_tile_put_value(const struct attn_tile *tile, size_t slot, const float *value, size_t dv);

/* The inverse, exactly what attention computes with; key or value may be NULL. */
void attn_tile_get(float *key, float *value, const struct attn_tile *tile, size_t slot, size_t d,
                   size_t dv);

#endif
