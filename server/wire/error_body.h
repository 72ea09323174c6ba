/* error_body.h: errors as JSON, in replies and in items of a list. */
#ifndef SRV_ERROR_BODY_H
#define SRV_ERROR_BODY_H

#include "base/buffer.h"
#include "base/errors.h"

/* Appends {"code","message","param"?,"retryable","length"?,"owner"?,"request_id"?}.  request_id is
 * left out where it is NULL, as in items of a list. */
void srv_error_write(struct srv_buffer *out, const struct srv_error *error, const char *request_id);

/* Likewise in the form of the Open Inference Protocol: {"error": the message, "code", ...}. */
void srv_error_write_v2(struct srv_buffer *out, const struct srv_error *error,
                        const char *request_id);

#endif
