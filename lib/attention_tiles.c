/* attention_tiles.c: the tiles of a key/value head, in the blocks of a cache or packed from rows,
 * and the two products of a unit that goes by rows with one tile.
 *
 * A product of few rows waits for memory.  The product with keys therefore prefetches the values of
 * its tile, and the product with values the keys of the tile that comes next. */
#include "attention_unit.h"

#include <string.h>

#define LINE_FLOATS 16 /* of a cache line */

/* ---- Tiles ---- */

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

size_t attn_packed_floats(const struct attn_problem *p)
{
    return attn_key_tiles(p) * ATTN_TILE * (p->head_dim + p->value_head_dim);
}

void attn_pack_tile(const struct attn_kernels *kernels, const struct attn_head_tiles *head,
                    size_t j)
{
    const struct attn_problem *p = head->problem;
    const size_t count = attn_head_tile_tokens(head, j);
    struct attn_tile tile;
    const float *rows[ATTN_TILE];
    const float *value = p->v.data + j * ATTN_TILE * p->v.token + head->group * p->v.head;
    attn_head_tile(&tile, head, j);
    for (size_t s = 0; s < count; s++)
        rows[s] = p->k.data + (j * ATTN_TILE + s) * p->k.token + head->group * p->k.head;
    if (count < ATTN_TILE)
        memset(tile.k, 0, p->head_dim * ATTN_TILE * sizeof(float));
    kernels->transpose(tile.k, ATTN_TILE, rows, count, p->head_dim, 1);
    for (size_t s = 0; s < count; s++)
        (void)attn_tile_put_value(&tile, s, value + s * p->v.token, p->value_head_dim);
}

/* ---- Products by rows ---- */

void attn_unit_scores(const struct attn_unit *u, const struct attn_unit_tile *part)
{
    const struct attn_tile *tile = &part->tile;
    const size_t d = u->p->head_dim, panel = attn_tile_panel(tile->dtype);
    const char *k = tile->k, *v = tile->v;
    for (size_t j = 0; j < part->count; j += panel) {
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
                                  .n = attn_tile_width(tile->dtype, part->count, j),
                                  .scale = tile->k_scale ? tile->k_scale + j : NULL,
                                  .prepared = u->queries,
                                  .prefetch = v + at});
    }
}

void attn_unit_weighted_sum(const struct attn_unit *u, const struct attn_unit_tile *part)
{
    const struct attn_tile *tile = &part->tile;
    const enum attn_dtype dtype = tile->dtype;
    const size_t dv = u->p->value_head_dim;
    const char *v = tile->v, *next = part->next.k;
    for (size_t i = 0; part->next.k_scale != NULL && i < 2 * ATTN_TILE; i += LINE_FLOATS)
        __builtin_prefetch(part->next.k_scale + i);
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
                                  .k = part->count,
                                  .n = width,
                                  .accumulate = true,
                                  .prepared = u->weights,
                                  .prefetch = next != NULL ? next + at : NULL});
    }
}
