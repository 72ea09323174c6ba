/* inspect_measure.c: a layer run twice over the same rows, as asked for and in float32.
 *
 * Rows are uniform with variance 1, which is what a checkpoint's norms hand to its attention, from
 * a counter with a fixed start, so that a figure can be had again.  They are given as a prefill and
 * then one by one: the two ways in which a session grows. */
#include "inspect_measure.h"

#include <math.h>
#include <stdlib.h>

#define PREFILL ((size_t)128)
#define STEPS ((size_t)32)
#define ROWS (PREFILL + STEPS)
#define UNIT_VARIANCE 1.7320508f /* the bound of a uniform number whose variance is 1 */

struct measure {
    const char *path;
    struct attn_engine *engine;
    size_t layer, width; /* E */
    float *x;            /* [ROWS][E] */
    float *want, *got;   /* [ROWS][E] outputs in float32, and as asked for */
};

/* Number i of a sequence that begins anew for each layer (SplitMix64, Steele et al. 2014). */
static float random_number(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((float)(z >> 40) / 8388608.0f - 1) * UNIT_VARIANCE;
}

/* ---- One run -------------------------------------------------------------------------------- */

static enum attn_status open_layer(struct attn_model **out, const struct measure *m,
                                   const struct attn_model_options *options,
                                   struct attn_error *error)
{
    struct attn_model_options one = *options;
    one.layers = &m->layer;
    one.num_layers = 1;
    enum attn_status status = attn_model_open(out, m->path, &one, error);
    return status == ATTN_OK ? attn_model_load(*out, error) : status;
}

/* All rows into an empty cache; output [ROWS][E].  *refused where a step fails, with its error. */
static enum attn_status run_steps(float *output, bool *refused, const struct measure *m,
                                  const struct attn_model *model, struct attn_cache *cache,
                                  struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    for (size_t at = 0, rows = PREFILL; at < ROWS && status == ATTN_OK && !*refused;
         at += rows, rows = 1) {
        struct attn_step step = {.cache = cache,
                                 .position = at,
                                 .rows = rows,
                                 .hidden_states = m->x + at * m->width,
                                 .outputs = {.output = output + at * m->width},
                                 .commit = true};
        struct attn_step *const steps[] = {&step};
        status = attn_decode(m->engine, model, m->layer, steps, 1);
        *refused = step.error.status != ATTN_OK;
        if (*refused)
            *error = step.error;
    }
    return status;
}

static enum attn_status run(float *output, bool *refused, const struct measure *m,
                            const struct attn_model_options *options, struct attn_error *error)
{
    struct attn_model *model = NULL;
    struct attn_cache_pool *pool = NULL;
    struct attn_cache *cache = NULL;
    enum attn_status status = open_layer(&model, m, options, error);
    if (status == ATTN_OK)
        status = attn_cache_pool_new(&pool, SIZE_MAX);
    if (status == ATTN_OK)
        status = attn_cache_new(&cache, pool, model, ROWS, error);
    if (status == ATTN_OK)
        status = run_steps(output, refused, m, model, cache, error);
    attn_cache_free(cache);
    attn_cache_pool_free(pool);
    attn_model_close(model);
    return status;
}

/* ---- All of it ------------------------------------------------------------------------------ */

static void print_difference(struct srv_buffer *out, const struct measure *m)
{
    double largest = 0, most = 0, sum = 0;
    size_t count = ROWS * m->width;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)m->got[i] - (double)m->want[i]);
        largest = fmax(largest, fabs((double)m->want[i]));
        most = fmax(most, difference);
        sum += difference;
    }
    double scale = largest > 0 ? 1 / largest : 0;
    srv_buffer_printf(out,
                      "  layer %zu: at most %.2e of the largest output %.3g, %.2e on average\n",
                      m->layer, most * scale, largest, sum / (double)count * scale);
}

static enum attn_status measure_layer(struct srv_buffer *out, struct measure *m,
                                      const struct attn_model_options *options,
                                      struct attn_error *error)
{
    struct attn_model_options exact = *options;
    bool refused = false;
    exact.dtype = exact.kv_dtype = ATTN_F32;
    m->x = malloc(3 * ROWS * m->width * sizeof *m->x);
    if (m->x == NULL)
        return ATTN_NO_MEMORY;
    m->want = m->x + ROWS * m->width;
    m->got = m->want + ROWS * m->width;
    for (size_t i = 0; i < ROWS * m->width; i++)
        m->x[i] = random_number(i);
    enum attn_status status = run(m->want, &refused, m, &exact, error);
    if (status == ATTN_OK && !refused)
        status = run(m->got, &refused, m, options, error);
    if (refused)
        srv_buffer_printf(out, "  layer %zu: %s\n", m->layer, error->message);
    else if (status == ATTN_OK)
        print_difference(out, m);
    free(m->x);
    return status;
}

enum attn_status srv_inspect_measure(struct srv_buffer *out, const char *path,
                                     const struct attn_model_options *options,
                                     const struct attn_model *model, struct attn_error *error)
{
    struct measure m = {.path = path};
    struct attn_model_info info;
    attn_model_describe(&info, model);
    *error = (struct attn_error){.message = "out of memory"};
    enum attn_status status = attn_engine_open(&m.engine, NULL, error);
    if (status != ATTN_OK)
        return status;
    srv_buffer_printf(
        out,
        "  outputs with %s weights and %s caches against f32, over %zu random rows as "
        "a prefill and %zu steps:\n",
        attn_dtype_name(options->dtype), attn_dtype_name(options->kv_dtype), PREFILL, STEPS);
    for (m.layer = 0; m.layer < info.num_layers && status == ATTN_OK; m.layer++) {
        const struct attn_layer_spec *spec = attn_model_layer(model, m.layer);
        if (spec == NULL)
            continue;
        m.width = spec->hidden_size;
        status = measure_layer(out, &m, options, error);
    }
    attn_engine_close(m.engine);
    return status;
}
