/* test_attention.c: attn_core against the oracle over random shapes and modifiers, and properties
 * that hold for every call. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "engine/mask.h"
#include "oracle.h"
#include "rng.h"
#include "suites.h"

/* One sequence, whose heads share keys and values. */
#define SIZED(T, S, H, D, DV)                                                              \
    .batch = 1, .queries = T, .keys = S, .num_heads = H, .num_kv_heads = 1, .head_dim = D, \
    .value_head_dim = DV

static struct attn_engine *engine;
static struct attn_error error;

static void setup(void) { ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK); }

static struct attn_engine *engine_of_one_thread(void)
{
    struct attn_engine *one;
    ck_assert_int_eq(attn_engine_open(&one, &(struct attn_engine_options){.threads = 1}, &error),
                     ATTN_OK);
    return one;
}

static void teardown(void) { attn_engine_close(engine); }

/* A random call and its inputs. */
struct problem {
    struct attn_core_args args;
    float *query, *key, *value, *bias, *head_mask;
    uint8_t *padding, *mask;
    int64_t *offsets;
};

static void make_masks(struct problem *p, struct rng *r)
{
    struct attn_core_args *a = &p->args;
    struct attn_modifiers *m = &a->modifiers;
    size_t plane = a->queries * a->keys;
    bool per_head = rng_below(r, 2), per_batch = rng_below(r, 2);
    size_t planes = (per_batch ? a->batch : 1) * (per_head ? a->num_heads : 1);
    m->is_causal = rng_below(r, 2) ? ATTN_CAUSAL_YES : ATTN_CAUSAL_DEFAULT;
    if (rng_below(r, 3) == 0)
        m->padding_mask = p->padding = rng_bytes(r, a->batch * a->keys, 80);
    if (rng_below(r, 3) == 0) {
        m->attention_mask = p->mask = rng_bytes(r, planes * plane, 70);
        m->attention_mask_head_stride = per_head ? plane : 0;
        m->attention_mask_batch_stride = per_batch ? plane * (per_head ? a->num_heads : 1) : 0;
    }
    if (rng_below(r, 3) == 0) {
        m->attention_bias = p->bias = rng_floats(r, planes * plane, 2);
        m->attention_bias_head_stride = per_head ? plane : 0;
        m->attention_bias_batch_stride = per_batch ? plane * (per_head ? a->num_heads : 1) : 0;
        for (size_t i = 0; i < planes * plane; i += 1 + rng_below(r, 17))
            p->bias[i] = -INFINITY;
    }
    if (rng_below(r, 4) == 0)
        m->head_mask = p->head_mask = rng_floats(r, a->num_heads, 1);
    if (rng_below(r, 4) == 0) {
        m->query_offset = p->offsets = malloc(a->batch * sizeof *p->offsets);
        for (size_t b = 0; b < a->batch; b++)
            p->offsets[b] = (int64_t)rng_below(r, (unsigned)a->keys + 4) - 3;
    }
    if (rng_below(r, 3) == 0) {
        m->has_window = true;
        m->window_left = (int64_t)rng_below(r, 90) - 1;
        m->window_right = (int64_t)rng_below(r, 20) - 1;
    }
    if (rng_below(r, 4) == 0) {
        m->has_softcap = true;
        m->softcap = 0.5 + rng_below(r, 50);
    }
    if (rng_below(r, 4) == 0)
        m->scale = 0.05 + 0.01 * rng_below(r, 30);
}

static void make_problem(struct problem *p, struct rng *r)
{
    const size_t groups = 1 + rng_below(r, 4);
    *p = (struct problem){0};
    p->args = (struct attn_core_args){
        .batch = 1 + rng_below(r, 3),
        .queries = 1 + rng_below(r, rng_below(r, 4) ? 20 : 150),
        .keys = 1 + rng_below(r, rng_below(r, 4) ? 40 : 300),
        .num_heads = groups * (1 + rng_below(r, rng_below(r, 8) ? 5 : 90)),
        .num_kv_heads = groups,
        .head_dim = 1 + rng_below(r, rng_below(r, 4) ? 24 : 140),
        .value_head_dim = 1 + rng_below(r, rng_below(r, 4) ? 24 : 140),
    };
    struct attn_core_args *a = &p->args;
    p->query = rng_floats(r, a->batch * a->num_heads * a->queries * a->head_dim, 1.5f);
    p->key = rng_floats(r, a->batch * a->num_kv_heads * a->keys * a->head_dim, 1.5f);
    p->value = rng_floats(r, a->batch * a->num_kv_heads * a->keys * a->value_head_dim, 1);
    a->query = p->query;
    a->key = p->key;
    a->value = p->value;
    make_masks(p, r);
}

static void free_problem(struct problem *p)
{
    free(p->query);
    free(p->key);
    free(p->value);
    free(p->bias);
    free(p->head_mask);
    free(p->padding);
    free(p->mask);
    free(p->offsets);
}

static void run(struct attn_core_args *args)
{
    ck_assert_msg(attn_core(engine, args, &error) == ATTN_OK, "%s", error.message);
}

static void compare_with_oracle(struct problem *p, unsigned seed)
{
    struct attn_core_args *a = &p->args;
    size_t rows = a->batch * a->num_heads * a->queries, pairs = a->batch * a->queries;
    float *got = malloc((rows * (a->value_head_dim + a->keys + 1) + pairs * a->keys) * sizeof *got);
    double *want =
        malloc((rows * (a->value_head_dim + a->keys + 1) + pairs * a->keys) * sizeof *want);
    size_t w = rows * a->value_head_dim, l = w + rows * a->keys, m = l + rows;
    a->outputs = (struct attn_outputs){
        .output = got, .attention_weights = got + w, .lse = got + l, .average_weights = got + m};
    struct oracle_outputs oracle = {
        .output = want, .weights = want + w, .average = want + m, .lse = want + l};
    run(a);
    oracle_core(&oracle, a);
    ck_assert_msg(oracle_error(got, want, rows, a->value_head_dim) < 2e-5, "output, seed %u", seed);
    ck_assert_msg(oracle_error(got + w, want + w, rows, a->keys) < 2e-5, "weights, seed %u", seed);
    ck_assert_msg(oracle_error(got + l, want + l, rows, 1) < 2e-5, "lse, seed %u", seed);
    ck_assert_msg(oracle_error(got + m, want + m, pairs, a->keys) < 2e-5, "mean, seed %u", seed);
    free(got);
    free(want);
}

CASE(core, setup, teardown, 120)

TEST(attention_equals_the_oracle_over_random_calls)
{
    const unsigned count = 400;
    for (unsigned seed = 1; seed <= count; seed++) {
        struct rng r = rng_seeded(seed);
        struct problem p;
        make_problem(&p, &r);
        compare_with_oracle(&p, seed);
        free_problem(&p);
    }
    printf("attention: %u random calls equal the oracle\n", count);
}

TEST(attention_output_alone_has_the_bits_it_has_beside_weights_and_scores)
{
    struct rng r = rng_seeded(77);
    for (int i = 0; i < 40; i++) {
        struct problem p;
        make_problem(&p, &r);
        struct attn_core_args *a = &p.args;
        size_t rows = a->batch * a->num_heads * a->queries, n = rows * a->value_head_dim;
        float *alone = malloc(n * sizeof *alone), *beside = malloc(n * sizeof *beside);
        float *weights = malloc(rows * a->keys * sizeof *weights);
        float *scores = malloc(rows * a->keys * sizeof *scores);
        a->outputs = (struct attn_outputs){.output = alone};
        run(a);
        a->outputs = (struct attn_outputs){
            .output = beside, .attention_weights = weights, .attention_scores = scores};
        run(a);
        ck_assert_mem_eq(alone, beside, n * sizeof *alone);
        free(alone);
        free(beside);
        free(weights);
        free(scores);
        free_problem(&p);
    }
}

TEST(attention_row_that_sees_nothing_gives_zero_and_lse_of_minus_infinity)
{
    float q[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8}, k[3 * 4] = {0}, v[3 * 2] = {1, 2, 3, 4, 5, 6};
    float out[2 * 2], weights[2 * 3], lse[2];
    uint8_t mask[2 * 3] = {0, 0, 0, 1, 0, 1};
    struct attn_core_args args = {
        SIZED(2, 3, 1, 4, 2),
        .query = q,
        .key = k,
        .value = v,
        .modifiers = {.attention_mask = mask},
        .outputs = {.output = out, .attention_weights = weights, .lse = lse}};
    run(&args);
    ck_assert_float_eq(out[0], 0);
    ck_assert_float_eq(out[1], 0);
    ck_assert_float_eq(weights[0] + weights[1] + weights[2], 0);
    ck_assert(lse[0] == -INFINITY);
    ck_assert_float_eq_tol(out[2], 3, 1e-6f);
    ck_assert_float_eq_tol(lse[1], logf(2), 1e-6f);
}

TEST(attention_later_keys_do_not_change_earlier_causal_rows)
{
    struct rng r = rng_seeded(5);
    const size_t tokens = 150, d = 32;
    float *x = rng_floats(&r, 3 * tokens * d, 1);
    float *first = malloc(tokens * d * sizeof *first),
          *second = malloc(tokens * d * sizeof *second);
    struct attn_core_args args = {SIZED(tokens, tokens, 1, d, d),
                                  .query = x,
                                  .key = x + tokens * d,
                                  .value = x + 2 * tokens * d,
                                  .modifiers = {.is_causal = ATTN_CAUSAL_YES},
                                  .outputs = {.output = first}};
    run(&args);
    for (size_t i = 0; i < d; i++)
        x[2 * tokens * d - 1 - i] = x[3 * tokens * d - 1 - i] = 9;
    args.outputs.output = second;
    run(&args);
    ck_assert_mem_eq(first, second, (tokens - 1) * d * sizeof *first);
    ck_assert_mem_ne(first + (tokens - 1) * d, second + (tokens - 1) * d, d * sizeof *first);
    free(x);
    free(first);
    free(second);
}

#define REFUSED 16

TEST(attention_refuses_wrong_values_by_name)
{
    float q[4] = {1, 2, 3, 4}, bias[1] = {NAN}, gate[1] = {INFINITY}, out[4];
    int64_t offset[1] = {INT64_MAX};
    uint32_t top[1];
    const size_t twice[2] = {0, 0};
    struct attn_head_stats head_stats[1];
    struct attn_group_stats group_stats[1];
    const struct attn_core_args good = {SIZED(1, 1, 1, 4, 4), .query = q, .key = q, .value = q,
                                        .outputs = {.output = out}};
    struct attn_core_args bad[REFUSED];
    const struct {
        enum attn_status status;
        const char *param;
    } expected[REFUSED] = {
        {ATTN_OUT_OF_RANGE, "batch"},
        {ATTN_OUT_OF_RANGE, "queries"},
        {ATTN_OUT_OF_RANGE, "keys"},
        {ATTN_OUT_OF_RANGE, "head_dim"},
        {ATTN_NON_FINITE, "attention_bias"},
        {ATTN_OUT_OF_RANGE, "head_mask"},
        {ATTN_OUT_OF_RANGE, "query_offset"},
        {ATTN_OUT_OF_RANGE, "num_key_value_heads"},
        {ATTN_OUT_OF_RANGE, "softcap"},
        {ATTN_UNSUPPORTED, "attention_mask"},
        {ATTN_INVALID, "top_k"},
        {ATTN_OUT_OF_RANGE, "top_k"},
        {ATTN_OUT_OF_RANGE, "stage"},
        {ATTN_INVALID, "heads"},
        {ATTN_INVALID, "group_stats"},
        {ATTN_INVALID, "target_groups"},
    };
    for (int i = 0; i < REFUSED; i++)
        bad[i] = good;
    bad[0].batch = 0;
    bad[1].queries = SIZE_MAX;
    bad[2].keys = 0;
    bad[3].head_dim = 100000;
    bad[4].modifiers.attention_bias = bias;
    bad[5].modifiers.head_mask = gate;
    bad[6].modifiers.query_offset = offset;
    bad[7].num_kv_heads = 2;
    bad[8].modifiers.has_softcap = true;
    bad[8].modifiers.softcap = 1e-50;
    bad[9].modifiers.tree = true;
    bad[10].outputs.top_index = top;
    bad[11].outputs.top_index = top;
    bad[11].outputs.top_weight = out;
    bad[11].outputs.top_k = 2;
    bad[12].outputs.stage = (enum attn_stage)7;
    bad[13].outputs.selection = (struct attn_selection){.heads = twice, .num_heads = 2};
    for (int i = 14; i < REFUSED; i++) {
        bad[i].outputs.group_stats = group_stats;
        bad[i].outputs.num_target_groups = 1;
    }
    bad[15].outputs.head_stats = head_stats;
    for (int i = 0; i < REFUSED; i++) {
        ck_assert_int_eq(attn_core(engine, &bad[i], &error), expected[i].status);
        ck_assert_str_eq(error.param, expected[i].param);
    }
    q[2] = NAN;
    ck_assert_int_eq(attn_core(engine, &good, &error), ATTN_NON_FINITE);
    ck_assert_str_eq(error.message, "query is not finite at element 2");
    q[2] = 1e20f;
    ck_assert_int_eq(attn_core(engine, &good, &error), ATTN_OUT_OF_RANGE);
}

/* Hugging Face forbids a key by adding the lowest float32.  A row whose keys are all forbidden that
 * way shares its weight evenly. */
TEST(attention_bias_of_the_lowest_float_is_not_minus_infinity)
{
    float q[2] = {-3e7f, 1}, k[4] = {1e7f, 0, 2e7f, 0}, v[2] = {1, 3}, out[1], lse[1], weights[2];
    float bias[2] = {-FLT_MAX, -FLT_MAX};
    struct attn_core_args args = {
        SIZED(1, 2, 1, 2, 1),
        .query = q,
        .key = k,
        .value = v,
        .modifiers = {.attention_bias = bias},
        .outputs = {.output = out, .attention_weights = weights, .lse = lse}};
    run(&args);
    ck_assert_float_eq(out[0], 2);
    ck_assert_float_eq(weights[0], 0.5f);
    ck_assert(isfinite(lse[0]));
    bias[1] = 0;
    run(&args);
    ck_assert_float_eq(out[0], 3);
}

TEST(attention_largest_legal_magnitudes_stay_finite)
{
    enum { D = ATTN_MAX_HEAD_DIM };
    float q[D], k[2 * D], v[2] = {1e15f, -1e15f}, out[1], lse[1], gate[1] = {1e15f};
    for (size_t i = 0; i < D; i++) {
        q[i] = k[i] = 1e15f;
        k[D + i] = -1e15f;
    }
    struct attn_core_args args = {SIZED(1, 2, 1, D, 1),
                                  .query = q,
                                  .key = k,
                                  .value = v,
                                  .modifiers = {.head_mask = gate, .scale = 1e5},
                                  .outputs = {.output = out, .lse = lse}};
    run(&args);
    ck_assert_float_eq_tol(out[0], 1e30f, 1e24f);
    ck_assert(isfinite(lse[0]) && lse[0] > 1e38f);
    args.modifiers.scale = 2e5;
    ck_assert_int_eq(attn_core(engine, &args, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "scale");
}

/* Keys are summed in splits of 4,096, by rows and by columns alike and wherever a row's keys
 * begin. */
TEST(attention_over_many_keys_is_near_the_oracle_and_the_same_by_rows_and_columns)
{
    enum { T = 40, S = 9000, H = 2, D = 16, DV = 24 };
    struct rng r = rng_seeded(31);
    float *q = rng_floats(&r, H * T * D, 1), *k = rng_floats(&r, S * D, 2);
    float *v = rng_floats(&r, S * DV, 1), *weights = malloc(sizeof(float) * H * T * S);
    float out[H * T * DV], beside[H * T * DV], lse[H * T];
    double want[H * T * DV], want_lse[H * T];
    const int64_t windows[] = {-1, 4100, 50};
    for (size_t w = 0; w < COUNT(windows); w++) {
        struct attn_core_args args = {SIZED(T, S, H, D, DV),
                                      .query = q,
                                      .key = k,
                                      .value = v,
                                      .modifiers = {.is_causal = ATTN_CAUSAL_YES,
                                                    .has_window = true,
                                                    .window_left = windows[w],
                                                    .window_right = -1},
                                      .outputs = {.output = out, .lse = lse}};
        run(&args);
        oracle_core(&(struct oracle_outputs){.output = want, .lse = want_lse}, &args);
        ck_assert_double_lt(oracle_error(out, want, H * T, DV), 1e-5);
        ck_assert_double_lt(oracle_error(lse, want_lse, H, T), 1e-5);
        args.outputs.output = beside;
        args.outputs.attention_weights = weights;
        run(&args);
        ck_assert_mem_eq(out, beside, sizeof out);
    }
    free(q);
    free(k);
    free(v);
    free(weights);
}

/* So many rows that a task has several units, as many as scratch holds of such heads. */
TEST(attention_over_the_widest_heads_is_near_the_oracle)
{
    enum { T = 1024, S = 16, H = 2, D = ATTN_MAX_HEAD_DIM };
    static const size_t widths[][2] = {{D, D}, {576, D}, {D, 768}, {576, 512}};
    struct attn_engine *const one = engine_of_one_thread();
    struct rng r = rng_seeded(77);
    float *q = rng_floats(&r, H * T * D, 0.3f), *k = rng_floats(&r, S * D, 0.3f);
    float *v = rng_floats(&r, S * D, 1), *out = malloc(sizeof *out * H * T * D);
    double *want = malloc(sizeof *want * H * T * D);
    for (size_t w = 0; w < COUNT(widths); w++) {
        struct attn_core_args args = {SIZED(T, S, H, widths[w][0], widths[w][1]), .query = q,
                                      .key = k, .value = v, .outputs = {.output = out}};
        ck_assert_int_eq(attn_core(one, &args, &error), ATTN_OK);
        oracle_core(&(struct oracle_outputs){.output = want}, &args);
        ck_assert_double_lt(oracle_error(out, want, H * T, widths[w][1]), 1e-5);
    }
    attn_engine_close(one);
    free(q);
    free(k);
    free(v);
    free(out);
    free(want);
}

/* With one token of few heads threads can share only the keys of a unit. */
TEST(attention_of_one_unit_has_the_same_bits_however_many_threads_share_its_keys)
{
    enum { S = 13000, H = 40, D = 8, DV = 12 };
    static const size_t heads[] = {1, 5, 32, H};
    static const int64_t windows[] = {-1, 9000, 4100, 50};
    struct rng r = rng_seeded(32);
    float *q = rng_floats(&r, 2 * H * D, 1), *k = rng_floats(&r, S * D, 2);
    float *v = rng_floats(&r, S * DV, 1);
    uint8_t *padding = rng_bytes(&r, S, 50);
    float out[2][2 * H * DV], lse[2][2 * H];
    struct attn_engine *engines[2];
    memset(padding, 0, 5000); /* no key of the first split is seen */
    for (unsigned e = 0; e < 2; e++) {
        struct attn_engine_options options = {.threads = 1 + 3 * e};
        ck_assert_int_eq(attn_engine_open(&engines[e], &options, &error), ATTN_OK);
    }
    for (size_t i = 0; i < 32; i++) {
        struct attn_core_args args = {SIZED(1 + i / 16, S - i, heads[i % 4], D, DV), .query = q,
                                      .key = k, .value = v,
                                      .modifiers = {.is_causal = ATTN_CAUSAL_YES,
                                                    .padding_mask = i % 8 < 4 ? NULL : padding,
                                                    .has_window = true,
                                                    .window_left = windows[i / 4 % 4],
                                                    .window_right = -1}};
        for (unsigned e = 0; e < 2; e++) {
            args.outputs = (struct attn_outputs){.output = out[e], .lse = lse[e]};
            ck_assert_int_eq(attn_core(engines[e], &args, &error), ATTN_OK);
        }
        ck_assert_mem_eq(out[0], out[1], sizeof(float) * args.queries * args.num_heads * DV);
        ck_assert_mem_eq(lse[0], lse[1], sizeof(float) * args.queries * args.num_heads);
    }
    for (unsigned e = 0; e < 2; e++)
        attn_engine_close(engines[e]);
    free(q);
    free(k);
    free(v);
    free(padding);
}

TEST(attention_levels_agree_within_rounding)
{
    struct rng r = rng_seeded(11);
    struct problem p;
    make_problem(&p, &r);
    size_t n = p.args.batch * p.args.num_heads * p.args.queries * p.args.value_head_dim;
    double *want = malloc(n * sizeof *want);
    float *got = malloc(n * sizeof *got);
    struct oracle_outputs oracle = {.output = want};
    oracle_core(&oracle, &p.args);
    p.args.outputs.output = got;
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *own;
        struct attn_engine_options options = {.threads = 3, .level = level};
        if (attn_engine_open(&own, &options, &error) != ATTN_OK)
            continue; /* this CPU does not have the level */
        ck_assert_int_eq(attn_core(own, &p.args, &error), ATTN_OK);
        ck_assert_double_lt(
            oracle_error(got, want, n / p.args.value_head_dim, p.args.value_head_dim), 2e-5);
        attn_engine_close(own);
    }
    free(want);
    free(got);
    free_problem(&p);
}

/* ---- Spans ---- */

static void expect_span(const struct attn_mask_defaults *defaults, const uint8_t *padding, size_t t,
                        size_t first, size_t end)
{
    const struct attn_modifiers modifiers = {.padding_mask = padding};
    const struct attn_mask mask = attn_mask_of(&modifiers, defaults, 0, 20, 20);
    const struct attn_span span = attn_mask_visible(&mask, t);
    ck_assert_msg(span.first == first && span.end == end,
                  "query %zu sees [%zu, %zu), not [%zu, %zu)", t, span.first, span.end, first, end);
    ck_assert(padding != NULL || attn_mask_is_span(&mask));
}

/* Tiles outside of a span are not computed, so that windows and chunks save their cost. */
TEST(attention_spans_end_where_windows_of_both_sides_and_chunks_do)
{
    static const uint8_t padding[20] = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct attn_mask_defaults both = {.sliding_window = 3, .two_sided = true};
    const struct attn_mask_defaults chunks = {.causal = true, .chunk = 6};
    const struct attn_mask_defaults whole = {.chunk = 6};
    const struct attn_mask_defaults narrow = {.causal = true, .chunk = 6, .sliding_window = 2};
    expect_span(&both, NULL, 0, 0, 3);
    expect_span(&both, NULL, 9, 7, 12);
    expect_span(&both, NULL, 19, 17, 20);
    expect_span(&chunks, NULL, 5, 0, 6);
    expect_span(&chunks, NULL, 13, 12, 14);
    expect_span(&chunks, padding, 13, 9, 14);
    expect_span(&chunks, padding, 8, 3, 9);
    expect_span(&whole, NULL, 13, 12, 18);
    expect_span(&whole, NULL, 19, 18, 20);
    expect_span(&narrow, NULL, 12, 12, 13);
    expect_span(&narrow, NULL, 17, 16, 18);
}

SUITE(attention)
