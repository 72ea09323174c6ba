/* window.c: a layer's window, as caches need it.
 *
 * The first real token of a padding_mask begins the first chunk, so that a chunk may begin at any
 * slot: a layer with chunks of C keeps what a window of C would see. */
#include "caches/kvcache.h"

#include "basics/mem.h"
#include "basics/tile.h"

/* The keys that a query sees at most, itself included; 0: all.  Queries over encoder rows may stand
 * anywhere. */
static size_t width_of(const struct attn_layer_spec *spec)
{
    if (spec->is_cross)
        return 0;
    const size_t window = spec->sliding_window, chunk = spec->attention_chunk_size;
    return window > 0 && chunk > 0 ? attn_min(window, chunk) : attn_max(window, chunk);
}

size_t attn_window_first(const struct attn_layer_spec *spec, size_t position)
{
    const size_t width = width_of(spec);
    return width > 0 && position >= width ? position - width + 1 : 0;
}

size_t attn_window_least(const struct attn_layer_spec *spec, size_t first)
{
    return first > 0 ? first + width_of(spec) - 1 : 0;
}

size_t attn_window_blocks(const struct attn_layer_spec *spec, size_t tokens, bool read)
{
    const size_t width = width_of(spec), all = attn_ceil_div(tokens, ATTN_TILE);
    return width > 0 ? attn_min(attn_ceil_div(width - !read, ATTN_TILE) + 1, all) : all;
}
