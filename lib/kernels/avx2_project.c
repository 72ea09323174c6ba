/* avx2_project.c: products with packed weights for AVX2 and FMA.
 *
 * The design is that of avx512_project.h with half the width and half the registers.  AVX2
 * has no product instruction for bf16 or int8: bf16 is widened in registers, int8 multiplied as
 * int16. */
#include <string.h>

#include "kernels/avx2.h"

#define STRIP_ROWS 6 /* x 2 vectors, half a panel: 12 accumulators of 16 registers */
#define FEW_ROWS 3   /* x 4 vectors, a panel; x is read in place */

/* Words between copied rows: no power of two, so that rows do not evict each other from L1. */
#define COPY_STRIDE (2 * ATTN_RANGE_WORDS + 16)

enum project_op {
    OP_F32,           /* float32 by float32 */
    OP_BF16_AS_F32,   /* float32 by bf16 widened: two words of x for one of w */
    OP_INT8_AS_INT16, /* pairs of int8 widened to int16: two words of x for one of w */
};

/* A tile of y: some rows of n columns.  A word is declared float, whatever it holds. */
struct project_tile {
    float *y;
    const float *addend, *x, *w;
    const float *ahead; /* weights of the next panel, prefetched */
    size_t ldy, ldaddend, ldx, words, n;
    /* Of int8 only: the first values of the sums, and the scales of rows and columns. */
    const int32_t *offset;
    const float *row_scale, *scale;
};

typedef void project_tile_fn(const struct project_tile *tile);

struct project_tiles {
    project_tile_fn *whole[FEW_ROWS + 1], *half[STRIP_ROWS + 1]; /* by rows */
};

/* ---- Operations ------------------------------------------------------------------------------ */

INLINE size_t project_words_avx2(const enum project_op op, size_t k)
{
    return op == OP_INT8_AS_INT16 ? 2 * attn_ceil_div(k, 4) : k;
}

/* A vector of weights, widened.  Where x has two words for one of weights, `half` (constant) says
 * which of them multiplies the result. */
INLINE __m256 project_weights_avx2(const float *w, const enum project_op op, const int half)
{
    __m256i words = _mm256_loadu_si256((const __m256i *)w);
    if (op == OP_BF16_AS_F32)
        words = half == 0 ? _mm256_slli_epi32(words, 16)
                          : _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000));
    if (op == OP_INT8_AS_INT16)
        words = half == 0 ? _mm256_and_si256(words, _mm256_set1_epi16(0xff))
                          : _mm256_srli_epi16(words, 8);
    return _mm256_castsi256_ps(words);
}

INLINE __m256 project_multiply_add_avx2(__m256 sum, __m256 x, __m256 w, const enum project_op op)
{
    if (op != OP_INT8_AS_INT16)
        return _mm256_fmadd_ps(x, w, sum);
    __m256i products = _mm256_madd_epi16(_mm256_castps_si256(x), _mm256_castps_si256(w));
    sum = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products));
    __asm__("" : "+x"(sum)); /* or the compiler computes products early and spills them */
    return sum;
}

/* The first `count` words of x, at most 4; the others are 0. */
INLINE __m128i project_load_words_avx2(const int8_t *x, size_t count)
{
    __m256i mask = first_lanes(attn_min(count, 4));
    return _mm_maskload_epi32((const int *)(const void *)x, _mm256_castsi256_si128(mask));
}

/* Copies a row in the form of words that tiles multiply. */
INLINE void project_copy_row_avx2(float *out, const void *row, size_t k, const enum project_op op)
{
    if (op != OP_INT8_AS_INT16) {
        memcpy(out, row, k * sizeof(float));
        return;
    }
    for (size_t i = 0; i < k;
         i += 16) { /* bytes 0 and 2, then 1 and 3, as project_weights_avx2 has them */
        __m128i bytes = project_load_words_avx2((const int8_t *)row + i, attn_ceil_div(k - i, 4));
        __m256i shorts = _mm256_cvtepi8_epi16(bytes);
        shorts = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(shorts, 0xd8), 0xd8);
        _mm256_storeu_si256((__m256i *)(out + i / 2), shorts);
    }
}

/* The first value of a row's sums: -128 sum_i x[i], because the bytes of weights are 128 too high.
 * x is whole words. */
INLINE int32_t project_offset_avx2(const int8_t *x, size_t k)
{
    const __m128i flip = _mm_set1_epi8(-128), zero = _mm_setzero_si128();
    __m128i sum = zero;
    for (size_t i = 0; i < k; i += 16) {
        __m128i bytes = project_load_words_avx2(x + i, attn_ceil_div(k - i, 4));
        sum = _mm_add_epi64(sum, _mm_sad_epu8(_mm_xor_si128(bytes, flip), zero));
    }
    long long flipped = 128 * 16 * (long long)attn_ceil_div(k, 16);
    long long total = _mm_cvtsi128_si64(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum)));
    return (int32_t)(-128 * (total - flipped));
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

INLINE void project_step_avx2(__m256 sum[STRIP_ROWS][4], const struct project_tile *t, size_t i,
                              const int half, const int rows, const int vectors,
                              const enum project_op op)
{
    const size_t word = i + (size_t)half, line = op == OP_F32 ? word : i / 2;
    __m256 w[4];
    unroll_for(v, vectors)
        w[v] = project_weights_avx2(t->w + line * ATTN_PANEL + v * LANES, op, half);
    if (op == OP_F32 || half == 0)
        _mm_prefetch(t->ahead + line * ATTN_PANEL, _MM_HINT_T0);
    unroll_for(r, rows) {
        __m256 factor = _mm256_broadcast_ss(t->x + r * t->ldx + word);
        unroll_for(v, vectors)
            sum[r][v] = project_multiply_add_avx2(sum[r][v], factor, w[v], op);
    }
}

/* y = addend + sum, where a sum of integers is first scaled. */
INLINE void project_end_avx2(__m256 sum[STRIP_ROWS][4], const struct project_tile *t,
                             const int rows, const int vectors, const enum project_op op)
{
    unroll_for(v, vectors) {
        __m256i mask = first_lanes(t->n - attn_min(t->n, v * LANES));
        __m256 scale = _mm256_setzero_ps();
        if (op == OP_INT8_AS_INT16)
            scale = _mm256_maskload_ps(t->scale + v * LANES, mask);
        unroll_for(r, rows) {
            __m256 addend = _mm256_maskload_ps(t->addend + r * t->ldaddend + v * LANES, mask);
            __m256 total = sum[r][v];
            if (op == OP_INT8_AS_INT16)
                total = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_castps_si256(total)),
                                      _mm256_mul_ps(_mm256_set1_ps(t->row_scale[r]), scale));
            _mm256_maskstore_ps(t->y + r * t->ldy + v * LANES, mask, _mm256_add_ps(addend, total));
        }
    }
}

/* Computes a tile of a constant number of rows and vectors. */
INLINE void project_tile_avx2(const struct project_tile *tile, const int rows, const int vectors,
                              const enum project_op op)
{
    const struct project_tile t = *tile;
    const int steps = op == OP_F32 ? 1 : 2;
    __m256 sum[STRIP_ROWS][4];
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = op == OP_INT8_AS_INT16 ? _mm256_castsi256_ps(_mm256_set1_epi32(t.offset[r]))
                                               : _mm256_setzero_ps();
    size_t i = 0;
    for (; i + (size_t)steps <= t.words; i += (size_t)steps)
        unroll_for(half, steps)
            project_step_avx2(sum, &t, i, half, rows, vectors, op);
    if (i < t.words)
        project_step_avx2(sum, &t, i, 0, rows, vectors, op);
    project_end_avx2(sum, &t, rows, vectors, op);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Computes all rows of half a panel, in strips as equal as possible.  The first strip prefetches
 * the next panel, in each step the cache line that belongs to its half. */
static void project_half_panel_avx2(struct project_tile tile, size_t rows,
                                    const struct project_tiles *tiles)
{
    for (size_t left = attn_ceil_div(rows, STRIP_ROWS); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        tiles->half[count](&tile);
        tile.y += count * tile.ldy;
        tile.addend += count * tile.ldaddend;
        tile.x += count * tile.ldx;
        tile.offset += count;
        if (tile.row_scale != NULL)
            tile.row_scale += count;
        tile.ahead = tile.w;
        rows -= count;
    }
}

INLINE void project_rows_avx2(const struct attn_projection_part *p,
                              const struct project_tiles *tiles, const enum project_op op)
{
    static const float zeros[ATTN_PANEL];
    int32_t offset[ATTN_PRODUCT_ROWS];
    const bool few = p->rows <= FEW_ROWS, copied = !few || op == OP_INT8_AS_INT16;
    const size_t stride = p->ldx * (op == OP_INT8_AS_INT16 ? 1 : sizeof(float));
    struct project_tile tile = {
        .x = copied ? p->scratch : p->x,
        .ldx = copied ? COPY_STRIDE : p->ldx,
        .ldy = p->ldy,
        .ldaddend = p->addend != NULL ? p->ldaddend : 0,
        .words = project_words_avx2(op, p->k),
        .offset = offset,
        .row_scale = p->row_scale,
    };
    for (size_t r = 0; copied && !p->rows_copied && r < p->rows; r++)
        project_copy_row_avx2(p->scratch + r * COPY_STRIDE, (const char *)p->x + r * stride, p->k,
                              op);
    for (size_t r = 0; op == OP_INT8_AS_INT16 && r < p->rows; r++)
        offset[r] = project_offset_avx2((const int8_t *)p->x + r * p->ldx, p->k);
    const size_t width = few ? ATTN_PANEL : ATTN_PANEL / 2;
    for (size_t j = 0; j < p->n; j += width) {
        tile.y = p->y + j;
        tile.addend = p->addend != NULL ? p->addend + j : zeros;
        tile.w = (const float *)p->w + j / ATTN_PANEL * p->ldpanel + j % ATTN_PANEL;
        tile.ahead = attn_next_panel(p, j) + j % ATTN_PANEL;
        tile.scale = op == OP_INT8_AS_INT16 ? p->scale + j : NULL;
        tile.n = p->n - j;
        if (few)
            tiles->whole[p->rows](&tile);
        else
            project_half_panel_avx2(tile, p->rows, tiles);
    }
}

/* ---- Instances ------------------------------------------------------------------------------- */

#define PROJECT_TILE(rows, name, vectors, op)                  \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile_avx2(tile, rows, vectors, op);            \
    }

/* Defines static void name(const struct attn_projection_part *). */
#define PROJECT(name, op)                                                                   \
    ROWS_3(PROJECT_TILE, name##_whole, 4, op)                                               \
    ROWS_6(PROJECT_TILE, name##_half, 2, op)                                                \
    static void name(const struct attn_projection_part *p)                                  \
    {                                                                                       \
        static const struct project_tiles tiles = {.whole = {ROWS_3(LISTED, name##_whole)}, \
                                                   .half = {ROWS_6(LISTED, name##_half)}};  \
        project_rows_avx2(p, &tiles, op);                                                   \
    }

PROJECT(project_f32_avx2, OP_F32)
PROJECT(project_bf16_avx2, OP_BF16_AS_F32)
PROJECT(project_int8_avx2, OP_INT8_AS_INT16)

void attn_kernels_avx2_project(struct attn_kernels *table)
{
    table->project[ATTN_F32] = project_f32_avx2;
    table->project[ATTN_BF16] = project_bf16_avx2;
    table->project[ATTN_INT8] = project_int8_avx2;
}
