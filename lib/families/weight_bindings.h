/* weight_bindings.h: the tensors of a layer, found by its family's row and checked. */
#ifndef ATTN_LIB_FAMILIES_WEIGHT_BINDINGS_H
#define ATTN_LIB_FAMILIES_WEIGHT_BINDINGS_H

#include "families/config.h"
#include "families/weight_shapes.h"
#include "layers/checkpoint.h"

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

#define ATTN_TENSOR_NAME_MAX 160 /* bytes of prefix, name and index, all from the tables */

/* Writes prefix and name with the layer's index in the place of each '*'. */
void attn_expand_name(char out[ATTN_TENSOR_NAME_MAX], const char *prefix, const char *name,
                      size_t layer);

/* The tensors that the layer may have. */
const struct attn_family_tensor *attn_tensors_of(const struct attn_checkpoint_layer *source);

/* Gives each projection in each role that the specification asks for the one tensor that holds it,
 * checked in type and shape.  Errors: those of attn_weights_check. */
enum attn_status attn_bind_layer(struct attn_bindings *out, struct attn_checkpoint *checkpoint,
                                 const struct attn_checkpoint_layer *source,
                                 struct attn_error *error);

/* Refuses a tensor of the layer's own attention module that is neither bound nor harmless: such a
 * tensor would change what the layer computes.  Errors: ATTN_UNSUPPORTED, and those of finding. */
enum attn_status attn_check_module(const struct attn_bindings *bindings,
                                   struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   struct attn_error *error);

/* Fails with ATTN_NOT_FOUND for the first of the `missing` projections in that role, with what the
 * checkpoint has instead. */
enum attn_status attn_fail_missing(const struct attn_checkpoint *checkpoint,
                                   const struct attn_checkpoint_layer *source,
                                   enum attn_tensor_role role, unsigned missing,
                                   struct attn_error *error);

#endif
