/* attention_unit.c: a unit of rows against all keys that they see.
 *
 * There are two ways with the same results, bit for bit.  By rows: scores stand as they are
 * written, so they can be masked, shown and kept; it suits few rows.  By columns: queries and
 * scores stand transposed, so that softmax and products stream; it suits many rows with spans. */
#include "attention_unit.h"

#include <math.h>
#include <string.h>

/* The keys that the layer appends to all others. */
static struct attn_unit_tile extra_keys(const struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    return (struct attn_unit_tile){
        .tile.k = p->extra_k + u->keys.group * p->head_dim * ATTN_TILE,
        .tile.v = p->extra_v + u->keys.group * p->value_head_dim * ATTN_TILE,
        .count = p->extra,
    };
}

/* Of the tiles that a problem's rows meet before those. */
static enum attn_dtype keys_dtype(const struct attn_problem *p)
{
    return p->cache.blocks != NULL ? p->cache.spec->kv_dtype : ATTN_F32;
}

/* Divisions of 32 bits take a third of the time of others. */
static size_t row_token(const struct attn_unit *u, size_t r)
{
    return u->t0 + (uint32_t)r / (uint32_t)u->heads;
}

static size_t row_head(const struct attn_unit *u, size_t r)
{
    return u->h0 + (uint32_t)r % (uint32_t)u->heads;
}

/* Whether rows of weights are made. */
static bool keeps_rows(const struct attn_unit *u)
{
    return u->p->maps.weights != NULL || u->kept != NULL;
}

/* Where row r of the weights is kept while it is made; NULL where nobody asks for it. */
static float *kept_row(const struct attn_unit *u, size_t r)
{
    float *row = attn_maps_weights(&u->p->maps, row_head(u, r), row_token(u, r));
    return row != NULL || u->kept == NULL ? row : u->kept + r * u->p->maps.columns;
}

size_t attn_unit_scratch_floats(const struct attn_problem *p, size_t rows)
{
    const size_t prepared = 2 * sizeof(struct attn_prepared_row) / sizeof(float);
    return rows * (attn_query_stride(p) + ATTN_TILE + 1 + prepared) +
           2 * attn_sums_floats(rows, p->value_head_dim);
}

void attn_unit_layout(struct attn_unit *u, float *scratch, size_t rows)
{
    const size_t dv = u->p->value_head_dim, sums = attn_sums_floats(rows, dv);
    u->q = scratch;
    u->scores = u->q + rows * attn_query_stride(u->p);
    u->sums = attn_sums_in(u->scores + rows * ATTN_TILE, rows, dv);
    u->total = attn_sums_in(u->scores + rows * ATTN_TILE + sums, rows, dv);
    u->rescale = u->scores + rows * ATTN_TILE + 2 * sums;
    u->queries = (void *)(u->rescale + rows);
    u->weights = u->queries + rows;
}

/* ---- Stretches ---- */

/* Puts the sums of a stretch to those behind it. */
static void fold(struct attn_unit *u, struct attn_sums sums)
{
    const size_t dv = u->p->value_head_dim;
    if (!u->folded)
        attn_sums_clear(u->total, u->rows, dv);
    u->folded = true;
    attn_sums_merge(u->kernels, u->total, sums, u->rows, dv);
}

/* Before tile j: the unit may have come to another stretch. */
static void come_to(struct attn_unit *u, size_t j)
{
    if (j / ATTN_SPLIT_TILES != u->stretch) {
        fold(u, u->sums);
        attn_sums_clear(u->sums, u->rows, u->p->value_head_dim);
    }
    u->stretch = j / ATTN_SPLIT_TILES;
}

/* Makes the total the sums that are handed out; the unit's next heads need both. */
static void swap_sums(struct attn_unit *u)
{
    const struct attn_sums sums = u->sums;
    u->sums = u->total;
    u->total = sums;
}

/* After the last tile. */
static void complete(struct attn_unit *u)
{
    if (!u->folded)
        return;
    fold(u, u->sums);
    swap_sums(u);
}

/* ---- By rows ---- */

/* Tiles of keys from one up to another. */
struct tiles {
    size_t first, end;
};

/* Whether the last of `keys` is among them; none are with the first tile. */
static bool ends_in(struct tiles range, size_t keys)
{
    size_t tiles = attn_ceil_div(keys, ATTN_TILE);
    return tiles <= range.end && (tiles > range.first || range.first == 0);
}

/* Queries for tiles of a dtype. */
static void begin_rows(struct attn_unit *u, enum attn_dtype dtype)
{
    const struct attn_problem *p = u->p;
    const size_t ldq = attn_query_stride(p);
    for (size_t r = 0; r < u->rows; r++) {
        const float *q = p->q.data + row_token(u, r) * p->q.token + row_head(u, r) * p->q.head;
        u->kernels->scale(u->q + r * ldq, q, p->scale, p->head_dim);
    }
    if (dtype == ATTN_INT8)
        u->kernels->prepare_rows(u->q, ldq, u->queries, NULL, u->rows, p->head_dim);
}

/* Gemma 2's soft-capping: scores stay within +-c and keep their order. */
static void cap(float *scores, size_t rows, size_t n, float c)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            scores[r * ATTN_TILE + j] = c * tanhf(scores[r * ATTN_TILE + j] / c);
}

/* Copies the tile's scores out if it is at this stage that they are wanted. */
static void show_scores(const struct attn_unit *u, enum attn_stage stage, size_t first, size_t n)
{
    const struct attn_maps *maps = &u->p->maps;
    if (maps->scores == NULL || maps->stage != stage || first == maps->keys)
        return;
    for (size_t r = 0; r < u->rows; r++) {
        float *row = attn_maps_scores(maps, row_head(u, r), row_token(u, r));
        if (row != NULL)
            memcpy(row + first, u->scores + r * ATTN_TILE, n * sizeof(float));
    }
}

/* Keeps the tile's scores, which become weights when all tiles have passed. */
static void keep_scores(const struct attn_unit *u, size_t first, size_t n)
{
    if (!keeps_rows(u))
        return;
    for (size_t r = 0; r < u->rows; r++) {
        float *row = kept_row(u, r);
        if (row != NULL)
            memcpy(row + first, u->scores + r * ATTN_TILE, n * sizeof(float));
    }
}

/* One tile: scores, cap, mask, running softmax, weighted sum.  `first` is the tile's first key; the
 * extra tile is not masked.  Scales of a tile's numbers are brought in where they are few: with the
 * scores of a key, and with its weights before they meet its value. */
static void absorb(struct attn_unit *u, struct attn_unit_tile keys, size_t first, bool masked)
{
    const struct attn_problem *p = u->p;
    const struct attn_kernels *kernels = u->kernels;
    const struct attn_tile *tile = &keys.tile;
    size_t n = keys.count, dv = p->value_head_dim;
    attn_unit_scores(u, &keys);
    show_scores(u, ATTN_STAGE_RAW, first, n);
    if (p->softcap > 0)
        cap(u->scores, u->rows, n, p->softcap);
    show_scores(u, ATTN_STAGE_SOFTCAP, first, n);
    if (masked)
        for (size_t r = 0; r < u->rows; r++)
            attn_mask_apply(u->scores + r * ATTN_TILE, &p->mask, row_head(u, r), row_token(u, r),
                            first, n);
    show_scores(u, ATTN_STAGE_MASKED, first, n);
    keep_scores(u, first, n);
    kernels->softmax(u->scores, ATTN_TILE, u->sums.max, u->sums.sum, u->rescale, u->rows, n);
    kernels->scale_rows(u->sums.out, dv, u->rescale, u->rows, dv);
    if (tile->dtype == ATTN_INT8)
        kernels->prepare_rows(u->scores, ATTN_TILE, u->weights, tile->v_scale, u->rows, n);
    attn_unit_weighted_sum(u, &keys);
}

/* Scores of keys that no row of the unit may see are not computed; where they are kept they are
 * -inf. */
static void keep_unseen(const struct attn_unit *u, size_t first, size_t end)
{
    for (size_t r = 0; r < u->rows; r++) {
        float *row = kept_row(u, r);
        for (size_t s = first; row != NULL && s < end; s++)
            row[s] = -INFINITY;
    }
}

/* The keys that a unit meets: those that one of its rows sees, but scores are shown of others
 * too. */
static struct attn_span met_keys(const struct attn_unit *u)
{
    if (u->p->maps.scores != NULL)
        return (struct attn_span){0, u->p->keys};
    return (struct attn_span){u->head.first, u->tail.end};
}

/* Those of tiles in a range. */
static struct tiles met_tiles(const struct attn_unit *u, struct tiles range)
{
    const struct attn_span keys = met_keys(u);
    return (struct tiles){
        attn_max(keys.first / ATTN_TILE, range.first),
        attn_min(attn_ceil_div(keys.end, ATTN_TILE), range.end),
    };
}

/* The unit's part in tile j.  `next` meets its tile `then` after that, if there is one. */
static void meet_rows(struct attn_unit *u, size_t j, const struct attn_unit *next, size_t then)
{
    const bool plain = attn_mask_is_span(&u->p->mask);
    struct attn_unit_tile keys = {.count = attn_head_tile_tokens(&u->keys, j)};
    size_t first = j * ATTN_TILE, end = first + keys.count;
    attn_head_tile(&keys.tile, &u->keys, j);
    if (then < attn_key_tiles(next->p))
        attn_head_tile(&keys.next, &next->keys, then);
    attn_pool_pause(u->pool, u->thread);
    come_to(u, j);
    absorb(u, keys, first, !plain || first < u->tail.first || end > u->head.end);
}

static void end_rows(struct attn_unit *u, struct tiles range)
{
    const struct attn_problem *p = u->p;
    const struct tiles met = met_tiles(u, range);
    if (keeps_rows(u)) {
        keep_unseen(u, 0, attn_min(met.first * ATTN_TILE, p->keys));
        keep_unseen(u, attn_min(met.end * ATTN_TILE, p->keys), p->keys);
    }
    if (p->extra > 0 && ends_in(range, met_keys(u).end)) {
        begin_rows(u, ATTN_F32);
        absorb(u, extra_keys(u), p->keys, false);
    }
}

/* ---- By columns ---- */

#define PART 32 /* rows that meet a tile of which some see only part */

static bool by_columns(const struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    return keys_dtype(p) == ATTN_F32 && u->rows >= u->kernels->min_column_rows && p->softcap == 0 &&
           attn_mask_is_span(&p->mask) && p->maps.scores == NULL && !keeps_rows(u);
}

static void begin_columns(struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    const float *rows[ATTN_TILE];
    for (size_t r = 0; r < u->rows; r++)
        rows[r] = p->q.data + row_token(u, r) * p->q.token + row_head(u, r) * p->q.head;
    u->kernels->transpose(u->q, ATTN_TILE, rows, u->rows, p->head_dim, p->scale);
}

/* Which of the tile's keys each row sees. */
static void bound_rows(const struct attn_unit *u, int32_t *first, int32_t *end, size_t key,
                       size_t count)
{
    for (size_t r = 0; r < u->rows; r++) {
        struct attn_span span = attn_mask_visible(&u->p->mask, row_token(u, r));
        first[r] = (int32_t)(attn_min(attn_max(span.first, key), key + count) - key);
        end[r] = (int32_t)(attn_min(attn_max(span.end, key), key + count) - key);
    }
}

/* The tile's first n keys for some of the unit's rows: scores, running softmax, weighted sum. */
static void absorb_part(struct attn_unit *u, const struct attn_tile *tile,
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

/* One tile.  `first`, `end`: NULL where all rows see all of it; otherwise a part of the rows at a
 * time meets the keys up to the last that they see, which of a causal tile are far from all. */
static void absorb_columns(struct attn_unit *u, struct attn_unit_tile keys, const int32_t *first,
                           const int32_t *end)
{
    struct attn_score_columns part = {
        .s = u->scores, .lds = ATTN_TILE, .rows = u->rows, .n = keys.count};
    for (size_t r = 0; r < u->rows; r += part.rows) {
        if (end != NULL) {
            part = (struct attn_score_columns){
                u->scores + r, ATTN_TILE, attn_min(u->rows - r, PART), 0, first + r, end + r};
            for (size_t i = 0; i < part.rows; i++)
                part.n = attn_max(part.n, (size_t)part.end[i]);
        }
        if (part.n > 0)
            absorb_part(u, &keys.tile, part);
    }
}

/* The unit's part in tile j. */
static void meet_columns(struct attn_unit *u, size_t j)
{
    int32_t firsts[ATTN_TILE], ends[ATTN_TILE];
    struct attn_unit_tile keys = {.count = attn_head_tile_tokens(&u->keys, j)};
    size_t first = j * ATTN_TILE, end = first + keys.count;
    attn_head_tile(&keys.tile, &u->keys, j);
    keys.count = attn_min(keys.count, u->tail.end - first);
    bool bounded = first < u->tail.first || end > u->head.end;
    attn_pool_pause(u->pool, u->thread);
    come_to(u, j);
    if (bounded)
        bound_rows(u, firsts, ends, first, keys.count);
    absorb_columns(u, keys, bounded ? firsts : NULL, bounded ? ends : NULL);
}

static void end_columns(struct attn_unit *u, struct tiles range)
{
    if (u->p->extra > 0 && ends_in(range, met_keys(u).end))
        absorb_columns(u, extra_keys(u), NULL, NULL);
}

/* ---- The end of both ---- */

/* The sink takes its share of the softmax and brings no value; a row that sees nothing has none. */
static void add_sink(struct attn_unit *u, size_t r, float sink)
{
    size_t dv = u->p->value_head_dim;
    if (!(u->sums.sum[r] > 0))
        return;
    float max = fmaxf(u->sums.max[r], sink), shrink = expf(u->sums.max[r] - max);
    u->sums.sum[r] = u->sums.sum[r] * shrink + expf(sink - max);
    u->sums.max[r] = max;
    u->kernels->scale_rows(u->sums.out + r * dv, dv, &shrink, 1, dv);
}

/* Marks the keys that row r could reach; none where its scores say that it sees none. */
static void mark_reachable(const struct attn_unit *u, size_t r, const float *scores)
{
    size_t n = u->p->keys, s = 0;
    while (s < n && scores[s] == -INFINITY)
        s++;
    if (s < n)
        attn_mask_reachable(u->reachable, &u->p->mask, row_token(u, r));
    else
        memset(u->reachable, 0, n);
}

/* Scores become weights, and whoever asked for them gets them. */
static void finish_weights(struct attn_unit *u, size_t r, float gate)
{
    const struct attn_problem *p = u->p;
    const struct attn_maps *maps = &p->maps;
    size_t t = row_token(u, r), h = row_head(u, r);
    float *row = kept_row(u, r), share = u->sums.sum[r] > 0 ? 1.0f / u->sums.sum[r] : 0.0f;
    if (row == NULL)
        return;
    if (maps->head_stats != NULL)
        mark_reachable(u, r, row);
    u->kernels->normalize(row, u->sums.sum[r] > 0 ? u->sums.max[r] : 0.0f, share, maps->columns);
    if (maps->head_stats != NULL)
        attn_maps_measure_row(maps, h, t, row, u->reachable, p->mask.offset + (int64_t)t,
                              p->first_key);
    if (p->head_mask != NULL)
        u->kernels->scale_rows(row, maps->columns, &gate, 1, maps->columns);
    attn_maps_take_row(maps, h, t, row, u->pool, u->thread);
}

static void finish(struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    for (size_t r = 0; r < u->rows; r++) {
        size_t t = row_token(u, r), h = row_head(u, r);
        float gate = p->head_mask ? p->head_mask[h] : 1.0f;
        attn_pool_pause(u->pool, u->thread);
        if (p->sinks != NULL)
            add_sink(u, r, p->sinks[h]);
        if (p->out.data != NULL)
            u->kernels->scale(p->out.data + t * p->out.token + h * p->out.head,
                              u->sums.out + r * p->value_head_dim,
                              u->sums.sum[r] > 0 ? gate / u->sums.sum[r] : 0.0f, p->value_head_dim);
        if (p->lse != NULL)
            p->lse[h * p->queries + t] = u->sums.max[r] + logf(u->sums.sum[r]);
        if (keeps_rows(u))
            finish_weights(u, r, gate);
    }
}

/* ---- Units ---- */

static void begin_unit(struct attn_unit *u)
{
    const struct attn_mask *mask = &u->p->mask;
    u->head = attn_mask_visible(mask, u->t0);
    u->tail = attn_mask_visible(mask, u->t0 + u->tokens - 1);
    u->stretch = u->head.first / ATTN_TILE / ATTN_SPLIT_TILES;
    u->folded = false;
    attn_sums_clear(u->sums, u->rows, u->p->value_head_dim);
}

/* From the first tile that one of the units meets to behind the last. */
static struct tiles all_tiles(const struct attn_unit units[], size_t count, struct tiles range)
{
    struct tiles all = {SIZE_MAX, 0};
    for (size_t i = 0; i < count; i++) {
        const struct tiles met = met_tiles(&units[i], range);
        all.first = attn_min(all.first, met.first);
        all.end = attn_max(all.end, met.end);
    }
    return all;
}

/* Tile by tile through all of the units: one that they share comes from memory once, and those that
 * lie side by side come as one stream. */
static void walk(struct attn_unit units[], size_t count, struct tiles range)
{
    const bool columns = by_columns(units);
    const struct tiles all = all_tiles(units, count, range);
    for (size_t i = 0; i < count; i++)
        columns ? begin_columns(&units[i]) : begin_rows(&units[i], keys_dtype(units[i].p));
    for (size_t j = all.first; j < all.end; j++)
        for (size_t i = 0; i < count; i++) {
            const struct tiles met = met_tiles(&units[i], range);
            if (j < met.first || j >= met.end)
                continue;
            if (columns)
                meet_columns(&units[i], j);
            else
                meet_rows(&units[i], j, &units[(i + 1) % count], j + (i + 1) / count);
        }
    for (size_t i = 0; i < count; i++)
        columns ? end_columns(&units[i], range) : end_rows(&units[i], range);
}

void attn_units_solve(struct attn_unit units[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        begin_unit(&units[i]);
    walk(units, count, (struct tiles){0, SIZE_MAX});
    for (size_t i = 0; i < count; i++) {
        complete(&units[i]);
        finish(&units[i]);
    }
}

void attn_unit_solve_split(struct attn_unit *u, size_t stretch, float *sums)
{
    u->sums = attn_sums_in(sums, ATTN_TILE, u->p->value_head_dim);
    begin_unit(u);
    u->stretch = stretch;
    walk(u, 1, (struct tiles){stretch * ATTN_SPLIT_TILES, (stretch + 1) * ATTN_SPLIT_TILES});
}

/* A stretch of which the unit sees nothing has sums that change nothing. */
void attn_unit_merge(struct attn_unit *u, float *sums)
{
    begin_unit(u);
    for (size_t i = 0; i < attn_splits(u->p); i++) {
        const size_t dv = u->p->value_head_dim;
        fold(u, attn_sums_in(sums + i * attn_split_floats(u->p), ATTN_TILE, dv));
    }
    swap_sums(u);
    finish(u);
}
