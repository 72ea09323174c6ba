/* widen.h: arrays of 16-bit floats to float32, exactly, and the check that numbers are finite.
 *
 * Infinities and NaN become infinities and NaN, and a function that met one returns false.  Bits
 * are moved as integers, so neither rounding nor flush-to-zero modes matter. */
#ifndef ATTN_LIB_BASICS_WIDEN_H
#define ATTN_LIB_BASICS_WIDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* out[i] = in[i] as float32 for i < n; no overlap.  True if all are finite. */
bool attn_widen_f16(float *restrict out, const uint16_t *restrict in, size_t n);  /* IEEE half */
bool attn_widen_bf16(float *restrict out, const uint16_t *restrict in, size_t n); /* bfloat16 */

/* True if all n floats are finite. */
bool attn_all_finite(const float *x, size_t n);

/* The index of the first of n floats that is not finite; n without one. */
size_t attn_first_non_finite(const float *x, size_t n);

#endif
