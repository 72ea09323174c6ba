/* spec.c: a parsed configuration -> the specification of each layer.
 *
 * Absent values are computed from the rest, and values that must fit together are checked.  The
 * layers of one model differ by their type (full, sliding, chunked), in whether they rotate, and in
 * the scale. */
#include "families/spec.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "basics/status.h"

const char *attn_family_key_name(const struct attn_family *family, size_t offset)
{
    const struct attn_hf_key *key = attn_hf_key_for_field(family->keys, offset);
    return key != NULL ? key->name : "";
}

bool attn_refuse_key(struct attn_resolution *r, enum attn_status status, const char *key,
                     const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = attn_fail(r->error, status, key, "%s%s", key, text);
    return false;
}

static bool check_present(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const bool latent = r->config->family->defaults.kv_lora_rank != 0;
    const char *missing = hf->hidden_size == 0              ? ATTN_KEY(r, hidden_size)
                          : hf->num_heads == 0              ? ATTN_KEY(r, num_heads)
                          : hf->num_layers == 0             ? ATTN_KEY(r, num_layers)
                          : latent && hf->kv_lora_rank == 0 ? ATTN_KEY(r, kv_lora_rank)
                                                            : NULL;
    if (missing != NULL)
        return attn_refuse_key(r, ATTN_MALFORMED, missing, " is missing");
    return hf->num_groups <= hf->num_layers ||
           attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_groups), " is %zu for %zu layers",
                           hf->num_groups, hf->num_layers);
}

/* ---- Heads --------------------------------------------------------------------------------- */

/* The sizes of latent attention. */
static bool resolve_latent(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    struct attn_hf_config *hf = &r->config->hf;
    const size_t head_dim = hf->qk_nope_head_dim + hf->qk_rope_head_dim;
    const char *index = hf->index_heads != 0      ? "index_n_heads"
                        : hf->index_head_dim != 0 ? "index_head_dim"
                        : hf->index_topk != 0     ? "index_topk"
                                                  : NULL;
    if (hf->kv_lora_rank == 0)
        return index == NULL || attn_refuse_key(r, ATTN_UNSUPPORTED, index,
                                                ": an indexer needs kv_lora_rank and q_lora_rank");
    if (hf->qk_nope_head_dim == 0 || hf->qk_rope_head_dim == 0)
        return attn_refuse_key(r, ATTN_MALFORMED,
                               hf->qk_nope_head_dim == 0 ? "qk_nope_head_dim" : "qk_rope_head_dim",
                               " is missing");
    if (hf->head_dim != 0 && hf->head_dim != head_dim)
        return attn_refuse_key(r, ATTN_MALFORMED, "head_dim",
                               " is %zu, qk_nope_head_dim and qk_rope_head_dim make %zu",
                               hf->head_dim, head_dim);
    spec->mla = (struct attn_mla_spec){.kv_lora_rank = hf->kv_lora_rank,
                                       .q_lora_rank = hf->q_lora_rank,
                                       .rope_head_dim = hf->qk_rope_head_dim,
                                       .index = {.num_heads = hf->index_heads,
                                                 .head_dim = hf->index_head_dim,
                                                 .topk = hf->index_topk,
                                                 .interleaved = hf->index_interleaved},
                                       .norm_eps = 1e-6,
                                       .bias = hf->bias &&
                                               (r->config->family->unbiased & ATTN_PROJ_KV_A) == 0};
    if (hf->value_head_dim == 0)
        hf->value_head_dim = hf->hidden_size / hf->num_heads;
    hf->head_dim = head_dim;
    return true;
}

static bool resolve_heads(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    spec->hidden_size = hf->hidden_size;
    spec->key_size = hf->key_size != 0 ? hf->key_size : spec->hidden_size;
    spec->value_size = hf->value_size != 0 ? hf->value_size : spec->hidden_size;
    if (hf->is_cross && hf->encoder_size != 0)
        spec->key_size = spec->value_size = hf->encoder_size;
    spec->num_heads = hf->num_heads;
    spec->num_kv_heads = hf->num_kv_heads != 0 ? hf->num_kv_heads : hf->num_heads;
    if (r->config->family->kv_by_flags && !hf->grouped)
        spec->num_kv_heads = hf->multi_query ? 1 : hf->num_heads;
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_kv_heads),
                               " is %zu, which does not divide %zu heads", spec->num_kv_heads,
                               spec->num_heads);
    if (r->config->family->layout == ATTN_LAYOUT_QUARTERS && spec->num_heads % ATTN_QUARTERS != 0)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_heads),
                               " is %zu, which %d does not divide", spec->num_heads, ATTN_QUARTERS);
    if (hf->head_dim == 0 && spec->hidden_size % spec->num_heads != 0)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_heads),
                               " is %zu, which does not divide a width of %zu", spec->num_heads,
                               spec->hidden_size);
    spec->head_dim = hf->head_dim != 0 ? hf->head_dim : spec->hidden_size / spec->num_heads;
    spec->value_head_dim = hf->value_head_dim != 0 ? hf->value_head_dim : spec->head_dim;
    const double scalar =
        hf->query_pre_attn_scalar != 0 ? hf->query_pre_attn_scalar : (double)spec->head_dim;
    spec->scale = hf->scale != 0 ? hf->scale : hf->scale_attn_weights ? 1 / sqrt(scalar) : 1;
    if (hf->query_factor != 0)
        spec->scale *= hf->query_factor;
    if (hf->scale_by_mscale && hf->rope.type == ATTN_ROPE_YARN && hf->rope.mscale_all_dim != 0)
        spec->scale *= pow(attn_yarn_gain(hf->rope.factor, hf->rope.mscale_all_dim), 2);
    return attn_resolved(r,
                         attn_check_count(spec->head_dim, ATTN_MAX_HEAD_DIM, "head_dim", r->error));
}

/* ---- What else all layers have in common --------------------------------------------------- */

static void resolve_flags(struct attn_layer_spec *spec, const struct attn_family *family,
                          const struct attn_hf_config *hf)
{
    unsigned biased = hf->bias ? ATTN_PROJ_ALL & ~family->unbiased : 0u;
    if (hf->kv_lora_rank > 0)
        biased &= ATTN_PROJ_O;
    spec->q_bias = (biased & ATTN_PROJ_Q) != 0 || hf->q_bias;
    spec->k_bias = (biased & ATTN_PROJ_K) != 0 || hf->k_bias;
    spec->v_bias = (biased & ATTN_PROJ_V) != 0 || hf->v_bias;
    spec->o_bias = (biased & ATTN_PROJ_O) != 0 || hf->o_bias;
    spec->bias_kv = hf->bias_kv;
    spec->add_zero_attn = hf->add_zero_attn;
    spec->is_causal = hf->is_causal && !hf->bidirectional;
    spec->is_cross = hf->is_cross;
    spec->sinks = hf->sinks;
    spec->softcap = hf->softcap;
    spec->value_scale = hf->value_scale;
    spec->clip_qkv = hf->clip_qkv;
    spec->output_gate = hf->output_gate;
    if (hf->ntk_by_length || hf->logn_by_length)
        spec->max_tokens = hf->max_position;
    spec->gate_softplus = hf->gate_softplus;
    spec->gate_by_head = hf->gate_by_head;
    spec->key_multiplier = hf->key_multiplier != 1 ? hf->key_multiplier : 0;
    spec->attention_chunk_size = hf->attention_chunk_size;
    if (hf->attention_type == 2)
        spec->max_tokens = (5 + 2 * hf->random_blocks) * hf->block_size;
    spec->query_scaling = hf->query_scaling;
    if (hf->rope.scaling_beta != 0)
        spec->query_scaling = (struct attn_query_scaling){
            .beta = hf->rope.scaling_beta,
            .period = hf->rope.original_max_position != 0 ? hf->rope.original_max_position
                                                          : (double)hf->max_position};
    if (attn_hf_key_for_field(family->keys, HF_FIELD(query_tuning)) != NULL && !hf->query_tuning)
        spec->query_scaling = (struct attn_query_scaling){.period = 0};
    spec->shares_layer = SIZE_MAX;
}

#define CHATGLM_VOCABULARY 65024 /* of ChatGLM2 and ChatGLM3; GLM-4 has another */

/* Checks what depends on several keys: that what a layer does by a length of its configuration has
 * that length, and which ChatGLM it is. */
static bool check_together(struct attn_resolution *r, const struct attn_layer_spec *spec)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const char *key = hf->attention_type == 2 ? ATTN_KEY(r, block_size) : ATTN_KEY(r, max_position);
    const bool limited = hf->attention_type == 2 || hf->ntk_by_length || hf->logn_by_length;
    const bool scales = hf->rope.scaling_beta != 0 && spec->query_scaling.beta != 0;
    if (hf->vocabulary == CHATGLM_VOCABULARY && hf->rope.ratio != 0 && hf->rope.ratio != 1)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, ATTN_KEY(r, rope.ratio),
                               ": ChatGLM2 divides positions by it, ChatGLM3 multiplies the base, "
                               "and their configurations are alike: only 1 is supported");
    if ((limited && spec->max_tokens == 0) || (scales && spec->query_scaling.period == 0))
        return attn_refuse_key(r, ATTN_MALFORMED, key, " is missing: attention depends on it");
    return true;
}

static void resolve_norms(struct attn_layer_spec *spec, const struct attn_hf_config *hf)
{
    if (hf->qk_norm)
        spec->qk_norm = (struct attn_norm_spec){
            .type = hf->norm_type != ATTN_NORM_NONE ? (enum attn_norm_type)hf->norm_type
                                                    : ATTN_NORM_RMS,
            .extent = (enum attn_norm_extent)hf->norm_extent,
            .weightless = hf->norm_weightless,
            .bias = hf->norm_bias,
            .after_rope = hf->norm_after_rope,
            .eps = hf->norm_eps,
        };
    if (hf->output_norm)
        spec->output_norm = (struct attn_norm_spec){
            .type = ATTN_NORM_RMS, .extent = ATTN_NORM_ALL_HEADS, .eps = hf->norm_eps};
    if (hf->v_norm)
        spec->v_norm =
            (struct attn_norm_spec){.type = ATTN_NORM_RMS, .weightless = true, .eps = hf->norm_eps};
}

static size_t none_if_negative(size_t size) { return size == SIZE_MAX ? 0 : size; }

/* The position bias of DeBERTa; the scale counts its products too. */
static bool resolve_disentangled(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const bool c2p = (hf->position_terms & ATTN_TERM_C2P) != 0;
    const bool p2c = (hf->position_terms & ATTN_TERM_P2C) != 0;
    const size_t given = none_if_negative(hf->max_relative_positions);
    if (!hf->relative_attention)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, "relative_attention",
                               ": false is not supported beside pos_att_type");
    spec->position_bias = (struct attn_position_bias_spec){
        .type = ATTN_BIAS_DISENTANGLED,
        .buckets = none_if_negative(hf->position_buckets),
        .max_distance = given != 0 ? given : hf->max_position,
        .content_to_position = c2p,
        .position_to_content = p2c,
        .table_norm = hf->relative_norm == 1,
        .table_norm_eps = hf->relative_norm == 1 ? hf->relative_norm_eps : 0,
        .own_projections = !hf->share_att_key,
        .own_key_bias = !hf->share_att_key && !hf->plain_pos_key,
    };
    if (hf->scale == 0)
        spec->scale /= sqrt(1.0 + c2p + p2c);
    return true;
}

/* The position bias of BEiT, for one resolution. */
static bool resolve_grid(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    if (hf->grid_bias && hf->shared_grid_bias)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, ATTN_KEY(r, shared_grid_bias),
                               " is not supported beside %s", ATTN_KEY(r, grid_bias));
    if (hf->patch_size == 0 || hf->image_size < hf->patch_size)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, image_size),
                               " is %zu for patches of %zu", hf->image_size, hf->patch_size);
    spec->position_bias = (struct attn_position_bias_spec){
        .type = ATTN_BIAS_GRID,
        .grid = hf->image_size / hf->patch_size,
        .own_table = hf->grid_bias,
    };
    return true;
}

/* Refuses the biases of LayoutLMv3, which need the box of each token. */
static bool refuse_unsaid(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const char *key =
        hf->unsaid_bias_1d ? ATTN_KEY(r, unsaid_bias_1d) : ATTN_KEY(r, unsaid_bias_2d);
    return attn_refuse_key(r, ATTN_UNSUPPORTED, key,
                           ": no call has the boxes of tokens; set it false, and pass the bias as "
                           "attention_bias");
}

/* The relative keys of BERT, and its relative queries. */
static bool resolve_relative(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    if (hf->max_position == 0 || hf->max_position > ATTN_MAX_BUCKETS)
        return attn_refuse_key(r, ATTN_OUT_OF_RANGE, ATTN_KEY(r, max_position),
                               " is %zu, relative keys need 1 to %d", hf->max_position,
                               ATTN_MAX_BUCKETS);
    spec->max_tokens = hf->max_position;
    spec->position_bias = (struct attn_position_bias_spec){
        .type = ATTN_BIAS_RELATIVE_KEY,
        .max_distance = hf->max_position - 1,
        .max_after = hf->max_position - 1,
        .backward = true,
        .content_to_position = true,
        .position_to_content = hf->relative_positions == 2,
        .own_table = true,
    };
    return true;
}

/* Position bias.  T5's encoder looks both ways and has buckets for each direction; its decoder
 * looks back. */
static bool resolve_position_bias(struct attn_layer_spec *spec, struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const bool both_ways = hf->relative_positions == 4;
    if (both_ways && strcmp(r->config->family->model_type, "bert") != 0)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, ATTN_KEY(r, relative_positions),
                               ": alibi is read of bert alone");
    if (hf->alibi && hf->buckets != 0)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, buckets), " contradicts alibi");
    if (hf->position_terms != 0 && (hf->alibi || hf->buckets != 0))
        return attn_refuse_key(r, ATTN_MALFORMED, "pos_att_type",
                               " contradicts another position bias");
    if (hf->relative_positions == 1 || hf->relative_positions == 2)
        return resolve_relative(spec, r);
    if (hf->relative_key == 1 && (hf->alibi || hf->buckets != 0 || hf->position_terms != 0))
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, relative_key),
                               " contradicts another position bias");
    if (hf->position_terms != 0)
        return resolve_disentangled(spec, r);
    if (hf->unsaid_bias_1d || hf->unsaid_bias_2d)
        return refuse_unsaid(r);
    if (hf->grid_bias || hf->shared_grid_bias)
        return resolve_grid(spec, r);
    if (hf->relative_key == 1)
        spec->position_bias = (struct attn_position_bias_spec){
            .type = ATTN_BIAS_RELATIVE_KEY,
            .max_distance = !hf->relative_backward ? hf->max_distance
                            : hf->max_after > 0    ? hf->max_after - 1
                                                   : 0,
            .max_after = hf->max_after,
            .backward = hf->relative_backward,
            .content_to_position = true,
            .own_table = !hf->relative_backward,
        };
    else if (hf->alibi || both_ways)
        spec->position_bias = (struct attn_position_bias_spec){
            .type = ATTN_BIAS_ALIBI,
            .scale = hf->alibi_scaled ? 1 / sqrt((double)spec->head_dim) : 1,
            .bfloat16 = hf->alibi_bfloat16,
            .by_slot = hf->alibi_by_slot || both_ways,
            .bidirectional = both_ways,
        };
    else if (hf->buckets != 0)
        spec->position_bias = (struct attn_position_bias_spec){
            .type = ATTN_BIAS_T5,
            .buckets = hf->buckets,
            .max_distance = hf->max_distance,
            .bidirectional = !hf->is_causal,
            .gated = hf->gated_bias,
            .own_table = hf->own_tables,
        };
    return true;
}

/* ---- What layers differ in ----------------------------------------------------------------- */

static bool check_length(struct attn_resolution *r, const char *key, size_t count)
{
    return count == 0 || count == r->config->num_layers ||
           count == r->config->num_layers + r->config->hf.num_predict_layers ||
           attn_refuse_key(r, ATTN_MALFORMED, key, " has %zu entries for %zu layers", count,
                           r->config->num_layers);
}

/* Whether layer i is the full one, or the one that does not rotate, of its period. */
static bool ends_period(const struct attn_hf_config *hf, size_t i, size_t period)
{
    if (hf->full_first)
        return i % period == hf->full_offset;
    return (hf->from_last ? hf->num_layers - 1 - i : i + 1) % period == 0;
}

/* The type of layer i where no list of types is given. */
static enum attn_layer_type type_of(const struct attn_config *config, size_t i)
{
    const struct attn_hf_config *hf = &config->hf;
    enum attn_layer_type other = hf->other_type != ATTN_LAYER_FULL
                                     ? (enum attn_layer_type)hf->other_type
                                     : ATTN_LAYER_SLIDING;
    size_t period = hf->sliding_period != 0 ? hf->sliding_period : 1;
    const size_t dense = hf->dense_period != 0 ? hf->num_dense : 0;
    bool full = hf->listed_layers != 0 && config->is_listed[i];
    if (other == ATTN_LAYER_SHARED)
        full =
            i < hf->index_offset || (i + 1 - hf->index_offset) % attn_max(hf->index_freq, 1) == 0;
    if (hf->listed_layers == 0 && hf->full_period != 0)
        full = i < dense ? ends_period(hf, i, hf->dense_period)
                         : ends_period(hf, i - dense, hf->full_period);
    if (hf->listed_layers != 0 || hf->full_period != 0 || other >= ATTN_LAYER_SHARED)
        return full ? ATTN_LAYER_FULL : other;
    if (other != ATTN_LAYER_SLIDING || i < hf->first_sliding)
        return ATTN_LAYER_FULL;
    return (i - hf->first_sliding) % period == 0 ? ATTN_LAYER_SLIDING : ATTN_LAYER_FULL;
}

/* Layers that a configuration lists as differing must be the full ones, all of them. */
static bool check_differing(struct attn_resolution *r)
{
    const struct attn_config *config = r->config;
    bool any = false, same = true;
    for (size_t i = 0; i < ATTN_MAX_LAYERS; i++) {
        const bool full = i < config->num_layers && config->types[i] == ATTN_LAYER_FULL;
        any |= config->differs[i];
        same &= config->differs[i] == full;
    }
    return !any || same ||
           attn_refuse_key(r, ATTN_UNSUPPORTED, "per_layer_config",
                           " of other layers than the full ones is not supported");
}

/* Refuses windows of which it is not certain what they mean. */
static bool check_window(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const struct attn_family *family = r->config->family;
    if (r->config->specs[ATTN_LAYER_SLIDING].sliding_window == 0)
        return true;
    if (hf->window_needs_list && hf->num_layer_types == 0)
        return attn_refuse_key(r, ATTN_UNSUPPORTED, "use_sliding_window",
                               " needs layer_types, which say which layers slide");
    return family->model_type == NULL || !family->defaults.is_causal || hf->is_causal ||
           attn_refuse_key(r, ATTN_UNSUPPORTED, ATTN_KEY(r, is_causal),
                           ": false beside a sliding window is not supported");
}

static bool resolve_types(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    struct attn_config *config = r->config;
    bool windowed = config->specs[ATTN_LAYER_SLIDING].sliding_window != 0;
    bool told = hf->num_layer_types != 0 || hf->full_period != 0;
    if (hf->listed_layers > config->num_layers)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, listed_layers),
                               " has %zu, there are %zu layers", hf->listed_layers - 1,
                               config->num_layers);
    if (hf->full_first && hf->full_offset >= hf->full_period)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, full_offset),
                               " is %zu in a period of %zu", hf->full_offset, hf->full_period);
    for (size_t i = 0; i < config->num_layers; i++) {
        const bool listed = hf->listed_layers != 0 && config->is_listed[i];
        if (hf->num_layer_types == 0)
            config->types[i] = (uint8_t)type_of(config, i);
        else if (hf->listed_layers != 0 && listed != (config->types[i] == ATTN_LAYER_FULL))
            return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, listed_layers),
                                   " contradicts another key");
        if (hf->last_full && i + 1 == config->num_layers)
            config->types[i] = ATTN_LAYER_FULL;
        /* Without a window a sliding layer differs from a full one by its RoPE alone. */
        if (config->types[i] == ATTN_LAYER_SLIDING && !windowed && !(told && hf->rope_by_type))
            config->types[i] = ATTN_LAYER_FULL;
    }
    return check_length(r, ATTN_KEY(r, num_layer_types), hf->num_layer_types) && check_differing(r);
}

/* Marks the layers that are another stack's: those listed as cross-attention where this stack is
 * not, the others where it is. */
static bool resolve_stack(struct attn_resolution *r)
{
    struct attn_config *config = r->config;
    const char *key = ATTN_KEY(r, num_cross_layers);
    size_t listed = 0;
    if (key[0] == '\0')
        return true;
    for (size_t i = config->num_layers; i < ATTN_MAX_LAYERS; i++)
        if (config->crosses[i])
            return attn_refuse_key(r, ATTN_OUT_OF_RANGE, key, " has %zu, there are %zu layers", i,
                                   config->num_layers);
    for (size_t i = 0; i < config->num_layers; i++) {
        listed += config->crosses[i];
        if (config->crosses[i] != config->hf.is_cross)
            config->types[i] = ATTN_LAYER_ELSEWHERE;
    }
    return (listed != 0 && listed != config->num_layers) ||
           attn_refuse_key(r, ATTN_MALFORMED, key, " must list some of %zu layers, it lists %zu",
                           config->num_layers, listed);
}

static bool rotates(const struct attn_config *config, const struct attn_hf_config *hf, size_t i)
{
    bool sliding = config->types[i] == ATTN_LAYER_SLIDING;
    if (hf->num_rope_thetas != 0)
        return config->rope_thetas[i] != 0;
    if (hf->no_rope_period != 0)
        return !ends_period(hf, i, hf->no_rope_period);
    if (hf->dense_period == 1 && (hf->num_mlp_types != 0 ? config->dense[i] : i < hf->num_dense))
        return true;
    return sliding || hf->rope_layers == ATTN_ROPE_EVERY ||
           (hf->rope_layers == ATTN_ROPE_IF_WINDOW &&
            config->specs[ATTN_LAYER_SLIDING].sliding_window == 0);
}

/* Which layers rotate; without a list of types these are the chunked ones of families that have
 * chunks. */
static bool resolve_rotating(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    struct attn_config *config = r->config;
    bool follows = hf->other_type == ATTN_LAYER_CHUNKED && hf->num_layer_types == 0;
    const bool slides = hf->slides_without_rope && hf->num_layer_types == 0 &&
                        config->specs[ATTN_LAYER_SLIDING].sliding_window != 0;
    for (size_t i = 0; i < config->num_layers; i++) {
        if (hf->num_rope_layers == 0)
            config->rotates[i] = rotates(config, hf, i);
        if (follows)
            config->types[i] = config->rotates[i] ? ATTN_LAYER_CHUNKED : ATTN_LAYER_FULL;
        if (slides)
            config->types[i] = config->rotates[i] ? ATTN_LAYER_FULL : ATTN_LAYER_SLIDING;
    }
    return check_length(r, ATTN_KEY(r, num_rope_layers), hf->num_rope_layers) &&
           check_length(r, ATTN_KEY(r, num_layer_windows), hf->num_layer_windows) &&
           check_length(r, ATTN_KEY(r, num_rope_thetas), hf->num_rope_thetas) &&
           check_length(r, ATTN_KEY(r, num_partials), hf->num_partials) &&
           check_length(r, ATTN_KEY(r, num_mlp_types), hf->num_mlp_types);
}

/* The query heads of each layer, and those of a key/value head. */
static bool check_layer_heads(struct attn_resolution *r)
{
    const struct attn_config *config = r->config;
    const char *key = ATTN_KEY(r, num_layer_heads);
    for (size_t i = 0; i < config->hf.num_layer_heads && i < config->num_layers; i++) {
        const size_t groups = config->specs[config->types[i]].num_kv_heads;
        if (config->heads[i] % groups != 0)
            return attn_refuse_key(
                r, ATTN_MALFORMED, key,
                " has %zu for layer %zu, which %zu key/value heads do not divide", config->heads[i],
                i, groups);
    }
    for (size_t i = 0; i < config->num_layers; i++)
        if (config->sharers[i] != 0 && config->hf.num_heads % config->sharers[i] != 0)
            return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_layer_types),
                                   ": %zu heads are no whole groups of %zu in layer %zu",
                                   config->hf.num_heads, config->sharers[i], i);
    return check_length(r, key, config->hf.num_layer_heads);
}

/* The layer whose cache layer i reads: the last one of its type that has a cache of its own;
 * SIZE_MAX where there is none. */
static size_t source_of(const struct attn_config *config, size_t i)
{
    size_t source = config->num_layers - config->hf.num_shared_layers;
    while (source-- > 0)
        if (config->types[source] == config->types[i])
            return source;
    return SIZE_MAX;
}

static bool check_sharing(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    struct attn_config *config = r->config;
    const char *key = ATTN_KEY(r, num_shared_layers);
    if (hf->num_shared_layers > config->num_layers)
        return attn_refuse_key(r, ATTN_OUT_OF_RANGE, key, " is %zu, there are %zu layers",
                               hf->num_shared_layers, config->num_layers);
    if (hf->num_shared_layers > 0 && (hf->is_cross || hf->bias_kv || hf->add_zero_attn))
        return attn_refuse_key(r, ATTN_UNSUPPORTED, key,
                               " is not supported beside is_cross and added keys");
    for (size_t i = config->num_layers - hf->num_shared_layers; i < config->num_layers; i++)
        if (source_of(config, i) == SIZE_MAX)
            return attn_refuse_key(r, ATTN_MALFORMED, key,
                                   " is %zu, but no earlier layer is %s as layer %zu is",
                                   hf->num_shared_layers, attn_layer_types[config->types[i]], i);
    return true;
}

/* W of the window that a configuration says. */
static size_t window_of(const struct attn_hf_config *hf, size_t window)
{
    if (hf->bidirectional || hf->half_window)
        return window / 2 + (hf->bidirectional || !hf->is_causal);
    return window + hf->closed_window;
}

/* Copies the common specification to every type of layers and adds what only that type has. */
static void resolve_specs(struct attn_config *config, const struct attn_layer_spec *common,
                          const struct attn_hf_config *hf)
{
    struct attn_layer_spec *sliding = &config->specs[ATTN_LAYER_SLIDING];
    struct attn_layer_spec *full = &config->specs[ATTN_LAYER_FULL];
    struct attn_layer_spec *shared = &config->specs[ATTN_LAYER_SHARED];
    for (size_t type = 0; type < ATTN_LAYER_LINEAR; type++)
        config->specs[type] = *common;
    shared->mla.index = (struct attn_indexer_spec){.num_heads = 0};
    shared->max_tokens = hf->index_topk; /* of so many any indexer chooses all */
    if (hf->other_type == ATTN_LAYER_CHUNKED || hf->num_layer_types != 0)
        full->attention_chunk_size = sliding->attention_chunk_size = 0;
    if (hf->global_head_dim != 0)
        full->head_dim = full->value_head_dim = hf->global_head_dim;
    if (hf->keys_as_values && hf->num_global_kv_heads != 0)
        full->num_kv_heads = hf->num_global_kv_heads;
    if (hf->sliding_heads != 0)
        sliding->num_heads = hf->sliding_heads;
    if (hf->sliding_kv_heads != 0)
        sliding->num_kv_heads = hf->sliding_kv_heads;
    sliding->sinks = sliding->sinks || hf->sliding_sinks;
    full->sinks = full->sinks || hf->full_sinks;
    if (hf->use_sliding_window && hf->sliding_window != 0)
        sliding->sliding_window = window_of(hf, hf->sliding_window);
    if (hf->other_type >= ATTN_LAYER_LINEAR) /* no other layers could slide */
        full->sliding_window = sliding->sliding_window;
}

/* Checks the sizes that sliding layers say of themselves. */
static bool check_sliding(struct attn_resolution *r)
{
    const struct attn_hf_config *hf = &r->config->hf;
    const struct attn_layer_spec *full = &r->config->specs[ATTN_LAYER_FULL];
    const struct attn_layer_spec *sliding = &r->config->specs[ATTN_LAYER_SLIDING];
    const struct {
        size_t size, of_full;
        const char *key;
    } same[] = {
        {hf->sliding_head_dim, full->head_dim, ATTN_KEY(r, sliding_head_dim)},
        {hf->sliding_value_head_dim, full->value_head_dim, ATTN_KEY(r, sliding_value_head_dim)},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (same[i].size != 0 && same[i].size != same[i].of_full)
            return attn_refuse_key(
                r, ATTN_UNSUPPORTED, same[i].key,
                " is %zu, in full layers it is %zu: layers that differ in it are "
                "not supported",
                same[i].size, same[i].of_full);
    return sliding->num_heads % sliding->num_kv_heads == 0 ||
           attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, sliding_kv_heads),
                           " is %zu, which does not divide %zu heads", sliding->num_kv_heads,
                           sliding->num_heads);
}

bool attn_resolve(struct attn_resolution *r)
{
    struct attn_config *config = r->config;
    struct attn_hf_config *hf = &r->config->hf;
    struct attn_layer_spec common = {.dtype = ATTN_F32};
    if (hf->num_layers == 0)
        hf->num_layers = hf->num_layers_fallback;
    if (hf->num_layers == 0)
        hf->num_layers = hf->num_layer_types;
    hf->alibi = hf->alibi || (hf->alibi_unless_positions && hf->max_position == 0);
    if (!check_present(r))
        return false;

    config->num_layers = hf->num_layers * (hf->attentions != 0 ? hf->attentions : 1);
    config->max_position = hf->max_position;
    resolve_flags(&common, r->config->family, hf);
    resolve_norms(&common, hf);
    if (!check_together(r, &common) || !resolve_latent(&common, r) || !resolve_heads(&common, r) ||
        !resolve_position_bias(&common, r))
        return false;
    resolve_specs(config, &common, hf);
    const struct attn_layer_spec *full = &config->specs[ATTN_LAYER_FULL];
    if (full->num_heads % full->num_kv_heads != 0)
        return attn_refuse_key(r, ATTN_MALFORMED, ATTN_KEY(r, num_global_kv_heads),
                               " is %zu, which does not divide %zu heads", full->num_kv_heads,
                               full->num_heads);
    return check_window(r) && check_sliding(r) && resolve_types(r) && resolve_stack(r) &&
           check_layer_heads(r) && check_sharing(r) && resolve_rotating(r) && attn_resolve_rope(r);
}

/* Layers are divided as evenly as they can be, in the floating-point arithmetic of Hugging Face. */
size_t attn_config_tensor_index(const struct attn_config *config, size_t layer)
{
    if (config->hf.num_groups == 0)
        return layer;
    return (size_t)((double)layer / ((double)config->num_layers / (double)config->hf.num_groups));
}

void attn_config_layer_spec(struct attn_layer_spec *out, const struct attn_config *config,
                            size_t layer)
{
    *out = config->specs[config->types[layer]];
    if (!config->rotates[layer])
        out->rope = (struct attn_rope_spec){.type = ATTN_ROPE_NONE};
    else if (config->hf.num_rope_thetas != 0)
        out->rope.theta = config->rope_thetas[layer];
    if (config->hf.num_layer_heads != 0)
        out->num_heads = config->heads[layer];
    if (config->sharers[layer] != 0)
        out->num_kv_heads = out->num_heads / config->sharers[layer];
    if (config->hf.num_layer_windows != 0 && config->hf.use_sliding_window)
        out->sliding_window = window_of(&config->hf, config->windows[layer]);
    if (layer >= config->num_layers - config->hf.num_shared_layers)
        out->shares_layer = source_of(config, layer);
    out->keep_window_size = config->hf.keep_window_size;
    if (config->hf.differential)
        out->differential = (struct attn_differential_spec){
            .lambda_init = 0.8 - 0.6 * exp(-0.3 * (double)layer), .norm_eps = config->hf.norm_eps};
    if (config->hf.scale_by_layer)
        out->scale /= (double)(layer + 1);
    if (config->hf.norm_rope_layers && out->rope.type == ATTN_ROPE_NONE)
        out->qk_norm = (struct attn_norm_spec){.type = ATTN_NORM_NONE};
    if (config->hf.scaling_without_rope && out->rope.type != ATTN_ROPE_NONE)
        out->query_scaling = (struct attn_query_scaling){.period = 0};
}
