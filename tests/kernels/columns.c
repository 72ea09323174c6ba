/* columns.c: checks of outer, softmax_columns, transpose and widen_keys.
 *
 * Kernels for transposed scores must give the bits of those for rows.  The reference is therefore
 * matmul, scale_rows and softmax, which other files check against double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/tile.h"
#include "kernelcheck.h"

static bool same_bits(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

/* to[j][r] = from[r][j] */
static void transpose(const struct grid *to, const struct grid *from)
{
    for (size_t r = 0; r < from->rows; r++)
        for (size_t j = 0; j < from->cols; j++)
            to->at[j * to->ld + r] = from->at[r * from->ld + j];
}

static const char *compare_bits(const struct grid *got, const struct grid *want)
{
    if (!grid_intact(got))
        return "wrote outside its result";
    for (size_t r = 0; r < want->rows; r++)
        if (!grid_same_row(got, r, want, r))
            return "other bits than by rows";
    return NULL;
}

const char *check_outer(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    struct pen *pens = check->pens;
    const struct attn_kernels *kernels = check->kernels;
    bool rescale = rng_next(rng) % 2;
    if (kernels->outer == NULL)
        return NULL;
    snprintf(check->what, sizeof check->what, "rows %zu, k %zu, n %zu, rescale %d", rows, k, n,
             rescale);
    struct grid a = grid_index(&pens[0], rng, rows, k),
                transposed = grid_index(&pens[1], rng, k, rows);
    struct grid b = grid_index(&pens[2], rng, k, n), factors = grid_index(&pens[3], rng, 1, rows);
    struct grid want = grid_index(&pens[4], rng, rows, n), got = grid_index(&pens[5], rng, rows, n);
    grid_fill(&a, rng, 1);
    grid_fill(&b, rng, 1);
    grid_fill(&factors, rng, 1);
    grid_fill(&want, rng, 1);
    grid_copy(&got, &want, 0);
    transpose(&transposed, &a);
    if (rescale)
        kernels->scale_rows(want.at, want.ld, factors.at, rows, n);
    kernels->matmul[ATTN_F32](&(struct attn_matmul){.c = want.at,
                                                    .a = a.at,
                                                    .b = b.at,
                                                    .ldc = want.ld,
                                                    .lda = a.ld,
                                                    .ldb = b.ld,
                                                    .rows = rows,
                                                    .k = k,
                                                    .n = n,
                                                    .accumulate = rescale});
    kernels->outer(&(struct attn_outer){.c = got.at,
                                        .rescale = rescale ? factors.at : NULL,
                                        .a = transposed.at,
                                        .b = b.at,
                                        .ldc = got.ld,
                                        .lda = transposed.ld,
                                        .ldb = b.ld,
                                        .rows = rows,
                                        .k = k,
                                        .n = n});
    return compare_bits(&got, &want);
}

/* Fills scores of both signs, some of them -inf, and rows that have seen keys and others that have
 * not. */
static void fill_rows(struct check *check, const struct grid *s, const struct grid *max,
                      const struct grid *sum)
{
    struct rng *rng = &check->rng;
    grid_fill(s, rng, 30);
    for (size_t r = 0; r < s->rows; r++) {
        bool fresh = rng_next(rng) % 3 == 0;
        max->at[r] = fresh ? -INFINITY : 20 * rng_unit(rng);
        sum->at[r] = fresh ? 0 : 1 + fabsf(rng_unit(rng));
        for (size_t j = 0; j < s->cols && rng_next(rng) % 4 == 0; j++)
            s->at[r * s->ld + j] = -INFINITY;
    }
}

/* Draws the keys that each row sees; scores of the others become -inf. */
static void draw_bounds(struct check *check, const struct grid *s, int32_t *first, int32_t *end)
{
    for (size_t r = 0; r < s->rows; r++) {
        first[r] = (int32_t)rng_between(&check->rng, 0, s->cols);
        end[r] = (int32_t)rng_between(&check->rng, (size_t)first[r], s->cols);
        for (size_t j = 0; j < s->cols; j++)
            if ((int32_t)j < first[r] || (int32_t)j >= end[r])
                s->at[r * s->ld + j] = -INFINITY;
    }
}

const char *check_softmax_columns(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)k;
    enum { MOST = 256 };
    struct rng *rng = &check->rng;
    struct pen *pens = check->pens;
    int32_t first[MOST], end[MOST];
    float max[MOST], sum[MOST], rescale[MOST];
    bool bounded = rng_next(rng) % 2;
    if (check->kernels->softmax_columns == NULL)
        return NULL;
    snprintf(check->what, sizeof check->what, "rows %zu, n %zu, bounded %d", rows, n, bounded);
    if (rows > MOST)
        return "the check is too small for that";
    struct grid want = grid_index(&pens[0], rng, rows, n), got = grid_index(&pens[1], rng, n, rows);
    struct grid transposed = grid_index(&pens[2], rng, n, rows);
    struct grid tops = {.at = max, .rows = 1, .cols = rows, .ld = rows};
    struct grid sums = {.at = sum, .rows = 1, .cols = rows, .ld = rows};
    struct grid top = grid_index(&pens[3], rng, 1, rows),
                total = grid_index(&pens[4], rng, 1, rows);
    struct grid by = grid_index(&pens[5], rng, 1, rows);
    fill_rows(check, &want, &tops, &sums);
    transpose(&got, &want);
    grid_copy(&top, &tops, 0);
    grid_copy(&total, &sums, 0);
    if (bounded)
        draw_bounds(check, &want, first, end);
    check->kernels->softmax(want.at, want.ld, max, sum, rescale, rows, n);
    const struct attn_score_columns columns = {
        got.at, got.ld, rows, n, bounded ? first : NULL, bounded ? end : NULL};
    check->kernels->softmax_columns(&columns, top.at, total.at, by.at);
    transpose(&transposed, &want);
    for (size_t r = 0; r < rows; r++)
        if (!same_bits(top.at[r], max[r]) || !same_bits(total.at[r], sum[r]) ||
            !same_bits(by.at[r], rescale[r]))
            return "maximum, sum or rescale has other bits than by rows";
    if (!grid_intact(&top) || !grid_intact(&total) || !grid_intact(&by))
        return "wrote outside its result";
    return compare_bits(&got, &transposed);
}

const char *check_transpose(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)k;
    enum { MOST = 256 };
    struct rng *rng = &check->rng;
    const float *from[MOST];
    const float factor = rng_unit(rng);
    snprintf(check->what, sizeof check->what, "rows %zu, n %zu", rows, n);
    if (rows > MOST)
        return "the check is too small for that";
    struct grid in = grid_index(&check->pens[0], rng, rows, n);
    struct grid out = grid_index(&check->pens[1], rng, n, rows);
    grid_fill(&in, rng, 1);
    for (size_t r = 0; r < rows; r++)
        from[r] = in.at + r * in.ld;
    check->kernels->transpose(out.at, out.ld, from, rows, n, factor);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            if (out.at[j * out.ld + r] != in.at[r * in.ld + j] * factor)
                return "an element is wrong";
    return grid_intact(&out) ? NULL : "wrote outside its result";
}

/* Fills a tile's keys [ATTN_TILE][d] with random numbers. */
static void put_keys(struct attn_tile *tile, struct rng *rng, size_t d)
{
    float key[ATTN_MAX_HEAD_DIM];
    for (size_t slot = 0; slot < ATTN_TILE; slot++) {
        for (size_t i = 0; i < d; i++)
            key[i] = rng_unit(rng);
        (void)attn_tile_put(tile, slot, key, key, d, 0);
    }
}

/* Reading a tile at once gives the numbers that reading it token by token gives. */
const char *check_widen_keys(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_INT8};
    const size_t d = k < ATTN_MAX_HEAD_DIM ? k : ATTN_MAX_HEAD_DIM;
    float key[ATTN_MAX_HEAD_DIM], scale[ATTN_TILE], unused[ATTN_TILE];
    struct attn_tile tile = {.dtype = dtypes[rng_between(rng, 0, 3)]};
    const size_t bytes = ATTN_TILE * attn_tile_key_bytes(tile.dtype, d);
    (void)rows, (void)n;
    snprintf(check->what, sizeof check->what, "dtype %d, d %zu", (int)tile.dtype, d);
    struct grid in = grid_index(&check->pens[0], rng, 1, bytes / sizeof(float));
    struct grid out = grid_index(&check->pens[1], rng, 1, d * ATTN_TILE);
    tile.k = in.at;
    tile.v = unused;
    if (tile.dtype == ATTN_INT8)
        tile.k_scale = scale, tile.v_scale = unused;
    put_keys(&tile, rng, d);
    check->kernels->widen_keys(out.at, tile.k, tile.k_scale, tile.dtype, d);
    for (size_t slot = 0; slot < ATTN_TILE; slot++) {
        attn_tile_get(key, NULL, &tile, slot, d, 0);
        for (size_t i = 0; i < d; i++)
            if (!same_bits(key[i], out.at[i * ATTN_TILE + slot]))
                return "a number is not the token's";
    }
    return grid_intact(&out) ? NULL : "wrote outside its result";
}
