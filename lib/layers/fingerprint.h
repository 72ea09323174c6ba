/* fingerprint.h: what a model's fingerprint says of a layer. */
#ifndef ATTN_LIB_LAYERS_FINGERPRINT_H
#define ATTN_LIB_LAYERS_FINGERPRINT_H

#include "layers/layer.h"

/* `hash` continued by the layer's specification and weights, which are not packed yet; matrices are
 * left to `weights`.  Members that only newer layers have are hashed
 * where they are set, so the fingerprints of others stay. */
struct attn_weights_hash;
uint64_t attn_layer_hash(uint64_t hash, struct attn_layer *layer,
                         const struct attn_weights_hash *weights);

/* How the weights of a matrix are hashed: `add` returns the hash continued by linear's in x out
 * weights, as attn_hash_floats has it, and may read and pack them meanwhile.  The matrices come in
 * an order that follows from the specification. */
struct attn_weights_hash {
    uint64_t (*add)(void *context, uint64_t hash, struct attn_linear *linear);
    void *context;
};

/* `hash` continued by floats, two at a step; of an array in parts, all but the last have an even
 * count. */
uint64_t attn_hash_floats(uint64_t hash, const float *x, size_t count);

#endif
