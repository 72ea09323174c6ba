/* qkv.h: from projected rows to queries, keys and values that attention may use, and from a layer
 * to what its problems have in common. */
#ifndef ATTN_LIB_QKV_H
#define ATTN_LIB_QKV_H

#include "layer.h"

/* One token's projections: q [H][D], k [G][D], v [G][Dv]; q, or k and v, NULL where cross-attention
 * has none of that number. */
struct attn_qkv {
    float *q, *k, *v;
};

/* The frequencies of a call whose largest position is length - 1: the layer's own, or `bent`
 * [rope.dim/2], filled here, where the length bends them; NULL without RoPE. */
const float *attn_qkv_frequencies(float *bent, const struct attn_layer *layer, int64_t length);

/* The length of a call: its largest position plus 1.  positions [rows], NULL: first + 0, 1, ... */
int64_t attn_qkv_length(const int64_t *positions, size_t rows, int64_t first);

/* Normalises q and k where the layer does, rotates them to `position` by the frequencies inv_freq
 * unless that is NULL, and checks all three against ATTN_MAX_MAGNITUDE: false where one is
 * beyond. */
bool attn_qkv_postprocess(struct attn_qkv row, const struct attn_layer *layer,
                          const struct attn_kernels *kernels, const float *inv_freq,
                          int64_t position);

/* The failure that false means. */
enum attn_status attn_qkv_fail(struct attn_error *error);

/* Checks an input of n floats: ATTN_NON_FINITE names the first element at fault.  The caller holds
 * the engine's lock. */
enum attn_status attn_input_check(struct attn_engine *engine, const float *x, size_t n,
                                  const char *param, struct attn_error *error);

/* The problem of one sequence over rows that a layer projected, but for where the rows are. */
struct attn_problem;
struct attn_problem attn_layer_problem(const struct attn_layer *layer,
                                       const struct attn_modifiers *modifiers);

/* Tells a problem, whose sizes stand, what sequence b of a call wants: its mask, with positions
 * [S + T] where attn_mask_needs_positions, else NULL; its part of the maps and of lse [B][H][T],
 * which may be NULL. */
struct attn_mask_defaults;
struct attn_maps;
void attn_problem_set_modifiers(struct attn_problem *p, const struct attn_mask_defaults *defaults,
                                const struct attn_modifiers *modifiers, int64_t *positions,
                                const struct attn_maps *maps, float *lse, size_t b);

/* What its mask is unless the modifiers say otherwise. */
struct attn_mask_defaults attn_layer_mask_defaults(const struct attn_layer *layer, bool causal);

#endif
