/* object.c: JSON objects of configuration: the file of options, its list of models, API keys.
 *
 * jansson's message of a syntax error quotes the text around it, which in a file of keys may be a
 * key: of a secret only line and column are passed on. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attn_json.h"
#include "config/options.h"

bool srv_object_refuse(const struct srv_object *object, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return srv_refuse(object->message, "%s%s%.64s: %s", object->path,
                      object->path[0] != '\0' ? "." : "", object->member, what);
}

bool srv_object_read(struct srv_object *object, const struct srv_member rows[], json_t *value)
{
    json_t *member;
    if (!json_is_object(value))
        return srv_refuse(object->message, "%s: must be an object", object->path);
    json_object_foreach(value, object->member, member) {
        const struct srv_member *row = rows;
        while (row->name != NULL && strcmp(row->name, object->member) != 0)
            row++;
        object->to = object->out != NULL ? (char *)object->out + row->offset : NULL;
        object->message[0] = '\0';
        if (!row->read(object, member))
            return object->message[0] == '\0' && srv_object_refuse(object, "%s", row->wanted);
    }
    return true;
}

/* Parses the text of a file; NULL with the message. */
static json_t *parse(const char *text, size_t length, enum srv_text_kind kind, char *message)
{
    json_error_t error;
    json_t *root;
    enum attn_status status = attn_json_load(&root, text, length, JSON_REJECT_DUPLICATES, &error);
    const char *why = kind == SRV_TEXT_PUBLIC ? error.text
                      : json_error_code(&error) == json_error_duplicate_key
                          ? "a field that is given twice"
                          : "not JSON";
    if (status == ATTN_NO_MEMORY)
        srv_refuse(message, "out of memory");
    else if (status != ATTN_OK)
        srv_refuse(message, "line %d, column %d: %s", error.line, error.column, why);
    else if (!json_is_object(root))
        srv_refuse(message, "must hold one JSON object");
    else
        return root;
    json_decref(root);
    return NULL;
}

bool srv_object_read_file(struct srv_object *object, const struct srv_member rows[],
                          const char *path, size_t most, enum srv_text_kind kind)
{
    size_t length;
    char *text;
    if (!srv_text_read(&text, &length, path, most, kind, object->message, SRV_MESSAGE_MAX))
        return false;
    json_t *root = parse(text, length, kind, object->message);
    srv_text_wipe(text, length);
    bool read = root != NULL && srv_object_read(object, rows, root);
    json_decref(root);
    return read || srv_refuse(object->message, "%s: %s", path, object->message);
}
