/* tile.h: keys and values of ATTN_TILE tokens, in the form that attention reads.
 *
 * A tile holds for one key/value head the keys transposed, [D][ATTN_TILE], and the values as they
 * are, [ATTN_TILE][Dv], so that scores and weighted sums are both plain row-major products without
 * horizontal sums.  Cache blocks hold tiles; attention over given rows makes them on the way. */
#ifndef ATTN_LIB_TILE_H
#define ATTN_LIB_TILE_H

#include <stddef.h>

#define ATTN_TILE 64 /* tokens */

/* Stores one token's key [D] and value [Dv] in slot `slot` of a tile. */
void attn_tile_put(float *k_tile, float *v_tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv);

/* The inverse; key or value may be NULL. */
void attn_tile_get(float *key, float *value, const float *k_tile, const float *v_tile, size_t slot,
                   size_t d, size_t dv);

#endif
