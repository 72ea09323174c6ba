/* attn_model.h: the attention layers of a checkpoint: specifications, resident weights.
 *
 * attn.h includes this header; notation, errors, ownership and threads are described there.  A
 * layer is described by struct attn_layer_spec, which is a function of the checkpoint's
 * configuration; a model is opened (configuration and headers are read), then loaded (weights are
 * read and packed). */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_status.h"

/* ---- Number formats ------------------------------------------------------------------------ */

/* The formats of resident numbers: weights, cached keys and values. */
enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16,
    ATTN_F16,
    ATTN_INT8,  /* symmetric: a number is scale * integer.  Weights have one float32 scale for each
                  output, keys and values one for each token and head. */
    ATTN_W8A16, /* of weight matrices only: int8, and rows that they multiply are rounded to
                   integers of 16 bits, where int8 rounds them to 8 */
};
#define ATTN_NUM_NUMBER_FORMATS 4 /* of a single number: all but w8a16 */

/* The formats of weights, and of cached keys and values, by name: as choices and in a sentence. */
#define ATTN_DTYPE_NAMES "f32|bf16|int8|w8a16"
#define ATTN_DTYPE_WORDS "f32, bf16, int8 or w8a16"
#define ATTN_KV_DTYPE_NAMES "f32|bf16|f16|int8"
#define ATTN_KV_DTYPE_WORDS "f32, bf16, f16 or int8"

/* "f32", "bf16", "f16", "int8", "w8a16"; static, never NULL. */
const char *attn_dtype_name(enum attn_dtype dtype);

/* Finds a dtype by that name; false, with *out untouched, where there is none. */
bool attn_dtype_find(enum attn_dtype *out, const char *name);

/* Whether weight matrices may be kept in that dtype; cached keys and values. */
bool attn_dtype_of_weights(enum attn_dtype dtype);
bool attn_dtype_of_caches(enum attn_dtype dtype);

/* ---- Layers and models --------------------------------------------------------------------- */

/* How the frequencies of RoPE are made, by the names of Hugging Face's `rope_type`. */
enum attn_rope_type {
    ATTN_ROPE_NONE = 0,
    ATTN_ROPE_DEFAULT, /* inverse frequency i: theta^(-2i/dim) */
    ATTN_ROPE_LINEAR,  /* all divided by factor (position interpolation) */
    ATTN_ROPE_DYNAMIC, /* theta grows with the length once it passes the trained one (NTK) */
    ATTN_ROPE_YARN,    /* low frequencies divided by factor, a ramp in between (Peng et al. 2023) */
    ATTN_ROPE_LLAMA3,  /* long wavelengths divided by factor, a smooth blend in between */
    ATTN_ROPE_LONGROPE,     /* each divided by its own factor (Ding et al. 2024) */
    ATTN_ROPE_PROPORTIONAL, /* as default; all pairs but the first stand still (Gemma 4) */
};
#define ATTN_NUM_ROPE_TYPES 8

/* Rotary position embedding of queries and keys.  Pair i of a head at position p rotates by the
 * angle p * f_i, f_i being its inverse frequency:
 *
 *   (a, b) -> attention_factor * (a cos - b sin, a sin + b cos)
 *
 * Pairs are the halves (x_i, x_{i+dim/2}), or neighbours (x_2i, x_2i+1) where interleaved.  With
 * dynamic and longrope f depends on the length, which is the largest position of the call plus 1,
 * as Hugging Face has it. */
struct attn_rope_spec {
    enum attn_rope_type type;
    size_t dim;                   /* leading components of each head that rotate; even, at most D */
    bool interleaved;             /* as GPT-J */
    double theta;                 /* `rope_theta` */
    double factor;                /* linear, dynamic, yarn, llama3 */
    double attention_factor;      /* 1 for all types but yarn and longrope */
    double long_attention_factor; /* longrope: the same beyond the trained length; 0: likewise */
    double original_max_position; /* the trained length; dynamic, yarn, llama3, longrope */
    double low_freq_factor, high_freq_factor; /* llama3: ends of the blend */
    double beta_fast, beta_slow;              /* yarn: ends of the ramp, in rotations within
                                                 the trained length */
    bool truncate;                            /* yarn: the ramp's ends are whole numbers */
    const double *short_factor, *long_factor; /* longrope: [dim/2] up to the trained length, and
                                                 beyond; borrowed from the model */
    size_t proportional_dim; /* proportional: components that rotate, in pairs of halves of dim */
    bool reversed;           /* pairs rotate the other way, by -position * frequency (nanochat) */
    /* Not 0: the tokens after the first grid_prefix are patches of a grid of `rows` by `columns`,
     * row by row, which the call gives; those before do not rotate.  The patch of row r and column
     * c rotates pair i of the first quarter of dim by pi (2r + 1 - rows) / rows f_{2i}, and pair i
     * of the second quarter by the same of its column (dinov3_vit).  dim is a multiple of 4. */
    size_t grid_prefix;
};

/* Normalisation of projected rows: RMSNorm x / sqrt(mean(x^2) + eps), LayerNorm
 * (x - mean(x)) / sqrt(variance(x) + eps), both in double. */
enum attn_norm_type { ATTN_NORM_NONE = 0, ATTN_NORM_RMS, ATTN_NORM_LAYER };

/* Over which components the mean is taken, and the shape of the weights; H stands for G in keys. */
enum attn_norm_extent {
    ATTN_NORM_HEAD = 0,  /* each head alone, weights [D] for all heads (qwen3, gemma3) */
    ATTN_NORM_EACH_HEAD, /* each head alone, weights [H][D] (cohere, stablelm) */
    ATTN_NORM_ALL_HEADS, /* all heads of a row as one vector, weights [H*D] (olmo2) */
};

struct attn_norm_spec {
    enum attn_norm_type type;
    enum attn_norm_extent extent;
    bool weightless; /* nothing multiplies the normalised numbers */
    bool bias;       /* added after the weights, of their shape */
    bool after_rope; /* queries and keys: normalised after RoPE instead of before */
    double eps;
};

/* A factor of queries that grows with their position p, applied after RoPE:
 * 1 + beta ln(1 + floor((p + next) / period)). */
struct attn_query_scaling {
    double beta;
    double period; /* positions; 0: no scaling */
    bool next;     /* p + 1 counts instead of p (llama4) */
    bool by_slot;  /* p is the row's index in the sequence, not its position_ids (llama4) */
};

/* The position bias: a number that a layer adds to a score for the distance of query and key. */
enum attn_position_bias_type {
    ATTN_BIAS_NONE = 0,
    ATTN_BIAS_ALIBI,        /* slope_h (s - t), slope_h a power of 2^(-8/H) */
    ATTN_BIAS_T5,           /* a learned number per head and bucket of distances */
    ATTN_BIAS_DISENTANGLED, /* products with learned rows for the distance: DeBERTa */
    ATTN_BIAS_RELATIVE_KEY, /* the query times a learned row for the distance (Shaw et al. 2018) */
    ATTN_BIAS_GRID,         /* a learned number per head and distance in a grid: BEiT */
};

/* The position bias of a layer; see attn_position_bias_type for which fields count. */
struct attn_position_bias_spec {
    enum attn_position_bias_type type;
    double scale;        /* alibi: multiplies it; Falcon 1/sqrt(D), Bloom 1 */
    bool bfloat16;       /* alibi: slope and slope * position are rounded to bfloat16, as Falcon */
    bool by_slot;        /* alibi: padding counts in distances, as in MPT; else tokens count */
    size_t buckets;      /* t5: `relative_attention_num_buckets` */
    size_t max_distance; /* t5: distances from here on share the last bucket */
    bool bidirectional;  /* t5: keys after the query have half of the buckets; alibi: these too are
                            less with their distance, -slope_h abs(s - t) */

    /* disentangled: S is `buckets`, HF's position_buckets, or max_distance where that is 0 and each
     * distance has a row of its own.  With x the row of distance i - j, 0 <= x < 2S, the score of
     * query i and key j is scale (q_i.k_j + q_i.Kr_x + k_j.Qr_x).  Kr and Qr [2S][H*D] are what the
     * layer's key and query projections make of the table, normalised (LayerNorm) where
     * table_norm. */
    bool content_to_position, position_to_content; /* q.Kr is there; k.Qr is there */
    bool table_norm;
    double table_norm_eps;
    bool own_projections; /* maps of their own make Kr and Qr, not those of keys and queries */
    bool own_key_bias;    /* of these the one that makes Kr has a bias, as that of Qr does */

    /* relative_key: the score of query i and key j is scale q_i.(k_j + R_x), x being j - i, at
     * least -max_distance and at most max_after, plus max_distance.  R is the layer's table
     * [max_distance + max_after + 1][D], the same for all heads, from its last row to the first
     * where `backward` (SpeechT5). */
    size_t max_after;
    bool backward;

    /* t5: the number is multiplied by a gate of head h and query i, a (b c_h - 1) + 2, where a and
     * b are sigmoids of the sums of the first and of the last 4 outputs of a linear map [8][D] of
     * head h's part of the query's hidden state (WavLM). */
    bool gated;

    /* grid: W, patches in a row and in a column of the only grid that there is.  The first token
     * stands for the whole, and W*W patches follow it.  With T = (2W-1)^2 + 3 rows of the table,
     * the patch in row r and column c has for the one in row u and column v the number in row
     * (r-u+W-1) (2W-1) + c-v+W-1; the first token has T-3 for patches and T-1 for itself, patches
     * have T-2 for it. */
    size_t grid;
    bool own_table; /* each layer has a table; else all share one */
};

/* Multi-head latent attention (DeepSeek-V2, 2024): a token has one latent, RMSNorm(x Wkv_a), of
 * which the keys and values of all heads are made, and one key part that rotates, shared by all
 * heads.  Head h has the key [latent Wk_h | shared] and the value latent Wv_h; its query is
 * [query | rotated part] likewise, where queries may be made of a latent of their own.
 *
 * A call over given rows makes keys and values (the expanded form).  A cache keeps latent and
 * shared part alone; steps multiply queries by Wk_h and weighted sums of latents by Wv_h instead
 * (the absorbed form), which is the same in exact arithmetic. */
/* The indexer of sparse latent attention (DeepSeek-V3.2, 2025): a query takes part with the `topk`
 * keys alone that score best of those that its masks let it see, or with all where these are no
 * more.  Query i has I queries of width `head_dim`, made of the latent of queries, and I weights;
 * key j has one key, LayerNorm(x Wk) with eps 1e-6, which is cached behind the shared part.  The
 * score is sum_h w_ih relu(qI_ih . kI_j).  (The published factors 1/sqrt(head_dim) and 1/sqrt(I)
 * change no order.)  The first rope_head_dim components of both rotate. */
struct attn_indexer_spec {
    size_t num_heads; /* I; 0: there is no indexer */
    size_t head_dim;
    size_t topk;
    bool interleaved; /* neighbouring components rotate together, else halves */
};

struct attn_mla_spec {
    size_t kv_lora_rank;  /* R: width of the latent; 0: the layer has none */
    size_t q_lora_rank;   /* width of the latent of queries; 0: none */
    size_t rope_head_dim; /* the last components of a head, which rotate */
    double norm_eps;      /* of the RMSNorms of both latents */
    bool bias; /* the maps to the latents and to the shared part have biases, before the norms */
    struct attn_indexer_spec index;
};

/* Differential attention (Ye et al. 2024, as Hugging Face's DiffLlama computes it).  With A_h the
 * softmax of head h and V1, V2 the values of the first and the last half of the key/value heads,
 * each serving all heads, U_h = A_h [V1 | V2] and D_h = U_h - lambda U_(h + H/2), h < H/2.  D_h,
 * normalised by RMSNorm without weights and multiplied by 1 - lambda_init, takes the place of heads
 * 2h and 2h + 1 before the output projection.
 * lambda = exp(lambda_q1.lambda_k1) - exp(lambda_q2.lambda_k2) + lambda_init. */
struct attn_differential_spec {
    double lambda_init; /* 0: no differential attention */
    double norm_eps;
};

/* One attention layer as its configuration resolves: all that the algorithm knows of it.  Field
 * names are those of Hugging Face's configurations where these have one. */
struct attn_layer_spec {
    size_t hidden_size;    /* E: width of hidden_states and of output */
    size_t key_size;       /* width of key_hidden_states rows (PyTorch `kdim`) */
    size_t value_size;     /* width of value_hidden_states rows (PyTorch `vdim`) */
    size_t num_heads;      /* H */
    size_t num_kv_heads;   /* G, divides H */
    size_t head_dim;       /* D */
    size_t value_head_dim; /* Dv */
    double scale;          /* multiplies q.k */
    double softcap;        /* 0: none */
    double value_scale;    /* of values, before they are cached (mimo_v2_flash); 0: none */
    size_t sliding_window; /* W: a query at i sees keys j, i-W < j <= i, or, where the layer is not
                              causal, |i-j| < W; 0: none */
    size_t
        max_tokens; /* keys of a call, at most: longer sequences attend otherwise; 0: any number */
    size_t attention_chunk_size; /* C: a query at i sees keys j, j/C = i/C; 0: none (llama4) */
    bool is_causal;
    bool is_cross;      /* keys and values come from another sequence: no self-attention */
    bool is_weightless; /* no linear maps, E is 0: steps bring query, key and value
                           (attn_model_open_weightless) */
    bool q_bias, k_bias, v_bias, o_bias;
    bool bias_kv;       /* PyTorch `add_bias_kv`: one learned key/value after the real ones */
    bool add_zero_attn; /* PyTorch: one key/value of zeros after those */
    bool sinks;         /* a learned score per head that takes its share of the softmax (gpt-oss) */
    bool output_gate;   /* rows of heads are multiplied by sigmoid(gate) before the output
                           projection, gate [H*Dv] being projected from hidden_states (qwen3_next);
                           it has a bias where queries have one */
    bool gate_softplus; /* by ln(1 + exp(gate)) instead (laguna) */
    bool gate_by_head;  /* gate [H] has one number for each head (laguna) */
    struct attn_norm_spec qk_norm;     /* of queries and keys */
    struct attn_norm_spec v_norm;      /* of values; weightless (gemma4) */
    struct attn_norm_spec output_norm; /* of the heads of a row as one vector, before the output
                                          projection (bitnet) */
    double clip_qkv; /* queries, keys and values are clamped to +-this before RoPE, after a norm
                        that comes before it (dbrx, olmo); 0: not */
    double key_multiplier; /* multiplies projected keys, before norm and RoPE (falcon_h1); 0: 1 */
    struct attn_query_scaling query_scaling;
    struct attn_differential_spec differential;
    /* Not 0: a dynamic mask (doge).  The scores of key/value head g and key j have the bias
     * exp(A_g softplus(W_g v_j + b_g)), v_j [G*Dv] being the key's values of all heads; where there
     * are more keys than this number, a query takes part with so many alone, those of the largest
     * bias that its masks let it see. */
    size_t keep_window_size;
    size_t shares_layer; /* the layer whose cached keys and values this layer reads (gemma4);
                            SIZE_MAX: its own */
    struct attn_mla_spec
        mla; /* num_kv_heads, head_dim and value_head_dim are of the expanded form */
    struct attn_rope_spec rope;
    struct attn_position_bias_spec position_bias;
    enum attn_dtype dtype;    /* of resident weight matrices: all but ATTN_F16;
                                 biases, norms and tables stay float32 */
    enum attn_dtype kv_dtype; /* of cached keys and values: all but ATTN_W8A16 */
};

/* Whether the layer attends to patches of an image, all of them in one call. */
static inline bool attn_layer_needs_grid(const struct attn_layer_spec *spec)
{
    return spec->rope.grid_prefix > 0 || spec->position_bias.type == ATTN_BIAS_GRID;
}

/* Whether the layer normalises or subtracts what its heads put out together: no head has a share of
 * its own in the output then. */
static inline bool attn_layer_joins_heads(const struct attn_layer_spec *spec)
{
    return spec->output_norm.type != ATTN_NORM_NONE || spec->differential.lambda_init != 0;
}

/* Whether the layer chooses which keys a query takes part with, by an indexer or a dynamic mask. */
static inline bool attn_layer_chooses_keys(const struct attn_layer_spec *spec)
{
    return spec->mla.index.num_heads > 0 || spec->keep_window_size > 0;
}

/* Whether the layer takes part with the keys that the indexer of an earlier layer chose (GLM-5.2):
 * a call of more than max_tokens keys brings them as attention_mask. */
static inline bool attn_layer_shares_choice(const struct attn_layer_spec *spec)
{
    return spec->mla.kv_lora_rank > 0 && spec->mla.index.num_heads == 0 && spec->max_tokens > 0;
}

/* The numbers that a cache keeps of a token in such a layer: `heads` keys and values of these
 * widths, which comments on caches call G, D and Dv.  In a latent layer one head has the latent [R]
 * as its key, and the shared part that rotates as its value. */
struct attn_cached_sizes {
    size_t heads, key, value;
};

struct attn_cached_sizes attn_cached_sizes(const struct attn_layer_spec *spec);

/* Bounds on a layer.  A configuration beyond them is refused with ATTN_OUT_OF_RANGE. */
#define ATTN_MAX_HIDDEN_SIZE 65536
#define ATTN_MAX_HEADS 1024
#define ATTN_MAX_HEAD_DIM 1024
#define ATTN_MAX_LAYERS 1024
#define ATTN_MAX_TOKENS 1048576 /* T and S of one call, L of one cache */
#define ATTN_MAX_BATCH 65536    /* B of one call, steps of one batch */
#define ATTN_MAX_GRID 128       /* of patches, rows and columns of a grid with a position bias */
#define ATTN_MAX_BUCKETS 4096   /* of a relative position bias, and its longest distance */

/* ATTN_MAX_MAGNITUDE bounds components of q, k and v, entries of head_mask and positive entries of
 * attention_bias.  With these bounds no score and no weighted sum can leave float32 (1,024
 * components: 1.03e38), so a NaN can never arise unseen inside a softmax. */
#define ATTN_MAX_MAGNITUDE 1e15f
#define ATTN_MAX_SCALE 1e5
#define ATTN_MIN_SOFTCAP 1e-6 /* 0, which means none, is allowed too */
#define ATTN_MAX_SOFTCAP 1e15

struct attn_model; /* the attention layers of one checkpoint */

/* The properties of a model.  Strings are borrowed from the model. */
struct attn_model_info {
    const char *family;              /* as docs/MODELS.md lists them: "llama", "gpt2", "random";
                                        "weightless" */
    const char *stack;               /* of an architecture with several, see below; else "" */
    const char *weights_dtype;       /* as stored: "F32", "F16", "BF16" */
    size_t num_layers;               /* layers of the checkpoint */
    size_t num_linear_layers;        /* of these, no attention: never resident */
    const char *linear_type;         /* what configurations call these: "linear_attention",
                                        "mamba", "mamba, mlp or moe", ...; "": none */
    size_t num_resident;             /* layers kept resident: all others, unless chosen */
    size_t max_position;             /* `max_position_embeddings`, 0 where the family has none */
    enum attn_dtype dtype, kv_dtype; /* of resident weights, of cached keys and values */
    size_t num_parameters; /* of all resident layers: weights, biases, norms, sinks, tables */
    size_t weight_bytes;   /* of resident weights, all layers */
    bool is_mapped;        /* these are pages of a file, resident once for all processes that map it
                              (attn_model_load_cached) */
    size_t cache_bytes_per_token; /* of one token in all resident layers */
    char fingerprint[17]; /* 64-bit hash, in hex, of specifications and weights as stored; caches
                             of one fingerprint may be exchanged; "" until loaded */
};

/* Tells how many bytes of a model's weight_bytes are resident: never less than before, `total` at
 * the end.  Called on the thread that loads, every few milliseconds. */
typedef void attn_load_progress(void *context, size_t done, size_t total);

/* The part of a checkpoint that is to be resident, and its format.  All zeroes: every layer, the
 * default stack, float32. */
struct attn_model_options {
    const size_t *layers; /* indices to keep resident, ascending; NULL: all */
    size_t num_layers;
    const char *stack;  /* of an architecture with several: "encoder", "decoder" (the default) or
                          "cross", the decoder's attention over the encoder; "text" (the default)
                          or "vision"; "encoder" (the default) or "global", the attention of
                          longformer's global tokens; else NULL */
    const char *config; /* the configuration, a JSON object as text, in place of config.json */
    const char *ignore_keys; /* keys that are passed over, with blanks between, though they are not
                                understood; NULL: none */
    enum attn_dtype dtype, kv_dtype; /* see attn_layer_spec */
    unsigned threads;                /* that load the weights; 0: attn_usable_cpus() */
    attn_load_progress *progress;    /* called while weights are loaded; NULL: not called */
    void *progress_context;
};

/* Opens a checkpoint: reads its configuration and the headers of its files, not its weights.
 *
 * `path` is a directory with config.json and model.safetensors, or shards with
 * model.safetensors.index.json; or a single file of tensors, .safetensors or .npz (NumPy's), whose
 * configuration is options->config.  The configuration's model_type selects the family
 * (docs/MODELS.md). A key that would change the mathematics and is not understood is refused by
 * name.  options NULL: all zeroes.  Only files that hold tensors of the layers asked for are
 * opened; they stay open until the weights are loaded.  Cost: milliseconds; memory is in proportion
 * to the headers (attn_model_memory of attn_limits.h).
 * Errors: ATTN_NOT_FOUND (file, tensor), ATTN_IO, ATTN_MALFORMED, ATTN_UNSUPPORTED (key or value),
 * ATTN_SHAPE_MISMATCH (tensor against configuration), ATTN_OUT_OF_RANGE, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_model_open(struct attn_model **out, const char *path,
                                                 const struct attn_model_options *options,
                                                 struct attn_error *error);

/* Opens a model of random weights: `config` is a JSON object of `length` bytes with hidden_size,
 * num_attention_heads and optionally
 *   num_hidden_layers, num_key_value_heads, head_dim, value_head_dim, kdim, vdim, seed,
 *   max_position_embeddings, original_max_position_embeddings;
 *   rms_norm_eps, qk_norm_type, qk_norm_extent (with qk_norm);
 *   scale, query_pre_attn_scalar, attn_logit_softcapping, attention_value_scale;
 *   attn_scale, floor_scale, clip_qkv, key_multiplier, keep_window_size;
 *   sliding_window, attention_chunk_size, layer_types, no_rope_layers;
 *   rope_theta, rope_scaling or rope_parameters, partial_rotary_factor, rope_interleaved;
 *   relative_attention_num_buckets, relative_attention_max_distance;
 *   and the flags attention_bias (or bias), is_causal, is_cross, add_bias_kv, add_zero_attn,
 *   attention_sinks, qk_norm, qk_norm_weightless, qk_norm_bias, qk_norm_after_rope, v_norm,
 *   output_norm, attn_output_gate, gate_softplus, gate_by_head, differential, attn_scale_next,
 *   attn_scale_by_slot, rope_reversed, alibi, alibi_scaled, alibi_bfloat16, alibi_by_slot;
 *   pos_att_type, position_buckets, max_relative_positions, norm_rel_ebd; and those of latents and
 *   an indexer.
 * `attnd inspect --family random` prints what each key means and which value an absent key has.
 *
 * Weights are uniform in +-sqrt(3/in), so variance 1/in, biases in +-0.1, weights of norms in 1
 * +-0.1, sinks and position biases in +-1.  All come from a counter-based generator: the same seed
 * gives the same bits on every machine.  options->stack has no meaning here.
 * Errors: ATTN_MALFORMED, ATTN_UNSUPPORTED (key or value), ATTN_OUT_OF_RANGE, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_model_open_random(struct attn_model **out, const char *config,
                                                        size_t length,
                                                        const struct attn_model_options *options,
                                                        struct attn_error *error);

/* Opens a model of a published configuration alone, the text of a config.json of `length` bytes, to
 * ask what it holds and costs: attn_model_describe and the functions that tell of its layers.
 * weights_dtype is "".  attn_model_load and attn_model_load_cached refuse it (ATTN_NOT_FOUND).
 * Cost: milliseconds.  Errors: ATTN_MALFORMED, ATTN_UNSUPPORTED (key or value), ATTN_OUT_OF_RANGE,
 * ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_model_open_config(struct attn_model **out, const char *config,
                                                        size_t length,
                                                        const struct attn_model_options *options,
                                                        struct attn_error *error);

/* Gives a model that is not loaded other dtypes, for the costs that attn_model_describe and
 * attn_model_cache_bytes tell; it keeps its own after an error.
 * Errors: ATTN_UNSUPPORTED, ATTN_OUT_OF_RANGE (a dtype that a layer cannot have). */
ATTN_MUST_CHECK enum attn_status attn_model_set_dtypes(struct attn_model *model,
                                                       enum attn_dtype dtype,
                                                       enum attn_dtype kv_dtype,
                                                       struct attn_error *error);

/* The layers of a weightless model, which are all alike. */
struct attn_weightless_options {
    size_t num_heads, num_kv_heads, head_dim; /* H; G, 0: H; D */
    size_t value_head_dim;                    /* Dv; 0: D */
    size_t num_layers;                        /* 0: 1 */
    double scale;                             /* multiplies q.k; 0: 1/sqrt(D) */
    double softcap;                           /* 0: none */
    size_t sliding_window;                    /* W; 0: none */
    enum attn_dtype kv_dtype;                 /* of cached keys and values */
};

/* Opens a model without weights, for caches of keys and values that the caller projects: steps over
 * them bring query, key and value, which are used as they are, and their output is [H][n][Dv].  The
 * model is loaded from the start; its fingerprint is a hash of its specifications.  A block of its
 * caches takes 16 KiB at least.  attn_attend refuses its layers, and a step the outputs query,
 * head_output, concat and ablation.
 * Errors: ATTN_OUT_OF_RANGE (a size, by its name in configurations), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_model_open_weightless(
    struct attn_model **out, const struct attn_weightless_options *options,
    struct attn_error *error);

/* Makes the weights resident in options->dtype, and takes the fingerprint.  Needed once before
 * computing; a second call does nothing.  A NaN or infinity is refused with tensor and index.
 * After an error no layer is resident and the call may be repeated.
 * Cost: every weight is read once and packed, by options->threads threads, which end with the call.
 * Beside the resident layers stand some megabytes of float32 or, of weights stored [in][out], in
 * .npz files, of latent attention and of a disentangled position bias, a layer in float32.
 * Errors: as attn_model_open; ATTN_NON_FINITE. */
ATTN_MUST_CHECK enum attn_status attn_model_load(struct attn_model *model,
                                                 struct attn_error *error);

/* The outcome of attn_model_load_cached. */
struct attn_cached_load {
    bool mapped;      /* the weights are pages of a file; false: memory of this process */
    bool written;     /* this call wrote that file */
    char reason[200]; /* why no file is mapped, in one line; else "" */
};

/* As attn_model_load, with packed weights in a file of `directory` that processes share: maps the
 * file of this model, or writes it first.  A model of other weights, another configuration, format
 * or build has another file: the name has a hash of all these, of files of a checkpoint by size,
 * inode and times of change, not by content.  So the file has to be removed by hand where weights
 * changed while the system's clock was set back.  `label`, a file's name of at most 96 characters,
 * begins its name; files of that label that no process uses are removed when a new one is written.
 * Where the directory, the disk or a file does not serve, out->reason says so and the weights are
 * private.
 *
 * The directory must not be writable for every user, nor be another user's than this process's or
 * root's, who could choose results; it is made (0700) where it does not exist.  While another
 * process writes, up to 300 s are waited.  A mapped file must not be made shorter: that ends the
 * processes that map it (SIGBUS; see attn_model_maps).
 * Cost: milliseconds where the file is there, and once after each start of the machine reading it
 * for a checksum; else as attn_model_load, and the file is brought to the disk.
 * Errors: as attn_model_load; ATTN_UNSUPPORTED (others may write to the directory). */
ATTN_MUST_CHECK enum attn_status attn_model_load_cached(struct attn_cached_load *out,
                                                        struct attn_model *model,
                                                        const char *directory, const char *label,
                                                        struct attn_error *error);

/* Whether attn_model_load_cached would find a file of that model, which is open and not loaded, by
 * its header; writes nothing.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_NO_MEMORY, ATTN_UNSUPPORTED. */
ATTN_MUST_CHECK enum attn_status attn_model_find_cached(const struct attn_model *model,
                                                        const char *directory, const char *label,
                                                        struct attn_error *error);

/* Whether the address lies in the model's mapped file of weights; may be called by a handler of
 * SIGBUS. */
bool attn_model_maps(const struct attn_model *model, const void *address);

/* False where the model's mapped file of weights has become shorter.  Any thread. */
bool attn_model_is_whole(const struct attn_model *model);

/* Frees the model.  Its caches must have been freed before, and no call may be using it. */
void attn_model_close(struct attn_model *model);

/* Fills *out with what the model is, loaded or not.  Any thread. */
void attn_model_describe(struct attn_model_info *out, const struct attn_model *model);

/* The specification of layer `layer`, counted as in the checkpoint; NULL where it is not to be
 * resident.  Borrowed from the model; there before the weights are loaded. */
const struct attn_layer_spec *attn_model_layer(const struct attn_model *model, size_t layer);

#endif
