/* maps.c: what becomes of each finished row of weights: a place in a map, a share of the mean or of
 * a pooled map, its largest, its statistics. */
#include "engine/maps.h"

#include <string.h>

#include "basics/mem.h"
#include "kernels/largest.h"

/* Weights, or sums, of one task.  Ranking takes some 0.1 us for each. */
#define ZERO_WEIGHTS ((size_t)1 << 18)
#define ZERO_SUMS ((size_t)1 << 15) /* in memory that the task may be the first to touch */
#define POOL_WEIGHTS ((size_t)1 << 12)
#define RANK_WEIGHTS ((size_t)1 << 12)

/* Keys of a row, and rows of a head, that are added to groups between two pauses. */
#define GROUP_KEYS ((size_t)1 << 14)
#define GROUP_ROWS ((size_t)1 << 12)

/* ---- What is wanted ---- */

struct attn_maps attn_maps_of_sequence(const struct attn_maps *maps, size_t b)
{
    struct attn_maps at = *maps;
    size_t rows = maps->heads * maps->rows;
    size_t top = (maps->average ? maps->rows : rows) * maps->top_k;
    at.weights = maps->weights ? maps->weights + b * rows * maps->columns : NULL;
    at.average = maps->average ? maps->average + b * maps->rows * maps->columns : NULL;
    at.scores = maps->scores ? maps->scores + b * rows * maps->keys : NULL;
    at.sequence = b;
    at.top_index = maps->top_index ? maps->top_index + b * top : NULL;
    at.top_weight = maps->top_weight ? maps->top_weight + b * top : NULL;
    if (maps->head_stats != NULL) {
        const size_t rows_of_heads = maps->num_heads * maps->queries, n = maps->num_target_groups;
        at.row_stats = maps->row_stats + b * rows_of_heads;
        at.head_stats = maps->head_stats + b * maps->num_heads;
        at.targets = maps->targets ? maps->targets + b * maps->queries : NULL;
        at.group_shares = n > 0 ? maps->group_shares + b * rows_of_heads * n : NULL;
        at.group_stats = n > 0 ? maps->group_stats + b * maps->num_heads * n : NULL;
    }
    return at;
}

/* The pooled maps of this kind; NULL: none are wanted. */
static const struct attn_pooling *pooling(const struct attn_maps *maps, enum attn_pooled kind)
{
    return maps->pooled != NULL && maps->pooled[kind].out != NULL ? &maps->pooled[kind] : NULL;
}

bool attn_maps_need_rows(const struct attn_maps *maps)
{
    return attn_maps_need_average(maps) || pooling(maps, ATTN_POOLED_WEIGHTS) != NULL ||
           maps->top_index != NULL || maps->head_stats != NULL;
}

bool attn_maps_need_scores(const struct attn_maps *maps)
{
    return maps->scores != NULL || pooling(maps, ATTN_POOLED_SCORES) != NULL;
}

bool attn_maps_need_average(const struct attn_maps *maps)
{
    return maps->average != NULL || attn_maps_pool_average(maps);
}

bool attn_maps_pool_average(const struct attn_maps *maps)
{
    return pooling(maps, ATTN_POOLED_AVERAGE) != NULL;
}

static bool any_selected(const uint32_t *indices, size_t first, size_t count)
{
    for (size_t i = first; indices != NULL && i < first + count; i++)
        if (indices[i] != ATTN_MAPS_NONE)
            return true;
    return indices == NULL;
}

bool attn_maps_any(const struct attn_maps *maps, size_t head, size_t heads, size_t token,
                   size_t tokens)
{
    if (maps->head_stats != NULL)
        return true;
    return (attn_maps_need_rows(maps) || maps->weights != NULL || attn_maps_need_scores(maps)) &&
           any_selected(maps->head_index, head, heads) &&
           any_selected(maps->row_index, token, tokens);
}

/* ---- Selected rows ---- */

static size_t selected(const uint32_t *indices, size_t i)
{
    return indices == NULL ? i : indices[i];
}

/* The index of a row among the selected rows of all heads; ATTN_MAPS_NONE: not selected. */
static size_t selected_index(const struct attn_maps *maps, size_t h, size_t t)
{
    size_t head = selected(maps->head_index, h), row = selected(maps->row_index, t);
    bool none = head == ATTN_MAPS_NONE || row == ATTN_MAPS_NONE;
    return none ? ATTN_MAPS_NONE : head * maps->rows + row;
}

float *attn_maps_weights(const struct attn_maps *maps, size_t h, size_t t)
{
    size_t at = maps->weights ? selected_index(maps, h, t) : ATTN_MAPS_NONE;
    return at != ATTN_MAPS_NONE ? maps->weights + at * maps->columns : NULL;
}

/* Adds n cells of the row of head h, query t, both selected, to pooled maps. */
static void pool_row(const struct attn_maps *maps, enum attn_pooled kind, size_t h, size_t t,
                     size_t first, const float *cells, size_t n)
{
    const struct attn_pooling *p = &maps->pooled[kind];
    const size_t head = kind == ATTN_POOLED_AVERAGE ? 0 : selected(maps->head_index, h);
    const struct attn_pooling_row row = {.token = t, .index = selected(maps->row_index, t)};
    attn_pooling_add(p, maps->sequence * p->maps + head, row, first, cells, n);
}

void attn_maps_store_scores(const struct attn_maps *maps, size_t h, size_t t, size_t first,
                            const float *scores, size_t n)
{
    size_t at = selected_index(maps, h, t);
    if (at == ATTN_MAPS_NONE)
        return;
    if (maps->scores != NULL)
        memcpy(maps->scores + at * maps->keys + first, scores, n * sizeof(float));
    else
        pool_row(maps, ATTN_POOLED_SCORES, h, t, first, scores, n);
}

/* ---- Rows ---- */

/* Rows of a task of so many weights, at least one. */
static size_t task_rows(const struct attn_maps *maps, size_t numbers)
{
    return attn_max(numbers / attn_max(maps->columns, 1), 1);
}

/* The context of all tasks of a run. */
struct maps_run {
    const struct attn_maps *maps;
    struct attn_pool *pool;
    int64_t query; /* key position of query 0 */
};

/* Tasks that clear a part: part 0 is the mean, each further one a kind of pooled maps. */
static size_t clear_tasks(const struct attn_maps *maps, size_t part)
{
    if (part == 0)
        return maps->average != NULL ? attn_ceil_div(maps->rows, task_rows(maps, ZERO_WEIGHTS)) : 0;
    const struct attn_pooling *p = pooling(maps, part - 1);
    return p != NULL ? attn_ceil_div(attn_pooling_doubles(p), ZERO_SUMS) : 0;
}

static void clear_task(void *argument, size_t i, unsigned thread)
{
    const struct maps_run *run = argument;
    const struct attn_maps *maps = run->maps;
    size_t part = 0;
    (void)thread;
    for (; i >= clear_tasks(maps, part); part++)
        i -= clear_tasks(maps, part);
    if (part == 0) {
        const size_t rows = task_rows(maps, ZERO_WEIGHTS), first = i * rows;
        memset(maps->average + first * maps->columns, 0,
               attn_min(rows, maps->rows - first) * maps->columns * sizeof(float));
        return;
    }
    const struct attn_pooling *p = &maps->pooled[part - 1];
    const size_t doubles = attn_pooling_doubles(p), first = i * ZERO_SUMS;
    attn_pooling_clear(p, maps->sequence * doubles + first, attn_min(doubles - first, ZERO_SUMS));
}

void attn_maps_clear(const struct attn_maps *maps, struct attn_pool *pool)
{
    struct maps_run run = {.maps = maps};
    size_t tasks = 0;
    for (size_t part = 0; part <= ATTN_POOLED_MAPS; part++)
        tasks += clear_tasks(maps, part);
    attn_pool_run(pool, clear_task, &run, tasks);
}

void attn_maps_measure_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                           const uint8_t *reachable, int64_t query, size_t first)
{
    const size_t at = h * maps->queries + t;
    attn_stats_row(&maps->row_stats[at], weights, reachable, maps->keys, query, first,
                   maps->local_radius);
    if (maps->targets != NULL && maps->targets[t] >= 0)
        maps->row_stats[at].target = weights[maps->targets[t]];
}

void attn_maps_measure_groups(const struct attn_maps *maps, size_t h, size_t t,
                              const float *weights, struct attn_pool *pool, unsigned thread)
{
    const size_t n = maps->num_target_groups;
    double sums[ATTN_MAX_TARGET_GROUPS] = {0};
    for (size_t first = 0; n > 0 && first < maps->keys; first += GROUP_KEYS) {
        attn_pool_pause(pool, thread);
        attn_stats_add_keys(sums, weights + first, maps->target_groups + first,
                            attn_min(maps->keys - first, GROUP_KEYS));
    }
    for (size_t g = 0; g < n; g++)
        maps->group_shares[(h * maps->queries + t) * n + g] = (float)sums[g];
}

static void pick_largest(const struct attn_maps *maps, size_t at, const float *weights,
                         struct attn_pool *pool, unsigned thread)
{
    attn_largest(maps->top_index + at * maps->top_k, maps->top_weight + at * maps->top_k,
                 maps->top_k, weights, maps->columns, pool, thread);
}

void attn_maps_add_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                       float *average, struct attn_pool *pool, unsigned thread)
{
    size_t at = selected_index(maps, h, t);
    if (at == ATTN_MAPS_NONE)
        return;
    if (pooling(maps, ATTN_POOLED_WEIGHTS) != NULL)
        pool_row(maps, ATTN_POOLED_WEIGHTS, h, t, 0, weights, maps->columns);
    if (maps->average != NULL)
        average = maps->average + selected(maps->row_index, t) * maps->columns;
    if (average != NULL) {
        float share = 1.0f / (float)maps->heads;
        for (size_t s = 0; s < maps->columns; s++)
            average[s] += share * weights[s];
    } else if (maps->top_index != NULL) {
        pick_largest(maps, at, weights, pool, thread);
    }
}

void attn_maps_add_average(const struct attn_maps *maps, size_t t, const float *average)
{
    if (selected(maps->row_index, t) != ATTN_MAPS_NONE)
        pool_row(maps, ATTN_POOLED_AVERAGE, 0, t, 0, average, maps->columns);
}

/* ---- Reducing ---- */

/* Reduces the groups of a head, whose statistics are reduced already. */
static void reduce_groups(const struct attn_maps *maps, size_t h, struct attn_pool *pool,
                          unsigned thread)
{
    const size_t n = maps->num_target_groups, seeing = maps->head_stats[h].rows;
    struct attn_group_stats *out = maps->group_stats + h * n;
    memset(out, 0, n * sizeof *out);
    for (size_t t = 0; t < maps->queries; t += GROUP_ROWS) {
        const size_t at = h * maps->queries + t;
        attn_pool_pause(pool, thread);
        attn_stats_add_rows(out, maps->row_stats + at, maps->group_shares + at * n,
                            attn_min(maps->queries - t, GROUP_ROWS), maps->target_groups, n);
    }
    for (size_t g = 0; g < n && seeing > 0; g++) {
        out[g].share /= (double)seeing;
        out[g].hits /= (double)seeing;
    }
}

static void reduce_head(const struct attn_maps *maps, size_t h, int64_t query,
                        struct attn_pool *pool, unsigned thread)
{
    const struct attn_row_stats *rows = maps->row_stats + h * maps->queries;
    attn_stats_reduce(&maps->head_stats[h], rows, maps->queries, query);
    if (maps->targets != NULL) {
        attn_pool_pause(pool, thread);
        attn_stats_reduce_targets(&maps->head_stats[h], rows, maps->queries, maps->targets);
    }
    if (maps->num_target_groups > 0)
        reduce_groups(maps, h, pool, thread);
}

/* Rows of bins that a task reduces. */
static size_t pooled_task_rows(const struct attn_pooling *p)
{
    return attn_max(POOL_WEIGHTS / p->column_bins, 1);
}

/* The parts that are reduced: the largest of the mean's rows, statistics of heads, and each kind of
 * pooled maps. */
enum { RANKS, STATS, POOLED, REDUCED = POOLED + ATTN_POOLED_MAPS };

static size_t reduce_tasks(const struct attn_maps *maps, size_t part)
{
    const bool ranked = maps->average != NULL && maps->top_index != NULL;
    if (part == RANKS)
        return ranked ? attn_ceil_div(maps->rows, task_rows(maps, RANK_WEIGHTS)) : 0;
    if (part == STATS)
        return maps->head_stats != NULL ? maps->num_heads : 0;
    const struct attn_pooling *p = pooling(maps, part - POOLED);
    return p != NULL ? attn_ceil_div(p->maps * p->row_bins, pooled_task_rows(p)) : 0;
}

static void reduce_task(void *argument, size_t i, unsigned thread)
{
    const struct maps_run *run = argument;
    const struct attn_maps *maps = run->maps;
    size_t part = 0;
    for (; i >= reduce_tasks(maps, part); part++)
        i -= reduce_tasks(maps, part);
    if (part == STATS) {
        reduce_head(maps, i, run->query, run->pool, thread);
    } else if (part == RANKS) {
        const size_t rows = task_rows(maps, RANK_WEIGHTS);
        for (size_t r = i * rows; r < attn_min((i + 1) * rows, maps->rows); r++)
            pick_largest(maps, r, maps->average + r * maps->columns, run->pool, thread);
    } else {
        const struct attn_pooling *p = &maps->pooled[part - POOLED];
        const size_t rows = pooled_task_rows(p), end = p->maps * p->row_bins;
        const size_t first = maps->sequence * p->maps;
        for (size_t r = i * rows; r < attn_min((i + 1) * rows, end); r++)
            attn_pooling_reduce(p, first + r / p->row_bins, r % p->row_bins, run->pool, thread);
    }
}

void attn_maps_reduce(const struct attn_maps *maps, int64_t query, struct attn_pool *pool)
{
    struct maps_run run = {maps, pool, query};
    size_t tasks = 0;
    for (size_t part = 0; part < REDUCED; part++)
        tasks += reduce_tasks(maps, part);
    attn_pool_run(pool, reduce_task, &run, tasks);
}
