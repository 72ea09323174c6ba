/* blockpool.h: where cache blocks come from: a budget in bytes and lists of free blocks. */
#ifndef ATTN_LIB_BLOCKPOOL_H
#define ATTN_LIB_BLOCKPOOL_H

#include "kvcache.h"

/* A block of `bytes` with one reference, zeroed when it is new to the process, else holding old
 * tokens.  Errors: ATTN_POOL_FULL, ATTN_NO_MEMORY. */
enum attn_status attn_block_get(struct attn_block **out, struct attn_cache_pool *pool,
                                size_t bytes);
void attn_block_share(struct attn_block *block); /* one reference more */
void attn_block_put(struct attn_cache_pool *pool, struct attn_block *block); /* one less */

/* Takes `bytes` of the budget for memory that goes with caches and is no block; false where they
 * are not left.  And gives them back. */
bool attn_pool_charge(struct attn_cache_pool *pool, size_t bytes);
void attn_pool_discharge(struct attn_cache_pool *pool, size_t bytes);

#endif
