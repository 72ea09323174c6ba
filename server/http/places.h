/* places.h: places of connections: max_connections of them, and a few beyond for probes.
 *
 * A connection that comes when max_connections are open is accepted into a reserved place.  Only
 * what needs no API key is answered there, and any other request is refused.  A reserved place is
 * given up after one reply, after SRV_RESERVED_MS without progress, or to a newer connection where
 * SRV_MAX_RESERVED are taken: a probe sends its head right after it has connected, so clients that
 * keep thousands of silent connections open do not keep it out.  A connection whose head comes when
 * an ordinary place is free takes that place. */
#ifndef SRV_HTTP_PLACES_H
#define SRV_HTTP_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct srv_connection;
struct srv_loop;

/* Of a connection. */
struct srv_http_place {
    bool reserved;
    bool listed;                       /* in loop->reserved.list: it has not been told to end */
    TAILQ_ENTRY(srv_connection) entry; /* there */
};

/* Of a loop, whose thread runs all functions. */
struct srv_reserved {
    TAILQ_HEAD(, srv_connection) list; /* the oldest first */
    size_t count;
};

void srv_places_init(struct srv_loop *loop);

/* A connection comes; it is gone. */
void srv_place_take(struct srv_connection *connection);
void srv_place_leave(struct srv_connection *connection);

/* Whether the connection has an ordinary place, or gets one that has become free. */
bool srv_place_is_ordinary(struct srv_connection *connection);

/* After a turn: ends the oldest connections in reserved places beyond SRV_MAX_RESERVED. */
void srv_places_bound(struct srv_loop *loop);

#endif
