/* origin.h: which names of the daemon a request may use, and which web pages may send it.
 *
 * A browser sends requests for every page that it shows, to any address that its machine reaches.
 * Two header fields that pages cannot forge say for which: Host has the name by which the page
 * found the daemon, which for a page of somebody else's is not one of ours even where that name
 * resolves to our address (DNS rebinding); Origin has the page's own. */
#ifndef SRV_HTTP_ORIGIN_H
#define SRV_HTTP_ORIGIN_H

#include "http/guard.h"
#include "http/http.h"

struct srv_buffer;

/* Whether Host (`length` bytes, with or without a port) is an address, localhost, a name under it,
 * or one of `names`: a list separated by commas, or NULL for an empty one. */
bool srv_host_is_allowed(const char *host, size_t length, const char *names);

/* Whether Origin is `scheme://` and the same authority as Host; with `tls` only as https. */
bool srv_origin_is_own(const struct srv_header_field *origin, const struct srv_header_field *host,
                       bool tls);

/* Checks Host and Origin before anything else that the head says is used, and sets
 * request->origin.  Without API keys Host must be allowed, and Origin, where given, must be listed
 * in allow_origins or the daemon's own.  With keys Host must be allowed where allowed_hosts is set;
 * a page without a key learns nothing.  `tls`: the connection's.  Errors: host_not_allowed,
 * origin_not_allowed. */
enum srv_error_code srv_origin_check(struct srv_request *request,
                                     const struct srv_http_context *context,
                                     const struct srv_head *head, bool tls,
                                     struct srv_error *error);

/* Replies 204 to a preflight: OPTIONS without a body, from a listed origin, with
 * Access-Control-Request-Method.  False for any other request.  No path is looked at: which ones
 * exist is not said to callers without a key. */
bool srv_origin_answer_preflight(struct srv_request *request, const struct srv_head *head,
                                 const struct srv_framing *framing);

/* Appends the lines of Vary and Access-Control-* that the reply needs.  `pages`: allow_origins is
 * set. */
void srv_origin_write_fields(struct srv_buffer *out, const struct srv_request *request, bool pages);

#endif
