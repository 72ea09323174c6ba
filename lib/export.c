/* export.c: a cache becomes the bytes of a file.
 *
 * The header is made first, with room for the checksum; then blocks of 64 tokens are read to
 * where their rows belong, [G][L][..] in the file, with no copy in between: an export takes no
 * memory but its header's.  Then what lies there is summed up from its first byte to its last, and
 * the checksum is put where it belongs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_file.h"
#include "kvcache.h"
#include "mem.h"
#include "model.h"
#include "status.h"

#define PREFIX 8 /* bytes of the header's length */
#define OWN_NOTES 3

static const char opening[] = "{\"__metadata__\":{\"checksum\":\"";

struct attn_export {
    const struct attn_cache *cache;
    struct attn_cache_file_layer *layers; /* [num_layers] */
    size_t num_layers;
    struct attn_model_info info; /* of the cache's model: its fingerprint is a note */
    char *lengths;
    struct attn_note *notes; /* [num_notes] own ones too, by name; texts live in `texts` */
    size_t num_notes;
    char *texts;
    char *header; /* [header_bytes] with its length before it */
    size_t header_bytes, data_bytes;
    /* How far it is. */
    bool begun;
    size_t layer, token; /* the next to be copied */
    size_t at;           /* bytes of the file before the tensors of `layer` */
    size_t summed;       /* bytes of data */
    struct attn_checksum sum;
};

/* ---- Notes ----------------------------------------------------------------------------------- */

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < 0x20 || *text > 0x7e || *text == '"' || *text == '\\')
            return false;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct attn_note *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static const char *keep(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    const char *kept = memcpy(*at, text, size);
    *at += size;
    return kept;
}

/* Copies the notes behind the own ones, which stand there already. */
static enum attn_status copy_notes(struct attn_export *state, const struct attn_note *notes,
                                   size_t count, struct attn_error *error)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++) {
        if (!is_plain(notes[i].name) || !is_plain(notes[i].value) ||
            strchr(notes[i].name, '=') != NULL || strcmp(notes[i].name, "checksum") == 0)
            return attn_fail(error, ATTN_INVALID, "notes", "note %zu is no plain text", i);
        bytes += strlen(notes[i].name) + strlen(notes[i].value) + 2;
    }
    char *at = state->texts = attn_alloc(bytes, 1);
    if (at == NULL)
        return attn_fail_memory(error, bytes);
    for (size_t i = 0; i < count; i++) {
        const char *name = keep(&at, notes[i].name);
        state->notes[state->num_notes++] = (struct attn_note){name, keep(&at, notes[i].value)};
    }
    return ATTN_OK;
}

static enum attn_status take_notes(struct attn_export *state, const struct attn_note *notes,
                                   size_t count, struct attn_error *error)
{
    if (count > ATTN_MAX_NOTES)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "notes", "%zu notes, at most %d", count,
                         ATTN_MAX_NOTES);
    state->notes = attn_alloc(OWN_NOTES + count, sizeof *state->notes);
    if (state->notes == NULL)
        return attn_fail_memory(error, (OWN_NOTES + count) * sizeof *state->notes);
    state->notes[0] = (struct attn_note){"format", ATTN_CACHE_FILE_FORMAT};
    state->notes[1] = (struct attn_note){"fingerprint", state->info.fingerprint};
    state->notes[2] = (struct attn_note){"lengths", state->lengths};
    state->num_notes = OWN_NOTES;
    enum attn_status status = copy_notes(state, notes, count, error);
    if (status != ATTN_OK)
        return status;
    qsort(state->notes, state->num_notes, sizeof *state->notes, by_name);
    for (size_t i = 1; i < state->num_notes; i++)
        if (by_name(&state->notes[i - 1], &state->notes[i]) == 0)
            return attn_fail(error, ATTN_INVALID, "notes", "'%.64s' is noted twice",
                             state->notes[i].name);
    return ATTN_OK;
}

/* ---- The header ------------------------------------------------------------------------------ */

/* A text that is first measured and then written. */
struct text {
    char *to; /* NULL: measured only */
    size_t length;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    va_start(args, format);
    if (text->to != NULL)
        vsnprintf(text->to + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

static void add_tensor(struct text *text, const struct attn_cache_file_layer *layer, int what,
                       size_t begin)
{
    char name[ATTN_CACHE_FILE_NAME];
    attn_cache_file_tensor_name(name, layer, what);
    add(text, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu,%zu],\"data_offsets\":[%zu,%zu]}",
        name, layer->spec->num_kv_heads, layer->length,
        attn_cache_file_row_bytes(layer, what) / sizeof(float), begin,
        begin + attn_cache_file_tensor_bytes(layer, what));
}

static void add_header(struct text *text, const struct attn_export *state)
{
    size_t at = 0;
    add(text, "%s%0*d\"", opening, ATTN_CHECKSUM_DIGITS, 0);
    for (size_t i = 0; i < state->num_notes; i++)
        add(text, ",\"%s\":\"%s\"", state->notes[i].name, state->notes[i].value);
    add(text, "}");
    for (size_t i = 0; i < state->num_layers; i++)
        for (int what = 0; what < 2; what++) {
            add_tensor(text, &state->layers[i], what, at);
            at += attn_cache_file_tensor_bytes(&state->layers[i], what);
        }
    add(text, "}");
}

/* Blanks at its end make the data begin at a multiple of 8. */
static enum attn_status make_header(struct attn_export *state, struct attn_error *error)
{
    struct text text = {0};
    add_header(&text, state);
    size_t padded = attn_ceil_div(text.length, 8) * 8;
    if (padded > ATTN_MAX_STATE_HEADER)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "notes", "a header of %zu bytes, at most %d",
                         padded, ATTN_MAX_STATE_HEADER);
    state->header_bytes = PREFIX + padded;
    state->header = attn_alloc(state->header_bytes + 1, 1);
    if (state->header == NULL)
        return attn_fail_memory(error, state->header_bytes);
    uint64_t length = padded;
    memcpy(state->header, &length, PREFIX);
    memset(state->header + PREFIX, ' ', padded);
    text = (struct text){.to = state->header + PREFIX};
    add_header(&text, state);
    if (text.length < padded)
        text.to[text.length] = ' '; /* instead of the text's NUL */
    return ATTN_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static enum attn_status look_at_cache(struct attn_export *state, struct attn_error *error)
{
    const struct attn_model *model = attn_cache_model(state->cache);
    enum attn_status status =
        attn_cache_file_layers(&state->layers, &state->num_layers, model, error);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < state->num_layers; i++) {
        struct attn_cache_file_layer *layer = &state->layers[i];
        layer->length = attn_cache_length(state->cache, layer->layer);
        state->data_bytes +=
            attn_cache_file_tensor_bytes(layer, 0) + attn_cache_file_tensor_bytes(layer, 1);
    }
    return attn_cache_file_lengths(&state->lengths, state->layers, state->num_layers, error);
}

enum attn_status attn_export_open(struct attn_export **out, const struct attn_cache *cache,
                                  const struct attn_note *notes, size_t num_notes,
                                  struct attn_error *error)
{
    struct attn_export *state = attn_calloc(1, sizeof *state);
    if (state == NULL)
        return attn_fail_memory(error, sizeof *state);
    attn_model_describe(&state->info, attn_cache_model(cache));
    state->cache = cache;
    attn_checksum_init(&state->sum);
    enum attn_status status = look_at_cache(state, error);
    if (status == ATTN_OK)
        status = take_notes(state, notes, num_notes, error);
    if (status == ATTN_OK)
        status = make_header(state, error);
    state->at = state->header_bytes;
    if (status == ATTN_OK)
        *out = state;
    else
        attn_export_close(state);
    return status;
}

void attn_export_close(struct attn_export *state)
{
    if (state == NULL)
        return;
    attn_free(state->layers);
    attn_free(state->lengths);
    attn_free(state->notes);
    attn_free(state->texts);
    attn_free(state->header);
    attn_free(state);
}

size_t attn_export_bytes(const struct attn_export *state)
{
    return state->header_bytes + state->data_bytes;
}

#define LAYER_TEXT 384 /* of the header, for each layer: two tensors */
#define REST_TEXT 256  /* and of what is always there */

size_t attn_export_memory(const struct attn_cache *cache, const struct attn_note *notes,
                          size_t num_notes)
{
    const struct attn_model *model = attn_cache_model(cache);
    size_t lists = attn_cache_file_lists_bytes(model), texts = 0;
    for (size_t i = 0; i < num_notes; i++)
        texts += strlen(notes[i].name) + strlen(notes[i].value);
    size_t header =
        attn_model_num_resident(model) * LAYER_TEXT + lists + texts + 8 * num_notes + REST_TEXT;
    return attn_cache_frozen_bytes(cache) + sizeof(struct attn_export) + lists + header + texts +
           (OWN_NOTES + num_notes) * (sizeof *notes + 2) + 5 * ATTN_ALIGN;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Copies up to 64 tokens of the layer that is being copied; returns their bytes. */
static size_t copy_piece(char *out, struct attn_export *state)
{
    const struct attn_cache_file_layer *layer = &state->layers[state->layer];
    size_t count = attn_min(ATTN_TILE, layer->length - state->token);
    size_t groups = layer->spec->num_kv_heads, keys = attn_cache_file_tensor_bytes(layer, 0);
    char *key = out + state->at + state->token * attn_cache_file_row_bytes(layer, 0);
    char *value = out + state->at + keys + state->token * attn_cache_file_row_bytes(layer, 1);
    attn_cache_read_strided((float *)(void *)key, (float *)(void *)value, state->cache,
                            layer->layer, state->token, count, layer->length);
    state->token += count;
    if (state->token == layer->length) {
        state->at += keys + attn_cache_file_tensor_bytes(layer, 1);
        state->token = 0;
        state->layer++;
    }
    return groups * count *
           (attn_cache_file_row_bytes(layer, 0) + attn_cache_file_row_bytes(layer, 1));
}

static size_t sum_piece(const char *data, struct attn_export *state, size_t most)
{
    size_t count = attn_min(most, state->data_bytes - state->summed);
    attn_checksum_add(&state->sum, data + state->summed, count);
    state->summed += count;
    return count;
}

static void finish(char *out, struct attn_export *state)
{
    for (size_t i = 0; i < state->num_notes; i++)
        attn_cache_file_sum_note(&state->sum, state->notes[i].name, state->notes[i].value);
    attn_checksum_hex(out + PREFIX + sizeof opening - 1, &state->sum);
}

bool attn_export_run(struct attn_export *state, void *out, size_t budget)
{
    size_t done = 0;
    if (!state->begun)
        memcpy(out, state->header, state->header_bytes);
    state->begun = true;
    while (done < budget && state->layer < state->num_layers)
        done += copy_piece(out, state);
    if (state->layer == state->num_layers && done < budget)
        sum_piece((char *)out + state->header_bytes, state, budget - done);
    if (state->layer < state->num_layers || state->summed < state->data_bytes)
        return true;
    finish(out, state);
    return false;
}
