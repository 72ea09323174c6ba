/* avx512_columns.c: the kernels for transposed scores for AVX-512.
 *
 * Queries and scores are transposed, one row of attention in each lane.  The softmax of LANES rows
 * runs down the keys without a horizontal step, and a product takes its factors from one stream.
 * Every element is computed in the order of avx512.c, so both ways give the same bits. */
#include <math.h>

#include "kernels/avx512.h"
#include "kernels/tiling.h"
#include "kernels/widen.h"

/* ---- outer ----------------------------------------------------------------------------------- */

#define MAX_ROWS 14 /* x 2 vectors: 28 accumulators of 32 registers */
#define MAX_WIDE 6  /* x 4 vectors: 24, and half as many loads of factors */
/* Steps of i between prefetch and use of a factor: each step reads another cache line, of keys
 * often one that L1 does not have. */
#define AHEAD 8

/* Computes the tile of c that begins at row r0 and column j: `rows` rows by `vectors` * LANES
 * columns (both constant), or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile_avx512(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                              const int vectors, const bool masked)
{
    const struct attn_outer t = *p;
    const size_t ahead = AHEAD * t.lda;
    const float *a = t.a + r0, *b = t.b + j;
    __m512 sum[MAX_ROWS][4];
    __mmask16 mask[4];
    unroll_for(v, vectors)
        mask[v] = masked ? first_lanes_avx512(t.n - attn_min(t.n, j + v * LANES)) : 0xffff;
    float *c = t.c + opaque_avx512(r0 * t.ldc + j);
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
            __m512 factor = load_factor_avx512(a + r);
            unroll_for(v, vectors)
                sum[r][v] = _mm512_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    c = t.c + opaque_avx512(r0 * t.ldc + j);
    unroll_for(r, rows) {
        unroll_for(v, vectors)
            _mm512_mask_storeu_ps(c + v * LANES, mask[v], sum[r][v]);
        c += t.ldc;
    }
}

#define TILE(name, rows, vectors, masked)                                     \
    static void name##_##rows(const struct attn_outer *p, size_t r, size_t j) \
    {                                                                         \
        outer_tile_avx512(p, r, j, rows, vectors, masked);                    \
    }
#define TILES_6(name, vectors, masked) \
    TILE(name, 1, vectors, masked)     \
    TILE(name, 2, vectors, masked)     \
    TILE(name, 3, vectors, masked)     \
    TILE(name, 4, vectors, masked)     \
    TILE(name, 5, vectors, masked)     \
    TILE(name, 6, vectors, masked)
#define TILES_14(name, vectors, masked) \
    TILES_6(name, vectors, masked)      \
    TILE(name, 7, vectors, masked)      \
    TILE(name, 8, vectors, masked)      \
    TILE(name, 9, vectors, masked)      \
    TILE(name, 10, vectors, masked)     \
    TILE(name, 11, vectors, masked)     \
    TILE(name, 12, vectors, masked)     \
    TILE(name, 13, vectors, masked)     \
    TILE(name, 14, vectors, masked)
#define LIST_6(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6
#define LIST_14(name)                                                                       \
    LIST_6(name), name##_7, name##_8, name##_9, name##_10, name##_11, name##_12, name##_13, \
        name##_14

TILES_6(outer_wide_avx512, 4, false)
TILES_14(outer_full_avx512, 2, false)
TILES_14(outer_edge_avx512, 2, true)

static const struct outer_tiles tiles = {
    {LIST_6(outer_wide_avx512)}, {LIST_14(outer_full_avx512)}, {LIST_14(outer_edge_avx512)}};

static void outer_avx512(const struct attn_outer *p)
{
    outer_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, MAX_WIDE});
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* Transposed scores of LANES rows, or of fewer where a function's `masked` (constant) is set. */
struct lanes {
    float *s; /* [n][lds] */
    size_t lds, n;
    __mmask16 mask;
};

INLINE __m512 load_key_avx512(const struct lanes *l, const float *s, const bool masked)
{
    return masked ? load_scores_avx512(s, l->mask) : _mm512_loadu_ps(s);
}

INLINE void store_key_avx512(const struct lanes *l, float *s, __m512 e, const bool masked)
{
    if (masked)
        _mm512_mask_storeu_ps(s, l->mask, e);
    else
        _mm512_storeu_ps(s, e);
}

INLINE __m512 max_keys_avx512(const struct lanes *l, __m512 top, const bool masked)
{
    __m512 tops[4] = {top, top, top, top};
    const float *s = l->s;
    size_t j = 0;
    for (; j + 4 <= l->n; j += 4)
        unroll_for(i, 4) {
            tops[i] = _mm512_max_ps(tops[i], load_key_avx512(l, s, masked));
            s += l->lds;
        }
    for (; j < l->n; j++, s += l->lds)
        tops[0] = _mm512_max_ps(tops[0], load_key_avx512(l, s, masked));
    return _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3]));
}

/* s = exp(s - top) for `count` (constant) keys from j on; key i is added to sums[i % LANES]. */
INLINE void exp_key_block_avx512(const struct lanes *l, size_t j, __m512 top, __m512 sums[LANES],
                                 const int count, const bool masked)
{
    __m512 e[EXP_VECTORS];
    float *s = l->s + j * l->lds;
    unroll_for(i, count)
        e[i] = _mm512_sub_ps(load_key_avx512(l, s + (size_t)i * l->lds, masked), top);
    exp_vectors_avx512(e, count);
    unroll_for(i, count) {
        store_key_avx512(l, s + (size_t)i * l->lds, e[i], masked);
        sums[j % LANES + (size_t)i] = _mm512_add_ps(sums[j % LANES + (size_t)i], e[i]);
    }
}

/* s = exp(s - top) for all keys; returns the sums of the rows.  The order of additions is that of
 * exp_row_avx512: sums[l] takes keys l, l + LANES, ..., then the upper half is added to the lower
 * until one is left. */
INLINE __m512 exp_keys_avx512(const struct lanes *l, __m512 top, const bool masked)
{
    __m512 sums[LANES], zero = _mm512_setzero_ps();
    size_t j = 0;
    __asm__("" : "+v"(zero)); /* or the compiler makes a slow memset of the loop */
    unroll_for(i, LANES)
        sums[i] = zero;
    for (; j + EXP_VECTORS <= l->n; j += EXP_VECTORS)
        exp_key_block_avx512(l, j, top, sums, EXP_VECTORS, masked);
    for (; j < l->n; j++)
        exp_key_block_avx512(l, j, top, sums, 1, masked);
    unroll_for(i, 8)
        sums[i] = _mm512_add_ps(sums[i], sums[i + 8]);
    unroll_for(i, 4)
        sums[i] = _mm512_add_ps(sums[i], sums[i + 4]);
    unroll_for(i, 2)
        sums[i] = _mm512_add_ps(sums[i], sums[i + 2]);
    return _mm512_add_ps(sums[0], sums[1]);
}

INLINE void softmax_lanes_avx512(const struct lanes *l, float *max, float *sum, float *rescale,
                                 const bool masked)
{
    __m512 before = _mm512_maskz_loadu_ps(l->mask, max);
    __m512 top = max_keys_avx512(l, before, masked);
    __mmask16 seen = _mm512_cmp_ps_mask(top, _mm512_set1_ps(-INFINITY), _CMP_GT_OQ);
    __m512 scale =
        exp_lanes_avx512(_mm512_maskz_sub_ps(seen, before, top)); /* 1: no key was seen */
    __m512 total = exp_keys_avx512(l, top, masked);
    total = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(l->mask, sum), scale, total);
    _mm512_mask_storeu_ps(max, l->mask, top);
    _mm512_mask_storeu_ps(sum, l->mask, total);
    _mm512_mask_storeu_ps(rescale, l->mask, scale);
}

/* The scores of keys that a row does not see become -inf. */
static void mask_columns_avx512(const struct attn_score_columns *c)
{
    const __m512 unseen = _mm512_set1_ps(-INFINITY);
    for (size_t r = 0; r < c->rows; r += LANES) {
        __mmask16 mask = first_lanes_avx512(c->rows - r);
        __m512i first = _mm512_maskz_loadu_epi32(mask, c->first + r);
        __m512i end = _mm512_maskz_loadu_epi32(mask, c->end + r);
        for (size_t j = 0; j < c->n; j++) {
            __m512i key = _mm512_set1_epi32((int)j);
            __mmask16 hidden =
                _mm512_cmplt_epi32_mask(key, first) | _mm512_cmple_epi32_mask(end, key);
            _mm512_mask_storeu_ps(c->s + j * c->lds + r, mask & hidden, unseen);
        }
    }
}

static void softmax_columns_avx512(const struct attn_score_columns *c, float *max, float *sum,
                                   float *rescale)
{
    if (c->first != NULL)
        mask_columns_avx512(c);
    for (size_t r = 0; r < c->rows; r += LANES) {
        const struct lanes l = {c->s + r, c->lds, c->n, first_lanes_avx512(c->rows - r)};
        if (c->rows - r < LANES)
            softmax_lanes_avx512(&l, max + r, sum + r, rescale + r, true);
        else
            softmax_lanes_avx512(&l, max + r, sum + r, rescale + r, false);
    }
}

/* ---- transpose ------------------------------------------------------------------------------- */

static void transpose_avx512(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                             float factor)
{
    const __m512 by = _mm512_set1_ps(factor);
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t j = 0; j < n; j += LANES) {
            __m512 from[LANES], to[LANES];
            const __mmask16 row_mask = first_lanes_avx512(rows - r),
                            mask = first_lanes_avx512(n - j);
            unroll_for(i, LANES)
                from[i] = r + (size_t)i < rows ? _mm512_maskz_loadu_ps(mask, in[r + (size_t)i] + j)
                                               : _mm512_setzero_ps();
            transpose_lanes_avx512(to, from);
            unroll_for(i, LANES)
                if (j + (size_t)i < n)
                    _mm512_mask_storeu_ps(out + (j + (size_t)i) * ldo + r, row_mask,
                                          _mm512_mul_ps(to[i], by));
        }
}

void attn_kernels_avx512_columns(struct attn_kernels *table)
{
    table->columns_from_rows = LANES;
    table->outer = outer_avx512;
    table->softmax_columns = softmax_columns_avx512;
    table->transpose = transpose_avx512;
    table->widen_keys = widen_keys;
}
