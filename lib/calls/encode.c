/* encode.c: an encoder's rows as the keys and values of a cache, once for all steps over it.
 *
 * Each layer's rows are projected, normalised, checked and put beyond the visible length,
 * ATTN_ENCODE_ROWS at a time, so memory does not grow with S.  The lengths of all layers are
 * published together at the end: a call that fails leaves an empty cache. */
#include <string.h>

#include "attention/forward.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "models/model.h"

struct encode {
    struct attn_cache *cache;
    const struct attn_encode_args *args;
    struct attn_pass pass; /* of one layer after another */
    struct attn_call call; /* a piece: `slot` and `new_keys` */
    size_t kept;           /* rows that are no padding */
    size_t next;           /* row of the caller's that the next piece begins with */
    float *x;              /* [ATTN_ENCODE_ROWS][key_size] */
};

/* ---- Checks ---- */

static bool is_real(const struct attn_encode_args *args, size_t row)
{
    return args->padding_mask == NULL || args->padding_mask[row] != 0;
}

static enum attn_status check_layer(const struct encode *e, struct attn_error *error)
{
    const struct attn_layer_spec *spec = &e->pass.layer->spec;
    const size_t layer = e->pass.layer_index;
    if (!spec->is_cross)
        return attn_fail(error, ATTN_UNSUPPORTED, "encoder_hidden_states",
                         "layer %zu attends over its own tokens, not over an encoder's", layer);
    if (spec->query_scaling.period > 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "encoder_hidden_states",
                         "queries of layer %zu are scaled by their positions, which steps over "
                         "encoder rows do not have",
                         layer);
    if (spec->key_size != spec->value_size)
        return attn_fail(error, ATTN_UNSUPPORTED, "encoder_hidden_states",
                         "layer %zu has keys from rows of width %zu and values from rows of %zu",
                         layer, spec->key_size, spec->value_size);
    if (e->kept < e->args->rows && (spec->position_bias.type != ATTN_BIAS_NONE ||
                                    spec->sliding_window > 0 || spec->attention_chunk_size > 0))
        return attn_fail(error, ATTN_UNSUPPORTED, "encoder_padding_mask",
                         "rows of padding are left out, and scores of layer %zu depend on the "
                         "positions of keys",
                         layer);
    if (attn_cache_length(e->cache, layer) > 0)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache holds encoder rows already");
    return ATTN_OK;
}

/* Goes on to the next resident layer, or to the first one; false, and back at the beginning, where
 * there is none. */
static bool next_layer(struct encode *e)
{
    const struct attn_model *model = attn_cache_model(e->cache);
    struct attn_pass *pass = &e->pass;
    size_t layer = pass->layer != NULL ? pass->layer_index + 1 : 0;
    for (pass->layer = NULL; pass->layer == NULL && layer < ATTN_MAX_LAYERS; layer++) {
        pass->layer = attn_model_loaded_layer(model, layer);
        pass->layer_index = layer;
    }
    return pass->layer != NULL;
}

static enum attn_status check(struct encode *e, struct attn_error *error)
{
    const struct attn_encode_args *args = e->args;
    enum attn_status status = attn_check_count(args->rows, ATTN_MAX_TOKENS, "rows", error);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < args->rows; i++)
        e->kept += is_real(args, i);
    if (e->kept == 0)
        return attn_fail(error, ATTN_INVALID, "encoder_padding_mask",
                         "all %zu encoder rows are padding", args->rows);
    if (!next_layer(e))
        return attn_fail(error, ATTN_NOT_FOUND, "layer", "no layer is resident");
    const size_t width = e->pass.layer->spec.key_size;
    do {
        status = check_layer(e, error);
        if (status != ATTN_OK)
            return status;
        if (e->pass.layer->spec.key_size != width)
            return attn_fail(error, ATTN_UNSUPPORTED, "encoder_hidden_states",
                             "the layers read rows of different widths");
    } while (next_layer(e));
    return attn_input_check(e->pass.engine, args->encoder_hidden_states, args->rows * width,
                            "encoder_hidden_states", error);
}

/* ---- Projecting ---- */

/* The piece's rows side by side: the caller's, or copies without those of padding. */
static const float *gather(struct encode *e)
{
    const struct attn_encode_args *args = e->args;
    const size_t width = e->pass.layer->k.in;
    if (e->kept == args->rows)
        return args->encoder_hidden_states + e->call.slot * width;
    for (size_t i = 0; i < e->call.new_keys; e->next++)
        if (is_real(args, e->next))
            memcpy(e->x + i++ * width, args->encoder_hidden_states + e->next * width,
                   width * sizeof *e->x);
    return e->x;
}

static enum attn_status encode_piece(struct encode *e, struct attn_error *error)
{
    struct attn_call *call = &e->call;
    call->query_states = call->key_states = call->value_states = gather(e);
    const enum attn_status status = attn_forward_keys(&e->pass);
    if (attn_engine_cancelled(e->pass.engine, error))
        return ATTN_CANCELLED;
    if (status != ATTN_OK)
        return attn_fail_memory(error, 0);
    if (atomic_load(&call->beyond))
        return attn_fail(error, ATTN_OVERFLOW, "encoder_hidden_states",
                         "a key or value passes the magnitude %g", (double)ATTN_MAX_MAGNITUDE);
    if (atomic_load(&call->unfit))
        return attn_fail(error, ATTN_OVERFLOW, "encoder_hidden_states",
                         "a key or value does not fit the cache's %s",
                         attn_dtype_name(e->pass.layer->spec.kv_dtype));
    return ATTN_OK;
}

static enum attn_status encode_layer(struct encode *e, struct attn_error *error)
{
    static const struct attn_modifiers no_modifiers = {0};
    static const struct attn_outputs no_outputs = {0};
    struct attn_workspace *workspace = &e->pass.engine->workspace;
    const struct attn_layer *layer = e->pass.layer;
    struct attn_call *call = &e->call;
    *call = (struct attn_call){.modifiers = &no_modifiers,
                               .outputs = &no_outputs,
                               .new_keys = attn_min(e->kept, ATTN_ENCODE_ROWS),
                               .cache = e->cache,
                               .puts = true,
                               .count = 1};
    e->x = attn_workspace_alloc(workspace, call->new_keys * layer->k.in, sizeof *e->x);
    if (e->x == NULL || attn_pass_begin(&e->pass) != ATTN_OK)
        return attn_fail_memory(error, call->new_keys * layer->k.out * sizeof(float));
    const struct attn_workspace_mark before = attn_workspace_get_mark(workspace);
    enum attn_status status = ATTN_OK;
    for (e->next = 0; status == ATTN_OK && call->slot < e->kept; call->slot += call->new_keys) {
        call->new_keys = attn_min(ATTN_ENCODE_ROWS, e->kept - call->slot);
        status = encode_piece(e, error);
        attn_workspace_rewind(workspace, before);
    }
    return status;
}

static enum attn_status run(struct encode *e, struct attn_error *error)
{
    enum attn_status status = check(e, error);
    if (status != ATTN_OK)
        return status;
    while (next_layer(e))
        if (status == ATTN_OK)
            status = attn_cache_reserve(e->cache, e->pass.layer_index, 0, e->kept, error);
    while (next_layer(e))
        if (status == ATTN_OK) {
            status = encode_layer(e, error);
            attn_workspace_reset(&e->pass.engine->workspace);
        }
    while (next_layer(e)) {
        if (status == ATTN_OK)
            attn_cache_publish(e->cache, e->pass.layer_index, e->kept);
        attn_cache_unreserve(e->cache, e->pass.layer_index);
    }
    return status;
}

enum attn_status attn_cache_encode(struct attn_cache *cache, struct attn_engine *engine,
                                   const struct attn_encode_args *args, struct attn_error *error)
{
    struct encode encode = {.cache = cache, .args = args, .pass = {.engine = engine, .count = 1}};
    encode.pass.calls = &encode.call;
    if (!attn_cache_claim(cache))
        return attn_fail(error, ATTN_INVALID, "cache", "the cache is part of a call already");
    attn_engine_lock(engine, args->yield);
    enum attn_status status = run(&encode, error);
    attn_engine_unlock(engine);
    attn_cache_unclaim(cache);
    return status;
}
