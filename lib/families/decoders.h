/* decoders.h: what the rows of Llama's variants share: keys, tensors, prefixes, defaults. */
#ifndef ATTN_LIB_FAMILIES_DECODERS_H
#define ATTN_LIB_FAMILIES_DECODERS_H

#include "families/keys.h"

#define QKV_WEIGHTS                                                          \
    {"layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},     \
        {"layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT}, \
    {                                                                        \
        "layers.*.self_attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT    \
    }
#define QKV_BIASES                                                       \
    {"layers.*.self_attn.q_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},     \
        {"layers.*.self_attn.k_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS}, \
    {                                                                    \
        "layers.*.self_attn.v_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS    \
    }

/* The tensors of Llama, and these with q_norm and k_norm. */
extern const struct attn_family_tensor attn_llama_tensors[], attn_normed_tensors[];

/* "model." and none; the prefixes of the text model inside a model of several. */
extern const char *const attn_model_prefixes[], *const attn_nested_prefixes[];

/* The keys of nearly every decoder. */
#define DECODER_KEYS HIDDEN_SIZE, HEADS, KV_HEADS, LAYERS, POSITIONS, THETA, ROPE_OBJECTS
#define ATTENTION_BIAS FLAG("attention_bias", bias)
#define NORM_EPS NUMBER("rms_norm_eps", norm_eps, 0, 1)

/* Hugging Face's versions disagree on which layers slide where use_sliding_window is true. */
#define NO_WINDOW \
    FIXED("use_sliding_window", "false"), IGNORED("sliding_window"), IGNORED("max_window_layers")

/* The defaults of every decoder. */
#define CAUSAL .is_causal = true, .scale_attn_weights = true

/* Members of a row whose tensors are Llama's, and of one that has q_norm and k_norm too. */
#define LLAMA_ROW(type)                                                                     \
    .model_type = type, .name = type, .common_keys = true, .prefixes = attn_model_prefixes, \
    .tensors = attn_llama_tensors
#define NORMED_ROW(type)                                                                    \
    .model_type = type, .name = type, .common_keys = true, .prefixes = attn_model_prefixes, \
    .tensors = attn_normed_tensors

/* Members of a row whose settings are nested under text_config. */
#define NESTED_ROW(type, subtype)                                                      \
    .model_type = type, .name = type, .common_keys = true, .subconfig = "text_config", \
    .submodel_type = subtype, .prefixes = attn_nested_prefixes

#endif
