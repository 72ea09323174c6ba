/* own.c: rows of layers that are no published model's: PyTorch's own layer, a layer of the caller's
 * by the names that the field uses for sizes and weights, random models.  Data only.
 *
 * Source: torch.nn.MultiheadAttention. */
#include "families/rows.h"

#define KDIM SIZE("kdim", key_size, ATTN_MAX_HIDDEN_SIZE)
#define VDIM SIZE("vdim", value_size, ATTN_MAX_HIDDEN_SIZE)
#define EMBED_DIM SIZE("embed_dim", hidden_size, ATTN_MAX_HIDDEN_SIZE)
#define VALUE_DIM SIZE("value_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM)
#define ZERO_ATTN FLAG("add_zero_attn", add_zero_attn)
#define IS_CAUSAL FLAG("is_causal", is_causal)
#define INTERLEAVED FLAG("rope_interleaved", rope.interleaved)

/* torch.nn.MultiheadAttention, alone or in the layers of a TransformerEncoder. */
ROW(torch, .model_type = "torch_multihead_attention", .name = "torch_mha",
    PREFIXES("layers.*.self_attn.", ""),
    TENSORS(TENSOR("in_proj_weight", QKV, WEIGHT), TENSOR("q_proj_weight", Q, WEIGHT),
            TENSOR("k_proj_weight", K, WEIGHT), TENSOR("v_proj_weight", V, WEIGHT),
            WEIGHT("out_proj", O), TENSOR("in_proj_bias", QKV, BIAS), BIAS("out_proj", O),
            TENSOR("bias_k", K, BIAS_KV), TENSOR("bias_v", V, BIAS_KV)),
    KEYS(EMBED_DIM, HEADS_AS("num_heads"), KV_HEADS, KDIM, VDIM, LAYERS, FLAG("bias", bias),
         FLAG("add_bias_kv", bias_kv), ZERO_ATTN, IS_CAUSAL, THETA, IGNORED("batch_first device")),
    DEFAULTS(ENCODER, .num_layers = 1));

/* Weights of one's own, in either orientation. */
ROW(attention, FAMILY("attention"), PREFIXES("layers.*.", ""), .either_way = "W_",
    TENSORS(WEIGHTS("", "q_proj", "k_proj", "v_proj", "o_proj"), WEIGHT("out_proj", O),
            WEIGHT("qkv_proj", QKV), TENSOR("in_proj_weight", QKV, WEIGHT),
            EACH("W_q", "W_k", "W_v", "W_o", WEIGHT), EACH("W_Q", "W_K", "W_V", "W_O", WEIGHT),
            BIASES("", "q_proj", "k_proj", "v_proj", "o_proj"), BIAS("out_proj", O),
            BIAS("qkv_proj", QKV), TENSOR("in_proj_bias", QKV, BIAS),
            EACH("b_q", "b_k", "b_v", "b_o", BIAS), EACH("b_Q", "b_K", "b_V", "b_O", BIAS),
            NORM("q_norm", Q), NORM("k_norm", K)),
    KEYS(HIDDEN_SIZE, D_MODEL, EMBED_DIM, HEADS, HEADS_AS("num_heads"), HEADS_AS("n_heads"),
         KV_HEADS, SIZE("num_kv_heads", num_kv_heads, ATTN_MAX_HEADS), HEAD_DIM, VALUE_DIM, LAYERS,
         LAYERS_AS("num_layers"), POSITIONS, FLAG("transposed", transposed), ATTENTION_BIAS,
         FLAG("bias", bias), ZERO_ATTN, FLAG("qk_norm", qk_norm), NORM_EPS, IS_CAUSAL,
         SCALE("scale"), SOFTCAP, WINDOW, LAYER_TYPES, THETA, PARTIAL, INTERLEAVED, ROPE_OBJECTS),
    DEFAULTS(.num_layers = 1, .scale_attn_weights = true, .norm_eps = 1e-6, SLIDES,
             .rope = {.truncate = true}));

/* Every field of a specification has a key. */
ROW(random, .name = "random", ROPE_KEYS(MSCALES), .unbiased = ATTN_PROJ_KV_A,
    KEYS(HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_DIM, VALUE_DIM, KDIM, VDIM, LATENT_SIZES, INDEXER_SIZES,
         FLAG("indexer_rope_interleave", index_interleaved), LAYERS, POSITIONS, ATTENTION_BIAS,
         FLAG("bias", bias), FLAG("add_bias_kv", bias_kv), ZERO_ATTN,
         FLAG("attention_sinks", sinks), FLAG("qk_norm", qk_norm),
         NAME("qk_norm_type", norm_type, "rms_norm layer_norm"),
         NAME("qk_norm_extent", norm_extent, "each_head all_heads"),
         FLAG("qk_norm_weightless", norm_weightless), FLAG("qk_norm_bias", norm_bias),
         FLAG("qk_norm_after_rope", norm_after_rope), FLAG("v_norm", v_norm),
         FLAG("output_norm", output_norm), NORM_EPS, CLIP("clip_qkv"), KEY_MULTIPLIER,
         FLAG("attn_output_gate", output_gate), FLAG("gate_softplus", gate_softplus),
         FLAG("gate_by_head", gate_by_head), FLAG("differential", differential), KEEP_WINDOW,
         IS_CAUSAL, FLAG("is_cross", is_cross), SCALE("scale"), SCALE_OF, SOFTCAP,
         NUMBER("attention_value_scale", value_scale, 1e-6, ATTN_MAX_SCALE), WINDOW, LAYER_TYPES,
         SHARED_LAYERS, CHUNK_SIZE, ROPE_LAYERS,
         NUMBER("attn_scale", query_scaling.beta, -1e6, 1e6),
         NUMBER("floor_scale", query_scaling.period, 1e-3, MAX_POSITION),
         FLAG("attn_scale_next", query_scaling.next),
         FLAG("attn_scale_by_slot", query_scaling.by_slot), FLAG("alibi", alibi),
         FLAG("alibi_scaled", alibi_scaled), FLAG("alibi_bfloat16", alibi_bfloat16),
         FLAG("alibi_by_slot", alibi_by_slot), POSITION_TABLE, BUCKETS,
         NAME("position_embeddings_type", relative_key, "relative_key"),
         FIELD("max_relative_after", INTEGER, max_after, 0, ATTN_MAX_BUCKETS),
         FLAG("relative_backward", relative_backward), THETA, PARTIAL, INTERLEAVED,
         FLAG("rope_reversed", rope.reversed), ROPE_OBJECTS,
         SIZE("original_max_position_embeddings", original_max_position, MAX_POSITION),
         FIELD("seed", INTEGER, seed, 0, MAX_SEED)),
    DEFAULTS(CAUSAL, .num_layers = 1, .norm_eps = 1e-6, SLIDES, .max_distance = 128,
             .relative_attention = true, .share_att_key = true, .relative_norm_eps = 1e-7,
             .rope = {.truncate = true}));
