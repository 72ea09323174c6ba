/* running.h: long computations, which pause for others.  The engine owner's. */
#ifndef SRV_RUNNING_H
#define SRV_RUNNING_H

#include "schedule/dispatch.h"

/* Begins a long computation, after replies that are due, and returns its yield: NULL where it
 * interrupts another and is short.  `end` ends the innermost one; `error` is that computation's. */
const struct attn_yield *srv_running_begin(struct srv_dispatch *dispatch,
                                           struct srv_request *request, struct srv_item *step,
                                           size_t work);
void srv_running_end(struct srv_dispatch *dispatch, struct srv_error *error);

/* The innermost one; NULL: none. */
struct srv_running_call *srv_running_innermost(struct srv_dispatch *dispatch);

/* Whether that is to go on: false, with stop_error set, where its request is cancelled. */
bool srv_running_goes_on(struct srv_dispatch *dispatch);

/* The first job or item that may interrupt the innermost one, removed from the queue and charged
 * where `take`; NULL where there is none. */
struct srv_queue_node *srv_running_find_interrupting(struct srv_dispatch *dispatch, bool take);

/* Notes whether something is queued that a pause of the innermost one may run. */
void srv_running_note_waiting(struct srv_dispatch *dispatch);

#endif
