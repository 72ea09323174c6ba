/* test_steps.c: properties of prefill and decode over caches that hold whatever the numbers are,
 * for every golden model and for random models. */
#include <check.h>
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "engine/rope.h"
#include "layers/mla.h"
#include "models/model.h"
#include "rng.h"
#include "suites.h"

#define TOKENS 70 /* more than one tile */
#define TOLERANCE 1e-5

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
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

static struct attn_model *random_model(const char *config)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    struct attn_model *model;
    ck_assert_msg(attn_model_open_random(&model, config, strlen(config), &options, &error) ==
                      ATTN_OK,
                  "%s", error.message);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    return model;
}

static struct attn_cache *new_cache(const struct attn_model *model, size_t max_length)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, max_length, &error), ATTN_OK);
    return cache;
}

/* Rows [from, from + n) of x [..][E] appended to the cache, outputs into out [..][E]. */
static void append_with(struct attn_cache *cache, const struct attn_model *model, const float *x,
                        float *out, size_t from, size_t n, const struct attn_modifiers *modifiers)
{
    size_t width = attn_model_layer(model, 0)->hidden_size;
    struct attn_step step = {
        .modifiers = *modifiers,
        .cache = cache,
        .position = from,
        .rows = n,
        .hidden_states = x + from * width,
        .outputs = {.output = out + from * width},
        .commit = true,
    };
    struct attn_step *steps[] = {&step};
    ck_assert_msg(attn_decode(engine, model, 0, steps, 1) == ATTN_OK &&
                      step.error.status == ATTN_OK,
                  "%s", step.error.message);
}

static void append(struct attn_cache *cache, const struct attn_model *model, const float *x,
                   float *out, size_t from, size_t n)
{
    const struct attn_modifiers none = {0};
    append_with(cache, model, x, out, from, n, &none);
}

static void expect_close(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(got[i] - want[i]) <= TOLERANCE * fmaxf(1, fabsf(want[i])),
                      "%s[%zu]: %.9g, expected %.9g", what, i, (double)got[i], (double)want[i]);
}

/* ---- Every model ---- */

/* Zeroes the tokens that a window may have forgotten, in both caches. */
static void hide_first_block(float *a, float *b, const struct attn_layer_spec *spec)
{
    const size_t widths[] = {spec->head_dim, spec->value_head_dim};
    for (size_t kind = 0, at = 0; kind < 2; kind++)
        for (size_t g = 0; g < spec->num_kv_heads; g++, at += TOKENS * widths[kind]) {
            memset(a + at, 0, 64 * widths[kind] * sizeof *a);
            memset(b + at, 0, 64 * widths[kind] * sizeof *b);
        }
}

/* Outputs and caches of one sequence given in one piece, row by row, and in random pieces. */
static void check_model(const struct attn_model *model, struct rng *r)
{
    const struct attn_layer_spec *spec = attn_model_layer(model, 0);
    size_t n = TOKENS * spec->hidden_size;
    const struct attn_cached_sizes cached = attn_cached_sizes(spec);
    size_t k = cached.heads * TOKENS * cached.key, v = cached.heads * TOKENS * cached.value;
    float *x = rng_floats(r, n, 1.7f), *whole = rng_floats(r, n + k + v, 1);
    float *parts = rng_floats(r, n + k + v, 1);
    struct attn_cache *cache = new_cache(model, TOKENS);
    append(cache, model, x, whole, 0, TOKENS);
    attn_cache_read(whole + n, whole + n + k, cache, 0, TOKENS);
    attn_cache_free(cache);
    for (int run = 0; run < 4; run++) {
        cache = new_cache(model, TOKENS);
        for (size_t at = 0, size; at < TOKENS; at += size) {
            size = run == 0 ? 1 : 1 + rng_below(r, TOKENS - (unsigned)at);
            append(cache, model, x, parts, at, size);
        }
        attn_cache_read(parts + n, parts + n + k, cache, 0, TOKENS);
        attn_cache_free(cache);
        if (spec->sliding_window > 0 || spec->attention_chunk_size > 0)
            hide_first_block(parts + n, whole + n, spec);
        expect_close("output", parts, whole, n);
        expect_close("cached key", parts + n, whole + n, k);
        expect_close("cached value", parts + n + k, whole + n + k, v);
    }
    free(x);
    free(whole);
    free(parts);
}

START_TEST(test_steps_any_split_of_a_sequence_gives_the_outputs_and_cache_of_one_prefill)
{
    struct rng r = rng_seeded(3);
    struct dirent **names;
    int n = scandir("tests/golden", &names, NULL, alphasort);
    int models = 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        struct attn_model *model;
        snprintf(path, sizeof path, "tests/golden/%s/model", names[i]->d_name);
        bool found = strchr(names[i]->d_name, '.') == NULL &&
                     attn_model_open(&model, path, NULL, &error) == ATTN_OK;
        free(names[i]);
        if (!found)
            continue;
        ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
        const struct attn_layer_spec *spec = attn_model_layer(model, 0);
        bool first = spec != NULL; /* else layer 0 is no attention */
        if (first && spec->key_size == spec->hidden_size && spec->value_size == spec->hidden_size &&
            !attn_rope_is_rescaled(&spec->rope, TOKENS)) {
            check_model(model, &r);
            models++;
        }
        attn_model_close(model);
    }
    free(names);
    printf("steps: %d golden models, one prefill equals 70 decodes and 3 random splits\n", models);
    ck_assert_int_ge(models, 12); /* not torch_mha_cross, whose keys have another width, and
                                     minicpm3, whose frequencies change with the length */
}
END_TEST

/* Appends a step of `n` rows of x to a layer; returns its status. */
static enum attn_status append_to(struct attn_cache *cache, const struct attn_model *model,
                                  size_t layer, const float *x, size_t n)
{
    struct attn_step step = {.cache = cache,
                             .position = attn_cache_length(cache, layer),
                             .rows = n,
                             .hidden_states = x,
                             .commit = true};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model, layer, steps, 1), ATTN_OK);
    return step.error.status;
}

/* Layer 2 of that model reads the keys and values of layer 0. */
START_TEST(test_steps_of_a_layer_that_reads_another_take_no_block_and_come_after_it)
{
    struct attn_model *model;
    struct attn_cache *fork;
    struct rng r = rng_seeded(29);
    ck_assert_int_eq(attn_model_open(&model, "tests/golden/gemma4_kv_shared/model", NULL, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    float *x = rng_floats(&r, 5 * attn_model_layer(model, 0)->hidden_size, 1);
    struct attn_cache *cache = new_cache(model, 64);
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
END_TEST

/* A layer with a window keeps what a slower layer that reads it still sees, and a state of both can
 * be written.  A layer whose source is not resident has no tokens. */
START_TEST(test_steps_of_a_layer_that_reads_another_may_stay_behind)
{
    static const size_t reader = 2, behind[] = {1, 100, 386};
    struct attn_model *model;
    struct attn_export *state;
    struct rng r = rng_seeded(31);
    ck_assert_int_eq(
        attn_model_open(&model, "tests/golden/gemma4_kv_shared/model",
                        &(struct attn_model_options){.layers = &reader, .num_layers = 1}, &error),
        ATTN_OK);
    struct attn_cache *cache = new_cache(model, 1000);
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
        cache = new_cache(model, 1000);
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
END_TEST

/* A window is anchored at key positions, so it does not matter how the rows arrive. */
START_TEST(test_steps_with_window_and_cap_are_those_of_one_prefill)
{
    struct rng r = rng_seeded(13);
    struct attn_model *model = random_model("{\"hidden_size\":48,\"num_attention_heads\":6,"
                                            "\"num_key_value_heads\":2,\"rope_theta\":10000}");
    const size_t tokens = 300, n = tokens * 48;
    const struct attn_modifiers modifiers = {.has_softcap = true,
                                             .softcap = 2,
                                             .has_window = true,
                                             .window_left = 70,
                                             .window_right = 0};
    float *x = rng_floats(&r, n, 2), *whole = rng_floats(&r, n, 1), *parts = rng_floats(&r, n, 1);
    float *unbound = rng_floats(&r, n, 1);
    struct attn_cache *a = new_cache(model, tokens), *b = new_cache(model, tokens);
    struct attn_cache *c = new_cache(model, tokens);
    append_with(a, model, x, whole, 0, tokens, &modifiers);
    append(c, model, x, unbound, 0, tokens);
    for (size_t t = 0; t < tokens; t++)
        append_with(b, model, x, parts, t, 1, &modifiers);
    expect_close("output", parts, whole, n);
    ck_assert_mem_ne(whole + n - 48, unbound + n - 48, 48 * sizeof *whole);
    attn_cache_free(a);
    attn_cache_free(b);
    attn_cache_free(c);
    float *owned[] = {x, whole, parts, unbound};
    for (int i = 0; i < 4; i++)
        free(owned[i]);
    attn_model_close(model);
}
END_TEST

START_TEST(test_steps_gqa_with_as_many_key_heads_as_heads_equals_mha)
{
    kv_dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(4);
    struct attn_model *mha =
        random_model("{\"hidden_size\":64,\"num_attention_heads\":4,\"seed\":9}");
    struct attn_model *gqa = random_model("{\"hidden_size\":64,\"num_attention_heads\":4,"
                                          "\"num_key_value_heads\":4,\"seed\":9}");
    float *x = rng_floats(&r, TOKENS * 64, 1), *a = rng_floats(&r, TOKENS * 64, 1);
    float *b = rng_floats(&r, TOKENS * 64, 1);
    struct attn_cache *first = new_cache(mha, TOKENS), *second = new_cache(gqa, TOKENS);
    append(first, mha, x, a, 0, TOKENS);
    append(second, gqa, x, b, 0, TOKENS);
    ck_assert_mem_eq(a, b, TOKENS * 64 * sizeof *a);
    attn_cache_free(first);
    attn_cache_free(second);
    attn_model_close(mha);
    attn_model_close(gqa);
    free(x);
    free(a);
    free(b);
}
END_TEST

/* MQA's one key/value head, copied to all heads, is MHA.  Attention without weights shows it. */
START_TEST(test_steps_grouped_heads_equal_repeated_keys_and_values)
{
    struct rng r = rng_seeded(6);
    const size_t heads = 6, groups = 2, tokens = 40, d = 16, plane = tokens * d;
    float *q = rng_floats(&r, heads * plane, 1), *k = rng_floats(&r, groups * plane, 1);
    float *v = rng_floats(&r, groups * plane, 1), *a = rng_floats(&r, heads * plane, 1);
    float *b = rng_floats(&r, heads * plane, 1), *kk = rng_floats(&r, heads * plane, 1);
    float *vv = rng_floats(&r, heads * plane, 1);
    for (size_t h = 0; h < heads; h++) {
        memcpy(kk + h * plane, k + h / 3 * plane, plane * sizeof *k);
        memcpy(vv + h * plane, v + h / 3 * plane, plane * sizeof *v);
    }
    struct attn_core_args args = {
        .batch = 1,
        .queries = tokens,
        .keys = tokens,
        .num_heads = heads,
        .num_kv_heads = groups,
        .head_dim = d,
        .value_head_dim = d,
        .query = q,
        .key = k,
        .value = v,
        .modifiers = {.is_causal = ATTN_CAUSAL_YES},
        .outputs = {.output = a},
    };
    ck_assert_int_eq(attn_core(engine, &args, &error), ATTN_OK);
    args.num_kv_heads = heads;
    args.key = kk;
    args.value = vv;
    args.outputs.output = b;
    ck_assert_int_eq(attn_core(engine, &args, &error), ATTN_OK);
    ck_assert_mem_eq(a, b, heads * plane * sizeof *a);
    float *owned[] = {q, k, v, a, b, kk, vv};
    for (int i = 0; i < 7; i++)
        free(owned[i]);
}
END_TEST

/* ---- Batches ---- */

#define BATCH 48
#define WIDTH 96
static const char batch_config[] = "{\"hidden_size\":96,\"num_attention_heads\":6,"
                                   "\"num_key_value_heads\":2,\"rope_theta\":10000,\"seed\":5}";

/* Fills caches of different lengths and decodes a row of each, all at once or one by one. */
static void decode_many(float *out, const struct attn_model *model, const float *x,
                        struct attn_engine *with, bool together)
{
    struct attn_cache *caches[BATCH];
    struct attn_step step[BATCH], *steps[BATCH];
    float *ignored = malloc(200 * WIDTH * sizeof *ignored);
    for (size_t i = 0; i < BATCH; i++) {
        caches[i] = new_cache(model, 256);
        append(caches[i], model, x, ignored, 0, 1 + i * 3);
        step[i] = (struct attn_step){
            .cache = caches[i],
            .position = 1 + i * 3,
            .rows = 1 + i % 3,
            .hidden_states = x + i * WIDTH,
            .outputs = {.output = out + i * 3 * WIDTH},
            .commit = true,
        };
        steps[i] = &step[i];
    }
    for (size_t i = 0; i < BATCH; i += together ? BATCH : 1)
        ck_assert_int_eq(attn_decode(with, model, 0, steps + i, together ? BATCH : 1), ATTN_OK);
    for (size_t i = 0; i < BATCH; i++) {
        ck_assert_int_eq(step[i].error.status, ATTN_OK);
        ck_assert_uint_eq(attn_cache_length(caches[i], 0), 1 + i * 3 + 1 + i % 3);
        attn_cache_free(caches[i]);
    }
    free(ignored);
}

START_TEST(test_steps_bits_do_not_depend_on_batch_or_threads)
{
    kv_dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(8);
    struct attn_model *model = random_model(batch_config);
    const size_t n = BATCH * 3 * WIDTH;
    float *x = rng_floats(&r, 200 * WIDTH, 1), *alone = calloc(n, sizeof *alone);
    float *together = calloc(n, sizeof *together);
    decode_many(alone, model, x, engine, false);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct attn_engine *own;
        struct attn_engine_options options = {.threads = threads};
        ck_assert_int_eq(attn_engine_open(&own, &options, &error), ATTN_OK);
        decode_many(together, model, x, own, true);
        ck_assert_mem_eq(alone, together, n * sizeof *alone);
        attn_engine_close(own);
    }
    free(x);
    free(alone);
    free(together);
    attn_model_close(model);
}
END_TEST

/* 800 inputs are more than two blocks of a product, 200 rows more than one. */
START_TEST(test_steps_prefill_and_single_steps_give_the_same_bits)
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
    struct attn_cache *a = new_cache(model, rows), *b = new_cache(model, rows);
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
END_TEST

START_TEST(test_steps_a_bad_member_fails_alone_and_leaves_its_cache)
{
    struct rng r = rng_seeded(9);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, 3 * WIDTH, 1), out[3 * WIDTH], want[WIDTH];
    struct attn_cache *caches[4];
    struct attn_step step[4], *steps[4];
    for (int i = 0; i < 4; i++) {
        caches[i] = new_cache(model, i == 2 ? 1 : 10);
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
END_TEST

/* Weights of values of the largest float: what heads put out is then not finite. */
START_TEST(test_steps_heads_of_latents_that_overflow_are_refused_without_an_output)
{
    enum { EMBED = 16, HEADS = 2, VALUE = 4 };
    struct rng r = rng_seeded(20);
    struct attn_model *model = random_model(
        "{\"hidden_size\":16,\"num_attention_heads\":2,\"kv_lora_rank\":8,\"qk_nope_head_dim\":4,"
        "\"qk_rope_head_dim\":4,\"value_head_dim\":4}");
    const struct attn_linear *up = &attn_model_loaded_layer(model, 0)->mla_heads[1].v_up;
    float *x = rng_floats(&r, EMBED, 1), heads[HEADS * VALUE], concat[HEADS * VALUE];
    struct attn_cache *cache = new_cache(model, 4);
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
END_TEST

/* A call over rows, and a step with as many rows, fail with ATTN_OVERFLOW. */
static void expect_overflow(const struct attn_model *model, const float *x, size_t rows)
{
    float *out = malloc(rows * WIDTH * sizeof *out);
    struct attn_cache *cache = new_cache(model, rows);
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

START_TEST(test_steps_one_number_that_overflows_fails_few_rows_and_many)
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
END_TEST

START_TEST(test_steps_one_cache_twice_in_a_batch_fails_the_second)
{
    struct rng r = rng_seeded(10);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, WIDTH, 1), out[2 * WIDTH];
    struct attn_cache *cache = new_cache(model, 10);
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
END_TEST

START_TEST(test_steps_refuse_a_cache_of_another_model)
{
    struct rng r = rng_seeded(11);
    struct attn_model *model = random_model(batch_config);
    struct attn_model *other = random_model("{\"hidden_size\":96,\"num_attention_heads\":6,"
                                            "\"num_hidden_layers\":2}");
    float *x = rng_floats(&r, WIDTH, 1), out[WIDTH];
    struct attn_cache *cache = new_cache(model, 10);
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
END_TEST

START_TEST(test_steps_without_commit_leave_the_cache_and_repeats_give_the_same_bits)
{
    kv_dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(12);
    struct attn_model *model = random_model(batch_config);
    float *x = rng_floats(&r, 130 * WIDTH, 1);
    float *first = calloc(130 * WIDTH, sizeof *first), *again = calloc(130 * WIDTH, sizeof *again);
    struct attn_cache *cache = new_cache(model, 200);
    append(cache, model, x, first, 0, 63);
    size_t used = attn_cache_pool_used(pool);
    struct attn_step what_if = {.cache = cache,
                                .position = 63,
                                .rows = 60,
                                .hidden_states = x + 63 * WIDTH,
                                .outputs = {.output = first}};
    struct attn_step *steps[] = {&what_if};
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    ck_assert_int_eq(what_if.error.status, ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 63);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    append(cache, model, x, again, 63, 60);
    ck_assert_mem_eq(first, again + 63 * WIDTH, 60 * WIDTH * sizeof *first);
    what_if.commit = true; /* at a published position: computed again, nothing appended */
    what_if.outputs.output = first;
    memset(first, 0, 60 * WIDTH * sizeof *first);
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    ck_assert_mem_eq(first, again + 63 * WIDTH, 60 * WIDTH * sizeof *first);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 123);
    what_if.position = 90; /* 60 rows there would pass what is cached */
    ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
    ck_assert_int_eq(what_if.error.status, ATTN_INVALID);
    attn_cache_free(cache);
    free(x);
    free(first);
    free(again);
    attn_model_close(model);
}
END_TEST

START_TEST(test_steps_on_a_layer_that_is_not_there_fail_all)
{
    struct attn_model *model = random_model(batch_config);
    struct attn_cache *cache = new_cache(model, 10);
    struct attn_step step = {.cache = cache, .rows = 1}, *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model, 3, steps, 1), ATTN_NOT_FOUND);
    ck_assert_int_eq(step.error.status, ATTN_NOT_FOUND);
    attn_cache_free(cache);
    attn_model_close(model);
}
END_TEST

/* ---- Work ------------------------------------------------------------------------------------ */

/* Four projections of each row, and a score and a weighted value of each row, key and head. */
START_TEST(test_steps_work_is_that_of_projections_and_attention)
{
    const struct attn_layer_spec spec = {
        .hidden_size = 10, .num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 5};
    size_t projections = 10 * 4 * 3 + 10 * 2 * 3 + 10 * 2 * 5 + 10 * 4 * 5;
    ck_assert_uint_eq(attn_step_work(&spec, 7, 100), 7 * (projections + 100 * 4 * (3 + 5)));
}
END_TEST

Suite *suite_steps(void)
{
    Suite *suite = suite_create("steps");
    TCase *steps = tcase_create("steps");
    tcase_set_timeout(steps, 120);
    tcase_add_checked_fixture(steps, setup, teardown);
    tcase_add_test(steps,
                   test_steps_any_split_of_a_sequence_gives_the_outputs_and_cache_of_one_prefill);
    tcase_add_test(steps, test_steps_of_a_layer_that_reads_another_take_no_block_and_come_after_it);
    tcase_add_test(steps, test_steps_of_a_layer_that_reads_another_may_stay_behind);
    tcase_add_test(steps, test_steps_with_window_and_cap_are_those_of_one_prefill);
    tcase_add_loop_test(steps, test_steps_gqa_with_as_many_key_heads_as_heads_equals_mha, 0,
                        NUM_DTYPES);
    tcase_add_test(steps, test_steps_grouped_heads_equal_repeated_keys_and_values);
    tcase_add_loop_test(steps, test_steps_bits_do_not_depend_on_batch_or_threads, 0, NUM_DTYPES);
    tcase_add_loop_test(steps, test_steps_prefill_and_single_steps_give_the_same_bits,
                        (ATTN_CPU_PORTABLE + 1) * NUM_DTYPES, ATTN_NUM_CPU_LEVELS * NUM_DTYPES);
    tcase_add_test(steps, test_steps_a_bad_member_fails_alone_and_leaves_its_cache);
    tcase_add_test(steps, test_steps_one_number_that_overflows_fails_few_rows_and_many);
    tcase_add_test(steps, test_steps_one_cache_twice_in_a_batch_fails_the_second);
    tcase_add_test(steps, test_steps_heads_of_latents_that_overflow_are_refused_without_an_output);
    tcase_add_test(steps, test_steps_refuse_a_cache_of_another_model);
    tcase_add_loop_test(steps,
                        test_steps_without_commit_leave_the_cache_and_repeats_give_the_same_bits, 0,
                        NUM_DTYPES);
    tcase_add_test(steps, test_steps_on_a_layer_that_is_not_there_fail_all);
    tcase_add_test(steps, test_steps_work_is_that_of_projections_and_attention);
    suite_add_tcase(suite, steps);
    return suite;
}
