/* check.c: what a layer's specification may say. */
#include "basics/status.h"
#include "engine/rope.h"
#include "layers/layer.h"

/* Of norms of what heads put out: a row that sees no key is all zeros, and stays so. */
#define LEAST_EPS 1e-30

struct size {
    size_t value, limit;
    const char *name;
};

/* Checks that each of the sizes is from 1 to its limit. */
static enum attn_status check_counts(const struct size *sizes, size_t count,
                                     struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        status = attn_check_count(sizes[i].value, sizes[i].limit, sizes[i].name, error);
    return status;
}

#define FIRST_SIZE_OF_HEADS 3 /* in check_sizes, after the widths of rows */

static enum attn_status check_sizes(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct size sizes[] = {
        {spec->hidden_size, ATTN_MAX_HIDDEN_SIZE, "hidden_size"},
        {spec->key_size, ATTN_MAX_HIDDEN_SIZE, "key_size"},
        {spec->value_size, ATTN_MAX_HIDDEN_SIZE, "value_size"},
        {spec->num_heads, ATTN_MAX_HEADS, "num_attention_heads"},
        {spec->num_kv_heads, ATTN_MAX_HEADS, "num_key_value_heads"},
        {spec->head_dim, ATTN_MAX_HEAD_DIM, "head_dim"},
        {spec->value_head_dim, ATTN_MAX_HEAD_DIM, "value_head_dim"},
    };
    const size_t first = spec->is_weightless ? FIRST_SIZE_OF_HEADS : 0;
    const enum attn_status status = check_counts(sizes + first, ATTN_COUNT(sizes) - first, error);
    if (status != ATTN_OK)
        return status;
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, needs to divide num_attention_heads %zu",
                         spec->num_kv_heads, spec->num_heads);
    const bool window = spec->sliding_window > INT32_MAX;
    const char *name = window ? "sliding_window" : "attention_chunk_size";
    const size_t value = window ? spec->sliding_window : spec->attention_chunk_size;
    return value <= INT32_MAX
               ? ATTN_OK
               : attn_fail(error, ATTN_OUT_OF_RANGE, name, "%s is %zu, at most %d is allowed", name,
                           value, INT32_MAX);
}

static enum attn_status check_numbers(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_query_scaling *scaling = &spec->query_scaling;
    const struct {
        double value, least, most;
        const char *name;
    } numbers[] = {
        {spec->scale, -ATTN_MAX_SCALE, ATTN_MAX_SCALE, "scale"},
        {spec->softcap, 0, ATTN_MAX_SOFTCAP, "softcap"},
        {spec->value_scale, 0, ATTN_MAX_SCALE, "attention_value_scale"},
        {spec->qk_norm.eps, 0, 1, "norm_eps"},
        {spec->v_norm.eps, 0, 1, "norm_eps"},
        {spec->output_norm.eps, spec->output_norm.type != ATTN_NORM_NONE ? LEAST_EPS : 0, 1,
         "norm_eps"},
        {spec->clip_qkv, 0, (double)ATTN_MAX_MAGNITUDE, "clip_qkv"},
        {spec->key_multiplier, -ATTN_MAX_SCALE, ATTN_MAX_SCALE, "key_multiplier"},
        {scaling->beta, -1e6, 1e6, "attn_scale"},
        {scaling->period, scaling->period != 0 ? 1e-3 : 0, INT32_MAX, "floor_scale"},
    };
    for (size_t i = 0; i < ATTN_COUNT(numbers); i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return attn_fail(error, ATTN_OUT_OF_RANGE, numbers[i].name,
                             "%s is %g, must be %g to %g", numbers[i].name, numbers[i].value,
                             numbers[i].least, numbers[i].most);
    return ATTN_OK;
}

/* Norms and gates. */
static enum attn_status check_variants(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_norm_spec *qk = &spec->qk_norm, *v = &spec->v_norm, *o = &spec->output_norm;
    if (!spec->output_gate && (spec->gate_softplus || spec->gate_by_head))
        return attn_fail(error, ATTN_UNSUPPORTED, "output_gate",
                         "output_gate is false, gate_softplus and gate_by_head need it");
    if ((unsigned)o->type > ATTN_NORM_LAYER || o->weightless || o->bias ||
        (o->type != ATTN_NORM_NONE && o->extent != ATTN_NORM_ALL_HEADS))
        return attn_fail(error, ATTN_UNSUPPORTED, "output_norm",
                         "output_norm: the heads of a row are normalised as one vector, with "
                         "weights and without biases");
    if ((unsigned)qk->type > ATTN_NORM_LAYER || (unsigned)qk->extent > ATTN_NORM_ALL_HEADS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "qk_norm", "qk_norm: type %d of extent %d",
                         (int)qk->type, (int)qk->extent);
    if (qk->bias && (qk->type == ATTN_NORM_NONE || qk->weightless))
        return attn_fail(error, ATTN_UNSUPPORTED, "qk_norm", "qk_norm: biases need weights");
    if ((unsigned)v->type > ATTN_NORM_LAYER ||
        (v->type != ATTN_NORM_NONE && (!v->weightless || v->extent != ATTN_NORM_HEAD)))
        return attn_fail(error, ATTN_UNSUPPORTED, "v_norm",
                         "v_norm: heads of values are normalised one by one and without weights");
    if (spec->position_bias.gated && (spec->position_bias.type != ATTN_BIAS_T5 || spec->is_cross ||
                                      spec->hidden_size != spec->num_heads * spec->head_dim))
        return attn_fail(error, ATTN_UNSUPPORTED, "num_attention_heads",
                         "the gate of a position bias needs hidden states that the heads divide");
    if (spec->keep_window_size > 0 &&
        (spec->mla.kv_lora_rank > 0 || spec->differential.lambda_init != 0 || spec->bias_kv ||
         spec->add_zero_attn || spec->is_weightless))
        return attn_fail(error, ATTN_UNSUPPORTED, "keep_window_size",
                         "keep_window_size: a dynamic mask is of layers without latents, added "
                         "keys or differences of heads");
    return ATTN_OK;
}

static enum attn_status check_differential(const struct attn_layer_spec *spec,
                                           struct attn_error *error)
{
    const struct attn_differential_spec *differential = &spec->differential;
    if (differential->lambda_init == 0)
        return ATTN_OK;
    if (!(differential->lambda_init > 0 && differential->lambda_init < 1 &&
          differential->norm_eps >= LEAST_EPS && differential->norm_eps <= 1))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "lambda_init",
                         "lambda_init is %g and norm_eps %g, both must be between 0 and 1, and "
                         "norm_eps at least %g",
                         differential->lambda_init, differential->norm_eps, LEAST_EPS);
    if (spec->num_kv_heads % 2 != 0)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, differential attention needs an even number",
                         spec->num_kv_heads);
    return spec->bias_kv || spec->add_zero_attn || spec->mla.kv_lora_rank > 0 ||
                   spec->is_weightless || spec->output_gate
               ? attn_fail(
                     error, ATTN_UNSUPPORTED, "lambda_init",
                     "lambda_init: differential attention has no latents, added keys or gates")
               : ATTN_OK;
}

/* Cached values are the shared part and the indexer's key side by side. */
static enum attn_status check_indexer(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_mla_spec *mla = &spec->mla;
    const struct attn_indexer_spec *index = &mla->index;
    if (index->num_heads == 0 && index->head_dim == 0 && index->topk == 0)
        return ATTN_OK;
    const struct size sizes[] = {
        {index->num_heads, ATTN_MAX_HEADS, "index_n_heads"},
        {index->head_dim, ATTN_MAX_HEAD_DIM - mla->rope_head_dim, "index_head_dim"},
        {index->topk, ATTN_MAX_TOKENS, "index_topk"},
    };
    enum attn_status status = check_counts(sizes, ATTN_COUNT(sizes), error);
    if (status == ATTN_OK && (mla->kv_lora_rank == 0 || mla->q_lora_rank == 0))
        status = attn_fail(error, ATTN_UNSUPPORTED, "index_n_heads",
                           "index_n_heads: an indexer needs kv_lora_rank and q_lora_rank");
    if (status == ATTN_OK && index->head_dim < mla->rope_head_dim)
        status = attn_fail(error, ATTN_OUT_OF_RANGE, "index_head_dim",
                           "index_head_dim is %zu, of which %zu rotate", index->head_dim,
                           mla->rope_head_dim);
    return status;
}

static enum attn_status check_latent(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_mla_spec *mla = &spec->mla;
    if (mla->kv_lora_rank == 0)
        return ATTN_OK;
    const struct size sizes[] = {
        {mla->rope_head_dim, spec->head_dim - 1, "qk_rope_head_dim"},
        {mla->kv_lora_rank + mla->rope_head_dim, ATTN_MAX_HEAD_DIM, "kv_lora_rank"},
        {mla->q_lora_rank + 1, ATTN_MAX_HIDDEN_SIZE, "q_lora_rank"},
    };
    enum attn_status status = check_counts(sizes, ATTN_COUNT(sizes), error);
    if (status != ATTN_OK)
        return status;
    if (!(mla->norm_eps >= 0 && mla->norm_eps <= 1))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "norm_eps", "norm_eps is %g, must be 0 to 1",
                         mla->norm_eps);
    if (spec->num_kv_heads != spec->num_heads)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "num_key_value_heads",
                         "num_key_value_heads is %zu, latent attention has as many as %zu heads",
                         spec->num_kv_heads, spec->num_heads);
    if (spec->is_cross || spec->key_size != spec->hidden_size ||
        spec->value_size != spec->hidden_size || spec->q_bias || spec->k_bias || spec->v_bias ||
        spec->bias_kv || spec->add_zero_attn || spec->qk_norm.type != ATTN_NORM_NONE ||
        attn_relative_rows(spec) > 0 || spec->v_norm.type != ATTN_NORM_NONE || spec->output_gate ||
        spec->shares_layer != SIZE_MAX || spec->clip_qkv != 0 || spec->key_multiplier != 0 ||
        spec->value_scale != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "kv_lora_rank",
                         "kv_lora_rank: latent attention has no other rows, biases, added keys, "
                         "norms of heads, gates, clamped rows, or multiplied keys and "
                         "values");
    if (spec->rope.type != ATTN_ROPE_NONE && spec->rope.dim != mla->rope_head_dim)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "qk_rope_head_dim",
                         "qk_rope_head_dim is %zu, of which %zu rotate", mla->rope_head_dim,
                         spec->rope.dim);
    return ATTN_OK;
}

static enum attn_status check_dtype(const struct attn_layer_spec *spec, struct attn_error *error)
{
    if (!attn_dtype_of_weights(spec->dtype))
        return attn_fail(error, ATTN_UNSUPPORTED, "dtype",
                         "dtype is %s, weights are kept as " ATTN_DTYPE_WORDS,
                         attn_dtype_name(spec->dtype));
    if (!attn_dtype_of_caches(spec->kv_dtype))
        return attn_fail(error, ATTN_UNSUPPORTED, "kv_dtype",
                         "kv_dtype is %s, caches are kept as " ATTN_KV_DTYPE_WORDS,
                         attn_dtype_name(spec->kv_dtype));
    return ATTN_OK;
}

enum attn_status attn_layer_check(const struct attn_layer_spec *spec, struct attn_error *error)
{
    enum attn_status status = check_sizes(spec, error);
    if (status == ATTN_OK)
        status = check_numbers(spec, error);
    if (status == ATTN_OK)
        status = check_dtype(spec, error);
    if (status == ATTN_OK)
        status = check_variants(spec, error);
    if (status == ATTN_OK)
        status = check_differential(spec, error);
    if (status == ATTN_OK)
        status = attn_position_bias_check(&spec->position_bias, error);
    if (status == ATTN_OK)
        status = attn_relative_check(spec, error);
    if (status == ATTN_OK && spec->rope.type != ATTN_ROPE_NONE)
        status = spec->is_cross
                     ? attn_fail(error, ATTN_UNSUPPORTED, "is_cross",
                                 "is_cross: rotary embedding needs queries and keys that are the "
                                 "same tokens")
                     : attn_rope_check(&spec->rope, spec->head_dim, error);
    if (status == ATTN_OK)
        status = check_latent(spec, error);
    return status == ATTN_OK ? check_indexer(spec, error) : status;
}
