/* family_llama.c: rows of Llama and of decoders that came after it: mistral, qwen2, qwen3, gemma2,
 * gpt_oss, phi, phi3.  Data only.
 *
 * A family lists the keys that it uses or that are peculiar to it; keys that all configurations
 * share are in family_keys.c.  Defaults are those of Hugging Face's configuration classes, so that
 * an absent key means here what it means there.
 *
 * Sources: the configuration and modelling files of huggingface/transformers v4.46.3 and v4.55.4,
 * and the configurations published with the checkpoints. */
#include "families/family_keys.h"
#include "families/family_rows.h"

static const char *const model_prefixes[] = {"model.", "", NULL};

#define QKV_WEIGHTS                                                          \
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},     \
        {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT}, \
    {                                                                        \
        "layers.*.self_attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT    \
    }
#define QKV_BIASES                                                       \
    {"layers.*.self_attn.q_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},     \
        {"layers.*.self_attn.k_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS}, \
    {                                                                    \
        "layers.*.self_attn.v_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS    \
    }

static const struct attn_family_tensor llama_tensors[] = {
    QKV_WEIGHTS,    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,     {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

/* ---- llama --------------------------------------------------------------------------------- */

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
    .prefixes = model_prefixes,
    .tensors = llama_tensors,
    .defaults = {.is_causal = true, .scale_attn_weights = true, .rope = {ROPE_OF(10000)}},
};

/* ---- mistral ------------------------------------------------------------------------------- */

static const struct attn_hf_key mistral_keys[] = {
    HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, POSITIONS, WINDOW, THETA, ROPE_OBJECTS, END,
};

const struct attn_family attn_family_mistral = {
    .model_type = "mistral",
    .name = "mistral",
    .keys = mistral_keys,
    .common_keys = true,
    .prefixes = model_prefixes,
    .tensors = llama_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.num_kv_heads = 8,
                 .sliding_window = 4096,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- qwen2, qwen3: layers from max_window_layers on use the sliding window ------------------- */

#define QWEN_WINDOW                                                                         \
    WINDOW, FLAG("use_sliding_window", use_sliding_window),                                 \
        FIELD("max_window_layers", ATTN_CONFIG_INTEGER, first_sliding, 0, ATTN_MAX_LAYERS), \
        LAYER_TYPES("layer_types")

static const struct attn_hf_key qwen2_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    LAYERS,
    POSITIONS,
    QWEN_WINDOW,
    THETA,
    ROPE_OBJECTS,
    FIXED("use_mrope", "false"),
    IGNORED("seq_length"),
    END,
};

const struct attn_family attn_family_qwen2 = {
    .model_type = "qwen2",
    .name = "qwen2",
    .keys = qwen2_keys,
    .common_keys = true,
    .prefixes = model_prefixes,
    .tensors = llama_tensors,
    .unbiased = ATTN_PROJ_O,
    .defaults = {.num_kv_heads = 32,
                 .bias = true,
                 .sliding_window = 4096,
                 .first_sliding = 28,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};

static const struct attn_hf_key qwen3_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    NUMBER("rms_norm_eps", norm_eps, 0, 1),
    QWEN_WINDOW,
    THETA,
    ROPE_OBJECTS,
    END,
};

static const struct attn_family_tensor qwen3_tensors[] = {
    QKV_WEIGHTS,
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,
    {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.q_norm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.k_norm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {.name = NULL},
};

const struct attn_family attn_family_qwen3 = {
    .model_type = "qwen3",
    .name = "qwen3",
    .keys = qwen3_keys,
    .common_keys = true,
    .prefixes = model_prefixes,
    .tensors = qwen3_tensors,
    .defaults = {.num_kv_heads = 32,
                 .head_dim = 128,
                 .qk_norm = true,
                 .norm_eps = 1e-6,
                 .sliding_window = 4096,
                 .first_sliding = 28,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- gemma2: soft-capping; layers 0, 2, 4, ... use the sliding window ------------------------ */

static const struct attn_hf_key gemma2_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    NUMBER("query_pre_attn_scalar", query_pre_attn_scalar, 1e-9, 1e9),
    NUMBER("attn_logit_softcapping", softcap, ATTN_MIN_SOFTCAP, ATTN_MAX_SOFTCAP),
    WINDOW,
    LAYER_TYPES("layer_types"),
    THETA,
    ROPE_OBJECTS,
    IGNORED("final_logit_softcapping"),
    IGNORED("sliding_window_size"), /* an early name that no class reads */
    END,
};

const struct attn_family attn_family_gemma2 = {
    .model_type = "gemma2",
    .name = "gemma2",
    .keys = gemma2_keys,
    .common_keys = true,
    .prefixes = model_prefixes,
    .tensors = llama_tensors,
    .defaults = {.num_kv_heads = 4,
                 .head_dim = 256,
                 .query_pre_attn_scalar = 256,
                 .softcap = 50,
                 .sliding_window = 4096,
                 .sliding_period = 2,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};

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
    .prefixes = model_prefixes,
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
    .prefixes = model_prefixes,
    .tensors = phi_tensors,
    .defaults = {.bias = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.5}},
};

/* ---- phi3: q, k, v in one tensor; the trained length stands beside rope_scaling ------------- */

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
    .prefixes = model_prefixes,
    .tensors = phi3_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.max_position = 4096,
                 .original_max_position = 4096,
                 .use_sliding_window = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};
