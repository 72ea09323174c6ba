/* http_stall.h: connections that libmicrohttpd would serve in every turn though only their client
 * can go on: bodies in chunks, and TLS handshakes (mhd_workarounds.c, 6 and 15).
 *
 * Such a connection is suspended, its socket watched by a descriptor of ours, and resumed when the
 * client goes on.  One that cannot go on, whatever its client sends, is refused.  All functions run
 * on the loop's thread. */
#ifndef SRV_HTTP_STALL_H
#define SRV_HTTP_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct srv_connection;
struct srv_loop;

enum srv_stall_state {
    SRV_STALL_NONE,
    SRV_STALL_WATCHED,   /* in loop->stalls.watched: it may turn out to stall */
    SRV_STALL_SUSPENDED, /* until its socket is ready */
};

/* Of a connection. */
struct srv_stall {
    enum srv_stall_state state;
    bool handshaking;                  /* TLS: in loop->stalls.handshakes */
    bool in_body;                      /* of chunks, which is being read */
    bool registered;                   /* by srv_stall_end, with libmicrohttpd's descriptor */
    bool resumed, looked_at;           /* since the last input of the body */
    unsigned unread_turns;             /* in a row: looks that found bytes, and none taken */
    uint64_t since_ns;                 /* a body's last input, a handshake's begin */
    uint64_t taken_first, taken;       /* bytes from the socket at the first look, and the last */
    TAILQ_ENTRY(srv_connection) entry; /* in one of the lists */
};

TAILQ_HEAD(srv_stall_list, srv_connection);

/* Of a loop. */
struct srv_stalls {
    int epoll_fd;                     /* the sockets of suspended connections */
    bool stopping;                    /* none is suspended any more */
    size_t suspended, num_handshakes; /* how many */
    struct srv_stall_list handshakes; /* TLS handshakes under way, oldest first */
    struct srv_stall_list watched;    /* bodies in chunks, least recent input first */
};

bool srv_stall_open(struct srv_stalls *stalls);
void srv_stall_close(struct srv_stalls *stalls); /* takes one whose epoll_fd is -1 */

/* A body in chunks begins, or a piece of it has come; it has ended. */
void srv_stall_input(struct srv_connection *connection);
void srv_stall_body_ended(struct srv_connection *connection);

/* A TLS handshake begins; it cannot go on before the socket is readable, or writable; it has ended,
 * one way or the other. */
void srv_stall_handshake_begins(struct srv_connection *connection);
void srv_stall_handshake_waits(struct srv_connection *connection, bool to_write);
void srv_stall_handshake_ended(struct srv_connection *connection);

/* The connection is gone. */
void srv_stall_forget(struct srv_connection *connection);

/* Before a turn: resumes connections whose sockets are ready. */
void srv_stall_before_turn(struct srv_loop *loop);

/* After a turn: suspends bodies that wait for their client, calls loop->on_stalled for those that
 * nothing can come of, and ends the oldest handshakes beyond SRV_MAX_HANDSHAKES. */
void srv_stall_after_turn(struct srv_loop *loop, uint64_t now_ns);

/* Resumes all, for good: no connection may be suspended when the daemon is stopped. */
void srv_stall_stop(struct srv_loop *loop);

/* Ends a connection in whatever state it is: libmicrohttpd closes it in the next turn. */
void srv_stall_end(struct srv_connection *connection);

#endif
