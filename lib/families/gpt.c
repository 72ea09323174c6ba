/* gpt.c: rows of GPT-2 and its relatives: gpt_neox, gptj, falcon, bloom, opt.  Data only.
 *
 * Most of these keep queries, keys and values in one tensor: GPT-2 as columns, GPT-NeoX, Falcon and
 * BLOOM as rows in turn for each key/value head.  Sources: as in llama.c. */
#include "families/keys.h"
#include "families/rows.h"

static const char *const transformer_prefixes[] = {"transformer.", "", NULL};

/* The names of GPT-2's configuration, and the common names for the same sizes. */
#define GPT2_SIZES                                                  \
    SIZE("n_embd", hidden_size, ATTN_MAX_HIDDEN_SIZE), HIDDEN_SIZE, \
        SIZE("n_head", num_heads, ATTN_MAX_HEADS), HEADS,           \
        SIZE("n_layer", num_layers, ATTN_MAX_LAYERS), LAYERS,       \
        SIZE("n_positions", max_position, MAX_POSITION), POSITIONS

/* ---- gpt2: Hugging Face's Conv1D stores [in][out]; h.N.attn.bias is the causal mask ---------- */

static const struct attn_hf_key gpt2_keys[] = {
    GPT2_SIZES,
    FLAG("scale_attn_weights", scale_attn_weights),
    FLAG("scale_attn_by_inverse_layer_idx", scale_by_layer),
    IGNORED("reorder_and_upcast_attn"),
    IGNORED("n_ctx"),
    IGNORED("is_decoder"),
    END,
};

static const char *const gpt2_prefixes[] = {"", "transformer.", NULL};

static const struct attn_family_tensor gpt2_tensors[] = {
    {"h.*.attn.c_attn.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"h.*.attn.c_attn.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"h.*.attn.c_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"h.*.attn.c_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_gpt2 = {
    .model_type = "gpt2",
    .name = "gpt2",
    .keys = gpt2_keys,
    .common_keys = true,
    .prefixes = gpt2_prefixes,
    .tensors = gpt2_tensors,
    .layout = ATTN_LAYOUT_TRANSPOSED,
    .defaults = {.is_causal = true, .bias = true, .scale_attn_weights = true},
};

/* ---- gpt_neox: a quarter of each head rotates ----------------------------------------------- */

static const struct attn_hf_key gpt_neox_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    NUMBER("rotary_pct", rope.partial_rotary_factor, 1e-6, 1),
    PARTIAL,
    NUMBER("rotary_emb_base", rope.theta, 1, MAX_THETA),
    THETA,
    ROPE_OBJECTS,
    IGNORED("is_decoder"),
    IGNORED("use_parallel_residual"),
    END,
};

static const char *const gpt_neox_prefixes[] = {"gpt_neox.", "", NULL};

static const struct attn_family_tensor gpt_neox_tensors[] = {
    {"layers.*.attention.query_key_value.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"layers.*.attention.query_key_value.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"layers.*.attention.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.attention.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_gpt_neox = {
    .model_type = "gpt_neox",
    .name = "gpt_neox",
    .keys = gpt_neox_keys,
    .common_keys = true,
    .prefixes = gpt_neox_prefixes,
    .tensors = gpt_neox_tensors,
    .layout = ATTN_LAYOUT_GROUPED,
    .defaults = {.is_causal = true,
                 .bias = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000), .partial_rotary_factor = 0.25}},
};

/* ---- gptj: neighbouring components rotate --------------------------------------------------- */

static const struct attn_hf_key gptj_keys[] = {
    GPT2_SIZES,
    SIZE("rotary_dim", rope.dim, ATTN_MAX_HEAD_DIM),
    FIXED("rotary", "true"),
    FIXED("scale_attn_weights", "true"),
    IGNORED("n_ctx"),
    IGNORED("is_decoder"),
    END,
};

static const struct attn_family_tensor gptj_tensors[] = {
    {"h.*.attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"h.*.attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"h.*.attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"h.*.attn.out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {.name = NULL},
};

const struct attn_family attn_family_gptj = {
    .model_type = "gptj",
    .name = "gptj",
    .keys = gptj_keys,
    .common_keys = true,
    .prefixes = transformer_prefixes,
    .tensors = gptj_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000), .dim = 64, .interleaved = true}},
};

/* ---- falcon: RoPE, or ALiBi that the scale applies to as well ------------------------------- */

static const struct attn_hf_key falcon_keys[] = {
    HIDDEN_SIZE,
    SIZE("n_embed", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    HEADS,
    SIZE("n_head", num_heads, ATTN_MAX_HEADS),
    LAYERS,
    SIZE("n_layer", num_layers, ATTN_MAX_LAYERS),
    SIZE("num_kv_heads", num_kv_heads, ATTN_MAX_HEADS),
    SIZE("n_head_kv", num_kv_heads, ATTN_MAX_HEADS),
    FLAG("new_decoder_architecture", grouped),
    FLAG("multi_query", multi_query),
    FLAG("bias", bias),
    FLAG("alibi", alibi),
    POSITIONS,
    THETA,
    ROPE_OBJECTS,
    IGNORED("activation"),
    IGNORED("auto_map"),
    IGNORED("ff_factor"),
    IGNORED("ffn_hidden_size"),
    IGNORED("num_ln_in_parallel_attn"),
    IGNORED("parallel_attn"),
    END,
};

static const struct attn_family_tensor falcon_tensors[] = {
    {"h.*.self_attention.query_key_value.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"h.*.self_attention.query_key_value.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"h.*.self_attention.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"h.*.self_attention.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_falcon = {
    .model_type = "falcon",
    .name = "falcon",
    .keys = falcon_keys,
    .common_keys = true,
    .prefixes = transformer_prefixes,
    .tensors = falcon_tensors,
    .layout = ATTN_LAYOUT_GROUPED,
    .kv_by_flags = true,
    .defaults = {.multi_query = true,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .alibi_scaled = true,
                 .alibi_bfloat16 = true,
                 .alibi_replaces_rope = true,
                 .rope = {ROPE_OF(10000)}},
};

/* ---- bloom: ALiBi --------------------------------------------------------------------------- */

static const struct attn_hf_key bloom_keys[] = {
    HIDDEN_SIZE,
    SIZE("n_embed", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    HEADS,
    SIZE("n_head", num_heads, ATTN_MAX_HEADS),
    LAYERS,
    SIZE("n_layer", num_layers, ATTN_MAX_LAYERS),
    IGNORED("attention_softmax_in_fp32"),
    IGNORED("bias_dropout_fusion"),
    IGNORED("masked_softmax_fusion"),
    IGNORED("offset_alibi"),
    IGNORED("seq_length"),
    IGNORED("skip_bias_add"),
    IGNORED("skip_bias_add_qkv"),
    IGNORED("slow_but_exact"),
    END,
};

const struct attn_family attn_family_bloom = {
    .model_type = "bloom",
    .name = "bloom",
    .keys = bloom_keys,
    .common_keys = true,
    .prefixes = transformer_prefixes,
    .tensors = falcon_tensors,
    .layout = ATTN_LAYOUT_GROUPED,
    .defaults = {.is_causal = true, .bias = true, .scale_attn_weights = true, .alibi = true},
};

/* ---- opt ------------------------------------------------------------------------------------ */

static const struct attn_hf_key opt_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    FLAG("enable_bias", bias),
    IGNORED("do_layer_norm_before"),
    IGNORED("ffn_dim"),
    IGNORED("init_std"),
    IGNORED("is_decoder"),
    IGNORED("layer_norm_elementwise_affine"),
    IGNORED("word_embed_proj_dim"),
    END,
};

static const char *const opt_prefixes[] = {"model.decoder.", "decoder.", "", NULL};

static const struct attn_family_tensor opt_tensors[] = {
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.k_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.v_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.out_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_opt = {
    .model_type = "opt",
    .name = "opt",
    .keys = opt_keys,
    .common_keys = true,
    .prefixes = opt_prefixes,
    .tensors = opt_tensors,
    .defaults = {.is_causal = true, .bias = true, .scale_attn_weights = true},
};

/* ---- mpt: ALiBi over slots, whatever is padding ---------------------------------------------- */

static const struct attn_hf_key mpt_keys[] = {
    SIZE("d_model", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    HIDDEN_SIZE,
    SIZE("n_heads", num_heads, ATTN_MAX_HEADS),
    HEADS,
    SIZE("n_layers", num_layers, ATTN_MAX_LAYERS),
    LAYERS,
    SIZE("max_seq_len", max_position, MAX_POSITION),
    OBJECT("attn_config"),
    NUMBER("attn_config.softmax_scale", scale, 1e-9, ATTN_MAX_SCALE),
    FIXED("attn_config.alibi", "true"),
    FIXED("attn_config.alibi_bias_max", "8"),
    FIXED("attn_config.attn_type", "\"multihead_attention\""),
    FIXED("attn_config.attn_uses_sequence_id", "false"),
    FIXED("attn_config.clip_qkv", "null"),
    FIXED("attn_config.prefix_lm", "false"),
    FIXED("attn_config.qk_ln", "false"),
    FIXED("no_bias", "true"),
    IGNORED("attn_config.attn_impl"),
    IGNORED("attn_config.attn_pdrop"),
    IGNORED("attn_config.model_type"),
    IGNORED("auto_map"),
    IGNORED("emb_pdrop"),
    IGNORED("embedding_fraction"),
    IGNORED("expansion_ratio"),
    IGNORED("init_config"),
    IGNORED("init_device"),
    IGNORED("is_decoder"),
    IGNORED("learned_pos_emb"),
    IGNORED("logit_scale"),
    IGNORED("norm_type"),
    IGNORED("tokenizer_name"),
    IGNORED("verbose"),
    END,
};

static const struct attn_family_tensor mpt_tensors[] = {
    {"blocks.*.attn.Wqkv.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"blocks.*.attn.out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {.name = NULL},
};

const struct attn_family attn_family_mpt = {
    .model_type = "mpt",
    .name = "mpt",
    .keys = mpt_keys,
    .common_keys = true,
    .prefixes = transformer_prefixes,
    .tensors = mpt_tensors,
    .unbiased = ATTN_PROJ_ALL,
    .defaults = {.is_causal = true,
                 .scale_attn_weights = true,
                 .alibi = true,
                 .alibi_by_slot = true},
};
