/* v2_reply.h: the outputs of a call as the Open Inference Protocol has them. */
#ifndef SRV_V2_REPLY_H
#define SRV_V2_REPLY_H

#include "wire/outputs.h"
#include "wire/v2_request.h"

/* Appends "outputs":[..]: each tensor with its name, datatype, shape, and its numbers in one flat
 * list or the number of its bytes.  Minus infinity among numbers is null. */
void srv_v2_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes, const struct srv_v2_outputs *forms);

/* Ends the JSON of a reply with blanks to a multiple of 64 bytes and appends the bytes of the
 * tensors that are bytes; returns the length of the JSON, 0 where no tensor is bytes. */
size_t srv_v2_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                                  const struct srv_sizes *sizes,
                                  const struct srv_v2_outputs *forms);

#endif
