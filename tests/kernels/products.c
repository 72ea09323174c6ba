/* products.c: checks of matmul, and of prepare_rows with it.
 *
 * The reference is a sum in double.  A product of k terms in float may differ from it by a few
 * units of roundoff times sqrt(k), relative to the sum of the terms' magnitudes, and by what
 * underflow takes.  (Rounding errors of random data add like a random walk; the worst case would be
 * k.)
 *
 * Row independence: the result for all rows is compared, bit for bit, with that of each row
 * computed alone and with that of all rows but the first, where every row has moved to another
 * place in its tile.  Strides and alignment differ in every run.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernelcheck.h"

#define ROUNDOFF 0x1p-24

const float product_scales[NUM_PRODUCT_SCALES][2] = {
    {1, 1}, {1, 1}, {1e18f, 1e18f}, {1e-19f, 1e-20f}, {1e-39f, 1}, {3e38f, 1e-3f},
};

bool product_near(double got, double exact, double magnitude, size_t terms, double least)
{
    double bound = (4 + 4 * sqrt((double)terms)) * ROUNDOFF * magnitude;
    return fabs(got - exact) <= bound + (double)(terms + 1) * least;
}

/* ---- matmul ---------------------------------------------------------------------------------- */

#define MOST_ROWS 128

struct multiplication {
    enum attn_dtype dtype;
    void (*matmul)(const struct attn_matmul *product); /* the kernel of the dtype, or matmul_many */
    struct attn_matmul product;
    struct grid c, start, a, b; /* as numbers */
    struct grid ready;          /* a as the kernel gets it: for int8 prepared */
    struct attn_prepared_row prepared[MOST_ROWS];
    float *factor;     /* [k] that a was prepared with, or NULL */
    struct grid scale; /* of columns, for int8; unused where product.scale is NULL */
};

static const char *compare_matmul(const struct multiplication *m)
{
    const struct grid *a = &m->a, *b = &m->b, *c = &m->c;
    for (size_t r = 0; r < c->rows; r++)
        for (size_t j = 0; j < c->cols; j++) {
            double sum = m->product.accumulate ? m->start.at[r * m->start.ld + j] : 0;
            double magnitude = fabs(sum), integers = 0;
            for (size_t i = 0; i < a->cols; i++) {
                double factor = m->factor != NULL ? m->factor[i] : 1;
                double term = (double)a->at[r * a->ld + i] * factor * b->at[i * b->ld + j];
                sum += term;
                magnitude += fabs(term);
                integers += fabs((double)b->at[i * b->ld + j]);
            }
            if (m->product.prepared != NULL &&
                m->prepared[r].step > 0) /* each number is up to half a unit off */
                magnitude += integers * (double)m->prepared[r].step / ROUNDOFF / 2;
            double scale = m->product.scale != NULL ? m->scale.at[j] : 1;
            if (!product_near(c->at[r * c->ld + j], sum * scale, magnitude * fabs(scale),
                              a->cols + 1, 0x1p-149))
                return "a result is wrong";
        }
    return NULL;
}

/* The index of number i of column j in b, counted in numbers. */
static size_t number_index(const struct grid *b, enum attn_dtype dtype, size_t i, size_t j)
{
    return dtype == ATTN_INT8 ? (i / 4 * b->ld + j) * 4 + i % 4 : i * b->ld + j;
}

/* Converts b to numbers of the dtype, in memory that ends with the last number, and rounds b itself
 * to these numbers.  Returns b for float32. */
static void *as_numbers(const struct grid *b, enum attn_dtype dtype)
{
    if (dtype == ATTN_F32)
        return b->at;
    size_t bytes = dtype == ATTN_INT8 ? 1 : 2;
    char *numbers = malloc((number_index(b, dtype, b->rows - 1, b->cols - 1) / 4 + 1) * 4 * bytes);
    for (size_t i = 0; i < b->rows * b->cols && numbers != NULL; i++) {
        float *x = &b->at[i / b->cols * b->ld + i % b->cols], large = fmodf(*x * 1e3f, 128.0f);
        uint16_t half = dtype == ATTN_BF16 ? attn_float_to_bf16(*x) : attn_float_to_f16(*x);
        uint8_t byte = (uint8_t)((int)large + 128);
        memcpy(numbers + number_index(b, dtype, i / b->cols, i % b->cols) * bytes,
               bytes == 1 ? (void *)&byte : (void *)&half, bytes);
        *x = dtype == ATTN_INT8   ? (float)(byte - 128)
             : dtype == ATTN_BF16 ? attn_bf16_to_float(half)
                                  : attn_f16_to_float(half);
    }
    return numbers;
}

/* Fills `ready` with rows [first, ...) of a, as the kernel gets them. */
static void make_ready(struct check *check, const struct multiplication *m,
                       const struct grid *ready, struct attn_prepared_row *prepared, size_t first)
{
    for (size_t r = 0; r < ready->rows; r++)
        memcpy(ready->at + r * ready->ld, m->a.at + (first + r) * m->a.ld,
               m->a.cols * sizeof(float));
    if (m->dtype == ATTN_INT8)
        check->kernels->prepare_rows(ready->at, ready->ld, prepared, m->factor, ready->rows,
                                     m->a.cols);
}

/* Whether rows [first, first + count) of the problem, computed alone, have the same bits. */
static bool matmul_rows_same(struct check *check, const struct multiplication *m, size_t first,
                             size_t count)
{
    struct grid part = grid_index(&check->pens[4], &check->rng, count, m->c.cols);
    struct grid rows = grid_index(&check->pens[5], &check->rng, count, m->ready.cols);
    struct attn_prepared_row prepared[MOST_ROWS];
    struct attn_matmul product = m->product;
    if (product.accumulate)
        grid_copy(&part, &m->start, first);
    make_ready(check, m, &rows, prepared, first);
    product.c = part.at;
    product.ldc = part.ld;
    product.a = rows.at;
    product.lda = rows.ld;
    product.prepared = product.prepared != NULL ? prepared : NULL;
    product.rows = count;
    m->matmul(&product);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, &m->c, first + r))
            return false;
    return grid_intact(&part) && grid_intact(&rows);
}

static const char *run_matmul(struct check *check, struct multiplication *m)
{
    if (m->product.b == NULL)
        return "out of memory";
    make_ready(check, m, &m->ready, m->prepared, 0);
    m->matmul(&m->product);
    if (!grid_intact(&m->c) || !grid_intact(&m->ready) || !grid_intact(&m->b))
        return "wrote outside its result";
    for (size_t r = 0; r < m->c.rows; r++)
        if (!check->bits_vary && !matmul_rows_same(check, m, r, 1))
            return "a row computed alone has other bits";
    if (!check->bits_vary && m->c.rows > 1 && !matmul_rows_same(check, m, 1, m->c.rows - 1))
        return "a row at another place has other bits";
    return compare_matmul(m);
}

/* Whether a product of bf16 has the same bits where b is transposed, in memory that ends with its
 * last number. */
static bool matmul_transposed_same(struct check *check, const struct multiplication *m)
{
    const struct attn_matmul *p = &m->product;
    struct attn_matmul product = *p;
    struct grid c = grid_index(&check->pens[4], &check->rng, m->c.rows, m->c.cols);
    const uint16_t *b = p->b;
    uint16_t *columns = malloc(p->n * p->k * sizeof *columns);
    for (size_t j = 0; columns != NULL && j < p->n; j++)
        for (size_t i = 0; i < p->k; i++)
            columns[j * p->k + i] = b[i * p->ldb + j];
    if (p->accumulate)
        grid_copy(&c, &m->start, 0);
    product.c = c.at;
    product.ldc = c.ld;
    product.b = columns;
    product.ldb = p->k;
    product.transposed = true;
    bool same = columns != NULL;
    if (same)
        check->kernels->matmul_many(&product);
    for (size_t r = 0; r < c.rows; r++)
        same = same && grid_same_row(&c, r, &m->c, r);
    free(columns);
    return same && grid_intact(&c);
}

/* Adds what a product with int8 has beside its numbers. */
static void add_scales(struct check *check, struct multiplication *m)
{
    struct grid factor = grid_index(&check->pens[7], &check->rng, 1, m->a.cols);
    m->scale = grid_index(&check->pens[8], &check->rng, 1, m->c.cols);
    grid_fill(&factor, &check->rng, 1);
    grid_fill(&m->scale, &check->rng, 1);
    memset(m->prepared, 0, sizeof m->prepared);
    m->factor = rng_next(&check->rng) % 2 ? factor.at : NULL;
    m->product.scale = rng_next(&check->rng) % 2 ? m->scale.at : NULL;
    m->product.prepared = m->prepared;
}

static const char *check_matmul_of(struct check *check, enum attn_dtype dtype, size_t rows,
                                   size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    const float *scale = product_scales[rng_next(rng) % NUM_PRODUCT_SCALES];
    if (dtype != ATTN_F32) /* a half reaches from 6e-8 to 65504 */
        scale = product_scales[0];
    bool accumulate = rng_next(rng) % 2;
    snprintf(check->what, sizeof check->what,
             "rows %zu, k %zu, n %zu, %s, scales %g %g, accumulate %d", rows, k, n,
             attn_dtype_name(dtype), (double)scale[0], (double)scale[1], accumulate);
    const bool many =
        dtype == ATTN_BF16 && check->kernels->matmul_many != NULL && rng_next(rng) % 2;
    struct multiplication m = {.dtype = dtype,
                               .matmul = many ? check->kernels->matmul_many
                                              : check->kernels->matmul[dtype]};
    m.a = grid_index(&check->pens[0], rng, rows, k);
    m.b = grid_index(&check->pens[1], rng, k, n);
    m.c = grid_index(&check->pens[2], rng, rows, n);
    m.start = grid_index(&check->pens[3], rng, rows, n);
    m.ready =
        grid_index(&check->pens[6], rng, rows, dtype == ATTN_INT8 ? attn_ceil_div(k, 4) * 4 : k);
    grid_fill(&m.a, rng, scale[0] / (float)k);
    grid_fill(&m.b, rng, scale[1]);
    grid_fill(&m.start, rng, scale[0] * scale[1]);
    if (accumulate)
        grid_copy(&m.c, &m.start, 0);
    m.product = (struct attn_matmul){.c = m.c.at,
                                     .a = m.ready.at,
                                     .b = as_numbers(&m.b, dtype),
                                     .ldc = m.c.ld,
                                     .lda = m.ready.ld,
                                     .ldb = m.b.ld,
                                     .rows = rows,
                                     .k = k,
                                     .n = n,
                                     .accumulate = accumulate};
    if (dtype == ATTN_INT8)
        add_scales(check, &m);
    const char *wrong = run_matmul(check, &m);
    if (wrong == NULL && many && !matmul_transposed_same(check, &m))
        wrong = "a product with b transposed has other bits";
    if (dtype != ATTN_F32)
        free((void *)m.product.b);
    return wrong;
}

const char *check_matmul(struct check *check, size_t rows, size_t k, size_t n)
{
    return check_matmul_of(check, (enum attn_dtype)(rng_next(&check->rng) % ATTN_INT8), rows, k, n);
}

const char *check_matmul_int8(struct check *check, size_t rows, size_t k, size_t n)
{
    return check_matmul_of(check, ATTN_INT8, rows, k, n);
}
