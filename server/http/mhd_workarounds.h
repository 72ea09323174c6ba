/* mhd_workarounds.h: answers to defects of libmicrohttpd 0.9.75; the .c file lists them by number.
 *
 * All functions run on a loop's thread. */
#ifndef SRV_MHD_WORKAROUNDS_H
#define SRV_MHD_WORKAROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct MHD_Response;
struct srv_connection;
struct srv_loop;

/* The listener's state for 4 and 5, from turn to turn. */
struct srv_mhd_accept {
    bool last_closed;      /* the last open connection ended in this turn */
    bool waited_at_sweep;  /* a client waited to be accepted at the last sweep */
    bool waited_last_turn; /* a client waited after the last turn, with no connection open */
    bool backing_off;      /* the same after the turn before that: accepting pauses */
};

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
