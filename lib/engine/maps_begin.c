/* maps_begin.c: what the outputs of a call ask of rows of weights, checked, and its memory. */
#include "engine/maps.h"

#include "basics/mem.h"
#include "basics/status.h"
#include "basics/tile.h"

/* ---- Selecting ---- */

/* Makes *out [limit] the inverse of a list: (*out)[list[i]] = i, all others ATTN_MAPS_NONE. */
static enum attn_status invert_list(const uint32_t **out, struct attn_workspace *workspace,
                                    const size_t *list, size_t count, size_t limit,
                                    const char *param, struct attn_error *error)
{
    uint32_t *indices = attn_workspace_alloc(workspace, limit, sizeof *indices);
    if (indices == NULL)
        return attn_fail_memory(error, limit * sizeof *indices);
    if (count == 0)
        return attn_fail(error, ATTN_INVALID, param, "%s is empty", param);
    for (size_t i = 0; i < limit; i++)
        indices[i] = ATTN_MAPS_NONE;
    for (size_t i = 0; i < count; i++) {
        if (list[i] >= limit)
            return attn_fail(error, ATTN_OUT_OF_RANGE, param, "%s has %zu, there are 0 to %zu",
                             param, list[i], limit - 1);
        if (indices[list[i]] != ATTN_MAPS_NONE)
            return attn_fail(error, ATTN_INVALID, param, "%s has %zu twice", param, list[i]);
        indices[list[i]] = (uint32_t)i;
    }
    *out = indices;
    return ATTN_OK;
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
    if (maps->num_target_groups > 0 && maps->target_groups == NULL)
        return attn_fail(error, ATTN_INVALID, "target_groups",
                         "group_stats need target_groups, which are not given");
    return ATTN_OK;
}

/* ---- Pooling ---- */

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
static size_t assign_sums(struct attn_pooling *pooled, double *sums, size_t unit_tokens,
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

/* The maps that the outputs ask for, without a selection's indices and without memory.  Makes
 * pooled [ATTN_POOLED_MAPS], NULL where maps are whole. */
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
    /* Rows of a unit: ATTN_TILE, or fewer where rows of weights are kept and are long; a mean that
     * is to be pooled is kept beside them, a row for each token. */
    size_t rows = ATTN_TILE, kept = maps.columns * (attn_maps_pool_average(&maps) ? 2 : 1);
    if (attn_maps_need_rows(&maps))
        rows = attn_min(attn_max(ATTN_WEIGHT_ROWS_FLOATS / kept, 1), ATTN_TILE);
    maps.unit_heads = attn_min(sizes->num_heads / sizes->num_kv_heads, rows);
    maps.unit_tokens = attn_min(rows / maps.unit_heads, maps.queries);
    return maps;
}

size_t attn_pool_sums(const struct attn_outputs *outputs, const struct attn_map_sizes *sizes)
{
    struct attn_pooling pooled[ATTN_POOLED_MAPS];
    if (outputs->pool.rows == 0)
        return 0;
    struct attn_maps maps = maps_of(pooled, outputs, sizes);
    return assign_sums(pooled, NULL, maps.unit_tokens, sizes->batch);
}

/* ---- Beginning ---- */

enum attn_status attn_maps_init(struct attn_maps *out, struct attn_workspace *workspace,
                                const struct attn_outputs *outputs,
                                const struct attn_map_sizes *sizes, struct attn_error *error)
{
    const struct attn_selection *selection = &outputs->selection;
    struct attn_pooling *pooled = NULL;
    if (outputs->pool.rows > 0 &&
        (pooled = attn_workspace_alloc(workspace, ATTN_POOLED_MAPS, sizeof *pooled)) == NULL)
        return attn_fail_memory(error, ATTN_POOLED_MAPS * sizeof *pooled);
    *out = maps_of(pooled, outputs, sizes);
    if ((out->top_index == NULL) != (out->top_weight == NULL))
        return attn_fail(error, ATTN_INVALID, "top_k",
                         "top_k needs room for both indices and weights");
    if (out->group_stats != NULL && out->head_stats == NULL)
        return attn_fail(error, ATTN_INVALID, "group_stats", "group_stats need head_stats");
    if ((unsigned)out->stage > ATTN_STAGE_MASKED)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "stage", "there is no stage %d",
                         (int)out->stage);
    if (out->top_index != NULL && (out->top_k == 0 || out->top_k > sizes->columns))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "top_k", "top_k is %zu, allowed are 1 to %zu",
                         out->top_k, sizes->columns);
    enum attn_status status = check_pool(outputs, error);
    if (status == ATTN_OK && selection->heads != NULL)
        status = invert_list(&out->head_index, workspace, selection->heads, selection->num_heads,
                             out->num_heads, "heads", error);
    if (status == ATTN_OK && selection->rows != NULL)
        status = invert_list(&out->row_index, workspace, selection->rows, selection->num_rows,
                             out->queries, "rows", error);
    if (status == ATTN_OK && pooled != NULL)
        assign_sums(pooled, outputs->pool.sums, out->unit_tokens, sizes->batch);
    if (status == ATTN_OK && out->head_stats != NULL)
        status = check_targets(out, sizes->batch, error);
    if (status != ATTN_OK || out->head_stats == NULL)
        return status;
    const size_t count = attn_mul(attn_mul(sizes->batch, out->num_heads), out->queries);
    const size_t shares = attn_mul(count, out->num_target_groups);
    out->row_stats = attn_workspace_alloc(workspace, count, sizeof *out->row_stats);
    if (shares > 0)
        out->group_shares = attn_workspace_alloc(workspace, shares, sizeof *out->group_shares);
    if (out->row_stats == NULL || (shares > 0 && out->group_shares == NULL))
        return attn_fail_memory(error, count * sizeof *out->row_stats);
    return ATTN_OK;
}
