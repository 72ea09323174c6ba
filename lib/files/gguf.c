/* gguf.c: the header of a GGUF file -> tables of values and tensors, by name; blocks -> float32. */
#include "files/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "basics/status.h"
#include "basics/widen.h"
#include "files/file.h"

#define MAX_NAME ATTN_SAFETENSORS_MAX_NAME
#define MAX_TEXT 65536 /* bytes of a text that is kept; a longer one is passed over */
#define BUFFER 65536
#define MAX_HEADER 100000000 /* bytes; a vocabulary of 262144 words takes 16 million */
#define MAX_VALUES 16777216  /* bytes of keys and values that are kept */
#define ALIGNMENT 32         /* where general.alignment is absent */
#define MAX_ALIGNMENT (1u << 20)

/* ---- Reading the header ---------------------------------------------------------------------- */

/* A header that is being read.  After a fault `status` stays and numbers are 0. */
struct header {
    struct attn_gguf *file;
    struct attn_error *error;
    enum attn_status status;
    size_t at; /* the byte after those in `buffer` */
    size_t begin, end;
    unsigned char buffer[BUFFER];
};

static size_t position(const struct header *h) { return h->at - (h->end - h->begin); }

/* Notes a fault of the file at `param`. */
#define FAIL(h, param, ...)               \
    ((h)->status = (h)->status != ATTN_OK \
                       ? (h)->status      \
                       : attn_fail((h)->error, ATTN_MALFORMED, param, __VA_ARGS__))

static void *allocate(struct header *h, size_t count, size_t size)
{
    void *memory = attn_alloc(count, size);
    if (memory == NULL && h->status == ATTN_OK)
        h->status = attn_fail_memory(h->error, attn_mul(count, size));
    h->file->texts += memory != NULL ? count * size : 0;
    h->file->num_texts += memory != NULL;
    return memory;
}

/* Whether `count` more bytes are in the file, and a header may have them; else a fault. */
static bool has_bytes(struct header *h, size_t count)
{
    if (h->status == ATTN_OK && count > h->file->size - position(h))
        FAIL(h, h->file->name, "%.64s ends within its header: %zu bytes, %zu more are told of",
             h->file->name, h->file->size, count - (h->file->size - position(h)));
    else if (h->status == ATTN_OK && position(h) + count > MAX_HEADER)
        FAIL(h, h->file->name, "%.64s has a header of more than %d bytes", h->file->name,
             MAX_HEADER);
    return h->status == ATTN_OK;
}

static void read_bytes(struct header *h, void *out, size_t count)
{
    unsigned char *to = out;
    memset(out, 0, count);
    if (!has_bytes(h, count))
        return;
    while (count > 0) {
        if (h->begin == h->end) {
            const size_t part = attn_min(BUFFER, h->file->size - h->at);
            h->status =
                attn_file_read(h->buffer, h->file->file, h->file->name, h->at, part, h->error);
            if (h->status != ATTN_OK)
                return;
            h->begin = 0, h->end = part, h->at += part;
        }
        const size_t part = attn_min(count, h->end - h->begin);
        memcpy(to, h->buffer + h->begin, part);
        h->begin += part, to += part, count -= part;
    }
}

static void skip_bytes(struct header *h, size_t count)
{
    if (!has_bytes(h, count))
        return;
    const size_t buffered = attn_min(count, h->end - h->begin);
    h->begin += buffered;
    h->at += count - buffered;
}

static uint64_t read_unsigned(struct header *h, size_t bytes)
{
    uint64_t number = 0;
    read_bytes(h, &number, bytes);
    return number;
}

/* A text of at most `most` bytes, with a NUL after it; NULL after a fault, or for a longer one,
 * which is passed over. */
static char *read_text(struct header *h, size_t *length, size_t most)
{
    *length = read_unsigned(h, 8);
    if (!has_bytes(h, *length))
        return NULL;
    if (*length > most) {
        skip_bytes(h, *length);
        return NULL;
    }
    char *text = allocate(h, *length + 1, 1);
    if (text == NULL)
        return NULL;
    read_bytes(h, text, *length);
    text[*length] = '\0';
    return text;
}

/* The name of a key or a tensor: without NUL, and short. */
static char *read_name(struct header *h, const char *of)
{
    size_t length;
    char *name = read_text(h, &length, MAX_NAME);
    if (h->status == ATTN_OK && name == NULL)
        FAIL(h, "", "a %s's name has %zu bytes, the most are %d", of, length, MAX_NAME);
    else if (name != NULL && (length == 0 || strlen(name) != length))
        FAIL(h, name, "a %s's name is empty or holds a NUL", of);
    return name;
}

/* ---- Values ---------------------------------------------------------------------------------- */

enum kind { UNSIGNED, SIGNED, FLOAT, TEXT, ARRAY };

/* By the number that files write. */
static const struct {
    enum kind kind;
    unsigned bytes;
} kinds[] = {{UNSIGNED, 1}, {SIGNED, 1}, {UNSIGNED, 2}, {SIGNED, 2}, {UNSIGNED, 4},
             {SIGNED, 4},   {FLOAT, 4},  {UNSIGNED, 1}, {TEXT, 0},   {ARRAY, 0},
             {UNSIGNED, 8}, {SIGNED, 8}, {FLOAT, 8}};

static double read_number(struct header *h, size_t type)
{
    const unsigned bytes = kinds[type].bytes;
    const uint64_t bits = read_unsigned(h, bytes);
    const unsigned unused = 64 - 8 * bytes;
    float single;
    double number;
    switch (kinds[type].kind) {
    case SIGNED:
        return (double)((int64_t)(bits << unused) >> unused);
    case FLOAT:
        memcpy(&single, &bits, sizeof single);
        memcpy(&number, &bits, sizeof number);
        return bytes == sizeof single ? (double)single : number;
    default:
        return (double)bits;
    }
}

/* Reads `count` numbers of `type`, of which at most `most` are kept. */
static void read_numbers(struct header *h, struct attn_gguf_value *value, size_t type, size_t most)
{
    if (value->count > most) {
        skip_bytes(h, value->count * kinds[type].bytes);
        return;
    }
    double *numbers = allocate(h, value->count, sizeof *numbers);
    value->kind = ATTN_GGUF_NUMBER;
    value->numbers = numbers;
    for (size_t i = 0; i < value->count && numbers != NULL && h->status == ATTN_OK; i++)
        numbers[i] = read_number(h, type);
}

static void read_array(struct header *h, struct attn_gguf_value *value, size_t most)
{
    const uint64_t type = read_unsigned(h, 4), count = read_unsigned(h, 8);
    value->is_array = true;
    value->count = count;
    if (h->status != ATTN_OK)
        return;
    if (type >= ATTN_COUNT(kinds) || kinds[type].kind == ARRAY) {
        FAIL(h, value->key, "key '%.96s' is an array of %s", value->key,
             type < ATTN_COUNT(kinds) ? "arrays" : "an unknown type");
        return;
    }
    const size_t least = kinds[type].kind == TEXT ? 8 : kinds[type].bytes;
    if (count > (h->file->size - position(h)) / least)
        FAIL(h, value->key, "key '%.96s' is an array of %" PRIu64 " values, beyond the file's end",
             value->key, count);
    else if (kinds[type].kind == TEXT)
        for (uint64_t i = 0; i < count && h->status == ATTN_OK; i++)
            skip_bytes(h, read_unsigned(h, 8));
    else
        read_numbers(h, value, type, most);
}

/* Reads a key and its value into value, which keeps nothing of a vocabulary but its key. */
static void read_value(struct header *h, struct attn_gguf_value *value)
{
    *value = (struct attn_gguf_value){.kind = ATTN_GGUF_OTHER, .count = 1};
    value->key = read_name(h, "key");
    const uint64_t type = read_unsigned(h, 4);
    if (h->status != ATTN_OK)
        return;
    const bool kept = strncmp(value->key, "tokenizer.", 10) != 0;
    if (type >= ATTN_COUNT(kinds))
        FAIL(h, value->key, "key '%.96s' has a value of type %" PRIu64 ", which GGUF has not",
             value->key, type);
    else if (kinds[type].kind == ARRAY)
        read_array(h, value, kept ? ATTN_GGUF_MAX_NUMBERS : 0);
    else if (kinds[type].kind == TEXT) {
        value->text = read_text(h, &value->count, kept ? MAX_TEXT : 0);
        if (value->text != NULL && strlen(value->text) == value->count)
            value->kind = ATTN_GGUF_TEXT;
    } else
        read_numbers(h, value, type, kept);
}

const struct attn_gguf_value *attn_gguf_find_value(const struct attn_gguf *file, const char *key)
{
    return attn_find_name(key, file->values, file->num_values, sizeof *file->values);
}

static void read_values(struct header *h, uint64_t count)
{
    struct attn_gguf *file = h->file;
    for (uint64_t i = 0; i < count && h->status == ATTN_OK; i++) {
        struct attn_gguf_value *values =
            attn_grow(file->values, file->num_values, &file->values_room, sizeof *values, h->error);
        if (values == NULL) {
            h->status = ATTN_NO_MEMORY;
            return;
        }
        file->values = values;
        read_value(h, &values[file->num_values++]);
        if (file->texts > MAX_VALUES)
            FAIL(h, file->name, "%.64s has keys and values of more than %d bytes", file->name,
                 MAX_VALUES);
    }
    if (h->status != ATTN_OK)
        return;
    const struct attn_gguf_value *twice =
        attn_sort_names(file->values, file->num_values, sizeof *file->values);
    if (twice != NULL)
        FAIL(h, twice->key, "key '%.96s' occurs twice", twice->key);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Reads sizes and format, and computes the bytes of the tensor into entry->end. */
static void read_shape(struct header *h, struct attn_gguf_tensor *tensor)
{
    struct attn_tensor_entry *entry = &tensor->entry;
    size_t numbers = 1;
    const uint64_t dimensions = read_unsigned(h, 4);
    if (dimensions > ATTN_SAFETENSORS_MAX_RANK)
        FAIL(h, entry->name, "%.96s has %" PRIu64 " dimensions, the most are %d", entry->name,
             dimensions, ATTN_SAFETENSORS_MAX_RANK);
    for (size_t i = 0; i < dimensions && h->status == ATTN_OK; i++) {
        const size_t size = read_unsigned(h, 8);
        entry->shape[dimensions - 1 - i] = size;
        numbers = attn_mul(numbers, size);
        if (size == 0)
            FAIL(h, entry->name, "%.96s has a dimension of 0", entry->name);
    }
    entry->ndim = dimensions;
    const uint64_t type = read_unsigned(h, 4);
    if (h->status != ATTN_OK)
        return;
    tensor->type = attn_ggml_type((uint32_t)type);
    if (tensor->type == NULL || tensor->type->dtype.name == NULL) {
        FAIL(h, entry->name, "%.96s has the type %" PRIu64 ", which ggml %s", entry->name, type,
             tensor->type == NULL ? "has not" : "no longer reads");
        return;
    }
    entry->dtype = &tensor->type->dtype;
    const size_t row = dimensions == 0 ? 1 : entry->shape[dimensions - 1];
    if (row % tensor->type->numbers != 0)
        FAIL(h, entry->name, "%.96s: rows of %zu are no whole blocks of %u (%s)", entry->name, row,
             tensor->type->numbers, entry->dtype->name);
    entry->end = numbers == SIZE_MAX
                     ? SIZE_MAX
                     : attn_mul(numbers / tensor->type->numbers, tensor->type->bytes);
    if (entry->end == SIZE_MAX)
        FAIL(h, entry->name, "%.96s: the product of its sizes overflows", entry->name);
}

static void read_tensor(struct header *h)
{
    struct attn_gguf *file = h->file;
    struct attn_gguf_tensor *tensors =
        attn_grow(file->tensors, file->num_tensors, &file->tensors_room, sizeof *tensors, h->error);
    if (tensors == NULL) {
        h->status = ATTN_NO_MEMORY;
        return;
    }
    file->tensors = tensors;
    struct attn_gguf_tensor *tensor = &tensors[file->num_tensors++];
    *tensor = (struct attn_gguf_tensor){.file = file, .entry.name = read_name(h, "tensor")};
    if (h->status == ATTN_OK)
        read_shape(h, tensor);
    tensor->entry.begin = read_unsigned(h, 8);
}

/* Turns offsets inside the data, which begin at byte `data`, into bytes of the file. */
static void locate_tensor(struct header *h, struct attn_gguf_tensor *tensor, size_t data,
                          size_t alignment)
{
    struct attn_tensor_entry *entry = &tensor->entry;
    const size_t offset = entry->begin, bytes = entry->end, size = h->file->size;
    if (offset % alignment != 0)
        FAIL(h, entry->name, "%.96s: offset %zu is no multiple of %zu", entry->name, offset,
             alignment);
    else if (data > size || offset > size - data || bytes > size - data - offset)
        FAIL(h, entry->name, "%.96s: its %zu bytes from offset %zu on end beyond the file of %zu",
             entry->name, bytes, offset, size);
    entry->begin = data + offset;
    entry->end = entry->begin + bytes;
}

static void read_tensors(struct header *h, uint64_t count)
{
    struct attn_gguf *file = h->file;
    const struct attn_gguf_value *value = attn_gguf_find_value(file, "general.alignment");
    const double said = value == NULL                                          ? ALIGNMENT
                        : value->kind == ATTN_GGUF_NUMBER && value->count == 1 ? value->numbers[0]
                                                                               : 0;
    const size_t alignment = said >= 1 && said <= MAX_ALIGNMENT ? (size_t)said : 0;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        FAIL(h, "general.alignment", "general.alignment is %g, wanted is a power of two up to %u",
             said, MAX_ALIGNMENT);
    for (uint64_t i = 0; i < count && h->status == ATTN_OK; i++)
        read_tensor(h);
    if (h->status != ATTN_OK)
        return;
    const size_t data = attn_ceil_div(position(h), alignment) * alignment;
    for (size_t i = 0; i < file->num_tensors; i++)
        locate_tensor(h, &file->tensors[i], data, alignment);
    const struct attn_gguf_tensor *twice =
        attn_sort_names(file->tensors, file->num_tensors, sizeof *file->tensors);
    if (twice != NULL)
        FAIL(h, twice->entry.name, "%.96s occurs twice", twice->entry.name);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void read_header(struct header *h)
{
    const char *name = h->file->name;
    if (h->file->size < 24) {
        FAIL(h, name, "%.64s: %zu bytes, too short for the header of a GGUF file", name,
             h->file->size);
        return;
    }
    char magic[4];
    read_bytes(h, magic, sizeof magic);
    const uint64_t version = read_unsigned(h, 4);
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        FAIL(h, name, "%.64s does not begin with GGUF", name);
    else if (version != 2 && version != 3)
        FAIL(h, name, "%.64s is of GGUF version %s%" PRIu64 ", versions 2 and 3 are read", name,
             (version & 0xffff) == 0 ? "(big-endian) " : "", version);
    const uint64_t tensors = read_unsigned(h, 8), keys = read_unsigned(h, 8);
    if (keys > ATTN_GGUF_MAX_KEYS)
        FAIL(h, name, "%.64s has %" PRIu64 " keys, the most are %d", name, keys,
             ATTN_GGUF_MAX_KEYS);
    if (tensors > ATTN_SAFETENSORS_MAX_TENSORS)
        FAIL(h, name, "%.64s has %" PRIu64 " tensors, the most are %d", name, tensors,
             ATTN_SAFETENSORS_MAX_TENSORS);
    if (h->status == ATTN_OK)
        read_values(h, keys);
    if (h->status == ATTN_OK)
        read_tensors(h, tensors);
}

enum attn_status attn_gguf_open(struct attn_gguf **out, int directory, const char *name,
                                struct attn_error *error)
{
    struct attn_gguf *file = attn_calloc(1, sizeof *file);
    struct header *h = attn_alloc(1, sizeof *h);
    if (h == NULL || file == NULL) {
        attn_free(h);
        attn_free(file);
        return attn_fail_memory(error, sizeof *h + sizeof *file);
    }
    snprintf(file->name, sizeof file->name, "%s", name);
    file->file = -1;
    *h = (struct header){.file = file, .error = error};
    h->status = attn_file_open(&file->file, &file->size, directory, name, error);
    if (h->status == ATTN_OK)
        read_header(h);
    const enum attn_status status = h->status;
    attn_free(h);
    if (status == ATTN_OK)
        *out = file;
    else
        attn_gguf_close(file);
    return status;
}

void attn_gguf_close(struct attn_gguf *file)
{
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->num_values; i++) {
        attn_free((void *)file->values[i].key);
        attn_free((void *)file->values[i].numbers);
        attn_free((void *)file->values[i].text);
    }
    for (size_t i = 0; i < file->num_tensors; i++)
        attn_free((void *)file->tensors[i].entry.name);
    attn_free(file->values);
    attn_free(file->tensors);
    if (file->file >= 0)
        close(file->file);
    attn_free(file);
}

size_t attn_gguf_memory(const struct attn_gguf *file)
{
    return file == NULL ? 0
                        : sizeof *file + file->texts + file->num_texts * ATTN_ALLOCATION +
                              file->values_room * sizeof *file->values +
                              file->tensors_room * sizeof *file->tensors;
}

const struct attn_tensor_entry *attn_gguf_find_in(struct attn_gguf *const *files, size_t count,
                                                  const char *name)
{
    const struct attn_tensor_entry *found = NULL;
    for (size_t i = 0; i < count && found == NULL; i++)
        found = attn_find_name(name, files[i]->tensors, files[i]->num_tensors,
                               sizeof *files[i]->tensors);
    return found;
}

/* ---- Elements -------------------------------------------------------------------------------- */

enum attn_status attn_gguf_read_f32(float *out, const struct attn_tensor_entry *entry, size_t first,
                                    size_t count, struct attn_error *error)
{
    const struct attn_gguf_tensor *tensor = (const void *)entry;
    const struct attn_ggml_type *type = tensor->type;
    const struct attn_gguf *file = tensor->file;
    unsigned char raw[BUFFER / 4];
    float block[ATTN_GGML_MAX_BLOCK];
    if (type->decode == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, entry->name, "%.96s is stored as %s, not read",
                         entry->name, entry->dtype->name);
    for (size_t done = 0; done < count;) {
        const size_t at = first + done, inside = at % type->numbers, left = count - done;
        /* whole blocks into out, a part of one by way of `block` */
        const bool whole = inside == 0 && left >= type->numbers;
        const size_t blocks = whole ? attn_min(left / type->numbers, sizeof raw / type->bytes) : 1;
        const size_t part = whole ? blocks * type->numbers : attn_min(type->numbers - inside, left);
        enum attn_status status = attn_file_read(raw, file->file, file->name,
                                                 entry->begin + at / type->numbers * type->bytes,
                                                 blocks * type->bytes, error);
        if (status != ATTN_OK)
            return status;
        type->decode(whole ? out + done : block, raw, blocks);
        if (!whole)
            memcpy(out + done, block + inside, part * sizeof *out);
        if (!attn_all_finite(out + done, part))
            return attn_fail(error, ATTN_NON_FINITE, entry->name,
                             "%.96s: element %zu is not finite", entry->name,
                             at + attn_first_non_finite(out + done, part));
        done += part;
    }
    return ATTN_OK;
}
