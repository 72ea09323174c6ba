/* cross.c: one row for each of 1 or 8 sequences, over 1,500 encoder rows of each: over caches that
 * hold their keys and values, and by calls that project them again.  Both ways take turns. */
#include "cross.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_state.h"
#include "basics/mem.h"
#include "basics/random.h"
#include "machine.h"
#include "runs.h"
#include "samples.h"

#define WIDTH ((size_t)1280) /* of Whisper large, 20 heads of 64 */
#define ROWS ((size_t)1500)
#define MOST ((size_t)8)
#define ROUNDS 9

static const char config[] = "{\"hidden_size\":1280,\"num_attention_heads\":20,\"is_cross\":true,"
                             "\"attention_bias\":true,\"seed\":1}";

struct scene {
    struct attn_engine *engine;
    struct attn_model *model;
    struct attn_cache_pool *pool;
    struct attn_cache *caches[MOST];
    float *encoder;             /* [MOST][ROWS][WIDTH] */
    float *x, *stepped, *whole; /* [MOST][WIDTH] */
};

static void check(enum attn_status status, const struct attn_error *error)
{
    if (status != ATTN_OK)
        bench_die("%s: %s", attn_status_name(status), error->message);
}

static float *numbers(size_t count, uint64_t stream)
{
    float *out = bench_need(attn_alloc(count, sizeof *out));
    attn_random_uniform(out, count, attn_random_stream(1, 5000, stream), 1.7320508F);
    return out;
}

/* Makes a cache and returns the milliseconds of filling it. */
static double encode(struct scene *s, size_t i)
{
    struct attn_error error = {0};
    const struct attn_encode_args args = {.rows = ROWS,
                                          .encoder_hidden_states = s->encoder + i * ROWS * WIDTH};
    check(attn_cache_new(&s->caches[i], s->pool, s->model, ROWS, &error), &error);
    double start = bench_now();
    check(attn_cache_encode(s->caches[i], s->engine, &args, &error), &error);
    return (bench_now() - start) * 1e3;
}

static void open(struct scene *s, struct attn_engine *engine, const struct bench_dtype *dtype)
{
    struct attn_error error = {0};
    const struct attn_model_options options = {.dtype = dtype->dtype, .kv_dtype = dtype->dtype};
    *s = (struct scene){.engine = engine};
    check(attn_model_open_random(&s->model, config, strlen(config), &options, &error), &error);
    check(attn_model_load(s->model, &error), &error);
    check(attn_cache_pool_new(&s->pool, SIZE_MAX), &error);
    s->encoder = numbers(MOST * ROWS * WIDTH, 1);
    s->x = numbers(MOST * WIDTH, 2);
    s->stepped = numbers(MOST * WIDTH, 3);
    s->whole = numbers(MOST * WIDTH, 4);
}

static void close(struct scene *s)
{
    for (size_t i = 0; i < MOST; i++)
        attn_cache_free(s->caches[i]);
    attn_cache_pool_free(s->pool);
    attn_model_close(s->model);
    attn_free(s->encoder);
    attn_free(s->x);
    attn_free(s->stepped);
    attn_free(s->whole);
}

/* Milliseconds of a batch of steps over the caches. */
static double step(struct scene *s, size_t count)
{
    struct attn_step steps[MOST], *list[MOST] = {NULL};
    for (size_t i = 0; i < count; i++) {
        steps[i] = (struct attn_step){.cache = s->caches[i],
                                      .rows = 1,
                                      .hidden_states = s->x + i * WIDTH,
                                      .outputs.output = s->stepped + i * WIDTH};
        list[i] = &steps[i];
    }
    double start = bench_now();
    enum attn_status status = attn_decode(s->engine, s->model, 0, list, count);
    double ms = (bench_now() - start) * 1e3;
    check(status, &steps[0].error);
    return ms;
}

/* Milliseconds of the same with the encoder's rows in the call. */
static double attend(struct scene *s, size_t count)
{
    struct attn_error error = {0};
    const struct attn_attend_args args = {.batch = count,
                                          .queries = 1,
                                          .keys = ROWS,
                                          .hidden_states = s->x,
                                          .key_hidden_states = s->encoder,
                                          .outputs.output = s->whole};
    double start = bench_now();
    check(attn_attend(s->engine, s->model, 0, &args, &error), &error);
    return (bench_now() - start) * 1e3;
}

static double difference(const struct scene *s)
{
    double worst = 0;
    for (size_t i = 0; i < MOST * WIDTH; i++) {
        double off = fabs((double)s->stepped[i] - (double)s->whole[i]);
        worst = isnan(off) || off > worst ? off : worst;
    }
    return worst;
}

bool bench_cross(struct attn_engine *engine, const struct bench_dtype *dtype)
{
    static const size_t counts[] = {1, MOST};
    struct scene s;
    double ms[2][ROUNDS], encoding[MOST];
    open(&s, engine, dtype);
    for (size_t i = 0; i < MOST; i++)
        encoding[i] = encode(&s, i);
    printf("%zu encoder rows, %s: stored in %.1f ms a layer\n%9s %12s %12s %8s\n", ROWS,
           dtype->name, bench_median(encoding, MOST), "sequences", "session ms", "without ms",
           "ratio");
    for (size_t c = 0; c < 2; c++) {
        for (size_t round = 0; round < ROUNDS; round++) {
            ms[0][round] = step(&s, counts[c]);
            ms[1][round] = attend(&s, counts[c]);
        }
        double with = bench_median(ms[0], ROUNDS), without = bench_median(ms[1], ROUNDS);
        printf("%9zu %12.3f %12.1f %8.0f\n", counts[c], with, without, without / with);
    }
    double worst = difference(&s);
    printf("largest difference %.1e\n", worst);
    close(&s);
    return worst <= dtype->tolerance;
}
