/* http.h: requests and replies without libmicrohttpd; only http*.c see it.
 *
 * They read a request (framing guard, route, limits, body), then either call the route's handler on
 * the event thread or suspend the connection and hand the request to the scheduler.  Either fills
 * request->reply and ends in srv_exchange_close, the one exit: log line, metrics, memory. */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include "wire/route.h"

struct srv_app;
struct srv_http;

/* The route for a path, or NULL with `allowed` filled as an Allow header where the path is known
 * under other methods ("" where it is unknown).  HEAD is answered as GET.  *arg receives what stood
 * for {..}, as it was sent (percent-decoding is refused: ids need none). */
const struct srv_route *srv_route_find(char arg[SRV_ID_MAX + 1], char allowed[64],
                                       const struct srv_routes *routes, enum srv_method method,
                                       const char *path);

struct srv_tls; /* tls.h */

struct srv_http_options {
    const char *host;          /* numeric address to bind, IPv4 or IPv6 */
    unsigned port;             /* 0: any free one */
    unsigned threads;          /* event threads */
    const struct srv_tls *tls; /* needed during srv_http_open only; empty: plain HTTP */
};

/* Binds, listens and serves from then on.  Errors are one line in `message`. */
bool srv_http_open(struct srv_http **out, struct srv_app *app,
                   const struct srv_http_options *options, char *message, size_t size);
unsigned srv_http_port(const struct srv_http *http);

/* Connections that are accepted from now on see this certificate, where it was HTTPS from the
 * start.  False where memory is short: nothing has changed. */
bool srv_http_replace_certificate(struct srv_http *http, const struct srv_tls *tls);
const char *srv_http_library_version(void); /* libmicrohttpd's version, "0.9.75" */

/* Stops accepting connections; those that are open go on. */
void srv_http_quiesce(struct srv_http *http);
size_t srv_http_active(const struct srv_http *http);      /* requests not yet completed */
size_t srv_http_connections(const struct srv_http *http); /* open connections */
void srv_http_close(struct srv_http *http);               /* after the scheduler has stopped */

/* Hands `count` finished requests back to their connections: from any thread, once for each request
 * that was handed to the scheduler. */
void srv_http_resume(struct srv_http *http, struct srv_request *const requests[], size_t count);

/* Memory that each request takes, whatever it is charged. */
size_t srv_http_exchange_bytes(void);

#endif
