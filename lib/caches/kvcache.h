/* kvcache.h: paged key/value caches inside the library; attn.h and attn_state.h have the public
 * calls.
 *
 * A cache has for each resident layer a list of blocks of ATTN_TILE tokens.  A block is one piece
 * of memory with a tile for every key/value head, of the layer's kv_dtype, one head after the
 * other: keys [D][ATTN_TILE], values, then for int8 scales [2][ATTN_TILE] of keys and values, in
 * float32.  Blocks are reference-counted: a fork shares them, and a cache that writes to a shared
 * block copies it first.
 *
 * A layer with a window forgets: its list begins at the first block that a later query, or a repeat
 * of the last step, can see.
 *
 * Writing is reserve, put, publish: reserved slots beyond `length` are invisible, so a step that
 * fails is undone by attn_cache_unreserve alone. */
#ifndef ATTN_LIB_CACHES_KVCACHE_H
#define ATTN_LIB_CACHES_KVCACHE_H

#include <stdatomic.h>

#include "attn_state.h"
#include "basics/mem.h"
#include "basics/tile.h"

struct attn_block {
    size_t bytes;              /* of data */
    atomic_uint references;    /* holders, frozen copies and other lists */
    unsigned holders;          /* caches; under the pool's lock */
    unsigned users;            /* of these, caches that have it in memory; likewise */
    unsigned absent;           /* first tokens that are only in the store (stored.c) */
    unsigned filled;           /* tokens that it has, absent or not */
    unsigned needed;           /* of these, tokens of caches that do not use it; under the lock */
    struct attn_stored stored; /* where the store has the block; rows 0: nowhere */
    unsigned char *data;       /* aligned to ATTN_ALIGN; NULL: it is in the store alone */
    struct attn_piece *piece;  /* the memory */
};

/* The blocks of one layer, for attention to read. */
struct attn_cache_view {
    struct attn_block *const *blocks; /* [ceil(tokens / ATTN_TILE) - first] */
    size_t first;                     /* blocks before these, which a window has forgotten */
    const struct attn_layer_spec *spec;
};

/* The tile of one key/value head in a block of such a layer.  Heads stand side by side, each with
 * its keys, values and scales: the order in which attention reads them. */
void attn_block_tile(struct attn_tile *out, const struct attn_block *block,
                     const struct attn_layer_spec *spec, size_t group);

/* Memory of an empty cache of the model; bytes of a block of such a layer, without its head. */
size_t attn_cache_memory(const struct attn_model *model);
size_t attn_block_bytes(const struct attn_layer_spec *spec);

struct attn_cache_view attn_cache_view(const struct attn_cache *cache, size_t layer);

/* Marks the cache as part of a batch; false where it already is in one. */
bool attn_cache_claim(struct attn_cache *cache);
void attn_cache_unclaim(struct attn_cache *cache);

/* Whether a resident layer reads the keys and values of an earlier one.  Such a layer has a length
 * and no blocks: what is put is not kept, and its view is that of the earlier layer, which has each
 * token before it. */
bool attn_cache_shares_layer(const struct attn_cache *cache, size_t layer);

/* Checks that the layer that this one reads, if it reads any, has `end` tokens.
 * Error: ATTN_INVALID. */
enum attn_status attn_cache_check_source(const struct attn_cache *cache, size_t layer, size_t end,
                                         struct attn_error *error);

/* Makes slots [position, position + rows) writable, position being at most the length: allocates
 * blocks, and replaces shared ones by copies.  On an error nothing has changed.
 * Errors: ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_NO_MEMORY; ATTN_INVALID (the layer that this one
 * reads does not have these tokens, or a block that is to be copied is absent). */
enum attn_status attn_cache_reserve(struct attn_cache *cache, size_t layer, size_t position,
                                    size_t rows, struct attn_error *error);

/* Stores the key [G][D] and value [G][Dv] of one token in a reserved slot; false where one of the
 * numbers is beyond what kv_dtype can hold.  Several threads may put different slots. */
bool attn_cache_put(struct attn_cache *cache, size_t layer, size_t slot, const float *key,
                    const float *value);

/* Makes the list of a layer's blocks long enough for `tokens`, so that appending them does not grow
 * it again.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_cache_reserve_list(struct attn_cache *cache, size_t layer, size_t tokens,
                                         struct attn_error *error);

/* Appends a block to a layer that is in the store alone; `length`: the layer's then.
 * Errors: ATTN_POOL_FULL (its head), ATTN_NO_MEMORY. */
enum attn_status attn_cache_append_absent(struct attn_cache *cache, size_t layer, size_t length,
                                          const struct attn_stored *stored,
                                          struct attn_error *error);

/* Reserves the next 64 slots of an evicted or empty layer by sharing a block of another cache, of a
 * layer of the same kind.
 * Errors: ATTN_POOL_FULL (its place in the list), ATTN_NO_MEMORY. */
enum attn_status attn_cache_share_block(struct attn_cache *cache, size_t layer,
                                        struct attn_block *block, struct attn_error *error);

/* Makes the first `length` tokens visible; tokens beyond the old length have been put. */
void attn_cache_publish(struct attn_cache *cache, size_t layer, size_t length);

/* Gives back reserved blocks beyond the length. */
void attn_cache_unreserve(struct attn_cache *cache, size_t layer);

/* attn_cache_read_from with a distance of `apart` tokens between heads: key [G][apart][D], value
 * [G][apart][Dv].  The tokens may be put but not yet visible. */
void attn_cache_read_strided(float *key, float *value, const struct attn_cache *cache, size_t layer,
                             size_t first, size_t count, size_t apart);

/* The same of one key/value head of a resident layer: key [count][D], value [count][Dv]. */
void attn_cache_read_head(float *key, float *value, const struct attn_cache *cache, size_t layer,
                          size_t group, size_t first, size_t count);

const struct attn_model *attn_cache_model(const struct attn_cache *cache);

/* ---- Windows: which tokens of a sequence the later queries of a layer can still see ---- */

/* The first key that a query at `position` sees by the layer's window or chunk; grows with the
 * position, and is 0 where the layer has neither. */
size_t attn_window_first(const struct attn_layer_spec *spec, size_t position);

/* The least position from which on no query sees a key before `first`; 0 for 0. */
size_t attn_window_least(const struct attn_layer_spec *spec, size_t first);

/* Blocks that a layer holds of a session of up to `tokens` tokens, at most, after steps of one
 * row; `read`: other layers may read it, whose last step sees a token more. */
size_t attn_window_blocks(const struct attn_layer_spec *spec, size_t tokens, bool read);

/* ---- Blocks (blockpool.c) ----
 *
 * A block has holders, the caches that hold it, and references: one for each holder, one for each
 * frozen copy or other list.  Holders count against the budget, further references do not.  Every
 * call may be made from any thread. */

/* Bytes of the budget for each cache that holds a block beside its first holder: a place in the
 * cache's list, and one in a frozen copy of that. */
#define ATTN_HOLDER_BYTES (2 * sizeof(struct attn_block *))

/* Allocates a block of `bytes` for one cache, its first holder.  The content is zeros where the
 * memory is new to the process, else old tokens.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_alloc(struct attn_block **out, struct attn_cache_pool *pool,
                                  size_t bytes);

/* The same for a block that is in the store alone: its head counts against the budget, not its
 * bytes, and no cache uses it. */
enum attn_status attn_block_alloc_absent(struct attn_block **out, struct attn_cache_pool *pool,
                                         size_t bytes, const struct attn_stored *stored);

/* Says that tokens from `first` to `end` are about to be written to the block, which has one
 * reference: the store has those before.  One without memory gets it.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_change(struct attn_cache_pool *pool, struct attn_block *block,
                                   unsigned first, unsigned end);

/* Bytes of the budget that a block without memory takes more with it. */
size_t attn_block_more_bytes(const struct attn_block *block);

/* Adds a holder of the block to those that use it, and gives the block memory if it has none: its
 * tokens are absent then.  The second call says that a holder uses it no more, and needs its first
 * `tokens` (0: as many as it said before): a block that no holder uses, of which the store has what
 * they need, has no memory.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_use(struct attn_cache_pool *pool, struct attn_block *block);
void attn_block_unuse(struct attn_cache_pool *pool, struct attn_block *block, unsigned tokens);

/* Adds a cache to the holders of a block, and where it `uses` the block to those that do; false
 * where the budget has no room for it.  The second call removes a holder. */
bool attn_block_add_holder(struct attn_cache_pool *pool, struct attn_block *block, bool uses);
void attn_block_remove_holder(struct attn_cache_pool *pool, struct attn_block *block, bool uses);

/* Copies a block for a cache that is going to write to it.  The cache becomes the holder of the
 * copy and leaves `block`, whose budget of one holder it gives back.  After an error the cache
 * still holds `block`.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_copy_on_write(struct attn_block **out, struct attn_cache_pool *pool,
                                          struct attn_block *block, bool uses);

/* Adds a reference that takes nothing of the budget, for a list that is not a cache's.  The second
 * call drops one. */
void attn_block_ref(struct attn_block *block);
void attn_block_unref(struct attn_cache_pool *pool, struct attn_block *block);

#endif
