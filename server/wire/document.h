/* document.h: small JSON documents as trees, for endpoints whose bodies hold no tensors. */
#ifndef SRV_DOCUMENT_H
#define SRV_DOCUMENT_H

#include <jansson.h>

#include "wire/request.h"

/* Reads the request's body: one JSON object without duplicate keys, {} where there is no body.
 * *out is the caller's to json_decref.  Errors: malformed_json, duplicate_field, too_complex (above
 * SRV_MAX_DOCUMENT_BYTES: a tree takes many times its text), out_of_memory. */
enum srv_error_code srv_document_read(json_t **out, const struct srv_request *request,
                                      struct srv_error *error);

/* A field of a document: a text that lives in the document, or a whole number. */
struct srv_document_field {
    const char *name;
    bool is_text;
    size_t offset; /* of its const char * or size_t in the struct to fill */
    size_t least;  /* number */
};

/* Fills *out from the document; what is not given, or null, stays as it was.
 * Errors: unknown_field, invalid_type, invalid_value. */
enum srv_error_code srv_document_fields(void *out, const struct srv_document_field fields[],
                                        size_t count, json_t *document, struct srv_error *error);

/* Sets a member, appends an element; both take the reference to `value`.  Where that fails the
 * object or list is dropped and becomes NULL, as one that could not be built at all is, and stays
 * so. */
void srv_document_set(json_t **object, const char *name, json_t *value);
void srv_document_append(json_t **list, json_t *value);

/* Appends the document's text and drops the reference.  False for NULL, a document that could not
 * be built, and where memory is short. */
bool srv_document_write(struct srv_buffer *out, json_t *document);

/* Replies with the document and drops the reference; NULL, a document that could not be built, is
 * out_of_memory. */
void srv_document_reply(struct srv_request *request, unsigned status, json_t *document);

#endif
