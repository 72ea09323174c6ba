/* maps.c: selection of heads and rows, and what becomes of each finished row of weights: a place in
 * a map, a share of the mean or of a pooled map, its largest, its statistics. */
#include "maps.h"

#include <string.h>

#include "largest.h"
#include "mem.h"
#include "status.h"
#include "tile.h"

/* Weights, or sums, of one task.  Ranking takes some 0.1 us for each. */
#define ZERO_WEIGHTS ((size_t)1 << 18)
#define POOL_WEIGHTS ((size_t)1 << 12)
#define RANK_WEIGHTS ((size_t)1 << 12)

/* ---- Selecting ---- */

/* Makes *out [limit] the inverse of a list: (*out)[list[i]] = i, all others ATTN_MAPS_NONE. */
static enum attn_status invert_list(const uint32_t **out, struct attn_workspace *workspace,
                                    const size_t *list, size_t count, size_t limit,
                                    const char *param, struct attn_error *error)
{
    uint32_t *slots = attn_workspace_take(workspace, limit, sizeof *slots);
    if (slots == NULL)
        return attn_fail_memory(error, limit * sizeof *slots);
    if (count == 0)
        return attn_fail(error, ATTN_INVALID, param, "%s is empty", param);
    for (size_t i = 0; i < limit; i++)
        slots[i] = ATTN_MAPS_NONE;
    for (size_t i = 0; i < count; i++) {
        if (list[i] >= limit)
            return attn_fail(error, ATTN_OUT_OF_RANGE, param, "%s has %zu, there are 0 to %zu",
                             param, list[i], limit - 1);
        if (slots[list[i]] != ATTN_MAPS_NONE)
            return attn_fail(error, ATTN_INVALID, param, "%s has %zu twice", param, list[i]);
        slots[list[i]] = (uint32_t)i;
    }
    *out = slots;
    return ATTN_OK;
}

static enum attn_status select_parts(struct attn_maps *maps, struct attn_workspace *workspace,
                                     const struct attn_selection *selection,
                                     struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    if (selection->heads != NULL)
        status = invert_list(&maps->head_slot, workspace, selection->heads, selection->num_heads,
                             maps->num_heads, "heads", error);
    if (status == ATTN_OK && selection->rows != NULL)
        status = invert_list(&maps->row_slot, workspace, selection->rows, selection->num_rows,
                             maps->queries, "rows", error);
    return status;
}

static enum attn_status check_targets(const struct attn_maps *maps, size_t batch,
                                      struct attn_error *error)
{
    const size_t count = maps->targets != NULL ? attn_mul(batch, maps->queries) : 0;
    for (size_t i = 0; i < count; i++)
        if (maps->targets[i] < -1 || maps->targets[i] >= (int64_t)maps->keys)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "targets",
                             "targets holds %lld at element %zu, allowed are -1 to %zu",
                             (long long)maps->targets[i], i, maps->keys - 1);
    if (maps->num_target_groups > ATTN_MAX_TARGET_GROUPS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "target_groups",
                         "there are %zu target_groups, allowed are %d", maps->num_target_groups,
                         ATTN_MAX_TARGET_GROUPS);
    return ATTN_OK;
}

/* Checks what statistics ask for, and takes the memory of their rows. */
static enum attn_status take_row_stats(struct attn_maps *maps, struct attn_workspace *workspace,
                                       size_t batch, struct attn_error *error)
{
    const size_t count = attn_mul(attn_mul(batch, maps->num_heads), maps->queries);
    const size_t shares = attn_mul(count, maps->num_target_groups);
    enum attn_status status = check_targets(maps, batch, error);
    if (status != ATTN_OK)
        return status;
    maps->row_stats = attn_workspace_take(workspace, count, sizeof *maps->row_stats);
    if (shares > 0)
        maps->group_shares = attn_workspace_take(workspace, shares, sizeof *maps->group_shares);
    if (maps->row_stats == NULL || (shares > 0 && maps->group_shares == NULL))
        return attn_fail_memory(error, count * sizeof *maps->row_stats);
    return ATTN_OK;
}

/* ---- Pooling ---- */

/* Rows of a unit: ATTN_TILE, or fewer where rows of weights are kept and are long; a mean that is
 * to be pooled is kept beside them, a row for each token. */
static void size_units(struct attn_maps *maps, size_t heads_per_group)
{
    size_t rows = ATTN_TILE, kept = maps->columns;
    kept *= attn_maps_pool_average(maps) ? 2 : 1;
    if (attn_maps_need_rows(maps))
        rows = attn_min(attn_max(ATTN_WEIGHT_ROWS_FLOATS / kept, 1), ATTN_TILE);
    maps->unit_heads = attn_min(heads_per_group, rows);
    maps->unit_tokens = attn_min(rows / maps->unit_heads, maps->queries);
}

/* Makes pooled [ATTN_POOLED_MAPS] of the maps that are wanted, in place of whole ones; pooled NULL:
 * they stay whole. */
static void pool_maps(struct attn_maps *maps, struct attn_pooling *pooled,
                      const struct attn_outputs *outputs)
{
    const struct {
        float **map;
        size_t maps, columns;
    } list[ATTN_POOLED_MAPS] = {
        [ATTN_POOLED_WEIGHTS] = {&maps->weights, maps->heads, maps->columns},
        [ATTN_POOLED_AVERAGE] = {&maps->average, 1, maps->columns},
        [ATTN_POOLED_SCORES] = {&maps->scores, maps->heads, maps->keys},
    };
    maps->pooled = pooled;
    for (size_t i = 0; i < ATTN_POOLED_MAPS && pooled != NULL; i++) {
        pooled[i] = (struct attn_pooling){
            .type = outputs->pool.type,
            .maps = list[i].maps,
            .rows = maps->rows,
            .columns = list[i].columns,
            .row_bins = attn_min(outputs->pool.rows, maps->rows),
            .column_bins = attn_min(outputs->pool.columns, list[i].columns),
            .tokens = outputs->selection.rows,
            .out = *list[i].map,
        };
        *list[i].map = NULL;
    }
}

/* Plans the pooled maps and gives each its share of `sums`, which may be NULL, for a batch; returns
 * the doubles that they take. */
static size_t share_sums(struct attn_pooling *pooled, double *sums, size_t unit_tokens,
                         size_t batch)
{
    size_t used = 0;
    for (size_t i = 0; i < ATTN_POOLED_MAPS; i++) {
        struct attn_pooling *p = &pooled[i];
        if (p->out == NULL)
            continue;
        p->unit_tokens = unit_tokens;
        attn_pooling_plan(p);
        size_t count = attn_mul(batch, attn_pooling_doubles(p));
        bool counts = i == ATTN_POOLED_SCORES && p->type == ATTN_POOL_MEAN;
        p->sums = sums != NULL ? sums + used : NULL;
        p->counts = sums != NULL && counts ? p->sums + count : NULL;
        used = attn_add(used, attn_mul(counts ? 2 : 1, count));
    }
    return used;
}

static enum attn_status check_pool(const struct attn_outputs *outputs, struct attn_error *error)
{
    const struct attn_map_pooling *pool = &outputs->pool;
    if (pool->rows == 0 && pool->columns == 0)
        return ATTN_OK;
    if (pool->rows - 1 >= ATTN_MAX_POOL || pool->columns - 1 >= ATTN_MAX_POOL)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "pool",
                         "pool is %zu by %zu, allowed are 1 to %d", pool->rows, pool->columns,
                         ATTN_MAX_POOL);
    if ((unsigned)pool->type > ATTN_POOL_MEAN)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "pool_type", "there is no pool_type %d",
                         (int)pool->type);
    if (outputs->top_index != NULL || pool->sums == NULL)
        return attn_fail(error, ATTN_INVALID, "pool", "pool needs %s",
                         pool->sums == NULL ? "memory for its sums" : "maps without top_k");
    return ATTN_OK;
}

/* The maps that the outputs ask for, without a selection's slots and without memory.  Makes pooled
 * [ATTN_POOLED_MAPS], NULL where maps are whole. */
static struct attn_maps maps_of(struct attn_pooling *pooled, const struct attn_outputs *outputs,
                                const struct attn_map_sizes *sizes)
{
    struct attn_maps maps = {
        .num_heads = sizes->num_heads,
        .queries = sizes->queries,
        .keys = sizes->keys,
        .columns = sizes->columns,
        .weights = outputs->attention_weights,
        .average = outputs->average_weights,
        .scores = outputs->attention_scores,
        .stage = outputs->stage,
        .top_k = outputs->top_k,
        .top_index = outputs->top_index,
        .top_weight = outputs->top_weight,
        .head_stats = outputs->head_stats,
        .local_radius = outputs->local_radius,
        .targets = outputs->targets,
        .target_groups = outputs->target_groups,
        .num_target_groups = outputs->group_stats != NULL ? outputs->num_target_groups : 0,
        .group_stats = outputs->group_stats,
        .heads = outputs->selection.heads ? outputs->selection.num_heads : sizes->num_heads,
        .rows = outputs->selection.rows ? outputs->selection.num_rows : sizes->queries,
    };
    pool_maps(&maps, pooled, outputs);
    size_units(&maps, sizes->num_heads / sizes->num_kv_heads);
    return maps;
}

size_t attn_pool_sums(const struct attn_outputs *outputs, const struct attn_map_sizes *sizes)
{
    struct attn_pooling pooled[ATTN_POOLED_MAPS];
    if (outputs->pool.rows == 0)
        return 0;
    struct attn_maps maps = maps_of(pooled, outputs, sizes);
    return share_sums(pooled, NULL, maps.unit_tokens, sizes->batch);
}

/* ---- Beginning ---- */

enum attn_status attn_maps_init(struct attn_maps *out, struct attn_workspace *workspace,
                                const struct attn_outputs *outputs,
                                const struct attn_map_sizes *sizes, struct attn_error *error)
{
    struct attn_pooling *pooled = NULL;
    if (outputs->pool.rows > 0 &&
        (pooled = attn_workspace_take(workspace, ATTN_POOLED_MAPS, sizeof *pooled)) == NULL)
        return attn_fail_memory(error, ATTN_POOLED_MAPS * sizeof *pooled);
    *out = maps_of(pooled, outputs, sizes);
    if ((out->top_index == NULL) != (out->top_weight == NULL))
        return attn_fail(error, ATTN_INVALID, "top_k",
                         "top_k needs room for both indices and weights");
    if ((unsigned)out->stage > ATTN_STAGE_MASKED)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "stage", "there is no stage %d",
                         (int)out->stage);
    if (out->top_index != NULL && (out->top_k == 0 || out->top_k > sizes->columns))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "top_k", "top_k is %zu, allowed are 1 to %zu",
                         out->top_k, sizes->columns);
    enum attn_status status = check_pool(outputs, error);
    if (status == ATTN_OK)
        status = select_parts(out, workspace, &outputs->selection, error);
    if (status == ATTN_OK && pooled != NULL)
        share_sums(pooled, outputs->pool.sums, out->unit_tokens, sizes->batch);
    return status == ATTN_OK && out->head_stats != NULL
               ? take_row_stats(out, workspace, sizes->batch, error)
               : status;
}

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

bool attn_maps_any(const struct attn_maps *maps)
{
    return attn_maps_need_rows(maps) || maps->weights != NULL || attn_maps_need_scores(maps);
}

/* ---- Selected rows ---- */

static size_t slot(const uint32_t *slots, size_t i) { return slots == NULL ? i : slots[i]; }

/* The index of a row among the selected rows of all heads; ATTN_MAPS_NONE: not selected. */
static size_t selected_index(const struct attn_maps *maps, size_t h, size_t t)
{
    size_t head = slot(maps->head_slot, h), row = slot(maps->row_slot, t);
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
    const size_t head = kind == ATTN_POOLED_AVERAGE ? 0 : slot(maps->head_slot, h);
    const struct attn_pooling_row row = {.token = t, .index = slot(maps->row_slot, t)};
    attn_pooling_add(p, maps->sequence * p->maps + head, row, first, cells, n);
}

void attn_maps_take_scores(const struct attn_maps *maps, size_t h, size_t t, size_t first,
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

/* Tasks that clear the mean, and one kind of pooled maps. */
static size_t clear_mean_tasks(const struct attn_maps *maps)
{
    return maps->average != NULL ? attn_ceil_div(maps->rows, task_rows(maps, ZERO_WEIGHTS)) : 0;
}

static size_t clear_pooled_tasks(const struct attn_maps *maps, enum attn_pooled kind)
{
    const struct attn_pooling *p = pooling(maps, kind);
    return p != NULL ? attn_ceil_div(attn_pooling_doubles(p), ZERO_WEIGHTS) : 0;
}

size_t attn_maps_zero_tasks(const struct attn_maps *maps)
{
    size_t tasks = clear_mean_tasks(maps);
    for (size_t i = 0; i < ATTN_POOLED_MAPS; i++)
        tasks += clear_pooled_tasks(maps, i);
    return tasks;
}

static void clear_pooled(const struct attn_maps *maps, size_t i)
{
    enum attn_pooled kind = 0;
    for (; i >= clear_pooled_tasks(maps, kind); kind++)
        i -= clear_pooled_tasks(maps, kind);
    const size_t doubles = attn_pooling_doubles(&maps->pooled[kind]), first = i * ZERO_WEIGHTS;
    attn_pooling_clear(&maps->pooled[kind], maps->sequence * doubles + first,
                       attn_min(doubles - first, ZERO_WEIGHTS));
}

void attn_maps_zero_task(const struct attn_maps *maps, size_t i)
{
    size_t rows = task_rows(maps, ZERO_WEIGHTS), first = i * rows;
    if (i >= clear_mean_tasks(maps)) {
        clear_pooled(maps, i - clear_mean_tasks(maps));
        return;
    }
    memset(maps->average + first * maps->columns, 0,
           attn_min(rows, maps->rows - first) * maps->columns * sizeof(float));
}

void attn_maps_measure_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                           const uint8_t *reachable, int64_t query, size_t first)
{
    const size_t at = h * maps->queries + t, n = maps->num_target_groups;
    attn_stats_row(&maps->row_stats[at], weights, reachable, maps->keys, query, first,
                   maps->local_radius);
    if (maps->targets != NULL)
        attn_stats_target_row(&maps->row_stats[at], weights, maps->targets[t]);
    if (n > 0)
        attn_stats_group_row(maps->group_shares + at * n, weights, maps->target_groups, maps->keys,
                             n);
}

static void pick_largest(const struct attn_maps *maps, size_t at, const float *weights,
                         struct attn_pool *pool, unsigned thread)
{
    attn_largest(maps->top_index + at * maps->top_k, maps->top_weight + at * maps->top_k,
                 maps->top_k, weights, maps->columns, pool, thread);
}

void attn_maps_take_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                        float *average, struct attn_pool *pool, unsigned thread)
{
    size_t at = selected_index(maps, h, t);
    if (at == ATTN_MAPS_NONE)
        return;
    if (pooling(maps, ATTN_POOLED_WEIGHTS) != NULL)
        pool_row(maps, ATTN_POOLED_WEIGHTS, h, t, 0, weights, maps->columns);
    if (maps->average != NULL)
        average = maps->average + slot(maps->row_slot, t) * maps->columns;
    if (average != NULL) {
        float share = 1.0f / (float)maps->heads;
        for (size_t s = 0; s < maps->columns; s++)
            average[s] += share * weights[s];
    } else if (maps->top_index != NULL) {
        pick_largest(maps, at, weights, pool, thread);
    }
}

void attn_maps_take_average(const struct attn_maps *maps, size_t t, const float *average)
{
    if (slot(maps->row_slot, t) != ATTN_MAPS_NONE)
        pool_row(maps, ATTN_POOLED_AVERAGE, 0, t, 0, average, maps->columns);
}

/* ---- Reducing ---- */

/* Tasks that pick the largest of the mean's rows. */
static size_t rank_tasks(const struct attn_maps *maps)
{
    bool ranked = maps->average != NULL && maps->top_index != NULL;
    return ranked ? attn_ceil_div(maps->rows, task_rows(maps, RANK_WEIGHTS)) : 0;
}

static size_t stats_tasks(const struct attn_maps *maps)
{
    return maps->head_stats != NULL ? maps->num_heads : 0;
}

/* Rows of bins that a task reduces; and the tasks of one kind of pooled maps. */
static size_t pooled_task_rows(const struct attn_pooling *p)
{
    return attn_max(POOL_WEIGHTS / p->column_bins, 1);
}

static size_t pooled_tasks(const struct attn_maps *maps, enum attn_pooled kind)
{
    const struct attn_pooling *p = pooling(maps, kind);
    return p != NULL ? attn_ceil_div(p->maps * p->row_bins, pooled_task_rows(p)) : 0;
}

size_t attn_maps_reduce_tasks(const struct attn_maps *maps)
{
    size_t tasks = rank_tasks(maps) + stats_tasks(maps);
    for (size_t i = 0; i < ATTN_POOLED_MAPS; i++)
        tasks += pooled_tasks(maps, i);
    return tasks;
}

/* Reduces some rows of a kind of pooled maps. */
static void reduce_pooled(const struct attn_maps *maps, size_t i, struct attn_pool *pool,
                          unsigned thread)
{
    enum attn_pooled kind = 0;
    for (; i >= pooled_tasks(maps, kind); kind++)
        i -= pooled_tasks(maps, kind);
    const struct attn_pooling *p = &maps->pooled[kind];
    const size_t rows = pooled_task_rows(p), end = p->maps * p->row_bins;
    const size_t first = maps->sequence * p->maps;
    for (size_t r = i * rows; r < attn_min((i + 1) * rows, end); r++)
        attn_pooling_reduce(p, first + r / p->row_bins, r % p->row_bins, pool, thread);
}

static void reduce_head(const struct attn_maps *maps, size_t h, int64_t query)
{
    const size_t first = h * maps->queries, n = maps->num_target_groups;
    const struct attn_row_stats *rows = maps->row_stats + first;
    attn_stats_reduce(&maps->head_stats[h], rows, maps->queries, query);
    if (maps->targets != NULL)
        attn_stats_reduce_targets(&maps->head_stats[h], rows, maps->queries, maps->targets);
    if (n > 0)
        attn_stats_reduce_groups(maps->group_stats + h * n, rows, maps->group_shares + first * n,
                                 maps->queries, maps->target_groups, n);
}

void attn_maps_reduce_task(const struct attn_maps *maps, size_t i, int64_t query,
                           struct attn_pool *pool, unsigned thread)
{
    size_t rows = task_rows(maps, RANK_WEIGHTS), h = i - rank_tasks(maps);
    if (i >= rank_tasks(maps) + stats_tasks(maps)) {
        reduce_pooled(maps, h - stats_tasks(maps), pool, thread);
        return;
    }
    if (i >= rank_tasks(maps)) {
        reduce_head(maps, h, query);
        return;
    }
    for (size_t r = i * rows; r < attn_min((i + 1) * rows, maps->rows); r++)
        pick_largest(maps, r, maps->average + r * maps->columns, pool, thread);
}
