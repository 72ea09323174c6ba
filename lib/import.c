/* import.c: the bytes of a file become a cache.
 *
 * The bytes come from anywhere, and lie in memory or in a file, of which no more than 64 tokens are
 * held at a time.  The container is checked first (safetensors.h), then the tensors against the
 * model, then the checksum; only then tokens are copied, 64 at a time, and each number is looked at
 * on the way.  All that time the cache belongs to nobody else, so what is refused leaves nothing
 * behind. */
#include <string.h>

#include "cache_file.h"
#include "import_share.h"
#include "kvcache.h"
#include "mem.h"
#include "model.h"
#include "safetensors.h"
#include "status.h"
#include "widen.h"

struct attn_import {
    struct attn_safetensors *file;
    struct attn_cache *cache;
    struct attn_cache_file_layer *layers; /* [num_layers] */
    size_t num_layers;
    struct attn_import_share *shares;         /* [num_layers] NULL: all blocks are its own */
    const struct attn_tensor_entry **tensors; /* [2 * num_layers] key and value of each */
    float *scratch;                           /* [scratch_bytes] 64 tokens */
    size_t scratch_bytes;
    /* How far it is. */
    bool summed;
    size_t tensor, offset; /* the next to be summed up: which of `tensors`, byte of it */
    size_t layer, token;   /* the next to be copied */
    struct attn_checksum sum;
};

static enum attn_status fail_form(struct attn_error *error, const char *param, const char *what)
{
    return attn_fail(error, ATTN_MALFORMED, param, "state: %s", what);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static enum attn_status open_source(struct attn_import **out,
                                    const struct attn_safetensors_source *source,
                                    struct attn_error *error)
{
    struct attn_import *state = attn_calloc(1, sizeof *state);
    if (state == NULL)
        return attn_fail_memory(error, sizeof *state);
    attn_checksum_init(&state->sum);
    enum attn_status status =
        attn_safetensors_open_source(&state->file, source, "state", ATTN_MAX_STATE_HEADER, error);
    const char *format = status == ATTN_OK ? attn_import_note(state, "format") : NULL;
    if (status == ATTN_OK && (format == NULL || strcmp(format, ATTN_CACHE_FILE_FORMAT) != 0))
        status = fail_form(error, "format", "its format is not " ATTN_CACHE_FILE_FORMAT);
    if (status == ATTN_OK)
        *out = state;
    else
        attn_import_close(state);
    return status;
}

enum attn_status attn_import_open(struct attn_import **out, const void *bytes, size_t size,
                                  struct attn_error *error)
{
    return open_source(out, &(struct attn_safetensors_source){bytes, -1, size}, error);
}

enum attn_status attn_import_open_file(struct attn_import **out, int file, size_t size,
                                       struct attn_error *error)
{
    return open_source(out, &(struct attn_safetensors_source){NULL, file, size}, error);
}

void attn_import_close(struct attn_import *state)
{
    if (state == NULL)
        return;
    attn_safetensors_close(state->file);
    attn_free(state->layers);
    attn_free(state->shares);
    attn_free(state->tensors);
    attn_free(state->scratch);
    attn_free(state);
}

const char *attn_import_note(const struct attn_import *state, const char *name)
{
    return attn_safetensors_note(state->file, name);
}

/* ---- Against the model ----------------------------------------------------------------------- */

/* Finds one tensor and reads its length off its shape. */
static enum attn_status find_tensor(const struct attn_tensor_entry **out, size_t *length,
                                    const struct attn_import *state,
                                    const struct attn_cache_file_layer *layer, int what,
                                    struct attn_error *error)
{
    char name[ATTN_CACHE_FILE_NAME];
    attn_cache_file_tensor_name(name, layer, what);
    const struct attn_tensor_entry *entry = attn_safetensors_find(state->file, name);
    if (entry == NULL)
        return fail_form(error, name, "a tensor of the model's layers is missing");
    size_t groups = layer->spec->num_kv_heads,
           width = attn_cache_file_row_bytes(layer, what) / sizeof(float);
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

static enum attn_status find_layer(struct attn_import *state, size_t i, struct attn_error *error)
{
    struct attn_cache_file_layer *layer = &state->layers[i];
    size_t lengths[2], limit = attn_cache_max_length(state->cache);
    for (int what = 0; what < 2; what++) {
        enum attn_status status = find_tensor(&state->tensors[2 * i + (size_t)what], &lengths[what],
                                              state, layer, what, error);
        if (status != ATTN_OK)
            return status;
    }
    if (lengths[0] != lengths[1])
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "layers",
                         "layer %zu has %zu keys and %zu values", layer->layer, lengths[0],
                         lengths[1]);
    layer->length = lengths[0];
    if (layer->length > limit)
        return attn_fail(error, ATTN_CACHE_FULL, "lengths",
                         "layer %zu has %zu tokens, max_length is %zu", layer->layer, layer->length,
                         limit);
    if (attn_cache_length(state->cache, layer->layer) > 0)
        return attn_fail(error, ATTN_INVALID, "cache", "the cache is not empty");
    return ATTN_OK;
}

static enum attn_status check_lengths(const struct attn_import *state, struct attn_error *error)
{
    char *lengths;
    const char *note = attn_import_note(state, "lengths");
    enum attn_status status =
        attn_cache_file_lengths(&lengths, state->layers, state->num_layers, error);
    if (status != ATTN_OK)
        return status;
    if (note == NULL || strcmp(note, lengths) != 0)
        status = fail_form(error, "lengths", "lengths are not those of its tensors");
    attn_free(lengths);
    return status;
}

static enum attn_status check_fingerprint(const struct attn_import *state, struct attn_error *error)
{
    struct attn_model_info info;
    const char *note = attn_import_note(state, "fingerprint");
    attn_model_describe(&info, attn_cache_model(state->cache));
    if (note != NULL && strcmp(note, info.fingerprint) == 0)
        return ATTN_OK;
    return attn_fail(error, ATTN_INVALID, "fingerprint",
                     "the state is of a model with fingerprint %.32s, this one's is %s",
                     note != NULL ? note : "(none)", info.fingerprint);
}

size_t attn_import_memory(const struct attn_model *model)
{
    size_t tensors = 2 * attn_model_num_resident(model) * sizeof(struct attn_tensor_entry *);
    return attn_cache_memory(model) + attn_cache_file_lists_bytes(model) +
           attn_cache_file_scratch_bytes(model) + tensors + 2 * ATTN_ALIGN;
}

enum attn_status attn_import_begin(struct attn_import *state, struct attn_cache *cache,
                                   struct attn_error *error)
{
    state->cache = cache;
    enum attn_status status = check_fingerprint(state, error);
    if (status == ATTN_OK)
        status = attn_cache_file_layers(&state->layers, &state->num_layers, attn_cache_model(cache),
                                        error);
    if (status != ATTN_OK)
        return status;
    state->tensors = attn_alloc(2 * state->num_layers, sizeof *state->tensors);
    state->scratch_bytes = attn_cache_file_scratch_bytes(attn_cache_model(cache));
    state->scratch = attn_alloc(state->scratch_bytes, 1);
    if (state->tensors == NULL || state->scratch == NULL)
        return attn_fail_memory(error, state->scratch_bytes);
    for (size_t i = 0; i < state->num_layers && status == ATTN_OK; i++)
        status = find_layer(state, i, error);
    if (status == ATTN_OK && attn_safetensors_count(state->file) != 2 * state->num_layers)
        status = fail_form(error, NULL, "it has tensors that belong to none of the model's layers");
    return status == ATTN_OK ? check_lengths(state, error) : status;
}

enum attn_status attn_import_share_blocks(struct attn_import *state, size_t layer,
                                          const struct attn_cache *from, size_t blocks,
                                          struct attn_error *error)
{
    size_t i = 0, most;
    (void)attn_cache_blocks(&most, from, layer);
    while (i < state->num_layers && state->layers[i].layer != layer)
        i++;
    if (i == state->num_layers || attn_cache_model(from) != attn_cache_model(state->cache))
        return ATTN_OK;
    if (state->shares == NULL)
        state->shares = attn_calloc(state->num_layers, sizeof *state->shares);
    if (state->shares == NULL)
        return attn_fail_memory(error, state->num_layers * sizeof *state->shares);
    state->shares[i] = (struct attn_import_share){from, attn_min(blocks, most)};
    return ATTN_OK;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static bool sum_agrees(struct attn_import *state)
{
    size_t count;
    char digits[ATTN_CHECKSUM_DIGITS + 1];
    const char *said = attn_import_note(state, "checksum");
    const struct attn_safetensors_note_pair *notes = attn_safetensors_notes(&count, state->file);
    for (size_t i = 0; i < count; i++)
        if (notes[i].value != said)
            attn_cache_file_sum_note(&state->sum, notes[i].name, notes[i].value);
    attn_checksum_hex(digits, &state->sum);
    digits[ATTN_CHECKSUM_DIGITS] = '\0';
    return said != NULL && strcmp(said, digits) == 0;
}

/* Adds up to `most` bytes of a tensor to the sum and passes on to the next. */
static enum attn_status sum_piece(size_t *done, struct attn_import *state, size_t most,
                                  struct attn_error *error)
{
    const void *bytes;
    const struct attn_cache_file_layer *layer = &state->layers[state->tensor / 2];
    size_t left = attn_cache_file_tensor_bytes(layer, (int)(state->tensor % 2)) - state->offset;
    size_t count = attn_min(attn_min(most, left), state->scratch_bytes);
    enum attn_status status =
        attn_safetensors_read_bytes(&bytes, state->file, state->tensors[state->tensor],
                                    state->offset, count, state->scratch, error);
    if (status != ATTN_OK)
        return status;
    attn_checksum_add(&state->sum, bytes, count);
    *done += count;
    state->offset += count;
    if (count == left) {
        state->tensor++;
        state->offset = 0;
    }
    return ATTN_OK;
}

/* Copies tokens [state->token, + count) of one kind into rows [G][count][..] and looks at them. */
static enum attn_status gather(float *rows, const struct attn_import *state, size_t count, int what,
                               struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &state->layers[state->layer];
    const struct attn_tensor_entry *from = state->tensors[2 * state->layer + (size_t)what];
    size_t row = attn_cache_file_row_bytes(layer, what), groups = layer->spec->num_kv_heads;
    for (size_t g = 0; g < groups; g++) {
        const void *bytes;
        char *room = (char *)rows + g * count * row;
        size_t first = (g * layer->length + state->token) * row;
        enum attn_status status =
            attn_safetensors_read_bytes(&bytes, state->file, from, first, count * row, room, error);
        if (status != ATTN_OK)
            return status;
        if (bytes != room)
            memcpy(room, bytes, count * row);
    }
    if (attn_all_finite(rows, groups * count * row / sizeof(float)))
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, what == 0 ? "key" : "value",
                     "layer %zu: a %s from token %zu on is not finite", layer->layer,
                     what == 0 ? "key" : "value", state->token);
}

/* The next tokens of the layer that is being copied. */
static enum attn_status write_piece(struct attn_import *state, size_t count, const float *key,
                                    const float *value, struct attn_error *error)
{
    struct attn_import_share none = {0};
    struct attn_import_share *share = state->shares != NULL ? &state->shares[state->layer] : &none;
    return attn_import_share_write(share, state->cache, state->layers[state->layer].layer, count,
                                   key, value, error);
}

/* Copies up to 64 tokens of the layer that is being copied, and passes on to the next. */
static enum attn_status copy_piece(size_t *done, struct attn_import *state,
                                   struct attn_error *error)
{
    const struct attn_cache_file_layer *layer = &state->layers[state->layer];
    size_t count = attn_min(ATTN_TILE, layer->length - state->token);
    size_t groups = layer->spec->num_kv_heads;
    float *key = state->scratch, *value = key + groups * count * layer->spec->head_dim;
    enum attn_status status =
        attn_cache_reserve_list(state->cache, layer->layer, layer->length, error);
    if (status == ATTN_OK)
        status = gather(key, state, count, 0, error);
    if (status == ATTN_OK)
        status = gather(value, state, count, 1, error);
    if (status == ATTN_OK)
        status = write_piece(state, count, key, value, error);
    *done += groups * count *
             (attn_cache_file_row_bytes(layer, 0) + attn_cache_file_row_bytes(layer, 1));
    state->token += count;
    if (state->token == layer->length) {
        state->token = 0;
        state->layer++;
    }
    return status;
}

enum attn_status attn_import_run(bool *more, struct attn_import *state, size_t budget,
                                 struct attn_error *error)
{
    size_t done = 0;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && done < budget && state->tensor < 2 * state->num_layers)
        status = sum_piece(&done, state, budget - done, error);
    *more = state->tensor < 2 * state->num_layers;
    if (status != ATTN_OK || *more)
        return status;
    if (!state->summed && !sum_agrees(state))
        return fail_form(error, "checksum", "its checksum is not that of its contents");
    state->summed = true;
    while (status == ATTN_OK && done < budget && state->layer < state->num_layers)
        status = copy_piece(&done, state, error);
    *more = state->layer < state->num_layers;
    return status;
}
