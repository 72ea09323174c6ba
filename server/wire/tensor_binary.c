/* tensor_binary.c: reads tensors that are bytes.
 *
 * A datatype is one row of a table: its name, the kinds of tensor that can have it, the bytes of an
 * element, and the reader that checks elements and brings them into the form that calls compute
 * with.  Bytes that have that form already and are aligned are checked and used where they arrived;
 * all others are copied once, into the arena. */
#include "wire/tensor.h"

#include <math.h>

#include "base/nearest.h"
#include "basics/half_float.h"
#include "basics/widen.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "bytes on the wire are little-endian and used as they are");

/* ---- Elements --------------------------------------------------------------------------------
 *
 * A reader converts n elements from `from`, which may be unaligned, to `to`, which may be the same
 * place where the two forms are the same, and returns the number of elements before the first bad
 * one: n where all are good. */

typedef size_t element_reader(void *to, const char *from, size_t n);

static size_t read_fp32(void *to, const char *from, size_t n)
{
    if (to != from)
        memcpy(to, from, n * sizeof(float));
    return attn_first_non_finite(to, n);
}

/* Widens numbers of two bytes each. */
static inline size_t read_shorts(float *out, const char *from, size_t n, float (*widen)(uint16_t))
{
    for (size_t i = 0; i < n; i++) {
        uint16_t element;
        memcpy(&element, from + i * sizeof element, sizeof element);
        out[i] = widen(element);
    }
    return attn_first_non_finite(out, n);
}

static size_t read_fp16(void *to, const char *from, size_t n)
{
    return read_shorts(to, from, n, attn_f16_to_float);
}

static size_t read_bf16(void *to, const char *from, size_t n)
{
    return read_shorts(to, from, n, attn_bf16_to_float);
}

/* Flags as integers of `bytes` each, as masks of tokenizers are: little-endian, so that the bytes
 * of a smaller one are the low ones of 64 bits. */
static inline size_t read_flags(uint8_t *flags, const char *from, size_t n, size_t bytes)
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

static size_t read_bool(void *to, const char *from, size_t n) { return read_flags(to, from, n, 1); }
static size_t read_bool4(void *to, const char *from, size_t n)
{
    return read_flags(to, from, n, 4);
}
static size_t read_bool8(void *to, const char *from, size_t n)
{
    return read_flags(to, from, n, 8);
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
    {"INT32", .kinds = BOOLS, .size = 4, .read = read_bool4},
    {"INT64", .kinds = BOOLS, .size = 8, .read = read_bool8},
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

bool srv_datatype_fail(struct srv_json *json, const char *name, enum srv_tensor_kind kind,
                       bool binary, const char *param)
{
    char choices[96];
    const char *names[sizeof datatypes / sizeof datatypes[0]];
    size_t count = 0;
    while ((names[count] = srv_datatype_name(count, kind, binary)) != NULL)
        count++;
    srv_choices(choices, sizeof choices, name, names, count);
    return srv_json_fail(json, SRV_E_INVALID_VALUE, param,
                         "cannot have datatype \"%s\"%s: one of %s", name,
                         binary ? " in binary form" : "", choices);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Checks that the tensor's shape wants `size` bytes of the datatype, and that as many are left. */
static bool check_size(const struct srv_tensor *tensor, struct srv_source *source, uint64_t size,
                       const struct srv_datatype *type, const char *param)
{
    size_t wanted;
    struct srv_json *json = &source->json;
    if (type->read == NULL)
        return srv_datatype_fail(json, type->name, tensor->kind, true, param);
    if (!source->bytes.framed)
        return srv_json_fail(json, SRV_E_INVALID_VALUE, param,
                             "has binary_data_size, but the request no "
                             "Inference-Header-Content-Length");
    if (__builtin_mul_overflow(tensor->count, type->size, &wanted) || wanted != size)
        return srv_json_fail(json, SRV_E_SHAPE_MISMATCH, param,
                             "has binary_data_size %llu, its shape wants %zu elements of %zu bytes",
                             (unsigned long long)size, tensor->count, type->size);
    if (wanted > source->bytes.left)
        return srv_json_fail(json, SRV_E_BAD_REQUEST, param,
                             "wants %zu bytes, %zu are left behind the JSON", wanted,
                             source->bytes.left);
    return true;
}

bool srv_tensor_read_binary(struct srv_tensor *tensor, struct srv_source *source, uint64_t size,
                            const struct srv_datatype *type, const char *param)
{
    const size_t count = tensor->count, element = srv_tensor_element_bytes(tensor->kind);
    char *at = source->bytes.at;
    if (!check_size(tensor, source, size, type, param))
        return false;
    const bool in_place = type->in_place && (uintptr_t)at % element == 0 && count > 0;
    tensor->data = in_place ? at : srv_arena_alloc(source->arena, count, element);
    if (tensor->data == NULL) {
        srv_fail(source->json.error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
        return false;
    }
    size_t good = type->read(tensor->data, at, count);
    source->bytes.at += size;
    source->bytes.left -= (size_t)size;
    while (good < count && tensor->kind == SRV_FLOATS_OR_NULL && /* -infinity stands for null */
           (isfinite(tensor->f32[good]) || tensor->f32[good] == -INFINITY))
        good++;
    if (good == count)
        return true;
    if (tensor->kind == SRV_BOOLS)
        return srv_json_fail(&source->json, SRV_E_INVALID_VALUE, param,
                             "is neither 1 nor 0 at element %zu", good);
    return srv_json_fail(&source->json, SRV_E_NON_FINITE_INPUT, param,
                         "is NaN or infinite at element %zu", good);
}
