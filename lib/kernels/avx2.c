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
#include "kernels/tiling.h"

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
        return load_avx2(from, mask, masked);
    if (dtype == ATTN_INT8) {
        __m256i words = _mm256_xor_si256(_mm256_castps_si256(load_avx2(from, mask, masked)),
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
INLINE void matmul_tile_avx2(const struct attn_matmul *p, size_t r0, size_t j,
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
        mask[v] = first_lanes_avx2(left[v]);
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = t.accumulate
                            ? load_avx2(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], masked)
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
            __m256 scale = load_avx2(t.scale + j + v * LANES, mask[v], masked);
            unroll_for(r, rows)
                sum[r][v] = _mm256_mul_ps(sum[r][v], scale);
        }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store_avx2(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], sum[r][v], masked);
}

/* name_ROWS: the instance of matmul_tile_avx2 for so many rows. */
#define TILE(name, dtype, rows, vectors, masked)                               \
    static void name##_##rows(const struct attn_matmul *p, size_t r, size_t j) \
    {                                                                          \
        matmul_tile_avx2(p, r, j, dtype, rows, vectors, masked);               \
    }
#define TILES_3(name, dtype, vectors, masked) \
    TILE(name, dtype, 1, vectors, masked)     \
    TILE(name, dtype, 2, vectors, masked)     \
    TILE(name, dtype, 3, vectors, masked)
#define TILES_6(name, dtype, vectors, masked) \
    TILES_3(name, dtype, vectors, masked)     \
    TILE(name, dtype, 4, vectors, masked)     \
    TILE(name, dtype, 5, vectors, masked)     \
    TILE(name, dtype, 6, vectors, masked)
#define LIST_3(name) NULL, name##_1, name##_2, name##_3
#define LIST_6(name) LIST_3(name), name##_4, name##_5, name##_6

/* The kernel of one dtype of b, with all its tiles. */
#define MATMUL(name, dtype)                                                            \
    TILES_3(name##_wide, dtype, 4, false)                                              \
    TILES_6(name##_full, dtype, 2, false)                                              \
    TILES_6(name##_edge, dtype, 2, true)                                               \
    static void name(const struct attn_matmul *p)                                      \
    {                                                                                  \
        static const struct matmul_tiles tiles = {.wide = {LIST_3(name##_wide)},       \
                                                  .full = {LIST_6(name##_full)},       \
                                                  .edge = {LIST_6(name##_edge)}};      \
        matmul_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, MAX_WIDE}); \
    }

MATMUL(matmul_f32_avx2, ATTN_F32)
MATMUL(matmul_bf16_avx2, ATTN_BF16)
MATMUL(matmul_f16_avx2, ATTN_F16)
MATMUL(matmul_int8_avx2, ATTN_INT8)

/* ---- Softmax --------------------------------------------------------------------------------- */

INLINE float max_lanes_avx2(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE float sum_lanes_avx2(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float max_row_avx2(const float *s, float max, size_t n)
{
    __m256 top = _mm256_set1_ps(max);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = _mm256_max_ps(top, _mm256_loadu_ps(s + j));
    if (j < n)
        top = _mm256_max_ps(top, load_scores_avx2(s + j, first_lanes_avx2(n - j)));
    return max_lanes_avx2(top);
}

/* s[j] = exp(s[j] - max) for the lanes of the mask; the other lanes of the result are 0. */
INLINE __m256 exp_scores_avx2(float *s, __m256i mask, float max)
{
    __m256 e = exp_lanes_avx2(_mm256_sub_ps(load_scores_avx2(s, mask), _mm256_set1_ps(max)));
    _mm256_maskstore_ps(s, mask, e);
    return e;
}

/* s[j] = exp(s[j] - max) for a row; returns the sum. */
INLINE float exp_row_avx2(float *s, float max, size_t n)
{
    __m256 total = _mm256_setzero_ps();
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        total = _mm256_add_ps(total, exp_scores_avx2(s + j, first_lanes_avx2(LANES), max));
    if (j < n)
        total = _mm256_add_ps(total, exp_scores_avx2(s + j, first_lanes_avx2(n - j), max));
    return sum_lanes_avx2(total);
}

/* Takes LANES rows at a time, all their maxima before their first exp: the rows overlap in the
 * pipeline instead of each waiting for its own maximum. */
static void softmax_avx2(float *s, size_t lds, float *max, float *sum, float *rescale, size_t rows,
                         size_t n)
{
    float tops[LANES] = {0}, totals[LANES] = {0};
    for (size_t r = 0; r < rows; r += LANES) {
        size_t count = attn_min(rows - r, LANES);
        for (size_t i = 0; i < count; i++)
            tops[i] = max_row_avx2(s + (r + i) * lds, max[r + i], n);
        for (size_t i = 0; i < count; i++)
            totals[i] = exp_row_avx2(s + (r + i) * lds, tops[i], n);
        __m256i mask = first_lanes_avx2(count);
        __m256 before = _mm256_maskload_ps(max + r, mask);
        __m256 top = _mm256_loadu_ps(tops);
        __m256 seen = _mm256_cmp_ps(top, _mm256_set1_ps(-INFINITY), _CMP_GT_OQ);
        __m256 change = _mm256_and_ps(_mm256_sub_ps(before, top), seen);
        __m256 scale = exp_lanes_avx2(change); /* 1 where no key was seen */
        __m256 total =
            _mm256_fmadd_ps(_mm256_maskload_ps(sum + r, mask), scale, _mm256_loadu_ps(totals));
        _mm256_maskstore_ps(max + r, mask, top);
        _mm256_maskstore_ps(sum + r, mask, total);
        _mm256_maskstore_ps(rescale + r, mask, scale);
    }
}

static void finish_weights_avx2(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        __m256i mask = first_lanes_avx2(n - j);
        __m256 e =
            exp_lanes_avx2(_mm256_sub_ps(load_scores_avx2(w + j, mask), _mm256_set1_ps(max)));
        /* factor may be infinite where every w is -inf */
        __m256 some = _mm256_cmp_ps(e, _mm256_setzero_ps(), _CMP_GT_OQ);
        __m256 scaled = _mm256_mul_ps(e, _mm256_set1_ps(factor));
        _mm256_maskstore_ps(w + j, mask, _mm256_and_ps(scaled, some));
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void prepare_rows_avx2(float *x, size_t ldx, struct attn_prepared_row *prepared,
                              const float *factor, size_t rows, size_t n)
{
    (void)prepared;
    for (size_t j = 0; factor != NULL && j < n; j += LANES) {
        __m256i mask = first_lanes_avx2(n - j);
        __m256 by = _mm256_maskload_ps(factor + j, mask);
        for (size_t r = 0; r < rows; r++) {
            float *at = x + r * ldx + j;
            _mm256_maskstore_ps(at, mask, _mm256_mul_ps(_mm256_maskload_ps(at, mask), by));
        }
    }
}

static void scale_rows_avx2(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j += LANES) {
            __m256i mask = first_lanes_avx2(n - j);
            float *at = x + r * ldx + j;
            __m256 scaled =
                _mm256_mul_ps(_mm256_maskload_ps(at, mask), _mm256_broadcast_ss(factor + r));
            _mm256_maskstore_ps(at, mask, scaled);
        }
}

static void scale_avx2(float *out, const float *x, float factor, size_t n)
{
    const __m256 by = _mm256_set1_ps(factor);
    for (size_t j = 0; j < n; j += LANES) {
        __m256i mask = first_lanes_avx2(n - j);
        _mm256_maskstore_ps(out + j, mask, _mm256_mul_ps(_mm256_maskload_ps(x + j, mask), by));
    }
}

static bool all_within_avx2(const float *x, size_t n, float limit)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), bound = _mm256_set1_ps(limit);
    __m256 beyond = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = first_lanes_avx2(n - i);
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
    attn_kernels_avx2_project(table);
    attn_kernels_avx2_columns(table);
    table->softmax = softmax_avx2;
    table->finish_weights = finish_weights_avx2;
    table->prepare_rows = prepare_rows_avx2;
    table->scale_rows = scale_rows_avx2;
    table->scale = scale_avx2;
    table->all_within = all_within_avx2;
}
