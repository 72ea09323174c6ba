/* rows.h: softmax, weights and factors of rows, softmax of transposed scores, and transposing, once
 * for all vector levels.
 *
 * A level defines, for its registers of LANES floats (avx2.h, avx512.h, neon.h), beside C's own
 * + - * of vectors, lane by lane:
 *
 *   vec, vec_int                  LANES floats, LANES int32
 *   vec_mask first_lanes(count)   the first `count` lanes; all of them from LANES on
 *   vec_all(x)                    x in each lane
 *   vec_load(p), vec_store(p, v)  LANES floats, at any address
 *   vec_load_first(p, mask)       the lanes of the mask, the others 0; nothing else is read
 *   vec_load_ints(p, mask)        the same of int32
 *   vec_load_scores(p, mask)      the others -inf, the neutral element of max and of a sum of exp
 *   vec_store_first(p, mask, v)   the lanes of the mask; nothing else is written
 *   vec_max(a, b)                 the larger of each lane
 *   vec_multiply_add(a, b, sum)   a * b + sum, rounded once
 *   vec_where_greater(a, x, v)    v in lanes where a > x, else 0
 *   vec_max_lane(v)               the largest lane
 *   vec_sum_lanes(v)              the sum: the upper half is added to the lower until one is left
 *   vec_hide_key(s, key, first, end, mask)  -inf into lanes of s where key < first or key >= end
 *   exp_vectors(x, count)         x[i] = exp(x[i]) (exp.h) for count (constant) vectors, at most
 *                                 EXP_VECTORS; ROW_VECTORS of one row are taken at a time
 *   exp_lanes(x)                  the same of one vector
 *   transpose_lanes(out, in)      out[c][r] = in[r][c] of LANES vectors; `in` may be overwritten
 */
#ifndef ATTN_LIB_KERNELS_ROWS_H
#define ATTN_LIB_KERNELS_ROWS_H

#include <math.h>

/* Ends a step of the softmax for the rows of the mask, whose maxima are now `top`: stores the
 * maxima, the factors of the sums before the step, and the sums, to which the step adds `total`. */
INLINE void softmax_end(vec top, vec total, float *max, float *sum, float *rescale, vec_mask mask)
{
    const vec before = vec_load_first(max, mask);
    const vec scale =
        exp_lanes(vec_where_greater(top, -INFINITY, before - top)); /* 1: no key seen */
    vec_store_first(max, mask, top);
    vec_store_first(sum, mask, vec_multiply_add(vec_load_first(sum, mask), scale, total));
    vec_store_first(rescale, mask, scale);
}

INLINE float max_row(const float *s, float max, size_t n)
{
    vec top = vec_all(max);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        top = vec_max(top, vec_load(s + j));
    if (j < n)
        top = vec_max(top, vec_load_scores(s + j, first_lanes(n - j)));
    return vec_max_lane(top);
}

/* s[j] = exp(s[j] - max) for a row; returns the sum. */
INLINE float exp_row(float *s, float max, size_t n)
{
    const vec top = vec_all(max);
    vec total = vec_all(0), e[ROW_VECTORS];
    size_t j = 0;
    for (; j + ROW_VECTORS * LANES <= n; j += ROW_VECTORS * LANES) {
        unroll_for(v, ROW_VECTORS)
            e[v] = vec_load(s + j + v * LANES) - top;
        exp_vectors(e, ROW_VECTORS);
        unroll_for(v, ROW_VECTORS) {
            vec_store(s + j + v * LANES, e[v]);
            total += e[v];
        }
    }
    for (; j < n; j += LANES) {
        const vec_mask mask = first_lanes(n - j);
        e[0] = exp_lanes(vec_load_scores(s + j, mask) - top);
        vec_store_first(s + j, mask, e[0]);
        total += e[0];
    }
    return vec_sum_lanes(total);
}

/* Takes LANES rows at a time, all their maxima before their first exp: the rows overlap in the
 * pipeline instead of each waiting for its own maximum. */
INLINE void softmax(float *s, size_t lds, float *max, float *sum, float *rescale, size_t rows,
                    size_t n)
{
    float tops[LANES] = {0}, totals[LANES] = {0};
    for (size_t r = 0; r < rows; r += LANES) {
        const size_t count = attn_min(rows - r, LANES);
        for (size_t i = 0; i < count; i++)
            tops[i] = max_row(s + (r + i) * lds, max[r + i], n);
        for (size_t i = 0; i < count; i++)
            totals[i] = exp_row(s + (r + i) * lds, tops[i], n);
        softmax_end(vec_load(tops), vec_load(totals), max + r, sum + r, rescale + r,
                    first_lanes(count));
    }
}

INLINE void finish_weights(float *w, float max, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        const vec_mask mask = first_lanes(n - j);
        const vec e = exp_lanes(vec_load_scores(w + j, mask) - vec_all(max));
        /* factor may be infinite where every w is -inf */
        vec_store_first(w + j, mask, vec_where_greater(e, 0, e * vec_all(factor)));
    }
}

INLINE void prepare_rows(float *x, size_t ldx, struct attn_prepared_row *prepared,
                         const float *factor, size_t rows, size_t n)
{
    (void)prepared;
    for (size_t j = 0; factor != NULL && j < n; j += LANES) {
        const vec_mask mask = first_lanes(n - j);
        const vec by = vec_load_first(factor + j, mask);
        for (size_t r = 0; r < rows; r++) {
            float *at = x + r * ldx + j;
            vec_store_first(at, mask, vec_load_first(at, mask) * by);
        }
    }
}

INLINE void scale_rows(float *x, size_t ldx, const float *factor, size_t rows, size_t n)
{
    /* Few maxima change after the first keys: most factors are 1. */
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; factor[r] != 1 && j < n; j += LANES) {
            const vec_mask mask = first_lanes(n - j);
            float *at = x + r * ldx + j;
            vec_store_first(at, mask, vec_load_first(at, mask) * vec_all(factor[r]));
        }
}

INLINE void scale(float *out, const float *x, float factor, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        const vec_mask mask = first_lanes(n - j);
        vec_store_first(out + j, mask, vec_load_first(x + j, mask) * vec_all(factor));
    }
}

/* ---- Transposed scores ----------------------------------------------------------------------
 *
 * Queries and scores are transposed, one row of attention in each lane.  The softmax of LANES rows
 * runs down the keys without a horizontal step.  Every element is computed in the order of the
 * functions above, so both ways give the same bits. */

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
