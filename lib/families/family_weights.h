/* family_weights.h: the tensors of one layer, found and read by its family's row. */
#ifndef ATTN_LIB_FAMILY_WEIGHTS_H
#define ATTN_LIB_FAMILY_WEIGHTS_H

#include "attn.h"
#include "checkpoint.h"
#include "families/family_config.h"
#include "layer.h"

/* Checks, without reading, that every tensor of layer `layer` exists, in a readable type and the
 * shape that its specification asks for, and that no bias exists that the configuration denies.
 * *dtype is the type in which the query weights are stored.
 * Errors: ATTN_NOT_FOUND, ATTN_SHAPE_MISMATCH, ATTN_UNSUPPORTED, ATTN_MALFORMED, ATTN_IO,
 * ATTN_NO_MEMORY. */
enum attn_status attn_weights_check(const char **dtype, struct attn_checkpoint *checkpoint,
                                    const struct attn_config *config, size_t layer,
                                    struct attn_error *error);

/* Reads the weights and biases into *out, which attn_layer_init has made for the layer.
 * Errors: as attn_weights_check; ATTN_NON_FINITE. */
enum attn_status attn_weights_read(struct attn_layer *out, struct attn_checkpoint *checkpoint,
                                   const struct attn_config *config, size_t layer,
                                   struct attn_error *error);

/* Fills the weights and biases of *out from the generator of random.h instead: weights uniform in
 * +-sqrt(3/in), biases in +-0.1, weights of norms in 1 +-0.1, sinks and position biases in +-1. */
void attn_weights_random(struct attn_layer *out, uint64_t seed, size_t layer);

/* Puts the components of queries and keys that rotate in pairs, which lie side by side in weights,
 * half of their number apart: row 2i becomes row i, row 2i + 1 comes after all even ones.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_latent_gather(struct attn_layer *layer, struct attn_error *error);

#endif
