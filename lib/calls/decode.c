/* decode.c: steps over caches: many sequences of one layer as one batch.
 *
 *   admit (check, reserve blocks) -> project -> postprocess (norm, RoPE, bounds; put k and v in the
 *   cache, after its visible length) -> solve -> gate -> project -> check -> record -> publish the
 *   length
 *
 * A step of cross-attention projects queries alone, and appends and publishes nothing: its keys are
 * the encoder rows of its cache (encode.c).
 *
 * Only admission can find a cache full.  An admitted step still fails where memory is short, a
 * number or the selection of its maps is wrong, the call is cancelled or the recorder refuses.  A
 * failed step leaves its cache as it was: its rows were never published, its reservation ends.
 *
 * Batch invariance: steps of up to ATTN_SHARED_ROWS rows share products, in which rows are
 * independent.  A longer step (a prefill) has products of its own, which spares copying its rows.
 * Attention reads only the tiles of the step's own sequence, so no other step changes its rows. */
#include <float.h>
#include <stdatomic.h>
#include <string.h>

#include "attention/attention.h"
#include "attention/copies.h"
#include "attention/qkv.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "calls/decode.h"
#include "calls/step_check.h"
#include "engine/rope.h"
#include "layers/ablation.h"
#include "models/model.h"

#define CALLER_ONLY_WORK 500000 /* multiply-adds: fewer are done before another thread wakes */

/* ---- Admission ---- */

/* Checks a step and reserves room in its cache; on success the step is in the batch. */
static void admit(struct batch *batch, struct attn_step *step)
{
    struct attn_error *error = &step->error;
    *error = (struct attn_error){.status = ATTN_OK};
    if (attn_step_check(step, batch->engine, batch->model, batch->layer_index, error) != ATTN_OK)
        return;
    if (!attn_cache_claim(step->cache)) {
        attn_fail(error, ATTN_INVALID, "cache", "two steps of a batch name one cache");
        return;
    }
    struct admitted a = {.step = step};
    a.append = !batch->layer->spec.is_cross &&
               step->position == attn_cache_length(step->cache, batch->layer_index);
    if (attn_step_reserve(&a.again, step, batch->layer_index, a.append, error) != ATTN_OK) {
        attn_cache_unclaim(step->cache);
        return;
    }
    a.cache = a.again != NULL ? a.again : step->cache;
    batch->admitted[batch->count++] = a;
}

/* Gives every step its rows in the buffers. */
static void assign_rows(struct batch *batch)
{
    size_t end[PLACES];
    for (enum place place = 0; place < PLACES; place++) {
        for (size_t i = 0; i < batch->count; i++) {
            struct admitted *a = &batch->admitted[i];
            if (place_of(a->step) != place)
                continue;
            a->row = batch->rows;
            batch->rows += a->step->rows;
        }
        end[place] = batch->rows;
    }
    batch->output_rows = end[SHARED_WITH_OUTPUT];
    batch->shared_rows = end[SHARED];
}

/* Takes memory for one step; where memory is short only that step fails. */
static void *take_for_step(const struct batch *batch, struct admitted *a, size_t count, size_t size)
{
    void *own = attn_workspace_take(&batch->engine->workspace, count, size);
    if (own == NULL) {
        attn_fail_memory(&a->step->error, attn_mul(count, size));
        atomic_store(&a->failed, true);
    }
    return own;
}

/* Prepares a step's frequencies, positions and maps.  An error fails only that step. */
static void prepare(const struct batch *batch, struct admitted *a)
{
    const struct attn_layer *layer = batch->layer;
    struct attn_step *step = a->step;
    size_t keys = attn_step_keys(step, batch->model, batch->layer_index);
    size_t half = layer->spec.rope.dim / 2, slot = attn_step_slot(step, &layer->spec);
    int64_t length = attn_qkv_length(step->modifiers.position_ids, step->rows, (int64_t)slot);
    float *rescaled = NULL;
    if (attn_rope_is_rescaled(&layer->spec.rope, length) &&
        (rescaled = take_for_step(batch, a, half, sizeof *rescaled)) == NULL)
        return;
    a->inv_freq = attn_qkv_frequencies(rescaled, layer, length);
    if (attn_mask_needs_positions(&step->modifiers, &layer->position_bias) &&
        (a->positions =
             take_for_step(batch, a, attn_add(keys, step->rows), sizeof *a->positions)) == NULL)
        return;
    const size_t heads = layer->spec.num_heads, columns = keys + layer->extra;
    /* The caller has made room for sums of pooled maps by the layer's own key/value heads. */
    const size_t groups = step->outputs.pool.rows == 0 ? batch->latents.groups : 0;
    const struct attn_map_sizes sizes = {.batch = 1,
                                         .num_heads = heads,
                                         .num_kv_heads =
                                             groups > 0 ? groups : layer->spec.num_kv_heads,
                                         .queries = step->rows,
                                         .keys = keys,
                                         .columns = columns};
    if (attn_maps_init(&a->maps, &batch->engine->workspace, &step->outputs, &sizes, &step->error) !=
        ATTN_OK)
        atomic_store(&a->failed, true);
}

static bool take_buffers(struct batch *batch)
{
    struct attn_workspace *workspace = &batch->engine->workspace;
    const struct attn_layer *layer = batch->layer;
    const size_t new_keys = layer->spec.is_cross ? 0 : batch->rows;
    const struct {
        float **buffer;
        size_t rows, width;
    } buffers[] = {
        {&batch->x, batch->shared_rows, batch->in.q->in},
        {&batch->q, batch->rows, layer->q.out},
        {&batch->k, new_keys, batch->in.k->out},
        {&batch->v, new_keys, batch->in.v->out},
        {&batch->o, batch->rows, layer->o.in},
        {&batch->y, batch->output_rows, layer->o.out},
        {&batch->gate, batch->rows, layer->gate.out},
    };
    bool taken = true;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i].buffer = attn_workspace_take(
            workspace, attn_mul(buffers[i].rows, buffers[i].width), sizeof(float));
        taken = taken && *buffers[i].buffer != NULL;
    }
    if (taken && layer->spec.shares_layer != SIZE_MAX) { /* what the recorder is shown */
        memset(batch->k, 0, batch->rows * layer->k.out * sizeof *batch->k);
        memset(batch->v, 0, batch->rows * layer->v.out * sizeof *batch->v);
    }
    batch->first = batch->q;
    if (attn_layer_is_latent(layer)) {
        taken = attn_latent_rows_take(&batch->latents, batch->engine, layer, batch->q, batch->rows,
                                      true) &&
                taken;
        batch->first = batch->latents.q_a;
    }
    batch->products =
        attn_workspace_take(workspace, PRODUCTS * (batch->count + 1), sizeof *batch->products);
    batch->problems = attn_workspace_take(workspace, batch->count, sizeof *batch->problems);
    batch->appended = attn_workspace_take(workspace, batch->count, sizeof *batch->appended);
    return taken && batch->products != NULL && batch->problems != NULL && batch->appended != NULL;
}

/* ---- Computing ---- */

static size_t add_products(const struct batch *batch, size_t n, const float *x, size_t row,
                           size_t rows)
{
    const struct attn_layer_inputs *in = &batch->in;
    const struct attn_linear *gate = &batch->layer->gate;
    struct attn_projection *p = &batch->products[n];
    *p++ = attn_projection_of(in->q, x, batch->first + row * in->q->out, rows);
    if (!attn_queries_only(&batch->layer->spec)) {
        *p++ = attn_projection_of(in->k, x, batch->k + row * in->k->out, rows);
        *p++ = attn_projection_of(in->v, x, batch->v + row * in->v->out, rows);
    }
    if (gate->out != 0)
        *p++ = attn_projection_of(gate, x, batch->gate + row * gate->out, rows);
    return (size_t)(p - batch->products);
}

static enum attn_status project_in(const struct batch *batch)
{
    size_t width = batch->in.q->in, n = 0;
    if (batch->layer->spec.is_weightless)
        return ATTN_OK;
    for (size_t i = 0; i < batch->count; i++) {
        const struct admitted *a = &batch->admitted[i];
        if (shares_products(a->step))
            memcpy(batch->x + a->row * width, a->step->hidden_states,
                   a->step->rows * width * sizeof(float));
    }
    if (batch->shared_rows > 0) {
        size_t products = add_products(batch, 0, batch->x, 0, batch->shared_rows);
        if (attn_project(batch->engine, batch->products, products, true) != ATTN_OK)
            return ATTN_NO_MEMORY;
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct admitted *a = &batch->admitted[i];
        if (!shares_products(a->step))
            n = add_products(batch, n, a->step->hidden_states, a->row, a->step->rows);
    }
    enum attn_status status = attn_project(batch->engine, batch->products, n, false);
    return status == ATTN_OK && attn_layer_is_latent(batch->layer)
               ? attn_mla_project(batch->engine, batch->layer, batch->q, batch->first, batch->k,
                                  batch->rows)
               : status;
}

/* The step that row r of the batch belongs to. */
static struct admitted *step_of_row(const struct batch *batch, size_t r)
{
    struct admitted *a = batch->admitted;
    while (r < a->row || r - a->row >= a->step->rows)
        a++;
    return a;
}

static void norm_rotate_and_cache_row(const struct batch *batch, struct admitted *a, size_t r)
{
    const struct attn_layer *layer = batch->layer;
    const struct attn_step *step = a->step;
    struct attn_qkv row = {.q = batch->q + r * layer->q.out};
    if (!attn_queries_only(&layer->spec)) {
        row.k = batch->k + r * batch->in.k->out;
        row.v = batch->v + r * batch->in.v->out;
    }
    size_t i = r - a->row, slot = attn_step_slot(step, &layer->spec) + i;
    const int64_t *positions = step->modifiers.position_ids;
    if (layer->spec.is_weightless)
        attn_qkv_take_given(row, &layer->spec, step, i);
    const struct attn_kernels *kernels = &batch->engine->kernels;
    bool within =
        attn_qkv_postprocess(row, layer, kernels, a->inv_freq,
                             positions ? positions[i] : (int64_t)slot, slot) &&
        kernels->all_within(batch->gate + r * layer->gate.out, layer->gate.out, ATTN_MAX_MAGNITUDE);
    bool puts = a->append || a->again != NULL;
    bool fits = !puts || attn_cache_put(a->cache, batch->layer_index, slot, row.k, row.v);
    if (!within || !fits)
        atomic_store(&a->failed, true);
    if (within && !fits)
        atomic_store(&a->kv_overflow, true);
}

#define POSTPROCESS_ROWS 16 /* of one task */

static void postprocess_task(void *argument, size_t i, unsigned thread)
{
    const struct batch *batch = argument;
    size_t end = attn_min((i + 1) * POSTPROCESS_ROWS, batch->rows);
    struct admitted *a = NULL;
    (void)thread;
    for (size_t r = i * POSTPROCESS_ROWS; r < end; r++) {
        if (a == NULL || r - a->row >= a->step->rows)
            a = step_of_row(batch, r);
        norm_rotate_and_cache_row(batch, a, r);
    }
}

/* Makes the queries for latents; a step fails where one is beyond its bound. */
static enum attn_status absorb(const struct batch *batch)
{
    const struct attn_layer *layer = batch->layer;
    enum attn_status status =
        attn_mla_absorb(batch->engine, layer, batch->latents.absorbed, batch->q, batch->rows);
    for (size_t i = 0; status == ATTN_OK && i < batch->count; i++) {
        struct admitted *a = &batch->admitted[i];
        if (!attn_latent_rows_within(&batch->latents, batch->engine, &layer->spec, a->row,
                                     a->step->rows))
            atomic_store(&a->failed, true);
    }
    return status;
}

/* Makes the outputs of heads of weighted sums of latents; a step fails where one is not finite. */
static enum attn_status lift(const struct batch *batch)
{
    const size_t width = batch->layer->o.in;
    enum attn_status status =
        attn_mla_lift(batch->engine, batch->layer, batch->o, batch->latents.sums, batch->rows);
    for (size_t i = 0; status == ATTN_OK && i < batch->count; i++) {
        struct admitted *a = &batch->admitted[i];
        if (!atomic_load(&a->failed) && attn_outputs_need_heads(&a->step->outputs) &&
            !attn_engine_all_within(batch->engine, batch->o + a->row * width, a->step->rows * width,
                                    FLT_MAX))
            atomic_store(&a->output_overflow, true);
    }
    return status;
}

static struct attn_problem step_problem(const struct batch *batch, const struct admitted *a)
{
    const struct attn_layer *layer = batch->layer;
    const struct attn_step *step = a->step;
    const struct attn_mask_defaults defaults =
        attn_layer_mask_defaults(layer, !layer->spec.is_cross);
    struct attn_problem p = attn_layer_problem(layer, &step->modifiers);
    p.queries = step->rows;
    p.keys = attn_step_keys(step, batch->model, batch->layer_index);
    p.q = (struct attn_rows){batch->q + a->row * layer->q.out, layer->q.out, p.head_dim};
    if (attn_outputs_need_heads(&step->outputs))
        p.out = (struct attn_rows){batch->o + a->row * layer->o.in, layer->o.in, p.value_head_dim};
    p.cache = attn_cache_view(a->cache, batch->layer_index);
    if (attn_layer_is_latent(layer))
        attn_latent_rows_set(&p, &batch->latents, &layer->spec, a->row,
                             step->outputs.pool.rows == 0);
    p.invariant = shares_products(step);
    attn_problem_set_modifiers(&p, &defaults, &step->modifiers, a->positions, &a->maps,
                               step->outputs.lse, 0);
    return p;
}

static enum attn_status solve(const struct batch *batch)
{
    const bool latent = attn_layer_is_latent(batch->layer);
    enum attn_status status = latent ? absorb(batch) : ATTN_OK;
    size_t n = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct admitted *a = &batch->admitted[i];
        if (atomic_load(&a->failed))
            continue;
        batch->problems[n] = step_problem(batch, a);
        if (attn_step_check_kept(&batch->problems[n], &a->step->error) == ATTN_OK)
            n++;
    }
    if (status == ATTN_OK)
        status = attn_solve(batch->engine, batch->problems, n);
    return status == ATTN_OK && latent ? lift(batch) : status;
}

static enum attn_status project_out(const struct batch *batch)
{
    const struct attn_linear *o = &batch->layer->o;
    size_t n = 0;
    if (batch->layer->spec.is_weightless)
        return ATTN_OK;
    if (batch->output_rows > 0) {
        batch->products[0] = attn_projection_of(o, batch->o, batch->y, batch->output_rows);
        if (attn_project(batch->engine, batch->products, 1, true) != ATTN_OK)
            return ATTN_NO_MEMORY;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct admitted *a = &batch->admitted[i];
        float *output = a->step->outputs.output;
        if (shares_products(a->step) || output == NULL)
            continue;
        struct attn_projection *p = &batch->products[n++];
        *p = attn_projection_of(o, batch->o + a->row * o->in, output, a->step->rows);
        p->limit = FLT_MAX;
        p->beyond = &a->output_overflow;
    }
    return attn_project(batch->engine, batch->products, n, false);
}

/* ---- The end of a step ---- */

static bool publishes(const struct admitted *a)
{
    return a->step->error.status == ATTN_OK && a->step->commit && a->append;
}

/* Shows the recorder all rows that are to be published.  If it refuses, their steps fail. */
static void record(const struct batch *batch, const struct attn_recorder *recorder)
{
    struct attn_error error = {0};
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (publishes(&batch->admitted[i]))
            batch->appended[count++] = (struct attn_appended){
                batch->admitted[i].step, batch->k + batch->admitted[i].row * batch->in.k->out,
                batch->v + batch->admitted[i].row * batch->in.v->out};
    if (count == 0 || recorder->record(recorder->context, batch->appended, count, &error))
        return;
    for (size_t i = 0; i < batch->count; i++)
        if (publishes(&batch->admitted[i]))
            attn_fail(&batch->admitted[i].step->error, ATTN_IO, error.param, "%s", error.message);
}

static void end_step(const struct batch *batch, const struct admitted *a)
{
    struct attn_step *step = a->step;
    if (publishes(a))
        attn_cache_publish(step->cache, batch->layer_index, step->position + step->rows);
    attn_cache_unreserve(step->cache, batch->layer_index);
    if (publishes(a))
        attn_cache_forget(step->cache, batch->layer_index, step->position);
    attn_cache_free(a->again);
    attn_cache_unclaim(step->cache);
}

static enum attn_status run(struct batch *batch)
{
    if (!take_buffers(batch))
        return ATTN_NO_MEMORY;
    for (size_t i = 0; i < batch->count; i++)
        prepare(batch, &batch->admitted[i]);
    enum attn_status status = project_in(batch);
    if (status != ATTN_OK)
        return status;
    attn_pool_run(batch->engine->pool, postprocess_task, batch,
                  attn_ceil_div(batch->rows, POSTPROCESS_ROWS));
    status = solve(batch);
    attn_gate_rows(batch->engine->pool, batch->o, batch->gate, batch->rows, batch->layer->gate.out);
    if (status == ATTN_OK)
        status = project_out(batch);
    if (status == ATTN_OK && !attn_engine_cancelled(batch->engine, NULL))
        attn_decode_write_outputs(batch);
    return attn_engine_cancelled(batch->engine, NULL) ? ATTN_CANCELLED : status;
}

static enum attn_status fail_all(struct attn_step *const steps[], size_t count,
                                 enum attn_status status, const char *param, const char *message)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i]->error.status == ATTN_OK)
            attn_fail(&steps[i]->error, status, param, "%s", message);
    return status;
}

static size_t work_of(const struct batch *batch)
{
    size_t work = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct attn_step *step = batch->admitted[i].step;
        work += attn_step_work(&batch->layer->spec, step->rows,
                               attn_step_keys(step, batch->model, batch->layer_index));
    }
    return work;
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
    struct batch batch = {.engine = engine,
                          .model = model,
                          .layer = attn_model_loaded_layer(model, layer),
                          .layer_index = layer};
    for (size_t i = 0; i < count; i++)
        steps[i]->error.status = ATTN_OK;
    if (batch.layer == NULL)
        return fail_all(steps, count, ATTN_NOT_FOUND, "layer", "the layer is not resident");
    batch.in = attn_layer_inputs(batch.layer);
    attn_engine_lock(engine, count > 0 ? steps[0]->yield : NULL);
    enum attn_status status = ATTN_NO_MEMORY;
    batch.admitted = attn_workspace_take(&engine->workspace, count, sizeof *batch.admitted);
    if (batch.admitted != NULL) {
        for (size_t i = 0; i < count; i++)
            admit(&batch, steps[i]);
        assign_rows(&batch);
        attn_pool_set_caller_only(engine->pool, work_of(&batch) < CALLER_ONLY_WORK);
        status = batch.count > 0 ? run(&batch) : ATTN_OK;
        attn_pool_set_caller_only(engine->pool, false);
    }
    if (status != ATTN_OK)
        fail_all(steps, count, status, NULL,
                 status == ATTN_CANCELLED ? "the call was told to stop" : "out of memory");
    if (recorder != NULL)
        record(&batch, recorder);
    for (size_t i = 0; i < batch.count; i++)
        end_step(&batch, &batch.admitted[i]);
    attn_engine_unlock(engine);
    return status;
}
