/* core.c: weightless attention over given heads (attn_core): the problems of attention.h, without
 * a layer around them. */
#include <math.h>

#include "attention/forward.h"
#include "basics/status.h"
#include "calls/calls.h"

static enum attn_status check_core(struct attn_engine *engine, const struct attn_core_args *a,
                                   struct attn_error *error)
{
    struct attn_layer_spec spec = {
        .hidden_size = 1,
        .key_size = 1,
        .value_size = 1,
        .num_heads = a->num_heads,
        .num_kv_heads = a->num_kv_heads,
        .head_dim = a->head_dim,
        .value_head_dim = a->value_head_dim,
    };
    const struct {
        const float *data;
        size_t heads, tokens, width;
        const char *name;
    } inputs[] = {
        {a->query, a->num_heads, a->queries, a->head_dim, "query"},
        {a->key, a->num_kv_heads, a->keys, a->head_dim, "key"},
        {a->value, a->num_kv_heads, a->keys, a->value_head_dim, "value"},
    };
    enum attn_status status = attn_call_check_sizes(a->batch, a->queries, a->keys, error);
    if (status == ATTN_OK)
        status = attn_layer_check(&spec, error);
    if (status == ATTN_OK)
        status = attn_mask_check(&a->modifiers, a->batch, a->num_heads, a->queries, a->keys, error);
    if (status == ATTN_OK && a->modifiers.tree)
        status = attn_fail(error, ATTN_UNSUPPORTED, "attention_mask",
                           "a mask of new rows among themselves needs a step over a cache");
    for (int i = 0; i < 3 && status == ATTN_OK; i++) {
        size_t n = a->batch * inputs[i].heads * inputs[i].tokens * inputs[i].width;
        if (attn_engine_all_within(engine, inputs[i].data, n, ATTN_MAX_MAGNITUDE))
            continue;
        status = attn_input_check(engine, inputs[i].data, n, inputs[i].name, error);
        if (status == ATTN_OK)
            status =
                attn_fail(error, ATTN_OUT_OF_RANGE, inputs[i].name, "%s holds a number beyond %g",
                          inputs[i].name, (double)ATTN_MAX_MAGNITUDE);
    }
    return status;
}

static struct attn_problem core_problem(const struct attn_core_args *a, size_t b)
{
    size_t q_size = a->num_heads * a->queries * a->head_dim;
    size_t o_size = a->num_heads * a->queries * a->value_head_dim;
    size_t k_size = a->num_kv_heads * a->keys * a->head_dim;
    size_t v_size = a->num_kv_heads * a->keys * a->value_head_dim;
    float *out = a->outputs.output ? a->outputs.output + b * o_size : NULL;
    double scale = a->modifiers.scale != 0 ? a->modifiers.scale : 1 / sqrt((double)a->head_dim);
    return (struct attn_problem){
        .queries = a->queries,
        .keys = a->keys,
        .num_heads = a->num_heads,
        .num_kv_heads = a->num_kv_heads,
        .head_dim = a->head_dim,
        .value_head_dim = a->value_head_dim,
        .q = {(float *)a->query + b * q_size, a->head_dim, a->queries * a->head_dim},
        .k = {(float *)a->key + b * k_size, a->head_dim, a->keys * a->head_dim},
        .v = {(float *)a->value + b * v_size, a->value_head_dim, a->keys * a->value_head_dim},
        .scale = (float)scale,
        .softcap = a->modifiers.has_softcap ? (float)a->modifiers.softcap : 0,
        .head_mask = a->modifiers.head_mask,
        .out = {out, a->value_head_dim, a->queries * a->value_head_dim},
    };
}

static enum attn_status run_core(struct attn_engine *engine, const struct attn_core_args *a,
                                 struct attn_error *error)
{
    static const struct attn_mask_defaults none = {0};
    struct attn_call call = {.mask = &none,
                             .modifiers = &a->modifiers,
                             .outputs = &a->outputs,
                             .error = error,
                             .batch = a->batch,
                             .queries = a->queries,
                             .keys = a->keys};
    struct attn_problem *problems =
        attn_workspace_alloc(&engine->workspace, a->batch, sizeof *problems);
    if (problems == NULL)
        return attn_fail_memory(error, a->batch * sizeof *problems);
    enum attn_status status =
        attn_call_prepare(&call, &engine->workspace, a->num_heads, a->num_kv_heads, 0);
    if (status != ATTN_OK)
        return status;
    for (size_t b = 0; b < a->batch; b++) {
        problems[b] = core_problem(a, b);
        attn_call_set(&problems[b], &call, b);
    }
    status = attn_solve(engine, problems, a->batch);
    if (attn_engine_cancelled(engine, error))
        return ATTN_CANCELLED;
    return status == ATTN_OK ? ATTN_OK : attn_fail_memory(error, 0);
}

enum attn_status attn_core(struct attn_engine *engine, const struct attn_core_args *args,
                           struct attn_error *error)
{
    attn_engine_lock(engine, args->yield);
    enum attn_status status = check_core(engine, args, error);
    if (status == ATTN_OK)
        status = run_core(engine, args, error);
    attn_engine_unlock(engine);
    return status;
}
