/* rope.h: rotary position embedding (Su et al. 2021), in the arithmetic of Hugging Face.
 *
 * Inverse frequencies are rounded to float32 and multiplied by the position in float32, because
 * that is what the models were trained with; only cosine and sine are taken in double, then
 * rounded and multiplied by the attention factor in float32. */
#ifndef ATTN_LIB_ROPE_H
#define ATTN_LIB_ROPE_H

#include "attn.h"

/* inv_freq[i], i in [0, spec->dim/2): theta^(-2i/dim), bent by the spec's type for a call whose
 * largest position is length - 1. */
void attn_rope_frequencies(float *inv_freq, const struct attn_rope_spec *spec, int64_t length);

/* Whether a call of that length has other frequencies than one of length 0. */
bool attn_rope_is_rescaled(const struct attn_rope_spec *spec, int64_t length);

/* turn[i] = cos, turn[dim/2 + i] = sin of position * inv_freq[i], times the attention factor. */
void attn_rope_cos_sin(float *turn, const struct attn_rope_spec *spec, const float *inv_freq,
                       int64_t position);

/* Rotates the pairs of one head in place. */
void attn_rope_rotate(float *x, const struct attn_rope_spec *spec, const float *turn);

/* Checks a specification that has a type for heads of width head_dim: widths, bounds, what the type
 * needs.  Errors: ATTN_OUT_OF_RANGE. */
enum attn_status attn_rope_check(const struct attn_rope_spec *spec, size_t head_dim,
                                 struct attn_error *error);

#endif
