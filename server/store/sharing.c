/* sharing.c: finding the blocks that sessions share.
 *
 * A hash table has each block seen so far and the first session that has it.  A fork shares the
 * first blocks of each layer with its parent.  Whichever of the two then writes copies the block
 * that it writes to, and takes new ones after that.  So the blocks of a layer that earlier sessions
 * have too are a prefix of its list, which is found by bisection, and a session that has the last
 * block of that prefix has all of it.
 *
 * Where windows forget, the earlier session may have given up the first of these blocks, which the
 * later one has alone or with a third: each block is looked up, and each run of one owner is a
 * share of its own. */
#include "store/sharing.h"

#include <stdlib.h>

#include "attn.h"
#include "attn_state.h"
#include "basics/hash.h"

#define LEAST_OWNERS 256

struct srv_block_owner {
    const struct attn_block *block; /* NULL: free */
    uint64_t session;
};

/* ---- The table ------------------------------------------------------------------------------- */

/* The block's place, or the free one where it would be. */
static struct srv_block_owner *find(struct srv_block_owner *owners, size_t capacity,
                                    const struct attn_block *block)
{
    size_t i = (size_t)attn_hash_mix((uintptr_t)block) & (capacity - 1);
    while (owners[i].block != NULL && owners[i].block != block)
        i = (i + 1) & (capacity - 1);
    return &owners[i];
}

static bool make_room(struct srv_sharing *sharing)
{
    if (4 * (sharing->num_owners + 1) <= 3 * sharing->capacity)
        return true;
    size_t capacity = sharing->capacity > 0 ? 2 * sharing->capacity : LEAST_OWNERS;
    struct srv_block_owner *owners = calloc(capacity, sizeof *owners);
    if (owners == NULL)
        return false;
    for (size_t i = 0; i < sharing->capacity; i++)
        if (sharing->owners[i].block != NULL)
            *find(owners, capacity, sharing->owners[i].block) = sharing->owners[i];
    free(sharing->owners);
    sharing->owners = owners;
    sharing->capacity = capacity;
    return true;
}

static uint64_t owner_of(const struct srv_sharing *sharing, const struct attn_block *block)
{
    return find(sharing->owners, sharing->capacity, block)->session;
}

static bool is_owned(const struct srv_sharing *sharing, const struct attn_block *block)
{
    return find(sharing->owners, sharing->capacity, block)->block != NULL;
}

static bool add_owner(struct srv_sharing *sharing, const struct attn_block *block, uint64_t session)
{
    if (!make_room(sharing))
        return false;
    *find(sharing->owners, sharing->capacity, block) = (struct srv_block_owner){block, session};
    sharing->num_owners++;
    return true;
}

/* ---- Finding shares -------------------------------------------------------------------------- */

/* How many blocks from the first one on earlier sessions have. */
static size_t count_owned(const struct srv_sharing *sharing, struct attn_block *const blocks[],
                          size_t count)
{
    size_t owned = 0, end = sharing->capacity > 0 ? count : 0;
    while (owned < end) {
        size_t middle = owned + (end - owned) / 2;
        if (is_owned(sharing, blocks[middle]))
            owned = middle + 1;
        else
            end = middle;
    }
    return owned;
}

static bool add_share(struct srv_sharing *sharing, struct srv_share share)
{
    if (sharing->count == sharing->shares_capacity) {
        size_t capacity = sharing->shares_capacity + sharing->shares_capacity / 2 + 64;
        struct srv_share *shares = realloc(sharing->shares, capacity * sizeof *shares);
        if (shares == NULL)
            return false;
        sharing->shares = shares;
        sharing->shares_capacity = capacity;
    }
    sharing->shares[sharing->count++] = share;
    return true;
}

/* Adds what a layer shares where windows forget: the blocks of its list have different owners, a
 * share for each run of one owner, and some have none. */
static bool add_runs(struct srv_sharing *sharing, struct srv_share share,
                     struct attn_block *const blocks[], size_t count)
{
    const size_t first = share.blocks;
    bool added = true;
    for (size_t i = 0; i < count && added; i++) {
        if (sharing->capacity == 0 || !is_owned(sharing, blocks[i])) {
            added = add_owner(sharing, blocks[i], share.session);
            continue;
        }
        share.parent = owner_of(sharing, blocks[i]);
        share.blocks = (uint32_t)(first + i + 1);
        if (i + 1 == count || !is_owned(sharing, blocks[i + 1]) ||
            owner_of(sharing, blocks[i + 1]) != share.parent)
            added = add_share(sharing, share);
    }
    return added;
}

static bool add_layer(struct srv_sharing *sharing, uint64_t session, size_t layer,
                      const struct attn_cache *cache)
{
    size_t count, first = attn_cache_first(cache, layer) / ATTN_BLOCK_TOKENS;
    struct attn_block *const *blocks = attn_cache_blocks(&count, cache, layer);
    struct srv_share share = {.session = session, .layer = (uint32_t)layer};
    sharing->forgets = sharing->forgets || first > 0;
    if (sharing->forgets) {
        share.blocks = (uint32_t)first;
        return add_runs(sharing, share, blocks, count);
    }
    const size_t owned = count_owned(sharing, blocks, count);
    share.parent = owned > 0 ? owner_of(sharing, blocks[owned - 1]) : 0;
    share.blocks = (uint32_t)owned;
    bool added = owned == 0 || add_share(sharing, share);
    for (size_t i = owned; i < count && added; i++)
        added = add_owner(sharing, blocks[i], session);
    return added;
}

bool srv_sharing_add(struct srv_sharing *sharing, uint64_t session, const struct attn_cache *cache,
                     size_t num_layers)
{
    bool added = true;
    for (size_t i = 0; i < num_layers && added; i++)
        added = add_layer(sharing, session, i, cache);
    return added;
}

void srv_sharing_forget_blocks(struct srv_sharing *sharing)
{
    free(sharing->owners);
    sharing->owners = NULL;
    sharing->capacity = sharing->num_owners = 0;
}

void srv_sharing_fini(struct srv_sharing *sharing)
{
    srv_sharing_forget_blocks(sharing);
    free(sharing->shares);
    *sharing = (struct srv_sharing){0};
}

/* ---- A session that was lost ----------------------------------------------------------------- */

/* In each layer a child shares a prefix of the list that the lost session had.  The session that
 * has the longest prefix so far replaces it: at first its own parent, then one child after the
 * other. */
void srv_shares_replace(struct srv_share shares[], size_t count, uint64_t lost)
{
    struct srv_share stand_ins[ATTN_MAX_LAYERS] = {{0}};
    for (size_t i = 0; i < count; i++) {
        const struct srv_share had = shares[i];
        if ((had.session != lost && had.parent != lost) || had.layer >= ATTN_MAX_LAYERS)
            continue;
        struct srv_share *stand_in = &stand_ins[had.layer];
        if (had.session == lost) {
            *stand_in = (struct srv_share){.session = had.parent, .blocks = had.blocks};
            continue;
        }
        shares[i].parent = stand_in->session;
        shares[i].blocks = had.blocks < stand_in->blocks ? had.blocks : stand_in->blocks;
        if (had.blocks > stand_in->blocks)
            *stand_in = had;
    }
}
