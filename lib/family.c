/* family.c: the rows.  Nothing here computes.
 *
 * A family lists only the keys that it uses or that are peculiar to it; those that all
 * configurations share are in family_keys.c.
 *
 * Sources: the configuration and modelling files of huggingface/transformers v4.46 and v4.55, the
 * configurations published with the checkpoints, and torch.nn.MultiheadAttention. */
#include "family.h"

#include <string.h>

#include "family_keys.h"

/* ---- llama --------------------------------------------------------------------------------- */

static const struct attn_key llama_keys[] = {
    SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS),
    SIZE("num_key_value_heads", num_kv_heads, ATTN_MAX_HEADS),
    SIZE("head_dim", head_dim, ATTN_MAX_HEAD_DIM),
    SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS),
    SIZE("max_position_embeddings", max_position, MAX_POSITION),
    FLAG("attention_bias", bias),
    NUMBER("rope_theta", rope_theta, 1, MAX_THETA),
    ROPE("rope_scaling"),
    ROPE("rope_parameters"),
    FIXED("rope_interleaved", "false"),
    FIXED("partial_rotary_factor", "1.0"),
    HARMLESS("is_decoder"),
    END,
};

static const char *const llama_prefixes[] = {"model.", "", NULL};

static const struct attn_family_tensor llama_tensors[] = {
    {"layers.*.self_attn.q_proj.weight", ATTN_PART_Q, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.k_proj.weight", ATTN_PART_K, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.v_proj.weight", ATTN_PART_V, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.o_proj.weight", ATTN_PART_O, ATTN_ROLE_WEIGHT},
    {"layers.*.self_attn.q_proj.bias", ATTN_PART_Q, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.k_proj.bias", ATTN_PART_K, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.v_proj.bias", ATTN_PART_V, ATTN_ROLE_BIAS},
    {"layers.*.self_attn.o_proj.bias", ATTN_PART_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

/* ---- gpt2: Hugging Face's Conv1D stores [in][out]; h.N.attn.bias is the causal mask ---------- */

static const struct attn_key gpt2_keys[] = {
    SIZE("n_embd", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("n_head", num_heads, ATTN_MAX_HEADS),
    SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS),
    SIZE("n_layer", num_layers, ATTN_MAX_LAYERS),
    SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS),
    SIZE("n_positions", max_position, MAX_POSITION),
    SIZE("max_position_embeddings", max_position, MAX_POSITION),
    FLAG("scale_attn_weights", scaled),
    FIXED("scale_attn_by_inverse_layer_idx", "false"),
    HARMLESS("reorder_and_upcast_attn"),
    HARMLESS("n_ctx"),
    HARMLESS("is_decoder"),
    END,
};

static const char *const gpt2_prefixes[] = {"", "transformer.", NULL};

static const struct attn_family_tensor gpt2_tensors[] = {
    {"h.*.attn.c_attn.weight", ATTN_PART_QKV, ATTN_ROLE_WEIGHT},
    {"h.*.attn.c_attn.bias", ATTN_PART_QKV, ATTN_ROLE_BIAS},
    {"h.*.attn.c_proj.weight", ATTN_PART_O, ATTN_ROLE_WEIGHT},
    {"h.*.attn.c_proj.bias", ATTN_PART_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

/* ---- bert ---------------------------------------------------------------------------------- */

static const struct attn_key bert_keys[] = {
    SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS),
    SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS),
    SIZE("max_position_embeddings", max_position, MAX_POSITION),
    FLAG("is_decoder", is_causal),
    FIXED("position_embedding_type", "\"absolute\""),
    END,
};

static const char *const bert_prefixes[] = {"bert.", "", NULL};

static const struct attn_family_tensor bert_tensors[] = {
    {"encoder.layer.*.attention.self.query.weight", ATTN_PART_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.key.weight", ATTN_PART_K, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.value.weight", ATTN_PART_V, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.output.dense.weight", ATTN_PART_O, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.query.bias", ATTN_PART_Q, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.key.bias", ATTN_PART_K, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.value.bias", ATTN_PART_V, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.output.dense.bias", ATTN_PART_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

/* ---- torch.nn.MultiheadAttention, alone or in the layers of a TransformerEncoder ------------- */

static const struct attn_key torch_keys[] = {
    SIZE("embed_dim", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_heads", num_heads, ATTN_MAX_HEADS),
    SIZE("kdim", key_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("vdim", value_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS),
    FLAG("bias", bias),
    FLAG("add_bias_kv", bias_kv),
    FLAG("add_zero_attn", add_zero_attn),
    HARMLESS("batch_first"),
    HARMLESS("device"),
    END,
};

static const char *const torch_prefixes[] = {"layers.*.self_attn.", "", NULL};

static const struct attn_family_tensor torch_tensors[] = {
    {"in_proj_weight", ATTN_PART_QKV, ATTN_ROLE_WEIGHT},
    {"q_proj_weight", ATTN_PART_Q, ATTN_ROLE_WEIGHT},
    {"k_proj_weight", ATTN_PART_K, ATTN_ROLE_WEIGHT},
    {"v_proj_weight", ATTN_PART_V, ATTN_ROLE_WEIGHT},
    {"out_proj.weight", ATTN_PART_O, ATTN_ROLE_WEIGHT},
    {"in_proj_bias", ATTN_PART_QKV, ATTN_ROLE_BIAS},
    {"out_proj.bias", ATTN_PART_O, ATTN_ROLE_BIAS},
    {"bias_k", ATTN_PART_K, ATTN_ROLE_EXTRA},
    {"bias_v", ATTN_PART_V, ATTN_ROLE_EXTRA},
    {.name = NULL},
};

/* ---- random -------------------------------------------------------------------------------- */

static const struct attn_key random_keys[] = {
    SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS),
    SIZE("num_key_value_heads", num_kv_heads, ATTN_MAX_HEADS),
    SIZE("head_dim", head_dim, ATTN_MAX_HEAD_DIM),
    SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS),
    SIZE("max_position_embeddings", max_position, MAX_POSITION),
    FLAG("attention_bias", bias),
    FLAG("is_causal", is_causal),
    NUMBER("rope_theta", rope_theta, 1, MAX_THETA),
    ROPE("rope_scaling"),
    FIELD("seed", ATTN_KEY_SIZE, seed, 0, MAX_SEED),
    END,
};

const struct attn_family attn_family_random = {
    .name = "random",
    .keys = random_keys,
    .is_causal = true,
    .num_layers = 1,
};

/* ---- The table ----------------------------------------------------------------------------- */

static const struct attn_family families[] = {
    {
        .model_type = "llama",
        .name = "llama",
        .keys = llama_keys,
        .common_keys = true,
        .prefixes = llama_prefixes,
        .tensors = llama_tensors,
        .is_causal = true,
        .rope_theta = 10000,
    },
    {
        .model_type = "gpt2",
        .name = "gpt2",
        .keys = gpt2_keys,
        .common_keys = true,
        .prefixes = gpt2_prefixes,
        .tensors = gpt2_tensors,
        .transposed = true,
        .is_causal = true,
        .bias = true,
    },
    {
        .model_type = "bert",
        .name = "bert",
        .keys = bert_keys,
        .common_keys = true,
        .prefixes = bert_prefixes,
        .tensors = bert_tensors,
        .bias = true,
    },
    {
        .model_type = "torch_multihead_attention",
        .name = "torch_mha",
        .keys = torch_keys,
        .common_keys = true,
        .prefixes = torch_prefixes,
        .tensors = torch_tensors,
        .bias = true,
        .num_layers = 1,
    },
};

const struct attn_family *attn_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}
