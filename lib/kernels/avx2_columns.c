/* avx2_columns.c: the kernels for transposed scores for AVX2 and FMA.
 *
 * The design is that of avx512_columns.c with half the width and half the registers; the
 * bits are those of avx2.c. */
#include <math.h>

#include "kernels/avx2.h"
#include "kernels/tiling.h"
#include "kernels/widen.h"

/* ---- outer ----------------------------------------------------------------------------------- */

#define MAX_ROWS 6 /* x 2 vectors: 12 accumulators of 16 registers */

/* Computes the tile of c that begins at row r0 and column j: `rows` (constant) rows by 2 * LANES
 * columns, or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile_avx2(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                            const bool masked)
{
    const struct attn_outer t = *p;
    const float *a = t.a + r0, *b = t.b + j;
    __m256 sum[MAX_ROWS][2];
    __m256i mask[2];
    unroll_for(v, 2)
        mask[v] = first_lanes_avx2(t.n - attn_min(t.n, j + v * LANES));
    unroll_for(r, rows)
        unroll_for(v, 2)
            sum[r][v] = t.rescale ? _mm256_mul_ps(load_avx2(t.c + (r0 + r) * t.ldc + j + v * LANES,
                                                            mask[v], masked),
                                                  _mm256_broadcast_ss(t.rescale + r0 + r))
                                  : _mm256_setzero_ps();
    for (size_t i = 0; i < t.k; i++, a += t.lda, b += t.ldb) {
        __m256 row[2];
        unroll_for(v, 2)
            row[v] = load_avx2(b + v * LANES, mask[v], masked);
        unroll_for(r, rows) {
            __m256 factor = _mm256_broadcast_ss(a + r);
            unroll_for(v, 2)
                sum[r][v] = _mm256_fmadd_ps(factor, row[v], sum[r][v]);
        }
    }
    unroll_for(r, rows)
        unroll_for(v, 2)
            store_avx2(t.c + (r0 + r) * t.ldc + j + v * LANES, mask[v], sum[r][v], masked);
}

#define TILE(name, rows, masked)                                              \
    static void name##_##rows(const struct attn_outer *p, size_t r, size_t j) \
    {                                                                         \
        outer_tile_avx2(p, r, j, rows, masked);                               \
    }
#define TILES(name, masked) \
    TILE(name, 1, masked)   \
    TILE(name, 2, masked)   \
    TILE(name, 3, masked)   \
    TILE(name, 4, masked)   \
    TILE(name, 5, masked)   \
    TILE(name, 6, masked)
#define LIST(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6

TILES(outer_full_avx2, false)
TILES(outer_edge_avx2, true)

static const struct outer_tiles tiles = {.full = {LIST(outer_full_avx2)},
                                         .edge = {LIST(outer_edge_avx2)}};

static void outer_avx2(const struct attn_outer *p)
{
    outer_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, 0});
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* Transposed scores of LANES rows, or of fewer where a function's `masked` (constant) is set. */
struct lanes {
    float *s; /* [n][lds] */
    size_t lds, n;
    __m256i mask;
};

INLINE __m256 load_key_avx2(const struct lanes *l, const float *s, const bool masked)
{
    return masked ? load_scores_avx2(s, l->mask) : _mm256_loadu_ps(s);
}

INLINE void store_key_avx2(const struct lanes *l, float *s, __m256 e, const bool masked)
{
    if (masked)
        _mm256_maskstore_ps(s, l->mask, e);
    else
        _mm256_storeu_ps(s, e);
}

INLINE __m256 max_keys_avx2(const struct lanes *l, __m256 top, const bool masked)
{
    __m256 other = top;
    const float *s = l->s;
    size_t j = 0;
    for (; j + 2 <= l->n; j += 2, s += 2 * l->lds) {
        top = _mm256_max_ps(top, load_key_avx2(l, s, masked));
        other = _mm256_max_ps(other, load_key_avx2(l, s + l->lds, masked));
    }
    if (j < l->n)
        top = _mm256_max_ps(top, load_key_avx2(l, s, masked));
    return _mm256_max_ps(top, other);
}

/* s = exp(s - top) for `count` (constant) keys from j on; key i is added to sums[i % LANES]. */
INLINE void exp_key_block_avx2(const struct lanes *l, size_t j, __m256 top, __m256 sums[LANES],
                               const int count, const bool masked)
{
    __m256 e[2];
    float *s = l->s + j * l->lds;
    unroll_for(i, count)
        e[i] = _mm256_sub_ps(load_key_avx2(l, s + (size_t)i * l->lds, masked), top);
    unroll_for(i, count)
        e[i] = exp_lanes_avx2(e[i]);
    unroll_for(i, count) {
        store_key_avx2(l, s + (size_t)i * l->lds, e[i], masked);
        sums[j % LANES + (size_t)i] = _mm256_add_ps(sums[j % LANES + (size_t)i], e[i]);
    }
}

/* s = exp(s - top) for all keys; returns the sums of the rows.  The order of additions is that of
 * exp_row_avx2: sums[l] takes keys l, l + LANES, ..., then the upper half is added to the lower
 * until one is left. */
INLINE __m256 exp_keys_avx2(const struct lanes *l, __m256 top, const bool masked)
{
    __m256 sums[LANES];
    for (size_t i = 0; i < LANES; i++)
        sums[i] = _mm256_setzero_ps();
    size_t j = 0;
    for (; j + 2 <= l->n; j += 2)
        exp_key_block_avx2(l, j, top, sums, 2, masked);
    for (; j < l->n; j++)
        exp_key_block_avx2(l, j, top, sums, 1, masked);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            sums[i] = _mm256_add_ps(sums[i], sums[i + half]);
    return sums[0];
}

INLINE void softmax_lanes_avx2(const struct lanes *l, float *max, float *sum, float *rescale,
                               const bool masked)
{
    __m256 before = _mm256_maskload_ps(max, l->mask);
    __m256 top = max_keys_avx2(l, before, masked);
    __m256 seen = _mm256_cmp_ps(top, _mm256_set1_ps(-INFINITY), _CMP_GT_OQ);
    __m256 scale = exp_lanes_avx2(
        _mm256_and_ps(_mm256_sub_ps(before, top), seen)); /* 1 where no key was seen */
    __m256 total = exp_keys_avx2(l, top, masked);
    total = _mm256_fmadd_ps(_mm256_maskload_ps(sum, l->mask), scale, total);
    _mm256_maskstore_ps(max, l->mask, top);
    _mm256_maskstore_ps(sum, l->mask, total);
    _mm256_maskstore_ps(rescale, l->mask, scale);
}

/* The scores of keys that a row does not see become -inf. */
static void mask_columns_avx2(const struct attn_score_columns *c)
{
    const __m256 unseen = _mm256_set1_ps(-INFINITY);
    for (size_t r = 0; r < c->rows; r += LANES) {
        __m256i mask = first_lanes_avx2(c->rows - r);
        __m256i first = _mm256_maskload_epi32(c->first + r, mask);
        __m256i end = _mm256_maskload_epi32(c->end + r, mask);
        for (size_t j = 0; j < c->n; j++) {
            __m256i key = _mm256_set1_epi32((int)j);
            __m256i seen =
                _mm256_andnot_si256(_mm256_cmpgt_epi32(first, key), _mm256_cmpgt_epi32(end, key));
            _mm256_maskstore_ps(c->s + j * c->lds + r, _mm256_andnot_si256(seen, mask), unseen);
        }
    }
}

static void softmax_columns_avx2(const struct attn_score_columns *c, float *max, float *sum,
                                 float *rescale)
{
    if (c->first != NULL)
        mask_columns_avx2(c);
    for (size_t r = 0; r < c->rows; r += LANES) {
        const struct lanes l = {c->s + r, c->lds, c->n, first_lanes_avx2(c->rows - r)};
        if (c->rows - r < LANES)
            softmax_lanes_avx2(&l, max + r, sum + r, rescale + r, true);
        else
            softmax_lanes_avx2(&l, max + r, sum + r, rescale + r, false);
    }
}

/* ---- transpose ------------------------------------------------------------------------------- */

/* out[c][r] = in[r][c] */
INLINE void transpose_lanes_avx2(__m256 out[LANES], const __m256 in[LANES])
{
    __m256 t[LANES], u[LANES];
    unroll_for(i, 4) {
        t[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    unroll_for(i, 2)
        unroll_for(h, 2) {
            u[4 * i + 2 * h] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0x44);
            u[4 * i + 2 * h + 1] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0xee);
        }
    /* half q of u[4 i + c] is now column 4 q + c of rows 4 i to 4 i + 3 */
    unroll_for(c, 4) {
        out[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        out[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}

static void transpose_avx2(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                           float factor)
{
    const __m256 by = _mm256_set1_ps(factor);
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t j = 0; j < n; j += LANES) {
            __m256 from[LANES], to[LANES];
            const __m256i row_mask = first_lanes_avx2(rows - r), mask = first_lanes_avx2(n - j);
            unroll_for(i, LANES)
                from[i] = r + (size_t)i < rows ? _mm256_maskload_ps(in[r + (size_t)i] + j, mask)
                                               : _mm256_setzero_ps();
            transpose_lanes_avx2(to, from);
            unroll_for(i, LANES)
                if (j + (size_t)i < n)
                    _mm256_maskstore_ps(out + (j + (size_t)i) * ldo + r, row_mask,
                                        _mm256_mul_ps(to[i], by));
        }
}

void attn_kernels_avx2_columns(struct attn_kernels *table)
{
    table->columns_from_rows = LANES;
    table->outer = outer_avx2;
    table->softmax_columns = softmax_columns_avx2;
    table->transpose = transpose_avx2;
    table->widen_keys = widen_keys;
}
