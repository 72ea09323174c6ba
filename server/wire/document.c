/* document.c: request bodies as jansson's trees, and trees as the text of replies. */
#include "wire/document.h"

#include "attn_json.h"

#include <string.h>

#include "base/nearest.h"

/* With 16 digits a tenth prints as 0.1, and no double is off by more than its last bit. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(16))

enum srv_error_code srv_document_parse(json_t **out, const char *text, size_t length,
                                       struct srv_error *error)
{
    json_error_t cause;
    if (length > SRV_MAX_DOCUMENT_BYTES)
        return srv_fail(error, SRV_E_TOO_COMPLEX, NULL,
                        "the body, without tensors, has more than %d bytes",
                        SRV_MAX_DOCUMENT_BYTES);
    if (length == 0) {
        text = "{}";
        length = 2;
    }
    json_t *document;
    enum attn_status status =
        attn_json_load(&document, text, length, JSON_REJECT_DUPLICATES, &cause);
    if (status == ATTN_NO_MEMORY)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the body");
    if (status != ATTN_OK) {
        switch (json_error_code(&cause)) {
        case json_error_duplicate_key:
            return srv_fail(error, SRV_E_DUPLICATE_FIELD, NULL, "%.160s", cause.text);
        case json_error_numeric_overflow:
            return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, NULL, "%.160s", cause.text);
        default:
            return srv_fail(error, SRV_E_MALFORMED_JSON, NULL, "at byte %d: %.160s", cause.position,
                            cause.text);
        }
    }
    if (!json_is_object(document)) {
        json_decref(document);
        return srv_fail(error, SRV_E_MALFORMED_JSON, NULL, "the body is not a JSON object");
    }
    *out = document;
    return SRV_OK;
}

enum srv_error_code srv_document_read(json_t **out, const struct srv_request *request,
                                      struct srv_error *error)
{
    return srv_document_parse(out, request->body, request->body_length, error);
}

static enum srv_error_code read_text(const char **out, const char *name, const json_t *value,
                                     struct srv_error *error)
{
    *out = json_string_value(value);
    return *out != NULL ? SRV_OK
                        : srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be a string", name);
}

static enum srv_error_code read_flag(bool *out, const char *name, const json_t *value,
                                     struct srv_error *error)
{
    *out = json_is_true(value);
    return json_is_boolean(value)
               ? SRV_OK
               : srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be true or false", name);
}

static enum srv_error_code read_number(double *out, const char *name, const json_t *value,
                                       struct srv_error *error)
{
    *out = json_number_value(value);
    return json_is_number(value)
               ? SRV_OK
               : srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be a number", name);
}

static enum srv_error_code read_count(size_t *out, const struct srv_document_field *field,
                                      const json_t *value, struct srv_error *error)
{
    json_int_t count = json_integer_value(value);
    if (!json_is_integer(value))
        return srv_fail(error, SRV_E_INVALID_TYPE, field->name, "%s must be an integer",
                        field->name);
    if (count < (json_int_t)field->least)
        return srv_fail(error, SRV_E_INVALID_VALUE, field->name,
                        "%s is %" JSON_INTEGER_FORMAT ", it must be at least %zu", field->name,
                        count, field->least);
    *out = (size_t)count;
    return SRV_OK;
}

static enum srv_error_code read_list(json_t **out, const struct srv_document_field *field,
                                     json_t *value, struct srv_error *error)
{
    json_t *item;
    size_t i;
    *out = value;
    if (!json_is_array(value))
        return srv_fail(error, SRV_E_INVALID_TYPE, field->name, "%s must be a list of objects",
                        field->name);
    if (json_array_size(value) > field->most)
        return srv_fail(error, SRV_E_TOO_COMPLEX, field->name, "%s has more than %zu items",
                        field->name, field->most);
    json_array_foreach(value, i, item)
        if (!json_is_object(item))
            return srv_fail(error, SRV_E_INVALID_TYPE, field->name, "%s must be a list of objects",
                            field->name);
    return SRV_OK;
}

#define HINTED_FIELDS 16

static enum srv_error_code fail_unknown(const struct srv_document_field fields[], size_t count,
                                        const char *name, struct srv_error *error)
{
    const char *names[HINTED_FIELDS];
    char choices[128];
    count = count < HINTED_FIELDS ? count : HINTED_FIELDS;
    for (size_t i = 0; i < count; i++)
        names[i] = fields[i].name;
    srv_choices(choices, sizeof choices, name, names, count);
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, name, "there is no field \"%.64s\": one of %s",
                    name, choices);
}

static enum srv_error_code read_field(void *out, const struct srv_document_table *table,
                                      const char *name, json_t *value, struct srv_error *error)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct srv_document_field *field = &table->fields[i];
        if (strcmp(field->name, name) != 0)
            continue;
        void *to = (char *)out + field->offset;
        if (json_is_null(value) || field->is_tensor) /* null counts as left out, as in /decode */
            return SRV_OK;
        if (field->items != NULL)
            return read_list(to, field, value, error);
        if (field->is_flag)
            return read_flag(to, name, value, error);
        if (field->is_number)
            return read_number(to, name, value, error);
        return field->is_text ? read_text(to, name, value, error)
                              : read_count(to, field, value, error);
    }
    return fail_unknown(table->fields, table->count, name, error);
}

static bool is_given(const json_t *document, const char *name)
{
    const json_t *value = json_object_get(document, name);
    return value != NULL && !json_is_null(value);
}

/* Fails where a required field is left out or null, or one that another needs. */
static enum srv_error_code check_required(const struct srv_document_table *table,
                                          const json_t *document, struct srv_error *error)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->fields[i].name, *needs = table->fields[i].needs;
        bool given = is_given(document, name);
        if (table->fields[i].required && !given)
            return srv_fail(error, SRV_E_MISSING_FIELD, name, "%s is missing", name);
        if (given && needs != NULL && !is_given(document, needs))
            return srv_fail(error, SRV_E_MISSING_FIELD, needs, "%s is missing beside %s", needs,
                            name);
    }
    return SRV_OK;
}

enum srv_error_code srv_document_fields(void *out, const struct srv_document_table *table,
                                        json_t *document, struct srv_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(document, name, value) {
        enum srv_error_code code = read_field(out, table, name, value, error);
        if (code != SRV_OK)
            return code;
    }
    return check_required(table, document, error);
}

enum srv_error_code srv_document_item(void *out, const struct srv_document_field *list, size_t i,
                                      json_t *item, struct srv_error *error)
{
    struct srv_error cause = {0};
    char place[32], param[sizeof cause.param];
    if (srv_document_fields(out, list->items, item, &cause) == SRV_OK)
        return SRV_OK;
    snprintf(place, sizeof place, "%s[%zu]", list->name, i);
    srv_field_path(param, sizeof param, place, cause.param);
    return srv_fail(error, cause.code, param, "%s: %s", place, cause.message);
}

/* Drops the document where `result`, jansson's, is an error. */
static void drop_on_error(int result, json_t **document)
{
    if (result == 0)
        return;
    json_decref(*document);
    *document = NULL;
}

void srv_document_set(json_t **object, const char *name, json_t *value)
{
    drop_on_error(json_object_set_new(*object, name, value), object);
}

void srv_document_append(json_t **list, json_t *value)
{
    drop_on_error(json_array_append_new(*list, value), list);
}

bool srv_document_write(struct srv_buffer *out, json_t *document)
{
    size_t length = json_dumpb(document, NULL, 0, DUMP_FLAGS); /* 0 where document is NULL */
    char *to = length > 0 ? srv_buffer_reserve(out, length) : NULL;
    bool written = to != NULL && json_dumpb(document, to, length, DUMP_FLAGS) == length;
    out->length += written ? length : 0;
    json_decref(document);
    return written;
}

void srv_document_reply(struct srv_request *request, unsigned status, json_t *document)
{
    if (srv_document_write(&request->reply.body, document)) {
        srv_reply_status(request, status);
        return;
    }
    struct srv_error error = {0};
    srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
    srv_reply_error(request, &error);
}
