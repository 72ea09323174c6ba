/* v2_input.h: an input of an infer request of the Open Inference Protocol, as the tensor that the
 * field of its name is. */
#ifndef SRV_V2_INPUT_H
#define SRV_V2_INPUT_H

#include "wire/json.h"
#include "wire/tensor_binary.h"

/* Reads the next value, an object with "name", "shape", "datatype" and either "data" or
 * "parameters": {"binary_data_size"}, as the tensor of the field `name`, a text in the arena.
 * Members may have any order; "data" is a list, flat or nested.  Bytes are taken from `bytes` when
 * the object ends.  False with json->error set: those of srv_tensor_read, and unknown_field for a
 * name that is no tensor of a call. */
bool srv_v2_input_read(struct srv_tensor *out, const char **name, struct srv_json *json,
                       struct srv_binary_data *bytes, struct srv_arena *arena);

/* Fails with unknown_field: there is no `what` ("input") of that name.  Says what to send instead:
 * the nearest of `names` [count]. */
bool srv_v2_fail_unknown(struct srv_json *json, const char *what, const char *name,
                         const char *const *names, size_t count);

#endif
