/* calls.c: the schemas of the bodies of /attend and /decode, from the table of fields
 * (wire/call_fields.c), and of tensors, from the table of datatypes.
 *
 * A field may be null, which counts as left out, so that a rule about fields that are given says
 * "given and not null". */
#include <string.h>

#include "openapi/openapi.h"
#include "wire/call_fields.h"

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

const char *tensor_name(enum srv_tensor_kind kind) { return tensors[kind].name; }

static const struct {
    const char *name, *element;
} output_tensors[] = {
    {"FloatOutput", "number"}, {"NullableOutput", "number?"}, {"IndexOutput", "integer"}};

static json_t *element_schema(const char *element)
{
    return element != NULL ? schema_of(element) : pack("{s:[b, b, i, i]}", "enum", 1, 0, 1, 0);
}

/* Arrays of 1 to SRV_TENSOR_RANK dimensions, or `other`. */
static json_t *nested_schema(const char *element, json_t *other)
{
    json_t *list = json_array(), *inner = element_schema(element);
    for (unsigned rank = 1; rank <= SRV_TENSOR_RANK; rank++) {
        inner = array_of(inner);
        append(list, json_incref(inner));
    }
    append(list, other);
    return pack("{s:o}", "anyOf", list);
}

/* A tensor as an object: its elements in one array, or, where `binary`, as bytes after the JSON. */
static json_t *object_schema(enum srv_tensor_kind kind, bool binary)
{
    json_t *types = json_array(), *shape = array_of(schema_of("Count"));
    json_t *last = binary ? schema_of("Count") : array_of(element_schema(tensors[kind].element));
    const char *name, *member = binary ? "binary_data_size" : "data";
    for (size_t i = 0; (name = srv_datatype_name(i, kind, binary)) != NULL; i++)
        append(types, json_string(name));
    set(shape, "maxItems", json_integer(SRV_TENSOR_RANK));
    return pack("{s:s, s:b, s:{s:o, s:o, s:o}, s:o}", "type", "object", "additionalProperties", 0,
                "properties", "shape", shape, "datatype", one_of(types), member, last, "required",
                words(binary ? "shape datatype binary_data_size" : "shape data"));
}

static void add_tensors(json_t *schemas)
{
    for (size_t i = 0; i < TENSOR_KINDS; i++) {
        enum srv_tensor_kind kind = (enum srv_tensor_kind)i;
        json_t *objects =
            pack("{s:[o, o]}", "anyOf", object_schema(kind, false), object_schema(kind, true));
        set(schemas, tensors[i].name, nested_schema(tensors[i].element, objects));
    }
    for (size_t i = 0; i < sizeof output_tensors / sizeof output_tensors[0]; i++)
        set(schemas, output_tensors[i].name,
            nested_schema(output_tensors[i].element, ref("schemas", "BinaryOutput")));
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
        return schema_of(field->choice->type);
    if (field->kind != SRV_FIELD_TENSOR)
        return schema_of(types[field->kind]);
    json_t *tensor = schema_of(tensor_name(field->tensor));
    return field->scalar ? pack("{s:[{s:s}, o]}", "anyOf", "type", "integer", tensor) : tensor;
}

static json_t *fields_schema(enum srv_call_kind body)
{
    json_t *properties = json_object();
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++) {
        const struct srv_field *field = &srv_fields[i];
        if ((field->bodies & body) != 0)
            set(properties, field->name,
                describe(or_null(type_of(field)), field->meaning, field->shapes));
    }
    return properties;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

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

static void add_rules(json_t *list, enum srv_call_kind body)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if ((rules[i].bodies & body) == 0)
            continue;
        if (rules[i].needs != NULL)
            append(list, if_then(given(rules[i].name), given(rules[i].needs)));
        json_t *excluded = words(rules[i].excludes), *other;
        size_t j;
        json_array_foreach(excluded, j, other) {
            json_t *both = json_sprintf("%s %s", rules[i].name, json_string_value(other));
            append(list, pack("{s:o}", "not", given(json_string_value(both))));
        }
    }
}

/* That the field is given and true. */
static json_t *is_true(const char *name)
{
    return pack("{s:[s], s:{s:{s:b}}}", "required", name, "properties", name, "const", 1);
}

/* A field that modifies an output needs that output; a flag that is false modifies none. */
static json_t *refinement(const struct srv_field *field)
{
    json_t *names = json_array();
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        if ((field->refines & srv_output_names[i].bit) != 0)
            append(names, json_string(srv_output_names[i].name));
    return if_then(field->kind == SRV_FIELD_FLAG ? is_true(field->name) : given(field->name),
                   pack("{s:[s], s:{s:{s:{s:o}}}}", "required", "outputs", "properties", "outputs",
                        "contains", "enum", names));
}

/* Rows are given as hidden_states, or projected already. */
static json_t *some_rows(void)
{
    return pack("{s:[o, o]}", "anyOf", given("hidden_states"), given("query"));
}

static json_t *step(void) { return pack("{s:[o, o]}", "allOf", given("session_id"), some_rows()); }

/* Beside `sequences` no field of rows may stand. */
static json_t *list_or_step(void)
{
    json_t *none = json_object();
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (!srv_fields[i].in_call && (srv_fields[i].bodies & SRV_CALL_DECODE) != 0)
            set(none, srv_fields[i].name, pack("{s:s}", "type", "null"));
    json_t *schema = if_then(given("sequences"), pack("{s:o}", "properties", none));
    set(schema, "else", step());
    return schema;
}

static json_t *call_schema(enum srv_call_kind body, const char *meaning)
{
    json_t *list = json_array(), *schema = closed_object(meaning, fields_schema(body));
    if (body == SRV_CALL_ATTEND)
        append(list, some_rows());
    else
        append(list, body == SRV_CALL_DECODE ? list_or_step() : step());
    add_rules(list, body);
    if (body != SRV_CALL_ITEM) /* a session has the encoder rows that it starts with */
        append(list, if_then(given("encoder_hidden_states session_id"), is_true("start")));
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++)
        if (srv_fields[i].refines != 0 && (srv_fields[i].bodies & body) != 0)
            append(list, refinement(&srv_fields[i]));
    set(schema, "allOf", list);
    return schema;
}

/* The schemas of fields that are one of some names. */
static void add_choices(json_t *schemas)
{
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++) {
        const struct srv_choice *choice = srv_fields[i].choice;
        json_t *names = json_array();
        for (size_t j = 0; choice != NULL && j < choice->count; j++)
            append(names, json_string(choice->names[j]));
        if (choice != NULL)
            set(schemas, choice->type, one_of(names));
    }
}

/* The schemas of fields that are lists: at least one item, and at most `most` unless 0. */
static const struct {
    const char *name, *item;
    int most;
    bool unique;
    const char *meaning;
} lists[] = {
    {"OutputList", "OutputName", .unique = true},
    {"KeyGroup", .item = "integer"},
    {"KeyGroupList", "KeyGroup", .most = ATTN_MAX_TARGET_GROUPS},
    {"StepRequestList", "StepRequest", .meaning = "At most as many as the option max_sequences"},
};

static void add_lists(json_t *schemas)
{
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        json_t *schema = array_of(schema_of(lists[i].item));
        set(schema, "minItems", json_integer(1));
        if (lists[i].most > 0)
            set(schema, "maxItems", json_integer(lists[i].most));
        if (lists[i].unique)
            set(schema, "uniqueItems", json_true());
        if (lists[i].meaning != NULL)
            set(schema, "description", json_string(lists[i].meaning));
        set(schemas, lists[i].name, schema);
    }
}

void add_calls(json_t *schemas)
{
    add_tensors(schemas);
    add_choices(schemas);
    add_lists(schemas);
    set(schemas, "Given",
        pack("{s:{s:s}, s:s}", "not", "type", "null", "description",
             "Not null: a field that is null counts as left out"));
    set(schemas, "ModelName", pack("{s:s, s:i}", "type", "string", "maxLength", SRV_ID_MAX));
    set(schemas, "AttendRequest",
        call_schema(SRV_CALL_ATTEND, "Rows for a layer, query, key and value without weights, or a "
                                     "prefill of a session"));
    set(schemas, "DecodeRequest",
        call_schema(SRV_CALL_DECODE, "A step over a session, or a list of steps"));
    set(schemas, "StepRequest", call_schema(SRV_CALL_ITEM, "A step of a list of steps"));
}
