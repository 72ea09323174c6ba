/* replies.h: requests that have ended: their replies are written, and they are handed back. */
#ifndef SRV_REPLIES_H
#define SRV_REPLIES_H

#include "schedule/dispatch.h"

/* The request's reply is due.  The engine owner's. */
void srv_replies_add(struct srv_dispatch *dispatch, struct srv_request *request);

/* Writes the replies that are due and hands the requests back; large replies go to the I/O
 * workers.  The engine owner's. */
void srv_replies_send(struct srv_dispatch *dispatch);

/* On an I/O worker's thread: runs the handler of the request's route and hands the request back. */
void srv_replies_handle(struct srv_dispatch *dispatch, struct srv_request *request);

/* On an I/O worker's thread: writes a piece of a large reply; true while there is more, else the
 * request has been handed back. */
bool srv_replies_write_piece(struct srv_dispatch *dispatch, struct srv_request *request);

/* Calls task(request) for each of requests [count], on all threads where `bytes` make that pay. */
void srv_replies_run(struct srv_dispatch *dispatch, void (*task)(struct srv_request *request),
                     struct srv_request *requests[], size_t count, size_t bytes);

#endif
