/* fingerprint.h: what a model's fingerprint says of a layer. */
#ifndef ATTN_LIB_FINGERPRINT_H
#define ATTN_LIB_FINGERPRINT_H

#include "layer.h"

/* `hash` continued by the layer's specification and weights, which are not packed yet.  Members
 * that only newer layers have are hashed where they are set, so the fingerprints of others stay. */
uint64_t attn_layer_hash(uint64_t hash, const struct attn_layer *layer);

#endif
