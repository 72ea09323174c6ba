/* gemma.c: rows of the Gemma family: gemma, gemma2, gemma3 and gemma4, alone or as the text
 * model of a model with vision.  Data only.  Sources: as in llama.c. */
#include "families/decoders.h"
#include "families/rows.h"

/* ---- gemma ----------------------------------------------------------------------------------- */

static const struct attn_hf_key gemma_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, FIXED("use_bidirectional_attention", "false"), END,
};

const struct attn_family attn_family_gemma = {
    LLAMA_ROW("gemma"),
    .keys = gemma_keys,
    .defaults = {CAUSAL, .num_kv_heads = 16, .head_dim = 256, .rope = {ROPE_OF(10000)}},
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
    .prefixes = attn_model_prefixes,
    .tensors = attn_llama_tensors,
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

/* ---- gemma3: norms times 1 + w; five of six layers slide, with a RoPE base of their own ------ */

static const struct attn_hf_key gemma3_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NORM_EPS,
    NUMBER("query_pre_attn_scalar", query_pre_attn_scalar, 1e-9, 1e9),
    NUMBER("attn_logit_softcapping", softcap, ATTN_MIN_SOFTCAP, ATTN_MAX_SOFTCAP),
    WINDOW,
    FULL_PERIOD("sliding_window_pattern"),
    LAYER_TYPES("layer_types"),
    NUMBER("rope_local_base_freq", sliding_rope.theta, 1, MAX_THETA),
    FLAG("use_bidirectional_attention", bidirectional), /* EmbeddingGemma */
    IGNORED("final_logit_softcapping"),
    END,
};

/* Published configurations leave out what the class has as its default, sizes too. */
#define GEMMA3                                                                  \
    .keys = gemma3_keys, .tensors = attn_normed_tensors, .norm_plus_one = true, \
    .defaults = {                                                               \
        CAUSAL,                                                                 \
        .hidden_size = 2304,                                                    \
        .num_heads = 8,                                                         \
        .num_kv_heads = 4,                                                      \
        .head_dim = 256,                                                        \
        .num_layers = 26,                                                       \
        .max_position = 131072,                                                 \
        .query_pre_attn_scalar = 256,                                           \
        .qk_norm = true,                                                        \
        .norm_eps = 1e-6,                                                       \
        .sliding_window = 4096,                                                 \
        .use_sliding_window = true,                                             \
        .full_period = 6,                                                       \
        .rope_by_type = true,                                                   \
        .rope = {ROPE_OF(1e6)},                                                 \
        .sliding_rope = {ROPE_OF(10000)},                                       \
    }

const struct attn_family attn_family_gemma3_text = {.model_type = "gemma3_text",
                                                    .name = "gemma3_text",
                                                    .common_keys = true,
                                                    .prefixes = attn_model_prefixes,
                                                    GEMMA3};
const struct attn_family attn_family_gemma3 = {NESTED_ROW("gemma3", "gemma3_text"), GEMMA3};

/* ---- gemma4: full layers with heads of their own; the last layers may read another cache -- */

/* One tensor makes keys and values. */
static const struct attn_family_tensor gemma4_shared_tensors[] = {
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_norm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.k_norm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {.name = NULL},
};

static const struct attn_hf_key gemma4_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    NORM_EPS,
    PARTIAL,
    WINDOW,
    LAYER_TYPES("layer_types"),
    SIZE("global_head_dim", global_head_dim, ATTN_MAX_HEAD_DIM),
    SIZE("num_global_key_value_heads", num_global_kv_heads, ATTN_MAX_HEADS),
    FLAG("attention_k_eq_v", keys_as_values),
    FIELD("num_kv_shared_layers", ATTN_CONFIG_INTEGER, num_shared_layers, 0, ATTN_MAX_LAYERS),
    FIXED("attention_bias", "false"),
    FIXED("use_bidirectional_attention", "\"vision\""), /* tokens of images only */
    IGNORED("enable_moe_block"),
    IGNORED("expert_intermediate_size"),
    IGNORED("final_logit_softcapping"),
    IGNORED("hidden_size_per_layer_input"),
    IGNORED("use_double_wide_mlp"),
    IGNORED("vocab_size_per_layer_input"),
    END,
};

#define GEMMA4                                                                                    \
    .keys = gemma4_keys, .tensors = attn_normed_tensors, .shared_tensors = gemma4_shared_tensors, \
    .unbiased = ATTN_PROJ_ALL,                                                                    \
    .defaults = {                                                                                 \
        CAUSAL,                                                                                   \
        .hidden_size = 2304,                                                                      \
        .num_heads = 8,                                                                           \
        .num_kv_heads = 4,                                                                        \
        .head_dim = 256,                                                                          \
        .global_head_dim = 512,                                                                   \
        .num_layers = 30,                                                                         \
        .max_position = 131072,                                                                   \
        .scale = 1,                                                                               \
        .qk_norm = true,                                                                          \
        .v_norm = true,                                                                           \
        .norm_eps = 1e-6,                                                                         \
        .sliding_window = 512,                                                                    \
        .use_sliding_window = true,                                                               \
        .full_period = 6,                                                                         \
        .last_full = true,                                                                        \
        .rope_by_type = true,                                                                     \
        .rope = {.type = ATTN_ROPE_PROPORTIONAL, .theta = 1e6, .partial_rotary_factor = 0.25},    \
        .sliding_rope = {ROPE_OF(10000)},                                                         \
    }

const struct attn_family attn_family_gemma4_text = {.model_type = "gemma4_text",
                                                    .name = "gemma4_text",
                                                    .common_keys = true,
                                                    .prefixes = attn_model_prefixes,
                                                    GEMMA4};
const struct attn_family attn_family_gemma4 = {NESTED_ROW("gemma4", "gemma4_text"), GEMMA4};
