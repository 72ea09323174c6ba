/* test_forget.c: windows forget.  The oracle is the same layer without a window, whose cache keeps
 * everything, under the call's own window: the same mask, and the same bits are expected. */
#include <check.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "opened.h"
#include "rng.h"
#include "suites.h"

#define E 16
#define HEADS 4
#define GROUPS 2
#define D 4
#define TOKEN_BYTES (GROUPS * 2 * D * sizeof(float))
#define BLOCK_BYTES (64 * TOKEN_BYTES)
#define LONGEST 520
#define MOST_ROWS 90
#define NUM_DTYPES 4

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup(void)
{
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
}

static void teardown(void)
{
    free_unused_pool(pool);
    attn_engine_close(engine);
}

static struct attn_model *open_model(size_t window, const char *more, enum attn_dtype kv_dtype)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    struct attn_model *model;
    char config[512], slides[64] = "";
    if (window > 0)
        snprintf(slides, sizeof slides, ",\"sliding_window\":%zu", window);
    snprintf(config, sizeof config,
             "{\"hidden_size\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"seed\":7"
             "%s%s}",
             E, HEADS, GROUPS, more, slides);
    model = opened_random(config, &options);
    return model;
}

static struct attn_cache *new_cache(const struct attn_model *model)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, LONGEST, &error), ATTN_OK);
    return cache;
}

static enum attn_status run(struct attn_step *step, const struct attn_model *model)
{
    return one_step(engine, model, 0, step);
}

static void append(struct attn_cache *cache, const struct attn_model *model, const float *x,
                   float *out, size_t rows)
{
    const size_t at = attn_cache_length(cache, 0);
    struct attn_step step = {.cache = cache,
                             .position = at,
                             .rows = rows,
                             .hidden_states = x + at * E,
                             .outputs = {.output = out + at * E},
                             .commit = true};
    ck_assert_msg(run(&step, model) == ATTN_OK, "%s", step.error.message);
}

/* ---- Against a cache that keeps everything ---- */

/* What one step gives, with all outputs that have a column for each key. */
struct results {
    float output[MOST_ROWS * E], lse[HEADS * MOST_ROWS];
    float weights[HEADS * MOST_ROWS * LONGEST], scores[HEADS * MOST_ROWS * LONGEST];
    float key[GROUPS * LONGEST * D], value[GROUPS * LONGEST * D];
    float pooled[HEADS * 4 * 4];
    struct attn_head_stats stats[HEADS];
};

/* Two sessions of the same tokens, of which the first forgets. */
struct pair {
    const struct attn_model *model[2];
    struct attn_cache *cache[2];
    struct results *results[2];
    size_t window, last, last_rows;
    const float *x; /* [LONGEST][E] */
};

/* Draws a step over both: its modifiers have masks of every kind. */
static void draw_modifiers(struct attn_modifiers *out, struct rng *r, size_t rows, size_t keys)
{
    static uint8_t padding[LONGEST], mask[MOST_ROWS * LONGEST];
    static float bias[MOST_ROWS * LONGEST];
    static int64_t positions[MOST_ROWS];
    const unsigned kind = rng_below(r, 5);
    for (size_t i = 0; i < keys; i++)
        padding[i] = i >= keys - rows || rng_below(r, 9) > 0;
    for (size_t i = 0; i < rows * keys; i++) {
        mask[i] = rng_below(r, 4) > 0;
        bias[i] = (float)rng_below(r, 100) / 50 - 1;
    }
    for (size_t i = 0; i < rows; i++)
        positions[i] = (int64_t)(keys - rows + (i > 0 ? 1 + rng_below(r, 3) : 0));
    if (kind == 1)
        out->padding_mask = padding;
    if (kind == 2)
        out->attention_mask = mask;
    if (kind == 3)
        out->attention_bias = bias;
    out->tree = kind == 4;
    if (out->tree) {
        out->attention_mask = mask;
        out->position_ids = positions;
    }
}

static void step_of(struct attn_step *out, struct pair *pair, int i,
                    const struct attn_modifiers *modifiers, enum attn_stage stage)
{
    struct results *results = pair->results[i];
    out->cache = pair->cache[i];
    out->modifiers = *modifiers;
    if (i == 1) {
        out->modifiers.has_window = true;
        out->modifiers.window_left = (int64_t)pair->window - 1;
    }
    out->outputs = (struct attn_outputs){.output = results->output,
                                         .lse = results->lse,
                                         .attention_weights = results->weights,
                                         .attention_scores = results->scores,
                                         .stage = stage,
                                         .key = results->key,
                                         .value = results->value,
                                         .head_stats = results->stats,
                                         .local_radius = 4};
}

/* Scores of what is there are the same; those of forgotten keys are minus infinity. */
static void expect_scores(const struct pair *pair, size_t rows, size_t keys, size_t first)
{
    for (size_t i = 0; i < HEADS * rows; i++) {
        const float *a = pair->results[0]->scores + i * keys;
        const float *b = pair->results[1]->scores + i * keys;
        for (size_t s = 0; s < first; s++)
            ck_assert(a[s] == -INFINITY);
        ck_assert_mem_eq(a + first, b + first, (keys - first) * sizeof *a);
    }
}

/* Keys of what is there are the same; forgotten ones are zero. */
static void expect_rows(const float *a, const float *b, size_t keys, size_t first)
{
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = g * keys * D; i < (g + 1) * keys * D; i++)
            ck_assert(i < (g * keys + first) * D ? a[i] == 0
                                                 : memcmp(&a[i], &b[i], sizeof *a) == 0);
}

static void expect_same(const struct pair *pair, size_t rows, size_t keys, size_t first)
{
    const struct results *a = pair->results[0], *b = pair->results[1];
    ck_assert_mem_eq(a->output, b->output, rows * E * sizeof(float));
    ck_assert_mem_eq(a->lse, b->lse, HEADS * rows * sizeof(float));
    ck_assert_mem_eq(a->weights, b->weights, HEADS * rows * keys * sizeof(float));
    ck_assert_mem_eq(a->stats, b->stats, sizeof a->stats);
    expect_scores(pair, rows, keys, first);
    expect_rows(a->key, b->key, keys, first);
    expect_rows(a->value, b->value, keys, first);
}

/* One step of both sessions: new rows, or the last ones again. */
static void step_both(struct pair *pair, struct rng *r, bool repeat)
{
    const size_t length = attn_cache_length(pair->cache[0], 0);
    const size_t most = LONGEST - length < MOST_ROWS ? LONGEST - length : MOST_ROWS;
    const size_t rows = repeat                ? pair->last_rows
                        : rng_below(r, 3) > 0 ? 1
                                              : 1 + rng_below(r, (unsigned)most);
    const size_t position = repeat ? pair->last : length, keys = position + rows;
    const bool commit = repeat || rng_below(r, 4) > 0, begins = repeat && position == 0;
    const size_t first = begins ? 0 : attn_cache_first(pair->cache[0], 0);
    struct attn_modifiers modifiers = {0};
    draw_modifiers(&modifiers, r, rows, keys);
    const enum attn_stage stage = (enum attn_stage)rng_below(r, 3);
    for (int i = 0; i < 2; i++) {
        struct attn_step step = {.position = position,
                                 .rows = rows,
                                 .hidden_states = pair->x + position * E,
                                 .commit = commit};
        step_of(&step, pair, i, &modifiers, stage);
        ck_assert_msg(run(&step, pair->model[i]) == ATTN_OK, "%s", step.error.message);
    }
    expect_same(pair, rows, keys, first);
    if (commit) {
        pair->last = position;
        pair->last_rows = rows;
    }
}

/* Bytes of a session of `length` tokens whose last step was at `last`. */
static size_t expected_bytes(const struct pair *pair, size_t length)
{
    const size_t from = pair->last > 0 ? pair->last : length;
    const size_t seen = from >= pair->window ? from - pair->window + 1 : 0;
    const size_t first = (seen < length || length == 0 ? seen : length - 1) / 64;
    const struct attn_layer_spec *spec = attn_model_layer(pair->model[0], 0);
    struct attn_cache *fresh = new_cache(pair->model[0]);
    const size_t block = attn_cache_layer_bytes(fresh, 0, 1);
    attn_cache_free(fresh);
    ck_assert_uint_eq(spec->sliding_window, pair->window);
    return ((length + 63) / 64 - first) * block;
}

static void check_session(struct pair *pair, struct rng *r)
{
    for (int i = 0; i < 2; i++)
        pair->cache[i] = new_cache(pair->model[i]);
    pair->last = pair->last_rows = 0;
    while (attn_cache_length(pair->cache[0], 0) < LONGEST) {
        step_both(pair, r, pair->last_rows > 0 && rng_below(r, 4) == 0);
        ck_assert_uint_eq(attn_cache_bytes(pair->cache[0]),
                          expected_bytes(pair, attn_cache_length(pair->cache[0], 0)));
    }
    for (int i = 0; i < 2; i++)
        attn_cache_free(pair->cache[i]);
}

CASE(forget, setup, teardown, 60)

TEST_RANGE(forget_bits_are_those_of_a_cache_that_keeps_everything, ATTN_CPU_PORTABLE,
           ATTN_NUM_CPU_LEVELS)
{
    static const char *const more[] = {",\"rope_theta\":10000", ",\"alibi\":true",
                                       ",\"attention_sinks\":true,\"add_zero_attn\":true"};
    static const size_t windows[] = {1, 8, 64, 100};
    const struct attn_engine_options options = {.level = (enum attn_cpu_level)_i};
    struct attn_engine *usual = engine;
    if (attn_engine_open(&engine, &options, &error) == ATTN_UNSUPPORTED) {
        engine = usual;
        return;
    }
    struct rng r = rng_seeded(31 + (unsigned)_i);
    float *x = rng_floats(&r, LONGEST * E, 2);
    struct pair pair = {.x = x};
    for (int i = 0; i < 2; i++)
        pair.results[i] = malloc(sizeof *pair.results[i]);
    for (size_t w = 0; w < COUNT(windows); w++) {
        const enum attn_dtype dtype = (enum attn_dtype)((w + (unsigned)_i) % NUM_DTYPES);
        struct attn_model *models[] = {open_model(windows[w], more[w % 3], dtype),
                                       open_model(0, more[w % 3], dtype)};
        pair.window = windows[w];
        for (int i = 0; i < 2; i++)
            pair.model[i] = models[i];
        check_session(&pair, &r);
        attn_model_close(models[0]);
        attn_model_close(models[1]);
    }
    for (int i = 0; i < 2; i++)
        free(pair.results[i]);
    free(x);
    attn_engine_close(engine);
    engine = usual;
}

/* ---- Bytes ---- */

TEST(forget_512_tokens_of_window_8_take_one_block)
{
    struct rng r = rng_seeded(5);
    struct attn_model *model = open_model(8, "", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *whole = rng_floats(&r, LONGEST * E, 1);
    float *again = rng_floats(&r, LONGEST * E, 1);
    struct attn_cache *prefilled = new_cache(model), *decoded = new_cache(model);
    append(prefilled, model, x, whole, 512);
    for (size_t i = 0; i < 512; i++)
        append(decoded, model, x, again, 1);
    ck_assert_uint_eq(attn_cache_bytes(prefilled), BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_bytes(decoded), BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES);
    ck_assert_mem_eq(whole, again, 512 * E * sizeof *whole);
    struct attn_step repeat = {.cache = prefilled, .rows = 512, .hidden_states = x};
    memset(again, 0, 512 * E * sizeof *again);
    repeat.outputs.output = again;
    ck_assert_int_eq(run(&repeat, model), ATTN_OK);
    ck_assert_mem_eq(whole, again, 512 * E * sizeof *whole);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES);
    attn_cache_free(prefilled);
    attn_cache_free(decoded);
    attn_model_close(model);
    free(x);
    free(whole);
    free(again);
}

/* The figure is the most that a session takes at any of its lengths, decoded row by row. */
TEST(forget_the_figure_before_is_the_most_that_a_session_takes)
{
    static const float row[GROUPS * D];
    static const size_t windows[] = {1, 2, 64, 65, 66, 100, 0};
    for (size_t w = 0; w < COUNT(windows); w++) {
        struct attn_model *model = open_model(windows[w], ",\"num_hidden_layers\":1", ATTN_F32);
        struct attn_cache *cache = new_cache(model);
        size_t most = 0;
        for (size_t at = 0; at < LONGEST; at++) {
            ck_assert_int_eq(attn_cache_write(cache, 0, 1, row, row, &error), ATTN_OK);
            attn_cache_forget(cache, 0, at);
            most = attn_cache_bytes(cache) > most ? attn_cache_bytes(cache) : most;
        }
        ck_assert_uint_eq(attn_model_cache_bytes(model, LONGEST), most);
        attn_cache_free(cache);
        attn_model_close(model);
    }
}

/* Lists are not to grow with what is forgotten. */
TEST(forget_a_long_session_takes_no_memory_for_what_it_forgot)
{
    static const float row[64 * GROUPS * D];
    struct attn_model *model = open_model(100, "", ATTN_F32);
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, ATTN_MAX_TOKENS, &error), ATTN_OK);
    size_t before = 0;
    for (size_t at = 0; at < ATTN_MAX_TOKENS; at += 64) {
        ck_assert_int_eq(attn_cache_write(cache, 0, 64, row, row, &error), ATTN_OK);
        attn_cache_forget(cache, 0, at);
        if (at == 6400)
            before = mallinfo2().uordblks;
    }
    ck_assert_uint_eq(attn_cache_length(cache, 0), ATTN_MAX_TOKENS);
    ck_assert_uint_le(mallinfo2().uordblks, before + 4096);
    ck_assert_uint_le(attn_cache_bytes(cache), 4 * BLOCK_BYTES);
    ck_assert_uint_le(attn_cache_frozen_bytes(cache), 1024);
    attn_cache_free(cache);
    attn_model_close(model);
}

/* ---- Shorter sessions, wider windows ---- */

TEST(forget_truncation_and_fork_reach_the_lowest_length_and_no_further)
{
    struct rng r = rng_seeded(6);
    struct attn_model *model = open_model(8, "", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    float *again = rng_floats(&r, LONGEST * E, 1);
    struct attn_cache *cache = new_cache(model), *fork;
    append(cache, model, x, out, 300);
    for (size_t i = 0; i < 40; i++)
        append(cache, model, x, out, 1);
    const size_t lowest = attn_cache_lowest_length(cache);
    ck_assert_uint_eq(attn_cache_first(cache, 0), 320);
    ck_assert_uint_eq(lowest, 320 + 7);
    ck_assert(!attn_cache_truncate(cache, lowest - 1));
    ck_assert_uint_eq(attn_cache_length(cache, 0), 340);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, lowest - 1, &error), ATTN_FORGOTTEN);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, lowest, &error), ATTN_OK);
    memcpy(again, out, LONGEST * E * sizeof *out);
    append(fork, model, x, again, 5);
    ck_assert_mem_eq(again, out, 340 * E * sizeof *out);
    attn_cache_free(fork);
    ck_assert(attn_cache_truncate(cache, lowest));
    append(cache, model, x, again, 9);
    ck_assert_mem_eq(again + lowest * E, out + lowest * E, 9 * E * sizeof *out);
    ck_assert(attn_cache_truncate(cache, 0));
    ck_assert_uint_eq(attn_cache_lowest_length(cache), 0);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    append(cache, model, x, again, 300);
    ck_assert_mem_eq(again, out, 300 * E * sizeof *out);
    attn_cache_free(cache);
    attn_model_close(model);
    free(x);
    free(out);
    free(again);
}

TEST(forget_a_wider_window_of_a_call_is_refused_and_changes_nothing)
{
    struct rng r = rng_seeded(8);
    struct attn_model *model = open_model(8, "", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    struct attn_cache *cache = new_cache(model);
    append(cache, model, x, out, 200);
    struct attn_step step = {.cache = cache,
                             .position = 200,
                             .rows = 1,
                             .hidden_states = x,
                             .outputs = {.output = out},
                             .modifiers = {.has_window = true, .window_left = -1},
                             .commit = true};
    ck_assert_int_eq(run(&step, model), ATTN_FORGOTTEN);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 200);
    step.modifiers.window_left = 8; /* sees key 192, which is there */
    ck_assert_int_eq(run(&step, model), ATTN_OK);
    step.modifiers = (struct attn_modifiers){0};
    step.position = 100;
    step.commit = false;
    ck_assert_int_eq(run(&step, model), ATTN_FORGOTTEN);
    attn_cache_free(cache);
    attn_model_close(model);
    free(x);
    free(out);
}

/* ---- As bytes ---- */

static void *export_cache(size_t *size, const struct attn_cache *cache)
{
    struct attn_export *export;
    ck_assert_int_eq(attn_export_open(&export, cache, NULL, 0, &error), ATTN_OK);
    *size = attn_export_bytes(export);
    void *bytes = malloc(*size);
    while (attn_export_run(export, bytes, 4096))
        ;
    attn_export_close(export);
    return bytes;
}

static enum attn_status import_cache(struct attn_cache *cache, const void *bytes, size_t size)
{
    struct attn_import *import;
    bool more = true;
    enum attn_status status = attn_import_open(&import, bytes, size, &error);
    if (status != ATTN_OK)
        return status;
    status = attn_import_begin(import, cache, &error);
    while (status == ATTN_OK && more)
        status = attn_import_run(&more, import, 4096, &error);
    attn_import_close(import);
    return status;
}

TEST_EACH(forget_a_file_has_what_is_kept_and_goes_on_with_the_same_bits, NUM_DTYPES)
{
    const enum attn_dtype dtype = (enum attn_dtype)_i;
    struct rng r = rng_seeded(9);
    struct attn_model *model = open_model(70, ",\"num_hidden_layers\":2", dtype);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    float *again = rng_floats(&r, LONGEST * E, 1);
    size_t size;
    struct attn_cache *cache = new_cache(model), *copy = new_cache(model);
    append(cache, model, x, out, 300);
    void *bytes = export_cache(&size, cache);
    ck_assert_uint_lt(size, 128 * TOKEN_BYTES + 2048);
    ck_assert(memmem(bytes, size, "attn-cache-2", 12) != NULL);
    ck_assert_msg(import_cache(copy, bytes, size) == ATTN_OK, "%s", error.message);
    ck_assert_uint_eq(attn_cache_first(copy, 0), 192);
    ck_assert_uint_eq(attn_cache_length(copy, 0), 300);
    ck_assert_uint_eq(attn_cache_bytes(copy), attn_cache_bytes(cache));
    ck_assert_uint_eq(attn_cache_lowest_length(copy), attn_cache_lowest_length(cache));
    append(cache, model, x, out, 100);
    append(copy, model, x, again, 100);
    ck_assert_mem_eq(out + 300 * E, again + 300 * E, 100 * E * sizeof *out);
    attn_cache_free(cache);
    attn_cache_free(copy);
    attn_model_close(model);
    free(bytes);
    free(x);
    free(out);
    free(again);
}

/* Makes a copy of the cache out of its own bytes, and compares their next token. */
static void expect_travels(struct attn_cache *cache, const struct attn_model *model, const float *x)
{
    float here[LONGEST * E], there[LONGEST * E];
    const size_t at = attn_cache_length(cache, 0);
    size_t size;
    struct attn_cache *copy = new_cache(model);
    void *bytes = export_cache(&size, cache);
    ck_assert_msg(import_cache(copy, bytes, size) == ATTN_OK, "%zu tokens: %s", at, error.message);
    append(cache, model, x, here, 1);
    append(copy, model, x, there, 1);
    ck_assert_mem_eq(here + at * E, there + at * E, E * sizeof *here);
    attn_cache_free(copy);
    free(bytes);
}

/* Whatever the window, the length and the way to it: a step, rows alone, a truncation, a fork. */
TEST_EACH(forget_every_state_that_is_given_is_taken, 48)
{
    static const size_t windows[] = {1, 2, 3, 63, 64, 65},
                        lengths[] = {1, 63, 64, 65, 127, 128, 129, 192};
    const struct {
        size_t window, length;
    } of = {windows[_i % 6], lengths[_i / 6]};
    struct rng r = rng_seeded(11);
    struct attn_model *model = open_model(of.window, "", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    for (size_t cut = 0; cut < 3; cut++)
        for (size_t beyond = 0; beyond <= 66; beyond += 33) {
            struct attn_cache *cache = new_cache(model), *fork;
            const size_t whole = of.length + beyond, first = cut == 2 ? whole : cut * (whole / 2);
            if (first > 0)
                append(cache, model, x, out, first);
            while (attn_cache_length(cache, 0) < whole)
                append(cache, model, x, out, 1);
            if (attn_cache_truncate(cache, of.length)) { /* else windows have forgotten too much */
                ck_assert_int_eq(attn_cache_fork(&fork, cache, of.length, &error), ATTN_OK);
                expect_travels(fork, model, x);
                expect_travels(cache, model, x);
                attn_cache_free(fork);
            }
            attn_cache_free(cache);
        }
    attn_model_close(model);
    free(x);
    free(out);
}

/* Texts that a header may not have as `first`, in place of "192 0", of the same length. */
TEST(forget_a_file_with_wrong_first_tokens_is_refused)
{
    static const char *const wrong[] = {"256 0", "191 0", "192 9", "19\t 0", "192-0",
                                        "384  ", "0384 ", "99999", "0 384",  "064 0"};
    struct rng r = rng_seeded(10);
    struct attn_model *model = open_model(70, ",\"num_hidden_layers\":2", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    size_t size;
    struct attn_cache *cache = new_cache(model);
    append(cache, model, x, out, 300);
    char *bytes = export_cache(&size, cache), *at = memmem(bytes, size, "\"192 0\"", 7);
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct attn_cache *copy = new_cache(model);
        memcpy(at + 1, wrong[i], 5);
        enum attn_status status = import_cache(copy, bytes, size);
        ck_assert_msg(status == ATTN_MALFORMED, "'%s': %d %s", wrong[i], status, error.message);
        ck_assert_str_ne(error.param, "checksum");
        attn_cache_free(copy);
    }
    attn_cache_free(cache);
    attn_model_close(model);
    free(bytes);
    free(x);
    free(out);
}

/* The file of 300 tokens that begins at 192, for models of wider windows: at 300 a window of 109
 * sees keys from 192 on, one of 110 from 191 on.  The checksum, which is of another fingerprint,
 * is compared last. */
TEST(forget_a_file_begins_no_later_than_its_window)
{
    struct rng r = rng_seeded(12);
    struct attn_model_info info, other;
    struct attn_model *model = open_model(70, "", ATTN_F32);
    float *x = rng_floats(&r, LONGEST * E, 1), *out = rng_floats(&r, LONGEST * E, 1);
    size_t size;
    struct attn_cache *cache = new_cache(model);
    append(cache, model, x, out, 300);
    ck_assert_uint_eq(attn_cache_first(cache, 0), 192);
    char *bytes = export_cache(&size, cache);
    attn_model_describe(&info, model);
    char *named = memmem(bytes, size, info.fingerprint, strlen(info.fingerprint));
    for (size_t window = 109; window <= 110; window++) {
        struct attn_model *wider = open_model(window, "", ATTN_F32);
        struct attn_cache *copy = new_cache(wider);
        attn_model_describe(&other, wider);
        memcpy(named, other.fingerprint, strlen(info.fingerprint));
        ck_assert_int_eq(import_cache(copy, bytes, size), ATTN_MALFORMED);
        ck_assert_str_eq(error.param, window == 109 ? "checksum" : "first");
        attn_cache_free(copy);
        attn_model_close(wider);
    }
    attn_cache_free(cache);
    attn_model_close(model);
    free(bytes);
    free(x);
    free(out);
}

/* ---- Retries of a layer that reads another --------------------------------------------------- */

static struct attn_model *reading;

/* Computes rows [at, at + rows) of one layer; out [rows][E]. */
static void step_layer(float *out, struct attn_cache *cache, size_t layer, const float *x,
                       size_t at, size_t rows)
{
    struct attn_step step = {.cache = cache,
                             .position = at,
                             .rows = rows,
                             .hidden_states = x + at * E,
                             .outputs = {.output = out},
                             .commit = true};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, reading, layer, steps, 1), ATTN_OK);
    ck_assert_msg(step.error.status == ATTN_OK, "layer %zu at %zu, %zu rows: %s", layer, at, rows,
                  step.error.message);
}

/* As an import makes it: without a step, but with what its notes say of the last one. */
static struct attn_cache *moved(struct attn_cache *cache, size_t rows)
{
    size_t size;
    struct attn_cache *copy = new_cache(reading);
    void *file = export_cache(&size, cache);
    ck_assert_int_eq(import_cache(copy, file, size), ATTN_OK);
    for (size_t layer = 0; layer < 2; layer++)
        attn_cache_note_step(copy, layer, attn_cache_length(cache, layer) - rows);
    free(file);
    attn_cache_free(cache);
    return copy;
}

/* The source goes on by a step before the last step of its reader is repeated: in a cache that
 * steps have made, a fork of it, and one from a file. */
TEST_EACH(forget_keeps_what_the_last_step_of_a_reading_layer_needs_again, 3)
{
    struct rng r = rng_seeded(23);
    reading = open_model(
        8, ",\"num_hidden_layers\":2,\"num_kv_shared_layers\":1,\"rope_theta\":10000", ATTN_F32);
    struct attn_cache *cache = new_cache(reading);
    float *x = rng_floats(&r, LONGEST * E, 1), first[MOST_ROWS * E], again[MOST_ROWS * E];
    size_t at = 0, rows = 1, next = 1, forgot = 0;
    step_layer(first, cache, 0, x, 0, rows);
    for (unsigned i = 0; at + rows + MOST_ROWS <= LONGEST; i++) {
        step_layer(first, cache, 1, x, at, rows);
        if (_i == 1) {
            struct attn_cache *fork;
            ck_assert_int_eq(attn_cache_fork(&fork, cache, SIZE_MAX, &error), ATTN_OK);
            attn_cache_free(cache);
            cache = fork;
        }
        if (_i == 2)
            cache = moved(cache, rows);
        next = i % 40 == 39 ? 1 + rng_below(&r, MOST_ROWS - 1) : 1;
        step_layer(again, cache, 0, x, at + rows, next);
        step_layer(again, cache, 1, x, at, rows);
        ck_assert_mem_eq(again, first, rows * E * sizeof *first);
        forgot = attn_cache_first(cache, 0);
        at += rows;
        rows = next;
    }
    ck_assert_uint_gt(forgot, 0);
    attn_cache_free(cache);
    attn_model_close(reading);
    free(x);
}

SUITE(forget)
