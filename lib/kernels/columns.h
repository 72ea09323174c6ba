/* columns.h: softmax of transposed scores, and transposing, once for all vector levels.
 *
 * Queries and scores are transposed, one row of attention in each lane.  The softmax of LANES rows
 * runs down the keys without a horizontal step.  Every element is computed in the order of rows.h,
 * so both ways give the same bits.
 */
#ifndef ATTN_LIB_KERNELS_COLUMNS_H
#define ATTN_LIB_KERNELS_COLUMNS_H

#include "kernels/rows.h"

/* Transposed scores of LANES rows, or of fewer where a function's `masked` (constant) is set. */
struct lanes {
    float *s; /* [n][lds] */
    size_t lds, n;
    vec_mask mask;
};

INLINE vec load_key(const struct lanes *l, size_t j, const bool masked)
{
    const float *s = l->s + j * l->lds;
    return masked ? vec_load_scores(s, l->mask) : vec_load(s);
}

INLINE vec max_keys(const struct lanes *l, vec top, const bool masked)
{
    vec tops[MAX_CHAINS];
    size_t j = 0;
    unroll_for(i, MAX_CHAINS)
        tops[i] = top;
    for (; j + MAX_CHAINS <= l->n; j += MAX_CHAINS)
        unroll_for(i, MAX_CHAINS)
            tops[i] = vec_max(tops[i], load_key(l, j + (size_t)i, masked));
    for (; j < l->n; j++)
        top = vec_max(top, load_key(l, j, masked));
    unroll_for(i, MAX_CHAINS)
        top = vec_max(top, tops[i]);
    return top;
}

/* s = exp(s - top) for `count` (constant) keys from j on; key i is added to sums[i % LANES]. */
INLINE void exp_keys(const struct lanes *l, size_t j, vec top, vec sums[LANES], const int count,
                     const bool masked)
{
    vec e[EXP_VECTORS];
    unroll_for(i, count)
        e[i] = load_key(l, j + (size_t)i, masked) - top;
    exp_vectors(e, count);
    unroll_for(i, count) {
        float *s = l->s + (j + (size_t)i) * l->lds;
        if (masked)
            vec_store_first(s, l->mask, e[i]);
        else
            vec_store(s, e[i]);
        sums[j % LANES + (size_t)i] += e[i];
    }
}

/* The sums of exp_row: sums[l] takes keys l, l + LANES, ..., then the upper half is added to the
 * lower until one is left. */
INLINE void softmax_lanes(const struct lanes *l, float *max, float *sum, float *rescale,
                          const bool masked)
{
    const vec top = max_keys(l, vec_load_first(max, l->mask), masked);
    vec sums[LANES];
    size_t j = 0;
    unroll_for(i, LANES)
        sums[i] = vec_all(0);
    for (; j + EXP_VECTORS <= l->n; j += EXP_VECTORS)
        exp_keys(l, j, top, sums, EXP_VECTORS, masked);
    for (; j < l->n; j++)
        exp_keys(l, j, top, sums, 1, masked);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            sums[i] += sums[i + half];
    softmax_end(top, sums[0], max, sum, rescale, l->mask);
}

/* The scores of keys that a row does not see become -inf. */
INLINE void mask_columns(const struct attn_score_columns *c)
{
    for (size_t r = 0; r < c->rows; r += LANES) {
        const vec_mask mask = first_lanes(c->rows - r);
        const vec_int first = vec_load_ints(c->first + r, mask);
        const vec_int end = vec_load_ints(c->end + r, mask);
        for (size_t j = 0; j < c->n; j++)
            vec_hide_key(c->s + j * c->lds + r, (int)j, first, end, mask);
    }
}

INLINE void softmax_columns(const struct attn_score_columns *c, float *max, float *sum,
                            float *rescale)
{
    if (c->first != NULL)
        mask_columns(c);
    for (size_t r = 0; r < c->rows; r += LANES) {
        const struct lanes l = {c->s + r, c->lds, c->n, first_lanes(c->rows - r)};
        if (c->rows - r < LANES)
            softmax_lanes(&l, max + r, sum + r, rescale + r, true);
        else
            softmax_lanes(&l, max + r, sum + r, rescale + r, false);
    }
}

INLINE void transpose(float *out, size_t ldo, const float *const in[], size_t rows, size_t n,
                      float factor)
{
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t j = 0; j < n; j += LANES) {
            const vec_mask row_mask = first_lanes(rows - r), mask = first_lanes(n - j);
            vec from[LANES], to[LANES];
            unroll_for(i, LANES)
                from[i] =
                    r + (size_t)i < rows ? vec_load_first(in[r + (size_t)i] + j, mask) : vec_all(0);
            transpose_lanes(to, from);
            unroll_for(i, LANES)
                if (j + (size_t)i < n)
                    vec_store_first(out + (j + (size_t)i) * ldo + r, row_mask,
                                    to[i] * vec_all(factor));
        }
}

#endif
