/* step_check.c: whether a step over a cache can be computed, and its work. */
#include "step_check.h"

#include "attention.h"
#include "attn_limits.h"
#include "kvcache.h"
#include "mask.h"
#include "mla.h"
#include "qkv.h"
#include "status.h"

static enum attn_status check_layer(const struct attn_layer_spec *spec, struct attn_error *error)
{
    if (spec->is_cross)
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "a layer that attends over another sequence has no cache");
    if (spec->key_size != spec->hidden_size || spec->value_size != spec->hidden_size)
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "a layer whose keys and values have other widths has no cache");
    return ATTN_OK;
}

enum attn_status attn_step_check(const struct attn_step *step, struct attn_engine *engine,
                                 const struct attn_model *model, size_t layer,
                                 struct attn_error *error)
{
    const struct attn_layer_spec *spec = &attn_model_loaded_layer(model, layer)->spec;
    if (attn_cache_model(step->cache) != model)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache belongs to another model");
    size_t length = attn_cache_length(step->cache, layer);
    enum attn_status status = attn_check_count(step->rows, ATTN_MAX_TOKENS, "rows", error);
    if (status != ATTN_OK)
        return status;
    if (step->position > length ||
        (step->position < length && step->rows > length - step->position))
        return attn_fail(error, ATTN_INVALID, "position",
                         "%zu rows at position %zu neither follow nor repeat a cache of %zu tokens",
                         step->rows, step->position, length);
    if (check_layer(spec, error) != ATTN_OK)
        return error->status;
    if (step->modifiers.query_offset != NULL)
        return attn_fail(error, ATTN_INVALID, "query_offset",
                         "query_offset follows from the cache");
    status = attn_mask_check(&step->modifiers, 1, spec->num_heads, step->rows,
                             step->position + step->rows, error);
    if (status != ATTN_OK)
        return status;
    return attn_input_check(engine, step->hidden_states, step->rows * spec->hidden_size,
                            "hidden_states", error);
}

size_t attn_step_work(const struct attn_layer_spec *spec, size_t rows, size_t keys)
{
    size_t heads = spec->num_heads * (spec->head_dim + spec->value_head_dim);
    size_t kv_heads = spec->num_kv_heads * (spec->head_dim + spec->value_head_dim);
    size_t gates = spec->output_gate ? spec->num_heads * spec->value_head_dim : 0;
    if (spec->mla.kv_lora_rank > 0)
        return attn_mla_step_work(spec, rows, keys);
    return rows * (spec->hidden_size * (heads + kv_heads + gates) + keys * heads);
}
