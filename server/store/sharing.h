/* sharing.h: which sessions of a snapshot share blocks, as its base records it.
 *
 * Each session file has all tokens of its session.  So that forks share their blocks again after a
 * restart, the base says of each layer of a session how many of its first blocks are also those of
 * another session, which stands earlier in the base.  The record follows from the addresses of the
 * blocks at the moment of the snapshot.  So it holds for forks of forks, after truncations and
 * where the parent was deleted, and no history is kept. */
#ifndef SRV_SHARING_H
#define SRV_SHARING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_limits.h"
#include "attn_state.h"

/* As a base has it: the first `blocks` blocks of that layer of a session are the parent's too, as
 * far as windows of the two have not forgotten them.  Where windows forget, a layer has a share for
 * each parent, in the order of blocks. */
struct srv_share {
    uint64_t session, parent; /* epochs; the parent stands before the session in the base */
    uint32_t layer, blocks;
};

/* Memory that finding shares takes for each block of a pool, and for each layer of a session, at
 * most. */
#define SRV_SHARING_BYTES 64
#define SRV_SHARE_BYTES (2 * sizeof(struct srv_share))

/* The blocks seen so far and what was found.  Zeroed at first; srv_sharing_fini frees it. */
struct srv_sharing {
    struct srv_block_owner *owners; /* [capacity] hashed by block */
    size_t capacity, num_owners;
    struct srv_share *shares; /* [count] */
    size_t count, shares_capacity;
    bool forgets; /* a window of some session has forgotten blocks */
};

/* Adds a session, in the order of the base; all caches are of one moment.  O(log blocks) in each
 * layer, O(blocks) once a window has forgotten some, and what the blocks take that no earlier
 * session has.  False where memory is short. */
bool srv_sharing_add(struct srv_sharing *sharing, uint64_t session, const struct attn_cache *cache,
                     size_t num_layers);

/* Frees all but the shares that were found; and the shares too. */
void srv_sharing_forget_blocks(struct srv_sharing *sharing);
void srv_sharing_fini(struct srv_sharing *sharing);

/* Makes the sessions that share blocks with `lost`, whose file could not be restored, share them
 * with each other and with its parent instead. */
void srv_shares_replace(struct srv_share shares[], size_t count, uint64_t lost);

#endif
