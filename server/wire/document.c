/* document.c: request bodies as jansson's trees, and trees as the text of replies. */
#include "wire/document.h"

#include "attn_json.h"

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

static bool is_list_of_objects(const json_t *value)
{
    json_t *item;
    size_t i;
    json_array_foreach(value, i, item)
        if (!json_is_object(item))
            return false;
    return json_is_array(value);
}

/* Fills the field's place from a value that is not null. */
static enum srv_error_code read_value(void *to, const struct srv_document_field *field,
                                      json_t *value, struct srv_error *error)
{
    const char *name = field->name, *wanted = NULL; /* what another value is not */
    const json_int_t count = json_integer_value(value);
    switch (field->kind) {
    case SRV_DOCUMENT_TENSOR: /* has been read: srv_document_read_tensors */
        break;
    case SRV_DOCUMENT_TEXT:
        *(const char **)to = json_string_value(value);
        wanted = json_is_string(value) ? NULL : "a string";
        break;
    case SRV_DOCUMENT_FLAG:
        *(bool *)to = json_is_true(value);
        wanted = json_is_boolean(value) ? NULL : "true or false";
        break;
    case SRV_DOCUMENT_NUMBER:
        *(double *)to = json_number_value(value);
        wanted = json_is_number(value) ? NULL : "a number";
        break;
    case SRV_DOCUMENT_LIST:
        *(json_t **)to = value;
        if (json_array_size(value) > field->most)
            return srv_fail(error, SRV_E_TOO_COMPLEX, name, "%s has more than %zu items", name,
                            field->most);
        wanted = is_list_of_objects(value) ? NULL : "a list of objects";
        break;
    case SRV_DOCUMENT_COUNT:
        *(size_t *)to = (size_t)count;
        if (json_is_integer(value) && count < (json_int_t)field->least)
            return srv_fail(error, SRV_E_INVALID_VALUE, name,
                            "%s is %" JSON_INTEGER_FORMAT ", it must be at least %zu", name, count,
                            field->least);
        wanted = json_is_integer(value) ? NULL : "an integer";
        break;
    }
    return wanted == NULL
               ? SRV_OK
               : srv_fail(error, SRV_E_INVALID_TYPE, name, "%s must be %s", name, wanted);
}

#define HINTED_FIELDS 16

static enum srv_error_code read_field(void *out, const struct srv_document_table *table,
                                      const char *name, json_t *value, struct srv_error *error)
{
    const char *names[HINTED_FIELDS];
    char choices[128];
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct srv_document_field *field = &table->fields[i];
        if (strcmp(field->name, name) == 0) /* null counts as left out, as in /decode */
            return json_is_null(value)
                       ? SRV_OK
                       : read_value((char *)out + field->offset, field, value, error);
        if (count < HINTED_FIELDS)
            names[count++] = field->name;
    }
    srv_choices(choices, sizeof choices, name, names, count);
    return srv_fail(error, SRV_E_UNKNOWN_FIELD, name, "there is no field \"%.64s\": one of %s",
                    name, choices);
}

static bool is_given(const json_t *document, const char *name)
{
    const json_t *value = json_object_get(document, name);
    return value != NULL && !json_is_null(value);
}

enum srv_error_code srv_document_fields(void *out, const struct srv_document_table *table,
                                        json_t *document, struct srv_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(document, name, value) {
        if (read_field(out, table, name, value, error) != SRV_OK)
            return error->code;
    }
    for (size_t i = 0; i < table->count; i++) {
        const char *needs = table->fields[i].needs;
        name = table->fields[i].name;
        if (!is_given(document, name)) {
            if (table->fields[i].required)
                return srv_fail(error, SRV_E_MISSING_FIELD, name, "%s is missing", name);
        } else if (needs != NULL && !is_given(document, needs)) {
            return srv_fail(error, SRV_E_MISSING_FIELD, needs, "%s is missing beside %s", needs,
                            name);
        }
    }
    return SRV_OK;
}

enum srv_error_code srv_document_entry(void *out, const struct srv_document_field *list, size_t i,
                                       json_t *item, struct srv_error *error)
{
    struct srv_error cause = {0};
    char path[32], param[sizeof cause.param];
    if (srv_document_fields(out, list->items, item, &cause) == SRV_OK)
        return SRV_OK;
    snprintf(path, sizeof path, "%s[%zu]", list->name, i);
    srv_field_path(param, sizeof param, path, cause.param);
    return srv_fail(error, cause.code, param, "%s: %s", path, cause.message);
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
