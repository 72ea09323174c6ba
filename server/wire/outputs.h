/* outputs.h: what a call is to show: which heads and rows, buffers for it, and its text
 * or bytes. */
#ifndef SRV_OUTPUTS_H
#define SRV_OUTPUTS_H

#include "base/buffer.h"
#include "wire/request.h"
#include "wire/shapes.h"

/* Sets aside room in the reply for the text of so many items beside their outputs, whether they
 * succeed or fail, before any is computed: a list must not be applied and then find no room to say
 * so.  Error: reply_too_large. */
enum srv_error_code srv_reply_reserve(struct srv_request *request, size_t items,
                                      struct srv_error *error);

/* The selection, and buffers for the outputs, that the rows ask for, in the request's arena and
 * charged to it together with the text or bytes they will become.  What is not selected costs
 * nothing.  Errors: number_out_of_range, shape_mismatch, invalid_value (`heads`, `rows`),
 * reply_too_large where those could pass max_reply_bytes, out_of_memory. */
enum srv_error_code srv_outputs_alloc(struct attn_outputs *out, const struct srv_rows *rows,
                                      const struct srv_sizes *sizes, struct srv_request *request,
                                      struct srv_error *error);

/* Appends ,"output":[..] and so on for each output that was asked for; where `binary`, tensors are
 * only described. */
void srv_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                       const struct srv_sizes *sizes, bool binary);

/* Appends the bytes of the tensors that srv_outputs_write described, in the same order. */
void srv_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                             const struct srv_sizes *sizes);

#endif
