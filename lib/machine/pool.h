/* pool.h: a fork-join pool of worker threads, whose runs can be interrupted at pauses.
 *
 * One caller at a time hands out `count` tasks.  Workers and caller take indices from one atomic
 * counter until none is left, and the run returns when the last task has ended.  An idle worker
 * spins for 30 microseconds before it sleeps on a futex: waking a thread costs 22 us, a stage of a
 * decode less than that.
 *
 * A long run can give way to other work.  Between tasks, and wherever a task calls
 * attn_pool_pause, the caller's thread asks its attn_yield whether other work is wanted, and if so
 * runs that work on top of its current task.  An attn_pool_run made there uses a lane of its own;
 * workers that reach a pause join that lane before they go on.  No task has to end first, so tasks
 * may be of any length as long as they pause often.  Work inside a yield may be interrupted in
 * turn, up to ATTN_YIELD_LEVELS runs one inside another. */
#ifndef ATTN_LIB_MACHINE_POOL_H
#define ATTN_LIB_MACHINE_POOL_H

#include "attn.h"

struct attn_pool;

typedef void attn_pool_task(void *context, size_t index, unsigned thread);

/* Starts threads - 1 workers: `threads` counts the caller. */
enum attn_status attn_pool_open(struct attn_pool **out, unsigned threads);
void attn_pool_close(struct attn_pool *pool);
unsigned attn_pool_threads(const struct attn_pool *pool);

/* Runs task(context, i, thread) for i in [0, count).  `thread`, in [0, threads), identifies the
 * thread that runs the task, for its scratch memory: a task inside a yield has the number of the
 * task that it interrupts.  One caller at a time, which may call again from its yield.  After the
 * yield has cancelled, the remaining tasks are left out. */
void attn_pool_run(struct attn_pool *pool, attn_pool_task *task, void *context, size_t count);

/* Whether runs from here on use the caller's thread only: for work that would end before a worker
 * wakes. */
void attn_pool_set_caller_only(struct attn_pool *pool, bool caller_only);

/* Sets the yield that runs of this level from here on ask; NULL: none.  Clears a cancellation.
 * Called by the caller, between runs. */
void attn_pool_set_yield(struct attn_pool *pool, const struct attn_yield *yield);

/* A pause: a place in a task, or in the caller's own work (thread 0), where other work may go
 * first. */
void attn_pool_pause(struct attn_pool *pool, unsigned thread);

/* How many yields the caller is within; whether the run() of this level's yield has cancelled.  The
 * caller's. */
unsigned attn_pool_level(const struct attn_pool *pool);
bool attn_pool_cancelled(const struct attn_pool *pool);

#endif
