/* errors.c: which routes may reply with which error, and these replies.
 *
 * An error has the traits of routes that may reply with it; one that only some of them have is a
 * word of the route's doc.errors.  Replies that several routes share stand under components. */
#include <stdio.h>

#include "openapi/openapi.h"

/* The error of a path, or method, that no route has; of /readyz alone; never sent. */
#define NOWHERE (1u << 31)

/* Errors by the traits of routes that may reply with them: each in one row. */
static const struct {
    unsigned traits;
    const char *errors;
} groups[] = {
    {TRAIT_ANY, "bad_request invalid_value host_not_allowed origin_not_allowed not_acceptable "
                "request_timeout body_too_large unsupported_media_type headers_too_large internal "
                "not_implemented out_of_memory"},
    {TRAIT_JSON, "malformed_json missing_field invalid_type too_complex"},
    {TRAIT_JSON | TRAIT_QUERY, "unknown_field duplicate_field"},
    {TRAIT_BODY, "malformed_encoding length_required"},
    {TRAIT_STATE, "malformed_state fingerprint_mismatch"},
    {TRAIT_KEYED, "unauthorized quota_exceeded connection_limit"},
    {TRAIT_SCOPED, "forbidden"},
    {NOWHERE, "route_not_found method_not_allowed client_gone lame_duck storage_stalled"},
    {TRAIT_TENSORS, "model_not_found layer_not_found rope_changes model_mismatch too_many_tokens "
                    "reply_too_large unsupported session_busy input_not_found"},
    {TRAIT_TENSORS | TRAIT_SESSION, "session_not_found"},
    {TRAIT_TENSORS | TRAIT_SESSION | TRAIT_CREATES, "wrong_instance session_lost"},
    {TRAIT_TENSORS | TRAIT_CREATES, "session_exists session_full pool_full session_limit"},
    {TRAIT_TENSORS | TRAIT_CHANGES,
     "position_conflict position_gap position_forgotten epoch_mismatch revision_mismatch"},
    {TRAIT_REPEATS, "idempotency_conflict"},
    {TRAIT_TENSORS | TRAIT_STATE, "shape_mismatch non_finite_input numeric_overflow"},
    {TRAIT_JSON | TRAIT_STATE, "number_out_of_range"},
    {TRAIT_QUEUED, "queue_full deadline_exceeded insufficient_storage"},
    {TRAIT_SERVED, "loading draining"},
};

static bool may_reply(const struct srv_route *route, const char *error)
{
    unsigned traits = 0;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        traits |= has_word(groups[i].errors, error) ? groups[i].traits : 0;
    if (traits == 0)
        fail("%s: add to groups[] in openapi/errors.c which routes may reply it", error);
    return (traits & traits_of(route)) != 0 || has_word(route->doc.errors, error);
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* The schema of errors with these codes. */
static json_t *error_schema(const struct srv_route *route, json_t *codes)
{
    if (srv_v2_is_path(route->path))
        return ref("schemas", "V2Error");
    return pack("{s:s, s:{s:{s:{s:{s:o}}}}}", "$ref", "#/components/schemas/Error", "properties",
                "error", "properties", "code", "enum", codes);
}

/* The reply with this status; NULL where the route has no such error. */
static json_t *response(const struct srv_route *route, unsigned status)
{
    json_t *codes = json_array(), *text = json_string("");
    for (enum srv_error_code code = 1; code < SRV_ERROR_COUNT; code++) {
        if (srv_error_status(code) != status || !may_reply(route, srv_error_word(code)))
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
static json_t *find_or_add(json_t *shared, unsigned status, json_t *reply)
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
    for (unsigned status = 400; status < 600; status++) {
        char name[16];
        json_t *reply = response(route, status);
        snprintf(name, sizeof name, "%u", status);
        if (reply != NULL)
            set(replies, name, find_or_add(shared, status, reply));
    }
}
