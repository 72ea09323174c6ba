/* llama.c: rows of Llama and Mistral and of what came of them: mixtral, ministral3,
 * mistral3, llama4, gpt_oss, phi, phi3; and the tensors that Llama's variants share.  Data only.
 *
 * A family lists the keys that it uses or that are peculiar to it; keys that all configurations
 * share are in keys.c.  Defaults are those of Hugging Face's configuration classes, so that
 * an absent key means here what it means there.
 *
 * Sources: the configuration and modelling files of huggingface/transformers v4.46.3 and v4.55.4,
 * and the configurations published with the checkpoints. */
#include "families/decoders.h"
#include "families/rows.h"

const char *const attn_model_prefixes[] = {"model.", "", NULL};
const char *const attn_nested_prefixes[] = {"model.language_model.", "language_model.model.",
                                            "model.", "", NULL};

const struct attn_family_tensor attn_llama_tensors[] = {
    QKV_WEIGHTS,    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,     {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family_tensor attn_normed_tensors[] = {
    QKV_WEIGHTS,
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,
    {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.q_norm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.k_norm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {.name = NULL},
};

/* ---- llama ----------------------------------------------------------------------------------- */

static const struct attn_hf_key llama_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    THETA,
    ROPE_OBJECTS,
    IGNORED("is_decoder"),
    END,
};

const struct attn_family attn_family_llama = {
    .model_type = "llama",
    .name = "llama",
    .keys = llama_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = attn_llama_tensors,
    .defaults = {.is_causal = true, .scale_attn_weights = true, .rope = {ROPE_OF(10000)}},
};

/* ---- mistral --------------------------------------------------------------------------------- */

static const struct attn_hf_key mistral_keys[] = {
    HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, POSITIONS, WINDOW, THETA, ROPE_OBJECTS, END,
};

const struct attn_family attn_family_mistral = {
    .model_type = "mistral",
    .name = "mistral",
    .keys = mistral_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = attn_llama_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.num_kv_heads = 8,
                 .sliding_window = 4096,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- mixtral --------------------------------------------------------------------------------- */

static const struct attn_hf_key mixtral_keys[] = {DECODER_KEYS, HEAD_DIM, WINDOW, END};

const struct attn_family attn_family_mixtral = {
    LLAMA_ROW("mixtral"),
    .keys = mixtral_keys,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {CAUSAL, .num_kv_heads = 8, .use_sliding_window = true, .rope = {ROPE_OF(1e6)}},
};

/* ---- ministral3, alone or under mistral3: queries grow with the log of their position ------- */

static const struct attn_hf_key ministral3_rope_keys[] = {
    ROPE_NUMBER("llama_4_scaling_beta", scaling_beta, 0, 1e6),
    IGNORED("max_position_embeddings"), /* that of the model */
    END,
};

/* Where no RoPE object is given, that of Hugging Face's class counts. */
#define MINISTRAL3                                                                      \
    .keys = mixtral_keys, .rope_keys = ministral3_rope_keys, .unbiased = ATTN_PROJ_ALL, \
    .defaults = {                                                                       \
        CAUSAL,                                                                         \
        .num_kv_heads = 8,                                                              \
        .head_dim = 128,                                                                \
        .max_position = 262144,                                                         \
        .use_sliding_window = true,                                                     \
        .rope = {.type = ATTN_ROPE_YARN,                                                \
                 .theta = 1e6,                                                          \
                 .factor = 16,                                                          \
                 .original_max_position = 16384,                                        \
                 .beta_fast = 32,                                                       \
                 .beta_slow = 1,                                                        \
                 .mscale = 1,                                                           \
                 .mscale_all_dim = 1,                                                   \
                 .scaling_beta = 0.1,                                                   \
                 .truncate = true},                                                     \
    }

const struct attn_family attn_family_ministral3 = {LLAMA_ROW("ministral3"), MINISTRAL3};

const struct attn_family attn_family_mistral3 = {NESTED_ROW("mistral3", "ministral3"),
                                                 .tensors = attn_llama_tensors, MINISTRAL3};

/* The Mistral Small models: mistral3 with the text model of mistral. */
const struct attn_family attn_family_mistral3_mistral = {
    NESTED_ROW("mistral3", "mistral"),
    .tensors = attn_llama_tensors,
    .keys = mixtral_keys,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {CAUSAL, .num_kv_heads = 8, .sliding_window = 4096, .use_sliding_window = true,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- llama4: chunks and RoPE in three layers of four, scaled queries in the fourth ----------- */

static const struct attn_hf_key llama4_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NORM_EPS,
    FLAG("use_qk_norm", qk_norm),
    SIZE("attention_chunk_size", attention_chunk_size, MAX_POSITION),
    FLAG("attn_temperature_tuning", query_tuning),
    NUMBER("attn_scale", query_scaling.beta, 0, 1e6),
    NUMBER("floor_scale", query_scaling.period, 1, MAX_POSITION),
    ROPE_LAYERS("no_rope_layers"),
    FIELD("no_rope_layer_interval", ATTN_CONFIG_INTEGER, no_rope_period, 1, ATTN_MAX_LAYERS),
    LAYER_TYPES("layer_types"),
    IGNORED("for_llm_compressor"),
    IGNORED("interleave_moe_layer_step"),
    IGNORED("intermediate_size_mlp"),
    END,
};

#define LLAMA4                                                                         \
    .keys = llama4_keys,                                                               \
    .defaults = {                                                                      \
        CAUSAL,                                                                        \
        .num_kv_heads = 8,                                                             \
        .head_dim = 128,                                                               \
        .max_position = 131072,                                                        \
        .qk_norm = true,                                                               \
        .norm_weightless = true,                                                       \
        .norm_after_rope = true,                                                       \
        .norm_rope_layers = true,                                                      \
        .norm_eps = 1e-5,                                                              \
        .other_type = ATTN_LAYER_CHUNKED,                                              \
        .attention_chunk_size = 8192,                                                  \
        .no_rope_period = 4,                                                           \
        .query_tuning = true,                                                          \
        .query_scaling = {.beta = 0.1, .period = 8192, .next = true, .by_slot = true}, \
        .scaling_without_rope = true,                                                  \
        .rope = {ROPE_OF(500000), .interleaved = true},                                \
    }

const struct attn_family attn_family_llama4_text = {LLAMA_ROW("llama4_text"), LLAMA4};

const struct attn_family attn_family_llama4 = {NESTED_ROW("llama4", "llama4_text"),
                                               .tensors = attn_llama_tensors, LLAMA4};

/* ---- gpt_oss: a learned sink per head; layers 0, 2, 4, ... use the sliding window ------------ */

/* gpt_oss checkpoints quantise the experts and leave attention as it is, so quantization_config is
 * ignored.  A projection that is quantised nevertheless has a dtype that is refused. */

static const struct attn_hf_key gpt_oss_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    WINDOW,
    LAYER_TYPES("layer_types"),
    THETA,
    ROPE_OBJECTS,
    IGNORED("experts_per_token"),
    IGNORED("initial_context_length"),
    IGNORED("num_experts_per_tok"),
    IGNORED("num_local_experts"),
    IGNORED("output_router_logits"),
    IGNORED("quantization_config"),
    IGNORED("router_aux_loss_coef"),
    IGNORED("swiglu_alpha"),
    IGNORED("swiglu_limit"),
    END,
};

static const struct attn_family_tensor gpt_oss_tensors[] = {
    QKV_WEIGHTS,
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,
    {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.sinks", ATTN_PROJ_Q, ATTN_ROLE_SINKS},
    {.name = NULL},
};

const struct attn_family attn_family_gpt_oss = {
    .model_type = "gpt_oss",
    .name = "gpt_oss",
    .keys = gpt_oss_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = gpt_oss_tensors,
    .defaults = {.num_kv_heads = 8,
                 .head_dim = 64,
                 .bias = true,
                 .sinks = true,
                 .max_position = 131072,
                 .sliding_window = 128,
                 .sliding_period = 2,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {.type = ATTN_ROPE_YARN,
                          .theta = 150000,
                          .factor = 32,
                          .beta_fast = 32,
                          .beta_slow = 1}},
};

/* ---- phi: half of each head rotates ---------------------------------------------------------- */

static const struct attn_hf_key phi_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    LAYERS,
    POSITIONS,
    PARTIAL,
    THETA,
    ROPE_OBJECTS,
    FIXED("qk_layernorm", "false"),
    IGNORED("auto_map"),
    END,
};

static const struct attn_family_tensor phi_tensors[] = {
    QKV_WEIGHTS,    {"layers.*.self_attn.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,     {"layers.*.self_attn.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_phi = {
    .model_type = "phi",
    .name = "phi",
    .keys = phi_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = phi_tensors,
    .defaults = {.bias = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.5}},
};

/* ---- phi3: q, k, v in one tensor; the trained length stands beside rope_scaling -------------- */

static const struct attn_hf_key phi3_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    LAYERS,
    POSITIONS,
    SIZE("original_max_position_embeddings", original_max_position, MAX_POSITION),
    WINDOW,
    PARTIAL,
    THETA,
    ROPE_OBJECTS,
    FIXED("attention_bias", "false"),
    FIXED("full_attn_mod", "1"),
    FIXED("interpolate_factor", "1"),
    IGNORED("auto_map"),
    IGNORED("lm_head_bias"),
    END,
};

static const struct attn_family_tensor phi3_tensors[] = {
    {"layers.*.self_attn.qkv_proj.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {.name = NULL},
};

const struct attn_family attn_family_phi3 = {
    .model_type = "phi3",
    .name = "phi3",
    .keys = phi3_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = phi3_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.max_position = 4096,
                 .original_max_position = 4096,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};
