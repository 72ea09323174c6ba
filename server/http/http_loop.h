/* http_loop.h: event threads: each waits for its sockets, runs libmicrohttpd, keeps deadlines.
 *
 * libmicrohttpd's own epoll thread blocks in epoll_wait before it serves what it has whenever a
 * multiple of 128 connections are ready at once, and its poll thread starves connections past a few
 * hundred.  So it runs here in its external mode: our thread waits, MHD_run never blocks, and a
 * batch of resumed connections costs one wake instead of one each.
 *
 * libmicrohttpd restarts its timeout on every byte; deadlines here are absolute, one per
 * connection, and a connection whose deadline has passed is shut down. */
#ifndef SRV_HTTP_LOOP_H
#define SRV_HTTP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SRV_DATE_MAX sizeof "Sun, 06 Nov 1994 08:49:37 GMT"

struct MHD_Daemon;
struct srv_credentials;
struct srv_exchange;
struct srv_loop;

/* An open connection.  Everything in it belongs to its loop's thread. */
struct srv_connection {
    struct srv_loop *loop;
    int fd;                              /* libmicrohttpd's to close */
    void *tls;                           /* its session (tls.h), NULL for plain HTTP */
    struct srv_credentials *credentials; /* of that, where they are not libmicrohttpd's */
    uint64_t deadline_ns;                /* 0: none */
    struct srv_exchange *exchange;       /* the request that is on it, or NULL */
    struct srv_connection *next, **link;
};

#define SRV_LINGER_MAX 64 /* connections that linger at once; others are closed at once */

struct srv_linger {
    int fd;
    uint64_t deadline_ns;
    size_t bytes; /* read and dropped so far */
};

enum srv_loop_wish { SRV_LOOP_RUN, SRV_LOOP_QUIESCE, SRV_LOOP_STOP };

struct srv_loop {
    struct srv_http *http;
    struct MHD_Daemon *daemon;
    void (*late)(
        struct srv_exchange *exchange); /* its deadline passed; what it is to do about it */
    void (*look)(struct srv_exchange *exchange, uint64_t now_ns); /* at each sweep, if it is not */
    void (*turned)(struct srv_loop *loop); /* libmicrohttpd has done all it can for now */
    int listen_fd;                         /* all loops' */
    size_t max_connections;                /* its share of them */
    int wake_fd;
    atomic_bool woken;  /* there is something to do that no socket tells of */
    atomic_bool asleep; /* or about to be: who wakes it has to write to wake_fd */
    bool running;       /* the thread is there to be joined */
    pthread_t thread;
    atomic_int wish;     /* enum srv_loop_wish */
    uint64_t sweep_ns;   /* when deadlines are looked at next */
    size_t silent_turns; /* in which libmicrohttpd had work, but nothing was heard */
    bool submitted;      /* requests went to the scheduler in this turn */
    size_t waiting;      /* requests that are called again each turn until they are answered */
    struct srv_connection *connections;
    bool emptied;  /* the last of them has ended in this turn */
    bool unheard;  /* somebody waited to be accepted at the last sweep */
    bool stranger; /* somebody waited behind the last turn, and nobody is connected */
    bool vain;     /* so it was behind the turn before too */
    /* http_reply.c's: the date that its replies have, and of which second it is. */
    time_t dated;
    char date[SRV_DATE_MAX];
    /* http_memory.c's: a block of exchanges, those of it that were ever used, and lists of those
     * that are to be used again: its own, and what other threads have given back. */
    struct srv_exchange *kept;
    size_t num_used;
    struct srv_exchange *spare;
    _Atomic(struct srv_exchange *) given_back;
    struct srv_linger lingering[SRV_LINGER_MAX];
    size_t lingering_count;
};

/* `open` makes wake_fd; `start` runs loop->daemon, which is set in between, with the callbacks,
 * listen_fd and max_connections.  The daemon has an epoll descriptor and no thread of its own.
 * `stop` ends thread and daemon; it takes a loop that was only opened, or zeroed with wake_fd
 * -1. */
bool srv_loop_open(struct srv_loop *loop, struct srv_http *http);
bool srv_loop_start(struct srv_loop *loop);
void srv_loop_stop(struct srv_loop *loop);

/* From any thread. */
void srv_loop_wake(struct srv_loop *loop);
void srv_loop_quiesce(struct srv_loop *loop); /* accepts no more connections */

/* From the loop's thread.  NULL where memory is short. */
struct srv_connection *srv_loop_connected(struct srv_loop *loop, int fd);
void srv_loop_disconnected(struct srv_connection *connection);                      /* takes NULL */
void srv_connection_deadline(struct srv_connection *connection, uint64_t after_ms); /* 0: none */

/* Keeps the socket of a connection that is about to be closed with unread bytes in it, and drops
 * what still arrives for a while: closing at once would reset the connection, and the client might
 * never see the reply. */
void srv_loop_linger(struct srv_loop *loop, int fd);

#endif
