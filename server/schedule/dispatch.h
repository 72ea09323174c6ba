/* dispatch.h: where each job and item waits, and its stages one after another.
 *
 * The engine owner (scheduler.c says which thread that is) calls these functions; nothing here
 * locks.  Items and jobs wait in a fair queue.  Of a session's items only the first is queued; the
 * others follow it in a list (srv_item.next_of_session).  running.h has long computations,
 * replies.h what has ended. */
#ifndef SRV_DISPATCH_H
#define SRV_DISPATCH_H

#include "schedule/admission.h"
#include "schedule/codec_workers.h"
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

/* Each takes work of one kind out of the queue and does it: a batch of steps of one layer; one long
 * step (batch.h: a prefill or a heavy decode); one long computation of a job; one piece; the next
 * change that may begin; at a pause, one long step or computation that may interrupt the running
 * one (running.c).  A bool is false where there is none. */
bool srv_dispatch_run_batch(struct srv_dispatch *dispatch);
void srv_dispatch_run_long_step(struct srv_dispatch *dispatch);
void srv_dispatch_run_attend(struct srv_dispatch *dispatch);
void srv_dispatch_run_piece(struct srv_dispatch *dispatch);
void srv_dispatch_run_change(struct srv_dispatch *dispatch);
bool srv_dispatch_run_interrupting(struct srv_dispatch *dispatch);

/* Jobs whose sessions have tokens on the disk (unread.c).  `park`: whether the job that comes waits
 * for one; `unpark` ends its wait; `take_parked`: the next job whose wait has ended, maybe with an
 * error, NULL where there is none; `release` goes on with all of them. */
bool srv_dispatch_park(struct srv_dispatch *dispatch, struct srv_job *job);
void srv_dispatch_unpark(struct srv_job *job);
struct srv_job *srv_dispatch_take_parked(struct srv_dispatch *dispatch);
void srv_dispatch_release_parked(struct srv_dispatch *dispatch);

/* The first job that waits for a change and may begin now, removed from the queue and charged where
 * `take`; NULL where there is none. */
struct srv_job *srv_dispatch_find_change(struct srv_dispatch *dispatch, bool take);

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

#endif
