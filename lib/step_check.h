/* step_check.h: whether a step over a cache can be computed, and room for its keys. */
#ifndef ATTN_LIB_STEP_CHECK_H
#define ATTN_LIB_STEP_CHECK_H

#include "attention.h"
#include "model.h"

/* Checks a step over a resident layer of the model: its cache, rows, position, what the layer
 * allows, modifiers and numbers; outputs are attn_maps_init's.  Reads all rows, on all threads of
 * the engine, whose lock the caller holds.  Errors: those of a step of attn_decode. */
enum attn_status attn_step_check(const struct attn_step *step, struct attn_engine *engine,
                                 const struct attn_model *model, size_t layer,
                                 struct attn_error *error);

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
