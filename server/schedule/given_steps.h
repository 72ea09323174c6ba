/* given_steps.h: steps over sessions without weights, which bring query, key and value. */
#ifndef SRV_GIVEN_STEPS_H
#define SRV_GIVEN_STEPS_H

#include "schedule/job.h"

/* Takes the sizes of the item from its tensors alone, on a compute thread: the item has no model
 * before it has a session.  Errors: unsupported, shape_mismatch. */
enum srv_error_code srv_given_item_check(struct srv_item *item, struct srv_error *error);

/* Whether the item's session takes rows of these sizes in the job's layer; its model is then the
 * item's.  The engine owner's.  False, with item->error set, where it does not: model_mismatch,
 * layer_not_found, shape_mismatch. */
bool srv_given_item_bind(struct srv_item *item);

#endif
