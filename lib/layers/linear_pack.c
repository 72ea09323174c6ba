/* linear_pack.c: weights [out][in] -> panels of words.
 *
 * A panel is packed block by block: BLOCK words of each of its columns in turn, so that the block
 * stays in the first cache while the rows of weights stream through.  Bits of a column that no
 * weight fills, and columns beyond the last output, are zeros. */
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "layers/linear.h"

#define BLOCK 64 /* words; ATTN_RANGE_WORDS is a multiple */
_Static_assert(ATTN_RANGE_WORDS % BLOCK == 0, "a block lies inside a range");

static size_t total_words(size_t in, size_t out, enum attn_dtype dtype)
{
    return attn_mul(attn_linear_panels(out), attn_mul(attn_linear_words(in, dtype), ATTN_PANEL));
}

/* The format of weights of a dtype. */
static enum attn_dtype stored_as(enum attn_dtype dtype)
{
    return dtype == ATTN_W8A16 ? ATTN_INT8 : dtype;
}

size_t attn_linear_bytes(size_t in, size_t out, enum attn_dtype dtype)
{
    dtype = stored_as(dtype);
    return total_words(in, out, dtype) * sizeof(float) +
           (dtype == ATTN_INT8 ? out * sizeof(float) : 0);
}

size_t attn_linear_panel_bytes(const struct attn_linear *linear)
{
    return total_words(linear->in, linear->out, linear->dtype) * sizeof(float);
}

void attn_linear_shape(struct attn_linear *linear, size_t in, size_t out, enum attn_dtype dtype)
{
    *linear = (struct attn_linear){
        .in = in, .out = out, .dtype = stored_as(dtype), .wide_rows = dtype == ATTN_W8A16};
}

bool attn_linear_pack_begin(struct attn_linear *linear, enum attn_dtype dtype)
{
    linear->dtype = stored_as(dtype);
    linear->wide_rows = dtype == ATTN_W8A16;
    const bool scaled = linear->dtype == ATTN_INT8;
    linear->panels =
        attn_alloc_huge(total_words(linear->in, linear->out, linear->dtype), sizeof(float));
    linear->scale = scaled ? attn_alloc(linear->out, sizeof(float)) : NULL;
    return linear->panels != NULL && (linear->scale != NULL || !scaled);
}

/* Some columns of a panel, and the weights that they are packed from. */
struct panel {
    const struct attn_linear *linear;
    size_t index, columns;  /* columns: those that are outputs */
    const float *rows;      /* [columns][in] */
    const int8_t *integers; /* [columns][in], for int8 */
};

static uint32_t pair_of(float low, float high)
{
    return attn_float_to_bf16(low) | (uint32_t)attn_float_to_bf16(high) << 16;
}

static void words_of_bf16(uint32_t words[BLOCK], const float *x, size_t count)
{
    if (count == 2 * BLOCK)
        for (size_t i = 0; i < BLOCK; i++)
            words[i] = pair_of(x[2 * i], x[2 * i + 1]);
    else
        for (size_t i = 0; 2 * i < count; i++)
            words[i] = pair_of(x[2 * i], 2 * i + 1 < count ? x[2 * i + 1] : 0);
}

/* Integers are stored with 128 added, which inverts their first bit. */
static void words_of_int8(uint32_t words[BLOCK], const int8_t *x, size_t count)
{
    uint8_t bytes[4 * BLOCK] = {0};
    if (count == sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(x[i] + 128);
    else
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)(x[i] + 128);
    memcpy(words, bytes, sizeof bytes);
}

/* The words of inputs [i, i + count) in column c. */
static void words_of(uint32_t words[BLOCK], const struct panel *panel, size_t c, size_t i,
                     size_t count)
{
    const struct attn_linear *linear = panel->linear;
    const size_t at = c * linear->in + i;
    if (c >= panel->columns)
        memset(words, 0, BLOCK * sizeof *words);
    else if (linear->dtype == ATTN_INT8)
        words_of_int8(words, panel->integers + at, count);
    else if (linear->dtype == ATTN_BF16)
        words_of_bf16(words, panel->rows + at, count);
    else
        memcpy(words, panel->rows + at, count * sizeof *words);
}

/* Packs inputs [i, i + count) of all columns, a block of words at most. */
static void pack_block(const struct panel *panel, size_t i, size_t count)
{
    const struct attn_linear *linear = panel->linear;
    const size_t num_words = attn_linear_words(count, linear->dtype);
    uint32_t *out = (uint32_t *)linear->panels + attn_linear_word(linear, panel->index, i);
    for (size_t c = 0; c < ATTN_PANEL; c++) {
        uint32_t words[BLOCK];
        words_of(words, panel, c, i, count);
        for (size_t w = 0; w < num_words; w++)
            out[w * ATTN_PANEL + c] = words[w];
    }
}

void attn_linear_pack_rows(struct attn_linear *linear, const float *rows, size_t first,
                           size_t count, int8_t *integers)
{
    struct attn_kernels kernels; /* which all give the same bits */
    const size_t in = linear->in, depth = BLOCK * attn_numbers_per_word(linear->dtype);
    attn_kernels_get(&kernels, 0);
    for (size_t row = 0; row < count; row += ATTN_PANEL) {
        const struct panel panel = {.linear = linear,
                                    .index = (first + row) / ATTN_PANEL,
                                    .columns = attn_min(count - row, ATTN_PANEL),
                                    .rows = rows + row * in,
                                    .integers = integers};
        for (size_t c = 0; linear->dtype == ATTN_INT8 && c < panel.columns; c++)
            kernels.quantize(integers + c * in, &linear->scale[first + row + c],
                             panel.rows + c * in, in);
        for (size_t i = 0; i < in; i += depth)
            pack_block(&panel, i, attn_min(in - i, depth));
    }
}

size_t attn_linear_pack_scratch(const struct attn_linear *linear)
{
    return linear->dtype == ATTN_INT8 ? attn_mul(ATTN_PANEL, linear->in) : 0;
}

void attn_linear_fini(struct attn_linear *linear)
{
    attn_free(linear->weight);
    attn_free(linear->panels);
    attn_free(linear->scale);
    attn_free(linear->bias);
}
