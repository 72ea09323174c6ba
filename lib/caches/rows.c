/* rows.c: tokens into the blocks of a cache and out of them, as float32. */
#include <string.h>

#include "attn_state.h"
#include "basics/status.h"
#include "caches/kvcache.h"
#include "models/model.h"

bool attn_cache_shares(const struct attn_cache *cache, size_t layer)
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

bool attn_cache_put(struct attn_cache *cache, size_t layer, size_t slot, const float *key,
                    const float *value)
{
    if (attn_cache_shares(cache, layer))
        return true;
    const struct attn_cache_view view = attn_cache_view(cache, layer);
    const struct attn_block *block = view.blocks[slot / ATTN_TILE - view.first];
    const struct attn_cached_sizes sizes = attn_cached_sizes(view.spec);
    const size_t d = sizes.key, dv = sizes.value;
    bool fits = true;
    for (size_t g = 0; g < sizes.heads; g++) {
        struct attn_tile tile;
        attn_block_tile(&tile, block, view.spec, g);
        fits = attn_tile_put(&tile, slot % ATTN_TILE, key + g * d, value + g * dv, d, dv) && fits;
    }
    return fits;
}

/* ---- Appending ---- */

/* Tokens in head-major order, as files and calls have them. */
struct head_major {
    size_t count;
    const float *key;   /* [G][count][D] */
    const float *value; /* [G][count][Dv] */
};

/* Stores token `token` of `from` in a slot.  row [G*D + G*Dv] is scratch. */
static bool put_token(struct attn_cache *cache, size_t layer, size_t slot,
                      const struct head_major *from, size_t token, float *row)
{
    const struct attn_cached_sizes sizes =
        attn_cached_sizes(attn_model_layer(attn_cache_model(cache), layer));
    const size_t d = sizes.key, dv = sizes.value, groups = sizes.heads;
    float *values = row + groups * d;
    for (size_t g = 0; g < groups; g++) {
        size_t at = g * from->count + token;
        memcpy(row + g * d, from->key + at * d, d * sizeof *row);
        memcpy(values + g * dv, from->value + at * dv, dv * sizeof *row);
    }
    return attn_cache_put(cache, layer, slot, row, values);
}

enum attn_status attn_cache_put_rows(struct attn_cache *cache, size_t layer, size_t count,
                                     size_t there, const float *key, const float *value,
                                     struct attn_error *error)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t width = sizes.key + sizes.value;
    const struct head_major from = {.count = count, .key = key, .value = value};
    size_t length = attn_cache_length(cache, layer);
    float *row = attn_alloc(sizes.heads, width * sizeof *row); /* key [G][D], value [G][Dv] */
    if (row == NULL) {
        attn_cache_unreserve(cache, layer);
        return attn_fail_memory(error, sizes.heads * width * sizeof *row);
    }
    bool fits = true;
    for (size_t i = there; i < count; i++)
        fits = put_token(cache, layer, length + i, &from, i, row) && fits;
    attn_free(row);
    if (!fits) {
        attn_cache_unreserve(cache, layer);
        return attn_fail(error, ATTN_OUT_OF_RANGE, "key", "a key or value does not fit %s",
                         attn_dtype_name(spec->kv_dtype));
    }
    attn_cache_publish(cache, layer, length + count);
    return ATTN_OK;
}

enum attn_status attn_cache_check_rows(const struct attn_layer_spec *spec, size_t count,
                                       const float *key, const float *value,
                                       struct attn_error *error)
{
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t rows = count * sizes.heads;
    const float limit = attn_tile_largest(spec->kv_dtype);
    enum attn_status status = attn_check_magnitudes(key, rows * sizes.key, limit, "key", error);
    if (status == ATTN_OK)
        status = attn_check_magnitudes(value, rows * sizes.value, limit, "value", error);
    return status;
}

enum attn_status attn_cache_write(struct attn_cache *cache, size_t layer, size_t count,
                                  const float *key, const float *value, struct attn_error *error)
{
    const struct attn_layer_spec *spec = attn_model_layer(attn_cache_model(cache), layer);
    if (spec == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    enum attn_status status = attn_cache_check_rows(spec, count, key, value, error);
    if (status == ATTN_OK)
        status = attn_cache_reserve(cache, layer, attn_cache_length(cache, layer), count, error);
    if (status != ATTN_OK)
        return status;
    return attn_cache_put_rows(cache, layer, count, 0, key, value, error);
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
