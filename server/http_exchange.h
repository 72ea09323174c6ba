/* http_exchange.h: a request on its way through the HTTP layer, and the server that all share.
 * Private to http*.c. */
#ifndef SRV_HTTP_EXCHANGE_H
#define SRV_HTTP_EXCHANGE_H

#include "http.h"
#include "http_loop.h"

#define SRV_LOOPS_MAX 64

struct MHD_Connection;
struct srv_exchange;

struct srv_http {
    struct srv_app *app;
    int listen_fd;
    unsigned port;
    uint64_t id_seed;
    atomic_uint_fast64_t ids; /* request ids made so far */
    atomic_size_t active, connections;
    size_t loop_count;
    struct srv_loop loops[SRV_LOOPS_MAX];
};

/* What libmicrohttpd's handler is told; `bytes` are a piece of the body. */
struct srv_step {
    const char *method, *path, *version, *bytes;
};

enum srv_end {
    SRV_END_DONE,  /* the reply went out */
    SRV_END_ERROR, /* the request could not be parsed or the connection broke */
    SRV_END_GONE,  /* the client left */
};

/* All on the connection's event thread.  `open` when the request line has been read: `target` is
 * path and query, and gone after the call; NULL where memory is short.  `step` takes *count bytes
 * and leaves in *count those it did not take (none); false ends the connection.  `close` is the one
 * exit. */
struct srv_exchange *srv_exchange_open(struct srv_connection *connection,
                                       struct MHD_Connection *mhd, const char *target);
bool srv_exchange_step(struct srv_exchange *exchange, const struct srv_step *step, size_t *count);
void srv_exchange_late(struct srv_exchange *exchange); /* the connection will be shut down */
void srv_exchange_close(struct srv_exchange *exchange, enum srv_end end);

#endif
