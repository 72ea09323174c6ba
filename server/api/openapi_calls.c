/* openapi_calls.c: the schemas of the bodies of /attend and /decode, from the table of fields
 * (wire/call_fields.c), and of tensors, from the table of datatypes.
 *
 * A field may be null, which counts as left out, so that a rule about fields that are given says
 * "given and not null". */
#include <string.h>

#include "api/openapi_types.h"
#include "wire/call_fields.h"
#include "wire/document.h"

/* ---- Tensors --------------------------------------------------------------------------------- */

/* The kinds of tensor of a request, by enum srv_tensor_kind, and those of replies. */
static const struct {
    const char *name, *element; /* a type, or NULL: true, false, 1 or 0 */
} tensors[] = {
    [SRV_FLOATS] = {"FloatTensor", "number"},
    [SRV_FLOATS_OR_NULL] = {"BiasTensor", "number?"},
    [SRV_BOOLS] = {"MaskTensor", NULL},
    [SRV_INTEGERS] = {"IntegerTensor", "integer"},
};
#define TENSOR_KINDS (sizeof tensors / sizeof tensors[0])

const char *srv_openapi_tensor(enum srv_tensor_kind kind) { return tensors[kind].name; }

static const struct {
    const char *name, *element;
} output_tensors[] = {
    {"FloatOutput", "number"}, {"NullableOutput", "number?"}, {"IndexOutput", "integer"}};

static json_t *element_schema(const char *type)
{
    return type != NULL ? srv_openapi_type(type)
                        : json_pack("{s:[b, b, i, i]}", "enum", 1, 0, 1, 0);
}

/* Arrays of 1 to SRV_TENSOR_RANK dimensions, or `other`, whose reference is taken. */
static json_t *nested_schema(const char *element, json_t *other)
{
    json_t *list = json_array();
    json_t *inner = element_schema(element);
    for (unsigned rank = 1; rank <= SRV_TENSOR_RANK; rank++) {
        inner = json_pack("{s:s, s:o}", "type", "array", "items", inner);
        srv_document_append(&list, json_incref(inner));
    }
    json_decref(inner);
    srv_document_append(&list, other);
    return json_pack("{s:o}", "anyOf", list);
}

/* A tensor as an object: its elements in one array, or, where `binary`, as bytes after the JSON. */
static json_t *object_schema(enum srv_tensor_kind kind, bool binary)
{
    json_t *types = json_array();
    const char *name;
    for (size_t i = 0; (name = srv_datatype_name(i, kind, binary)) != NULL; i++)
        srv_document_append(&types, json_string(name));
    json_t *last = binary ? srv_openapi_type("Count")
                          : json_pack("{s:s, s:o}", "type", "array", "items",
                                      element_schema(tensors[kind].element));
    json_t *shape = json_pack("{s:s, s:o, s:i}", "type", "array", "items",
                              srv_openapi_type("Count"), "maxItems", SRV_TENSOR_RANK);
    const char *member = binary ? "binary_data_size" : "data";
    json_t *required = srv_openapi_words(binary ? "shape datatype" : "shape");
    srv_document_append(&required, json_string(member));
    return json_pack("{s:s, s:b, s:{s:o, s:{s:s, s:o}, s:o}, s:o}", "type", "object",
                     "additionalProperties", 0, "properties", "shape", shape, "datatype", "type",
                     "string", "enum", types, member, last, "required", required);
}

static void add_tensors(json_t **schemas)
{
    for (size_t i = 0; i < TENSOR_KINDS; i++) {
        enum srv_tensor_kind kind = (enum srv_tensor_kind)i;
        json_t *objects =
            json_pack("{s:[o, o]}", "anyOf", object_schema(kind, false), object_schema(kind, true));
        srv_document_set(schemas, tensors[i].name, nested_schema(tensors[i].element, objects));
    }
    for (size_t i = 0; i < sizeof output_tensors / sizeof output_tensors[0]; i++)
        srv_document_set(
            schemas, output_tensors[i].name,
            nested_schema(output_tensors[i].element, srv_openapi_ref("schemas", "BinaryOutput")));
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static const char *const types[] = {
    [SRV_FIELD_NAME] = "ModelName",
    [SRV_FIELD_ID] = "Id",
    [SRV_FIELD_FLAG] = "boolean",
    [SRV_FIELD_NON_NEGATIVE] = "Count",
    [SRV_FIELD_LAYER] = "LayerIndex",
    [SRV_FIELD_POSITIVE] = "PositiveCount",
    [SRV_FIELD_RADIUS] = "Radius",
    [SRV_FIELD_SCALE] = "Scale",
    [SRV_FIELD_SOFTCAP] = "Softcap",
    [SRV_FIELD_OUTPUTS] = "OutputList",
    [SRV_FIELD_SEQUENCES] = "StepRequestList",
    [SRV_FIELD_GROUPS] = "KeyGroupList",
};

static json_t *type_of(const struct srv_field *field)
{
    if (field->choice != NULL)
        return srv_openapi_type(field->choice->type);
    if (field->kind != SRV_FIELD_TENSOR)
        return srv_openapi_type(types[field->kind]);
    json_t *tensor = srv_openapi_type(srv_openapi_tensor(field->tensor));
    return field->scalar ? json_pack("{s:[{s:s}, o]}", "anyOf", "type", "integer", tensor) : tensor;
}

static json_t *fields_schema(enum srv_call_kind body)
{
    json_t *properties = json_object();
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++) {
        const struct srv_field *field = &srv_fields[i];
        if ((field->bodies & body) == 0)
            continue;
        json_t *schema = srv_openapi_or_null(type_of(field));
        srv_document_set(&schema, "description", json_string(field->meaning));
        if (field->shapes != NULL)
            srv_document_set(&schema, "x-shapes", srv_openapi_words(field->shapes));
        srv_document_set(&properties, field->name, schema);
    }
    return properties;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* That each of these fields is given. */
static json_t *given(const char *names)
{
    json_t *required = srv_openapi_words(names), *properties = json_object(), *name;
    size_t i;
    json_array_foreach(required, i, name)
        srv_document_set(&properties, json_string_value(name), srv_openapi_ref("schemas", "Given"));
    return json_pack("{s:o, s:o}", "required", required, "properties", properties);
}

static json_t *if_then(json_t *condition, json_t *consequence)
{
    return json_pack("{s:o, s:o}", "if", condition, "then", consequence);
}

static json_t *never_both(const char *name, const char *other)
{
    json_t *both = given(name), *second = given(other);
    if (json_array_extend(json_object_get(both, "required"), json_object_get(second, "required")) ||
        json_object_update(json_object_get(both, "properties"),
                           json_object_get(second, "properties"))) {
        json_decref(both);
        both = NULL;
    }
    json_decref(second);
    return json_pack("{s:o}", "not", both);
}

#define EVERY_BODY (SRV_CALL_ATTEND | SRV_CALL_DECODE | SRV_CALL_ITEM)

/* The rules of call.c's `check` about two fields.  `make check-openapi` sends every pair of fields
 * and compares the daemon's verdict with the schema's. */
static const struct {
    unsigned bodies; /* enum srv_call_kind bits */
    const char *name;
    const char *needs;    /* words; NULL: none */
    const char *excludes; /* likewise */
} rules[] = {
    {EVERY_BODY, "query", "key value", "hidden_states"},
    {SRV_CALL_ATTEND | SRV_CALL_DECODE, "query", NULL,
     "model encoder_hidden_states encoder_padding_mask"},
    {SRV_CALL_ATTEND, "query", NULL, "key_hidden_states value_hidden_states"},
    {SRV_CALL_ATTEND, "query layer", "session_id", NULL},
    {SRV_CALL_ATTEND, "past_key", "query past_value", "session_id"},
    {SRV_CALL_ATTEND, "past_value", "query past_key", NULL},
    {EVERY_BODY, "key", "query value", NULL},
    {EVERY_BODY, "value", "query key", NULL},
    {SRV_CALL_ATTEND, "session_id", NULL, "key_hidden_states"},
    {SRV_CALL_ATTEND | SRV_CALL_DECODE, "encoder_padding_mask", "encoder_hidden_states session_id",
     NULL},
    {SRV_CALL_ATTEND, "encoder_hidden_states", NULL, "key_hidden_states value_hidden_states"},
    {SRV_CALL_ATTEND, "key_hidden_states", "value_hidden_states", NULL},
    {SRV_CALL_ATTEND, "value_hidden_states", "key_hidden_states", NULL},
    {SRV_CALL_ATTEND, "position", "session_id", NULL},
    {SRV_CALL_ATTEND, "epoch", "session_id", NULL},
    {SRV_CALL_ATTEND, "revision", "session_id", NULL},
    {SRV_CALL_ATTEND, "start", "session_id", NULL},
    {SRV_CALL_ATTEND, "commit", "session_id", NULL},
    {EVERY_BODY, "pool", NULL, "top_k"},
    {EVERY_BODY, "map_datatype", NULL, "top_k"},
    {EVERY_BODY, "pool_type", "pool", NULL},
};

static void add_rules(json_t **list, enum srv_call_kind body)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if ((rules[i].bodies & body) == 0)
            continue;
        if (rules[i].needs != NULL)
            srv_document_append(list, if_then(given(rules[i].name), given(rules[i].needs)));
        json_t *excluded = srv_openapi_words(rules[i].excludes != NULL ? rules[i].excludes : "");
        json_t *other;
        size_t j;
        json_array_foreach(excluded, j, other)
            srv_document_append(list, never_both(rules[i].name, json_string_value(other)));
        json_decref(excluded);
    }
}

/* A field that modifies an output needs that output; a flag that is false modifies none. */
static json_t *refinement(const struct srv_field *field)
{
    json_t *names = json_array();
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        if ((field->refines & srv_output_names[i].bit) != 0)
            srv_document_append(&names, json_string(srv_output_names[i].name));
    json_t *condition = field->kind != SRV_FIELD_FLAG
                            ? given(field->name)
                            : json_pack("{s:[s], s:{s:{s:b}}}", "required", field->name,
                                        "properties", field->name, "const", 1);
    return if_then(condition, json_pack("{s:[s], s:{s:{s:{s:o}}}}", "required", "outputs",
                                        "properties", "outputs", "contains", "enum", names));
}

/* A session has the encoder rows that it starts with. */
static json_t *encoder_starts(void)
{
    return if_then(
        given("encoder_hidden_states session_id"),
        json_pack("{s:[s], s:{s:{s:b}}}", "required", "start", "properties", "start", "const", 1));
}

/* Rows are given as hidden_states, or projected already. */
static json_t *some_rows(void)
{
    return json_pack("{s:[o, o]}", "anyOf", given("hidden_states"), given("query"));
}

static json_t *step(void)
{
    return json_pack("{s:[o, o]}", "allOf", given("session_id"), some_rows());
}

/* Beside `sequences` no field of rows may stand. */
static json_t *list_or_step(void)
{
    json_t *none = json_object();
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (!srv_fields[i].in_call && (srv_fields[i].bodies & SRV_CALL_DECODE) != 0)
            srv_document_set(&none, srv_fields[i].name, json_pack("{s:s}", "type", "null"));
    json_t *schema = if_then(given("sequences"), json_pack("{s:o}", "properties", none));
    srv_document_set(&schema, "else", step());
    return schema;
}

static json_t *call_schema(enum srv_call_kind body, const char *meaning)
{
    json_t *list = json_array();
    if (body == SRV_CALL_ATTEND)
        srv_document_append(&list, some_rows());
    else
        srv_document_append(&list, body == SRV_CALL_DECODE ? list_or_step() : step());
    add_rules(&list, body);
    if (body != SRV_CALL_ITEM)
        srv_document_append(&list, encoder_starts());
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (srv_fields[i].refines != 0 && (srv_fields[i].bodies & body) != 0)
            srv_document_append(&list, refinement(&srv_fields[i]));
    return json_pack("{s:s, s:s, s:b, s:o, s:o}", "type", "object", "description", meaning,
                     "additionalProperties", 0, "properties", fields_schema(body), "allOf", list);
}

/* The schemas of fields that are one of some names. */
static void add_choices(json_t **schemas)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++) {
        const struct srv_choice *choice = srv_fields[i].choice;
        json_t *names = json_array();
        for (size_t j = 0; choice != NULL && j < choice->count; j++)
            srv_document_append(&names, json_string(choice->names[j]));
        if (choice != NULL)
            srv_document_set(schemas, choice->type,
                             json_pack("{s:s, s:O}", "type", "string", "enum", names));
        json_decref(names);
    }
}

void srv_openapi_add_calls(json_t **schemas, size_t max_sequences)
{
    add_tensors(schemas);
    add_choices(schemas);
    srv_document_set(schemas, "Given",
                     json_pack("{s:{s:s}, s:s}", "not", "type", "null", "description",
                               "Not null: a field that is null counts as left out"));
    srv_document_set(schemas, "ModelName",
                     json_pack("{s:s, s:i}", "type", "string", "maxLength", SRV_ID_MAX));
    srv_document_set(schemas, "OutputList",
                     json_pack("{s:s, s:i, s:b, s:o}", "type", "array", "minItems", 1,
                               "uniqueItems", 1, "items", srv_openapi_type("OutputName")));
    srv_document_set(schemas, "KeyGroup",
                     json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", 1, "items",
                               srv_openapi_type("integer")));
    srv_document_set(schemas, "KeyGroupList",
                     json_pack("{s:s, s:i, s:i, s:o}", "type", "array", "minItems", 1, "maxItems",
                               ATTN_MAX_TARGET_GROUPS, "items", srv_openapi_type("KeyGroup")));
    srv_document_set(schemas, "StepRequestList",
                     json_pack("{s:s, s:i, s:I, s:o}", "type", "array", "minItems", 1, "maxItems",
                               (json_int_t)max_sequences, "items",
                               srv_openapi_type("StepRequest")));
    srv_document_set(schemas, "AttendRequest",
                     call_schema(SRV_CALL_ATTEND, "Rows for a layer, query, key and value without "
                                                  "weights, or a prefill of a session"));
    srv_document_set(schemas, "DecodeRequest",
                     call_schema(SRV_CALL_DECODE, "A step over a session, or a list of steps"));
    srv_document_set(schemas, "StepRequest",
                     call_schema(SRV_CALL_ITEM, "A step of a list of steps"));
}
