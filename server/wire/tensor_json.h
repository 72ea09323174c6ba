/* tensor_json.h: reads and writes tensors as JSON text.  Only this file and tensor_binary handle
 * the elements of a tensor. */
#ifndef SRV_TENSOR_JSON_H
#define SRV_TENSOR_JSON_H

#include "base/buffer.h"
#include "wire/json.h"
#include "wire/tensor.h"

/* Reads the next value as a tensor: nested arrays of equal lengths, of rank 1 to SRV_TENSOR_RANK,
 * or a bare number (rank 0) where allow_scalar.  Numbers are written straight into arena memory; no
 * tree is built.  An empty array gives a dimension of 0.  Errors: shape_mismatch (ragged arrays,
 * too many dimensions), number_out_of_range with the index of the number that rounds to no finite
 * float32, invalid_type, invalid_value, too_complex, out_of_memory, malformed_json.
 *
 * Memory: during the call the tensor takes room in the arena for one element per comma ahead, of
 * which only the elements read are touched; afterwards it keeps the room of its elements. */
bool srv_tensor_read_json(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, bool allow_scalar, const char *param);

/* Likewise for one flat array, the "data" of a tensor object. */
bool srv_tensor_read_flat(struct srv_tensor *out, struct srv_json *json, struct srv_arena *arena,
                          enum srv_tensor_kind kind, const char *param);

/* Appends nested arrays of the given shape, or a bare number where rank is 0.  Each number has at
 * most 9 significant digits that read back as the same float32.  -infinity and NaN, which only lse
 * and attention_scores can hold, are written as null. */
void srv_tensor_write_json(struct srv_buffer *out, const float *data, const size_t *shape,
                           unsigned rank);

/* Likewise for indices; rank is at least 1. */
void srv_indices_write_json(struct srv_buffer *out, const uint32_t *data, const size_t *shape,
                            unsigned rank);

#endif
