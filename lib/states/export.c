/* export.c: a cache becomes the bytes of a file.
 *
 * The header is made first, with room for the checksum.  Rows are then read in the order of the
 * file, [G][L][..] of each tensor, and summed up at once, so an export takes no memory but its
 * header's.  The header is the last piece, with the checksum in it, though the file begins with
 * it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attn_limits.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "files/file.h"
#include "models/model.h"
#include "states/cache_file.h"

#define PREFIX 8    /* bytes of the header's length */
#define OWN_NOTES 4 /* at most, and the checksum */
_Static_assert(ATTN_MAX_NOTES + OWN_NOTES + 1 == ATTN_SAFETENSORS_MAX_NOTES,
               "an import takes what an export may have");

static const char opening[] = "{\"__metadata__\":{\"checksum\":\"";

struct attn_export {
    const struct attn_cache *cache;
    struct attn_cache_file_layer *layers; /* [num_layers] */
    size_t num_layers;
    struct attn_model_info info; /* of the cache's model: its fingerprint is a note */
    char *lengths, *firsts;      /* firsts NULL: nothing is forgotten */
    struct attn_note *notes;     /* [num_notes] by name; the caller's texts live in `texts` */
    size_t num_notes;
    char *texts;
    char *header; /* [header_bytes], its length first */
    size_t header_bytes, data_bytes;
    /* Progress: the next row, which is there unless layer is num_layers. */
    size_t layer, group, token; /* counted from the first token that is kept */
    enum attn_cache_file_kind kind;
    size_t data_read, header_read; /* bytes */
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

static const char *copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    const char *kept = memcpy(*at, text, size);
    *at += size;
    return kept;
}

/* Copies the caller's notes after the library's own, which stand in the list already. */
static enum attn_status copy_notes(struct attn_export *export, const struct attn_note *notes,
                                   size_t count, struct attn_error *error)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++) {
        if (!is_plain(notes[i].name) || !is_plain(notes[i].value) ||
            strchr(notes[i].name, '=') != NULL || strcmp(notes[i].name, "checksum") == 0)
            return attn_fail(error, ATTN_INVALID, "notes", "note %zu is no plain text", i);
        bytes += strlen(notes[i].name) + strlen(notes[i].value) + 2;
    }
    char *at = export->texts = attn_alloc(bytes, 1);
    if (at == NULL)
        return attn_fail_memory(error, bytes);
    for (size_t i = 0; i < count; i++) {
        const char *name = copy_text(&at, notes[i].name);
        export->notes[export->num_notes++] =
            (struct attn_note){name, copy_text(&at, notes[i].value)};
    }
    return ATTN_OK;
}

static enum attn_status make_notes(struct attn_export *export, const struct attn_note *notes,
                                   size_t count, struct attn_error *error)
{
    if (count > ATTN_MAX_NOTES)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "notes", "%zu notes, at most %d", count,
                         ATTN_MAX_NOTES);
    export->notes = attn_alloc(OWN_NOTES + count, sizeof *export->notes);
    if (export->notes == NULL)
        return attn_fail_memory(error, (OWN_NOTES + count) * sizeof *export->notes);
    const bool forgets = export->firsts != NULL;
    export->notes[0] =
        (struct attn_note){"format", forgets ? ATTN_CACHE_FILE_WINDOWS : ATTN_CACHE_FILE_FORMAT};
    export->notes[1] = (struct attn_note){"fingerprint", export->info.fingerprint};
    export->notes[2] = (struct attn_note){"lengths", export->lengths};
    export->notes[3] = (struct attn_note){"first", export->firsts};
    export->num_notes = OWN_NOTES - !forgets;
    enum attn_status status = copy_notes(export, notes, count, error);
    if (status != ATTN_OK)
        return status;
    const struct attn_note *twice =
        attn_sort_names(export->notes, export->num_notes, sizeof *export->notes);
    return twice == NULL
               ? ATTN_OK
               : attn_fail(error, ATTN_INVALID, "notes", "'%.64s' is noted twice", twice->name);
}

/* ---- The header ------------------------------------------------------------------------------ */

/* A text that is measured in a first pass and written in a second. */
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

static void add_tensor(struct text *text, const struct attn_cache_file_layer *layer,
                       enum attn_cache_file_kind kind, size_t begin)
{
    char name[ATTN_CACHE_FILE_NAME];
    attn_cache_file_tensor_name(name, layer, kind);
    add(text, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu,%zu],\"data_offsets\":[%zu,%zu]}",
        name, layer->heads, layer->length - layer->first, layer->row_bytes[kind] / sizeof(float),
        begin, begin + attn_cache_file_tensor_bytes(layer, kind));
}

static void add_header(struct text *text, const struct attn_export *export)
{
    size_t at = 0;
    add(text, "%s%0*d\"", opening, ATTN_CHECKSUM_DIGITS, 0);
    for (size_t i = 0; i < export->num_notes; i++)
        add(text, ",\"%s\":\"%s\"", export->notes[i].name, export->notes[i].value);
    add(text, "}");
    for (size_t i = 0; i < export->num_layers; i++)
        for (int kind = 0; kind < 2; kind++) {
            add_tensor(text, &export->layers[i], kind, at);
            at += attn_cache_file_tensor_bytes(&export->layers[i], kind);
        }
    add(text, "}");
}

/* Makes the header.  Blanks at its end let the data begin at a multiple of 8. */
static enum attn_status make_header(struct attn_export *export, struct attn_error *error)
{
    struct text text = {0};
    add_header(&text, export);
    size_t padded = attn_ceil_div(text.length, 8) * 8;
    if (padded > ATTN_MAX_STATE_HEADER)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "notes", "a header of %zu bytes, at most %d",
                         padded, ATTN_MAX_STATE_HEADER);
    export->header_bytes = PREFIX + padded;
    export->header = attn_alloc(export->header_bytes + 1, 1);
    if (export->header == NULL)
        return attn_fail_memory(error, export->header_bytes);
    uint64_t length = padded;
    memcpy(export->header, &length, PREFIX);
    memset(export->header + PREFIX, ' ', padded);
    text = (struct text){.to = export->header + PREFIX};
    add_header(&text, export);
    if (text.length < padded)
        text.to[text.length] = ' '; /* instead of the text's NUL */
    return ATTN_OK;
}

/* ---- Progress -------------------------------------------------------------------------------- */

static void next_tensor(struct attn_export *export)
{
    export->token = export->group = 0;
    export->layer += export->kind == ATTN_CACHE_FILE_VALUE;
    export->kind =
        export->kind == ATTN_CACHE_FILE_KEY ? ATTN_CACHE_FILE_VALUE : ATTN_CACHE_FILE_KEY;
}

static void skip_empty(struct attn_export *export)
{
    while (export->layer < export->num_layers &&
           attn_cache_file_tensor_bytes(&export->layers[export->layer], export->kind) == 0)
        next_tensor(export);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static enum attn_status read_lengths(struct attn_export *export, struct attn_error *error)
{
    const struct attn_model *model = attn_cache_model(export->cache);
    enum attn_status status =
        attn_cache_file_layers(&export->layers, &export->num_layers, model, error);
    bool forgets = false;
    for (size_t i = 0; status == ATTN_OK && i < export->num_layers; i++) {
        struct attn_cache_file_layer *layer = &export->layers[i];
        layer->length = attn_cache_length(export->cache, layer->layer);
        layer->first = attn_cache_first(export->cache, layer->layer);
        forgets = forgets || layer->first > 0;
        export->data_bytes += attn_cache_file_tensor_bytes(layer, ATTN_CACHE_FILE_KEY) +
                              attn_cache_file_tensor_bytes(layer, ATTN_CACHE_FILE_VALUE);
    }
    if (status == ATTN_OK)
        status = attn_cache_file_numbers(&export->lengths, export->layers, export->num_layers,
                                         false, error);
    if (status == ATTN_OK && forgets)
        status = attn_cache_file_numbers(&export->firsts, export->layers, export->num_layers, true,
                                         error);
    return status;
}

enum attn_status attn_export_open(struct attn_export **out, const struct attn_cache *cache,
                                  const struct attn_note *notes, size_t num_notes,
                                  struct attn_error *error)
{
    struct attn_export *export = attn_calloc(1, sizeof *export);
    if (export == NULL)
        return attn_fail_memory(error, sizeof *export);
    attn_model_describe(&export->info, attn_cache_model(cache));
    export->cache = cache;
    attn_checksum_init(&export->sum);
    enum attn_status status = read_lengths(export, error);
    if (status == ATTN_OK)
        status = make_notes(export, notes, num_notes, error);
    if (status == ATTN_OK)
        status = make_header(export, error);
    skip_empty(export);
    if (status == ATTN_OK)
        *out = export;
    else
        attn_export_close(export);
    return status;
}

void attn_export_close(struct attn_export *export)
{
    if (export == NULL)
        return;
    attn_free(export->layers);
    attn_free(export->lengths);
    attn_free(export->firsts);
    attn_free(export->notes);
    attn_free(export->texts);
    attn_free(export->header);
    attn_free(export);
}

size_t attn_export_bytes(const struct attn_export *export)
{
    return export->header_bytes + export->data_bytes;
}

#define LAYER_TEXT 384 /* bytes of the header for each layer: two tensors */
#define FIXED_TEXT 256 /* bytes of the header that do not depend on layers and notes */

size_t attn_export_memory(const struct attn_cache *cache, const struct attn_note *notes,
                          size_t num_notes)
{
    const struct attn_model *model = attn_cache_model(cache);
    size_t lists = attn_cache_file_lists_bytes(model), texts = 0;
    for (size_t i = 0; i < num_notes; i++)
        texts += strlen(notes[i].name) + strlen(notes[i].value);
    size_t header =
        attn_model_num_resident(model) * LAYER_TEXT + lists + texts + 8 * num_notes + FIXED_TEXT;
    return attn_cache_frozen_bytes(cache) + sizeof(struct attn_export) + lists + header + texts +
           (OWN_NOTES + num_notes) * (sizeof *notes + 2) + 6 * ATTN_ALIGN;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static size_t row_bytes(const struct attn_export *export)
{
    return export->layers[export->layer].row_bytes[export->kind];
}

/* Reads rows of one head, as many as there is room for; returns their bytes. */
static size_t read_rows(char *out, struct attn_export *export, size_t room)
{
    const struct attn_cache_file_layer *layer = &export->layers[export->layer];
    float *rows = (float *)(void *)out;
    const bool keys = export->kind == ATTN_CACHE_FILE_KEY;
    const size_t kept = layer->length - layer->first, row = row_bytes(export);
    const size_t count = attn_min(kept - export->token, attn_max(room / row, 1));
    attn_cache_read_head(keys ? rows : NULL, keys ? NULL : rows, export->cache, layer->layer,
                         export->group, layer->first + export->token, count);
    attn_checksum_add(&export->sum, out, count * row);
    export->token += count;
    if (export->token < kept)
        return count * row;
    export->token = 0;
    if (++export->group == layer->heads) {
        next_tensor(export);
        skip_empty(export);
    }
    return count * row;
}

static size_t read_header(char *out, struct attn_export *export, size_t room)
{
    const size_t count = attn_min(room, export->header_bytes - export->header_read);
    if (export->header_read == 0) {
        for (size_t i = 0; i < export->num_notes; i++)
            attn_cache_file_sum_note(&export->sum, export->notes[i].name, export->notes[i].value);
        attn_checksum_hex(export->header + PREFIX + sizeof opening - 1, &export->sum);
    }
    memcpy(out, export->header + export->header_read, count);
    export->header_read += count;
    return count;
}

/* Reads at most `room` bytes, but one row at least. */
static size_t read_piece(char *out, struct attn_export *export, size_t room)
{
    size_t done = 0;
    if (export->layer == export->num_layers)
        return read_header(out, export, room);
    while (export->layer < export->num_layers && (done == 0 || done + row_bytes(export) <= room))
        done += read_rows(out + done, export, room - done);
    export->data_read += done;
    return done;
}

/* The offset of the next piece in the file. */
static size_t file_offset(const struct attn_export *export)
{
    return export->layer < export->num_layers ? export->header_bytes + export->data_read
                                              : export->header_read;
}

size_t attn_export_piece(size_t *offset, void *out, struct attn_export *export, size_t room)
{
    *offset = file_offset(export);
    return read_piece(out, export, room);
}

bool attn_export_run(struct attn_export *export, void *out, size_t budget)
{
    (void)read_piece((char *)out + file_offset(export), export, budget);
    return export->header_read < export->header_bytes;
}
