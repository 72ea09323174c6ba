/* neon_columns.c: the kernels for transposed scores for arm64's vectors of four floats.
 *
 * The design is that of avx2_columns.c with 32 registers; the bits are those of
 * neon.c. */
#include <math.h>

#include "kernels/neon.h"
#include "kernels/tiling.h"

/* ---- outer ----------------------------------------------------------------------------------- */

#define MAX_ROWS 12 /* x 2 vectors: 24 accumulators, 3 vectors of factors, of 32 registers */

/* Computes the tile of c that begins at row r0 and column j: `rows` (constant) rows by 2 * LANES
 * columns, or, where `masked` (constant), as many of these columns as n has. */
INLINE void outer_tile_neon(const struct attn_outer *p, size_t r0, size_t j, const int rows,
                            const bool masked)
{
    const struct attn_outer t = *p;
    const float *a = t.a + r0, *b = t.b + j;
    float *c = t.c + r0 * t.ldc + j;
    float32x4_t sum[MAX_ROWS][2], row[2], factor[MAX_ROWS / LANES];
    size_t left[2];
    unroll_for(v, 2)
        left[v] = t.n - attn_min(t.n, j + v * LANES);
    unroll_for(r, rows)
        unroll_for(v, 2)
            sum[r][v] = t.rescale
                            ? vmulq_n_f32(load_neon(c + r * t.ldc + v * LANES, left[v], masked),
                                          t.rescale[r0 + r])
                            : vdupq_n_f32(0);
    for (size_t i = 0; i < t.k; i++, a += t.lda, b += t.ldb) {
        unroll_for(v, 2)
            row[v] = load_neon(b + v * LANES, left[v], masked);
        for (int f = 0; f < rows; f += LANES)
            factor[f / LANES] = load_first_neon(a + f, (size_t)(rows - f), 0);
        unroll_for(r, rows)
            unroll_for(v, 2)
                sum[r][v] = multiply_add_neon(sum[r][v], row[v], factor[r / LANES], r % LANES);
    }
    unroll_for(r, rows)
        unroll_for(v, 2)
            store_neon(c + r * t.ldc + v * LANES, sum[r][v], left[v], masked);
}

#define TILE(name, rows, masked)                                              \
    static void name##_##rows(const struct attn_outer *p, size_t r, size_t j) \
    {                                                                         \
        outer_tile_neon(p, r, j, rows, masked);                               \
    }
#define TILES(name, masked) \
    TILE(name, 1, masked)   \
    TILE(name, 2, masked)   \
    TILE(name, 3, masked)   \
    TILE(name, 4, masked)   \
    TILE(name, 5, masked)   \
    TILE(name, 6, masked)   \
    TILE(name, 7, masked)   \
    TILE(name, 8, masked)   \
    TILE(name, 9, masked)   \
    TILE(name, 10, masked)  \
    TILE(name, 11, masked)  \
    TILE(name, 12, masked)
#define LIST(name)                                                                        \
    NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8, \
        name##_9, name##_10, name##_11, name##_12

TILES(outer_full_neon, false)
TILES(outer_edge_neon, true)

static const struct outer_tiles tiles = {.full = {LIST(outer_full_neon)},
                                         .edge = {LIST(outer_edge_neon)}};

static void outer_neon(const struct attn_outer *p)
{
    outer_over_tiles(p, &tiles, (struct tile_limits){LANES, MAX_ROWS, 0});
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* Transposed scores of LANES rows, or of fewer where a function's `masked` (constant) is set. */
struct lanes {
    float *s; /* [n][lds] */
    size_t lds, n, count;
};

INLINE float32x4_t load_key_neon(const struct lanes *l, size_t j, const bool masked)
{
    return load_first_neon(l->s + j * l->lds, masked ? l->count : LANES, -INFINITY);
}

INLINE float32x4_t max_keys_neon(const struct lanes *l, float32x4_t top, const bool masked)
{
    float32x4_t other = top;
    size_t j = 0;
    for (; j + 2 <= l->n; j += 2) {
        top = vmaxq_f32(top, load_key_neon(l, j, masked));
        other = vmaxq_f32(other, load_key_neon(l, j + 1, masked));
    }
    if (j < l->n)
        top = vmaxq_f32(top, load_key_neon(l, j, masked));
    return vmaxq_f32(top, other);
}

/* s = exp(s - top) for all keys; returns the sums of the rows.  The order of additions is that of
 * exp_row_neon: sums[i] takes keys i, i + LANES, ..., then the upper half is added to the lower
 * until one is left. */
INLINE float32x4_t exp_keys_neon(const struct lanes *l, float32x4_t top, const bool masked)
{
    float32x4_t sums[LANES];
    unroll_for(i, LANES)
        sums[i] = vdupq_n_f32(0);
    for (size_t j = 0; j < l->n; j += LANES)
        unroll_for(i, LANES) {
            const size_t key = j + (size_t)i;
            if (key == l->n)
                break;
            float32x4_t e = exp_lanes_neon(vsubq_f32(load_key_neon(l, key, masked), top));
            store_neon(l->s + key * l->lds, e, l->count, masked);
            sums[i] = vaddq_f32(sums[i], e);
        }
    return vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
}

INLINE void softmax_lanes_neon(const struct lanes *l, float *max, float *sum, float *rescale,
                               const bool masked)
{
    float32x4_t before = load_first_neon(max, masked ? l->count : LANES, -INFINITY);
    float32x4_t top = max_keys_neon(l, before, masked);
    softmax_end_neon(top, exp_keys_neon(l, top, masked), max, sum, rescale, l->count);
}

/* The scores of keys that row r does not see become -inf. */
static void mask_column_neon(const struct attn_score_columns *c, size_t r)
{
    const size_t first = attn_min((size_t)attn_max(c->first[r], 0), c->n);
    const size_t end = (size_t)attn_max(c->end[r], 0);
    for (size_t j = 0; j < first; j++)
        c->s[j * c->lds + r] = -INFINITY;
    for (size_t j = end; j < c->n; j++)
        c->s[j * c->lds + r] = -INFINITY;
}

static void softmax_columns_neon(const struct attn_score_columns *c, float *max, float *sum,
                                 float *rescale)
{
    for (size_t r = 0; c->first != NULL && r < c->rows; r++)
        mask_column_neon(c, r);
    for (size_t r = 0; r < c->rows; r += LANES) {
        const struct lanes l = {c->s + r, c->lds, c->n, attn_min(c->rows - r, LANES)};
        if (l.count < LANES)
            softmax_lanes_neon(&l, max + r, sum + r, rescale + r, true);
        else
            softmax_lanes_neon(&l, max + r, sum + r, rescale + r, false);
    }
}

/* ---- transpose ------------------------------------------------------------------------------- */

/* out[c][r] = in[r][c] */
INLINE void transpose_lanes_neon(float32x4_t out[LANES], const float32x4_t in[LANES])
{
    float32x4_t t[LANES];
    unroll_for(i, 2) {
        t[i] = vzip1q_f32(in[i], in[i + 2]);
        t[2 + i] = vzip2q_f32(in[i], in[i + 2]);
    }
    unroll_for(i, 2) {
        out[2 * i] = vzip1q_f32(t[2 * i], t[2 * i + 1]);
        out[2 * i + 1] = vzip2q_f32(t[2 * i], t[2 * i + 1]);
    }
}

static void transpose_neon(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                           float factor)
{
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t j = 0; j < n; j += LANES) {
            float32x4_t from[LANES], to[LANES];
            unroll_for(i, LANES)
                from[i] = r + (size_t)i < rows ? load_first_neon(in[r + (size_t)i] + j, n - j, 0)
                                               : vdupq_n_f32(0);
            transpose_lanes_neon(to, from);
            unroll_for(i, LANES)
                if (j + (size_t)i < n)
                    store_first_neon(out + (j + (size_t)i) * ldo + r, vmulq_n_f32(to[i], factor),
                                     rows - r);
        }
}

void attn_kernels_neon_columns(struct attn_kernels *table)
{
    table->columns_from_rows = 2 * LANES;
    table->outer = outer_neon;
    table->softmax_columns = softmax_columns_neon;
    table->transpose = transpose_neon;
}
