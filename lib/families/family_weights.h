/* family_weights.h: the tensors of one layer, found and read as its family's row says. */
#ifndef ATTN_LIB_FAMILY_WEIGHTS_H
#define ATTN_LIB_FAMILY_WEIGHTS_H

#include "attn.h"
#include "checkpoint.h"
#include "families/family_config.h"
#include "layer.h"

/* Checks without reading that every tensor of layer `layer` is there, in a readable type, with
 * the shape that its specification asks for, and that there is no bias that the configuration
 * denies.
 * *dtype is how the query weights are stored.
 * Errors: ATTN_NOT_FOUND, ATTN_SHAPE_MISMATCH, ATTN_UNSUPPORTED, ATTN_MALFORMED, ATTN_IO,
 * ATTN_NO_MEMORY. */
enum attn_status attn_weights_check(const char **dtype, struct attn_checkpoint *checkpoint,
                                    const struct attn_config *config, size_t layer,
                                    struct attn_error *error);

/* Fills the weights and biases of *out, which attn_layer_init has made for the layer.
 * Errors: as above, and ATTN_NON_FINITE. */
enum attn_status attn_weights_read(struct attn_layer *out, struct attn_checkpoint *checkpoint,
                                   const struct attn_config *config, size_t layer,
                                   struct attn_error *error);

/* Fills them from the generator instead: weights uniform in +-sqrt(3/in), biases in +-0.1, weights
 * of norms in 1 +-0.1, sinks and position biases in +-1. */
void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer);

#endif
