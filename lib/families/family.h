/* family.h: what distinguishes one architecture from another, as data.
 *
 * A family is one row: the keys that its config.json uses, how each is understood, what holds where
 * a key is absent, the names of its tensors and how they are stored.  family_config.c reads
 * configurations, family_resolve.c and family_rope.c make specifications of them and
 * family_weights.c reads tensors, all by these rows; none knows a family by name, and the
 * algorithm behind them knows no families at all.  Adding a family is adding a row. */
#ifndef ATTN_LIB_FAMILY_H
#define ATTN_LIB_FAMILY_H

#include "attn.h"

/* A list of numbers, [count]; count 0: not given. */
struct attn_factors {
    size_t count;
    const double *values;
};

/* What a configuration says of RoPE; 0 where it says nothing. */
struct attn_hf_rope {
    size_t type; /* enum attn_rope_type; with theta, ATTN_ROPE_NONE means the default type */
    size_t dim;  /* components that rotate; 0: by `partial` */
    double partial_rotary_factor; /* share of head_dim that rotates, rounded down; 0: all of it */
    bool interleaved, truncate;
    double theta, factor, attention_factor, mscale, mscale_all_dim, original_max_position;
    double low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    struct attn_factors short_factor, long_factor;
};

/* What a configuration says.  A row's defaults stand here first, then what keys say; null sets 0
 * or false, which mean: none, or computed from the rest. */
struct attn_hf_config {
    size_t hidden_size, num_heads, num_kv_heads, head_dim, value_head_dim, key_size, value_size;
    size_t num_layers, num_layers_fallback; /* the second where the first is 0 */
    size_t max_position,
        original_max_position; /* the second: of the whole model, beside rope_scaling */
    size_t seed;
    bool is_causal, is_cross, bias, bias_kv, add_zero_attn, sinks, qk_norm;
    bool grouped, multi_query;               /* where the row says kv_by_flags */
    bool scale_attn_weights, scale_by_layer; /* by 1/sqrt(head_dim); by 1/(layer + 1) too */
    double scale, query_pre_attn_scalar,
        softcap; /* 0: by `scaled`; by 1/sqrt(query_scalar); none */
    double norm_eps;
    /* Layers that slide: none unless use_window and sliding_window; else as the list of layer
     * types says; without one every period-th from first_sliding on, and period 0 is 1. */
    size_t sliding_window, first_sliding, sliding_period, num_layer_types;
    bool use_sliding_window;
    bool alibi, alibi_scaled, alibi_bfloat16, alibi_replaces_rope;
    size_t buckets, max_distance;
    bool rope_by_type; /* sliding_rope is of its own; else the same as rope */
    struct attn_hf_rope rope, sliding_rope;
};

enum attn_hf_key_kind {
    ATTN_KEY_SIZE,      /* integer in [min, max] -> size_t */
    ATTN_KEY_NUMBER,    /* number in [min, max] -> double */
    ATTN_KEY_FLAG,      /* boolean -> bool */
    ATTN_KEY_ROPE,      /* object of the keys in attn_rope_keys, or one such for each layer type */
    ATTN_KEY_ROPE_TYPE, /* a name in attn_rope_names -> size_t */
    ATTN_KEY_FACTORS,   /* list of numbers in [min, max] -> struct attn_factors */
    ATTN_KEY_LAYER_TYPES, /* list of "full_attention" and "sliding_attention" -> its length */
    ATTN_KEY_FIXED,       /* would change the mathematics; only the JSON value `only` is computed */
    ATTN_KEY_IGNORED,     /* does not touch attention */
};

/* How one key is understood. */
struct attn_hf_key {
    const char *name; /* NULL ends a list */
    enum attn_hf_key_kind kind;
    size_t offset; /* into struct attn_hf_config; of attn_rope_keys into attn_hf_rope */
    double min, max;
    const char *only;
};

/* The projections that a tensor holds, as bits; fused ones follow each other in this order. */
enum attn_proj { ATTN_PROJ_Q = 1, ATTN_PROJ_K = 2, ATTN_PROJ_V = 4, ATTN_PROJ_O = 8 };

#define ATTN_PROJ_QKV (ATTN_PROJ_Q | ATTN_PROJ_K | ATTN_PROJ_V)
#define ATTN_PROJ_ALL (ATTN_PROJ_QKV | ATTN_PROJ_O)

enum attn_tensor_role {
    ATTN_ROLE_WEIGHT,        /* [out][in], or [in][out] where the row says so */
    ATTN_ROLE_BIAS,          /* [out] */
    ATTN_ROLE_BIAS_KV,       /* [1][1][out], the key or value of PyTorch's add_bias_kv */
    ATTN_ROLE_NORM,          /* [D], weights of qk_norm; part Q or K */
    ATTN_ROLE_SINKS,         /* [H]; part Q */
    ATTN_ROLE_POSITION_BIAS, /* [buckets][H], one for all layers; part Q */
};
#define ATTN_NUM_ROLES 6

/* A tensor that a layer may have.  Where two rows hold the same part, the first whose tensor is
 * there counts. */
struct attn_family_tensor {
    const char *name; /* after the prefix; '*' stands for the layer's index.  NULL ends a list */
    unsigned projections;
    enum attn_tensor_role role;
};

/* How weights are stored, and how the parts of a fused tensor lie in it. */
enum attn_layout {
    ATTN_LAYOUT_PLAIN,      /* [out][in]; one part after the other */
    ATTN_LAYOUT_TRANSPOSED, /* [in][out]; one part after the other, as columns */
    ATTN_LAYOUT_GROUPED,    /* [out][in]; per kv head its H/G query heads, its key, its value */
};

struct attn_family {
    const char *model_type; /* as config.json says it; NULL: not a family of checkpoints */
    const char *stack;      /* of an architecture with several, else NULL */
    const char *name;       /* as attn_model_info says it */
    const struct attn_hf_key *keys;
    bool common_keys; /* the keys that all Hugging Face configurations share are known too */
    const char *const *prefixes; /* of tensor names, tried in order; '*' as above; NULL ends */
    const struct attn_family_tensor *tensors;
    enum attn_layout layout;
    unsigned unbiased;              /* parts that have no bias whatever the configuration says */
    bool kv_by_flags;               /* num_kv_heads counts only where `grouped`; else there is one
                                      kv head where `multi_query`, and H where not */
    struct attn_hf_config defaults; /* where keys are absent */
};

/* Row i of the table, NULL behind the last. */
const struct attn_family *attn_family_at(size_t i);

/* The family of that model_type and stack, NULL if there is none; stack NULL: the default one. */
const struct attn_family *attn_family_find(const char *model_type, const char *stack);

/* The family of attn_model_open_random: no tensors. */
extern const struct attn_family attn_family_random;

/* Keys inside rope_scaling and rope_parameters. */
extern const struct attn_hf_key attn_rope_keys[];

/* The names of RoPE types, name NULL at the end. */
struct attn_rope_name {
    const char *name;
    enum attn_rope_type type;
};
extern const struct attn_rope_name attn_rope_names[];

/* Keys of every Hugging Face configuration that only one value is computed of, and those that do
 * not touch attention; both end with NULL. */
extern const struct attn_hf_key attn_common_fixed_keys[];
extern const char *const attn_common_ignored_keys[];

/* How `family` understands a key of its configuration, NULL if it does not. */
const struct attn_hf_key *attn_family_key(const struct attn_family *family, const char *key);

/* The key of that name in a list that ends with NULL, NULL if it is not there. */
const struct attn_hf_key *attn_hf_key_find(const struct attn_hf_key *keys, const char *name);

/* The first key of the list that fills the field at `offset`, NULL if none does. */
const struct attn_hf_key *attn_hf_key_for_field(const struct attn_hf_key *keys, size_t offset);

#endif
