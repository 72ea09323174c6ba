/* openapi_errors.c: which routes may reply with which error, and these replies.
 *
 * A code has the traits of routes that may reply with it; a code that only some of them have is a
 * word of the route's doc.errors.  Replies that several routes share stand under components. */
#include <stdio.h>
#include <string.h>

#include "api/openapi_types.h"
#include "wire/document.h"

/* The error of a path, or method, that no route has; of /readyz alone; never sent. */
#define NOWHERE (1u << 31)

static const unsigned traits_of[SRV_ERROR_COUNT] = {
    [SRV_E_BAD_REQUEST] = SRV_TRAIT_ANY,
    [SRV_E_MALFORMED_JSON] = SRV_TRAIT_JSON,
    [SRV_E_UNKNOWN_FIELD] = SRV_TRAIT_JSON | SRV_TRAIT_QUERY,
    [SRV_E_MISSING_FIELD] = SRV_TRAIT_JSON,
    [SRV_E_DUPLICATE_FIELD] = SRV_TRAIT_JSON | SRV_TRAIT_QUERY,
    [SRV_E_INVALID_TYPE] = SRV_TRAIT_JSON,
    [SRV_E_INVALID_VALUE] = SRV_TRAIT_ANY,
    [SRV_E_MALFORMED_ENCODING] = SRV_TRAIT_BODY,
    [SRV_E_MALFORMED_STATE] = SRV_TRAIT_STATE,
    [SRV_E_UNAUTHORIZED] = SRV_TRAIT_KEYED,
    [SRV_E_FORBIDDEN] = SRV_TRAIT_SCOPED,
    [SRV_E_ROUTE_NOT_FOUND] = NOWHERE,
    [SRV_E_MODEL_NOT_FOUND] = SRV_TRAIT_TENSORS,
    [SRV_E_LAYER_NOT_FOUND] = SRV_TRAIT_TENSORS,
    [SRV_E_SESSION_NOT_FOUND] = SRV_TRAIT_TENSORS | SRV_TRAIT_SESSION,
    [SRV_E_WRONG_INSTANCE] = SRV_TRAIT_TENSORS | SRV_TRAIT_SESSION | SRV_TRAIT_CREATES,
    [SRV_E_SESSION_LOST] = SRV_TRAIT_TENSORS | SRV_TRAIT_SESSION | SRV_TRAIT_CREATES,
    [SRV_E_HOST] = SRV_TRAIT_ANY,
    [SRV_E_ORIGIN] = SRV_TRAIT_ANY,
    [SRV_E_METHOD_NOT_ALLOWED] = NOWHERE,
    [SRV_E_NOT_ACCEPTABLE] = SRV_TRAIT_ANY,
    [SRV_E_TIMEOUT] = SRV_TRAIT_ANY,
    [SRV_E_SESSION_EXISTS] = SRV_TRAIT_TENSORS | SRV_TRAIT_CREATES,
    [SRV_E_POSITION_CONFLICT] = SRV_TRAIT_TENSORS | SRV_TRAIT_CHANGES,
    [SRV_E_POSITION_GAP] = SRV_TRAIT_TENSORS | SRV_TRAIT_CHANGES,
    [SRV_E_FORGOTTEN] = SRV_TRAIT_TENSORS | SRV_TRAIT_CHANGES,
    [SRV_E_ROPE_CHANGES] = SRV_TRAIT_TENSORS,
    [SRV_E_EPOCH_MISMATCH] = SRV_TRAIT_TENSORS | SRV_TRAIT_CHANGES,
    [SRV_E_REVISION_MISMATCH] = SRV_TRAIT_TENSORS | SRV_TRAIT_CHANGES,
    [SRV_E_SESSION_FULL] = SRV_TRAIT_TENSORS | SRV_TRAIT_CREATES,
    [SRV_E_MODEL_MISMATCH] = SRV_TRAIT_TENSORS,
    [SRV_E_FINGERPRINT] = SRV_TRAIT_STATE,
    [SRV_E_IDEMPOTENCY] = SRV_TRAIT_REPEATS,
    [SRV_E_LENGTH_REQUIRED] = SRV_TRAIT_BODY,
    [SRV_E_BODY_TOO_LARGE] = SRV_TRAIT_ANY,
    [SRV_E_TOO_COMPLEX] = SRV_TRAIT_JSON,
    [SRV_E_UNSUPPORTED_MEDIA] = SRV_TRAIT_ANY,
    [SRV_E_SHAPE_MISMATCH] = SRV_TRAIT_TENSORS | SRV_TRAIT_STATE,
    [SRV_E_NON_FINITE_INPUT] = SRV_TRAIT_TENSORS | SRV_TRAIT_STATE,
    [SRV_E_NUMBER_OUT_OF_RANGE] = SRV_TRAIT_JSON | SRV_TRAIT_STATE,
    [SRV_E_TOO_MANY_TOKENS] = SRV_TRAIT_TENSORS,
    [SRV_E_REPLY_TOO_LARGE] = SRV_TRAIT_TENSORS,
    [SRV_E_UNSUPPORTED] = SRV_TRAIT_TENSORS,
    [SRV_E_NUMERIC_OVERFLOW] = SRV_TRAIT_TENSORS | SRV_TRAIT_STATE,
    [SRV_E_QUEUE_FULL] = SRV_TRAIT_QUEUED,
    [SRV_E_SESSION_BUSY] = SRV_TRAIT_TENSORS,
    [SRV_E_QUOTA] = SRV_TRAIT_KEYED,
    [SRV_E_HEADERS_TOO_LARGE] = SRV_TRAIT_ANY,
    [SRV_E_CLIENT_GONE] = NOWHERE,
    [SRV_E_INTERNAL] = SRV_TRAIT_ANY,
    [SRV_E_NOT_IMPLEMENTED] = SRV_TRAIT_ANY,
    [SRV_E_LOADING] = SRV_TRAIT_SERVED,
    [SRV_E_LAME_DUCK] = NOWHERE,
    [SRV_E_DRAINING] = SRV_TRAIT_SERVED,
    [SRV_E_POOL_FULL] = SRV_TRAIT_TENSORS | SRV_TRAIT_CREATES,
    [SRV_E_SESSION_LIMIT] = SRV_TRAIT_TENSORS | SRV_TRAIT_CREATES,
    [SRV_E_CONNECTION_LIMIT] = SRV_TRAIT_KEYED,
    [SRV_E_STALLED] = NOWHERE,
    [SRV_E_OUT_OF_MEMORY] = SRV_TRAIT_ANY,
    [SRV_E_DEADLINE] = SRV_TRAIT_QUEUED,
    [SRV_E_STORAGE] = SRV_TRAIT_QUEUED,
};

bool srv_openapi_knows_error(enum srv_error_code code) { return traits_of[code] != 0; }

static bool may_reply(const struct srv_route *route, enum srv_error_code code)
{
    return (traits_of[code] & srv_openapi_traits(route)) != 0 ||
           srv_openapi_has_word(route->doc.errors, srv_error_word(code));
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* The schema of errors with these codes.  Takes the reference to `codes`. */
static json_t *error_schema(const struct srv_route *route, json_t *codes)
{
    if (route->doc.error == NULL)
        return json_pack("{s:s, s:{s:{s:{s:{s:o}}}}}", "$ref", "#/components/schemas/Error",
                         "properties", "error", "properties", "code", "enum", codes);
    json_decref(codes);
    return srv_openapi_ref("schemas", route->doc.error);
}

/* The reply with this status; NULL with *none where the route has no such error. */
static json_t *response(bool *none, const struct srv_route *route, unsigned status)
{
    char text[2048] = "";
    size_t length = 0;
    json_t *codes = json_array();
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++) {
        if (srv_error_status(code) != status || !may_reply(route, code))
            continue;
        srv_document_append(&codes, json_string(srv_error_word(code)));
        if (length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s`%s`: %s",
                                       length > 0 ? "; " : "", srv_error_word(code),
                                       srv_error_meaning(code));
    }
    *none = length == 0;
    if (*none) {
        json_decref(codes);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:{s:{s:o}}}", "description", text, "headers",
                     srv_openapi_reply_headers(route, status), "content", "application/json",
                     "schema", error_schema(route, codes));
}

#define SAME_STATUS_MAX 16 /* different replies with one status */

/* Finds the reply in *responses, or adds it; a reference to it.  Takes the reference to `reply`. */
static json_t *share(json_t **responses, unsigned status, json_t *reply)
{
    char name[32];
    json_t *known = NULL;
    for (unsigned i = 1; i <= SAME_STATUS_MAX && reply != NULL; i++) {
        snprintf(name, sizeof name, i == 1 ? "Error%u" : "Error%u_%u", status, i);
        known = json_object_get(*responses, name);
        if (known == NULL || json_equal(known, reply))
            break;
    }
    if (known != NULL && json_equal(known, reply))
        json_decref(reply);
    else if (known == NULL)
        srv_document_set(responses, name, reply);
    else
        return reply; /* no name is left */
    return srv_openapi_ref("responses", name);
}

json_t *srv_openapi_errors(json_t **responses, const struct srv_route *route)
{
    json_t *replies = json_object();
    for (unsigned status = 400; status < 600; status++) {
        bool none;
        char name[16];
        json_t *reply = response(&none, route, status);
        snprintf(name, sizeof name, "%u", status);
        if (!none)
            srv_document_set(&replies, name, share(responses, status, reply));
    }
    return replies;
}
