/* avx512_amx_pairs.c: products of attention with keys and values that are pairs of bf16, by
 * TDPBF16PS.
 *
 * Tiles of pairs are the right operand of that instruction as they lie.  The float32 side, queries
 * or weights of the softmax, is divided in place into two bf16,
 *   x = high + low + an error of at most 2^-17 |x|
 * and each 32 values of k are a step: an element takes the products of the high numbers, then those
 * of the low, each the sum of a chain over the even and one over the odd values.  That order is the
 * same for any number of rows and columns, since tiles are configured for what is there. */

#include "kernels/avx512_amx.h"

#define STEP ATTN_PAIR_STEP /* values of k */
#define WORDS (STEP / 2)    /* of a step, or of a term of a row in a step */
#define BLOCK (2 * TILE_ROWS)

/* ---- Rows ------------------------------------------------------------------------------------ */

/* 32 floats as bf16, to the nearest. */
INLINE __m512i round_avx512amx(__m512 first, __m512 second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

INLINE __m512 load_avx512amx(const float *x, size_t i, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n - attn_min(n, i)), x + i);
}

INLINE __m512 widen_avx512amx(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

static void divide_rows_avx512amx(float *x, size_t ldx, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, x += ldx)
        for (size_t i = 0; i < n; i += STEP) {
            const __m512 first = load_avx512amx(x, i, n), second = load_avx512amx(x, i + LANES, n);
            const __m512i high = round_avx512amx(first, second);
            const __m512 a = widen_avx512amx(_mm512_castsi512_si256(high));
            const __m512 b = widen_avx512amx(_mm512_extracti64x4_epi64(high, 1));
            _mm512_storeu_si512(x + i, high);
            _mm512_storeu_si512(x + i + WORDS,
                                round_avx512amx(_mm512_sub_ps(first, a), _mm512_sub_ps(second, b)));
        }
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void pair_keys_avx512amx(uint32_t *out, size_t ldo, const float *const in[], size_t rows,
                                size_t n)
{
    for (size_t i = 0; i < n; i += STEP)
        for (size_t r = 0; r < rows; r += LANES) {
            const __mmask16 mask = first_lanes(rows - r);
            __m512 from[LANES], to[LANES];
            unroll_for(s, LANES)
                from[s] = r + (size_t)s < rows
                              ? _mm512_castsi512_ps(round_avx512amx(
                                    load_avx512amx(in[r + (size_t)s], i, n),
                                    load_avx512amx(in[r + (size_t)s], i + LANES, n)))
                              : _mm512_setzero_ps();
            transpose_lanes(to, from);
            unroll_for(w, WORDS)
                _mm512_mask_storeu_ps(out + (i / 2 + (size_t)w) * ldo + r, mask, to[w]);
        }
}

static void pair_values_avx512amx(uint32_t *out, size_t ldo, const float *const in[], size_t rows,
                                  size_t n)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (size_t i = 0; i < attn_ceil_div(rows, STEP) * STEP; i += 2, out += ldo)
        for (size_t j = 0; j < n; j += LANES) {
            const __m512 zero = _mm512_setzero_ps();
            const __m512 even = i < rows ? load_avx512amx(in[i], j, n) : zero;
            const __m512 odd = i + 1 < rows ? load_avx512amx(in[i + 1], j, n) : zero;
            _mm512_mask_storeu_epi32(out + j, first_lanes(n - j),
                                     _mm512_permutexvar_epi16(order, round_avx512amx(even, odd)));
        }
}

/* ---- Products -------------------------------------------------------------------------------- */

/* Configures tiles for a block of `rows` by n, both at most BLOCK: tiles 0 to 3 hold its quarters,
 * 4 and 5 the rows, 6 and 7 the columns. */
INLINE void configure_block_avx512amx(size_t rows, size_t n)
{
    const uint8_t high[2] = {(uint8_t)attn_min(rows, TILE_ROWS),
                             (uint8_t)(rows - attn_min(rows, TILE_ROWS))};
    const uint8_t wide[2] = {(uint8_t)(4 * attn_min(n, TILE_ROWS)),
                             (uint8_t)(4 * (n - attn_min(n, TILE_ROWS)))};
    struct tile_config config = {.palette = 1};
    for (size_t i = 0; i < 4; i++) {
        config.rows[i] = wide[i % 2] > 0 ? high[i / 2] : 0;
        config.row_bytes[i] = high[i / 2] > 0 ? wide[i % 2] : 0;
    }
    for (size_t i = 0; i < 2; i++) {
        config.rows[4 + i] = high[i];
        config.row_bytes[4 + i] = high[i] > 0 ? ROW_BYTES : 0;
        config.rows[6 + i] = wide[i] > 0 ? TILE_ROWS : 0;
        config.row_bytes[6 + i] = wide[i];
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

/* A block of c; `below` and `beside` (constant): it has more rows, more columns than a tile. */
INLINE void multiply_pairs_avx512amx(const struct attn_matmul *p, size_t r, size_t j,
                                     const bool below, const bool beside)
{
    const size_t ldc = p->ldc * sizeof(float), lda = p->lda * sizeof(float);
    const size_t ldb = p->ldb * sizeof(uint32_t);
    const float *a = p->a + r * p->lda;
    const uint32_t *b = (const uint32_t *)p->b + j;
    float *c = p->c + r * p->ldc + j, *c_below = c + TILE_ROWS * p->ldc;
    if (p->accumulate) {
        TILE_LOAD(0, c, ldc);
        if (beside)
            TILE_LOAD(1, c + LANES, ldc);
        if (below)
            TILE_LOAD(2, c_below, ldc);
        if (below && beside)
            TILE_LOAD(3, c_below + LANES, ldc);
    } else {
        TILE_ZERO(0);
        if (beside)
            TILE_ZERO(1);
        if (below)
            TILE_ZERO(2);
        if (below && beside)
            TILE_ZERO(3);
    }
    for (size_t i = 0; i < p->k; i += STEP, b += WORDS * p->ldb) {
        TILE_LOAD(6, b, ldb);
        if (beside)
            TILE_LOAD(7, b + LANES, ldb);
        for (size_t term = 0; term < 2; term++, a += WORDS) {
            TILE_LOAD(4, a, lda);
            TILE_MULTIPLY("tdpbf16ps", 0, 4, 6);
            if (beside)
                TILE_MULTIPLY("tdpbf16ps", 1, 4, 7);
            if (below) {
                TILE_LOAD(5, a + TILE_ROWS * p->lda, lda);
                TILE_MULTIPLY("tdpbf16ps", 2, 5, 6);
                if (beside)
                    TILE_MULTIPLY("tdpbf16ps", 3, 5, 7);
            }
        }
    }
    TILE_STORE(0, c, ldc);
    if (beside)
        TILE_STORE(1, c + LANES, ldc);
    if (below)
        TILE_STORE(2, c_below, ldc);
    if (below && beside)
        TILE_STORE(3, c_below + LANES, ldc);
}

static void matmul_pairs_avx512amx(const struct attn_matmul *p)
{
    size_t configured_rows = 0, configured_n = 0;
    for (size_t j = 0; j < p->n; j += BLOCK)
        for (size_t r = 0; r < p->rows; r += BLOCK) {
            const size_t rows = attn_min(p->rows - r, BLOCK), n = attn_min(p->n - j, BLOCK);
            if (rows != configured_rows || n != configured_n)
                configure_block_avx512amx(rows, n);
            configured_rows = rows;
            configured_n = n;
            if (rows > TILE_ROWS && n > TILE_ROWS)
                multiply_pairs_avx512amx(p, r, j, true, true);
            else if (rows > TILE_ROWS)
                multiply_pairs_avx512amx(p, r, j, true, false);
            else if (n > TILE_ROWS)
                multiply_pairs_avx512amx(p, r, j, false, true);
            else
                multiply_pairs_avx512amx(p, r, j, false, false);
        }
    release_tiles_avx512amx();
}

void attn_kernels_avx512_amx_pairs(struct attn_kernels *table)
{
    table->divide_rows = divide_rows_avx512amx;
    table->pair_keys = pair_keys_avx512amx;
    table->pair_values = pair_values_avx512amx;
    table->matmul_pairs = matmul_pairs_avx512amx;
}
