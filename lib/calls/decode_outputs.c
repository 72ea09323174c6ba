/* decode_outputs.c: the outputs of a batch of steps: checked, and copied to the callers. */
#include <float.h>
#include <string.h>

#include "attention/copies.h"
#include "attention/qkv.h"
#include "basics/status.h"
#include "calls/decode.h"
#include "calls/step_check.h"
#include "layers/ablation.h"

/* Checks a step's output, and copies it to the caller where the step shared products. */
static enum attn_status finish_output(const struct batch *batch, const struct admitted *a)
{
    struct attn_step *step = a->step;
    const bool shared = place_of(step) == SHARED_WITH_OUTPUT;
    size_t width = batch->layer->o.out, n = step->rows * width;
    const float *output = shared ? batch->y + a->row * width : step->outputs.output;
    const bool weightless = batch->layer->spec.is_weightless;
    if (atomic_load(&a->kv_overflow))
        return attn_fail(&step->error, ATTN_OVERFLOW, weightless ? "key" : "hidden_states",
                         "a key or value does not fit the cache's %s",
                         attn_dtype_name(batch->layer->spec.kv_dtype));
    if (atomic_load(&a->failed))
        return attn_qkv_fail(&batch->layer->spec, &step->error);
    if (weightless) /* the output is a copy of what heads put out */
        return ATTN_OK;
    if (atomic_load(&a->output_overflow) ||
        (shared && !attn_engine_all_within(batch->engine, output, n, FLT_MAX)))
        return attn_fail(&step->error, ATTN_OVERFLOW, "hidden_states",
                         "the output does not fit float32");
    if (shared)
        memcpy(step->outputs.output, output, n * sizeof(float));
    const struct attn_ablated ablated = {batch->layer, batch->o + a->row * batch->layer->o.in,
                                         output, 1, step->rows};
    return step->outputs.ablation == NULL
               ? ATTN_OK
               : attn_ablate(step->outputs.ablation, batch->engine, &ablated, &step->error);
}

static enum attn_status copy_outputs(const struct batch *batch, const struct admitted *a)
{
    const struct attn_step *step = a->step;
    const struct attn_layer *layer = batch->layer;
    struct attn_pool *pool = batch->engine->pool;
    const struct attn_outputs weightless = {.head_output = step->outputs.output};
    const struct attn_copies copies = {.spec = &layer->spec,
                                       .outputs =
                                           layer->spec.is_weightless ? &weightless : &step->outputs,
                                       .count = 1,
                                       .queries = step->rows,
                                       .q = batch->q + a->row * layer->q.out,
                                       .o = batch->o + a->row * layer->o.in};
    attn_copy_rows(pool, &copies);
    return attn_copy_cached(batch->engine, layer, &step->outputs, a->cache, batch->layer_index,
                            attn_step_keys(step, batch->model, batch->layer_index));
}

void attn_decode_write_outputs(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->admitted[i].step->error.status == ATTN_OK)
            (void)finish_output(batch, &batch->admitted[i]);
    for (size_t i = 0; i < batch->count; i++)
        if (batch->admitted[i].step->error.status == ATTN_OK &&
            copy_outputs(batch, &batch->admitted[i]) != ATTN_OK)
            attn_fail_memory(&batch->admitted[i].step->error, 0);
}
