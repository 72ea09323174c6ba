/* npz.c: members of an archive -> table of arrays; a header's text -> shape and type; numbers ->
 * float32. */
#include "files/npz.h"

#include <string.h>

#include "basics/status.h"
#include "basics/widen.h"
#include "files/zip.h"

#define SUFFIX ".npy"
#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define PREAMBLE 12     /* magic, version, and the header's length of two or four bytes */
#define MAX_HEADER 4096 /* bytes of a header's text */
#define CHUNK 32768     /* elements read and converted at a time */

struct array {
    struct attn_tensor_entry entry; /* its name first; dtype NULL until the header has been read */
    const struct attn_zip_member *member;
    bool swapped; /* its numbers are big-endian */
    bool fortran; /* in Fortran's order, and of more dimensions than one */
};

struct attn_npz {
    struct attn_zip *zip;
    char *names;
    struct array *arrays; /* [count], by name; with room for `members` */
    size_t count, members, names_bytes;
    const struct array
        *transposed;     /* the array in Fortran's order whose numbers are in `numbers` */
    float *numbers;      /* in C order, until the last of them has been read */
    size_t most_numbers; /* that it will have room for, of the arrays that were found */
    union {
        double doubles[CHUNK];
        uint16_t halves[CHUNK];
        char header[MAX_HEADER];
    } raw;
};

/* The types that are read, of either byte order; any other name is refused. */
static const struct {
    const char *descr; /* after its byte order, '<' or '>' */
    struct attn_safetensors_dtype dtype;
} types[] = {
    {"f4", {"F32", 32, true}},
    {"f8", {"F64", 64, true}},
    {"f2", {"F16", 16, true}},
};

static enum attn_status fail_array(enum attn_status status, const struct array *array,
                                   const char *what, struct attn_error *error)
{
    return attn_fail(error, status, array->entry.name, "array '%.96s' %s", array->entry.name, what);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), count = strlen(end);
    return length >= count && strcmp(name + length - count, end) == 0;
}

/* Lists the members whose names end in ".npy"; others are no arrays and are not looked at.  *torch
 * says whether the archive is one of torch.save, which has its pickle under that name. */
static enum attn_status list_arrays(bool *torch, struct attn_npz *npz, struct attn_error *error)
{
    size_t members;
    const struct attn_zip_member *member = attn_zip_members(&members, npz->zip);
    for (size_t i = 0; i < members; i++)
        npz->names_bytes += strlen(member[i].name) + 1;
    npz->members = members + 1;
    npz->names = attn_alloc(npz->names_bytes + 1, 1);
    npz->arrays = attn_calloc(npz->members, sizeof *npz->arrays);
    if (npz->names == NULL || npz->arrays == NULL)
        return attn_fail_memory(error, members * sizeof *npz->arrays);
    char *name = npz->names;
    for (size_t i = 0; i < members; i++, member++) {
        const size_t length = strlen(member->name), end = sizeof SUFFIX - 1;
        *torch = *torch || ends_in(member->name, "data.pkl");
        if (length == end || !ends_in(member->name, SUFFIX))
            continue;
        memcpy(name, member->name, length - end);
        name[length - end] = '\0';
        npz->arrays[npz->count++] = (struct array){.entry.name = name, .member = member};
        name += length - end + 1;
    }
    (void)attn_sort_names(npz->arrays, npz->count, sizeof *npz->arrays);
    return ATTN_OK;
}

enum attn_status attn_npz_open(struct attn_npz **out, int directory, const char *name,
                               struct attn_error *error)
{
    struct attn_npz *npz = attn_calloc(1, sizeof *npz);
    bool torch = false;
    if (npz == NULL)
        return attn_fail_memory(error, sizeof *npz);
    enum attn_status status = attn_zip_open(&npz->zip, directory, name, error);
    if (status == ATTN_OK)
        status = list_arrays(&torch, npz, error);
    if (status == ATTN_OK && npz->count == 0 && torch)
        status = attn_fail_torch(name, error);
    if (status == ATTN_OK)
        *out = npz;
    else
        attn_npz_close(npz);
    return status;
}

int attn_npz_descriptor(const struct attn_npz *npz) { return attn_zip_descriptor(npz->zip); }

void attn_npz_close(struct attn_npz *npz)
{
    if (npz == NULL)
        return;
    attn_zip_close(npz->zip);
    attn_free(npz->arrays);
    attn_free(npz->names);
    attn_free(npz->numbers);
    attn_free(npz);
}

bool attn_npz_visit(const struct attn_npz *npz, const char *prefix, attn_visit_name *visit,
                    void *context)
{
    return attn_visit_names(npz->arrays, npz->count, sizeof *npz->arrays, prefix, visit, context);
}

size_t attn_npz_memory(const struct attn_npz *npz)
{
    return npz == NULL ? 0
                       : sizeof *npz + npz->names_bytes + 1 + npz->members * sizeof *npz->arrays +
                             npz->most_numbers * sizeof *npz->numbers + attn_zip_memory(npz->zip);
}

/* ---- The header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ----------------- */

struct text {
    const char *at; /* up to a NUL */
};

static void skip_blanks(struct text *text) { text->at += strspn(text->at, " \n"); }

/* Whether the text goes on with `word`, which is then passed, with the blanks after it. */
static bool accept(struct text *text, const char *word)
{
    const size_t length = strlen(word);
    skip_blanks(text);
    if (strncmp(text->at, word, length) != 0)
        return false;
    text->at += length;
    skip_blanks(text);
    return true;
}

/* Reads 'letters' into out. */
static bool accept_string(char out[16], struct text *text)
{
    if (!accept(text, "'"))
        return false;
    const size_t length = strcspn(text->at, "'\\");
    if (length >= 16 || text->at[length] != '\'')
        return false;
    memcpy(out, text->at, length);
    out[length] = '\0';
    text->at += length + 1;
    return true;
}

static bool accept_size(size_t *out, struct text *text)
{
    size_t digits = strspn(text->at, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    for (*out = 0; digits > 0; digits--)
        *out = *out * 10 + (size_t)(*text->at++ - '0');
    return true;
}

/* Reads (), (2,) or (2, 3). */
static bool accept_shape(struct attn_tensor_entry *entry, struct text *text)
{
    bool comma = true;
    entry->ndim = 0;
    if (!accept(text, "("))
        return false;
    while (!accept(text, ")")) {
        if (!comma || entry->ndim == ATTN_SAFETENSORS_MAX_RANK ||
            !accept_size(&entry->shape[entry->ndim++], text))
            return false;
        comma = accept(text, ",");
    }
    return entry->ndim != 1 || comma; /* (2) is a number */
}

struct header {
    char descr[16];
    bool fortran, has_descr, has_order, has_shape;
};

/* Reads one pair; false where it is none of the three, or one of them again. */
static bool accept_pair(struct header *out, struct attn_tensor_entry *entry, struct text *text)
{
    char key[16];
    if (!accept_string(key, text) || !accept(text, ":"))
        return false;
    if (strcmp(key, "descr") == 0 && !out->has_descr)
        return out->has_descr = accept_string(out->descr, text);
    if (strcmp(key, "shape") == 0 && !out->has_shape)
        return out->has_shape = accept_shape(entry, text);
    if (strcmp(key, "fortran_order") != 0 || out->has_order)
        return false;
    out->fortran = accept(text, "True");
    return out->has_order = out->fortran || accept(text, "False");
}

static bool parse_header(struct header *out, struct attn_tensor_entry *entry, struct text text)
{
    bool comma = true;
    if (!accept(&text, "{"))
        return false;
    while (!accept(&text, "}")) {
        if (!comma || !accept_pair(out, entry, &text))
            return false;
        comma = accept(&text, ",");
    }
    return *text.at == '\0' && out->has_descr && out->has_order && out->has_shape;
}

/* Makes the entry of a parsed header, whose numbers begin at byte entry->begin of the member. */
static enum attn_status check_header(struct array *array, const struct header *header,
                                     struct attn_error *error)
{
    struct attn_tensor_entry *entry = &array->entry;
    const struct attn_safetensors_dtype *dtype = NULL;
    const char order = header->descr[0];
    for (size_t i = 0; (order == '<' || order == '>') && i < ATTN_COUNT(types); i++)
        if (strcmp(types[i].descr, header->descr + 1) == 0)
            dtype = &types[i].dtype;
    if (dtype == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, entry->name,
                         "array '%.96s' is of type '%s', read are 'f4', 'f8' and 'f2': save "
                         "array.astype('float32')",
                         entry->name, header->descr);
    array->swapped = order == '>';
    array->fortran = header->fortran && entry->ndim > 1;
    size_t bytes = dtype->bits / 8;
    for (size_t i = 0; i < entry->ndim; i++)
        bytes = attn_mul(bytes, entry->shape[i]);
    if (bytes == SIZE_MAX || bytes != array->member->size - entry->begin)
        return fail_array(ATTN_MALFORMED, array, "does not hold the numbers of its shape", error);
    entry->end = array->member->size;
    entry->dtype = dtype;
    return ATTN_OK;
}

/* The numbers of a whole array, and room for a chunk to be read. */
static size_t room_of(const struct attn_tensor_entry *entry)
{
    return (entry->end - entry->begin) / (entry->dtype->bits / 8) + CHUNK;
}

static enum attn_status read_header(struct attn_npz *npz, struct array *array,
                                    struct attn_error *error)
{
    unsigned char start[PREAMBLE];
    struct header header = {.fortran = false};
    if (array->member->size < PREAMBLE)
        return fail_array(ATTN_MALFORMED, array, "has no header of an .npy file", error);
    enum attn_status status = attn_zip_read(start, npz->zip, array->member, 0, PREAMBLE, error);
    if (status != ATTN_OK)
        return status;
    const size_t first = start[MAGIC_SIZE] == 1 ? 10 : 12;
    size_t length = start[8] + ((size_t)start[9] << 8);
    if (first == 12)
        length += ((size_t)start[10] << 16) + ((size_t)start[11] << 24);
    if (memcmp(start, MAGIC, MAGIC_SIZE) != 0 || start[MAGIC_SIZE] < 1 || start[MAGIC_SIZE] > 3 ||
        length >= MAX_HEADER || array->member->size < first + length)
        return fail_array(ATTN_MALFORMED, array, "has no header of an .npy file", error);
    status = attn_zip_read(npz->raw.header, npz->zip, array->member, first, length, error);
    if (status != ATTN_OK)
        return status;
    npz->raw.header[length] = '\0';
    array->entry.begin = first + length;
    if (!parse_header(&header, &array->entry, (struct text){npz->raw.header}))
        return fail_array(ATTN_MALFORMED, array, "has a header that is not understood", error);
    status = check_header(array, &header, error);
    if (status == ATTN_OK && array->fortran)
        npz->most_numbers = attn_max(npz->most_numbers, room_of(&array->entry));
    return status;
}

enum attn_status attn_npz_find(const struct attn_tensor_entry **out, struct attn_npz *npz,
                               const char *name, struct attn_error *error)
{
    struct array *array =
        (void *)attn_find_name(name, npz->arrays, npz->count, sizeof *npz->arrays);
    enum attn_status status = ATTN_OK;
    if (array != NULL && array->entry.dtype == NULL)
        status = read_header(npz, array, error);
    *out = array != NULL && status == ATTN_OK ? &array->entry : NULL;
    return status;
}

size_t attn_npz_offset(size_t *bytes, const struct attn_tensor_entry *entry)
{
    const struct array *array = (const struct array *)(const void *)entry;
    *bytes = array->member->packed;
    return array->member->header;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static void swap_bytes(void *numbers, size_t count, size_t bytes)
{
    uint16_t *halves = numbers;
    uint32_t *singles = numbers;
    uint64_t *doubles = numbers;
    for (size_t i = 0; i < count; i++)
        if (bytes == sizeof *doubles)
            doubles[i] = __builtin_bswap64(doubles[i]);
        else if (bytes == sizeof *singles)
            singles[i] = __builtin_bswap32(singles[i]);
        else
            halves[i] = __builtin_bswap16(halves[i]);
}

/* Reads and converts at most CHUNK elements, in the order in which the file has them. */
static enum attn_status read_chunk(float *out, struct attn_npz *npz,
                                   const struct attn_tensor_entry *entry, size_t first,
                                   size_t count, struct attn_error *error)
{
    const struct array *array = (const struct array *)(const void *)entry;
    const size_t bytes = entry->dtype->bits / 8;
    void *raw = bytes == sizeof *out ? (void *)out : &npz->raw;
    enum attn_status status = attn_zip_read(raw, npz->zip, array->member,
                                            entry->begin + first * bytes, count * bytes, error);
    if (status != ATTN_OK)
        return status;
    if (array->swapped)
        swap_bytes(raw, count, bytes);
    for (size_t i = 0; bytes == sizeof(double) && i < count; i++)
        out[i] = (float)npz->raw.doubles[i];
    if (bytes == sizeof(uint16_t) ? attn_widen_f16(out, npz->raw.halves, count)
                                  : attn_all_finite(out, count))
        return ATTN_OK;
    return attn_fail(error, ATTN_NON_FINITE, entry->name,
                     "array '%.96s': element %zu is not finite", entry->name,
                     first + attn_first_non_finite(out, count));
}

/* The index in C order of element i of Fortran's order, whose first index runs fastest. */
static size_t c_index(const struct attn_tensor_entry *entry, size_t i, size_t count)
{
    size_t index = 0, stride = count;
    for (size_t d = 0; d < entry->ndim; d++) {
        stride /= entry->shape[d];
        index += i % entry->shape[d] * stride;
        i /= entry->shape[d];
    }
    return index;
}

/* Reads all of an array in Fortran's order, `count` elements, into npz->numbers. */
static enum attn_status transpose(struct attn_npz *npz, const struct array *array, size_t count,
                                  struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    attn_free(npz->numbers);
    npz->transposed = NULL;
    npz->numbers = attn_alloc(room_of(&array->entry), sizeof *npz->numbers);
    if (npz->numbers == NULL)
        return attn_fail_memory(error, room_of(&array->entry) * sizeof *npz->numbers);
    float *chunk = npz->numbers + count;
    for (size_t at = 0; at < count && status == ATTN_OK; at += CHUNK) {
        size_t length = attn_min(count - at, CHUNK);
        status = read_chunk(chunk, npz, &array->entry, at, length, error);
        for (size_t i = 0; status == ATTN_OK && i < length; i++)
            npz->numbers[c_index(&array->entry, at + i, count)] = chunk[i];
    }
    if (status == ATTN_OK)
        npz->transposed = array;
    return status;
}

enum attn_status attn_npz_read_f32(float *out, struct attn_npz *npz,
                                   const struct attn_tensor_entry *entry, size_t first,
                                   size_t count, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    const struct array *array = (const struct array *)(const void *)entry;
    for (size_t at = 0; at < count && status == ATTN_OK && !array->fortran; at += CHUNK)
        status = read_chunk(out + at, npz, entry, first + at, attn_min(count - at, CHUNK), error);
    if (!array->fortran || count == 0)
        return status;
    const size_t all = room_of(entry) - CHUNK;
    if (npz->transposed != array)
        status = transpose(npz, array, all, error);
    if (status != ATTN_OK)
        return status;
    memcpy(out, npz->numbers + first, count * sizeof *out);
    if (first + count == all) {
        attn_free(npz->numbers);
        npz->numbers = NULL;
        npz->transposed = NULL;
    }
    return ATTN_OK;
}
