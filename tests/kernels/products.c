/* products.c: checks of matmul and project.
 *
 * The reference is a sum in double.  A product of k terms in float may differ from it by a few
 * units of roundoff times sqrt(k), relative to the sum of the terms' magnitudes (rounding errors
 * of random data add like a random walk; the worst case would be k), and by what underflow takes.
 *
 * Row independence: the result for all rows is compared, bit for bit, with that of each row
 * computed alone and with that of the rows from the second on, where every row has moved to another
 * place in its tile; strides and alignment differ in every run.  Columns of project are held to the
 * same, for threads share a product by columns.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernelcheck.h"

#define ROUNDOFF 0x1p-24

/* Magnitudes of the two factors: ordinary, large, tiny with denormal products, denormal inputs. */
static const float scales[][2] = {
    {1, 1}, {1, 1}, {1e18f, 1e18f}, {1e-19f, 1e-20f}, {1e-39f, 1}, {3e38f, 1e-3f},
};

static bool near(double got, double exact, double magnitude, size_t terms)
{
    double bound = (4 + 4 * sqrt((double)terms)) * ROUNDOFF * magnitude;
    return fabs(got - exact) <= bound + (double)(terms + 1) * 0x1p-149;
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static const char *compare_matmul(const struct grid *c, const struct grid *start,
                                  const struct grid *a, const struct grid *b, bool accumulate)
{
    for (size_t r = 0; r < c->rows; r++)
        for (size_t j = 0; j < c->cols; j++) {
            double sum = accumulate ? start->at[r * start->ld + j] : 0, magnitude = fabs(sum);
            for (size_t i = 0; i < a->cols; i++) {
                double term = (double)a->at[r * a->ld + i] * b->at[i * b->ld + j];
                sum += term;
                magnitude += fabs(term);
            }
            if (!near(c->at[r * c->ld + j], sum, magnitude, a->cols + 1))
                return "a result is wrong";
        }
    return NULL;
}

/* Rows [first, first + count) of the problem by themselves must give the same bits. */
static bool matmul_rows_same(struct check *check, const struct grid *c, const struct grid *start,
                             const struct grid *a, const struct grid *b, bool accumulate,
                             size_t first, size_t count)
{
    struct grid part = grid_place(&check->pens[4], &check->rng, count, c->cols);
    struct grid rows = grid_place(&check->pens[5], &check->rng, count, a->cols);
    if (accumulate)
        grid_copy(&part, start, first);
    grid_copy(&rows, a, first);
    check->kernels->matmul(part.at, part.ld, rows.at, rows.ld, b->at, b->ld, count, a->cols,
                           c->cols, accumulate);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, c, first + r))
            return false;
    return grid_intact(&part);
}

const char *check_matmul(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    const float *scale = scales[rng_next(rng) % (sizeof scales / sizeof scales[0])];
    bool accumulate = rng_next(rng) % 2;
    snprintf(check->what, sizeof check->what, "rows %zu, k %zu, n %zu, scales %g %g, accumulate %d",
             rows, k, n, (double)scale[0], (double)scale[1], accumulate);
    struct grid a = grid_place(&check->pens[0], rng, rows, k);
    struct grid b = grid_place(&check->pens[1], rng, k, n);
    struct grid c = grid_place(&check->pens[2], rng, rows, n);
    struct grid start = grid_place(&check->pens[3], rng, rows, n);
    grid_fill(&a, rng, scale[0] / (float)k);
    grid_fill(&b, rng, scale[1]);
    grid_fill(&start, rng, scale[0] * scale[1]);
    if (accumulate)
        grid_copy(&c, &start, 0);
    check->kernels->matmul(c.at, c.ld, a.at, a.ld, b.at, b.ld, rows, k, n, accumulate);
    if (!grid_intact(&c) || !grid_intact(&a) || !grid_intact(&b))
        return "wrote outside its result";
    for (size_t r = 0; r < rows; r++)
        if (!matmul_rows_same(check, &c, &start, &a, &b, accumulate, r, 1))
            return "a row computed alone has other bits";
    if (rows > 1 && !matmul_rows_same(check, &c, &start, &a, &b, accumulate, 1, rows - 1))
        return "a row at another place has other bits";
    return compare_matmul(&c, &start, &a, &b, accumulate);
}

/* ---- project --------------------------------------------------------------------------------- */

static const char *compare_project(const struct grid *y, const struct grid *x, const struct grid *w,
                                   const float *bias)
{
    for (size_t r = 0; r < y->rows; r++)
        for (size_t j = 0; j < y->cols; j++) {
            double sum = bias != NULL ? bias[j] : 0, magnitude = fabs(sum);
            for (size_t i = 0; i < x->cols; i++) {
                double term = (double)x->at[r * x->ld + i] * w->at[j * w->ld + i];
                sum += term;
                magnitude += fabs(term);
            }
            if (!near(y->at[r * y->ld + j], sum, magnitude, x->cols + 1))
                return "a result is wrong";
        }
    return NULL;
}

static bool project_rows_same(struct check *check, const struct grid *y, const struct grid *x,
                              const struct grid *w, const float *bias, size_t first, size_t count)
{
    struct grid part = grid_place(&check->pens[4], &check->rng, count, y->cols);
    struct grid rows = grid_place(&check->pens[5], &check->rng, count, x->cols);
    grid_copy(&rows, x, first);
    check->kernels->project(part.at, part.ld, rows.at, rows.ld, w->at, w->ld, bias, count, x->cols,
                            y->cols);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, y, first + r))
            return false;
    return grid_intact(&part);
}

/* Column j by itself must give the same bits. */
static bool project_column_same(struct check *check, const struct grid *y, const struct grid *x,
                                const struct grid *w, const float *bias, size_t j)
{
    struct grid part = grid_place(&check->pens[4], &check->rng, y->rows, 1);
    check->kernels->project(part.at, part.ld, x->at, x->ld, w->at + j * w->ld, w->ld,
                            bias != NULL ? bias + j : NULL, y->rows, x->cols, 1);
    for (size_t r = 0; r < y->rows; r++)
        if (memcmp(part.at + r * part.ld, y->at + r * y->ld + j, sizeof(float)) != 0)
            return false;
    return grid_intact(&part);
}

const char *check_project(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    const float *scale = scales[rng_next(rng) % (sizeof scales / sizeof scales[0])];
    if (rng_next(rng) % 8 == 0)
        k = rng_between(rng, 500, 2100);
    bool with_bias = rng_next(rng) % 2;
    snprintf(check->what, sizeof check->what, "rows %zu, k %zu, n %zu, scales %g %g, bias %d", rows,
             k, n, (double)scale[0], (double)scale[1], with_bias);
    struct grid x = grid_place(&check->pens[0], rng, rows, k);
    struct grid w = grid_place(&check->pens[1], rng, n, k);
    struct grid y = grid_place(&check->pens[2], rng, rows, n);
    struct grid bias = grid_place(&check->pens[3], rng, 1, n);
    grid_fill(&x, rng, scale[0] / (float)k);
    grid_fill(&w, rng, scale[1]);
    grid_fill(&bias, rng, scale[0] * scale[1]);
    const float *b = with_bias ? bias.at : NULL;
    check->kernels->project(y.at, y.ld, x.at, x.ld, w.at, w.ld, b, rows, k, n);
    if (!grid_intact(&y) || !grid_intact(&x) || !grid_intact(&w) || !grid_intact(&bias))
        return "wrote outside its result";
    for (size_t r = 0; r < rows; r++)
        if (!project_rows_same(check, &y, &x, &w, b, r, 1))
            return "a row computed alone has other bits";
    if (rows > 1 && !project_rows_same(check, &y, &x, &w, b, 1, rows - 1))
        return "a row at another place has other bits";
    for (size_t j = 0; j < n; j++)
        if (!project_column_same(check, &y, &x, &w, b, j))
            return "a column computed alone has other bits";
    return compare_project(&y, &x, &w, b);
}
