/* tile.h: keys and values of ATTN_TILE tokens, in the form that attention reads.
 *
 * A tile holds for one key/value head the keys transposed, [D][ATTN_TILE], and the values in
 * panels of ATTN_TILE_PANEL components, [ATTN_TILE][width] each, the last one as wide as what is
 * left.  So scores and weighted sums are both row-major products without horizontal sums, and
 * reading them is one stream from the tile's first byte to its last.  Cache blocks hold tiles;
 * attention over given rows makes them on the way. */
#ifndef ATTN_LIB_TILE_H
#define ATTN_LIB_TILE_H

#include <stddef.h>

#define ATTN_TILE 64       /* tokens */
#define ATTN_TILE_PANEL 64 /* components of a value that stand together */

/* Components in the panel that begins with component j of Dv; it begins at element j * ATTN_TILE of
 * the tile's values. */
static inline size_t attn_tile_width(size_t dv, size_t j)
{
    return dv - j < ATTN_TILE_PANEL ? dv - j : ATTN_TILE_PANEL;
}

/* Stores one token's key [D] and value [Dv] in slot `slot` of a tile. */
void attn_tile_put(float *k_tile, float *v_tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv);

/* Its value alone. */
void attn_tile_put_value(float *v_tile, size_t slot, const float *value, size_t dv);

/* The inverse; key or value may be NULL. */
void attn_tile_get(float *key, float *value, const float *k_tile, const float *v_tile, size_t slot,
                   size_t d, size_t dv);

#endif
