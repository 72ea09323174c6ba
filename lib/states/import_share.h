/* import_share.h: an import that shares blocks with a cache which was imported before.
 *
 * One block can hold the tokens of two caches where the tokens of one are the first tokens of the
 * other, since a cache shows no slot beyond its own length. */
#ifndef ATTN_LIB_STATES_IMPORT_SHARE_H
#define ATTN_LIB_STATES_IMPORT_SHARE_H

#include "attn_state.h"
#include "caches/kvcache.h"

/* Which blocks of a layer the import is to share. */
struct attn_import_share {
    size_t layer;                  /* index among the resident ones */
    const struct attn_cache *from; /* of the same model and pool */
    size_t blocks; /* those before this place, of blocks of both; 0: none is left to share */
};

/* attn_cache_write of up to ATTN_TILE tokens to a layer whose length is a multiple of that.  The
 * cache adopts the block of `share` where that block holds the same tokens; else it takes a block
 * of its own, and so do all writes after this one, unless a window of `from` has forgotten it.
 * Errors: as attn_cache_write. */
enum attn_status attn_import_share_write(struct attn_import_share *share, struct attn_cache *cache,
                                         size_t layer, size_t count, const float *key,
                                         const float *value, struct attn_error *error);

#endif
