/* tensor_object.c: tensors as objects: {"shape":[..],"datatype":"FP32",...}, and inputs of infer
 * requests, which have a name and say the number of their bytes in "parameters".
 *
 * Members may have any order, so they are kept while the object is read, and checked together at
 * its end.  The bytes of binary tensors have the order in which their objects end.  The name of an
 * input says of which kind its elements are: where "data" stands before it, the numbers are passed
 * over, and read when the object has ended. */

#include "base/nearest.h"
#include "wire/inputs.h"
#include "wire/v2.h"

enum member { SHAPE, DATATYPE, DATA, BINARY_DATA_SIZE, INPUT, NAME, PARAMETERS, MEMBERS };
#define TENSOR_MEMBERS NAME /* those before have a meaning for a tensor that is no input */
#define DATATYPE_MAX 16

static const char *const member_names[MEMBERS] = {
    [SHAPE] = "shape",
    [DATATYPE] = "datatype",
    [DATA] = "data",
    [BINARY_DATA_SIZE] = "binary_data_size",
    [INPUT] = "input",
    [NAME] = "name",
    [PARAMETERS] = "parameters",
};

struct object {
    struct srv_source *source;
    struct srv_json *json; /* of the source */
    const char *param;     /* the field; of an input its name, "inputs" before that is known */
    bool is_input;
    const struct srv_field *field; /* of an input, once its name is known */
    enum srv_tensor_kind kind;
    bool allow_scalar;
    bool seen[MEMBERS];
    struct srv_tensor shape; /* without elements */
    char *datatype;
    const struct srv_datatype *type;
    struct srv_tensor data;
    struct srv_json data_at;  /* where "data" stands, if it was passed over; else all 0 */
    int64_t binary_data_size; /* bytes */
    char *input;              /* the digest of one that is kept */
};

#define PARAM_SIZE 96 /* a field's name and a member's */

/* ---- Sources --------------------------------------------------------------------------------- */

void srv_source_init(struct srv_source *out, const struct srv_body *body, struct srv_arena *arena,
                     struct srv_error *error)
{
    *out = (struct srv_source){.bytes = body->bytes, .arena = arena, .request = body->request};
    srv_json_init(&out->json, body->json, body->json_length, error);
    out->json.cancel = body->cancel;
}

void srv_source_check_bytes(const struct srv_source *source)
{
    if (source->bytes.left > 0 && srv_json_sound(&source->json))
        srv_fail(source->json.error, SRV_E_BAD_REQUEST, NULL,
                 "%zu bytes behind the JSON belong to no tensor", source->bytes.left);
}

/* ---- Members --------------------------------------------------------------------------------- */

static void read_shape(struct object *o)
{
    struct srv_tensor *shape = &o->shape;
    char member[PARAM_SIZE];
    srv_field_path(member, sizeof member, o->param, "shape");
    srv_json_begin_array(o->json, "an array of integers", member);
    for (shape->count = 1; srv_json_next_element(o->json); shape->rank++) {
        int64_t dimension = 0;
        if (shape->rank == SRV_TENSOR_RANK) {
            srv_json_fail(o->json, SRV_E_SHAPE_MISMATCH, o->param, "has more than %d dimensions",
                          SRV_TENSOR_RANK);
            return;
        }
        srv_json_integer(&dimension, o->json, member);
        if (dimension < 0)
            srv_json_fail(o->json, SRV_E_INVALID_VALUE, o->param,
                          "has a negative dimension in its shape");
        if (__builtin_mul_overflow(shape->count, (size_t)dimension, &shape->count))
            srv_json_fail(o->json, SRV_E_SHAPE_MISMATCH, o->param,
                          "has a shape of more elements than memory");
        shape->shape[shape->rank] = (size_t)dimension;
    }
}

/* Finds the datatype of that name, of the kind that is known. */
static void find_datatype(struct object *o)
{
    o->type = srv_datatype_find(o->datatype, o->kind);
    if (o->type == NULL)
        srv_datatype_fail(o->json, o->datatype, o->kind, false, o->param);
}

static void read_data(struct object *o, struct srv_json *at)
{
    if (o->is_input)
        srv_tensor_read_json(&o->data, at, o->source->arena, o->kind, false, o->param);
    else
        srv_tensor_read_flat(&o->data, at, o->source->arena, o->kind, o->param);
}

static void read_size(struct object *o, const char *param)
{
    srv_json_integer(&o->binary_data_size, o->json, param);
    if (o->binary_data_size < 0)
        srv_json_fail(o->json, SRV_E_INVALID_VALUE, o->param, "has a negative binary_data_size");
}

static void read_name(struct object *o)
{
    const char *names[SRV_FIELD_COUNT];
    char *name;
    size_t count = 0;
    if (!srv_json_string(&name, o->json, o->source->arena, SRV_ID_MAX, "inputs.name"))
        return;
    o->param = name;
    o->field = srv_field_find(name, SRV_CALL_ATTEND);
    if (o->field != NULL) {
        o->kind = o->field->tensor;
        o->allow_scalar = o->field->scalar;
        if (o->field->kind != SRV_FIELD_TENSOR)
            srv_json_fail(o->json, SRV_E_UNKNOWN_FIELD, o->param, "is a parameter, not an input");
        return;
    }
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if ((srv_fields[i].bodies & SRV_CALL_ATTEND) != 0 && srv_fields[i].kind == SRV_FIELD_TENSOR)
            names[count++] = srv_fields[i].name;
    srv_v2_fail_unknown(o->json, "input", name, names, count);
}

static void read_parameters(struct object *o)
{
    char name[32];
    if (srv_json_null(o->json))
        return;
    srv_json_begin_object(o->json, "inputs.parameters");
    while (srv_json_next_member(o->json, name, sizeof name)) {
        if (strcmp(name, "binary_data_size") != 0)
            srv_json_fail(
                o->json, SRV_E_UNSUPPORTED, o->param,
                "has a parameter other than binary_data_size; there is no shared memory: send the "
                "bytes in the request");
        if (o->seen[BINARY_DATA_SIZE])
            srv_json_fail(o->json, SRV_E_DUPLICATE_FIELD, o->param, "has binary_data_size twice");
        o->seen[BINARY_DATA_SIZE] = true;
        read_size(o, name);
    }
}

/* Finds the member of that name, which must be new; MEMBERS after an error. */
static enum member find_member(struct object *o, const char *name)
{
    char choices[96];
    enum member i = 0, end = o->is_input ? MEMBERS : TENSOR_MEMBERS;
    while (i < end && (strcmp(name, member_names[i]) != 0 ||
                       (o->is_input && (i == BINARY_DATA_SIZE || i == INPUT))))
        i++;
    if (i == end && o->is_input) {
        srv_json_fail(o->json, SRV_E_UNKNOWN_FIELD, o->param, "has an unknown member");
    } else if (i == end) {
        srv_choices(choices, sizeof choices, name, member_names, TENSOR_MEMBERS);
        srv_json_fail(o->json, SRV_E_UNKNOWN_FIELD, o->param,
                      "has an unknown member \"%s\": one of %s", name, choices);
    } else if (o->seen[i] && o->is_input) {
        srv_json_fail(o->json, SRV_E_DUPLICATE_FIELD, o->param, "has a member twice");
    } else if (o->seen[i]) {
        srv_json_fail(o->json, SRV_E_DUPLICATE_FIELD, o->param, "has \"%s\" twice", name);
    } else {
        o->seen[i] = true;
        return i;
    }
    return MEMBERS;
}

/* Reads the value of the member `name`. */
static void read_member(struct object *o, const char *name)
{
    char param[PARAM_SIZE];
    switch (find_member(o, name)) {
    case SHAPE:
        read_shape(o);
        break;
    case DATATYPE:
        srv_field_path(param, sizeof param, o->is_input ? "inputs" : o->param, "datatype");
        if (srv_json_string(&o->datatype, o->json, o->source->arena, DATATYPE_MAX, param) &&
            !o->is_input)
            find_datatype(o);
        break;
    case DATA:
        if (o->is_input && o->field == NULL) {
            srv_json_peek(o->json); /* passes over white space */
            o->data_at = *o->json;
            srv_json_skip(o->json);
        } else {
            read_data(o, o->json);
        }
        break;
    case BINARY_DATA_SIZE:
        srv_field_path(param, sizeof param, o->param, name);
        read_size(o, param);
        break;
    case INPUT:
        srv_field_path(param, sizeof param, o->param, name);
        srv_json_string(&o->input, o->json, o->source->arena, SRV_INPUT_DIGEST, param);
        break;
    case NAME:
        read_name(o);
        break;
    case PARAMETERS:
        read_parameters(o);
        break;
    case MEMBERS:
        break;
    }
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* Checks that the members are there which must be, and nothing twice.  An input's messages quote no
 * names. */
static void check_members(const struct object *o)
{
    const bool shape = o->seen[SHAPE], datatype = o->seen[DATATYPE], data = o->seen[DATA];
    const bool bytes = o->seen[BINARY_DATA_SIZE], input = o->is_input;
    struct srv_json *json = o->json;
    if (input && o->field == NULL)
        srv_json_fail(json, SRV_E_MISSING_FIELD, o->param, "have one without a name");
    if (input && !(shape && datatype))
        srv_json_fail(json, SRV_E_MISSING_FIELD, o->param, "has no shape or no datatype");
    if (data && bytes)
        srv_json_fail(json, SRV_E_INVALID_VALUE, o->param, "has both %s",
                      input ? "data and binary_data_size" : "\"data\" and \"binary_data_size\"");
    if (!data && !bytes)
        srv_json_fail(json, SRV_E_MISSING_FIELD, o->param, "has neither %s",
                      input ? "data nor binary_data_size" : "\"data\" nor \"binary_data_size\"");
    if (!shape)
        srv_json_fail(json, SRV_E_MISSING_FIELD, o->param, "has no \"shape\"");
    if (o->shape.rank == 0 && !o->allow_scalar)
        srv_json_fail(json, SRV_E_SHAPE_MISMATCH, o->param, "has no dimension");
    if (bytes && !datatype)
        srv_json_fail(json, SRV_E_MISSING_FIELD, o->param,
                      "has \"binary_data_size\" and no \"datatype\"");
}

/* Flat data has the count that the shape wants; nested data, of an input, has the shape. */
static void check_data(const struct object *o)
{
    const struct srv_tensor *data = &o->data, *shape = &o->shape;
    const bool same = data->rank == shape->rank &&
                      memcmp(data->shape, shape->shape, shape->rank * sizeof shape->shape[0]) == 0;
    if (data->rank == 1 ? data->count == shape->count : same)
        return;
    if (o->is_input)
        srv_json_fail(o->json, SRV_E_SHAPE_MISMATCH, o->param, "has data that is not of its shape");
    else
        srv_json_fail(o->json, SRV_E_SHAPE_MISMATCH, o->param,
                      "has %zu elements in data, its shape wants %zu", data->count, shape->count);
}

/* Finds the input that the object names, which nothing else may stand beside. */
static bool find_input(struct srv_tensor *out, struct object *o)
{
    for (enum member i = 0; i < TENSOR_MEMBERS; i++)
        if (i != INPUT && o->seen[i])
            return srv_json_fail(o->json, SRV_E_INVALID_VALUE, o->param, "has \"input\" and \"%s\"",
                                 member_names[i]);
    if (o->kind != SRV_FLOATS && o->kind != SRV_FLOATS_OR_NULL)
        return srv_json_fail(o->json, SRV_E_INVALID_VALUE, o->param,
                             "cannot be an input, which has numbers of float32");
    if (srv_json_sound(o->json))
        srv_inputs_find(out, o->source->request, o->input, o->param, o->json->error);
    out->kind = o->kind;
    return srv_json_sound(o->json);
}

static bool read_object(struct srv_tensor *out, struct object *o)
{
    char name[32];
    while (srv_json_next_member(o->json, name, sizeof name))
        read_member(o, name);
    if (o->seen[INPUT])
        return find_input(out, o);
    check_members(o);
    if (o->is_input && srv_json_sound(o->json))
        find_datatype(o);
    if (o->data_at.at != NULL && srv_json_sound(o->json))
        read_data(o, &o->data_at);
    if (o->seen[DATA])
        check_data(o);
    if (!srv_json_sound(o->json))
        return false;
    *out = o->shape;
    out->kind = o->kind;
    out->data = o->data.data;
    out->present =
        o->seen[DATA] ||
        srv_tensor_read_binary(out, o->source, (uint64_t)o->binary_data_size, o->type, o->param);
    return out->present;
}

bool srv_tensor_read(struct srv_tensor *out, struct srv_source *source, enum srv_tensor_kind kind,
                     bool allow_scalar, const char *param)
{
    struct srv_json *json = &source->json;
    if (srv_json_peek(json) != SRV_JSON_OBJECT)
        return srv_tensor_read_json(out, json, source->arena, kind, allow_scalar, param);
    struct object o = {
        .source = source, .json = json, .param = param, .kind = kind, .allow_scalar = allow_scalar};
    srv_json_enter_object(json);
    return read_object(out, &o);
}

bool srv_tensor_read_input(struct srv_tensor *out, const struct srv_field **field,
                           struct srv_source *source)
{
    struct object o = {
        .source = source, .json = &source->json, .param = "inputs", .is_input = true};
    srv_json_begin_object(o.json, "inputs");
    bool read = read_object(out, &o);
    *field = o.field;
    return read;
}
