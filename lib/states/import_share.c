/* import_share.c: blocks of caches that are filled from files, shared again.
 *
 * The caller names the cache and the number of blocks.  Whether both caches hold the same tokens is
 * verified here, token by token, so that a wrong name costs memory and never a bit.
 *
 * A fork may end within a block in which its parent goes on, and may be imported before its parent.
 * So a block that an import fills counts its tokens (attn_block.tokens), whichever of its caches
 * shows them.  A longer cache that shares the block later compares that many tokens and writes the
 * rest after them.  A step that writes to a block sets its count to 0, and no import shares the
 * block from then on. */
#include "states/cache_file.h"

#include <string.h>

#include "basics/status.h"
#include "models/model.h"

/* Tokens that are to be written to a block. */
struct tokens {
    const struct attn_layer_spec *spec;
    size_t count;
    const float *key, *value; /* [G][count][D], [G][count][Dv] */
};

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool has_token(const struct attn_block *block, const struct tokens *tokens, size_t i)
{
    const struct attn_layer_spec *s = tokens->spec;
    const struct attn_cached_sizes sizes = attn_cached_sizes(s);
    const size_t d = sizes.key, dv = sizes.value;
    float key[ATTN_MAX_HEAD_DIM], value[ATTN_MAX_HEAD_DIM];
    for (size_t g = 0; g < sizes.heads; g++) {
        size_t row = g * tokens->count + i;
        struct attn_tile tile;
        attn_block_tile(&tile, block, s, g);
        attn_tile_get(key, value, &tile, i, d, dv);
        if (memcmp(key, tokens->key + row * d, d * sizeof *key) != 0 ||
            memcmp(value, tokens->value + row * dv, dv * sizeof *value) != 0)
            return false;
    }
    return true;
}

/* Whether the first tokens of the block and of `tokens` are the same, as far as both go. */
static bool agrees(const struct attn_block *block, const struct tokens *tokens)
{
    size_t both = attn_min(block->tokens, tokens->count);
    for (size_t i = 0; i < both; i++)
        if (!has_token(block, tokens, i))
            return false;
    return both > 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Adds the block to the cache, and to the block the tokens that it does not have yet. */
static enum attn_status append_shared(struct attn_block *block, const struct tokens *tokens,
                                      struct attn_cache *cache, size_t layer,
                                      struct attn_error *error)
{
    enum attn_status status =
        attn_cache_check_rows(tokens->spec, tokens->count, tokens->key, tokens->value, error);
    if (status == ATTN_OK)
        status = attn_cache_share_block(cache, layer, block, error);
    if (status == ATTN_OK)
        status =
            attn_cache_put_rows(cache, layer, tokens->count, attn_min(block->tokens, tokens->count),
                                tokens->key, tokens->value, error);
    if (status == ATTN_OK && tokens->count > block->tokens)
        block->tokens = (unsigned)tokens->count;
    return status;
}

enum attn_status attn_import_share_write(struct attn_import_share *share, struct attn_cache *cache,
                                         size_t layer, size_t count, const float *key,
                                         const float *value, struct attn_error *error)
{
    const struct tokens tokens = {attn_model_layer(attn_cache_model(cache), layer), count, key,
                                  value};
    size_t index = attn_cache_length(cache, layer) / ATTN_TILE;
    if (count == 0)
        return ATTN_OK;
    if (attn_cache_shares_layer(cache, layer))
        return attn_cache_write(cache, layer, count, key, value, error);
    if (index < share->blocks) {
        const struct attn_cache_view from = attn_cache_view(share->from, layer);
        struct attn_block *block = index >= from.first ? from.blocks[index - from.first] : NULL;
        if (block != NULL && agrees(block, &tokens))
            return append_shared(block, &tokens, cache, layer, error);
        if (block != NULL)
            share->blocks = 0;
    }
    enum attn_status status = attn_cache_write(cache, layer, count, key, value, error);
    const struct attn_cache_view own = attn_cache_view(cache, layer);
    if (status == ATTN_OK)
        own.blocks[index - own.first]->tokens = (unsigned)count;
    return status;
}
