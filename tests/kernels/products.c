/* products.c: checks of matmul.
 *
 * The reference is a sum in double.  A product of k terms in float may differ from it by a few
 * units of roundoff times sqrt(k), relative to the sum of the terms' magnitudes (rounding errors
 * of random data add like a random walk; the worst case would be k), and by what underflow takes.
 *
 * Row independence: the result for all rows is compared, bit for bit, with that of each row
 * computed alone and with that of the rows from the second on, where every row has moved to another
 * place in its tile; strides and alignment differ in every run.
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

const float product_scales[NUM_PRODUCT_SCALES][2] = {
    {1, 1}, {1, 1}, {1e18f, 1e18f}, {1e-19f, 1e-20f}, {1e-39f, 1}, {3e38f, 1e-3f},
};

bool product_near(double got, double exact, double magnitude, size_t terms, double least)
{
    double bound = (4 + 4 * sqrt((double)terms)) * ROUNDOFF * magnitude;
    return fabs(got - exact) <= bound + (double)(terms + 1) * least;
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
            if (!product_near(c->at[r * c->ld + j], sum, magnitude, a->cols + 1, 0x1p-149))
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
    const float *scale = product_scales[rng_next(rng) % NUM_PRODUCT_SCALES];
    enum attn_dtype dtype = (enum attn_dtype)(rng_next(rng) % (ATTN_INT8 + 1));
    if (dtype != ATTN_F32) /* a half reaches from 6e-8 to 65504 */
        scale = product_scales[0];
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
