/* kvcache.c: caches, and the blocks they hold.  blockpool.c allocates blocks. */
#include "kvcache.h"

#include <string.h>

#include "attn_state.h"
#include "blockpool.h"
#include "model.h"
#include "status.h"

struct cache_layer {
    const struct attn_layer_spec *spec;
    atomic_size_t length;
    size_t reserved; /* blocks in the list */
    size_t shared;   /* of these, blocks that came from other caches */
    size_t capacity; /* places of the list; 0: it is empty, or part of a frozen copy */
    struct attn_block **blocks;
};

struct attn_cache {
    struct attn_cache_pool *pool;
    const struct attn_model *model;
    size_t max_length;
    bool claimed; /* part of the batch that runs */
    size_t num_slots;
    struct cache_layer slots[]; /* [num_slots] resident layers, in order */
};

static size_t blocks_for(size_t tokens) { return attn_ceil_div(tokens, ATTN_TILE); }

static const struct cache_layer *layer_of(const struct attn_cache *cache, size_t layer)
{
    size_t slot = attn_model_slot(cache->model, layer);
    return slot < cache->num_slots ? &cache->slots[slot] : NULL;
}

static struct cache_layer *writable_layer(struct attn_cache *cache, size_t layer)
{
    return &cache->slots[attn_model_slot(cache->model, layer)];
}

/* ---- Lists ----
 *
 * The memory of a block bounds one place in a list, not the many places that forks of a long cache
 * have.  So the pool's budget covers the places of every holder but the first: the place itself,
 * and as much again for one in a frozen copy, which therefore needs nothing of the budget.  Spare
 * places of a list are in proportion to the blocks that the cache did not get from others. */

#define LIST_SLACK 4

/* Gives a list room for `capacity` blocks, at least those it has; 0: frees the list. */
static bool resize_list(struct cache_layer *l, size_t capacity)
{
    struct attn_block **list = NULL;
    if (capacity > 0 && (list = attn_alloc(capacity, sizeof *list)) == NULL)
        return false;
    if (l->reserved > 0)
        memcpy(list, l->blocks, l->reserved * sizeof *list);
    attn_free(l->blocks);
    l->blocks = list;
    l->capacity = capacity;
    return true;
}

static bool grow_list(struct cache_layer *l, size_t blocks)
{
    return blocks <= l->capacity || resize_list(l, blocks + (blocks - l->shared));
}

/* Gives up all but the first `keep` blocks.  A list that cannot be made smaller stays as it is. */
static void drop_blocks(struct attn_cache_pool *pool, struct cache_layer *l, size_t keep)
{
    while (l->reserved > keep)
        attn_block_remove_holder(pool, l->blocks[--l->reserved]);
    l->shared = attn_min(l->shared, l->reserved);
    if (l->capacity > l->shared + LIST_SLACK * attn_max(l->reserved - l->shared, 1))
        (void)resize_list(l, l->reserved);
}

/* Frees a list with its blocks.  A frozen copy has references to its blocks and does not hold them;
 * its list is part of the copy's memory. */
static void free_list(struct attn_cache_pool *pool, struct cache_layer *l)
{
    bool frozen = l->capacity == 0;
    while (frozen && l->reserved > 0)
        attn_block_unref(pool, l->blocks[--l->reserved]);
    if (frozen)
        return;
    drop_blocks(pool, l, 0);
    attn_free(l->blocks);
}

/* Appends a block of another cache to the list. */
static enum attn_status share_block(struct attn_cache_pool *pool, struct cache_layer *l,
                                    struct attn_block *block)
{
    l->shared++;
    enum attn_status status = grow_list(l, l->reserved + 1) ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK && !attn_block_add_holder(pool, block))
        status = ATTN_POOL_FULL;
    if (status == ATTN_OK)
        l->blocks[l->reserved++] = block;
    else
        l->shared--;
    return status;
}

/* ---- Life ---- */

size_t attn_cache_memory(const struct attn_model *model)
{
    return sizeof(struct attn_cache) + attn_model_num_resident(model) * sizeof(struct cache_layer);
}

static enum attn_status new_empty(struct attn_cache **out, struct attn_cache_pool *pool,
                                  const struct attn_model *model, size_t max_length)
{
    size_t slots = attn_model_num_resident(model);
    struct attn_cache *cache = attn_calloc(1, sizeof *cache + slots * sizeof(struct cache_layer));
    if (cache == NULL)
        return ATTN_NO_MEMORY;
    cache->pool = pool;
    cache->model = model;
    cache->max_length = max_length;
    cache->num_slots = slots;
    for (size_t i = 0; i < slots; i++)
        cache->slots[i].spec = attn_model_slot_spec(model, i);
    *out = cache;
    return ATTN_OK;
}

enum attn_status attn_cache_new(struct attn_cache **out, struct attn_cache_pool *pool,
                                const struct attn_model *model, size_t max_length,
                                struct attn_error *error)
{
    enum attn_status status = attn_check_count(max_length, ATTN_MAX_TOKENS, "max_length", error);
    if (status != ATTN_OK)
        return status;
    if (new_empty(out, pool, model, max_length) != ATTN_OK)
        return attn_fail_memory(error, sizeof **out);
    return ATTN_OK;
}

void attn_cache_free(struct attn_cache *cache)
{
    if (cache == NULL)
        return;
    for (size_t i = 0; i < cache->num_slots; i++)
        free_list(cache->pool, &cache->slots[i]);
    attn_free(cache);
}

size_t attn_cache_length(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    return l ? atomic_load_explicit(&l->length, memory_order_acquire) : 0;
}

size_t attn_cache_max_length(const struct attn_cache *cache) { return cache->max_length; }

const struct attn_model *attn_cache_model(const struct attn_cache *cache) { return cache->model; }

size_t attn_cache_bytes(const struct attn_cache *cache)
{
    size_t bytes = 0;
    for (size_t i = 0; i < cache->num_slots; i++) {
        const struct cache_layer *l = &cache->slots[i];
        bytes += blocks_for(atomic_load(&l->length)) * attn_block_bytes(l->spec);
    }
    return bytes;
}

/* ---- Writing ---- */

bool attn_cache_claim(struct attn_cache *cache)
{
    bool was = cache->claimed;
    cache->claimed = true;
    return !was;
}

void attn_cache_unclaim(struct attn_cache *cache) { cache->claimed = false; }

/* Replaces the shared ones among blocks [first, end) by copies.  The content stays the same, so
 * this needs no undo. */
static enum attn_status copy_shared(struct attn_cache_pool *pool, struct cache_layer *l,
                                    size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        struct attn_block *shared = l->blocks[i];
        if (atomic_load(&shared->references) == 1) {
            shared->tokens = 0;
            continue;
        }
        enum attn_status status = attn_block_copy_on_write(&l->blocks[i], pool, shared);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Makes the list `count` blocks long.  On an error some have been taken. */
static enum attn_status take_blocks(struct attn_cache_pool *pool, struct cache_layer *l,
                                    size_t count)
{
    enum attn_status status = grow_list(l, count) ? ATTN_OK : ATTN_NO_MEMORY;
    while (status == ATTN_OK && l->reserved < count) {
        status = attn_block_alloc(&l->blocks[l->reserved], pool, attn_block_bytes(l->spec));
        if (status == ATTN_OK)
            l->reserved++;
    }
    return status;
}

static enum attn_status fail_budget(const struct attn_cache_pool *pool, struct attn_error *error)
{
    return attn_fail(error, ATTN_POOL_FULL, NULL, "the cache pool's budget of %zu bytes is used up",
                     attn_cache_pool_budget(pool));
}

static enum attn_status fail_list(const struct attn_cache *cache, enum attn_status status,
                                  size_t blocks, struct attn_error *error)
{
    return status == ATTN_POOL_FULL ? fail_budget(cache->pool, error)
                                    : attn_fail_memory(error, blocks * sizeof(struct attn_block *));
}

enum attn_status attn_cache_reserve(struct attn_cache *cache, size_t layer, size_t position,
                                    size_t rows, struct attn_error *error)
{
    struct cache_layer *l = writable_layer(cache, layer);
    size_t end = position + rows, before = l->reserved;
    if (rows > cache->max_length || position > cache->max_length - rows)
        return attn_fail(error, ATTN_CACHE_FULL, "position",
                         "%zu cached and %zu new tokens pass max_length %zu", position, rows,
                         cache->max_length);
    enum attn_status status = take_blocks(cache->pool, l, blocks_for(end));
    if (status == ATTN_OK)
        status =
            copy_shared(cache->pool, l, position / ATTN_TILE, attn_min(before, blocks_for(end)));
    if (status == ATTN_OK)
        return ATTN_OK;
    drop_blocks(cache->pool, l, before);
    return status == ATTN_POOL_FULL ? fail_budget(cache->pool, error)
                                    : attn_fail_memory(error, attn_block_bytes(l->spec));
}

bool attn_cache_put(struct attn_cache *cache, size_t layer, size_t slot, const float *key,
                    const float *value)
{
    const struct cache_layer *l = writable_layer(cache, layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(l->spec);
    const size_t d = sizes.key, dv = sizes.value;
    bool fits = true;
    for (size_t g = 0; g < sizes.heads; g++) {
        struct attn_tile tile;
        attn_block_tile(&tile, l->blocks[slot / ATTN_TILE], l->spec, g);
        fits = attn_tile_put(&tile, slot % ATTN_TILE, key + g * d, value + g * dv, d, dv) && fits;
    }
    return fits;
}

void attn_cache_publish(struct attn_cache *cache, size_t layer, size_t length)
{
    struct cache_layer *l = writable_layer(cache, layer);
    atomic_store_explicit(&l->length, length, memory_order_release);
}

void attn_cache_unreserve(struct attn_cache *cache, size_t layer)
{
    struct cache_layer *l = writable_layer(cache, layer);
    drop_blocks(cache->pool, l, blocks_for(atomic_load(&l->length)));
}

void attn_cache_truncate(struct attn_cache *cache, size_t length)
{
    for (size_t i = 0; i < cache->num_slots; i++) {
        struct cache_layer *l = &cache->slots[i];
        if (atomic_load(&l->length) <= length)
            continue;
        atomic_store(&l->length, length);
        drop_blocks(cache->pool, l, blocks_for(length));
    }
}

/* Makes the empty list `to` share the blocks with the first `kept` tokens of `from`. */
static enum attn_status share_blocks(struct attn_cache_pool *pool, struct cache_layer *to,
                                     const struct cache_layer *from, size_t kept)
{
    enum attn_status status = resize_list(to, blocks_for(kept)) ? ATTN_OK : ATTN_NO_MEMORY;
    while (status == ATTN_OK && to->reserved < blocks_for(kept))
        status = share_block(pool, to, from->blocks[to->reserved]);
    atomic_store(&to->length, status == ATTN_OK ? kept : 0);
    return status;
}

static size_t kept_length(const struct cache_layer *l, size_t length)
{
    return attn_min(length, atomic_load(&l->length));
}

enum attn_status attn_cache_fork(struct attn_cache **out, const struct attn_cache *cache,
                                 size_t length, struct attn_error *error)
{
    struct attn_cache *fork;
    enum attn_status status = new_empty(&fork, cache->pool, cache->model, cache->max_length);
    if (status != ATTN_OK)
        return attn_fail_memory(error, sizeof *fork);
    for (size_t i = 0; status == ATTN_OK && i < cache->num_slots; i++) {
        const struct cache_layer *from = &cache->slots[i];
        status = share_blocks(fork->pool, &fork->slots[i], from, kept_length(from, length));
    }
    if (status == ATTN_OK) {
        *out = fork;
        return ATTN_OK;
    }
    attn_cache_free(fork);
    return fail_list(cache, status, blocks_for(length), error);
}

size_t attn_cache_frozen_bytes(const struct attn_cache *cache)
{
    size_t bytes = attn_cache_memory(cache->model);
    for (size_t i = 0; i < cache->num_slots; i++)
        bytes += blocks_for(atomic_load(&cache->slots[i].length)) * sizeof(struct attn_block *);
    return bytes;
}

/* The copy is one piece of memory, since a checkpoint of all sessions takes thousands of them while
 * all computing waits for it. */
enum attn_status attn_cache_freeze(struct attn_cache **out, const struct attn_cache *cache,
                                   struct attn_error *error)
{
    size_t bytes = attn_cache_frozen_bytes(cache);
    struct attn_cache *copy = attn_alloc(1, bytes);
    if (copy == NULL)
        return attn_fail_memory(error, bytes);
    memcpy(copy, cache, attn_cache_memory(cache->model));
    copy->claimed = false;
    struct attn_block **list = (struct attn_block **)&copy->slots[copy->num_slots];
    for (size_t i = 0; i < copy->num_slots; i++) {
        struct cache_layer *l = &copy->slots[i];
        l->reserved = blocks_for(atomic_load(&l->length));
        l->capacity = l->shared = 0;
        for (size_t b = 0; b < l->reserved; b++)
            attn_block_ref(list[b] = l->blocks[b]);
        l->blocks = list;
        list += l->reserved;
    }
    *out = copy;
    return ATTN_OK;
}

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
    const struct attn_cached_sizes sizes = attn_cached_sizes(writable_layer(cache, layer)->spec);
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
    const struct attn_layer_spec *spec = writable_layer(cache, layer)->spec;
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

enum attn_status attn_cache_reserve_list(struct attn_cache *cache, size_t layer, size_t tokens,
                                         struct attn_error *error)
{
    struct cache_layer *l = writable_layer(cache, layer);
    const size_t blocks = blocks_for(tokens);
    if (blocks <= l->capacity || resize_list(l, blocks))
        return ATTN_OK;
    return fail_list(cache, ATTN_NO_MEMORY, blocks, error);
}

enum attn_status attn_cache_adopt(struct attn_cache *cache, size_t layer, struct attn_block *block,
                                  struct attn_error *error)
{
    struct cache_layer *l = writable_layer(cache, layer);
    enum attn_status status = share_block(cache->pool, l, block);
    return status == ATTN_OK ? ATTN_OK : fail_list(cache, status, l->reserved + 1, error);
}

enum attn_status attn_cache_write(struct attn_cache *cache, size_t layer, size_t count,
                                  const float *key, const float *value, struct attn_error *error)
{
    const struct cache_layer *l = layer_of(cache, layer);
    if (l == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    const struct attn_cached_sizes sizes = attn_cached_sizes(l->spec);
    const size_t keys = sizes.heads * sizes.key, values = sizes.heads * sizes.value;
    enum attn_status status = attn_check_magnitudes(key, count * keys, "key", error);
    if (status == ATTN_OK)
        status = attn_check_magnitudes(value, count * values, "value", error);
    if (status == ATTN_OK)
        status = attn_cache_reserve(cache, layer, atomic_load(&l->length), count, error);
    if (status != ATTN_OK)
        return status;
    return attn_cache_put_rows(cache, layer, count, 0, key, value, error);
}

/* ---- Reading ---- */

struct attn_cache_view attn_cache_view(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    return (struct attn_cache_view){.blocks = l->blocks, .spec = l->spec};
}

struct attn_block *const *attn_cache_blocks(size_t *count, const struct attn_cache *cache,
                                            size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    *count = l != NULL ? blocks_for(atomic_load(&l->length)) : 0;
    return l != NULL ? l->blocks : NULL;
}

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

void attn_cache_read_strided(float *key, float *value, const struct attn_cache *cache, size_t layer,
                             size_t first, size_t count, size_t apart)
{
    const struct cache_layer *l = layer_of(cache, layer);
    if (l == NULL || (key == NULL && value == NULL))
        return;
    const struct attn_cached_sizes sizes = attn_cached_sizes(l->spec);
    const size_t d = sizes.key, dv = sizes.value, groups = sizes.heads;
    for (size_t s = 0; s < count; s++)
        for (size_t g = 0; g < groups; g++) {
            size_t slot = first + s;
            struct attn_tile tile;
            attn_block_tile(&tile, l->blocks[slot / ATTN_TILE], l->spec, g);
            attn_tile_get(key ? key + (g * apart + s) * d : NULL,
                          value ? value + (g * apart + s) * dv : NULL, &tile, slot % ATTN_TILE, d,
                          dv);
        }
}
