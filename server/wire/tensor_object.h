/* tensor_object.h: a tensor of a body in whichever of its forms it is written. */
#ifndef SRV_TENSOR_OBJECT_H
#define SRV_TENSOR_OBJECT_H

#include "wire/json.h"
#include "wire/tensor_binary.h"

/* Reads the next value as a tensor: nested arrays (tensor_json.h), or an object with "shape",
 * "datatype" and either "data", its numbers in one flat array, or "binary_data_size", in which case
 * its bytes are taken from `bytes` when the object ends.  Members come in any order; "datatype" may
 * be left out beside "data" and changes nothing there; it must be one that the kind can have.
 * Errors are those of the two forms, and unknown_field, duplicate_field, missing_field. */
bool srv_tensor_read(struct srv_tensor *out, struct srv_json *json, struct srv_binary_data *bytes,
                     struct srv_arena *arena, enum srv_tensor_kind kind, bool allow_scalar,
                     const char *param);

#endif
