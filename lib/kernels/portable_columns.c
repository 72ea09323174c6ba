/* portable_columns.c: the kernels for transposed scores in plain C, with the same bits as
 * those of portable.c. */
#include <math.h>
#include <string.h>

#include "kernels/portable.h"
#include "kernels/widen.h"

/* `cols` (constant) columns of row r of c, from column j on. */
INLINE void outer_tile_portable(const struct attn_outer *p, size_t r, size_t j, const size_t cols)
{
    float sum[LANES], *c = p->c + r * p->ldc + j;
    for (size_t l = 0; l < cols; l++)
        sum[l] = p->rescale ? c[l] * p->rescale[r] : 0;
    for (size_t i = 0; i < p->k; i++)
        for (size_t l = 0; l < cols; l++)
            sum[l] += p->a[i * p->lda + r] * p->b[i * p->ldb + j + l];
    for (size_t l = 0; l < cols; l++)
        c[l] = sum[l];
}

static void outer_portable(const struct attn_outer *p)
{
    for (size_t r = 0; r < p->rows; r++) {
        size_t j = 0;
        for (; j + LANES <= p->n; j += LANES)
            outer_tile_portable(p, r, j, LANES);
        for (; j < p->n; j++)
            outer_tile_portable(p, r, j, 1);
    }
}

/* The scores of keys that row r does not see become -inf. */
static void softmax_columns_mask_portable(const struct attn_score_columns *c, size_t r)
{
    for (size_t j = 0; j < c->n; j++)
        if ((int32_t)j < c->first[r] || (int32_t)j >= c->end[r])
            c->s[j * c->lds + r] = -INFINITY;
}

/* s = exp(s - top) down column r; returns the sum.  The order of additions is that of
 * sum_row_portable: lane l sums keys l, l + LANES, ..., then the lanes are added. */
static float exp_column_portable(const struct attn_score_columns *c, size_t r, float top)
{
    float lane[LANES] = {0};
    for (size_t j = 0; j < c->n; j++) {
        float *s = &c->s[j * c->lds + r];
        *s = exp_portable(*s - top);
        lane[j % LANES] += *s;
    }
    return sum_lanes_portable(lane);
}

static void softmax_columns_portable(const struct attn_score_columns *c, float *max, float *sum,
                                     float *rescale)
{
    for (size_t r = 0; r < c->rows; r++) {
        float top = max[r];
        if (c->first != NULL)
            softmax_columns_mask_portable(c, r);
        for (size_t j = 0; j < c->n; j++)
            top = c->s[j * c->lds + r] > top ? c->s[j * c->lds + r] : top;
        float total = exp_column_portable(c, r, top);
        rescale[r] = top == -INFINITY ? 1 : exp_portable(max[r] - top);
        sum[r] = sum[r] * rescale[r] + total;
        max[r] = top;
    }
}

static void transpose_portable(float *out, size_t ldo, const float *const in[], size_t rows,
                               size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            out[i * ldo + r] = in[r][i] * factor;
}

void attn_kernels_portable_columns(struct attn_kernels *table)
{
    table->columns_from_rows = SIZE_MAX; /* never: compilers vectorise none of these loops */
    table->outer = outer_portable;
    table->softmax_columns = softmax_columns_portable;
    table->transpose = transpose_portable;
    table->widen_keys = widen_keys;
}
