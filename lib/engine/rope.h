/* rope.h: rotary position embedding (Su et al. 2021), in the arithmetic of Hugging Face.
 *
 * Inverse frequencies are rounded to float32 and multiplied by the position in float32, because the
 * models were trained with that arithmetic.  Only cosine and sine are computed in double, then
 * rounded and multiplied by the attention factor in float32. */
#ifndef ATTN_LIB_ENGINE_ROPE_H
#define ATTN_LIB_ENGINE_ROPE_H

#include "attn.h"

/* inv_freq[i], i in [0, spec->dim/2): theta^(-2i/dim), changed as the spec's type says for a call
 * whose largest position is length - 1; negative where pairs rotate the other way. */
void attn_rope_frequencies(float *inv_freq, const struct attn_rope_spec *spec, int64_t length);

/* Whether a call of that length has other frequencies than a short call: types dynamic and
 * longrope, beyond the trained length. */
bool attn_rope_is_rescaled(const struct attn_rope_spec *spec, int64_t length);

/* Longrope's trained length, up to which keys are rotated otherwise than in longer calls; 0: they
 * are not, with another type or where both lists of factors are the same.  (With dynamic every
 * length beyond the trained one has frequencies of its own, and cached keys keep theirs, as in
 * Hugging Face.) */
size_t attn_rope_short_length(const struct attn_rope_spec *spec);

/* cos_sin[i] = cos, cos_sin[dim/2 + i] = sin of position * inv_freq[i], times the attention factor.
 * rescaled: the frequencies are those of a length that attn_rope_is_rescaled. */
void attn_rope_cos_sin(float *cos_sin, const struct attn_rope_spec *spec, const float *inv_freq,
                       int64_t position, bool rescaled);

/* The same of a patch of a grid, counted row by row, for grid[0] rows and grid[1] columns. */
void attn_rope_grid_cos_sin(float *cos_sin, const struct attn_rope_spec *spec,
                            const float *inv_freq, size_t patch, const size_t grid[2]);

/* Rotates the pairs of one head x [D] in place. */
void attn_rope_rotate(float *x, const struct attn_rope_spec *spec, const float *cos_sin);

/* Checks a specification of any type but none, for heads of width head_dim: its width, its bounds
 * and the fields that its type needs.  Errors: ATTN_OUT_OF_RANGE. */
enum attn_status attn_rope_check(const struct attn_rope_spec *spec, size_t head_dim,
                                 struct attn_error *error);

#endif
