/* llama.c: rows of Llama, Mistral, Qwen, Gemma and what came of them, and the tensors that Llama's
 * variants share.  Data only.
 *
 * A family lists the keys that it uses or that are peculiar to it; keys that all configurations
 * share are in family.c.  Defaults are those of Hugging Face's configuration classes, so that an
 * absent key means here what it means there.
 *
 * Sources: the configuration and modelling files of huggingface/transformers v4.46.3 and v4.55.4,
 * and the configurations published with the checkpoints. */
#include "families/rows.h"

const char *const attn_model_prefixes[] = {"model.", "", NULL};

const struct attn_family_tensor attn_llama_tensors[] = TENSOR_LIST(LLAMA_MAPS);
const struct attn_family_tensor attn_normed_tensors[] = TENSOR_LIST(LLAMA_MAPS, NORMS);

/* ---- llama, mistral -------------------------------------------------------------------------- */

ROW(llama, LLAMA("llama"),
    KEYS(DECODER_SIZES, ATTENTION_BIAS, THETA, ROPE_OBJECTS, IGNORED("is_decoder")),
    INNER(4096, 32, 32, 2048), DEFAULTS(CAUSAL, ROPE(10000)));

/* Both directions. */
ROW(eurobert, LLAMA("eurobert"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, IGNORED("classifier_pooling clf_pooling")),
    DEFAULTS(.scale_attn_weights = true, ROPE(250000)));

ROW(mistral, LLAMA("mistral"), KEYS(DECODER_SIZES, WINDOW, THETA, ROPE_OBJECTS),
    .unbiased = ATTN_PROJ_ALL, INNER(4096, 32, 32, 131072),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, SLIDES, .sliding_window = 4096, ROPE(10000)));

static const struct attn_hf_key mixtral_keys[] = KEY_LIST(DECODER_KEYS, HEAD_DIM, WINDOW);

ROW(mixtral, LLAMA("mixtral"), .keys = mixtral_keys, .unbiased = ATTN_PROJ_ALL,
    DEFAULTS(CAUSAL, .num_kv_heads = 8, SLIDES, ROPE(1e6)));

ROW(ministral, LLAMA("ministral"), KEYS(DECODER_KEYS, HEAD_DIM, WINDOW, LAYER_TYPES),
    .unbiased = ATTN_PROJ_ALL,
    DEFAULTS(CAUSAL, .num_kv_heads = 8, SLIDES, .sliding_window = 4096, ROPE(10000)));

/* Where no RoPE object is given, that of Hugging Face's class counts. */
#define MINISTRAL3                                                                               \
    .keys = mixtral_keys, .unbiased = ATTN_PROJ_ALL, SCALING_BETA,                               \
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .max_position = 262144, SLIDES,         \
             .rope = {ROPE_OF(YARN, 1e6, .factor = 16, .original_max_position = 16384,           \
                              .beta_fast = 32, .beta_slow = 1, .mscale = 1, .mscale_all_dim = 1, \
                              .scaling_beta = 0.1, .truncate = true)})

ROW(ministral3, LLAMA("ministral3"), MINISTRAL3);
ROW(mistral3, NESTED("mistral3", "ministral3"), .tensors = attn_llama_tensors, MINISTRAL3);

/* The Mistral Small models: mistral3 with the text model of mistral. */
ROW(mistral3_mistral, NESTED("mistral3", "mistral"), .tensors = attn_llama_tensors,
    .keys = mixtral_keys, .unbiased = ATTN_PROJ_ALL,
    DEFAULTS(CAUSAL, .num_kv_heads = 8, SLIDES, .sliding_window = 4096, ROPE(10000)));

/* ---- chameleon, moshi: llama with norms of each head; with windows and names of its own ------ */

ROW(chameleon, DECODER("chameleon"),
    TENSORS(LLAMA_MAPS, NORMS, TENSOR(SELF_ATTN "q_norm.bias", Q, NORM_BIAS),
            TENSOR(SELF_ATTN "k_norm.bias", K, NORM_BIAS)),
    KEYS(DECODER_KEYS, ATTENTION_BIAS,
         IGNORED("model_parallel_size swin_norm vocabulary_map vq_config")),
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_type = ATTN_NORM_LAYER, .norm_bias = true,
             .norm_extent = ATTN_NORM_EACH_HEAD, .norm_eps = 1e-5, ROPE(10000)));

/* The speech models of Kyutai; their decoders of codes within a step are not read. */
#define MOSHI(type, window, base)                                                                 \
    FAMILY(type), PREFIXES("decoder.model.", "model.", ""),                                       \
        .unbiased = ATTN_PROJ_ALL,                                                                \
        TENSORS(                                                                                  \
            MAPS(SELF_ATTN, "q_proj.linear", "k_proj.linear", "v_proj.linear", "o_proj.linear")), \
        .keys = moshi_keys, DEFAULTS(CAUSAL, SLIDES, .sliding_window = window, ROPE(base))
static const struct attn_hf_key moshi_keys[] =
    KEY_LIST(DECODER_SIZES, WINDOW, THETA, ROPE_OBJECTS,
             IGNORED("audio_bos_token_id audio_encoder_config audio_pad_token_id "
                     "audio_vocab_size codebook_vocab_size codec_config depth_decoder_config "
                     "ffn_dim num_codebooks"));

ROW(moshi, MOSHI("moshi", 3000, 10000));
ROW(kyutai_speech_to_text, MOSHI("kyutai_speech_to_text", 375, 100000));

/* ---- llama4: chunks and RoPE in three layers of four, scaled queries in the fourth ----------- */

static const struct attn_hf_key llama4_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, FLAG("use_qk_norm", qk_norm),
             CHUNK_SIZE, FIELD("attn_temperature_tuning", FLAG, query_tuning, 0, 4),
             NUMBER("attn_scale", query_scaling.beta, 0, 1e6),
             NUMBER("floor_scale", query_scaling.period, 1, MAX_POSITION), ROPE_LAYERS,
             NO_ROPE_PERIOD, FIXED("nope_layer_interval", "4"), LAYER_TYPES,
             IGNORED("for_llm_compressor interleave_moe_layer_step intermediate_size_mlp"));

#define LLAMA4                                                                                    \
    .keys = llama4_keys, .tensors = attn_llama_tensors,                                           \
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .max_position = 131072, .qk_norm = true, \
             .norm_weightless = true, .norm_after_rope = true, .norm_rope_layers = true,          \
             .norm_eps = 1e-5, .other_type = ATTN_LAYER_CHUNKED, .attention_chunk_size = 8192,    \
             .no_rope_period = 4, .query_tuning = true,                                           \
             .query_scaling = {.beta = 0.1, .period = 8192, .next = true, .by_slot = true},       \
             .scaling_without_rope = true, ROPE(500000, .interleaved = true))

ROW(llama4, NESTED("llama4", "llama4_text"), LLAMA4);
ROW(llama4_text, DECODER("llama4_text"), LLAMA4);

/* ---- gpt_oss: a learned sink per head; layers 0, 2, 4, ... use the sliding window ------------ */

ROW(gpt_oss, DECODER("gpt_oss"), TENSORS(LLAMA_MAPS, TENSOR(SELF_ATTN "sinks", Q, SINKS)),
    KEYS(DECODER_SIZES, ATTENTION_BIAS, WINDOW, LAYER_TYPES, THETA, ROPE_OBJECTS,
         IGNORED("experts_per_token initial_context_length num_experts_per_tok num_local_experts "
                 "output_router_logits router_aux_loss_coef swiglu_alpha swiglu_limit")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 64, .bias = true, .sinks = true,
             .max_position = 131072, SLIDES, .sliding_window = 128, .sliding_period = 2,
             .rope = {ROPE_OF(YARN, 150000, .factor = 32, .beta_fast = 32, .beta_slow = 1)}));

/* ---- phi: half of each head rotates ---------------------------------------------------------- */

/* Published files have attention_bias false beside biases; no class reads it. */
ROW(phi, DECODER("phi"), TENSORS(MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "dense")),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS, PARTIAL, THETA, ROPE_OBJECTS,
         SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM), FIXED("qk_layernorm", "false"),
         IGNORED("attention_bias")),
    DEFAULTS(CAUSAL, .bias = true, ROPE(10000, .partial_rotary_factor = 0.5)));

/* ---- phi3: q, k, v in one tensor; the trained length stands beside rope_scaling -------------- */

#define PHI3(type)                            \
    DECODER(type), .unbiased = ATTN_PROJ_ALL, \
                   TENSORS(WEIGHT(SELF_ATTN "qkv_proj", QKV), WEIGHT(SELF_ATTN "o_proj", O))
#define PHI3_KEYS                                                                              \
    HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS,                                           \
        SIZE("original_max_position_embeddings", original_max_position, MAX_POSITION), WINDOW, \
        PARTIAL, THETA, ROPE_OBJECTS, FIXED("attention_bias", "false"),                        \
        FIXED("full_attn_mod", "1"), FIXED("interpolate_factor", "1"), IGNORED("lm_head_bias")

ROW(phi3, PHI3("phi3"), KEYS(PHI3_KEYS),
    DEFAULTS(CAUSAL, .max_position = 4096, .original_max_position = 4096, SLIDES, ROPE(10000)));

ROW(phi3_v, PHI3("phi3_v"), KEYS(PHI3_KEYS, IGNORED("embd_layer img_processor")),
    DEFAULTS(CAUSAL, .max_position = 4096, .original_max_position = 4096, SLIDES, ROPE(10000)));

/* The text model. */
ROW(phi4_multimodal, PHI3("phi4_multimodal"),
    KEYS(PHI3_KEYS, IGNORED("audio_config audio_token_id image_token_id vision_config")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .max_position = 131072, .original_max_position = 4096,
             SLIDES, ROPE(10000)));

/* ---- qwen2, qwen3: layers from max_window_layers on use the sliding window ------------------- */

#define QWEN_WINDOW                                         \
    WINDOW, FLAG("use_sliding_window", use_sliding_window), \
        FIELD("max_window_layers", INTEGER, first_sliding, 0, ATTN_MAX_LAYERS), LAYER_TYPES
#define QWEN CAUSAL, .num_kv_heads = 32, .sliding_window = 4096, .first_sliding = 28, ROPE(10000)

/* is_causal is false in embedding models such as gte-Qwen2. */
static const struct attn_hf_key qwen2_keys[] =
    KEY_LIST(DECODER_SIZES, QWEN_WINDOW, THETA, ROPE_OBJECTS, FLAG("is_causal", is_causal),
             FIXED("use_mrope", "false"), IGNORED("seq_length"));

ROW(qwen2, LLAMA("qwen2"), .unbiased = ATTN_PROJ_O, .keys = qwen2_keys, INNER(4096, 32, 32, 32768),
    DEFAULTS(QWEN, .bias = true));

ROW(qwen3, NORMED("qwen3"),
    KEYS(DECODER_SIZES, ATTENTION_BIAS, NORM_EPS, QWEN_WINDOW, THETA, ROPE_OBJECTS),
    DEFAULTS(QWEN, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-6));

/* Hugging Face's versions of qwen2_moe disagree on which layers slide where no list says it; those
 * of qwen3_moe read no list, and let all slide. */
#define MOE_WINDOW \
    WINDOW, FLAG("use_sliding_window", use_sliding_window), IGNORED("max_window_layers")

ROW(qwen2_moe, LLAMA("qwen2_moe"), .unbiased = ATTN_PROJ_O,
    KEYS(DECODER_KEYS, HEAD_DIM, FLAG("qkv_bias", bias), MOE_WINDOW, LAYER_TYPES),
    DEFAULTS(CAUSAL, .num_kv_heads = 16, .bias = true, .sliding_window = 4096,
             .window_needs_list = true, ROPE(10000)));

static const struct attn_hf_key qwen3_moe_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, MOE_WINDOW,
             EVERY("layer_types", "\"full_attention\""), FIXED("qkv_bias", "false"),
             FIXED("use_qk_norm", "true"));

#define QWEN3_MOE(theta)                                                                           \
    .keys = qwen3_moe_keys, DEFAULTS(CAUSAL, .num_kv_heads = 4, .qk_norm = true, .norm_eps = 1e-6, \
                                     .sliding_window = 4096, ROPE(theta))

ROW(qwen3_moe, NORMED("qwen3_moe"), QWEN3_MOE(10000));

/* ---- qwen2_vl, qwen2_5_vl, qwen3_vl: the text model, with one row of positions --------------- */

static const struct attn_hf_key qwen2_vl_keys[] =
    KEY_LIST(DECODER_KEYS, NO_WINDOW, LAYER_TYPES,
             IGNORED("image_token_id video_token_id vision_config vision_end_token_id "
                     "vision_start_token_id vision_token_id"));

#define QWEN2_VL                                                                          \
    .keys = qwen2_vl_keys, MROPE, .tensors = attn_llama_tensors, .unbiased = ATTN_PROJ_O, \
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .bias = true, ROPE(1e6))

ROW(qwen2_vl, NESTED("qwen2_vl", "qwen2_vl_text"), QWEN2_VL);
ROW(qwen2_vl_text, DECODER("qwen2_vl_text"), QWEN2_VL);
ROW(qwen2_5_vl, NESTED("qwen2_5_vl", "qwen2_5_vl_text"), QWEN2_VL);
ROW(qwen2_5_vl_text, DECODER("qwen2_5_vl_text"), QWEN2_VL);

/* The thinkers of the Omni models. */
ROW(qwen2_5_omni_text, LLAMA("qwen2_5_omni_text"), .unbiased = ATTN_PROJ_O, .keys = qwen2_keys,
    MROPE,
    DEFAULTS(CAUSAL, .num_kv_heads = 4, .bias = true, .sliding_window = 32768, .first_sliding = 28,
             ROPE(1e6)));
ROW(qwen3_omni_moe_text, NORMED("qwen3_omni_moe_text"), MROPE, QWEN3_MOE(1e6));

static const struct attn_hf_key qwen3_vl_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS);

#define QWEN3_VL(...)                                             \
    .keys = qwen3_vl_keys, MROPE, .tensors = attn_normed_tensors, \
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_eps = 1e-6, ROPE(500000), __VA_ARGS__)

ROW(qwen3_vl, NESTED("qwen3_vl", "qwen3_vl_text"), QWEN3_VL(.num_kv_heads = 32, .head_dim = 128));
ROW(qwen3_vl_text, DECODER("qwen3_vl_text"), QWEN3_VL(.num_kv_heads = 32, .head_dim = 128));
ROW(qwen3_vl_moe, NESTED("qwen3_vl_moe", "qwen3_vl_moe_text"), QWEN3_VL(.num_kv_heads = 16));
ROW(qwen3_vl_moe_text, DECODER("qwen3_vl_moe_text"), QWEN3_VL(.num_kv_heads = 16));

/* ---- qwen3_next, qwen3_5: gated full attention in one layer of four; others are linear ------- */

/* output_gate_type is that of linear layers; no layer slides. */
static const struct attn_hf_key qwen3_next_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, NORM_EPS, PARTIAL, FULL_PERIOD("full_attention_interval"), LAYER_TYPES,
    ATTENTION_BIAS, FIXED("attn_output_gate", "true"), FIXED("output_gate_type", "\"swish\""),
    IGNORED("use_sliding_window linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
            "linear_num_value_heads linear_value_head_dim mamba_ssm_dtype mtp_num_hidden_layers "
            "mtp_use_dedicated_embeddings"));

/* q_proj holds, head by head, the query and its gate. */
#define QWEN3_NEXT(kv_heads)                                                                       \
    .keys = qwen3_next_keys, MROPE, .norm_plus_one = true,                                         \
    TENSORS(WEIGHT(SELF_ATTN "q_proj", Q_AND_GATE), WEIGHT(SELF_ATTN "k_proj", K),                 \
            WEIGHT(SELF_ATTN "v_proj", V), WEIGHT(SELF_ATTN "o_proj", O),                          \
            BIAS(SELF_ATTN "q_proj", Q_AND_GATE), BIAS(SELF_ATTN "k_proj", K),                     \
            BIAS(SELF_ATTN "v_proj", V), BIAS(SELF_ATTN "o_proj", O), NORMS),                      \
    DEFAULTS(CAUSAL, .num_kv_heads = kv_heads, .head_dim = 256, .output_gate = true,               \
             .qk_norm = true, .norm_eps = 1e-6, .other_type = ATTN_LAYER_LINEAR, .full_period = 4, \
             ROPE(10000, .partial_rotary_factor = 0.25))

ROW(qwen3_next, DECODER("qwen3_next"), QWEN3_NEXT(2));
ROW(qwen3_5, NESTED("qwen3_5", "qwen3_5_text"), QWEN3_NEXT(4));
ROW(qwen3_5_text, DECODER("qwen3_5_text"), QWEN3_NEXT(4));
ROW(qwen3_5_moe, NESTED("qwen3_5_moe", "qwen3_5_moe_text"), QWEN3_NEXT(2));
ROW(qwen3_5_moe_text, DECODER("qwen3_5_moe_text"), QWEN3_NEXT(2));

/* ---- gemma ----------------------------------------------------------------------------------- */

static const struct attn_hf_key gemma_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, FIXED("use_bidirectional_attention", "false"),
             IGNORED("num_image_tokens"));

#define GEMMA1 \
    .keys = gemma_keys, DEFAULTS(CAUSAL, .num_kv_heads = 16, .head_dim = 256, ROPE(10000))

ROW(gemma, LLAMA("gemma"), GEMMA1);

/* The caller's masks make image and prompt see each other in both directions. */
ROW(paligemma, NESTED("paligemma", "gemma"), .tensors = attn_llama_tensors, GEMMA1);

/* ---- gemma2: soft-capping; layers 0, 2, 4, ... use the sliding window ------------------------ */

/* sliding_window_size is an early name that no class reads. */
static const struct attn_hf_key gemma2_keys[] =
    KEY_LIST(DECODER_SIZES, ATTENTION_BIAS, SCALE_OF, SOFTCAP, WINDOW, LAYER_TYPES, THETA,
             ROPE_OBJECTS, IGNORED("final_logit_softcapping sliding_window_size"));

#define GEMMA2                                                                         \
    .keys = gemma2_keys,                                                               \
    DEFAULTS(CAUSAL, .num_kv_heads = 4, .head_dim = 256, .query_pre_attn_scalar = 256, \
             .softcap = 50, SLIDES, .sliding_window = 4096, .sliding_period = 2, ROPE(10000))

ROW(gemma2, LLAMA("gemma2"), GEMMA2);
ROW(vaultgemma, LLAMA("vaultgemma"), GEMMA2);

/* ---- gemma3: norms times 1 + w; five of six layers slide, with a RoPE base of their own ------ */

/* use_bidirectional_attention is EmbeddingGemma's. */
static const struct attn_hf_key gemma3_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, SCALE_OF, SOFTCAP, WINDOW,
    FULL_PERIOD("sliding_window_pattern"), LAYER_TYPES,
    NUMBER("rope_local_base_freq", sliding_rope.theta, 1, MAX_THETA),
    FLAG("use_bidirectional_attention", bidirectional), IGNORED("final_logit_softcapping"));

/* Published configurations leave out what the class has as its default, sizes too. */
#define GEMMA                                                                                    \
    CAUSAL, .hidden_size = 2304, .num_heads = 8, .num_kv_heads = 4, .head_dim = 256,             \
            .max_position = 131072, .qk_norm = true, .norm_eps = 1e-6, SLIDES, .full_period = 6, \
            .rope_by_type = true, .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}
#define GEMMA3                                                                              \
    .keys = gemma3_keys, .tensors = attn_normed_tensors, .norm_plus_one = true,             \
    DEFAULTS(GEMMA, .num_layers = 26, .query_pre_attn_scalar = 256, .sliding_window = 4096, \
             ROPE(1e6))

ROW(gemma3, NESTED("gemma3", "gemma3_text"), GEMMA3);
ROW(gemma3_text, DECODER("gemma3_text"), GEMMA3);

/* ---- gemma3n: scores are not scaled; the last layers read another cache ---------------------- */

/* query_pre_attn_scalar is published, and no class reads it. */
static const struct attn_hf_key gemma3n_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, WINDOW, LAYER_TYPES,
    NUMBER("rope_local_base_freq", sliding_rope.theta, 1, MAX_THETA), SHARED_LAYERS,
    IGNORED("activation_sparsity_pattern altup_active_idx altup_coef_clip altup_correct_scale "
            "altup_num_inputs final_logit_softcapping hidden_size_per_layer_input laurel_rank "
            "query_pre_attn_scalar vocab_size_per_layer_input"));

#define GEMMA3N                                                                                    \
    .keys = gemma3n_keys, .tensors = attn_normed_tensors,                                          \
    DEFAULTS(CAUSAL, .hidden_size = 2048, .num_heads = 8, .num_kv_heads = 2, .head_dim = 256,      \
             .num_layers = 35, .max_position = 32768, .scale = 1, .qk_norm = true, .v_norm = true, \
             .norm_eps = 1e-6, SLIDES, .sliding_window = 512, .full_period = 5,                    \
             .num_shared_layers = 15, .rope_by_type = true, ROPE(1e6),                             \
             .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)})

ROW(gemma3n, NESTED("gemma3n", "gemma3n_text"), GEMMA3N);
ROW(gemma3n_text, DECODER("gemma3n_text"), GEMMA3N);

/* ---- gemma4: full layers with heads of their own; the last layers may read another cache ----- */

/* One tensor makes keys and values. */
static const struct attn_family_tensor gemma4_shared_tensors[] =
    TENSOR_LIST(MAPS(SELF_ATTN, "q_proj", "k_proj", "k_proj", "o_proj"), NORMS);

/* use_bidirectional_attention is about tokens of images only. */
static const struct attn_hf_key gemma4_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, NORM_EPS, PARTIAL, WINDOW, LAYER_TYPES,
             SIZE("global_head_dim", global_head_dim, ATTN_MAX_HEAD_DIM),
             SIZE("num_global_key_value_heads", num_global_kv_heads, ATTN_MAX_HEADS),
             FLAG("attention_k_eq_v", keys_as_values), SHARED_LAYERS,
             FIELD("per_layer_config", PER_LAYER, global_head_dim, 0, 0), ATTENTION_BIAS,
             FIXED("use_bidirectional_attention", "\"vision\""),
             IGNORED("enable_moe_block expert_intermediate_size final_logit_softcapping "
                     "hidden_size_per_layer_input use_double_wide_mlp vocab_size_per_layer_input"));

#define GEMMA4                                                                                    \
    .keys = gemma4_keys, .tensors = attn_normed_tensors, .shared_tensors = gemma4_shared_tensors, \
    DEFAULTS(GEMMA, .global_head_dim = 512, .num_layers = 30, .scale = 1, .v_norm = true,         \
             .sliding_window = 512, .last_full = true,                                            \
             .rope = {ROPE_OF(PROPORTIONAL, 1e6, .partial_rotary_factor = 0.25)})

ROW(gemma4, NESTED("gemma4", "gemma4_text"), GEMMA4);
ROW(gemma4_text, DECODER("gemma4_text"), GEMMA4);
ROW(gemma4_unified, NESTED("gemma4_unified", "gemma4_unified_text"), GEMMA4);
ROW(gemma4_unified_text, DECODER("gemma4_unified_text"), GEMMA4);
