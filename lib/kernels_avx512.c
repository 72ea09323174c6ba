/* kernels_avx512.c: the kernel table for AVX-512 F, BW, DQ and VL.
 *
 * Products work on register tiles: arrays of __m512 with constant bounds in functions that are
 * always inlined, so that each array element becomes a register.  A tile function is instantiated
 * once per number of rows and found in a table by that number; columns beyond the width are
 * masked off.  Whatever the tile, an element is the same chain of fused multiply-adds, so tile
 * shapes are a matter of speed and never of bits:
 *
 *   matmul   one chain per element over ascending i
 *   project  one chain per element and block of k, added to what came before
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

#define FEW_ROWS 6    /* x 4 vectors, two panels; read where they are */
#define STRIP_ROWS 14 /* x 2 vectors, a panel: 28 accumulators; from a strip */
#define STEPS 2       /* of k between prefetches */

/* A tile of y: some rows of n columns.  x stands as rows of ldx, or as a strip, [k][LANES]. */
struct project_tile {
    float *y;
    const float *start, *x, *w;
    const float *ahead; /* weights of the next panel, prefetched where x is a strip */
    size_t lines;       /* of them in each STEPS */
    size_t ldy, ldstart, ldx, ldpanel, k, n;
};

typedef void project_tile_fn(const struct project_tile *tile);

/* A factor of a row.  The register is opaque to the compiler, which would rather load anew for
 * each use and saturate the load ports. */
INLINE __m512 load_factor(const float *x)
{
    __m512 v = _mm512_set1_ps(*x);
    __asm__("" : "+v"(v));
    return v;
}

INLINE void project_step(__m512 sum[STRIP_ROWS][4], const struct project_tile *t, size_t i,
                         const int rows, const int panels, const bool strip)
{
    __m512 w[4];
    unroll_for(v, 2 * panels)
        w[v] = _mm512_loadu_ps(t->w + v / 2 * t->ldpanel + i * ATTN_PANEL + v % 2 * LANES);
    unroll_for(r, rows) {
        __m512 factor = load_factor(strip ? t->x + i * LANES + r : t->x + r * t->ldx + i);
        unroll_for(v, 2 * panels)
            sum[r][v] = _mm512_fmadd_ps(factor, w[v], sum[r][v]);
    }
}

/* y = start + sum. */
INLINE void project_end(__m512 sum[STRIP_ROWS][4], const struct project_tile *t, const int rows,
                        const int panels)
{
    unroll_for(v, 2 * panels) {
        __mmask16 mask = first_lanes(t->n - attn_min(t->n, v * LANES));
        unroll_for(r, rows) {
            __m512 start = _mm512_maskz_loadu_ps(mask, t->start + r * t->ldstart + v * LANES);
            _mm512_mask_storeu_ps(t->y + r * t->ldy + v * LANES, mask,
                                  _mm512_add_ps(start, sum[r][v]));
        }
    }
}

/* Computes a tile of a constant number of rows and panels. */
INLINE void project_tile(const struct project_tile *tile, const int rows, const int panels,
                         const bool strip)
{
    const struct project_tile t = *tile;
    __m512 sum[STRIP_ROWS][4];
    unroll_for(r, rows) {
        unroll_for(v, 2 * panels)
            sum[r][v] = _mm512_setzero_ps();
        unroll_for(v, 2 * panels)
            _mm_prefetch(t.y + r * t.ldy + v * LANES, _MM_HINT_T0);
    }
    const float *ahead = t.ahead;
    size_t i = 0;
    for (; i + STEPS <= t.k; i += STEPS) {
        for (size_t l = 0; strip && l < t.lines; l++)
            _mm_prefetch(ahead + l * LANES, _MM_HINT_T0);
        ahead += t.lines * LANES;
        unroll_for(s, STEPS)
            project_step(sum, &t, i + s, rows, panels, strip);
    }
    for (; i < t.k; i++)
        project_step(sum, &t, i, rows, panels, strip);
    project_end(sum, &t, rows, panels);
}

#define PROJECT(name, rows, panels, strip)                     \
    static void name##_##rows(const struct project_tile *tile) \
    {                                                          \
        project_tile(tile, rows, panels, strip);               \
    }
#define PROJECTS_6(name, panels)    \
    PROJECT(name, 1, panels, false) \
    PROJECT(name, 2, panels, false) \
    PROJECT(name, 3, panels, false) \
    PROJECT(name, 4, panels, false) \
    PROJECT(name, 5, panels, false) \
    PROJECT(name, 6, panels, false)

PROJECTS_6(pair, 2)
PROJECTS_6(last, 1)
PROJECT(strip, 7, 1, true)
PROJECT(strip, 8, 1, true)
PROJECT(strip, 9, 1, true)
PROJECT(strip, 10, 1, true)
PROJECT(strip, 11, 1, true)
PROJECT(strip, 12, 1, true)
PROJECT(strip, 13, 1, true)
PROJECT(strip, 14, 1, true)

static project_tile_fn *const pair_tiles[] = {LIST_6(pair)};
static project_tile_fn *const last_tiles[] = {LIST_6(last)};
/* From FEW_ROWS + 1 on: rows beyond STRIP_ROWS make strips of at least half as many. */
static project_tile_fn *const strip_tiles[] = {strip_7,  strip_8,  strip_9,  strip_10,
                                               strip_11, strip_12, strip_13, strip_14};

/* Few rows: two panels at a time, and the last one alone.  They wait for memory, and the hardware
 * sees two plain streams: prefetches only cost. */
static void project_few(const struct attn_product *p, struct project_tile tile)
{
    for (size_t j = 0, width; j < p->n; j += width) {
        width = j + ATTN_PANEL < p->n ? 2 * ATTN_PANEL : ATTN_PANEL;
        tile.n = p->n - j;
        (width == ATTN_PANEL ? last_tiles : pair_tiles)[p->rows](&tile);
        tile.w += width / ATTN_PANEL * p->ldpanel;
        tile.y += width;
        if (p->start != NULL)
            tile.start += width;
    }
}

/* out[c][r] = in[r][c] */
INLINE void transpose(__m512 out[LANES], __m512 in[LANES])
{
    __m512 t[LANES];
    unroll_for(i, 8) {
        t[2 * i] = _mm512_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    unroll_for(i, 4)
        unroll_for(h, 2) {
            __m512d a = _mm512_castps_pd(t[4 * i + h]), b = _mm512_castps_pd(t[4 * i + 2 + h]);
            in[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            in[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* in[4 i + c]: in its quarter q column 4 q + c of rows 4 i to 4 i + 3 */
    unroll_for(c, 4) {
        __m512 low = _mm512_shuffle_f32x4(in[c], in[4 + c], 0x88);
        __m512 odd = _mm512_shuffle_f32x4(in[c], in[4 + c], 0xdd);
        __m512 high = _mm512_shuffle_f32x4(in[8 + c], in[12 + c], 0x88);
        __m512 rest = _mm512_shuffle_f32x4(in[8 + c], in[12 + c], 0xdd);
        out[c] = _mm512_shuffle_f32x4(low, high, 0x88);
        out[8 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
        out[4 + c] = _mm512_shuffle_f32x4(odd, rest, 0x88);
        out[12 + c] = _mm512_shuffle_f32x4(odd, rest, 0xdd);
    }
}

/* strip[i][r] = x[r][i]: rows that are a power of two apart would evict each other from L1. */
static void pack_strip(float *strip, const float *x, size_t ldx, size_t rows, size_t k)
{
    for (size_t i = 0; i < k; i += LANES) {
        __m512 in[LANES], out[LANES];
        __mmask16 mask = first_lanes(k - i);
        unroll_for(r, LANES)
            in[r] = _mm512_maskz_loadu_ps((size_t)r < rows ? mask : 0, x + r * ldx + i);
        transpose(out, in);
        unroll_for(c, LANES)
            if (i + c < k)
                _mm512_store_ps(strip + (i + c) * LANES, out[c]);
    }
}

/* Many rows, in strips as equal as can be.  The strips of a panel share the fetching of the next
 * one. */
static void project_many(const struct attn_product *p, struct project_tile tile)
{
    const size_t strips = attn_ceil_div(p->rows, STRIP_ROWS);
    const size_t few = p->rows / strips, more = p->rows % strips; /* `more` strips have one more */
    for (size_t s = 0, r = 0; s < strips; r += few + (s < more), s++)
        pack_strip(p->scratch + s * p->k * LANES, p->x + r * p->ldx, p->ldx, few + (s < more),
                   p->k);
    tile.lines = attn_ceil_div(STEPS * ATTN_PANEL / LANES, strips);
    for (size_t j = 0; j < p->n; j += ATTN_PANEL) {
        tile.y = p->y + j;
        tile.start = p->start != NULL ? p->start + j : tile.start;
        tile.x = p->scratch;
        tile.ahead = tile.w + p->ldpanel;
        tile.n = p->n - j;
        for (size_t s = 0; s < strips; s++) {
            size_t rows = few + (s < more);
            strip_tiles[rows - FEW_ROWS - 1](&tile);
            tile.y += rows * p->ldy;
            tile.start += rows * p->ldstart;
            tile.x += p->k * LANES;
            tile.ahead += p->k / STEPS * tile.lines * LANES;
        }
        tile.w += p->ldpanel;
    }
}

static void project(const struct attn_product *p)
{
    static const float zeros[2 * ATTN_PANEL];
    const struct project_tile tile = {
        .y = p->y,
        .start = p->start != NULL ? p->start : zeros,
        .x = p->x,
        .w = p->w,
        .ldy = p->ldy,
        .ldstart = p->start != NULL ? p->ldstart : 0,
        .ldx = p->ldx,
        .ldpanel = p->ldpanel,
        .k = p->k,
        .ahead = p->w,
    };
    if (p->rows <= FEW_ROWS)
        project_few(p, tile);
    else
        project_many(p, tile);
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
