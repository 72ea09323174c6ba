/* document.h: small JSON documents as jansson's trees, for endpoints whose bodies hold no tensors,
 * or a few beside other fields. */
#ifndef SRV_DOCUMENT_H
#define SRV_DOCUMENT_H

#include <jansson.h>

#include "wire/request.h"
#include "wire/tensor.h"

/* Reads the request's body: one JSON object without duplicate keys; no body is an empty object.
 * *out is the caller's to json_decref.  Errors: malformed_json, duplicate_field, too_complex (above
 * SRV_MAX_DOCUMENT_BYTES, since a tree takes many times its text), out_of_memory. */
enum srv_error_code srv_document_read(json_t **out, const struct srv_request *request,
                                      struct srv_error *error);

/* The same for a text; one of 0 bytes is an empty object. */
enum srv_error_code srv_document_parse(json_t **out, const char *text, size_t length,
                                       struct srv_error *error);

struct srv_document_table;

/* The value of a field, and what its place in the struct to fill is. */
enum srv_document_kind {
    SRV_DOCUMENT_COUNT,  /* a whole number of at least `least`: size_t */
    SRV_DOCUMENT_TEXT,   /* const char *, borrowed of the document */
    SRV_DOCUMENT_FLAG,   /* true or false: bool */
    SRV_DOCUMENT_NUMBER, /* double */
    SRV_DOCUMENT_TENSOR, /* struct srv_tensor */
    SRV_DOCUMENT_LIST,   /* a list of up to `most` objects: json_t *, borrowed likewise */
};

struct srv_document_field {
    const char *name;
    enum srv_document_kind kind;
    bool required;
    size_t offset; /* of its place */
    size_t least, most;
    const struct srv_document_table *items; /* the fields of a list's objects */
    const char *item_type;                  /* their schema in /openapi.json */
    enum srv_tensor_kind tensor;
    const char *shapes;  /* of a tensor, as in call.h */
    const char *needs;   /* a field that must be given too; NULL: none */
    const char *meaning; /* one line without its full stop, for /openapi.json */
};

/* The fields of one document. */
struct srv_document_table {
    const struct srv_document_field *fields; /* [count] */
    size_t count;
};

/* Rows of a table of fields, for a struct whose members have the fields' names; the last arguments
 * set further members of a row. */
#define SRV_DOCUMENT_FIELD(type, member, of_kind, ...)                                            \
    {                                                                                             \
        .name = #member, .kind = SRV_DOCUMENT_##of_kind, .offset = offsetof(struct type, member), \
        __VA_ARGS__                                                                               \
    }
#define SRV_TEXT_FIELD(type, member, ...) SRV_DOCUMENT_FIELD(type, member, TEXT, __VA_ARGS__)
#define SRV_FLAG_FIELD(type, member, ...) SRV_DOCUMENT_FIELD(type, member, FLAG, __VA_ARGS__)
#define SRV_NUMBER_FIELD(type, member, ...) SRV_DOCUMENT_FIELD(type, member, NUMBER, __VA_ARGS__)
#define SRV_TENSOR_FIELD(type, member, of_kind, ...) \
    SRV_DOCUMENT_FIELD(type, member, TENSOR, .tensor = (of_kind), __VA_ARGS__)
#define SRV_LIST_FIELD(type, member, of_items, ...) \
    SRV_DOCUMENT_FIELD(type, member, LIST, .items = (of_items), __VA_ARGS__)
#define SRV_COUNT_FIELD(type, member, lowest, ...) \
    SRV_DOCUMENT_FIELD(type, member, COUNT, .least = (lowest), __VA_ARGS__)

/* Fills *out from the document, in which its texts live on.  The members of fields that are left
 * out or null keep their values.  Errors: unknown_field, missing_field, invalid_type,
 * invalid_value, too_complex (a list that is too long). */
enum srv_error_code srv_document_fields(void *out, const struct srv_document_table *table,
                                        json_t *document, struct srv_error *error);

/* Fills *out from the object number i of a list of that field, likewise; errors name the field
 * "fork[3].length". */
enum srv_error_code srv_document_entry(void *out, const struct srv_document_field *list, size_t i,
                                       json_t *item, struct srv_error *error);

/* Reads a body that may have tensors, in both forms of /decode: those that the table has become
 * members of *out, with elements in the arena or in the body; the rest is *document, as
 * srv_document_read gives it, in which `true` stands for a tensor.  The bound on a document is one
 * on the rest.  Errors: those of srv_document_read and of tensors in srv_call_read. */
enum srv_error_code srv_document_read_tensors(json_t **document, void *out,
                                              const struct srv_document_table *table,
                                              const struct srv_body *body, struct srv_arena *arena,
                                              struct srv_error *error);

/* Sets a member of an object; appends an element to a list.  Both take the reference to `value`.
 * Where memory is short, the object or list is dropped and becomes NULL; one that is NULL already
 * stays NULL, so that a caller may check once, at the end. */
void srv_document_set(json_t **object, const char *name, json_t *value);
void srv_document_append(json_t **list, json_t *value);

/* Appends the document's text and drops the reference.  False where the document is NULL, since it
 * could not be built, and where memory is short. */
bool srv_document_write(struct srv_buffer *out, json_t *document);

/* Replies with the document and drops the reference.  Where the document is NULL, since it could
 * not be built, the reply is the error out_of_memory. */
void srv_document_reply(struct srv_request *request, unsigned status, json_t *document);

#endif
