/* avx512_amx_matmul.c: products with tiles of bf16 inside attention, by TDPBF16PS.
 *
 * The float32 side, queries or weights of the softmax, is divided into three bf16 without loss:
 *   x = high + middle + low, of 8 significant bits each
 * so the result is as exact as one of float32 multiply-adds for finite x of at least 2^-110;
 * subnormal numbers count as 0, and an infinity makes NaN.  Each 32 values of k are a step: an
 * element takes the products of the high numbers, then the middle, then the low, each the sum of a
 * chain over the even and one over the odd values.  That order is the same for any number of rows.
 *
 * A step of b, 32 rows of 64 columns, is copied as pairs of rows, which is how the instruction
 * reads it.  Rows are copied once for all columns. */

#include "kernels/avx512_amx.h"

#define STEP 32    /* values of k */
#define STEPS 4    /* copied at a time */
#define TERMS 3    /* of a number */
#define COLUMNS 64 /* of a copy of b */
#define BLOCK_ROWS (2 * TILE_ROWS)
#define MOST_ROWS 64                              /* copied at a time */
#define WORDS 16                                  /* of a row in a step */
#define ROW_WORDS (STEPS * TERMS * WORDS + WORDS) /* from one copied row to the next */

struct copies {
    uint32_t a[MOST_ROWS * ROW_WORDS];   /* [rows][steps][TERMS][WORDS] */
    uint32_t b[STEPS * WORDS * COLUMNS]; /* [steps][WORDS][COLUMNS], pairs of k */
    float edge[BLOCK_ROWS * COLUMNS];    /* a block at the edge of the result */
} __attribute__((aligned(CACHE_LINE)));

/* ---- Copies ---------------------------------------------------------------------------------- */

/* The numbers of two vectors, which are bf16 in their upper halves. */
INLINE __m512i upper_halves_avx512amx(__m512 low, __m512 high)
{
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(low), odd, _mm512_castps_si512(high));
}

INLINE __m512 upper_half_avx512amx(__m512 x)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000)));
}

/* Divides a step of a row, of which `count` numbers are there, into its terms. */
INLINE void divide_numbers_avx512amx(uint32_t *out, const float *x, size_t count)
{
    __m512 low = _mm512_maskz_loadu_ps(first_lanes(count), x);
    __m512 high = _mm512_maskz_loadu_ps(first_lanes(count - attn_min(count, LANES)), x + LANES);
    unroll_for(term, TERMS) {
        _mm512_store_si512(out + term * WORDS, upper_halves_avx512amx(low, high));
        low = _mm512_sub_ps(low, upper_half_avx512amx(low));
        high = _mm512_sub_ps(high, upper_half_avx512amx(high));
    }
}

/* Copies k [first, first + depth) of `rows` rows of a. */
INLINE void copy_rows_avx512amx(struct copies *to, const struct attn_matmul *p, size_t r0,
                                size_t rows, size_t first, size_t depth)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < depth; i += STEP)
            divide_numbers_avx512amx(to->a + r * ROW_WORDS + i / STEP * TERMS * WORDS,
                                     p->a + (r0 + r) * p->lda + first + i, depth - i);
}

/* Copies k [first, first + depth) of the columns [j, j + COLUMNS) of b, and prefetches the lines of
 * p->prefetch at their places. */
INLINE void copy_columns_avx512amx(struct copies *to, const struct attn_matmul *p, size_t j,
                                   size_t first, size_t depth)
{
    const __m512i order =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i next = _mm512_add_epi16(order, _mm512_set1_epi16(16));
    const size_t n = attn_min(p->n - j, COLUMNS), pairs = attn_ceil_div(depth, STEP) * WORDS;
    const uint64_t columns = n < COLUMNS ? ((uint64_t)1 << n) - 1 : UINT64_MAX;
    const uint16_t *b = (const uint16_t *)p->b + first * p->ldb + j;
    const char *ahead = prefetch_begin(p, (j * p->k + first * n) * sizeof *b / CACHE_LINE);
    for (size_t i = 0; i < pairs; i++, ahead = prefetch_lines(ahead, 2))
        unroll_for(v, 2) {
            const __mmask32 mask = (__mmask32)(columns >> 32 * v);
            const uint16_t *at = b + 2 * i * p->ldb + 32 * v;
            uint32_t *out = to->b + i * COLUMNS + 32 * v;
            __m512i even = _mm512_maskz_loadu_epi16(2 * i < depth ? mask : 0, at);
            __m512i odd = _mm512_maskz_loadu_epi16(2 * i + 1 < depth ? mask : 0, at + p->ldb);
            _mm512_store_si512(out, _mm512_permutex2var_epi16(even, order, odd));
            _mm512_store_si512(out + LANES, _mm512_permutex2var_epi16(even, next, odd));
        }
}

/* The same where b is transposed: the pairs of a column lie side by side. */
INLINE void transpose_columns_avx512amx(struct copies *to, const struct attn_matmul *p, size_t j,
                                        size_t first, size_t depth)
{
    const size_t n = attn_min(p->n - j, COLUMNS), steps = attn_ceil_div(depth, STEP);
    const uint16_t *b = (const uint16_t *)p->b + j * p->ldb + first;
    for (size_t i = 0; i < steps * STEP; i += STEP)
        for (size_t column = 0; column < COLUMNS; column += LANES) {
            const size_t count = depth - attn_min(depth, i);
            const __mmask32 mask =
                count >= STEP ? UINT32_MAX : (__mmask32)(((uint64_t)1 << count) - 1);
            __m512 from[LANES], pairs[LANES];
            unroll_for(c, LANES)
                from[c] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(
                    column + (size_t)c < n ? mask : 0, b + (column + (size_t)c) * p->ldb + i));
            transpose_lanes(pairs, from);
            unroll_for(w, LANES)
                _mm512_store_ps(to->b + (i / 2 + (size_t)w) * COLUMNS + column, pairs[w]);
        }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

#define B_BYTES (COLUMNS * sizeof(uint32_t))
#define A_BYTES (ROW_WORDS * sizeof(uint32_t))

/* Copied steps, whose products are added to c, or are what c becomes. */
struct steps {
    const uint32_t *a, *b;
    size_t count;
    bool accumulate;
};

/* Tiles 0 and 1 are sums at c, tiles 2 and 3 at `second`, side by side each. */
INLINE void begin_block_avx512amx(const float *c, const float *second, size_t ldc, bool accumulate)
{
    const size_t stride = ldc * sizeof *c;
    if (accumulate) {
        TILE_LOAD(0, c, stride);
        TILE_LOAD(1, c + LANES, stride);
        TILE_LOAD(2, second, stride);
        TILE_LOAD(3, second + LANES, stride);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
}

INLINE void end_block_avx512amx(float *c, float *second, size_t ldc)
{
    const size_t stride = ldc * sizeof *c;
    TILE_STORE(0, c, stride);
    TILE_STORE(1, c + LANES, stride);
    TILE_STORE(2, second, stride);
    TILE_STORE(3, second + LANES, stride);
}

/* 16 rows of 64 columns at c. */
INLINE void multiply_wide_avx512amx(float *c, size_t ldc, const struct steps *s)
{
    float *const third = c + 2 * LANES;
    begin_block_avx512amx(c, third, ldc, s->accumulate);
    for (size_t i = 0; i < s->count * TERMS; i++) {
        const uint32_t *b = s->b + i / TERMS * WORDS * COLUMNS;
        TILE_LOAD(4, s->a + i * WORDS, A_BYTES);
        TILE_LOAD(5, b, B_BYTES);
        TILE_MULTIPLY("tdpbf16ps", 0, 4, 5);
        TILE_LOAD(6, b + LANES, B_BYTES);
        TILE_MULTIPLY("tdpbf16ps", 1, 4, 6);
        TILE_LOAD(7, b + 2 * LANES, B_BYTES);
        TILE_MULTIPLY("tdpbf16ps", 2, 4, 7);
        TILE_LOAD(5, b + 3 * LANES, B_BYTES);
        TILE_MULTIPLY("tdpbf16ps", 3, 4, 5);
    }
    end_block_avx512amx(c, third, ldc);
}

/* 32 rows of 32 columns at c. */
INLINE void multiply_square_avx512amx(float *c, size_t ldc, const struct steps *s)
{
    float *const below = c + TILE_ROWS * ldc;
    begin_block_avx512amx(c, below, ldc, s->accumulate);
    for (size_t i = 0; i < s->count; i++) {
        const uint32_t *b = s->b + i * WORDS * COLUMNS;
        TILE_LOAD(6, b, B_BYTES);
        TILE_LOAD(7, b + LANES, B_BYTES);
        for (size_t term = 0; term < TERMS; term++) {
            const uint32_t *a = s->a + (i * TERMS + term) * WORDS;
            TILE_LOAD(4, a, A_BYTES);
            TILE_LOAD(5, a + TILE_ROWS * ROW_WORDS, A_BYTES);
            TILE_MULTIPLY("tdpbf16ps", 0, 4, 6);
            TILE_MULTIPLY("tdpbf16ps", 1, 4, 7);
            TILE_MULTIPLY("tdpbf16ps", 2, 5, 6);
            TILE_MULTIPLY("tdpbf16ps", 3, 5, 7);
        }
    }
    end_block_avx512amx(c, below, ldc);
}

/* Copies `rows` rows of n floats. */
INLINE void copy_block_avx512amx(float *to, size_t ldto, const float *from, size_t ldfrom,
                                 size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j += LANES) {
            const __mmask16 mask = first_lanes(n - j);
            _mm512_mask_storeu_ps(to + r * ldto + j, mask,
                                  _mm512_maskz_loadu_ps(mask, from + r * ldfrom + j));
        }
}

/* `rows` rows of n columns at c, through `edge` where they are not whole tiles. */
INLINE void multiply_block_avx512amx(float *c, size_t ldc, struct steps s, float *edge, size_t rows,
                                     size_t n)
{
    const bool whole = n == COLUMNS && rows % TILE_ROWS == 0;
    float *to = whole ? c : edge;
    const size_t ldto = whole ? ldc : COLUMNS;
    if (!whole && s.accumulate)
        copy_block_avx512amx(to, ldto, c, ldc, rows, n);
    if (rows <= TILE_ROWS)
        multiply_wide_avx512amx(to, ldto, &s);
    for (size_t j = 0; rows > TILE_ROWS && j < n; j += COLUMNS / 2, s.b += COLUMNS / 2)
        multiply_square_avx512amx(to + j, ldto, &s);
    if (!whole)
        copy_block_avx512amx(c, ldc, to, ldto, rows, n);
}

/* Adds k [i, i + depth) to rows [first, first + rows), whose copies are made once for all
 * columns. */
INLINE void multiply_rows_avx512amx(struct copies *copies, const struct attn_matmul *p,
                                    size_t first, size_t rows, size_t i, size_t depth)
{
    copy_rows_avx512amx(copies, p, first, rows, i, depth);
    for (size_t j = 0; j < p->n; j += COLUMNS) {
        if (p->transposed)
            transpose_columns_avx512amx(copies, p, j, i, depth);
        else
            copy_columns_avx512amx(copies, p, j, i, depth);
        for (size_t r = 0; r < rows; r += BLOCK_ROWS) {
            const struct steps s = {copies->a + r * ROW_WORDS, copies->b,
                                    attn_ceil_div(depth, STEP), p->accumulate || i > 0};
            multiply_block_avx512amx(p->c + (first + r) * p->ldc + j, p->ldc, s, copies->edge,
                                     attn_min(rows - r, BLOCK_ROWS), attn_min(p->n - j, COLUMNS));
        }
    }
}

static void matmul_many_avx512amx(const struct attn_matmul *p)
{
    struct copies copies;
    configure_tiles_avx512amx();
    for (size_t first = 0; first < p->rows; first += MOST_ROWS)
        for (size_t i = 0; i < p->k; i += STEPS * STEP)
            multiply_rows_avx512amx(&copies, p, first, attn_min(p->rows - first, MOST_ROWS), i,
                                    attn_min(p->k - i, STEPS * STEP));
    release_tiles_avx512amx();
}

void attn_kernels_avx512_amx_matmul(struct attn_kernels *table)
{
    table->matmul_many = matmul_many_avx512amx;
}
