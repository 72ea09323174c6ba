/* test_cross.c: steps of cross-attention over caches of encoder rows.  Golden cases, padding, forks
 * and files are the HTTP suite's of this name. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "property_draw.h"
#include "rng.h"
#include "suites.h"

#define TOLERANCE 1e-4 /* as of suite property: oracle_error's, layers of any scale */
#define SEEDS 900      /* of random layers, of which one in thirty is of cross-attention */

static const char config[] = "{\"hidden_size\":48,\"num_attention_heads\":6,\"kdim\":40,"
                             "\"vdim\":40,\"num_key_value_heads\":2,\"num_hidden_layers\":3,"
                             "\"is_cross\":true,\"attention_bias\":true}";
enum { E = 48, EK = 40, LAYERS = 3 };

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *model;
static struct attn_error error;

static void setup(void)
{
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    model = opened_random(config, NULL);
}

static void teardown(void)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_model_close(model);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

static void encode(struct attn_cache *cache, const float *x, size_t rows)
{
    const struct attn_encode_args args = {.rows = rows, .encoder_hidden_states = x};
    ck_assert_msg(attn_cache_encode(cache, engine, &args, &error) == ATTN_OK, "%s", error.message);
}

static struct attn_cache *encoded(const float *x, size_t rows)
{
    struct attn_cache *cache = opened_cache(pool, model, 4096);
    encode(cache, x, rows);
    return cache;
}

static enum attn_status run_step(const struct attn_model *of, size_t layer, struct attn_step *step)
{
    struct attn_step *steps[] = {step};
    enum attn_status status = attn_decode(engine, of, layer, steps, 1);
    return status != ATTN_OK ? status : step->error.status;
}

/* ---- Random layers ---- */

/* Sequence b of a drawn call. */
static struct attn_attend_args sequence_of(const struct attn_attend_args *call,
                                           const struct attn_layer_spec *spec, size_t b)
{
    struct attn_attend_args args = *call;
    struct attn_modifiers *m = &args.modifiers;
    args.batch = 1;
    args.hidden_states += b * call->queries * spec->hidden_size;
    args.key_hidden_states += b * call->keys * spec->key_size;
    args.value_hidden_states = NULL;
    m->padding_mask = m->padding_mask ? m->padding_mask + b * call->keys : NULL;
    m->query_offset = m->query_offset ? m->query_offset + b : NULL;
    if (m->attention_mask)
        m->attention_mask += b * m->attention_mask_batch_stride;
    if (m->attention_bias)
        m->attention_bias += b * m->attention_bias_batch_stride;
    return args;
}

/* Rows [at, at + rows) of the sequence as a step. */
static void check_rows(const struct draw *d, const struct attn_model *of, struct attn_cache *cache,
                       const struct attn_attend_args *args, size_t at, size_t rows,
                       const double *want)
{
    const struct attn_layer_spec *spec = attn_model_layer(of, d->layer);
    const size_t width = spec->hidden_size;
    const int64_t first = args->modifiers.query_offset
                              ? args->modifiers.query_offset[0]
                              : (int64_t)args->keys - (int64_t)args->queries;
    const int64_t offset = first + (int64_t)at;
    float *output = calloc(rows * width, sizeof *output);
    struct attn_step step = {.cache = cache,
                             .rows = rows,
                             .hidden_states = args->hidden_states + at * width,
                             .modifiers = args->modifiers,
                             .outputs.output = output,
                             .commit = at % 2 == 0};
    step.modifiers.query_offset = &offset;
    if (step.modifiers.attention_mask && !step.modifiers.attention_mask_one_row)
        step.modifiers.attention_mask += at * args->keys;
    if (step.modifiers.attention_bias && !step.modifiers.attention_bias_one_row)
        step.modifiers.attention_bias += at * args->keys;
    ck_assert_msg(run_step(of, d->layer, &step) == ATTN_OK, "seed %u: %s", d->seed,
                  step.error.message);
    double wrong = oracle_error(output, want + at * width, rows, width);
    ck_assert_msg(wrong <= TOLERANCE, "seed %u: rows %zu to %zu: error %g\n%s", d->seed, at,
                  at + rows, wrong, d->json);
    ck_assert_uint_eq(attn_cache_length(cache, d->layer), args->keys);
    free(output);
}

static void check_random_layer(struct draw *d)
{
    struct attn_model *of = opened_random(d->json, NULL);
    const struct attn_layer *layer = attn_model_loaded_layer(of, d->layer);
    draw_call(d, &layer->spec);
    size_t b = rng_below(&d->rng, (unsigned)d->call.batch);
    const struct attn_attend_args args = sequence_of(&d->call, &layer->spec, b);
    struct oracle_outputs want = {
        .output = calloc(args.queries * layer->spec.hidden_size, sizeof *want.output)};
    oracle_layer(&want, layer, &args);
    struct attn_cache *cache = opened_cache(pool, of, args.keys);
    encode(cache, args.key_hidden_states, args.keys);
    for (size_t at = 0, rows; at < args.queries; at += rows) {
        size_t left = args.queries - at;
        rows = rng_below(&d->rng, 3) == 0 ? left : 1 + rng_below(&d->rng, (unsigned)left);
        check_rows(d, of, cache, &args, at, rows, want.output);
    }
    attn_cache_free(cache);
    free(want.output);
    attn_model_close(of);
}

CASE(cross, setup, teardown, 300)

TEST(cross_steps_of_random_layers_equal_the_oracle)
{
    size_t layers = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct draw d;
        draw_layer(&d, seed);
        if (d.spec.is_cross && d.spec.key_size == d.spec.value_size &&
            d.spec.query_scaling.period == 0) {
            check_random_layer(&d);
            layers++;
        }
        draw_free(&d);
    }
    printf("cross: %zu random layers hold over caches of encoder rows\n", layers);
    ck_assert_uint_ge(layers, 20);
}

static void step_of_row(float output[E], struct attn_cache *cache, size_t layer, size_t position,
                        const float *x)
{
    struct attn_step step = {.cache = cache,
                             .position = position,
                             .rows = 1,
                             .hidden_states = x,
                             .outputs.output = output,
                             .commit = true};
    ck_assert_msg(run_step(model, layer, &step) == ATTN_OK, "%s", step.error.message);
}

/* ---- Refusals ---- */

static void expect_refused(struct attn_cache *cache, const struct attn_encode_args *args,
                           enum attn_status status, const char *param)
{
    size_t length = attn_cache_length(cache, 0), used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_encode(cache, engine, args, &error), status);
    ck_assert_str_eq(error.param, param);
    ck_assert_uint_eq(attn_cache_length(cache, 0), length);
    ck_assert_uint_eq(attn_cache_length(cache, LAYERS - 1), length);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
}

TEST(cross_encode_refuses_bad_arguments_and_leaves_the_cache)
{
    struct rng r = rng_seeded(6);
    float *x = rng_floats(&r, 600 * EK, 1), *q = rng_floats(&r, E, 1);
    static const uint8_t none[600];
    struct attn_encode_args args = {.rows = 600, .encoder_hidden_states = x};
    struct attn_cache *cache = opened_cache(pool, model, 599),
                      *large = opened_cache(pool, model, 600);
    struct attn_step step = {.cache = large, .rows = 1, .hidden_states = q};
    ck_assert_int_eq(run_step(model, 0, &step), ATTN_INVALID); /* nothing is encoded yet */
    ck_assert_str_eq(step.error.param, "cache");
    expect_refused(cache, &args, ATTN_CACHE_FULL, "position");
    args.padding_mask = none;
    expect_refused(large, &args, ATTN_INVALID, "encoder_padding_mask");
    args.padding_mask = NULL;
    args.rows = 0;
    expect_refused(large, &args, ATTN_OUT_OF_RANGE, "rows");
    args.rows = 600;
    x[599 * EK] = NAN;
    expect_refused(large, &args, ATTN_NON_FINITE, "encoder_hidden_states");
    x[599 * EK] = 1e30F;
    expect_refused(large, &args, ATTN_OVERFLOW, "encoder_hidden_states");
    x[599 * EK] = 1;
    encode(large, x, 600);
    expect_refused(large, &args, ATTN_INVALID, "cache");
    attn_cache_free(cache);
    attn_cache_free(large);
    free(x);
    free(q);
}

static const struct {
    const char *json, *param;
} unfit[] = {
    {"{\"hidden_size\":40,\"num_attention_heads\":2}", "encoder_hidden_states"},
    {"{\"hidden_size\":40,\"num_attention_heads\":2,\"is_cross\":true,\"kdim\":8,\"vdim\":40}",
     "encoder_hidden_states"},
    {"{\"hidden_size\":40,\"num_attention_heads\":2,\"is_cross\":true,\"attn_scale\":0.1,"
     "\"floor_scale\":8}",
     "encoder_hidden_states"},
    {"{\"hidden_size\":40,\"num_attention_heads\":2,\"is_cross\":true,"
     "\"attention_chunk_size\":4}",
     "encoder_padding_mask"},
    {"{\"hidden_size\":40,\"num_attention_heads\":2,\"is_cross\":true,\"alibi\":true}",
     "encoder_padding_mask"},
    {"{\"hidden_size\":40,\"num_attention_heads\":2,\"is_cross\":true,\"sliding_window\":9}",
     "encoder_padding_mask"},
};

TEST_EACH(cross_encode_refuses_layers_it_cannot_serve, COUNT(unfit))
{
    static const float x[3 * 40];
    static const uint8_t padding[3] = {1, 0, 1};
    const struct attn_encode_args args = {
        .rows = 3, .encoder_hidden_states = x, .padding_mask = padding};
    struct attn_model *of;
    const char *json = unfit[_i].json;
    of = opened_random(json, NULL);
    struct attn_cache *cache = opened_cache(pool, of, 64);
    ck_assert_int_eq(attn_cache_encode(cache, engine, &args, &error), ATTN_UNSUPPORTED);
    ck_assert_str_eq(error.param, unfit[_i].param);
    attn_cache_free(cache);
    attn_model_close(of);
}

/* ---- Pauses ---- */

struct pauses {
    struct attn_cache *other; /* a step over it runs at each tenth pause */
    const float *q;
    float output[E];
    size_t asked, ran, most;
};

static bool wants(void *context)
{
    struct pauses *p = context;
    return ++p->asked % 10 == 0;
}

static bool pause_runs(void *context)
{
    struct pauses *p = context;
    step_of_row(p->output, p->other, 0, 0, p->q);
    return ++p->ran < p->most;
}

/* Decodes run at the pauses of a long encoder, whose bits stay the same; where one says stop, the
 * cache is empty again. */
TEST(cross_encode_gives_way_and_can_be_cancelled)
{
    struct rng r = rng_seeded(7);
    enum { S = 3000 };
    float *x = rng_floats(&r, S * EK, 1), *q = rng_floats(&r, E, 1), alone[E], got[E], want[E];
    struct pauses p = {.other = encoded(x, 200), .q = q, .most = SIZE_MAX};
    const struct attn_yield yield = {wants, pause_runs, &p};
    const struct attn_encode_args args = {.rows = S, .encoder_hidden_states = x, .yield = &yield};
    struct attn_cache *plain = encoded(x, S), *cache = opened_cache(pool, model, S);
    step_of_row(alone, p.other, 0, 0, q);
    step_of_row(want, plain, 1, 0, q);
    ck_assert_int_eq(attn_cache_encode(cache, engine, &args, &error), ATTN_OK);
    ck_assert_uint_gt(p.ran, 0);
    ck_assert_mem_eq(p.output, alone, sizeof alone);
    step_of_row(got, cache, 1, 0, q);
    ck_assert_mem_eq(got, want, sizeof got);
    attn_cache_free(cache);
    cache = opened_cache(pool, model, S);
    p.most = p.ran + 1;
    size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_encode(cache, engine, &args, &error), ATTN_CANCELLED);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 0);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    attn_cache_free(cache);
    attn_cache_free(plain);
    attn_cache_free(p.other);
    free(x);
    free(q);
}

SUITE(cross)
