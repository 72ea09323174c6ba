/* selection.c: lists of heads and of rows, and the blocks that maps are reduced to. */
#include "wire/shapes.h"

enum srv_error_code srv_selection_read(const size_t **out, size_t *count,
                                       const struct srv_tensor *list, const char *param,
                                       size_t limit, struct srv_arena *arena,
                                       struct srv_error *error)
{
    if (!list->present)
        return SRV_OK;
    if (list->rank != 1)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                        "%s: a list of indices is expected, not %u dimensions", param, list->rank);
    if (list->count == 0)
        return srv_fail(error, SRV_E_INVALID_VALUE, param, "%s is empty", param);
    size_t *indices = srv_arena_alloc(arena, list->count, sizeof *indices);
    bool *seen = srv_arena_alloc(arena, limit, sizeof *seen);
    if (indices == NULL || seen == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
    memset(seen, 0, limit * sizeof *seen);
    for (size_t i = 0; i < list->count; i++) {
        int64_t index = list->i64[i];
        if (index < 0 || (uint64_t)index >= limit || seen[index])
            return index >= 0 && (uint64_t)index < limit
                       ? srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, param, "%s[%zu] repeats %lld",
                                  param, i, (long long)index)
                       : srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, param,
                                  "%s[%zu] is %lld, there are 0 to %zu in this call", param, i,
                                  (long long)index, limit - 1);
        seen[index] = true;
        indices[i] = (size_t)index;
    }
    *out = indices;
    *count = list->count;
    return SRV_OK;
}

enum srv_error_code srv_pool_read(struct attn_map_pooling *out, const struct srv_rows *rows,
                                  struct srv_error *error)
{
    const struct srv_tensor *pool = &rows->pool;
    const size_t pair = 2;
    if (!pool->present)
        return SRV_OK;
    if (srv_shape_check(pool, "pool", &pair, 1, error) != SRV_OK)
        return error->code;
    for (size_t i = 0; i < pair; i++)
        if (pool->i64[i] < 1 || pool->i64[i] > ATTN_MAX_POOL)
            return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, "pool",
                            "pool[%zu] is %lld, allowed are 1 to %d", i, (long long)pool->i64[i],
                            ATTN_MAX_POOL);
    *out = (struct attn_map_pooling){
        .rows = (size_t)pool->i64[0], .columns = (size_t)pool->i64[1], .type = rows->pool_type};
    return SRV_OK;
}
