/* norm.c: RMSNorm and LayerNorm; sums in double, the rest in float32. */
#include <math.h>

#include "layers/layer.h"

void attn_norm_vector(float *x, const struct attn_norm_spec *norm, const float *weight,
                      const float *bias, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; norm->type == ATTN_NORM_LAYER && i < n; i++)
        sum += (double)x[i];
    float mean = (float)(sum / (double)n);
    for (size_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares += (double)x[i] * (double)x[i];
    }
    float factor = (float)(1 / sqrt(squares / (double)n + norm->eps));
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * factor * (weight != NULL ? weight[i] : 1) + (bias != NULL ? bias[i] : 0);
}
