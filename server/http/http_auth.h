/* http_auth.h: whether a request comes with a key, and one that suffices for its route. */
#ifndef SRV_HTTP_AUTH_H
#define SRV_HTTP_AUTH_H

#include "config/keys.h"
#include "http/http.h"
#include "http/http_guard.h"

/* Asks for a key whose scopes suffice for request->route, or, where no route matched, for any, and
 * notes whose it is.  keys NULL: none are configured, and none is asked for.  Errors: unauthorized,
 * forbidden. */
enum srv_error_code srv_auth_check(struct srv_request *request, struct srv_keyring *keys,
                                   const struct srv_head *head, struct srv_error *error);

/* Makes the request's Idempotency-Key, where it has one, the caller's own: a digest of the name of
 * its API key ("" without) and of what was sent, in 64 characters that an id may have.  Of the
 * name, since a key's place in the file, or the key itself, may change while its sessions live. */
void srv_auth_own_key(struct srv_request *request);

#endif
