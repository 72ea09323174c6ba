/* cache_window.c: a layer's window, as caches need it. */
#include "cache_window.h"

#include "mem.h"

size_t attn_window_first(const struct attn_layer_spec *spec, size_t position)
{
    const size_t window = spec->sliding_window, chunk = spec->attention_chunk_size;
    const size_t seen = window > 0 && position >= window ? position - window + 1 : 0;
    return attn_max(seen, chunk > 0 ? position / chunk * chunk : 0);
}

size_t attn_window_least(const struct attn_layer_spec *spec, size_t first)
{
    const size_t window = spec->sliding_window, chunk = spec->attention_chunk_size;
    size_t least = first;
    if (window > 0)
        least = first + window - 1;
    if (chunk > 0 && (window == 0 || attn_ceil_div(first, chunk) * chunk < least))
        least = attn_ceil_div(first, chunk) * chunk;
    return first > 0 ? least : 0;
}
