/* weightless.c: models by shape, counted by those that hold them. */
#include "session/weightless.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define PREFIX "weightless:"

/* A model while something holds it. */
struct srv_weightless_model {
    struct srv_model model;
    struct attn_weightless_options shape; /* complete */
    struct srv_weightless *table;
    size_t references; /* under the table's lock */
};

struct srv_weightless {
    pthread_mutex_t lock;
    const struct srv_limits *limits; /* max_sessions may become less until sessions are made */
    size_t layers;                   /* of all sessions together */
    unsigned threads;
    size_t batch_bytes; /* that a batch of steps may take */
    struct attn_cache_pool *pool;
    size_t count;
    struct srv_weightless_model *items[]; /* [count], of max_weightless_shapes */
};

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A shape, and how many rows of it a batch has room for: of the memory that they take wider shapes
 * have fewer rows. */
static const struct attn_weightless_options typical = {
    .num_heads = 32, .num_kv_heads = 8, .head_dim = 128, .num_layers = SRV_WEIGHTLESS_MEAN_LAYERS};
#define TYPICAL_ROWS 256

/* Bytes of a batch of so many rows. */
static size_t batch_bytes(const struct attn_model *model, size_t rows, unsigned threads)
{
    const struct attn_call_size size = {.rows = rows,
                                        .tokens = SRV_DECODE_ROWS_MAX,
                                        .batched_rows = rows,
                                        .cached = SRV_BATCH_KEYS};
    return attn_call_bytes(model, &size, threads);
}

void srv_weightless_memory(struct srv_weightless_memory *out, unsigned threads)
{
    static const struct attn_weightless_options smallest = {.num_heads = 1, .head_dim = 1};
    struct attn_model *models[2] = {0};
    struct attn_model_memory memory = {.cache_bytes = SIZE_MAX}, least = {.block_bytes = 1};
    if (attn_model_open_weightless(&models[0], &typical, NULL) == ATTN_OK &&
        attn_model_open_weightless(&models[1], &smallest, NULL) == ATTN_OK) {
        attn_model_memory(&memory, models[0]);
        attn_model_memory(&least, models[1]);
    }
    *out = (struct srv_weightless_memory){
        .cache_bytes = memory.cache_bytes,
        .layers = SRV_WEIGHTLESS_MEAN_LAYERS,
        .block_bytes = least.block_bytes,
        .tile_bytes = ATTN_BLOCK_TOKENS * sizeof(float) * 2 * SRV_WEIGHTLESS_WIDTH,
        .batch_bytes = models[0] != NULL ? batch_bytes(models[0], TYPICAL_ROWS, threads) : SIZE_MAX,
    };
    attn_model_close(models[0]);
    attn_model_close(models[1]);
}

/* The most rows of a batch, a power of two. */
static size_t batch_rows(const struct attn_model *model, const struct srv_weightless *table)
{
    size_t rows = SRV_BATCH_ROWS;
    while (rows > 1 && batch_bytes(model, rows, table->threads) > table->batch_bytes)
        rows /= 2;
    return rows;
}

/* ---- The table ------------------------------------------------------------------------------- */

bool srv_weightless_open(struct srv_weightless **out, const struct srv_limits *limits,
                         unsigned threads)
{
    struct srv_weightless_memory memory;
    struct srv_weightless *table = calloc(
        1, sizeof *table + limits->max_weightless_shapes * sizeof(struct srv_weightless_model *));
    if (table == NULL)
        return false;
    srv_weightless_memory(&memory, threads);
    pthread_mutex_init(&table->lock, NULL);
    table->limits = limits;
    table->threads = threads;
    table->batch_bytes = memory.batch_bytes;
    *out = table;
    return true;
}

void srv_weightless_close(struct srv_weightless *table)
{
    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->lock);
    free(table);
}

void srv_weightless_set_pool(struct srv_weightless *table, struct attn_cache_pool *pool)
{
    table->pool = pool;
}

size_t srv_weightless_count(struct srv_weightless *table)
{
    pthread_mutex_lock(&table->lock);
    size_t count = table->count;
    pthread_mutex_unlock(&table->lock);
    return count;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static void model_free(struct srv_weightless_model *entry)
{
    attn_model_close(entry->model.attn);
    free(entry);
}

/* A float32 and its bits, which a name says. */
union number {
    float value;
    uint32_t bits;
};

static void print_name(char out[SRV_MODEL_NAME_MAX + 1], const struct attn_weightless_options *s)
{
    const union number scale = {(float)s->scale}, softcap = {(float)s->softcap};
    snprintf(out, SRV_MODEL_NAME_MAX + 1,
             PREFIX "%zu,%zu,%zu,%zu,%zu,%s,%08" PRIx32 ",%08" PRIx32 ",%zu", s->num_heads,
             s->num_kv_heads, s->head_dim, s->value_head_dim, s->num_layers,
             attn_dtype_name(s->kv_dtype), scale.bits, softcap.bits, s->sliding_window);
}

/* Reads exactly what print_name prints. */
static bool read_name(struct attn_weightless_options *out, const char *name)
{
    char dtype[8], again[SRV_MODEL_NAME_MAX + 1];
    union number scale, softcap;
    *out = (struct attn_weightless_options){0};
    if (strlen(name) > SRV_MODEL_NAME_MAX ||
        sscanf(name, PREFIX "%zu,%zu,%zu,%zu,%zu,%7[a-z0-9],%8" SCNx32 ",%8" SCNx32 ",%zu",
               &out->num_heads, &out->num_kv_heads, &out->head_dim, &out->value_head_dim,
               &out->num_layers, dtype, &scale.bits, &softcap.bits, &out->sliding_window) != 9 ||
        !attn_dtype_find(&out->kv_dtype, dtype))
        return false;
    out->scale = (double)scale.value;
    out->softcap = (double)softcap.value;
    print_name(again, out);
    return strcmp(again, name) == 0;
}

static enum srv_error_code check_shape(const struct attn_weightless_options *s,
                                       struct srv_error *error)
{
    size_t widest = s->head_dim > s->value_head_dim ? s->head_dim : s->value_head_dim;
    if (s->num_layers > SRV_WEIGHTLESS_LAYERS)
        return srv_fail(error, SRV_E_INVALID_VALUE, "num_hidden_layers",
                        "num_hidden_layers is %zu, at most %d are allowed without weights",
                        s->num_layers, SRV_WEIGHTLESS_LAYERS);
    if (s->scale == 0 || (s->softcap != 0 && s->softcap < ATTN_MIN_SOFTCAP))
        return srv_fail(error, SRV_E_INVALID_VALUE, s->scale == 0 ? "scale" : "softcap",
                        "%s is too small", s->scale == 0 ? "scale" : "softcap");
    if (s->num_heads * widest > SRV_WEIGHTLESS_WIDTH) /* each within the library's bounds */
        return srv_fail(error, SRV_E_INVALID_VALUE, "num_attention_heads",
                        "%zu heads of %zu are wider than %d", s->num_heads, widest,
                        SRV_WEIGHTLESS_WIDTH);
    return SRV_OK;
}

/* A number as float32.  The variable is volatile since gcc 12, vectorizing two neighbours, drops a
 * conversion to float and back. */
static double rounded(double value)
{
    volatile float narrow = (float)value;
    return (double)narrow;
}

/* Opens the library's model: once to have the shape complete, and again with that. */
static enum srv_error_code open_model(struct srv_weightless_model *entry,
                                      const struct attn_weightless_options *options,
                                      struct srv_error *error)
{
    struct attn_error cause = {0};
    struct attn_model *model = NULL;
    enum attn_status status = attn_model_open_weightless(&model, options, &cause);
    if (status == ATTN_NO_MEMORY)
        return srv_fail_attn(error, &cause);
    if (status != ATTN_OK)
        return srv_fail(error, SRV_E_INVALID_VALUE, cause.param, "%s", cause.message);
    const struct attn_layer_spec *spec = attn_model_layer(model, 0);
    entry->shape = (struct attn_weightless_options){
        .num_heads = spec->num_heads,
        .num_kv_heads = spec->num_kv_heads,
        .head_dim = spec->head_dim,
        .value_head_dim = spec->value_head_dim,
        .num_layers = options->num_layers > 0 ? options->num_layers : 1,
        .scale = rounded(spec->scale),
        .softcap = rounded(spec->softcap),
        .sliding_window = spec->sliding_window,
        .kv_dtype = spec->kv_dtype};
    attn_model_close(model);
    if (check_shape(&entry->shape, error) != SRV_OK)
        return error->code;
    status = attn_model_open_weightless(&entry->model.attn, &entry->shape, &cause);
    return status == ATTN_OK ? SRV_OK : srv_fail_attn(error, &cause);
}

static enum srv_error_code make_model(struct srv_weightless_model **out,
                                      struct srv_weightless *table,
                                      const struct attn_weightless_options *options,
                                      struct srv_error *error)
{
    struct srv_weightless_model *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session");
    if (open_model(entry, options, error) != SRV_OK) {
        model_free(entry);
        return error->code;
    }
    struct srv_model *model = &entry->model;
    print_name(model->name, &entry->shape);
    attn_model_describe(&model->info, model->attn);
    model->index = SRV_WEIGHTLESS_INDEX;
    model->pool = table->pool;
    model->max_length = table->limits->max_session_length;
    model->batch_rows = batch_rows(model->attn, table);
    model->weightless = entry;
    entry->table = table;
    entry->references = 1;
    *out = entry;
    return SRV_OK;
}

enum srv_error_code srv_weightless_get(const struct srv_model **out, struct srv_weightless *table,
                                       const struct attn_weightless_options *options,
                                       struct srv_error *error)
{
    struct srv_weightless_model *made = NULL, *found = NULL;
    const size_t most = table->limits->max_weightless_shapes;
    if (most == 0)
        return srv_fail(error, SRV_E_UNSUPPORTED, "session_id",
                        "a session without weights is refused: max_weightless_shapes is 0");
    if (make_model(&made, table, options, error) != SRV_OK)
        return error->code;
    pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < table->count && found == NULL; i++)
        if (strcmp(table->items[i]->model.name, made->model.name) == 0)
            found = table->items[i];
    if (found != NULL)
        found->references++;
    else if (table->count < most)
        table->items[table->count++] = found = made;
    pthread_mutex_unlock(&table->lock);
    if (found != made)
        model_free(made);
    if (found == NULL)
        return srv_fail(error, SRV_E_SESSION_LIMIT, "max_weightless_shapes",
                        "sessions of %zu other shapes are live, which is max_weightless_shapes",
                        most);
    *out = &found->model;
    return SRV_OK;
}

bool srv_model_hold(const struct srv_model *model, size_t layers)
{
    struct srv_weightless_model *entry = model->weightless;
    if (entry == NULL)
        return true;
    struct srv_weightless *table = entry->table;
    pthread_mutex_lock(&table->lock);
    size_t most = SRV_WEIGHTLESS_MEAN_LAYERS * table->limits->max_sessions;
    bool fits = table->layers + layers <= most;
    if (fits) {
        entry->references++;
        table->layers += layers;
    }
    pthread_mutex_unlock(&table->lock);
    return fits;
}

void srv_model_drop(const struct srv_model *model, size_t layers)
{
    struct srv_weightless_model *entry = model != NULL ? model->weightless : NULL;
    if (entry == NULL)
        return;
    struct srv_weightless *table = entry->table;
    pthread_mutex_lock(&table->lock);
    table->layers -= layers;
    bool last = --entry->references == 0;
    for (size_t i = 0; last && i < table->count; i++)
        if (table->items[i] == entry)
            table->items[i] = table->items[--table->count];
    pthread_mutex_unlock(&table->lock);
    if (last)
        model_free(entry);
}

void srv_model_put(const struct srv_model *model) { srv_model_drop(model, 0); }

enum srv_error_code srv_models_get(const struct srv_model **out, const struct srv_models *models,
                                   const char *name, struct srv_error *error)
{
    struct attn_weightless_options shape;
    if (name == NULL || strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return srv_models_find(out, models, name, error);
    if (!read_name(&shape, name))
        return srv_fail(error, SRV_E_MODEL_NOT_FOUND, "model",
                        "\"%.72s\" says no shape of a session without weights", name);
    return srv_weightless_get(out, models->weightless, &shape, error);
}
