/* alike.h: blocks that hold the same tokens, found by what is in them; attn_state.h has the public
 * calls.
 *
 * Blocks are alike where their layers' heads, widths and kv_dtype are the same and the tokens of
 * one are the first tokens of the other: then one block can hold both, since nobody looks at slots
 * beyond his own length. */
#ifndef ATTN_LIB_ALIKE_H
#define ATTN_LIB_ALIKE_H

#include "attn_state.h"
#include "kvcache.h"

/* attn_cache_write of a block's tokens, at most ATTN_TILE, to a layer whose length is a multiple of
 * that: where a block holds the same tokens, or the first of them and no others, the cache shares
 * it; else it takes one, which is found from then on.  Errors: as attn_cache_write. */
enum attn_status attn_alike_write(struct attn_alike *alike, struct attn_cache *cache, size_t layer,
                                  size_t count, const float *key, const float *value,
                                  struct attn_error *error);

#endif
