/* work.c: preparing a shape and running it.
 *
 * Caches are filled through the library's own caches/kvcache.h, as a restored session is: computing
 * 16,384 tokens of context for each of 32 sessions would take minutes.  All timed calls are those
 * of attn.h. */
#include "work.h"
#include "attn_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "caches/kvcache.h"
#include "machine.h"

#define UNIT_VARIANCE 1.7320508f /* the bound of a uniform number whose variance is 1 */
#define INPUT_STREAM 1000        /* streams of inputs, apart from those of weights */
#define CACHE_STREAM 2000
#define FILL_TOKENS ((size_t)64) /* of one task */

static void check(enum attn_status status, const struct attn_error *error)
{
    if (status != ATTN_OK)
        bench_die("%s: %s", attn_status_name(status), error->message);
}

/* ---- Inputs -------------------------------------------------------------------------------- */

#define FILL_CHUNK ((size_t)1 << 16)

struct fill {
    float *to;
    size_t count;
    uint64_t tensor;
};

static void fill_task(void *context, size_t i)
{
    const struct fill *fill = context;
    size_t at = i * FILL_CHUNK;
    attn_random_uniform(fill->to + at, attn_min(FILL_CHUNK, fill->count - at),
                        attn_random_stream(BENCH_SEED, INPUT_STREAM + fill->tensor, i),
                        UNIT_VARIANCE);
}

static float *new_input(size_t count, uint64_t tensor, struct attn_engine *engine)
{
    float *input = bench_need(attn_alloc(count, sizeof *input));
    struct fill fill = {input, count, tensor};
    attn_engine_run(engine, fill_task, &fill, attn_ceil_div(count, FILL_CHUNK));
    return input;
}

static void open_model(struct bench_work *work)
{
    const struct bench_layer *l = work->shape->layer;
    struct attn_error error = {0};
    char config[640], rope[64] = "", latent[192] = "";
    const struct attn_weightless_options shape = {.num_heads = l->heads,
                                                  .num_kv_heads = l->kv_heads,
                                                  .head_dim = l->head_dim,
                                                  .kv_dtype = work->dtype->dtype};
    if (l->hidden == 0) {
        check(attn_model_open_weightless(&work->model, &shape, &error), &error);
        return;
    }
    if (l->rope_theta > 0)
        snprintf(rope, sizeof rope, ",\"rope_theta\":%.0f", l->rope_theta);
    if (l->kv_rank > 0)
        snprintf(latent, sizeof latent,
                 ",\"q_lora_rank\":%zu,\"kv_lora_rank\":%zu,\"qk_nope_head_dim\":%zu,"
                 "\"qk_rope_head_dim\":%zu,\"value_head_dim\":%zu",
                 l->q_rank, l->kv_rank, l->nope, l->rope, l->head_dim);
    int length = snprintf(
        config, sizeof config,
        "{\"hidden_size\":%zu,\"num_attention_heads\":%zu,"
        "\"num_key_value_heads\":%zu,\"head_dim\":%zu,\"attention_bias\":%s,"
        "\"is_causal\":%s,\"seed\":%d%s%s}",
        l->hidden, l->heads, l->kv_heads, l->kv_rank > 0 ? l->nope + l->rope : l->head_dim,
        l->bias ? "true" : "false", l->causal ? "true" : "false", BENCH_SEED, rope, latent);
    const struct attn_model_options options = {.dtype = work->dtype->dtype,
                                               .kv_dtype = work->dtype->kv_dtype};
    check(attn_model_open_random(&work->model, config, (size_t)length, &options, &error), &error);
    check(attn_model_load(work->model, &error), &error);
}

/* ---- Caches -------------------------------------------------------------------------------- */

void bench_cached_row(float *out, const struct bench_layer *layer, size_t session, size_t token)
{
    attn_random_uniform(out, bench_cached_width(layer),
                        attn_random_stream(BENCH_SEED, CACHE_STREAM + session, token),
                        UNIT_VARIANCE);
}

static void cache_task(void *context, size_t i)
{
    const struct bench_work *work = context;
    const struct bench_layer *layer = work->shape->layer;
    size_t tasks = attn_ceil_div(work->context, FILL_TOKENS), session = i / tasks;
    size_t first = i % tasks * FILL_TOKENS, width = bench_cached_width(layer);
    float *row = bench_need(attn_alloc(width, sizeof *row));
    for (size_t t = first; t < attn_min(first + FILL_TOKENS, work->context); t++) {
        bench_cached_row(row, layer, session, t);
        attn_cache_put(work->caches[session], 0, t, row,
                       row + (layer->kv_rank > 0 ? layer->kv_rank : width / 2));
    }
    attn_free(row);
}

static void fill_caches(struct bench_work *work, struct attn_engine *engine)
{
    struct attn_error error = {0};
    size_t batch = work->shape->batch, tokens = work->shape->tokens;
    if (attn_cache_pool_new(&work->pool, SIZE_MAX) != ATTN_OK)
        bench_die("out of memory");
    work->caches = bench_need(attn_calloc(batch, sizeof(struct attn_cache *)));
    for (size_t i = 0; i < batch; i++) {
        check(attn_cache_new(&work->caches[i], work->pool, work->model, tokens + 1, &error),
              &error);
        check(attn_cache_reserve(work->caches[i], 0, 0, tokens, &error), &error);
    }
    work->context = tokens;
    attn_engine_run(engine, cache_task, work, batch * attn_ceil_div(tokens, FILL_TOKENS));
    for (size_t i = 0; i < batch; i++)
        attn_cache_publish(work->caches[i], 0, tokens);
}

static void make_steps(struct bench_work *work)
{
    size_t batch = work->shape->batch, width = bench_row_width(work->shape->layer);
    size_t kv_width = bench_cached_width(work->shape->layer) / 2;
    bool given = work->shape->layer->hidden == 0;
    work->steps = bench_need(attn_calloc(batch, sizeof *work->steps));
    work->list = bench_need(attn_calloc(batch, sizeof *work->list));
    for (size_t i = 0; i < batch; i++) {
        work->steps[i] = (struct attn_step){
            .cache = work->caches[i],
            .rows = 1,
            .hidden_states = work->x + i * width,
            .query = work->x + i * width,
            .key = given ? work->key + i * kv_width : NULL,
            .value = given ? work->value + i * kv_width : NULL,
            .outputs = {.output = work->out + i * width},
            .commit = true,
        };
        work->list[i] = &work->steps[i];
    }
}

void bench_work_shorten(struct bench_work *work, size_t context)
{
    for (size_t i = 0; i < work->shape->batch; i++)
        attn_cache_truncate(work->caches[i], context);
    work->context = context;
}

/* ---- Opening and closing ------------------------------------------------------------------- */

void bench_work_open(struct bench_work *out, const struct bench_shape *shape,
                     const struct bench_dtype *dtype, struct attn_engine *engine)
{
    const struct bench_layer *l = shape->layer;
    size_t rows = shape->kind == BENCH_DECODE ? shape->batch : shape->batch * shape->tokens;
    bool core = shape->kind == BENCH_CORE;
    *out = (struct bench_work){.shape = shape, .dtype = dtype};
    out->size = rows * (core ? l->heads * l->head_dim : bench_row_width(l));
    out->x = new_input(out->size, 0, engine);
    out->out = new_input(out->size, 3, engine); /* which faults in its pages */
    if (core || l->hidden == 0) {
        out->key = new_input(rows * l->kv_heads * l->head_dim, 1, engine);
        out->value = new_input(rows * l->kv_heads * l->head_dim, 2, engine);
    }
    if (core)
        return;
    open_model(out);
    if (shape->kind == BENCH_DECODE) {
        fill_caches(out, engine);
        make_steps(out);
    }
}

void bench_work_close(struct bench_work *work)
{
    for (size_t i = 0; work->caches != NULL && i < work->shape->batch; i++)
        attn_cache_free(work->caches[i]);
    attn_free(work->caches);
    attn_cache_pool_free(work->pool);
    attn_model_close(work->model);
    attn_free(work->steps);
    attn_free(work->list);
    attn_free(work->x);
    attn_free(work->key);
    attn_free(work->value);
    attn_free(work->out);
}

/* ---- Running ------------------------------------------------------------------------------- */

static enum attn_status run_core(struct bench_work *work, struct attn_engine *engine,
                                 struct attn_error *error)
{
    const struct bench_shape *shape = work->shape;
    const struct attn_core_args args = {
        .batch = shape->batch,
        .queries = shape->tokens,
        .keys = shape->tokens,
        .num_heads = shape->layer->heads,
        .num_kv_heads = shape->layer->kv_heads,
        .head_dim = shape->layer->head_dim,
        .value_head_dim = shape->layer->head_dim,
        .query = work->x,
        .key = work->key,
        .value = work->value,
        .modifiers = {.is_causal = ATTN_CAUSAL_YES},
        .outputs = {.output = work->out},
    };
    return attn_core(engine, &args, error);
}

static enum attn_status run_attend(struct bench_work *work, struct attn_engine *engine,
                                   struct attn_error *error)
{
    const struct attn_attend_args args = {
        .batch = work->shape->batch,
        .queries = work->shape->tokens,
        .hidden_states = work->x,
        .outputs = {.output = work->out},
    };
    return attn_attend(engine, work->model, 0, &args, error);
}

static enum attn_status run_decode(struct bench_work *work, struct attn_engine *engine,
                                   struct attn_error *error)
{
    enum attn_status status = attn_decode(engine, work->model, 0, work->list, work->shape->batch);
    for (size_t i = 0; i < work->shape->batch; i++)
        if (work->steps[i].error.status != ATTN_OK)
            *error = work->steps[i].error;
    return status != ATTN_OK ? status : error->status;
}

double bench_work_run(struct bench_work *work, struct attn_engine *engine)
{
    static enum attn_status (*const runs[])(struct bench_work *, struct attn_engine *,
                                            struct attn_error *) = {
        [BENCH_ATTEND] = run_attend,
        [BENCH_DECODE] = run_decode,
        [BENCH_CORE] = run_core,
    };
    struct attn_error error = {0};
    for (size_t i = 0; work->steps != NULL && i < work->shape->batch; i++)
        work->steps[i].position = work->context;
    double start = bench_now();
    enum attn_status status = runs[work->shape->kind](work, engine, &error);
    double seconds = bench_now() - start;
    check(status, &error);
    if (work->steps != NULL)
        bench_work_shorten(work, work->context);
    return seconds;
}
