/* columns.c: a unit against one tile, by columns: queries are stored as [D][64] and
 * scores as [64 keys][64 rows], so that softmax and products stream without a horizontal step.
 *
 * The bits are those of rows.c.  Only units with many rows go this way, of which nothing
 * is wanted but output and log-sum-exp, and whose mask is a span of keys for each row. */
#include "attention/unit.h"

#define BLOCK_ROWS 32 /* rows computed together over a tile of which they see a part only */

void attn_unit_load_queries_by_columns(struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    const float *rows[ATTN_TILE];
    for (size_t r = 0; r < u->rows; r++)
        rows[r] = p->q.data + attn_unit_token(u, r) * p->q.token + attn_unit_head(u, r) * p->q.head;
    u->kernels->transpose(u->q, ATTN_TILE, rows, u->rows, p->head_dim, p->scale);
}

/* Scores, online softmax and weighted sum of some of the unit's rows (part.rows, part.s) over the
 * first part.n keys of a tile. */
static void update_column_block(struct attn_unit *u, const struct attn_tile *tile,
                                struct attn_score_columns part)
{
    const struct attn_kernels *kernels = u->kernels;
    const size_t d = u->p->head_dim, dv = u->p->value_head_dim, r = (size_t)(part.s - u->scores);
    struct attn_outer product = {.c = part.s,
                                 .ldc = ATTN_TILE,
                                 .a = tile->k,
                                 .lda = ATTN_TILE,
                                 .b = u->q + r,
                                 .ldb = ATTN_TILE,
                                 .rows = part.n,
                                 .k = d,
                                 .n = part.rows};
    kernels->outer(&product);
    kernels->softmax_columns(&part, u->sums.max + r, u->sums.sum + r, u->rescale + r);
    product = (struct attn_outer){.ldc = dv,
                                  .rescale = u->rescale + r,
                                  .a = part.s,
                                  .lda = ATTN_TILE,
                                  .rows = part.rows,
                                  .k = part.n};
    for (size_t j = 0; j < dv; j += product.n) {
        product.c = u->sums.out + r * dv + j;
        product.b = (const float *)tile->v + j * ATTN_TILE;
        product.ldb = product.n = attn_tile_width(ATTN_F32, dv, j);
        kernels->outer(&product);
    }
}

/* Of a tile that rows see in part BLOCK_ROWS rows at a time are computed over the keys up to the
 * last that one of them sees: of a causal unit's last tile that is far from all. */
void attn_unit_add_tile_by_columns(struct attn_unit *u, const struct attn_unit_tile *part,
                                   size_t first, bool masked)
{
    int32_t firsts[ATTN_TILE], ends[ATTN_TILE]; /* of the keys that a row sees, in the tile */
    const size_t end = first + part->count, step = masked ? BLOCK_ROWS : ATTN_TILE;
    for (size_t r = 0; masked && r < u->rows; r++) {
        const struct attn_span span = attn_mask_visible(&u->p->mask, attn_unit_token(u, r));
        firsts[r] = (int32_t)(attn_min(attn_max(span.first, first), end) - first);
        ends[r] = (int32_t)(attn_min(attn_max(span.end, first), end) - first);
    }
    for (size_t r = 0; r < u->rows; r += step) {
        struct attn_score_columns block = {.s = u->scores + r,
                                           .lds = ATTN_TILE,
                                           .rows = attn_min(u->rows - r, step),
                                           .n = masked ? 0 : part->count,
                                           .first = masked ? firsts + r : NULL,
                                           .end = masked ? ends + r : NULL};
        for (size_t i = 0; masked && i < block.rows; i++)
            block.n = attn_max(block.n, (size_t)block.end[i]);
        if (block.n > 0)
            update_column_block(u, &part->tile, block);
    }
}
