/* output_tensor.h: one tensor of a reply, in binary form. */
#ifndef SRV_OUTPUT_TENSOR_H
#define SRV_OUTPUT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "wire/tensor_narrow.h"

/* A tensor of a reply. */
struct srv_output_tensor {
    const char *output; /* the name of the output that it belongs to */
    bool is_index;      /* of top_k: the other tensor of its output has the weights */
    const char *datatype;
    size_t element_bytes;         /* in binary form */
    enum srv_map_datatype narrow; /* likewise: other than FP32 its floats are converted */
    const void *data;             /* [count] */
    size_t count, shape[4];
    unsigned rank;
};

/* The maps of a tensor: the product of all dimensions but its last two. */
size_t srv_output_maps(const size_t *shape, unsigned rank);

/* Appends ,"minimum":.. and ,"maximum":.. of a UINT8 tensor, nothing of another; `flat`: as lists
 * [maps], else of the shape that the tensor has before its last two dimensions. */
void srv_output_write_ranges(struct srv_buffer *out, const struct srv_output_tensor *tensor,
                             bool flat);

/* Appends the tensor's bytes, from a multiple of its elements' size on. */
void srv_output_write_bytes(struct srv_buffer *out, const struct srv_output_tensor *tensor);

#endif
