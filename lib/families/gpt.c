/* gpt.c: rows of GPT-2 and its relatives: gpt_bigcode to mpt, and of dbrx.  Data only.
 *
 * Most of these keep queries, keys and values in one tensor: GPT-2 as columns, GPT-NeoX, Falcon and
 * BLOOM as rows in turn for each key/value head.  Sources: as in llama.c. */
#include "families/rows.h"

#define TRANSFORMER PREFIXES("transformer.", "")

/* The names of GPT-2's configuration, and the common names for the same sizes. */
#define GPT2_SIZES                                                                             \
    SIZE("n_embd", hidden_size, ATTN_MAX_HIDDEN_SIZE), HIDDEN_SIZE, HEADS_AS("n_head"), HEADS, \
        LAYERS_AS("n_layer"), LAYERS, SIZE("n_positions", max_position, MAX_POSITION), POSITIONS

/* Hugging Face's Conv1D stores [in][out]; h.N.attn.bias is the causal mask. */
#define GPT2                                                                           \
    .layout = ATTN_LAYOUT_TRANSPOSED, TENSORS(FUSED("h.*.attn.", "c_attn", "c_proj")), \
    KEYS(GPT2_SIZES, FLAG("scale_attn_weights", scale_attn_weights),                   \
         FLAG("scale_attn_by_inverse_layer_idx", scale_by_layer),                      \
         IGNORED("reorder_and_upcast_attn n_ctx is_decoder")),                         \
    DEFAULTS(CAUSAL, .bias = true)

ROW(gpt2, FAMILY("gpt2"), PREFIXES("", "transformer."), GPT2);
ROW(imagegpt, FAMILY("imagegpt"), PREFIXES("transformer.", ""), GPT2);

/* Published files name some tensors with the prefix, some without. */
ROW(openai_gpt, FAMILY("openai-gpt"), PREFIXES("", "transformer."),
    .layout = ATTN_LAYOUT_TRANSPOSED, TENSORS(FUSED("h.*.attn.", "c_attn", "c_proj")),
    KEYS(GPT2_SIZES, IGNORED("afn n_ctx n_special predict_special_tokens")),
    DEFAULTS(CAUSAL, .bias = true));

ROW(ctrl, FAMILY("ctrl"), TRANSFORMER,
    TENSORS(MAPS("h.*.multi_head_attention.", "Wq", "Wk", "Wv", "dense")),
    KEYS(GPT2_SIZES, IGNORED("dff from_tf n_ctx")), DEFAULTS(CAUSAL, .bias = true));

/* With multi_query false q, k and v come head by head. */
ROW(gpt_bigcode, FAMILY("gpt_bigcode"), TRANSFORMER, .layout = ATTN_LAYOUT_GROUPED,
    .kv_by_flags = true, TENSORS(FUSED("h.*.attn.", "c_attn", "c_proj")),
    KEYS(GPT2_SIZES, FLAG("multi_query", multi_query),
         FLAG("scale_attn_weights", scale_attn_weights),
         IGNORED("attention_softmax_in_fp32 inference_runner max_batch_size n_ctx "
                 "num_key_value_heads pad_key_length pre_allocate_kv_cache "
                 "scale_attention_softmax_in_fp32 validate_runner_input")),
    DEFAULTS(CAUSAL, .bias = true, .multi_query = true));

/* Scores are not scaled; local layers have a window. */
ROW(gpt_neo, FAMILY("gpt_neo"), TRANSFORMER,
    TENSORS(MAPS("h.*.attn.attention.", "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(HIDDEN_SIZE, HEADS_AS("num_heads"), HEADS, LAYERS_AS("num_layers"), LAYERS, POSITIONS,
         SIZE("window_size", sliding_window, MAX_POSITION),
         KEY("attention_types", LAYER_RUNS, HF_FIELD(num_layer_types), 0, 0, "global local"),
         LAYER_TYPES_AS("attention_layers", "global local"),
         IGNORED("embed_dropout resid_dropout")),
    DEFAULTS(.is_causal = true, .o_bias = true, SLIDES, .sliding_window = 256, .first_sliding = 1,
             .sliding_period = 2));

/* A quarter of each head rotates. */
ROW(gpt_neox, FAMILY("gpt_neox"), PREFIXES("gpt_neox.", ""), .layout = ATTN_LAYOUT_GROUPED,
    TENSORS(FUSED("layers.*.attention.", "query_key_value", "dense")),
    KEYS(SIZES, POSITIONS, ATTENTION_BIAS,
         NUMBER("rotary_pct", rope.partial_rotary_factor, 1e-6, 1), PARTIAL,
         NUMBER("rotary_emb_base", rope.theta, 1, MAX_THETA), THETA, ROPE_OBJECTS,
         IGNORED("is_decoder use_parallel_residual")),
    DEFAULTS(CAUSAL, .bias = true, ROPE(10000, .partial_rotary_factor = 0.25)));

/* Neighbouring components rotate. */
ROW(gptj, FAMILY("gptj"), TRANSFORMER, .unbiased = ATTN_PROJ_ALL,
    TENSORS(WEIGHTS("h.*.attn.", "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(GPT2_SIZES, SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM), FIXED("rotary", "true"),
         FIXED("scale_attn_weights", "true"), IGNORED("n_ctx is_decoder")),
    DEFAULTS(CAUSAL, ROPE(10000, .dim = 64, .interleaved = true)));

ROW(codegen, FAMILY("codegen"), TRANSFORMER, .layout = ATTN_LAYOUT_QUARTERS,
    TENSORS(WEIGHT("h.*.attn.qkv_proj", QKV), WEIGHT("h.*.attn.out_proj", O)),
    .unbiased = ATTN_PROJ_ALL,
    KEYS(GPT2_SIZES, SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM),
         FIXED("scale_attn_weights", "true"), IGNORED("n_ctx rotary")),
    DEFAULTS(CAUSAL, ROPE(10000, .dim = 64, .interleaved = true)));

#define EMBED SIZE("n_embed", hidden_size, ATTN_MAX_HIDDEN_SIZE)
#define BLOOM_SIZES HIDDEN_SIZE, EMBED, HEADS, HEADS_AS("n_head"), LAYERS, LAYERS_AS("n_layer")
#define BLOOM_TENSORS TENSORS(FUSED("h.*.self_attention.", "query_key_value", "dense"))

/* RoPE, or ALiBi that the scale applies to as well. */
ROW(falcon, FAMILY("falcon"), TRANSFORMER, BLOOM_TENSORS, .layout = ATTN_LAYOUT_GROUPED,
    .kv_by_flags = true,
    KEYS(BLOOM_SIZES, SIZE("num_kv_heads", num_kv_heads, ATTN_MAX_HEADS),
         SIZE("n_head_kv", num_kv_heads, ATTN_MAX_HEADS), FLAG("new_decoder_architecture", grouped),
         FLAG("multi_query", multi_query), FLAG("bias", bias), FLAG("alibi", alibi), POSITIONS,
         THETA, ROPE_OBJECTS,
         IGNORED("activation ff_factor ffn_hidden_size num_ln_in_parallel_attn "
                 "parallel_attn")),
    DEFAULTS(CAUSAL, .multi_query = true, .alibi_scaled = true, .alibi_bfloat16 = true,
             .alibi_replaces_rope = true, ROPE(10000)));

ROW(bloom, FAMILY("bloom"), TRANSFORMER, BLOOM_TENSORS, .layout = ATTN_LAYOUT_GROUPED,
    KEYS(BLOOM_SIZES, IGNORED("attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion "
                              "offset_alibi seq_length skip_bias_add skip_bias_add_qkv "
                              "slow_but_exact")),
    DEFAULTS(CAUSAL, .bias = true, .alibi = true));

ROW(opt, FAMILY("opt"), PREFIXES("model.decoder.", "decoder.", ""),
    TENSORS(MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(SIZES, POSITIONS, FLAG("enable_bias", bias),
         IGNORED("do_layer_norm_before ffn_dim init_std is_decoder layer_norm_elementwise_affine "
                 "word_embed_proj_dim")),
    DEFAULTS(CAUSAL, .bias = true));

/* Positions are outside of attention in both. */
ROW(biogpt, FAMILY("biogpt"), PREFIXES("biogpt.", ""),
    TENSORS(MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(SIZES, POSITIONS, IGNORED("is_decoder scale_embedding")), DEFAULTS(CAUSAL, .bias = true));

ROW(xglm, DECODER("xglm"), TENSORS(MAPS(SELF_ATTN, "q_proj", "k_proj", "v_proj", "out_proj")),
    KEYS(D_MODEL, HIDDEN_SIZE, HEADS_AS("attention_heads"), HEADS, LAYERS_AS("num_layers"), LAYERS,
         POSITIONS, IGNORED("ffn_dim init_std scale_embedding")),
    DEFAULTS(CAUSAL, .bias = true));

/* ALiBi over slots, whatever is padding. */
ROW(mpt, FAMILY("mpt"), TRANSFORMER, .unbiased = ATTN_PROJ_ALL,
    TENSORS(WEIGHT("blocks.*.attn.Wqkv", QKV), WEIGHT("blocks.*.attn.out_proj", O)),
    KEYS(D_MODEL, HIDDEN_SIZE, HEADS_AS("n_heads"), HEADS, LAYERS_AS("n_layers"), LAYERS,
         SIZE("max_seq_len", max_position, MAX_POSITION), OBJECT("attn_config"),
         SCALE("attn_config.softmax_scale"), FIXED("attn_config.alibi", "true"),
         FIXED("attn_config.alibi_bias_max", "8"),
         FIXED("attn_config.attn_type", "\"multihead_attention\""),
         FIXED("attn_config.attn_uses_sequence_id", "false"), CLIP("attn_config.clip_qkv"),
         FIXED("attn_config.prefix_lm", "false"), FIXED("attn_config.qk_ln", "false"),
         FIXED("no_bias", "true"),
         IGNORED("attn_config.attn_impl attn_config.attn_pdrop attn_config.model_type "
                 "emb_pdrop embedding_fraction expansion_ratio init_config init_device is_decoder "
                 "learned_pos_emb logit_scale norm_type tokenizer_name verbose")),
    DEFAULTS(CAUSAL, .alibi = true, .alibi_by_slot = true));

ROW(dbrx, FAMILY("dbrx"), TRANSFORMER, .unbiased = ATTN_PROJ_ALL,
    .note = "`attn_config.rope_theta` counts",
    TENSORS(WEIGHT("blocks.*.norm_attn_norm.attn.Wqkv", QKV),
            WEIGHT("blocks.*.norm_attn_norm.attn.out_proj", O)),
    KEYS(D_MODEL, HIDDEN_SIZE, HEADS_AS("n_heads"), HEADS, KV_HEADS, LAYERS_AS("n_layers"), LAYERS,
         SIZE("max_seq_len", max_position, MAX_POSITION), POSITIONS, OBJECT("attn_config"),
         SIZE("attn_config.kv_n_heads", num_kv_heads, ATTN_MAX_HEADS), CLIP("attn_config.clip_qkv"),
         NUMBER("attn_config.rope_theta", rope.theta, 1, MAX_THETA), ROPE_OBJECTS,
         IGNORED("attn_config.attn_pdrop attn_config.model_type auto_map emb_pdrop ffn_config")),
    DEFAULTS(CAUSAL, .num_kv_heads = 1, ROPE(10000)));
