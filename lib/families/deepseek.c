/* deepseek.c: rows of families with multi-head latent attention: deepseek_v2, deepseek_v3,
 * kimi_k2, minicpm3.  Data only.
 *
 * Keys of experts and of further predicted tokens do not touch attention.  Both norms of latents
 * have an eps of 1e-6, whatever rms_norm_eps says.
 *
 * Sources: the configuration and modelling files of huggingface/transformers v4.55.4 and v5.15.0,
 * and the configurations published with the checkpoints. */
#include "families/keys.h"
#include "families/rows.h"

static const char *const prefixes[] = {"model.", "", NULL};

static const struct attn_family_tensor tensors[] = {
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_b_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_a_proj.weight", ATTN_PROJ_Q_A, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_a_layernorm.weight", ATTN_PROJ_Q_A, ATTN_ROLE_NORM},
    {"layers.*.self_attn.kv_a_proj_with_mqa.weight", ATTN_PROJ_KV_A | ATTN_PROJ_K_ROPE,
     ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.kv_a_layernorm.weight", ATTN_PROJ_KV_A, ATTN_ROLE_NORM},
    {"layers.*.self_attn.kv_b_proj.weight", ATTN_PROJ_K | ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.o_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {.name = NULL},
};

#define LATENT_KEYS                                                                              \
    HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS, THETA, ROPE_OBJECTS, LATENT_SIZES,          \
        SIZE("v_head_dim", value_head_dim, ATTN_MAX_HEAD_DIM), FIXED("attention_bias", "false"), \
        IGNORED("auto_map")

/* head_dim and qk_head_dim follow from qk_nope_head_dim and qk_rope_head_dim. */
#define DEEPSEEK_KEYS                                                                             \
    LATENT_KEYS, IGNORED("aux_loss_alpha"), IGNORED("ep_size"), IGNORED("first_k_dense_replace"), \
        IGNORED("head_dim"), IGNORED("moe_intermediate_size"), IGNORED("moe_layer_freq"),         \
        IGNORED("n_group"), IGNORED("n_routed_experts"), IGNORED("n_shared_experts"),             \
        IGNORED("norm_topk_prob"), IGNORED("num_experts_per_tok"),                                \
        IGNORED("num_nextn_predict_layers"), IGNORED("qk_head_dim"),                              \
        IGNORED("routed_scaling_factor"), IGNORED("scoring_func"), IGNORED("seq_aux"),            \
        IGNORED("topk_group"), IGNORED("topk_method")

#define LATENT_ROW(type, keys_)                                                                 \
    .model_type = type, .name = type, .keys = keys_, .common_keys = true, .prefixes = prefixes, \
    .tensors = tensors, .layout = ATTN_LAYOUT_GROUPED, .unbiased = ATTN_PROJ_ALL

#define DEEPSEEK_DEFAULTS                                                                      \
    .kv_lora_rank = 512, .q_lora_rank = 1536, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, \
    .value_head_dim = 128, .is_causal = true, .scale_attn_weights = true, .scale_by_mscale = true

/* ---- deepseek_v2: neighbouring components rotate -------------------------------------------- */

static const struct attn_hf_key deepseek_v2_keys[] = {DEEPSEEK_KEYS, END};

const struct attn_family attn_family_deepseek_v2 = {
    LATENT_ROW("deepseek_v2", deepseek_v2_keys),
    .defaults = {DEEPSEEK_DEFAULTS, .rope = {ROPE_OF(10000), .interleaved = true}},
};

/* ---- deepseek_v3, kimi_k2: neighbours in weights become halves ------------------------------ */

static const struct attn_hf_key deepseek_v3_keys[] = {
    DEEPSEEK_KEYS,
    FLAG("rope_interleave", rope_gathered),
    END,
};

const struct attn_family attn_family_deepseek_v3 = {
    LATENT_ROW("deepseek_v3", deepseek_v3_keys),
    .defaults = {DEEPSEEK_DEFAULTS, .rope_gathered = true, .rope = {ROPE_OF(10000)}},
};

const struct attn_family attn_family_kimi_k2 = {
    LATENT_ROW("kimi_k2", deepseek_v3_keys),
    .defaults = {DEEPSEEK_DEFAULTS, .rope_gathered = true, .rope = {ROPE_OF(50000)}},
};

/* ---- minicpm3: halves rotate ---------------------------------------------------------------- */

static const struct attn_hf_key minicpm3_keys[] = {
    LATENT_KEYS, IGNORED("dim_model_base"), IGNORED("scale_depth"), IGNORED("scale_emb"), END,
};

const struct attn_family attn_family_minicpm3 = {
    LATENT_ROW("minicpm3", minicpm3_keys),
    .defaults = {.kv_lora_rank = 256,
                 .q_lora_rank = 768,
                 .qk_nope_head_dim = 64,
                 .qk_rope_head_dim = 32,
                 .is_causal = true,
                 .scale_attn_weights = true,
                 .rope = {ROPE_OF(10000)}},
};
