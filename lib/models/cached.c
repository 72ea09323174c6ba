/* cached.c: a model whose weights are pages of a file.
 *
 * The file is found by its key, a hash of all that its content follows from.  Whatever keeps a file
 * from being used or written is no error of the model: its weights are loaded as ever then. */
#include "models/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "basics/status.h"
#include "machine/build_id.h"

#define SETTLED_S 2 /* a file that changed later may change again within the grain of its times */

struct cache {
    int directory;
    const char *label;
    char key[ATTN_CHECKSUM_DIGITS], name[ATTN_WEIGHTS_NAME_MAX];
    time_t changed; /* when a file of the checkpoint last did */
    size_t data;    /* bytes of the arrays */
};

/* ---- The key ---- */

/* Fills key and changed. */
static bool make_key(struct cache *cache, const struct attn_model *model, struct attn_error *error)
{
    const struct attn_family *family = model->config.family;
    const char *stack = family->stack != NULL ? family->stack : "";
    struct attn_build_id build;
    struct attn_checksum sum;
    attn_checksum_init(&sum);
    if (!attn_build_id(&build)) {
        (void)attn_fail(error, ATTN_UNSUPPORTED, "weights_cache", "this program has no build id");
        return false;
    }
    attn_checksum_add(&sum, build.bytes, build.count);
    attn_checksum_add(&sum, model->config_sum, sizeof model->config_sum);
    attn_checksum_add(&sum, family->name, strlen(family->name) + 1);
    attn_checksum_add(&sum, stack, strlen(stack) + 1);
    attn_checksum_add(&sum, &model->num_resident, sizeof model->num_resident);
    attn_checksum_add(&sum, model->indices, model->num_resident * sizeof *model->indices);
    for (size_t i = 0; i < model->num_resident; i++) {
        const uint32_t dtypes[] = {model->specs[i].dtype, model->specs[i].kv_dtype};
        attn_checksum_add(&sum, dtypes, sizeof dtypes);
    }
    if (model->checkpoint != NULL &&
        !attn_checkpoint_stamp(&sum, &cache->changed, model->checkpoint)) {
        (void)attn_fail(error, ATTN_IO, "weights_cache", "a file of the checkpoint cannot be read");
        return false;
    }
    attn_checksum_hex(cache->key, &sum);
    attn_weights_print_name(cache->name, cache->label, cache->key);
    return true;
}

/* ---- Arrays in the file ---- */

static size_t aligned(size_t bytes)
{
    return attn_mul(attn_ceil_div(bytes, ATTN_ALIGN), ATTN_ALIGN);
}

static void *measure_array(void *context, void *array, size_t bytes)
{
    size_t *total = context;
    *total = attn_add(*total, aligned(bytes));
    return array;
}

static void *write_array(void *context, void *array, size_t bytes)
{
    attn_weights_writer_add(context, array, bytes);
    return array;
}

static void *map_array(void *context, void *array, size_t bytes)
{
    char **next = context, *here = *next;
    (void)array;
    *next += aligned(bytes);
    return here;
}

void *attn_forget_array(void *context, void *array, size_t bytes)
{
    (void)context, (void)array, (void)bytes;
    return NULL;
}

static enum attn_status measure(size_t *out, const struct attn_model *model,
                                struct attn_error *error)
{
    *out = 0;
    for (size_t i = 0; i < model->num_resident; i++) {
        struct attn_layer layer;
        if (attn_model_weights_of(model, i) != i)
            continue;
        enum attn_status status = attn_layer_init_packed(&layer, &model->specs[i], error);
        if (status != ATTN_OK)
            return status;
        attn_layer_visit(&layer, measure_array, out);
        attn_layer_fini(&layer);
    }
    return ATTN_OK;
}

/* Makes all layers of the arrays that stand in `next`. */
static enum attn_status map_layers(struct attn_model *model, char *next, struct attn_error *error)
{
    for (size_t i = 0; i < model->num_resident; i++) {
        if (attn_model_weights_of(model, i) != i)
            continue;
        enum attn_status status =
            attn_layer_init_packed(&model->layers[i], &model->specs[i], error);
        if (status != ATTN_OK)
            return status;
        attn_layer_visit(&model->layers[i], map_array, &next);
        if ((status = attn_layer_derive(&model->layers[i], error)) != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* ---- Using a file, and writing one ---- */

/* Maps the file; the model owns the directory's descriptor from then on. */
static enum attn_status use_file(struct attn_model *model, const struct cache *cache,
                                 struct attn_error *error)
{
    enum attn_status status = attn_weights_file_open(&model->mapped, cache->directory, cache->name,
                                                     cache->key, cache->data, error);
    if (status != ATTN_OK)
        return status;
    model->directory = openat(cache->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(model->weights_name, cache->name, sizeof model->weights_name);
    memcpy(model->fingerprint, model->mapped.fingerprint, sizeof model->fingerprint);
    status = map_layers(model, model->mapped.memory + ATTN_WEIGHTS_HEADER, error);
    if (status == ATTN_OK)
        attn_model_loaded(model);
    else
        attn_model_unload(model);
    return status;
}

static bool write_layer(void *context, struct attn_layer *layer)
{
    struct attn_weights_writer *writer = context;
    attn_layer_visit(layer, write_array, writer);
    attn_layer_fini(layer);
    return writer->code == 0;
}

/* Loads layer after layer and writes each to the file.  Where the file fails, *code is an errno and
 * the status ATTN_OK. */
static enum attn_status write_file(int *code, struct attn_model *model, const struct cache *cache,
                                   struct attn_error *error)
{
    struct attn_weights_writer writer;
    struct cache after = *cache;
    enum attn_status status = ATTN_OK;
    attn_weights_tidy(cache->directory, cache->label, cache->name);
    attn_weights_writer_begin(&writer, cache->directory, cache->name, cache->data);
    if (writer.code == 0)
        status = attn_model_load_layers(model, write_layer, &writer, error);
    if (status == ATTN_OK && writer.code == 0 && make_key(&after, model, error) &&
        memcmp(after.key, cache->key, sizeof after.key) == 0)
        attn_weights_writer_end(&writer, cache->key, model->fingerprint);
    *code = writer.code;
    attn_weights_writer_fini(&writer);
    return status;
}

/* For the holder of the directory's lock: another process may have written the file before. */
static enum attn_status write_and_use(struct attn_cached_load *out, struct attn_model *model,
                                      const struct cache *cache, struct attn_error *error)
{
    struct attn_error why = {0};
    char text[64];
    int code = 0;
    out->mapped = use_file(model, cache, &why) == ATTN_OK;
    if (out->mapped)
        return ATTN_OK;
    enum attn_status status = write_file(&code, model, cache, error);
    if (status != ATTN_OK)
        return status;
    out->mapped = out->written = code == 0 && use_file(model, cache, &why) == ATTN_OK;
    if (code != 0)
        snprintf(out->reason, sizeof out->reason, "the file of weights cannot be written: %s",
                 strerror_r(code, text, sizeof text));
    else if (!out->mapped)
        snprintf(out->reason, sizeof out->reason, "%.190s", why.message);
    return ATTN_OK;
}

static enum attn_status load_with(struct attn_cached_load *out, struct attn_model *model,
                                  struct cache *cache, struct attn_error *error)
{
    struct attn_error why = {0};
    enum attn_status status = measure(&cache->data, model, error);
    if (status != ATTN_OK)
        return status;
    const bool known = make_key(cache, model, &why);
    if (known && use_file(model, cache, &why) == ATTN_OK) {
        out->mapped = true;
        return ATTN_OK;
    }
    /* A file that is written now has to be found by the next start. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (model->checkpoint != NULL && now.tv_sec - cache->changed < SETTLED_S) {
        if (known)
            (void)attn_fail(
                &why, ATTN_IO, "weights_cache",
                "a file of the checkpoint changed less than %d s ago and may change again",
                SETTLED_S);
    } else if (known && attn_weights_lock(cache->directory, &why) == ATTN_OK) {
        return write_and_use(out, model, cache, error);
    }
    snprintf(out->reason, sizeof out->reason, "%.190s", why.message);
    return ATTN_OK;
}

enum attn_status attn_model_load_cached(struct attn_cached_load *out, struct attn_model *model,
                                        const char *directory, const char *label,
                                        struct attn_error *error)
{
    struct cache cache = {.label = label};
    struct attn_error why = {0};
    *out = (struct attn_cached_load){0};
    if (model->loaded)
        return ATTN_OK;
    enum attn_status status = attn_model_check_weights(model, error);
    if (status != ATTN_OK)
        return status;
    status = attn_weights_directory_open(&cache.directory, directory, true, &why);
    if (status == ATTN_UNSUPPORTED)
        return attn_fail(error, status, why.param, "%s", why.message);
    if (status == ATTN_OK) {
        status = load_with(out, model, &cache, error);
        close(cache.directory); /* and with it goes the lock */
    } else {
        snprintf(out->reason, sizeof out->reason, "%.190s", why.message);
        status = ATTN_OK;
    }
    return status == ATTN_OK ? attn_model_load(model, error) : status;
}

enum attn_status attn_model_find_cached(const struct attn_model *model, const char *directory,
                                        const char *label, struct attn_error *error)
{
    struct cache cache = {.label = label};
    enum attn_status status =
        attn_weights_directory_open(&cache.directory, directory, false, error);
    if (status != ATTN_OK)
        return status;
    status = measure(&cache.data, model, error);
    if (status == ATTN_OK && !make_key(&cache, model, error))
        status = ATTN_UNSUPPORTED;
    if (status == ATTN_OK)
        status = attn_weights_file_check(cache.directory, cache.name, cache.key, cache.data, error);
    close(cache.directory);
    return status;
}

/* ---- Pages that are lost ---- */

bool attn_model_maps(const struct attn_model *model, const void *address)
{
    const uintptr_t first = (uintptr_t)model->mapped.memory, at = (uintptr_t)address;
    return first != 0 && at >= first && at - first < model->mapped.bytes;
}

bool attn_model_is_whole(const struct attn_model *model)
{
    struct stat info;
    return model->mapped.memory == NULL || fstat(model->mapped.file, &info) != 0 ||
           (size_t)info.st_size >= model->mapped.bytes;
}

/* ---- Notes ---- */

const char *attn_model_mapped_checksum(const struct attn_model *model)
{
    return model->mapped.memory != NULL ? model->mapped.checksum : NULL;
}

bool attn_model_noted(const struct attn_model *model, const char *fact,
                      const char digest[ATTN_CHECKSUM_DIGITS])
{
    return attn_weights_noted(model->directory, model->weights_name, fact, digest);
}

void attn_model_note(const struct attn_model *model, const char *fact,
                     const char digest[ATTN_CHECKSUM_DIGITS])
{
    attn_weights_note(model->directory, model->weights_name, fact, digest);
}
