/* openapi_types.c: types as JSON Schema, and the schemas of bodies without tensors. */
#include "api/openapi_types.h"

#include <ctype.h>
#include <string.h>

#include "wire/document.h"

#define NAME_MAX_LENGTH 48

json_t *srv_openapi_ref(const char *kind, const char *name)
{
    return json_pack("{s:s+++}", "$ref", "#/components/", kind, "/", name);
}

/* ---- Types ----------------------------------------------------------------------------------- */

static json_t *read_type(const char **at);

/* A list, the name of a schema, or a word of JSON Schema. */
static json_t *read_one(const char **at)
{
    char name[NAME_MAX_LENGTH] = "";
    if (**at == '[') {
        (*at)++;
        json_t *items = read_type(at);
        (*at)++;
        return json_pack("{s:s, s:o}", "type", "array", "items", items);
    }
    size_t length = strcspn(*at, "|?]");
    if (length < sizeof name)
        memcpy(name, *at, length);
    *at += length;
    if (isupper((unsigned char)name[0]))
        return srv_openapi_ref("schemas", name);
    json_t *schema = json_pack("{s:s}", "type", name);
    if (strcmp(name, "object") == 0) /* without this, generators make an object without members */
        srv_document_set(&schema, "additionalProperties", json_true());
    return schema;
}

static json_t *read_type(const char **at)
{
    json_t *list = json_array();
    srv_document_append(&list, read_one(at));
    while (**at == '|') {
        (*at)++;
        srv_document_append(&list, read_one(at));
    }
    if (**at == '?') {
        (*at)++;
        srv_document_append(&list, json_pack("{s:s}", "type", "null"));
    }
    if (json_array_size(list) > 1)
        return json_pack("{s:o}", "anyOf", list);
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

json_t *srv_openapi_type(const char *type) { return read_type(&type); }

json_t *srv_openapi_or_null(json_t *schema)
{
    return schema == NULL ? NULL : json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

/* ---- Words ----------------------------------------------------------------------------------- */

json_t *srv_openapi_words(const char *text)
{
    json_t *list = json_array();
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        srv_document_append(&list, json_stringn(text, length));
        text += length + strspn(text + length, " ");
    }
    return list;
}

bool srv_openapi_has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    while (words != NULL && *words != '\0') {
        size_t next = strcspn(words, " ");
        if (next == length && memcmp(words, word, length) == 0)
            return true;
        words += next + strspn(words + next, " ");
    }
    return false;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

unsigned srv_openapi_traits(const struct srv_route *route)
{
    const struct {
        bool holds;
        enum srv_openapi_trait trait;
    } rows[] = {
        {true, SRV_TRAIT_ANY},
        {route->access != SRV_FOR_ALL, SRV_TRAIT_KEYED},
        {route->access != SRV_FOR_ALL && route->access != SRV_FOR_ANY_KEY, SRV_TRAIT_SCOPED},
        {route->body > SRV_BODY_IGNORED, SRV_TRAIT_BODY},
        {route->body >= SRV_BODY_OPTIONAL && route->body <= SRV_BODY_TENSORS, SRV_TRAIT_JSON},
        {route->body == SRV_BODY_TENSORS, SRV_TRAIT_TENSORS},
        {route->body == SRV_BODY_BYTES, SRV_TRAIT_STATE},
        {route->parse != NULL, SRV_TRAIT_QUEUED},
        {!route->while_draining, SRV_TRAIT_SERVED},
        {strstr(route->path, "/{id}") != NULL, SRV_TRAIT_SESSION},
        {route->doc.status == 201, SRV_TRAIT_CREATES},
        {route->fields != NULL && strstr(route->path, "/{id}/") != NULL, SRV_TRAIT_CHANGES},
        {(route->method == SRV_GET || route->method == SRV_DELETE) && route->doc.parameters != NULL,
         SRV_TRAIT_QUERY},
        {route->doc.status == 201 && srv_openapi_has_word(route->doc.parameters, "Idempotency-Key"),
         SRV_TRAIT_REPEATS},
        {route->path[1] == '\0' || strncmp(route->path, "/ui/", 4) == 0, SRV_TRAIT_PAGE},
    };
    unsigned traits = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        traits |= rows[i].holds ? rows[i].trait : 0u;
    return traits;
}

/* ---- Documents ------------------------------------------------------------------------------- */

static bool is_id(const char *name)
{
    return strcmp(name, "session_id") == 0 || strcmp(name, "from") == 0;
}

static json_t *field_schema(const struct srv_document_field *field)
{
    json_t *type;
    if (field->items != NULL)
        type = json_pack("{s:s, s:I, s:o}", "type", "array", "maxItems", (json_int_t)field->most,
                         "items", srv_openapi_type(field->item_type));
    else if (field->is_flag)
        type = srv_openapi_type("boolean");
    else if (field->is_number)
        type = srv_openapi_type("number");
    else if (field->is_tensor)
        type = srv_openapi_type(srv_openapi_tensor(field->tensor));
    else if (field->is_text)
        type = srv_openapi_type(is_id(field->name) ? "Id" : "string");
    else
        type = json_pack("{s:s, s:I}", "type", "integer", "minimum", (json_int_t)field->least);
    json_t *schema = field->required ? type : srv_openapi_or_null(type);
    srv_document_set(&schema, "description", json_string(field->meaning));
    if (field->shapes != NULL)
        srv_document_set(&schema, "x-shapes", srv_openapi_words(field->shapes));
    return schema;
}

static json_t *given(const char *name)
{
    return json_pack("{s:[s], s:{s:o}}", "required", name, "properties", name,
                     srv_openapi_ref("schemas", "Given"));
}

static json_t *document_schema(const struct srv_document_table *table, const char *summary)
{
    json_t *members = json_object(), *required = json_array(), *rules = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const struct srv_document_field *field = &table->fields[i];
        srv_document_set(&members, field->name, field_schema(field));
        if (field->required)
            srv_document_append(&required, json_string(field->name));
        if (field->needs != NULL)
            srv_document_append(&rules, json_pack("{s:o, s:o}", "if", given(field->name), "then",
                                                  given(field->needs)));
    }
    json_t *schema = json_pack("{s:s, s:s+, s:b, s:o, s:o}", "type", "object", "description",
                               "The body of: ", summary, "additionalProperties", 0, "properties",
                               members, "required", required);
    if (json_array_size(rules) > 0)
        srv_document_set(&schema, "allOf", rules);
    else
        json_decref(rules);
    return schema;
}

/* The schema of the route's body, and those of the objects in its lists. */
static void add_document(json_t **schemas, const struct srv_route *route)
{
    const struct srv_document_table *table = route->fields;
    srv_document_set(schemas, route->doc.request, document_schema(table, route->doc.summary));
    for (size_t i = 0; i < table->count; i++)
        if (table->fields[i].items != NULL)
            srv_document_set(schemas, table->fields[i].item_type,
                             document_schema(table->fields[i].items, table->fields[i].meaning));
}

void srv_openapi_add_documents(json_t **schemas, const struct srv_routes *routes)
{
    for (size_t i = 0; i < routes->count; i++)
        if (routes->items[i].fields != NULL && routes->items[i].doc.request != NULL)
            add_document(schemas, &routes->items[i]);
}
