/* norm.h: normalising one vector of a row. */
#ifndef ATTN_LIB_LAYERS_NORM_H
#define ATTN_LIB_LAYERS_NORM_H

#include "attn.h"

/* x [n] in place: RMSNorm (Zhang and Sennrich 2019), or LayerNorm (Ba et al. 2016), by the type and
 * eps of `norm`.  weight and bias [n] may be NULL. */
void attn_norm_vector(float *x, const struct attn_norm_spec *norm, const float *weight,
                      const float *bias, size_t n);

#endif
