/* outputs.h: the outputs of a call: the selection of heads and rows, the buffers that the library
 * fills, and their text or bytes in the reply. */
#ifndef SRV_OUTPUTS_H
#define SRV_OUTPUTS_H

#include "wire/request.h"
#include "wire/shapes.h"

/* Counts the text of `items` items, without their outputs, in request->reply_bytes.  Each item may
 * succeed or fail.  Called before any item is computed, since a list of steps must not be applied
 * when its reply would have no room.  Error: reply_too_large. */
enum srv_error_code srv_reply_reserve(struct srv_request *request, size_t items,
                                      struct srv_error *error);

/* Fills in the selection that the rows ask for, and buffers for their outputs in the request's
 * arena.  The request is charged for the buffers and for the text or bytes that they become: of
 * attention_weights and attention_scores for the selected heads and rows only, of head_stats for
 * all heads.  Errors: number_out_of_range, shape_mismatch, invalid_value (`heads`, `rows`, and
 * those of srv_head_stats_read), reply_too_large (the reply could pass max_reply_bytes),
 * out_of_memory. */
enum srv_error_code srv_outputs_alloc(struct attn_outputs *out, const struct srv_rows *rows,
                                      const struct srv_sizes *sizes, struct srv_request *request,
                                      struct srv_error *error);

/* Appends ,"output":[..] and so on for each output that has a buffer, in the order of
 * srv_outputs_list.  Where `binary`, tensors are described instead of written. */
void srv_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                       const struct srv_sizes *sizes, bool binary);

/* Appends the bytes of the tensors that srv_outputs_write described, in the same order. */
void srv_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                             const struct srv_sizes *sizes);

#define SRV_OUTPUT_TENSORS 16

/* Lists the outputs that have a buffer, and returns how many; those of the widest elements come
 * first, so that each tensor's bytes begin at a multiple of its element's size.  head_stats, which
 * are no tensor, have no datatype there. */
size_t srv_outputs_list(struct srv_output_tensor list[SRV_OUTPUT_TENSORS],
                        const struct attn_outputs *outputs, const struct srv_sizes *sizes);

/* Fills in the targets and groups of keys that the rows name, in memory of the arena; sizes->keys
 * is known.  The library checks the targets.  Errors: shape_mismatch (targets), number_out_of_range
 * (a key of a group that does not exist, or stands in it twice), out_of_memory. */
enum srv_error_code srv_head_stats_read(struct attn_outputs *out, const struct srv_rows *rows,
                                        const struct srv_sizes *sizes, struct srv_arena *arena,
                                        struct srv_error *error);

/* The most bytes of text that one head's object takes. */
size_t srv_head_stats_text(const struct attn_outputs *outputs);

/* Appends a list [H'] of objects, or [B][H'] in a reply with a batch dimension. */
void srv_head_stats_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                          const struct srv_sizes *sizes);

#endif
