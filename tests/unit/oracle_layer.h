/* oracle_layer.h: a whole layer in double: projections, RMSNorm, RoPE, attention, and back.
 *
 * Weights are read from a resident layer as they stand, its specification as it was resolved;
 * nothing else of the library is used.  Only what models were trained with is not in double:
 * RoPE's inverse frequencies and angles are rounded to float32, as Hugging Face has them. */
#ifndef TESTS_ORACLE_LAYER_H
#define TESTS_ORACLE_LAYER_H

#include "layer.h"
#include "oracle.h"

/* What attn_attend gives.  args->outputs is ignored; out->output is [B][T][E]. */
void oracle_layer(struct oracle_outputs *out, const struct attn_layer *layer,
                  const struct attn_attend_args *args);

/* What a step of attn_decode gives over a cache of the layer: hidden_states [S][E] are the rows
 * that were cached, at positions 0, 1, ..., and then those of the step. */
void oracle_step(struct oracle_outputs *out, const struct attn_layer *layer,
                 const float *hidden_states, const struct attn_step *step);

/* The same, attending over keys [G][S][D] and values [G][S][Dv] that were rounded in the cache;
 * out->key and out->value are those before rounding. */
void oracle_rounded_step(struct oracle_outputs *out, const struct attn_layer *layer,
                         const float *hidden_states, const struct attn_step *step, const float *key,
                         const float *value);

#endif
