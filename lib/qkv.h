/* qkv.h: from projected rows to queries, keys and values that attention may use. */
#ifndef ATTN_LIB_QKV_H
#define ATTN_LIB_QKV_H

#include "layer.h"

/* One token's projections: q [H][D], k [G][D], v [G][Dv]. */
struct attn_qkv {
    float *q, *k, *v;
};

/* Rotates q and k to `position` where the layer has RoPE, and checks all three against
 * ATTN_MAX_MAGNITUDE: false where one is beyond. */
bool attn_qkv_settle(struct attn_qkv row, const struct attn_layer *layer,
                     const struct attn_kernels *kernels, int64_t position);

/* The failure that false means. */
enum attn_status attn_qkv_fail(struct attn_error *error);

/* Checks an input of n floats: ATTN_NON_FINITE names the first element at fault. */
enum attn_status attn_input_check(const struct attn_kernels *kernels, const float *x, size_t n,
                                  const char *param, struct attn_error *error);

/* The problem of one sequence over rows that a layer projected, but for where the rows are. */
struct attn_problem;
struct attn_problem attn_layer_problem(const struct attn_layer *layer,
                                       const struct attn_modifiers *modifiers);

#endif
