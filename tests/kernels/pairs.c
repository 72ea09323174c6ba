/* pairs.c: checks of matmul_pairs and of what makes its operands, where a level has them.
 *
 * The reference is a sum in double over b rounded to bf16 and a as it was before it was divided,
 * which may take 2^-17 of each number.  Keys and values of the same numbers are the same pairs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernelcheck.h"

#define DIVIDED 0x1p-17 /* what dividing a number may take of it */
#define MOST 130        /* rows of b, or columns of it */

struct pairs {
    struct grid a, b, start, c;
    struct grid divided, values, keys; /* a; b as words */
    bool accumulate;
};

static size_t whole(size_t k) { return attn_ceil_div(k, ATTN_PAIR_STEP) * ATTN_PAIR_STEP; }

/* Whether the words of values, and of keys which are the columns of b, are those of b. */
static const char *compare_words(struct check *check, const struct pairs *p)
{
    const struct grid *b = &p->b;
    struct grid columns = grid_index(&check->pens[7], &check->rng, b->cols, b->rows);
    const float *rows[MOST], *keys[MOST];
    for (size_t i = 0; i < b->rows; i++)
        rows[i] = b->at + i * b->ld;
    for (size_t j = 0; j < b->cols; j++)
        keys[j] = columns.at + j * columns.ld;
    for (size_t i = 0; i < b->rows * b->cols; i++)
        columns.at[i % b->cols * columns.ld + i / b->cols] = rows[i / b->cols][i % b->cols];
    check->kernels->pair_values((uint32_t *)(void *)p->values.at, p->values.ld, rows, b->rows,
                                b->cols);
    check->kernels->pair_keys((uint32_t *)(void *)p->keys.at, p->keys.ld, keys, b->cols, b->rows);
    if (!grid_intact(&p->values) || !grid_intact(&p->keys))
        return "pairs were written elsewhere";
    for (size_t i = 0; i < whole(b->rows); i++)
        for (size_t j = 0; j < b->cols; j++) {
            uint16_t value[2], key[2], want = i < b->rows ? attn_float_to_bf16(rows[i][j]) : 0;
            memcpy(value, p->values.at + i / 2 * p->values.ld + j, sizeof value);
            memcpy(key, p->keys.at + i / 2 * p->keys.ld + j, sizeof key);
            if (value[i % 2] != want || key[i % 2] != want)
                return "a pair is not of the nearest bf16";
        }
    return NULL;
}

/* Computes rows [first, first + count) of c in `out`, from the rows of a in `divided`. */
static void multiply(struct check *check, const struct pairs *p, const struct grid *out,
                     const struct grid *divided, size_t first, size_t count)
{
    for (size_t r = 0; r < count; r++)
        memcpy(divided->at + r * divided->ld, p->a.at + (first + r) * p->a.ld,
               p->a.cols * sizeof(float));
    if (p->accumulate)
        grid_copy(out, &p->start, first);
    check->kernels->divide_rows(divided->at, divided->ld, count, p->a.cols);
    check->kernels->matmul_pairs(&(struct attn_matmul){.c = out->at,
                                                       .ldc = out->ld,
                                                       .a = divided->at,
                                                       .lda = divided->ld,
                                                       .b = p->values.at,
                                                       .ldb = p->values.ld,
                                                       .rows = count,
                                                       .k = p->a.cols,
                                                       .n = out->cols,
                                                       .accumulate = p->accumulate});
}

/* Whether rows computed without the others have the same bits. */
static bool rows_same(struct check *check, const struct pairs *p, size_t first, size_t count)
{
    struct grid part = grid_index(&check->pens[7], &check->rng, count, p->c.cols);
    struct grid divided = grid_index(&check->pens[8], &check->rng, count, whole(p->a.cols));
    multiply(check, p, &part, &divided, first, count);
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, &p->c, first + r))
            return false;
    return grid_intact(&part) && grid_intact(&divided);
}

static const char *compare_products(const struct pairs *p)
{
    for (size_t r = 0; r < p->c.rows; r++)
        for (size_t j = 0; j < p->c.cols; j++) {
            double sum = p->accumulate ? (double)p->start.at[r * p->start.ld + j] : 0;
            double magnitude = fabs(sum), divided = 0;
            for (size_t i = 0; i < p->a.cols; i++) {
                float b = attn_bf16_to_float(attn_float_to_bf16(p->b.at[i * p->b.ld + j]));
                double term = (double)p->a.at[r * p->a.ld + i] * (double)b;
                sum += term;
                magnitude += fabs(term);
                divided += fabs(term) * DIVIDED;
            }
            const double got = (double)p->c.at[r * p->c.ld + j], error = fabs(got - sum);
            if (!(error <= divided) &&
                !product_near(sum + (error - divided), sum, magnitude, p->a.cols + 1, 0x1p-126))
                return "a result is wrong";
        }
    return NULL;
}

const char *check_pairs(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    if (check->kernels->matmul_pairs == NULL)
        return NULL;
    k = k < MOST ? k : MOST;
    struct pairs p = {.accumulate = rng_next(rng) % 2};
    snprintf(check->what, sizeof check->what, "rows %zu, k %zu, n %zu, accumulate %d", rows, k, n,
             p.accumulate);
    p.a = grid_index(&check->pens[0], rng, rows, k);
    p.b = grid_index(&check->pens[1], rng, k, n);
    p.start = grid_index(&check->pens[2], rng, rows, n);
    p.c = grid_index(&check->pens[3], rng, rows, n);
    p.divided = grid_index(&check->pens[4], rng, rows, whole(k));
    p.values = grid_index(&check->pens[5], rng, whole(k) / 2, n);
    p.keys = grid_index(&check->pens[6], rng, whole(k) / 2, n);
    grid_fill(&p.a, rng, 1);
    grid_fill(&p.b, rng, 1);
    grid_fill(&p.start, rng, 1);
    const char *wrong = compare_words(check, &p);
    if (wrong != NULL)
        return wrong;
    multiply(check, &p, &p.c, &p.divided, 0, rows);
    if (!grid_intact(&p.c) || !grid_intact(&p.divided) || !grid_intact(&p.values))
        return "wrote outside its result";
    for (size_t r = 0; r < rows; r++)
        if (!rows_same(check, &p, r, 1))
            return "a row computed alone has other bits";
    if (rows > 1 && !rows_same(check, &p, 1, rows - 1))
        return "a row at another place has other bits";
    return compare_products(&p);
}
