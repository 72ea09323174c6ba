/* openapi_types.h: the types of /openapi.json, as JSON Schema (draft 2020-12).
 *
 * Tables write a type as a word of JSON Schema ("integer"), the name of a schema ("Session"), a
 * list of a type ("[Session]"), or several of these ("FloatOutput|TopWeights"); a question mark at
 * its end also allows null. */
#ifndef SRV_OPENAPI_TYPES_H
#define SRV_OPENAPI_TYPES_H

#include <jansson.h>

#include "wire/route.h"
#include "wire/tensor.h"

/* All functions return a new reference, and NULL where memory is short. */

/* The schema of a type. */
json_t *srv_openapi_type(const char *type);

/* {"$ref":"#/components/KIND/NAME"} */
json_t *srv_openapi_ref(const char *kind, const char *name);

/* A list of the words of a text. */
json_t *srv_openapi_words(const char *text);

/* Whether a text of words, which may be NULL, has this one. */
bool srv_openapi_has_word(const char *words, const char *word);

/* The schema of tensors of this kind, by its name (openapi_calls.c). */
const char *srv_openapi_tensor(enum srv_tensor_kind kind);

/* Adds to *schemas those of replies, of texts and numbers, and of lists of names
 * (openapi_replies.c); those of the bodies of /attend and /decode (openapi_calls.c); those of
 * documents, by the routes (openapi_types.c).  *schemas becomes NULL where memory is short. */
void srv_openapi_add_values(json_t **schemas);
void srv_openapi_add_replies(json_t **schemas);
void srv_openapi_add_calls(json_t **schemas, size_t max_sequences);
void srv_openapi_add_documents(json_t **schemas, const struct srv_routes *routes);

/* A schema that allows what `schema` allows, and null: a field that is null counts as left out.
 * Takes the reference, which may be NULL. */
json_t *srv_openapi_or_null(json_t *schema);

/* Traits of a route: what its columns say in common with those of other routes. */
enum srv_openapi_trait {
    SRV_TRAIT_ANY = 1 << 0,
    SRV_TRAIT_KEYED = 1 << 1,   /* needs an API key */
    SRV_TRAIT_SCOPED = 1 << 2,  /* of a certain scope */
    SRV_TRAIT_BODY = 1 << 3,    /* has a body */
    SRV_TRAIT_JSON = 1 << 4,    /* of JSON, which may have bytes after it */
    SRV_TRAIT_TENSORS = 1 << 5, /* /attend and /decode */
    SRV_TRAIT_STATE = 1 << 6,   /* the body is a session's state */
    SRV_TRAIT_QUEUED = 1 << 7,  /* is queued for the scheduler */
    SRV_TRAIT_SERVED = 1 << 8,  /* is refused while models load and while draining */
    SRV_TRAIT_SESSION = 1 << 9, /* its path names a session */
    SRV_TRAIT_CREATES = 1 << 10,
    SRV_TRAIT_CHANGES = 1 << 11, /* fork and truncate */
    SRV_TRAIT_QUERY = 1 << 12,
    SRV_TRAIT_REPEATS = 1 << 13, /* makes one session, by an Idempotency-Key */
    SRV_TRAIT_PAGE = 1 << 14,    /* the attention viewer and its files */
};

unsigned srv_openapi_traits(const struct srv_route *route);

/* The replies of a route that are errors, by status, each with the codes that it may have
 * (openapi_errors.c).  Adds what is common to routes to *responses. */
json_t *srv_openapi_errors(json_t **responses, const struct srv_route *route);

/* The header fields of replies (openapi_headers.c): all of them, and references to those that
 * replies of a route with this status may have. */
json_t *srv_openapi_headers(void);
json_t *srv_openapi_reply_headers(const struct srv_route *route, unsigned status);

/* Whether the table of errors says which routes may reply with this code. */
bool srv_openapi_knows_error(enum srv_error_code code);

#endif
