/* blockpool.h: where cache blocks come from: a budget in bytes and lists of free blocks. */
#ifndef ATTN_LIB_BLOCKPOOL_H
#define ATTN_LIB_BLOCKPOOL_H

#include "kvcache.h"

/* What each cache that holds a block takes of the budget, but for one of them: its place in the
 * cache's list, and the one in a frozen copy of that. */
#define ATTN_HOLDER_BYTES (2 * sizeof(struct attn_block *))

/* A block of `bytes` for one cache, zeroed when it is new to the process, else holding old tokens.
 * Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_alloc(struct attn_block **out, struct attn_cache_pool *pool,
                                  size_t bytes);

/* One cache more that holds the block, false where the budget has no place left; and one less. */
bool attn_block_add_holder(struct attn_cache_pool *pool, struct attn_block *block);
void attn_block_remove_holder(struct attn_cache_pool *pool, struct attn_block *block);

/* A copy for a cache that leaves the block for it, and so takes nothing for its place there.
 * Errors as above, and then it has not left. */
enum attn_status attn_block_copy_on_write(struct attn_block **out, struct attn_cache_pool *pool,
                                          struct attn_block *block);

/* One reference more, of a list that is not a cache's and takes nothing of the budget; and one
 * less. */
void attn_block_ref(struct attn_block *block);
void attn_block_unref(struct attn_cache_pool *pool, struct attn_block *block);

#endif
