/* rows.c: a unit against one tile, by rows: scores are stored as [R][64], so that they
 * can be capped, masked, copied out and kept.
 *
 * Products of few rows wait for memory.  The product with keys therefore prefetches the values of
 * its tile, and the product with values the keys of the tile that comes next. */
#include <math.h>
#include <string.h>

#include "attention/unit.h"

#define LINE_FLOATS 16 /* of a cache line */

void attn_unit_load_queries_by_rows(struct attn_unit *u, enum attn_dtype dtype)
{
    const struct attn_problem *p = u->p;
    const size_t ldq = attn_query_stride(p);
    for (size_t r = 0; r < u->rows; r++) {
        const float *q =
            p->q.data + attn_unit_token(u, r) * p->q.token + attn_unit_head(u, r) * p->q.head;
        u->kernels->scale(u->q + r * ldq, q, p->scale, p->head_dim);
        if (p->relative != NULL)
            u->kernels->scale(u->relative.q + r * ldq, q, p->scale, p->head_dim);
    }
    if (dtype == ATTN_INT8)
        u->kernels->prepare_rows(u->q, ldq, u->prepared_queries, NULL, u->rows, p->head_dim);
    else if (dtype == ATTN_BF16 && p->pairs)
        u->kernels->divide_rows(u->q, ldq, u->rows, p->head_dim);
}

/* ---- Products ---- */

static void multiply(const struct attn_unit *u, enum attn_dtype dtype,
                     const struct attn_matmul *product)
{
    if (dtype == ATTN_F32 && u->gemm != NULL && u->rows >= ATTN_GEMM_ROWS)
        attn_gemm_matmul(u->gemm, product);
    else if (dtype == ATTN_BF16 && u->p->pairs)
        u->kernels->matmul_pairs(product);
    else if (dtype == ATTN_BF16 && attn_is_latent(u->p))
        u->kernels->matmul_many(product);
    else
        u->kernels->matmul[dtype](product);
}

/* scores = q k^T, [R][count], times the scales of keys. */
static void scores_of_keys(const struct attn_unit *u, const struct attn_unit_tile *part)
{
    const struct attn_tile *tile = &part->tile;
    const size_t d = u->p->head_dim, panel = attn_tile_panel(tile->dtype);
    const char *k = tile->k, *v = tile->v;
    for (size_t j = 0; j < part->count; j += panel) {
        size_t at = j * attn_tile_key_bytes(tile->dtype, d);
        multiply(u, tile->dtype,
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
                                       .prepared = u->prepared_queries,
                                       .prefetch = v + at});
    }
}

/* sums.out += scores v, [R][Dv], where scores have become weights. */
static void add_weighted_values(const struct attn_unit *u, const struct attn_unit_tile *part)
{
    const struct attn_tile *tile = &part->tile;
    const enum attn_dtype dtype = tile->dtype;
    const size_t dv = u->p->value_head_dim;
    const bool whole = tile->second_key || tile->pairs;
    const char *v = tile->v, *next = part->next.k;
    for (size_t i = 0; part->next.k_scale != NULL && i < 2 * ATTN_TILE; i += LINE_FLOATS)
        __builtin_prefetch(part->next.k_scale + i);
    for (size_t j = 0, width; j < dv; j += width) {
        size_t at = ATTN_TILE * attn_tile_value_bytes(dtype, j);
        width = whole ? dv : attn_tile_width(dtype, dv, j);
        multiply(u, dtype,
                 &(struct attn_matmul){.c = u->sums.out + j,
                                       .ldc = dv,
                                       .a = u->scores,
                                       .lda = ATTN_TILE,
                                       .b = v + at,
                                       .ldb = tile->second_key ? ATTN_TILE : width,
                                       .rows = u->rows,
                                       .k = part->count,
                                       .n = width,
                                       .accumulate = true,
                                       .transposed = tile->second_key,
                                       .prepared = u->prepared_weights,
                                       .prefetch = next != NULL ? next + at : NULL});
    }
}

/* ---- Scores ---- */

/* Hands the tile's scores to the maps if these ask for this stage. */
static void copy_scores(const struct attn_unit *u, enum attn_stage stage, size_t first, size_t n)
{
    const struct attn_maps *maps = &u->p->maps;
    if (!attn_maps_need_scores(maps) || maps->stage != stage || first == maps->keys)
        return;
    for (size_t r = 0; r < u->rows; r++)
        attn_maps_store_scores(maps, attn_unit_head(u, r), attn_unit_token(u, r), first,
                               u->scores + r * ATTN_TILE, n);
}

void attn_unit_add_tile_by_rows(struct attn_unit *u, const struct attn_unit_tile *part,
                                size_t first, bool masked)
{
    const struct attn_problem *p = u->p;
    const struct attn_kernels *kernels = u->kernels;
    const size_t n = part->count, dv = p->value_head_dim;
    scores_of_keys(u, part);
    copy_scores(u, ATTN_STAGE_RAW, first, n);
    for (size_t r = 0; p->softcap > 0 && r < u->rows; r++) /* as in Gemma 2 */
        for (size_t j = 0; j < n; j++) {
            float *score = u->scores + r * ATTN_TILE + j;
            *score = p->softcap * tanhf(*score / p->softcap);
        }
    copy_scores(u, ATTN_STAGE_SOFTCAP, first, n);
    if (p->relative != NULL && first < p->keys)
        attn_unit_add_relative(u, part, first);
    if (masked)
        for (size_t r = 0; r < u->rows; r++)
            attn_mask_apply(u->scores + r * ATTN_TILE, &p->mask, attn_unit_head(u, r),
                            attn_unit_token(u, r), first, n);
    copy_scores(u, ATTN_STAGE_MASKED, first, n);
    for (size_t r = 0; attn_unit_makes_weights(u) && r < u->rows; r++) {
        float *row = attn_unit_weight_row(u, r); /* its scores are kept until the last tile */
        if (row != NULL)
            memcpy(row + first, u->scores + r * ATTN_TILE, n * sizeof(float));
    }
    kernels->softmax(u->scores, ATTN_TILE, u->sums.max, u->sums.sum, u->rescale, u->rows, n);
    kernels->scale_rows(u->sums.out, dv, u->rescale, u->rows, dv);
    if (part->tile.dtype == ATTN_INT8) /* the scales of values join the weights */
        kernels->prepare_rows(u->scores, ATTN_TILE, u->prepared_weights, part->tile.v_scale,
                              u->rows, n);
    else if (part->tile.pairs)
        kernels->divide_rows(u->scores, ATTN_TILE, u->rows, n);
    add_weighted_values(u, part);
}
