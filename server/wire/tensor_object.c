/* tensor_object.c: the tensor object, {"shape":[..],"datatype":"FP32",...}.
 *
 * Members may have any order, so they are kept while the object is read, and checked together at
 * its end.  The bytes of binary tensors have the order in which their objects end. */
#include "wire/tensor_object.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "wire/tensor_json.h"

enum { SHAPE, DATATYPE, DATA, BINARY_DATA_SIZE, MEMBERS };

struct object {
    struct srv_json *json;
    struct srv_arena *arena;
    const char *param;
    enum srv_tensor_kind kind;
    bool allow_scalar;
    bool seen[MEMBERS];
    struct srv_tensor shape; /* without elements */
    const struct srv_datatype *type;
    struct srv_tensor data;   /* "data", of rank 1 */
    int64_t binary_data_size; /* bytes */
};

#define PARAM_SIZE 96 /* a field's name and a member's */

static __attribute__((format(printf, 3, 4))) bool fail(const struct object *o,
                                                       enum srv_error_code code, const char *format,
                                                       ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    srv_fail(o->json->error, code, o->param, "%s %s", o->param, what);
    return false;
}

/* ---- Members --------------------------------------------------------------------------------- */

bool srv_tensor_read_shape(struct srv_tensor *out, struct srv_json *json, const char *param)
{
    char member[PARAM_SIZE];
    srv_field_path(member, sizeof member, param, "shape");
    if (srv_json_peek(json) != SRV_JSON_ARRAY)
        return srv_json_wrong_type(json, "an array of integers", member);
    srv_json_enter_array(json);
    for (out->rank = 0, out->count = 1; srv_json_next_element(json); out->rank++) {
        int64_t dimension;
        if (out->rank == SRV_TENSOR_RANK) {
            srv_fail(json->error, SRV_E_SHAPE_MISMATCH, param, "%s has more than %d dimensions",
                     param, SRV_TENSOR_RANK);
            return false;
        }
        if (!srv_json_integer(&dimension, json, member))
            return false;
        if (dimension < 0) {
            srv_fail(json->error, SRV_E_INVALID_VALUE, param,
                     "%s has a negative dimension in its shape", param);
            return false;
        }
        if (__builtin_mul_overflow(out->count, (size_t)dimension, &out->count)) {
            srv_fail(json->error, SRV_E_SHAPE_MISMATCH, param,
                     "%s has a shape of more elements than memory", param);
            return false;
        }
        out->shape[out->rank] = (size_t)dimension;
    }
    return json->error->code == SRV_OK;
}

bool srv_tensor_find_datatype(const struct srv_datatype **out, const char *name,
                              enum srv_tensor_kind kind, const char *param, struct srv_error *error)
{
    *out = srv_datatype_find(name, kind);
    return *out != NULL || srv_datatype_fail(name, kind, false, param, error) == SRV_OK;
}

static bool read_datatype(struct object *o, const char *param)
{
    char *name;
    return srv_json_string(&name, o->json, o->arena, 16, param) &&
           srv_tensor_find_datatype(&o->type, name, o->kind, o->param, o->json->error);
}

static bool read_size(struct object *o, const char *param)
{
    if (!srv_json_integer(&o->binary_data_size, o->json, param))
        return false;
    return o->binary_data_size >= 0 ||
           fail(o, SRV_E_INVALID_VALUE, "has a negative binary_data_size");
}

/* Reads the value of the member `name`. */
static bool read_member(struct object *o, const char *name)
{
    static const char *const names[MEMBERS] = {
        [SHAPE] = "shape",
        [DATATYPE] = "datatype",
        [DATA] = "data",
        [BINARY_DATA_SIZE] = "binary_data_size",
    };
    char param[PARAM_SIZE], choices[96];
    size_t i = 0;
    while (i < MEMBERS && strcmp(name, names[i]) != 0)
        i++;
    if (i == MEMBERS) {
        srv_choices(choices, sizeof choices, name, names, MEMBERS);
        return fail(o, SRV_E_UNKNOWN_FIELD, "has an unknown member \"%s\": one of %s", name,
                    choices);
    }
    if (o->seen[i])
        return fail(o, SRV_E_DUPLICATE_FIELD, "has \"%s\" twice", name);
    o->seen[i] = true;
    srv_field_path(param, sizeof param, o->param, name);
    switch (i) {
    case SHAPE:
        return srv_tensor_read_shape(&o->shape, o->json, o->param);
    case DATATYPE:
        return read_datatype(o, param);
    case DATA:
        return srv_tensor_read_flat(&o->data, o->json, o->arena, o->kind, o->param);
    default:
        return read_size(o, param);
    }
}

/* ---- Objects --------------------------------------------------------------------------------- */

static bool check_members(const struct object *o)
{
    bool data = o->seen[DATA], binary = o->seen[BINARY_DATA_SIZE];
    if (data && binary)
        return fail(o, SRV_E_INVALID_VALUE, "has both \"data\" and \"binary_data_size\"");
    if (!data && !binary)
        return fail(o, SRV_E_MISSING_FIELD, "has neither \"data\" nor \"binary_data_size\"");
    if (!o->seen[SHAPE])
        return fail(o, SRV_E_MISSING_FIELD, "has no \"shape\"");
    if (o->shape.rank == 0 && !o->allow_scalar)
        return fail(o, SRV_E_SHAPE_MISMATCH, "has no dimension");
    if (binary && !o->seen[DATATYPE])
        return fail(o, SRV_E_MISSING_FIELD, "has \"binary_data_size\" and no \"datatype\"");
    if (data && o->shape.count != o->data.count)
        return fail(o, SRV_E_SHAPE_MISMATCH, "has %zu elements in data, its shape wants %zu",
                    o->data.count, o->shape.count);
    return true;
}

static bool read_object(struct srv_tensor *out, struct object *o, struct srv_binary_data *bytes)
{
    char name[32];
    if (!srv_json_enter_object(o->json))
        return false;
    while (srv_json_next_member(o->json, name, sizeof name))
        if (!read_member(o, name))
            return false;
    if (o->json->error->code != SRV_OK || !check_members(o))
        return false;
    *out = o->shape;
    out->kind = o->kind;
    out->data = o->data.data;
    out->present =
        o->seen[DATA] || srv_tensor_read_binary(out, bytes, (uint64_t)o->binary_data_size, o->type,
                                                o->arena, o->param, o->json->error);
    return out->present;
}

/* {"input":n}: a tensor that the body's reader has read already (v2_request.c). */
static bool take_input(struct srv_tensor *out, struct srv_json *json,
                       const struct srv_binary_data *bytes, enum srv_tensor_kind kind,
                       const char *param)
{
    char name[8];
    int64_t index;
    if (!srv_json_enter_object(json) || !srv_json_next_member(json, name, sizeof name) ||
        !srv_json_integer(&index, json, param) || srv_json_next_member(json, name, sizeof name))
        return false;
    assert(index >= 0 && (size_t)index < bytes->num_inputs && bytes->inputs[index].kind == kind);
    *out = bytes->inputs[index];
    return true;
}

bool srv_tensor_read(struct srv_tensor *out, struct srv_json *json, struct srv_binary_data *bytes,
                     struct srv_arena *arena, enum srv_tensor_kind kind, bool allow_scalar,
                     const char *param)
{
    if (srv_json_peek(json) != SRV_JSON_OBJECT)
        return srv_tensor_read_json(out, json, arena, kind, allow_scalar, param);
    if (bytes->inputs != NULL)
        return take_input(out, json, bytes, kind, param);
    struct object o = {
        .json = json, .arena = arena, .param = param, .kind = kind, .allow_scalar = allow_scalar};
    return read_object(out, &o, bytes);
}
