/* tensor.h: tensors of requests and of replies, in all forms that they have on the wire.
 *
 * A tensor of a request is nested arrays, or an object with numbers or with bytes; all become one
 * struct.  A tensor of a reply is nested arrays, or a description and bytes. */
#ifndef SRV_TENSOR_H
#define SRV_TENSOR_H

#include "base/buffer.h"
#include "wire/json.h"

struct srv_request; /* wire/request.h */

enum srv_tensor_kind {
    SRV_FLOATS,         /* finite numbers -> float32, rounded to nearest */
    SRV_FLOATS_OR_NULL, /* likewise, and null -> -infinity (attention_bias) */
    SRV_BOOLS,          /* true, false, 1, 0 -> uint8_t */
    SRV_INTEGERS,       /* integers -> int64_t */
};

/* Bytes of an element in memory. */
static inline size_t srv_tensor_element_bytes(enum srv_tensor_kind kind)
{
    return kind == SRV_BOOLS      ? sizeof(uint8_t)
           : kind == SRV_INTEGERS ? sizeof(int64_t)
                                  : sizeof(float);
}

struct srv_tensor {
    bool present;
    enum srv_tensor_kind kind;
    unsigned rank;                 /* 0 for a bare number, where a field allows one */
    size_t shape[SRV_TENSOR_RANK]; /* [rank] */
    size_t count;                  /* product of shape */
    union {
        float *f32;
        uint8_t *u8;
        int64_t *i64;
        void *data;
    }; /* [count], row-major, in the request's arena, in its body, or an input's (inputs.h), which
          nobody may change */
};

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* The bytes after a body's JSON that no tensor has taken yet. */
struct srv_binary_data {
    char *at;
    size_t left;
    bool framed; /* the request had an Inference-Header-Content-Length; else there are no bytes */
};

/* A body as it arrived: JSON, and the bytes of tensors after it, most often none. */
struct srv_body {
    const char *json;
    size_t json_length;
    struct srv_binary_data bytes;
    struct srv_cancel cancel;    /* asked while the JSON is read */
    struct srv_request *request; /* whose tensors may name inputs (inputs.h); NULL: none may */
};

/* A body while it is read: texts go to the arena, tensors there or stay in the body. */
struct srv_source {
    struct srv_json json;
    struct srv_binary_data bytes; /* that no tensor has taken yet */
    struct srv_arena *arena;
    struct srv_request *request; /* of the body */
};

void srv_source_init(struct srv_source *out, const struct srv_body *body, struct srv_arena *arena,
                     struct srv_error *error);

/* Fails with bad_request where bytes are left that belong to no tensor, unless something else is
 * wrong already. */
void srv_source_check_bytes(const struct srv_source *source);

/* ---- Reading --------------------------------------------------------------------------------- */

/* Reads the next value as a tensor: nested arrays (srv_tensor_read_json), or an object with
 * "shape", "datatype" and either "data", its numbers in one flat array, or "binary_data_size", the
 * number of its bytes, which are taken from the source when the object ends
 * (srv_tensor_read_binary); or {"input": digest} alone, floats that are kept (srv_inputs_find).
 * Members may have any order.  "datatype" must be one that the kind can
 * have; beside "data" it may be left out and changes nothing.  Errors: those of the two functions,
 * and unknown_field, duplicate_field, missing_field. */
bool srv_tensor_read(struct srv_tensor *out, struct srv_source *source, enum srv_tensor_kind kind,
                     bool allow_scalar, const char *param);

struct srv_field; /* wire/call.h */

/* Reads the next value as an input of an infer request of the Open Inference Protocol: an object
 * with "name", "shape", "datatype" and either "data", flat or nested, or "parameters":
 * {"binary_data_size"}.  *field is the one that the name names.  Errors: those of srv_tensor_read,
 * unsupported for another parameter, and unknown_field for a name that is no tensor of /attend. */
bool srv_tensor_read_input(struct srv_tensor *out, const struct srv_field **field,
                           struct srv_source *source);

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

struct srv_datatype; /* "FP32", as the Open Inference Protocol names element types */

/* Fails with the datatypes that a tensor of this kind can have, as JSON or, where `binary`, as
 * bytes.  Error: invalid_value. */
bool srv_datatype_fail(struct srv_json *json, const char *name, enum srv_tensor_kind kind,
                       bool binary, const char *param);

/* The datatype of this name; NULL where there is none that a tensor of this kind can have. */
const struct srv_datatype *srv_datatype_find(const char *name, enum srv_tensor_kind kind);

/* The name of the datatype number i, from 0, of those that a tensor of this kind can have, as JSON
 * or, where `binary`, as bytes; NULL beyond the last. */
const char *srv_datatype_name(size_t i, enum srv_tensor_kind kind, bool binary);

/* Takes the next `size` bytes of the source as the elements of a tensor whose kind, rank, shape and
 * count are set, and sets its data.  FP16 and BF16 are widened exactly.  Elements that need no
 * conversion and are aligned stay where they are: the tensor then points into the body.  Errors,
 * all with `param`: invalid_value (a datatype without binary form, a body without framing, a BOOL
 * that is neither 0 nor 1), shape_mismatch (the shape wants another size), bad_request (fewer bytes
 * are left), non_finite_input (but minus infinity is allowed where the kind allows null),
 * out_of_memory. */
bool srv_tensor_read_binary(struct srv_tensor *tensor, struct srv_source *source, uint64_t size,
                            const struct srv_datatype *type, const char *param);

/* ---- Writing --------------------------------------------------------------------------------- */

/* Appends nested arrays of the given shape, or a bare number where rank is 0.  Each number has at
 * most 9 significant digits that read back as the same float32.  -infinity and NaN, which only lse
 * and attention_scores can hold, are written as null. */
void srv_tensor_write_json(struct srv_buffer *out, const float *data, const size_t *shape,
                           unsigned rank);

/* Likewise for indices; rank is at least 1. */
void srv_indices_write_json(struct srv_buffer *out, const uint32_t *data, const size_t *shape,
                            unsigned rank);

/* How the numbers of maps travel in binary form: the values of the field map_datatype. */
enum srv_map_datatype { SRV_MAP_FP32, SRV_MAP_FP16, SRV_MAP_UINT8, SRV_MAP_DATATYPES };

/* "FP32", "FP16", "UINT8", as the Open Inference Protocol names them. */
extern const char *const srv_map_datatypes[SRV_MAP_DATATYPES];

/* The range of a map's bytes: byte k stands for minimum + (maximum - minimum) k / 255.  0 is
 * within the range. */
struct srv_map_range {
    float minimum, maximum; /* min(0, smallest), max(0, largest) */
};
struct srv_map_range srv_map_range(const float *map, size_t count);

/* A tensor of a reply. */
struct srv_output_tensor {
    const char *output;         /* the name of the output that it belongs to */
    const char *before, *after; /* text around it in a reply of /attend */
    bool is_index;              /* of top_k: the other tensor of its output has the weights */
    const char *datatype;
    size_t element_bytes;         /* in binary form */
    enum srv_map_datatype narrow; /* likewise: other than FP32 its floats are converted */
    const void *data;             /* [count] */
    size_t count, shape[4];
    unsigned rank;
};

/* Appends its numbers as arrays of this shape, which has its count. */
void srv_output_write_json(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                           const size_t *shape, unsigned rank);

/* The maps of a tensor: the product of all dimensions but its last two. */
size_t srv_output_maps(const size_t *shape, unsigned rank);

/* Appends ,"minimum":.. and ,"maximum":.. of a UINT8 tensor, nothing of another; `flat`: as lists
 * [maps], else of the shape that the tensor has before its last two dimensions.  All numbers are
 * finite. */
void srv_output_write_ranges(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                             bool flat);

/* Appends the tensor's bytes, from a multiple of its elements' size on.  FP32: minus infinity,
 * which only lse and attention_scores can hold, is written as it is.  FP16: rounded to nearest,
 * ties to even, finite numbers beyond 65504 to that, minus infinity as it is.  UINT8: to the
 * nearest byte of each map's range; all are finite.  Tensors of a call stand widest elements first,
 * so only a tensor after the last of another step of a list needs zeros before it. */
void srv_output_write_bytes(struct srv_buffer *out, const struct srv_output_tensor *tensor);

/* The most bytes of an element in a reply: float ("FP32") or uint32_t ("UINT32"). */
#define SRV_BINARY_ELEMENT_BYTES 4

/* Appends "shape":[..], a list of the dimensions. */
void srv_shape_write(struct srv_buffer *out, const size_t *shape, unsigned rank);

/* Appends {"shape":[..],"datatype":"FP32","binary_data_size":n, the last being `count` elements of
 * `bytes` each; at most SRV_TENSOR_DESCRIPTION_MAX bytes with the closing brace. */
#define SRV_TENSOR_DESCRIPTION_MAX 200
void srv_tensor_describe(struct srv_buffer *out, const char *datatype, size_t bytes,
                         const size_t *shape, unsigned rank);

/* Appends blanks until the text's length is a multiple of SRV_BINARY_ALIGNMENT, so that the bytes
 * of tensors after it begin there. */
#define SRV_BINARY_ALIGNMENT ((size_t)64)
void srv_tensor_align(struct srv_buffer *out);

#endif
