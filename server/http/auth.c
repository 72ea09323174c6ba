/* auth.c: the Authorization field against the API keys; idempotency keys per caller.
 *
 * The field is checked as soon as the head can be believed, before any byte of the body and before
 * anything is said of the path: a client without a key learns only that it needs one. */
#include "http/guard.h"

#include <stdio.h>
#include <strings.h>

#include "base/clock.h"

#define SCHEME "Bearer "

/* The scopes of which a route accepts any, as bits; 0: the route needs no key. */
static unsigned scopes_for(const struct srv_route *route)
{
    static const unsigned scopes[] = {
        [SRV_FOR_INFER] = SRV_SCOPE_INFER,
        [SRV_FOR_ADMIN] = SRV_SCOPE_ADMIN,
        [SRV_FOR_OWNER] = SRV_SCOPE_INFER | SRV_SCOPE_ADMIN,
        [SRV_FOR_METRICS] = SRV_SCOPE_ADMIN | SRV_SCOPE_METRICS,
        [SRV_FOR_ANY_KEY] = SRV_SCOPE_INFER | SRV_SCOPE_ADMIN | SRV_SCOPE_METRICS,
        [SRV_FOR_ALL] = 0,
    };
    return scopes[route != NULL ? route->access : SRV_FOR_ANY_KEY];
}

/* Finds the key after "Bearer" in the one Authorization field; false with *error without one. */
static bool find_bearer(const char **key, size_t *length, const struct srv_head *head,
                        struct srv_error *error)
{
    bool repeated;
    const struct srv_header_field *field = srv_head_single(&repeated, head, "Authorization");
    size_t scheme = strlen(SCHEME);
    if (field == NULL || repeated || field->value_length <= scheme ||
        strncasecmp(field->value, SCHEME, scheme) != 0) {
        srv_fail(error, SRV_E_UNAUTHORIZED, "Authorization",
                 "this needs an API key: Authorization: Bearer KEY, once");
        return false;
    }
    *key = field->value + scheme;
    *length = field->value_length - scheme;
    while (**key == ' ' && *length > 1)
        ++*key, --*length;
    if (*length < SRV_KEY_MIN) { /* which may have been guessed: the file's sha256 has no length */
        srv_fail(error, SRV_E_UNAUTHORIZED, "Authorization", "an API key has %d characters or more",
                 SRV_KEY_MIN);
        return false;
    }
    return true;
}

enum srv_error_code srv_auth_check(struct srv_request *request, struct srv_keyring *keys,
                                   const struct srv_head *head, struct srv_error *error)
{
    const char *text;
    size_t length;
    struct srv_key *key = &request->key;
    unsigned scopes = scopes_for(request->route);
    if (keys == NULL || scopes == 0)
        return SRV_OK;
    if (!find_bearer(&text, &length, head, error))
        return SRV_E_UNAUTHORIZED;
    if (!srv_keyring_find(key, &request->caller, keys, text, length))
        return srv_fail(error, SRV_E_UNAUTHORIZED, "Authorization", "this API key is not known");
    if (!srv_account_admit_request(key->account, srv_now_ns()))
        return srv_account_refuse(key->account, SRV_QUOTA_REQUESTS, error);
    if ((key->scopes & scopes) == 0)
        return srv_fail(error, SRV_E_FORBIDDEN, NULL, "this path is for the scope %s",
                        srv_scopes_text(scopes));
    return SRV_OK;
}

_Static_assert(SRV_KEY_DIGITS <= SRV_ID_MAX, "a digest stands where the key stood");

void srv_auth_scope_idempotency_key(struct srv_request *request)
{
    char text[2 * SRV_ID_MAX + 2], *key = request->idempotency_key;
    if (key[0] == '\0')
        return;
    int length = snprintf(text, sizeof text, "%s\n%s", request->key.name, key);
    srv_key_digest_print(key, text, (size_t)length);
}
