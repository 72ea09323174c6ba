/* error_body.h: the one form in which an error is written. */
#ifndef SRV_ERROR_BODY_H
#define SRV_ERROR_BODY_H

#include "base/buffer.h"
#include "base/errors.h"

/* {"code","message","param"?,"retryable","length"?,"request_id"?}; request_id NULL leaves it
 * out, as items of a list do. */
void srv_error_write(struct srv_buffer *out, const struct srv_error *error, const char *request_id);

#endif
