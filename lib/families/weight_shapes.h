/* weight_shapes.h: which tensors a specification asks for, and their shapes. */
#ifndef ATTN_LIB_FAMILIES_WEIGHT_SHAPES_H
#define ATTN_LIB_FAMILIES_WEIGHT_SHAPES_H

#include "families/family.h"
#include "layers/layer.h"

/* The bits of enum attn_proj, in the order of projections in a fused tensor. */
#define ATTN_NUM_PROJECTIONS 8
extern const unsigned attn_projections[ATTN_NUM_PROJECTIONS];

/* The widths of a projection's input and output. */
struct attn_projection_shape {
    size_t in, out;
};

struct attn_tensor_shape {
    size_t ndim, size[3];
};

/* The projections for which the specification asks for a tensor of this role. */
unsigned attn_needed_projections(const struct attn_layer_spec *spec, enum attn_tensor_role role);

/* The widths of input and output of a fused tensor's projections together; false if they read
 * inputs of different widths and so cannot share a weight. */
bool attn_fused_shape(struct attn_projection_shape *out, const struct attn_layer_spec *spec,
                      const struct attn_family_tensor *pattern);

/* The shape that the tensor of a pattern has in such a layout. */
struct attn_tensor_shape attn_tensor_shape(enum attn_layout layout,
                                           const struct attn_layer_spec *spec,
                                           const struct attn_family_tensor *pattern);

#endif
