/* encoders.c: rows of the three stacks of T5 and mT5, of PyTorch's own layer and of random
 * models.  Data only.
 *
 * Sources: as in llama.c, and torch.nn.MultiheadAttention. */
#include "families/keys.h"
#include "families/rows.h"

/* ---- t5, mt5: scores are not scaled; block 0 holds the position bias of its stack ----------- */

#define T5_SIZES                                        \
    SIZE("d_model", hidden_size, ATTN_MAX_HIDDEN_SIZE), \
        SIZE("num_heads", num_heads, ATTN_MAX_HEADS), SIZE("d_kv", head_dim, ATTN_MAX_HEAD_DIM)

#define T5_BUCKETS                                                     \
    SIZE("relative_attention_num_buckets", buckets, ATTN_MAX_BUCKETS), \
        SIZE("relative_attention_max_distance", max_distance, ATTN_MAX_BUCKETS)

/* A decoder without num_decoder_layers has as many layers as the encoder. */
#define T5_DECODER_LAYERS                                    \
    SIZE("num_decoder_layers", num_layers, ATTN_MAX_LAYERS), \
        SIZE("num_layers", num_layers_fallback, ATTN_MAX_LAYERS)

#define T5_HARMLESS                                                               \
    IGNORED("dense_act_fn"), IGNORED("feed_forward_proj"), IGNORED("is_decoder"), \
        IGNORED("is_encoder_decoder"), IGNORED("is_gated_act"), IGNORED("n_positions")

static const struct attn_hf_key t5_encoder_keys[] = {
    T5_SIZES,
    SIZE("num_layers", num_layers, ATTN_MAX_LAYERS),
    IGNORED("num_decoder_layers"),
    T5_BUCKETS,
    T5_HARMLESS,
    END,
};

static const struct attn_hf_key t5_decoder_keys[] = {
    T5_SIZES, T5_DECODER_LAYERS, T5_BUCKETS, T5_HARMLESS, END,
};

static const struct attn_hf_key t5_cross_keys[] = {
    T5_SIZES,
    T5_DECODER_LAYERS,
    IGNORED("relative_attention_num_buckets"),
    IGNORED("relative_attention_max_distance"),
    T5_HARMLESS,
    END,
};

static const char *const t5_prefixes[] = {"", NULL};

#define T5_SELF_TENSORS(stack)                                                                   \
    {                                                                                            \
        {stack ".block.*.layer.0.SelfAttention.q.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},        \
            {stack ".block.*.layer.0.SelfAttention.k.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},    \
            {stack ".block.*.layer.0.SelfAttention.v.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},    \
            {stack ".block.*.layer.0.SelfAttention.o.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},    \
            {stack ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", ATTN_PROJ_Q, \
             ATTN_ROLE_POSITION_BIAS},                                                           \
            {.name = NULL},                                                                      \
    }

static const struct attn_family_tensor t5_encoder_tensors[] = T5_SELF_TENSORS("encoder");
static const struct attn_family_tensor t5_decoder_tensors[] = T5_SELF_TENSORS("decoder");

static const struct attn_family_tensor t5_cross_tensors[] = {
    {"decoder.block.*.layer.1.EncDecAttention.q.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"decoder.block.*.layer.1.EncDecAttention.k.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"decoder.block.*.layer.1.EncDecAttention.v.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"decoder.block.*.layer.1.EncDecAttention.o.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {.name = NULL},
};

#define T5_STACK(type, part, its_keys, its_tensors, ...)                                        \
    {                                                                                           \
        .model_type = type, .stack = part, .name = type, .keys = its_keys, .common_keys = true, \
        .prefixes = t5_prefixes, .tensors = its_tensors, .unbiased = ATTN_PROJ_ALL,             \
        .defaults = {.head_dim = 64, __VA_ARGS__},                                              \
    }
#define T5_BIAS .buckets = 32, .max_distance = 128
#define T5_DECODER(type) \
    T5_STACK(type, "decoder", t5_decoder_keys, t5_decoder_tensors, T5_BIAS, .is_causal = true)
#define T5_ENCODER(type) T5_STACK(type, "encoder", t5_encoder_keys, t5_encoder_tensors, T5_BIAS)
#define T5_CROSS(type) T5_STACK(type, "cross", t5_cross_keys, t5_cross_tensors, .is_cross = true)

const struct attn_family attn_family_t5_decoder = T5_DECODER("t5");
const struct attn_family attn_family_t5_encoder = T5_ENCODER("t5");
const struct attn_family attn_family_t5_cross = T5_CROSS("t5");
const struct attn_family attn_family_mt5_decoder = T5_DECODER("mt5");
const struct attn_family attn_family_mt5_encoder = T5_ENCODER("mt5");
const struct attn_family attn_family_mt5_cross = T5_CROSS("mt5");

/* ---- torch.nn.MultiheadAttention, alone or in the layers of a TransformerEncoder ------------- */

static const struct attn_hf_key torch_keys[] = {
    SIZE("embed_dim", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_heads", num_heads, ATTN_MAX_HEADS),
    KV_HEADS,
    SIZE("kdim", key_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("vdim", value_size, ATTN_MAX_HIDDEN_SIZE),
    LAYERS,
    FLAG("bias", bias),
    FLAG("add_bias_kv", bias_kv),
    FLAG("add_zero_attn", add_zero_attn),
    FLAG("is_causal", is_causal),
    THETA,
    IGNORED("batch_first"),
    IGNORED("device"),
    END,
};

static const char *const torch_prefixes[] = {"layers.*.self_attn.", "", NULL};

static const struct attn_family_tensor torch_tensors[] = {
    {"in_proj_weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"q_proj_weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"k_proj_weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"v_proj_weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"in_proj_bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"out_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"bias_k", ATTN_PROJ_K, ATTN_ROLE_BIAS_KV},
    {"bias_v", ATTN_PROJ_V, ATTN_ROLE_BIAS_KV},
    {.name = NULL},
};

const struct attn_family attn_family_torch = {
    .model_type = "torch_multihead_attention",
    .name = "torch_mha",
    .keys = torch_keys,
    .common_keys = true,
    .prefixes = torch_prefixes,
    .tensors = torch_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true, .num_layers = 1},
};

/* ---- random: every field of a specification has a key --------------------------------------- */

static const struct attn_hf_key random_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    SIZE("value_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM),
    SIZE("kdim", key_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("vdim", value_size, ATTN_MAX_HIDDEN_SIZE),
    LATENT_SIZES,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    FLAG("bias", bias),
    FLAG("add_bias_kv", bias_kv),
    FLAG("add_zero_attn", add_zero_attn),
    FLAG("attention_sinks", sinks),
    FLAG("qk_norm", qk_norm),
    NAME("qk_norm_type", norm_type, "rms_norm layer_norm"),
    NAME("qk_norm_extent", norm_extent, "each_head all_heads"),
    FLAG("qk_norm_weightless", norm_weightless),
    FLAG("qk_norm_bias", norm_bias),
    FLAG("qk_norm_after_rope", norm_after_rope),
    FLAG("v_norm", v_norm),
    NUMBER("rms_norm_eps", norm_eps, 0, 1),
    FLAG("attn_output_gate", output_gate),
    FLAG("is_causal", is_causal),
    FLAG("is_cross", is_cross),
    NUMBER("scale", scale, 1e-9, ATTN_MAX_SCALE),
    NUMBER("query_pre_attn_scalar", query_pre_attn_scalar, 1e-9, 1e9),
    NUMBER("attn_logit_softcapping", softcap, ATTN_MIN_SOFTCAP, ATTN_MAX_SOFTCAP),
    WINDOW,
    LAYER_TYPES("layer_types"),
    FIELD("num_kv_shared_layers", ATTN_CONFIG_INTEGER, num_shared_layers, 0, ATTN_MAX_LAYERS),
    SIZE("attention_chunk_size", attention_chunk_size, MAX_POSITION),
    ROPE_LAYERS("no_rope_layers"),
    NUMBER("attn_scale", query_scaling.beta, -1e6, 1e6),
    NUMBER("floor_scale", query_scaling.period, 1e-3, MAX_POSITION),
    FLAG("attn_scale_next", query_scaling.next),
    FLAG("attn_scale_by_slot", query_scaling.by_slot),
    FLAG("alibi", alibi),
    FLAG("alibi_scaled", alibi_scaled),
    FLAG("alibi_bfloat16", alibi_bfloat16),
    FLAG("alibi_by_slot", alibi_by_slot),
    POSITION_TABLE,
    SIZE("relative_attention_num_buckets", buckets, ATTN_MAX_BUCKETS),
    SIZE("relative_attention_max_distance", max_distance, ATTN_MAX_BUCKETS),
    THETA,
    PARTIAL,
    FLAG("rope_interleaved", rope.interleaved),
    ROPE_OBJECTS,
    SIZE("original_max_position_embeddings", original_max_position, MAX_POSITION),
    FIELD("seed", ATTN_CONFIG_INTEGER, seed, 0, MAX_SEED),
    END,
};

const struct attn_family attn_family_random = {
    .name = "random",
    .keys = random_keys,
    .defaults = {.num_layers = 1,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .norm_eps = 1e-6,
                 .use_sliding_window = true,
                 .max_distance = 128,
                 .relative_attention = true,
                 .share_att_key = true,
                 .relative_norm_eps = 1e-7,
                 .rope = {.truncate = true}},
};
