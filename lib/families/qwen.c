/* qwen.c: rows of Qwen's decoders: qwen2 and qwen3, their experts, the text models of their
 * vision models, and the full-attention layers of qwen3_next and qwen3_5.  Data only.  Sources: as
 * in llama.c. */
#include "families/decoders.h"
#include "families/rows.h"

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
    .prefixes = attn_model_prefixes,
    .tensors = attn_llama_tensors,
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

const struct attn_family attn_family_qwen3 = {
    .model_type = "qwen3",
    .name = "qwen3",
    .keys = qwen3_keys,
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = attn_normed_tensors,
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

/* ---- qwen2_moe, qwen3_moe -------------------------------------------------------------------- */

static const struct attn_hf_key qwen2_moe_keys[] = {
    DECODER_KEYS, HEAD_DIM, FLAG("qkv_bias", bias), NO_WINDOW, LAYER_TYPES("layer_types"), END,
};

const struct attn_family attn_family_qwen2_moe = {
    LLAMA_ROW("qwen2_moe"),
    .keys = qwen2_moe_keys,
    .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 16, .bias = true, .rope = {ROPE_OF(10000)}},
};

static const struct attn_hf_key qwen3_moe_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, NO_WINDOW, LAYER_TYPES("layer_types"), END,
};

const struct attn_family attn_family_qwen3_moe = {
    NORMED_ROW("qwen3_moe"),
    .keys = qwen3_moe_keys,
    .defaults = {CAUSAL, .num_kv_heads = 4, .qk_norm = true, .norm_eps = 1e-6,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- qwen2_vl, qwen2_5_vl, qwen3_vl: the text model, with one row of positions ------------- */

static const struct attn_hf_key mrope_keys[] = {
    IGNORED("mrope_interleaved"),
    IGNORED("mrope_section"),
    END,
};

static const struct attn_hf_key qwen2_vl_keys[] = {
    DECODER_KEYS,
    NO_WINDOW,
    LAYER_TYPES("layer_types"),
    IGNORED("image_token_id"),
    IGNORED("video_token_id"),
    IGNORED("vision_config"),
    IGNORED("vision_end_token_id"),
    IGNORED("vision_start_token_id"),
    IGNORED("vision_token_id"),
    END,
};

#define QWEN2_VL                                                                                  \
    .keys = qwen2_vl_keys, .rope_keys = mrope_keys, .mrope = true, .tensors = attn_llama_tensors, \
    .unbiased = ATTN_PROJ_O,                                                                      \
    .defaults = {CAUSAL, .num_kv_heads = 8, .bias = true, .rope = {ROPE_OF(1e6)}}

const struct attn_family attn_family_qwen2_vl = {NESTED_ROW("qwen2_vl", "qwen2_vl_text"), QWEN2_VL};
const struct attn_family attn_family_qwen2_5_vl = {NESTED_ROW("qwen2_5_vl", "qwen2_5_vl_text"),
                                                   QWEN2_VL};

static const struct attn_hf_key qwen3_vl_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, END,
};

#define QWEN3_VL(kv_heads)                                                                         \
    .keys = qwen3_vl_keys, .rope_keys = mrope_keys, .mrope = true, .tensors = attn_normed_tensors, \
    .defaults = {                                                                                  \
        CAUSAL,          .num_kv_heads = kv_heads, .head_dim = 128,                                \
        .qk_norm = true, .norm_eps = 1e-6,         .rope = {ROPE_OF(500000)},                      \
    }

const struct attn_family attn_family_qwen3_vl = {NESTED_ROW("qwen3_vl", "qwen3_vl_text"),
                                                 QWEN3_VL(32)};
const struct attn_family attn_family_qwen3_vl_moe = {
    NESTED_ROW("qwen3_vl_moe", "qwen3_vl_moe_text"), QWEN3_VL(16)};

/* ---- qwen3_next, qwen3_5: gated full attention in one layer of four; others are linear ----- */

/* q_proj holds, head by head, the query and its gate. */
static const struct attn_family_tensor gated_tensors[] = {
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q | ATTN_PROJ_GATE, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_norm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.k_norm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {.name = NULL},
};

static const struct attn_hf_key qwen3_next_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    NORM_EPS,
    PARTIAL,
    FULL_PERIOD("full_attention_interval"),
    LAYER_TYPES("layer_types"),
    FIXED("attention_bias", "false"),
    FIXED("attn_output_gate", "true"),
    FIXED("output_gate_type", "\"swish\""), /* of linear layers */
    IGNORED("use_sliding_window"),          /* no layer slides */
    IGNORED("linear_conv_kernel_dim"),
    IGNORED("linear_key_head_dim"),
    IGNORED("linear_num_key_heads"),
    IGNORED("linear_num_value_heads"),
    IGNORED("linear_value_head_dim"),
    IGNORED("mamba_ssm_dtype"),
    IGNORED("mtp_num_hidden_layers"),
    IGNORED("mtp_use_dedicated_embeddings"),
    END,
};

#define QWEN3_NEXT(kv_heads)                                                                   \
    .keys = qwen3_next_keys, .rope_keys = mrope_keys, .mrope = true, .tensors = gated_tensors, \
    .norm_plus_one = true, .unbiased = ATTN_PROJ_ALL,                                          \
    .defaults = {                                                                              \
        CAUSAL,                                                                                \
        .num_kv_heads = kv_heads,                                                              \
        .head_dim = 256,                                                                       \
        .output_gate = true,                                                                   \
        .qk_norm = true,                                                                       \
        .norm_eps = 1e-6,                                                                      \
        .other_type = ATTN_LAYER_LINEAR,                                                       \
        .full_period = 4,                                                                      \
        .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.25},                               \
    }

const struct attn_family attn_family_qwen3_next = {.model_type = "qwen3_next",
                                                   .name = "qwen3_next",
                                                   .common_keys = true,
                                                   .prefixes = attn_model_prefixes,
                                                   QWEN3_NEXT(2)};
const struct attn_family attn_family_qwen3_5 = {NESTED_ROW("qwen3_5", "qwen3_5_text"),
                                                QWEN3_NEXT(4)};
const struct attn_family attn_family_qwen3_5_moe = {NESTED_ROW("qwen3_5_moe", "qwen3_5_moe_text"),
                                                    QWEN3_NEXT(2)};
