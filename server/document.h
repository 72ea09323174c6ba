/* document.h: small JSON documents as trees, for endpoints whose bodies hold no tensors. */
#ifndef SRV_DOCUMENT_H
#define SRV_DOCUMENT_H

#include <jansson.h>

#include "http.h"

/* Reads the request's body: one JSON object without duplicate keys, {} where there is no body.
 * *out is the caller's to json_decref.  Errors: malformed_json, duplicate_field, too_complex (above
 * SRV_MAX_DOCUMENT_BYTES: a tree takes many times its text), out_of_memory. */
enum srv_error_code srv_document_read(json_t **out, const struct srv_request *request,
                                      struct srv_error *error);

/* Replies with the document and drops the reference; NULL, a document that could not be built, is
 * out_of_memory. */
void srv_document_reply(struct srv_request *request, unsigned status, json_t *document);

#endif
