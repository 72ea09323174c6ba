/* oracle_layer.h: a whole layer in double: projections, RMSNorm, RoPE, attention, output
 * projection.
 *
 * The oracle reads the weights of a loaded layer as packed and its specification as resolved, and
 * uses nothing else of the library.  RoPE's inverse frequencies and angles are rounded to float32,
 * as in Hugging Face and as models were trained; all else is in double. */
#ifndef TESTS_ORACLE_LAYER_H
#define TESTS_ORACLE_LAYER_H

#include "layers/layer.h"
#include "oracle.h"

/* The results of attn_attend.  args->outputs is ignored; out->output is [B][T][E]. */
void oracle_layer(struct oracle_outputs *out, const struct attn_layer *layer,
                  const struct attn_attend_args *args);

/* The results of a step of attn_decode over a cache of the layer.  hidden_states [S][E] are the
 * rows that were cached, at positions 0, 1, ..., then those of the step. */
void oracle_step(struct oracle_outputs *out, const struct attn_layer *layer,
                 const float *hidden_states, const struct attn_step *step);

/* The same, attending over keys [G][S][D] and values [G][S][Dv] as rounded in the cache.  out->key
 * and out->value are the numbers before rounding. */
void oracle_rounded_step(struct oracle_outputs *out, const struct attn_layer *layer,
                         const float *hidden_states, const struct attn_step *step, const float *key,
                         const float *value);

/* The packed weight of input i in output o, as a number. */
float oracle_weight(const struct attn_linear *linear, size_t o, size_t i);

#endif
