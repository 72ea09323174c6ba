/* errors.c: which routes may reply with which error, and these replies.
 *
 * A code has the traits of routes that may reply with it; a code that only some of them have is a
 * word of the route's doc.errors.  Replies that several routes share stand under components. */
#include <stdio.h>
#include <string.h>

#include "openapi/openapi.h"

/* The error of a path, or method, that no route has; of /readyz alone; never sent. */
#define NOWHERE (1u << 31)

static const unsigned replied_by[SRV_ERROR_COUNT] = {
    [SRV_E_BAD_REQUEST] = TRAIT_ANY,
    [SRV_E_MALFORMED_JSON] = TRAIT_JSON,
    [SRV_E_UNKNOWN_FIELD] = TRAIT_JSON | TRAIT_QUERY,
    [SRV_E_MISSING_FIELD] = TRAIT_JSON,
    [SRV_E_DUPLICATE_FIELD] = TRAIT_JSON | TRAIT_QUERY,
    [SRV_E_INVALID_TYPE] = TRAIT_JSON,
    [SRV_E_INVALID_VALUE] = TRAIT_ANY,
    [SRV_E_MALFORMED_ENCODING] = TRAIT_BODY,
    [SRV_E_MALFORMED_STATE] = TRAIT_STATE,
    [SRV_E_UNAUTHORIZED] = TRAIT_KEYED,
    [SRV_E_FORBIDDEN] = TRAIT_SCOPED,
    [SRV_E_ROUTE_NOT_FOUND] = NOWHERE,
    [SRV_E_MODEL_NOT_FOUND] = TRAIT_TENSORS,
    [SRV_E_LAYER_NOT_FOUND] = TRAIT_TENSORS,
    [SRV_E_SESSION_NOT_FOUND] = TRAIT_TENSORS | TRAIT_SESSION,
    [SRV_E_WRONG_INSTANCE] = TRAIT_TENSORS | TRAIT_SESSION | TRAIT_CREATES,
    [SRV_E_SESSION_LOST] = TRAIT_TENSORS | TRAIT_SESSION | TRAIT_CREATES,
    [SRV_E_HOST] = TRAIT_ANY,
    [SRV_E_ORIGIN] = TRAIT_ANY,
    [SRV_E_METHOD_NOT_ALLOWED] = NOWHERE,
    [SRV_E_NOT_ACCEPTABLE] = TRAIT_ANY,
    [SRV_E_TIMEOUT] = TRAIT_ANY,
    [SRV_E_SESSION_EXISTS] = TRAIT_TENSORS | TRAIT_CREATES,
    [SRV_E_POSITION_CONFLICT] = TRAIT_TENSORS | TRAIT_CHANGES,
    [SRV_E_POSITION_GAP] = TRAIT_TENSORS | TRAIT_CHANGES,
    [SRV_E_FORGOTTEN] = TRAIT_TENSORS | TRAIT_CHANGES,
    [SRV_E_ROPE_CHANGES] = TRAIT_TENSORS,
    [SRV_E_EPOCH_MISMATCH] = TRAIT_TENSORS | TRAIT_CHANGES,
    [SRV_E_REVISION_MISMATCH] = TRAIT_TENSORS | TRAIT_CHANGES,
    [SRV_E_SESSION_FULL] = TRAIT_TENSORS | TRAIT_CREATES,
    [SRV_E_MODEL_MISMATCH] = TRAIT_TENSORS,
    [SRV_E_FINGERPRINT] = TRAIT_STATE,
    [SRV_E_IDEMPOTENCY] = TRAIT_REPEATS,
    [SRV_E_LENGTH_REQUIRED] = TRAIT_BODY,
    [SRV_E_BODY_TOO_LARGE] = TRAIT_ANY,
    [SRV_E_TOO_COMPLEX] = TRAIT_JSON,
    [SRV_E_UNSUPPORTED_MEDIA] = TRAIT_ANY,
    [SRV_E_SHAPE_MISMATCH] = TRAIT_TENSORS | TRAIT_STATE,
    [SRV_E_NON_FINITE_INPUT] = TRAIT_TENSORS | TRAIT_STATE,
    [SRV_E_NUMBER_OUT_OF_RANGE] = TRAIT_JSON | TRAIT_STATE,
    [SRV_E_TOO_MANY_TOKENS] = TRAIT_TENSORS,
    [SRV_E_REPLY_TOO_LARGE] = TRAIT_TENSORS,
    [SRV_E_UNSUPPORTED] = TRAIT_TENSORS,
    [SRV_E_NUMERIC_OVERFLOW] = TRAIT_TENSORS | TRAIT_STATE,
    [SRV_E_QUEUE_FULL] = TRAIT_QUEUED,
    [SRV_E_SESSION_BUSY] = TRAIT_TENSORS,
    [SRV_E_QUOTA] = TRAIT_KEYED,
    [SRV_E_HEADERS_TOO_LARGE] = TRAIT_ANY,
    [SRV_E_CLIENT_GONE] = NOWHERE,
    [SRV_E_INTERNAL] = TRAIT_ANY,
    [SRV_E_NOT_IMPLEMENTED] = TRAIT_ANY,
    [SRV_E_LOADING] = TRAIT_SERVED,
    [SRV_E_LAME_DUCK] = NOWHERE,
    [SRV_E_DRAINING] = TRAIT_SERVED,
    [SRV_E_POOL_FULL] = TRAIT_TENSORS | TRAIT_CREATES,
    [SRV_E_SESSION_LIMIT] = TRAIT_TENSORS | TRAIT_CREATES,
    [SRV_E_CONNECTION_LIMIT] = TRAIT_KEYED,
    [SRV_E_STALLED] = NOWHERE,
    [SRV_E_OUT_OF_MEMORY] = TRAIT_ANY,
    [SRV_E_DEADLINE] = TRAIT_QUEUED,
    [SRV_E_STORAGE] = TRAIT_QUEUED,
};

static bool may_reply(const struct srv_route *route, enum srv_error_code code)
{
    return (replied_by[code] & traits_of(route)) != 0 ||
           has_word(route->doc.errors, srv_error_word(code));
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* The schema of errors with these codes. */
static json_t *error_schema(const struct srv_route *route, json_t *codes)
{
    if (route->doc.error != NULL)
        return ref("schemas", route->doc.error);
    return pack("{s:s, s:{s:{s:{s:{s:o}}}}}", "$ref", "#/components/schemas/Error", "properties",
                "error", "properties", "code", "enum", codes);
}

/* The reply with this status; NULL where the route has no such error. */
static json_t *response(const struct srv_route *route, unsigned status)
{
    json_t *codes = json_array(), *text = json_string("");
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++) {
        if (srv_error_status(code) != status || !may_reply(route, code))
            continue;
        text = json_sprintf("%s%s`%s`: %s", json_string_value(text),
                            json_array_size(codes) > 0 ? "; " : "", srv_error_word(code),
                            srv_error_meaning(code));
        append(codes, json_string(srv_error_word(code)));
    }
    if (json_array_size(codes) == 0)
        return NULL;
    return pack("{s:o, s:o, s:{s:{s:o}}}", "description", text, "headers",
                reply_headers(route, status), "content", "application/json", "schema",
                error_schema(route, codes));
}

#define SAME_STATUS_MAX 16 /* different replies with one status */

/* A reference to the reply, which is found in *shared or added to it. */
static json_t *share(json_t *shared, unsigned status, json_t *reply)
{
    char name[32];
    for (unsigned i = 1; i <= SAME_STATUS_MAX; i++) {
        snprintf(name, sizeof name, i == 1 ? "Error%u" : "Error%u_%u", status, i);
        json_t *known = json_object_get(shared, name);
        if (known == NULL)
            set(shared, name, reply);
        if (known == NULL || json_equal(known, reply))
            return ref("responses", name);
    }
    fail("more than %d different replies have the status %u", SAME_STATUS_MAX, status);
}

void add_errors(json_t *replies, json_t *shared, const struct srv_route *route)
{
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++)
        if (replied_by[code] == 0)
            fail("%s: add to replied_by[] in openapi/errors.c which routes may reply it",
                 srv_error_word(code));
    for (unsigned status = 400; status < 600; status++) {
        char name[16];
        json_t *reply = response(route, status);
        snprintf(name, sizeof name, "%u", status);
        if (reply != NULL)
            set(replies, name, share(shared, status, reply));
    }
}
