/* blockpool.h: cache blocks: a budget in bytes and lists of free blocks.
 *
 * A block has holders, the caches that hold it, and references: one for each holder, one for each
 * frozen copy or other list.  Holders count against the budget, further references do not.  Every
 * call may be made from any thread. */
#ifndef ATTN_LIB_CACHES_BLOCKPOOL_H
#define ATTN_LIB_CACHES_BLOCKPOOL_H

#include "caches/kvcache.h"

/* Bytes of the budget for each cache that holds a block beside its first holder: a place in the
 * cache's list, and one in a frozen copy of that. */
#define ATTN_HOLDER_BYTES (2 * sizeof(struct attn_block *))

/* Allocates a block of `bytes` for one cache, its first holder.  The content is zeros where the
 * memory is new to the process, else old tokens.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_alloc(struct attn_block **out, struct attn_cache_pool *pool,
                                  size_t bytes);

/* Adds a cache to the holders of a block; false where the budget has no room for it.  The second
 * call removes a holder. */
bool attn_block_add_holder(struct attn_cache_pool *pool, struct attn_block *block);
void attn_block_remove_holder(struct attn_cache_pool *pool, struct attn_block *block);

/* Copies a block for a cache that is going to write to it; without `content`, which is filled in
 * later, only the place.  The cache becomes the holder of the copy and leaves `block`, whose budget
 * of one holder it gives back.  After an error the cache still holds `block`.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_copy_on_write(struct attn_block **out, struct attn_cache_pool *pool,
                                          struct attn_block *block, bool content);

/* Adds a reference that takes nothing of the budget, for a list that is not a cache's.  The second
 * call drops one. */
void attn_block_ref(struct attn_block *block);
void attn_block_unref(struct attn_cache_pool *pool, struct attn_block *block);

#endif
