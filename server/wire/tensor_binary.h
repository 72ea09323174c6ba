/* tensor_binary.h: reads and writes tensors as bytes, little-endian and unpadded, which follow the
 * JSON that describes them.  Only this file and tensor_json handle the elements of a tensor. */
#ifndef SRV_TENSOR_BINARY_H
#define SRV_TENSOR_BINARY_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/errors.h"
#include "wire/tensor.h"

/* The bytes after a body's JSON that no tensor has taken yet. */
struct srv_binary_data {
    char *at;
    size_t left;
    bool framed; /* the request had an Inference-Header-Content-Length; else there are no bytes */
};

struct srv_datatype; /* "FP32", as the Open Inference Protocol names element types */

/* Fails with the datatypes that a tensor of this kind can have, as JSON or, where `binary`, as
 * bytes.  Error: invalid_value. */
enum srv_error_code srv_datatype_fail(const char *name, enum srv_tensor_kind kind, bool binary,
                                      const char *param, struct srv_error *error);

/* The datatype of this name; NULL where there is none that a tensor of this kind can have. */
const struct srv_datatype *srv_datatype_find(const char *name, enum srv_tensor_kind kind);

/* The name of the datatype number i, from 0, of those that a tensor of this kind can have, as JSON
 * or, where `binary`, as bytes; NULL beyond the last. */
const char *srv_datatype_name(size_t i, enum srv_tensor_kind kind, bool binary);

/* Takes the next `size` bytes as the elements of a tensor whose kind, rank, shape and count are
 * set, and sets its data.  FP16 and BF16 are widened exactly.  Elements that need no conversion and
 * are aligned stay where they are: the tensor then points into the body.  Errors, all with `param`:
 * invalid_value (a datatype without binary form, a body without framing, a BOOL that is neither 0
 * nor 1), shape_mismatch (the shape wants another size), bad_request (fewer bytes are left),
 * non_finite_input (but minus infinity is allowed where the kind allows null), out_of_memory. */
bool srv_tensor_read_binary(struct srv_tensor *tensor, struct srv_binary_data *bytes, uint64_t size,
                            const struct srv_datatype *type, struct srv_arena *arena,
                            const char *param, struct srv_error *error);

/* The most bytes of an element in a reply: float ("FP32") or uint32_t ("UINT32"). */
#define SRV_BINARY_ELEMENT_BYTES 4

/* Appends {"shape":[..],"datatype":"FP32","binary_data_size":n, the last being `count` elements of
 * `bytes` each; at most SRV_TENSOR_DESCRIPTION_MAX bytes with the closing brace. */
#define SRV_TENSOR_DESCRIPTION_MAX 200
void srv_tensor_describe(struct srv_buffer *out, const char *datatype, size_t bytes,
                         const size_t *shape, unsigned rank);

/* Appends blanks until the text's length is a multiple of SRV_BINARY_ALIGNMENT, so that the bytes
 * of tensors after it begin there. */
#define SRV_BINARY_ALIGNMENT ((size_t)64)
void srv_tensor_align(struct srv_buffer *out);

/* Appends zeros until the length is a multiple of `bytes`, 1, 2 or 4, of an element of the tensor
 * that follows.  Tensors of a call stand widest elements first, so only a tensor after the last of
 * another step of a list ever needs them. */
void srv_tensor_pad(struct srv_buffer *out, size_t bytes);

/* Appends the bytes of `count` elements of SRV_BINARY_ELEMENT_BYTES.  Minus infinity, which only
 * lse and attention_scores can hold, is written as it is. */
void srv_tensor_write_binary(struct srv_buffer *out, const void *data, size_t count);

#endif
