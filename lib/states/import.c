/* import.c: the bytes of a file become a cache.
 *
 * The bytes are not trusted.  Checks run in this order: the container (files/safetensors.h), the
 * tensors against the model, the checksum.  Only then are tokens copied, 64 at a time, and each
 * number is checked on the way.  The cache belongs to the import alone until it is complete, so a
 * refused file leaves nothing to undo. */
#include <stdio.h>
#include <string.h>

#include "basics/status.h"
#include "basics/widen.h"
#include "models/model.h"
#include "states/cache_file.h"

struct attn_import {
    struct attn_safetensors *file;
    struct attn_cache *cache;
    struct attn_cache_file_layer *layers; /* [num_layers] */
    size_t num_layers;
    const struct attn_tensor_entry **tensors; /* [2 * num_layers] key and value of each layer */
    float *scratch;                           /* [scratch_bytes] 64 tokens */
    size_t scratch_bytes;
    /* Progress. */
    bool summed;
    size_t tensor, offset; /* the next to be summed up: index into `tensors`, byte of that tensor */
    size_t layer, token;   /* the next to be copied, counted from the first that is kept */
    struct attn_checksum sum;
};

static enum attn_status fail_form(struct attn_error *error, const char *param, const char *what)
{
    return attn_fail(error, ATTN_MALFORMED, param, "state: %s", what);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static bool has_format(const struct attn_import *import, const char *format)
{
    const char *note = attn_import_note(import, "format");
    return note != NULL && strcmp(note, format) == 0;
}

enum attn_status attn_import_open(struct attn_import **out, const void *bytes, size_t size,
                                  struct attn_error *error)
{
    struct attn_import *import = attn_calloc(1, sizeof *import);
    if (import == NULL)
        return attn_fail_memory(error, sizeof *import);
    attn_checksum_init(&import->sum);
    enum attn_status status = attn_safetensors_open_bytes(&import->file, bytes, size, "state",
                                                          ATTN_MAX_STATE_HEADER, error);
    if (status == ATTN_OK && !has_format(import, ATTN_CACHE_FILE_FORMAT) &&
        !has_format(import, ATTN_CACHE_FILE_WINDOWS))
        status = fail_form(error, "format",
                           "its format is neither " ATTN_CACHE_FILE_FORMAT
                           " nor " ATTN_CACHE_FILE_WINDOWS);
    if (status == ATTN_OK)
        *out = import;
    else
        attn_import_close(import);
    return status;
}

void attn_import_close(struct attn_import *import)
{
    if (import == NULL)
        return;
    attn_safetensors_close(import->file);
    attn_free(import->layers);
    attn_free(import->tensors);
    attn_free(import->scratch);
    attn_free(import);
}

const char *attn_import_note(const struct attn_import *import, const char *name)
{
    return attn_safetensors_value(import->file, name);
}

/* ---- Against the model ----------------------------------------------------------------------- */

/* Finds one tensor and takes the layer's length from its shape. */
static enum attn_status find_tensor(const struct attn_tensor_entry **out, size_t *length,
                                    const struct attn_import *import,
                                    const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind, struct attn_error *error)
{
    char name[ATTN_CACHE_FILE_NAME];
    attn_cache_file_tensor_name(name, layer, kind);
    const struct attn_tensor_entry *entry = attn_safetensors_find(import->file, name);
    if (entry == NULL)
        return fail_form(error, name, "a tensor of the model's layers is missing");
    const size_t groups = layer->heads, width = layer->row_bytes[kind] / sizeof(float);
    if (strcmp(entry->dtype->name, "F32") != 0)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s is %s, not F32", name,
                         entry->dtype->name);
    if (entry->ndim != 3 || entry->shape[0] != groups || entry->shape[2] != width)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s is not [%zu,L,%zu]", name, groups,
                         width);
    *out = entry;
    *length = entry->shape[1];
    return ATTN_OK;
}

/* Whether a layer that reads another begins where that begins. */
static bool begins_with_source(const struct attn_import *import, size_t i)
{
    const struct attn_cache_file_layer *layer = &import->layers[i];
    size_t first = 0;
    for (size_t j = 0; j < i; j++)
        if (import->layers[j].layer == layer->spec->shares_layer)
            first = import->layers[j].first;
    return layer->spec->shares_layer == SIZE_MAX || layer->first == first;
}

static enum attn_status find_layer(struct attn_import *import, size_t i, struct attn_error *error)
{
    struct attn_cache_file_layer *layer = &import->layers[i];
    size_t lengths[2], limit = attn_cache_max_length(import->cache);
    for (int kind = 0; kind < 2; kind++) {
        enum attn_status status = find_tensor(&import->tensors[2 * i + (size_t)kind],
                                              &lengths[kind], import, layer, kind, error);
        if (status != ATTN_OK)
            return status;
    }
    if (lengths[0] != lengths[1])
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "layers",
                         "layer %zu has %zu keys and %zu values", layer->layer, lengths[0],
                         lengths[1]);
    layer->length = layer->first + lengths[0];
    if (layer->length > limit)
        return attn_fail(error, ATTN_CACHE_FULL, "lengths",
                         "layer %zu has %zu tokens, max_length is %zu", layer->layer, layer->length,
                         limit);
    if (attn_cache_length(import->cache, layer->layer) > 0)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache is not empty");
    if (!begins_with_source(import, i))
        return attn_fail(error, ATTN_MALFORMED, "first",
                         "layer %zu begins at token %zu, the layer that it reads at another",
                         layer->layer, layer->first);
    if (layer->first > attn_window_first(layer->spec, layer->length))
        return attn_fail(error, ATTN_MALFORMED, "first",
                         "layer %zu begins at token %zu, after what its window sees at %zu",
                         layer->layer, layer->first, layer->length);
    return ATTN_OK;
}

size_t attn_import_memory(const struct attn_model *model)
{
    size_t tensors = 2 * attn_model_num_resident(model) * sizeof(struct attn_tensor_entry *);
    return attn_cache_memory(model) + attn_cache_file_lists_bytes(model) +
           attn_cache_file_scratch_bytes(model) + tensors + 2 * ATTN_ALIGN;
}

/* Finds the tensors of all layers, and no others; the notes say their first tokens and lengths. */
static enum attn_status find_layers(struct attn_import *import, struct attn_error *error)
{
    const char *firsts = attn_import_note(import, "first");
    const char *lengths = attn_import_note(import, "lengths");
    enum attn_status status = ATTN_OK;
    char *found = NULL;
    if (has_format(import, ATTN_CACHE_FILE_WINDOWS) &&
        (firsts == NULL ||
         !attn_cache_file_read_firsts(import->layers, import->num_layers, firsts)))
        return fail_form(error, "first", "first is no list of the layers' first tokens");
    for (size_t i = 0; i < import->num_layers && status == ATTN_OK; i++)
        status = find_layer(import, i, error);
    if (status == ATTN_OK && import->file->count != 2 * import->num_layers)
        status = fail_form(error, NULL, "it has tensors that belong to none of the model's layers");
    if (status == ATTN_OK)
        status = attn_cache_file_numbers(&found, import->layers, import->num_layers, false, error);
    if (status == ATTN_OK && (lengths == NULL || strcmp(lengths, found) != 0))
        status = fail_form(error, "lengths", "lengths are not those of its tensors");
    attn_free(found);
    return status;
}

enum attn_status attn_import_begin(struct attn_import *import, struct attn_cache *cache,
                                   struct attn_error *error)
{
    const struct attn_model *model = attn_cache_model(cache);
    const char *fingerprint = attn_import_note(import, "fingerprint");
    struct attn_model_info info;
    import->cache = cache;
    attn_model_describe(&info, model);
    if (fingerprint == NULL || strcmp(fingerprint, info.fingerprint) != 0)
        return attn_fail(error, ATTN_INVALID, "fingerprint",
                         "the state is of a model with fingerprint %.32s, this one's is %s",
                         fingerprint != NULL ? fingerprint : "(none)", info.fingerprint);
    enum attn_status status =
        attn_cache_file_layers(&import->layers, &import->num_layers, model, error);
    if (status != ATTN_OK)
        return status;
    import->tensors = attn_alloc(2 * import->num_layers, sizeof *import->tensors);
    import->scratch_bytes = attn_cache_file_scratch_bytes(model);
    import->scratch = attn_alloc(import->scratch_bytes, 1);
    if (import->tensors == NULL || import->scratch == NULL)
        return attn_fail_memory(error, import->scratch_bytes);
    status = find_layers(import, error);
    for (size_t i = 0; i < import->num_layers && status == ATTN_OK; i++)
        status =
            attn_cache_begin_at(cache, import->layers[i].layer, import->layers[i].first, error);
    return status;
}

size_t attn_import_cache_bytes(const struct attn_import *import)
{
    size_t bytes = 0;
    for (size_t i = 0; i < import->num_layers; i++)
        bytes += attn_cache_layer_bytes(import->cache, import->layers[i].layer,
                                        import->layers[i].length);
    return bytes;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Ends the sum of a file's tensors with its notes and compares it with the note `checksum`. */
static enum attn_status check_sum(struct attn_checksum *sum, const struct attn_safetensors *file,
                                  struct attn_error *error)
{
    char digits[ATTN_CHECKSUM_DIGITS + 1];
    const char *said = attn_safetensors_value(file, "checksum");
    for (size_t i = 0; i < file->num_metadata; i++)
        if (file->metadata[i].value != said)
            attn_cache_file_sum_note(sum, file->metadata[i].name, file->metadata[i].value);
    attn_checksum_hex(digits, sum);
    digits[ATTN_CHECKSUM_DIGITS] = '\0';
    if (said != NULL && strcmp(said, digits) == 0)
        return ATTN_OK;
    return fail_form(error, "checksum", "its checksum is not that of its contents");
}

/* Adds up to `most` bytes of the current tensor to the sum, and goes on to the next at its end. */
static enum attn_status sum_piece(size_t *done, struct attn_import *import, size_t most,
                                  struct attn_error *error)
{
    const void *bytes;
    const struct attn_cache_file_layer *layer = &import->layers[import->tensor / 2];
    size_t left = attn_cache_file_tensor_bytes(layer, import->tensor % 2) - import->offset;
    size_t count = attn_min(attn_min(most, left), import->scratch_bytes);
    enum attn_status status =
        attn_safetensors_read_bytes(&bytes, import->file, import->tensors[import->tensor],
                                    import->offset, count, import->scratch, error);
    if (status != ATTN_OK)
        return status;
    attn_checksum_add(&import->sum, bytes, count);
    *done += count;
    import->offset += count;
    if (count == left) {
        import->tensor++;
        import->offset = 0;
    }
    return ATTN_OK;
}

/* Copies `count` tokens of one kind, from import->token on, into rows [G][count][..], and checks
 * that they are finite. */
static enum attn_status read_rows(float *rows, const struct attn_import *import, size_t count,
                                  enum attn_cache_file_kind kind, struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &import->layers[import->layer];
    const struct attn_tensor_entry *from = import->tensors[2 * import->layer + (size_t)kind];
    const size_t row = layer->row_bytes[kind], groups = layer->heads;
    for (size_t g = 0; g < groups; g++) {
        const void *bytes;
        char *room = (char *)rows + g * count * row;
        size_t first = (g * (layer->length - layer->first) + import->token) * row;
        enum attn_status status = attn_safetensors_read_bytes(&bytes, import->file, from, first,
                                                              count * row, room, error);
        if (status != ATTN_OK)
            return status;
        if (bytes != room)
            memcpy(room, bytes, count * row);
    }
    if (attn_all_finite(rows, groups * count * row / sizeof(float)))
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, kind == ATTN_CACHE_FILE_KEY ? "key" : "value",
                     "layer %zu: a %s from token %zu on is not finite", layer->layer,
                     kind == ATTN_CACHE_FILE_KEY ? "key" : "value", layer->first + import->token);
}

/* Copies up to 64 tokens of the current layer, and goes on to the next at its end. */
static enum attn_status copy_piece(size_t *done, struct attn_import *import,
                                   struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &import->layers[import->layer];
    const size_t kept = layer->length - layer->first;
    size_t count = attn_min(ATTN_TILE, kept - import->token);
    float *key = import->scratch;
    float *value = key + layer->heads * count * layer->row_bytes[ATTN_CACHE_FILE_KEY] / sizeof *key;
    enum attn_status status =
        attn_cache_reserve_list(import->cache, layer->layer, layer->length, error);
    if (status == ATTN_OK)
        status = read_rows(key, import, count, ATTN_CACHE_FILE_KEY, error);
    if (status == ATTN_OK)
        status = read_rows(value, import, count, ATTN_CACHE_FILE_VALUE, error);
    if (status == ATTN_OK)
        status = attn_cache_write(import->cache, layer->layer, count, key, value, error);
    *done += layer->heads * count * (layer->row_bytes[0] + layer->row_bytes[1]);
    import->token += count;
    if (import->token == kept) {
        import->token = 0;
        import->layer++;
    }
    return status;
}

enum attn_status attn_import_run(bool *more, struct attn_import *import, size_t budget,
                                 struct attn_error *error)
{
    size_t done = 0;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && done < budget && import->tensor < 2 * import->num_layers)
        status = sum_piece(&done, import, budget - done, error);
    *more = import->tensor < 2 * import->num_layers;
    if (status != ATTN_OK || *more)
        return status;
    if (!import->summed)
        status = check_sum(&import->sum, import->file, error);
    import->summed = true;
    while (status == ATTN_OK && done < budget && import->layer < import->num_layers)
        status = copy_piece(&done, import, error);
    *more = import->layer < import->num_layers;
    return status;
}
