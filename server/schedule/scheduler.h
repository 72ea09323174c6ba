/* scheduler.h: the queue of jobs and the one thread that drives the engine.
 *
 * Rounds: take every waiting job; read their bodies on all threads; run the decode steps of each
 * layer as one batch; run one /attend; write the replies on all threads; hand them back together.
 * Nothing waits for a batch to fill: what is there when the engine is free is the batch. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "wire/request.h"

struct srv_scheduler;

bool srv_scheduler_open(struct srv_scheduler **out, struct srv_app *app);

/* What can be said before the body has come: whether there is a place in the queue, and a chance of
 * an answer before the deadline.  Any thread.  Errors: queue_full, deadline_exceeded. */
enum srv_error_code srv_scheduler_admits(const struct srv_scheduler *scheduler,
                                         const struct srv_request *request,
                                         struct srv_error *error);

/* After how many seconds a refused request should be sent again.  Takes NULL. */
unsigned srv_scheduler_retry_after_s(const struct srv_scheduler *scheduler,
                                     const struct srv_request *request);

/* Queues a request whose body is whole.  False with *error (as before, draining) where it was not
 * taken; otherwise it comes back through srv_http_resume.  Any thread. */
bool srv_scheduler_submit(struct srv_scheduler *scheduler, struct srv_request *request,
                          struct srv_error *error);

/* Has what was submitted computed: by this event thread where that takes next to no time and nobody
 * computes, else by the scheduler's, which is woken.  For event threads, once a turn. */
void srv_scheduler_run_or_wake(struct srv_scheduler *scheduler);
size_t srv_scheduler_depth(const struct srv_scheduler *scheduler); /* waiting or running */

/* Has the thread call srv_store_take_checkpoint soon, if it is wanted.  Takes NULL. */
void srv_scheduler_wake(struct srv_scheduler *scheduler);

/* Ends the thread: what is being computed is finished and answered, what waits is refused with
 * `draining`, as is what is submitted from then on.  Free it when no event thread is left.  Both
 * take NULL. */
void srv_scheduler_stop(struct srv_scheduler *scheduler);
void srv_scheduler_free(struct srv_scheduler *scheduler);

#endif
