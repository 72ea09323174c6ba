/* decode.c: steps over caches: many sequences of one layer as one batch.
 *
 *   admit (check, reserve blocks) -> forward pass, which puts keys and values in the caches, after
 *   their visible lengths (attention/forward.h) -> record -> publish the lengths
 *
 * A step of cross-attention projects queries alone, and appends and publishes nothing: its keys are
 * the encoder rows of its cache (encode.c).
 *
 * Only admission can find a cache full.  An admitted step still fails where memory is short, a
 * number or the selection of its maps is wrong, the call is cancelled or the recorder refuses.  A
 * failed step leaves its cache as it was: its rows were never published, its reservation ends. */
#include <string.h>

#include "attention/forward.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "calls/calls.h"
#include "models/model.h"

#define CALLER_ONLY_WORK 500000 /* multiply-adds: fewer are done before another thread wakes */

/* A step of the batch, beside its call. */
struct admitted {
    struct attn_step *step;
    struct attn_cache *replay_cache; /* of a repeated step whose own keys are forgotten; NULL */
    bool append;                     /* its rows are new, not computed again */
};

struct batch {
    struct attn_pass pass; /* a call for each step */
    const struct attn_model *model;
    struct attn_mask_defaults mask;
    struct admitted *admitted;      /* [count] */
    struct attn_appended *appended; /* [count] */
    float
        *zeros; /* keys and values of steps of a layer that reads an earlier one: the recorder's */
};

_Static_assert(sizeof(struct attn_projection) + ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES <=
                   ATTN_PRODUCT_BYTES,
               "footprint.c counts ATTN_PRODUCT_BYTES");
_Static_assert(sizeof(struct attn_call) + sizeof(struct attn_problem) + sizeof(struct admitted) +
                       sizeof(struct attn_appended) +
                       ATTN_POOLED_MAPS * sizeof(struct attn_pooling) + ATTN_ALIGN <=
                   ATTN_SEQUENCE_BYTES,
               "footprint.c counts ATTN_SEQUENCE_BYTES");

/* ---- Admission ---- */

static struct attn_call call_of(const struct batch *batch, const struct admitted *a)
{
    const struct attn_layer *layer = batch->pass.layer;
    struct attn_step *step = a->step;
    const bool is_cross = layer->spec.is_cross, weightless = layer->spec.is_weightless;
    const bool queries_only = is_cross || layer->spec.shares_layer != SIZE_MAX;
    return (struct attn_call){
        .modifiers = &step->modifiers,
        .outputs = &step->outputs,
        .error = &step->error,
        .batch = 1,
        .count = 1,
        .queries = step->rows,
        .keys = attn_step_keys(step, batch->model, batch->pass.layer_index),
        .new_keys = queries_only ? 0 : step->rows,
        .query_states = weightless ? step->query : step->hidden_states,
        .key_states = weightless ? step->key : step->hidden_states,
        .value_states = weightless ? step->value : step->hidden_states,
        .slot = is_cross ? 0 : step->position,
        .mask = &batch->mask,
        .cache = a->replay_cache != NULL ? a->replay_cache : step->cache,
        .puts = a->append || a->replay_cache != NULL,
        .batched = step->rows <= ATTN_BATCHED_ROWS,
    };
}

/* Checks a step and reserves room in its cache; on success the step is in the batch. */
static void admit(struct batch *batch, struct attn_step *step)
{
    struct attn_pass *pass = &batch->pass;
    struct attn_error *error = &step->error;
    *error = (struct attn_error){.status = ATTN_OK};
    if (attn_step_check(step, pass->engine, batch->model, pass->layer_index, error) != ATTN_OK)
        return;
    if (!attn_cache_claim(step->cache)) {
        attn_fail(error, ATTN_INVALID, "cache", "two steps of a batch name one cache");
        return;
    }
    struct admitted a = {.step = step};
    a.append = !pass->layer->spec.is_cross &&
               step->position == attn_cache_length(step->cache, pass->layer_index);
    if (attn_step_reserve(&a.replay_cache, step, pass->layer_index, a.append, error) != ATTN_OK) {
        attn_cache_unclaim(step->cache);
        return;
    }
    pass->calls[pass->count] = call_of(batch, &a);
    batch->admitted[pass->count++] = a;
}

/* ---- The end of a step ---- */

static bool publishes(const struct admitted *a)
{
    return a->step->error.status == ATTN_OK && a->step->commit && a->append;
}

/* Shows the recorder all rows that are to be published.  If it refuses, their steps fail. */
static void record(const struct batch *batch, const struct attn_recorder *recorder)
{
    const struct attn_pass *pass = &batch->pass;
    struct attn_error error = {0};
    size_t count = 0;
    for (size_t i = 0; i < pass->count; i++) {
        const size_t row = pass->calls[i].key_row;
        if (publishes(&batch->admitted[i]))
            batch->appended[count++] = (struct attn_appended){
                batch->admitted[i].step,
                batch->zeros != NULL ? batch->zeros : pass->k + row * pass->in.k->out,
                batch->zeros != NULL ? batch->zeros : pass->v + row * pass->value_width};
    }
    if (count == 0 || recorder->record(recorder->context, batch->appended, count, &error))
        return;
    for (size_t i = 0; i < pass->count; i++)
        if (publishes(&batch->admitted[i]))
            attn_fail(&batch->admitted[i].step->error, ATTN_IO, error.param, "%s", error.message);
}

/* ---- The batch ---- */

/* Takes what the recorder is shown. */
static bool alloc_appended(struct batch *batch)
{
    struct attn_workspace *workspace = &batch->pass.engine->workspace;
    const struct attn_layer *layer = batch->pass.layer;
    size_t rows = 0;
    batch->appended = attn_workspace_alloc(workspace, batch->pass.count, sizeof *batch->appended);
    if (layer->spec.shares_layer == SIZE_MAX)
        return batch->appended != NULL;
    for (size_t i = 0; i < batch->pass.count; i++)
        rows = attn_max(rows, batch->pass.calls[i].queries);
    const size_t floats = attn_mul(rows, attn_max(layer->k.out, layer->v.out));
    batch->zeros = attn_workspace_alloc(workspace, floats, sizeof *batch->zeros);
    if (batch->zeros != NULL)
        memset(batch->zeros, 0, floats * sizeof *batch->zeros);
    return batch->appended != NULL && batch->zeros != NULL;
}

static enum attn_status run(struct batch *batch)
{
    struct attn_pass *pass = &batch->pass;
    struct attn_pool *pool = pass->engine->pool;
    size_t work = 0;
    if (pass->count == 0)
        return ATTN_OK;
    for (size_t i = 0; i < pass->count; i++)
        work += attn_step_work(&pass->layer->spec, pass->calls[i].queries, pass->calls[i].keys);
    attn_pool_set_caller_only(pool, work < CALLER_ONLY_WORK);
    enum attn_status status = alloc_appended(batch) ? attn_pass_begin(pass) : ATTN_NO_MEMORY;
    if (status == ATTN_OK)
        status = attn_forward(pass);
    attn_pool_set_caller_only(pool, false);
    return status;
}

static enum attn_status fail_all(struct attn_step *const steps[], size_t count,
                                 enum attn_status status, const char *param, const char *message)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i]->error.status == ATTN_OK)
            attn_fail(&steps[i]->error, status, param, "%s", message);
    return status;
}

enum attn_status attn_decode(struct attn_engine *engine, const struct attn_model *model,
                             size_t layer, struct attn_step *const steps[], size_t count)
{
    return attn_decode_recorded(engine, model, layer, steps, count, NULL);
}

enum attn_status attn_decode_recorded(struct attn_engine *engine, const struct attn_model *model,
                                      size_t layer, struct attn_step *const steps[], size_t count,
                                      const struct attn_recorder *recorder)
{
    struct batch batch = {.model = model,
                          .pass = {.engine = engine,
                                   .layer = attn_model_loaded_layer(model, layer),
                                   .layer_index = layer}};
    for (size_t i = 0; i < count; i++)
        steps[i]->error.status = ATTN_OK;
    if (batch.pass.layer == NULL)
        return fail_all(steps, count, ATTN_NOT_FOUND, "layer", "the layer is not resident");
    batch.mask = attn_layer_mask_defaults(batch.pass.layer, !batch.pass.layer->spec.is_cross);
    attn_engine_lock(engine, count > 0 ? steps[0]->yield : NULL);
    batch.pass.calls = attn_workspace_alloc(&engine->workspace, count, sizeof *batch.pass.calls);
    batch.admitted = attn_workspace_alloc(&engine->workspace, count, sizeof *batch.admitted);
    enum attn_status status = ATTN_NO_MEMORY;
    if (batch.pass.calls != NULL && batch.admitted != NULL) {
        for (size_t i = 0; i < count; i++)
            admit(&batch, steps[i]);
        status = run(&batch);
    }
    if (status != ATTN_OK)
        fail_all(steps, count, status, NULL,
                 status == ATTN_CANCELLED ? "the call was told to stop" : "out of memory");
    if (recorder != NULL)
        record(&batch, recorder);
    for (struct admitted *a = batch.admitted; a < batch.admitted + batch.pass.count; a++) {
        const size_t position = a->step->position;
        if (publishes(a))
            attn_cache_publish(a->step->cache, layer, position + a->step->rows);
        attn_cache_unreserve(a->step->cache, layer);
        if (publishes(a))
            attn_cache_forget(a->step->cache, layer, position);
        attn_cache_free(a->replay_cache);
        attn_cache_unclaim(a->step->cache);
    }
    attn_engine_unlock(engine);
    return status;
}
