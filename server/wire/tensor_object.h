/* tensor_object.h: a tensor of a body, in either of its wire forms: nested arrays or an object. */
#ifndef SRV_TENSOR_OBJECT_H
#define SRV_TENSOR_OBJECT_H

#include "wire/json.h"
#include "wire/tensor_binary.h"

/* The datatype of that name for a tensor of this kind; false with invalid_value, which lists those
 * that there are, where it has none. */
bool srv_tensor_find_datatype(const struct srv_datatype **out, const char *name,
                              enum srv_tensor_kind kind, const char *param,
                              struct srv_error *error);

/* Reads the next value as rank, shape and count of a tensor.  Errors: invalid_type, invalid_value
 * (a negative dimension), shape_mismatch (too many dimensions, or elements). */
bool srv_tensor_read_shape(struct srv_tensor *out, struct srv_json *json, const char *param);

/* Reads the next value as a tensor: nested arrays (tensor_json.h), or an object with "shape",
 * "datatype" and either "data", its numbers in one flat array, or "binary_data_size", the number of
 * its bytes, which are taken from `bytes` when the object ends (tensor_binary.h).  Members may have
 * any order.  "datatype" must be one that the kind can have; beside "data" it may be left out and
 * changes nothing.  Errors: those of tensor_json.h and tensor_binary.h, and unknown_field,
 * duplicate_field, missing_field. */
bool srv_tensor_read(struct srv_tensor *out, struct srv_json *json, struct srv_binary_data *bytes,
                     struct srv_arena *arena, enum srv_tensor_kind kind, bool allow_scalar,
                     const char *param);

#endif
