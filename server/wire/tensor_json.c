/* tensor_json.c: tensors as JSON text.
 *
 * Reading recurses over dimensions, at most SRV_TENSOR_RANK deep, down to rows of elements, which
 * are written straight to their final place.  The arena gives memory for as many elements as the
 * arrays ahead can hold, and gets the unused end back when the tensor ends: untouched memory costs
 * nothing, and no row is ever moved.
 *
 * Digits are number.c's, strings and objects json.c's, tensor objects tensor_object.c's; the
 * endpoints compare shapes with models. */
#include "wire/tensor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/number.h"

#define UNKNOWN SIZE_MAX /* the size of a dimension before its first array has ended */

struct reader {
    struct srv_json *json;
    struct srv_arena *arena;
    const char *param;
    const char *member; /* after `param` in messages: ".data" in a tensor object, else "" */
    enum srv_tensor_kind kind;
    unsigned rank;
    size_t shape[SRV_TENSOR_RANK]; /* [rank] */
    size_t index[SRV_TENSOR_RANK]; /* [rank] of the element being read */
    char *data;
    size_t count, capacity; /* elements */
};

static const char *const element_names[] = {
    [SRV_FLOATS] = "a number",
    [SRV_FLOATS_OR_NULL] = "a number or null",
    [SRV_BOOLS] = "true, false, 1 or 0; numbers to add to scores are attention_bias",
    [SRV_INTEGERS] = "an integer",
};

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Fails with "hidden_states[3][17] ...", the first `depth` indices being those at fault. */
static __attribute__((format(printf, 4, 5))) bool fail_at(struct reader *r, unsigned depth,
                                                          enum srv_error_code code,
                                                          const char *format, ...)
{
    char path[64 + 24 * SRV_TENSOR_RANK], what[128];
    int length = snprintf(path, 64, "%s%s", r->param, r->member);
    length = length < 64 ? length : 63;
    for (unsigned d = 0; d < depth; d++)
        length += snprintf(path + length, 24, "[%zu]", r->index[d]);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    srv_fail(r->json->error, code, r->param, "%s %s", path, what);
    return false;
}

/* ---- Elements and rows ----------------------------------------------------------------------- */

static bool is_float(const struct reader *r)
{
    return r->kind == SRV_FLOATS || r->kind == SRV_FLOATS_OR_NULL;
}

static bool read_float(struct reader *r, float *to)
{
    if (!srv_number_read(to, r->json->at, r->json->end, &r->json->at))
        return srv_json_expected(r->json, "a digit");
    return isfinite(*to) || fail_at(r, r->rank, SRV_E_NUMBER_OUT_OF_RANGE, "does not fit float32");
}

static bool read_integer(struct reader *r, int64_t *to)
{
    if (srv_json_integer(to, r->json, r->param))
        return true;
    switch (r->json->error->code) { /* the same error, now with the element's index */
    case SRV_E_INVALID_TYPE:
        return fail_at(r, r->rank, SRV_E_INVALID_TYPE, "is not %s", element_names[r->kind]);
    case SRV_E_NUMBER_OUT_OF_RANGE:
        return fail_at(r, r->rank, SRV_E_NUMBER_OUT_OF_RANGE, "does not fit 64 bits");
    default:
        return false;
    }
}

static bool read_bool(struct reader *r, uint8_t *to, enum srv_json_type type)
{
    bool flag = false;
    int64_t number = 0;
    if (type != SRV_JSON_NUMBER) {
        bool read = srv_json_bool(&flag, r->json, r->param);
        *to = flag;
        return read;
    }
    if (!read_integer(r, &number))
        return false;
    *to = number == 1;
    return number == 0 || number == 1 ||
           fail_at(r, r->rank, SRV_E_INVALID_VALUE, "is not %s", element_names[r->kind]);
}

/* Reads the next value as an element. */
static bool read_element(struct reader *r)
{
    const enum srv_json_type type = srv_json_peek(r->json);
    const bool number = type == SRV_JSON_NUMBER;
    const bool flag = type == SRV_JSON_TRUE || type == SRV_JSON_FALSE;
    bool read = false;
    if (type == SRV_JSON_BAD)
        return false;
    if (r->count == r->capacity)
        return fail_at(r, 0, SRV_E_OUT_OF_MEMORY, "is too large for the memory of one request");
    if (is_float(r) && number) {
        read = read_float(r, (float *)r->data + r->count);
    } else if (r->kind == SRV_FLOATS_OR_NULL && type == SRV_JSON_NULL) {
        ((float *)r->data)[r->count] = -INFINITY;
        read = srv_json_literal(r->json, "null");
    } else if (r->kind == SRV_INTEGERS && number) {
        read = read_integer(r, (int64_t *)r->data + r->count);
    } else if (r->kind == SRV_BOOLS && (number || flag)) {
        read = read_bool(r, (uint8_t *)r->data + r->count, type);
    } else if (type == SRV_JSON_ARRAY) {
        fail_at(r, r->rank, SRV_E_SHAPE_MISMATCH, "is an array where other elements are no arrays");
    } else {
        fail_at(r, r->rank, SRV_E_INVALID_TYPE, "is not %s", element_names[r->kind]);
    }
    r->count += read;
    return read;
}

#define READ_CHUNK ((size_t)8192) /* numbers between two points where reading may be cancelled */

/* Reads the elements of an innermost array, from after its '[' to after its ']'; returns how many
 * there were. */
static size_t read_row(struct reader *r)
{
    const size_t first = r->count;
    while (srv_json_next_element(r->json)) {
        /* The fast path, which almost all elements of a request take: reads numbers as long as each
         * is finite and followed by a comma at once, and stops in front of the first other one. */
        if (is_float(r)) {
            const size_t left = r->capacity - r->count;
            r->count +=
                srv_numbers_read((float *)r->data + r->count, left < READ_CHUNK ? left : READ_CHUNK,
                                 &r->json->at, r->json->end);
        }
        r->index[r->rank - 1] = r->count - first;
        read_element(r);
    }
    return r->count - first;
}

/* Reads the next value as an array of dimension `d`. */
static bool read_array(struct reader *r, unsigned d)
{
    size_t length = 0;
    if (!srv_json_enter_array(r->json))
        return false;
    if (d + 1 == r->rank)
        length = read_row(r);
    else
        for (; srv_json_next_element(r->json); length++) {
            r->index[d] = length;
            if (srv_json_peek(r->json) != SRV_JSON_ARRAY)
                return fail_at(r, d + 1, SRV_E_SHAPE_MISMATCH,
                               "is not an array as the other rows are");
            if (!read_array(r, d + 1))
                return false;
        }
    if (r->shape[d] == UNKNOWN)
        r->shape[d] = length;
    if (r->shape[d] != length && srv_json_sound(r->json))
        fail_at(r, d, SRV_E_SHAPE_MISMATCH, "has %zu elements where others have %zu", length,
                r->shape[d]);
    return srv_json_sound(r->json);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static size_t count_commas(const char *at, const char *end)
{
    size_t count = 0;
    while (at < end) {
        size_t chunk = (size_t)(end - at) < UINT8_MAX ? (size_t)(end - at) : UINT8_MAX;
        uint8_t commas = 0; /* as narrow as the text, so that the compiler vectorises the loop */
        for (size_t i = 0; i < chunk; i++)
            commas = (uint8_t)(commas + (at[i] == ','));
        count += commas;
        at += chunk;
    }
    return count;
}

#define AHEAD 4096 /* bytes searched at a time: three passes go over them, so they fit L1 */

/* The most elements that the arrays ahead can hold.  Commas separate elements, and the arrays end
 * before the next quote or closing brace. */
static size_t count_ahead(const struct srv_json *json)
{
    size_t commas = 0;
    bool more = true;
    for (const char *at = json->at; more && at < json->end;) {
        size_t length = json->end - at < AHEAD ? (size_t)(json->end - at) : AHEAD;
        const char *quote = memchr(at, '"', length);
        const char *brace = memchr(at, '}', quote != NULL ? (size_t)(quote - at) : length);
        const char *stop = brace != NULL ? brace : quote;
        commas += count_commas(at, stop != NULL ? stop : at + length);
        more = stop == NULL;
        at += length;
    }
    return commas + 1;
}

/* Allocates room for all elements that may follow; finish_tensor gives the unused end back. */
static bool alloc_data(struct reader *r)
{
    size_t size = srv_tensor_element_bytes(r->kind);
    size_t most = count_ahead(r->json);
    size_t left = srv_arena_left(r->arena) / size;
    r->capacity = most < left ? most : left;
    r->data = srv_arena_alloc(r->arena, r->capacity, size);
    if (r->data == NULL)
        return fail_at(r, 0, SRV_E_OUT_OF_MEMORY, "finds no memory");
    return true;
}

/* The rank of nested arrays: the number of opening brackets in front of the first element. */
static bool read_rank(struct reader *r)
{
    const unsigned left = SRV_JSON_MAX_DEPTH - r->json->depth;
    struct srv_json ahead = *r->json;
    while (r->rank <= left && srv_json_accept(&ahead, '['))
        r->rank++;
    if (r->rank > left)
        return fail_at(r, 0, SRV_E_TOO_COMPLEX, "is nested too deeply");
    if (r->rank > SRV_TENSOR_RANK)
        return fail_at(r, 0, SRV_E_SHAPE_MISMATCH, "has %u dimensions, at most %d are possible",
                       r->rank, SRV_TENSOR_RANK);
    return true;
}

static bool read_nested(struct reader *r)
{
    if (!read_rank(r) || !alloc_data(r))
        return false;
    for (unsigned d = 0; d < r->rank; d++)
        r->shape[d] = UNKNOWN;
    if (!read_array(r, 0))
        return false;
    for (unsigned d = 0; d < r->rank; d++) /* below an empty dimension there were no arrays */
        if (r->shape[d] == UNKNOWN)
            r->shape[d] = 0;
    return true;
}

/* Makes *out the tensor that was read.  Always true. */
static bool finish_tensor(struct srv_tensor *out, struct reader *r)
{
    srv_arena_shrink(r->arena, r->data, r->count * srv_tensor_element_bytes(r->kind));
    *out = (struct srv_tensor){
        .present = true, .kind = r->kind, .rank = r->rank, .count = r->count, .data = r->data};
    memcpy(out->shape, r->shape, r->rank * sizeof r->shape[0]);
    return true;
}

bool srv_tensor_read_json(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, bool allow_scalar, const char *param)
{
    struct reader r = {.json = json, .arena = arena, .param = param, .member = "", .kind = kind};
    bool is_array = srv_json_peek(json) == SRV_JSON_ARRAY;
    if (!is_array && !allow_scalar)
        return srv_json_wrong_type(json, "an array", param);
    bool read =
        is_array ? read_nested(&r) : srv_json_sound(json) && alloc_data(&r) && read_element(&r);
    return read && finish_tensor(out, &r);
}

bool srv_tensor_read_flat(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, const char *param)
{
    struct reader r = {.json = json, .arena = arena, .param = param, .kind = kind, .rank = 1};
    r.member = ".data";
    r.shape[0] = UNKNOWN;
    enum srv_json_type type = srv_json_peek(json);
    if (type == SRV_JSON_BAD)
        return false;
    if (type != SRV_JSON_ARRAY)
        return fail_at(&r, 0, SRV_E_INVALID_TYPE, "is not an array");
    return alloc_data(&r) && read_array(&r, 0) && finish_tensor(out, &r);
}

/* ---- Writing --------------------------------------------------------------------------------- */

#define WRITE_CHUNK 256 /* numbers for which room is reserved at once */

/* Appends one row of n elements with commas between them. */
typedef void row_writer(struct srv_buffer *out, const void *row, size_t n);

static void write_floats(struct srv_buffer *out, const void *row, size_t n)
{
    const float *data = row;
    for (size_t i = 0; i < n && !out->failed; i += WRITE_CHUNK) {
        size_t chunk = n - i < WRITE_CHUNK ? n - i : WRITE_CHUNK;
        char *to = srv_buffer_reserve(out, chunk * (SRV_NUMBER_MAX + 1));
        if (to != NULL)
            out->length += srv_numbers_write(to, data + i, chunk);
    }
    if (n > 0 && !out->failed)
        out->length--; /* the last comma */
}

static void write_indices(struct srv_buffer *out, const void *row, size_t n)
{
    const uint32_t *data = row;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            srv_buffer_append(out, ",", 1);
        srv_buffer_unsigned(out, data[i], 1);
    }
}

/* Appends the array of the first dimension of `shape`; returns the end of its data. */
static const char *write_array(struct srv_buffer *out, row_writer *write, const char *data,
                               size_t element, const size_t *shape, unsigned rank)
{
    srv_buffer_append(out, "[", 1);
    if (rank == 1) {
        write(out, data, shape[0]);
        data += shape[0] * element;
    }
    for (size_t i = 0; rank > 1 && i < shape[0] && !out->failed; i++) {
        if (i > 0)
            srv_buffer_append(out, ",", 1);
        data = write_array(out, write, data, element, shape + 1, rank - 1);
    }
    srv_buffer_append(out, "]", 1);
    return data;
}

void srv_tensor_write_json(struct srv_buffer *out, const float *data, const size_t *shape,
                           unsigned rank)
{
    if (rank == 0)
        write_floats(out, data, 1);
    else
        write_array(out, write_floats, (const char *)data, sizeof *data, shape, rank);
}

void srv_indices_write_json(struct srv_buffer *out, const uint32_t *data, const size_t *shape,
                            unsigned rank)
{
    write_array(out, write_indices, (const char *)data, sizeof *data, shape, rank);
}
