/* load.c: weights become resident, by all threads in one pass.
 *
 * Matrices come in the order of the fingerprint, each in strips of whole panels, or of whole heads
 * where it is packed by heads.  The fingerprint is one chain of words, so one thread hashes a
 * strip, while the others pack the same strip and read the next one; the system reads further
 * ahead.  Matrices that have to stand whole before they are packed (not attn_weights_have_rows) are
 * read first and are one strip.  A model has all of its resident layers or, after a failed load,
 * none. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "attn_limits.h"
#include "basics/hash.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "families/weights.h"
#include "files/file.h"
#include "layers/mla.h"
#include "machine/pool.h"
#include "models/internal.h"

#define CHUNK_FLOATS 65536 /* of a task that reads or packs, about; one panel at least */
#define STRIP_CHUNKS 16    /* in a strip, at most */
#define BYTES_PER_THREAD ((size_t)1 << 20) /* of weights that are worth another thread */
#define MAX_THREADS (1 + 2 * STRIP_CHUNKS) /* tasks of a strip: one hashes, others pack and read */
#define RANGES_PER_LAYER 16                /* tensors of matrices, at most */

/* A load. */
struct loading {
    struct attn_model *model;
    struct attn_pool *pool;
    struct attn_read_ahead ahead;
    float *buffers[2]; /* for strips in turn; NULL until one is needed */
    size_t room[2];    /* floats of these */
    struct whole {
        float *weight;
        size_t floats;
    } spare[ATTN_NUM_MATRICES]; /* of the layer before, where matrices stand whole */
    bool is_last;               /* no layer comes that could take them */
    size_t done, total;         /* bytes of packed weights */
};

/* A layer that is being hashed and packed. */
struct layer_load {
    struct loading *loading;
    struct attn_layer *layer;
    bool by_rows; /* its matrices do not stand whole */
    struct attn_weight_rows rows[ATTN_NUM_MATRICES];
    enum attn_status status;
    struct attn_error *error;
};

/* Rows [first, first + count) of a matrix: x [count][in]. */
struct strip {
    float *x;
    size_t first, count;
};

/* A matrix that is being read, hashed and packed. */
struct matrix {
    struct attn_linear *linear;
    const struct attn_weight_rows *rows; /* NULL: it stands whole */
    struct attn_layer *layer;            /* NULL: it is not packed by heads */
    enum attn_dtype dtype;               /* of the layer */
    size_t chunk_rows, strip_rows;
    bool in_order;         /* its rows are read by one task */
    float *const *buffers; /* of the loading */
    char *scratch;         /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    struct strip current, next;
    uint64_t hash;
    atomic_bool failed, lacks_memory; /* reading, packing */
};

/* ---- A matrix ---- */

static size_t chunks_of(const struct matrix *matrix, const struct strip *strip)
{
    return attn_ceil_div(strip->count, matrix->chunk_rows);
}

static struct strip strip_at(const struct matrix *matrix, size_t first)
{
    const size_t left = matrix->linear->out - first;
    const size_t turn = first / matrix->strip_rows % 2;
    return (struct strip){
        .x = matrix->rows != NULL ? matrix->buffers[turn] : matrix->linear->weight,
        .first = first,
        .count = attn_min(left, matrix->strip_rows),
    };
}

static void pack_chunk(struct matrix *matrix, size_t chunk, unsigned thread)
{
    const struct strip *strip = &matrix->current;
    const size_t row = chunk * matrix->chunk_rows;
    const float *rows = strip->x + row * matrix->linear->in;
    void *scratch = matrix->scratch + thread * matrix->scratch_bytes;
    if (matrix->layer == NULL)
        attn_linear_pack_rows(matrix->linear, rows, strip->first + row,
                              attn_min(strip->count - row, matrix->chunk_rows), scratch);
    else if (!attn_mla_pack_head(matrix->layer, matrix->linear,
                                 (strip->first + row) / matrix->chunk_rows, rows, scratch))
        atomic_store(&matrix->lacks_memory, true);
}

static size_t reading_tasks(const struct matrix *matrix)
{
    if (matrix->rows == NULL || matrix->next.count == 0)
        return 0;
    return matrix->in_order ? 1 : chunks_of(matrix, &matrix->next);
}

static void read_chunk(struct matrix *matrix, size_t chunk)
{
    const struct strip *strip = &matrix->next;
    const size_t row = chunk * matrix->chunk_rows;
    const size_t count =
        matrix->in_order ? strip->count : attn_min(strip->count - row, matrix->chunk_rows);
    if (attn_weight_rows_read(strip->x + row * matrix->linear->in, matrix->rows, strip->first + row,
                              count, NULL) != ATTN_OK)
        atomic_store(&matrix->failed, true);
}

/* One task hashes the current strip, the tasks after it pack it, the others read the next one; a
 * single one that reads, which takes as long as hashing, comes first. */
static void run_task(void *context, size_t i, unsigned thread)
{
    struct matrix *matrix = context;
    const struct strip *current = &matrix->current;
    const size_t chunks = chunks_of(matrix, current), first = reading_tasks(matrix) == 1;
    if (current->count == 0 || i < first)
        read_chunk(matrix, i);
    else if ((i -= first) == 0)
        matrix->hash =
            attn_hash_floats(matrix->hash, current->x, current->count * matrix->linear->in);
    else if (i <= chunks)
        pack_chunk(matrix, i - 1, thread);
    else
        read_chunk(matrix, i - 1 - chunks);
}

/* Rows of a chunk: whole panels, and whole heads where rows are gathered; or a head. */
static size_t rows_of_chunk(const struct matrix *matrix)
{
    if (matrix->layer != NULL)
        return attn_mla_head_rows(matrix->layer, matrix->linear);
    const size_t least = ATTN_PANEL * matrix->linear->in;
    const size_t panels = attn_max(CHUNK_FLOATS / least, 1);
    const size_t head = matrix->rows != NULL ? matrix->rows->head : 0;
    size_t rows = panels * ATTN_PANEL;
    while (head > 0 && rows % head != 0)
        rows += ATTN_PANEL;
    return rows;
}

/* Sets the rows of a chunk and of a strip, which of a matrix that stands whole is all of it.
 * Chunks of weights whose codes lie in columns are larger than others, the strip is not. */
static void divide(struct matrix *matrix)
{
    const struct attn_weight_rows *rows = matrix->rows;
    const size_t out = matrix->linear->out, chunk = rows_of_chunk(matrix);
    size_t chunks = 1;
    if (matrix->layer == NULL && rows != NULL && rows->tensor.quantized != NULL)
        chunks = attn_min(STRIP_CHUNKS,
                          attn_ceil_div(attn_quantized_rows(rows->tensor.quantized), chunk));
    matrix->chunk_rows = chunks * chunk;
    matrix->strip_rows =
        rows == NULL ? out : attn_min(out, STRIP_CHUNKS / chunks * matrix->chunk_rows);
}

static bool open_matrix(struct matrix *matrix, const struct layer_load *load)
{
    struct loading *loading = load->loading;
    struct attn_linear *linear = matrix->linear;
    divide(matrix);
    matrix->buffers = loading->buffers;
    const size_t count = matrix->rows == NULL ? 0 : matrix->strip_rows < linear->out ? 2 : 1;
    const size_t floats = attn_mul(matrix->strip_rows, linear->in);
    for (size_t i = 0; i < count; i++) {
        if (loading->room[i] >= floats)
            continue;
        attn_free(loading->buffers[i]);
        loading->buffers[i] = attn_alloc_huge(floats, sizeof(float));
        loading->room[i] = loading->buffers[i] != NULL ? floats : 0;
        if (loading->buffers[i] == NULL)
            return false;
    }
    if (matrix->layer == NULL && !attn_linear_pack_begin(linear, matrix->dtype))
        return false;
    matrix->scratch_bytes = matrix->layer != NULL ? attn_mla_pack_scratch(&matrix->layer->spec)
                                                  : attn_linear_pack_scratch(linear);
    matrix->scratch = attn_alloc(attn_pool_threads(loading->pool), matrix->scratch_bytes);
    return matrix->scratch != NULL;
}

static void tell_progress(struct loading *loading, size_t done)
{
    const struct attn_model *model = loading->model;
    loading->done = done;
    if (model->progress != NULL)
        model->progress(model->progress_context, loading->done, loading->total);
}

/* Hashes and packs the current strip and reads the next one. */
static enum attn_status run_strip(struct matrix *matrix, struct loading *loading,
                                  struct attn_error *error)
{
    const struct strip *current = &matrix->current, *next = &matrix->next;
    const struct attn_tensor_entry *entry =
        matrix->rows != NULL ? matrix->rows->tensor.entry : NULL;
    const size_t in = matrix->linear->in;
    const size_t packing = current->count > 0 ? 1 + chunks_of(matrix, current) : 0;
    attn_read_ahead_advance(&loading->ahead,
                            entry != NULL ? next->count * in * entry->dtype->bits / 8 : 0);
    attn_pool_run(loading->pool, run_task, matrix, packing + reading_tasks(matrix));
    if (current->count > 0)
        tell_progress(loading,
                      loading->done + attn_linear_bytes(in, current->count, matrix->dtype));
    if (atomic_load(&matrix->lacks_memory))
        return attn_fail_memory(error, matrix->scratch_bytes);
    if (!atomic_load(&matrix->failed))
        return ATTN_OK;
    atomic_store(&matrix->failed, false); /* once more in order, for the first error */
    return attn_weight_rows_read(next->x, matrix->rows, next->first, next->count, error);
}

/* Matrix i by enum attn_matrix. */
static uint64_t load_matrix(struct layer_load *load, uint64_t hash, struct attn_linear *linear,
                            size_t i)
{
    const bool divided = attn_mla_divides(&load->layer->spec, i);
    struct matrix matrix = {
        .linear = linear,
        .rows = load->by_rows ? &load->rows[i] : NULL,
        .layer = divided ? load->layer : NULL,
        .dtype = load->layer->spec.dtype,
        .in_order = load->by_rows && load->rows[i].tensor.npz != NULL,
        .hash = hash,
    };
    struct whole *spare = &load->loading->spare[i];
    if (!open_matrix(&matrix, load))
        load->status = attn_fail_memory(load->error,
                                        attn_linear_bytes(linear->in, linear->out, linear->dtype));
    for (size_t first = 0;
         load->status == ATTN_OK && (first < linear->out || matrix.current.count > 0);) {
        matrix.next = strip_at(&matrix, first);
        load->status = run_strip(&matrix, load->loading, load->error);
        first += matrix.next.count;
        matrix.current = matrix.next;
    }
    attn_free(matrix.scratch);
    attn_free(spare->weight);
    *spare = (struct whole){linear->weight, linear->weight != NULL ? linear->in * linear->out : 0};
    linear->weight = NULL;
    if (load->loading->is_last) {
        attn_free(spare->weight);
        *spare = (struct whole){NULL, 0};
    }
    return matrix.hash;
}

/* ---- A layer ---- */

/* Continues the fingerprint by a matrix, and packs it. */
static uint64_t add_matrix(void *context, uint64_t hash, struct attn_linear *linear)
{
    struct layer_load *load = context;
    const size_t i = (size_t)(linear - load->layer->matrices);
    return load->status == ATTN_OK ? load_matrix(load, hash, linear, i) : hash;
}

/* Reads all arrays of a layer but the matrices that come by rows, of which the places are told.
 * Others stand whole where those of the layer before stood, if they fit. */
static enum attn_status read_layer(struct layer_load *load, size_t index)
{
    const struct attn_model *model = load->loading->model;
    const struct attn_weights_source source = {model->checkpoint, &model->config,
                                               load->loading->pool, &load->loading->ahead};
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < ATTN_NUM_MATRICES && !load->by_rows; i++) {
        struct attn_linear *linear = &load->layer->matrices[i];
        struct whole *spare = &load->loading->spare[i];
        if (spare->floats == attn_mul(linear->in, linear->out)) {
            linear->weight = spare->weight;
            *spare = (struct whole){NULL, 0};
        }
    }
    if (!load->by_rows)
        status = attn_layer_make_weights(load->layer, load->error);
    if (status == ATTN_OK && model->checkpoint == NULL) {
        attn_weights_random(load->layer, model->config.hf.seed, index);
        attn_weights_random_rows(load->rows, load->layer, model->config.hf.seed, index);
        return ATTN_OK;
    }
    if (status == ATTN_OK)
        status = attn_weights_read(load->layer, &source, index, load->error);
    return status == ATTN_OK && load->by_rows
               ? attn_weights_rows(load->rows, load->layer, &source, index, load->error)
               : status;
}

static enum attn_status load_resident(uint64_t *hash, struct loading *loading, size_t resident,
                                      struct attn_error *error)
{
    struct attn_model *model = loading->model;
    const struct attn_layer_spec *spec = &model->specs[resident];
    struct layer_load load = {.loading = loading,
                              .layer = &model->layers[resident],
                              .by_rows = attn_weights_have_rows(&model->config, spec),
                              .error = error};
    const struct attn_weights_hash weights = {add_matrix, &load};
    const size_t before = loading->done;
    enum attn_status status = attn_layer_init(load.layer, spec, error);
    if (status == ATTN_OK && !spec->is_weightless)
        status = read_layer(&load, model->indices[resident]);
    if (status == ATTN_OK && !spec->is_weightless)
        status = attn_layer_derive(load.layer, error);
    if (status == ATTN_OK && !attn_mla_shape_heads(load.layer))
        status = attn_fail_memory(error, attn_mla_weight_bytes(spec));
    if (status != ATTN_OK)
        return status;
    *hash = attn_layer_hash(*hash, load.layer, &weights);
    if (load.status == ATTN_OK)
        tell_progress(loading, before + attn_layer_weight_bytes(spec));
    return load.status;
}

/* ---- A model ---- */

static size_t bytes_to_load(const struct attn_model *model)
{
    size_t bytes = 0;
    for (size_t i = 0; i < model->num_resident; i++)
        if (attn_model_weights_of(model, i) == i)
            bytes += attn_layer_weight_bytes(&model->specs[i]);
    return bytes;
}

size_t attn_model_loading_threads(const struct attn_model *model)
{
    const size_t most = bytes_to_load(model) / BYTES_PER_THREAD + 1;
    const size_t given = model->threads != 0 ? model->threads : attn_usable_cpus();
    return attn_min(attn_min(given, most), MAX_THREADS);
}

/* Starts the threads, and lists the matrices for reading ahead. */
static enum attn_status begin_loading(struct loading *loading, struct attn_error *error)
{
    const struct attn_model *model = loading->model;
    enum attn_status status = ATTN_OK;
    loading->total = bytes_to_load(model);
    size_t threads = attn_model_loading_threads(model);
    while (attn_pool_open(&loading->pool, (unsigned)threads) != ATTN_OK)
        if ((threads /= 2) == 0) /* fewer do, where the system has no room for more */
            return attn_fail(error, ATTN_NO_MEMORY, "threads", "no thread can be started");
    if (model->checkpoint == NULL)
        return ATTN_OK;
    if (!attn_read_ahead_init(&loading->ahead, model->num_resident * RANGES_PER_LAYER))
        return attn_fail_memory(error, model->num_resident * RANGES_PER_LAYER);
    for (size_t i = 0; i < model->num_resident && status == ATTN_OK; i++)
        if (attn_model_weights_of(model, i) == i)
            status = attn_weights_list(&loading->ahead, model->checkpoint, &model->config,
                                       model->indices[i], error);
    return status;
}

void attn_model_unload(struct attn_model *model)
{
    for (size_t i = 0; model->layers != NULL && i < model->num_resident; i++) {
        if (model->mapped.memory != NULL)
            attn_layer_visit(&model->layers[i], attn_forget_array, NULL);
        attn_layer_fini(&model->layers[i]);
    }
    if (model->mapped.memory != NULL)
        close(model->directory);
    attn_weights_file_close(&model->mapped);
}

enum attn_status attn_model_load_layers(struct attn_model *model, attn_layer_loaded *loaded,
                                        void *context, struct attn_error *error)
{
    uint64_t hash = 0;
    struct loading loading = {.model = model};
    enum attn_status status = begin_loading(&loading, error);
    for (size_t i = 0; status == ATTN_OK && i < model->num_resident; i++) {
        hash = attn_hash_word(hash, model->indices[i]);
        if (attn_model_weights_of(model, i) != i)
            continue;
        loading.is_last = i + 1 == model->num_resident;
        status = load_resident(&hash, &loading, i, error);
        if (status == ATTN_OK && loaded != NULL && !loaded(context, &model->layers[i]))
            break;
    }
    attn_pool_close(loading.pool);
    attn_read_ahead_fini(&loading.ahead);
    attn_free(loading.buffers[0]);
    attn_free(loading.buffers[1]);
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        attn_free(loading.spare[i].weight);
    if (status != ATTN_OK) {
        attn_model_unload(model);
        return status;
    }
    snprintf(model->fingerprint, sizeof model->fingerprint, "%016llx",
             (unsigned long long)attn_hash_mix(hash));
    return ATTN_OK;
}

void attn_model_loaded(struct attn_model *model)
{
    attn_checkpoint_close(model->checkpoint);
    model->checkpoint = NULL;
    model->loaded = true;
}

enum attn_status attn_model_load(struct attn_model *model, struct attn_error *error)
{
    if (model->loaded)
        return ATTN_OK;
    enum attn_status status = attn_model_check_weights(model, error);
    if (status == ATTN_OK)
        status = attn_model_load_layers(model, NULL, NULL, error);
    if (status == ATTN_OK)
        attn_model_loaded(model);
    return status;
}
