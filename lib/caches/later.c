/* later.c: tokens that a cache has before their numbers are there.
 *
 * A layer is given its blocks and its length first, and each token later.  Blocks that caches share
 * are filled once, whichever of them is filled first: a block counts its tokens
 * (attn_block.tokens), which come in their order.  So a token that the block has is left as it is,
 * and one that would leave a hole is refused. */
#include <string.h>

#include "attn_state.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "caches/kvcache.h"
#include "models/model.h"

/* The block of that index in a layer, counted from token 0 on; NULL where the cache holds none. */
static struct attn_block *block_at(const struct attn_cache *cache, size_t layer, size_t index)
{
    size_t count;
    struct attn_block *const *blocks = attn_cache_blocks(&count, cache, layer);
    const size_t first = attn_cache_first(cache, layer) / ATTN_TILE;
    return index >= first && index - first < count ? blocks[index - first] : NULL;
}

/* Shares blocks of `from` as long as there are some and tokens up to `end` need them; the layer
 * ends at a block's end. */
static enum attn_status share(struct attn_cache *cache, size_t layer, size_t end,
                              const struct attn_cache *from, size_t blocks,
                              struct attn_error *error)
{
    struct attn_block *block;
    size_t index = attn_cache_length(cache, layer) / ATTN_TILE;
    while (index < blocks && index * ATTN_TILE < end &&
           (block = block_at(from, layer, index)) != NULL) {
        if (attn_cache_share_block(cache, layer, block, error) != ATTN_OK)
            return error->status;
        index++;
        attn_cache_publish(cache, layer, attn_min(index * ATTN_TILE, end));
    }
    return ATTN_OK;
}

enum attn_status attn_cache_lengthen(struct attn_cache *cache, size_t layer, size_t length,
                                     const struct attn_cache *from, size_t blocks,
                                     struct attn_error *error)
{
    const struct attn_model *model = attn_cache_model(cache);
    size_t before = attn_cache_length(cache, layer);
    if (attn_model_layer(model, layer) == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    if (length < before || length > attn_cache_max_length(cache))
        return attn_fail(error, ATTN_CACHE_FULL, "length",
                         "length is %zu: the layer has %zu tokens, max_length is %zu", length,
                         before, attn_cache_max_length(cache));
    if (from != NULL && attn_cache_model(from) == model && before % ATTN_TILE == 0 &&
        !attn_cache_shares_layer(cache, layer) &&
        share(cache, layer, length, from, blocks, error) != ATTN_OK)
        return error->status;
    before = attn_cache_length(cache, layer);
    if (before == length)
        return ATTN_OK;
    enum attn_status status =
        attn_cache_reserve_for(cache, layer, before, length - before, false, error);
    if (status == ATTN_OK)
        attn_cache_publish(cache, layer, length);
    return status;
}

enum attn_status attn_cache_fill(struct attn_cache *cache, size_t layer, size_t token,
                                 const float *key, const float *value, struct attn_error *error)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    if (spec == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    struct attn_block *block = block_at(cache, layer, token / ATTN_TILE);
    if (attn_cache_shares_layer(cache, layer) ||
        (block != NULL && token % ATTN_TILE < block->tokens))
        return ATTN_OK;
    if (block == NULL || token >= attn_cache_length(cache, layer) ||
        token % ATTN_TILE > block->tokens)
        return attn_fail(error, ATTN_INVALID, "token", "token %zu of layer %zu is not the next one",
                         token, layer);
    enum attn_status status = attn_cache_check_rows(spec, 1, key, value, error);
    if (status != ATTN_OK)
        return status;
    if (!attn_cache_put(cache, layer, token, key, value))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "key", "a key or value does not fit %s",
                         attn_dtype_name(spec->kv_dtype));
    block->tokens++;
    return ATTN_OK;
}

enum attn_status attn_cache_fill_rows(struct attn_cache *cache, size_t layer, size_t first,
                                      size_t count, const float *key, const float *value,
                                      struct attn_error *error)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t d = sizes.key, dv = sizes.value, groups = sizes.heads;
    float *row = attn_alloc(groups, (d + dv) * sizeof *row); /* key [G][D], value [G][Dv] */
    if (row == NULL)
        return attn_fail_memory(error, groups * (d + dv) * sizeof *row);
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < count && status == ATTN_OK; i++) {
        for (size_t g = 0; g < groups; g++) {
            memcpy(row + g * d, key + (g * count + i) * d, d * sizeof *row);
            memcpy(row + groups * d + g * dv, value + (g * count + i) * dv, dv * sizeof *row);
        }
        status = attn_cache_fill(cache, layer, first + i, row, row + groups * d, error);
    }
    attn_free(row);
    return status;
}

size_t attn_cache_filled(const struct attn_cache *cache, size_t layer)
{
    const size_t length = attn_cache_length(cache, layer);
    size_t token = attn_min(attn_cache_first(cache, layer), length);
    if (attn_model_layer(attn_cache_model(cache), layer) == NULL ||
        attn_cache_shares_layer(cache, layer))
        return length;
    while (token < length) {
        const struct attn_block *block = block_at(cache, layer, token / ATTN_TILE);
        const size_t end = attn_min(token / ATTN_TILE * ATTN_TILE + ATTN_TILE, length);
        if (token / ATTN_TILE * ATTN_TILE + block->tokens < end)
            return token / ATTN_TILE * ATTN_TILE + block->tokens;
        token = end;
    }
    return length;
}
