/* test_ablation.c: how much the output changes without a head: against a sum in double over the
 * packed weights, against pairs of calls with and without head_mask, and for the bits that threads
 * and batches must not change. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "basics/half_float.h"
#include "basics/mem.h"
#include "golden.h"
#include "layers/ablation.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "property_draw.h"
#include "suites.h"

#define CLOSE 1e-4

static struct attn_engine *engine;
static struct attn_model *model;
static const struct attn_layer *layer;

/* Opens an engine; false where this CPU lacks the level. */
static bool open_engine(enum attn_cpu_level level, unsigned threads)
{
    const struct attn_engine_options options = {.threads = threads, .level = level};
    struct attn_error error;
    enum attn_status status = attn_engine_open(&engine, &options, &error);
    ck_assert_msg(status == ATTN_OK || status == ATTN_UNSUPPORTED, "%s", error.message);
    return status == ATTN_OK;
}

static void open_random(const char *config, enum attn_dtype dtype, size_t index)
{
    const struct attn_model_options options = {.dtype = dtype};
    model = opened_random(config, &options);
    layer = attn_model_loaded_layer(model, index);
}

/* ---- Against the weights --------------------------------------------------------------------- */

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};

/* Heads that begin and end within words of weights, cross ranges of inputs, or are few. */
static const char *const configs[] = {
    "{\"hidden_size\":40,\"num_attention_heads\":24,\"head_dim\":80,\"attention_bias\":true}",
    "{\"hidden_size\":33,\"num_attention_heads\":5,\"head_dim\":7,\"attention_bias\":true,"
    "\"alibi\":true}",
    "{\"hidden_size\":260,\"num_attention_heads\":9,\"head_dim\":45,\"alibi\":true}",
    "{\"hidden_size\":64,\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":64}",
};
#define CONFIGS COUNT(configs)

/* Rows [n] as the level multiplies them with weights of the dtype. */
static void round_row(double *out, const float *x, size_t n, bool rounds_bf16)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    for (size_t i = 0; i < n; i++) {
        out[i] = (double)x[i];
        if (layer->o.dtype == ATTN_BF16 && rounds_bf16)
            out[i] = (double)attn_bf16_to_float(attn_float_to_bf16(x[i]));
        if (layer->o.dtype == ATTN_INT8) {
            const double step = (double)largest / (layer->o.wide_rows ? 127 * 256 : 127);
            out[i] = largest > 0 ? step * nearbyint((double)x[i] / step) : 0;
        }
    }
}

/* The sum of squares of what inputs [first, first + n) of the rows add to the output, or, where
 * `biased`, of the output. */
static double sum_squares(const float *x, size_t rows, size_t first, size_t n, bool biased,
                          bool rounds_bf16)
{
    const struct attn_linear *o = &layer->o;
    double sum = 0, *row = malloc(n * sizeof *row), *weights = malloc(n * o->out * sizeof *weights);
    for (size_t i = 0; i < n * o->out; i++)
        weights[i] = (double)oracle_weight(o, i / n, first + i % n);
    for (size_t r = 0; r < rows; r++) {
        round_row(row, x + r * o->in + first, n, rounds_bf16);
        for (size_t e = 0; e < o->out; e++) {
            double y = biased && o->bias != NULL ? (double)o->bias[e] : 0;
            for (size_t i = 0; i < n; i++)
                y += row[i] * weights[e * n + i];
            sum += y * y;
        }
    }
    free(row);
    free(weights);
    return sum;
}

/* [sequences][heads] */
static double *shares_of(const float *x, size_t sequences, size_t queries, bool rounds_bf16)
{
    const size_t heads = layer->spec.num_heads, dv = layer->spec.value_head_dim, in = layer->o.in;
    double *out = malloc(sequences * heads * sizeof *out);
    for (size_t b = 0; b < sequences; b++) {
        const float *rows = x + b * queries * in;
        const double of = sum_squares(rows, queries, 0, in, true, rounds_bf16);
        for (size_t h = 0; h < heads; h++)
            out[b * heads + h] =
                sqrt(sum_squares(rows, queries, h * dv, dv, false, rounds_bf16) / of);
    }
    return out;
}

static void check_share(const double *want, const float *x, size_t sequences, size_t queries)
{
    const size_t count = sequences * layer->spec.num_heads;
    const struct attn_ablated ablated = {
        .layer = layer, .concat = x, .sequences = sequences, .queries = queries};
    double *got = malloc(count * sizeof *got);
    struct attn_error error;
    attn_engine_lock(engine, NULL);
    (void)attn_workspace_alloc(&engine->workspace, 1, 1); /* as a call has, before a mark */
    ck_assert_int_eq(attn_ablate(got, engine, &ablated, &error), ATTN_OK);
    attn_engine_unlock(engine);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= CLOSE * want[i],
                      "%s, head %zu: %.9g, expected %.9g", attn_dtype_name(layer->o.dtype), i,
                      got[i], want[i]);
    free(got);
}

/* At every level; the sums in double are taken once for those that round alike. */
static void check_levels(const float *x, size_t sequences, size_t queries)
{
    double *want[2] = {NULL, NULL};
    for (unsigned level = ATTN_CPU_PORTABLE; level < ATTN_NUM_CPU_LEVELS; level++) {
        if (!open_engine(level, 2))
            continue;
        const bool rounds = layer->o.dtype == ATTN_BF16 && engine->kernels.bf16_rounds_rows;
        if (want[rounds] == NULL)
            want[rounds] = shares_of(x, sequences, queries, rounds);
        check_share(want[rounds], x, sequences, queries);
        attn_engine_close(engine);
    }
    free(want[0]);
    free(want[1]);
}

START_TEST(test_ablation_is_the_norm_of_each_heads_share_of_the_output)
{
    static const size_t shapes[][2] = {{1, 1}, {3, 2}, {1, 7}, {2, 130}};
    struct rng rng = rng_seeded(5);
    for (size_t c = 0; c < CONFIGS * 4; c++) {
        open_random(configs[c / 4], dtypes[c % 4], 0);
        for (size_t s = 0; s < COUNT(shapes) - (c / 4 == 0); s++) {
            float *x = rng_floats(&rng, shapes[s][0] * shapes[s][1] * layer->o.in, 2);
            check_levels(x, shapes[s][0], shapes[s][1]);
            free(x);
        }
        attn_model_close(model);
    }
}
END_TEST

/* ---- Against two calls ----------------------------------------------------------------------- */

static double norm_of_difference(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b != NULL ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Relative to what it is or, of a head that adds little, to what rounding outputs to float32
 * leaves of the difference of two of them. */
static void expect_change(const char *what, size_t head, double got, double want, double close)
{
    ck_assert_msg(fabs(got - want) <= close * want + 2e-6, "%s, head %zu: %.9g, expected %.9g",
                  what, head, got, want);
}

/* Compares an attend's ablation with calls of the same with the head's head_mask at 0. */
static void compare_attends(const char *what, struct attn_attend_args args, size_t index,
                            double close)
{
    const size_t heads = layer->spec.num_heads, width = layer->spec.hidden_size;
    const size_t n = args.queries * width;
    float *output = malloc(2 * args.batch * n * sizeof *output), *other = output + args.batch * n;
    float *mask = malloc(heads * sizeof *mask);
    struct attn_head_stats *stats = malloc(args.batch * heads * sizeof *stats);
    double *got = malloc(args.batch * heads * sizeof *got);
    struct attn_error error = {0};
    const float *own = args.modifiers.head_mask;
    args.outputs = (struct attn_outputs){.output = output, .head_stats = stats, .ablation = got};
    /* a head has no share of its own where heads are normalised or subtracted together */
    const bool joined = attn_layer_joins_heads(&layer->spec);
    ck_assert_msg(attn_attend(engine, model, index, &args, &error) ==
                      (joined ? ATTN_UNSUPPORTED : ATTN_OK),
                  "%s: %s", what, error.message);
    args.outputs = (struct attn_outputs){.output = other};
    args.modifiers.head_mask = mask;
    for (size_t h = 0; h < heads && !joined; h++) {
        for (size_t i = 0; i < heads; i++)
            mask[i] = i == h ? 0 : own != NULL ? own[i] : 1;
        ck_assert_int_eq(attn_attend(engine, model, index, &args, &error), ATTN_OK);
        for (size_t b = 0; b < args.batch; b++) {
            double of = norm_of_difference(output + b * n, NULL, n);
            double change = norm_of_difference(output + b * n, other + b * n, n);
            expect_change(what, b * heads + h, got[b * heads + h], of > 0 ? change / of : 0, close);
        }
    }
    free(output);
    free(mask);
    free(stats);
    free(got);
}

static struct golden_set set;

/* Once, before the tests' processes part. */
static void load_set(void) { golden_load(&set); }

static void free_set(void) { golden_free(&set); }

/* Every case with f32, a model's first with the others. */
static bool is_taken(size_t i, enum attn_dtype dtype)
{
    const struct golden_case *c = &set.cases[i];
    return c->model[0] != '\0' && c->hidden_states != NULL &&
           (dtype == ATTN_F32 || i == 0 || strcmp(c->model, set.cases[i - 1].model) != 0);
}

START_TEST(test_ablation_of_golden_checkpoints_is_that_of_two_calls)
{
    size_t checked = 0;
    const enum attn_dtype dtype = dtypes[_i];
    ck_assert(open_engine(ATTN_CPU_AUTO, 2));
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        struct attn_error error = {0};
        const struct attn_model_options options = {.stack = c->stack[0] ? c->stack : NULL,
                                                   .dtype = dtype};
        if (!is_taken(i, dtype))
            continue;
        ck_assert_msg(attn_model_open(&model, c->path, &options, &error) == ATTN_OK &&
                          attn_model_load(model, &error) == ATTN_OK,
                      "%s: %s", c->name, error.message);
        layer = attn_model_loaded_layer(model, c->layer);
        const struct attn_attend_args args = {.batch = c->batch,
                                              .queries = c->queries,
                                              .keys = c->keys,
                                              .hidden_states = c->hidden_states,
                                              .key_hidden_states = c->key_states,
                                              .value_hidden_states = c->value_states,
                                              .modifiers = {.padding_mask = c->padding,
                                                            .position_ids = c->positions,
                                                            .grid = {c->grid[0], c->grid[1]}}};
        compare_attends(c->name, args, c->layer, dtype == ATTN_INT8 ? 0.05 : CLOSE);
        attn_model_close(model);
        checked++;
    }
    attn_engine_close(engine);
    ck_assert_uint_gt(checked, 100);
}
END_TEST

START_TEST(test_ablation_of_random_calls_is_that_of_two_calls)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        struct draw draw;
        if (!open_engine(1 + seed % (ATTN_NUM_CPU_LEVELS - 1), 1 + seed % 2))
            continue;
        draw_layer(&draw, seed);
        open_random(draw.json, seed % 3 == 0 ? ATTN_BF16 : ATTN_F32, draw.layer);
        draw_call(&draw, &layer->spec);
        if (draw.call.queries > 40)
            draw.call.batch = 1;
        compare_attends(draw.json, draw.call, draw.layer, CLOSE);
        attn_model_close(model);
        attn_engine_close(engine);
        draw_free(&draw);
    }
}
END_TEST

/* ---- Steps ----------------------------------------------------------------------------------- */

#define STEPS 4
#define WIDTH 48
#define HEADS 6

static const char steps_config[] = "{\"hidden_size\":48,\"num_attention_heads\":6,\"head_dim\":20,"
                                   "\"num_key_value_heads\":2,\"rope_theta\":10000}";

/* Steps of 1, 5, 70 and 300 rows, over caches of 3 tokens. */
static const size_t step_rows[STEPS] = {1, 5, 70, 300};

struct step_run {
    struct attn_cache *caches[STEPS];
    struct attn_step steps[STEPS];
    float *output; /* [sum of rows][WIDTH] */
    double ablation[STEPS][HEADS];
    struct attn_head_stats stats[HEADS];
};

static void prepare_steps(struct step_run *run, struct attn_cache_pool *pool, const float *x,
                          const float *mask)
{
    run->output = calloc(400 * WIDTH, sizeof *run->output);
    size_t at = 0;
    for (size_t i = 0; i < STEPS; i++) {
        ck_assert_int_eq(attn_cache_new(&run->caches[i], pool, model, 400, NULL), ATTN_OK);
        struct attn_step prefill = {
            .cache = run->caches[i], .rows = 3, .hidden_states = x, .commit = true};
        struct attn_step *list[] = {&prefill};
        ck_assert_int_eq(attn_decode(engine, model, 0, list, 1), ATTN_OK);
        run->steps[i] = (struct attn_step){
            .cache = run->caches[i],
            .position = 3,
            .rows = step_rows[i],
            .hidden_states = x + (3 + i) * WIDTH,
            .modifiers = {.head_mask = mask},
            .outputs = {.output = run->output + at, .ablation = run->ablation[i]}};
        at += step_rows[i] * WIDTH;
    }
}

static void run_steps(struct step_run *run, size_t from, size_t count)
{
    struct attn_step *list[STEPS];
    for (size_t i = 0; i < count; i++)
        list[i] = &run->steps[from + i];
    ck_assert_int_eq(attn_decode(engine, model, 0, list, count), ATTN_OK);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(list[i]->error.status == ATTN_OK, "%s", list[i]->error.message);
}

static void free_steps(struct step_run *run)
{
    for (size_t i = 0; i < STEPS; i++)
        attn_cache_free(run->caches[i]);
    free(run->output);
}

START_TEST(test_ablation_of_steps_is_that_of_two_calls_and_has_the_same_bits_in_any_batch)
{
    struct rng rng = rng_seeded(8);
    float *x = rng_floats(&rng, 400 * WIDTH, 2);
    float mask[HEADS] = {1, 1, 1, 0, 0.5f, 1};
    struct step_run alone, batch;
    double first[STEPS][HEADS];
    struct attn_cache_pool *pool;
    ck_assert(open_engine(ATTN_CPU_AUTO, 1));
    open_random(steps_config, dtypes[_i], 0);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    prepare_steps(&alone, pool, x, mask);
    for (size_t i = 0; i < STEPS; i++)
        run_steps(&alone, i, 1);
    memcpy(first, alone.ablation, sizeof first);
    attn_engine_close(engine);
    ck_assert(open_engine(ATTN_CPU_AUTO, 2));
    prepare_steps(&batch, pool, x, mask);
    run_steps(&batch, 0, STEPS);
    ck_assert_mem_eq(first, batch.ablation, sizeof first);
    batch.steps[2].outputs.output = batch.steps[3].outputs.output = NULL;
    run_steps(&batch, 0, STEPS); /* the same, whether or not the output is asked for */
    ck_assert_mem_eq(first, batch.ablation, sizeof first);
    for (size_t h = 0; h < HEADS; h++) {
        float without[HEADS], own = mask[h];
        memcpy(without, mask, sizeof without);
        without[h] = 0;
        for (size_t i = 0; i < STEPS; i++) {
            struct attn_step *step = &batch.steps[i];
            step->modifiers.head_mask = without;
            step->outputs = (struct attn_outputs){
                .output = batch.output + (alone.steps[i].outputs.output - alone.output)};
        }
        run_steps(&batch, 0, STEPS);
        for (size_t i = 0; i < STEPS; i++) {
            const float *output = alone.steps[i].outputs.output;
            size_t n = step_rows[i] * WIDTH;
            double change = norm_of_difference(output, batch.steps[i].outputs.output, n);
            expect_change("step", i * HEADS + h, first[i][h],
                          change / norm_of_difference(output, NULL, n),
                          dtypes[_i] == ATTN_INT8 ? 0.05 : CLOSE);
            ck_assert(own != 0 || first[i][h] == 0);
        }
    }
    free_steps(&alone);
    free_steps(&batch);
    attn_cache_pool_free(pool);
    attn_model_close(model);
    attn_engine_close(engine);
    free(x);
}
END_TEST

/* ---- Ends of numbers ------------------------------------------------------------------------- */

START_TEST(test_ablation_of_an_output_of_zeros_is_zero)
{
    const float x[2 * WIDTH] = {0};
    double got[HEADS];
    struct attn_error error;
    ck_assert(open_engine(ATTN_CPU_AUTO, 2));
    open_random(steps_config, ATTN_F32, 0);
    const struct attn_attend_args args = {
        .batch = 1, .queries = 2, .hidden_states = x, .outputs = {.ablation = got}};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
    for (size_t h = 0; h < HEADS; h++)
        ck_assert_double_eq(got[h], 0);
    attn_model_close(model);
    attn_engine_close(engine);
}
END_TEST

START_TEST(test_ablation_beyond_float32_is_an_error)
{
    double got[HEADS];
    struct attn_error error;
    ck_assert(open_engine(ATTN_CPU_AUTO, 2));
    open_random(steps_config, ATTN_F32, 0);
    float *concat = malloc(layer->o.in * sizeof *concat);
    for (size_t i = 0; i < layer->o.in; i++)
        concat[i] = oracle_weight(&layer->o, 0, i) > 0 ? FLT_MAX : -FLT_MAX;
    const struct attn_ablated ablated = {layer, concat, NULL, 1, 1};
    attn_engine_lock(engine, NULL);
    (void)attn_workspace_alloc(&engine->workspace, 1, 1);
    ck_assert_int_eq(attn_ablate(got, engine, &ablated, &error), ATTN_OVERFLOW);
    attn_engine_unlock(engine);
    attn_model_close(model);
    attn_engine_close(engine);
    free(concat);
}
END_TEST

Suite *suite_ablation(void)
{
    Suite *suite = suite_create("ablation");
    TCase *calls = suite_cases(suite, "calls", NULL, NULL, 600); /* a sanitizer may take so long */
    tcase_add_unchecked_fixture(calls, load_set, free_set);
    tcase_add_test(calls, test_ablation_is_the_norm_of_each_heads_share_of_the_output);
    tcase_add_loop_test(calls, test_ablation_of_golden_checkpoints_is_that_of_two_calls, 0, 4);
    tcase_add_test(calls, test_ablation_of_random_calls_is_that_of_two_calls);
    tcase_add_loop_test(
        calls, test_ablation_of_steps_is_that_of_two_calls_and_has_the_same_bits_in_any_batch, 0,
        4);
    tcase_add_test(calls, test_ablation_of_an_output_of_zeros_is_zero);
    tcase_add_test(calls, test_ablation_beyond_float32_is_an_error);
    return suite;
}
