/* steps.h: items: from rows to steps over sessions, and what becomes of them.
 *
 * prepare runs on a compute thread while the body is read; bind, run and the end of an item run on
 * the scheduler's thread, which alone touches caches. */
#ifndef SRV_STEPS_H
#define SRV_STEPS_H

#include "schedule/job.h"

#define SRV_BATCH_STEPS 256              /* most items of one batch */
#define SRV_BATCH_ROWS 1024              /* most rows of one batch */
#define SRV_BATCH_KEYS ((size_t)1 << 20) /* most keys of its masked items, unless it is one item */
#define SRV_DECODE_ROWS_MAX 64           /* items of more rows, prefills, run on their own */

/* Checks an item's rows against its job's model and layer, and takes their digest. */
enum srv_error_code srv_item_prepare(struct srv_item *item, struct srv_error *error);

/* Makes the body itself the job's only item, and prepares that. */
enum srv_error_code srv_job_prepare_single(struct srv_job *job, struct srv_error *error);

/* Finds or creates the session, and queues up behind its other steps: item->first tells whether
 * there are none.  False, with item->error set, where that fails. */
bool srv_item_bind(struct srv_item *item, struct srv_app *app);

/* Computes up to SRV_BATCH_STEPS bound items of one model and layer, of distinct sessions, as one
 * batch: their errors or replies are set, their sessions published. */
void srv_items_run(struct srv_item *const items[], size_t count, struct srv_app *app);

/* The one end of a bound item, run or not, which is its session's first: the session is let go, and
 * is gone where the item was to start it and failed.  Returns the session's next step, or NULL. */
struct srv_item *srv_item_end(struct srv_item *item);

/* The end of the step behind a bound item, which is not run: those behind it move up. */
void srv_item_end_next(struct srv_item *item);

/* Writes an item's reply members, without braces. */
void srv_item_write(struct srv_buffer *out, const struct srv_item *item);

#endif
