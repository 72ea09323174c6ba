/* batch.h: which steps are computed together, and which are long.
 *
 * A batch cannot be interrupted: what arrives while a batch runs waits for its end.  So a batch is
 * bounded by its estimated work, beside its rows and the memory it takes.  A step with more than
 * half of that work, or more than SRV_DECODE_ROWS_MAX rows, is long: it runs alone and gives way to
 * batches.  No bit of a result depends on how steps are batched. */
#ifndef SRV_BATCH_H
#define SRV_BATCH_H

#include "schedule/steps.h"

struct srv_batch {
    struct srv_item *items[SRV_BATCH_STEPS]; /* [count] of one layer, of different sessions */
    size_t count, rows;
    size_t work;        /* estimated multiply-adds */
    size_t masked_keys; /* keys of masked items */
};

/* Keys of the step of a bound item that is the first of its session: cached ones and its own. */
size_t srv_item_keys(const struct srv_item *item);

/* The estimated multiply-adds of the step of a bound item that is the first of its session:
 * attn_step_work (attn_limits.h), and what looking at its weights one by one takes. */
size_t srv_item_work(const struct srv_item *item);

/* The same of a job's attention over given rows. */
size_t srv_attend_work(const struct srv_job *job);

/* Whether the step of an item whose `work` is set is long: a prefill, or a decode of much work. */
bool srv_item_is_long(const struct srv_item *item);

void srv_batch_clear(struct srv_batch *batch);

/* Adds an item, of a session that has no other item in the batch.  The first item is always added,
 * another one if it is of the same layer and there is room; false where it is not added. */
bool srv_batch_add(struct srv_batch *batch, struct srv_item *item);

#endif
