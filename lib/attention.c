/* attention.c: attention as a running softmax over tiles (Milakov and Gimelshein 2018, Dao et al.
 * 2022).
 *
 * The rows of one key/value head are its queries: T tokens times the H/G query heads of its group,
 * so that a tile of keys is read once for all of them.  A unit of work takes up to ATTN_TILE rows
 * and walks the keys in tiles that begin at multiples of ATTN_TILE, from the first that any of its
 * rows may see, keeping for each row the largest score, the sum of exponentials and the weighted
 * sum of values.  Since kernels treat rows independently and tile bounds are constants, a row's
 * bits do not depend on its neighbours.
 *
 * Memory beyond the results: scratch per thread, tiles of as many key/value heads at a time as fit
 * PACK_BYTES, at least one, and KEPT_FLOATS per thread, or one row, where weights are looked at. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "mem.h"

#define PACK_BYTES ((size_t)8 << 20)
#define KEPT_FLOATS ((size_t)2 << 20) /* of the rows of weights that a thread keeps at a time */

enum tasks { PACKS, UNITS };

/* Consecutive key/value heads of one problem that a unit works through: one, or all of them where
 * the mean over heads is wanted, so that its additions happen in one order on one thread. */
struct item {
    const struct attn_problem *problem;
    size_t first, groups;
    size_t units;  /* tiles of rows */
    float *tiles;  /* keys then values of each group, or NULL: the cache's */
    size_t end[2]; /* by enum tasks: how many of this wave there are up to and with this item's */
};

struct solve {
    struct attn_engine *engine;
    struct item *items;
    size_t first, last; /* the items of this wave */
};

static size_t heads_per_group(const struct attn_problem *p)
{
    return p->num_heads / p->num_kv_heads;
}

/* Rows of a unit, at most ATTN_TILE: fewer where rows of weights are kept and are long. */
static size_t unit_rows(const struct attn_problem *p)
{
    if (!attn_maps_keeps(&p->maps))
        return ATTN_TILE;
    return attn_min(attn_max(KEPT_FLOATS / p->maps.columns, 1), ATTN_TILE);
}

/* They are `tokens` query tokens times `heads` heads. */
static size_t unit_heads(const struct attn_problem *p)
{
    return attn_min(heads_per_group(p), unit_rows(p));
}

static size_t unit_tokens(const struct attn_problem *p)
{
    return attn_min(unit_rows(p) / unit_heads(p), p->queries);
}

/* Floats that a thread needs to keep rows of weights, and a byte per key beside them. */
static size_t kept_floats(const struct attn_problem *p)
{
    size_t columns = p->maps.columns;
    return attn_maps_keeps(&p->maps) ? unit_rows(p) * columns + columns / sizeof(float) + 1 : 0;
}

static size_t key_tiles(const struct attn_problem *p) { return attn_ceil_div(p->keys, ATTN_TILE); }

/* ---- Tiles of keys and values ---- */

/* Floats of the tiles of one group of a problem that brings rows. */
static size_t group_floats(const struct attn_problem *p)
{
    return key_tiles(p) * ATTN_TILE * (p->head_dim + p->value_head_dim);
}

struct tile {
    const float *k, *v; /* see tile.h */
    size_t count;       /* tokens in it */
};

static struct tile find_tile(const struct item *item, size_t group, size_t j)
{
    const struct attn_problem *p = item->problem;
    size_t d = p->head_dim, dv = p->value_head_dim;
    struct tile tile = {.count = attn_min(p->keys - j * ATTN_TILE, ATTN_TILE)};
    if (item->tiles == NULL) {
        const float *block = p->cache.blocks[j]->data;
        tile.k = block + group * d * ATTN_TILE;
        tile.v = block + p->cache.values + group * dv * ATTN_TILE;
    } else {
        const float *tiles = item->tiles + (group - item->first) * group_floats(p);
        tile.k = tiles + j * d * ATTN_TILE;
        tile.v = tiles + key_tiles(p) * d * ATTN_TILE + j * dv * ATTN_TILE;
    }
    return tile;
}

/* Makes tile j of one group from the problem's rows; keys of unused slots become zero. */
static void pack_tile(const struct item *item, size_t group, size_t j)
{
    const struct attn_problem *p = item->problem;
    struct tile tile = find_tile(item, group, j);
    size_t d = p->head_dim, dv = p->value_head_dim;
    float *k = (float *)tile.k, *v = (float *)tile.v; /* the item's own memory */
    const float *key = p->k.data + j * ATTN_TILE * p->k.token + group * p->k.head;
    const float *value = p->v.data + j * ATTN_TILE * p->v.token + group * p->v.head;
    if (tile.count < ATTN_TILE)
        memset(k, 0, d * ATTN_TILE * sizeof *k);
    for (size_t s = 0; s < tile.count; s++)
        attn_tile_put(k, v, s, key + s * p->k.token, value + s * p->v.token, d, dv);
}

/* The item of this wave that task i belongs to, by bisection over running totals; *i becomes the
 * task's index within the item. */
static const struct item *find_item(size_t *i, const struct solve *solve, enum tasks kind)
{
    size_t low = solve->first, high = solve->last - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (solve->items[middle].end[kind] > *i)
            high = middle;
        else
            low = middle + 1;
    }
    if (low > solve->first)
        *i -= solve->items[low - 1].end[kind];
    return &solve->items[low];
}

static void pack_task(void *argument, size_t i, unsigned thread)
{
    const struct item *item = find_item(&i, argument, PACKS);
    size_t per_group = key_tiles(item->problem);
    (void)thread;
    pack_tile(item, item->first + i / per_group, i % per_group);
}

/* ---- One unit ---- */

struct unit {
    const struct attn_kernels *kernels;
    const struct attn_problem *p;
    size_t t0, tokens, h0, heads, rows; /* rows = tokens * heads; row r: token t0 + r / heads,
                                           head h0 + r % heads */
    float *q;                           /* [rows][D] scaled */
    float *scores;                      /* [rows][ATTN_TILE] */
    float *out;                         /* [rows][Dv] */
    float *max, *sum, *rescale;         /* [rows] */
    float *kept;                        /* [rows][W] where rows of weights are looked at */
    uint8_t *reachable;                 /* [S] of one row, beside it */
};

static size_t row_token(const struct unit *u, size_t r) { return u->t0 + r / u->heads; }
static size_t row_head(const struct unit *u, size_t r) { return u->h0 + r % u->heads; }

/* Where row r of the weights is kept while it is made; NULL where nobody asks for it. */
static float *kept_row(const struct unit *u, size_t r)
{
    float *row = attn_maps_weights(&u->p->maps, row_head(u, r), row_token(u, r));
    return row != NULL || u->kept == NULL ? row : u->kept + r * u->p->maps.columns;
}

static void lay_out(struct unit *u, float *scratch)
{
    u->q = scratch;
    u->out = u->q + ATTN_TILE * ATTN_MAX_HEAD_DIM;
    u->scores = u->out + ATTN_TILE * ATTN_MAX_HEAD_DIM;
    u->max = u->scores + ATTN_TILE * ATTN_TILE;
    u->sum = u->max + ATTN_TILE;
    u->rescale = u->sum + ATTN_TILE;
}

static void begin(struct unit *u)
{
    const struct attn_problem *p = u->p;
    for (size_t r = 0; r < u->rows; r++) {
        const float *q = p->q.data + row_token(u, r) * p->q.token + row_head(u, r) * p->q.head;
        for (size_t i = 0; i < p->head_dim; i++)
            u->q[r * p->head_dim + i] = q[i] * p->scale;
        u->max[r] = -INFINITY;
        u->sum[r] = 0;
    }
    memset(u->out, 0, u->rows * p->value_head_dim * sizeof *u->out);
}

/* Gemma 2's soft-capping: scores stay within +-c and keep their order. */
static void cap(float *scores, size_t rows, size_t n, float c)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            scores[r * ATTN_TILE + j] = c * tanhf(scores[r * ATTN_TILE + j] / c);
}

/* Copies the tile's scores out if it is at this stage that they are wanted. */
static void show_scores(const struct unit *u, enum attn_stage stage, size_t first, size_t n)
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
static void keep_scores(const struct unit *u, size_t first, size_t n)
{
    if (u->p->maps.weights == NULL && u->kept == NULL)
        return;
    for (size_t r = 0; r < u->rows; r++) {
        float *row = kept_row(u, r);
        if (row != NULL)
            memcpy(row + first, u->scores + r * ATTN_TILE, n * sizeof(float));
    }
}

/* One tile: scores, cap, mask, running softmax, weighted sum.  `first` is the tile's first key; the
 * extra tile is not masked. */
static void absorb(struct unit *u, struct tile tile, size_t first, bool masked)
{
    const struct attn_problem *p = u->p;
    const struct attn_kernels *kernels = u->kernels;
    size_t n = tile.count, dv = p->value_head_dim;
    kernels->matmul(&(struct attn_matmul){.c = u->scores,
                                          .ldc = ATTN_TILE,
                                          .a = u->q,
                                          .lda = p->head_dim,
                                          .b = tile.k,
                                          .ldb = ATTN_TILE,
                                          .rows = u->rows,
                                          .k = p->head_dim,
                                          .n = n});
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
    kernels->softmax(u->scores, ATTN_TILE, u->max, u->sum, u->rescale, u->rows, n);
    kernels->scale_rows(u->out, dv, u->rescale, u->rows, dv);
    for (size_t j = 0; j < dv; j += ATTN_TILE_PANEL)
        kernels->matmul(&(struct attn_matmul){.c = u->out + j,
                                              .ldc = dv,
                                              .a = u->scores,
                                              .lda = ATTN_TILE,
                                              .b = tile.v + j * ATTN_TILE,
                                              .ldb = attn_tile_width(dv, j),
                                              .rows = u->rows,
                                              .k = n,
                                              .n = attn_tile_width(dv, j),
                                              .accumulate = true});
}

/* Scores of keys that no row of the unit may see are not computed; where they are kept they are
 * -inf. */
static void keep_unseen(const struct unit *u, size_t first, size_t end)
{
    for (size_t r = 0; r < u->rows; r++) {
        float *row = kept_row(u, r);
        for (size_t s = first; row != NULL && s < end; s++)
            row[s] = -INFINITY;
    }
}

static void absorb_extra(struct unit *u, size_t group)
{
    const struct attn_problem *p = u->p;
    struct tile tile = {p->extra_k + group * p->head_dim * ATTN_TILE,
                        p->extra_v + group * p->value_head_dim * ATTN_TILE, p->extra};
    absorb(u, tile, p->keys, false);
}

static void walk_keys(struct unit *u, const struct item *item, size_t group)
{
    const struct attn_problem *p = u->p;
    struct attn_span head = attn_mask_visible(&p->mask, u->t0);
    struct attn_span tail = attn_mask_visible(&p->mask, u->t0 + u->tokens - 1);
    bool plain = attn_mask_is_plain(&p->mask);
    bool all = p->maps.scores != NULL; /* scores are shown of keys unseen too */
    size_t begin = all ? 0 : head.first / ATTN_TILE, j = begin;
    size_t stop = all ? p->keys : tail.end;
    for (; j * ATTN_TILE < stop; j++) {
        struct tile tile = find_tile(item, group, j);
        size_t first = j * ATTN_TILE, end = first + tile.count;
        absorb(u, tile, first, !plain || first < tail.first || end > head.end);
    }
    if (p->maps.weights != NULL || u->kept != NULL) {
        keep_unseen(u, 0, attn_min(begin * ATTN_TILE, p->keys));
        keep_unseen(u, attn_min(j * ATTN_TILE, p->keys), p->keys);
    }
    if (p->extra > 0)
        absorb_extra(u, group);
}

static void store_row(float *out, const float *sum, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = sum[i] * factor;
}

/* The sink takes its share of the softmax and brings no value; a row that sees nothing has none. */
static void add_sink(struct unit *u, size_t r, float sink)
{
    size_t dv = u->p->value_head_dim;
    if (!(u->sum[r] > 0))
        return;
    float max = fmaxf(u->max[r], sink), shrink = expf(u->max[r] - max);
    u->sum[r] = u->sum[r] * shrink + expf(sink - max);
    u->max[r] = max;
    u->kernels->scale_rows(u->out + r * dv, dv, &shrink, 1, dv);
}

/* Marks the keys that row r could reach; none where its scores say that it sees none. */
static void mark_reachable(const struct unit *u, size_t r, const float *scores)
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
static void finish_weights(struct unit *u, size_t r, float gate)
{
    const struct attn_problem *p = u->p;
    const struct attn_maps *maps = &p->maps;
    size_t t = row_token(u, r), h = row_head(u, r);
    float *row = kept_row(u, r), share = u->sum[r] > 0 ? 1.0f / u->sum[r] : 0.0f;
    if (row == NULL)
        return;
    if (maps->head_stats != NULL)
        mark_reachable(u, r, row);
    u->kernels->normalize(row, u->sum[r] > 0 ? u->max[r] : 0.0f, share, maps->columns);
    if (maps->head_stats != NULL)
        attn_maps_measure(maps, h, t, row, u->reachable, p->mask.offset + (int64_t)t, p->first_key);
    if (p->head_mask != NULL)
        u->kernels->scale_rows(row, maps->columns, &gate, 1, maps->columns);
    attn_maps_take(maps, h, t, row);
}

static void finish(struct unit *u)
{
    const struct attn_problem *p = u->p;
    for (size_t r = 0; r < u->rows; r++) {
        size_t t = row_token(u, r), h = row_head(u, r);
        float gate = p->head_mask ? p->head_mask[h] : 1.0f;
        if (p->sinks != NULL)
            add_sink(u, r, p->sinks[h]);
        if (p->out.data != NULL)
            store_row(p->out.data + t * p->out.token + h * p->out.head,
                      u->out + r * p->value_head_dim, u->sum[r] > 0 ? gate / u->sum[r] : 0.0f,
                      p->value_head_dim);
        if (p->lse != NULL)
            p->lse[h * p->queries + t] = u->max[r] + logf(u->sum[r]);
        finish_weights(u, r, gate);
    }
}

static void solve_rows(struct unit *u, const struct item *item, size_t group)
{
    begin(u);
    walk_keys(u, item, group);
    finish(u);
}

/* Unit i of an item: a tile of query tokens, through all heads of the item's groups. */
static void solve_unit(const struct solve *solve, const struct item *item, size_t i,
                       unsigned thread)
{
    const struct attn_problem *p = item->problem;
    struct unit u = {.kernels = &solve->engine->kernels, .p = p};
    lay_out(&u, solve->engine->scratch + thread * ATTN_SCRATCH_FLOATS);
    u.t0 = i * unit_tokens(p);
    u.tokens = attn_min(unit_tokens(p), p->queries - u.t0);
    if (attn_maps_keeps(&p->maps)) {
        u.kept = solve->engine->kept + thread * solve->engine->kept_stride;
        u.reachable = (uint8_t *)(u.kept + unit_rows(p) * p->maps.columns);
    }
    size_t per_group = heads_per_group(p);
    for (size_t g = item->first; g < item->first + item->groups; g++)
        for (size_t h = 0; h < per_group; h += unit_heads(p)) {
            u.h0 = g * per_group + h;
            u.heads = attn_min(unit_heads(p), per_group - h);
            u.rows = u.tokens * u.heads;
            solve_rows(&u, item, g);
        }
}

static void solve_task(void *argument, size_t i, unsigned thread)
{
    const struct solve *solve = argument;
    const struct item *item = find_item(&i, solve, UNITS);
    solve_unit(solve, item, item->units - 1 - i,
               thread); /* the last see most keys: longest first */
}

/* ---- All of it ---- */

static size_t item_groups(const struct attn_problem *p)
{
    return p->maps.average != NULL ? p->num_kv_heads : 1;
}

static size_t list_items(struct item *items, const struct attn_problem *problems, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct attn_problem *p = &problems[i];
        for (size_t g = 0; g < p->num_kv_heads; g += item_groups(p))
            items[n++] = (struct item){.problem = p,
                                       .first = g,
                                       .groups = item_groups(p),
                                       .units = attn_ceil_div(p->queries, unit_tokens(p))};
    }
    return n;
}

/* Items whose keys come as rows need memory for tiles: how many floats. */
static size_t item_floats(const struct item *item)
{
    const struct attn_problem *p = item->problem;
    return p->cache.blocks != NULL || p->keys == 0 ? 0 : item->groups * group_floats(p);
}

/* Solves as many of the items [solve->first, count) as fit PACK_BYTES, and at least one. */
static void solve_wave(struct solve *solve, size_t count, float *tiles)
{
    size_t used = 0, packs = 0, units = 0, n = solve->first;
    for (; n < count; n++) {
        struct item *item = &solve->items[n];
        size_t floats = item_floats(item);
        if (used > 0 && used + floats > PACK_BYTES / sizeof(float))
            break;
        item->tiles = floats > 0 ? tiles + used : NULL;
        item->end[PACKS] = packs += floats > 0 ? item->groups * key_tiles(item->problem) : 0;
        item->end[UNITS] = units += item->units;
        used += floats;
    }
    solve->last = n;
    attn_pool_run(solve->engine->pool, pack_task, solve, packs);
    attn_pool_run(solve->engine->pool, solve_task, solve, units);
    solve->first = n;
}

/* Takes from the workspace what the whole solution needs. */
static bool take_memory(struct solve *solve, float **tiles, const struct attn_problem *problems,
                        size_t count)
{
    struct attn_workspace *workspace = &solve->engine->workspace;
    size_t items = 0, largest = 0, total = 0, widest = 0;
    for (size_t i = 0; i < count; i++) {
        const struct attn_problem *p = &problems[i];
        struct item item = {.problem = p, .groups = item_groups(p)};
        items += p->num_kv_heads / item_groups(p);
        largest = attn_max(largest, item_floats(&item));
        total += item_floats(&item) * (p->num_kv_heads / item_groups(p));
        widest = attn_max(widest, kept_floats(p));
    }
    size_t pack = attn_min(total, attn_max(largest, PACK_BYTES / sizeof(float)));
    *tiles = attn_workspace_take(workspace, pack, sizeof(float));
    solve->items = attn_workspace_take(workspace, items, sizeof *solve->items);
    solve->engine->kept_stride = widest;
    solve->engine->kept = attn_workspace_take(workspace, attn_pool_threads(solve->engine->pool),
                                              attn_mul(solve->engine->kept_stride, sizeof(float)));
    return *tiles != NULL && solve->items != NULL && solve->engine->kept != NULL;
}

enum attn_status attn_solve(struct attn_engine *engine, const struct attn_problem *problems,
                            size_t count)
{
    struct solve solve = {.engine = engine};
    float *tiles;
    if (!take_memory(&solve, &tiles, problems, count))
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        attn_maps_begin(&problems[i].maps);
    size_t items = list_items(solve.items, problems, count);
    while (solve.first < items)
        solve_wave(&solve, items, tiles);
    for (size_t i = 0; i < count; i++)
        attn_maps_end(&problems[i].maps, problems[i].mask.offset);
    return ATTN_OK;
}
