/* stored.c: blocks that a store keeps, and blocks whose first tokens are there alone. */
#include <string.h>

#include "attn_state.h"
#include "basics/status.h"
#include "caches/kvcache.h"
#include "models/model.h"

const void *attn_block_bytes_of(size_t *size, const struct attn_block *block)
{
    *size = block->bytes;
    return block->data;
}

struct attn_stored attn_block_stored(const struct attn_block *block) { return block->stored; }

void attn_block_set_stored(struct attn_block *block, const struct attn_stored *stored)
{
    block->stored = *stored;
}

size_t attn_block_absent(const struct attn_block *block) { return block->absent; }

/* Copies one token from a block to another: its numbers read and put again are the same bits. */
static void copy_token(struct attn_block *to, const struct attn_block *from,
                       const struct attn_layer_spec *spec, size_t token)
{
    float key[ATTN_MAX_HEAD_DIM], value[ATTN_MAX_HEAD_DIM];
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    for (size_t g = 0; g < sizes.heads; g++) {
        struct attn_tile tile;
        attn_block_tile(&tile, from, spec, g);
        attn_tile_get(key, value, &tile, token, sizes.key, sizes.value);
        attn_block_tile(&tile, to, spec, g);
        (void)attn_tile_put(&tile, token, key, value, sizes.key, sizes.value);
    }
}

void attn_block_fill(struct attn_block *block, const struct attn_layer_spec *spec,
                     const void *bytes)
{
    const struct attn_block stored = {.data = (unsigned char *)bytes};
    const bool whole = block->absent >= block->filled;
    if (whole)
        memcpy(block->data, bytes, block->bytes);
    for (size_t i = 0; i < block->absent && !whole; i++)
        copy_token(block, &stored, spec, i);
    block->absent = 0;
}

enum attn_status attn_cache_append_stored(struct attn_cache *cache, size_t layer, size_t length,
                                          struct attn_block *shared,
                                          const struct attn_stored *stored,
                                          struct attn_error *error)
{
    const size_t before = attn_cache_length(cache, layer);
    if (attn_model_layer(attn_cache_model(cache), layer) == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    const bool has_blocks = !attn_cache_shares_layer(cache, layer);
    const bool given = shared != NULL || stored != NULL;
    if (length < before || given != has_blocks ||
        (has_blocks &&
         (before % ATTN_TILE != 0 || length == before || length - before > ATTN_TILE ||
          (shared == NULL && stored->rows < length - before))))
        return attn_fail(error, ATTN_INVALID, "length",
                         "layer %zu has %zu tokens: no block makes it %zu long", layer, before,
                         length);
    if (length > attn_cache_max_length(cache))
        return attn_fail(error, ATTN_CACHE_FULL, "length", "length is %zu: max_length is %zu",
                         length, attn_cache_max_length(cache));
    if (has_blocks && shared == NULL)
        return attn_cache_append_absent(cache, layer, length, stored, error);
    const enum attn_status status =
        has_blocks ? attn_cache_share_block(cache, layer, shared, error) : ATTN_OK;
    if (status == ATTN_OK)
        attn_cache_publish(cache, layer, length);
    return status;
}
