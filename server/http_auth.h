/* http_auth.h: whether a request comes with a key, and one that suffices for its route. */
#ifndef SRV_HTTP_AUTH_H
#define SRV_HTTP_AUTH_H

#include "http.h"
#include "http_guard.h"
#include "keys.h"

/* Where keys are configured: asks for one whose scopes suffice for request->route, or, where no
 * route matched, for any, and notes whose it is.  Errors: unauthorized, forbidden. */
enum srv_error_code srv_auth_check(struct srv_request *request, const struct srv_keys *keys,
                                   const struct srv_head *head, struct srv_error *error);

#endif
