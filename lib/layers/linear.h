/* linear.h: a linear map, its weights packed in one of several dtypes, and projections by it.
 *
 * Weights are read as checkpoints store them, [out][in] row-major float32, and then packed once
 * into panels of ATTN_PANEL columns (kernels/kernels.h), which one kernel streams for any number of
 * rows. Only the packed copy is kept. */
#ifndef ATTN_LIB_LAYERS_LINEAR_H
#define ATTN_LIB_LAYERS_LINEAR_H

#include <stdatomic.h>

#include "attn.h"
#include "engine/engine.h"

/* A step of at most so many rows shares products with other steps (calls/decode.c). */
#define ATTN_BATCHED_ROWS 64

/* y = x w^T + bias */
struct attn_linear {
    size_t in, out;
    float *weight;         /* [out][in], NULL once packed */
    enum attn_dtype dtype; /* of the packed weights: ATTN_F32, ATTN_BF16 or ATTN_INT8 */
    bool wide_rows;        /* ATTN_W8A16: rows become integers of 16 bits, else of 8; int8 only */
    void *panels; /* words of 32 bits (kernels/kernels.h), for each range of ATTN_RANGE_WORDS words
                              of `in` [ceil(out / ATTN_PANEL)][words of the range][ATTN_PANEL];
                              NULL until packed */
    float *scale; /* [out] for ATTN_INT8: max|w| / 127 of each output; else NULL */
    float *bias;  /* [out] or NULL */
};

/* Bytes of a packed matrix and its scales, without a bias. */
size_t attn_linear_bytes(size_t in, size_t out, enum attn_dtype dtype);

/* Makes *linear a map as it is once packed, without its arrays; bytes of its panels. */
void attn_linear_shape(struct attn_linear *linear, size_t in, size_t out, enum attn_dtype dtype);
size_t attn_linear_panel_bytes(const struct attn_linear *linear);

/* Packing weights as `dtype`: bf16 is the nearest, ties to even; int8, also of w8a16, the nearest
 * multiple of the output's scale.  `begin` makes the arrays of the packed weights; false where
 * memory is short.  `rows` packs outputs [first, first + count), whose weights are rows
 * [count][in]: whole panels of them, or up to the last one.  Every output has to be packed once, in
 * any order and on any thread, whose scratch `integers` of attn_linear_pack_scratch bytes are. */
bool attn_linear_pack_begin(struct attn_linear *linear, enum attn_dtype dtype);
void attn_linear_pack_rows(struct attn_linear *linear, const float *rows, size_t first,
                           size_t count, int8_t *integers);
size_t attn_linear_pack_scratch(const struct attn_linear *linear);
void attn_linear_fini(struct attn_linear *linear);

/* One projection of a fork-join: y = linear(x) for `rows` rows. */
struct attn_projection {
    const struct attn_linear *linear;
    const float *x; /* [rows][ldx], of which linear->in are read */
    size_t ldx;
    float *y; /* [rows][ldy], of which linear->out are written */
    size_t ldy;
    size_t rows;
    float limit;         /* of |y|, checked while y is still in a cache */
    atomic_bool *beyond; /* becomes true where a |y| is beyond the limit; NULL: no check */
    /* A part: x has inputs [first, first + count) alone, [rows][ldx], the others count as 0 and no
     * bias is added.  Both are multiples of ATTN_PART_INPUTS, or the part ends where the inputs do.
     * count 0: the whole. */
    size_t first, count;
};

#define ATTN_PART_INPUTS 4 /* whole words of any dtype */

/* The inputs that a projection reads: their number, and the end of them. */
static inline size_t attn_projection_inputs(const struct attn_projection *p)
{
    return p->count > 0 ? p->count : p->linear->in;
}

static inline size_t attn_projection_end(const struct attn_projection *p)
{
    return p->first + attn_projection_inputs(p);
}

/* Whether two projections read the same rows. */
static inline bool attn_same_rows(const struct attn_projection *a, const struct attn_projection *b)
{
    return a->x == b->x && a->ldx == b->ldx && a->rows == b->rows && a->first == b->first &&
           attn_projection_inputs(a) == attn_projection_inputs(b);
}

/* A projection whose rows are contiguous, in x and in y, without a check. */
static inline struct attn_projection attn_projection_of(const struct attn_linear *linear,
                                                        const float *x, float *y, size_t rows)
{
    return (struct attn_projection){
        .linear = linear, .x = x, .ldx = linear->in, .y = y, .ldy = linear->out, .rows = rows};
}

/* Bytes for each projection with int8 weights, which describe its quantized rows. */
#define ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES 64

/* Runs `count` projections with weights of one dtype on all threads.  For int8 weights the rows are
 * first quantized, in the engine's workspace; consecutive projections of the same rows share the
 * quantized rows.  A row's bits depend on the row, the weights and the level alone, unless the
 * engine takes the projection to OpenBLAS (engine/engine.h): then they may depend on the number of
 * rows too.  `invariant` forbids OpenBLAS.  Errors: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_project(struct attn_engine *engine,
                                              const struct attn_projection *projections,
                                              size_t count, bool invariant);

/* ---- Panels: where packed weights stand in attn_linear.panels ---- */

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

/* ---- Rows as integers (quantized_rows.c) ---- */

/* The rows of a projection, quantized for int8 weights.  An integer of 16 bits is two of 8, a high
 * one and a low one: each is a plane, a matrix of rows with scales of its own, and the product with
 * the weights is the sum of both planes' products. */
struct attn_quantized_rows {
    const struct attn_projection *projection;
    const struct attn_kernels *kernels;
    int8_t *x;    /* [planes][rows][ldx], zero beyond the row */
    float *scale; /* [planes][rows] */
    size_t ldx;
    size_t task_end; /* tasks of quantizing, up to the end of these rows */
};

/* Quantizes the rows of projections [count] on all threads, into the engine's workspace;
 * consecutive projections of the same rows share them.  Returns [count], NULL where memory is
 * short. */
struct attn_quantized_rows *attn_quantize_rows(struct attn_engine *engine,
                                               const struct attn_projection *projections,
                                               size_t count);

#endif
