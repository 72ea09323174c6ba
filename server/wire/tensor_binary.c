/* tensor_binary.c: tensors as bytes.
 *
 * A datatype is one row of a table: its name, the kinds of tensor that can have it, the bytes of an
 * element, and the reader that checks elements and brings them into the form that calls compute
 * with.  Bytes that have that form already and are aligned are checked and used where they arrived;
 * all others are copied once, into the arena. */
#include "wire/tensor_binary.h"

#include <math.h>
#include <string.h>

#include "base/nearest.h"
#include "basics/half_float.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "bytes on the wire are little-endian and used as they are");

/* ---- Elements --------------------------------------------------------------------------------
 *
 * A reader converts n elements from `from`, which may be unaligned, to `to`, which may be the same
 * place where the two forms are the same, and returns the number of elements before the first bad
 * one: n where all are good. */

typedef size_t element_reader(void *to, const char *from, size_t n);

static bool is_finite(float x) { return (attn_float_to_bits(x) & 0x7f800000u) != 0x7f800000u; }

/* The index of the first of n floats that is NaN or infinite; n without one.  A first loop, which
 * the compiler vectorises, finds whether there is any: in the common case there is none. */
static size_t find_non_finite(const float *x, size_t n)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= !is_finite(x[i]);
    size_t i = any == 0 ? n : 0;
    while (i < n && is_finite(x[i]))
        i++;
    return i;
}

static size_t read_fp32(void *to, const char *from, size_t n)
{
    if (to != from)
        memcpy(to, from, n * sizeof(float));
    return find_non_finite(to, n);
}

static size_t read_fp16(void *to, const char *from, size_t n)
{
    float *out = to;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof half, sizeof half);
        out[i] = attn_f16_to_float(half);
    }
    return find_non_finite(out, n);
}

static size_t read_bf16(void *to, const char *from, size_t n)
{
    float *out = to;
    for (size_t i = 0; i < n; i++) {
        uint16_t upper;
        memcpy(&upper, from + i * sizeof upper, sizeof upper);
        uint32_t bits = (uint32_t)upper << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
    return find_non_finite(out, n);
}

static size_t read_bool(void *to, const char *from, size_t n)
{
    const uint8_t *flags = to;
    if (to != from)
        memcpy(to, from, n);
    size_t i = 0;
    while (i < n && flags[i] <= 1)
        i++;
    return i;
}

/* Flags as integers of `bytes` each, as masks of tokenizers are: little-endian, so that the bytes
 * of a smaller one are the low ones of 64 bits. */
static inline size_t read_wide_flags(uint8_t *flags, const char *from, size_t n, size_t bytes)
{
    size_t i = 0;
    for (; i < n; i++) {
        uint64_t flag = 0;
        memcpy(&flag, from + i * bytes, bytes);
        if (flag > 1)
            break;
        flags[i] = (uint8_t)flag;
    }
    return i;
}

static size_t read_bool_int32(void *to, const char *from, size_t n)
{
    return read_wide_flags(to, from, n, sizeof(int32_t));
}

static size_t read_bool_int64(void *to, const char *from, size_t n)
{
    return read_wide_flags(to, from, n, sizeof(int64_t));
}

static size_t read_int64(void *to, const char *from, size_t n)
{
    if (to != from)
        memcpy(to, from, n * sizeof(int64_t));
    return n;
}

static size_t read_int32(void *to, const char *from, size_t n)
{
    int64_t *out = to;
    for (size_t i = 0; i < n; i++) {
        int32_t number;
        memcpy(&number, from + i * sizeof number, sizeof number);
        out[i] = number;
    }
    return n;
}

/* ---- Datatypes ------------------------------------------------------------------------------- */

enum {
    FLOATS = 1 << SRV_FLOATS | 1 << SRV_FLOATS_OR_NULL,
    BOOLS = 1 << SRV_BOOLS,
    INTEGERS = 1 << SRV_INTEGERS
};

struct srv_datatype {
    const char *name;
    unsigned kinds;       /* bits of enum srv_tensor_kind */
    size_t size;          /* bytes of an element; 0: allowed for numbers in JSON only */
    element_reader *read; /* NULL likewise */
    bool in_place;        /* calls compute with its bytes as they are */
};

static const struct srv_datatype datatypes[] = {
    {"FP32", .kinds = FLOATS, .size = 4, .read = read_fp32, .in_place = true},
    {"FP16", .kinds = FLOATS, .size = 2, .read = read_fp16},
    {"BF16", .kinds = FLOATS, .size = 2, .read = read_bf16},
    {"FP64", .kinds = FLOATS},
    {"BOOL", .kinds = BOOLS, .size = 1, .read = read_bool, .in_place = true},
    {"UINT8", .kinds = BOOLS, .size = 1, .read = read_bool, .in_place = true},
    {"INT8", .kinds = BOOLS, .size = 1, .read = read_bool, .in_place = true},
    {"INT32", .kinds = BOOLS, .size = 4, .read = read_bool_int32},
    {"INT64", .kinds = BOOLS, .size = 8, .read = read_bool_int64},
    {"INT64", .kinds = INTEGERS, .size = 8, .read = read_int64, .in_place = true},
    {"INT32", .kinds = INTEGERS, .size = 4, .read = read_int32},
};

const struct srv_datatype *srv_datatype_find(const char *name, enum srv_tensor_kind kind)
{
    for (size_t i = 0; i < sizeof datatypes / sizeof datatypes[0]; i++)
        if (strcmp(name, datatypes[i].name) == 0 && (datatypes[i].kinds & 1u << kind) != 0)
            return &datatypes[i];
    return NULL;
}

const char *srv_datatype_name(size_t i, enum srv_tensor_kind kind, bool binary)
{
    for (size_t row = 0; row < sizeof datatypes / sizeof datatypes[0]; row++) {
        bool fits = (datatypes[row].kinds & 1u << kind) != 0;
        if (fits && (!binary || datatypes[row].read != NULL) && i-- == 0)
            return datatypes[row].name;
    }
    return NULL;
}

enum srv_error_code srv_datatype_fail(const char *name, enum srv_tensor_kind kind, bool binary,
                                      const char *param, struct srv_error *error)
{
    char choices[96];
    const char *names[sizeof datatypes / sizeof datatypes[0]];
    size_t count = 0;
    while ((names[count] = srv_datatype_name(count, kind, binary)) != NULL)
        count++;
    srv_choices(choices, sizeof choices, name, names, count);
    return srv_fail(error, SRV_E_INVALID_VALUE, param,
                    "%s cannot have datatype \"%s\"%s: one of %s", param, name,
                    binary ? " in binary form" : "", choices);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Checks that the tensor's shape wants `size` bytes of the datatype, and that as many are left. */
static bool check_size(const struct srv_tensor *tensor, const struct srv_binary_data *bytes,
                       uint64_t size, const struct srv_datatype *type, const char *param,
                       struct srv_error *error)
{
    size_t wanted;
    if (type->read == NULL)
        srv_datatype_fail(type->name, tensor->kind, true, param, error);
    else if (!bytes->framed)
        srv_fail(error, SRV_E_INVALID_VALUE, param,
                 "%s has binary_data_size, but the request no Inference-Header-Content-Length",
                 param);
    else if (__builtin_mul_overflow(tensor->count, type->size, &wanted) || wanted != size)
        srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                 "%s has binary_data_size %llu, its shape wants %zu elements of %zu bytes", param,
                 (unsigned long long)size, tensor->count, type->size);
    else if (wanted > bytes->left)
        srv_fail(error, SRV_E_BAD_REQUEST, param,
                 "%s wants %zu bytes, %zu are left behind the JSON", param, wanted, bytes->left);
    else
        return true;
    return false;
}

/* The memory for the tensor's elements: that at `at` itself, where they arrived, if they can be
 * used there; else of the arena. */
static void *choose_memory(const struct srv_tensor *tensor, char *at,
                           const struct srv_datatype *type, struct srv_arena *arena)
{
    size_t size = srv_tensor_element_bytes(tensor->kind);
    if (type->in_place && (uintptr_t)at % size == 0 && tensor->count > 0)
        return at;
    return srv_arena_alloc(arena, tensor->count, size);
}

/* Checks the elements from `good` on, the first that the reader found bad: minus infinity is
 * allowed where the kind allows null. */
static bool check_elements(const struct srv_tensor *tensor, size_t good, const char *param,
                           struct srv_error *error)
{
    const float *x = tensor->data; /* read for floats only */
    bool nulls = tensor->kind == SRV_FLOATS_OR_NULL;
    while (nulls && good < tensor->count && (is_finite(x[good]) || x[good] == -INFINITY))
        good++;
    if (good == tensor->count)
        return true;
    if (tensor->kind == SRV_BOOLS)
        srv_fail(error, SRV_E_INVALID_VALUE, param, "%s is neither 1 nor 0 at element %zu", param,
                 good);
    else
        srv_fail(error, SRV_E_NON_FINITE_INPUT, param, "%s is NaN or infinite at element %zu",
                 param, good);
    return false;
}

bool srv_tensor_read_binary(struct srv_tensor *tensor, struct srv_binary_data *bytes, uint64_t size,
                            const struct srv_datatype *type, struct srv_arena *arena,
                            const char *param, struct srv_error *error)
{
    if (!check_size(tensor, bytes, size, type, param, error))
        return false;
    tensor->data = choose_memory(tensor, bytes->at, type, arena);
    if (tensor->data == NULL) {
        srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
        return false;
    }
    size_t good = type->read(tensor->data, bytes->at, tensor->count);
    bytes->at += size;
    bytes->left -= (size_t)size;
    return check_elements(tensor, good, param, error);
}

/* ---- Writing --------------------------------------------------------------------------------- */

void srv_tensor_describe(struct srv_buffer *out, const char *datatype, size_t bytes,
                         const size_t *shape, unsigned rank)
{
    size_t count = 1;
    srv_buffer_text(out, "{\"shape\":[");
    for (unsigned d = 0; d < rank; d++) {
        srv_buffer_text(out, d > 0 ? "," : "");
        srv_buffer_unsigned(out, shape[d], 1);
        count *= shape[d];
    }
    srv_buffer_text(out, "],\"datatype\":\"");
    srv_buffer_text(out, datatype);
    srv_buffer_text(out, "\",\"binary_data_size\":");
    srv_buffer_unsigned(out, count * bytes, 1);
}

_Static_assert(SRV_BINARY_ALIGNMENT % SRV_BINARY_ELEMENT_BYTES == 0,
               "what follows a whole tensor is aligned to its own elements");

void srv_tensor_align(struct srv_buffer *out)
{
    static const char blanks[] = "                                                               ";
    _Static_assert(sizeof blanks == SRV_BINARY_ALIGNMENT, "one blank less than the alignment");
    srv_buffer_append(out, blanks, -out->length % SRV_BINARY_ALIGNMENT);
}

void srv_tensor_pad(struct srv_buffer *out, size_t bytes)
{
    static const char zeros[SRV_BINARY_ELEMENT_BYTES];
    srv_buffer_append(out, zeros, -out->length % bytes);
}

void srv_tensor_write_binary(struct srv_buffer *out, const void *data, size_t count)
{
    srv_buffer_append(out, data, count * SRV_BINARY_ELEMENT_BYTES);
}
