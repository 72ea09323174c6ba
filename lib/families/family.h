/* family.h: model families as data: one row for each Hugging Face architecture.
 *
 * A row lists the keys of the family's config.json, the defaults of absent keys, the names of its
 * tensors and how they are stored.  Three steps read by these rows, and none of them knows a family
 * by name:
 *
 *   config.c                JSON -> struct attn_hf_config
 *   spec.c, rope.c          struct attn_hf_config -> struct attn_config, attn_layer_spec
 *   weights.c               tensors -> weights of a layer
 *
 * The attention algorithm knows no families at all.  Adding a family is adding a row beside its
 * variants and naming it in rows.h. */
#ifndef ATTN_LIB_FAMILIES_FAMILY_H
#define ATTN_LIB_FAMILIES_FAMILY_H

#include "layers/members.h"

/* A list of numbers, values [count]; count 0: the key is absent. */
struct attn_factors {
    size_t count;
    const double *values;
};

/* The keys inside rope_scaling or rope_parameters, and those beside them that mean the same; 0
 * where a key is absent. */
struct attn_hf_rope {
    size_t type; /* enum attn_rope_type; ATTN_ROPE_NONE with a theta means the default type */
    size_t dim;  /* components that rotate; 0: by partial_rotary_factor */
    double partial_rotary_factor;         /* share of head_dim that rotates, rounded down; 0: all */
    bool interleaved, reversed, truncate; /* from here on as attn_rope_spec */
    double theta, factor, attention_factor, original_max_position;
    double gain_factor; /* yarn: multiplies the attention factor that `factor` gives; 0: none */
    double ratio;       /* multiplies theta; 0: 1 */
    double alpha;       /* dynamic: the base is theta * alpha^(D/(D-2)) at every length; 0: none */
    double low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double short_mscale,
        long_mscale;     /* longrope: attention factors on the two sides; 0: computed */
    double scaling_beta; /* beta of attn_query_scaling, whose period is original_max_position */
    double mscale, mscale_all_dim; /* yarn: give the attention factor where both are there */
    struct attn_factors short_factor, long_factor;
};

/* How a checkpoint says that it keeps weights. */
enum attn_quant_method {
    ATTN_QUANT_NONE,
    ATTN_QUANT_OTHER, /* one that is not read; plain weights beside it are */
    ATTN_QUANT_FP8,
    ATTN_QUANT_COMPRESSED, /* compressed-tensors */
    ATTN_QUANT_GPTQ,
    ATTN_QUANT_AWQ,
    ATTN_QUANT_BITSANDBYTES,
    ATTN_QUANT_MODELOPT,
    ATTN_QUANT_TORCHAO,
    ATTN_QUANT_MLX,
};

#define ATTN_QUANT_GROUPS 8 /* sizes of groups in one configuration, at most */

struct attn_quantization {
    enum attn_quant_method method;
    char name[32], format[32]; /* quant_method, format */
    unsigned bits;             /* of a code; 0: the configuration does not say it, or several */
    size_t groups[ATTN_QUANT_GROUPS]; /* [num_groups] inputs with one scale, as it says */
    size_t num_groups;
    size_t block[2];  /* rows and columns with one scale; 0: the configuration has none */
    bool usual_block; /* it does not say, and these are the usual ones */
    bool adds_one;    /* GPTQ's zero points are stored less 1 */
    bool asymmetric;  /* zero points are needed: compressed-tensors */
    bool ordered;     /* so is the group of each input: desc_act, actorder */
};

/* A config.json under one set of names, whatever names the family has for its keys: n_embd and
 * d_model fill hidden_size.  Fields start as the defaults of the family's row and are then
 * overwritten by keys; null sets 0 or false, which mean: none, or computed from the rest. */
struct attn_hf_config {
    struct attn_quantization quantization;
    size_t hidden_size, key_size, value_size; /* key_size, value_size 0: hidden_size */
    size_t num_heads, num_kv_heads;           /* num_kv_heads 0: num_heads */
    size_t head_dim, value_head_dim;          /* 0: hidden_size / num_heads; head_dim */
    bool grouped, multi_query;                /* see kv_by_flags of struct attn_family */
    size_t num_layers, num_layers_fallback;   /* the fallback counts where num_layers is 0 */
    size_t num_predict_layers; /* for further tokens, after the others: lists by layer may have them
                                  too */
    size_t max_position;       /* max_position_embeddings */
    size_t original_max_position; /* the trained length beside rope_scaling */
    size_t seed;                  /* of random weights */
    size_t encoder_size;          /* of cross-attention: key_size and value_size; 0: hidden_size */
    bool q_bias, k_bias, v_bias;  /* where `bias` is false */
    bool is_causal, is_cross, bias, o_bias, bias_kv, add_zero_attn, sinks, output_norm;
    bool output_gate, gate_softplus, gate_by_head;
    double clip_qkv, key_multiplier; /* as attn_layer_spec */

    /* The norms: of queries and keys where qk_norm is true; of values, a weightless RMSNorm, where
     * v_norm is.  norm_type NONE means RMSNorm. */
    bool qk_norm, v_norm, norm_weightless, norm_bias, norm_after_rope;
    bool norm_rope_layers;         /* layers without RoPE have no qk_norm */
    size_t norm_type, norm_extent; /* enum attn_norm_type, attn_norm_extent */
    double norm_eps;
    struct attn_query_scaling query_scaling;
    bool query_tuning;         /* false where a row has a key for it: no query_scaling */
    bool scaling_without_rope; /* layers with RoPE have no query_scaling */
    size_t attention_chunk_size;

    bool differential;  /* differential attention, its norms with norm_eps */
    double value_scale; /* of values before they are cached; 0: none */

    /* Scores are multiplied by the first of these that is there: `scale`; 1 without
     * scale_attn_weights; 1/sqrt(query_pre_attn_scalar); 1/sqrt(head_dim). */
    double scale, query_pre_attn_scalar;
    bool scale_attn_weights;
    double query_factor; /* multiplies it, whichever it is; 0: none */
    bool scale_by_layer; /* and by 1/(layer + 1) */
    double softcap;      /* 0: none */

    /* The type of each layer.  With a list of layer types: as it says.  With a full_period: full
     * attention in the last layer of each period (the first where full_first), other_type in the
     * others.  Else every sliding_period-th layer from first_sliding on is sliding, a period of 0
     * being 1; first_sliding ATTN_MAX_LAYERS means none.  Layers slide only where
     * use_sliding_window and sliding_window are set. */
    size_t other_type; /* enum attn_layer_type; ATTN_LAYER_FULL means ATTN_LAYER_SLIDING */
    size_t full_period, num_layer_types;
    size_t full_offset;   /* of the full layer in its period, where full_first */
    size_t listed_layers; /* 1 + the last of a list of full layers, which comes before a period */
    bool full_first, last_full; /* last_full: the last layer is full whatever the list says */
    bool from_last;             /* periods end with the last layer */
    /* The first num_dense layers have periods of their own, after which the others' begin; with a
     * period of 1 these, or those of a list (num_mlp_types entries), rotate whatever their type. */
    size_t num_dense, dense_period, num_mlp_types;
    size_t num_layer_heads;   /* entries of a list of query heads of each layer; 0: num_heads */
    size_t num_layer_windows; /* entries of a list of the window of each layer; 0: sliding_window */
    bool use_sliding_window, bidirectional; /* bidirectional: not causal, W = sliding_window/2+1 */
    bool half_window;                       /* W = sliding_window/2, +1 if not causal */
    bool closed_window;                     /* W = sliding_window+1 */
    bool window_needs_list;                 /* no layer slides but by a list of types */
    bool slides_without_rope;               /* without a list the layers without RoPE slide */
    size_t sliding_window, first_sliding, sliding_period;

    /* Latent attention where kv_lora_rank is not 0: head_dim is then the sum of the two parts.
     * scale_by_mscale: yarn's gain for mscale_all_dim, squared, multiplies scores. */
    size_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim;
    size_t index_heads, index_head_dim, index_topk; /* of an indexer; index_heads 0: none */
    size_t index_freq, index_offset; /* layers with an indexer: the first index_offset, and from the
                                        last of these on each index_freq-th; the others share */
    size_t keep_window_size;         /* of a dynamic mask; 0: none */
    bool index_interleaved;
    bool scale_by_mscale;
    bool rope_gathered; /* pairs that rotate are neighbours in weights, and halves in heads */
    bool scale_q_lora, scale_kv_lora; /* latents are multiplied by sqrt(hidden_size / rank) */
    size_t attentions;                /* of a layer: each counts as a layer of the model; 0: one */
    /* Full layers have a head_dim of their own; with keys_as_values, also kv heads of their own,
     * and values that are made by the weights of the keys.  0: as the other layers. */
    size_t global_head_dim, num_global_kv_heads;
    bool keys_as_values;
    /* Sinks of sliding layers and of full ones alone, and the heads of sliding layers, whose widths
     * must be those of full layers.  0: as the other layers. */
    bool sliding_sinks, full_sinks;
    size_t sliding_kv_heads, sliding_heads, sliding_head_dim, sliding_value_head_dim;
    size_t num_shared_layers; /* the last layers, which read the cache of an earlier one */

    /* block_sparse (attention_type 2): blocks at random where a sequence is longer than
     * 5 + 2 random_blocks blocks. */
    size_t attention_type, block_size, random_blocks;

    bool alibi, alibi_scaled, alibi_bfloat16, alibi_by_slot, alibi_replaces_rope;
    bool alibi_unless_positions;        /* alibi where there is no max_position */
    bool ntk_by_length, logn_by_length; /* what a call is longer than max_position for: refused */
    size_t buckets, max_distance; /* of T5's position bias; max_distance of relative keys too */
    bool gated_bias;              /* T5's with the gates of WavLM */
    bool unsaid_bias_1d, unsaid_bias_2d; /* biases by what no call says, which are refused */
    size_t relative_key, max_after;      /* 1: relative keys, which end after max_after tokens */
    /* 1: relative keys of max_position tokens before and after, rows in the opposite order; 2:
     * relative queries too; 3: none; 4: ALiBi in both directions. */
    size_t relative_positions;
    bool relative_backward; /* their rows are in the opposite order, and one less is before a query
                               than after it */
    bool own_tables;        /* each layer has a table of T5's position bias */
    bool grid_bias, shared_grid_bias; /* BEiT's, of each layer or of all, image_size / patch_size
                                         patches wide */
    size_t image_size, patch_size;
    bool transposed; /* weights are stored [in][out], whatever the row says */

    /* Of DeBERTa: the products of pos_att_type (enum attn_position_terms), which need both flags;
     * the table's rows; SIZE_MAX is -1, none.  relative_norm 1: layer_norm. */
    size_t position_terms, position_buckets, max_relative_positions, relative_norm;
    bool relative_attention, share_att_key;
    bool plain_pos_key; /* without share_att_key: the map of keys of positions has no bias */
    double relative_norm_eps;

    /* Sliding layers have sliding_rope where rope_by_type, and `rope` where not; a sliding_rope
     * without theta has that of `rope`.  Layers rotate by rope_layers, unless there is a list
     * (num_rope_layers entries), a list of bases (num_rope_thetas entries, 0 where a layer does not
     * rotate) or a no_rope_period: then all rotate but each no_rope_period-th. */
    bool rope_by_type, partial_by_type; /* partial: the share of `rope` holds for both */
    size_t num_partials;                /* entries of a list of the share of each layer, one for all
                                           layers of a type */
    size_t rope_layers;                 /* enum attn_rope_layers */
    size_t vocabulary;                  /* of chatglm */
    size_t position_type; /* enum attn_position_type, of rows that have a key for it */
    bool rope_optional;   /* a RoPE object without a base means no RoPE */
    size_t num_rope_layers, num_rope_thetas, no_rope_period;
    struct attn_hf_rope rope, sliding_rope;

    size_t num_cross_layers; /* listed as cross-attention: the stack that is_cross has these layers,
                                the other stack the others; 0: a stack has all layers */
    bool rope_by_grid; /* RoPE by rows and columns of patches after 1 + num_registers tokens */
    size_t num_registers;

    size_t num_groups; /* the layers of a group share one set of tensors; 0: none share */
};

/* The types of layers.  Layers of a type from LINEAR on are no attention: a model lists them and
 * never loads them. */
enum attn_layer_type {
    ATTN_LAYER_FULL = 0,
    ATTN_LAYER_SLIDING,
    ATTN_LAYER_CHUNKED,
    ATTN_LAYER_SHARED, /* takes part with the keys that the indexer of an earlier layer chose */
    ATTN_LAYER_LINEAR,
    ATTN_LAYER_MAMBA,
    ATTN_LAYER_MLP,
    ATTN_LAYER_MOE,
    ATTN_LAYER_CONV,
    ATTN_LAYER_RECURRENT,
    ATTN_LAYER_ELSEWHERE, /* of another stack; no list of types names it */
};
#define ATTN_NUM_LAYER_TYPES 10

/* Which layers rotate queries and keys. */
enum attn_rope_layers {
    ATTN_ROPE_EVERY = 0,
    ATTN_ROPE_SLIDING_ONLY, /* sliding layers */
    ATTN_ROPE_IF_WINDOW,    /* sliding layers; every layer where the model has no window */
};

/* How positions enter, by the place of its name in a key of kind NAME. */
enum attn_position_type {
    ATTN_POSITION_ROTARY = 1, /* RoPE */
    ATTN_POSITION_ABSOLUTE,   /* embeddings of tokens: no matter of attention */
};

/* The products of a disentangled position bias, as bits. */
enum attn_position_terms { ATTN_TERM_C2P = 1, ATTN_TERM_P2C = 2 };

/* The offset of a field, by which keys name it. */
#define HF_FIELD(field) offsetof(struct attn_hf_config, field)

/* Which JSON value a key has, and the field's type that it becomes. */
enum attn_hf_key_kind {
    ATTN_CONFIG_INTEGER,     /* integer in [min, max] -> size_t */
    ATTN_CONFIG_NUMBER,      /* number in [min, max] -> double */
    ATTN_CONFIG_FLAG,        /* boolean -> bool; where max > 1, an integer to max counts too */
    ATTN_CONFIG_ROPE,        /* object of the keys in attn_rope_keys, or one for each layer type */
    ATTN_CONFIG_ROPE_TYPE,   /* a name in attn_rope_names -> size_t */
    ATTN_CONFIG_NAME,        /* one of the names in `only`, with blanks between -> its place, from
                                1 on, as size_t */
    ATTN_CONFIG_FACTORS,     /* list of numbers in [min, max] -> struct attn_factors */
    ATTN_CONFIG_LAYER_TYPES, /* list of names in attn_layer_types, or of the two in `only`, for full
                                and other layers ("0 1": numbers) -> its length */
    ATTN_CONFIG_LAYER_RUNS,  /* list of [list of such names, how often] -> the names' number */
    ATTN_CONFIG_LAYER_LETTERS, /* string of attn_layer_letters -> its length */
    ATTN_CONFIG_LAYER_BLOCKS,  /* list of {"attention": OBJECT}, which says whether a layer attends
                                 and with how many query heads a key/value head -> its length */
    ATTN_CONFIG_FULL_LAYERS,   /* list of indices of full layers, from `min` on -> 1 + the last */
    ATTN_CONFIG_PERIOD,        /* integer in [min, max], or a string such as "LLLG" -> its length */
    ATTN_CONFIG_ROPE_LAYERS,   /* list of 1 (rotates) and 0 -> its length; empty: absent */
    ATTN_CONFIG_PARTIALS,      /* list of numbers in [min, max] -> its length */
    ATTN_CONFIG_SCALED_TYPES,  /* list of the types of layers with RoPE's scaling: full ones alone
                                  -> true; empty, all -> false */
    ATTN_CONFIG_ROPE_THETAS,   /* list of numbers in [min, max], 0: does not rotate -> its length */
    ATTN_CONFIG_LAYER_HEADS,   /* list of integers in [min, max] -> its length */
    ATTN_CONFIG_WINDOWS,       /* list of even integers in [min, max] -> its length; or one of them,
                                  which is the window of all layers */
    ATTN_CONFIG_MLP_TYPES,     /* list of "dense" and "sparse" -> its length */
    ATTN_CONFIG_GATING,        /* true or "per-head" -> true; "per-element" -> false */
    ATTN_CONFIG_TERMS,         /* "c2p|p2c", or a list of these names -> enum attn_position_terms */
    ATTN_CONFIG_CROSS_LAYERS,  /* list of layers -> its length */
    ATTN_CONFIG_WIDTH,         /* object: its hidden_size, in [min, max], named `only` -> size_t */
    ATTN_CONFIG_PER_LAYER,     /* by index of layer, keys that differ in full layers: gemma4's */
    ATTN_CONFIG_FIXED, /* would change the mathematics; only the JSON value `only` is computed, or
                          with min 1 a list of it */
    ATTN_CONFIG_QUANTIZATION, /* how weights are stored: quantization.h */
    ATTN_CONFIG_OBJECT,       /* object; the list has its keys as "NAME.KEY" */
    ATTN_CONFIG_IGNORED,      /* does not touch attention; any value is accepted */
};

/* One key of a configuration: which value it may have, and which field it fills. */
struct attn_hf_key {
    const char *name; /* of kind IGNORED: names with blanks between; NULL ends a list */
    enum attn_hf_key_kind kind;
    size_t offset; /* of the field in attn_hf_config; for attn_rope_keys in attn_hf_rope */
    double min, max;
    const char *only;
    const char *remedy; /* of another value than `only`; NULL: none is known */
};

/* A tensor that a layer may have.  Where two entries hold the same projection in the same role, the
 * first whose tensor exists counts. */
struct attn_family_tensor {
    const char *name; /* after the prefix; '*' is the index of the layer or group, '#' that of a
                         head, where each has a tensor, '%' that of one of several attentions of
                         the layer; NULL ends */
    unsigned projections;
    enum attn_tensor_role role;
};

/* How weights are stored, and how the projections of a fused tensor lie in it. */
enum attn_layout {
    ATTN_LAYOUT_PLAIN,      /* [out][in]; fused: one projection after the other, as rows */
    ATTN_LAYOUT_TRANSPOSED, /* [in][out]; fused: one projection after the other, as columns */
    ATTN_LAYOUT_GROUPED,    /* [out][in]; fused: by kv head: its H/G query heads, key, value;
                               key and value without query likewise; without keys by query
                               head: query, gate */
    ATTN_LAYOUT_QUARTERS,   /* [out][in]; fused: by quarter of the heads: queries, values, keys */
};
#define ATTN_QUARTERS 4

/* One row of the table: a model_type of config.json, or one stack of it. */
struct attn_family {
    const char *model_type; /* as config.json names it; NULL: random models, which have no common
                               keys */
    const char *stack;      /* of an architecture with several, else NULL */
    const char *name;       /* as attn_model_info says it */
    const struct attn_hf_key *keys;
    const struct attn_hf_key *rope_keys; /* inside RoPE objects, beside attn_rope_keys; or NULL */
    bool mrope; /* "mrope" is a RoPE type, with one row of positions for all its sections */

    /* The key of the nested object that holds the settings, NULL: none.  Where a configuration has
     * that object, keys beside it are ignored unless they are of kind ATTN_CONFIG_FIXED or WIDTH;
     * where it has none, the settings are beside it.  submodel_type: the only model_types that the
     * object may have, with blanks between, NULL: any.  subconfig_dict: another object with some of
     * the same settings, or NULL. */
    const char *subconfig, *submodel_type, *subconfig_dict;
    bool wrapped; /* the object is that of a text model, which is a part of a model of several */
    const char *const
        *prefixes; /* of tensor names, tried in order; '*' as in names; NULL ends; more
                                    inside a model of several: attn_config_prefix */
    const struct attn_family_tensor *tensors;
    const struct attn_family_tensor *shared_tensors; /* in layers with keys_as_values; or NULL */
    enum attn_layout layout;
    const char *either_way; /* names of weights that begin so do not say how they are stored: the
                               configuration must; NULL: all say it */
    const char *note;       /* what a reader has to know beside the table, or NULL */
    bool norm_plus_one;     /* weights of norms are stored as w - 1 */
    unsigned unbiased;      /* projections without a bias whatever the configuration says */
    bool kv_by_flags;       /* num_kv_heads counts only where `grouped`; else there is one kv head
                          where `multi_query`, and H where not */
    struct attn_hf_config defaults; /* where keys are absent */
    struct { /* sizes of Hugging Face's class, which a nested object may leave out; or 0 */
        size_t hidden_size, num_heads, num_layers, max_position;
    } inner;
};

/* Row i of the table, NULL after the last. */
const struct attn_family *attn_family_at(size_t i);

/* The family of that model_type and stack, NULL if there is none.  stack NULL: the default one.
 * submodel_type is that of the nested object (see subconfig), NULL where it has none. */
const struct attn_family *attn_family_find(const char *model_type, const char *submodel_type,
                                           const char *stack);

/* The family of attn_model_open_random, which has no tensors. */
extern const struct attn_family attn_family_random;

/* The keys inside rope_scaling and rope_parameters; they fill struct attn_hf_rope. */
extern const struct attn_hf_key attn_rope_keys[];

/* The names of layer types in configurations, by enum attn_layer_type, and their letters, a blank
 * for a type that has none. */
extern const char *const attn_layer_types[ATTN_NUM_LAYER_TYPES];
extern const char attn_layer_letters[ATTN_NUM_LAYER_TYPES + 1];

/* The names of RoPE types in configurations; name NULL ends. */
struct attn_rope_name {
    const char *name;
    enum attn_rope_type type;
};
extern const struct attn_rope_name attn_rope_names[];

/* The first name of a RoPE type. */
const char *attn_rope_type_name(size_t type);

/* Keys of every Hugging Face configuration: of kind FIXED, then IGNORED. */
extern const struct attn_hf_key attn_common_keys[];

/* How `family` understands a key of its configuration, NULL if it does not know the key. */
const struct attn_hf_key *attn_family_key(const struct attn_family *family, const char *key);

/* Whether a name is among `names`, which have blanks between; NULL: none. */
bool attn_hf_names_have(const char *names, const char *name);

/* The key of that name in a list, NULL if the list, or NULL in its place, does not have it. */
const struct attn_hf_key *attn_hf_key_find(const struct attn_hf_key *keys, const char *name);

/* The type of layers that a list of the family means by `name`: full, the family's other type,
 * chunked where chunks have a key, what stands beside mamba, or what the key calls so;
 * ATTN_NUM_LAYER_TYPES where it is none of these.  key NULL: by attn_layer_types alone. */
size_t attn_layer_type_find(const struct attn_family *family, const struct attn_hf_key *key,
                            const char *name);

/* The number that a name stands for in a key of kind ROPE_TYPE or NAME; 0 where it is none of the
 * key's names. */
size_t attn_hf_name_number(const struct attn_hf_key *key, const char *name);

/* The first key of a list that fills the field at `offset`, NULL if none does. */
const struct attn_hf_key *attn_hf_key_for_field(const struct attn_hf_key *keys, size_t offset);

#endif
