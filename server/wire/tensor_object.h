/* tensor_object.h: a body while it is read, and the tensors in it: nested arrays, or objects in one
 * of two forms. */
#ifndef SRV_TENSOR_OBJECT_H
#define SRV_TENSOR_OBJECT_H

#include "wire/json.h"
#include "wire/tensor_binary.h"

/* A body as it arrived: JSON, and the bytes of tensors after it, most often none. */
struct srv_body {
    const char *json;
    size_t json_length;
    struct srv_binary_data bytes;
    struct srv_cancel cancel; /* asked while the JSON is read */
};

/* A body while it is read: texts go to the arena, tensors there or stay in the body. */
struct srv_source {
    struct srv_json json;
    struct srv_binary_data bytes; /* that no tensor has taken yet */
    struct srv_arena *arena;
};

void srv_source_init(struct srv_source *out, const struct srv_body *body, struct srv_arena *arena,
                     struct srv_error *error);

/* Fails with bad_request where bytes are left that belong to no tensor, unless something else is
 * wrong already. */
void srv_source_check_bytes(const struct srv_source *source);

/* Reads the next value as a tensor: nested arrays (tensor_json.h), or an object with "shape",
 * "datatype" and either "data", its numbers in one flat array, or "binary_data_size", the number of
 * its bytes, which are taken from the source when the object ends (tensor_binary.h).  Members may
 * have any order.  "datatype" must be one that the kind can have; beside "data" it may be left out
 * and changes nothing.  Errors: those of tensor_json.h and tensor_binary.h, and unknown_field,
 * duplicate_field, missing_field. */
bool srv_tensor_read(struct srv_tensor *out, struct srv_source *source, enum srv_tensor_kind kind,
                     bool allow_scalar, const char *param);

struct srv_field; /* wire/call_fields.h */

/* Reads the next value as an input of an infer request of the Open Inference Protocol: an object
 * with "name", "shape", "datatype" and either "data", flat or nested, or "parameters":
 * {"binary_data_size"}.  *field is the one that the name names.  Errors: those of srv_tensor_read,
 * unsupported for another parameter, and unknown_field for a name that is no tensor of /attend. */
bool srv_tensor_read_input(struct srv_tensor *out, const struct srv_field **field,
                           struct srv_source *source);

#endif
