/* test_weightless.c: models without weights, whose steps bring query, key and value.
 *   - steps of random shapes over caches of every dtype equal the oracle over the keys and values
 *     as they are cached, in batches and at every CPU level;
 *   - a step that is wrong fails alone, and shapes beyond bounds are refused by name.
 * Batches are check-invariance's; forks, truncation, states and journals the HTTP suite's of this
 * name. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "opened.h"
#include "oracle.h"
#include "rng.h"
#include "suites.h"

#define SEEDS 60
#define SEQUENCES 5 /* of a batch */
#define TOLERANCE 1e-5

static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup(void) { ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK); }

static void teardown(void) { free_unused_pool(pool); }

static struct attn_engine *open_engine(enum attn_cpu_level level, unsigned threads)
{
    struct attn_engine *engine = NULL;
    const struct attn_engine_options options = {.threads = threads, .level = level};
    enum attn_status status = attn_engine_open(&engine, &options, &error);
    ck_assert(status == ATTN_OK || status == ATTN_UNSUPPORTED);
    return engine;
}

static struct attn_model *open_shape(const struct attn_weightless_options *options)
{
    struct attn_model *model;
    ck_assert_msg(attn_model_open_weightless(&model, options, &error) == ATTN_OK, "%s",
                  error.message);
    return model;
}

static struct attn_cache *new_cache(const struct attn_model *model)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 1000, &error), ATTN_OK);
    return cache;
}

/* ---- Steps ---- */

/* The rows of one step, and where its output goes. */
struct rows {
    size_t count;
    float *query, *key, *value, *output, *lse;
};

static struct rows draw_rows(struct rng *rng, const struct attn_layer_spec *spec, size_t count)
{
    size_t queries = spec->num_heads * count, keys = spec->num_kv_heads * count;
    return (struct rows){.count = count,
                         .query = rng_floats(rng, queries * spec->head_dim, 2),
                         .key = rng_floats(rng, keys * spec->head_dim, 2),
                         .value = rng_floats(rng, keys * spec->value_head_dim, 2),
                         .output = malloc(queries * spec->value_head_dim * sizeof(float)),
                         .lse = malloc(queries * sizeof(float))};
}

static void free_rows(struct rows *rows)
{
    free(rows->query);
    free(rows->key);
    free(rows->value);
    free(rows->output);
    free(rows->lse);
}

static struct attn_step step_of(struct attn_cache *cache, const struct rows *rows)
{
    return (struct attn_step){.cache = cache,
                              .position = attn_cache_length(cache, 0),
                              .rows = rows->count,
                              .query = rows->query,
                              .key = rows->key,
                              .value = rows->value,
                              .outputs = {.output = rows->output, .lse = rows->lse},
                              .commit = true};
}

static void run(struct attn_engine *engine, const struct attn_model *model, struct attn_step *steps,
                size_t count)
{
    struct attn_step *list[SEQUENCES];
    for (size_t i = 0; i < count; i++)
        list[i] = &steps[i];
    ck_assert_int_eq(attn_decode(engine, model, 0, list, count), ATTN_OK);
}

/* ---- The oracle ---- */

static struct attn_weightless_options draw_shape(struct rng *rng)
{
    const size_t groups = 1 + rng_below(rng, 4);
    return (struct attn_weightless_options){
        .num_heads = groups * (1 + rng_below(rng, 4)),
        .num_kv_heads = groups,
        .head_dim = 1 + rng_below(rng, 70),
        .value_head_dim = rng_below(rng, 2) ? 1 + rng_below(rng, 40) : 0,
        .scale = rng_below(rng, 2) ? 0.3 : 0,
        .softcap = rng_below(rng, 3) ? 0 : 5,
        .sliding_window = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 90),
        .kv_dtype = rng_below(rng, ATTN_NUM_NUMBER_FORMATS),
    };
}

/* Has a step give the keys and values as cached: a window forgets them when the step has ended. */
static void ask_for_keys(struct attn_step *step, const struct attn_layer_spec *spec)
{
    size_t keys = (step->position + step->rows) * spec->num_kv_heads;
    step->outputs.key = malloc(keys * spec->head_dim * sizeof(float));
    step->outputs.value = malloc(keys * spec->value_head_dim * sizeof(float));
}

/* Compares the output of such a step with the oracle over these keys and values. */
static void expect_oracle(const struct attn_layer_spec *spec, const struct attn_step *step,
                          unsigned seed)
{
    size_t keys = step->position + step->rows, rows = spec->num_heads * step->rows;
    double *output = malloc(rows * spec->value_head_dim * sizeof *output);
    double *lse = malloc(rows * sizeof *lse);
    const struct attn_core_args args = {
        .batch = 1,
        .queries = step->rows,
        .keys = keys,
        .num_heads = spec->num_heads,
        .num_kv_heads = spec->num_kv_heads,
        .head_dim = spec->head_dim,
        .value_head_dim = spec->value_head_dim,
        .query = step->query,
        .key = step->outputs.key,
        .value = step->outputs.value,
        .modifiers = {.is_causal = ATTN_CAUSAL_YES,
                      .scale = spec->scale,
                      .has_softcap = spec->softcap > 0,
                      .softcap = spec->softcap,
                      .has_window = spec->sliding_window > 0,
                      .window_left = (int64_t)spec->sliding_window - 1},
    };
    oracle_core(&(struct oracle_outputs){.output = output, .lse = lse}, &args);
    double worst = oracle_error(step->outputs.output, output, rows, spec->value_head_dim);
    ck_assert_msg(worst <= TOLERANCE, "seed %u: output is off by %g", seed, worst);
    worst = oracle_error(step->outputs.lse, lse, 1, rows);
    ck_assert_msg(worst <= TOLERANCE, "seed %u: lse is off by %g", seed, worst);
    free(step->outputs.key);
    free(step->outputs.value);
    free(output);
    free(lse);
}

/* Rounds of a batch: each sequence gets rows of its own number. */
static void compare_rounds(struct attn_engine *engine, const struct attn_model *model,
                           struct rng *rng, unsigned seed)
{
    const struct attn_layer_spec *spec = attn_model_layer(model, 0);
    struct attn_cache *caches[SEQUENCES];
    for (size_t i = 0; i < SEQUENCES; i++)
        caches[i] = new_cache(model);
    for (size_t round = 0; round < 3; round++) {
        struct rows rows[SEQUENCES];
        struct attn_step steps[SEQUENCES];
        for (size_t i = 0; i < SEQUENCES; i++) {
            size_t most = i == 0 && round == 0 ? 130 : 9; /* two tiles, or a few rows */
            rows[i] = draw_rows(rng, spec, 1 + rng_below(rng, (unsigned)most));
            steps[i] = step_of(caches[i], &rows[i]);
            ask_for_keys(&steps[i], spec);
        }
        run(engine, model, steps, SEQUENCES);
        for (size_t i = 0; i < SEQUENCES; i++) {
            ck_assert_msg(steps[i].error.status == ATTN_OK, "%s", steps[i].error.message);
            expect_oracle(spec, &steps[i], seed);
            free_rows(&rows[i]);
        }
    }
    for (size_t i = 0; i < SEQUENCES; i++)
        attn_cache_free(caches[i]);
}

CASE(all, setup, teardown, 120)

TEST(weightless_steps_of_random_shapes_equal_the_oracle)
{
    for (enum attn_cpu_level level = 1; level < ATTN_NUM_CPU_LEVELS; level++) {
        struct attn_engine *engine = open_engine(level, 2);
        for (unsigned seed = level; engine != NULL && seed < SEEDS; seed += ATTN_NUM_CPU_LEVELS) {
            struct rng rng = rng_seeded(seed);
            const struct attn_weightless_options shape = draw_shape(&rng);
            struct attn_model *model = open_shape(&shape);
            compare_rounds(engine, model, &rng, seed);
            attn_model_close(model);
        }
        attn_engine_close(engine);
    }
}

static const struct attn_weightless_options small = {
    .num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .value_head_dim = 6, .num_layers = 2};

/* ---- Errors ---- */

TEST(weightless_step_that_is_wrong_fails_alone)
{
    struct attn_engine *engine = open_engine(ATTN_CPU_AUTO, 2);
    struct attn_weightless_options half = small;
    half.kv_dtype = ATTN_F16;
    struct attn_model *model = open_shape(&half);
    struct attn_cache *caches[SEQUENCES];
    struct rows rows[SEQUENCES];
    struct attn_step steps[SEQUENCES];
    struct rng rng = rng_seeded(10);
    for (size_t i = 0; i < SEQUENCES; i++) {
        caches[i] = new_cache(model);
        rows[i] = draw_rows(&rng, attn_model_layer(model, 0), 2);
        steps[i] = step_of(caches[i], &rows[i]);
    }
    ask_for_keys(&steps[4], attn_model_layer(model, 0));
    rows[0].query[3] = NAN;
    rows[1].key[5] = 1e6F; /* beyond f16 */
    rows[2].value[1] = 1e20F;
    steps[3].value = NULL;
    float concat[2 * 4 * 6];
    struct attn_step unsupported = steps[4];
    unsupported.outputs.concat = concat;
    run(engine, model, &unsupported, 1);
    ck_assert_int_eq(unsupported.error.status, ATTN_UNSUPPORTED);
    run(engine, model, steps, SEQUENCES);
    const struct {
        enum attn_status status;
        const char *param;
    } want[SEQUENCES] = {{ATTN_NON_FINITE, "query"},
                         {ATTN_OVERFLOW, "key"},
                         {ATTN_OVERFLOW, "query"},
                         {ATTN_INVALID, "query"},
                         {ATTN_OK, ""}};
    for (size_t i = 0; i < SEQUENCES; i++) {
        ck_assert_int_eq(steps[i].error.status, want[i].status);
        if (want[i].status != ATTN_OK)
            ck_assert_str_eq(steps[i].error.param, want[i].param);
        ck_assert_uint_eq(attn_cache_length(caches[i], 0), want[i].status == ATTN_OK ? 2 : 0);
    }
    expect_oracle(attn_model_layer(model, 0), &steps[4], 0);
    for (size_t i = 0; i < SEQUENCES; i++) {
        attn_cache_free(caches[i]);
        free_rows(&rows[i]);
    }
    attn_model_close(model);
    attn_engine_close(engine);
}

TEST(weightless_shape_beyond_bounds_is_refused_by_name)
{
    const struct {
        struct attn_weightless_options options;
        const char *param;
    } cases[] = {
        {{.num_heads = 0, .head_dim = 8}, "num_attention_heads"},
        {{.num_heads = ATTN_MAX_HEADS + 1, .head_dim = 8}, "num_attention_heads"},
        {{.num_heads = 4, .num_kv_heads = 3, .head_dim = 8}, "num_key_value_heads"},
        {{.num_heads = 4, .head_dim = 0}, "head_dim"},
        {{.num_heads = 4, .head_dim = ATTN_MAX_HEAD_DIM + 1}, "head_dim"},
        {{.num_heads = 4, .head_dim = 8, .value_head_dim = ATTN_MAX_HEAD_DIM + 1},
         "value_head_dim"},
        {{.num_heads = 4, .head_dim = 8, .num_layers = ATTN_MAX_LAYERS + 1}, "num_hidden_layers"},
        {{.num_heads = 4, .head_dim = 8, .scale = 1e6}, "scale"},
        {{.num_heads = 4, .head_dim = 8, .softcap = -1}, "softcap"},
        {{.num_heads = 4, .head_dim = 8, .sliding_window = SIZE_MAX}, "sliding_window"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_model *model = NULL;
        ck_assert_int_eq(attn_model_open_weightless(&model, &cases[i].options, &error),
                         ATTN_OUT_OF_RANGE);
        ck_assert_str_eq(error.param, cases[i].param);
        ck_assert_ptr_null(model);
    }
}

TEST(weightless_model_is_loaded_and_has_no_weights_to_attend_with)
{
    struct attn_engine *engine = open_engine(ATTN_CPU_AUTO, 1);
    struct attn_model *model = open_shape(&small), *again = open_shape(&small);
    struct attn_model_info info, other;
    struct attn_model_memory memory;
    const float row[1] = {0};
    float output[1];
    attn_model_describe(&info, model);
    attn_model_describe(&other, again);
    ck_assert_str_eq(info.family, "weightless");
    ck_assert_uint_eq(info.weight_bytes, 0);
    ck_assert_uint_eq(info.num_resident, 2);
    ck_assert_uint_eq(info.cache_bytes_per_token, 2 * 2 * (8 + 6) * sizeof(float));
    ck_assert_uint_eq(strlen(info.fingerprint), 16);
    ck_assert_str_eq(info.fingerprint, other.fingerprint);
    attn_model_memory(&memory, model);
    ck_assert_uint_eq(memory.block_bytes, 16384); /* 7,168 of them are used */
    const struct attn_attend_args args = {
        .batch = 1, .queries = 1, .hidden_states = row, .outputs = {.output = output}};
    ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_UNSUPPORTED);
    attn_model_close(model);
    attn_model_close(again);
    attn_engine_close(engine);
}

SUITE(weightless)
