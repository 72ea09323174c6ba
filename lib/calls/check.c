/* check.c: the sizes of a call; and whether a step over a cache can be computed, over which keys,
 * and room for them. */
#include "attention/forward.h"
#include "attn_state.h"
#include "basics/status.h"
#include "calls/calls.h"
#include "engine/rope.h"
#include "models/model.h"

enum attn_status attn_call_check_sizes(size_t batch, size_t queries, size_t keys,
                                       struct attn_error *error)
{
    enum attn_status status = attn_check_count(batch, ATTN_MAX_BATCH, "batch", error);
    if (status == ATTN_OK)
        status = attn_check_count(queries, ATTN_MAX_TOKENS, "queries", error);
    if (status == ATTN_OK)
        status = attn_check_count(keys, ATTN_MAX_TOKENS, "keys", error);
    return status;
}

enum attn_status attn_call_check_layer(const struct attn_modifiers *modifiers,
                                       const struct attn_outputs *outputs,
                                       const struct attn_layer_spec *spec, size_t keys,
                                       struct attn_error *error)
{
    const bool mask =
        modifiers->attention_mask != NULL && modifiers->attention_mask_head_stride != 0;
    const bool bias =
        modifiers->attention_bias != NULL && modifiers->attention_bias_head_stride != 0;
    if (attn_layer_chooses_keys(spec) && spec->num_heads > 1 && (mask || bias))
        return attn_fail(error, ATTN_UNSUPPORTED, mask ? "attention_mask" : "attention_bias",
                         "an indexer or a dynamic mask chooses the keys of several heads "
                         "together: give them one attention_mask and one attention_bias, "
                         "[B,1,T,S]");
    if (outputs->ablation != NULL && attn_layer_joins_heads(spec))
        return attn_fail(
            error, ATTN_UNSUPPORTED, "ablation",
            "ablation: a head has no share of its own in a layer that normalises or "
            "subtracts heads together; compare with a call whose head_mask is 0 for it");
    if (spec->max_tokens == 0 || keys <= spec->max_tokens)
        return ATTN_OK;
    if (!attn_layer_shares_choice(spec))
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "%zu tokens: this layer has full attention up to %zu; longer sequences "
                         "attend otherwise (to blocks chosen at random, by the length of the "
                         "call, or without rows for their distances), which is not supported",
                         keys, spec->max_tokens);
    return modifiers->attention_mask != NULL && !modifiers->tree
               ? ATTN_OK
               : attn_fail(error, ATTN_UNSUPPORTED, "attention_mask",
                           "%zu tokens: beyond %zu this layer takes part with the keys that an "
                           "earlier layer's indexer chose: send them as attention_mask; "
                           "attention_scores of that layer at stage masked are minus infinity for "
                           "all others",
                           keys, spec->max_tokens);
}

size_t attn_step_keys(const struct attn_step *step, const struct attn_model *model, size_t layer)
{
    return attn_model_layer(model, layer)->is_cross ? attn_cache_length(step->cache, layer)
                                                    : step->position + step->rows;
}

/* A step of cross-attention reads what is cached, wherever its rows stand in their own sequence. */
static enum attn_status check_cross(const struct attn_step *step, size_t length,
                                    struct attn_error *error)
{
    if (length == 0)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache holds no encoder rows");
    if (step->modifiers.tree)
        return attn_fail(error, ATTN_UNSUPPORTED, "attention_mask",
                         "a mask of new rows among themselves needs rows that are appended");
    return ATTN_OK;
}

/* Longrope rotates all keys of a sequence by the long factors once it passes the trained length.
 * Cached keys are not rotated again, so a step must not take a session across. */
static enum attn_status check_rotation(const struct attn_step *step,
                                       const struct attn_layer_spec *spec, struct attn_error *error)
{
    const size_t trained = attn_rope_short_length(&spec->rope);
    const int64_t *positions = step->modifiers.position_ids;
    const int64_t first = positions != NULL ? positions[0] : (int64_t)step->position;
    const int64_t length = attn_qkv_length(positions, step->rows, first);
    if (trained == 0 || step->position == 0 ||
        (first > (int64_t)trained) == (length > (int64_t)trained))
        return ATTN_OK;
    return attn_fail(error, ATTN_ROPE_CHANGES, "position",
                     "longrope turns all keys of a sequence otherwise once it passes the trained "
                     "length, %zu, and the %zu cached ones are not turned again: prefill a new "
                     "session with all tokens in one step",
                     trained, step->position);
}

static enum attn_status check_self(const struct attn_step *step, const struct attn_layer_spec *spec,
                                   size_t length, struct attn_error *error)
{
    if (step->position > length ||
        (step->position < length && step->rows > length - step->position))
        return attn_fail(error, ATTN_INVALID, "position",
                         "%zu rows at position %zu neither follow nor repeat a cache of %zu tokens",
                         step->rows, step->position, length);
    if (spec->key_size != spec->hidden_size || spec->value_size != spec->hidden_size)
        return attn_fail(error, ATTN_UNSUPPORTED, "hidden_states",
                         "a layer whose keys and values have other widths has no cache");
    if (step->modifiers.query_offset != NULL)
        return attn_fail(error, ATTN_INVALID, "query_offset",
                         "query_offset follows from the cache");
    return check_rotation(step, spec, error);
}

static enum attn_status check_given_rows(const struct attn_step *step, struct attn_engine *engine,
                                         const struct attn_layer_spec *spec,
                                         struct attn_error *error)
{
    const size_t queries = step->rows * spec->num_heads, keys = step->rows * spec->num_kv_heads;
    if (step->query == NULL || step->key == NULL || step->value == NULL)
        return attn_fail(error, ATTN_INVALID, "query",
                         "a step of a weightless model needs query, key and value");
    const struct attn_outputs *out = &step->outputs;
    if (out->ablation != NULL || out->query != NULL || out->head_output != NULL ||
        out->concat != NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "outputs",
                         "a weightless model has no query, head_output, concat and ablation");
    enum attn_status status =
        attn_input_check(engine, step->query, queries * spec->head_dim, "query", error);
    if (status == ATTN_OK)
        status = attn_input_check(engine, step->key, keys * spec->head_dim, "key", error);
    if (status == ATTN_OK)
        status = attn_input_check(engine, step->value, keys * spec->value_head_dim, "value", error);
    return status;
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
    if (attn_layer_needs_grid(spec))
        return attn_fail(error, ATTN_UNSUPPORTED, "cache",
                         "this layer attends to all patches of an image at once: it has no steps");
    status =
        spec->is_cross ? check_cross(step, length, error) : check_self(step, spec, length, error);
    if (status == ATTN_OK)
        status = attn_call_check_layer(&step->modifiers, &step->outputs, spec,
                                       attn_step_keys(step, model, layer), error);
    if (status == ATTN_OK)
        status = attn_mask_check(&step->modifiers, 1, spec->num_heads, step->rows,
                                 attn_step_keys(step, model, layer), error);
    if (status != ATTN_OK)
        return status;
    if (spec->is_weightless)
        return check_given_rows(step, engine, spec, error);
    return attn_input_check(engine, step->hidden_states, step->rows * spec->hidden_size,
                            "hidden_states", error);
}

enum attn_status attn_step_reserve(struct attn_cache **replay, const struct attn_step *step,
                                   size_t layer, bool append, struct attn_error *error)
{
    *replay = NULL;
    if (append)
        return attn_cache_reserve(step->cache, layer, step->position, step->rows, error);
    if (step->position > 0 || attn_cache_first(step->cache, layer) == 0 ||
        attn_cache_shares_layer(step->cache, layer))
        return ATTN_OK;
    enum attn_status status = attn_cache_fork(replay, step->cache, 0, error);
    if (status != ATTN_OK)
        return status;
    status = attn_cache_reserve(*replay, layer, 0, step->rows, error);
    if (status != ATTN_OK)
        attn_cache_free(*replay);
    return status;
}
