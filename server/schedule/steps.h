/* steps.h: items, from the rows of a body to steps over sessions and their results.
 *
 * srv_item_prepare runs on a compute thread while the body is read.  Binding, running and ending an
 * item are the engine thread's, which alone changes caches (scheduler.c has the whole rule). */
#ifndef SRV_STEPS_H
#define SRV_STEPS_H

#include "schedule/job.h"

/* Each of these that can fail sets item->error.
 *
 * Checks an item's rows against its job's model and layer, and computes their digest.  Errors:
 * those of srv_models_find and srv_job_find_layer, session_not_found, and those of shapes and
 * fields. */
enum srv_error_code srv_item_prepare(struct srv_item *item);

/* Makes the body itself the job's only item, prepares that, sets the job's first stage and reserves
 * the reply.  Errors: those of the functions that it calls. */
enum srv_error_code srv_job_prepare_single(struct srv_job *job, struct srv_error *error);

/* The options of a session that the item starts; the check that the item's rows name no epoch and
 * no revision.  Errors: epoch_mismatch, revision_mismatch. */
struct srv_session_options srv_item_start_options(const struct srv_item *item);
enum srv_error_code srv_item_check_start(struct srv_item *item);

/* Fails since the item's caller finds no session of its id, which `start` would make.  Errors: as
 * srv_session_fail_missing; the message says that `start` makes one. */
enum srv_error_code srv_item_fail_missing(struct srv_item *item);

/* Finds or creates the item's session and puts the item after the session's other items;
 * item->is_first then says whether there were none.  False, with item->error set, where that
 * fails. */
bool srv_item_bind(struct srv_item *item);

/* Computes 1 to SRV_BATCH_STEPS bound items of one model and layer, of distinct sessions, as one
 * batch: sets their errors or outputs and publishes their sessions. */
void srv_items_run(struct srv_item *const items[], size_t count);

/* Ends a bound item, run or not, that is the first of its session; each such item is ended once.  A
 * session that the item was to create is removed if the item failed.  Returns the session's next
 * item, or NULL. */
struct srv_item *srv_item_end(struct srv_item *item);

/* Ends, without running it, the item after `item` in the session; the items after that move up. */
void srv_item_end_next(struct srv_item *item);

/* Writes the members of an item's reply, without braces; and of them those that say where its
 * session is after the step, from a comma on. */
void srv_item_write(struct srv_buffer *out, const struct srv_item *item);
void srv_item_write_position(struct srv_buffer *out, const struct srv_item *item);

/* ---- batch.c: which steps are computed together, and which are long ----------------------------
 *
 * A batch cannot be interrupted: what arrives while a batch runs waits for its end.  So a batch is
 * bounded by its estimated work, beside its rows and the memory it takes.  A step with more than
 * half of that work, or more than SRV_DECODE_ROWS_MAX rows, is long: it runs alone and gives way to
 * batches.  No bit of a result depends on how steps are batched. */

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

/* Adds an item, of a session that has no other item in the batch.  The first item is always added,
 * another one if it is of the same layer and there is room; false where it is not added. */
bool srv_batch_add(struct srv_batch *batch, struct srv_item *item);

#endif
