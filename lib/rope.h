/* rope.h: rotary position embedding (Su et al. 2021), in the arithmetic of Hugging Face.
 *
 * Inverse frequencies are rounded to float32 and multiplied by the position in float32, because
 * that is what the models were trained with; only cosine and sine are taken in double. */
#ifndef ATTN_LIB_ROPE_H
#define ATTN_LIB_ROPE_H

#include "attn.h"

/* inv_freq[i], i in [0, spec->dim/2): theta^(-2i/dim), bent by the spec's type. */
void attn_rope_frequencies(float *inv_freq, const struct attn_rope_spec *spec);

/* turn[i] = cos, turn[dim/2 + i] = sin of position * inv_freq[i]. */
void attn_rope_turn(float *turn, const float *inv_freq, size_t dim, int64_t position);

/* Rotates the pairs (x[i], x[i + dim/2]) of one head in place. */
void attn_rope_rotate(float *x, const float *turn, size_t dim);

#endif
