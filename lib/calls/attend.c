/* attend.c: self- and cross-attention of a layer over given rows (attn_attend).
 *
 * The call is checked and described, and then computed by some of its sequences at a time
 * (attention/forward.h). */
#include "attention/forward.h"
#include "basics/status.h"
#include "calls/calls.h"
#include "models/model.h"

/* Rows of a portion: a call computes some of its sequences at a time, at least one, from
 * projections to output.  Intermediate results then stay in a cache, and memory is taken for one
 * portion only. */
#define PORTION_ROWS 512

/* A call's arguments, and what follows from them. */
struct attend {
    struct attn_engine *engine;
    const struct attn_layer *layer;
    const struct attn_attend_args *args;
    bool cross;           /* keys are of another sequence */
    bool shared;          /* keys are of the rows that an earlier layer attends over */
    size_t queries, keys; /* of one sequence */
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

/* Checks a call of a layer whose tokens are the patches of an image, after some that are none. */
static enum attn_status check_grid(const struct attend *call, struct attn_error *error)
{
    const struct attn_layer_spec *spec = &call->layer->spec;
    const size_t *grid = call->args->modifiers.grid, prefix = spec->rope.grid_prefix;
    const size_t side = spec->position_bias.grid, fixed = side * side + 1;
    if (prefix > 0 && (grid[0] == 0 || grid[1] == 0))
        return attn_fail(error, ATTN_INVALID, "grid",
                         "grid is missing: this layer rotates by rows and columns of patches");
    if (prefix > 0 && (grid[0] > ATTN_MAX_TOKENS || grid[1] > ATTN_MAX_TOKENS ||
                       prefix + grid[0] * grid[1] != call->queries))
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "grid",
                         "a grid of %zu by %zu patches after %zu other tokens does not make %zu "
                         "tokens",
                         grid[0], grid[1], prefix, call->queries);
    if (side > 0 && (call->queries != fixed || call->cross))
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "hidden_states",
                         "%zu tokens: this layer has a position bias for %zu, a first one and %zu "
                         "by %zu patches; other resolutions are not supported",
                         call->queries, fixed, side, side);
    if (side > 0 && call->args->modifiers.query_offset != NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "query_offset",
                         "query_offset has no meaning for patches of an image");
    return ATTN_OK;
}

static enum attn_status check(const struct attend *call, struct attn_error *error)
{
    const struct attn_attend_args *a = call->args;
    const struct attn_layer_spec *spec = &call->layer->spec;
    const struct {
        const float *rows;
        size_t count, width;
        const char *name;
    } inputs[] = {{a->hidden_states, call->queries, spec->hidden_size, "hidden_states"},
                  {a->key_hidden_states, call->keys, spec->key_size, "key_hidden_states"},
                  {a->value_hidden_states, call->keys, spec->value_size, "value_hidden_states"}};
    if (attn_call_check_sizes(a->batch, call->queries, call->keys, error) != ATTN_OK ||
        attn_mask_check(&a->modifiers, a->batch, spec->num_heads, call->queries, call->keys,
                        error) != ATTN_OK ||
        attn_call_check_layer(&a->modifiers, &a->outputs, spec, call->keys, error) != ATTN_OK ||
        check_grid(call, error) != ATTN_OK ||
        (call->shared && check_shared(call, error) != ATTN_OK))
        return error->status;
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
    for (size_t i = 0; i < ATTN_COUNT(inputs); i++)
        if ((i == 0 || inputs[i].rows != NULL) &&
            attn_input_check(call->engine, inputs[i].rows,
                             a->batch * inputs[i].count * inputs[i].width, inputs[i].name,
                             error) != ATTN_OK)
            return error->status;
    return ATTN_OK;
}

static enum attn_status run(const struct attend *attend, struct attn_error *error)
{
    struct attn_engine *engine = attend->engine;
    const struct attn_attend_args *a = attend->args;
    const struct attn_mask_defaults mask =
        attn_layer_mask_defaults(attend->layer, attend->layer->spec.is_causal && !attend->cross);
    const float *keys = a->key_hidden_states ? a->key_hidden_states : a->hidden_states;
    struct attn_call call = {
        .modifiers = &a->modifiers,
        .outputs = &a->outputs,
        .error = error,
        .batch = a->batch,
        .queries = attend->queries,
        .keys = attend->keys,
        .new_keys = attend->keys,
        .query_states = a->hidden_states,
        .key_states = keys,
        .value_states = a->value_hidden_states ? a->value_hidden_states : keys,
        .mask = &mask,
    };
    struct attn_pass pass = {.engine = engine, .layer = attend->layer, .calls = &call, .count = 1};
    const size_t rows = attn_max(call.queries, call.keys);
    const size_t most = attn_min(attn_max(PORTION_ROWS / rows, 1), call.batch);
    call.count = most;
    enum attn_status status = attn_pass_begin(&pass);
    const struct attn_workspace_mark before = attn_workspace_get_mark(&engine->workspace);
    for (; call.first < call.batch && status == ATTN_OK && error->status == ATTN_OK;
         call.first += most) {
        call.count = attn_min(most, call.batch - call.first);
        status = attn_forward(&pass);
        attn_workspace_rewind(&engine->workspace, before);
    }
    if (attn_engine_cancelled(engine, error))
        return ATTN_CANCELLED;
    return status == ATTN_OK ? error->status : attn_fail_memory(error, 0);
}

enum attn_status attn_attend(struct attn_engine *engine, const struct attn_model *model,
                             size_t layer, const struct attn_attend_args *args,
                             struct attn_error *error)
{
    const struct attn_layer *found = attn_model_loaded_layer(model, layer);
    const bool shared = found != NULL && found->spec.shares_layer != SIZE_MAX;
    const struct attend attend = {
        .engine = engine,
        .layer = found,
        .args = args,
        .cross = args->key_hidden_states != NULL && !shared,
        .shared = shared,
        .queries = args->queries,
        .keys = args->key_hidden_states ? args->keys : args->queries,
    };
    struct attn_error own = {.status = ATTN_OK};
    if (found == NULL)
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "layer %zu is not resident", layer);
    attn_engine_lock(engine, args->yield);
    enum attn_status status = check(&attend, &own);
    status = status == ATTN_OK ? run(&attend, &own) : status;
    attn_engine_unlock(engine);
    if (status != ATTN_OK && error != NULL)
        *error = own;
    return status;
}
