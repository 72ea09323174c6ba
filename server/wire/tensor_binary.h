/* tensor_binary.h: tensors as bytes, both ways: little-endian and unpadded, behind the JSON that
 * describes them.  With tensor_json, the only code that touches the digits or bytes of a tensor. */
#ifndef SRV_TENSOR_BINARY_H
#define SRV_TENSOR_BINARY_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/errors.h"
#include "wire/tensor.h"

/* The bytes behind a body's JSON that no tensor has taken yet. */
struct srv_binary_data {
    char *at;
    size_t left;
    bool framed; /* the request said where its JSON ends, so there may be some */
};

struct srv_datatype; /* "FP32", as the Open Inference Protocol names element types */

/* The datatype of that name, where a tensor of this kind can have it; else NULL. */
const struct srv_datatype *srv_datatype_find(const char *name, enum srv_tensor_kind kind);

/* Fills `data` of a tensor whose kind, rank, shape and count are known from the `size` bytes that
 * come next.  FP16 and BF16 widen exactly.  What needs no conversion and lies aligned stays where
 * it is: the tensor then points into the body.  Errors, all with `param`: invalid_value (a datatype
 * without binary form, no framing, a BOOL that is neither 0 nor 1), shape_mismatch (the shape wants
 * another size), bad_request (fewer bytes are left), non_finite_input (minus infinity is taken
 * where the kind allows null), out_of_memory. */
bool srv_tensor_read_binary(struct srv_tensor *tensor, struct srv_binary_data *bytes, uint64_t size,
                            const struct srv_datatype *type, struct srv_arena *arena,
                            const char *param, struct srv_error *error);

/* What is written has elements of this size: float ("FP32") or uint32_t ("UINT32"). */
#define SRV_BINARY_ELEMENT_BYTES 4

/* Appends {"shape":[..],"datatype":"FP32","binary_data_size":n}, at most SRV_TENSOR_DESCRIPTION_MAX
 * bytes. */
#define SRV_TENSOR_DESCRIPTION_MAX 160
void srv_tensor_describe(struct srv_buffer *out, const char *datatype, const size_t *shape,
                         unsigned rank);

/* Appends the bytes of `count` such elements; minus infinity, which only lse and attention_scores
 * can hold, stays what it is. */
void srv_tensor_write_binary(struct srv_buffer *out, const void *data, size_t count);

#endif
