/* layer_json.c: writes the members of a layer's specification. */
#include "api/endpoints.h"

#include "wire/document.h"

static json_t *doubles_json(const double *numbers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        srv_document_append(&list, json_real(numbers[i]));
    return list;
}

static const char *rope_name(enum attn_rope_type type)
{
    static const char *const names[ATTN_NUM_ROPE_TYPES] = {
        [ATTN_ROPE_NONE] = "none",         [ATTN_ROPE_DEFAULT] = "default",
        [ATTN_ROPE_LINEAR] = "linear",     [ATTN_ROPE_DYNAMIC] = "dynamic",
        [ATTN_ROPE_YARN] = "yarn",         [ATTN_ROPE_LLAMA3] = "llama3",
        [ATTN_ROPE_LONGROPE] = "longrope", [ATTN_ROPE_PROPORTIONAL] = "proportional",
    };
    return names[type];
}

/* Adds the numbers that only some types of rotation have. */
static void add_rope_numbers(json_t **json, const struct attn_rope_spec *rope)
{
    enum {
        LINEAR = 1 << ATTN_ROPE_LINEAR,
        DYNAMIC = 1 << ATTN_ROPE_DYNAMIC,
        YARN = 1 << ATTN_ROPE_YARN,
        LLAMA3 = 1 << ATTN_ROPE_LLAMA3,
        LONGROPE = 1 << ATTN_ROPE_LONGROPE,
    };
    const struct {
        const char *name;
        double value;
        unsigned types;
    } numbers[] = {
        {"factor", rope->factor, LINEAR | DYNAMIC | YARN | LLAMA3},
        {"attention_factor", rope->attention_factor, YARN | LONGROPE},
        {"low_freq_factor", rope->low_freq_factor, LLAMA3},
        {"high_freq_factor", rope->high_freq_factor, LLAMA3},
        {"beta_fast", rope->beta_fast, YARN},
        {"beta_slow", rope->beta_slow, YARN},
        {"original_max_position_embeddings", rope->original_max_position,
         DYNAMIC | YARN | LLAMA3 | LONGROPE},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if ((numbers[i].types >> rope->type & 1) != 0)
            srv_document_set(json, numbers[i].name, json_real(numbers[i].value));
}

static json_t *rope_json(const struct attn_rope_spec *rope)
{
    if (rope->type == ATTN_ROPE_NONE)
        return json_null();
    json_t *json =
        json_pack("{s:s, s:f, s:I, s:b}", "type", rope_name(rope->type), "theta", rope->theta,
                  "dim", (json_int_t)rope->dim, "interleaved", rope->interleaved);
    add_rope_numbers(&json, rope);
    if (rope->reversed)
        srv_document_set(&json, "reversed", json_true());
    if (rope->grid_prefix > 0)
        srv_document_set(&json, "grid_prefix", json_integer((json_int_t)rope->grid_prefix));
    if (rope->type == ATTN_ROPE_YARN)
        srv_document_set(&json, "truncate", json_boolean(rope->truncate));
    if (rope->type == ATTN_ROPE_PROPORTIONAL)
        srv_document_set(&json, "proportional_dim",
                         json_integer((json_int_t)rope->proportional_dim));
    if (rope->long_attention_factor > 0)
        srv_document_set(&json, "long_attention_factor", json_real(rope->long_attention_factor));
    if (rope->type == ATTN_ROPE_LONGROPE) {
        srv_document_set(&json, "short_factor", doubles_json(rope->short_factor, rope->dim / 2));
        srv_document_set(&json, "long_factor", doubles_json(rope->long_factor, rope->dim / 2));
    }
    return json;
}

static json_t *position_bias_json(const struct attn_position_bias_spec *bias)
{
    json_t *json = json_null();
    switch (bias->type) {
    case ATTN_BIAS_NONE:
        break;
    case ATTN_BIAS_ALIBI:
        json = json_pack("{s:s, s:f, s:b, s:b}", "type", "alibi", "scale", bias->scale, "bfloat16",
                         bias->bfloat16, "by_slot", bias->by_slot);
        if (bias->bidirectional)
            srv_document_set(&json, "bidirectional", json_true());
        return json;
    case ATTN_BIAS_DISENTANGLED:
        json = json_pack("{s:s, s:I, s:I, s:b, s:b}", "type", "disentangled", "buckets",
                         (json_int_t)bias->buckets, "max_distance", (json_int_t)bias->max_distance,
                         "content_to_position", bias->content_to_position, "position_to_content",
                         bias->position_to_content);
        if (bias->own_projections)
            srv_document_set(&json, "own_projections", json_true());
        if (bias->own_key_bias)
            srv_document_set(&json, "own_key_bias", json_true());
        if (bias->table_norm)
            srv_document_set(&json, "table_norm_eps", json_real(bias->table_norm_eps));
        break;
    case ATTN_BIAS_T5:
        json = json_pack("{s:s, s:I, s:I, s:b}", "type", "t5", "buckets", (json_int_t)bias->buckets,
                         "max_distance", (json_int_t)bias->max_distance, "bidirectional",
                         bias->bidirectional);
        if (bias->gated)
            srv_document_set(&json, "gated", json_true());
        break;
    case ATTN_BIAS_RELATIVE_KEY:
        json = json_pack("{s:s, s:I, s:I}", "type", "relative_key", "max_distance",
                         (json_int_t)bias->max_distance, "max_after", (json_int_t)bias->max_after);
        if (bias->backward)
            srv_document_set(&json, "backward", json_true());
        if (bias->position_to_content)
            srv_document_set(&json, "position_to_content", json_true());
        break;
    case ATTN_BIAS_GRID:
        return json_pack("{s:s, s:I}", "type", "grid", "grid", (json_int_t)bias->grid);
    }
    return json;
}

static const char *mask_kind(const struct attn_layer_spec *spec)
{
    if (spec->attention_chunk_size > 0)
        return "chunked";
    return spec->sliding_window > 0 ? "sliding_window" : spec->is_causal ? "causal" : "full";
}

static json_t *norm_json(const struct attn_norm_spec *norm)
{
    static const char *const types[] = {"none", "rms", "layer"};
    static const char *const extents[] = {"head", "each_head", "all_heads"};
    if (norm->type == ATTN_NORM_NONE)
        return json_null();
    return json_pack("{s:s, s:f, s:s, s:b, s:b, s:b}", "type", types[norm->type], "eps", norm->eps,
                     "extent", extents[norm->extent], "weightless", norm->weightless, "bias",
                     norm->bias, "after_rope", norm->after_rope);
}

static json_t *query_scaling_json(const struct attn_query_scaling *scaling)
{
    if (scaling->period == 0)
        return json_null();
    return json_pack("{s:f, s:f, s:b, s:b}", "beta", scaling->beta, "period", scaling->period,
                     "next", scaling->next, "by_slot", scaling->by_slot);
}

static json_t *count_or_null(size_t count)
{
    return count > 0 ? json_integer((json_int_t)count) : json_null();
}

static json_t *number_or_null(double number)
{
    return number != 0 ? json_real(number) : json_null();
}

static json_t *mla_json(const struct attn_mla_spec *mla)
{
    if (mla->kv_lora_rank == 0)
        return json_null();
    const struct attn_indexer_spec *index = &mla->index;
    json_t *indexer =
        index->num_heads == 0
            ? json_null()
            : json_pack("{s:I, s:I, s:I, s:b}", "num_heads", (json_int_t)index->num_heads,
                        "head_dim", (json_int_t)index->head_dim, "topk", (json_int_t)index->topk,
                        "interleaved", index->interleaved);
    return json_pack("{s:o, s:I, s:o, s:I, s:f, s:b}", "indexer", indexer, "kv_lora_rank",
                     (json_int_t)mla->kv_lora_rank, "q_lora_rank", count_or_null(mla->q_lora_rank),
                     "qk_rope_head_dim", (json_int_t)mla->rope_head_dim, "eps", mla->norm_eps,
                     "bias", mla->bias);
}

static json_t *differential_json(const struct attn_differential_spec *differential)
{
    if (differential->lambda_init == 0)
        return json_null();
    return json_pack("{s:f, s:f}", "lambda_init", differential->lambda_init, "eps",
                     differential->norm_eps);
}

json_t *srv_layer_json(const struct attn_layer_spec *spec)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:b,"
        " s:o, s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:{s:b, s:b, s:b, s:b}, s:b, s:b, s:o, s:o, "
        "s:o,"
        " s:o, s:o}",
        "hidden_size", (json_int_t)spec->hidden_size, "key_size", (json_int_t)spec->key_size,
        "value_size", (json_int_t)spec->value_size, "num_attention_heads",
        (json_int_t)spec->num_heads, "num_key_value_heads", (json_int_t)spec->num_kv_heads,
        "head_dim", (json_int_t)spec->head_dim, "value_head_dim", (json_int_t)spec->value_head_dim,
        "scale", spec->scale, "softcap", number_or_null(spec->softcap), "is_causal",
        spec->is_causal, "is_cross", spec->is_cross, "mask", mask_kind(spec), "sliding_window",
        count_or_null(spec->sliding_window), "attention_chunk_size",
        count_or_null(spec->attention_chunk_size), "query_scaling",
        query_scaling_json(&spec->query_scaling), "rope", rope_json(&spec->rope), "position_bias",
        position_bias_json(&spec->position_bias), "sinks", spec->sinks, "qk_norm",
        norm_json(&spec->qk_norm), "v_norm", norm_json(&spec->v_norm), "output_gate",
        spec->output_gate, "gate_softplus", spec->gate_softplus, "gate_by_head", spec->gate_by_head,
        "output_norm", norm_json(&spec->output_norm), "clip_qkv", number_or_null(spec->clip_qkv),
        "keep_window_size", count_or_null(spec->keep_window_size), "key_multiplier",
        number_or_null(spec->key_multiplier), "biases", "query", spec->q_bias, "key", spec->k_bias,
        "value", spec->v_bias, "output", spec->o_bias, "bias_kv", spec->bias_kv, "add_zero_attn",
        spec->add_zero_attn, "mla", mla_json(&spec->mla), "max_tokens",
        count_or_null(spec->max_tokens), "shares_layer",
        spec->shares_layer != SIZE_MAX ? json_integer((json_int_t)spec->shares_layer) : json_null(),
        "value_scale", number_or_null(spec->value_scale), "differential",
        differential_json(&spec->differential));
}
