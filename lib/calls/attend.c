/* attend.c: attention over given rows: weightless (attn_core), and self- and cross-attention of a
 * layer (attn_attend).
 *
 * Both calls check their arguments, describe each sequence of the batch as a problem
 * (attention/attention.h) and solve the problems together.  attn_attend projects before and after,
 * some sequences at a time. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attention/attention.h"
#include "attention/copies.h"
#include "attention/latents.h"
#include "attention/qkv.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "layers/ablation.h"
#include "models/model.h"

static enum attn_status check_sizes(size_t batch, size_t queries, size_t keys,
                                    struct attn_error *error)
{
    enum attn_status status = attn_check_count(batch, ATTN_MAX_BATCH, "batch", error);
    if (status == ATTN_OK)
        status = attn_check_count(queries, ATTN_MAX_TOKENS, "queries", error);
    if (status == ATTN_OK)
        status = attn_check_count(keys, ATTN_MAX_TOKENS, "keys", error);
    return status;
}

/* Prepares the maps of a call, for all its sequences; p is the problem of any of them. */
static enum attn_status take_maps(struct attn_maps *maps, struct attn_engine *engine,
                                  const struct attn_outputs *outputs, size_t batch,
                                  const struct attn_problem *p, struct attn_error *error)
{
    const struct attn_map_sizes sizes = {.batch = batch,
                                         .num_heads = p->num_heads,
                                         .num_kv_heads = p->num_kv_heads,
                                         .queries = p->queries,
                                         .keys = p->keys,
                                         .columns = p->keys + p->extra};
    return attn_maps_init(maps, &engine->workspace, outputs, &sizes, error);
}

/* The status of a call after attn_solve returned `status`; fills *error. */
static enum attn_status status_after_solve(enum attn_status status,
                                           const struct attn_engine *engine,
                                           struct attn_error *error)
{
    if (attn_engine_cancelled(engine, error))
        return ATTN_CANCELLED;
    return status == ATTN_OK ? ATTN_OK : attn_fail_memory(error, 0);
}

/* ---- Weightless ---- */

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
    enum attn_status status = check_sizes(a->batch, a->queries, a->keys, error);
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
    static const struct attn_mask_defaults defaults = {0};
    struct attn_maps maps;
    struct attn_problem *problems =
        attn_workspace_take(&engine->workspace, a->batch, sizeof *problems);
    if (problems == NULL)
        return attn_fail_memory(error, a->batch * sizeof *problems);
    for (size_t b = 0; b < a->batch; b++)
        problems[b] = core_problem(a, b);
    enum attn_status status = take_maps(&maps, engine, &a->outputs, a->batch, problems, error);
    if (status != ATTN_OK)
        return status;
    for (size_t b = 0; b < a->batch; b++)
        attn_problem_set_modifiers(&problems[b], &defaults, &a->modifiers, NULL, &maps,
                                   a->outputs.lse, b);
    return status_after_solve(attn_solve(engine, problems, a->batch), engine, error);
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

/* ---- A layer over given rows ---- */

/* Rows of a portion: a call computes some of its sequences at a time, at least one, from
 * projections to output.  Intermediate results then stay in a cache, and memory is taken for one
 * portion only. */
#define PORTION_ROWS 512

/* A call: its memory and sizes. */
struct attend {
    struct attn_engine *engine;
    const struct attn_layer *layer;
    const struct attn_attend_args *args;
    bool cross;                      /* keys are of another sequence */
    bool shared;                     /* keys are of the rows that an earlier layer attends over */
    size_t queries, keys;            /* of one sequence */
    size_t first, count;             /* this portion: C = count sequences from `first` on */
    float *q, *k, *v, *o;            /* [C][T][H*D], [C][S][G*D], [C][S][G*Dv], [C][T][H*Dv] */
    float *gate;                     /* [C][T][H*Dv] of layers with a gate */
    struct attn_latent_rows latents; /* of a latent layer */
    const float *inv_freq;           /* [rope.dim/2] of this call, NULL without RoPE */
    int64_t *positions;              /* [B][S + T] where masks need positions, else NULL */
    struct attn_problem *problems;   /* [C] */
    struct attn_maps maps;
    atomic_bool overflow; /* a projection or an output is beyond its bound */
};

/* Checks a call of a layer that reads the keys and values of an earlier layer. */
static enum attn_status check_shared(const struct attend *call, struct attn_error *error)
{
    if (call->args->key_hidden_states == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "key_hidden_states",
                         "this layer reads keys and values of layer %zu, whose rows must be given",
                         call->layer->spec.shares_layer);
    if (call->keys != call->queries)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "key_hidden_states",
                         "key_hidden_states has %zu rows for %zu tokens of hidden_states: a layer "
                         "that reads an earlier one attends over the same tokens",
                         call->keys, call->queries);
    return ATTN_OK;
}

static enum attn_status check_attend(struct attend *call, struct attn_error *error)
{
    const struct attn_attend_args *a = call->args;
    const struct attn_layer_spec *spec = &call->layer->spec;
    struct attn_engine *engine = call->engine;
    enum attn_status status = check_sizes(a->batch, call->queries, call->keys, error);
    if (status == ATTN_OK)
        status = attn_mask_check(&a->modifiers, a->batch, spec->num_heads, call->queries,
                                 call->keys, error);
    if (status == ATTN_OK && call->shared)
        status = check_shared(call, error);
    if (status != ATTN_OK)
        return status;
    if (spec->is_weightless)
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "a weightless model has no projections");
    if (call->cross && (spec->rope.type != ATTN_ROPE_NONE || attn_layer_is_latent(call->layer)))
        return attn_fail(
            error, ATTN_UNSUPPORTED, "key_hidden_states",
            "rows of keys have no meaning for a layer with rotary positions or latents");
    if (!call->cross && spec->is_cross)
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "this layer attends over another sequence, whose rows must be given");
    if (a->modifiers.tree)
        return attn_fail(error, ATTN_UNSUPPORTED, "attention_mask",
                         "a mask of new rows among themselves needs a step over a cache");
    if (!call->cross &&
        (spec->key_size != spec->hidden_size || spec->value_size != spec->hidden_size))
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "key_hidden_states",
                         "this layer's keys and values come from rows of width %zu and %zu, not "
                         "from hidden_states of width %zu",
                         spec->key_size, spec->value_size, spec->hidden_size);
    if (call->cross && a->value_hidden_states == NULL && spec->key_size != spec->value_size)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "value_hidden_states",
                         "this layer's keys come from rows of width %zu and its values of %zu, so "
                         "both have to be given",
                         spec->key_size, spec->value_size);
    status = attn_input_check(engine, a->hidden_states,
                              a->batch * call->queries * spec->hidden_size, "hidden_states", error);
    if (status == ATTN_OK && a->key_hidden_states != NULL)
        status =
            attn_input_check(engine, a->key_hidden_states, a->batch * call->keys * spec->key_size,
                             "key_hidden_states", error);
    if (status == ATTN_OK && a->value_hidden_states != NULL)
        status = attn_input_check(engine, a->value_hidden_states,
                                  a->batch * call->keys * spec->value_size, "value_hidden_states",
                                  error);
    return status;
}

static size_t query_rows(const struct attend *call) { return call->count * call->queries; }

static size_t key_rows(const struct attend *call) { return call->count * call->keys; }

/* Floats of a token's keys. */
static size_t key_width(const struct attend *call)
{
    return call->layer->spec.num_kv_heads * call->layer->spec.head_dim;
}

/* Takes the buffers of a portion of call->count sequences. */
static bool take_buffers(struct attend *call)
{
    struct attn_workspace *workspace = &call->engine->workspace;
    const struct attn_layer *layer = call->layer;
    const size_t q_rows = query_rows(call), k_rows = key_rows(call);
    const size_t tokens = attn_mul(call->args->batch, attn_add(call->queries, call->keys));
    call->q = attn_workspace_take(workspace, attn_mul(q_rows, layer->q.out), sizeof(float));
    call->k = attn_workspace_take(workspace, attn_mul(k_rows, key_width(call)), sizeof(float));
    call->v = attn_workspace_take(workspace, attn_mul(k_rows, layer->v.out), sizeof(float));
    call->o = attn_workspace_take(workspace, attn_mul(q_rows, layer->o.in), sizeof(float));
    call->gate = attn_workspace_take(workspace, attn_mul(q_rows, layer->gate.out), sizeof(float));
    if (attn_layer_is_latent(layer) &&
        !attn_latent_rows_take(&call->latents, call->engine, layer, call->q, q_rows, false))
        return false;
    call->problems = attn_workspace_take(workspace, call->count, sizeof *call->problems);
    if (attn_mask_needs_positions(&call->args->modifiers, &layer->position_bias) &&
        (call->positions = attn_workspace_take(workspace, tokens, sizeof *call->positions)) == NULL)
        return false;
    return call->q != NULL && call->k != NULL && call->v != NULL && call->o != NULL &&
           call->gate != NULL && call->problems != NULL;
}

static enum attn_status project_in(struct attend *call)
{
    const struct attn_attend_args *a = call->args;
    const struct attn_layer *layer = call->layer;
    const size_t q_first = call->first * call->queries, k_first = call->first * call->keys;
    const float *x = a->hidden_states + q_first * layer->spec.hidden_size;
    if (attn_layer_is_latent(layer))
        return attn_latent_rows_expand(&call->latents, call->engine, layer, x, query_rows(call),
                                       (struct attn_qkv){call->q, call->k, call->v});
    const float *keys = a->key_hidden_states ? a->key_hidden_states : a->hidden_states;
    const float *values = a->value_hidden_states ? a->value_hidden_states : keys;
    struct attn_projection products[] = {
        attn_projection_of(&layer->q, x, call->q, query_rows(call)),
        attn_projection_of(&layer->k, keys + k_first * layer->k.in, call->k, key_rows(call)),
        attn_projection_of(&layer->v, values + k_first * layer->v.in, call->v, key_rows(call)),
        attn_projection_of(&layer->gate, x, call->gate, query_rows(call)),
    };
    bool bounded = !attn_layer_has_postprocessing(layer); /* attn_project then checks the bounds */
    for (size_t i = 0; i < 4; i++) {
        products[i].limit = ATTN_MAX_MAGNITUDE;
        products[i].beyond = bounded || i == 3 ? &call->overflow : NULL;
    }
    return attn_project(call->engine, products, layer->gate.out != 0 ? 4 : 3, false);
}

#define POSTPROCESS_ROWS 16 /* of one task */

static void postprocess_task(void *argument, size_t i, unsigned thread)
{
    struct attend *call = argument;
    const struct attn_layer *layer = call->layer;
    const int64_t *positions = call->args->modifiers.position_ids;
    const size_t q_rows = query_rows(call), k_rows = key_rows(call);
    size_t end = attn_min((i + 1) * POSTPROCESS_ROWS, attn_max(q_rows, k_rows));
    (void)thread;
    positions = positions != NULL ? positions + call->first * call->queries : NULL;
    for (size_t r = i * POSTPROCESS_ROWS; r < end; r++) {
        struct attn_qkv row = {.q = r < q_rows ? call->q + r * layer->q.out : NULL};
        if (attn_layer_is_latent(layer)) {
            row.k = call->latents.latent + r * layer->kv_a.out;
            row.v = call->latents.shared + r * layer->k_rope.out;
        } else if (r < k_rows) {
            row.k = call->k + r * key_width(call);
            row.v = call->v + r * layer->v.out;
        }
        const size_t slot = r % call->queries;
        int64_t position = positions && r < q_rows ? positions[r] : (int64_t)slot;
        if (!attn_qkv_postprocess(row, layer, &call->engine->kernels, call->inv_freq, position,
                                  slot))
            atomic_store(&call->overflow, true);
        if (attn_layer_is_latent(layer) &&
            !attn_latent_share_key(call->k + r * key_width(call), call->v + r * layer->v.out, layer,
                                   &call->engine->kernels, row.v))
            atomic_store(&call->overflow, true);
    }
}

/* Normalises, rotates and checks the projections; false where a number is beyond
 * ATTN_MAX_MAGNITUDE. */
static bool postprocess(struct attend *call)
{
    if (attn_layer_has_postprocessing(call->layer))
        attn_pool_run(call->engine->pool, postprocess_task, call,
                      attn_ceil_div(attn_max(query_rows(call), key_rows(call)), POSTPROCESS_ROWS));
    return !atomic_load(&call->overflow);
}

/* The problem of sequence b of the portion, without its mask and maps. */
static struct attn_problem attend_problem(const struct attend *call, size_t b)
{
    const struct attn_layer *layer = call->layer;
    struct attn_problem p = attn_layer_problem(layer, &call->args->modifiers);
    const size_t d = p.head_dim, dv = p.value_head_dim;
    p.queries = call->queries;
    p.keys = call->keys;
    p.pairs = attn_layer_attends_in_pairs(layer, &call->engine->kernels);
    p.q = (struct attn_rows){call->q + b * p.queries * layer->q.out, layer->q.out, d};
    p.k = (struct attn_rows){call->k + b * p.keys * key_width(call), key_width(call), d};
    p.v = (struct attn_rows){call->v + b * p.keys * layer->v.out, layer->v.out, dv};
    if (attn_outputs_need_heads(&call->args->outputs))
        p.out = (struct attn_rows){call->o + b * p.queries * layer->o.in, layer->o.in, dv};
    return p;
}

static void make_problems(struct attend *call)
{
    const struct attn_attend_args *a = call->args;
    const struct attn_mask_defaults defaults =
        attn_layer_mask_defaults(call->layer, call->layer->spec.is_causal && !call->cross);
    for (size_t i = 0; i < call->count; i++) {
        const size_t b = call->first + i;
        struct attn_problem *p = &call->problems[i];
        *p = attend_problem(call, i);
        int64_t *positions = call->positions ? call->positions + b * (p->keys + p->queries) : NULL;
        attn_problem_set_modifiers(p, &defaults, &a->modifiers, positions, &call->maps,
                                   a->outputs.lse, b);
    }
}

static enum attn_status project_out(struct attend *call, struct attn_error *error)
{
    const struct attn_attend_args *a = call->args;
    const struct attn_linear *o = &call->layer->o;
    if (a->outputs.output == NULL)
        return ATTN_OK;
    float *output = a->outputs.output + call->first * call->queries * o->out;
    struct attn_projection product = attn_projection_of(o, call->o, output, query_rows(call));
    product.limit = FLT_MAX;
    product.beyond = &call->overflow;
    if (attn_project(call->engine, &product, 1, false) != ATTN_OK)
        return attn_fail_memory(error, 0);
    if (!atomic_load(&call->overflow) || attn_engine_cancelled(call->engine, NULL))
        return ATTN_OK;
    return attn_fail(error, ATTN_OVERFLOW, "hidden_states", "the output does not fit float32");
}

static enum attn_status ablate(struct attend *call, struct attn_error *error)
{
    const struct attn_outputs *outputs = &call->args->outputs;
    const size_t to = call->first * call->queries * call->layer->o.out;
    const struct attn_ablated ablated = {.layer = call->layer,
                                         .concat = call->o,
                                         .output = outputs->output ? outputs->output + to : NULL,
                                         .sequences = call->count,
                                         .queries = call->queries};
    if (outputs->ablation == NULL || attn_engine_cancelled(call->engine, NULL))
        return ATTN_OK;
    return attn_ablate(outputs->ablation + call->first * call->layer->spec.num_heads, call->engine,
                       &ablated, error);
}

static void copy_rows(const struct attend *call)
{
    const struct attn_copies copies = {.spec = &call->layer->spec,
                                       .outputs = &call->args->outputs,
                                       .first = call->first,
                                       .count = call->count,
                                       .queries = call->queries,
                                       .keys = call->keys,
                                       .q = call->q,
                                       .o = call->o,
                                       .k = call->k,
                                       .v = call->v};
    attn_copy_rows(call->engine->pool, &copies);
}

static enum attn_status run_portion(struct attend *call, struct attn_error *error)
{
    make_problems(call);
    if (project_in(call) != ATTN_OK)
        return attn_fail_memory(error, 0);
    if (!postprocess(call))
        return attn_qkv_fail(&call->layer->spec, error);
    enum attn_status status = status_after_solve(
        attn_solve(call->engine, call->problems, call->count), call->engine, error);
    if (status != ATTN_OK)
        return status;
    attn_gate_rows(call->engine->pool, call->o, call->gate, query_rows(call),
                   call->layer->gate.out);
    copy_rows(call);
    status = project_out(call, error);
    return status == ATTN_OK ? ablate(call, error) : status;
}

/* The length that decides RoPE's frequencies: the longest of all sequences. */
static int64_t call_length(const struct attend *call)
{
    const int64_t *positions = call->args->modifiers.position_ids;
    return attn_qkv_length(positions, positions ? call->args->batch * call->queries : call->queries,
                           0);
}

static enum attn_status run_attend(struct attend *call, struct attn_error *error)
{
    struct attn_workspace *workspace = &call->engine->workspace;
    float rescaled[ATTN_MAX_HEAD_DIM / 2];
    const size_t batch = call->args->batch, rows = attn_max(call->queries, call->keys);
    const size_t most = attn_min(attn_max(PORTION_ROWS / rows, 1), batch);
    call->count = most;
    if (!take_buffers(call))
        return attn_fail_memory(error, 0);
    call->problems[0] = attend_problem(call, 0);
    call->inv_freq = attn_qkv_frequencies(rescaled, call->layer, call_length(call));
    enum attn_status status =
        take_maps(&call->maps, call->engine, &call->args->outputs, batch, call->problems, error);
    const struct attn_workspace_mark before = attn_workspace_get_mark(workspace);
    for (; call->first < batch && status == ATTN_OK; call->first += most) {
        call->count = attn_min(most, batch - call->first);
        status = run_portion(call, error);
        attn_workspace_rewind(workspace, before);
    }
    call->inv_freq = NULL; /* it may point to `rescaled` above */
    return attn_engine_cancelled(call->engine, error) ? ATTN_CANCELLED : status;
}

enum attn_status attn_attend(struct attn_engine *engine, const struct attn_model *model,
                             size_t layer, const struct attn_attend_args *args,
                             struct attn_error *error)
{
    const struct attn_layer *found = attn_model_loaded_layer(model, layer);
    const bool shared = found != NULL && found->spec.shares_layer != SIZE_MAX;
    struct attend call = {
        .engine = engine,
        .layer = found,
        .args = args,
        .cross = args->key_hidden_states != NULL && !shared,
        .shared = shared,
        .queries = args->queries,
        .keys = args->key_hidden_states ? args->keys : args->queries,
    };
    if (call.layer == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    attn_engine_lock(engine, args->yield);
    enum attn_status status = check_attend(&call, error);
    status = status == ATTN_OK ? run_attend(&call, error) : status;
    attn_engine_unlock(engine);
    return status;
}
