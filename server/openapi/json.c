/* json.c: values of JSON, types and words of tables.  A value that cannot be made ends the program:
 * the build has no document without it. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#include "openapi/openapi.h"

#define NAME_MAX_LENGTH 48

void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("openapi: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(EXIT_FAILURE);
}

json_t *pack(const char *format, ...)
{
    json_error_t error;
    va_list values;
    va_start(values, format);
    json_t *json = json_vpack_ex(&error, 0, format, values);
    va_end(values);
    if (json == NULL)
        fail("json_pack(\"%s\"): %s", format, error.text);
    return json;
}

void set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        fail("\"%s\" has no value", name);
}

void append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        fail("a list has an element without a value");
}

json_t *ref(const char *kind, const char *name)
{
    return pack("{s:s+++}", "$ref", "#/components/", kind, "/", name);
}

json_t *or_null(json_t *schema) { return pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null"); }

json_t *array_of(json_t *items) { return pack("{s:s, s:o}", "type", "array", "items", items); }

json_t *one_of(json_t *names) { return pack("{s:s, s:o}", "type", "string", "enum", names); }

json_t *closed_object(const char *meaning, json_t *properties)
{
    return pack("{s:s, s:s, s:b, s:o}", "type", "object", "description", meaning,
                "additionalProperties", 0, "properties", properties);
}

json_t *given(const char *names)
{
    json_t *required = words(names), *properties = json_object(), *name;
    size_t i;
    json_array_foreach(required, i, name)
        set(properties, json_string_value(name), ref("schemas", "Given"));
    return pack("{s:o, s:o}", "required", required, "properties", properties);
}

json_t *if_then(json_t *condition, json_t *consequence)
{
    return pack("{s:o, s:o}", "if", condition, "then", consequence);
}

json_t *describe(json_t *schema, const char *meaning, const char *shapes)
{
    set(schema, "description", json_string(meaning));
    if (shapes != NULL)
        set(schema, "x-shapes", words(shapes));
    return schema;
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
        return array_of(items);
    }
    size_t length = strcspn(*at, "|?]");
    if (length >= sizeof name)
        fail("a type is longer than %zu characters: %s", sizeof name - 1, *at);
    memcpy(name, *at, length);
    *at += length;
    if (isupper((unsigned char)name[0]))
        return ref("schemas", name);
    json_t *schema = pack("{s:s}", "type", name);
    if (strcmp(name, "object") == 0) /* without this, generators make an object without members */
        set(schema, "additionalProperties", json_true());
    return schema;
}

static json_t *read_type(const char **at)
{
    json_t *list = pack("[o]", read_one(at));
    while (**at == '|') {
        (*at)++;
        append(list, read_one(at));
    }
    if (**at == '?') {
        (*at)++;
        append(list, pack("{s:s}", "type", "null"));
    }
    return json_array_size(list) > 1 ? pack("{s:o}", "anyOf", list) : json_array_get(list, 0);
}

json_t *schema_of(const char *text) { return read_type(&text); }

/* ---- Words ----------------------------------------------------------------------------------- */

json_t *words(const char *text)
{
    json_t *list = json_array();
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, " ");
        append(list, json_stringn(text, length));
        text += length + strspn(text + length, " ");
    }
    return list;
}

bool has_word(const char *text, const char *word)
{
    json_t *list = words(text), *item;
    size_t i;
    json_array_foreach(list, i, item)
        if (strcmp(json_string_value(item), word) == 0)
            return true;
    return false;
}
