/* window.h: which tokens of a sequence the later queries of a layer can still see. */
#ifndef ATTN_LIB_CACHES_WINDOW_H
#define ATTN_LIB_CACHES_WINDOW_H

#include "attn.h"

/* The first key that a query at `position` sees by the layer's window or chunk; grows with the
 * position, and is 0 where the layer has neither. */
size_t attn_window_first(const struct attn_layer_spec *spec, size_t position);

/* The least position from which on no query sees a key before `first`; 0 for 0. */
size_t attn_window_least(const struct attn_layer_spec *spec, size_t first);

/* Blocks that a layer holds of a session of up to `tokens` tokens, at most, after steps of one
 * row; `read`: other layers may read it, whose last step sees a token more. */
size_t attn_window_blocks(const struct attn_layer_spec *spec, size_t tokens, bool read);

#endif
