/* decoders.c: rows of decoders that are Llama with other keys, norms, positions or layouts: granite
 * to nemotron; and of those with multi-head latent attention: deepseek_v2 to minicpm3.  Data only.
 *
 * Sources: as in llama.c, and v5.15.0 of it for latent attention; internlm2, mimo, exaone,
 * baichuan, qwen, chatglm and step3p5 from the modelling code published with their checkpoints. */
#include "families/rows.h"

/* The scale of scores is a key. */
#define GRANITE_KEYS                                                       \
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, SCALE("attention_multiplier"), \
        IGNORED("embedding_multiplier logits_scaling residual_multiplier " \
                "shared_intermediate_size")
static const struct attn_hf_key granite_keys[] = KEY_LIST(GRANITE_KEYS);

#define GRANITE .keys = granite_keys, DEFAULTS(CAUSAL, .scale = 1, ROPE(10000))

ROW(granite, LLAMA("granite"), GRANITE);
ROW(granitemoe, LLAMA("granitemoe"), GRANITE);
ROW(granitemoeshared, LLAMA("granitemoeshared"), GRANITE);

/* A sink per head; layers 0, 4, 8, ... are full; a RoPE base for each layer. */
static const struct attn_hf_key granite_swa_keys[] =
    KEY_LIST(GRANITE_KEYS, WINDOW, LAYER_TYPES, ROPE_THETAS);

#define GRANITE_SWA(kv_heads)                                                           \
    .keys = granite_swa_keys, TENSORS(LLAMA_MAPS, TENSOR(SELF_ATTN "sinks", Q, SINKS)), \
    DEFAULTS(CAUSAL, .num_kv_heads = kv_heads, .scale = 1, .sinks = true, SLIDES,       \
             .sliding_window = 128, .full_period = 4, .full_first = true, ROPE(10000))

ROW(granite_swa, DECODER("granite_swa"), GRANITE_SWA(4));
ROW(granitemoe_swa, DECODER("granitemoe_swa"), GRANITE_SWA(0));

/* Without the key, scores are scaled as usual. */
ROW(hyperclovax, LLAMA("hyperclovax"), KEYS(GRANITE_KEYS, IGNORED("use_post_norm")),
    DEFAULTS(CAUSAL, ROPE(10000)));

/* ---- The attention of llama and of qwen3 ----------------------------------------------------- */

ROW(arcee, LLAMA("arcee"), KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS),
    DEFAULTS(CAUSAL, ROPE(10000)));

ROW(jais2, LLAMA("jais2"), KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS),
    DEFAULTS(CAUSAL, .bias = true, ROPE(10000)));

/* The text models of Aria, CSM and Emu3; MiniCPM, XVERSE, Orion and the first DeepSeek MoE, by the
 * code that is published with them. */
#define PLAIN(type, keys, ...) \
    LLAMA(type), KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, keys), DEFAULTS(CAUSAL, __VA_ARGS__)

ROW(aria_text,
    PLAIN("aria_text", IGNORED("moe_num_experts moe_num_shared_experts moe_topk"), ROPE(10000)));
ROW(emu3_text_model,
    PLAIN("emu3_text_model", IGNORED("boi_token_id eoi_token_id"), .num_kv_heads = 8, ROPE(1e6)));
ROW(minicpm,
    PLAIN("minicpm", IGNORED("dim_model_base mup_denominator scale_depth scale_emb"), ROPE(10000)));
ROW(xverse, PLAIN("xverse", IGNORED("max_tokenizer_truncation"), ROPE(10000)));
ROW(orion, PLAIN("orion", IGNORED("tokenizer_class"), ROPE(10000)));
ROW(deepseek, LLAMA("deepseek"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, FIXED("use_mla", "false"),
         IGNORED("aux_loss_alpha kv_lora_rank lm_head q_lora_rank qk_nope_head_dim "
                 "qk_rope_head_dim rm_head seq_aux v_head_dim")),
    DEFAULTS(CAUSAL, ROPE(10000)));
ROW(csm, FAMILY("csm"), PREFIXES("backbone_model.", ""), .tensors = attn_llama_tensors,
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS,
         IGNORED("audio_eos_token_id audio_token_id codebook_eos_token_id codebook_pad_token_id "
                 "codec_config depth_decoder_config num_codebooks text_vocab_size "
                 "tie_codebooks_embeddings")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, ROPE(500000)));

/* Ling: q, k and v in one tensor, and norms of heads by key. */
static const struct attn_hf_key bailing_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, NORM_EPS, PARTIAL, FLAG("use_qkv_bias", bias),
             FIXED("use_bias", "false"), FLAG("use_qk_norm", qk_norm),
             IGNORED("embedding_dropout moe_router_enable_expert_bias "
                     "moe_router_enable_routed_scaling moe_router_enable_shared_expert "
                     "moe_shared_expert_intermediate_size mtp_loss_scaling_factor multi_gate "
                     "norm_head norm_softmax output_dropout rotary_dim router_dtype router_type "
                     "score_function use_rmsnorm"));

#define BAILING                                                       \
    .unbiased = ATTN_PROJ_O,                                          \
    TENSORS(FUSED("layers.*.attention.", "query_key_value", "dense"), \
            NORM("layers.*.attention.query_layernorm", Q),            \
            NORM("layers.*.attention.key_layernorm", K)),             \
    .keys = bailing_keys, DEFAULTS(CAUSAL, .norm_eps = 1e-6, ROPE(10000))

ROW(bailing_moe, DECODER("bailing_moe"), BAILING);
ROW(bailing_moe_v2, DECODER("bailing_moe_v2"), BAILING);

ROW(hy_v3, NORMED("hy_v3"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, FIXED("qk_norm", "true"),
         IGNORED("expert_hidden_dim moe_router_enable_expert_bias moe_router_use_sigmoid "
                 "route_norm router_scaling_factor")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-5,
             ROPE(11158840)));

ROW(solar_open, LLAMA("solar_open"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, FIXED("use_qk_norm", "false")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, ROPE(1e6)));

/* RoPE scaling of its own, unless an object says otherwise. */
ROW(apertus, NORMED("apertus"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, FIXED("qk_norm", "true"),
         IGNORED("post_norm")),
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_eps = 1e-5,
             .rope = {ROPE_OF(LLAMA3, 12e6, .factor = 8, .original_max_position = 8192,
                              .low_freq_factor = 1, .high_freq_factor = 4, .truncate = true)}));

/* Likewise; layers 0, 4, 8, ... are full. */
ROW(cwm, LLAMA("cwm"), .unbiased = ATTN_PROJ_ALL,
    KEYS(DECODER_KEYS, HEAD_DIM, WINDOW, LAYER_TYPES, FIXED("attention_bias", "false")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .max_position = 131072, SLIDES,
             .sliding_window = 8192, .full_period = 4, .full_first = true,
             .rope = {ROPE_OF(LLAMA3, 1e6, .factor = 16, .original_max_position = 8192,
                              .low_freq_factor = 1, .high_freq_factor = 4, .truncate = true)}));

/* longrope with attention factors that the configuration gives. */
ROW(phimoe, LLAMA("phimoe"), ROPE_KEYS(MSCALES), .note = "long factors too",
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, WINDOW,
         SIZE("original_max_position_embeddings", original_max_position, MAX_POSITION),
         IGNORED("expert_dropout input_jitter_noise lm_head_bias")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .max_position = 131072, SLIDES, ROPE(1e6)));

ROW(dots1, NORMED("dots1"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, WINDOW,
         FIELD("max_window_layers", INTEGER, first_sliding, 0, ATTN_MAX_LAYERS), LAYER_TYPES),
    DEFAULTS(CAUSAL, .num_kv_heads = 32, .qk_norm = true, .norm_eps = 1e-6, SLIDES,
             .sliding_window = 4096, .first_sliding = 62, ROPE(10000)));

/* RoPE of each type of layers; no layer slides without layer_types. */
#define ROPES_BY_TYPE(share)                                \
    .first_sliding = ATTN_MAX_LAYERS, .rope_by_type = true, \
    ROPE(500000, .partial_rotary_factor = share),           \
    .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}

ROW(mellum, NORMED("mellum"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, WINDOW, LAYER_TYPES),
    DEFAULTS(CAUSAL, .num_kv_heads = 4, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-6, SLIDES,
             .sliding_window = 1024, ROPES_BY_TYPE(1)));

/* ---- Gates: a matrix of their own, without a bias -------------------------------------------- */

#define GATE_PROJ WEIGHT(SELF_ATTN "gate_proj", GATE)
#define UNBIASED_GATE .unbiased = ATTN_PROJ_ALL
#define NO_BIAS FIXED("attention_bias", "false")

/* One gate for each head, of which layers may have their own number. */
ROW(laguna, DECODER("laguna"), UNBIASED_GATE,
    TENSORS(LLAMA_MAPS, NORMS, WEIGHT(SELF_ATTN "g_proj", GATE)),
    KEYS(DECODER_KEYS, HEAD_DIM, NO_BIAS, NORM_EPS, WINDOW, LAYER_TYPES, PARTIAL,
         FIELD("num_attention_heads_per_layer", LAYER_HEADS, num_layer_heads, 1, ATTN_MAX_HEADS),
         FIELD("gating", GATING, gate_by_head, 0, 0),
         IGNORED("moe_apply_router_weight_on_input moe_routed_scaling_factor "
                 "moe_router_logit_softcapping")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-6,
             .output_gate = true, .gate_softplus = true, .gate_by_head = true, SLIDES,
             .sliding_window = 512, ROPES_BY_TYPE(0.5)));

/* Sliding layers have query heads of their own, each layer a base and a share of its heads that
 * rotates.  Lists of layers go on with those that predict further tokens. */
#define OTHER "attention_other_setting"
ROW(step3p5, DECODER("step3p5"), UNBIASED_GATE, .norm_plus_one = true,
    TENSORS(LLAMA_MAPS, NORMS, WEIGHT(SELF_ATTN "g_proj", GATE)),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS_AS("num_attention_groups"), KV_HEADS, HEAD_DIM, LAYERS,
         FIELD("num_nextn_predict_layers", INTEGER, num_predict_layers, 0, ATTN_MAX_LAYERS),
         POSITIONS, NORM_EPS, WINDOW, LAYER_TYPES,
         KEY("rope_theta", ROPE_THETAS, HF_FIELD(num_rope_thetas), 1, MAX_THETA, NULL),
         ROPE_OBJECTS, FIELD("yarn_only_types", SCALED_TYPES, rope_by_type, 0, 0), PARTIAL,
         FIELD("partial_rotary_factors", PARTIALS, num_partials, 1e-6, 1), OBJECT(OTHER),
         SIZE(OTHER ".num_attention_heads", sliding_heads, ATTN_MAX_HEADS),
         SIZE(OTHER ".num_attention_groups", sliding_kv_heads, ATTN_MAX_HEADS),
         SIZE(OTHER ".head_dim", sliding_head_dim, ATTN_MAX_HEAD_DIM),
         SIZE(OTHER ".true_head_dim", sliding_head_dim, ATTN_MAX_HEAD_DIM),
         FIXED(OTHER ".attention_type", "\"sliding_attention\""), NO_BIAS,
         FIXED("att_impl_type", "\"GQA\""), FIXED("use_head_wise_attn_gate", "true"),
         EVERY("use_rope_layers", "true"), FIXED("zero_centered", "true"),
         IGNORED("max_seq_len moe_every_n_layer moe_layer_offset moe_layers_enum moe_num_experts "
                 "moe_router_activation moe_router_scaling_factor moe_top_k need_fp32_gate "
                 "norm_expert_weight share_expert_dim share_expert_dims swiglu_limits "
                 "swiglu_limits_shared use_moe use_moe_router_bias use_qk_norm")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-5,
             .output_gate = true, .gate_by_head = true, SLIDES, .sliding_period = 2, ROPE(10000),
             .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}));

/* Full layers have no positions. */
ROW(afmoe, DECODER("afmoe"), UNBIASED_GATE, TENSORS(LLAMA_MAPS, NORMS, GATE_PROJ),
    KEYS(DECODER_KEYS, HEAD_DIM, NO_BIAS, NORM_EPS, WINDOW,
         FULL_PERIOD("global_attn_every_n_layers"), LAYER_TYPES,
         IGNORED("load_balance_coeff mup_enabled num_dense_layers num_expert_groups "
                 "num_limited_groups route_norm route_scale score_func use_grouped_mm")),
    DEFAULTS(CAUSAL, .head_dim = 128, .qk_norm = true, .norm_eps = 1e-5, .output_gate = true,
             SLIDES, .sliding_window = 1024, .full_period = 4,
             .rope_layers = ATTN_ROPE_SLIDING_ONLY, ROPE(10000)));

/* Likewise; norms without weights, after which queries are multiplied by a key. */
static const struct attn_family_tensor muse_tensors[] = TENSOR_LIST(LLAMA_MAPS, GATE_PROJ);
static const struct attn_hf_key muse_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, NO_BIAS, NORM_EPS, WINDOW, LAYER_TYPES, ROPE_THETAS,
             NUMBER("qk_scale_factor", query_factor, 1e-6, 1e6),
             IGNORED("final_logit_softcapping output_multiplier post_norm_eps"));

#define MUSE                                                                                       \
    .keys = muse_keys, .tensors = muse_tensors, UNBIASED_GATE,                                     \
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .head_dim = 128, .qk_norm = true, .norm_weightless = true, \
             .norm_eps = 1e-5, .query_factor = 3.87, .output_gate = true, SLIDES,                  \
             .sliding_window = 2048, .full_period = 4, .no_rope_period = 4, .from_last = true,     \
             ROPE(10000))

ROW(muse_glimmer, NESTED("muse_glimmer", "muse_glimmer_text"), MUSE);
ROW(muse_glimmer_text, DECODER("muse_glimmer_text"), MUSE);

/* ---- The others ------------------------------------------------------------------------------ */

/* One layer of four does not rotate; these are the ones that slide, where any do. */
ROW(smollm3, LLAMA("smollm3"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, WINDOW,
         FLAG("use_sliding_window", use_sliding_window), LAYER_TYPES, ROPE_LAYERS, NO_ROPE_PERIOD,
         IGNORED("max_window_layers")),
    DEFAULTS(CAUSAL, .num_kv_heads = 4, .no_rope_period = 4, .slides_without_rope = true,
             ROPE(2e6)));

ROW(starcoder2, LLAMA("starcoder2"),
    KEYS(DECODER_KEYS, HEAD_DIM, FLAG("use_bias", bias), WINDOW,
         FIXED("scale_attn_weights", "true"),
         IGNORED("attention_softmax_in_fp32 embedding_dropout mlp_type norm_epsilon norm_type "
                 "residual_dropout scale_attention_softmax_in_fp32")),
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .bias = true, SLIDES, ROPE(10000)));

ROW(stablelm, DECODER("stablelm"), .unbiased = ATTN_PROJ_O,
    TENSORS(LLAMA_MAPS, NORM(SELF_ATTN "q_layernorm.norms.#", Q),
            NORM(SELF_ATTN "k_layernorm.norms.#", K)),
    KEYS(DECODER_KEYS, PARTIAL, FLAG("use_qkv_bias", bias), FLAG("qk_layernorm", qk_norm),
         NUMBER("layer_norm_eps", norm_eps, 0, 1), IGNORED("norm_eps use_parallel_residual")),
    DEFAULTS(CAUSAL, .num_kv_heads = 32, .norm_type = ATTN_NORM_LAYER,
             .norm_extent = ATTN_NORM_EACH_HEAD, .norm_eps = 1e-5,
             ROPE(10000, .partial_rotary_factor = 0.25)));

/* Half of each head rotates, in neighbouring pairs. */
static const struct attn_hf_key glm_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, PARTIAL);

#define PARTIAL_PAIRS ROPE(10000, .interleaved = true, .partial_rotary_factor = 0.5)
#define GLM                                    \
    .keys = glm_keys, .unbiased = ATTN_PROJ_O, \
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .head_dim = 128, .bias = true, PARTIAL_PAIRS)

ROW(glm, LLAMA("glm"), GLM);
ROW(glm4, LLAMA("glm4"), GLM);

static const struct attn_hf_key glm4v_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, PARTIAL, IGNORED("image_token_id video_token_id"));

#define GLM4V                                                                          \
    .keys = glm4v_keys, MROPE, .unbiased = ATTN_PROJ_O, .tensors = attn_llama_tensors, \
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .bias = true, PARTIAL_PAIRS)

ROW(glm4v, NESTED("glm4v", "glm4v_text"), GLM4V);
ROW(glm4v_text, DECODER("glm4v_text"), GLM4V);

/* Half of each head rotates, in halves. */
ROW(glm4_moe, NORMED("glm4_moe"), .unbiased = ATTN_PROJ_O,
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, PARTIAL, FLAG("use_qk_norm", qk_norm)),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .norm_eps = 1e-5,
             ROPE(10000, .partial_rotary_factor = 0.5)));

static const struct attn_hf_key glm4v_moe_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, PARTIAL, FIXED("use_qk_norm", "false"),
             IGNORED("image_token_id video_token_id"));

#define GLM4V_MOE                                                                          \
    .keys = glm4v_moe_keys, MROPE, .unbiased = ATTN_PROJ_O, .tensors = attn_llama_tensors, \
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .bias = true, ROPE(10000, .partial_rotary_factor = 0.5))

ROW(glm4v_moe, NESTED("glm4v_moe", "glm4v_moe_text"), GLM4V_MOE);
ROW(glm4v_moe_text, DECODER("glm4v_moe_text"), GLM4V_MOE);

/* All of each head rotates, in neighbouring pairs or in halves. */
#define GLM_SEES(without, ...)                                                     \
    .keys = glm4v_keys, MROPE, .unbiased = without, .tensors = attn_llama_tensors, \
    DEFAULTS(CAUSAL, __VA_ARGS__)
#define GLM_OCR GLM_SEES(ATTN_PROJ_ALL, .num_kv_heads = 8, ROPE(10000, .interleaved = true))
#define GLM_IMAGE GLM_SEES(ATTN_PROJ_O, .num_kv_heads = 2, .bias = true, ROPE(10000))

ROW(glm_ocr, NESTED("glm_ocr", "glm_ocr_text"), GLM_OCR);
ROW(glm_ocr_text, DECODER("glm_ocr_text"), GLM_OCR);
ROW(glm_image, NESTED("glm_image", "glm_image_text"), GLM_IMAGE);
ROW(glm_image_text, DECODER("glm_image_text"), GLM_IMAGE);

/* rotary_dim of each head rotate; one norm over all heads; softmax attention in every layer. */
ROW(minimax_m2, NORMED("minimax_m2"), .unbiased = ATTN_PROJ_ALL, .note = "`rotary_dim` counts",
    KEYS(DECODER_KEYS, HEAD_DIM, NORM_EPS, SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM), PARTIAL,
         FIXED("use_qk_norm", "true"), FIXED("qk_norm_type", "\"per_layer\""),
         EVERY("attn_type_list", "1"),
         IGNORED("mtp_transformer_layers num_mtp_modules shared_intermediate_size use_mtp "
                 "use_routing_bias")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .qk_norm = true,
             .norm_extent = ATTN_NORM_ALL_HEADS, .norm_eps = 1e-6, ROPE(5e6)));

ROW(helium, LLAMA("helium"), KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS), .unbiased = ATTN_PROJ_O,
    DEFAULTS(CAUSAL, .num_kv_heads = 20, .head_dim = 128, ROPE(100000, .interleaved = true)));

/* The output projection has a bias by a key of its own. */
ROW(seed_oss, LLAMA("seed_oss"), .unbiased = ATTN_PROJ_O,
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, FLAG("attention_out_bias", o_bias),
         IGNORED("residual_dropout")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .head_dim = 128, .bias = true, ROPE(10000)));

/* Differential attention; lambda_std_dev is of training. */
ROW(diffllama, DECODER("diffllama"),
    TENSORS(LLAMA_MAPS, TENSOR(SELF_ATTN "lambda_q1", Q, LAMBDA),
            TENSOR(SELF_ATTN "lambda_k1", K, LAMBDA), TENSOR(SELF_ATTN "lambda_q2", V, LAMBDA),
            TENSOR(SELF_ATTN "lambda_k2", O, LAMBDA)),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, IGNORED("lambda_std_dev")),
    DEFAULTS(CAUSAL, .differential = true, .norm_eps = 1e-5, ROPE(10000)));

ROW(doge, DECODER("doge"),
    TENSORS(LLAMA_MAPS, NORMS, TENSOR(SELF_ATTN "dt_proj.weight", Q, DYNAMIC_MASK),
            TENSOR(SELF_ATTN "dt_proj.bias", K, DYNAMIC_MASK),
            TENSOR(SELF_ATTN "A", V, DYNAMIC_MASK)),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, KEEP_WINDOW,
         FIXED("sliding_window", "null"), IGNORED("is_moe")),
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_eps = 1e-6, .keep_window_size = 2048, ROPE(10000)));

/* The attention of qwen2. */
ROW(mimo, LLAMA("mimo"), .unbiased = ATTN_PROJ_O,
    KEYS(DECODER_KEYS, HEAD_DIM, NO_WINDOW, LAYER_TYPES, FIXED("attention_bias", "true"),
         FIXED("use_mrope", "false")),
    DEFAULTS(CAUSAL, .num_kv_heads = 32, .bias = true, ROPE(10000)));

/* Sliding layers have sinks, key/value heads and a RoPE base of their own; values are scaled.
 * sliding_window_size and attention_chunk_size repeat sliding_window, which alone the published
 * class reads. */
ROW(mimo_v2_flash, DECODER("mimo_v2_flash"), .unbiased = ATTN_PROJ_ALL,
    TENSORS(LLAMA_MAPS, TENSOR(SELF_ATTN "attention_sink_bias", Q, SINKS)),
    KEYS(DECODER_SIZES, THETA, PARTIAL, SIZE("v_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM),
         WINDOW, KEY("hybrid_layer_pattern", LAYER_TYPES, HF_FIELD(num_layer_types), 0, 0, "0 1"),
         NUMBER("attention_value_scale", value_scale, 1e-6, ATTN_MAX_SCALE),
         FLAG("add_full_attention_sink_bias", full_sinks),
         FLAG("add_swa_attention_sink_bias", sliding_sinks),
         SIZE("swa_num_attention_heads", sliding_heads, ATTN_MAX_HEADS),
         SIZE("swa_num_key_value_heads", sliding_kv_heads, ATTN_MAX_HEADS),
         SIZE("swa_head_dim", sliding_head_dim, ATTN_MAX_HEAD_DIM),
         SIZE("swa_v_head_dim", sliding_value_head_dim, ATTN_MAX_HEAD_DIM),
         NUMBER("swa_rope_theta", sliding_rope.theta, 1, MAX_THETA),
         FIXED("attention_bias", "false"), FIXED("hybrid_block_size", "null"),
         FIXED("rope_scaling", "null"), SIZE("attention_chunk_size", sliding_window, MAX_POSITION),
         SIZE("sliding_window_size", sliding_window, MAX_POSITION),
         IGNORED("auto_map layernorm_epsilon moe_layer_freq n_group "
                 "n_routed_experts n_shared_experts routed_scaling_factor scoring_func "
                 "topk_group topk_method")),
    DEFAULTS(CAUSAL, SLIDES, .rope_by_type = true, .partial_by_type = true, ROPE(5e6),
             .sliding_rope = {ROPE_OF(DEFAULT, 10000, .truncate = true)}));

/* Norms after RoPE, whose base grows with alpha. */
static const struct attn_family_tensor hunyuan_tensors[] = TENSOR_LIST(
    LLAMA_MAPS, NORM(SELF_ATTN "query_layernorm", Q), NORM(SELF_ATTN "key_layernorm", K));
static const struct attn_hf_key hunyuan_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, FIXED("use_cla", "false"),
    FIXED("use_mla", "false"), FIXED("use_qk_norm", "true"), FIXED("use_rotary_pos_emb", "true"),
    SIZE("attention_head_dim", head_dim, ATTN_MAX_HEAD_DIM),
    IGNORED("add_classification_head class_num im_end_id im_newline_id "
            "im_start_id mask_init_id norm_type org_vocab_size pad_id pool_type text_end_id "
            "text_start_id eod_token_id sep_token_id"),
    IGNORED("capacity_factor cla_share_factor moe_drop_tokens moe_layer_num_skipped "
            "moe_random_routing_dropped_token moe_topk num_shared_expert use_mixed_mlp_moe"));

#define HUNYUAN                                       \
    .keys = hunyuan_keys, .tensors = hunyuan_tensors, \
    ROPE_KEYS(ROPE_NUMBER("alpha", alpha, 1, 1e12)),  \
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_after_rope = true, .norm_eps = 1e-5, ROPE(10000))

ROW(hunyuan_v1_dense, DECODER("hunyuan_v1_dense"), HUNYUAN);
ROW(hunyuan_v1_moe, DECODER("hunyuan_v1_moe"), HUNYUAN);

/* Neighbouring pairs rotate. */
#define ERNIE_KEYS DECODER_KEYS, HEAD_DIM, FLAG("use_bias", bias), IGNORED("compression_ratio")

ROW(ernie4_5, LLAMA("ernie4_5"), KEYS(ERNIE_KEYS),
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .head_dim = 128, ROPE(500000, .interleaved = true)));

ROW(ernie4_5_moe, LLAMA("ernie4_5_moe"),
    KEYS(ERNIE_KEYS,
         IGNORED("moe_capacity moe_gate moe_k moe_layer_end_index moe_layer_interval "
                 "moe_layer_start_index moe_norm_min moe_num_experts moe_num_shared_experts "
                 "moe_use_aux_free")),
    DEFAULTS(CAUSAL, .num_kv_heads = 4, ROPE(500000, .interleaved = true)));

/* Positions of images are rows of their own; where they agree, the same pairs rotate. */
#define ERNIE_VL                                                                            \
    .tensors = attn_llama_tensors, MROPE,                                                   \
    KEYS(ERNIE_KEYS, IGNORED("moe_k moe_norm_min moe_num_experts moe_num_shared_experts")), \
    DEFAULTS(CAUSAL, .num_kv_heads = 4, ROPE(500000, .interleaved = true))
#define PADDLE_OCR                                                                          \
    .tensors = attn_llama_tensors, MROPE,                                                   \
    KEYS(ERNIE_KEYS, IGNORED("ignored_index image_token_id rope_is_neox_style use_3d_rope " \
                             "use_flash_attention video_token_id vision_config "            \
                             "vision_end_token_id vision_start_token_id "                   \
                             "weight_share_add_bias")),                                     \
    DEFAULTS(CAUSAL, .num_kv_heads = 2, .head_dim = 128, ROPE(500000))

ROW(ernie4_5_vl_moe, NESTED("ernie4_5_vl_moe", "ernie4_5_vl_moe_text"), ERNIE_VL);
ROW(ernie4_5_vl_moe_text, DECODER("ernie4_5_vl_moe_text"), ERNIE_VL);
ROW(paddleocr_vl, NESTED("paddleocr_vl", "paddleocr_vl_text"), PADDLE_OCR);
ROW(paddleocr_vl_text, DECODER("paddleocr_vl_text"), PADDLE_OCR);

/* q, k, v in one tensor, by key/value head. */
ROW(internlm2, DECODER("internlm2"), TENSORS(FUSED("layers.*.attention.", "wqkv", "wo")),
    KEYS(DECODER_KEYS, FLAG("bias", bias)), .layout = ATTN_LAYOUT_GROUPED,
    DEFAULTS(CAUSAL, ROPE(10000)));

/* The names of GPT-Neo, the attention of llama. */
ROW(exaone, FAMILY("exaone"), PREFIXES("transformer.", ""), .unbiased = ATTN_PROJ_ALL,
    TENSORS(WEIGHTS("h.*.attn.attention.", "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(DECODER_KEYS, HEAD_DIM, LAYERS_AS("num_layers"), IGNORED("auto_map embed_dropout")),
    DEFAULTS(CAUSAL, ROPE(10000)));

/* One class for two models: those of 7B, which have max_position_embeddings, rotate. */
ROW(baichuan, DECODER("baichuan"), .unbiased = ATTN_PROJ_ALL,
    .note = "ALiBi without `max_position_embeddings`",
    TENSORS(WEIGHT(SELF_ATTN "W_pack", QKV), WEIGHT(SELF_ATTN "o_proj", O)),
    KEYS(SIZES, POSITIONS, IGNORED("auto_map model_max_length z_loss_weight")),
    DEFAULTS(CAUSAL, .alibi_unless_positions = true, .alibi_by_slot = true,
             .alibi_replaces_rope = true, ROPE(10000)));

/* Beyond seq_length queries and RoPE's base grow with the length of a call. */
ROW(qwen, FAMILY("qwen"), PREFIXES("transformer.", ""), .unbiased = ATTN_PROJ_O,
    .note = "up to `seq_length` tokens", TENSORS(FUSED("h.*.attn.", "c_attn", "c_proj")),
    KEYS(SIZES, SIZE("kv_channels", head_dim, ATTN_MAX_HEAD_DIM),
         SIZE("seq_length", max_position, MAX_POSITION), FLAG("use_dynamic_ntk", ntk_by_length),
         FLAG("use_logn_attn", logn_by_length), NUMBER("rotary_emb_base", rope.theta, 1, MAX_THETA),
         SIZE("rotary_emb_dim", rope.dim, ATTN_MAX_HEAD_DIM), FIXED("rotary_pct", "1.0"),
         FIXED("no_bias", "true"), FIXED("scale_attn_weights", "true"),
         FIXED("use_cache_quantization", "false"),
         IGNORED("attn_dropout_prob auto_map bf16 emb_dropout_prob fp16 fp32 "
                 "max_position_embeddings onnx_safe pos_emb "
                 "softmax_in_fp32 use_cache_kernel use_flash_attn")),
    DEFAULTS(CAUSAL, .head_dim = 128, .bias = true, .ntk_by_length = true, .logn_by_length = true,
             ROPE(10000)));

/* Neighbouring pairs of the first half of each head rotate. */
ROW(chatglm, FAMILY("chatglm"), PREFIXES("transformer.encoder.", "encoder.", ""),
    .unbiased = ATTN_PROJ_O,
    .note = "`rope_ratio` multiplies the base, as in glm-4; of ChatGLM2 and 3 only 1 is read",
    TENSORS(FUSED("layers.*.self_attention.", "query_key_value", "dense")),
    KEYS(HIDDEN_SIZE, HEADS, LAYERS_AS("num_layers"), LAYERS,
         SIZE("kv_channels", head_dim, ATTN_MAX_HEAD_DIM),
         SIZE("multi_query_group_num", num_kv_heads, ATTN_MAX_HEADS),
         SIZE("seq_length", max_position, MAX_POSITION), FLAG("add_qkv_bias", bias),
         NUMBER("rope_ratio", rope.ratio, 1e-6, 1e6), FIXED("multi_query_attention", "true"),
         FIXED("add_bias_linear", "false"), FIXED("original_rope", "true"),
         FIXED("position_encoding_2d", "false"), FIXED("pre_seq_len", "null"),
         FIXED("interleaved_qkv", "false"), SIZE("padded_vocab_size", vocabulary, MAX_POSITION),
         IGNORED("apply_query_key_layer_scaling attention_softmax_in_fp32 auto_map "
                 "bias_dropout_fusion ffn_hidden_size fp32_residual_connection "
                 "layernorm_epsilon post_layer_norm prefix_projection "
                 "quantization_bit rmsnorm rope_theta")),
    DEFAULTS(CAUSAL, .num_kv_heads = 1, .head_dim = 128,
             ROPE(10000, .interleaved = true, .partial_rotary_factor = 0.5)));

/* One norm over all heads; scaling holds for full layers. */
#define OLMO_NORM(eps) .qk_norm = true, .norm_extent = ATTN_NORM_ALL_HEADS, .norm_eps = eps
#define OLMO CAUSAL, OLMO_NORM(1e-5)
static const struct attn_hf_key olmo2_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS);

ROW(olmo2, NORMED("olmo2"), .keys = olmo2_keys, DEFAULTS(OLMO, ROPE(10000)));

ROW(flex_olmo, NORMED("flex_olmo"), .keys = olmo2_keys,
    DEFAULTS(CAUSAL, OLMO_NORM(1e-6), ROPE(500000)));

ROW(olmoe, NORMED("olmoe"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, CLIP("clip_qkv")),
    DEFAULTS(OLMO, ROPE(10000)));

/* No norm. */
ROW(olmo, LLAMA("olmo"), KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, CLIP("clip_qkv")),
    DEFAULTS(CAUSAL, ROPE(10000)));

ROW(olmo3, NORMED("olmo3"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, WINDOW, LAYER_TYPES),
    DEFAULTS(OLMO, SLIDES, .sliding_window = 4096, .full_period = 4, .rope_by_type = true,
             ROPE(500000), .sliding_rope = {.type = ATTN_ROPE_DEFAULT, .truncate = true}));

/* With a window, full layers have no positions. */
static const struct attn_hf_key exaone_keys[] =
    KEY_LIST(DECODER_KEYS, HEAD_DIM, NORM_EPS, WINDOW, FULL_PERIOD("sliding_window_pattern"),
             LAYER_TYPES, IGNORED("is_moe_layer"));

#define EXAONE                                                                             \
    .keys = exaone_keys, .unbiased = ATTN_PROJ_ALL,                                        \
    DEFAULTS(CAUSAL, .num_kv_heads = 32, .qk_norm = true, .norm_eps = 1e-5, SLIDES,        \
             .sliding_window = 4096, .full_period = 4, .rope_layers = ATTN_ROPE_IF_WINDOW, \
             ROPE(10000))

ROW(exaone4, NORMED("exaone4"), EXAONE);
ROW(exaone_moe, NORMED("exaone_moe"), EXAONE);

/* Neighbouring pairs; in cohere2 only sliding layers rotate. */
ROW(cohere, NORMED("cohere"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NUMBER("layer_norm_eps", norm_eps, 0, 1),
         FLAG("use_qk_norm", qk_norm), IGNORED("logit_scale model_max_length")),
    DEFAULTS(CAUSAL, .norm_type = ATTN_NORM_LAYER, .norm_extent = ATTN_NORM_EACH_HEAD,
             .norm_eps = 1e-5, ROPE(10000, .interleaved = true)));

ROW(cohere2, LLAMA("cohere2"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, WINDOW, FULL_PERIOD("sliding_window_pattern"),
         LAYER_TYPES, FIXED("order_of_interleaved_layers", "\"local_attn_first\""),
         FIXED("position_embedding_type", "\"rope_gptj\""), FIXED("rotary_pct", "1.0"),
         IGNORED("layer_switch logit_scale use_embedding_sharing use_gated_activation "
                 "use_parallel_block use_parallel_embedding"),
         FIXED("use_qk_norm", "false")),
    DEFAULTS(CAUSAL, SLIDES, .sliding_window = 4096, .full_period = 4,
             .rope_layers = ATTN_ROPE_SLIDING_ONLY, ROPE(10000, .interleaved = true)));

/* The dense layers rotate too, unless they have a pattern of their own. */
ROW(cohere2_moe, LLAMA("cohere2_moe"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, WINDOW, FULL_PERIOD("sliding_window_pattern"),
         LAYER_TYPES, FIELD("mlp_layer_types", MLP_TYPES, num_mlp_types, 0, 0),
         FIELD("first_k_dense_replace", INTEGER, num_dense, 0, ATTN_MAX_LAYERS),
         SIZE("prefix_dense_sliding_window_pattern", dense_period, ATTN_MAX_LAYERS),
         IGNORED("expert_selection_fn logit_scale prefix_dense_intermediate_size "
                 "shared_expert_combination_strategy use_embedding_sharing use_parallel_block")),
    DEFAULTS(CAUSAL, .head_dim = 128, SLIDES, .sliding_window = 4096, .full_period = 4,
             .dense_period = 1, .rope_layers = ATTN_ROPE_SLIDING_ONLY,
             ROPE(10000, .interleaved = true)));

/* LayerNorm with bias; q, k, v in one tensor, head by head: every query head has its own key and
 * value, so num_key_value_heads is ignored. */
ROW(persimmon, DECODER("persimmon"), .layout = ATTN_LAYOUT_GROUPED,
    TENSORS(FUSED(SELF_ATTN, "query_key_value", "dense"), NORM(SELF_ATTN "q_layernorm", Q),
            NORM(SELF_ATTN "k_layernorm", K), TENSOR(SELF_ATTN "q_layernorm.bias", Q, NORM_BIAS),
            TENSOR(SELF_ATTN "k_layernorm.bias", K, NORM_BIAS)),
    KEYS(SIZES, POSITIONS, THETA, ROPE_OBJECTS, PARTIAL, NUMBER("layer_norm_eps", norm_eps, 0, 1),
         FLAG("qk_layernorm", qk_norm), IGNORED("num_key_value_heads")),
    DEFAULTS(CAUSAL, .bias = true, .qk_norm = true, .norm_type = ATTN_NORM_LAYER, .norm_bias = true,
             .norm_eps = 1e-5, ROPE(25000, .partial_rotary_factor = 0.5)));

ROW(nemotron, LLAMA("nemotron"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, PARTIAL,
         IGNORED("norm_eps rope_percent rotary_percentage")),
    DEFAULTS(CAUSAL, ROPE(10000, .partial_rotary_factor = 0.5)));

/* Pairs turn backwards, and a norm without weights follows. */
ROW(nanochat, LLAMA("nanochat"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS,
         IGNORED("final_logit_softcapping logits_soft_cap")),
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_weightless = true, .norm_after_rope = true,
             .norm_eps = 1e-6, ROPE(10000, .reversed = true)));

/* A norm of all heads before the output projection. */
ROW(bitnet, DECODER("bitnet"), TENSORS(LLAMA_MAPS, NORM(SELF_ATTN "attn_sub_norm", O)),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS),
    DEFAULTS(CAUSAL, .num_kv_heads = 5, .output_norm = true, .norm_eps = 1e-5, ROPE(500000)));

/* ---- Multi-head latent attention ------------------------------------------------------------- */

/* Keys of experts and of further predicted tokens do not touch attention.  Both norms of latents
 * have an eps of 1e-6, whatever rms_norm_eps says. */

#define LATENT_TENSORS(at)                                                                   \
    WEIGHT(at "q_proj", Q), WEIGHT(at "q_b_proj", Q), WEIGHT(at "q_a_proj", Q_A),            \
        NORM(at "q_a_layernorm", Q_A), WEIGHT(at "kv_a_proj_with_mqa", KV_A_AND_ROPE),       \
        NORM(at "kv_a_layernorm", KV_A), WEIGHT(at "kv_b_proj", KV), WEIGHT(at "o_proj", O), \
        BIAS(at "q_a_proj", Q_A), BIAS(at "kv_a_proj_with_mqa", KV_A_AND_ROPE),              \
        BIAS(at "o_proj", O)
static const struct attn_family_tensor latent_tensors[] = TENSOR_LIST(LATENT_TENSORS(SELF_ATTN));
static const struct attn_family_tensor longcat_tensors[] =
    TENSOR_LIST(LATENT_TENSORS(SELF_ATTN "%."));

#define LATENT_KEYS                                                                    \
    DECODER_KEYS, LATENT_SIZES, SIZE("v_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM), \
        ATTENTION_BIAS

/* head_dim and qk_head_dim follow from qk_nope_head_dim and qk_rope_head_dim. */
#define DEEPSEEK_KEYS                                                                       \
    LATENT_KEYS, IGNORED("aux_loss_alpha embedding_initializer_range head_dim qk_head_dim " \
                         "seq_aux")

#define LATENT(type, list) \
    DECODER(type), .tensors = list, .layout = ATTN_LAYOUT_GROUPED, .unbiased = ATTN_PROJ_QKV

#define DEEPSEEK                                                               \
    CAUSAL, .kv_lora_rank = 512, .q_lora_rank = 1536, .qk_nope_head_dim = 128, \
            .qk_rope_head_dim = 64, .value_head_dim = 128, .scale_by_mscale = true

/* Neighbouring components rotate. */
ROW(deepseek_v2, LATENT("deepseek_v2", latent_tensors), KEYS(DEEPSEEK_KEYS),
    DEFAULTS(DEEPSEEK, ROPE(10000, .interleaved = true)));

/* Neighbours in weights become halves. */
static const struct attn_hf_key deepseek_v3_keys[] =
    KEY_LIST(DEEPSEEK_KEYS, FLAG("rope_interleave", rope_gathered));

ROW(deepseek_v3, LATENT("deepseek_v3", latent_tensors), .keys = deepseek_v3_keys,
    DEFAULTS(DEEPSEEK, .rope_gathered = true, ROPE(10000)));

/* One layer in four, without positions; the others are KDA. */
ROW(kimi_linear, LATENT("kimi_linear", latent_tensors),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, LATENT_SIZES,
         SIZE("v_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM),
         SIZE("model_max_length", max_position, MAX_POSITION), OBJECT("linear_attn_config"),
         FIELD("linear_attn_config.full_attn_layers", FULL_LAYERS, listed_layers, 1, 0),
         FIXED("mla_use_nope", "true"), FIXED("mla_use_output_gate", "false"), NO_ROPE,
         IGNORED("head_dim linear_attn_config.head_dim linear_attn_config.kda_layers "
                 "linear_attn_config.num_heads linear_attn_config.short_conv_kernel_size "
                 "moe_renormalize moe_router_activation_func num_expert_group "
                 "num_experts_per_token use_grouped_topk")),
    DEFAULTS(CAUSAL, .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64,
             .value_head_dim = 128, .other_type = ATTN_LAYER_LINEAR));

ROW(kimi_k2, LATENT("kimi_k2", latent_tensors), .keys = deepseek_v3_keys,
    DEFAULTS(DEEPSEEK, .rope_gathered = true, ROPE(50000)));

/* An indexer chooses the keys of a query.  DeepSeek's Hadamard rotation, which changes no product,
 * and its rounding to fp8 are left out, as in Hugging Face's classes. */
static const struct attn_family_tensor indexed_tensors[] = TENSOR_LIST(
    LATENT_TENSORS(SELF_ATTN), WEIGHT(SELF_ATTN "indexer.wq_b", INDEX_Q),
    WEIGHT(SELF_ATTN "indexer.wk", INDEX_K), WEIGHT(SELF_ATTN "indexer.weights_proj", INDEX_W),
    NORM(SELF_ATTN "indexer.k_norm", INDEX_K),
    TENSOR(SELF_ATTN "indexer.k_norm.bias", INDEX_K, NORM_BIAS));

#define INDEXED(type) LATENT(type, indexed_tensors)

/* The indexer rotates halves, the attention neighbours. */
ROW(deepseek_v32, INDEXED("deepseek_v32"),
    KEYS(DEEPSEEK_KEYS, INDEXER_SIZES, FLAG("rope_interleave", rope_gathered)),
    DEFAULTS(DEEPSEEK, .rope_gathered = true, .index_heads = 64, .index_head_dim = 128,
             .index_topk = 2048, ROPE(10000)));

/* layer_types has one name for all layers. */
ROW(glm_moe_dsa, INDEXED("glm_moe_dsa"), .note = "`shared` layers by `attention_mask`",
    KEYS(DEEPSEEK_KEYS, INDEXER_SIZES, FLAG("rope_interleave", rope_gathered),
         FLAG("indexer_rope_interleave", index_interleaved),
         LAYER_TYPES_AS("indexer_types", "full shared"),
         FIELD("index_skip_topk_offset", INTEGER, index_offset, 0, ATTN_MAX_LAYERS),
         FIELD("index_topk_freq", INTEGER, index_freq, 0, ATTN_MAX_LAYERS),
         {.name = "index_topk_pattern",
          .kind = ATTN_CONFIG_FIXED,
          .only = "null",
          .remedy = "say the same by indexer_types"},
         IGNORED("index_share_for_mtp_iteration layer_types mlp_layer_types moe_router_dtype")),
    DEFAULTS(CAUSAL, .other_type = ATTN_LAYER_SHARED, .index_offset = 2, .kv_lora_rank = 512,
             .q_lora_rank = 2048, .qk_nope_head_dim = 192, .qk_rope_head_dim = 64,
             .value_head_dim = 256, .rope_gathered = true, .index_heads = 32, .index_head_dim = 128,
             .index_topk = 2048, .index_interleaved = true, ROPE(10000)));

ROW(axk1, LATENT("axk1", latent_tensors), .keys = deepseek_v3_keys,
    DEFAULTS(DEEPSEEK, .rope_gathered = true, ROPE(10000)));

ROW(youtu, LATENT("youtu", latent_tensors), .keys = deepseek_v3_keys,
    DEFAULTS(DEEPSEEK, .rope_gathered = true, ROPE(10000)));

ROW(glm4_moe_lite, LATENT("glm4_moe_lite", latent_tensors), .keys = deepseek_v3_keys,
    DEFAULTS(CAUSAL, .kv_lora_rank = 512, .q_lora_rank = 768, .qk_nope_head_dim = 192,
             .qk_rope_head_dim = 64, .value_head_dim = 256, .scale_by_mscale = true,
             .rope_gathered = true, ROPE(10000)));

/* Two attentions in each layer; num_hidden_layers counts those. */
ROW(longcat_flash, DECODER("longcat_flash"), .tensors = longcat_tensors,
    .layout = ATTN_LAYOUT_GROUPED, .unbiased = ATTN_PROJ_QKV,
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, SIZE("num_layers", num_layers, ATTN_MAX_LAYERS / 2),
         POSITIONS, THETA, ROPE_OBJECTS, LATENT_SIZES,
         SIZE("v_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM), ATTENTION_BIAS,
         FIXED("attention_method", "\"MLA\""), FLAG("mla_scale_q_lora", scale_q_lora),
         FLAG("mla_scale_kv_lora", scale_kv_lora),
         IGNORED("expert_ffn_hidden_size ffn_hidden_size head_dim moe_topk "
                 "num_hidden_layers qk_head_dim router_bias zero_expert_num zero_expert_type")),
    DEFAULTS(DEEPSEEK, .attentions = 2, .scale_q_lora = true, .scale_kv_lora = true,
             .rope_gathered = true, ROPE(1e7)));

/* Queries grow with the log of their position. */
#define MISTRAL4                                                                                 \
    .keys = deepseek_v3_keys, SCALING_BETA, .tensors = latent_tensors,                           \
    .layout = ATTN_LAYOUT_GROUPED, .unbiased = ATTN_PROJ_QKV,                                    \
    DEFAULTS(CAUSAL, .kv_lora_rank = 256, .q_lora_rank = 1024, .qk_nope_head_dim = 64,           \
             .qk_rope_head_dim = 64, .value_head_dim = 128, .max_position = 1048576,             \
             .scale_by_mscale = true, .rope_gathered = true,                                     \
             .rope = {ROPE_OF(YARN, 10000, .factor = 128, .original_max_position = 8192,         \
                              .beta_fast = 32, .beta_slow = 1, .mscale = 1, .mscale_all_dim = 1, \
                              .scaling_beta = 0.1, .truncate = true)})

ROW(mistral3_mistral4, NESTED("mistral3", "mistral4"), MISTRAL4);
ROW(mistral4, DECODER("mistral4"), MISTRAL4);

/* Halves rotate. */
ROW(minicpm3, LATENT("minicpm3", latent_tensors),
    KEYS(LATENT_KEYS, IGNORED("dim_model_base scale_depth scale_emb")),
    DEFAULTS(CAUSAL, .kv_lora_rank = 256, .q_lora_rank = 768, .qk_nope_head_dim = 64,
             .qk_rope_head_dim = 32, ROPE(10000)));
