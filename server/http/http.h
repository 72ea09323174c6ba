/* http.h: the HTTP server: how main opens, drains and closes it, and how requests come back to it.
 *
 * The server reads a request (head, route, key, limits, body) and then either calls the route's
 * handler on the event thread or hands the request to the scheduler, which gives it back through
 * srv_http_resume.  Handler and scheduler fill request->reply.  A request ends in
 * srv_exchange_close (exchange.c), with log line, metrics and memory; one whose connection is
 * gone while the scheduler holds the request ends in srv_http_resume, in the same way.
 *
 * Requests and replies are declared in wire/request.h, routes in wire/route.h.  libmicrohttpd's
 * header is seen by server/http/ only. */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include "wire/route.h"

struct srv_http;
struct srv_keyring;   /* config/keys.h */
struct srv_log;       /* ops/log.h */
struct srv_metrics;   /* ops/metrics.h */
struct srv_scheduler; /* schedule/scheduler.h */
struct srv_tls;       /* tls.h */

/* The daemon's phase.  Routes without `while_draining` are served in SRV_READY and SRV_LAME_DUCK
 * only.  A lame duck serves all and says at /readyz, and by ending connections, that it stops. */
enum srv_phase { SRV_LOADING, SRV_READY, SRV_LAME_DUCK, SRV_DRAINING };

/* The parts of the daemon that the server uses.  main fills the struct before srv_http_open, which
 * copies it; everything it points to must outlive the server. */
struct srv_http_context {
    const struct srv_limits *limits;
    const struct srv_routes *routes;
    const char *instance;      /* X-Attn-Instance */
    struct srv_keyring *keys;  /* NULL: no API key is asked for */
    const char *allowed_hosts; /* lists, as guard.h has them; NULL: empty */
    const char *allow_origins;
    struct srv_log *log;
    struct srv_metrics *metrics;
    struct srv_scheduler *scheduler;
    struct srv_budget *in_flight; /* request->in_flight */
    struct srv_inputs *inputs;    /* request->inputs */
    const atomic_int *phase;      /* enum srv_phase */
    const atomic_bool *stopping;  /* request->stopping */
    void *app;                    /* request->app, for the handlers of api/ only */
};

struct srv_http_options {
    const char *host;          /* numeric address to bind, IPv4 or IPv6 */
    unsigned port;             /* 0: any free one */
    unsigned threads;          /* event threads */
    const struct srv_tls *tls; /* read by srv_http_open only; an empty one: plain HTTP */
};

/* Binds and listens; requests are served from before the return on.  Errors are one line in
 * `message` [size]. */
bool srv_http_open(struct srv_http **out, const struct srv_http_context *context,
                   const struct srv_http_options *options, char *message, size_t size);
unsigned srv_http_port(const struct srv_http *http);

/* Gives this certificate to connections accepted from now on, where the server began with HTTPS.
 * False where memory is short: nothing has changed then. */
bool srv_http_replace_certificate(struct srv_http *http, const struct srv_tls *tls);
/* When the certificate of new connections expires, in seconds since 1970; 0 with plain HTTP. */
long long srv_http_certificate_expires(const struct srv_http *http);
const char *srv_http_library_version(void); /* libmicrohttpd's, "0.9.75" */

/* Stops accepting connections; open ones go on. */
void srv_http_quiesce(struct srv_http *http);
size_t srv_http_active(const struct srv_http *http);      /* requests not yet completed */
size_t srv_http_connections(const struct srv_http *http); /* open connections */

/* Ends event threads and connections.  The scheduler must have stopped.  Takes NULL. */
void srv_http_close(struct srv_http *http);

/* Gives `count` finished requests back to their connections, whose event threads send the replies;
 * ends those requests whose connection is gone.  Any thread; exactly once for each request that the
 * scheduler has taken. */
void srv_http_resume(struct srv_http *http, struct srv_request *const requests[], size_t count);

/* Bytes that every request takes, whatever it is charged. */
size_t srv_http_exchange_bytes(void);

/* The method of that name; SRV_METHOD_COUNT for one of HTTP's that no route has.  False, with *out
 * unchanged, where HTTP has no such method. */
bool srv_route_read_method(enum srv_method *out, const char *name);

/* Finds the route for a path.  NULL where there is none: `allowed` is then an Allow field's value
 * if the path has routes for other methods, else "".  GET routes answer HEAD.  `arg` receives what
 * stood for {..}, as it was sent: ids need no percent-encoding, so none is decoded. */
const struct srv_route *srv_route_find(char arg[SRV_ID_MAX + 1], char allowed[64],
                                       const struct srv_routes *routes, enum srv_method method,
                                       const char *path);

#endif
