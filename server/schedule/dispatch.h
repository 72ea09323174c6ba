/* dispatch.h: where each job and item waits, its stages one after another, and its reply.
 *
 * The engine thread (scheduler.c says which thread that is) calls these functions, but those that
 * name an I/O worker; nothing here locks.  Items and jobs wait in a fair queue.  Of a session's
 * items only the first is queued; the others follow it in a list (srv_item.next_of_session). */
#ifndef SRV_DISPATCH_H
#define SRV_DISPATCH_H

#include "base/clock.h"
#include "schedule/job.h"
#include "wire/route.h"

/* ---- admission.c -------------------------------------------------------------------------------
 *
 * Who may join the queue: its depth, the shares of callers, the wait to expect.
 *
 * A request counts from admission until its reply is handed back.  Where several callers (API keys)
 * are known, the last eighth of the queue is reserved for callers that have less than their share
 * of it, so that nobody is refused because another caller has filled the queue.
 *
 * Checking takes no lock.  srv_admission_count_ended is the engine thread's (scheduler.c). */

/* Of the requests of one route. */
struct srv_route_pace {
    atomic_size_t depth;          /* requests that wait or run */
    atomic_uint_fast64_t ns_each; /* mean time from one end to the next while any run; 0: unknown */
    uint64_t ended_ns;            /* the last end; this and the next two are the engine thread's */
    uint64_t busy_ns, count;      /* the sums that ns_each is the quotient of */
};

struct srv_admission {
    size_t capacity;
    atomic_size_t depth;                            /* requests that wait or run */
    atomic_size_t running;                          /* those of them whose computation has begun */
    atomic_size_t depth_of_caller[SRV_MAX_CALLERS]; /* requests of each that wait or run */
    atomic_size_t num_callers;    /* 1 more than the highest caller that ever joined */
    struct srv_route_pace *paces; /* [routes->count] */
    const struct srv_routes *routes;
};

/* False where memory is short. */
bool srv_admission_init(struct srv_admission *admission, size_t capacity,
                        const struct srv_routes *routes);
void srv_admission_fini(struct srv_admission *admission);

/* Whether there is a place for the request, and its deadline is likely to be kept.  Any thread.
 * Errors: queue_full, deadline_exceeded. */
enum srv_error_code srv_admission_check(const struct srv_admission *admission,
                                        const struct srv_request *request, struct srv_error *error);

/* Counts a request that joins the queue, and one that leaves it.  The capacity holds if checking
 * and joining are done under one lock. */
void srv_admission_join(struct srv_admission *admission, const struct srv_request *request);
void srv_admission_leave(struct srv_admission *admission, const struct srv_request *request);

/* Counts a request as running until it leaves, where it does not yet count.  The engine
 * thread's. */
void srv_admission_count_begun(struct srv_admission *admission, struct srv_request *request);

/* Counts requests that have just been computed towards the paces of their routes. */
void srv_admission_count_ended(struct srv_admission *admission,
                               struct srv_request *const requests[], size_t count);

/* After how many seconds a refused request should be sent again: the wait to expect, rounded up,
 * from 1 to SRV_MAX_RETRY_S.  Any thread. */
unsigned srv_admission_retry_after_s(const struct srv_admission *admission,
                                     const struct srv_request *request);

/* ---- request_codec.c and codec_workers.c -------------------------------------------------------
 *
 * The bytes of a request: its body, from decompressing to parsing, and its reply, from writing
 * to compressing (request_codec.c); and the I/O workers, threads that do this to large ones
 * (codec_workers.c).
 *
 * The engine thread reads and writes what is small itself, on all threads of the engine.  A body or
 * reply that would hold up all other requests for milliseconds goes to an I/O worker and comes back
 * when it is done. */

#define SRV_CANCEL_NS (100 * SRV_MS_NS) /* between two searches for cancelled requests in a queue */

/* Parses a body into request->job, or fills the reply with the error.  Does nothing where the body
 * was parsed before; leaves one unparsed, with request->expands set, that turns out to be large
 * when it is decompressed by another thread than a worker's. */
void srv_parse_body(struct srv_request *request);
bool srv_body_is_parsed(const struct srv_request *request);

/* Writes the reply of a job that has ended, or one piece of the reply: true while there is more.
 * Does nothing where the reply is already an error, since the body could not be parsed. */
void srv_write_reply(struct srv_request *request);
bool srv_write_reply_piece(struct srv_request *request);

/* Whether to go on with a request.  A small reply is always written.  The result of a cancelled
 * /attend is dropped.  A reply that says how a session was changed is written after its deadline
 * too.  At a stop its connection is closed silently: the step was applied, a refusal would lie.
 * Errors: those of srv_request_check_cancelled. */
enum srv_error_code srv_codec_goes_on(struct srv_request *request, struct srv_error *error);

/* ---- I/O workers ----------------------------------------------------------------------------- */

/* Reads the body of a request, or writes a piece of its reply, on a worker's thread.  True where
 * there is more to do: the function is called again in the turn of that caller. */
typedef bool srv_codec_work(void *context, struct srv_request *request);

/* Starts `threads` workers that call work(context, request) for the requests that they are given.
 * Cancelled requests are passed to `work` soon, out of turn.  False where memory or threads are
 * short. */
bool srv_codec_workers_open(struct srv_codec_workers **out, unsigned threads, srv_codec_work *work,
                            void *context);

/* Queues a request; false where none is queued any more.  Any thread. */
bool srv_codec_workers_accept(struct srv_codec_workers *workers, struct srv_request *request);

/* Queues those of requests [count] that have a large body to be read or a large reply to be
 * written.  The others, and those that cannot be queued, move up; returns how many they are.  Any
 * thread. */
size_t srv_codec_workers_accept_large(struct srv_codec_workers *workers,
                                      struct srv_request *requests[], size_t count);

/* Does all that is queued and ends the threads; nothing is queued from then on. */
void srv_codec_workers_finish(struct srv_codec_workers *workers);
void srv_codec_workers_free(struct srv_codec_workers *workers); /* finished ones; takes NULL */

/* The function of a struct srv_cancel, whose context is the request: whether to go on with a
 * request.  On a worker's thread it also passes queued requests that are cancelled to `work`; on
 * other threads it is always SRV_OK.  Errors: those of srv_request_check_cancelled. */
enum srv_error_code srv_codec_check(void *request, struct srv_error *error);

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
    uint64_t next_retry_ns;    /* what waits for memory looks again then */
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

/* ---- unread.c: what waits while tokens are on the disk, or memory is short ----------------------
 *
 * `park`: whether the job that comes, or is to make a change, is parked for a session; `unpark`
 * ends that; `pop_parked`: the next job that is parked no longer, maybe with an error, NULL where
 * there is none; `release_parked` goes on with all of them. */
bool srv_dispatch_park(struct srv_dispatch *dispatch, struct srv_job *job);
void srv_dispatch_unpark(struct srv_job *job);
struct srv_job *srv_dispatch_pop_parked(struct srv_dispatch *dispatch);
void srv_dispatch_release_parked(struct srv_dispatch *dispatch);

/* Whether an item, which is about to run, waits for its session's tokens or for room; it may have
 * an error afterwards.  *taken: bytes that items before it will take, SIZE_MAX where one of
 * them waits for room; its own are added.  `again`:
 * one that has run and found no room, since another thread has taken it.  The last is about the
 * room that a job's next stage takes. */
bool srv_dispatch_item_waits(struct srv_dispatch *dispatch, struct srv_item *item, size_t *taken);
bool srv_dispatch_item_waits_again(struct srv_dispatch *dispatch, struct srv_item *item);
bool srv_dispatch_job_waits(struct srv_dispatch *dispatch, struct srv_job *job);

/* Has all that waits look again. */
void srv_dispatch_retry_waiting(struct srv_dispatch *dispatch);

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
