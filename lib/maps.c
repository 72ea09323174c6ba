/* maps.c: selection of heads and rows, and what becomes of each finished row of weights: a place in
 * a map, a share of the mean, its largest, its statistics. */
#include "maps.h"

#include <string.h>

#include "largest.h"
#include "mem.h"
#include "status.h"

/* Weights of one task.  Ranking takes some 0.1 us for each. */
#define ZERO_WEIGHTS ((size_t)1 << 18)
#define RANK_WEIGHTS ((size_t)1 << 12)

/* ---- Beginning ---- */

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
    maps->heads = selection->heads ? selection->num_heads : maps->num_heads;
    maps->rows = selection->rows ? selection->num_rows : maps->queries;
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

enum attn_status attn_maps_init(struct attn_maps *out, struct attn_workspace *workspace,
                                const struct attn_outputs *outputs,
                                const struct attn_maps_sizes *sizes, struct attn_error *error)
{
    *out = (struct attn_maps){
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
    };
    if ((out->top_index == NULL) != (out->top_weight == NULL))
        return attn_fail(error, ATTN_INVALID, "top_k",
                         "top_k needs room for both indices and weights");
    if ((unsigned)out->stage > ATTN_STAGE_MASKED)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "stage", "there is no stage %d",
                         (int)out->stage);
    if (out->top_index != NULL && (out->top_k == 0 || out->top_k > sizes->columns))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "top_k", "top_k is %zu, allowed are 1 to %zu",
                         out->top_k, sizes->columns);
    enum attn_status status = select_parts(out, workspace, &outputs->selection, error);
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

bool attn_maps_need_rows(const struct attn_maps *maps)
{
    return maps->average != NULL || maps->top_index != NULL || maps->head_stats != NULL;
}

bool attn_maps_any(const struct attn_maps *maps)
{
    return attn_maps_need_rows(maps) || maps->weights != NULL || maps->scores != NULL;
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

float *attn_maps_scores(const struct attn_maps *maps, size_t h, size_t t)
{
    size_t at = maps->scores ? selected_index(maps, h, t) : ATTN_MAPS_NONE;
    return at != ATTN_MAPS_NONE ? maps->scores + at * maps->keys : NULL;
}

/* ---- Rows ---- */

/* Rows of a task of so many weights, at least one. */
static size_t task_rows(const struct attn_maps *maps, size_t numbers)
{
    return attn_max(numbers / attn_max(maps->columns, 1), 1);
}

size_t attn_maps_zero_tasks(const struct attn_maps *maps)
{
    return maps->average != NULL ? attn_ceil_div(maps->rows, task_rows(maps, ZERO_WEIGHTS)) : 0;
}

void attn_maps_zero_task(const struct attn_maps *maps, size_t i)
{
    size_t rows = task_rows(maps, ZERO_WEIGHTS), first = i * rows;
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
                        struct attn_pool *pool, unsigned thread)
{
    size_t at = selected_index(maps, h, t);
    if (at == ATTN_MAPS_NONE)
        return;
    if (maps->average != NULL) {
        float *average = maps->average + slot(maps->row_slot, t) * maps->columns;
        float share = 1.0f / (float)maps->heads;
        for (size_t s = 0; s < maps->columns; s++)
            average[s] += share * weights[s];
    } else if (maps->top_index != NULL) {
        pick_largest(maps, at, weights, pool, thread);
    }
}

/* Tasks that pick the largest of the mean's rows. */
static size_t rank_tasks(const struct attn_maps *maps)
{
    bool ranked = maps->average != NULL && maps->top_index != NULL;
    return ranked ? attn_ceil_div(maps->rows, task_rows(maps, RANK_WEIGHTS)) : 0;
}

size_t attn_maps_reduce_tasks(const struct attn_maps *maps)
{
    return rank_tasks(maps) + (maps->head_stats != NULL ? maps->num_heads : 0);
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
    size_t rows = task_rows(maps, RANK_WEIGHTS);
    if (i >= rank_tasks(maps)) {
        reduce_head(maps, i - rank_tasks(maps), query);
        return;
    }
    for (size_t r = i * rows; r < attn_min((i + 1) * rows, maps->rows); r++)
        pick_largest(maps, r, maps->average + r * maps->columns, pool, thread);
}
