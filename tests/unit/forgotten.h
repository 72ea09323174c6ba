/* forgotten.h: what a step gives whose cache has forgotten keys, from the definition. */
#ifndef TESTS_FORGOTTEN_H
#define TESTS_FORGOTTEN_H

#include "oracle.h"

/* Whether a step sees a key that the layer's window has forgotten. */
bool forgotten_is_seen(const struct attn_step *step, const struct attn_layer_spec *spec,
                       size_t layer);

/* Hides the keys before `first` in the expected results of a step over S = keys, of which `rows`
 * rows of scores are expected: minus infinity for scores, 0 for keys and values. */
void forgotten_hide(struct oracle_outputs *want, const struct attn_layer_spec *spec, size_t rows,
                    size_t keys, size_t first);

#endif
