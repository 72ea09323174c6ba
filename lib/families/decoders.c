/* decoders.c: rows of decoders that are Llama with other keys, norms, positions or layouts:
 * granite to nemotron.  Data only.  Sources: as in llama.c; internlm2 and mimo from the
 * modelling code published with their checkpoints. */
#include "families/decoders.h"
#include "families/rows.h"

/* ---- granite: the scale of scores is a key --------------------------------------------------- */

static const struct attn_hf_key granite_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NUMBER("attention_multiplier", scale, 1e-9, ATTN_MAX_SCALE),
    IGNORED("embedding_multiplier"),
    IGNORED("logits_scaling"),
    IGNORED("residual_multiplier"),
    END,
};

const struct attn_family attn_family_granite = {
    LLAMA_ROW("granite"), .keys = granite_keys,
    .defaults = {CAUSAL, .scale = 1, .rope = {ROPE_OF(10000)}}};

/* ---- smollm3: one layer of four does not rotate ---------------------------------------------- */

static const struct attn_hf_key smollm3_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NO_WINDOW,
    LAYER_TYPES("layer_types"),
    ROPE_LAYERS("no_rope_layers"),
    FIELD("no_rope_layer_interval", ATTN_CONFIG_INTEGER, no_rope_period, 1, ATTN_MAX_LAYERS),
    END,
};

const struct attn_family attn_family_smollm3 = {
    LLAMA_ROW("smollm3"), .keys = smollm3_keys,
    .defaults = {CAUSAL, .num_kv_heads = 4, .no_rope_period = 4, .rope = {ROPE_OF(2e6)}}};

/* ---- starcoder2 ------------------------------------------------------------------------------ */

static const struct attn_hf_key starcoder2_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    FLAG("use_bias", bias),
    WINDOW,
    FIXED("scale_attn_weights", "true"),
    IGNORED("attention_softmax_in_fp32"),
    IGNORED("embedding_dropout"),
    IGNORED("mlp_type"),
    IGNORED("norm_epsilon"),
    IGNORED("norm_type"),
    IGNORED("residual_dropout"),
    IGNORED("scale_attention_softmax_in_fp32"),
    END,
};

const struct attn_family attn_family_starcoder2 = {
    LLAMA_ROW("starcoder2"), .keys = starcoder2_keys,
    .defaults = {CAUSAL, .num_kv_heads = 2, .bias = true, .use_sliding_window = true,
                 .rope = {ROPE_OF(10000)}}};

/* ---- stablelm -------------------------------------------------------------------------------- */

static const struct attn_hf_key stablelm_keys[] = {
    DECODER_KEYS,
    PARTIAL,
    FLAG("use_qkv_bias", bias),
    FIXED("qk_layernorm", "false"),
    IGNORED("norm_eps"),
    IGNORED("use_parallel_residual"),
    END,
};

const struct attn_family attn_family_stablelm = {
    LLAMA_ROW("stablelm"), .keys = stablelm_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 32,
                 .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.25}}};

/* ---- glm, glm4: half of each head rotates, in neighbouring pairs ----------------------------- */

static const struct attn_hf_key glm_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, PARTIAL, END,
};

const struct attn_family attn_family_glm = {
    LLAMA_ROW("glm"), .keys = glm_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 2, .head_dim = 128, .bias = true,
                 .rope = {ROPE_OF(10000), .interleaved = true, .partial_rotary_factor = 0.5}}};

const struct attn_family attn_family_glm4 = {
    LLAMA_ROW("glm4"), .keys = glm_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 2, .head_dim = 128, .bias = true,
                 .rope = {ROPE_OF(10000), .interleaved = true, .partial_rotary_factor = 0.5}}};

/* ---- helium ---------------------------------------------------------------------------------- */

static const struct attn_hf_key helium_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    END,
};

const struct attn_family attn_family_helium = {
    LLAMA_ROW("helium"), .keys = helium_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 20, .head_dim = 128,
                 .rope = {ROPE_OF(100000), .interleaved = true}}};

/* ---- seed_oss: the output projection has a bias by a key of its own -------------------------- */

static const struct attn_hf_key seed_oss_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    FLAG("attention_out_bias", o_bias),
    IGNORED("residual_dropout"),
    END,
};

const struct attn_family attn_family_seed_oss = {
    LLAMA_ROW("seed_oss"), .keys = seed_oss_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 8, .head_dim = 128, .bias = true,
                 .rope = {ROPE_OF(10000)}}};

/* ---- mimo: qwen2's attention ----------------------------------------------------------------- */

static const struct attn_hf_key mimo_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    NO_WINDOW,
    LAYER_TYPES("layer_types"),
    FIXED("attention_bias", "true"),
    FIXED("use_mrope", "false"),
    IGNORED("auto_map"),
    IGNORED("num_nextn_predict_layers"),
    END,
};

const struct attn_family attn_family_mimo = {
    LLAMA_ROW("mimo"), .keys = mimo_keys, .unbiased = ATTN_PROJ_O,
    .defaults = {CAUSAL, .num_kv_heads = 32, .bias = true, .rope = {ROPE_OF(10000)}}};

/* ---- hunyuan_v1_dense: norms after RoPE, whose base grows with alpha ------------------------- */

static const struct attn_family_tensor hunyuan_tensors[] = {
    QKV_WEIGHTS,
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    QKV_BIASES,
    {"layers.*.self_attn.o_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.query_layernorm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.key_layernorm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {.name = NULL},
};

static const struct attn_hf_key hunyuan_rope_keys[] = {
    ROPE_NUMBER("alpha", alpha, 1, 1e12),
    END,
};

static const struct attn_hf_key hunyuan_v1_dense_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NORM_EPS,
    FIXED("use_cla", "false"),
    FIXED("use_mla", "false"),
    FIXED("use_qk_norm", "true"),
    FIXED("use_rotary_pos_emb", "true"),
    IGNORED("attention_head_dim"),
    IGNORED("add_classification_head"),
    IGNORED("class_num"),
    IGNORED("im_end_id"),
    IGNORED("im_newline_id"),
    IGNORED("im_start_id"),
    IGNORED("mask_init_id"),
    IGNORED("norm_type"),
    IGNORED("org_vocab_size"),
    IGNORED("pad_id"),
    IGNORED("pool_type"),
    IGNORED("text_end_id"),
    IGNORED("text_start_id"),
    IGNORED("eod_token_id"),
    IGNORED("sep_token_id"),
    END,
};

const struct attn_family attn_family_hunyuan_v1_dense = {
    .model_type = "hunyuan_v1_dense",
    .name = "hunyuan_v1_dense",
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = hunyuan_tensors,
    .keys = hunyuan_v1_dense_keys,
    .rope_keys = hunyuan_rope_keys,
    .defaults = {CAUSAL, .qk_norm = true, .norm_after_rope = true, .norm_eps = 1e-5,
                 .rope = {ROPE_OF(10000)}}};

/* ---- ernie4_5: neighbouring pairs ------------------------------------------------------------ */

static const struct attn_hf_key ernie4_5_keys[] = {
    DECODER_KEYS, HEAD_DIM, FLAG("use_bias", bias), IGNORED("compression_ratio"), END,
};

const struct attn_family attn_family_ernie4_5 = {
    LLAMA_ROW("ernie4_5"), .keys = ernie4_5_keys,
    .defaults = {CAUSAL, .num_kv_heads = 2, .head_dim = 128,
                 .rope = {ROPE_OF(500000), .interleaved = true}}};

/* ---- internlm2: q, k, v in one tensor, by key/value head ------------------------------------- */

static const struct attn_family_tensor internlm2_tensors[] = {
    {"layers.*.attention.wqkv.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"layers.*.attention.wqkv.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"layers.*.attention.wo.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.attention.wo.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

static const struct attn_hf_key internlm2_keys[] = {
    DECODER_KEYS,
    FLAG("bias", bias),
    IGNORED("auto_map"),
    END,
};

const struct attn_family attn_family_internlm2 = {.model_type = "internlm2",
                                                  .name = "internlm2",
                                                  .common_keys = true,
                                                  .prefixes = attn_model_prefixes,
                                                  .tensors = internlm2_tensors,
                                                  .keys = internlm2_keys,
                                                  .layout = ATTN_LAYOUT_GROUPED,
                                                  .defaults = {CAUSAL, .rope = {ROPE_OF(10000)}}};

/* ---- olmo2, olmo3: one norm over all heads; scaling holds for full layers -------------------- */

static const struct attn_hf_key olmo2_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, END,
};

const struct attn_family attn_family_olmo2 = {
    NORMED_ROW("olmo2"), .keys = olmo2_keys,
    .defaults = {CAUSAL, .qk_norm = true, .norm_extent = ATTN_NORM_ALL_HEADS, .norm_eps = 1e-5,
                 .rope = {ROPE_OF(10000)}}};

static const struct attn_hf_key olmo3_keys[] = {
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, WINDOW, LAYER_TYPES("layer_types"), END,
};

const struct attn_family attn_family_olmo3 = {
    NORMED_ROW("olmo3"), .keys = olmo3_keys,
    .defaults = {CAUSAL, .qk_norm = true, .norm_extent = ATTN_NORM_ALL_HEADS, .norm_eps = 1e-5,
                 .sliding_window = 4096, .use_sliding_window = true, .full_period = 4,
                 .rope_by_type = true, .rope = {ROPE_OF(500000)},
                 .sliding_rope = {.type = ATTN_ROPE_DEFAULT, .truncate = true}}};

/* ---- exaone4: with a window, full layers have no positions ----------------------------------- */

static const struct attn_hf_key exaone4_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    NORM_EPS,
    WINDOW,
    FULL_PERIOD("sliding_window_pattern"),
    LAYER_TYPES("layer_types"),
    END,
};

const struct attn_family attn_family_exaone4 = {
    NORMED_ROW("exaone4"), .keys = exaone4_keys, .unbiased = ATTN_PROJ_ALL,
    .defaults = {CAUSAL, .num_kv_heads = 32, .qk_norm = true, .norm_eps = 1e-5,
                 .sliding_window = 4096, .use_sliding_window = true, .full_period = 4,
                 .rope_layers = ATTN_ROPE_IF_WINDOW, .rope = {ROPE_OF(10000)}}};

/* ---- cohere, cohere2: neighbouring pairs; in cohere2 only sliding layers rotate -------------- */

static const struct attn_hf_key cohere_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    NUMBER("layer_norm_eps", norm_eps, 0, 1),
    FLAG("use_qk_norm", qk_norm),
    IGNORED("logit_scale"),
    IGNORED("model_max_length"),
    END,
};

const struct attn_family attn_family_cohere = {
    NORMED_ROW("cohere"), .keys = cohere_keys,
    .defaults = {CAUSAL, .norm_type = ATTN_NORM_LAYER, .norm_extent = ATTN_NORM_EACH_HEAD,
                 .norm_eps = 1e-5, .rope = {ROPE_OF(10000), .interleaved = true}}};

static const struct attn_hf_key cohere2_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    WINDOW,
    FULL_PERIOD("sliding_window_pattern"),
    LAYER_TYPES("layer_types"),
    FIXED("order_of_interleaved_layers", "\"local_attn_first\""),
    FIXED("position_embedding_type", "\"rope_gptj\""),
    FIXED("rotary_pct", "1.0"),
    IGNORED("layer_switch"),
    IGNORED("logit_scale"),
    IGNORED("use_embedding_sharing"),
    IGNORED("use_gated_activation"),
    IGNORED("use_parallel_block"),
    IGNORED("use_parallel_embedding"),
    IGNORED("use_qk_norm"),
    END,
};

const struct attn_family attn_family_cohere2 = {
    LLAMA_ROW("cohere2"), .keys = cohere2_keys,
    .defaults = {CAUSAL, .sliding_window = 4096, .use_sliding_window = true, .full_period = 4,
                 .rope_layers = ATTN_ROPE_SLIDING_ONLY,
                 .rope = {ROPE_OF(10000), .interleaved = true}}};

/* ---- persimmon: LayerNorm with bias; q, k, v in one tensor, head by head --------------------- */

static const struct attn_family_tensor persimmon_tensors[] = {
    {"layers.*.self_attn.query_key_value.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.query_key_value.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.q_layernorm.weight", ATTN_PROJ_Q, ATTN_ROLE_NORM},
    {"layers.*.self_attn.k_layernorm.weight", ATTN_PROJ_K, ATTN_ROLE_NORM},
    {"layers.*.self_attn.q_layernorm.bias", ATTN_PROJ_Q, ATTN_ROLE_NORM_BIAS},
    {"layers.*.self_attn.k_layernorm.bias", ATTN_PROJ_K, ATTN_ROLE_NORM_BIAS},
    {.name = NULL},
};

static const struct attn_hf_key persimmon_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    THETA,
    ROPE_OBJECTS,
    PARTIAL,
    NUMBER("layer_norm_eps", norm_eps, 0, 1),
    FLAG("qk_layernorm", qk_norm),
    IGNORED("num_key_value_heads"), /* every query head has its own */
    END,
};

const struct attn_family attn_family_persimmon = {
    .model_type = "persimmon",
    .name = "persimmon",
    .common_keys = true,
    .prefixes = attn_model_prefixes,
    .tensors = persimmon_tensors,
    .keys = persimmon_keys,
    .layout = ATTN_LAYOUT_GROUPED,
    .defaults = {CAUSAL, .bias = true, .qk_norm = true, .norm_type = ATTN_NORM_LAYER,
                 .norm_bias = true, .norm_eps = 1e-5,
                 .rope = {ROPE_OF(25000), .partial_rotary_factor = 0.5}}};

/* ---- nemotron -------------------------------------------------------------------------------- */

static const struct attn_hf_key nemotron_keys[] = {
    DECODER_KEYS,
    HEAD_DIM,
    ATTENTION_BIAS,
    PARTIAL,
    IGNORED("norm_eps"),
    IGNORED("rope_percent"),
    IGNORED("rotary_percentage"),
    END,
};

const struct attn_family attn_family_nemotron = {
    LLAMA_ROW("nemotron"), .keys = nemotron_keys,
    .defaults = {CAUSAL, .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.5}}};
