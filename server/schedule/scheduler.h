/* scheduler.h: the queue of requests that are to be computed, and the thread that computes them.
 *
 * A round takes every waiting request, reads their bodies on all threads, runs the decode steps of
 * each layer as batches and at most one long computation, writes the replies on all threads and
 * hands them back together.  Nothing waits for a batch to fill: a batch is what is there when the
 * engine is free. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "schedule/scheduler_context.h"
#include "wire/request.h"

struct srv_scheduler;

/* Starts the scheduler's thread and the I/O workers.  False where memory or threads are short. */
bool srv_scheduler_open(struct srv_scheduler **out, const struct srv_scheduler_context *context);

/* Whether a request may come, which can be said before its body has: there is a place in the queue,
 * and its deadline is likely to be kept.  Any thread.  Errors: queue_full, deadline_exceeded. */
enum srv_error_code srv_scheduler_admits(const struct srv_scheduler *scheduler,
                                         const struct srv_request *request,
                                         struct srv_error *error);

/* After how many seconds a refused request should be sent again.  Any thread.  Takes NULL. */
unsigned srv_scheduler_retry_after_s(const struct srv_scheduler *scheduler,
                                     const struct srv_request *request);

/* Queues a request whose body is whole.  True: the request is the scheduler's until the context's
 * `resume` hands it back.  False, with *error set: it was not queued.  Any thread.  Errors:
 * queue_full, deadline_exceeded, draining. */
bool srv_scheduler_submit(struct srv_scheduler *scheduler, struct srv_request *request,
                          struct srv_error *error);

/* Has submitted requests computed: on the calling event thread where that takes next to no time and
 * the engine is free, else on the scheduler's thread, which is woken.  Event threads call it once a
 * turn in which they have submitted requests. */
void srv_scheduler_run_or_wake(struct srv_scheduler *scheduler);

/* Requests that wait or run.  Any thread. */
size_t srv_scheduler_depth(const struct srv_scheduler *scheduler);

/* Has the scheduler's thread take a checkpoint soon, if the store wants one.  Any thread.  Takes
 * NULL. */
void srv_scheduler_wake(struct srv_scheduler *scheduler);

/* Ends the threads: what is being computed is finished and answered, what waits is refused with
 * `draining`, as is what is submitted from then on.  Takes NULL. */
void srv_scheduler_stop(struct srv_scheduler *scheduler);

/* Frees a stopped scheduler, once no event thread is left.  Takes NULL. */
void srv_scheduler_free(struct srv_scheduler *scheduler);

#endif
