/* dispatch.h: where each job and item waits, its stages one after another, and its reply.
 *
 * The engine owner (scheduler.c says which thread that is) calls these functions, but those that
 * name an I/O worker; nothing here locks.  Items and jobs wait in a fair queue.  Of a session's
 * items only the first is queued; the others follow it in a list (srv_item.next_of_session). */
#ifndef SRV_DISPATCH_H
#define SRV_DISPATCH_H

#include "schedule/admission.h"
#include "schedule/codec.h"
#include "schedule/job.h"

/* A long computation that runs, or that another one interrupts. */
struct srv_running_call {
    struct srv_request *request;
    struct srv_item *step; /* its item, whose session must not change; NULL: none */
    size_t work;
    struct srv_error stop_error; /* why it is to stop; SRV_OK: it goes on */
};

struct srv_dispatch {
    const struct srv_scheduler_context *context;
    struct srv_admission admission;
    struct srv_codec_workers *codec_workers;
    struct srv_request **ended; /* [capacity] whose replies are due */
    size_t num_ended;
    struct srv_fair_queue queue;
    struct attn_yield yield; /* of long computations */
    /* [num_running], each inside the one before it */
    struct srv_running_call running[ATTN_YIELD_LEVELS];
    size_t num_running;
    bool work_waiting; /* a step or change that a pause may run was queued after the last pause */
    bool interrupting_waiting; /* and a computation that may interrupt the running one */
};

/* Makes an empty queue and room for `capacity` requests; false where memory is short.  The caller
 * sets codec_workers and yield. */
bool srv_dispatch_init(struct srv_dispatch *dispatch, const struct srv_scheduler_context *context,
                       size_t capacity);
void srv_dispatch_fini(struct srv_dispatch *dispatch);

/* Parses the bodies of requests [count], `bytes` in all, on as many threads as pay, and queues what
 * they ask for.  The array is used up. */
void srv_dispatch_parse_and_queue(struct srv_dispatch *dispatch, struct srv_request *requests[],
                                  size_t count, size_t bytes);

/* Each takes work out of the queue and does it: a batch of steps of one layer; one long step
 * (steps.h: a prefill or a heavy decode); a job of SRV_QUEUE_ATTENDS or SRV_QUEUE_PIECES, that is
 * one long computation or one piece; the next change that may begin; at a pause, one long step or
 * computation that may interrupt the running one (running.c).  A bool is false where there is
 * none. */
bool srv_dispatch_run_batch(struct srv_dispatch *dispatch);
void srv_dispatch_run_long_step(struct srv_dispatch *dispatch);
void srv_dispatch_run_job(struct srv_dispatch *dispatch, enum srv_queue_kind kind);
bool srv_dispatch_run_change(struct srv_dispatch *dispatch);
bool srv_dispatch_run_interrupting(struct srv_dispatch *dispatch);

/* The first job that waits for a change and may begin now, removed from the queue and charged where
 * `pop`; NULL where there is none. */
struct srv_job *srv_dispatch_find_change(struct srv_dispatch *dispatch, bool pop);

/* Whether anything waits that a round would do. */
bool srv_dispatch_has_work(const struct srv_dispatch *dispatch);

/* Whether all that is queued takes less time than waking another thread. */
bool srv_dispatch_fits_event_thread(struct srv_dispatch *dispatch);

/* Ends all that is cancelled, in the queue or after another item of its session. */
void srv_dispatch_end_cancelled(struct srv_dispatch *dispatch);

/* Refuses, with `draining`, all that is queued, and requests [count] that have not been read. */
void srv_dispatch_refuse(struct srv_dispatch *dispatch, struct srv_request *requests[],
                         size_t count);

/* The error of what is refused or stopped because the daemon stops. */
void srv_dispatch_fail_draining(struct srv_error *error);

/* ---- unread.c: jobs that are parked while their sessions' tokens are on the disk --------------
 *
 * `park`: whether the job that comes is parked; `unpark` ends that; `pop_parked`: the next job that
 * is parked no longer, maybe with an error, NULL where there is none; `release_parked` goes on with
 * all of them. */
bool srv_dispatch_park(struct srv_dispatch *dispatch, struct srv_job *job);
void srv_dispatch_unpark(struct srv_job *job);
struct srv_job *srv_dispatch_pop_parked(struct srv_dispatch *dispatch);
void srv_dispatch_release_parked(struct srv_dispatch *dispatch);

/* ---- running.c: long computations, which pause for others -------------------------------------
 *
 * Begins a long computation, after replies that are due, and returns its yield: NULL where it
 * interrupts another and is short.  `end` ends the innermost one; `error` is that computation's. */
const struct attn_yield *srv_running_begin(struct srv_dispatch *dispatch,
                                           struct srv_request *request, struct srv_item *step,
                                           size_t work);
void srv_running_end(struct srv_dispatch *dispatch, struct srv_error *error);

/* The innermost one, where one runs. */
struct srv_running_call *srv_running_innermost(struct srv_dispatch *dispatch);

/* The first job or item that may interrupt the innermost one, removed from the queue and charged
 * where `pop`; NULL where there is none. */
struct srv_queue_node *srv_running_find_interrupting(struct srv_dispatch *dispatch, bool pop);

/* Notes whether something is queued that a pause of the innermost one may run. */
void srv_running_note_waiting(struct srv_dispatch *dispatch);

/* ---- replies.c: requests that have ended: their replies are written, and they are handed back --
 *
 * The request's reply is due. */
void srv_replies_add(struct srv_dispatch *dispatch, struct srv_request *request);

/* Writes the replies that are due and hands the requests back; large replies go to the I/O
 * workers. */
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
