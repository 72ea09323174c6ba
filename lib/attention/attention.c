/* attention.c: problems divided into units of work for the pool's threads (online softmax over
 * tiles: Milakov and Gimelshein 2018, Dao et al. 2022).
 *
 * Problem -> ranges -> tasks -> units:
 *   problem   one sequence: T query tokens by H heads over S keys with G key/value heads
 *   range     one or several key/value heads of a problem
 *   task      what one thread computes at a time: some units of a range, or one split of a unit
 *   unit      up to ATTN_TILE rows of one key/value head (unit.c computes it)
 *
 * The rows of one key/value head are T tokens times the H/G query heads of its group, so a tile of
 * keys is read once for all of them.  Kernels treat rows independently and tiles begin at multiples
 * of ATTN_TILE, so a row's bits do not depend on the other rows of its unit.
 *
 * Where units are too few for the threads, the keys of a unit are divided into splits
 * (unit.h): a task for each sums it up, another task merges the sums.
 *
 * Rows of keys and values are first filled into tiles; those of a cache are tiles already.  Ranges
 * are solved in waves: as many at a time, at least one, as their filled tiles fit
 * ATTN_TILES_BYTES.  Memory beyond the results: scratch per thread, the tiles of a wave, at most
 * ATTN_SPLITS_FLOATS for splits, and where weights are asked for ATTN_WEIGHT_ROWS_FLOATS, or one
 * row, per thread. */
#include "attention/attention.h"

#include <string.h>

#include "attention/unit.h"
#include "basics/mem.h"

/* Tasks of a wave for each thread, at least, if it has as many units: threads then end at about the
 * same time. */
#define TASKS_PER_THREAD 8

/* Units for each thread below which the keys of units are split. */
#define UNITS_PER_THREAD 2

/* Heads that a range interleaves, at most. */
#define MAX_INTERLEAVED 16

/* Ranges of interleaved heads in a thread's share of the work that is left, at least.  A larger one
 * would let one thread end long after the others. */
#define RANGES_PER_SHARE 2

/* Rows that are computed over a tile in the time that the tile takes from memory. */
#define TILE_COST_ROWS 8

enum task_kind { FILL, SOLVE, MERGE, TASK_KINDS };

/* Consecutive key/value heads of one problem:
 *   - one head, in the ordinary case;
 *   - all heads, one after the other, where the mean over heads is wanted, whose additions then
 *     happen in one order on one thread;
 *   - some heads of a cache, interleaved tile by tile, where a unit has all rows of its head: the
 *     tiles of these heads follow one another in a block of the cache, one stream from memory. */
struct head_range {
    const struct attn_problem *problem;
    size_t first_kv_head, num_kv_heads;
    size_t units; /* of each key/value head */
    size_t tasks; /* SOLVE tasks: one for each split of each unit; without splits of
                     units_per_task units each but for the last */
    size_t units_per_task;
    size_t splits;               /* of the keys, a task each; 0: the keys are not split */
    float *split_sums;           /* [units][splits][attn_split_floats] */
    float *tiles;                /* filled: keys, then values, of each head; NULL: the cache's */
    size_t task_end[TASK_KINDS]; /* running totals: tasks of this wave up to its end */
};

_Static_assert(sizeof(struct head_range) <= ATTN_HEAD_RANGE_BYTES,
               "calls/footprint.c counts ATTN_HEAD_RANGE_BYTES");

struct solver {
    struct attn_engine *engine;
    float *scratch;            /* [threads][ATTN_SCRATCH_FLOATS] */
    float *weight_rows;        /* [threads][weight_rows_stride]: rows of weights being made */
    size_t weight_rows_stride; /* floats */
    struct head_range *ranges;
    size_t first, end; /* ranges [first, end) are this wave */
};

/* A unit's rows are unit_tokens query tokens times unit_heads heads. */
static size_t unit_heads(const struct attn_problem *p) { return p->maps.unit_heads; }
static size_t unit_tokens(const struct attn_problem *p) { return p->maps.unit_tokens; }
static size_t unit_rows(const struct attn_problem *p) { return unit_heads(p) * unit_tokens(p); }

/* Whether heads may be interleaved: each is one unit, which keeps no rows of weights. */
static bool interleaves(const struct attn_problem *p)
{
    return p->cache.blocks != NULL && !attn_maps_need_rows(&p->maps) &&
           p->queries * attn_heads_per_group(p) <= ATTN_TILE;
}

/* Floats that a thread needs for a unit's rows of weights, for the mean of its tokens, and then for
 * one byte per key. */
static size_t weight_rows_floats(const struct attn_problem *p)
{
    size_t columns = p->maps.columns, rows = unit_rows(p);
    rows += attn_maps_pool_average(&p->maps) ? unit_tokens(p) : 0;
    return attn_maps_need_rows(&p->maps) ? rows * columns + columns / sizeof(float) + 1 : 0;
}

/* ---- Tiles of keys and values ---- */

/* The tiles of one key/value head of a range: filled, or the cache's. */
static struct attn_head_tiles head_tiles(const struct head_range *range, size_t group)
{
    struct attn_head_tiles head = {.problem = range->problem, .group = group};
    if (range->tiles != NULL)
        head.tiles =
            range->tiles + (group - range->first_kv_head) * attn_head_tiles_floats(range->problem);
    return head;
}

/* The range of this wave that task *i of a kind belongs to, by bisection over the running totals;
 * *i becomes the task's index within the range. */
static const struct head_range *find_range(size_t *i, const struct solver *solver,
                                           enum task_kind kind)
{
    size_t low = solver->first, high = solver->end - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (solver->ranges[middle].task_end[kind] > *i)
            high = middle;
        else
            low = middle + 1;
    }
    if (low > solver->first)
        *i -= solver->ranges[low - 1].task_end[kind];
    return &solver->ranges[low];
}

static void fill_task(void *argument, size_t i, unsigned thread)
{
    const struct solver *solver = argument;
    const struct head_range *range = find_range(&i, solver, FILL);
    const size_t per_head = attn_key_tiles(range->problem);
    const struct attn_head_tiles head = head_tiles(range, range->first_kv_head + i / per_head);
    (void)thread;
    attn_fill_tile(&solver->engine->kernels, &head, i % per_head);
}

/* Rows that a unit's scratch is laid out for: as many as the unit may have, or ATTN_TILE where it
 * may go by columns. */
static size_t scratch_rows(const struct attn_problem *p, const struct attn_kernels *kernels)
{
    return unit_rows(p) < kernels->columns_from_rows ? unit_rows(p) : ATTN_TILE;
}

/* Floats of a unit's scratch, whole cache lines, ATTN_UNIT_SCRATCH at most. */
static size_t scratch_floats(const struct attn_problem *p, const struct attn_kernels *kernels)
{
    const size_t line = ATTN_ALIGN / sizeof(float);
    return attn_ceil_div(attn_unit_scratch_floats(p, scratch_rows(p, kernels)), line) * line;
}

/* Units whose scratch a thread has, beside a tile of latents. */
static size_t fitting_units(const struct attn_problem *p, const struct attn_kernels *kernels)
{
    return (ATTN_SCRATCH_FLOATS - attn_latent_floats(p)) / scratch_floats(p, kernels);
}

/* Unit i of a range, without its heads, with scratch number `slot` of the thread. */
static struct attn_unit unit_of(const struct solver *solver, const struct head_range *range,
                                size_t i, unsigned thread, size_t slot)
{
    const struct attn_problem *p = range->problem;
    const struct attn_engine *engine = solver->engine;
    struct attn_unit u = {
        .kernels = &engine->kernels, .pool = engine->pool, .thread = thread, .p = p};
    if (engine->gemm_attends && !p->invariant)
        u.gemm = &engine->gemm;
    float *scratch = solver->scratch + thread * ATTN_SCRATCH_FLOATS;
    attn_unit_layout(&u, scratch + slot * scratch_floats(p, u.kernels), scratch_rows(p, u.kernels));
    u.latent_floats = scratch + ATTN_SCRATCH_FLOATS - attn_latent_floats(p);
    u.t0 = i * unit_tokens(p);
    u.tokens = attn_min(unit_tokens(p), p->queries - u.t0);
    if (attn_maps_need_rows(&p->maps)) {
        u.weight_rows = solver->weight_rows + thread * solver->weight_rows_stride;
        if (attn_maps_pool_average(&p->maps))
            u.average = u.weight_rows + unit_rows(p) * p->maps.columns;
        u.reachable = (uint8_t *)(u.weight_rows + weight_rows_floats(p)) - p->maps.columns;
    }
    return u;
}

/* Gives units the query heads of a key/value head from h0 on, as many as a unit holds. */
static void set_unit_heads(struct attn_unit units[], size_t count, struct attn_head_tiles kv,
                           size_t h0)
{
    const struct attn_problem *p = kv.problem;
    size_t heads = attn_min(unit_heads(p), (kv.group + 1) * attn_heads_per_group(p) - h0);
    for (size_t i = 0; i < count; i++) {
        units[i].kv = kv;
        units[i].h0 = h0;
        units[i].heads = heads;
        units[i].rows = units[i].tokens * heads;
    }
}

/* The only task of a range whose heads are interleaved: one unit of each head. */
static void solve_interleaved(const struct solver *solver, const struct head_range *range,
                              unsigned thread)
{
    const size_t heads = attn_heads_per_group(range->problem);
    struct attn_unit units[MAX_INTERLEAVED];
    for (size_t g = 0; g < range->num_kv_heads; g++) {
        units[g] = unit_of(solver, range, 0, thread, g);
        set_unit_heads(&units[g], 1, head_tiles(range, range->first_kv_head + g),
                       (range->first_kv_head + g) * heads);
    }
    attn_units_solve(units, range->num_kv_heads);
}

/* Whether anything is asked of these query heads and tokens. */
static bool has_results(const struct attn_problem *p, size_t head, size_t heads, size_t token,
                        size_t tokens)
{
    return p->out.data != NULL || p->lse != NULL ||
           attn_maps_any(&p->maps, head, heads, token, tokens);
}

/* Task i of a range: some units, for one head of the range after the other.  Units and heads that
 * nothing is asked of are left out. */
static void solve_units(const struct solver *solver, const struct head_range *range, size_t i,
                        unsigned thread)
{
    const struct attn_problem *p = range->problem;
    struct attn_unit units[ATTN_TASK_UNITS];
    const size_t first = i * range->units_per_task;
    const size_t end = attn_min(range->units, first + range->units_per_task);
    size_t count = 0;
    for (size_t n = first; n < end; n++) {
        units[count] = unit_of(solver, range, n, thread, count);
        if (has_results(p, 0, p->num_heads, units[count].t0, units[count].tokens))
            count++;
    }
    if (count == 0)
        return;
    if (units->average != NULL)
        memset(units->average, 0, units->tokens * p->maps.columns * sizeof(float));
    for (size_t g = range->first_kv_head; g < range->first_kv_head + range->num_kv_heads; g++) {
        const struct attn_head_tiles kv = head_tiles(range, g);
        for (size_t h = 0; h < attn_heads_per_group(p); h += unit_heads(p)) {
            set_unit_heads(units, count, kv, g * attn_heads_per_group(p) + h);
            if (has_results(p, units->h0, units->heads, 0, p->queries))
                attn_units_solve(units, count);
        }
    }
    for (size_t t = 0; units->average != NULL && t < units->tokens; t++) { /* of all heads */
        attn_pool_pause(units->pool, thread);
        attn_maps_add_average(&p->maps, units->t0 + t, units->average + t * p->maps.columns);
    }
}

/* Unit i of a range whose keys are split; *sums becomes the sums of its first split. */
static struct attn_unit split_unit(float **sums, const struct solver *solver,
                                   const struct head_range *range, size_t i, unsigned thread)
{
    struct attn_unit u = unit_of(solver, range, i, thread, 0);
    set_unit_heads(&u, 1, head_tiles(range, range->first_kv_head),
                   range->first_kv_head * attn_heads_per_group(range->problem));
    *sums = range->split_sums + i * range->splits * attn_split_floats(range->problem);
    return u;
}

static void solve_task(void *argument, size_t i, unsigned thread)
{
    const struct solver *solver = argument;
    const struct head_range *range = find_range(&i, solver, SOLVE);
    if (range->splits > 0) {
        size_t split = i % range->splits;
        float *sums;
        struct attn_unit u = split_unit(&sums, solver, range, i / range->splits, thread);
        attn_unit_solve_split(&u, split, sums + split * attn_split_floats(range->problem));
        return;
    }
    if (interleaves(range->problem))
        solve_interleaved(solver, range, thread);
    else /* longest tasks first: under a causal mask the last rows see most keys */
        solve_units(solver, range, range->tasks - 1 - i, thread);
}

static void merge_task(void *argument, size_t i, unsigned thread)
{
    const struct solver *solver = argument;
    const struct head_range *range = find_range(&i, solver, MERGE);
    float *sums;
    struct attn_unit u = split_unit(&sums, solver, range, i, thread);
    attn_unit_merge(&u, sums);
}

/* ---- Ranges ---- */

static size_t units_of(const struct attn_problem *p)
{
    return attn_ceil_div(p->queries, unit_tokens(p));
}

/* The cost of a problem, in rows times tiles. */
static size_t cost_of(const struct attn_problem *p)
{
    const struct attn_span first = attn_mask_visible(&p->mask, 0);
    const struct attn_span last = attn_mask_visible(&p->mask, p->queries - 1);
    const size_t end = attn_max(attn_ceil_div(last.end, ATTN_TILE), first.first / ATTN_TILE + 1);
    return (end - first.first / ATTN_TILE) *
           (TILE_COST_ROWS * units_of(p) * p->num_kv_heads + p->queries * p->num_heads);
}

/* Key/value heads of each range of a problem that costs `cost`, where `left` is the cost of all
 * problems from this one on. */
static size_t range_kv_heads(const struct attn_problem *p, const struct solver *solver, size_t cost,
                             size_t left)
{
    const size_t share = left / (RANGES_PER_SHARE * attn_pool_threads(solver->engine->pool));
    size_t heads = 1;
    if (attn_maps_need_average(&p->maps))
        return p->num_kv_heads;
    if (interleaves(p)) {
        const size_t fit = fitting_units(p, &solver->engine->kernels);
        heads = attn_min(share / (cost / p->num_kv_heads), attn_min(fit, MAX_INTERLEAVED));
        heads = attn_max(attn_min(heads, p->num_kv_heads), 1);
    }
    while (p->num_kv_heads % heads != 0)
        heads--;
    return heads;
}

/* Lists the ranges of problems whose heads are asked for something, at most one for each key/value
 * head. */
static size_t list_ranges(struct solver *solver, const struct attn_problem *problems, size_t count)
{
    size_t n = 0, left = 0;
    for (size_t i = 0; i < count; i++)
        left += cost_of(&problems[i]);
    for (size_t i = 0; i < count; i++) {
        const struct attn_problem *p = &problems[i];
        const size_t cost = cost_of(p), heads = range_kv_heads(p, solver, cost, left);
        const size_t per_group = attn_heads_per_group(p);
        for (size_t g = 0; g < p->num_kv_heads; g += heads)
            if (has_results(p, g * per_group, heads * per_group, 0, p->queries))
                solver->ranges[n++] = (struct head_range){
                    .problem = p, .first_kv_head = g, .num_kv_heads = heads, .units = units_of(p)};
        left -= cost;
    }
    return n;
}

/* Floats of the sums of all splits of a range. */
static size_t split_sums_floats(const struct head_range *range)
{
    return range->units * attn_splits(range->problem) * attn_split_floats(range->problem);
}

/* Splits keys and allocates memory for the sums, up to ATTN_SPLITS_FLOATS in all, where all
 * problems together have too few units for the threads: of ranges of one head with more keys than
 * one split and without maps, which need whole rows.  False where the workspace is short of
 * memory. */
static bool allocate_splits(struct solver *solver, size_t count)
{
    const unsigned threads = attn_pool_threads(solver->engine->pool);
    size_t units = 0, left = ATTN_SPLITS_FLOATS;
    for (size_t i = 0; i < count; i++)
        units += solver->ranges[i].units;
    for (size_t i = 0; i < count && threads > 1 && units < UNITS_PER_THREAD * threads; i++) {
        struct head_range *range = &solver->ranges[i];
        const struct attn_problem *p = range->problem;
        if (range->num_kv_heads > 1 || attn_splits(p) <= 1 || attn_heads_per_group(p) > ATTN_TILE ||
            attn_maps_any(&p->maps, 0, p->num_heads, 0, p->queries) ||
            split_sums_floats(range) > left)
            continue;
        left -= split_sums_floats(range);
        range->splits = attn_splits(range->problem);
        range->split_sums = attn_workspace_alloc(&solver->engine->workspace,
                                                 split_sums_floats(range), sizeof(float));
        if (range->split_sums == NULL)
            return false;
    }
    return true;
}

/* Floats of a range's filled tiles; 0 where the tiles are a cache's. */
static size_t range_tile_floats(const struct head_range *range)
{
    const struct attn_problem *p = range->problem;
    return p->cache.blocks != NULL || p->keys == 0
               ? 0
               : range->num_kv_heads * attn_head_tiles_floats(p);
}

/* Decides how many units a task has.  A task of more units takes tiles from memory less often, but
 * every thread needs TASKS_PER_THREAD tasks, scratch holds fewer units of wide heads, and a unit
 * that keeps rows of weights is a task by itself.  `units` are those of the wave. */
static void make_tasks(struct head_range *range, size_t units, const struct attn_engine *engine)
{
    const struct attn_problem *p = range->problem;
    const unsigned threads = attn_pool_threads(engine->pool);
    size_t most = attn_min(fitting_units(p, &engine->kernels),
                           attn_maps_need_rows(&p->maps) ? 1 : ATTN_TASK_UNITS);
    range->units_per_task = attn_max(attn_min(units / (TASKS_PER_THREAD * threads), most), 1);
    range->tasks = range->splits > 0 ? range->units * range->splits
                                     : attn_ceil_div(range->units, range->units_per_task);
}

/* ---- Solving ---- */

/* Solves one wave: as many of the ranges [solver->first, count) as fit ATTN_TILES_BYTES, and at
 * least one. */
static void solve_wave(struct solver *solver, size_t count, float *tiles)
{
    struct attn_pool *pool = solver->engine->pool;
    size_t used = 0, fills = 0, units = 0, tasks = 0, merges = 0, n = solver->first;
    for (; n < count; n++) {
        struct head_range *range = &solver->ranges[n];
        size_t floats = range_tile_floats(range);
        if (used > 0 && used + floats > ATTN_TILES_BYTES / sizeof(float))
            break;
        range->tiles = floats > 0 ? tiles + used : NULL;
        if (floats > 0)
            fills += range->num_kv_heads * attn_key_tiles(range->problem);
        range->task_end[FILL] = fills;
        units += range->units;
        used += floats;
    }
    solver->end = n;
    for (size_t i = solver->first; i < n; i++) {
        struct head_range *range = &solver->ranges[i];
        make_tasks(range, units, solver->engine);
        range->task_end[SOLVE] = tasks += range->tasks;
        range->task_end[MERGE] = merges += range->splits > 0 ? range->units : 0;
    }
    attn_pool_run(pool, fill_task, solver, fills);
    attn_pool_run(pool, solve_task, solver, tasks);
    attn_pool_run(pool, merge_task, solver, merges);
    solver->first = n;
}

/* Lists the ranges and takes from the workspace what they need, but for sums of splits. */
static bool alloc_memory(struct solver *solver, float **tiles, size_t *ranges,
                         const struct attn_problem *problems, size_t count)
{
    struct attn_workspace *workspace = &solver->engine->workspace;
    size_t heads = 0, stride = 0, largest = 0, total = 0;
    for (size_t i = 0; i < count; i++) {
        heads += problems[i].num_kv_heads;
        stride = attn_max(stride, weight_rows_floats(&problems[i]));
    }
    solver->weight_rows_stride = stride;
    solver->ranges = attn_workspace_alloc(workspace, heads, sizeof *solver->ranges);
    if (solver->ranges == NULL)
        return false;
    *ranges = list_ranges(solver, problems, count);
    for (size_t i = 0; i < *ranges; i++) {
        largest = attn_max(largest, range_tile_floats(&solver->ranges[i]));
        total += range_tile_floats(&solver->ranges[i]);
    }
    size_t wave = attn_min(total, attn_max(largest, ATTN_TILES_BYTES / sizeof(float)));
    *tiles = attn_workspace_alloc(workspace, wave, sizeof(float));
    solver->weight_rows = attn_workspace_alloc(workspace, attn_pool_threads(solver->engine->pool),
                                               attn_mul(stride, sizeof(float)));
    return *tiles != NULL && solver->weight_rows != NULL;
}

enum attn_status attn_solve(struct attn_engine *engine, const struct attn_problem *problems,
                            size_t count)
{
    struct solver solver = {.engine = engine, .scratch = engine->scratch};
    size_t ranges;
    float *tiles;
    if (!alloc_memory(&solver, &tiles, &ranges, problems, count))
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        attn_maps_clear(&problems[i].maps, engine->pool);
    if (!allocate_splits(&solver, ranges))
        return ATTN_NO_MEMORY;
    while (solver.first < ranges)
        solve_wave(&solver, ranges, tiles);
    for (size_t i = 0; i < count && !attn_engine_cancelled(engine, NULL); i++)
        attn_maps_reduce(&problems[i].maps, problems[i].mask.offset, engine->pool);
    return ATTN_OK;
}
