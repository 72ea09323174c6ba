/* tokens.c: the tiles of a block, and tokens into them and out of them, as float32. */
#include <string.h>

#include "attn_state.h"
#include "basics/status.h"
#include "caches/kvcache.h"
#include "models/model.h"

/* Bytes: the shapes of weightless sessions are the callers' choice, so that without a least size
 * the heads of blocks could take more memory than the blocks, which alone count. */
#define MIN_WEIGHTLESS_BLOCK ((size_t)16 << 10)

size_t attn_block_bytes(const struct attn_layer_spec *spec)
{
    size_t least = spec->is_weightless ? MIN_WEIGHTLESS_BLOCK : 0;
    return attn_max(attn_layer_token_bytes(spec) * ATTN_TILE, least);
}

void attn_block_tile(struct attn_tile *out, const struct attn_block *block,
                     const struct attn_layer_spec *spec, size_t group)
{
    const enum attn_dtype dtype = spec->kv_dtype;
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t key = ATTN_TILE * attn_tile_key_bytes(dtype, sizes.key);
    out->second_key = spec->mla.kv_lora_rank > 0;
    out->third = spec->mla.index.head_dim;
    const size_t second = sizes.value - out->third;
    const size_t value = ATTN_TILE * (out->second_key ? attn_tile_key_bytes(dtype, second)
                                                      : attn_tile_value_bytes(dtype, second));
    const size_t scales = ATTN_TILE * attn_tile_scale_bytes(dtype);
    unsigned char *at = block->data + group * (key + value + scales);
    out->dtype = dtype;
    out->pairs = false;
    out->k = at;
    out->v = at + key;
    out->k_scale = scales > 0 ? (float *)(void *)(at + key + value) : NULL;
    out->v_scale = scales > 0 ? out->k_scale + ATTN_TILE : NULL;
    out->t = at + key + value + scales;
    out->t_scale = scales > 0
                       ? (float *)(void *)((unsigned char *)out->t +
                                           ATTN_TILE * attn_tile_key_bytes(dtype, out->third))
                       : NULL;
}

bool attn_cache_shares_layer(const struct attn_cache *cache, size_t layer)
{
    return attn_model_layer(attn_cache_model(cache), layer)->shares_layer != SIZE_MAX;
}

enum attn_status attn_cache_check_source(const struct attn_cache *cache, size_t layer, size_t end,
                                         struct attn_error *error)
{
    const struct attn_model *model = attn_cache_model(cache);
    const size_t source = attn_model_layer(model, layer)->shares_layer;
    if (source == SIZE_MAX || attn_cache_length(cache, source) >= end)
        return ATTN_OK;
    return attn_fail(error, ATTN_INVALID, "layer",
                     "layer %zu reads keys and values of layer %zu, %s: that layer's step comes "
                     "first",
                     layer, source,
                     attn_model_layer(model, source) == NULL
                         ? "which is not resident"
                         : "which does not have these tokens yet");
}

/* A token to be stored: key and value of head 0, and floats from one head to the next. */
struct token {
    const float *key, *value;
    size_t key_head, value_head;
};

static bool put_token(struct attn_cache *cache, size_t layer, size_t slot, struct token from)
{
    if (attn_cache_shares_layer(cache, layer))
        return true;
    const struct attn_cache_view view = attn_cache_view(cache, layer);
    const struct attn_block *block = view.blocks[slot / ATTN_TILE - view.first];
    const struct attn_cached_sizes sizes = attn_cached_sizes(view.spec);
    bool fits = true;
    for (size_t g = 0; g < sizes.heads; g++) {
        struct attn_tile tile;
        attn_block_tile(&tile, block, view.spec, g);
        fits = attn_tile_put(&tile, slot % ATTN_TILE, from.key + g * from.key_head,
                             from.value + g * from.value_head, sizes.key, sizes.value) &&
               fits;
    }
    return fits;
}

bool attn_cache_put(struct attn_cache *cache, size_t layer, size_t slot, const float *key,
                    const float *value)
{
    const struct attn_cached_sizes sizes =
        attn_cached_sizes(attn_model_layer(attn_cache_model(cache), layer));
    return put_token(cache, layer, slot, (struct token){key, value, sizes.key, sizes.value});
}

/* ---- Appending ---- */

enum attn_status attn_cache_write(struct attn_cache *cache, size_t layer, size_t count,
                                  const float *key, const float *value, struct attn_error *error)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    if (spec == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t length = attn_cache_length(cache, layer), rows = count * sizes.heads;
    const float limit = attn_tile_largest(spec->kv_dtype);
    enum attn_status status = attn_check_magnitudes(key, rows * sizes.key, limit, "key", error);
    if (status == ATTN_OK)
        status = attn_check_magnitudes(value, rows * sizes.value, limit, "value", error);
    if (status == ATTN_OK)
        status = attn_cache_reserve(cache, layer, length, count, error);
    if (status != ATTN_OK)
        return status;
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        const struct token token = {key + i * sizes.key, value + i * sizes.value, count * sizes.key,
                                    count * sizes.value};
        fits = put_token(cache, layer, length + i, token) && fits;
    }
    if (!fits) {
        attn_cache_unreserve(cache, layer);
        return attn_fail(error, ATTN_OUT_OF_RANGE, "key", "a key or value does not fit %s",
                         attn_dtype_name(spec->kv_dtype));
    }
    attn_cache_publish(cache, layer, length + count);
    return ATTN_OK;
}

/* ---- Reading ---- */

void attn_cache_read(float *key, float *value, const struct attn_cache *cache, size_t layer,
                     size_t count)
{
    attn_cache_read_from(key, value, cache, layer, 0, count);
}

void attn_cache_read_from(float *key, float *value, const struct attn_cache *cache, size_t layer,
                          size_t first, size_t count)
{
    attn_cache_read_strided(key, value, cache, layer, first, count, count);
}

/* Zeroes the rows of a token that a window has forgotten. */
static void clear_row(float *row, size_t width)
{
    if (row != NULL)
        memset(row, 0, width * sizeof *row);
}

void attn_cache_read_head(float *key, float *value, const struct attn_cache *cache, size_t layer,
                          size_t group, size_t first, size_t count)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    const struct attn_cache_view view = attn_cache_view(cache, layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    for (size_t s = 0; s < count; s++) {
        const size_t slot = first + s;
        float *k = key ? key + s * sizes.key : NULL, *v = value ? value + s * sizes.value : NULL;
        struct attn_tile tile;
        if (slot < view.first * ATTN_TILE) {
            clear_row(k, sizes.key);
            clear_row(v, sizes.value);
            continue;
        }
        attn_block_tile(&tile, view.blocks[slot / ATTN_TILE - view.first], spec, group);
        attn_tile_get(k, v, &tile, slot % ATTN_TILE, sizes.key, sizes.value);
    }
}

void attn_cache_read_strided(float *key, float *value, const struct attn_cache *cache, size_t layer,
                             size_t first, size_t count, size_t apart)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    if (spec == NULL || (key == NULL && value == NULL))
        return;
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    for (size_t g = 0; g < sizes.heads; g++)
        attn_cache_read_head(key ? key + g * apart * sizes.key : NULL,
                             value ? value + g * apart * sizes.value : NULL, cache, layer, g, first,
                             count);
}
