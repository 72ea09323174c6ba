/* handshake.h: TLS handshakes under way: a client that stops in the middle of one costs no
 * time, and handshakes are bounded in number.
 *
 * libmicrohttpd would ask a handshake to go on in every turn (mhd_workarounds.c, 14).  So a
 * connection whose handshake waits for its client is suspended, its socket watched by a descriptor
 * of ours, and resumed when the client goes on.  All functions run on the loop's thread. */
#ifndef SRV_HTTP_HANDSHAKE_H
#define SRV_HTTP_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct srv_connection;
struct srv_loop;

/* Of a connection. */
struct srv_handshake {
    bool under_way;                    /* in loop->handshakes.list */
    bool heard;                        /* a byte of the client's */
    bool suspended;                    /* until its socket is ready */
    uint64_t begun_ns;                 /* monotonic */
    TAILQ_ENTRY(srv_connection) entry; /* in that list */
};

TAILQ_HEAD(srv_handshake_list, srv_connection);

/* Of a loop. */
struct srv_handshakes {
    int epoll_fd;                   /* the sockets of suspended connections */
    size_t suspended, count;        /* how many; of them all under way */
    struct srv_handshake_list list; /* oldest first */
};

bool srv_handshakes_open(struct srv_handshakes *handshakes);
void srv_handshakes_close(struct srv_handshakes *handshakes); /* takes one whose epoll_fd is -1 */

/* A handshake begins; it cannot go on before the socket is readable, or writable; it has ended, one
 * way or the other. */
void srv_handshake_begins(struct srv_connection *connection);
void srv_handshake_waits(struct srv_connection *connection, bool to_write);
void srv_handshake_ended(struct srv_connection *connection);

/* Resumes the connection where it is suspended, since its socket has been shut down. */
void srv_handshake_release(struct srv_connection *connection);

/* The connection is gone. */
void srv_handshake_forget(struct srv_connection *connection);

/* Before a turn: resumes connections whose sockets are ready. */
void srv_handshakes_resume(struct srv_loop *loop);

/* After a turn: ends the oldest handshakes beyond SRV_MAX_HANDSHAKES, unless they are young. */
void srv_handshakes_bound(struct srv_loop *loop, uint64_t now_ns);

/* Resumes all, for good: no connection may be suspended when the daemon is stopped. */
void srv_handshakes_stop(struct srv_loop *loop);

#endif
