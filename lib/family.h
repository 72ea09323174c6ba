/* family.h: what distinguishes one architecture from another, as data.
 *
 * A family is one row: the keys that its config.json uses, how each is understood, the names of its
 * tensors and how they are stored.  family_config.c reads configurations and family_weights.c reads
 * tensors by these rows; neither knows a family by name, and the algorithm behind them knows no
 * families at all.  Adding a family is adding a row. */
#ifndef ATTN_LIB_FAMILY_H
#define ATTN_LIB_FAMILY_H

#include "attn.h"

/* A flag of a configuration: what it says, if it says anything. */
enum attn_flag { ATTN_FLAG_UNSET = 0, ATTN_FLAG_NO, ATTN_FLAG_YES };

/* What a configuration says, before defaults: 0 where it says nothing.  Two keys may set the same
 * field (`n_embd` and `hidden_size`); they must then agree. */
struct attn_settings {
    size_t hidden_size, num_heads, num_kv_heads, head_dim;
    size_t key_size, value_size;
    size_t num_layers, max_position;
    size_t seed;
    enum attn_flag is_causal, bias, bias_kv, add_zero_attn, scaled;
    size_t rope_type; /* enum attn_rope_type */
    double rope_theta, factor, low_freq_factor, high_freq_factor, original_max_position;
};

enum attn_key_kind {
    ATTN_KEY_SIZE,      /* integer in [min, max] -> size_t */
    ATTN_KEY_NUMBER,    /* number in [min, max] -> double */
    ATTN_KEY_FLAG,      /* boolean -> enum attn_flag */
    ATTN_KEY_ROPE,      /* object whose keys are those of attn_rope_keys */
    ATTN_KEY_ROPE_TYPE, /* "default" or "llama3" -> rope_type */
    ATTN_KEY_FIXED,     /* would change the mathematics; only the JSON value `only` is computed */
    ATTN_KEY_HARMLESS,  /* does not touch attention */
};

/* How one key is understood.  null is taken as absent, whatever the kind. */
struct attn_key {
    const char *name; /* NULL ends a list */
    enum attn_key_kind kind;
    size_t offset; /* into struct attn_settings */
    double min, max;
    const char *only;
};

/* The projections that a tensor holds, as bits; fused ones follow each other in this order. */
enum attn_part { ATTN_PART_Q = 1, ATTN_PART_K = 2, ATTN_PART_V = 4, ATTN_PART_O = 8 };

#define ATTN_PART_QKV (ATTN_PART_Q | ATTN_PART_K | ATTN_PART_V)
#define ATTN_PART_ALL (ATTN_PART_QKV | ATTN_PART_O)

enum attn_role {
    ATTN_ROLE_WEIGHT, /* [out][in], or [in][out] in families that are `transposed` */
    ATTN_ROLE_BIAS,   /* [out] */
    ATTN_ROLE_EXTRA,  /* [1][1][out], the key or value of PyTorch's add_bias_kv */
};
#define ATTN_NUM_ROLES 3

/* A tensor that a layer may have.  Where two rows hold the same part, the first whose tensor is
 * there counts. */
struct attn_family_tensor {
    const char *name; /* after the prefix; '*' stands for the layer's index.  NULL ends a list */
    unsigned parts;
    enum attn_role role;
};

struct attn_family {
    const char *model_type; /* as config.json says it; NULL: not a family of checkpoints */
    const char *name;       /* as attn_model_info says it */
    const struct attn_key *keys;
    bool common_keys; /* the keys that all Hugging Face configurations share are known too */
    const char *const *prefixes; /* of tensor names, tried in order; '*' as above; NULL ends */
    const struct attn_family_tensor *tensors;
    bool transposed;   /* weights are stored [in][out] */
    bool is_causal;    /* unless the configuration says */
    bool bias;         /* on all four projections, unless the configuration says */
    double rope_theta; /* unless the configuration says; 0: no RoPE */
    size_t num_layers; /* unless the configuration says; 0: it must */
};

/* The family of that model_type, NULL if there is none. */
const struct attn_family *attn_family_find(const char *model_type);

/* The family of attn_model_open_random: no tensors. */
extern const struct attn_family attn_family_random;

/* Keys inside rope_scaling and rope_parameters. */
extern const struct attn_key attn_rope_keys[];

/* How `family` understands a key of its configuration, NULL if it does not. */
const struct attn_key *attn_family_key(const struct attn_family *family, const char *key);

/* The key of that name in a list that ends with NULL, NULL if it is not there. */
const struct attn_key *attn_key_find(const struct attn_key *keys, const char *name);

#endif
