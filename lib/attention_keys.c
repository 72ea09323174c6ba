/* attention_keys.c: where the tiles of a key/value head stand: in the blocks of a cache, or where
 * attention.c made them of rows. */
#include "attention_unit.h"

struct attn_keys attn_head_keys(const struct attn_head_tiles *head, size_t j)
{
    const struct attn_problem *p = head->problem;
    size_t d = p->head_dim, dv = p->value_head_dim;
    struct attn_keys keys = {.count = attn_min(p->keys - j * ATTN_TILE, ATTN_TILE)};
    bool last = j + 1 == attn_key_tiles(p);
    if (head->tiles == NULL) {
        keys.tile = attn_block_tile(p->cache.blocks[j], p->cache.spec, head->group);
        if (!last)
            keys.next = attn_block_tile(p->cache.blocks[j + 1], p->cache.spec, head->group).k;
    } else {
        keys.tile.k = head->tiles + j * d * ATTN_TILE;
        if (!last)
            keys.next = (const char *)(head->tiles + (j + 1) * d * ATTN_TILE);
        keys.tile.v = head->tiles + attn_key_tiles(p) * d * ATTN_TILE + j * dv * ATTN_TILE;
    }
    return keys;
}
