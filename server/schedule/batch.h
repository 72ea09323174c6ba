/* batch.h: which steps are computed together, and which are long.
 *
 * A batch does not pause: who comes while it runs waits for its end.  So it is bounded by its work,
 * which is estimated, beside its rows and the memory it takes; and a step that alone is half of the
 * most is long, runs on its own and gives way to batches.  Bits depend on none of this. */
#ifndef SRV_BATCH_H
#define SRV_BATCH_H

#include "schedule/steps.h"

struct srv_batch {
    struct srv_item *items[SRV_BATCH_STEPS]; /* [count] of one layer, of different sessions */
    size_t count, rows;
    size_t work;   /* multiply-adds, about */
    size_t placed; /* keys whose positions are written down */
};

/* Multiply-adds of a bound item that is its session's first, about. */
size_t srv_item_work(const struct srv_item *item);

/* Whether an item whose `work` is set runs on its own. */
bool srv_item_is_long(const struct srv_item *item);

void srv_batch_clear(struct srv_batch *batch); /* empties it */

/* Adds an item, of a session that has none in the batch: the first in any case, another if it is of
 * the same layer and there is room; false where not. */
bool srv_batch_add(struct srv_batch *batch, struct srv_item *item);

#endif
