/* shapes.h: from the tensors of a request to the arguments of libattn.
 *
 * Every shape is compared here, against the layer and against each other, before the library sees
 * a pointer; masks that broadcast become strides, per-sequence values that broadcast are copied
 * out.  Values (finite, in range) are the library's to check. */
#ifndef SRV_SHAPES_H
#define SRV_SHAPES_H

#include "attn.h"
#include "wire/call.h"

/* The sizes that a set of rows is checked against. */
struct srv_sizes {
    size_t batch, queries, keys;                              /* B, T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim; /* H, G, D, Dv */
    size_t hidden_size; /* E: width of output; for weightless calls 0: [H][T][Dv] */
    size_t columns;     /* W of attention weights */
    bool batched;       /* replies carry the batch dimension */
    bool one_row;       /* hidden_states are [E], and so is output */
    bool over_cache;    /* S counts cached tokens and then the T new ones */
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

/* The modifiers that the rows carry, for these sizes.  Over a cache an attention_mask over [T][T]
 * is a tree's: it speaks of the new rows among themselves.  Copies live in the arena. */
enum srv_error_code srv_modifiers_read(struct attn_modifiers *out, const struct srv_rows *rows,
                                       const struct srv_sizes *sizes, struct srv_arena *arena,
                                       struct srv_error *error);

#endif
