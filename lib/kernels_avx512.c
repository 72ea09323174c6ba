/* kernels_avx512.c: the kernel table for AVX-512 F, BW, DQ and VL.
 *
 * Products work on register tiles: arrays of __m512 with constant bounds in functions that are
 * always inlined, so that each array element becomes a register.  A tile function is instantiated
 * once per number of rows and found in a table by that number; columns beyond the width are
 * masked off.  Whatever the tile, an element is the same chain of fused multiply-adds, so tile
 * shapes are a matter of speed and never of bits:
 *
 *   matmul   one chain per element over ascending i
 *   project  16 partial sums per element over ascending k, added up as a fixed tree every
 *            K_BLOCK and at the end
 */
#include <immintrin.h>
#include <math.h>

#include "kernels.h"
#include "kernels_exp.h"
#include "mem.h"

#define INLINE static inline __attribute__((always_inline))
/* Loops over the registers of a tile: unrolled, so that an index is a register. */
#define unroll_for(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

#define LANES 16

/* The first `count` lanes; all where count is LANES or more. */
INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffu : (1u << count) - 1u);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MAX_ROWS 12 /* x 2 vectors: 24 accumulators of 32 registers */
#define MAX_WIDE 6  /* x 4 vectors: for few rows, so that there are enough chains to hide latency */

typedef void matmul_tile_fn(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                            size_t ldb, size_t k, size_t n, bool accumulate);

/* A tile of c: `rows` rows (constant) of n <= vectors * LANES columns; n is looked at only where
 * `masked` (constant). */
INLINE void matmul_tile(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                        size_t ldb, size_t k, size_t n, bool accumulate, const int rows,
                        const int vectors, const bool masked)
{
    __m512 sum[MAX_ROWS][4];
    __mmask16 mask[4];
    unroll_for(v, vectors)
        mask[v] = masked ? first_lanes(n - attn_min(n, v * LANES)) : 0xffff;
    unroll_for(r, rows)
        unroll_for(v, vectors)
            sum[r][v] = accumulate ? _mm512_maskz_loadu_ps(mask[v], c + r * ldc + v * LANES)
                                   : _mm512_setzero_ps();
    for (size_t i = 0; i < k; i++) {
        __m512 row[4];
        unroll_for(v, vectors)
            row[v] = _mm512_maskz_loadu_ps(mask[v], b + i * ldb + v * LANES);
        unroll_for(r, rows) {
            __m512 factor = _mm512_set1_ps(a[r * lda + i]);
            unroll_for(v, vectors)
                sum[r][v] = _mm512_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    unroll_for(r, rows)
        unroll_for(v, vectors)
            _mm512_mask_storeu_ps(c + r * ldc + v * LANES, mask[v], sum[r][v]);
}

/* name_1 to name_12: matmul_tile for that many rows. */
#define TILE(name, rows, vectors, masked)                                                       \
    static void name##_##rows(float *c, size_t ldc, const float *a, size_t lda, const float *b, \
                              size_t ldb, size_t k, size_t n, bool accumulate)                  \
    {                                                                                           \
        matmul_tile(c, ldc, a, lda, b, ldb, k, n, accumulate, rows, vectors, masked);           \
    }
#define TILES_6(name, vectors, masked) \
    TILE(name, 1, vectors, masked)     \
    TILE(name, 2, vectors, masked)     \
    TILE(name, 3, vectors, masked)     \
    TILE(name, 4, vectors, masked)     \
    TILE(name, 5, vectors, masked)     \
    TILE(name, 6, vectors, masked)
#define TILES_12(name, vectors, masked) \
    TILES_6(name, vectors, masked)      \
    TILE(name, 7, vectors, masked)      \
    TILE(name, 8, vectors, masked)      \
    TILE(name, 9, vectors, masked)      \
    TILE(name, 10, vectors, masked)     \
    TILE(name, 11, vectors, masked)     \
    TILE(name, 12, vectors, masked)
#define LIST_6(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6
#define LIST_12(name) LIST_6(name), name##_7, name##_8, name##_9, name##_10, name##_11, name##_12

TILES_6(wide, 4, false)
TILES_12(full, 2, false)
TILES_12(edge, 2, true)

static matmul_tile_fn *const wide_tiles[] = {LIST_6(wide)};
static matmul_tile_fn *const full_tiles[] = {LIST_12(full)};
static matmul_tile_fn *const edge_tiles[] = {LIST_12(edge)};

/* Columns [j, j + width) of all rows, in pieces as equal as can be. */
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

#define K_BLOCK 512 /* floats of a row that are summed before they are added to y */
#define X_ROWS 3    /* x W_ROWS: 24 accumulators */
#define W_ROWS 8
#define N_BLOCK 64          /* weight rows per pass over x, where x is too large to stay in L2 */
#define X_CACHED (3u << 16) /* floats, 768 KiB of the 1 MiB that server cores have */

/* A tile of y: y[r][j] = start[r][j] + <x[r], w[j]>, over k <= K_BLOCK floats. */
struct project_tile {
    float *y;
    const float *start, *x, *w;
    float *packed;      /* [k / LANES][W_ROWS][LANES], zero beyond k */
    const float *ahead; /* weights that will be wanted soon; prefetched, so it may lead nowhere */
    size_t ldy, ldstart, ldx, ldw, k;
};

typedef void project_tile_fn(const struct project_tile *tile);

/* Where a tile takes its weights from.  With several tiles of rows the first one packs them for
 * the others: weight rows a power of two apart evict each other from L1. */
enum source { MATRIX, MATRIX_TO_PACKED, PACKED };

/* LANES weights of row j from float i on.  The register is opaque to the compiler, which would
 * rather load anew for each use and saturate the load ports. */
INLINE __m512 load_weights(const struct project_tile *t, size_t i, int j, __mmask16 mask,
                           const enum source source)
{
    float *packed = t->packed + i * W_ROWS + j * LANES;
    __m512 v = source == PACKED ? _mm512_load_ps(packed)
                                : _mm512_maskz_loadu_ps(mask, t->w + j * t->ldw + i);
    __asm__("" : "+v"(v));
    if (source == MATRIX_TO_PACKED)
        _mm512_store_ps(packed, v);
    return v;
}

INLINE void project_step(__m512 sum[X_ROWS][W_ROWS], const struct project_tile *t, size_t i,
                         __mmask16 mask, const int x_rows, const int w_rows,
                         const enum source source)
{
    unroll_for(j, w_rows) {
        __m512 w = load_weights(t, i, j, mask, source);
        unroll_for(r, x_rows)
            sum[r][j] =
                _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, t->x + r * t->ldx + i), w, sum[r][j]);
    }
}

/* The sums of the lanes of v[0] to v[3], one in each quarter's element: four partial sums each. */
INLINE __m512 add_quarters(const __m512 v[4])
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
}

/* The sum of the lanes of each of v[0] to v[7], all added up in the same order. */
INLINE __m256 add_lanes(const __m512 v[W_ROWS])
{
    __m512 low = add_quarters(v), high = add_quarters(v + 4);
    __m512 sum =
        _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x44), _mm512_shuffle_f32x4(low, high, 0xee));
    sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0xb1));
    return _mm512_castps512_ps256(_mm512_shuffle_f32x4(sum, sum, 0x08));
}

/* Computes a tile of a constant number of x_rows and w_rows. */
INLINE void project_tile(const struct project_tile *tile, const int x_rows, const int w_rows,
                         const enum source source)
{
    const struct project_tile t = *tile;
    __m512 sum[X_ROWS][W_ROWS];
    unroll_for(r, x_rows)
        unroll_for(j, W_ROWS)
            sum[r][j] = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + LANES <= t.k; i += LANES) {
        if (source != MATRIX)
            _mm_prefetch(t.ahead + i, _MM_HINT_T1);
        project_step(sum, &t, i, 0xffff, x_rows, w_rows, source);
    }
    if (i < t.k)
        project_step(sum, &t, i, first_lanes(t.k - i), x_rows, w_rows, source);
    __mmask8 columns = (__mmask8)first_lanes(w_rows);
    unroll_for(r, x_rows) {
        __m256 before = _mm256_maskz_loadu_ps(columns, t.start + r * t.ldstart);
        _mm256_mask_storeu_ps(t.y + r * t.ldy, columns, _mm256_add_ps(before, add_lanes(sum[r])));
    }
}

#define PROJECT(name, x_rows, w_rows, source)                    \
    static void name##_##x_rows(const struct project_tile *tile) \
    {                                                            \
        project_tile(tile, x_rows, w_rows, source);              \
    }
#define PROJECTS(name, w_rows, source) \
    PROJECT(name, 1, w_rows, source)   \
    PROJECT(name, 2, w_rows, source)   \
    PROJECT(name, 3, w_rows, source)   \
    static project_tile_fn *const name##_tiles[] = {NULL, name##_1, name##_2, name##_3};

PROJECTS(single, 1, MATRIX)
PROJECTS(matrix, W_ROWS, MATRIX)
PROJECTS(packed, W_ROWS, PACKED)
PROJECT(packing, 3, W_ROWS, MATRIX_TO_PACKED)

/* All rows of W_ROWS columns, or of one, over one block of k.  The next weights are fetched one
 * row per tile: by the eighth tile all are on their way. */
static void project_rows(struct project_tile tile, size_t rows, size_t columns, const float *next)
{
    const bool packs = rows > X_ROWS && columns == W_ROWS;
    project_tile_fn *const *tiles = columns < W_ROWS ? single_tiles
                                    : packs          ? packed_tiles
                                                     : matrix_tiles;
    for (size_t r = 0; r < rows; r += X_ROWS) {
        tile.ahead = next + r / X_ROWS % W_ROWS * tile.ldw;
        if (packs && r == 0)
            packing_3(&tile);
        else
            tiles[attn_min(rows - r, X_ROWS)](&tile);
        tile.y += X_ROWS * tile.ldy;
        tile.start += X_ROWS * tile.ldstart;
        tile.x += X_ROWS * tile.ldx;
    }
}

static void project(float *y, size_t ldy, const float *x, size_t ldx, const float *w, size_t ldw,
                    const float *bias, size_t rows, size_t k, size_t n)
{
    static const float zeros[W_ROWS];
    float packed[W_ROWS * K_BLOCK] __attribute__((aligned(64)));
    const size_t pass = attn_mul(rows, k) > X_CACHED ? N_BLOCK : W_ROWS;
    struct project_tile tile = {.packed = packed, .ldy = ldy, .ldx = ldx, .ldw = ldw};
    for (size_t first = 0; first < n; first += pass)
        for (size_t i = 0; i < k; i += K_BLOCK) {
            const size_t end = attn_min(first + pass, n);
            tile.x = x + i;
            tile.k = attn_min(k - i, K_BLOCK);
            for (size_t j = first, columns; j < end; j += columns) {
                columns = end - j >= W_ROWS ? W_ROWS : 1;
                tile.w = w + j * ldw + i;
                tile.y = y + j;
                tile.start = i > 0 ? tile.y : bias != NULL ? bias + j : zeros;
                tile.ldstart = i > 0 ? ldy : 0;
                const bool last = j + columns >= end && i + K_BLOCK < k;
                project_rows(tile, rows, columns,
                             last ? w + first * ldw + i + K_BLOCK : tile.w + columns * ldw);
            }
        }
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* See kernels_exp.h. */
INLINE __m512 exp_lanes(__m512 x)
{
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    __m512 rounded = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), round);
    __m512 n = _mm512_sub_ps(rounded, round);
    __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(rounded), 23));
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_LO), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(EXP_Q4), r, _mm512_set1_ps(EXP_Q3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q2));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q1));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_Q0));
    __m512 p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r);
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOWEST), _CMP_GE_OQ);
    return _mm512_maskz_mul_ps(normal, _mm512_add_ps(p, _mm512_set1_ps(1.0f)), power);
}

/* Lanes beyond the row read as -inf: the neutral element of max, and of a sum of exp. */
INLINE __m512 load_scores(const float *s, __mmask16 mask)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), mask, s);
}

INLINE float max_of_row(const float *s, float max, size_t n)
{
    __m512 top = _mm512_set1_ps(max);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = _mm512_max_ps(top, _mm512_loadu_ps(s + j));
    if (j < n)
        top = _mm512_max_ps(top, load_scores(s + j, first_lanes(n - j)));
    return _mm512_reduce_max_ps(top);
}

/* s[j] = exp(s[j] - max) for the masked lanes; 0 in the others of the result. */
INLINE __m512 exp_scores(float *s, __mmask16 mask, float max)
{
    __m512 e = exp_lanes(_mm512_sub_ps(load_scores(s, mask), _mm512_set1_ps(max)));
    _mm512_mask_storeu_ps(s, mask, e);
    return e;
}

/* s[j] = exp(s[j] - max) for a row; returns the sum. */
INLINE float exp_of_row(float *s, float max, size_t n)
{
    __m512 total = _mm512_setzero_ps();
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        total = _mm512_add_ps(total, exp_scores(s + j, (__mmask16)0xffff, max));
    if (j < n)
        total = _mm512_add_ps(total, exp_scores(s + j, first_lanes(n - j), max));
    return _mm512_reduce_add_ps(total);
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
        __mmask16 mask = first_lanes(count);
        __m512 before = _mm512_maskz_loadu_ps(mask, max + r);
        __m512 top = _mm512_loadu_ps(tops);
        __mmask16 seen = _mm512_cmp_ps_mask(top, _mm512_set1_ps(-INFINITY), _CMP_GT_OQ);
        __m512 scale = exp_lanes(_mm512_maskz_sub_ps(seen, before, top)); /* 1 where not seen */
        __m512 total =
            _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, sum + r), scale, _mm512_loadu_ps(totals));
        _mm512_mask_storeu_ps(max + r, mask, top);
        _mm512_mask_storeu_ps(sum + r, mask, total);
        _mm512_mask_storeu_ps(rescale + r, mask, scale);
    }
}

static void normalize(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        __mmask16 mask = first_lanes(n - j);
        __m512 e = exp_lanes(_mm512_sub_ps(load_scores(w + j, mask), _mm512_set1_ps(max)));
        /* factor may be 1/0 where every w is -inf */
        __mmask16 some = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_GT_OQ);
        _mm512_mask_storeu_ps(w + j, mask, _mm512_maskz_mul_ps(some, e, _mm512_set1_ps(factor)));
    }
}

/* ---- The rest -------------------------------------------------------------------------------- */

static void scale_rows(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j += LANES) {
            __mmask16 mask = first_lanes(n - j);
            float *at = x + r * ldx + j;
            __m512 scaled =
                _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, at), _mm512_set1_ps(factor[r]));
            _mm512_mask_storeu_ps(at, mask, scaled);
        }
}

static bool all_within(const float *x, size_t n, float limit)
{
    const __m512 bound = _mm512_set1_ps(limit);
    __mmask16 beyond = 0;
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = first_lanes(n - i);
        __m512 size = _mm512_abs_ps(_mm512_maskz_loadu_ps(mask, x + i));
        beyond |= _mm512_mask_cmp_ps_mask(mask, size, bound, _CMP_NLE_UQ);
    }
    return beyond == 0;
}

void attn_kernels_avx512(struct attn_kernels *table)
{
    table->matmul = matmul;
    table->project = project;
    table->softmax = softmax;
    table->normalize = normalize;
    table->scale_rows = scale_rows;
    table->all_within = all_within;
}
