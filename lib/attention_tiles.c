/* attention_tiles.c: where the tiles of a key/value head stand, in the blocks of a cache or where
 * attention.c made them of rows; and how rows that stand as rows meet one.
 *
 * Few rows wait for memory, so while keys are met the tile's values are fetched, and while those
 * are the next tile. */
#include "attention_unit.h"

#define LINE_FLOATS 16 /* of a cache line */

void attn_head_tile(struct attn_tile *out, const struct attn_head_tiles *head, size_t j)
{
    const struct attn_problem *p = head->problem;
    if (head->tiles == NULL) {
        attn_block_tile(out, p->cache.blocks[j], p->cache.spec, head->group);
        return;
    }
    *out = (struct attn_tile){.k = head->tiles + j * ATTN_TILE * (p->head_dim + p->value_head_dim)};
    out->v = (float *)out->k + ATTN_TILE * p->head_dim;
}

size_t attn_head_tile_tokens(const struct attn_head_tiles *head, size_t j)
{
    return attn_min(head->problem->keys - j * ATTN_TILE, ATTN_TILE);
}

void attn_unit_scores(const struct attn_unit *u, const struct attn_unit_tile *keys)
{
    const struct attn_tile *tile = &keys->tile;
    const size_t d = u->p->head_dim, panel = attn_tile_panel(tile->dtype);
    const char *k = tile->k, *v = tile->v;
    for (size_t j = 0; j < keys->count; j += panel) {
        size_t at = j * attn_tile_key_bytes(tile->dtype, d);
        u->kernels->matmul[tile->dtype](
            &(struct attn_matmul){.c = u->scores + j,
                                  .ldc = ATTN_TILE,
                                  .a = u->q,
                                  .lda = attn_query_stride(u->p),
                                  .b = k + at,
                                  .ldb = panel,
                                  .rows = u->rows,
                                  .k = d,
                                  .n = attn_tile_width(tile->dtype, keys->count, j),
                                  .scale = tile->k_scale ? tile->k_scale + j : NULL,
                                  .prepared = u->queries,
                                  .prefetch = v + at});
    }
}

void attn_unit_weighted_sum(const struct attn_unit *u, const struct attn_unit_tile *keys)
{
    const struct attn_tile *tile = &keys->tile;
    const enum attn_dtype dtype = tile->dtype;
    const size_t dv = u->p->value_head_dim;
    const char *v = tile->v, *ahead = keys->next.k;
    for (size_t i = 0; keys->next.k_scale != NULL && i < 2 * ATTN_TILE; i += LINE_FLOATS)
        __builtin_prefetch(keys->next.k_scale + i);
    for (size_t j = 0, width; j < dv; j += width) {
        size_t at = ATTN_TILE * attn_tile_value_bytes(dtype, j);
        width = attn_tile_width(dtype, dv, j);
        u->kernels->matmul[dtype](
            &(struct attn_matmul){.c = u->sums.out + j,
                                  .ldc = dv,
                                  .a = u->scores,
                                  .lda = ATTN_TILE,
                                  .b = v + at,
                                  .ldb = width,
                                  .rows = u->rows,
                                  .k = keys->count,
                                  .n = width,
                                  .accumulate = true,
                                  .prepared = u->weights,
                                  .prefetch = ahead != NULL ? ahead + at : NULL});
    }
}
