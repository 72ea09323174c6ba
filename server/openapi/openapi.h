/* openapi.h: what the parts of the program share that prints /openapi.json.
 *
 * Tables write a type as a word of JSON Schema ("integer"), the name of a schema ("Session"), a
 * list of a type ("[Session]"), or several of these ("FloatOutput|TopWeights"); a question mark at
 * its end also allows null.  Schemas are of JSON Schema's draft 2020-12.
 *
 * The program ends when it has printed: no value is freed. */
#ifndef OPENAPI_H
#define OPENAPI_H

#include <jansson.h>

#include "wire/route.h"

/* Ends the program, and so the build, with "openapi: ..." on the standard error. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* json_pack, json_object_set_new and json_array_append_new, which end the program where these
 * fail. */
json_t *pack(const char *format, ...);
void set(json_t *object, const char *name, json_t *value);
void append(json_t *list, json_t *value);

/* The schema of a type; {"$ref": "#/components/KIND/NAME"}. */
json_t *schema_of(const char *text);
json_t *ref(const char *kind, const char *name);

/* A schema that allows what `schema` allows, and null: a field that is null counts as left out. */
json_t *or_null(json_t *schema);

/* A schema of arrays; of texts that are one of these names; of objects that have these members and
 * no others; of objects in which each of these words is a field that is given and not null. */
json_t *array_of(json_t *items);
json_t *one_of(json_t *names);
json_t *closed_object(const char *meaning, json_t *properties);
json_t *given(const char *names);

json_t *if_then(json_t *condition, json_t *consequence);

/* Adds description and, where they are not NULL, shapes to a schema, which comes back. */
json_t *describe(json_t *schema, const char *meaning, const char *shapes);

/* A list of the words of a text, which may be NULL; whether it has this one. */
json_t *words(const char *text);
bool has_word(const char *text, const char *word);

/* Add schemas: of texts, numbers and lists of names; of replies; of the bodies of /attend and
 * /decode, and of tensors; of bodies that are documents. */
void add_values(json_t *schemas);
void add_replies(json_t *schemas);
void add_calls(json_t *schemas);
void add_documents(json_t *schemas);

/* Traits of a route: what its columns say in common with those of other routes. */
enum trait {
    TRAIT_ANY = 1 << 0,
    TRAIT_KEYED = 1 << 1,   /* needs an API key */
    TRAIT_SCOPED = 1 << 2,  /* of a certain scope */
    TRAIT_BODY = 1 << 3,    /* has a body */
    TRAIT_JSON = 1 << 4,    /* of JSON, which may have bytes after it */
    TRAIT_TENSORS = 1 << 5, /* /attend and /decode */
    TRAIT_STATE = 1 << 6,   /* the body is a session's state */
    TRAIT_QUEUED = 1 << 7,  /* is queued for the scheduler */
    TRAIT_SERVED = 1 << 8,  /* is refused while models load and while draining */
    TRAIT_SESSION = 1 << 9, /* its path names a session */
    TRAIT_CREATES = 1 << 10,
    TRAIT_CHANGES = 1 << 11, /* fork and truncate */
    TRAIT_QUERY = 1 << 12,
    TRAIT_REPEATS = 1 << 13, /* makes one session, by an Idempotency-Key */
    TRAIT_PAGE = 1 << 14,    /* the attention viewer and its files */
    TRAIT_FILE = 1 << 15,    /* these, and /openapi.json: a client may keep the reply */
};

unsigned traits_of(const struct srv_route *route);

/* Adds the route's replies that are errors to *replies, by status, each with the codes that it may
 * have.  What routes share is added to *shared. */
void add_errors(json_t *replies, json_t *shared, const struct srv_route *route);

/* The header fields of replies: all of them, and references to those that replies of a route with
 * this status may have. */
json_t *headers_json(void);
json_t *reply_headers(const struct srv_route *route, unsigned status);

#endif
