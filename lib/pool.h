/* pool.h: a fork-join pool of worker threads.
 *
 * One caller at a time hands out `count` tasks; workers and caller take indices from one atomic
 * counter until none is left, and the call returns when the last has finished.  Workers spin for
 * some tens of microseconds before they sleep on a futex: a wake costs 22 us, a decode stage
 * less. */
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
 * runs it, for scratch memory.  Not reentrant; one caller at a time. */
void attn_pool_run(struct attn_pool *pool, attn_pool_task *task, void *context, size_t count);

/* Until told otherwise, runs tasks on the caller alone: for work that is over before a worker would
 * wake. */
void attn_pool_alone(struct attn_pool *pool, bool alone);

#endif
