/* safetensors.c: header -> table of entries, sorted by name; spans of the data -> float32.
 *
 * The header is walked member by member (json_members.h), so memory beyond the header's own text is
 * one entry per tensor.  Invariant of an open reader, on which reading relies: every entry lies
 * inside the file, its span equals shape x dtype, spans follow each other from 0 to the end, names
 * are unique. */
#include "files/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "basics/status.h"
#include "basics/widen.h"
#include "files/file.h"
#include "files/json_members.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "data are little-endian and used as read");

#define PREFIX 8               /* bytes of the header's length */
#define MIN_ENTRY_TEXT 48      /* bytes that the shortest entry of a header takes, comma included */
#define ENTRY_TEXT 4096        /* bytes that the longest may take */
#define METADATA_TEXT 16777216 /* bytes that one value of __metadata__ may take */
#define CUT_SHORT ": it is cut short, copy or download it again"
#define CHUNK 131072 /* elements read and widened at a time */

static const struct attn_safetensors_dtype dtypes[] = {
    {"F32", 32, true},  {"F16", 16, true},     {"BF16", 16, true},    {"F64", 64, false},
    {"I64", 64, false}, {"I32", 32, false},    {"I16", 16, false},    {"I8", 8, false},
    {"U64", 64, false}, {"U32", 32, false},    {"U16", 16, false},    {"U8", 8, false},
    {"BOOL", 8, false}, {"F8_E4M3", 8, false}, {"F8_E5M2", 8, false}, {"F8_E8M0", 8, false},
    {"F4", 4, false},   {"F6_E2M3", 6, false}, {"F6_E3M2", 6, false}, {"C64", 64, false},
};

/* ---- The header ---------------------------------------------------------------------------- */

static enum attn_status fail_entry(const struct attn_safetensors *file, const char *tensor,
                                   const char *what, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, tensor, "%s: tensor '%.96s': %s", file->name, tensor,
                     what);
}

/* Reads the JSON array of non-negative integers `array` into out [limit]; false if it is not
 * one. */
static bool read_sizes(size_t *out, size_t *count, const json_t *array, size_t limit)
{
    if (!json_is_array(array) || json_array_size(array) > limit)
        return false;
    *count = json_array_size(array);
    for (size_t i = 0; i < *count; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return false;
        out[i] = (size_t)json_integer_value(item);
    }
    return true;
}

/* Fills *entry from the JSON object of one tensor.  Returns NULL, or a text that says why the
 * object is wrong. */
static const char *read_entry(struct attn_tensor_entry *entry, const json_t *object)
{
    size_t span[2], count;
    if (!json_is_object(object) || json_object_size(object) != 3)
        return "not an object of dtype, shape and data_offsets";
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    entry->dtype = NULL;
    for (size_t i = 0; dtype != NULL && i < ATTN_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            entry->dtype = &dtypes[i];
    if (entry->dtype == NULL)
        return "dtype is missing or unknown";
    if (!read_sizes(entry->shape, &entry->ndim, json_object_get(object, "shape"),
                    ATTN_SAFETENSORS_MAX_RANK))
        return "shape is not a list of at most 8 sizes";
    if (!read_sizes(span, &count, json_object_get(object, "data_offsets"), 2) || count != 2)
        return "data_offsets are not two positions";
    entry->begin = span[0];
    entry->end = span[1];
    if (entry->begin > entry->end)
        return "data_offsets run backwards";

    size_t bits = entry->dtype->bits;
    for (size_t i = 0; i < entry->ndim; i++)
        bits = attn_mul(bits, entry->shape[i]);
    if (bits == SIZE_MAX || bits % 8 != 0 || bits / 8 != entry->end - entry->begin)
        return "shape and dtype do not make the span of data_offsets";
    return NULL;
}

static enum attn_status add_entry(struct attn_safetensors *file, struct attn_json_members *m,
                                  const char *name, struct attn_error *error)
{
    if (strlen(name) > ATTN_SAFETENSORS_MAX_NAME)
        return fail_entry(file, name, "the name is longer than 512 bytes", error);
    if (file->count == file->capacity)
        return attn_fail(error, ATTN_MALFORMED, file->name, "%s: more than %zu tensors", file->name,
                         file->capacity);
    json_t *value = attn_json_members_value(m, ENTRY_TEXT);
    if (value == NULL)
        return ATTN_OK; /* m has the error */
    struct attn_tensor_entry *entry = &file->entries[file->count++];
    entry->name = name;
    const char *wrong = read_entry(entry, value);
    json_decref(value);
    return wrong == NULL ? ATTN_OK : fail_entry(file, name, wrong, error);
}

/* Reads __metadata__, which maps strings to strings, and keeps its pairs if there is a list for
 * them.  None of them means anything to this reader. */
static void read_metadata(struct attn_safetensors *file, struct attn_json_members *m)
{
    attn_json_members_enter(m);
    for (char *key; (key = attn_json_members_next(m)) != NULL;) {
        if (m->text[m->at] != '"')
            m->status = ATTN_MALFORMED;
        json_t *value = attn_json_members_value(m, METADATA_TEXT);
        if (file->metadata == NULL || value == NULL) {
            json_decref(value);
        } else if (file->num_metadata == ATTN_SAFETENSORS_MAX_NOTES) {
            json_decref(value);
            m->status = ATTN_MALFORMED;
        } else {
            file->metadata[file->num_metadata++] =
                (struct attn_safetensors_pair){key, json_string_value(value), value};
        }
    }
}

static enum attn_status walk_header(struct attn_safetensors *file, struct attn_error *error)
{
    struct attn_json_members m = {.text = file->header, .length = file->header_length};
    bool metadata = false;
    if (file->header[0] != '{')
        m.status = ATTN_MALFORMED;
    attn_json_members_enter(&m);
    for (char *key; (key = attn_json_members_next(&m)) != NULL;) {
        const bool is_metadata = strcmp(key, "__metadata__") == 0;
        enum attn_status status = ATTN_OK;
        if (is_metadata && metadata)
            m.status = ATTN_MALFORMED;
        else if (is_metadata)
            read_metadata(file, &m);
        else
            status = add_entry(file, &m, key, error);
        if (status != ATTN_OK)
            return status;
        metadata = metadata || is_metadata;
    }
    attn_json_members_finish(&m);
    if (m.status == ATTN_NO_MEMORY)
        return attn_fail_memory(error, file->header_length);
    return m.status == ATTN_OK
               ? ATTN_OK
               : attn_fail(error, ATTN_MALFORMED, file->name,
                           "%s: the header is not what the format says, near its byte %zu",
                           file->name, m.at);
}

static int by_span(const void *a, const void *b)
{
    const struct attn_tensor_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks what shows only in order: sorts the entries by place, where spans must join, and then for
 * good by name, where none may stand twice. */
static enum attn_status check_entries(struct attn_safetensors *file, struct attn_error *error)
{
    struct attn_tensor_entry *entries = file->entries;
    size_t end = 0;
    qsort(entries, file->count, sizeof *entries, by_span);
    for (size_t i = 0; i < file->count; i++) {
        if (entries[i].begin != end)
            return fail_entry(file, entries[i].name, "data before it overlap or leave a gap",
                              error);
        end = entries[i].end;
    }
    if (end != file->data_length)
        return attn_fail(error, ATTN_MALFORMED, file->name,
                         "%s: tensors take %zu bytes, the file holds %zu%s", file->name, end,
                         file->data_length,
                         file->bytes != NULL || end < file->data_length ? "" : CUT_SHORT);

    const struct attn_tensor_entry *twice = attn_sort_names(entries, file->count, sizeof *entries);
    if (twice != NULL)
        return fail_entry(file, twice->name, "named twice", error);
    const struct attn_safetensors_pair *pair =
        attn_sort_names(file->metadata, file->num_metadata, sizeof *file->metadata);
    if (pair != NULL)
        return attn_fail(error, ATTN_MALFORMED, file->name, "%s: '%.96s' is noted twice",
                         file->name, pair->name);
    return ATTN_OK;
}

/* Reads bytes [offset, offset + count) of the container.  The range of a source in memory has been
 * checked already, as that of a span. */
static enum attn_status read_bytes(void *out, const struct attn_safetensors *file, size_t offset,
                                   size_t count, struct attn_error *error)
{
    if (file->bytes == NULL)
        return attn_file_read(out, file->file, file->name, offset, count, error);
    memcpy(out, file->bytes + offset, count);
    return ATTN_OK;
}

/* Refuses a length that no header of the container can have.  Of a file that is named the reason is
 * said: it is of another kind, or what follows the header's length is cut off. */
static enum attn_status fail_length(const struct attn_safetensors *file, uint64_t length,
                                    size_t size, size_t limit, struct attn_error *error)
{
    char first;
    const bool like_header = length >= 2 && length <= limit && size > PREFIX &&
                             read_bytes(&first, file, PREFIX, 1, NULL) == ATTN_OK && first == '{';
    if (file->bytes == NULL && !like_header &&
        attn_file_kind(file->file, file->name, size, error) != ATTN_OK)
        return ATTN_MALFORMED;
    return attn_fail(error, ATTN_MALFORMED, file->name,
                     "%s: header of %llu bytes, possible are 2 to %zu%s", file->name,
                     (unsigned long long)length, attn_min(limit, size - PREFIX),
                     file->bytes != NULL ? ""
                     : like_header       ? CUT_SHORT
                                         : ": it is no safetensors file");
}

/* Reads the header's length and, once that agrees with the size of the container, its text. */
static enum attn_status read_header(struct attn_safetensors *file, size_t size, size_t limit,
                                    struct attn_error *error)
{
    uint64_t length = 0;
    if (size < PREFIX)
        return attn_fail(error, ATTN_MALFORMED, file->name, "%s: %zu bytes, not even a header",
                         file->name, size);
    enum attn_status status = read_bytes(&length, file, 0, PREFIX, error);
    if (status != ATTN_OK)
        return status;
    size_t most = attn_min(limit, size - PREFIX);
    if (length < 2 || length > most)
        return fail_length(file, length, size, limit, error);

    file->header_length = (size_t)length;
    file->data_begin = PREFIX + file->header_length;
    file->data_length = size - file->data_begin;
    file->capacity =
        attn_min(file->header_length / MIN_ENTRY_TEXT + 1, ATTN_SAFETENSORS_MAX_TENSORS);
    file->header = attn_alloc(file->header_length + 1, 1);
    file->entries = attn_alloc(file->capacity, sizeof *file->entries);
    if (file->header == NULL || file->entries == NULL)
        return attn_fail_memory(error, attn_mul(file->capacity, sizeof *file->entries));
    file->header[file->header_length] = '\0';
    return read_bytes(file->header, file, PREFIX, file->header_length, error);
}

static struct attn_safetensors *new_reader(const char *bytes, const char *name)
{
    struct attn_safetensors *file = attn_calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->file = -1;
    file->bytes = bytes;
    snprintf(file->name, sizeof file->name, "%s", name);
    return file;
}

/* Reads and checks the header of a container that is open; closes `file` after an error. */
static enum attn_status read_container(struct attn_safetensors **out, struct attn_safetensors *file,
                                       size_t size, size_t limit, struct attn_error *error)
{
    enum attn_status status = read_header(file, size, limit, error);
    if (status == ATTN_OK)
        status = walk_header(file, error);
    if (status == ATTN_OK)
        status = check_entries(file, error);
    if (status == ATTN_OK)
        *out = file;
    else
        attn_safetensors_close(file);
    return status;
}

enum attn_status attn_safetensors_open(struct attn_safetensors **out, int directory,
                                       const char *name, struct attn_error *error)
{
    struct attn_safetensors *file = new_reader(NULL, name);
    size_t size;
    if (file == NULL)
        return attn_fail_memory(error, sizeof *file);
    const enum attn_status status = attn_file_open(&file->file, &size, directory, name, error);
    if (status == ATTN_OK)
        return read_container(out, file, size, ATTN_SAFETENSORS_MAX_HEADER, error);
    attn_safetensors_close(file);
    return status;
}

enum attn_status attn_safetensors_open_bytes(struct attn_safetensors **out, const void *bytes,
                                             size_t size, const char *name, size_t max_header,
                                             struct attn_error *error)
{
    struct attn_safetensors *file = new_reader(bytes, name);
    if (file != NULL)
        file->metadata = attn_alloc(ATTN_SAFETENSORS_MAX_NOTES, sizeof *file->metadata);
    if (file != NULL && file->metadata != NULL)
        return read_container(out, file, size, max_header, error);
    attn_safetensors_close(file);
    return attn_fail_memory(error, ATTN_SAFETENSORS_MAX_NOTES * sizeof *file->metadata);
}

void attn_safetensors_close(struct attn_safetensors *file)
{
    if (file == NULL)
        return;
    if (file->file >= 0)
        close(file->file);
    for (size_t i = 0; i < file->num_metadata; i++)
        json_decref(file->metadata[i].string);
    attn_free(file->metadata);
    attn_free(file->entries);
    attn_free(file->header);
    attn_free(file);
}

const struct attn_tensor_entry *attn_safetensors_find(const struct attn_safetensors *file,
                                                      const char *name)
{
    return attn_find_name(name, file->entries, file->count, sizeof *file->entries);
}

const char *attn_safetensors_value(const struct attn_safetensors *file, const char *name)
{
    const struct attn_safetensors_pair *pair =
        attn_find_name(name, file->metadata, file->num_metadata, sizeof *file->metadata);
    return pair != NULL ? pair->value : NULL;
}

/* ---- The data ------------------------------------------------------------------------------ */

enum attn_status attn_safetensors_read_bytes(const void **out, const struct attn_safetensors *file,
                                             const struct attn_tensor_entry *entry, size_t first,
                                             size_t count, void *room, struct attn_error *error)
{
    size_t at = file->data_begin + entry->begin + first;
    *out = file->bytes != NULL ? file->bytes + at : room;
    return file->bytes != NULL ? ATTN_OK : read_bytes(room, file, at, count, error);
}

/* Reads and widens one chunk.  halves [count] is scratch for types of 16 bits. */
static enum attn_status read_chunk(float *out, const struct attn_safetensors *file,
                                   const struct attn_tensor_entry *entry, size_t first,
                                   size_t count, uint16_t *halves, struct attn_error *error)
{
    size_t bytes = entry->dtype->bits / 8;
    void *raw = bytes == sizeof *halves ? (void *)halves : (void *)out;
    enum attn_status status = read_bytes(raw, file, file->data_begin + entry->begin + first * bytes,
                                         count * bytes, error);
    if (status != ATTN_OK)
        return status;
    bool finite;
    if (raw == out)
        finite = attn_all_finite(out, count);
    else if (entry->dtype->name[0] == 'B')
        finite = attn_widen_bf16(out, halves, count);
    else
        finite = attn_widen_f16(out, halves, count);
    if (finite)
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, entry->name,
                     "tensor '%.96s': element %zu is not finite", entry->name,
                     first + attn_first_non_finite(out, count));
}

enum attn_status attn_safetensors_read_f32(float *out, const struct attn_safetensors *file,
                                           const struct attn_tensor_entry *entry, size_t first,
                                           size_t count, struct attn_error *error)
{
    if (!entry->dtype->readable)
        return attn_fail(error, ATTN_UNSUPPORTED, entry->name,
                         "tensor '%.96s' is %s, supported are F32, F16 and BF16", entry->name,
                         entry->dtype->name);
    uint16_t *halves = attn_alloc(attn_min(count, CHUNK), sizeof *halves);
    if (halves == NULL)
        return attn_fail_memory(error, CHUNK * sizeof *halves);

    enum attn_status status = ATTN_OK;
    for (size_t at = 0; at < count && status == ATTN_OK; at += CHUNK) {
        size_t n = attn_min(count - at, CHUNK);
        status = read_chunk(out + at, file, entry, first + at, n, halves, error);
    }
    attn_free(halves);
    return status;
}

size_t attn_safetensors_memory(const struct attn_safetensors *file)
{
    return file == NULL ? 0 : file->header_length + file->capacity * sizeof *file->entries;
}
