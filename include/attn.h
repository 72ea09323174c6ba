/* attn.h: libattn, attention layers on a CPU.
 *
 * libattn keeps the attention layers of transformer checkpoints resident (multi-head, grouped-query
 * and multi-query attention: MHA, GQA, MQA), holds key/value caches in a pool of fixed budget and
 * computes attention over both.  The public interface is this header, which brings attn_status.h
 * (errors) and attn_model.h (layers, models), and beside it attn_state.h (caches as bytes),
 * attn_limits.h (bounds on files, memory) and attn_self_check.h.  The library never prints, never
 * exits, and never aborts on any value that a caller passed in; pointers are to be valid, and NULL
 * only where that is said.
 *
 * Use.  A checkpoint of hidden_size 768; x and y are float [3][768], checks are left out:
 *
 *     struct attn_engine *engine;
 *     struct attn_model *model;
 *     struct attn_cache_pool *pool;
 *     struct attn_cache *cache;
 *     struct attn_error error;
 *     attn_engine_open(&engine, NULL, &error);                         // all CPUs
 *     attn_model_open(&model, "checkpoints/gpt2", NULL, &error);       // reads config.json
 *     attn_model_load(model, &error);                                  // reads the weights
 *
 *     struct attn_attend_args args = {.batch = 1, .queries = 3, .hidden_states = x};
 *     args.outputs.output = y;
 *     attn_attend(engine, model, 0, &args, &error);                    // layer 0, no cache
 *
 *     attn_cache_pool_new(&pool, (size_t)1 << 30);                     // bytes
 *     attn_cache_new(&cache, pool, model, 2048, &error);               // tokens at most
 *     struct attn_step step = {.cache = cache, .rows = 2, .hidden_states = x, .commit = true};
 *     struct attn_step *batch[] = {&step};
 *     step.outputs.output = y;
 *     attn_decode(engine, model, 0, batch, 1);                         // prefill: tokens 0 and 1
 *     step.position += step.rows;
 *     step.rows = 1;
 *     step.hidden_states = x + 2 * 768;
 *     attn_decode(engine, model, 0, batch, 1);                         // decode: token 2
 *
 *     attn_cache_free(cache);
 *     attn_cache_pool_free(pool);
 *     attn_model_close(model);
 *     attn_engine_close(engine);
 *
 * Alphabet of shapes, used in every comment of this project.  Arrays are row-major, slowest index
 * first: [B][T][E] is B sequences of T tokens of E numbers.
 *
 *   B  batch                    E  model width (`hidden_size`)
 *   T  query tokens             D  head width, queries and keys (`head_dim`)
 *   S  key tokens               Dv head width, values
 *   H  query heads              L  tokens in a cache
 *   G  key/value heads          query head h reads key/value head h / (H / G)
 *
 * Formula, for query t of head h (g = h / (H/G)), x the rows of queries, y of keys, z of values:
 *
 *   q = rope(norm(Wq x_t + bq)_h)     k_s = rope(norm(Wk y_s + bk)_g)     v_s = (Wv z_s + bv)_g
 *   score_s  = scale * <q, k_s>                       scale = 1/sqrt(D) by default
 *   score_s  = softcap * tanh(score_s / softcap)      where soft-capping is asked for
 *   score_s  = -inf where padding, boolean mask, causality or the window forbid s
 *   score_s += position_bias(h, t, s) + bias_s        of the layer (ALiBi, T5), and of the call
 *   w_s = exp(score_s - lse),   lse = ln (sum_s exp(score_s) + exp(sink_h))     natural logarithm
 *   w_s = head_mask_h * w_s
 *   output_t = Wo concat_h(sum_s w_s v_s) + bo
 *
 * Terms that a layer does not have (norm, rope, position_bias, sink) are left out.  A row that may
 * look at nothing has w = 0, output Wo 0 + bo and lse = -inf, as ONNX defines it.  Sources: Vaswani
 * et al. 2017 (attention), Shazeer 2019 (MQA), Ainslie et al. 2023 (GQA), Su et al. 2021 (RoPE),
 * Press et al. 2021 (ALiBi), Raffel et al. 2020 (T5), Milakov and Gimelshein 2018 (running
 * softmax).
 *
 * Errors.  A call that can fail returns enum attn_status and, where it takes a struct attn_error,
 * fills that with the field at fault and one line that names field, value and limit.  A call that
 * fails changes nothing: caches are bit for bit what they were; output buffers hold unspecified
 * values.  Every call that can fail may fail with ATTN_NO_MEMORY.
 *
 * Ownership.  A `**out` is the caller's to free with the matching call; any other pointer that a
 * call returns is borrowed from its object.  Destructors take NULL.
 *
 * Threads.  An engine computes one call at a time, except inside attn_yield, and makes concurrent
 * callers wait for each other.  Models are immutable once loaded and may be shared freely.  A cache
 * pool may be used from any thread; one cache may be used by one thread at a time.
 */
#ifndef ATTN_H
#define ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_model.h"
#include "attn_status.h"

#define ATTN_VERSION "0.1.0"

/* ---- Engine: kernels and threads ----------------------------------------------------------- */

/* The instruction sets that kernels use, of the architecture that the library is built for, and
 * their names.  A level needs what stands beside it, and uses what the CPU has of those above. */
enum attn_cpu_level {
    ATTN_CPU_AUTO = 0, /* the fastest of those that CPU and operating system support */
    ATTN_CPU_PORTABLE, /* C only */
#if defined __x86_64__
    ATTN_CPU_AVX2,       /* AVX2 and FMA */
    ATTN_CPU_AVX512,     /* AVX-512 F, BW, DQ, VL */
    ATTN_CPU_AVX512VNNI, /* these and VNNI: dot products of bytes */
    ATTN_CPU_AVX512BF16, /* AVX-512 and BF16: dot products of bfloat16 */
    ATTN_CPU_AVX512AMX,  /* all of these and AMX: products of tiles of bfloat16 and bytes */
#define ATTN_CPU_LEVEL_NAMES "auto|portable|avx2|avx512|avx512vnni|avx512bf16|avx512amx"
#elif defined __aarch64__
    ATTN_CPU_NEON,    /* Advanced SIMD */
    ATTN_CPU_DOTPROD, /* this and FEAT_DotProd: dot products of bytes */
    ATTN_CPU_BF16,    /* Advanced SIMD and FEAT_BF16: dot products of bfloat16 */
#define ATTN_CPU_LEVEL_NAMES "auto|portable|neon|dotprod|bf16"
#else
#define ATTN_CPU_LEVEL_NAMES "auto|portable"
#endif
    ATTN_NUM_CPU_LEVELS /* with ATTN_CPU_AUTO */
};

#define ATTN_MAX_THREADS 512 /* of one engine */

/* How products of attention and of float32 and bf16 weights are computed.  Steps of up to 64 rows
 * over a cache use the packed kernels in every mode, so their bits never depend on other steps. */
enum attn_gemm_mode {
    ATTN_GEMM_AUTO = 0, /* the faster way, as measured: OpenBLAS for projections of more than 64
                           rows at level portable, if it can be loaded; packed for all others */
    ATTN_GEMM_PACKED,   /* this library's kernels over packed weights; OpenBLAS is not loaded */
    ATTN_GEMM_OPENBLAS, /* OpenBLAS for projections, and for scores and weighted sums over float32
                           keys and values, of 8 rows or more; ATTN_UNSUPPORTED if it cannot be
                           loaded */
};
#define ATTN_NUM_GEMM_MODES 3

/* "auto", "packed", "openblas"; never NULL. */
const char *attn_gemm_mode_name(enum attn_gemm_mode mode);

struct attn_engine; /* a kernel table, a worker pool and their scratch memory */

/* How an engine is to be opened.  All zeroes: every CPU, the best kernels, no bound on memory. */
struct attn_engine_options {
    unsigned threads;          /* 0: from affinity and cgroup quota; else 1 to ATTN_MAX_THREADS */
    enum attn_cpu_level level; /* refused with ATTN_UNSUPPORTED where the CPU lacks it */
    enum attn_gemm_mode gemm;
    /* Bytes of working memory that one call may take, with the calls that have a yield and run in
     * its pauses; and bytes that a call without one may take there beside them.  A call that needs
     * more fails with ATTN_NO_MEMORY.  0: no bound.  attn_call_bytes (attn_limits.h) says what a
     * call needs. */
    size_t call_bytes, yield_call_bytes;
};

/* The properties of an open engine.  Strings are static. */
struct attn_engine_info {
    unsigned threads;
    enum attn_cpu_level level;
    const char *level_name;   /* one of ATTN_CPU_LEVEL_NAMES, but not "auto" */
    enum attn_gemm_mode gemm; /* as in the options */
    const char *gemm_name;
    const char *gemm_missing; /* why ATTN_GEMM_AUTO goes without OpenBLAS where that is the faster
                                 way; "" otherwise */
    const char *blas_core; /* the kernel set OpenBLAS chose, such as "SkylakeX"; NULL: not in use */
    bool blas_overridden;  /* OPENBLAS_CORETYPE was set: BLAS may be below what the CPU can do */
};

/* Opens an engine: starts threads - 1 workers and allocates scratch memory for each thread
 * (attn_engine_bytes of attn_limits.h).  The calling thread of a computation is the last of the
 * threads.  options NULL: all zeroes.  An engine that uses OpenBLAS loads it, for as long as the
 * process lives, and sets OPENBLAS_NUM_THREADS=1 in the environment before.  Level ATTN_CPU_AUTO,
 * or one with AMX, asks Linux for the tile registers (arch_prctl), once for the process: alternate
 * signal stacks of threads then need AT_MINSIGSTKSZ bytes; where one has less, AUTO goes without.
 * Errors: ATTN_UNSUPPORTED (level, gemm), ATTN_OUT_OF_RANGE (threads), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_engine_open(struct attn_engine **out,
                                                  const struct attn_engine_options *options,
                                                  struct attn_error *error);

/* Ends the workers and frees the engine.  No call may be running.  Models, pools and caches are
 * independent of engines and stay. */
void attn_engine_close(struct attn_engine *engine);

/* Fills *out with what the engine is.  Any thread, at any time; takes no lock. */
void attn_engine_describe(struct attn_engine_info *out, const struct attn_engine *engine);

/* Runs task(context, i) once for every i in [0, count) on the engine's threads, the calling one
 * included, and returns when all have run.  Free threads take the tasks in index order.  The engine
 * is held meanwhile: other callers wait, and a task must not call back into the engine.  A task
 * should take some microseconds at least, which is what handing it to another thread costs. */
void attn_engine_run(struct attn_engine *engine, void (*task)(void *context, size_t i),
                     void *context, size_t count);

/* How a long call gives way to others, and how it is cancelled.
 *
 * The long call asks `wanted` every 0.01 to 0.5 ms, which should cost no more than reading a flag.
 * Where that is true it calls `run` on the thread that made the long call.  `run` may make any
 * calls to the same engine, as if nothing else ran there, but must not touch the inputs, outputs
 * and cache of the calls that it interrupts.  What it calls is interrupted in turn where that has a
 * yield, until ATTN_YIELD_LEVELS calls run one inside another; the innermost asks nobody.  Where
 * `run` returns false the call that it interrupts ends with ATTN_CANCELLED.  No bit of a result
 * depends on interruptions. */
#define ATTN_YIELD_LEVELS 3
struct attn_yield {
    bool (*wanted)(void *context), (*run)(void *context);
    void *context;
};

/* ---- What a call may change, and what it may ask for --------------------------------------- */

/* Whether a query sees keys after its own position; the default is the layer's is_causal. */
enum attn_causal { ATTN_CAUSAL_DEFAULT = 0, ATTN_CAUSAL_NO, ATTN_CAUSAL_YES };

/* Modifiers of one call; all zeroes: none.  S is the number of keys that masks speak of: the keys
 * of the call, or cached plus new tokens for a step over a cache.  A mask's batch or head stride
 * counts elements, 0 repeats the same [T][S] for every sequence or head.  A mask of one row has
 * [1][S] in place of [T][S], which counts for every query. */
struct attn_modifiers {
    enum attn_causal is_causal;    /* default: the layer's; without a layer, not causal */
    const int64_t *query_offset;   /* [B] query t stands at key position query_offset + t;
                                      NULL: S - T */
    const uint8_t *padding_mask;   /* [B][S] 1 = real token, 0 = never attended */
    const uint8_t *attention_mask; /* [..][T][S] 1 = may attend */
    size_t attention_mask_batch_stride, attention_mask_head_stride; /* 0 = broadcast */
    bool attention_mask_one_row;
    const float *attention_bias; /* [..][T][S] added to the soft-capped and masked scores; -inf
                                    forbids */
    size_t attention_bias_batch_stride, attention_bias_head_stride; /* 0 = broadcast */
    bool attention_bias_one_row;
    const float *head_mask;            /* [H] multiplies each head's weights */
    const int64_t *position_ids;       /* [B][T] for RoPE, 0 to 2^31-1; NULL: t, counted from the
                                      cached length */
    size_t grid[2];                    /* rows and columns of patches, where rope.grid_prefix;
                                          else {0, 0} */
    double scale;                      /* 0: the layer's; without a layer 1/sqrt(D) */
    bool has_softcap, has_window;      /* what follows counts, not the layer's */
    double softcap;                    /* c > 0: scaled scores become c tanh(score / c); 0: none */
    int64_t window_left, window_right; /* a query at key position i sees keys from i - left to
                                          i + right; -1 = open on that side */
    bool tree; /* steps only, for tree-shaped speculation: attention_mask is [T][T], among the new
                  rows, each of which sees the cached tokens within the window.  Distances (window,
                  position bias) then follow position_ids, where given. */
};

/* The heads and query tokens of which attention_weights, attention_scores, query and head_output
 * are wanted; all zeroes: all.  Indices are distinct, in any order; results stand in that order. */
struct attn_selection {
    const size_t *heads; /* [num_heads] indices below H; NULL: all */
    size_t num_heads;
    const size_t *rows; /* [num_rows] indices of query tokens, below T; NULL: all */
    size_t num_rows;
};

/* The shape of a head's weights, by the thresholds that docs/NUMERICS.md gives. */
enum attn_pattern {
    ATTN_PATTERN_GLOBAL = 0, /* spread over what it may see */
    ATTN_PATTERN_PREVIOUS,   /* on the token before */
    ATTN_PATTERN_SINK,       /* on the first token */
    ATTN_PATTERN_POSITIONAL, /* at one distance, whatever that is */
    ATTN_PATTERN_LOCAL,      /* on tokens near by */
    ATTN_PATTERN_FOCUSED,    /* on few tokens, wherever they are */
};

/* "global", "previous", ...; static, never NULL. */
const char *attn_pattern_name(enum attn_pattern pattern);

/* Statistics of one head: means over the rows that see a key, of weights w_j before head_mask, i
 * being the query's key position.  Where the weights of a row sum to less than 1, because a sink or
 * an appended key takes its share, so do the shares below. */
struct attn_head_stats {
    size_t rows;           /* number of query tokens that see one of the S keys; if 0, all is 0 */
    double entropy;        /* -sum_j w_j ln w_j, nats */
    double mean_distance;  /* sum_j w_j |i - j|, tokens */
    double self, previous; /* w_i, w_{i-1} */
    double first;          /* weight of the first key that is no padding */
    double local;          /* sum of w_j, |i - j| <= local_radius */
    double largest;        /* max_j w_j */
    enum attn_pattern pattern;
    /* Of the rows that have a target: their number, the mean weight of the target, and the share of
     * them whose largest weight is the target's.  0 where targets are not given. */
    size_t target_rows;
    double target, target_hits;
};

/* Weight of one head on a group of keys: means over the same rows as in struct attn_head_stats. */
struct attn_group_stats {
    double share; /* sum of w_j over the group's keys */
    double hits;  /* share of rows whose largest weight is in the group */
};

#define ATTN_MAX_TARGET_GROUPS 16

/* The stage of the computation at which attention_scores takes a score. */
enum attn_stage {
    ATTN_STAGE_RAW = 0, /* scaled; every key has one, seen or not */
    ATTN_STAGE_SOFTCAP, /* scaled and soft-capped */
    ATTN_STAGE_MASKED,  /* capped, masked (-inf) and biased: the input of the softmax */
};

/* How maps are reduced to blocks: to the largest or to the mean of each block's cells.  Minus
 * infinity in scores counts as itself for the largest; a mean is that of the finite scores, and
 * minus infinity where a block has none. */
enum attn_pool_type { ATTN_POOL_MAX = 0, ATTN_POOL_MEAN };

/* A pooled map has R' = min(rows, T') rows and C' = min(columns, W or S) columns.  Cell (r, c)
 * covers rows floor(r T' / R') to ceil((r + 1) T' / R') - 1 of the selected rows, in their order,
 * and columns likewise, as in PyTorch's adaptive pooling. */
#define ATTN_MAX_POOL 4096
struct attn_map_pooling {
    size_t rows, columns; /* 1 to ATTN_MAX_POOL; both 0: maps are whole */
    enum attn_pool_type type;
    double *sums; /* [attn_pool_sums] memory for pooling */
};

/* Where results go; NULL: not wanted.  W is S plus the layer's bias_kv and add_zero_attn columns,
 * which stand last (attn_weight_columns); H' and T' are the heads and rows selected.  Buffers are
 * the caller's, in the sizes below, and overlap neither each other nor any input.
 *
 * Cost: weights, scores, statistics and top_k make each thread keep the scores of up to 64 rows of
 * one head until their softmax is complete; nothing of size T x S exists unless the caller's
 * buffers have that size.  Statistics, means and pooled maps do not depend on the number of
 * threads.  Where only query, key and value are asked for no attention is computed, and without
 * `output` no product with Wo.  query, key, value, head_output and concat are copied from where a
 * call has them anyway.  `ablation` costs an output projection for all heads together, and one
 * more where `output` is NULL. */
struct attn_outputs {
    float *output; /* [B][T][E]; weightless [B][H][T][Dv] */
    struct attn_selection selection;
    struct attn_map_pooling pool; /* of the three maps below, which then have R' and C' for T', W
                                     and S; not with top_index */
    float *attention_weights;     /* [B][H'][T'][W] */
    float *average_weights;       /* [B][T'][W] mean over the selected heads */
    float *attention_scores;      /* [B][H'][T'][S] at `stage`; appended keys have none */
    enum attn_stage stage;
    size_t top_k;        /* 1 to W, where top_index or top_weight is wanted */
    uint32_t *top_index; /* [B][H'][T'][top_k] columns of the largest weights, largest first, the
                            lower column first among equals; with average_weights the largest of
                            the mean, [B][T'][top_k] */
    float *top_weight;   /* the weights of top_index, same shape */
    struct attn_head_stats *head_stats; /* [B][H], over all rows */
    size_t local_radius;                /* of head_stats */
    const int64_t *targets;             /* [B][T] input of head_stats: the key that a row is asked
                                           about, 0 to S-1, or -1: none; NULL: no row is */
    const uint16_t *target_groups;      /* [S] input of group_stats: bit g is set where the key is
                                           in group g, in every sequence */
    size_t num_target_groups;           /* 1 to ATTN_MAX_TARGET_GROUPS, with group_stats */
    /* [B][H][num_target_groups]; only with head_stats */
    struct attn_group_stats *group_stats;
    double *ablation;   /* [B][H] the Frobenius norm of output minus output with head_mask 0 for the
                           head, relative to that of output, over all rows; 0 where output is 0 */
    float *lse;         /* [B][H][T]; -inf for a row that sees nothing */
    float *key;         /* [B][G][S][D] after bias, norm and RoPE; those of a step are read back
                           from the cache, in kv_dtype */
    float *value;       /* [B][G][S][Dv] */
    float *query;       /* [B][H'][T'][D] as scored: after bias, norm and RoPE, before `scale` */
    float *head_output; /* [B][H'][T'][Dv] sum_s w_s v_s of each head, after head_mask, before Wo */
    float *concat;      /* [B][T][H*Dv] the same of all heads side by side, as Wo reads them */
};

/* W, the columns of the attention weights over `keys` keys: S, plus one for bias_kv and one for
 * add_zero_attn. */
size_t attn_weight_columns(const struct attn_layer_spec *spec, size_t keys);

/* The sizes of a call's maps: B, H, G, T, S, W. */
struct attn_map_sizes {
    size_t batch, num_heads, num_kv_heads, queries, keys, columns;
};

/* The doubles that pool.sums of a call needs, whose outputs are set but for pool.sums; 0 where maps
 * are whole.  For each pooled map these are C' times T' or about T (H/G) / 64 + R', whichever is
 * less, of scores for a mean twice as many. */
size_t attn_pool_sums(const struct attn_outputs *outputs, const struct attn_map_sizes *sizes);

/* ---- Attention over given rows -------------------------------------------------------------- */

/* Arguments of attn_core.  D and Dv may differ; H is a multiple of G. */
struct attn_core_args {
    size_t batch, queries, keys; /* B, T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim;
    const float *query;              /* [B][H][T][D] */
    const float *key;                /* [B][G][S][D] */
    const float *value;              /* [B][G][S][Dv] */
    struct attn_modifiers modifiers; /* position_ids has no meaning here */
    struct attn_outputs outputs; /* of query, head_output, concat, key, value and ablation none */
    const struct attn_yield *yield; /* NULL: gives way to nothing */
};

/* Core attention without weights (PyTorch's scaled_dot_product_attention): the formula at the head
 * of this file from q, k, v on, without Wo and bo.  Blocks until the result is there; runs on all
 * threads of the engine.
 * Cost: 2 B H T S (D + Dv) operations, halved where causal; memory beside inputs and outputs is
 * O(T+S) per head, never T x S (attn_call_bytes with model NULL).
 * Errors: ATTN_INVALID, ATTN_SHAPE_MISMATCH, ATTN_OUT_OF_RANGE, ATTN_NON_FINITE, ATTN_OVERFLOW,
 * ATTN_CANCELLED, ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_core(struct attn_engine *engine,
                                           const struct attn_core_args *args,
                                           struct attn_error *error);

/* Arguments of attn_attend: self-attention where key_hidden_states is NULL, else
 * cross-attention. */
struct attn_attend_args {
    size_t batch, queries, keys;      /* B, T, S; keys is ignored for self-attention */
    const float *hidden_states;       /* [B][T][E] */
    const float *key_hidden_states;   /* [B][S][key_size] or NULL */
    const float *value_hidden_states; /* [B][S][value_size]; NULL: key_hidden_states */
    struct attn_modifiers modifiers;
    struct attn_outputs outputs;
    const struct attn_yield *yield; /* NULL: gives way to nothing */
};

/* One layer over given rows, without a cache: projects, rotates, attends and projects back, the
 * whole formula at the head of this file.  Blocks until the result is there; runs on all threads of
 * the engine.
 *
 * RoPE needs queries and keys that are the same tokens: cross-attention of a layer with RoPE is
 * refused with ATTN_UNSUPPORTED, as is self-attention of a layer that is_cross.
 * Cost: projections, 2 B T E (2 H D + 2 G D) operations with D = Dv and T = S, and attn_core's.
 * Sequences are computed in portions of 512 rows, or of one sequence that is longer, so memory does
 * not grow with B (attn_call_bytes).
 * Errors: as attn_core; ATTN_NOT_FOUND (layer), ATTN_UNSUPPORTED. */
ATTN_MUST_CHECK enum attn_status attn_attend(struct attn_engine *engine,
                                             const struct attn_model *model, size_t layer,
                                             const struct attn_attend_args *args,
                                             struct attn_error *error);

/* ---- Key/value caches ----------------------------------------------------------------------- */

struct attn_cache_pool; /* a byte budget that caches draw blocks of 64 tokens from */
struct attn_cache;      /* keys and values of one sequence, in all resident layers of a model */

/* A pool that never holds more than `budget` bytes of blocks.  Memory is taken when caches grow and
 * given back to the system where caches of other models need it.  Any thread.
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_pool_new(struct attn_cache_pool **out, size_t budget);

/* Frees the pool, after all of its caches. */
void attn_cache_pool_free(struct attn_cache_pool *pool);

/* Bytes of the budget in use: each block once, and 16 bytes for each further cache that shares it.
 * Any thread. */
size_t attn_cache_pool_used(const struct attn_cache_pool *pool);

/* The budget, bytes. */
size_t attn_cache_pool_budget(const struct attn_cache_pool *pool);

/* An empty cache for one sequence of up to max_length tokens.  No block is taken yet: blocks of 64
 * tokens are drawn from the pool layer by layer as steps append.  Model and pool must outlive the
 * cache.
 * Errors: ATTN_OUT_OF_RANGE (max_length), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_cache_new(struct attn_cache **out,
                                                struct attn_cache_pool *pool,
                                                const struct attn_model *model, size_t max_length,
                                                struct attn_error *error);

/* Frees a cache; blocks that no other cache shares return to the pool at once. */
void attn_cache_free(struct attn_cache *cache);

/* L, the tokens cached in one layer; 0 where the layer is not resident.  Any thread, also while a
 * step appends: a length counts once all its tokens are there. */
size_t attn_cache_length(const struct attn_cache *cache, size_t layer);

/* max_length, as attn_cache_new was given it. */
size_t attn_cache_max_length(const struct attn_cache *cache);

/* Bytes of the blocks that hold tokens, shared blocks in full.  Blocks that windows have forgotten
 * (attn_state.h) are not counted. */
size_t attn_cache_bytes(const struct attn_cache *cache);

/* Bytes of the blocks that hold the first `tokens` tokens of a layer, without those that its window
 * has forgotten by now; 0 where the layer is not resident. */
size_t attn_cache_layer_bytes(const struct attn_cache *cache, size_t layer, size_t tokens);

/* One step: n rows appended to one cache (n = 1: decode; more: prefill or speculation).  Each row
 * attends over the cached tokens, the rows before it and itself.  A step of a layer that is_cross
 * attends over the encoder rows of its cache alone (attn_cache_encode of attn_state.h), S being
 * their number; such a step appends nothing, whatever commit says, and position has no meaning. */
struct attn_step {
    struct attn_cache *cache;
    size_t position; /* the layer's length, to append; or smaller, to compute rows that are cached
                        already again (position + rows <= length): nothing is written then */
    size_t rows;     /* n >= 1, the number of tokens */
    const float *hidden_states;       /* [n][E]; not of a weightless model */
    const float *query, *key, *value; /* [H][n][D], [G][n][D], [G][n][Dv]: of a weightless model, in
                                         place of hidden_states */
    struct attn_modifiers modifiers;  /* B = 1, T = n, S = position + n; causal by default */
    struct attn_outputs outputs;      /* B = 1; key and value cover all S */
    bool commit;                      /* keep the rows; false leaves the cache as it was */
    const struct attn_yield *yield;   /* of the whole batch, read from its first step; or NULL */
    struct attn_error error;          /* out: status ATTN_OK, or why this step alone failed */
};

/* Runs steps over distinct caches of one model and layer as a batch, on all threads of the engine.
 *
 * Each step succeeds or fails alone, as its `error` says, and a failed step leaves its cache bit
 * for bit as it was.  The bits of a step's results do not depend on the other steps, their number,
 * or the number of threads; a step computed again at the position it was first computed at gives
 * the same bits.
 * Cost: the layer's weights are streamed once for all steps of up to 64 rows, and each step's keys
 * and values once for every 64 query rows of a key/value head.
 * Returns ATTN_OK, or the status for which no step could run (ATTN_NOT_FOUND: layer;
 * ATTN_NO_MEMORY, ATTN_CANCELLED), repeated in every step's error.  Errors of a step: ATTN_INVALID,
 * ATTN_SHAPE_MISMATCH, ATTN_OUT_OF_RANGE, ATTN_NON_FINITE, ATTN_OVERFLOW, ATTN_UNSUPPORTED,
 * ATTN_CACHE_FULL, ATTN_POOL_FULL, ATTN_FORGOTTEN (it sees keys that the layer's window has given
 * up: attn_state.h), ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_decode(struct attn_engine *engine,
                                             const struct attn_model *model, size_t layer,
                                             struct attn_step *const steps[], size_t count);

#endif
