/* hybrids.c: rows of decoders of which some layers are attention and others are not: Mamba,
 * convolutions, linear attention, or an MLP alone.  The others are listed and never loaded.  Data
 * only.
 *
 * Sources: as in llama.c, v5.15.0 of it, and the configurations published with the checkpoints. */
#include "families/rows.h"

#define MAMBA .other_type = ATTN_LAYER_MAMBA
#define MAMBA_TYPES(key) LAYER_TYPES_AS(key, "attention mamba")
#define MAMBA_IGNORED                                                                             \
    IGNORED("mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_ssm "             \
            "mamba_d_state mamba_dt_rank mamba_expand mamba_head_dim mamba_hidden_act "           \
            "mamba_inner_layernorms mamba_n_groups mamba_n_heads mamba_norm_before_gate "         \
            "mamba_num_heads mamba_proj_bias mamba_rms_norm mamba_ssm_cache_dtype mamba_use_mlp " \
            "num_logits_to_keep time_step_floor time_step_limit time_step_max time_step_min "     \
            "use_mamba_kernels auto_map")

/* No positions, whatever rope_theta says.  A layer is one of attention, Mamba, MLP and experts. */
ROW(nemotron_h, FAMILY("nemotron_h"), PREFIXES("backbone.", "model.", ""),
    TENSORS(MAPS("layers.*.mixer.", "q_proj", "k_proj", "v_proj", "o_proj")),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM,
         SIZE("attention_head_dim", head_dim, ATTN_MAX_HEAD_DIM), LAYERS, POSITIONS, ATTENTION_BIAS,
         FIELD("hybrid_override_pattern", LAYER_LETTERS, num_layer_types, 0, 0),
         MAMBA_TYPES("layers_block_type"), MAMBA_TYPES("layer_types"), MAMBA_IGNORED,
         IGNORED("chunk_size conv_kernel expand mlp_hidden_act moe_latent_size "
                 "moe_shared_expert_intermediate_size moe_shared_expert_overlap "
                 "mtp_hybrid_override_pattern mtp_layers_block_type n_group n_groups "
                 "n_routed_experts n_shared_experts norm_eps num_nextn_predict_layers "
                 "partial_rotary_factor rescale_prenorm_residual residual_in_fp32 rope_theta "
                 "routed_scaling_factor ssm_state_size topk_group use_bias use_conv_bias")),
    DEFAULTS(CAUSAL, MAMBA, .num_kv_heads = 8, .head_dim = 128));

ROW(granitemoehybrid, LLAMA("granitemoehybrid"), .note = "RoPE only with `rope`",
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, SCALE("attention_multiplier"),
         NAME("position_embedding_type", position_type, "rope nope"), MAMBA_TYPES("layer_types"),
         MAMBA_TYPES("layers_block_type"), MAMBA_IGNORED,
         IGNORED("embedding_multiplier init_method logits_scaling normalization_function "
                 "residual_multiplier shared_intermediate_size")),
    DEFAULTS(CAUSAL, MAMBA, .scale = 1, ROPE(10000)));

/* Llama of which layers have lost their attention, or some of their key/value heads. */
ROW(nemotron_nas, LLAMA("nemotron-nas"), .note = "key/value heads by layer",
    KEYS(DECODER_KEYS, ATTENTION_BIAS, FIELD("block_configs", LAYER_BLOCKS, num_layer_types, 0, 0)),
    DEFAULTS(CAUSAL, .other_type = ATTN_LAYER_MLP, ROPE(10000)));

/* One layer in three, with a window. */
ROW(recurrent_gemma, DECODER("recurrent_gemma"),
    TENSORS(MAPS("layers.*.temporal_block.", "q_proj", "k_proj", "v_proj", "o_proj")),
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, ATTENTION_BIAS,
         SIZE("attention_window_size", sliding_window, MAX_POSITION), PARTIAL, THETA, ROPE_OBJECTS,
         FIXED("block_types", "[\"recurrent\",\"recurrent\",\"attention\"]"),
         IGNORED("conv1d_width embeddings_scale_by_sqrt_dim final_w_init_variance_scale "
                 "logits_soft_cap lru_width w_init_variance_scale")),
    DEFAULTS(CAUSAL, .o_bias = true, SLIDES, .sliding_window = 2048, .full_period = 3,
             .other_type = ATTN_LAYER_RECURRENT, ROPE(10000, .partial_rotary_factor = 0.5)));

/* Attention among layers of linear attention; rotary_dim of each head rotate. */
#define MINIMAX(type)                                                                            \
    LLAMA(type), .unbiased = ATTN_PROJ_ALL, .note = "`rotary_dim` counts", .keys = minimax_keys, \
                 DEFAULTS(CAUSAL, .num_kv_heads = 8, .full_period = 2, .full_first = true,       \
                          .other_type = ATTN_LAYER_LINEAR, ROPE(10000))
static const struct attn_hf_key minimax_keys[] = KEY_LIST(
    DECODER_KEYS, HEAD_DIM, SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM), LAYER_TYPES,
    LAYER_TYPES_AS("attn_type_list", "1 0"),
    IGNORED("block_size full_attn_alpha_factor full_attn_beta_factor "
            "layernorm_full_attention_alpha layernorm_full_attention_beta "
            "layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha "
            "layernorm_mlp_beta linear_attn_alpha_factor linear_attn_beta_factor "
            "mlp_alpha_factor mlp_beta_factor postnorm shared_intermediate_size shared_moe_mode"));

ROW(minimax, MINIMAX("minimax"));
ROW(minimax_text_01, MINIMAX("minimax_text_01"));
ROW(minimax_m1, MINIMAX("minimax_m1"));

/* Each layer has both; attention's input and output are multiplied outside of it. */
ROW(falcon_h1, LLAMA("falcon_h1"),
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, KEY_MULTIPLIER, MAMBA_IGNORED,
         IGNORED("attention_in_multiplier attention_out_multiplier embedding_multiplier "
                 "lm_head_multiplier mlp_expansion_factor mlp_multipliers projectors_bias "
                 "ssm_in_multiplier ssm_multipliers ssm_out_multiplier")),
    DEFAULTS(CAUSAL, .num_kv_heads = 8, .key_multiplier = 1, ROPE(100000)));

/* No positions. */
ROW(jamba, LLAMA("jamba"), .unbiased = ATTN_PROJ_ALL,
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS,
         SIZE("attn_layer_period", full_period, ATTN_MAX_LAYERS),
         FIELD("attn_layer_offset", INTEGER, full_offset, 0, ATTN_MAX_LAYERS),
         MAMBA_TYPES("layer_types"), MAMBA_TYPES("layers_block_type"), MAMBA_IGNORED,
         IGNORED("calc_logits_for_entire_prompt expert_layer_offset expert_layer_period")),
    DEFAULTS(CAUSAL, MAMBA, .num_kv_heads = 8, .full_period = 8, .full_first = true,
             .full_offset = 4));

/* Half of each head rotates. */
ROW(bamba, LLAMA("bamba"), .unbiased = ATTN_PROJ_ALL,
    KEYS(DECODER_KEYS, FULL_LAYERS("attn_layer_indices"), MAMBA_TYPES("layer_types"),
         MAMBA_TYPES("layers_block_type"), SIZE("attn_rotary_emb", rope.dim, ATTN_MAX_HEAD_DIM),
         NUMBER("partial_rotary_factor", rope.partial_rotary_factor, 0.5, 0.5),
         FIXED("attention_bias", "false"), MAMBA_IGNORED, IGNORED("z_loss_coefficient")),
    DEFAULTS(CAUSAL, MAMBA, .num_kv_heads = 8, ROPE(10000, .partial_rotary_factor = 0.5)));

#define LFM2_KEYS                                                                             \
    DECODER_KEYS, HEAD_DIM, NUMBER("theta", rope.theta, 1, MAX_THETA), HEADS_AS("num_heads"), \
        NUMBER("norm_eps", norm_eps, 0, 1), FULL_LAYERS("full_attn_idxs"), LAYER_TYPES,       \
        FIXED("use_pos_enc", "true"),                                                         \
        IGNORED("auto_map block_auto_adjust_ff_dim block_dim block_ff_dim "                   \
                "block_ffn_dim_multiplier block_mlp_init_scale block_multiple_of "            \
                "block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init " \
                "conv_L_cache conv_bias conv_dim conv_dim_out conv_use_xavier_init "          \
                "num_dense_layers routed_scaling_factor tie_embedding use_expert_bias")

#define LFM2                                                                     \
    TENSORS(WEIGHTS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "out_proj"),        \
            NORM(SELF_ATTN "q_layernorm", Q), NORM(SELF_ATTN "k_layernorm", K)), \
        .unbiased = ATTN_PROJ_ALL,                                               \
        DEFAULTS(CAUSAL, .num_kv_heads = 8, .qk_norm = true, .norm_eps = 1e-5,   \
                 .other_type = ATTN_LAYER_CONV, .full_period = 1, ROPE(1e6))

static const struct attn_hf_key lfm2_keys[] = KEY_LIST(LFM2_KEYS);

ROW(lfm2, DECODER("lfm2"), .keys = lfm2_keys, LFM2);
ROW(lfm2_moe, DECODER("lfm2_moe"), .keys = lfm2_keys, LFM2);

/* The attention of olmo2.  A RoPE object that is null, or has no base, means no RoPE. */
ROW(olmo_hybrid, NORMED("olmo_hybrid"), .note = "RoPE only with a base",
    KEYS(DECODER_KEYS, HEAD_DIM, ATTENTION_BIAS, NORM_EPS, LAYER_TYPES,
         IGNORED("linear_a_log_max linear_a_log_min linear_allow_neg_eigval "
                 "linear_conv_kernel_dim linear_dt_init_floor linear_dt_max linear_dt_min "
                 "linear_key_head_dim linear_num_key_heads linear_num_value_heads "
                 "linear_use_gate linear_value_head_dim")),
    DEFAULTS(CAUSAL, .qk_norm = true, .norm_extent = ATTN_NORM_ALL_HEADS, .norm_eps = 1e-6,
             .other_type = ATTN_LAYER_LINEAR, .full_period = 4, .rope_optional = true,
             .rope = {.truncate = true}));
