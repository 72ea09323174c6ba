/* weight_bindings.h: the tensors of a layer, found by its family's row and checked. */
#ifndef ATTN_LIB_WEIGHT_BINDINGS_H
#define ATTN_LIB_WEIGHT_BINDINGS_H

#include "checkpoint.h"
#include "families/family_config.h"

#define ATTN_MAX_BINDINGS 16 /* tensors of a layer; no family has more */

struct attn_bindings {
    struct attn_binding {
        const struct attn_family_tensor *pattern;
        struct attn_tensor tensor;
    } items[ATTN_MAX_BINDINGS];
    size_t count;
};

/* A layer of a checkpoint, with its specification. */
struct attn_checkpoint_layer {
    const struct attn_config *config;
    struct attn_layer_spec spec;
    size_t layer;
};

struct attn_checkpoint_layer attn_checkpoint_layer(const struct attn_config *config, size_t layer);

/* Gives each projection in each role that the specification asks for the one tensor that holds it,
 * checked in type and shape.  Errors: those of attn_weights_check. */
enum attn_status attn_bind_layer(struct attn_bindings *out, struct attn_checkpoint *checkpoint,
                                 const struct attn_checkpoint_layer *source,
                                 struct attn_error *error);

#endif
