/* products.c: checks of matmul and project.
 *
 * The reference is a sum in double.  A product of k terms in float may differ from it by a few
 * units of roundoff times sqrt(k), relative to the sum of the terms' magnitudes (rounding errors
 * of random data add like a random walk; the worst case would be k), and by what underflow takes.
 *
 * Row independence: the result for all rows is compared, bit for bit, with that of each row
 * computed alone and with that of the rows from the second on, where every row has moved to another
 * place in its tile; strides and alignment differ in every run.  Columns of project are held to the
 * same from each panel on, for threads share a product by panels.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half_float.h"
#include "kernelcheck.h"
#include "mem.h"

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

/* b as numbers of the dtype, in memory that ends with the last of them; what is in b becomes what
 * they stand for.  Of float32 b itself. */
static void *as_numbers(const struct grid *b, enum attn_dtype dtype)
{
    if (dtype == ATTN_F32)
        return b->at;
    size_t bytes = dtype == ATTN_INT8 ? 1 : 2;
    char *numbers = malloc(((b->rows - 1) * b->ld + b->cols) * bytes);
    for (size_t i = 0; i < b->rows * b->cols && numbers != NULL; i++) {
        size_t at = i / b->cols * b->ld + i % b->cols;
        float x = b->at[at], large = fmodf(x * 1e3f, 128.0f);
        uint16_t half = dtype == ATTN_BF16 ? attn_float_bf16(x) : attn_float_f16(x);
        int8_t integer = (int8_t)large;
        memcpy(numbers + at * bytes, bytes == 1 ? (void *)&integer : (void *)&half, bytes);
        b->at[at] = dtype == ATTN_INT8   ? (float)integer
                    : dtype == ATTN_BF16 ? attn_bf16_float(half)
                                         : attn_f16_float(half);
    }
    return numbers;
}

/* Rows [first, first + count) of the problem by themselves must give the same bits. */
static bool matmul_rows_same(struct check *check, const struct attn_matmul *whole,
                             const struct grid *c, const struct grid *start, const struct grid *a,
                             size_t first, size_t count)
{
    struct grid part = grid_place(&check->pens[4], &check->rng, count, c->cols);
    struct grid rows = grid_place(&check->pens[5], &check->rng, count, a->cols);
    struct attn_matmul product = *whole;
    if (whole->accumulate)
        grid_copy(&part, start, first);
    grid_copy(&rows, a, first);
    product.c = part.at;
    product.ldc = part.ld;
    product.a = rows.at;
    product.lda = rows.ld;
    product.rows = count;
    check->kernels->matmul(&product);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, c, first + r))
            return false;
    return grid_intact(&part);
}

static const char *run_matmul(struct check *check, struct attn_matmul *product,
                              const struct grid *c, const struct grid *start, const struct grid *a,
                              const struct grid *b)
{
    if (product->b == NULL)
        return "out of memory";
    check->kernels->matmul(product);
    if (!grid_intact(c) || !grid_intact(a) || !grid_intact(b))
        return "wrote outside its result";
    for (size_t r = 0; r < product->rows; r++)
        if (!matmul_rows_same(check, product, c, start, a, r, 1))
            return "a row computed alone has other bits";
    if (product->rows > 1 && !matmul_rows_same(check, product, c, start, a, 1, product->rows - 1))
        return "a row at another place has other bits";
    return compare_matmul(c, start, a, b, product->accumulate);
}

const char *check_matmul(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    const float *scale = scales[rng_next(rng) % (sizeof scales / sizeof scales[0])];
    enum attn_dtype dtype = (enum attn_dtype)(rng_next(rng) % (ATTN_INT8 + 1));
    if (dtype != ATTN_F32) /* a half reaches from 6e-8 to 65504 */
        scale = scales[0];
    bool accumulate = rng_next(rng) % 2;
    snprintf(check->what, sizeof check->what,
             "rows %zu, k %zu, n %zu, %s, scales %g %g, accumulate %d", rows, k, n,
             attn_dtype_name(dtype), (double)scale[0], (double)scale[1], accumulate);
    struct grid a = grid_place(&check->pens[0], rng, rows, k);
    struct grid b = grid_place(&check->pens[1], rng, k, n);
    struct grid c = grid_place(&check->pens[2], rng, rows, n);
    struct grid start = grid_place(&check->pens[3], rng, rows, n);
    grid_fill(&a, rng, scale[0] / (float)k);
    grid_fill(&b, rng, scale[1]);
    grid_fill(&start, rng, scale[0] * scale[1]);
    if (accumulate)
        grid_copy(&c, &start, 0);
    void *numbers = as_numbers(&b, dtype);
    struct attn_matmul product = {.c = c.at,
                                  .a = a.at,
                                  .b = numbers,
                                  .ldc = c.ld,
                                  .lda = a.ld,
                                  .ldb = b.ld,
                                  .rows = rows,
                                  .k = k,
                                  .n = n,
                                  .dtype = dtype,
                                  .accumulate = accumulate};
    const char *wrong = run_matmul(check, &product, &c, &start, &a, &b);
    if (dtype != ATTN_F32)
        free(numbers);
    return wrong;
}

/* ---- project --------------------------------------------------------------------------------- */

/* A case: y = start + x w, w in panels as rows of a grid. */
struct projection {
    struct grid y, start, x, w;
    enum { FROM_ZERO, FROM_ROW, FROM_Y } from;
    size_t n;
    float *scratch;
};

/* Columns [0, n) of y from panel `panel` on, by rows like those of x. */
static void run_project(const struct check *check, const struct projection *p, const struct grid *y,
                        const struct grid *x, size_t panel, size_t n)
{
    const struct attn_product product = {
        .y = y->at,
        .start = p->from == FROM_ZERO  ? NULL
                 : p->from == FROM_ROW ? p->start.at + panel * ATTN_PANEL
                                       : y->at,
        .x = x->at,
        .w = p->w.at + panel * p->w.ld,
        .scratch = p->scratch,
        .ldy = y->ld,
        .ldstart = p->from == FROM_Y ? y->ld : 0,
        .ldx = x->ld,
        .ldpanel = p->w.ld,
        .rows = x->rows,
        .k = x->cols,
        .n = n,
    };
    check->kernels->project(&product);
}

/* What y holds at first where it is added to. */
static void fill_start(const struct grid *y, const struct projection *p, size_t row, size_t column)
{
    for (size_t r = 0; p->from == FROM_Y && r < y->rows; r++)
        memcpy(y->at + r * y->ld, p->start.at + (row + r) * p->start.ld + column,
               y->cols * sizeof(float));
}

static const char *compare_project(const struct projection *p)
{
    for (size_t r = 0; r < p->y.rows; r++)
        for (size_t j = 0; j < p->n; j++) {
            const float *w = p->w.at + j / ATTN_PANEL * p->w.ld + j % ATTN_PANEL;
            size_t from = p->from == FROM_Y ? r * p->start.ld + j : j;
            double sum = p->from == FROM_ZERO ? 0 : p->start.at[from], magnitude = fabs(sum);
            for (size_t i = 0; i < p->x.cols; i++) {
                double term = (double)p->x.at[r * p->x.ld + i] * w[i * ATTN_PANEL];
                sum += term;
                magnitude += fabs(term);
            }
            if (!near(p->y.at[r * p->y.ld + j], sum, magnitude, p->x.cols + 1))
                return "a result is wrong";
        }
    return NULL;
}

static bool project_rows_same(struct check *check, const struct projection *p, size_t first,
                              size_t count)
{
    struct grid part = grid_place(&check->pens[4], &check->rng, count, p->n);
    struct grid rows = grid_place(&check->pens[5], &check->rng, count, p->x.cols);
    fill_start(&part, p, first, 0);
    grid_copy(&rows, &p->x, first);
    run_project(check, p, &part, &rows, 0, p->n);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, &p->y, first + r))
            return false;
    return grid_intact(&part);
}

/* Columns that end with column j, from the beginning of its panel, must have the same bits. */
static bool project_columns_same(struct check *check, const struct projection *p, size_t j)
{
    size_t first = j / ATTN_PANEL * ATTN_PANEL, n = j - first + 1;
    struct grid part = grid_place(&check->pens[4], &check->rng, p->y.rows, n);
    fill_start(&part, p, 0, first);
    run_project(check, p, &part, &p->x, j / ATTN_PANEL, n);
    for (size_t r = 0; r < p->y.rows; r++)
        if (memcmp(part.at + r * part.ld, p->y.at + r * p->y.ld + first, n * sizeof(float)) != 0)
            return false;
    return grid_intact(&part);
}

const char *check_project(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    struct projection p = {.from = rng_next(rng) % 3, .n = n};
    const float *scale = scales[rng_next(rng) % (sizeof scales / sizeof scales[0])];
    k = rng_next(rng) % 8 == 0 ? rng_between(rng, 1, ATTN_K_BLOCK) : attn_min(k, ATTN_K_BLOCK);
    if (rng_next(rng) % 8 == 0)
        rows = rng_between(rng, 1, ATTN_PRODUCT_ROWS);
    snprintf(check->what, sizeof check->what, "rows %zu, k %zu, n %zu, scales %g %g, from %d", rows,
             k, n, (double)scale[0], (double)scale[1], p.from);
    p.x = grid_place(&check->pens[0], rng, rows, k);
    p.w = grid_place(&check->pens[1], rng, (n + ATTN_PANEL - 1) / ATTN_PANEL, k * ATTN_PANEL);
    p.y = grid_place(&check->pens[2], rng, rows, n);
    p.start = grid_place(&check->pens[3], rng, p.from == FROM_Y ? rows : 1, n);
    p.scratch = grid_place(&check->pens[6], rng, 1, ATTN_PRODUCT_SCRATCH).at;
    grid_fill(&p.x, rng, scale[0] / (float)k);
    grid_fill(&p.w, rng, scale[1]);
    grid_fill(&p.start, rng, scale[0] * scale[1]);
    fill_start(&p.y, &p, 0, 0);
    run_project(check, &p, &p.y, &p.x, 0, n);
    if (!grid_intact(&p.y) || !grid_intact(&p.x) || !grid_intact(&p.w) || !grid_intact(&p.start))
        return "wrote outside its result";
    for (size_t r = 0; r < rows; r++)
        if (!project_rows_same(check, &p, r, 1))
            return "a row computed alone has other bits";
    if (rows > 1 && !project_rows_same(check, &p, 1, rows - 1))
        return "a row at another place has other bits";
    for (size_t j = 0; j < n; j++)
        if (!project_columns_same(check, &p, j))
            return "a column has other bits in narrower products";
    return compare_project(&p);
}
