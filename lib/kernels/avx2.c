/* avx2.c: the kernel table for AVX2 and FMA.
 *
 * The design is that of avx512.c with half the width and half the registers: a tile is an
 * array of __m256 in a function that is always inlined, one instance per number of rows, and an
 * element is the same chain of fused multiply-adds whatever the tile.  AVX2 has no masked
 * arithmetic: lanes beyond the width are loaded as zero, or as -inf where they are scores, and not
 * stored.
 */
#include <math.h>
#include <string.h>

#include "kernels/avx2.h"

#include "kernels/rows.h"
#include "kernels/widen.h"

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MAX_ROWS 6 /* x 2 vectors: 12 accumulators of 16 registers */
#define MAX_WIDE 3 /* x 4 vectors: few rows need more columns for chains that hide the latency */

/* Loads the next LANES columns of a row of b as float32; of words of int8 number `at` (constant) of
 * each.  Where `masked` (constant) nothing beyond the mask, that is `count` columns, is read. */
INLINE __m256 load_numbers_avx2(const void *from, __m256i mask, size_t count, const bool masked,
                                const enum attn_dtype dtype, const int at)
{
    uint16_t some[LANES] = {0};
    if (dtype == ATTN_F32)
        return load_part(from, mask, masked);
    if (dtype == ATTN_INT8) {
        __m256i words = _mm256_xor_si256(_mm256_castps_si256(load_part(from, mask, masked)),
                                         _mm256_set1_epi32((int)0x80808080));
        words = at < 3 ? _mm256_slli_epi32(words, 24 - 8 * at) : words;
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(words, 24));
    }
    if (masked)
        from = memcpy(some, from, attn_min(count, LANES) * 2);
    __m128i half = _mm_loadu_si128(from);
    if (dtype == ATTN_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
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
    const char *ahead = prefetch_begin(&t, j * column_bytes(dtype) / CACHE_LINE * t.k / depth);
    const float *a = t.a + r0 * t.lda;
    __m256 sum[MAX_ROWS][4];
    __m256i mask[4];
    size_t left[4];
    unroll_for(v, vectors) {
        left[v] = t.n - attn_min(t.n, j + v * LANES);
        mask[v] = first_lanes(left[v]);
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = t.accumulate
                            ? load_part(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], masked)
                            : _mm256_setzero_ps();
    for (size_t i = 0; i < t.k; i += depth, b += step) {
        if (vectors == 4)
            ahead = prefetch_lines(ahead, 4 * vector / CACHE_LINE);
        unroll_for(at, (int)depth) {
            __m256 row[4];
            if (at > 0 && i + (size_t)at == t.k)
                break;
            unroll_for(v, vectors)
                row[v] = load_numbers_avx2(b + v * vector, mask[v], left[v], masked, dtype, at);
            unroll_for(r, rows) {
                __m256 factor = _mm256_broadcast_ss(a + r * t.lda + i + at);
                unroll_for(v, vectors)
                    sum[r][v] = _mm256_fmadd_ps(factor, row[v], sum[r][v]);
            }
        }
    }
    if (dtype == ATTN_INT8 && t.scale != NULL)
        unroll_for(v, vectors) {
            __m256 scale = load_part(t.scale + j + v * LANES, mask[v], masked);
            unroll_for(r, rows)
                sum[r][v] = _mm256_mul_ps(sum[r][v], scale);
        }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store_part(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], sum[r][v], masked);
}

MATMUL(matmul_f32_avx2, ATTN_F32, ROWS_6, ROWS_3)
MATMUL(matmul_bf16_avx2, ATTN_BF16, ROWS_6, ROWS_3)
MATMUL(matmul_f16_avx2, ATTN_F16, ROWS_6, ROWS_3)
MATMUL(matmul_int8_avx2, ATTN_INT8, ROWS_6, ROWS_3)

/* ---- outer ----------------------------------------------------------------------------------- */

#define OUTER_ROWS 6 /* x 2 vectors: 12 accumulators of 16 registers */
#define OUTER_WIDE 0

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                       const int vectors, const bool masked)
{
    const struct attn_outer t = *p;
    const float *a = t.a + r0, *b = t.b + j;
    __m256 sum[OUTER_ROWS][4];
    __m256i mask[4];
    unroll_for(v, vectors)
        mask[v] = first_lanes(t.n - attn_min(t.n, j + v * LANES));
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = t.rescale ? _mm256_mul_ps(load_part(t.c + (r0 + r) * t.ldc + j + v * LANES,
                                                            mask[v], masked),
                                                  _mm256_broadcast_ss(t.rescale + r0 + r))
                                  : _mm256_setzero_ps();
    for (size_t i = 0; i < t.k; i++, a += t.lda, b += t.ldb) {
        __m256 row[4];
        unroll_for(v, vectors)
            row[v] = load_part(b + v * LANES, mask[v], masked);
        unroll_for(r, rows) {
            __m256 factor = _mm256_broadcast_ss(a + r);
            unroll_for(v, vectors)
                sum[r][v] = _mm256_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store_part(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], sum[r][v], masked);
}

OUTER(outer_avx2, ROWS_6, ROWS_0)

static bool all_within_avx2(const float *x, size_t n, float limit)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), bound = _mm256_set1_ps(limit);
    __m256 beyond = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = first_lanes(n - i);
        __m256 size = _mm256_andnot_ps(sign, _mm256_maskload_ps(x + i, mask));
        __m256 bad = _mm256_cmp_ps(size, bound, _CMP_NLE_UQ);
        beyond = _mm256_or_ps(beyond, _mm256_and_ps(bad, _mm256_castsi256_ps(mask)));
    }
    return _mm256_movemask_ps(beyond) == 0;
}

void attn_kernels_avx2(struct attn_kernels *table)
{
    table->matmul[ATTN_F32] = matmul_f32_avx2;
    table->matmul[ATTN_BF16] = matmul_bf16_avx2;
    table->matmul[ATTN_F16] = matmul_f16_avx2;
    table->matmul[ATTN_INT8] = matmul_int8_avx2;
    table->columns_from_rows = LANES;
    table->outer = outer_avx2;
    table->softmax_columns = softmax_columns;
    table->transpose = transpose;
    table->widen_keys = widen_keys;
    table->softmax = softmax;
    table->finish_weights = finish_weights;
    table->prepare_rows = prepare_rows;
    table->scale_rows = scale_rows;
    table->scale = scale;
    table->all_within = all_within_avx2;
}
