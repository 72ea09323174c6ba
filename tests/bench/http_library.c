/* http_library.c: attn_decode called in a loop: the cost of attnd's decodes without HTTP.
 *
 * Model, rows and number of cached tokens are the same as in http.sh's requests. */
#include <stdio.h>
#include <stdlib.h>

#include "basics/random.h"
#include "http_bench.h"

static void check(enum attn_status status, const struct attn_error *error)
{
    if (status != ATTN_OK)
        http_die("%s: %s", attn_status_name(status), error->message);
}

static void *need(void *memory)
{
    if (memory == NULL)
        http_die("out of memory");
    return memory;
}

static void open_model(struct attn_model **out, const struct http_model *model)
{
    char config[256];
    struct attn_error error = {0};
    int length = snprintf(config, sizeof config,
                          "{\"hidden_size\":%zu,\"num_attention_heads\":%zu,"
                          "\"head_dim\":%zu,\"num_hidden_layers\":1,"
                          "\"is_causal\":true,\"seed\":1}",
                          model->width, model->heads, model->head_dim);
    check(attn_model_open_random(out, config, (size_t)length, NULL, &error), &error);
    check(attn_model_load(*out, &error), &error);
}

/* Fills each cache with rows of its own. */
static void fill_caches(struct http_library *library, size_t width, size_t cached)
{
    struct attn_error error = {0};
    float *rows = need(calloc(cached + 1, width * sizeof *rows));
    for (size_t i = 0; i < library->sessions; i++) {
        check(
            attn_cache_new(&library->caches[i], library->pool, library->model, cached + 1, &error),
            &error);
        attn_random_uniform(rows, (cached + 1) * width, attn_random_stream(1, 1, i), 1.0f);
        struct attn_step fill = {.cache = library->caches[i],
                                 .rows = cached,
                                 .hidden_states = rows,
                                 .commit = true},
                         *list = &fill;
        if (cached > 0)
            check(attn_decode(library->engine, library->model, 0, &list, 1), &fill.error);
    }
    free(rows);
}

void http_library_open(struct http_library *out, const struct http_model *model, size_t sessions,
                       size_t cached)
{
    struct attn_error error = {0};
    *out = (struct http_library){.sessions = sessions};
    check(attn_engine_open(&out->engine, NULL, &error), &error);
    open_model(&out->model, model);
    check(attn_cache_pool_new(&out->pool, SIZE_MAX), &error);
    out->caches = need(calloc(sessions, sizeof(struct attn_cache *)));
    out->steps = need(calloc(sessions, sizeof *out->steps));
    out->list = need(calloc(sessions, sizeof *out->list));
    out->rows = need(calloc(sessions, model->width * sizeof *out->rows));
    out->outputs = need(calloc(sessions, model->width * sizeof *out->outputs));
    fill_caches(out, model->width, cached);
    attn_random_uniform(out->rows, sessions * model->width, attn_random_stream(1, 2, 0), 1.0f);
    for (size_t i = 0; i < sessions; i++) {
        out->steps[i] = (struct attn_step){
            .cache = out->caches[i],
            .position = cached,
            .rows = 1,
            .hidden_states = out->rows + i * model->width,
            .outputs.output = out->outputs + i * model->width,
        };
        out->list[i] = &out->steps[i];
    }
}

void http_library_close(struct http_library *library)
{
    for (size_t i = 0; i < library->sessions; i++)
        attn_cache_free(library->caches[i]);
    attn_cache_pool_free(library->pool);
    attn_model_close(library->model);
    attn_engine_close(library->engine);
    free(library->caches);
    free(library->steps);
    free(library->list);
    free(library->rows);
    free(library->outputs);
}

uint64_t http_library_run(struct http_library *library)
{
    uint64_t start = http_now_ns();
    enum attn_status status =
        attn_decode(library->engine, library->model, 0, library->list, library->sessions);
    uint64_t ns = http_now_ns() - start;
    check(status, &library->steps[0].error);
    check(library->steps[0].error.status, &library->steps[0].error);
    return ns;
}
