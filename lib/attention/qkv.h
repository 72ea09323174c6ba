/* qkv.h: from projected rows to queries, keys and values (norm, RoPE, bounds), and from a layer and
 * a call's modifiers to a problem of attention.h. */
#ifndef ATTN_LIB_ATTENTION_QKV_H
#define ATTN_LIB_ATTENTION_QKV_H

#include "kernels/kernels.h"
#include "layers/layer.h"
#include "layers/mla.h"

/* One token's projections: q [H][D], k [G][D], v [G][Dv]; in a latent layer k is the latent [R] and
 * v the shared part.  In cross-attention, where queries and
 * keys differ in number, q may be NULL, or k and v. */
struct attn_qkv {
    float *q, *k, *v;
};

/* RoPE's frequencies [rope.dim/2] of a call whose largest position is length - 1: the layer's own,
 * or, where the length changes them, `rescaled`, which is filled here; NULL without RoPE. */
const float *attn_qkv_frequencies(float *rescaled, const struct attn_layer *layer, int64_t length);

/* The length of a call: its largest position plus 1.  positions [rows]; NULL: first, first + 1,
 * ... */
int64_t attn_qkv_length(const int64_t *positions, size_t rows, int64_t first);

/* Normalises q, k and v where the layer does, rotates q and k to `position` by the frequencies
 * inv_freq (NULL: no rotation), scales q where the layer does by `position` or by `slot`, the row's
 * index in its sequence, and checks q, k and v.  False where a number is beyond
 * ATTN_MAX_MAGNITUDE. */
bool attn_qkv_postprocess(struct attn_qkv row, const struct attn_layer *layer,
                          const struct attn_kernels *kernels, const float *inv_freq,
                          int64_t position, size_t slot);

/* Copies row i of a weightless step: its query, key and value, from [heads][n][width]. */
void attn_qkv_take_given(struct attn_qkv to, const struct attn_layer_spec *spec,
                         const struct attn_step *step, size_t i);

/* Whether attn_qkv_postprocess changes rows of this layer. */
bool attn_layer_has_postprocessing(const struct attn_layer *layer);

/* heads[i] *= 1 / (1 + exp(-gate[i])), both [rows][width], on all threads; width 0: the layer has
 * no gate. */
void attn_gate_rows(struct attn_pool *pool, float *heads, const float *gate, size_t rows,
                    size_t width);

/* The error to report where attn_qkv_postprocess returned false, or a gate is out of bounds. */
enum attn_status attn_qkv_fail(const struct attn_layer_spec *spec, struct attn_error *error);

/* Checks an input of n floats on all threads.  The caller holds the engine's lock.  Errors:
 * ATTN_NON_FINITE, which names the first element at fault. */
enum attn_status attn_input_check(struct attn_engine *engine, const float *x, size_t n,
                                  const char *param, struct attn_error *error);

/* The problem of one sequence as the layer defines it, still without sizes, rows, mask and maps. */
struct attn_problem;
struct attn_problem attn_layer_problem(const struct attn_layer *layer,
                                       const struct attn_modifiers *modifiers);

/* Whether an attention over given rows multiplies keys and values as pairs of bf16: where the level
 * can, where neither weights nor caches are of float32 or f16, and where a tile of pairs is no
 * larger than one of float32. */
bool attn_layer_attends_in_pairs(const struct attn_layer *layer,
                                 const struct attn_kernels *kernels);

/* Adds to a problem, whose sizes are set, what sequence b of a call asks for: its mask, with
 * positions [S + T] where attn_mask_needs_positions, else NULL; its part of the maps; its part of
 * lse [B][H][T], which may be NULL. */
struct attn_mask_defaults;
struct attn_maps;
void attn_problem_set_modifiers(struct attn_problem *p, const struct attn_mask_defaults *defaults,
                                const struct attn_modifiers *modifiers, int64_t *positions,
                                const struct attn_maps *maps, float *lse, size_t b);

/* The layer's mask, for where the modifiers say nothing. */
struct attn_mask_defaults attn_layer_mask_defaults(const struct attn_layer *layer, bool causal);

#endif
