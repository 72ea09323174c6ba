/* v2_input.c: an input object.
 *
 * The name says of which kind the elements are.  Clients write it first; where "data" stands before
 * it, the numbers are passed over, and read when the object has ended. */
#include "wire/v2_input.h"

#include <string.h>

#include "base/id.h"
#include "wire/call_fields.h"
#include "wire/field_hints.h"
#include "wire/tensor_json.h"
#include "wire/tensor_object.h"
#include "wire/v2_words.h"

enum { NAME, SHAPE, DATATYPE, PARAMETERS, DATA, MEMBERS };
#define DATATYPE_MAX 16

struct input {
    struct srv_json *json;
    struct srv_arena *arena;
    bool seen[MEMBERS], has_size, deferred;
    char *name, *datatype;
    const struct srv_field *field; /* of the name */
    struct srv_tensor shape;       /* without elements */
    struct srv_tensor data;
    struct srv_json data_at; /* where "data" stands, where it is deferred */
    int64_t binary_data_size;
};

static bool fail(const struct input *input, enum srv_error_code code, const char *why)
{
    const char *name = input->name != NULL ? input->name : "inputs";
    srv_fail(input->json->error, code, name, "%s %s", name, why);
    return false;
}

bool srv_v2_fail_unknown(struct srv_json *json, const char *what, const char *name,
                         const char *const *names, size_t count)
{
    char why[SRV_HINT_MAX];
    srv_field_hint(why, what, name, names, count);
    srv_v2_reword(why, sizeof why);
    srv_fail(json->error, SRV_E_UNKNOWN_FIELD, name, "%s %s", name, why);
    return false;
}

static bool fail_unknown(const struct input *input)
{
    const char *names[SRV_FIELD_COUNT];
    size_t count = 0;
    if (input->field != NULL)
        return fail(input, SRV_E_UNKNOWN_FIELD, "is a parameter, not an input");
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if ((srv_fields[i].bodies & SRV_CALL_ATTEND) != 0 && srv_fields[i].kind == SRV_FIELD_TENSOR)
            names[count++] = srv_fields[i].name;
    return srv_v2_fail_unknown(input->json, "input", input->name, names, count);
}

/* ---- Members --------------------------------------------------------------------------------- */

static bool read_name(struct input *input)
{
    if (!srv_json_string(&input->name, input->json, input->arena, SRV_ID_MAX, "inputs.name"))
        return false;
    input->field = srv_field_find(input->name, SRV_CALL_ATTEND);
    return (input->field != NULL && input->field->kind == SRV_FIELD_TENSOR) || fail_unknown(input);
}

static bool read_parameter(struct input *input, const char *name)
{
    if (strcmp(name, "binary_data_size") != 0)
        return fail(input, SRV_E_UNSUPPORTED,
                    "has a parameter other than binary_data_size; there is no shared memory: send "
                    "the bytes in the request");
    if (input->has_size)
        return fail(input, SRV_E_DUPLICATE_FIELD, "has binary_data_size twice");
    input->has_size = true;
    if (!srv_json_integer(&input->binary_data_size, input->json, name))
        return false;
    return input->binary_data_size >= 0 ||
           fail(input, SRV_E_INVALID_VALUE, "has a negative binary_data_size");
}

static bool read_parameters(struct input *input)
{
    char name[32];
    if (srv_json_peek(input->json) == SRV_JSON_NULL)
        return srv_json_literal(input->json, "null");
    if (srv_json_peek(input->json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(input->json, "an object", "inputs.parameters");
    srv_json_enter_object(input->json);
    while (srv_json_next_member(input->json, name, sizeof name))
        if (!read_parameter(input, name))
            return false;
    return input->json->error->code == SRV_OK;
}

static bool read_data(struct input *input)
{
    if (input->name != NULL)
        return srv_tensor_read_json(&input->data, input->json, input->arena, input->field->tensor,
                                    false, input->name);
    input->deferred = true;
    if (srv_json_peek(input->json) == SRV_JSON_BAD)
        return false;
    input->data_at = *input->json;
    return srv_json_skip(input->json);
}

static bool read_member(struct input *input, const char *name)
{
    static const char *const names[MEMBERS] = {
        [NAME] = "name", [SHAPE] = "shape", [DATATYPE] = "datatype", [PARAMETERS] = "parameters",
        [DATA] = "data",
    };
    size_t i = 0;
    while (i < MEMBERS && strcmp(name, names[i]) != 0)
        i++;
    if (i == MEMBERS)
        return fail(input, SRV_E_UNKNOWN_FIELD, "has an unknown member");
    if (input->seen[i])
        return fail(input, SRV_E_DUPLICATE_FIELD, "has a member twice");
    input->seen[i] = true;
    switch (i) {
    case NAME:
        return read_name(input);
    case SHAPE:
        return srv_tensor_read_shape(&input->shape, input->json,
                                     input->name != NULL ? input->name : "inputs");
    case DATATYPE:
        return srv_json_string(&input->datatype, input->json, input->arena, DATATYPE_MAX,
                               "inputs.datatype");
    case PARAMETERS:
        return read_parameters(input);
    default:
        return read_data(input);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool read_deferred_data(struct input *input)
{
    if (!input->deferred)
        return true;
    return srv_tensor_read_json(&input->data, &input->data_at, input->arena, input->field->tensor,
                                false, input->name);
}

static bool check_members(const struct input *input, const struct srv_datatype **type)
{
    if (input->name == NULL)
        return fail(input, SRV_E_MISSING_FIELD, "have one without a name");
    if (!input->seen[SHAPE] || input->datatype == NULL)
        return fail(input, SRV_E_MISSING_FIELD, "has no shape or no datatype");
    if (input->seen[DATA] == input->has_size)
        return fail(input, input->has_size ? SRV_E_INVALID_VALUE : SRV_E_MISSING_FIELD,
                    input->has_size ? "has both data and binary_data_size"
                                    : "has neither data nor binary_data_size");
    if (input->shape.rank == 0 && !input->field->scalar)
        return fail(input, SRV_E_SHAPE_MISMATCH, "has no dimension");
    return srv_tensor_find_datatype(type, input->datatype, input->field->tensor, input->name,
                                    input->json->error);
}

/* Flat data has the count that the shape wants; nested data has the shape. */
static bool check_data(const struct input *input)
{
    const struct srv_tensor *data = &input->data, *shape = &input->shape;
    bool fits = data->rank == 1 ? data->count == shape->count
                                : data->rank == shape->rank &&
                                      memcmp(data->shape, shape->shape,
                                             shape->rank * sizeof shape->shape[0]) == 0;
    return fits || fail(input, SRV_E_SHAPE_MISMATCH, "has data that is not of its shape");
}

bool srv_v2_input_read(struct srv_tensor *out, const char **name, struct srv_json *json,
                       struct srv_binary_data *bytes, struct srv_arena *arena)
{
    struct input input = {.json = json, .arena = arena};
    const struct srv_datatype *type;
    char key[32];
    if (srv_json_peek(json) != SRV_JSON_OBJECT)
        return srv_json_wrong_type(json, "an object", "inputs");
    srv_json_enter_object(json);
    while (srv_json_next_member(json, key, sizeof key))
        if (!read_member(&input, key))
            return false;
    if (json->error->code != SRV_OK || !check_members(&input, &type) || !read_deferred_data(&input))
        return false;
    *name = input.name;
    *out = input.shape;
    out->kind = input.field->tensor;
    out->data = input.data.data;
    if (input.seen[DATA])
        out->present = check_data(&input);
    else
        out->present = srv_tensor_read_binary(out, bytes, (uint64_t)input.binary_data_size, type,
                                              arena, input.name, json->error);
    return out->present;
}
