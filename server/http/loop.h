/* loop.h: event threads: each waits for its sockets, runs libmicrohttpd, keeps deadlines; and the
 * connections that each of them has.
 *
 * libmicrohttpd runs in its external mode: our thread waits and MHD_run never blocks, so that a
 * batch of resumed connections costs one wake (mhd_workarounds.c, 1 and 2, says what is wrong with
 * its own threads).  Deadlines are absolute, one per connection, and a connection whose deadline
 * has passed is shut down (3: libmicrohttpd's timeouts restart on every byte).  All functions run
 * on the loop's thread, unless another is named. */
#ifndef SRV_HTTP_LOOP_H
#define SRV_HTTP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "http/scan.h"

struct MHD_Connection;
struct MHD_Daemon;
struct srv_exchange;
struct srv_http;
struct srv_tls_credentials;

/* An open connection, which belongs to its loop's thread. */
struct srv_connection {
    struct srv_loop *loop;
    struct MHD_Connection *mhd;
    int fd;                                  /* closed by libmicrohttpd */
    atomic_size_t *client_bytes;             /* [2]: of its address (clients.c) */
    void *tls;                               /* its session (tls.h), NULL for plain HTTP */
    struct srv_tls_credentials *credentials; /* of the session; NULL: those it began with */
    uint64_t deadline_ns;                    /* 0: none */
    struct srv_exchange *exchange;           /* the request in progress, or NULL */
    struct srv_scan scan;                    /* of all bytes that libmicrohttpd has been given */
    uint64_t served;                         /* of scan.requests, those whose exchange has ended */
    struct {
        bool under_way;                    /* in loop->handshakes.list */
        bool heard;                        /* a byte of the client's */
        bool suspended;                    /* until its socket is ready */
        uint64_t begun_ns;                 /* monotonic */
        TAILQ_ENTRY(srv_connection) entry; /* in that list */
    } handshake;
    struct {
        bool waits, granted;
        TAILQ_ENTRY(srv_connection) entry; /* in loop->turns.waiting */
    } turn;
    struct srv_http_place {
        bool reserved;
        bool listed;                       /* in loop->reserved.list: has not been told to end */
        TAILQ_ENTRY(srv_connection) entry; /* there */
    } place;
    LIST_ENTRY(srv_connection) link;        /* in loop->connections */
    LIST_ENTRY(srv_connection) faulty_link; /* in loop->faulty, where is_faulty */
    bool may_have_ended; /* the client's side; false: its socket would have said so */
    bool finished;       /* our side: libmicrohttpd is told that the client's has ended */
    bool pipelines;      /* the next request came before the reply to the last */
    bool refused;        /* the client has been told of scan.fault */
    bool is_faulty;
};

TAILQ_HEAD(srv_connection_list, srv_connection);

enum srv_loop_command { SRV_LOOP_RUN, SRV_LOOP_QUIESCE, SRV_LOOP_STOP };

/* Fields belong to the loop's thread unless they are atomic. */
struct srv_loop {
    struct srv_http *http;
    struct MHD_Daemon *daemon;
    int listen_fd; /* shared by all loops */
    pthread_t thread;
    bool running;       /* `thread` is to be joined */
    atomic_int command; /* enum srv_loop_command */

    /* Waking the thread. */
    int wake_fd;
    atomic_bool wake_pending; /* there is work that no socket reports */
    atomic_bool sleeping;     /* or about to sleep: a wake has to write to wake_fd */

    /* State that decides how long the next turn waits. */
    uint64_t next_sweep_ns;
    uint64_t turn_ns, gap_ns; /* the end of the last turn; of the last that came late */
    size_t idle_turns;        /* in a row: libmicrohttpd had work, and no bytes came or went */
    bool has_submitted;       /* requests went to the scheduler in this turn */
    size_t num_polled;        /* requests that libmicrohttpd asks for their replies every turn */
    struct srv_mhd_accept {
        bool last_closed;      /* the last open connection ended in this turn */
        bool waited_at_sweep;  /* a client waited to be accepted at the last sweep */
        bool waited_last_turn; /* a client waited after the last turn, with no connection open */
        bool backing_off;      /* the same after the turn before that: accepting pauses */
    } accept;

    LIST_HEAD(, srv_connection) connections;
    struct srv_connection **by_fd; /* [num_fds]; NULL: no connection */
    size_t num_fds;
    LIST_HEAD(, srv_connection) faulty; /* whose turn it is to be told of scan.fault */
    struct srv_handshakes {
        int epoll_fd;                    /* the sockets of suspended connections */
        size_t suspended, count;         /* how many; of them all under way */
        struct srv_connection_list list; /* oldest first */
    } handshakes;
    bool stopping; /* no connection is suspended any more */
    struct srv_lingers {
        int epoll_fd;
        TAILQ_HEAD(, srv_linger) list; /* the oldest first */
    } lingers;
    struct srv_turns {
        struct srv_connection_list waiting;
        size_t served; /* in this turn */
    } turns;
    struct srv_reserved {
        struct srv_connection_list list; /* the oldest first */
        size_t count;
    } reserved;

    /* memory.c: a block of exchanges, how many of them were ever used, and those free again:
     * freed by this thread, and freed by others. */
    struct srv_exchange *pool;
    size_t pool_used;
    struct srv_exchange *free_list;
    _Atomic(struct srv_exchange *) freed_elsewhere;
};

/* The main thread's.  `open` makes the descriptors; `start` runs loop->daemon, which is set in
 * between, as is listen_fd: a daemon with an epoll descriptor and no thread of its own.  `stop`
 * ends thread and daemon; it takes a loop that was only opened, and a zeroed one whose descriptors
 * are -1. */
bool srv_loop_open(struct srv_loop *loop, struct srv_http *http);
bool srv_loop_start(struct srv_loop *loop);
void srv_loop_stop(struct srv_loop *loop);

/* Any thread. */
void srv_loop_wake(struct srv_loop *loop);
void srv_loop_quiesce(struct srv_loop *loop); /* stops accepting connections */

/* `connected` returns NULL where memory is short. */
struct srv_connection *srv_loop_connected(struct srv_loop *loop, struct MHD_Connection *mhd,
                                          int fd);
void srv_loop_disconnected(struct srv_connection *connection);
struct srv_connection *srv_loop_find(const struct srv_loop *loop, int fd); /* NULL: none */

struct srv_connection *srv_connection_of(struct MHD_Connection *mhd); /* NULL: memory was short */

/* 0: none.  In a reserved place a deadline is SRV_RESERVED_MS away at most. */
void srv_connection_deadline(struct srv_connection *connection, uint64_t after_ms);

/* Ends our side after a reply that libmicrohttpd knows nothing of.  The library closes the
 * connection when the client sends more or ends its side, and the socket lingers, or after a
 * while. */
void srv_connection_finish(struct srv_connection *connection);

/* Shuts the connection down, in whatever state it is: libmicrohttpd closes it in the next turn. */
void srv_connection_end(struct srv_connection *connection);

/* ---- handshake.c ----
 *
 * TLS handshakes under way: a client that stops in the middle of one costs no time, and handshakes
 * are bounded in number.  libmicrohttpd would ask a handshake to go on in every turn
 * (mhd_workarounds.c, 14).  So a connection whose handshake waits for its client is suspended, its
 * socket watched by a descriptor of ours, and resumed when the client goes on. */

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

/* ---- turns.c ----
 *
 * Which requests and replies wait for a later turn of their event thread.  A turn lasts as long as
 * what it serves, and a client that asks for little waits for the turns of all others.  So what a
 * connection has queued up itself goes on only a few at a time: a request that was there before the
 * reply to the one before it, and a piece of a reply after the first.  Beyond SRV_TURN_PIPELINED in
 * a turn their connections wait, suspended, first come first served; each turn resumes so many.  A
 * connection that waits for its replies never waits here. */

#define SRV_TURN_PIPELINED 16

/* Whether the connection may go on in this turn.  Where it may not, it is suspended, and
 * libmicrohttpd asks again when it is resumed.  Only in libmicrohttpd's handler of requests and
 * its reader of replies. */
bool srv_turn_begins(struct srv_connection *connection);

/* Before each turn: resumes those whose turn it is; all of them where the loop stops. */
void srv_turns_resume(struct srv_loop *loop);

/* The connection is gone. */
void srv_turn_forget(struct srv_connection *connection);

/* ---- places.c ----
 *
 * Places of connections: max_connections of them, and a few beyond for probes.  A connection that
 * comes when max_connections are open is accepted into a reserved place.  Only what needs no API
 * key is answered there, and any other request is refused.  A reserved place is given up after one
 * reply, after SRV_RESERVED_MS without progress, or to a newer connection where SRV_MAX_RESERVED
 * are taken: a probe sends its head right after it has connected, so clients that keep thousands of
 * silent connections open do not keep it out.  A connection whose head comes when an ordinary place
 * is free takes that place. */

/* A connection comes; it is gone. */
void srv_place_take(struct srv_connection *connection);
void srv_place_leave(struct srv_connection *connection);

/* Whether the connection has an ordinary place, or gets one that has become free. */
bool srv_place_is_ordinary(struct srv_connection *connection);

/* After a turn: ends the oldest connections in reserved places beyond SRV_MAX_RESERVED. */
void srv_places_bound(struct srv_loop *loop);

/* ---- linger.c ----
 *
 * Sockets of closed connections whose clients may still be sending.  Closing a socket into which
 * bytes still arrive resets the connection, and a client that is told so while it sends never reads
 * its reply.  So such a socket is kept after the reply and the end of our side, and what arrives is
 * thrown away unread: up to SRV_LINGER_BYTES, for SRV_LINGER_MS in all and SRV_LINGER_IDLE_MS
 * without a byte.  Lingering sockets and open connections are together no more than connections may
 * be: where one more connection comes, the socket that has lingered longest is closed, by another
 * loop within a sweep. */

void srv_lingers_close(struct srv_loop *loop); /* all, at the end */

/* Keeps the socket `fd` of a connection that is about to be closed.  Where descriptors or memory
 * are short it is not kept. */
void srv_linger_begin(struct srv_loop *loop, int fd);

/* In each turn: throws away what has arrived. */
void srv_lingers_serve(struct srv_loop *loop, uint64_t now_ns);

/* In each sweep: closes sockets whose time has passed. */
void srv_lingers_sweep(struct srv_loop *loop, uint64_t now_ns);

/* A connection has come: closes sockets that have no room beside all connections. */
void srv_lingers_bound(struct srv_loop *loop);

/* ---- mhd_workarounds.c, which lists defects of libmicrohttpd 0.9.75 by number ---- */

/* 4: after a sweep.  A listener that has stopped accepting is made to accept again. */
void srv_mhd_accept_at_sweep(struct srv_loop *loop);

/* 5: after a turn.  Sets accept.backing_off. */
void srv_mhd_accept_after_turn(struct srv_loop *loop);

/* Milliseconds that the next turn is to wait for the listener's sake: 0 to accept again (4), more
 * to pause accepting (5), -1: as long as it likes.  Once a turn: it clears last_closed. */
int srv_mhd_accept_wait_ms(struct srv_mhd_accept *accept);

/* 7, 8, 13 and 15: has the bytes that this thread's libmicrohttpd reads scanned first
 * (scan.h), bounds how many sockets report at a time, and notes those that have ended. */
void srv_mhd_begin_reading(struct srv_loop *loop);

/* Whether this thread is one of those: others read for themselves. */
bool srv_mhd_reads(void);

/* The same for `count` bytes that a connection has received: returns how many of them, from the
 * first on, libmicrohttpd may see; 0: none of these, the next may follow; -1: none any more. */
ssize_t srv_mhd_scan(struct srv_connection *connection, void *bytes, size_t count);

/* 7: whether the client has closed its side and everything before that end has been read. */
bool srv_mhd_client_closed(const struct srv_connection *connection);

#endif
