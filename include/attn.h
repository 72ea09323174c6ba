/* attn.h: libattn, attention layers on a CPU.
 *
 * libattn keeps the attention layers of transformer checkpoints resident (multi-head, grouped-query
 * and multi-query attention: MHA, GQA, MQA), holds key/value caches in a pool of fixed budget and
 * computes attention over both.  This, attn_state.h (caches as bytes), attn_limits.h (bounds on
 * files, memory) and attn_self_check.h are the whole public interface.  It never prints, never
 * exits, and never aborts on anything that a caller passed in.
 *
 * Notation, used in every comment of this project.  Arrays are row-major, slowest index first.
 *
 *   B  batch                    E  model width (`hidden_size`)
 *   T  query tokens             D  head width, queries and keys (`head_dim`)
 *   S  key tokens               Dv head width, values
 *   H  query heads              L  tokens in a cache
 *   G  key/value heads          query head h reads key/value head h / (H / G)
 *
 * What is computed, for query t of head h (g = h / (H/G)):
 *
 *   q = rope(norm(Wq x_t + bq)_h)     k_s = rope(norm(Wk y_s + bk)_g)     v_s = (Wv z_s + bv)_g
 *   score_s  = scale * <q, k_s>                       scale = 1/sqrt(D) unless told otherwise
 *   score_s  = softcap * tanh(score_s / softcap)      where soft-capping is asked for
 *   score_s  = -inf where padding, boolean mask, causality or the window forbid s
 *   score_s += position_bias(h, t, s) + bias_s        of the layer (ALiBi, T5), and of the call
 *   w_s = exp(score_s - lse),   lse = ln (sum_s exp(score_s) + exp(sink_h))     natural logarithm
 *   w_s = head_mask_h * w_s
 *   output_t = Wo concat_h(sum_s w_s v_s) + bo
 *
 * norm, rope, position_bias and the sink are there where the layer has them.  Sources: Vaswani et
 * al. 2017 (attention), Shazeer 2019 (MQA), Ainslie et al. 2023 (GQA), Su et al. 2021 (RoPE), Press
 * et al. 2021 (ALiBi), Raffel et al. 2020 (T5), Milakov and Gimelshein 2018 (running softmax).  A
 * row that may look at nothing has w = 0, output Wo 0 + bo and lse = -inf, as ONNX defines it.
 *
 * Errors.  Calls return enum attn_status and, where they take a struct attn_error, fill it with
 * the field at fault and one line that names field, value and limit.  On an error nothing is
 * changed: caches are bit for bit what they were; output buffers hold unspecified values.
 *
 * Ownership.  A `**out` is the caller's to free with the matching call; any other pointer that
 * comes back is borrowed from its object.  Destructors take NULL.
 *
 * Threads.  An engine computes one call at a time, but for attn_yield, and serialises callers
 * itself.  Models are immutable once loaded and shared freely.  A cache pool is safe from any
 * thread; one cache is used by one thread at a time.
 */
#ifndef ATTN_H
#define ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTN_VERSION "0.1.0"

#if defined(__GNUC__)
#define ATTN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define ATTN_MUST_CHECK
#endif

/* ---- Status ------------------------------------------------------------------------------- */

enum attn_status {
    ATTN_OK = 0,
    ATTN_NO_MEMORY,      /* the machine is out of memory */
    ATTN_INVALID,        /* a field is wrong in itself: missing, negative, of two minds */
    ATTN_SHAPE_MISMATCH, /* sizes do not agree with each other or with the layer */
    ATTN_OUT_OF_RANGE,   /* a value lies outside its documented bounds */
    ATTN_NON_FINITE,     /* an input holds NaN or infinity */
    ATTN_OVERFLOW,       /* finite inputs, but a query, key or value beyond ATTN_MAX_MAGNITUDE, one
                            to be cached beyond its dtype (f16: 65504), or an output beyond
                            float32 */
    ATTN_NOT_FOUND,      /* no such file, tensor or layer */
    ATTN_IO,             /* the operating system refused to read */
    ATTN_MALFORMED,      /* a file that breaks its own format */
    ATTN_UNSUPPORTED,    /* well formed, understood, and not something this library computes */
    ATTN_CACHE_FULL,     /* the cache's max_length would be passed */
    ATTN_POOL_FULL,      /* the cache pool's budget would be passed */
    ATTN_CANCELLED,      /* the call's attn_yield said to stop */
};

/* What went wrong, for a person: filled by calls that fail, untouched by calls that succeed. */
struct attn_error {
    enum attn_status status;
    char param[64];    /* the field, tensor or key at fault; "" where there is none */
    char message[256]; /* one line: field, value, limit */
};

/* The name of a status, "cache_full" for ATTN_CACHE_FULL; never NULL. */
const char *attn_status_name(enum attn_status status);

/* ---- Engine: kernels and threads ----------------------------------------------------------- */

enum attn_cpu_level {
    ATTN_CPU_AUTO = 0,   /* the best this CPU and its operating system support */
    ATTN_CPU_PORTABLE,   /* C only */
    ATTN_CPU_AVX2,       /* AVX2 and FMA */
    ATTN_CPU_AVX512,     /* AVX-512 F, BW, DQ, VL */
    ATTN_CPU_AVX512VNNI, /* and VNNI: dot products of bytes */
    ATTN_CPU_AVX512BF16, /* and BF16: dot products of bfloat16 */
};
#define ATTN_NUM_CPU_LEVELS 6 /* with ATTN_CPU_AUTO */

#define ATTN_MAX_THREADS 512 /* of an engine */

/* What products of float32 and bf16 weights, and of attention, go through.  Steps of up to 64 rows
 * over a cache always go through the packed kernels, which is why their bits do not depend on what
 * else is computed. */
enum attn_gemm_mode {
    ATTN_GEMM_AUTO = 0, /* whichever is measured faster: OpenBLAS for projections of more than 64
                           rows at level portable, where it can be loaded; otherwise packed */
    ATTN_GEMM_PACKED,   /* this library's kernels over packed weights; OpenBLAS is not loaded */
    ATTN_GEMM_OPENBLAS, /* OpenBLAS for projections and for scores and weighted sums over float32
                           keys and values, of 8 rows or more; refused with ATTN_UNSUPPORTED where
                           it cannot be loaded */
};
#define ATTN_NUM_GEMM_MODES 3

/* "auto", "packed", "openblas". */
const char *attn_gemm_mode_name(enum attn_gemm_mode mode);

struct attn_engine; /* a kernel table, a worker pool and their scratch memory */

struct attn_engine_options {
    unsigned threads;          /* 0: from affinity and cgroup quota; else 1 to ATTN_MAX_THREADS */
    enum attn_cpu_level level; /* refused with ATTN_UNSUPPORTED where the CPU lacks it */
    enum attn_gemm_mode gemm;
    /* Bytes that one call may take beside its arguments, and one inside a pause: beyond, it fails
     * with ATTN_NO_MEMORY.  0: no bound. */
    size_t call_bytes, inner_bytes;
};

struct attn_engine_info {
    unsigned threads;
    enum attn_cpu_level level;
    const char *level_name;   /* "portable", "avx2", "avx512", "avx512vnni", "avx512bf16" */
    enum attn_gemm_mode gemm; /* as the options had it */
    const char *gemm_name;
    const char *gemm_missing; /* why ATTN_GEMM_AUTO does without OpenBLAS where it would be faster;
                                 else "" */
    const char *blas_core; /* the kernel set OpenBLAS chose, such as "SkylakeX"; NULL: not in use */
    bool blas_overridden;  /* OPENBLAS_CORETYPE was set: BLAS may be below what the CPU can do */
};

/* Opens an engine: starts threads - 1 workers and allocates their scratch.  options NULL: all
 * defaults.  One that uses OpenBLAS loads it, for as long as the process lives, and sets
 * OPENBLAS_NUM_THREADS=1 in the environment for that.  Errors: ATTN_UNSUPPORTED (level, gemm),
 * ATTN_OUT_OF_RANGE (threads), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_engine_open(struct attn_engine **out,
                                                  const struct attn_engine_options *options,
                                                  struct attn_error *error);
void attn_engine_close(struct attn_engine *engine);
void attn_engine_describe(struct attn_engine_info *out, const struct attn_engine *engine);

/* Runs task(context, i) once for every i in [0, count) on the engine's threads, this one
 * included, and returns when all have run.  Tasks are taken in index order by whoever is free.
 * A task must not call back into the engine. */
void attn_engine_run(struct attn_engine *engine, void (*task)(void *context, size_t i),
                     void *context, size_t count);

/* Lets others go before a long call: many times a millisecond it asks `wanted`, a cheap look, and
 * where that is true calls `run`, on the same thread.  That may make any calls, as if nothing else
 * ran, but not touch the long call's inputs, outputs and cache; its calls are not interrupted in
 * turn.  Where run returns false the long call ends with ATTN_CANCELLED.  No bits change. */
struct attn_yield {
    bool (*wanted)(void *context), (*run)(void *context);
    void *context;
};

/* ---- Layers and models --------------------------------------------------------------------- */

enum attn_rope_type {
    ATTN_ROPE_NONE = 0,
    ATTN_ROPE_DEFAULT, /* inverse frequency i: theta^(-2i/dim) */
    ATTN_ROPE_LINEAR,  /* all divided by factor (position interpolation) */
    ATTN_ROPE_DYNAMIC, /* theta grows with the length once it passes the trained one (NTK) */
    ATTN_ROPE_YARN,    /* low frequencies divided by factor, a ramp in between (Peng et al. 2023) */
    ATTN_ROPE_LLAMA3,  /* long wavelengths divided by factor, a smooth blend in between */
    ATTN_ROPE_LONGROPE, /* each divided by its own factor (Ding et al. 2024) */
};
#define ATTN_NUM_ROPE_TYPES 7

/* Rotary position embedding.  Pairs are the halves (x_i, x_{i+dim/2}), or neighbours (x_2i, x_2i+1)
 * where interleaved.  For dynamic and longrope the frequencies depend on the length, which is the
 * largest position of the call plus 1, as Hugging Face has it. */
struct attn_rope_spec {
    enum attn_rope_type type;
    size_t dim;                   /* leading components of each head that rotate; even, at most D */
    bool interleaved;             /* as GPT-J */
    double theta;                 /* `rope_theta` */
    double factor;                /* linear, dynamic, yarn, llama3 */
    double attention_factor;      /* multiplies cosine and sine: 1 but for yarn and longrope */
    double original_max_position; /* the trained length; dynamic, yarn, llama3, longrope */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn: turns within the trained length */
    bool truncate;                            /* yarn: the ramp's ends are whole numbers */
    const double *short_factor, *long_factor; /* longrope: [dim/2] up to the trained length, and
                                                 beyond; borrowed from the model */
};

/* What a layer adds to the scores for the distance of query and key. */
enum attn_position_bias_type {
    ATTN_BIAS_NONE = 0,
    ATTN_BIAS_ALIBI, /* slope_h (s - t), slope_h a power of 2^(-8/H) */
    ATTN_BIAS_T5,    /* a learned number per head and bucket of distances */
};

struct attn_position_bias_spec {
    enum attn_position_bias_type type;
    double scale;        /* alibi: multiplies it; Falcon 1/sqrt(D), Bloom 1 */
    bool bfloat16;       /* alibi: slope and slope * position are rounded to bfloat16, as Falcon */
    size_t buckets;      /* t5: `relative_attention_num_buckets` */
    size_t max_distance; /* t5: distances from here on share the last bucket */
    bool bidirectional;  /* t5: keys behind the query have half of the buckets */
};

/* One attention layer, as its configuration resolves.  All that the algorithm knows. */
/* What resident numbers are made of. */
enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16,
    ATTN_F16,
    ATTN_INT8, /* with scales: of weights one for each output, of keys and values one for each token
                  and head; symmetric, so that a number is scale * integer */
};

/* "f32", "bf16", "f16", "int8"; never NULL. */
const char *attn_dtype_name(enum attn_dtype dtype);

/* Finds a dtype by that name; false where there is none. */
bool attn_dtype_find(enum attn_dtype *out, const char *name);

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
    size_t sliding_window; /* W: a query at i sees keys i-W < j <= i; 0: none */
    bool is_causal;
    bool is_cross; /* keys and values come from another sequence: no self-attention, no cache */
    bool q_bias, k_bias, v_bias, o_bias;
    bool bias_kv;       /* PyTorch `add_bias_kv`: one learned key/value after the real ones */
    bool add_zero_attn; /* PyTorch: one key/value of zeros after those */
    bool sinks;         /* a learned score per head that takes its share of the softmax (gpt-oss) */
    bool qk_norm;       /* RMSNorm of each query and key head, with weights [D], before RoPE */
    double norm_eps;
    struct attn_rope_spec rope;
    struct attn_position_bias_spec position_bias;
    enum attn_dtype dtype;    /* of resident weights: ATTN_F32, ATTN_BF16 or ATTN_INT8; what is no
                                 matrix stays float32 */
    enum attn_dtype kv_dtype; /* of cached keys and values */
};

/* Bounds on a layer.  A configuration beyond them is refused with ATTN_OUT_OF_RANGE. */
#define ATTN_MAX_HIDDEN_SIZE 65536
#define ATTN_MAX_HEADS 1024
#define ATTN_MAX_HEAD_DIM 512
#define ATTN_MAX_LAYERS 1024
#define ATTN_MAX_TOKENS 1048576 /* T and S of one call, L of one cache */
#define ATTN_MAX_BATCH 65536    /* B of one call, steps of one batch */
#define ATTN_MAX_BUCKETS 4096   /* of a relative position bias, and its longest distance */

/* Largest magnitude of a component of q, k or v, of a head_mask entry, and of a positive
 * attention_bias; and of a scale.  With these no score and no weighted sum can leave float32 (512
 * components: 5e37), so a NaN can never arise unseen inside a softmax. */
#define ATTN_MAX_MAGNITUDE 1e15f
#define ATTN_MAX_SCALE 1e5
#define ATTN_MIN_SOFTCAP 1e-6 /* of one that is not 0 */
#define ATTN_MAX_SOFTCAP 1e15

struct attn_model; /* the attention layers of one checkpoint */

struct attn_model_info {
    const char *family;              /* as docs/MODELS.md lists them: "llama", "gpt2", "random" */
    const char *stack;               /* "encoder", "decoder", "cross"; "" where there is only one */
    const char *weights_dtype;       /* as stored: "F32", "F16", "BF16" */
    size_t num_layers;               /* layers of the checkpoint */
    size_t num_resident;             /* layers kept resident, num_layers unless chosen */
    size_t max_position;             /* `max_position_embeddings`, 0 where the family has none */
    enum attn_dtype dtype, kv_dtype; /* of resident weights, of cached keys and values */
    size_t weight_bytes;             /* resident weights, all layers */
    size_t cache_bytes_per_token;    /* key and value of one token in all resident layers */
    char fingerprint[17]; /* hex of specification and weights as stored; "" until loaded */
};

struct attn_model_options {
    const size_t *layers; /* indices to keep resident, ascending; NULL: all */
    size_t num_layers;
    const char *stack; /* of an architecture with several: "encoder", "decoder" (the default) or
                          "cross", the decoder's attention over the encoder; else NULL */
    enum attn_dtype dtype, kv_dtype; /* of attn_layer_spec */
};

/* Reads a checkpoint's configuration and tensor directory, not its weights.  `path` is a
 * directory with config.json and model.safetensors, or shards with model.safetensors.index.json;
 * model_type selects the family.  A key that would change the mathematics and is not understood
 * is refused by name.  options NULL: all layers.  Only files that hold tensors of those are opened.
 * Errors: ATTN_NOT_FOUND (file, tensor), ATTN_IO, ATTN_MALFORMED, ATTN_UNSUPPORTED (key or value),
 * ATTN_SHAPE_MISMATCH (tensor against configuration), ATTN_OUT_OF_RANGE, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_model_open(struct attn_model **out, const char *path,
                                                 const struct attn_model_options *options,
                                                 struct attn_error *error);

/* The same for a model of random weights: `config` is a JSON object of `length` bytes with
 * hidden_size, num_attention_heads and optionally
 *   num_hidden_layers, num_key_value_heads, head_dim, value_head_dim, kdim, vdim, seed,
 *   max_position_embeddings, original_max_position_embeddings, rms_norm_eps (with qk_norm);
 *   scale, query_pre_attn_scalar, attn_logit_softcapping, sliding_window, layer_types;
 *   rope_theta, rope_scaling or rope_parameters, partial_rotary_factor, rope_interleaved;
 *   relative_attention_num_buckets, relative_attention_max_distance;
 *   and the flags attention_bias, is_causal, is_cross, add_bias_kv, add_zero_attn,
 *   attention_sinks, qk_norm, alibi, alibi_scaled, alibi_bfloat16.
 * What they mean and hold where they are absent is in docs/MODELS.md.  Weights are uniform in
 * +-sqrt(3/in), so variance 1/in, biases in +-0.1, weights of norms in 1 +-0.1, sinks and position
 * biases in +-1, from a counter-based generator: the same seed gives the same bits on every
 * machine.  It has one stack, so options->stack has no meaning. */
ATTN_MUST_CHECK enum attn_status attn_model_open_random(struct attn_model **out, const char *config,
                                                        size_t length,
                                                        const struct attn_model_options *options,
                                                        struct attn_error *error);

/* Makes the weights resident in options->dtype; a NaN or infinity in one is refused with tensor and
 * index.  Needed once before computing.  Errors: as attn_model_open, ATTN_NON_FINITE. */
ATTN_MUST_CHECK enum attn_status attn_model_load(struct attn_model *model,
                                                 struct attn_error *error);
void attn_model_close(struct attn_model *model);
void attn_model_describe(struct attn_model_info *out, const struct attn_model *model);

/* The specification of layer `layer` of the checkpoint, NULL where it is not resident. */
const struct attn_layer_spec *attn_model_layer(const struct attn_model *model, size_t layer);

/* ---- What a call may change, and what it may ask for --------------------------------------- */

enum attn_causal { ATTN_CAUSAL_DEFAULT = 0, ATTN_CAUSAL_NO, ATTN_CAUSAL_YES };

/* Modifiers of one call; all zeroes means none.  S below is the number of keys that the masks
 * speak of: those of the call, or cached plus new ones for a step over a cache. */
struct attn_modifiers {
    enum attn_causal is_causal;    /* default: the layer's; without a layer, not causal */
    const int64_t *query_offset;   /* [B] query t stands at key position query_offset + t;
                                      NULL: S - T */
    const uint8_t *padding_mask;   /* [B][S] 1 = real token, 0 = never attended */
    const uint8_t *attention_mask; /* [..][T][S] 1 = may attend */
    size_t attention_mask_batch_stride, attention_mask_head_stride; /* 0 = broadcast */
    const float *attention_bias; /* [..][T][S] added to the scaled scores; -inf forbids */
    size_t attention_bias_batch_stride, attention_bias_head_stride; /* 0 = broadcast */
    const float *head_mask;            /* [H] multiplies each head's weights */
    const int64_t *position_ids;       /* [B][T] for RoPE, 0 to 2^31-1; NULL: t, counted from the
                                      cached length */
    double scale;                      /* 0: the layer's; without a layer 1/sqrt(D) */
    bool has_softcap, has_window;      /* what follows counts, not the layer's */
    double softcap;                    /* c > 0: scaled scores become c tanh(score / c); 0: none */
    int64_t window_left, window_right; /* a query at key position i sees keys from i - left to
                                          i + right; -1 = open on that side */
    bool tree; /* steps only: attention_mask is [T][T], among the new rows, which all see the cached
                  ones as far as the window lets them.  Distances (window, position bias) then
                  follow position_ids, where given. */
};

/* Which part of attention_weights and attention_scores is wanted; all zeroes: all of it.  Indices
 * are distinct, in any order; results stand in that order. */
struct attn_selection {
    const size_t *heads; /* [num_heads] of H; NULL: all */
    size_t num_heads;
    const size_t *rows; /* [num_rows] of T; NULL: all */
    size_t num_rows;
};

/* What a head's weights look like, by thresholds that docs/NUMERICS.md gives. */
enum attn_pattern {
    ATTN_PATTERN_GLOBAL = 0, /* spread over what it may see */
    ATTN_PATTERN_PREVIOUS,   /* on the token before */
    ATTN_PATTERN_SINK,       /* on the first token */
    ATTN_PATTERN_POSITIONAL, /* at one distance, whatever that is */
    ATTN_PATTERN_LOCAL,      /* on tokens near by */
    ATTN_PATTERN_FOCUSED,    /* on few tokens, wherever they are */
};

/* "global", "previous", ...; never NULL. */
const char *attn_pattern_name(enum attn_pattern pattern);

/* Means of a head's weights w_j (before head_mask) over the rows that see a key, i being the
 * query's key position.  Where rows sum to less than 1 (sinks, appended keys), so do shares. */
struct attn_head_stats {
    size_t rows;           /* that see one of the S keys; with none all is 0 */
    double entropy;        /* -sum_j w_j ln w_j, nats */
    double mean_distance;  /* sum_j w_j |i - j|, tokens */
    double self, previous; /* w_i, w_{i-1} */
    double first;          /* weight of the first key that is no padding */
    double local;          /* sum of w_j, |i - j| <= local_radius */
    double largest;        /* max_j w_j */
    enum attn_pattern pattern;
};

/* How far a score has come when attention_scores takes it. */
enum attn_stage {
    ATTN_STAGE_RAW = 0, /* scaled; all keys have one, seen or not */
    ATTN_STAGE_SOFTCAP, /* and capped */
    ATTN_STAGE_MASKED,  /* and masked (-inf) and biased: what the softmax sees */
};

/* Where results go; NULL = not wanted.  W = S plus the layer's bias_kv and add_zero_attn columns,
 * which stand last (attn_weight_columns).  H' and T' are the heads and rows selected.  Buffers do
 * not overlap each other or any input. */
struct attn_outputs {
    float *output; /* [B][T][E]; weightless [B][H][T][Dv] */
    struct attn_selection selection;
    float *attention_weights; /* [B][H'][T'][W] */
    float *average_weights;   /* [B][T'][W] mean over the selected heads */
    float *attention_scores;  /* [B][H'][T'][S] at `stage`; appended keys have none */
    enum attn_stage stage;
    size_t top_k;        /* 1 to W, where the next two are wanted */
    uint32_t *top_index; /* [B][H'][T'][top_k] columns of the largest weights, largest first, of
                            equal ones the lower column first; with average_weights those of the
                            mean, [B][T'][top_k] */
    float *top_weight;   /* same shape */
    struct attn_head_stats *head_stats; /* [B][H], over all rows */
    size_t local_radius;                /* of head_stats */
    float *lse;                         /* [B][H][T]; -inf for a row that sees nothing */
    float *key;                         /* [B][G][S][D] as cached: after bias and RoPE; of a step
                                           rounded to kv_dtype, as attention has them */
    float *value;                       /* [B][G][S][Dv] */
};

/* Columns W of the attention weights over `keys` keys. */
size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys);

/* ---- Attention over given rows -------------------------------------------------------------- */

/* Core attention without weights (PyTorch's scaled_dot_product_attention). */
struct attn_core_args {
    size_t batch, queries, keys; /* B, T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim;
    const float *query;              /* [B][H][T][D] */
    const float *key;                /* [B][G][S][D] */
    const float *value;              /* [B][G][S][Dv] */
    struct attn_modifiers modifiers; /* position_ids has no meaning here */
    struct attn_outputs outputs;     /* key, value have no meaning here */
    const struct attn_yield *yield;  /* NULL: gives way to nothing */
};

/* Computes what the head of this file says from q, k, v on.  Memory beyond inputs and outputs is
 * O(T + S) per head, never T x S; statistics and largest weights are taken row by row.
 * Errors: ATTN_INVALID, ATTN_SHAPE_MISMATCH, ATTN_OUT_OF_RANGE, ATTN_OVERFLOW, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_core(struct attn_engine *engine,
                                           const struct attn_core_args *args,
                                           struct attn_error *error);

/* One layer over given rows: self-attention where key_hidden_states is NULL. */
struct attn_attend_args {
    size_t batch, queries, keys;      /* B, T, S; keys is ignored for self-attention */
    const float *hidden_states;       /* [B][T][E] */
    const float *key_hidden_states;   /* [B][S][key_size] or NULL */
    const float *value_hidden_states; /* [B][S][value_size]; NULL: key_hidden_states */
    struct attn_modifiers modifiers;
    struct attn_outputs outputs;
    const struct attn_yield *yield; /* NULL: gives way to nothing */
};

/* Projects, rotates, attends and projects back.  RoPE, where the layer has one, needs queries
 * and keys that are the same tokens: cross-attention is then refused with ATTN_UNSUPPORTED, as is
 * self-attention of a layer that is_cross.
 * Errors: as attn_core, ATTN_NOT_FOUND (layer), ATTN_UNSUPPORTED. */
ATTN_MUST_CHECK enum attn_status attn_attend(struct attn_engine *engine,
                                             const struct attn_model *model, size_t layer,
                                             const struct attn_attend_args *args,
                                             struct attn_error *error);

/* ---- Key/value caches ----------------------------------------------------------------------- */

struct attn_cache_pool; /* a byte budget that caches draw blocks of 64 tokens from */
struct attn_cache;      /* keys and values of one sequence, in all resident layers of a model */

/* A pool that never holds more than `budget` bytes of blocks. */
ATTN_MUST_CHECK enum attn_status attn_cache_pool_new(struct attn_cache_pool **out, size_t budget);
void attn_cache_pool_free(struct attn_cache_pool *pool);           /* after all its caches */
size_t attn_cache_pool_used(const struct attn_cache_pool *pool);   /* bytes in live blocks, and of
                                                                      places where some share */
size_t attn_cache_pool_budget(const struct attn_cache_pool *pool); /* bytes */

/* An empty cache for sequences of up to max_length tokens; takes no block yet.  Model and pool
 * must outlive it.  Errors: ATTN_OUT_OF_RANGE (max_length), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_new(struct attn_cache **out,
                                                struct attn_cache_pool *pool,
                                                const struct attn_model *model, size_t max_length,
                                                struct attn_error *error);
void attn_cache_free(struct attn_cache *cache); /* its blocks return to the pool at once */
size_t attn_cache_length(const struct attn_cache *cache, size_t layer); /* L; 0 if not resident */
size_t attn_cache_max_length(const struct attn_cache *cache);
size_t attn_cache_bytes(const struct attn_cache *cache); /* of its blocks, shared ones in full */

/* One step: n rows appended to one cache (n = 1: decode; more: prefill or speculation), each row
 * attending over what is cached, over the rows before it and over itself. */
struct attn_step {
    struct attn_cache *cache;
    size_t position; /* the layer's length; or less, to compute a published step again over what is
                        cached, in which case nothing is written and rows must end by the length */
    size_t rows;     /* n >= 1 */
    const float *hidden_states;      /* [n][E] */
    struct attn_modifiers modifiers; /* B = 1, T = n, S = position + n; causal unless told
                                        otherwise */
    struct attn_outputs outputs;     /* B = 1; key and value cover all S */
    bool commit;                     /* publish the rows; else the cache is left as it was */
    const struct attn_yield *yield;  /* the first step's is the batch's; or NULL */
    struct attn_error error;         /* out: status ATTN_OK, or why this step alone failed */
};

/* Runs steps over distinct caches of one model and layer as a batch; each succeeds or fails
 * alone, and a failed one leaves its cache bit for bit as it was.  A step computed again at the
 * position it was first computed at gives the same bits.  The bits of a step's results do not
 * depend on the other steps, their number, or the number of threads.
 * Returns ATTN_OK, or the status for which no step could run (ATTN_NOT_FOUND: layer;
 * ATTN_NO_MEMORY, ATTN_CANCELLED), repeated in every step's error. */
ATTN_MUST_CHECK enum attn_status attn_decode(struct attn_engine *engine,
                                             const struct attn_model *model, size_t layer,
                                             struct attn_step *const steps[], size_t count);

#endif
