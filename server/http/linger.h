/* linger.h: sockets of closed connections whose clients may still be sending.
 *
 * Closing a socket into which bytes still arrive resets the connection, and a client that is told
 * so while it sends never reads its reply.  So such a socket is kept after the reply and the end of
 * our side, and what arrives is thrown away unread: up to SRV_LINGER_BYTES, for SRV_LINGER_MS in
 * all and SRV_LINGER_IDLE_MS without a byte.  Lingering sockets and open connections are together
 * no more than connections may be: where one more connection comes, the socket that has lingered
 * longest is closed, by another loop within a sweep.  All here is the loop's thread's. */
#ifndef SRV_HTTP_LINGER_H
#define SRV_HTTP_LINGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct srv_loop;

struct srv_linger {
    int fd;
    uint64_t end_ns, idle_end_ns;
    size_t bytes; /* thrown away so far */
    TAILQ_ENTRY(srv_linger) entry;
};

struct srv_lingers {
    int epoll_fd;
    TAILQ_HEAD(, srv_linger) list; /* the oldest first */
    size_t count;
};

/* `open` returns whether there is a descriptor; `close` takes one that was never opened, whose
 * epoll_fd is -1. */
bool srv_lingers_open(struct srv_lingers *lingers);
void srv_lingers_close(struct srv_loop *loop);

/* Keeps the socket `fd` of a connection that is about to be closed.  Where descriptors or memory
 * are short it is not kept. */
void srv_linger_begin(struct srv_loop *loop, int fd);

/* In each turn: throws away what has arrived. */
void srv_lingers_serve(struct srv_loop *loop, uint64_t now_ns);

/* In each sweep: closes sockets whose time has passed. */
void srv_lingers_sweep(struct srv_loop *loop, uint64_t now_ns);

/* A connection has come: closes sockets that have no room beside all connections. */
void srv_lingers_make_room(struct srv_loop *loop);

#endif
