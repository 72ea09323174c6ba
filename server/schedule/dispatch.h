/* dispatch.h: what a round of the scheduler consists of: reading bodies, batches of steps, long
 * computations, pieces, replies.
 *
 * The engine owner (scheduler.c says which thread that is) calls these functions, but for
 * srv_dispatch_handle and srv_dispatch_write_piece; nothing here locks.  Items and jobs wait in a
 * fair queue.  Of a session's items only the first is queued; the others follow it in a list
 * (srv_item.next_of_session). */
#ifndef SRV_DISPATCH_H
#define SRV_DISPATCH_H

#include "schedule/admission.h"
#include "schedule/io_workers.h"
#include "schedule/job.h"

/* A long computation that runs, or that another one interrupts. */
struct srv_long {
    struct srv_request *request;
    struct srv_item *step; /* its item, whose session must not change; NULL: an attend */
    size_t work;
    struct srv_error stop_error; /* why it is to stop; SRV_OK: it goes on */
};

struct srv_dispatch {
    const struct srv_scheduler_context *context;
    struct srv_admission admission;
    struct srv_io_workers *io_workers;
    struct srv_request **ended; /* [capacity] whose replies are due */
    size_t num_ended;
    struct srv_fair_queue queue;
    struct attn_yield yield;                  /* of long computations */
    struct srv_long longs[ATTN_YIELD_LEVELS]; /* [num_longs], each inside the one before it */
    size_t num_longs;
    bool work_waiting; /* a step or change that a pause may run was queued after the last pause */
    bool interrupting_waiting; /* and a computation that may interrupt the running one */
};

/* Makes an empty queue and room for `capacity` requests; false where memory is short.  The caller
 * sets io_workers and yield. */
bool srv_dispatch_init(struct srv_dispatch *dispatch, const struct srv_scheduler_context *context,
                       size_t capacity);
void srv_dispatch_fini(struct srv_dispatch *dispatch);

/* Parses the bodies of requests [count], `bytes` in all, on as many threads as pay, and queues what
 * they ask for.  The array is used up. */
void srv_dispatch_parse_and_queue(struct srv_dispatch *dispatch, struct srv_request *requests[],
                                  size_t count, size_t bytes);

/* Each takes work of one kind out of the queue and does it: a batch of steps of one layer; one long
 * step (batch.h: a prefill or a heavy decode); one attention over given rows; one piece of an
 * export or import.  srv_dispatch_run_batch is false where no item waits for a batch. */
bool srv_dispatch_run_batch(struct srv_dispatch *dispatch);
void srv_dispatch_run_long_step(struct srv_dispatch *dispatch);
void srv_dispatch_run_attend(struct srv_dispatch *dispatch);
void srv_dispatch_run_piece(struct srv_dispatch *dispatch);

/* Jobs whose sessions have tokens on the disk (unread.c).  `park`: whether the job that comes waits
 * for one; `unpark` ends its wait; `take_parked`: the next job whose wait has ended, maybe with an
 * error, NULL where there is none; `release` goes on with all of them. */
bool srv_dispatch_park(struct srv_dispatch *dispatch, struct srv_job *job);
void srv_dispatch_unpark(struct srv_job *job);
struct srv_job *srv_dispatch_take_parked(struct srv_dispatch *dispatch);
void srv_dispatch_release_parked(struct srv_dispatch *dispatch);

/* Begins the next job that waits for its turn, or for the end of a long step. */
void srv_dispatch_run_change(struct srv_dispatch *dispatch);

/* Whether a job may begin now: a change to a session waits for the end of a running long step,
 * which may be of that session. */
bool srv_dispatch_may_begin(const struct srv_dispatch *dispatch, const struct srv_job *job);

/* The first job that waits to begin and may, removed from the queue and charged where `take`; NULL
 * where there is none. */
struct srv_job *srv_dispatch_find_change(struct srv_dispatch *dispatch, bool take);

/* At a pause of a long computation: runs one attention or one long step that may interrupt it
 * (interrupt.c); false where there is none. */
bool srv_dispatch_run_interrupting(struct srv_dispatch *dispatch);

/* Begins a long computation, after replies that are due, and ends the innermost one; `error` is
 * that computation's. */
void srv_dispatch_begin_long(struct srv_dispatch *dispatch, const struct srv_long *started);
void srv_dispatch_end_long(struct srv_dispatch *dispatch, struct srv_error *error);

/* The long computation that runs; NULL: none. */
struct srv_long *srv_dispatch_running(struct srv_dispatch *dispatch);

/* Whether that is to go on: false, with stop_error set, where its request is cancelled. */
bool srv_dispatch_long_goes_on(struct srv_dispatch *dispatch);

/* Ends all that is cancelled, in the queue or after another item of its session. */
void srv_dispatch_end_cancelled(struct srv_dispatch *dispatch);

/* Writes the replies that are due and hands the requests back; large replies go to the I/O
 * workers. */
void srv_dispatch_reply(struct srv_dispatch *dispatch);

/* Calls task(context, i) for each i below count, on all threads where `bytes` make that pay. */
void srv_dispatch_run_tasks(struct srv_dispatch *dispatch, void (*task)(void *context, size_t i),
                            void *context, size_t count, size_t bytes);

/* On an I/O worker's thread: runs the handler of the request's route and hands the request back;
 * false, since nothing is left to do. */
bool srv_dispatch_handle(struct srv_dispatch *dispatch, struct srv_request *request);

/* On an I/O worker's thread: writes a piece of a large reply; true while there is more, else the
 * request has been handed back. */
bool srv_dispatch_write_piece(struct srv_dispatch *dispatch, struct srv_request *request);

/* Refuses, with `draining`, all that is queued, and requests [count] that have not been read. */
void srv_dispatch_refuse(struct srv_dispatch *dispatch, struct srv_request *requests[],
                         size_t count);

/* The error of what is refused or stopped because the daemon stops. */
void srv_dispatch_fail_draining(struct srv_error *error);

bool srv_dispatch_has_work(const struct srv_dispatch *dispatch);

/* The yield for the long computation that runs; NULL where that interrupts another and is short. */
const struct attn_yield *srv_dispatch_yield(struct srv_dispatch *dispatch);

/* Notes whether something is queued that a pause of the long computation that runs may run. */
void srv_dispatch_note_waiting(struct srv_dispatch *dispatch);

/* The first node of a kind that may interrupt the long computation that runs, removed from the
 * queue and charged where `take`; NULL where there is none. */
struct srv_queue_node *srv_dispatch_find_interrupting(struct srv_dispatch *dispatch,
                                                      enum srv_queue_kind kind, bool take);

/* Whether all that is queued takes less time than waking another thread. */
bool srv_dispatch_is_small(struct srv_dispatch *dispatch);

#endif
