/* loop.h: event threads: each waits for its sockets, runs libmicrohttpd, keeps deadlines.
 *
 * libmicrohttpd runs in its external mode: our thread waits and MHD_run never blocks, so that a
 * batch of resumed connections costs one wake (mhd_workarounds.c, 1 and 2, says what is wrong with
 * its own threads).  Deadlines are absolute, one per connection, and a connection whose deadline
 * has passed is shut down (3: libmicrohttpd's timeouts restart on every byte). */
#ifndef SRV_HTTP_LOOP_H
#define SRV_HTTP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/handshake.h"
#include "http/linger.h"
#include "http/mhd_workarounds.h"
#include "http/places.h"
#include "http/scan.h"
#include "http/turns.h"

struct MHD_Connection;
struct MHD_Daemon;
struct srv_exchange;
struct srv_http;
struct srv_loop;
struct srv_tls_credentials;

/* An open connection, which belongs to its loop's thread. */
struct srv_connection {
    struct srv_loop *loop;
    struct MHD_Connection *mhd;
    int fd;                                  /* closed by libmicrohttpd */
    atomic_size_t *held;                     /* [2]: of its address (clients.h) */
    void *tls;                               /* its session (tls.h), NULL for plain HTTP */
    struct srv_tls_credentials *credentials; /* of the session; NULL: those it began with */
    uint64_t deadline_ns;                    /* 0: none */
    struct srv_exchange *exchange;           /* the request in progress, or NULL */
    struct srv_scan scan;                    /* of all bytes that libmicrohttpd has been given */
    uint64_t served;                         /* of scan.requests, those whose exchange has ended */
    struct srv_handshake handshake;
    struct srv_turn turn;
    struct srv_http_place place;
    LIST_ENTRY(srv_connection) link;        /* in loop->connections */
    LIST_ENTRY(srv_connection) faulty_link; /* in loop->faulty, where is_faulty */
    bool may_have_ended; /* the client's side; false: its socket would have said so */
    bool finished;       /* our side: libmicrohttpd is told that the client's has ended */
    bool pipelines;      /* the next request came before the reply to the last */
    bool refused;        /* the client has been told of scan.fault */
    bool is_faulty;
};

enum srv_loop_command { SRV_LOOP_RUN, SRV_LOOP_QUIESCE, SRV_LOOP_STOP };

/* Fields belong to the loop's thread unless they are atomic. */
struct srv_loop {
    struct srv_http *http;
    struct MHD_Daemon *daemon;
    void (*on_deadline)(struct srv_exchange *exchange); /* the connection is then shut down */
    void (*on_sweep)(struct srv_exchange *exchange, uint64_t now_ns); /* every 250 ms until then */
    void (*after_turn)(struct srv_loop *loop); /* libmicrohttpd has done all it can for now */
    int listen_fd;                             /* shared by all loops */
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
    struct srv_mhd_accept accept;

    LIST_HEAD(, srv_connection) connections;
    struct srv_connection **by_fd; /* [num_fds]; NULL: no connection */
    size_t num_fds;
    LIST_HEAD(, srv_connection) faulty; /* whose turn it is to be told of scan.fault */
    struct srv_handshakes handshakes;
    bool stopping; /* no connection is suspended any more */
    struct srv_lingers lingers;
    struct srv_turns turns;
    struct srv_reserved reserved;

    /* memory.c: a block of exchanges, how many of them were ever used, and those free again:
     * freed by this thread, and freed by others. */
    struct srv_exchange *pool;
    size_t pool_used;
    struct srv_exchange *free_list;
    _Atomic(struct srv_exchange *) freed_elsewhere;
};

/* `open` makes wake_fd; `start` runs loop->daemon, which is set in between along with the
 * callbacks and listen_fd.  The daemon has an epoll descriptor and no thread of
 * its own. `stop` ends thread and daemon; it takes a loop that was only opened, and a zeroed one
 * whose wake_fd is -1. */
bool srv_loop_open(struct srv_loop *loop, struct srv_http *http);
bool srv_loop_start(struct srv_loop *loop);
void srv_loop_stop(struct srv_loop *loop);

/* Any thread. */
void srv_loop_wake(struct srv_loop *loop);
void srv_loop_quiesce(struct srv_loop *loop); /* stops accepting connections */

/* The loop's thread only.  `connected` returns NULL where memory is short; `disconnected` takes
 * NULL. */
struct srv_connection *srv_loop_connected(struct srv_loop *loop, struct MHD_Connection *mhd,
                                          int fd);
void srv_loop_disconnected(struct srv_connection *connection);
struct srv_connection *srv_loop_find(const struct srv_loop *loop, int fd); /* NULL: none */

/* 0: none.  In a reserved place (places.h) a deadline is SRV_RESERVED_MS away at most. */
void srv_connection_deadline(struct srv_connection *connection, uint64_t after_ms);

/* Ends our side after a reply that libmicrohttpd knows nothing of.  The library closes the
 * connection when the client sends more or ends its side, and the socket lingers, or after a
 * while. */
void srv_connection_finish(struct srv_connection *connection);

/* Shuts the connection down, in whatever state it is: libmicrohttpd closes it in the next turn. */
void srv_connection_end(struct srv_connection *connection);

#endif
