/* auth.h: whether a request comes with an API key, and one that suffices for its route. */
#ifndef SRV_HTTP_AUTH_H
#define SRV_HTTP_AUTH_H

#include "config/keys.h"
#include "http/guard.h"
#include "http/http.h"

/* Checks that the request has a key with a scope that request->route accepts, or any key where no
 * route matched, and sets request->caller and key.  The request counts towards the key's
 * requests_per_s.  keys NULL: none are configured, and every request passes.
 * Errors: unauthorized, forbidden, quota_exceeded. */
enum srv_error_code srv_auth_check(struct srv_request *request, struct srv_keyring *keys,
                                   const struct srv_head *head, struct srv_error *error);

/* Separates callers that send the same Idempotency-Key: the request's becomes a digest, in 64
 * characters that an id may have, of the name of its API key ("" without) and of what was sent.
 * The name is digested since a key's place in the file, and the key itself, may change while its
 * sessions live. */
void srv_auth_scope_idempotency_key(struct srv_request *request);

#endif
