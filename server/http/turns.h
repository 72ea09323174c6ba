/* turns.h: which requests and replies wait for a later turn of their event thread.
 *
 * A turn lasts as long as what it serves, and a client that asks for little waits for the turns of
 * all others.  So what a connection has queued up itself goes on only a few at a time: a request
 * that was there before the reply to the one before it, and a piece of a reply after the first.
 * Beyond SRV_TURN_PIPELINED in a turn their connections wait, suspended, first come first served;
 * each turn resumes so many.  A connection that waits for its replies never waits here.  Everything
 * is the loop's thread's. */
#ifndef SRV_HTTP_TURNS_H
#define SRV_HTTP_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct srv_connection;
struct srv_loop;

#define SRV_TURN_PIPELINED 16

struct srv_turns {
    TAILQ_HEAD(, srv_connection) waiting;
    size_t count;  /* of `waiting` */
    size_t served; /* in this turn */
};

/* A connection's. */
struct srv_turn {
    bool waits, granted;
    TAILQ_ENTRY(srv_connection) entry;
};

void srv_turns_init(struct srv_turns *turns);

/* Whether the connection may go on in this turn.  Where it may not, it is suspended, and
 * libmicrohttpd asks again when it is resumed.  Only in libmicrohttpd's handler of requests and
 * its reader of replies. */
bool srv_turn_begins(struct srv_connection *connection);

/* Before each turn: resumes those whose turn it is; all of them where the loop stops. */
void srv_turns_resume(struct srv_loop *loop);

/* The connection is gone. */
void srv_turn_forget(struct srv_connection *connection);

#endif
