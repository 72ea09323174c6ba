/* shapes.h: from the tensors of a request to the arguments of libattn.
 *
 * Every shape is compared here, with the layer's sizes and with the other tensors, before the
 * library sees a pointer.  Masks that broadcast become strides; values that broadcast over the
 * batch are copied for each sequence.  The library checks the values themselves (finite, in
 * range). */
#ifndef SRV_SHAPES_H
#define SRV_SHAPES_H

#include "wire/call.h"

/* The sizes of a call, with which the shapes of its rows are compared. */
struct srv_sizes {
    size_t batch, queries, keys;                              /* B, T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim; /* H, G, D, Dv */
    size_t hidden_size; /* E, the width of output; 0: weightless, output is [B][H][T][Dv] */
    size_t columns;     /* W, of attention weights */
    bool batched;       /* the reply has a batch dimension */
    bool one_row;       /* hidden_states are [E], output and concat likewise; or query [H,D] */
    enum srv_map_datatype map_datatype; /* of the reply's maps, in binary form */
    bool over_cache;                    /* S counts the cached tokens and then the T new ones */
};

struct srv_sizes srv_sizes_of_layer(const struct attn_layer_spec *spec);

/* Checks that a tensor has the shape [rank].  Error: shape_mismatch, with both shapes. */
enum srv_error_code srv_shape_check(const struct srv_tensor *tensor, const char *param,
                                    const size_t *shape, unsigned rank, struct srv_error *error);

/* The sizes B and T of rows [T,width] or [B,T,width]; *batched in the second form.  Error:
 * shape_mismatch. */
enum srv_error_code srv_shape_rows(size_t *batch, size_t *tokens, bool *batched,
                                   const struct srv_tensor *tensor, const char *param, size_t width,
                                   struct srv_error *error);

/* The sizes of query, key and value, which agree: [H,T,D], [G,S,D] and [G,S,Dv], or each with B
 * first; in rows over a cache [H,D], [G,D] and [G,Dv] are one row.  Error: shape_mismatch. */
enum srv_error_code srv_shape_given_rows(struct srv_sizes *sizes, const struct srv_rows *rows,
                                         struct srv_error *error);

/* Puts past_key and past_value, where given, before the key and value of rows whose sizes are
 * known: both become tensors in the arena, and sizes->keys counts all of them.  Errors:
 * shape_mismatch, out_of_memory. */
enum srv_error_code srv_shape_join_past(struct srv_sizes *sizes, struct srv_rows *rows,
                                        struct srv_arena *arena, struct srv_error *error);

/* Checks B, T, S and the number of scores B H T S against their limits.  `queries` and `keys` are
 * the fields that errors name; where `keys` is NULL, the keys are cached and S is not bounded by
 * max_tokens.  Error: too_many_tokens. */
enum srv_error_code srv_sizes_check(const struct srv_sizes *sizes, const struct srv_limits *limits,
                                    const char *queries, const char *keys, struct srv_error *error);

/* A field of n values for each sequence, [n] or [B][n]; n SRV_NO_LIST: of one value, [] or [B].
 * *out is [B][n] or [B], as the library takes it: the tensor's data, or copies of it in the arena;
 * NULL where the field was not given.  Errors: shape_mismatch, out_of_memory. */
#define SRV_NO_LIST SIZE_MAX
enum srv_error_code srv_per_sequence_read(const void **out, const struct srv_tensor *tensor,
                                          const char *param, size_t batch, size_t n,
                                          struct srv_arena *arena, struct srv_error *error);

/* Fills in the modifiers that the rows have.  Their arrays are the tensors' data, or copies in the
 * arena; masks that broadcast are never copied.  Over a cache, an attention_mask over [T][T] is a
 * tree's: a mask between the new rows.  A mask's shape that two frameworks read differently is a
 * shape_mismatch that names both ways to say it.
 * Errors: shape_mismatch, number_out_of_range, out_of_memory. */
enum srv_error_code srv_modifiers_read(struct attn_modifiers *out, const struct srv_rows *rows,
                                       const struct srv_sizes *sizes, struct srv_arena *arena,
                                       struct srv_error *error);

enum srv_call_form {
    SRV_FORM_SELF,       /* /attend of a layer, keys from the same rows */
    SRV_FORM_CROSS,      /* /attend of a layer, keys from other rows */
    SRV_FORM_WEIGHTLESS, /* /attend of query, key and value */
    SRV_FORM_STEP,       /* a prefill or a decode step over a session */
    SRV_FORM_GIVEN_STEP, /* the same of query, key and value, over a session without weights */
};

/* Refuses fields and outputs of the rows that do not apply to this form of call with this layer
 * (NULL: weightless).  docs/API.md has the rules too.  Error: unsupported. */
enum srv_error_code srv_field_rules_check(const struct srv_rows *rows, enum srv_call_form form,
                                          const struct attn_layer_spec *spec,
                                          struct srv_error *error);

/* Reads a list of distinct indices below `limit` into the arena; *out stays as it is where the
 * field was not given.  Errors: number_out_of_range, shape_mismatch, invalid_value (an empty
 * list), out_of_memory. */
enum srv_error_code srv_selection_read(const size_t **out, size_t *count,
                                       const struct srv_tensor *list, const char *param,
                                       size_t limit, struct srv_arena *arena,
                                       struct srv_error *error);

/* Reads `pool` [R, C] and `pool_type`; *out stays as it is where `pool` was not given.  Errors:
 * number_out_of_range, shape_mismatch. */
enum srv_error_code srv_pool_read(struct attn_map_pooling *out, const struct srv_rows *rows,
                                  struct srv_error *error);

#endif
