/* linear_panels.h: where packed weights stand in attn_linear.panels. */
#ifndef ATTN_LIB_LAYERS_LINEAR_PANELS_H
#define ATTN_LIB_LAYERS_LINEAR_PANELS_H

#include "layers/linear.h"

static inline size_t attn_linear_panels(size_t out) { return attn_ceil_div(out, ATTN_PANEL); }

/* Words of a column of weights. */
static inline size_t attn_linear_words(size_t in, enum attn_dtype dtype)
{
    return attn_ceil_div(in, attn_numbers_per_word(dtype));
}

/* Inputs of a range: what ATTN_RANGE_WORDS words of a column hold. */
static inline size_t attn_linear_range(enum attn_dtype dtype)
{
    return ATTN_RANGE_WORDS * attn_numbers_per_word(dtype);
}

/* Words of a column in the range of inputs that i is in. */
static inline size_t attn_linear_range_words(const struct attn_linear *linear, size_t i)
{
    const size_t depth = attn_linear_range(linear->dtype);
    return attn_linear_words(attn_min(linear->in - i / depth * depth, depth), linear->dtype);
}

/* Where a panel's weights of input i, which begins a word, stand in words of linear->panels. */
static inline size_t attn_linear_word(const struct attn_linear *linear, size_t panel, size_t i)
{
    const size_t each = attn_numbers_per_word(linear->dtype);
    const size_t depth = attn_linear_range(linear->dtype);
    const size_t before = i / depth * ATTN_RANGE_WORDS * attn_linear_panels(linear->out);
    return (before + panel * attn_linear_range_words(linear, i) + i % depth / each) * ATTN_PANEL;
}

#endif
