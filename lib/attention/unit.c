/* unit.c: one unit, that is R <= 64 rows (query token t, query head h) of one key/value
 * head, against all keys that they see: an online softmax over tiles of 64 keys.
 *
 *   q = scale * queries                                   [R][D]
 *   for each split (64 tiles, 4,096 keys):
 *     out, sum, max = 0, 0, -inf                          [R][Dv], [R], [R]
 *     for each tile with a key that a row of the unit sees:
 *       s = q k^T                                         [R][64]   stage raw
 *       s = softcap * tanh(s / softcap)                             stage softcap
 *       s = (seen ? s : -inf) + position bias + bias                stage masked
 *       m = max(max, max_j s)                             [R]
 *       s, c = e^(s - m), e^(max - m)
 *       out, sum, max = c out + s v, c sum + sum_j s, m             v is [64][Dv]
 *     total = merge(total, (out, sum, max))               by log-sum-exp, splits in order
 *   the layer's extra keys: one more tile, not masked, in the last split
 *   with a sink: sum += e^(sink - max)                    a share of the softmax, without a value
 *   output = head_mask * out / sum;  lse = max + ln sum
 *   maps of scores: s, copied at the stage that the caller asks for
 *   maps of weights: s is kept as rows [W].  After the last tile each row becomes
 *   e^(s - max) / sum; then it is measured, multiplied by head_mask, averaged, ranked
 *
 * A tile is computed by rows (rows.c) or, with the same bits, by columns
 * (columns.c).  This file holds the order of tiles and splits, and writes the results. */
#include "attention/unit.h"

#include <math.h>
#include <string.h>

/* The dtype of all tiles but the extra one, which is float32. */
static enum attn_dtype tiles_dtype(const struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    if (p->pairs)
        return ATTN_BF16;
    if (p->cache.blocks == NULL || (attn_is_latent(p) && !attn_latent_is_whole(p, u->kernels)))
        return ATTN_F32;
    return p->cache.spec->kv_dtype;
}

float *attn_unit_weight_row(const struct attn_unit *u, size_t r)
{
    float *row = attn_maps_weights(&u->p->maps, attn_unit_head(u, r), attn_unit_token(u, r));
    return row != NULL || u->weight_rows == NULL ? row : u->weight_rows + r * u->p->maps.columns;
}

#define PREPARED_FLOATS (sizeof(struct attn_prepared_row) / sizeof(float))
#define RELATIVE_FLOATS(rows, stride)           \
    ((rows) * ((stride) + ATTN_RELATIVE_ROWS) + \
     ATTN_TILE * ((stride) + ATTN_RELATIVE_ROWS + PREPARED_FLOATS))
_Static_assert(ATTN_UNIT_SCRATCH(ATTN_MAX_HEAD_DIM) +
                       RELATIVE_FLOATS(ATTN_TILE, ATTN_MAX_HEAD_DIM) <=
                   ATTN_UNITS_SCRATCH,
               "a unit with the widest heads has room for a disentangled position bias");

size_t attn_unit_scratch_floats(const struct attn_problem *p, size_t rows)
{
    const size_t stride = attn_query_stride(p);
    return rows * (stride + ATTN_TILE + 1 + 2 * PREPARED_FLOATS) +
           2 * attn_sums_floats(rows, p->value_head_dim) +
           (p->relative != NULL ? RELATIVE_FLOATS(rows, stride) : 0);
}

void attn_unit_layout(struct attn_unit *u, float *scratch, size_t rows)
{
    const size_t dv = u->p->value_head_dim, sums = attn_sums_floats(rows, dv);
    const size_t stride = attn_query_stride(u->p);
    u->q = scratch;
    u->scores = u->q + rows * stride;
    u->sums = attn_sums_in(u->scores + rows * ATTN_TILE, rows, dv);
    u->total = attn_sums_in(u->scores + rows * ATTN_TILE + sums, rows, dv);
    u->rescale = u->scores + rows * ATTN_TILE + 2 * sums;
    u->prepared_queries = (void *)(u->rescale + rows);
    u->prepared_weights = u->prepared_queries + rows;
    if (u->p->relative == NULL)
        return;
    u->relative.q = (float *)(void *)(u->prepared_weights + rows);
    u->relative.by_query = u->relative.q + rows * stride;
    u->relative.rows = u->relative.by_query + rows * ATTN_RELATIVE_ROWS;
    u->relative.by_key = u->relative.rows + ATTN_TILE * stride;
    u->relative.prepared = (void *)(u->relative.by_key + ATTN_RELATIVE_ROWS * ATTN_TILE);
}

/* ---- Splits ---- */

/* Merges the sums of a split into the total of those before it. */
static void merge_split(struct attn_unit *u, struct attn_sums sums)
{
    const size_t dv = u->p->value_head_dim;
    if (!u->has_total)
        attn_sums_clear(u->total, u->rows, dv);
    u->has_total = true;
    attn_sums_merge(u->kernels, u->total, sums, u->rows, dv);
}

/* Makes the total the sums that results are written from.  The two are swapped, since the unit
 * needs the memory of both if it goes on with other heads. */
static void swap_sums(struct attn_unit *u)
{
    const struct attn_sums sums = u->sums;
    u->sums = u->total;
    u->total = sums;
}

/* ---- Tiles ---- */

/* Tiles [first, end). */
struct tile_range {
    size_t first, end;
};

/* Fills kept scores of keys [first, end), whose tiles were not computed as no row sees them. */
static void keep_unseen_scores(const struct attn_unit *u, size_t first, size_t end)
{
    for (size_t r = 0; r < u->rows; r++) {
        float *row = attn_unit_weight_row(u, r);
        for (size_t s = first; row != NULL && s < end; s++)
            row[s] = -INFINITY;
    }
}

/* The first key that is there: a cache's window may have forgotten those before. */
static size_t first_kept(const struct attn_problem *p) { return p->cache.first * ATTN_TILE; }

/* Hands minus infinity to the maps as the scores of keys that are forgotten. */
static void store_forgotten_scores(const struct attn_unit *u)
{
    const size_t end = attn_maps_need_scores(&u->p->maps) ? first_kept(u->p) : 0;
    for (size_t j = 0; j < ATTN_TILE && end > 0; j++)
        u->scores[j] = -INFINITY;
    for (size_t first = 0; first < end; first += ATTN_TILE)
        for (size_t r = 0; r < u->rows; r++)
            attn_maps_store_scores(&u->p->maps, attn_unit_head(u, r), attn_unit_token(u, r), first,
                                   u->scores, ATTN_TILE);
}

/* The keys whose tiles are computed: those that one of the unit's rows sees, or all that are there
 * where scores are asked for. */
static struct attn_span computed_keys(const struct attn_unit *u)
{
    if (attn_maps_need_scores(&u->p->maps))
        return (struct attn_span){first_kept(u->p), u->p->keys};
    return (struct attn_span){u->first_span.first, u->last_span.end};
}

/* The tiles of a range that are computed. */
static struct tile_range computed_tiles(const struct attn_unit *u, struct tile_range range)
{
    const struct attn_span keys = computed_keys(u);
    return (struct tile_range){
        attn_max(keys.first / ATTN_TILE, range.first),
        attn_min(attn_ceil_div(keys.end, ATTN_TILE), range.end),
    };
}

/* Whether the unit goes by columns.  With OpenBLAS none does: there the two ways may differ in
 * bits, and the way depends on the outputs asked for and on the other units of a task. */
static bool by_columns(const struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    return u->gemm == NULL && tiles_dtype(u) == ATTN_F32 &&
           u->rows >= u->kernels->columns_from_rows && p->softcap == 0 &&
           attn_mask_is_span(&p->mask) && !attn_maps_need_scores(&p->maps) &&
           !attn_unit_makes_weights(u);
}

/* Tile j of the unit's head, as attn_head_tile. */
static void read_tile(struct attn_unit_tile *part, const struct attn_unit *u, size_t j)
{
    if (u->latent == NULL) {
        attn_head_tile(&part->tile, &u->kv, j);
        return;
    }
    attn_latent_read(u->latent, u->p, u->latent_floats, u->kernels, j, part->count);
    part->tile = u->latent->tile;
}

/* Computes tile j, and by rows prefetches the tile that is computed next: tile `after` of the unit
 * `next`, unless that is beyond the last tile. */
static void solve_tile(struct attn_unit *u, size_t j, bool columns, const struct attn_unit *next,
                       size_t after)
{
    struct attn_unit_tile part = {.count = attn_head_tile_tokens(&u->kv, j)};
    const size_t first = j * ATTN_TILE;
    const bool masked = !attn_mask_is_span(&u->p->mask) || first < u->last_span.first ||
                        first + part.count > u->first_span.end; /* not in the span of some row */
    read_tile(&part, u, j);
    if (!columns && u->latent == NULL && after < attn_key_tiles(next->p))
        attn_head_tile(&part.next, &next->kv, after);
    attn_pool_pause(u->pool, u->thread);
    if (j / ATTN_SPLIT_TILES != u->split) { /* the tile is the first of another split */
        merge_split(u, u->sums);
        attn_sums_clear(u->sums, u->rows, u->p->value_head_dim);
    }
    u->split = j / ATTN_SPLIT_TILES;
    if (!columns) {
        attn_unit_add_tile_by_rows(u, &part, first, masked);
        return;
    }
    part.count = attn_min(part.count, u->last_span.end - first);
    attn_unit_add_tile_by_columns(u, &part, first, masked);
}

/* Called after the last tile of a range: the extra tile, and kept scores of keys without a tile. */
static void end_tiles(struct attn_unit *u, struct tile_range range, bool columns)
{
    const struct attn_problem *p = u->p;
    const struct tile_range own = computed_tiles(u, range);
    const size_t tiles = attn_ceil_div(computed_keys(u).end, ATTN_TILE);
    if (attn_unit_makes_weights(u)) {
        keep_unseen_scores(u, 0, attn_min(own.first * ATTN_TILE, p->keys));
        keep_unseen_scores(u, attn_min(own.end * ATTN_TILE, p->keys), p->keys);
    }
    /* The extra tile comes after the last one of all; without keys, after those from 0 on. */
    if (p->extra == 0 || tiles > range.end || (tiles <= range.first && range.first > 0))
        return;
    const struct attn_unit_tile extra = {
        .tile.k = p->extra_k + u->kv.group * p->head_dim * ATTN_TILE,
        .tile.v = p->extra_v + u->kv.group * p->value_head_dim * ATTN_TILE,
        .count = p->extra,
    };
    if (columns) {
        attn_unit_add_tile_by_columns(u, &extra, p->keys, false);
    } else {
        attn_unit_load_queries_by_rows(u, ATTN_F32);
        attn_unit_add_tile_by_rows(u, &extra, p->keys, false);
    }
}

/* ---- Results ---- */

/* Gives the sink its share of the softmax, without a value.  A row that sees no key has no sink. */
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

/* Turns the kept scores of row r into weights and hands them to the maps. */
static void finish_weight_row(struct attn_unit *u, size_t r, float gate)
{
    const struct attn_problem *p = u->p;
    const struct attn_maps *maps = &p->maps;
    size_t t = attn_unit_token(u, r), h = attn_unit_head(u, r);
    float *row = attn_unit_weight_row(u, r),
          share = u->sums.sum[r] > 0 ? 1.0f / u->sums.sum[r] : 0.0f;
    if (row == NULL)
        return;
    if (maps->head_stats != NULL) { /* keys that the row could reach; none where all are -inf */
        size_t s = 0;
        while (s < p->keys && row[s] == -INFINITY)
            s++;
        if (s < p->keys)
            attn_mask_reachable(u->reachable, &p->mask, t);
        else
            memset(u->reachable, 0, p->keys);
    }
    u->kernels->finish_weights(row, u->sums.sum[r] > 0 ? u->sums.max[r] : 0.0f, share,
                               maps->columns);
    if (maps->head_stats != NULL) {
        attn_maps_measure_row(maps, h, t, row, u->reachable, p->mask.offset + (int64_t)t,
                              p->first_key);
        attn_maps_measure_groups(maps, h, t, row, u->pool, u->thread);
    }
    if (p->head_mask != NULL)
        u->kernels->scale_rows(row, maps->columns, &gate, 1, maps->columns);
    attn_maps_add_row(maps, h, t, row,
                      u->average != NULL ? u->average + (t - u->t0) * maps->columns : NULL, u->pool,
                      u->thread);
}

static void write_results(struct attn_unit *u)
{
    const struct attn_problem *p = u->p;
    for (size_t r = 0; r < u->rows; r++) {
        size_t t = attn_unit_token(u, r), h = attn_unit_head(u, r);
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
        if (attn_unit_makes_weights(u))
            finish_weight_row(u, r, gate);
    }
}

/* ---- Units ---- */

static void begin_unit(struct attn_unit *u)
{
    const struct attn_mask *mask = &u->p->mask;
    u->first_span = attn_mask_visible(mask, u->t0);
    u->last_span = attn_mask_visible(mask, u->t0 + u->tokens - 1);
    u->split = u->first_span.first / ATTN_TILE / ATTN_SPLIT_TILES;
    u->has_total = false;
    attn_sums_clear(u->sums, u->rows, u->p->value_head_dim);
}

/* Computes tile by tile for all of the units, in turn. */
static void solve_tiles(struct attn_unit units[], size_t count, struct tile_range range)
{
    struct attn_latent_tile latent = {.index = SIZE_MAX};
    const bool columns = by_columns(units);
    struct tile_range all = {SIZE_MAX, 0}; /* those that are computed for one of the units */
    for (size_t i = 0; i < count; i++) {
        const struct tile_range own = computed_tiles(&units[i], range);
        all.first = attn_min(all.first, own.first);
        all.end = attn_max(all.end, own.end);
        units[i].latent = attn_is_latent(units->p) ? &latent : NULL;
        store_forgotten_scores(&units[i]);
        columns ? attn_unit_load_queries_by_columns(&units[i])
                : attn_unit_load_queries_by_rows(&units[i], tiles_dtype(&units[i]));
    }
    for (size_t j = all.first; j < all.end; j++)
        for (size_t i = 0; i < count; i++) {
            const struct tile_range own = computed_tiles(&units[i], range);
            if (j >= own.first && j < own.end)
                solve_tile(&units[i], j, columns, &units[(i + 1) % count], j + (i + 1) / count);
        }
    for (size_t i = 0; i < count; i++)
        end_tiles(&units[i], range, columns);
}

void attn_units_solve(struct attn_unit units[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        begin_unit(&units[i]);
    solve_tiles(units, count, (struct tile_range){0, SIZE_MAX});
    for (size_t i = 0; i < count; i++) {
        if (units[i].has_total) { /* sums become those of all splits */
            merge_split(&units[i], units[i].sums);
            swap_sums(&units[i]);
        }
        write_results(&units[i]);
    }
}

void attn_unit_solve_split(struct attn_unit *u, size_t split, float *sums)
{
    u->sums = attn_sums_in(sums, ATTN_TILE, u->p->value_head_dim);
    begin_unit(u);
    u->split = split;
    solve_tiles(u, 1,
                (struct tile_range){split * ATTN_SPLIT_TILES, (split + 1) * ATTN_SPLIT_TILES});
}

/* The sums of a split of which the unit sees no key leave the total as it is. */
void attn_unit_merge(struct attn_unit *u, float *sums)
{
    begin_unit(u);
    for (size_t i = 0; i < attn_splits(u->p); i++) {
        const size_t dv = u->p->value_head_dim;
        merge_split(u, attn_sums_in(sums + i * attn_split_floats(u->p), ATTN_TILE, dv));
    }
    swap_sums(u);
    write_results(u);
}
