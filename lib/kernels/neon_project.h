/* neon_project.h: products with packed weights for arm64, of any dtype.
 *
 * Rows and weights are read as words of 32 bits: one float32, two bf16 or four int8.  In each step
 * a tile of sums takes one word from each of its rows and one word from each column of a panel,
 * multiplies and adds.  A constant, enum project_op, says what a word means; all else is the same
 * code.  Whatever the tile, an element is one chain of operations per range of k, and that chain's
 * sum is added to `addend`.
 *
 * Rows are copied in strips of up to STRIP_ROWS, transposed: [words][rows of the strip].  The words
 * of STEPS steps are therefore whole vectors without gaps, and an instruction takes its word from a
 * lane of one: 6 rows need a load for each 16 multiply-adds.  For bfmmla a vector has two words of
 * each of two rows (project_offset_neon).
 *
 * PROJECT(name, op) defines the kernel of one operation in the file that includes this header. */
#ifndef ATTN_LIB_KERNELS_NEON_PROJECT_H
#define ATTN_LIB_KERNELS_NEON_PROJECT_H

#include "basics/half_float.h"
#include "kernels/neon.h"

enum project_op {
    OP_F32,         /* float32 by float32 */
    OP_BF16_AS_F32, /* float32 by bf16 widened: two words of x for one of w */
    OP_BF16_DOT,    /* pairs of bf16, bfdot */
    OP_BF16_MATMUL, /* the same chains of sums, of two rows and two columns at a time: bfmmla */
    OP_INT8_DOT,    /* fours of int8, sdot */
};

#define STRIP_ROWS 6 /* x 4 vectors, half a panel: 24 accumulators of 32 registers */
#define FEW_ROWS 3   /* x 8 vectors, a panel */
#define STEPS 8      /* words of x between branches */
#define FACTORS (STEPS * STRIP_ROWS / LANES)

_Static_assert(2 * ATTN_RANGE_WORDS * ATTN_PRODUCT_ROWS <= ATTN_PRODUCT_SCRATCH, "copies of rows");

/* A tile of y: some rows of n columns.  A word is declared float, whatever it holds. */
struct project_tile {
    float *y;
    const float *addend, *x, *w; /* x: [words][rows] */
    size_t ldy, ldaddend, words, n;
    const float *row_scale, *scale; /* of int8 only */
};

typedef void project_tile_fn(const struct project_tile *tile);

struct project_tiles {
    project_tile_fn *whole[FEW_ROWS + 1], *half[STRIP_ROWS + 1]; /* by rows */
};

/* ---- Operations ------------------------------------------------------------------------------ */

/* Words of x for one word of weights. */
INLINE int project_words_per_weight_neon(const enum project_op op)
{
    return op == OP_BF16_AS_F32 ? 2 : 1;
}

INLINE size_t project_words_neon(const enum project_op op, size_t k)
{
    switch (op) {
    case OP_BF16_AS_F32:
        return 2 * attn_ceil_div(k, 2);
    case OP_BF16_DOT:
    case OP_BF16_MATMUL:
        return attn_ceil_div(k, 2);
    case OP_INT8_DOT:
        return attn_ceil_div(k, 4);
    default:
        return k;
    }
}

/* A vector of weights, as it is multiplied.  Where x has two words for one of weights, `half`
 * (constant) says which of them multiplies the result. */
INLINE float32x4_t project_weights_neon(float32x4_t w, const enum project_op op, const int half)
{
    const uint32x4_t words = vreinterpretq_u32_f32(w);
    if (op == OP_BF16_AS_F32)
        return vreinterpretq_f32_u32(half == 0 ? vshlq_n_u32(words, 16)
                                               : vandq_u32(words, vdupq_n_u32(0xffff0000)));
    if (op == OP_INT8_DOT) /* signed, as sdot multiplies them */
        return vreinterpretq_f32_u32(veorq_u32(words, vdupq_n_u32(0x80808080)));
    return w;
}

INLINE float32x4_t project_multiply_add_neon(float32x4_t sum, float32x4_t w, float32x4_t x,
                                             const int lane, const enum project_op op)
{
    switch (op) {
#ifdef __ARM_FEATURE_DOTPROD
    case OP_INT8_DOT:
        BY_ELEMENT("sdot", sum, w, x, lane, "16b", "4b")
        return sum;
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    case OP_BF16_DOT:
    case OP_BF16_MATMUL: /* words that are no whole STEPS */
        BY_ELEMENT("bfdot", sum, w, x, lane, "8h", "2h")
        return sum;
#endif
    default:
        return multiply_add(sum, w, x, lane);
    }
}

/* Rows of which a strip has words: of bfmmla two for each two, the last perhaps unused. */
INLINE size_t project_stride_neon(const enum project_op op, size_t rows)
{
    return op == OP_BF16_MATMUL ? rows + rows % 2 : rows;
}

/* Where word i of row s stands in a strip of so many words. */
INLINE size_t project_offset_neon(const enum project_op op, size_t i, size_t s, size_t stride,
                                  size_t words)
{
    if (op == OP_BF16_MATMUL && i < words - words % STEPS)
        return (i / 2 * stride + s / 2 * 2) * 2 + s % 2 * 2 + i % 2;
    return i * stride + s;
}

/* Word i of a row of k numbers; zero beyond k. */
INLINE float project_word_neon(const void *row, size_t i, size_t k, const enum project_op op)
{
    const float *x = row;
    if (op == OP_INT8_DOT || op == OP_F32)
        return x[i];
    if (op == OP_BF16_AS_F32)
        return i < k ? x[i] : 0;
    const uint32_t even = attn_float_to_bf16(x[2 * i]);
    const uint32_t odd = 2 * i + 1 < k ? attn_float_to_bf16(x[2 * i + 1]) : 0;
    return attn_bits_to_float(odd << 16 | even);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Takes STEPS words of x from the i-th on.  Vectors of factors are loaded when their first lane is
 * needed, so that three are in registers. */
INLINE void project_steps_neon(float32x4_t sum[STRIP_ROWS][8], const struct project_tile *t,
                               size_t i, const int rows, const int vectors,
                               const enum project_op op)
{
    const int words = project_words_per_weight_neon(op);
    const float *x = t->x + i * (size_t)rows, *w = t->w + i / (size_t)words * ATTN_PANEL;
    float32x4_t factor[FACTORS];
    unroll_for(line, STEPS / words) {
        unroll_for(f, STEPS * rows / LANES)
            if (f * LANES / (rows * words) == line)
                factor[f] = vld1q_f32(x + f * LANES);
        unroll_for(pair, vectors / 2) {
            float32x4_t from[2];
            unroll_for(v, 2)
                from[v] = vld1q_f32(w + line * ATTN_PANEL + (2 * pair + v) * LANES);
            __asm__("" : "+w"(from[0]), "+w"(from[1])); /* one load of two vectors */
            unroll_for(half, words)
                unroll_for(v, 2) {
                    const float32x4_t weights = project_weights_neon(from[v], op, half);
                    float32x4_t *sums[STRIP_ROWS];
                    unroll_for(r, rows) {
                        const int at = (line * words + half) * rows + r;
                        sums[r] = &sum[r][2 * pair + v];
                        *sums[r] = project_multiply_add_neon(*sums[r], weights, factor[at / LANES],
                                                             at % LANES, op);
                    }
                }
        }
    }
}

/* Adds the products of two words of two rows with those of two columns. */
INLINE float32x4_t project_block_neon(float32x4_t sum, float32x4_t columns, float32x4_t rows)
{
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    __asm__("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(rows), "w"(columns));
#else
    (void)columns, (void)rows;
#endif
    return sum;
}

/* Takes the words that are whole STEPS by bfmmla, two at a time; returns how many.  A block has the
 * sums of two rows and two columns; two columns' words are side by side in a vector of weights. */
INLINE size_t project_blocks_neon(float32x4_t sum[STRIP_ROWS][8], const struct project_tile *t,
                                  const int rows, const int vectors)
{
    const int pairs = (rows + 1) / 2;
    float32x4_t block[STRIP_ROWS / 2][16];
    const float *x = t->x, *w = t->w;
    unroll_for(p, pairs)
        unroll_for(b, 2 * vectors)
            block[p][b] = vdupq_n_f32(0);
    const size_t words = t->words - t->words % STEPS;
    for (size_t i = 0; i < words; i += STEPS, x += STEPS * 2 * pairs, w += STEPS * ATTN_PANEL)
        unroll_for(line, STEPS / 2) {
            float32x4_t factor[STRIP_ROWS / 2];
            unroll_for(p, pairs)
                factor[p] = vld1q_f32(x + (line * pairs + p) * LANES);
            unroll_for(half, vectors / 2) {
                float32x4_t from[2][2]; /* two words of eight columns */
                unroll_for(word, 2) {
                    unroll_for(v, 2)
                        from[word][v] =
                            vld1q_f32(w + (2 * line + word) * ATTN_PANEL + (2 * half + v) * LANES);
                    __asm__("" : "+w"(from[word][0]), "+w"(from[word][1])); /* one load of two */
                }
                unroll_for(v, 2)
                    unroll_for(b, 2) {
                        const float32x4_t columns = b == 0 ? vzip1q_f32(from[0][v], from[1][v])
                                                           : vzip2q_f32(from[0][v], from[1][v]);
                        float32x4_t *sums[STRIP_ROWS / 2];
                        unroll_for(p, pairs) {
                            sums[p] = &block[p][2 * (2 * half + v) + b];
                            *sums[p] = project_block_neon(*sums[p], columns, factor[p]);
                        }
                    }
            }
        }
    unroll_for(r, rows)
        unroll_for(v, vectors) {
            const float32x4_t first = block[r / 2][2 * v], second = block[r / 2][2 * v + 1];
            sum[r][v] = r % 2 == 0 ? vcombine_f32(vget_low_f32(first), vget_low_f32(second))
                                   : vcombine_f32(vget_high_f32(first), vget_high_f32(second));
        }
    return words;
}

/* The same for one word of weights. */
INLINE void project_step_neon(float32x4_t sum[STRIP_ROWS][8], const struct project_tile *t,
                              size_t i, const int rows, const int vectors, const enum project_op op)
{
    const int words = project_words_per_weight_neon(op);
    const float *x = t->x + i * project_stride_neon(op, (size_t)rows);
    const float *w = t->w + i / (size_t)words * ATTN_PANEL;
    unroll_for(v, vectors)
        unroll_for(half, words) {
            const float32x4_t from = vld1q_f32(w + v * LANES);
            const float32x4_t weights = project_weights_neon(from, op, half);
            unroll_for(r, rows)
                sum[r][v] = project_multiply_add_neon(sum[r][v], weights,
                                                      vdupq_n_f32(x[half * rows + r]), 0, op);
        }
}

/* y = addend + sum, where a sum of integers is first scaled. */
INLINE void project_end_neon(float32x4_t sum[STRIP_ROWS][8], const struct project_tile *t,
                             const int rows, const int vectors, const enum project_op op)
{
    unroll_for(v, vectors) {
        const size_t left = t->n - attn_min(t->n, v * LANES);
        float32x4_t scale = vdupq_n_f32(0);
        if (op == OP_INT8_DOT)
            scale = load_first(t->scale + v * LANES, left, 0);
        unroll_for(r, rows) {
            float32x4_t total = sum[r][v];
            if (op == OP_INT8_DOT)
                total = vmulq_f32(vcvtq_f32_s32(vreinterpretq_s32_f32(total)),
                                  vmulq_n_f32(scale, t->row_scale[r]));
            total = vaddq_f32(load_first(t->addend + r * t->ldaddend + v * LANES, left, 0), total);
            store_first(t->y + r * t->ldy + v * LANES, total, left);
        }
    }
}

/* Computes a tile of a constant number of rows and vectors. */
INLINE void project_tile_neon(const struct project_tile *tile, const int rows, const int vectors,
                              const enum project_op op)
{
    const struct project_tile t = *tile;
    float32x4_t sum[STRIP_ROWS][8];
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = vdupq_n_f32(0);
    size_t i = 0;
    if (op == OP_BF16_MATMUL)
        i = project_blocks_neon(sum, &t, rows, vectors);
    else
        for (; i + STEPS <= t.words; i += STEPS)
            project_steps_neon(sum, &t, i, rows, vectors, op);
    for (; i < t.words; i += (size_t)project_words_per_weight_neon(op))
        project_step_neon(sum, &t, i, rows, vectors, op);
    project_end_neon(sum, &t, rows, vectors, op);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* The operation of a product of few rows. */
INLINE enum project_op project_few_neon(const enum project_op op)
{
    return op == OP_BF16_MATMUL ? OP_BF16_DOT : op;
}

/* Rows of the next strip, where so many are left: strips are as equal as possible, those of bfmmla
 * even. */
INLINE size_t project_strip_neon(size_t left, const enum project_op op)
{
    const size_t rows = attn_ceil_div(left, attn_ceil_div(left, STRIP_ROWS));
    return attn_min(left, project_stride_neon(op, rows));
}

/* Copies the words of x into scratch memory, strip by strip. */
INLINE void project_copy_rows_neon(const struct attn_projection_part *p, const enum project_op op)
{
    const size_t words = project_words_neon(op, p->k),
                 stride = p->ldx * (op == OP_INT8_DOT ? 1 : sizeof(float));
    float *out = p->scratch;
    for (size_t r = 0, rows, all; r < p->rows; r += rows, out += all * words) {
        rows = project_strip_neon(p->rows - r, op);
        all = project_stride_neon(op, rows);
        for (size_t s = 0; s < all; s++) {
            const char *row = (const char *)p->x + (r + s) * stride;
            for (size_t i = 0; i < words; i++)
                out[project_offset_neon(op, i, s, all, words)] =
                    s < rows ? project_word_neon(row, i, p->k, op) : 0;
        }
    }
}

/* Computes all rows of half a panel. */
INLINE void project_half_panel_neon(struct project_tile tile, size_t left,
                                    const struct project_tiles *tiles, const enum project_op op)
{
    for (size_t rows; left > 0; left -= rows) {
        rows = project_strip_neon(left, op);
        tiles->half[rows](&tile);
        tile.y += rows * tile.ldy;
        tile.addend += rows * tile.ldaddend;
        tile.x += project_stride_neon(op, rows) * tile.words;
        if (tile.row_scale != NULL)
            tile.row_scale += rows;
    }
}

INLINE void project_rows_neon(const struct attn_projection_part *p,
                              const struct project_tiles *tiles, const enum project_op op)
{
    static const float zeros[ATTN_PANEL];
    const bool few = p->rows <= FEW_ROWS;
    const size_t width = few ? ATTN_PANEL : ATTN_PANEL / 2;
    struct project_tile tile = {
        .x = p->scratch,
        .ldy = p->ldy,
        .ldaddend = p->addend != NULL ? p->ldaddend : 0,
        .words = project_words_neon(op, p->k),
        .row_scale = p->row_scale,
    };
    if (!p->rows_copied && few)
        project_copy_rows_neon(p, project_few_neon(op));
    else if (!p->rows_copied)
        project_copy_rows_neon(p, op);
    for (size_t j = 0; j < p->n; j += width) {
        tile.y = p->y + j;
        tile.addend = p->addend != NULL ? p->addend + j : zeros;
        tile.w = (const float *)p->w + j / ATTN_PANEL * p->ldpanel + j % ATTN_PANEL;
        tile.scale = op == OP_INT8_DOT ? p->scale + j : NULL;
        tile.n = p->n - j;
        if (few)
            tiles->whole[p->rows](&tile);
        else
            project_half_panel_neon(tile, p->rows, tiles, op);
    }
}

/* ---- Instances ------------------------------------------------------------------------------- */

#define PROJECT_TILE(rows, name, vectors, op)                  \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile_neon(tile, rows, vectors, op);            \
    }

/* Defines static void name(const struct attn_projection_part *). */
#define PROJECT(name, op)                                                                   \
    ROWS_3(PROJECT_TILE, name##_whole, 8, project_few_neon(op))                             \
    ROWS_6(PROJECT_TILE, name##_half, 4, op)                                                \
    static void name(const struct attn_projection_part *p)                                  \
    {                                                                                       \
        static const struct project_tiles tiles = {.whole = {ROWS_3(LISTED, name##_whole)}, \
                                                   .half = {ROWS_6(LISTED, name##_half)}};  \
        project_rows_neon(p, &tiles, op);                                                   \
    }

#endif
