/* pool.h: a fork-join pool of worker threads.
 *
 * One caller at a time hands out `count` tasks; workers and caller take indices from one atomic
 * counter until none is left, and the call returns when the last has finished.  Workers spin for
 * some tens of microseconds before they sleep on a futex: a wake costs 22 us, a decode stage
 * less.
 *
 * A run of tasks can be interrupted by others.  Between tasks, and wherever a task calls
 * attn_pool_pause, the caller asks its attn_yield whether something is wanted and if so runs it, on
 * top of whatever it was doing; attn_pool_run then uses a second lane, and workers that come by a
 * pause help there before they go on.  Nobody has to finish a task for that, so tasks may be as
 * long as suits them as long as they pause often.  What runs inside is not interrupted again. */
#ifndef ATTN_LIB_POOL_H
#define ATTN_LIB_POOL_H

#include "attn.h"

struct attn_pool;

typedef void attn_pool_task(void *context, size_t index, unsigned thread);

/* `threads` counts the caller: threads - 1 workers are started. */
enum attn_status attn_pool_open(struct attn_pool **out, unsigned threads);
void attn_pool_close(struct attn_pool *pool);
unsigned attn_pool_threads(const struct attn_pool *pool);

/* Runs task(context, i, thread) for i in [0, count); thread is in [0, threads) and names who
 * runs it, for scratch memory: a task inside a pause has the thread of the one it interrupts.  One
 * caller at a time, who may call again from its yield.  Once that has cancelled, tasks are left
 * out. */
void attn_pool_run(struct attn_pool *pool, attn_pool_task *task, void *context, size_t count);

/* Until told otherwise, runs tasks on the caller alone: for work that is over before a worker would
 * wake. */
void attn_pool_set_caller_only(struct attn_pool *pool, bool alone);

/* What runs from here on gives way to; NULL: to nothing.  Forgets a cancellation.  By the caller,
 * between runs. */
void attn_pool_set_yield(struct attn_pool *pool, const struct attn_yield *yield);

/* A place in a task, or in the caller's own work (thread 0), where others may go first. */
void attn_pool_pause(struct attn_pool *pool, unsigned thread);
bool attn_pool_in_yield(const struct attn_pool *pool);  /* whether the caller is within its yield */
bool attn_pool_cancelled(const struct attn_pool *pool); /* its run() said to stop */

#endif
