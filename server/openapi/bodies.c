/* bodies.c: the schemas of request bodies: of /attend and /decode, from the tables of fields and of
 * rules (wire/call.h); of documents, from the tables of their fields (wire/document.h); of
 * tensors, from the table of datatypes.
 *
 * A field may be null, which counts as left out, so that a rule about fields that are given says
 * "given and not null". */

#include "api/endpoints.h"
#include "openapi/openapi.h"
#include "wire/call.h"

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

static const char *const output_tensors[][2] = {
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

/* A tensor that PUT /inputs/{digest} has brought. */
static json_t *input_schema(void)
{
    return pack("{s:s, s:b, s:{s:o}, s:[s]}", "type", "object", "additionalProperties", 0,
                "properties", "input", schema_of("Digest"), "required", "input");
}

static void add_tensors(json_t *schemas)
{
    for (size_t i = 0; i < TENSOR_KINDS; i++) {
        enum srv_tensor_kind kind = (enum srv_tensor_kind)i;
        json_t *objects =
            pack("{s:[o, o]}", "anyOf", object_schema(kind, false), object_schema(kind, true));
        if (kind == SRV_FLOATS || kind == SRV_FLOATS_OR_NULL)
            append(json_object_get(objects, "anyOf"), input_schema());
        set(schemas, tensors[i].name, nested_schema(tensors[i].element, objects));
    }
    for (size_t i = 0; i < sizeof output_tensors / sizeof output_tensors[0]; i++)
        set(schemas, output_tensors[i][0],
            nested_schema(output_tensors[i][1], ref("schemas", "BinaryOutput")));
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static json_t *type_of(const struct srv_field *field)
{
    if (field->choice != NULL)
        return schema_of(field->choice->type);
    if (field->kind != SRV_FIELD_TENSOR)
        return schema_of(srv_field_types[field->kind].schema);
    json_t *tensor = schema_of(tensors[field->tensor].name);
    return field->scalar ? pack("{s:[{s:s}, o]}", "anyOf", "type", "integer", tensor) : tensor;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The fields of a set that the body may hold. */
static uint64_t fields_of(enum srv_call_kind body, uint64_t fields)
{
    uint64_t found = 0;
    for (uint64_t left = fields; left != 0; left &= left - 1)
        found |= (srv_field_first(left)->bodies & body) != 0 ? left & -left : 0;
    return found;
}

/* That all fields of a set are given; a flag, where `as_true`, with true. */
static json_t *set_given(uint64_t fields, bool as_true)
{
    json_t *required = json_array(), *properties = json_object();
    for (uint64_t left = fields; left != 0; left &= left - 1) {
        const struct srv_field *field = srv_field_first(left);
        append(required, json_string(field->name));
        set(properties, field->name,
            as_true && field->kind == SRV_FIELD_FLAG ? pack("{s:b}", "const", 1)
                                                     : ref("schemas", "Given"));
    }
    return pack("{s:o, s:o}", "required", required, "properties", properties);
}

/* That no field of a set is given. */
static json_t *none_given(uint64_t fields)
{
    json_t *properties = json_object();
    for (uint64_t left = fields; left != 0; left &= left - 1)
        set(properties, srv_field_first(left)->name, pack("{s:s}", "type", "null"));
    return pack("{s:o}", "properties", properties);
}

static json_t *some_output(unsigned outputs)
{
    json_t *names = json_array();
    for (size_t i = 0; i < SRV_OUTPUT_COUNT; i++)
        if ((outputs & srv_output_names[i].bit) != 0)
            append(names, json_string(srv_output_names[i].name));
    return pack("{s:[s], s:{s:{s:{s:o}}}}", "required", "outputs", "properties", "outputs",
                "contains", "enum", names);
}

static json_t *rule_schema(const struct srv_call_rule *rule, enum srv_call_kind body)
{
    json_t *schema = rule->outputs != 0    ? some_output(rule->outputs)
                     : rule->excludes != 0 ? none_given(fields_of(body, rule->excludes))
                                           : set_given(rule->needs, false);
    uint64_t unless = fields_of(body, rule->unless);
    if (unless != 0)
        schema = pack("{s:[o]}", "anyOf", schema);
    for (uint64_t left = unless; left != 0; left &= left - 1)
        append(json_object_get(schema, "anyOf"), set_given(left & -left, true));
    return rule->given == 0 ? schema : if_then(set_given(rule->given, rule->outputs != 0), schema);
}

static json_t *call_schema(enum srv_call_kind body, const char *meaning)
{
    json_t *list = json_array(), *properties = json_object();
    for (size_t i = 0; i < SRV_FIELD_COUNT; i++) {
        const struct srv_field *field = &srv_fields[i];
        if ((field->bodies & body) != 0)
            set(properties, field->name,
                describe(or_null(type_of(field)), field->meaning, field->shapes));
    }
    json_t *schema = closed_object(meaning, properties);
    for (size_t i = 0; i < srv_call_rule_count; i++) {
        const struct srv_call_rule *rule = &srv_call_rules[i];
        bool says = rule->outputs != 0 || fields_of(body, rule->needs | rule->excludes) != 0;
        if ((rule->bodies & body) != 0 && fields_of(body, rule->given) == rule->given && says)
            append(list, rule_schema(rule, body));
    }
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
    set(schemas, "StepRequest", call_schema(SRV_CALL_SEQUENCE, "A step of a list of steps"));
}

/* ---- Documents ------------------------------------------------------------------------------- */

static json_t *document_type(const struct srv_document_field *field)
{
    switch (field->kind) {
    case SRV_DOCUMENT_LIST:
        return pack("{s:s, s:I, s:o}", "type", "array", "maxItems", (json_int_t)field->most,
                    "items", schema_of(field->item_type));
    case SRV_DOCUMENT_TENSOR:
        return schema_of(tensors[field->tensor].name);
    case SRV_DOCUMENT_TEXT:
        return schema_of(has_word("session_id from", field->name) ? "Id" : "string");
    case SRV_DOCUMENT_FLAG:
        return schema_of("boolean");
    case SRV_DOCUMENT_NUMBER:
        return schema_of("number");
    default:
        return pack("{s:s, s:I}", "type", "integer", "minimum", (json_int_t)field->least);
    }
}

static json_t *document_schema(const struct srv_document_table *table, const char *summary)
{
    json_t *members = json_object(), *required = json_array(), *rules = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const struct srv_document_field *field = &table->fields[i];
        json_t *schema = field->required ? document_type(field) : or_null(document_type(field));
        set(members, field->name, describe(schema, field->meaning, field->shapes));
        if (field->required)
            append(required, json_string(field->name));
        if (field->needs != NULL)
            append(rules, if_then(given(field->name), given(field->needs)));
    }
    json_t *schema = closed_object(summary, members);
    set(schema, "description", json_sprintf("The body of: %s", summary));
    set(schema, "required", required);
    if (json_array_size(rules) > 0)
        set(schema, "allOf", rules);
    return schema;
}

/* The schema of each route's body, and those of the objects in its lists. */
void add_documents(json_t *schemas)
{
    for (size_t i = 0; i < srv_routes.count; i++) {
        const struct srv_route *route = &srv_routes.items[i];
        if (route->fields == NULL)
            continue;
        set(schemas, route->doc.request, document_schema(route->fields, route->doc.summary));
        for (size_t j = 0; j < route->fields->count; j++) {
            const struct srv_document_field *field = &route->fields->fields[j];
            if (field->items != NULL)
                set(schemas, field->item_type, document_schema(field->items, field->meaning));
        }
    }
}
