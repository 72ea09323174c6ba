/* avx512.c: the kernel table for AVX-512 F, BW, DQ and VL.
 *
 * A product is computed in register tiles: arrays of __m512 with constant bounds in a function that
 * is always inlined, so that each array element becomes a register.  The tile function has one
 * instance per number of rows, found in a table by that number; columns beyond the width are masked
 * off.  Whatever the tile, an element is one chain of fused multiply-adds over ascending i, so tile
 * shapes are a matter of speed and never of bits.
 */
#include <math.h>

#include "kernels/avx512.h"
#include "kernels/tiling.h"

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MAX_ROWS 12 /* x 2 vectors: 24 accumulators of 32 registers */
#define MAX_WIDE 6  /* x 4 vectors: few rows need more columns for chains that hide the latency */

/* Loads the next LANES columns of a row of b as float32; of words of int8 number `at` (constant) of
 * each.  Columns outside of the mask are not read.  Not for bf16. */
INLINE __m512 load_numbers_avx512(const char *from, __mmask16 mask, const enum attn_dtype dtype,
                                  const int at)
{
    switch (dtype) {
    case ATTN_F16:
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    case ATTN_INT8: {
        __m512i words = _mm512_xor_si512(_mm512_maskz_loadu_epi32(mask, from),
                                         _mm512_set1_epi32((int)0x80808080));
        words = at < 3 ? _mm512_slli_epi32(words, 24 - 8 * (unsigned)at) : words;
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 24));
    }
    default:
        return _mm512_maskz_loadu_ps(mask, from);
    }
}

/* Loads two vectors of columns of a row of b.  Of bf16 pair[0] has the even columns and pair[1] the
 * odd ones: one load is widened by a shift and by a mask.  A widening in order would move numbers
 * across lanes, on a port that could multiply instead. */
INLINE void load_pair_avx512(__m512 pair[2], const char *from, const __mmask16 mask[2],
                             const enum attn_dtype dtype, const int at)
{
    if (dtype != ATTN_BF16) {
        unroll_for(v, 2)
            pair[v] = load_numbers_avx512(from + v * LANES * (int)column_bytes(dtype), mask[v],
                                          dtype, at);
        return;
    }
    __m512i words = _mm512_maskz_loadu_epi16(_mm512_kunpackw(mask[1], mask[0]), from);
    pair[0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    pair[1] = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000)));
}

/* Brings two vectors of sums from the order of columns into that of load_pair_avx512, and back. */
INLINE void deinterleave_columns_avx512(__m512 pair[2], const enum attn_dtype dtype)
{
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512 first = pair[0];
    if (dtype != ATTN_BF16)
        return;
    pair[0] = _mm512_permutex2var_ps(first, even, pair[1]);
    pair[1] = _mm512_permutex2var_ps(first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), pair[1]);
}

INLINE void interleave_columns_avx512(__m512 pair[2], const enum attn_dtype dtype)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512 first = pair[0];
    if (dtype != ATTN_BF16)
        return;
    pair[0] = _mm512_permutex2var_ps(first, low, pair[1]);
    pair[1] = _mm512_permutex2var_ps(first, _mm512_add_epi32(low, _mm512_set1_epi32(8)), pair[1]);
}

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void matmul_tile_avx512(const struct attn_matmul *p, size_t r0, size_t j,
                               const enum attn_dtype dtype, const int rows, const int vectors,
                               const bool masked)
{
    const struct attn_matmul t = *p;
    const size_t step = t.ldb * column_bytes(dtype), vector = LANES * column_bytes(dtype);
    const size_t depth = row_depth(dtype);
    const char *b = (const char *)t.b + j * column_bytes(dtype);
    const size_t lines = 4 * vector / CACHE_LINE;
    const char *ahead = prefetch_begin(&t, j * column_bytes(dtype) / CACHE_LINE * t.k / depth);
    const float *a = t.a + r0 * t.lda;
    __m512 sum[MAX_ROWS][4];
    __mmask16 mask[4];
    unroll_for(v, vectors)
        mask[v] = masked ? first_lanes_avx512(t.n - attn_min(t.n, j + v * LANES)) : 0xffff;
    float *c = t.c + opaque_avx512(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors)
            sum[r][v] =
                t.accumulate ? _mm512_maskz_loadu_ps(mask[v], c + v * LANES) : _mm512_setzero_ps();
        unroll_for(v, vectors / 2)
            deinterleave_columns_avx512(&sum[r][2 * v], dtype);
        c += t.ldc;
    }
    for (size_t i = 0; i < t.k; i += depth, b += step) {
        if (vectors == 4)
            ahead = prefetch_lines(ahead, lines);
        unroll_for(at, (int)depth) {
            __m512 row[4];
            if (at > 0 && i + (size_t)at == t.k)
                break;
            unroll_for(v, vectors / 2)
                load_pair_avx512(&row[2 * v], b + 2 * v * vector, &mask[2 * v], dtype, at);
            unroll_for(r, rows) {
                __m512 factor = load_factor_avx512(a + r * t.lda + i + at);
                unroll_for(v, vectors)
                    sum[r][v] = _mm512_fmadd_ps(factor, row[v], sum[r][v]);
            }
        }
    }
    if (dtype == ATTN_INT8 && t.scale != NULL)
        unroll_for(v, vectors) {
            __m512 scale = _mm512_maskz_loadu_ps(mask[v], t.scale + j + v * LANES);
            unroll_for(r, rows)
                sum[r][v] = _mm512_mul_ps(sum[r][v], scale);
        }
    c = t.c + opaque_avx512(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors / 2)
            interleave_columns_avx512(&sum[r][2 * v], dtype);
        unroll_for(v, vectors)
            _mm512_mask_storeu_ps(c + v * LANES, mask[v], sum[r][v]);
        c += t.ldc;
    }
}

/* name_ROWS: the instance of matmul_tile_avx512 for so many rows. */
#define TILE(name, dtype, rows, vectors, masked)                               \
    static void name##_##rows(const struct attn_matmul *p, size_t r, size_t j) \
    {                                                                          \
        matmul_tile_avx512(p, r, j, dtype, rows, vectors, masked);             \
    }
#define TILES_6(name, dtype, vectors, masked) \
    TILE(name, dtype, 1, vectors, masked)     \
    TILE(name, dtype, 2, vectors, masked)     \
    TILE(name, dtype, 3, vectors, masked)     \
    TILE(name, dtype, 4, vectors, masked)     \
    TILE(name, dtype, 5, vectors, masked)     \
    TILE(name, dtype, 6, vectors, masked)
#define TILES_12(name, dtype, vectors, masked) \
    TILES_6(name, dtype, vectors, masked)      \
    TILE(name, dtype, 7, vectors, masked)      \
    TILE(name, dtype, 8, vectors, masked)      \
    TILE(name, dtype, 9, vectors, masked)      \
    TILE(name, dtype, 10, vectors, masked)     \
    TILE(name, dtype, 11, vectors, masked)     \
    TILE(name, dtype, 12, vectors, masked)
#define LIST_6(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6
#define LIST_12(name) LIST_6(name), name##_7, name##_8, name##_9, name##_10, name##_11, name##_12

/* The kernel of one dtype of b, with all its tiles. */
#define MATMUL(name, dtype)                                                            \
    TILES_6(name##_wide, dtype, 4, false)                                              \
    TILES_12(name##_full, dtype, 2, false)                                             \
    TILES_12(name##_edge, dtype, 2, true)                                              \
    static void name(const struct attn_matmul *p)                                      \
    {                                                                                  \
        static const struct matmul_tiles tiles = {.wide = {LIST_6(name##_wide)},       \
                                                  .full = {LIST_12(name##_full)},      \
                                                  .edge = {LIST_12(name##_edge)}};     \
        matmul_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, MAX_WIDE}); \
    }

MATMUL(matmul_f32_avx512, ATTN_F32)
MATMUL(matmul_bf16_avx512, ATTN_BF16)
MATMUL(matmul_f16_avx512, ATTN_F16)
MATMUL(matmul_int8_avx512, ATTN_INT8)

/* ---- Softmax --------------------------------------------------------------------------------- */

INLINE float max_row_avx512(const float *s, float max, size_t n)
{
    __m512 top = _mm512_set1_ps(max);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = _mm512_max_ps(top, _mm512_loadu_ps(s + j));
    if (j < n)
        top = _mm512_max_ps(top, load_scores_avx512(s + j, first_lanes_avx512(n - j)));
    return _mm512_reduce_max_ps(top);
}

/* s[j] = exp(s[j] - max) for a row; returns the sum. */
INLINE float exp_row_avx512(float *s, float max, size_t n)
{
    const __m512 top = _mm512_set1_ps(max);
    __m512 total = _mm512_setzero_ps();
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        __m512 e[4];
        unroll_for(v, 4)
            e[v] = _mm512_sub_ps(_mm512_loadu_ps(s + j + v * LANES), top);
        exp_vectors_avx512(e, 4);
        unroll_for(v, 4) {
            _mm512_storeu_ps(s + j + v * LANES, e[v]);
            total = _mm512_add_ps(total, e[v]);
        }
    }
    for (; j < n; j += LANES) {
        __mmask16 mask = first_lanes_avx512(n - j);
        __m512 e = exp_lanes_avx512(_mm512_sub_ps(load_scores_avx512(s + j, mask), top));
        _mm512_mask_storeu_ps(s + j, mask, e);
        total = _mm512_add_ps(total, e);
    }
    return _mm512_reduce_add_ps(total);
}

/* Takes LANES rows at a time, all their maxima before their first exp: the rows overlap in the
 * pipeline instead of each waiting for its own maximum. */
static void softmax_avx512(float *s, size_t lds, float *max, float *sum, float *rescale,
                           size_t rows, size_t n)
{
    float tops[LANES] = {0}, totals[LANES] = {0};
    for (size_t r = 0; r < rows; r += LANES) {
        size_t count = attn_min(rows - r, LANES);
        for (size_t i = 0; i < count; i++)
            tops[i] = max_row_avx512(s + (r + i) * lds, max[r + i], n);
        for (size_t i = 0; i < count; i++)
            totals[i] = exp_row_avx512(s + (r + i) * lds, tops[i], n);
        __mmask16 mask = first_lanes_avx512(count);
        __m512 before = _mm512_maskz_loadu_ps(mask, max + r);
        __m512 top = _mm512_loadu_ps(tops);
        __mmask16 seen = _mm512_cmp_ps_mask(top, _mm512_set1_ps(-INFINITY), _CMP_GT_OQ);
        __m512 scale =
            exp_lanes_avx512(_mm512_maskz_sub_ps(seen, before, top)); /* 1: no key was seen */
        __m512 total =
            _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, sum + r), scale, _mm512_loadu_ps(totals));
        _mm512_mask_storeu_ps(max + r, mask, top);
        _mm512_mask_storeu_ps(sum + r, mask, total);
        _mm512_mask_storeu_ps(rescale + r, mask, scale);
    }
}

static void finish_weights_avx512(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        __mmask16 mask = first_lanes_avx512(n - j);
        __m512 e =
            exp_lanes_avx512(_mm512_sub_ps(load_scores_avx512(w + j, mask), _mm512_set1_ps(max)));
        /* factor may be infinite where every w is -inf */
        __mmask16 some = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_GT_OQ);
        _mm512_mask_storeu_ps(w + j, mask, _mm512_maskz_mul_ps(some, e, _mm512_set1_ps(factor)));
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void prepare_rows_avx512(float *x, size_t ldx, struct attn_prepared_row *prepared,
                                const float *factor, size_t rows, size_t n)
{
    (void)prepared;
    for (size_t j = 0; factor != NULL && j < n; j += LANES) {
        __mmask16 mask = first_lanes_avx512(n - j);
        __m512 by = _mm512_maskz_loadu_ps(mask, factor + j);
        for (size_t r = 0; r < rows; r++) {
            float *at = x + r * ldx + j;
            _mm512_mask_storeu_ps(at, mask, _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, at), by));
        }
    }
}

static void scale_rows_avx512(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    /* Few maxima change after the first keys: most factors are 1. */
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; factor[r] != 1 && j < n; j += LANES) {
            __mmask16 mask = first_lanes_avx512(n - j);
            float *at = x + r * ldx + j;
            __m512 scaled =
                _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, at), _mm512_set1_ps(factor[r]));
            _mm512_mask_storeu_ps(at, mask, scaled);
        }
}

static void scale_avx512(float *out, const float *x, float factor, size_t n)
{
    const __m512 by = _mm512_set1_ps(factor);
    for (size_t j = 0; j < n; j += LANES) {
        __mmask16 mask = first_lanes_avx512(n - j);
        _mm512_mask_storeu_ps(out + j, mask, _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + j), by));
    }
}

/* max(largest, |x|) as integers: magnitudes have the same order as their bits, and a NaN is larger
 * than all. */
INLINE __m512i max_magnitude_avx512(__m512i largest, __m512i x)
{
    return _mm512_max_epu32(largest, _mm512_and_si512(x, _mm512_set1_epi32(INT32_MAX)));
}

static bool all_within_avx512(const float *x, size_t n, float limit)
{
    __m512i largest = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        largest = max_magnitude_avx512(largest, _mm512_loadu_si512(x + i));
    if (i < n)
        largest = max_magnitude_avx512(largest,
                                       _mm512_maskz_loadu_epi32(first_lanes_avx512(n - i), x + i));
    const __m512i bound = _mm512_castps_si512(_mm512_set1_ps(limit));
    return _mm512_cmpgt_epu32_mask(largest, bound) == 0;
}

void attn_kernels_avx512(struct attn_kernels *table)
{
    table->matmul[ATTN_F32] = matmul_f32_avx512;
    table->matmul[ATTN_BF16] = matmul_bf16_avx512;
    table->matmul[ATTN_F16] = matmul_f16_avx512;
    table->matmul[ATTN_INT8] = matmul_int8_avx512;
    attn_kernels_avx512_project(table);
    attn_kernels_avx512_columns(table);
    table->softmax = softmax_avx512;
    table->finish_weights = finish_weights_avx512;
    table->prepare_rows = prepare_rows_avx512;
    table->scale_rows = scale_rows_avx512;
    table->scale = scale_avx512;
    table->all_within = all_within_avx512;
}
