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
 * Where units are fewer than threads, the keys of one are shared out in stretches
 * (attention_unit.h).
 *
 * Memory beyond the results: scratch per thread, at most ATTN_SPLITS_FLOATS of splits, tiles of as
 * many key/value heads at a time as fit ATTN_PACK_BYTES, at least one, and ATTN_WEIGHT_ROWS_FLOATS
 * per thread, or one row, where weights are looked at. */
#include "attention.h"

#include <string.h>

#include "attention_unit.h"
#include "mem.h"

#define TASKS_PER_THREAD 8
#define UNITS_PER_THREAD 2 /* where there are fewer, threads share the keys of one */

/* Heads side by side: so many at most, and a task of them is no more than this part of each
 * thread's share of the work that is left, lest one thread end long after the others. */
#define MOST_BESIDE 16
#define PART_OF_LEFT 2
#define TILE_ROWS 8 /* that meet a tile while one comes from memory */

enum tasks { PACKS, UNITS, MERGES };

/* Consecutive key/value heads of one problem.  One; or all of them where the mean over heads is
 * wanted, one after the other, so that its additions happen in one order on one thread; or some,
 * side by side, where a unit has all rows of its head: the tiles of one block of a cache then are
 * one stream from memory. */
struct item {
    const struct attn_problem *problem;
    size_t first, groups;
    size_t units; /* tiles of rows */
    size_t tasks; /* of `together` units each, but for the last */
    size_t together;
    size_t stretches; /* of keys, a task each; 0: not shared out */
    float *parts;     /* [units][stretches][attn_split_floats] */
    float *tiles;     /* keys then values of each group, or NULL: the cache's */
    size_t end[3]; /* by enum tasks: how many of this wave there are up to and with this item's */
};

_Static_assert(sizeof(struct item) <= ATTN_ITEM_BYTES, "what is added up is what is taken");

struct solve {
    struct attn_engine *engine;
    float *scratch, *kept; /* [threads][ATTN_SCRATCH_FLOATS], [threads][kept_stride]: weights */
    size_t kept_stride;
    struct item *items;
    size_t first, last; /* the items of this wave */
};

/* Rows of a unit, at most ATTN_TILE: fewer where rows of weights are kept and are long. */
static size_t unit_rows(const struct attn_problem *p)
{
    if (!attn_maps_need_rows(&p->maps))
        return ATTN_TILE;
    return attn_min(attn_max(ATTN_WEIGHT_ROWS_FLOATS / p->maps.columns, 1), ATTN_TILE);
}

/* They are `tokens` query tokens times `heads` heads. */
static size_t unit_heads(const struct attn_problem *p)
{
    return attn_min(attn_heads_per_group(p), unit_rows(p));
}

static size_t unit_tokens(const struct attn_problem *p)
{
    return attn_min(unit_rows(p) / unit_heads(p), p->queries);
}

/* Whether heads may stand side by side: each is one unit, and keeps nothing. */
static bool stands_beside(const struct attn_problem *p)
{
    return p->cache.blocks != NULL && !attn_maps_need_rows(&p->maps) &&
           p->queries * attn_heads_per_group(p) <= ATTN_TILE;
}

/* Floats that a thread needs to keep rows of weights, and a byte per key beside them. */
static size_t kept_floats(const struct attn_problem *p)
{
    size_t columns = p->maps.columns;
    return attn_maps_need_rows(&p->maps) ? unit_rows(p) * columns + columns / sizeof(float) + 1 : 0;
}

/* ---- Tiles of keys and values ---- */

/* Floats of the tiles of one group of a problem that brings rows. */
static size_t group_floats(const struct attn_problem *p)
{
    return attn_key_tiles(p) * ATTN_TILE * (p->head_dim + p->value_head_dim);
}

/* Where a task of the item finds the tiles of one of its groups. */
static struct attn_head_tiles head_tiles(const struct item *item, size_t group)
{
    struct attn_head_tiles head = {.problem = item->problem, .group = group};
    if (item->tiles != NULL)
        head.tiles = item->tiles + (group - item->first) * group_floats(item->problem);
    return head;
}

/* Makes tile j of one group from the problem's rows; keys of unused slots become zero. */
static void pack_tile(const struct attn_kernels *kernels, const struct item *item, size_t group,
                      size_t j)
{
    const struct attn_problem *p = item->problem;
    const struct attn_head_tiles head = head_tiles(item, group);
    const size_t d = p->head_dim, dv = p->value_head_dim, count = attn_head_tile_tokens(&head, j);
    struct attn_tile tile;
    const float *rows[ATTN_TILE];
    const float *value = p->v.data + j * ATTN_TILE * p->v.token + group * p->v.head;
    attn_head_tile(&tile, &head, j);
    for (size_t s = 0; s < count; s++)
        rows[s] = p->k.data + (j * ATTN_TILE + s) * p->k.token + group * p->k.head;
    if (count < ATTN_TILE)
        memset(tile.k, 0, d * ATTN_TILE * sizeof(float));
    kernels->transpose(tile.k, ATTN_TILE, rows, count, d, 1);
    for (size_t s = 0; s < count; s++)
        (void)attn_tile_put_value(&tile, s, value + s * p->v.token, dv);
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
    const struct solve *solve = argument;
    const struct item *item = find_item(&i, solve, PACKS);
    size_t per_group = attn_key_tiles(item->problem);
    (void)thread;
    pack_tile(&solve->engine->kernels, item, item->first + i / per_group, i % per_group);
}

/* Rows that there is scratch for in a unit: no more than it may have, unless it goes by columns. */
static size_t slot_rows(const struct attn_problem *p, const struct attn_kernels *kernels)
{
    const size_t rows = unit_tokens(p) * unit_heads(p);
    return rows < kernels->min_column_rows ? rows : ATTN_TILE;
}

/* Floats of that, ATTN_UNIT_SCRATCH at most: units begin at cache lines. */
static size_t slot_floats(const struct attn_problem *p, const struct attn_kernels *kernels)
{
    const size_t line = ATTN_ALIGN / sizeof(float);
    return attn_ceil_div(attn_unit_scratch_floats(p, slot_rows(p, kernels)), line) * line;
}

/* Describes unit i of an item, with the scratch at `slot` of the thread's. */
static struct attn_unit unit_of(const struct solve *solve, const struct item *item, size_t i,
                                unsigned thread, size_t slot)
{
    const struct attn_problem *p = item->problem;
    struct attn_unit u = {
        .kernels = &solve->engine->kernels, .pool = solve->engine->pool, .thread = thread, .p = p};
    float *scratch = solve->scratch + thread * ATTN_SCRATCH_FLOATS;
    attn_unit_layout(&u, scratch + slot * slot_floats(p, u.kernels), slot_rows(p, u.kernels));
    u.t0 = i * unit_tokens(p);
    u.tokens = attn_min(unit_tokens(p), p->queries - u.t0);
    if (attn_maps_need_rows(&p->maps)) {
        u.kept = solve->kept + thread * solve->kept_stride;
        u.reachable = (uint8_t *)(u.kept + unit_rows(p) * p->maps.columns);
    }
    return u;
}

/* Gives units the heads of a group from h0 on, as many as they hold. */
static void aim_units(struct attn_unit units[], size_t count, struct attn_head_tiles keys,
                      size_t h0)
{
    const struct attn_problem *p = keys.problem;
    size_t heads = attn_min(unit_heads(p), (keys.group + 1) * attn_heads_per_group(p) - h0);
    for (size_t i = 0; i < count; i++) {
        units[i].keys = keys;
        units[i].h0 = h0;
        units[i].heads = heads;
        units[i].rows = units[i].tokens * heads;
    }
}

/* The only task of an item whose heads stand side by side: a unit of each. */
static void solve_beside(const struct solve *solve, const struct item *item, unsigned thread)
{
    const size_t heads = attn_heads_per_group(item->problem);
    struct attn_unit units[MOST_BESIDE];
    for (size_t g = 0; g < item->groups; g++) {
        units[g] = unit_of(solve, item, 0, thread, g);
        aim_units(&units[g], 1, head_tiles(item, item->first + g), (item->first + g) * heads);
    }
    attn_units_solve(units, item->groups);
}

/* Task i of an item: some units, through all heads of the item's groups. */
static void solve_units(const struct solve *solve, const struct item *item, size_t i,
                        unsigned thread)
{
    const struct attn_problem *p = item->problem;
    struct attn_unit units[ATTN_TASK_UNITS];
    size_t first = i * item->together, count = attn_min(item->units - first, item->together);
    for (size_t n = 0; n < count; n++)
        units[n] = unit_of(solve, item, first + n, thread, n);
    for (size_t g = item->first; g < item->first + item->groups; g++) {
        const struct attn_head_tiles keys = head_tiles(item, g);
        for (size_t h = 0; h < attn_heads_per_group(p); h += unit_heads(p)) {
            aim_units(units, count, keys, g * attn_heads_per_group(p) + h);
            attn_units_solve(units, count);
        }
    }
}

/* Unit i of an item whose keys are shared out, and the sums of its first stretch. */
static struct attn_unit shared_unit(float **sums, const struct solve *solve,
                                    const struct item *item, size_t i, unsigned thread)
{
    struct attn_unit u = unit_of(solve, item, i, thread, 0);
    aim_units(&u, 1, head_tiles(item, item->first),
              item->first * attn_heads_per_group(item->problem));
    *sums = item->parts + i * item->stretches * attn_split_floats(item->problem);
    return u;
}

static void solve_task(void *argument, size_t i, unsigned thread)
{
    const struct solve *solve = argument;
    const struct item *item = find_item(&i, solve, UNITS);
    if (item->stretches > 0) {
        size_t stretch = i % item->stretches;
        float *sums;
        struct attn_unit u = shared_unit(&sums, solve, item, i / item->stretches, thread);
        attn_unit_solve_split(&u, stretch, sums + stretch * attn_split_floats(item->problem));
        return;
    }
    if (stands_beside(item->problem))
        solve_beside(solve, item, thread);
    else /* the last see most keys: longest first */
        solve_units(solve, item, item->tasks - 1 - i, thread);
}

static void merge_task(void *argument, size_t i, unsigned thread)
{
    const struct solve *solve = argument;
    const struct item *item = find_item(&i, solve, MERGES);
    float *sums;
    struct attn_unit u = shared_unit(&sums, solve, item, i, thread);
    attn_unit_merge(&u, sums);
}

/* ---- Maps ---- */

struct maps_context {
    const struct attn_problem *problem;
    struct attn_pool *pool;
};

static void begin_task(void *argument, size_t i, unsigned thread)
{
    const struct maps_context *context = argument;
    (void)thread;
    attn_maps_begin_task(&context->problem->maps, i);
}

static void end_task(void *argument, size_t i, unsigned thread)
{
    const struct maps_context *context = argument;
    const struct attn_problem *p = context->problem;
    attn_maps_end_task(&p->maps, i, p->mask.offset, context->pool, thread);
}

static void begin_maps(const struct attn_engine *engine, const struct attn_problem *problem)
{
    struct maps_context context = {problem, engine->pool};
    attn_pool_run(engine->pool, begin_task, &context, attn_maps_begin_tasks(&problem->maps));
}

static void end_maps(const struct attn_engine *engine, const struct attn_problem *problem)
{
    struct maps_context context = {problem, engine->pool};
    attn_pool_run(engine->pool, end_task, &context, attn_maps_end_tasks(&problem->maps));
}

/* ---- All of it ---- */

static size_t item_units(const struct attn_problem *p)
{
    return attn_ceil_div(p->queries, unit_tokens(p));
}

/* What a problem costs, in rows that meet a tile. */
static size_t work_of(const struct attn_problem *p)
{
    const struct attn_span first = attn_mask_visible(&p->mask, 0);
    const struct attn_span last = attn_mask_visible(&p->mask, p->queries - 1);
    const size_t end = attn_max(attn_ceil_div(last.end, ATTN_TILE), first.first / ATTN_TILE + 1);
    return (end - first.first / ATTN_TILE) *
           (TILE_ROWS * item_units(p) * p->num_kv_heads + p->queries * p->num_heads);
}

/* Of a problem that costs `work`, where so much is left, its own included. */
static size_t item_groups(const struct attn_problem *p, const struct solve *solve, size_t work,
                          size_t left)
{
    const size_t share = left / (PART_OF_LEFT * attn_pool_threads(solve->engine->pool));
    size_t groups = 1;
    if (p->maps.average != NULL)
        return p->num_kv_heads;
    if (stands_beside(p)) {
        const size_t fit = ATTN_SCRATCH_FLOATS / slot_floats(p, &solve->engine->kernels);
        groups = attn_min(share / (work / p->num_kv_heads), attn_min(fit, MOST_BESIDE));
        groups = attn_max(attn_min(groups, p->num_kv_heads), 1);
    }
    while (p->num_kv_heads % groups != 0)
        groups--;
    return groups;
}

/* Lists the items, at most one for each key/value head of each problem. */
static size_t list_items(struct solve *solve, const struct attn_problem *problems, size_t count)
{
    size_t n = 0, left = 0;
    for (size_t i = 0; i < count; i++)
        left += work_of(&problems[i]);
    for (size_t i = 0; i < count; i++) {
        const struct attn_problem *p = &problems[i];
        const size_t work = work_of(p), groups = item_groups(p, solve, work, left);
        for (size_t g = 0; g < p->num_kv_heads; g += groups)
            solve->items[n++] =
                (struct item){.problem = p, .first = g, .groups = groups, .units = item_units(p)};
        left -= work;
    }
    return n;
}

/* Where long keys are all that threads could share, they do: whether problems have that few units,
 * and no maps, for which a row is kept whole. */
static bool shares_keys(const struct attn_problem *p, size_t units, unsigned threads)
{
    const struct attn_maps *maps = &p->maps;
    return threads > 1 && units < UNITS_PER_THREAD * threads && attn_splits(p) > 1 &&
           !attn_maps_need_rows(maps) && maps->weights == NULL && maps->scores == NULL &&
           attn_heads_per_group(p) <= ATTN_TILE;
}

static size_t item_parts(const struct item *item)
{
    return item->units * attn_splits(item->problem) * attn_split_floats(item->problem);
}

/* Gives items whose keys are shared out memory for that, while there is some. */
static bool share_keys(struct solve *solve, size_t count)
{
    const unsigned threads = attn_pool_threads(solve->engine->pool);
    size_t units = 0, left = ATTN_SPLITS_FLOATS;
    for (size_t i = 0; i < count; i++)
        units += solve->items[i].units;
    for (size_t i = 0; i < count; i++) {
        struct item *item = &solve->items[i];
        if (item->groups > 1 || !shares_keys(item->problem, units, threads) ||
            item_parts(item) > left)
            continue;
        left -= item_parts(item);
        item->stretches = attn_splits(item->problem);
        item->parts =
            attn_workspace_take(&solve->engine->workspace, item_parts(item), sizeof(float));
        if (item->parts == NULL)
            return false;
    }
    return true;
}

/* Items whose keys come as rows need memory for tiles: how many floats. */
static size_t item_floats(const struct item *item)
{
    const struct attn_problem *p = item->problem;
    return p->cache.blocks != NULL || p->keys == 0 ? 0 : item->groups * group_floats(p);
}

/* Puts units together into tasks, as many as leave every thread a number of tasks: the more there
 * are in one, the seldomer keys come from far.  Units that keep rows of weights stay alone. */
static void make_tasks(struct item *item, size_t units, unsigned threads)
{
    size_t most = attn_maps_need_rows(&item->problem->maps) ? 1 : ATTN_TASK_UNITS;
    item->together = attn_max(attn_min(units / (TASKS_PER_THREAD * threads), most), 1);
    item->tasks = item->stretches > 0 ? item->units * item->stretches
                                      : attn_ceil_div(item->units, item->together);
}

/* Solves as many of the items [solve->first, count) as fit ATTN_PACK_BYTES, and at least one. */
static void solve_wave(struct solve *solve, size_t count, float *tiles)
{
    size_t used = 0, packs = 0, units = 0, tasks = 0, merges = 0, n = solve->first;
    for (; n < count; n++) {
        struct item *item = &solve->items[n];
        size_t floats = item_floats(item);
        if (used > 0 && used + floats > ATTN_PACK_BYTES / sizeof(float))
            break;
        item->tiles = floats > 0 ? tiles + used : NULL;
        item->end[PACKS] = packs += floats > 0 ? item->groups * attn_key_tiles(item->problem) : 0;
        units += item->units;
        used += floats;
    }
    solve->last = n;
    for (size_t i = solve->first; i < n; i++) {
        make_tasks(&solve->items[i], units, attn_pool_threads(solve->engine->pool));
        solve->items[i].end[UNITS] = tasks += solve->items[i].tasks;
        solve->items[i].end[MERGES] = merges +=
            solve->items[i].stretches > 0 ? solve->items[i].units : 0;
    }
    attn_pool_run(solve->engine->pool, pack_task, solve, packs);
    attn_pool_run(solve->engine->pool, solve_task, solve, tasks);
    attn_pool_run(solve->engine->pool, merge_task, solve, merges);
    solve->first = n;
}

/* Lists the items and takes from the workspace what the whole solution needs. */
static bool take_memory(struct solve *solve, float **tiles, size_t *items,
                        const struct attn_problem *problems, size_t count)
{
    struct attn_workspace *workspace = &solve->engine->workspace;
    size_t heads = 0, largest = 0, total = 0;
    for (size_t i = 0; i < count; i++) {
        heads += problems[i].num_kv_heads;
        solve->kept_stride = attn_max(solve->kept_stride, kept_floats(&problems[i]));
    }
    solve->items = attn_workspace_take(workspace, heads, sizeof *solve->items);
    if (solve->items == NULL)
        return false;
    *items = list_items(solve, problems, count);
    for (size_t i = 0; i < *items; i++) {
        largest = attn_max(largest, item_floats(&solve->items[i]));
        total += item_floats(&solve->items[i]);
    }
    size_t pack = attn_min(total, attn_max(largest, ATTN_PACK_BYTES / sizeof(float)));
    *tiles = attn_workspace_take(workspace, pack, sizeof(float));
    solve->kept = attn_workspace_take(workspace, attn_pool_threads(solve->engine->pool),
                                      attn_mul(solve->kept_stride, sizeof(float)));
    return *tiles != NULL && solve->kept != NULL;
}

enum attn_status attn_solve(struct attn_engine *engine, const struct attn_problem *problems,
                            size_t count)
{
    struct solve solve = {.engine = engine, .scratch = engine->scratch};
    size_t items;
    float *tiles;
    if (!take_memory(&solve, &tiles, &items, problems, count))
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        begin_maps(engine, &problems[i]);
    if (!share_keys(&solve, items))
        return ATTN_NO_MEMORY;
    while (solve.first < items)
        solve_wave(&solve, items, tiles);
    for (size_t i = 0; i < count && !attn_engine_cancelled(engine, NULL); i++)
        end_maps(engine, &problems[i]);
    return ATTN_OK;
}
