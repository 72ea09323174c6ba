/* shapes.h: from the tensors of a request to the arguments of libattn.
 *
 * Every shape is compared here, against the layer and against each other, before the library sees
 * a pointer; masks that broadcast become strides, per-sequence values that broadcast are copied
 * out.  Values (finite, in range) are the library's to check. */
#ifndef SRV_SHAPES_H
#define SRV_SHAPES_H

#include "attn.h"
#include "request.h"

/* The sizes that a set of rows is checked against. */
struct srv_sizes {
    size_t batch, queries, keys;                              /* B, T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim; /* H, G, D, Dv */
    size_t hidden_size; /* E: width of output; for weightless calls 0: [H][T][Dv] */
    size_t columns;     /* W of attention weights */
    bool batched;       /* replies carry the batch dimension */
};

struct srv_sizes srv_sizes_of_layer(const struct attn_layer_spec *spec);

/* Checks that a tensor has `rank` dimensions of these sizes; the message shows both shapes. */
enum srv_error_code srv_shape_check(const struct srv_tensor *tensor, const char *param,
                                    const size_t *shape, unsigned rank, struct srv_error *error);

/* Rows [T,width] or [B,T,width]: takes B, T and `batched` from the tensor. */
enum srv_error_code srv_shape_rows(size_t *batch, size_t *tokens, bool *batched,
                                   const struct srv_tensor *tensor, const char *param, size_t width,
                                   struct srv_error *error);

/* Bounds tokens and work: T and S by max_tokens where the call brings the keys itself, B H T S by
 * max_scores.  Error: too_many_tokens. */
enum srv_error_code srv_sizes_check(const struct srv_sizes *sizes, const struct srv_limits *limits,
                                    const char *queries, const char *keys, struct srv_error *error);

/* The modifiers that the rows carry, for these sizes.  Copies live in the arena. */
enum srv_error_code srv_modifiers_read(struct attn_modifiers *out, const struct srv_rows *rows,
                                       const struct srv_sizes *sizes, struct srv_arena *arena,
                                       struct srv_error *error);

/* Sets aside room in the reply for the text of so many items, whether they succeed or fail, before
 * any is computed: a list must not be applied and then find no room to say so.  Error:
 * reply_too_large. */
struct srv_request;
enum srv_error_code srv_reply_reserve(struct srv_request *request, size_t items,
                                      struct srv_error *error);

/* Buffers for the outputs that the rows ask for, in the request's arena, charged to it together
 * with the text they will become.  Errors: reply_too_large where that could pass max_reply_bytes,
 * out_of_memory. */
enum srv_error_code srv_outputs_take(struct attn_outputs *out, const struct srv_rows *rows,
                                     const struct srv_sizes *sizes, struct srv_request *request,
                                     struct srv_error *error);

/* Appends ,"output":[..] and so on for each output that was asked for. */
struct srv_buffer;
void srv_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                       const struct srv_sizes *sizes);

#endif
