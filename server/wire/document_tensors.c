/* document_tensors.c: the tensors of a document's body, which are read straight into floats, and
 * the rest of the body, which becomes a tree as any document. */

#include "wire/document.h"

#define NAME_SIZE 32 /* of a member's name; a longer one is shortened and is no tensor's */

/* The body while it is split into tensors and the rest. */
struct splitter {
    struct srv_source source;
    const char *kept; /* up to which the body has been read or copied */
    char *rest;       /* [SRV_MAX_DOCUMENT_BYTES + 1], the body without its tensors */
    size_t length;    /* of rest; SIZE_MAX: too long */
};

static const struct srv_document_field *find_tensor(const struct srv_document_table *table,
                                                    const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->fields[i].kind == SRV_DOCUMENT_TENSOR &&
            strcmp(table->fields[i].name, name) == 0)
            return &table->fields[i];
    return NULL;
}

static void append(struct splitter *body, const char *text, size_t length)
{
    if (body->length > SRV_MAX_DOCUMENT_BYTES || length > SRV_MAX_DOCUMENT_BYTES - body->length) {
        body->length = SIZE_MAX;
        return;
    }
    if (length > 0)
        memcpy(body->rest + body->length, text, length);
    body->length += length;
}

/* Reads the tensor that is the next value; `true` stands for it in the rest. */
static void read_tensor(void *out, struct splitter *body, const struct srv_document_field *field)
{
    append(body, body->kept, (size_t)(body->source.json.at - body->kept));
    append(body, "true", 4);
    srv_tensor_read((struct srv_tensor *)((char *)out + field->offset), &body->source,
                    field->tensor, false, field->name);
    body->kept = body->source.json.at;
}

static void read_tensors(void *out, struct splitter *body, const struct srv_document_table *table)
{
    char name[NAME_SIZE];
    struct srv_json *json = &body->source.json;
    if (srv_json_peek(json) != SRV_JSON_OBJECT || !srv_json_enter_object(json))
        return;
    while (srv_json_next_member(json, name, sizeof name)) {
        const struct srv_document_field *field = find_tensor(table, name);
        if (field != NULL && srv_json_peek(json) != SRV_JSON_NULL)
            read_tensor(out, body, field);
        else
            srv_json_skip(json);
    }
}

enum srv_error_code srv_document_read_tensors(json_t **document, void *out,
                                              const struct srv_document_table *table,
                                              const struct srv_body *source,
                                              struct srv_arena *arena, struct srv_error *error)
{
    struct splitter body = {.kept = source->json,
                            .rest = srv_arena_alloc(arena, 1, SRV_MAX_DOCUMENT_BYTES + 1)};
    if (body.rest == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the body");
    srv_source_init(&body.source, source, arena, error);
    if (source->json_length > 0)
        read_tensors(out, &body, table);
    if (error->code != SRV_OK)
        return error->code;
    append(&body, body.kept, (size_t)(source->json + source->json_length - body.kept));
    srv_source_check_bytes(&body.source);
    if (error->code != SRV_OK)
        return error->code;
    return srv_document_parse(document, body.rest, body.length, error);
}
