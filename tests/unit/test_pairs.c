/* test_pairs.c: attention over given rows where keys and values are multiplied as pairs of bf16
 * (lib/attention/forward.h says where), at every level that this CPU has.
 *
 * The oracle attends in double over the queries, keys and values of the reply; where pairs are
 * multiplied it gets keys and values rounded to the nearest bf16. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/forward.h"
#include "basics/half_float.h"
#include "machine/cpu.h"
#include "models/model.h"
#include "opened.h"
#include "oracle.h"
#include "rng.h"
#include "suites.h"

#define HEADS 6
#define GROUPS 2
#define DIM 40
#define VALUE 72
#define WIDTH 96
#define TOKENS 150
#define ZERO 1 /* keys that add_zero_attn appends, which are multiplied in float32 */
#define TOLERANCE 1e-5
#define PAIRS_TOLERANCE 5e-5 /* queries and weights are cut to 17 bits (docs/NUMERICS.md) */
#define LAYER                                                                            \
    "{\"hidden_size\":96,\"num_attention_heads\":6,\"num_key_value_heads\":2,"           \
    "\"head_dim\":40,\"value_head_dim\":72,\"attention_bias\":true,\"rope_theta\":1000," \
    "\"is_causal\":true,\"add_zero_attn\":true,\"seed\":4}"

static struct attn_error error;

static struct attn_model *open_model(enum attn_dtype dtype, enum attn_dtype kv_dtype)
{
    const struct attn_model_options options = {.dtype = dtype, .kv_dtype = kv_dtype};
    return opened_random(LAYER, &options);
}

static bool open_engine(struct attn_engine **out, unsigned level, unsigned threads)
{
    const struct attn_engine_options options = {
        .threads = threads, .level = level, .gemm = ATTN_GEMM_PACKED};
    return attn_engine_open(out, &options, &error) == ATTN_OK;
}

struct results {
    float *query, *key, *value, *concat, *lse, *weights;
};

static struct results new_results(size_t tokens)
{
    return (struct results){malloc(HEADS * tokens * DIM * sizeof(float)),
                            malloc(GROUPS * tokens * DIM * sizeof(float)),
                            malloc(GROUPS * tokens * VALUE * sizeof(float)),
                            malloc(HEADS * tokens * VALUE * sizeof(float)),
                            malloc(HEADS * tokens * sizeof(float)),
                            malloc(HEADS * tokens * (tokens + ZERO) * sizeof(float))};
}

static void free_results(struct results *r)
{
    free(r->query);
    free(r->key);
    free(r->value);
    free(r->concat);
    free(r->lse);
    free(r->weights);
}

/* Attends over the first `tokens` rows of x; weights are asked for where `weights` is set. */
static void attend(const struct results *out, struct attn_engine *engine,
                   const struct attn_model *model, const float *x, size_t tokens, bool weights)
{
    const struct attn_attend_args args = {
        .batch = 1,
        .queries = tokens,
        .hidden_states = x,
        .outputs = {.query = out->query,
                    .key = out->key,
                    .value = out->value,
                    .concat = out->concat,
                    .lse = out->lse,
                    .attention_weights = weights ? out->weights : NULL},
    };
    ck_assert_msg(attn_attend(engine, model, 0, &args, &error) == ATTN_OK, "%s", error.message);
}

static bool in_pairs(const struct attn_model *model, unsigned level)
{
    struct attn_kernels kernels;
    attn_kernels_get(&kernels, attn_cpu_features(level));
    return attn_layer_attends_in_pairs(attn_model_loaded_layer(model, 0), &kernels);
}

/* x as doubles, rounded to bf16 where `rounded` is set; the caller frees. */
static double *widened(const float *x, size_t n, bool rounded)
{
    double *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (double)(rounded ? attn_bf16_to_float(attn_float_to_bf16(x[i])) : x[i]);
    return out;
}

/* Compares a reply with attention in double. */
static void compare(const struct results *got, size_t tokens, bool rounded)
{
    static const double zero[GROUPS * VALUE];
    const double most = rounded ? PAIRS_TOLERANCE : TOLERANCE;
    double *query = widened(got->query, HEADS * tokens * DIM, false);
    double *key = widened(got->key, GROUPS * tokens * DIM, rounded);
    double *value = widened(got->value, GROUPS * tokens * VALUE, rounded);
    double *output = calloc(HEADS * tokens * VALUE, sizeof *output);
    double *lse = calloc(HEADS * tokens, sizeof *lse);
    double *weights = calloc(HEADS * tokens * (tokens + ZERO), sizeof *weights);
    float *heads = malloc(HEADS * tokens * VALUE * sizeof *heads); /* [H][T][Dv], as the oracle's */
    struct oracle_outputs want = {.output = output, .lse = lse, .weights = weights};
    const struct oracle_problem problem = {
        .batch = 1,
        .queries = tokens,
        .keys = tokens,
        .num_heads = HEADS,
        .num_kv_heads = GROUPS,
        .head_dim = DIM,
        .value_head_dim = VALUE,
        .query = query,
        .key = key,
        .value = value,
        .extra_key = zero,
        .extra_value = zero,
        .extra = ZERO,
        .modifiers = {.is_causal = ATTN_CAUSAL_YES,
                      .scale = 1 / sqrt(DIM),
                      .window_left = -1,
                      .window_right = -1},
    };
    oracle_solve(&want, &problem);
    for (size_t i = 0; i < HEADS * tokens; i++)
        memcpy(heads + (i % HEADS * tokens + i / HEADS) * VALUE, got->concat + i * VALUE,
               VALUE * sizeof *heads);
    ck_assert_double_lt(oracle_error(heads, output, HEADS * tokens, VALUE), most);
    ck_assert_double_lt(oracle_error(got->lse, lse, 1, HEADS * tokens), most);
    ck_assert_double_lt(oracle_error(got->weights, weights, HEADS * tokens, tokens + ZERO), most);
    free(query);
    free(key);
    free(value);
    free(output);
    free(lse);
    free(weights);
    free(heads);
}

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};
static const enum attn_dtype kv_dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_INT8};
#define COMBINATIONS 16

static bool level_has_pairs(unsigned level)
{
#if defined __x86_64__
    return level == ATTN_CPU_AVX512AMX;
#else
    return level == ATTN_NUM_CPU_LEVELS; /* none of arm64's */
#endif
}

CASE(pairs, NULL, NULL, 120)

/* Pairs are multiplied where neither dtype is finer than bf16, and nowhere else. */
TEST_EACH(pairs_keys_and_values_are_rounded_where_both_dtypes_allow_it, COMBINATIONS)
{
    const enum attn_dtype dtype = dtypes[_i / 4], kv_dtype = kv_dtypes[_i % 4];
    const bool allowed = dtype != ATTN_F32 && (kv_dtype == ATTN_BF16 || kv_dtype == ATTN_INT8);
    struct attn_model *model = open_model(dtype, kv_dtype);
    struct rng r = rng_seeded(6);
    float *x = rng_floats(&r, TOKENS * WIDTH, 3);
    struct results got = new_results(TOKENS);
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *engine;
        if (!open_engine(&engine, level, 2))
            continue;
        const bool rounded = allowed && level_has_pairs(level);
        ck_assert_int_eq(in_pairs(model, level), rounded);
        for (size_t tokens = 1; tokens <= TOKENS; tokens += 149) {
            attend(&got, engine, model, x, tokens, true);
            compare(&got, tokens, rounded);
        }
        attn_engine_close(engine);
    }
    free_results(&got);
    free(x);
    attn_model_close(model);
}

/* Whether the first `tokens` rows of both have the same bits. */
static bool same_rows(const struct results *a, const struct results *b, size_t tokens,
                      size_t tokens_of_b)
{
    bool same = memcmp(a->concat, b->concat, tokens * HEADS * VALUE * sizeof(float)) == 0;
    for (size_t h = 0; h < HEADS; h++)
        same = same &&
               memcmp(a->lse + h * tokens, b->lse + h * tokens_of_b, tokens * sizeof(float)) == 0;
    return same;
}

TEST_EACH(pairs_a_row_has_the_same_bits_whatever_is_computed_with_it, COMBINATIONS / 4)
{
    const enum attn_dtype dtype = dtypes[_i];
    struct attn_model *model = open_model(dtype, ATTN_BF16);
    struct rng r = rng_seeded(7);
    float *x = rng_floats(&r, TOKENS * WIDTH, 3);
    struct results all = new_results(TOKENS), some = new_results(TOKENS);
    for (unsigned level = ATTN_CPU_PORTABLE + 1; level < ATTN_NUM_CPU_LEVELS; level++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct attn_engine *engine;
            if (!open_engine(&engine, level, threads))
                continue;
            if (threads == 1)
                attend(&all, engine, model, x, TOKENS, true);
            for (size_t tokens = 1; tokens <= TOKENS; tokens++) {
                attend(&some, engine, model, x, tokens, false);
                ck_assert_msg(same_rows(&some, &all, tokens, TOKENS),
                              "level %u, %u threads: %zu rows have other bits than %d with weights",
                              level, threads, tokens, TOKENS);
            }
            attn_engine_close(engine);
        }
    free_results(&all);
    free_results(&some);
    free(x);
    attn_model_close(model);
}

SUITE(pairs)
