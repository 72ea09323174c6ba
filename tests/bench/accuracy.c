/* accuracy.c: a layer run twice over the same rows, in the dtypes asked for and in float32.
 *
 * Rows are uniform with variance 1, which is what a checkpoint's norms hand to its attention.  A
 * cache takes them as a prefill and then one by one: the two ways in which a session grows.  One
 * layer is loaded at a time, so that a checkpoint need not fit in memory. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "machine.h"

#define PREFILL ((size_t)128)
#define STEPS ((size_t)32)
#define ROWS (PREFILL + STEPS)
#define SEED 1
#define UNIT_VARIANCE 1.7320508f /* the bound of a uniform number whose variance is 1 */

struct comparison {
    const char *directory;
    struct attn_engine *engine;
    size_t layer, width; /* E */
    float *x;            /* [ROWS][E] */
};

static void check(enum attn_status status, const struct comparison *c,
                  const struct attn_error *error)
{
    if (status != ATTN_OK)
        bench_die("%s: %s", c->directory, error->message);
}

/* All rows into an empty cache: out [ROWS][E]. */
static void run_steps(float *out, const struct comparison *c, const struct attn_model *model,
                      struct attn_cache *cache)
{
    for (size_t at = 0, rows = PREFILL; at < ROWS; at += rows, rows = 1) {
        struct attn_step step = {
            .cache = cache,
            .position = at,
            .rows = rows,
            .hidden_states = c->x + at * c->width,
            .outputs = {.output = out + at * c->width},
            .commit = true,
        };
        struct attn_step *const steps[] = {&step};
        check(attn_decode(c->engine, model, c->layer, steps, 1), c, &step.error);
        check(step.error.status, c, &step.error);
    }
}

/* The outputs [ROWS][E] of the layer with these dtypes; for attn_free. */
static float *run(const struct comparison *c, enum attn_dtype dtype, enum attn_dtype kv_dtype)
{
    const struct attn_model_options options = {
        .layers = &c->layer, .num_layers = 1, .dtype = dtype, .kv_dtype = kv_dtype};
    struct attn_model *model;
    struct attn_cache_pool *pool;
    struct attn_cache *cache;
    struct attn_error error = {.message = "out of memory"};
    float *out = bench_need(attn_alloc(ROWS * c->width, sizeof *out));
    check(attn_model_open(&model, c->directory, &options, &error), c, &error);
    check(attn_model_load(model, &error), c, &error);
    check(attn_cache_pool_new(&pool, SIZE_MAX), c, &error);
    check(attn_cache_new(&cache, pool, model, ROWS, &error), c, &error);
    run_steps(out, c, model, cache);
    attn_cache_free(cache);
    attn_cache_pool_free(pool);
    attn_model_close(model);
    return out;
}

static void print_difference(const struct comparison *c, const float *got, const float *want)
{
    double largest = 0, most = 0, sum = 0;
    size_t count = ROWS * c->width;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)want[i]);
        largest = fmax(largest, fabs((double)want[i]));
        most = fmax(most, difference);
        sum += difference;
    }
    double scale = largest > 0 ? 1 / largest : 0;
    printf("layer %zu: at most %.2e of the largest output %.3g, %.2e on average\n", c->layer,
           most * scale, largest, sum / (double)count * scale);
}

static void compare_layer(struct comparison *c, enum attn_dtype dtype, enum attn_dtype kv_dtype)
{
    c->x = bench_need(attn_alloc(ROWS * c->width, sizeof *c->x));
    attn_random_uniform(c->x, ROWS * c->width, attn_random_stream(SEED, c->layer, 0),
                        UNIT_VARIANCE);
    float *want = run(c, ATTN_F32, ATTN_F32), *got = run(c, dtype, kv_dtype);
    print_difference(c, got, want);
    attn_free(got);
    attn_free(want);
    attn_free(c->x);
}

void bench_accuracy(const char *directory, enum attn_dtype dtype, enum attn_dtype kv_dtype,
                    struct attn_engine *engine)
{
    struct comparison c = {.directory = directory, .engine = engine};
    struct attn_model_info info;
    struct attn_model *model;
    struct attn_error error = {0};
    check(attn_model_open(&model, directory, &(struct attn_model_options){0}, &error), &c, &error);
    attn_model_describe(&info, model);
    printf("outputs with %s weights and %s caches against f32, over %zu random rows as a prefill "
           "and %zu steps:\n",
           attn_dtype_name(dtype), attn_dtype_name(kv_dtype), PREFILL, STEPS);
    for (c.layer = 0; c.layer < info.num_layers; c.layer++) {
        c.width = attn_model_layer(model, c.layer)->hidden_size;
        compare_layer(&c, dtype, kv_dtype);
    }
    attn_model_close(model);
}
