/* test_steps.c: properties of prefill and decode over caches that hold whatever the numbers are.
 * That the numbers are right, golden and property show, and that batches and threads do not change
 * them, check-invariance. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "layers/mla.h"
#include "models/model.h"
#include "opened.h"
#include "rng.h"
#include "suites.h"

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_error error;
static enum attn_dtype kv_dtype; /* of the models that random_model opens */
#define NUM_DTYPES 4

static void setup(void)
{
    kv_dtype = ATTN_F32;
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)256 << 20), ATTN_OK);
}

static void teardown(void)
{
    free_unused_pool(pool);
    attn_engine_close(engine);
}

static struct attn_model *random_model(const char *config)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    return opened_random(config, &options);
}

/* Rows [from, from + n) of x [..][E] appended to the cache, outputs into out [..][E]. */
static void append(struct attn_cache *cache, const struct attn_model *model, const float *x,
                   float *out, size_t from, size_t n)
{
    size_t width = attn_model_layer(model, 0)->hidden_size;
    struct attn_step step = {
        .cache = cache,
        .position = from,
        .rows = n,
        .hidden_states = x + from * width,
        .outputs = {.output = out + from * width},
        .commit = true,
    };
    ck_assert_msg(one_step(engine, model, 0, &step) == ATTN_OK, "%s", step.error.message);
}

/* ---- Layers that read others ---- */

/* Appends a step of `n` rows of x to a layer; returns its status. */
static enum attn_status append_to(struct attn_cache *cache, const struct attn_model *model,
                                  size_t layer, const float *x, size_t n)
{
    struct attn_step step = {.cache = cache,
                             .position = attn_cache_length(cache, layer),
                             .rows = n,
                             .hidden_states = x,
                             .commit = true};
    return one_step(engine, model, layer, &step);
}

CASE(steps, setup, teardown, 120)

/* Layer 2 of that model reads the keys and values of layer 0. */
TEST(steps_of_a_layer_that_reads_another_take_no_block_and_come_after_it)
{
    struct attn_model *model;
    struct attn_cache *fork;
    struct rng r = rng_seeded(29);
    ck_assert_int_eq(attn_model_open(&model, "tests/golden/gemma4_kv_shared/model", NULL, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    float *x = rng_floats(&r, 5 * attn_model_layer(model, 0)->hidden_size, 1);
    struct attn_cache *cache = opened_cache(pool, model, 64);
    ck_assert_int_eq(append_to(cache, model, 2, x, 5), ATTN_INVALID);
    ck_assert_int_eq(append_to(cache, model, 0, x, 5), ATTN_OK);
    const size_t bytes = attn_cache_bytes(cache);
    ck_assert_int_eq(append_to(cache, model, 2, x, 5), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 2), 5);
    ck_assert_uint_eq(attn_cache_bytes(cache), bytes);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 3, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(fork, 2), 3);
    ck_assert_int_eq(append_to(fork, model, 2, x, 1), ATTN_INVALID);
    ck_assert_int_eq(append_to(fork, model, 0, x, 1), ATTN_OK);
    ck_assert_int_eq(append_to(fork, model, 2, x, 1), ATTN_OK);
    ck_assert(attn_cache_truncate(cache, 0));
    ck_assert_uint_eq(attn_cache_length(cache, 2), 0);
    attn_cache_free(fork);
    attn_cache_free(cache);
    attn_model_close(model);
    free(x);
}

/* A layer with a window keeps what a slower layer that reads it still sees, and a state of both can
 * be written.  A layer whose source is not resident has no tokens. */
TEST(steps_of_a_layer_that_reads_another_may_stay_behind)
{
    static const size_t reader = 2, behind[] = {1, 100, 386};
    struct attn_model *model;
    struct attn_export *state;
    struct rng r = rng_seeded(31);
    ck_assert_int_eq(
        attn_model_open(&model, "tests/golden/gemma4_kv_shared/model",
                        &(struct attn_model_options){.layers = &reader, .num_layers = 1}, &error),
        ATTN_OK);
    struct attn_cache *cache = opened_cache(pool, model, 1000);
    ck_assert_uint_eq(attn_cache_first(cache, reader), 0);
    ck_assert_int_eq(attn_export_open(&state, cache, NULL, 0, &error), ATTN_OK);
    attn_export_close(state);
    attn_cache_free(cache);
    attn_model_close(model);

    ck_assert_int_eq(attn_model_open(&model, "tests/golden/gemma4_kv_shared/model", NULL, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    float *x = rng_floats(&r, 500 * attn_model_layer(model, 0)->hidden_size, 1);
    for (size_t i = 0; i < 3; i++) {
        cache = opened_cache(pool, model, 1000);
        ck_assert_int_eq(append_to(cache, model, 0, x, 386), ATTN_OK);
        ck_assert_int_eq(append_to(cache, model, reader, x, behind[i]), ATTN_OK);
        for (size_t step = 0; step < 3; step++)
            ck_assert_int_eq(append_to(cache, model, 0, x, 50), ATTN_OK);
        ck_assert_uint_le(attn_cache_first(cache, reader), behind[i]);
        ck_assert_uint_eq(attn_cache_layer_bytes(cache, reader, 536), 0);
        ck_assert_int_eq(attn_export_open(&state, cache, NULL, 0, &error), ATTN_OK);
        ck_assert_uint_lt(attn_export_bytes(state), (size_t)1 << 20);
        attn_export_close(state);
        ck_assert_int_eq(append_to(cache, model, reader, x, 1), ATTN_OK);
        attn_cache_free(cache);
    }
    free(x);
    attn_model_close(model);
}

/* ---- Batches ---- */

#define WIDTH 96
static const char batch_config[] = "{\"hidden_size\":96,\"num_attention_heads\":6,"
                                   "\"num_key_value_heads\":2,\"rope_theta\":10000,\"seed\":5}";

/* 800 inputs are more than two blocks of a product, 200 rows more than one. */
TEST_RANGE(steps_prefill_and_single_steps_give_the_same_bits, (ATTN_CPU_PORTABLE + 1) * NUM_DTYPES,
           ATTN_NUM_CPU_LEVELS *NUM_DTYPES)
{
    const struct attn_engine_options options = {.level = (enum attn_cpu_level)(_i / NUM_DTYPES)};
    struct attn_engine *usual = engine;
    if (attn_engine_open(&engine, &options, &error) == ATTN_UNSUPPORTED)
        return;
    kv_dtype = (enum attn_dtype)(_i % NUM_DTYPES);
    struct rng r = rng_seeded(17);
    struct attn_model *model = random_model("{\"hidden_size\":800,\"num_attention_heads\":10,"
                                            "\"num_key_value_heads\":2,\"rope_theta\":10000}");
    const size_t rows = 200, n = rows * 800;
    float *x = rng_floats(&r, n, 1), *whole = calloc(n, sizeof *whole);
    float *single = calloc(n, sizeof *single);
    struct attn_cache *a = opened_cache(pool, model, rows), *b = opened_cache(pool, model, rows);
    append(a, model, x, whole, 0, rows);
    for (size_t t = 0; t < rows; t++)
        append(b, model, x, single, t, 1);
    ck_assert_mem_eq(whole, single, n * sizeof *whole);
    attn_cache_free(a);
    attn_cache_free(b);
    free(x);
    free(whole);
    free(single);
    attn_model_close(model);
    attn_engine_close(engine);
    engine = usual;
}

TEST(steps_a_bad_member_fails_alone_and_leaves_its_cache)
{
    struct rng r = rng_seeded(9);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, 3 * WIDTH, 1), out[3 * WIDTH], want[WIDTH];
    struct attn_cache *caches[4];
    struct attn_step step[4], *steps[4];
    for (int i = 0; i < 4; i++) {
        caches[i] = opened_cache(pool, model, i == 2 ? 1 : 10);
        append(caches[i], model, x, out, 0, 1);
        step[i] = (struct attn_step){.cache = caches[i],
                                     .position = 1,
                                     .rows = 1,
                                     .hidden_states = x + WIDTH,
                                     .outputs = {.output = out + i % 3 * WIDTH},
                                     .commit = true};
        steps[i] = &step[i];
    }
    float bad[WIDTH], huge[WIDTH];
    memcpy(bad, x, sizeof bad);
    bad[5] = NAN;
    for (size_t i = 0; i < WIDTH; i++)
        huge[i] = i % 2 ? 3e38f : -3e38f;
    step[1].hidden_states = bad;
    step[3].hidden_states = huge;
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 4), ATTN_OK);
    ck_assert_int_eq(step[0].error.status, ATTN_OK);
    ck_assert_int_eq(step[1].error.status, ATTN_NON_FINITE);
    ck_assert_int_eq(step[2].error.status, ATTN_CACHE_FULL);
    ck_assert_int_eq(step[3].error.status, ATTN_OVERFLOW);
    for (int i = 1; i < 4; i++)
        ck_assert_uint_eq(attn_cache_length(caches[i], 0), 1);
    memcpy(want, out, sizeof want);
    append(caches[3], model, x, out, 1, 1); /* as if the failure had not been */
    ck_assert_mem_eq(out + WIDTH, want, sizeof want);
    for (int i = 0; i < 4; i++)
        attn_cache_free(caches[i]);
    free(x);
    attn_model_close(model);
}

/* Weights of values of the largest float: what heads put out is then not finite. */
TEST(steps_heads_of_latents_that_overflow_are_refused_without_an_output)
{
    enum { EMBED = 16, HEADS = 2, VALUE = 4 };
    struct rng r = rng_seeded(20);
    struct attn_model *model = random_model(
        "{\"hidden_size\":16,\"num_attention_heads\":2,\"kv_lora_rank\":8,\"qk_nope_head_dim\":4,"
        "\"qk_rope_head_dim\":4,\"value_head_dim\":4}");
    const struct attn_linear *up = &attn_model_loaded_layer(model, 0)->mla_heads[1].v_up;
    float *x = rng_floats(&r, EMBED, 1), heads[HEADS * VALUE], concat[HEADS * VALUE];
    struct attn_cache *cache = opened_cache(pool, model, 4);
    struct attn_step step = {.cache = cache, .rows = 1, .hidden_states = x, .commit = true};
    struct attn_step *steps[] = {&step};
    for (size_t i = 0; i < up->in * ATTN_PANEL; i++)
        ((float *)up->panels)[i] = FLT_MAX;
    for (int i = 0; i < 2; i++) {
        step.outputs = i == 0 ? (struct attn_outputs){.head_output = heads}
                              : (struct attn_outputs){.concat = concat};
        ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
        ck_assert_int_eq(step.error.status, ATTN_OVERFLOW);
        ck_assert_uint_eq(attn_cache_length(cache, 0), 0);
    }
    attn_cache_free(cache);
    free(x);
    attn_model_close(model);
}

/* A call over rows, and a step with as many rows, fail with ATTN_OVERFLOW. */
static void expect_overflow(const struct attn_model *model, const float *x, size_t rows)
{
    float *out = malloc(rows * WIDTH * sizeof *out);
    struct attn_cache *cache = opened_cache(pool, model, rows);
    const struct attn_attend_args args = {
        .batch = 1, .queries = rows, .hidden_states = x, .outputs = {.output = out}};
    struct attn_step step = {.cache = cache,
                             .rows = rows,
                             .hidden_states = x,
                             .outputs = {.output = out},
                             .commit = true};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OVERFLOW);
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    ck_assert_int_eq(step.error.status, ATTN_OVERFLOW);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 0);
    attn_cache_free(cache);
    free(out);
}

TEST(steps_one_number_that_overflows_fails_few_rows_and_many)
{
    static const char *const configs[] = {
        "{\"hidden_size\":96,\"num_attention_heads\":6,\"attention_bias\":true}",
        "{\"hidden_size\":96,\"num_attention_heads\":6,\"attention_bias\":true,"
        "\"rope_theta\":10000}",
    };
    enum { ROWS = 200 };
    struct rng r = rng_seeded(19);
    float *x = rng_floats(&r, ROWS * WIDTH, 1);
    for (int i = 0; i < 2 * 4; i++) { /* a query, key, value, output */
        struct attn_model *model = random_model(configs[i / 4]);
        struct attn_layer *layer = (struct attn_layer *)attn_model_loaded_layer(model, 0);
        struct attn_linear *linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
        linears[i % 4]->bias[linears[i % 4]->out - 1] = i % 4 == 3 ? INFINITY : 2e15f;
        expect_overflow(model, x, 3);
        expect_overflow(model, x, ROWS);
        attn_model_close(model);
    }
    free(x);
}

TEST(steps_one_cache_twice_in_a_batch_fails_the_second)
{
    struct rng r = rng_seeded(10);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, WIDTH, 1), out[2 * WIDTH];
    struct attn_cache *cache = opened_cache(pool, model, 10);
    struct attn_step a = {
        .cache = cache, .rows = 1, .hidden_states = x, .outputs = {.output = out}, .commit = true};
    struct attn_step b = a, *steps[] = {&a, &b};
    b.outputs.output = out + WIDTH;
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 2), ATTN_OK);
    ck_assert_int_eq(a.error.status, ATTN_OK);
    ck_assert_int_eq(b.error.status, ATTN_INVALID);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 1);
    attn_cache_free(cache);
    free(x);
    attn_model_close(model);
}

TEST(steps_refuse_a_cache_of_another_model)
{
    struct rng r = rng_seeded(11);
    struct attn_model *model = random_model(batch_config);
    struct attn_model *other = random_model("{\"hidden_size\":96,\"num_attention_heads\":6,"
                                            "\"num_hidden_layers\":2}");
    float *x = rng_floats(&r, WIDTH, 1), out[WIDTH];
    struct attn_cache *cache = opened_cache(pool, model, 10);
    struct attn_step step = {
        .cache = cache, .rows = 1, .hidden_states = x, .outputs = {.output = out}, .commit = true};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, other, 1, steps, 1), ATTN_OK);
    ck_assert_int_eq(step.error.status, ATTN_INVALID);
    ck_assert_str_eq(step.error.message, "the cache belongs to another model");
    attn_cache_free(cache);
    free(x);
    attn_model_close(model);
    attn_model_close(other);
}

TEST_EACH(steps_without_commit_leave_the_cache_and_repeats_give_the_same_bits, NUM_DTYPES)
{
    kv_dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(12);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, 130 * WIDTH, 1);
    float *first = calloc(130 * WIDTH, sizeof *first), *again = calloc(130 * WIDTH, sizeof *again);
    struct attn_cache *cache = opened_cache(pool, model, 200);
    append(cache, model, x, first, 0, 63);
    size_t used = attn_cache_pool_used(pool);
    struct attn_step what_if = {.cache = cache,
                                .position = 63,
                                .rows = 60,
                                .hidden_states = x + 63 * WIDTH,
                                .outputs = {.output = first}};
    ck_assert_int_eq(one_step(engine, model, 0, &what_if), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 63);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    append(cache, model, x, again, 63, 60);
    ck_assert_mem_eq(first, again + 63 * WIDTH, 60 * WIDTH * sizeof *first);
    what_if.commit = true; /* at a published position: computed again, nothing appended */
    what_if.outputs.output = first;
    memset(first, 0, 60 * WIDTH * sizeof *first);
    ck_assert_int_eq(one_step(engine, model, 0, &what_if), ATTN_OK);
    ck_assert_mem_eq(first, again + 63 * WIDTH, 60 * WIDTH * sizeof *first);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 123);
    what_if.position = 90; /* 60 rows there would pass what is cached */
    ck_assert_int_eq(one_step(engine, model, 0, &what_if), ATTN_INVALID);
    attn_cache_free(cache);
    free(x);
    free(first);
    free(again);
    attn_model_close(model);
}

TEST(steps_on_a_layer_that_is_not_there_fail_all)
{
    struct attn_model *model = random_model(batch_config);
    struct attn_cache *cache = opened_cache(pool, model, 10);
    struct attn_step step = {.cache = cache, .rows = 1}, *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model, 3, steps, 1), ATTN_NOT_FOUND);
    ck_assert_int_eq(step.error.status, ATTN_NOT_FOUND);
    attn_cache_free(cache);
    attn_model_close(model);
}

/* ---- Work ------------------------------------------------------------------------------------ */

/* Four projections of each row, and a score and a weighted value of each row, key and head. */
TEST(steps_work_is_that_of_projections_and_attention)
{
    const struct attn_layer_spec spec = {
        .hidden_size = 10, .num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 5};
    size_t projections = 10 * 4 * 3 + 10 * 2 * 3 + 10 * 2 * 5 + 10 * 4 * 5;
    ck_assert_uint_eq(attn_step_work(&spec, 7, 100), 7 * (projections + 100 * 4 * (3 + 5)));
}

SUITE(steps)
