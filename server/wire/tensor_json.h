/* tensor_json.h: tensors as JSON text, both ways.  With tensor_binary, the only code that touches
 * the digits or bytes of a tensor. */
#ifndef SRV_TENSOR_JSON_H
#define SRV_TENSOR_JSON_H

#include "base/buffer.h"
#include "wire/json.h"
#include "wire/tensor.h"

/* Reads the next value as a tensor: nested arrays of equal lengths, of rank 1 to SRV_TENSOR_RANK,
 * or a bare number (rank 0) where allow_scalar.  Numbers go straight into arena memory as they are
 * read: no tree.  A number that rounds to no finite float32 is number_out_of_range with its index;
 * ragged arrays are shape_mismatch; an empty array gives a dimension of 0.
 *
 * Memory: while it reads, the tensor takes all of the arena's room up to one element for every two
 * bytes that are left of the body, but touches only what it needs; then it keeps that. */
bool srv_tensor_read_json(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, bool allow_scalar, const char *param);

/* The same for one flat array, the "data" of a tensor object. */
bool srv_tensor_read_flat(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, const char *param);

/* Appends nested arrays of the given shape: each number in at most 9 significant digits that read
 * back as the same float32; -infinity and NaN, which only lse can hold, as null. */
void srv_tensor_write_json(struct srv_buffer *out, const float *data, const size_t *shape,
                           unsigned rank);

/* The same for indices; rank is at least 1. */
void srv_indices_write_json(struct srv_buffer *out, const uint32_t *data, const size_t *shape,
                            unsigned rank);

#endif
