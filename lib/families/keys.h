/* keys.h: macros for the rows of key lists.
 *
 *     SIZE("hidden_size", hidden_size, most)    integer in [1, most], into that field
 *     NUMBER("rope_theta", rope.theta, 1, 1e12) number in a range
 *     FLAG("bias", bias)                        true or false
 *     NAME("norm", norm_type, "rms layer")     one of these names, into a size_t: 1, 2, ...
 *     ROPE("rope_scaling")                      object of the keys in attn_rope_keys
 *     LAYER_TYPES("layer_types")                list of names, one a layer
 *     FULL_PERIOD("sliding_window_pattern")     every n-th layer has full attention
 *     ROPE_LAYERS("no_rope_layers")             list of 1 and 0, one a layer
 *     TERMS("pos_att_type")                     "c2p|p2c"
 *     FIXED("sliding_window", "null")           only this JSON value is computed
 *     OBJECT("attn_config")                     object, with its keys as "attn_config.alibi"
 *     IGNORED("n_ctx")                          does not touch attention
 *     END                                       ends every list */
#ifndef ATTN_LIB_FAMILIES_KEYS_H
#define ATTN_LIB_FAMILIES_KEYS_H

#include "families/family.h"

#define MEMBER(key, what, in, field, least, most)                                                  \
    {                                                                                              \
        .name = key, .kind = what, .offset = offsetof(struct in, field), .min = least, .max = most \
    }
#define FIELD(key, what, field, least, most) MEMBER(key, what, attn_hf_config, field, least, most)
#define SIZE(key, field, most) FIELD(key, ATTN_CONFIG_INTEGER, field, 1, most)
#define NUMBER(key, field, least, most) FIELD(key, ATTN_CONFIG_NUMBER, field, least, most)
#define FLAG(key, field) FIELD(key, ATTN_CONFIG_FLAG, field, 0, 1)
#define ROPE(key) FIELD(key, ATTN_CONFIG_ROPE, rope, 0, 0)
#define LAYER_TYPES(key) FIELD(key, ATTN_CONFIG_LAYER_TYPES, num_layer_types, 0, 0)
#define FULL_PERIOD(key) FIELD(key, ATTN_CONFIG_PERIOD, full_period, 1, ATTN_MAX_LAYERS)
#define ROPE_LAYERS(key) FIELD(key, ATTN_CONFIG_ROPE_LAYERS, num_rope_layers, 0, 0)
#define ROPE_NUMBER(key, field, least, most) \
    MEMBER(key, ATTN_CONFIG_NUMBER, attn_hf_rope, field, least, most)
#define NAME(key, field, names)                                                                  \
    {                                                                                            \
        .name = key, .kind = ATTN_CONFIG_NAME, .offset = offsetof(struct attn_hf_config, field), \
        .only = names                                                                            \
    }
#define TERMS(key) FIELD(key, ATTN_CONFIG_TERMS, position_terms, 0, 0)
#define FIXED(key, value)                                     \
    {                                                         \
        .name = key, .kind = ATTN_CONFIG_FIXED, .only = value \
    }
#define OBJECT(key)                             \
    {                                           \
        .name = key, .kind = ATTN_CONFIG_OBJECT \
    }
#define IGNORED(key)                             \
    {                                            \
        .name = key, .kind = ATTN_CONFIG_IGNORED \
    }
#define END          \
    {                \
        .name = NULL \
    }

/* The keys by which most families give their sizes. */
#define HIDDEN_SIZE SIZE("hidden_size", hidden_size, ATTN_MAX_HIDDEN_SIZE)
#define HEADS SIZE("num_attention_heads", num_heads, ATTN_MAX_HEADS)
#define KV_HEADS SIZE("num_key_value_heads", num_kv_heads, ATTN_MAX_HEADS)
#define HEAD_DIM SIZE("head_dim", head_dim, ATTN_MAX_HEAD_DIM)
#define LAYERS SIZE("num_hidden_layers", num_layers, ATTN_MAX_LAYERS)
#define POSITIONS SIZE("max_position_embeddings", max_position, MAX_POSITION)
#define THETA NUMBER("rope_theta", rope.theta, 1, MAX_THETA)
#define PARTIAL NUMBER("partial_rotary_factor", rope.partial_rotary_factor, 1e-6, 1)
#define WINDOW SIZE("sliding_window", sliding_window, MAX_POSITION)
#define LATENT_SIZES                                                   \
    SIZE("kv_lora_rank", kv_lora_rank, ATTN_MAX_HEAD_DIM),             \
        SIZE("q_lora_rank", q_lora_rank, ATTN_MAX_HIDDEN_SIZE),        \
        SIZE("qk_nope_head_dim", qk_nope_head_dim, ATTN_MAX_HEAD_DIM), \
        SIZE("qk_rope_head_dim", qk_rope_head_dim, ATTN_MAX_HEAD_DIM)
#define ROPE_OBJECTS ROPE("rope_scaling"), ROPE("rope_parameters")

/* DeBERTa's position bias. */
#define POSITION_TABLE                                                                          \
    TERMS("pos_att_type"),                                                                      \
        FIELD("position_buckets", ATTN_CONFIG_INTEGER, position_buckets, -1, ATTN_MAX_BUCKETS), \
        FIELD("max_relative_positions", ATTN_CONFIG_INTEGER, max_relative_positions, -1,        \
              ATTN_MAX_BUCKETS),                                                                \
        NAME("norm_rel_ebd", relative_norm, "layer_norm none")

/* The default .rope of a row: plain RoPE of that base. */
#define ROPE_OF(base) .type = ATTN_ROPE_DEFAULT, .theta = base, .truncate = true

#define MAX_POSITION 2147483647
#define MAX_THETA 1e12
#define MAX_SEED 9007199254740992 /* 2^53: what JSON numbers carry everywhere */

#endif
