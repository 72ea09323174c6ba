/* kvcache.c: caches, and the blocks they hold.  blockpool.c allocates blocks, tokens.c writes
 * tokens to them and reads them. */
#include "caches/kvcache.h"

#include <string.h>

#include "attn_state.h"
#include "basics/status.h"
#include "engine/rope.h"
#include "models/model.h"

struct cache_layer {
    const struct attn_layer_spec *spec;
    atomic_size_t length;
    atomic_size_t first; /* blocks that windows have forgotten, before those in the list */
    size_t repeatable;   /* of a layer that reads another: rows of the last step, at its end */
    size_t reserved;     /* blocks in the list */
    size_t shared;       /* of these, blocks that came from other caches */
    size_t capacity;     /* entries of the list; 0: it is empty, or part of a frozen copy */
    atomic_bool evicted; /* the cache uses none of the blocks (attn_block_use) */
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

/* Blocks that hold a layer's tokens up to `tokens`, without those that are forgotten.  The clamp is
 * for threads that read a length while the layer changes. */
static size_t kept_blocks(const struct cache_layer *l, size_t tokens)
{
    if (l->spec->shares_layer != SIZE_MAX)
        return 0; /* the layer that it reads has them */
    const size_t first = atomic_load(&l->first), all = attn_ceil_div(tokens, ATTN_TILE);
    return all > first ? all - first : 0;
}

/* NULL where the layer is not resident.  A cache that is const is only read. */
static struct cache_layer *layer_of(const struct attn_cache *cache, size_t layer)
{
    const size_t slot = attn_model_resident_index(cache->model, layer);
    return slot < cache->num_slots ? (struct cache_layer *)&cache->slots[slot] : NULL;
}

/* ---- Lists ----
 *
 * The memory of a block bounds one entry of a list, not the many entries that forks of a long cache
 * have.  So the pool's budget covers the entries of every holder but the first: the entry itself,
 * and as much again for one in a frozen copy, which therefore needs nothing of the budget.  A list
 * of `shared` blocks from other caches and n of its own has at most
 *   shared + LIST_SLACK * max(n, 1)
 * entries. */

#define LIST_SLACK 4
#define LIST_ENTRY_BYTES sizeof(struct attn_block *)

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

/* Frees spare entries.  A list that cannot be made smaller stays as it is. */
static void shrink_list(struct cache_layer *l)
{
    if (l->capacity > l->shared + LIST_SLACK * attn_max(l->reserved - l->shared, 1))
        (void)resize_list(l, l->reserved);
}

/* Gives up all but the first `keep` blocks. */
static void drop_blocks(struct attn_cache_pool *pool, struct cache_layer *l, size_t keep)
{
    while (l->reserved > keep)
        attn_block_remove_holder(pool, l->blocks[--l->reserved], !l->evicted);
    l->shared = attn_min(l->shared, l->reserved);
    shrink_list(l);
}

/* Gives up the first `count` blocks. */
static void drop_first(struct attn_cache_pool *pool, struct cache_layer *l, size_t count)
{
    atomic_fetch_add(&l->first, count);
    for (size_t i = 0; i < count; i++)
        attn_block_remove_holder(pool, l->blocks[i], !l->evicted);
    l->reserved -= count;
    l->shared -= attn_min(l->shared, count);
    memmove(l->blocks, l->blocks + count, l->reserved * sizeof *l->blocks);
    shrink_list(l);
}

/* Appends a block of another cache to the list. */
static enum attn_status share_block(struct attn_cache_pool *pool, struct cache_layer *l,
                                    struct attn_block *block)
{
    l->shared++;
    enum attn_status status = grow_list(l, l->reserved + 1) ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK && !attn_block_add_holder(pool, block, !l->evicted))
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
    struct attn_cache *cache = attn_calloc(1, attn_cache_memory(model));
    if (cache == NULL)
        return ATTN_NO_MEMORY;
    *cache = (struct attn_cache){
        .pool = pool, .model = model, .max_length = max_length, .num_slots = slots};
    for (size_t i = 0; i < slots; i++)
        cache->slots[i].spec = attn_model_resident_spec(model, i);
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
    for (size_t i = 0; i < cache->num_slots; i++) {
        struct cache_layer *l = &cache->slots[i];
        const bool frozen = l->capacity == 0; /* it refers to blocks, and the list is part of it */
        while (frozen && l->reserved > 0)
            attn_block_unref(cache->pool, l->blocks[--l->reserved]);
        if (frozen)
            continue;
        drop_blocks(cache->pool, l, 0);
        attn_free(l->blocks);
    }
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
        bytes += kept_blocks(l, atomic_load(&l->length)) * attn_block_bytes(l->spec);
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

/* The tokens of block i of a layer that has `length`. */
static unsigned tokens_in(const struct cache_layer *l, size_t i, size_t length)
{
    const size_t before = (atomic_load(&l->first) + i) * ATTN_TILE;
    return length > before ? (unsigned)attn_min(length - before, ATTN_TILE) : 0;
}

/* Says of the blocks from that of `position` on that tokens up to `end` are written to them, and
 * replaces those that are shared by copies, whose content is the same, so that this needs no
 * undo. */
static enum attn_status change_blocks(struct attn_cache_pool *pool, struct cache_layer *l,
                                      size_t position, size_t end)
{
    const size_t forgotten = atomic_load(&l->first), from = position / ATTN_TILE - forgotten;
    enum attn_status status = ATTN_OK;
    for (size_t i = from; i < kept_blocks(l, end) && status == ATTN_OK; i++) {
        const size_t tokens = end - (forgotten + i) * ATTN_TILE;
        if (atomic_load(&l->blocks[i]->references) > 1)
            status = l->blocks[i]->absent > 0
                         ? ATTN_INVALID
                         : attn_block_copy_on_write(&l->blocks[i], pool, l->blocks[i], !l->evicted);
        if (status == ATTN_OK)
            status = attn_block_change(pool, l->blocks[i], i == from ? position % ATTN_TILE : 0,
                                       (unsigned)attn_min(tokens, ATTN_TILE));
    }
    return status;
}

/* The error of a cache that gets no blocks, or no `bytes` for a list of them. */
static enum attn_status fail_blocks(const struct attn_cache *cache, enum attn_status status,
                                    size_t bytes, struct attn_error *error)
{
    if (status == ATTN_INVALID)
        return attn_fail(error, status, NULL, "a block that is to be copied is not in memory");
    if (status != ATTN_POOL_FULL)
        return attn_fail_memory(error, bytes);
    return attn_fail(error, ATTN_POOL_FULL, NULL, "the cache pool's budget of %zu bytes is used up",
                     attn_cache_pool_budget(cache->pool));
}

enum attn_status attn_cache_reserve(struct attn_cache *cache, size_t layer, size_t position,
                                    size_t rows, struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    size_t end = position + rows, before = l->reserved;
    if (rows > cache->max_length || position > cache->max_length - rows)
        return attn_fail(error, ATTN_CACHE_FULL, "position",
                         "%zu cached and %zu new tokens pass max_length %zu", position, rows,
                         cache->max_length);
    if (attn_cache_check_source(cache, layer, end, error) != ATTN_OK)
        return error->status;
    const size_t count = kept_blocks(l, end);
    enum attn_status status = grow_list(l, count) ? ATTN_OK : ATTN_NO_MEMORY;
    while (status == ATTN_OK && l->reserved < count) {
        status = attn_block_alloc(&l->blocks[l->reserved], cache->pool, attn_block_bytes(l->spec));
        l->reserved += status == ATTN_OK;
    }
    if (status == ATTN_OK && count > 0)
        status = change_blocks(cache->pool, l, position, end);
    for (size_t i = before; i < l->reserved && l->evicted; i++)
        attn_block_unuse(cache->pool, l->blocks[i], tokens_in(l, i, end));
    if (status == ATTN_OK)
        return ATTN_OK;
    drop_blocks(cache->pool, l, before);
    return fail_blocks(cache, status, attn_block_bytes(l->spec), error);
}

void attn_cache_publish(struct attn_cache *cache, size_t layer, size_t length)
{
    atomic_store_explicit(&layer_of(cache, layer)->length, length, memory_order_release);
}

void attn_cache_unreserve(struct attn_cache *cache, size_t layer)
{
    struct cache_layer *l = layer_of(cache, layer);
    drop_blocks(cache->pool, l, kept_blocks(l, atomic_load(&l->length)));
}

/* The first block of a layer that a step at `position`, or a later one, may see.  The last steps of
 * layers that read this one come after its own, and each may be repeated. */
static size_t first_seen(const struct attn_cache *cache, size_t layer, const struct cache_layer *l,
                         size_t position)
{
    bool read = false;
    size_t length = atomic_load(&l->length);
    for (size_t i = 0; i < cache->num_slots; i++) {
        const struct cache_layer *reader = &cache->slots[i];
        if (reader->spec->shares_layer != layer)
            continue;
        read = true;
        length = attn_min(length, atomic_load(&reader->length) - reader->repeatable);
    }
    const size_t from = position > 0 || read ? attn_min(position, length) : length;
    return attn_min(attn_window_first(l->spec, from), length - (length > 0)) / ATTN_TILE;
}

void attn_cache_note_step(struct attn_cache *cache, size_t layer, size_t position)
{
    struct cache_layer *l = layer_of(cache, layer);
    if (l != NULL)
        l->repeatable = atomic_load(&l->length) - attn_min(position, atomic_load(&l->length));
}

void attn_cache_forget(struct attn_cache *cache, size_t layer, size_t position)
{
    struct cache_layer *l = layer_of(cache, layer);
    attn_cache_note_step(cache, layer, position);
    if (l == NULL || attn_cache_shares_layer(cache, layer))
        return;
    const size_t from = first_seen(cache, layer, l, position);
    if (from > atomic_load(&l->first))
        drop_first(cache->pool, l, from - atomic_load(&l->first));
}

enum attn_status attn_cache_begin_at(struct attn_cache *cache, size_t layer, size_t first,
                                     struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    if (first == 0)
        return ATTN_OK;
    if (l == NULL || atomic_load(&l->length) > 0 || first % ATTN_TILE != 0 ||
        first >= cache->max_length || attn_window_first(l->spec, cache->max_length) < first)
        return attn_fail(error, ATTN_INVALID, "first", "layer %zu cannot begin at token %zu", layer,
                         first);
    atomic_store(&l->first, first / ATTN_TILE);
    atomic_store(&l->length, first);
    return ATTN_OK;
}

/* The layer that holds the tokens of `layer`: the one that it reads, or itself. */
static const struct cache_layer *holder_of(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer), *source = NULL;
    if (l != NULL && l->spec->shares_layer != SIZE_MAX)
        source = layer_of(cache, l->spec->shares_layer);
    return source != NULL ? source : l; /* a source that is not resident has no tokens */
}

size_t attn_cache_first(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = holder_of(cache, layer);
    return l != NULL ? atomic_load(&l->first) * ATTN_TILE : 0;
}

size_t attn_cache_lowest_length(const struct attn_cache *cache)
{
    size_t lowest = 0;
    for (size_t i = 0; i < cache->num_slots; i++) {
        const struct cache_layer *l = &cache->slots[i];
        const size_t trained = attn_rope_short_length(&l->spec->rope);
        lowest = attn_max(lowest, attn_window_least(l->spec, atomic_load(&l->first) * ATTN_TILE));
        if (trained > 0 && atomic_load(&l->length) > trained)
            lowest = attn_max(lowest, trained + 1);
    }
    return lowest;
}

static bool is_kept(const struct attn_cache *cache, size_t length)
{
    return length == 0 || length >= attn_cache_lowest_length(cache);
}

bool attn_cache_truncate(struct attn_cache *cache, size_t length)
{
    if (!is_kept(cache, length))
        return false;
    for (size_t i = 0; i < cache->num_slots; i++) {
        struct cache_layer *l = &cache->slots[i];
        if (atomic_load(&l->length) <= length)
            continue;
        atomic_store(&l->length, length);
        l->repeatable = 0;
        drop_blocks(cache->pool, l, kept_blocks(l, length));
        if (length == 0)
            atomic_store(&l->first, 0);
    }
    return true;
}

/* Makes the empty list `to` share the blocks with the first `kept` tokens of `from`. */
static enum attn_status share_blocks(struct attn_cache_pool *pool, struct cache_layer *to,
                                     const struct cache_layer *from, size_t kept)
{
    const size_t count = kept_blocks(from, kept);
    enum attn_status status = resize_list(to, count) ? ATTN_OK : ATTN_NO_MEMORY;
    to->evicted = from->evicted;
    atomic_store(&to->first, kept > 0 ? atomic_load(&from->first) : 0);
    while (status == ATTN_OK && to->reserved < count)
        status = share_block(pool, to, from->blocks[to->reserved]);
    atomic_store(&to->length, status == ATTN_OK ? kept : 0);
    if (status == ATTN_OK && kept == atomic_load(&from->length))
        to->repeatable = from->repeatable;
    return status;
}

enum attn_status attn_cache_fork(struct attn_cache **out, const struct attn_cache *cache,
                                 size_t length, struct attn_error *error)
{
    struct attn_cache *fork;
    if (!is_kept(cache, length))
        return attn_fail(
            error, ATTN_FORGOTTEN, "length",
            "length is %zu; what its next token would see is forgotten, or rotated for "
            "longer sequences: 0, or %zu and more, can be kept",
            length, attn_cache_lowest_length(cache));
    enum attn_status status = new_empty(&fork, cache->pool, cache->model, cache->max_length);
    if (status != ATTN_OK)
        return attn_fail_memory(error, sizeof *fork);
    for (size_t i = 0; status == ATTN_OK && i < cache->num_slots; i++) {
        const struct cache_layer *from = &cache->slots[i];
        status = share_blocks(fork->pool, &fork->slots[i], from,
                              attn_min(length, atomic_load(&from->length)));
    }
    if (status == ATTN_OK) {
        *out = fork;
        return ATTN_OK;
    }
    attn_cache_free(fork);
    return fail_blocks(cache, status, attn_ceil_div(length, ATTN_TILE) * LIST_ENTRY_BYTES, error);
}

size_t attn_cache_frozen_bytes(const struct attn_cache *cache)
{
    size_t bytes = attn_cache_memory(cache->model);
    for (size_t i = 0; i < cache->num_slots; i++)
        bytes += kept_blocks(&cache->slots[i], atomic_load(&cache->slots[i].length)) *
                 sizeof(struct attn_block *);
    return bytes;
}

/* The copy is one piece of memory, since a snapshot of all sessions takes thousands of them while
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
        l->reserved = kept_blocks(l, atomic_load(&l->length));
        l->capacity = l->shared = 0;
        for (size_t b = 0; b < l->reserved; b++)
            attn_block_ref(list[b] = l->blocks[b]);
        l->blocks = list;
        list += l->reserved;
    }
    *out = copy;
    return ATTN_OK;
}

enum attn_status attn_cache_reserve_list(struct attn_cache *cache, size_t layer, size_t tokens,
                                         struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    const size_t blocks = kept_blocks(l, tokens);
    if (blocks <= l->capacity || resize_list(l, blocks))
        return ATTN_OK;
    return attn_fail_memory(error, blocks * LIST_ENTRY_BYTES);
}

enum attn_status attn_cache_share_block(struct attn_cache *cache, size_t layer,
                                        struct attn_block *block, struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    l->evicted = l->evicted || l->reserved == 0;
    enum attn_status status = share_block(cache->pool, l, block);
    return status == ATTN_OK
               ? ATTN_OK
               : fail_blocks(cache, status, (l->reserved + 1) * LIST_ENTRY_BYTES, error);
}

/* ---- Memory ---- */

size_t attn_cache_growth(const struct attn_cache *cache, size_t layer, size_t rows)
{
    const struct cache_layer *l = layer_of(cache, layer);
    if (l == NULL || rows == 0)
        return 0;
    const size_t length = atomic_load(&l->length), before = kept_blocks(l, length);
    const bool copies =
        length % ATTN_TILE > 0 && before > 0 && atomic_load(&l->blocks[before - 1]->references) > 1;
    return (kept_blocks(l, length + rows) - before + copies) * attn_block_bytes(l->spec);
}

bool attn_cache_is_evicted(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    return l != NULL && l->evicted;
}

void attn_cache_evict(struct attn_cache *cache, size_t layer)
{
    struct cache_layer *l = layer_of(cache, layer);
    if (l == NULL || l->evicted)
        return;
    l->evicted = true;
    for (size_t i = 0; i < l->reserved; i++)
        attn_block_unuse(cache->pool, l->blocks[i], tokens_in(l, i, atomic_load(&l->length)));
}

size_t attn_cache_evicted_bytes(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    size_t bytes = 0;
    for (size_t i = 0; l != NULL && i < l->reserved; i++)
        bytes += l->blocks[i]->data == NULL ? attn_block_more_bytes(l->blocks[i]) : 0;
    return bytes;
}

enum attn_status attn_cache_admit(struct attn_cache *cache, size_t layer, struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    enum attn_status status = ATTN_OK;
    size_t used = 0;
    if (l == NULL || !l->evicted)
        return ATTN_OK;
    while (used < l->reserved && (status = attn_block_use(cache->pool, l->blocks[used])) == ATTN_OK)
        used++;
    l->evicted = status != ATTN_OK;
    while (l->evicted && used > 0)
        attn_block_unuse(cache->pool, l->blocks[--used], 0);
    return status == ATTN_OK ? status
                             : fail_blocks(cache, status, attn_block_bytes(l->spec), error);
}

enum attn_status attn_cache_append_absent(struct attn_cache *cache, size_t layer, size_t length,
                                          const struct attn_stored *stored,
                                          struct attn_error *error)
{
    struct cache_layer *l = layer_of(cache, layer);
    l->evicted = l->evicted || l->reserved == 0;
    const size_t bytes = attn_block_bytes(l->spec);
    enum attn_status status = grow_list(l, l->reserved + 1) ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK)
        status = attn_block_alloc_absent(&l->blocks[l->reserved], cache->pool, bytes, stored);
    if (status != ATTN_OK)
        return fail_blocks(cache, status, bytes, error);
    l->reserved++;
    attn_cache_publish(cache, layer, length);
    return ATTN_OK;
}

/* ---- Reading ---- */

struct attn_cache_view attn_cache_view(const struct attn_cache *cache, size_t layer)
{
    const struct cache_layer *l = holder_of(cache, layer);
    return (struct attn_cache_view){
        .blocks = l->blocks, .first = atomic_load(&l->first), .spec = l->spec};
}

struct attn_block *const *attn_cache_blocks(size_t *count, const struct attn_cache *cache,
                                            size_t layer)
{
    const struct cache_layer *l = layer_of(cache, layer);
    *count = l != NULL ? kept_blocks(l, atomic_load(&l->length)) : 0;
    return l != NULL ? l->blocks : NULL;
}
