/* scheduler.h: the queue of requests that are to be computed, and the thread that computes them.
 *
 * A round takes every waiting request, reads their bodies on all threads, and runs up to 4 batches
 * of steps, each of one layer.  Then the round runs at most one long step, one attention over given
 * rows and one piece of an export or import.  Replies that are due are written on all threads and
 * handed back together.  Nothing waits for a batch to fill: a batch is what is there when the
 * engine is free. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "wire/request.h"

struct attn_engine;
struct srv_limits;
struct srv_metrics;
struct srv_models;
struct srv_routes;
struct srv_sessions;
struct srv_store;

/* All that the scheduler sees of the daemon.  main.c fills one before srv_scheduler_open.  The
 * context and all that its members point to outlive the scheduler; every thread reads the context,
 * none writes it. */
struct srv_scheduler_context {
    struct attn_engine *engine;
    const struct srv_models *models;
    struct srv_sessions *sessions;
    struct srv_store *store; /* NULL: sessions are not kept on disk */
    struct srv_metrics *metrics;
    const struct srv_limits *limits;
    const struct srv_routes *routes;
    unsigned reply_compression; /* enum srv_reply_compression (wire/coding.h) */
    bool records_on_disk;  /* steps and changes are recorded in a journal, and wait for the disk */
    atomic_bool *stopping; /* set by srv_scheduler_stop: what waits is refused, long work stops */

    /* Hands finished requests back to the http room: once for each request that was submitted, on
     * the engine thread or an I/O worker. */
    void (*resume)(void *resume_context, struct srv_request *const requests[], size_t count);
    void *resume_context;
};

struct srv_scheduler;

/* Starts the scheduler's thread and the I/O workers.  False where memory or threads are short. */
bool srv_scheduler_open(struct srv_scheduler **out, const struct srv_scheduler_context *context);

/* Whether a request may be queued, asked before its body has arrived: there is a place in the
 * queue, and the request's deadline is likely to be kept.  Any thread.  Errors: queue_full,
 * deadline_exceeded. */
enum srv_error_code srv_scheduler_admits(const struct srv_scheduler *scheduler,
                                         const struct srv_request *request,
                                         struct srv_error *error);

/* After how many seconds a refused request should be sent again.  Any thread.  Takes NULL. */
unsigned srv_scheduler_retry_after_s(const struct srv_scheduler *scheduler,
                                     const struct srv_request *request);

/* Queues a request whose body has arrived in full.  True: the request belongs to the scheduler
 * until the context's `resume` hands the request back.  False, with *error set: the request was not
 * queued.  Any thread.  Errors: queue_full, deadline_exceeded, draining. */
bool srv_scheduler_submit(struct srv_scheduler *scheduler, struct srv_request *request,
                          struct srv_error *error);

/* Has an I/O worker run the handler of the request's route, out of the queue of jobs.  True: the
 * request belongs to the scheduler until the context's `resume` hands the request back.  False: the
 * caller runs the handler.  Takes NULL.  Any thread. */
bool srv_scheduler_handle(struct srv_scheduler *scheduler, struct srv_request *request);

/* Computes submitted requests on the calling event thread where that takes next to no time and the
 * engine is free; otherwise wakes the scheduler's thread, which computes them.  An event thread
 * calls this once at the end of each turn in which it has submitted requests. */
void srv_scheduler_run_or_wake(struct srv_scheduler *scheduler);

/* Requests that wait or run, and those whose computation has begun and whose reply has not been
 * handed back.  Any thread. */
size_t srv_scheduler_depth(const struct srv_scheduler *scheduler);
size_t srv_scheduler_running(const struct srv_scheduler *scheduler);

/* Has the scheduler's thread take a snapshot soon, if the store wants one, or go on with jobs
 * whose sessions the store has read.  Any thread.  Takes NULL. */
void srv_scheduler_wake(struct srv_scheduler *scheduler);

/* Ends the threads.  A batch that is running is finished and answered.  A long computation that is
 * running is stopped; its request, all that waits and all that is submitted from then on are
 * refused with `draining`.  A large reply that is not written yet is dropped (request_codec.c).
 * Takes NULL. */
void srv_scheduler_stop(struct srv_scheduler *scheduler);

/* Frees a stopped scheduler, once no event thread is left.  Takes NULL. */
void srv_scheduler_free(struct srv_scheduler *scheduler);

#endif
