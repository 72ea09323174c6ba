/* step_check.h: whether a step over a cache can be computed, and room for its keys. */
#ifndef ATTN_LIB_CALLS_STEP_CHECK_H
#define ATTN_LIB_CALLS_STEP_CHECK_H

#include "attention/attention.h"
#include "models/model.h"

/* Checks a step over a resident layer of the model: its cache, rows, position, what the layer
 * allows, modifiers and numbers; outputs are attn_maps_init's.  Reads all rows, on all threads of
 * the engine, whose lock the caller holds.  Errors: those of a step of attn_decode. */
enum attn_status attn_step_check(const struct attn_step *step, struct attn_engine *engine,
                                 const struct attn_model *model, size_t layer,
                                 struct attn_error *error);

/* S, the keys that a step attends over: the cached tokens and its own rows, or, where the layer is
 * of cross-attention, the encoder rows of its cache. */
size_t attn_step_keys(const struct attn_step *step, const struct attn_model *model, size_t layer);

/* The slot of the step's first row; 0 in a layer of cross-attention, whose rows have none. */
size_t attn_step_slot(const struct attn_step *step, const struct attn_layer_spec *spec);

/* Whether steps of the layer bring queries alone: its keys are an encoder's, or another layer's. */
bool attn_queries_only(const struct attn_layer_spec *spec);

/* Reserves room for the keys of a step that appends.  A step that is computed again from 0 on sees
 * no keys but its own: where a window has forgotten them, *again becomes a cache with room for
 * them, the caller's to free, in which the step is computed as at first; else NULL.
 * Errors: as attn_cache_reserve. */
enum attn_status attn_step_reserve(struct attn_cache **again, const struct attn_step *step,
                                   size_t layer, bool append, struct attn_error *error);

/* Checks that the cache still holds all keys that a step sees, by its mask.
 * Error: ATTN_FORGOTTEN. */
enum attn_status attn_step_check_kept(const struct attn_problem *problem, struct attn_error *error);

#endif
