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

#include "kernels/rows.h"
#include "kernels/widen.h"

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
INLINE void matmul_tile(const struct attn_matmul *p, size_t r0, size_t j,
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
        mask[v] = masked ? first_lanes(t.n - attn_min(t.n, j + v * LANES)) : 0xffff;
    float *c = t.c + opaque(r0 * t.ldc + j);
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
                __m512 factor = load_factor(a + r * t.lda + i + at);
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
    c = t.c + opaque(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors / 2)
            interleave_columns_avx512(&sum[r][2 * v], dtype);
        unroll_for(v, vectors)
            _mm512_mask_storeu_ps(c + v * LANES, mask[v], sum[r][v]);
        c += t.ldc;
    }
}

MATMUL(matmul_f32_avx512, ATTN_F32, ROWS_12, ROWS_6)
MATMUL(matmul_bf16_avx512, ATTN_BF16, ROWS_12, ROWS_6)
MATMUL(matmul_f16_avx512, ATTN_F16, ROWS_12, ROWS_6)
MATMUL(matmul_int8_avx512, ATTN_INT8, ROWS_12, ROWS_6)

/* ---- outer ----------------------------------------------------------------------------------- */

#define OUTER_ROWS 14 /* x 2 vectors: 28 accumulators of 32 registers */
#define OUTER_WIDE 6  /* x 4 vectors: 24, and half as many loads of factors */
/* Steps of i between prefetch and use of a factor: each step reads another cache line, of keys
 * often one that L1 does not have. */
#define AHEAD 8

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                       const int vectors, const bool masked)
{
    const struct attn_outer t = *p;
    const size_t ahead = AHEAD * t.lda;
    const float *a = t.a + r0, *b = t.b + j;
    __m512 sum[OUTER_ROWS][4];
    __mmask16 mask[4];
    unroll_for(v, vectors)
        mask[v] = masked ? first_lanes(t.n - attn_min(t.n, j + v * LANES)) : 0xffff;
    float *c = t.c + opaque(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors)
            sum[r][v] = t.rescale ? _mm512_mul_ps(_mm512_maskz_loadu_ps(mask[v], c + v * LANES),
                                                  _mm512_set1_ps(t.rescale[r0 + r]))
                                  : _mm512_setzero_ps();
        c += t.ldc;
    }
    for (size_t i = 0; i < t.k; i++, a += t.lda, b += t.ldb) {
        __m512 row[4];
        _mm_prefetch(a + ahead, _MM_HINT_T0);
        _mm_prefetch(a + ahead + rows - 1, _MM_HINT_T0);
        unroll_for(v, vectors)
            row[v] = _mm512_maskz_loadu_ps(mask[v], b + v * LANES);
        unroll_for(r, rows) {
            __m512 factor = load_factor(a + r);
            unroll_for(v, vectors)
                sum[r][v] = _mm512_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    c = t.c + opaque(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors)
            _mm512_mask_storeu_ps(c + v * LANES, mask[v], sum[r][v]);
        c += t.ldc;
    }
}

OUTER(outer_avx512, ROWS_14, ROWS_6)

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
        largest =
            max_magnitude_avx512(largest, _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i));
    const __m512i bound = _mm512_castps_si512(_mm512_set1_ps(limit));
    return _mm512_cmpgt_epu32_mask(largest, bound) == 0;
}

void attn_kernels_avx512(struct attn_kernels *table)
{
    table->matmul[ATTN_F32] = matmul_f32_avx512;
    table->matmul[ATTN_BF16] = matmul_bf16_avx512;
    table->matmul[ATTN_F16] = matmul_f16_avx512;
    table->matmul[ATTN_INT8] = matmul_int8_avx512;
    table->columns_from_rows = LANES;
    table->outer = outer_avx512;
    table->softmax_columns = softmax_columns;
    table->transpose = transpose;
    table->widen_keys = widen_keys;
    table->softmax = softmax;
    table->finish_weights = finish_weights;
    table->prepare_rows = prepare_rows;
    table->scale_rows = scale_rows;
    table->scale = scale;
    table->all_within = all_within_avx512;
}
