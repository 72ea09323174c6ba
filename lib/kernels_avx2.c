/* kernels_avx2.c: the kernel table for AVX2 and FMA.
 *
 * The same plan as kernels_avx512.c with half the width and half the registers: tiles are arrays of
 * __m256 in functions that are always inlined, one instance per number of rows; an element is the
 * same chain of fused multiply-adds whatever the tile.  AVX2 has no masked arithmetic: lanes beyond
 * the width are loaded as zero, or as -inf where scores are read, and not stored.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "kernels_exp.h"
#include "mem.h"

#define INLINE static inline __attribute__((always_inline))
/* Loops over the registers of a tile: unrolled, so that an index is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

#define LANES 8

/* All bits of the first `count` lanes; of all where count is LANES or more. */
INLINE __m256i first_lanes(size_t count)
{
    static const int32_t ones_and_zeros[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *from = ones_and_zeros + LANES - attn_min(count, LANES);
    return _mm256_loadu_si256((const __m256i *)from);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MAX_ROWS 6 /* x 2 vectors: 12 accumulators of 16 registers */
#define MAX_WIDE 3 /* x 4 vectors: for few rows, so that there are enough chains to hide latency */

typedef void matmul_tile_fn(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                            size_t ldb, size_t k, size_t n, bool accumulate);

/* A vector of a tile: masked where the tile is (constant), for only some lanes may be touched. */
INLINE __m256 load(const float *from, __m256i mask, const bool masked)
{
    return masked ? _mm256_maskload_ps(from, mask) : _mm256_loadu_ps(from);
}

INLINE void store(float *to, __m256i mask, __m256 v, const bool masked)
{
    if (masked)
        _mm256_maskstore_ps(to, mask, v);
    else
        _mm256_storeu_ps(to, v);
}

/* A tile of c: `rows` rows (constant) of n <= vectors * LANES columns; n is looked at only where
 * `masked` (constant). */
INLINE void matmul_tile(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                        size_t ldb, size_t k, size_t n, bool accumulate, const int rows,
                        const int vectors, const bool masked)
{
    __m256 sum[MAX_ROWS][4];
    __m256i mask[4];
    unroll_for(v, vectors)
        mask[v] = first_lanes(n - attn_min(n, v * LANES));
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] =
                accumulate ? load(c + r * ldc + v * LANES, mask[v], masked) : _mm256_setzero_ps();
    for (size_t i = 0; i < k; i++) {
        __m256 row[4];
        unroll_for(v, vectors)
            row[v] = load(b + i * ldb + v * LANES, mask[v], masked);
        unroll_for(r, rows) {
            __m256 factor = _mm256_broadcast_ss(a + r * lda + i);
            unroll_for(v, vectors)
                sum[r][v] = _mm256_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            store(c + r * ldc + v * LANES, mask[v], sum[r][v], masked);
}

/* name_1 to name_6: matmul_tile for that many rows. */
#define TILE(name, rows, vectors, masked)                                                       \
    static void name##_##rows(float *c, size_t ldc, const float *a, size_t lda, const float *b, \
                              size_t ldb, size_t k, size_t n, bool accumulate)                  \
    {                                                                                           \
        matmul_tile(c, ldc, a, lda, b, ldb, k, n, accumulate, rows, vectors, masked);           \
    }
#define TILES_3(name, vectors, masked) \
    TILE(name, 1, vectors, masked)     \
    TILE(name, 2, vectors, masked)     \
    TILE(name, 3, vectors, masked)
#define TILES_6(name, vectors, masked) \
    TILES_3(name, vectors, masked)     \
    TILE(name, 4, vectors, masked)     \
    TILE(name, 5, vectors, masked)     \
    TILE(name, 6, vectors, masked)
#define LIST_3(name) NULL, name##_1, name##_2, name##_3
#define LIST_6(name) LIST_3(name), name##_4, name##_5, name##_6

TILES_3(wide, 4, false)
TILES_6(full, 2, false)
TILES_6(edge, 2, true)

static matmul_tile_fn *const wide_tiles[] = {LIST_3(wide)};
static matmul_tile_fn *const full_tiles[] = {LIST_6(full)};
static matmul_tile_fn *const edge_tiles[] = {LIST_6(edge)};

/* Up to 2 * LANES columns of all rows, in pieces as equal as can be. */
static void matmul_panel(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                         size_t ldb, size_t rows, size_t k, size_t width, bool accumulate)
{
    matmul_tile_fn *const *tiles = width == 2 * LANES ? full_tiles : edge_tiles;
    for (size_t left = attn_ceil_div(rows, MAX_ROWS); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        tiles[count](c, ldc, a, lda, b, ldb, k, width, accumulate);
        c += count * ldc;
        a += count * lda;
        rows -= count;
    }
}

static void matmul(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb,
                   size_t rows, size_t k, size_t n, bool accumulate)
{
    size_t j = 0;
    if (rows <= MAX_WIDE)
        for (; j + 4 * LANES <= n; j += 4 * LANES)
            wide_tiles[rows](c + j, ldc, a, lda, b + j, ldb, k, 4 * LANES, accumulate);
    for (; j < n; j += 2 * LANES)
        matmul_panel(c + j, ldc, a, lda, b + j, ldb, rows, k, attn_min(n - j, 2 * LANES),
                     accumulate);
}

/* ---- project --------------------------------------------------------------------------------- */

#define STRIP_ROWS 6 /* x 2 vectors, half a panel: 12 accumulators */
#define FEW_ROWS 3   /* x 4 vectors; read where they are */

/* Floats between copied rows: no power of two, so that rows do not evict each other from L1. */
#define COPY_STRIDE (ATTN_K_BLOCK + 16)

/* A tile of y: some rows of n columns. */
struct project_tile {
    float *y;
    const float *start, *x, *w;
    const float *ahead; /* weights of the next panel, prefetched */
    size_t ldy, ldstart, ldx, k, n;
};

typedef void project_tile_fn(const struct project_tile *tile);

/* Computes a tile of a constant number of rows and vectors. */
INLINE void project_tile(const struct project_tile *tile, const int rows, const int vectors)
{
    const struct project_tile t = *tile;
    __m256 sum[STRIP_ROWS][4];
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = _mm256_setzero_ps();
    for (size_t i = 0; i < t.k; i++) {
        __m256 w[4];
        unroll_for(v, vectors)
            w[v] = _mm256_loadu_ps(t.w + i * ATTN_PANEL + v * LANES);
        _mm_prefetch(t.ahead + i * ATTN_PANEL, _MM_HINT_T0);
        unroll_for(r, rows) {
            __m256 factor = _mm256_broadcast_ss(t.x + r * t.ldx + i);
            unroll_for(v, vectors)
                sum[r][v] = _mm256_fmadd_ps(factor, w[v], sum[r][v]);
        }
    }
    unroll_for(v, vectors) {
        __m256i mask = first_lanes(t.n - attn_min(t.n, v * LANES));
        unroll_for(r, rows) {
            __m256 start = _mm256_maskload_ps(t.start + r * t.ldstart + v * LANES, mask);
            _mm256_maskstore_ps(t.y + r * t.ldy + v * LANES, mask, _mm256_add_ps(start, sum[r][v]));
        }
    }
}

#define PROJECT(name, rows, vectors)                           \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile(tile, rows, vectors);                     \
    }

PROJECT(whole, 1, 4)
PROJECT(whole, 2, 4)
PROJECT(whole, 3, 4)
PROJECT(half, 1, 2)
PROJECT(half, 2, 2)
PROJECT(half, 3, 2)
PROJECT(half, 4, 2)
PROJECT(half, 5, 2)
PROJECT(half, 6, 2)

static project_tile_fn *const whole_tiles[] = {LIST_3(whole)};
static project_tile_fn *const half_tiles[] = {LIST_6(half)};

/* All rows of half a panel, in strips as equal as can be.  The first one has the next panel
 * fetched: of each step the line that is the half's own. */
static void project_half(struct project_tile tile, size_t rows)
{
    for (size_t left = attn_ceil_div(rows, STRIP_ROWS); left > 0; left--) {
        size_t count = attn_ceil_div(rows, left);
        half_tiles[count](&tile);
        tile.y += count * tile.ldy;
        tile.start += count * tile.ldstart;
        tile.x += count * tile.ldx;
        tile.ahead = tile.w;
        rows -= count;
    }
}

static void project(const struct attn_product *p)
{
    static const float zeros[ATTN_PANEL];
    const bool few = p->rows <= FEW_ROWS;
    struct project_tile tile = {
        .x = few ? p->x : p->scratch,
        .ldx = few ? p->ldx : COPY_STRIDE,
        .ldy = p->ldy,
        .ldstart = p->start != NULL ? p->ldstart : 0,
        .k = p->k,
    };
    for (size_t r = 0; !few && r < p->rows; r++)
        memcpy(p->scratch + r * COPY_STRIDE, p->x + r * p->ldx, p->k * sizeof(float));
    const size_t width = few ? ATTN_PANEL : ATTN_PANEL / 2;
    for (size_t j = 0; j < p->n; j += width) {
        tile.y = p->y + j;
        tile.start = p->start != NULL ? p->start + j : zeros;
        tile.w = p->w + j / ATTN_PANEL * p->ldpanel + j % ATTN_PANEL;
        tile.ahead = tile.w + p->ldpanel;
        tile.n = p->n - j;
        if (few)
            whole_tiles[p->rows](&tile);
        else
            project_half(tile, p->rows);
    }
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* See kernels_exp.h. */
INLINE __m256 exp_lanes(__m256 x)
{
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 rounded = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    __m256 n = _mm256_sub_ps(rounded, round);
    __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(rounded), 23));
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LO), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(EXP_Q4), r, _mm256_set1_ps(EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q0));
    __m256 p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
    __m256 e = _mm256_mul_ps(_mm256_add_ps(p, _mm256_set1_ps(1.0f)), power);
    return _mm256_and_ps(e, _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_GE_OQ));
}

/* Lanes beyond the row read as -inf: the neutral element of max, and of a sum of exp. */
INLINE __m256 load_scores(const float *s, __m256i mask)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(s, mask),
                            _mm256_castsi256_ps(mask));
}

INLINE float max_of_lanes(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE float sum_of_lanes(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float max_of_row(const float *s, float max, size_t n)
{
    __m256 top = _mm256_set1_ps(max);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = _mm256_max_ps(top, _mm256_loadu_ps(s + j));
    if (j < n)
        top = _mm256_max_ps(top, load_scores(s + j, first_lanes(n - j)));
    return max_of_lanes(top);
}

/* s[j] = exp(s[j] - max) for the masked lanes; 0 in the others of the result. */
INLINE __m256 exp_scores(float *s, __m256i mask, float max)
{
    __m256 e = exp_lanes(_mm256_sub_ps(load_scores(s, mask), _mm256_set1_ps(max)));
    _mm256_maskstore_ps(s, mask, e);
    return e;
}

/* s[j] = exp(s[j] - max) for a row; returns the sum. */
INLINE float exp_of_row(float *s, float max, size_t n)
{
    __m256 total = _mm256_setzero_ps();
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        total = _mm256_add_ps(total, exp_scores(s + j, first_lanes(LANES), max));
    if (j < n)
        total = _mm256_add_ps(total, exp_scores(s + j, first_lanes(n - j), max));
    return sum_of_lanes(total);
}

/* LANES rows at a time: their maxima first, then their exp, so that rows overlap in the pipeline
 * instead of each waiting for its own maximum. */
static void softmax(float *s, size_t lds, float *max, float *sum, float *rescale, size_t rows,
                    size_t n)
{
    float tops[LANES] = {0}, totals[LANES] = {0};
    for (size_t r = 0; r < rows; r += LANES) {
        size_t count = attn_min(rows - r, LANES);
        for (size_t i = 0; i < count; i++)
            tops[i] = max_of_row(s + (r + i) * lds, max[r + i], n);
        for (size_t i = 0; i < count; i++)
            totals[i] = exp_of_row(s + (r + i) * lds, tops[i], n);
        __m256i mask = first_lanes(count);
        __m256 before = _mm256_maskload_ps(max + r, mask);
        __m256 top = _mm256_loadu_ps(tops);
        __m256 seen = _mm256_cmp_ps(top, _mm256_set1_ps(-INFINITY), _CMP_GT_OQ);
        __m256 change = _mm256_and_ps(_mm256_sub_ps(before, top), seen);
        __m256 scale = exp_lanes(change); /* 1 where nothing was seen */
        __m256 total =
            _mm256_fmadd_ps(_mm256_maskload_ps(sum + r, mask), scale, _mm256_loadu_ps(totals));
        _mm256_maskstore_ps(max + r, mask, top);
        _mm256_maskstore_ps(sum + r, mask, total);
        _mm256_maskstore_ps(rescale + r, mask, scale);
    }
}

static void normalize(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        __m256i mask = first_lanes(n - j);
        __m256 e = exp_lanes(_mm256_sub_ps(load_scores(w + j, mask), _mm256_set1_ps(max)));
        /* factor may be 1/0 where every w is -inf */
        __m256 some = _mm256_cmp_ps(e, _mm256_setzero_ps(), _CMP_GT_OQ);
        __m256 scaled = _mm256_mul_ps(e, _mm256_set1_ps(factor));
        _mm256_maskstore_ps(w + j, mask, _mm256_and_ps(scaled, some));
    }
}

/* ---- The rest -------------------------------------------------------------------------------- */

static void scale_rows(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j += LANES) {
            __m256i mask = first_lanes(n - j);
            float *at = x + r * ldx + j;
            __m256 scaled =
                _mm256_mul_ps(_mm256_maskload_ps(at, mask), _mm256_broadcast_ss(factor + r));
            _mm256_maskstore_ps(at, mask, scaled);
        }
}

static bool all_within(const float *x, size_t n, float limit)
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
    table->matmul = matmul;
    table->project = project;
    table->softmax = softmax;
    table->normalize = normalize;
    table->scale_rows = scale_rows;
    table->all_within = all_within;
}
