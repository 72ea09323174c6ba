/* steps.h: items, from the rows of a body to steps over sessions and their results.
 *
 * srv_item_prepare runs on a compute thread while the body is read.  Binding, running and ending an
 * item are the engine owner's, which alone changes caches (scheduler.c has the whole rule). */
#ifndef SRV_STEPS_H
#define SRV_STEPS_H

#include "schedule/job.h"

/* Checks an item's rows against its job's model and layer, and takes their digest.  Errors: those
 * of srv_job_find_model and srv_job_find_layer, session_not_found, and those of shapes and
 * fields. */
enum srv_error_code srv_item_prepare(struct srv_item *item, struct srv_error *error);

/* Makes the body itself the job's only item, prepares that, sets the job's first stage and reserves
 * the reply.  Errors: those of the functions that it calls. */
enum srv_error_code srv_job_prepare_single(struct srv_job *job, struct srv_error *error);

/* The options of a session that the item starts; the check that the item's rows name no epoch and
 * no revision.  Errors: epoch_mismatch, revision_mismatch. */
struct srv_session_options srv_item_start_options(const struct srv_item *item);
enum srv_error_code srv_item_check_start(const struct srv_item *item, struct srv_error *error);

/* Fails since the item's caller finds no session of its id, which `start` would make.  Errors: as
 * srv_session_fail_missing; the message says that `start` makes one. */
enum srv_error_code srv_item_fail_missing(const struct srv_item *item, struct srv_error *error);

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

/* The tokens of the layer after the item's step. */
size_t srv_item_length(const struct srv_item *item);

/* Writes the members of an item's reply, without braces. */
void srv_item_write(struct srv_buffer *out, const struct srv_item *item);

#endif
