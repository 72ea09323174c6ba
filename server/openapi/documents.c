/* documents.c: the schemas of bodies that are documents, from the tables of their fields. */
#include <string.h>

#include "api/endpoints.h"
#include "openapi/openapi.h"

static json_t *type_of(const struct srv_document_field *field)
{
    switch (field->kind) {
    case SRV_DOCUMENT_LIST:
        return pack("{s:s, s:I, s:o}", "type", "array", "maxItems", (json_int_t)field->most,
                    "items", schema_of(field->item_type));
    case SRV_DOCUMENT_TENSOR:
        return schema_of(tensor_name(field->tensor));
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
        json_t *schema = field->required ? type_of(field) : or_null(type_of(field));
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
