/* cache_window.c: a layer's window, as caches need it. */
#include "cache_window.h"

size_t attn_window_first(const struct attn_layer_spec *spec, size_t position)
{
    const size_t window = spec->sliding_window;
    return window > 0 && position >= window ? position - window + 1 : 0;
}

size_t attn_window_least(const struct attn_layer_spec *spec, size_t first)
{
    return first > 0 ? first + spec->sliding_window - 1 : 0;
}
