/* calls.h: what the public functions check before they compute. */
#ifndef ATTN_LIB_CALLS_CALLS_H
#define ATTN_LIB_CALLS_CALLS_H

#include "attn.h"

/* Checks the sizes of a call over given rows.  Error: ATTN_OUT_OF_RANGE. */
enum attn_status attn_call_check_sizes(size_t batch, size_t queries, size_t keys,
                                       struct attn_error *error);

/* Checks what only some layers can do: masks that differ by head, these outputs, and a call over so
 * many keys.  Error: ATTN_UNSUPPORTED. */
enum attn_status attn_call_check_layer(const struct attn_modifiers *modifiers,
                                       const struct attn_outputs *outputs,
                                       const struct attn_layer_spec *spec, size_t keys,
                                       struct attn_error *error);

/* Checks a step over a resident layer of the model: its cache, rows, position, what the layer
 * allows, modifiers and numbers; outputs are attn_maps_init's.  Reads all rows, on all threads of
 * the engine, whose lock the caller holds.  Errors: those of a step of attn_decode. */
enum attn_status attn_step_check(const struct attn_step *step, struct attn_engine *engine,
                                 const struct attn_model *model, size_t layer,
                                 struct attn_error *error);

/* S, the keys that a step attends over: the cached tokens and its own rows, or, where the layer is
 * of cross-attention, the encoder rows of its cache. */
size_t attn_step_keys(const struct attn_step *step, const struct attn_model *model, size_t layer);

/* Reserves room for the keys of a step that appends.  A step that is computed again from 0 on sees
 * no keys but its own: where a window has forgotten them, *replay becomes a cache with room for
 * them, the caller's to free, in which the step is computed as at first; else NULL.
 * Errors: as attn_cache_reserve. */
enum attn_status attn_step_reserve(struct attn_cache **replay, const struct attn_step *step,
                                   size_t layer, bool append, struct attn_error *error);

#endif
