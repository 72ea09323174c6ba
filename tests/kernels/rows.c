/* rows.c: checks of softmax, finish_weights, scale, scale_rows and all_within, and the error of
 * exp.
 *
 * exp must be within 2 ulp of the C library's in double; below the smallest normal float it must be
 * 0.  A sum is compared with the sum in double of the very terms that the kernel stored.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernelcheck.h"

#define EXP_ULPS 2.0

double ulps(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    double unit = ldexp(1, (exponent > -125 ? exponent : -125) - 24);
    return fabs(got - exact) / unit;
}

static bool is_exp(float got, float x)
{
    double exact = exp(x);
    return exact < FLT_MIN ? got == 0 : ulps(got, exact) <= EXP_ULPS;
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The arguments of softmax, before or after it. */
struct softmax_state {
    struct grid s, max, sum, rescale; /* the last three [1][rows] */
};

/* Magnitudes of scores: ordinary, wide enough for exp to be 0, as wide as floats go. */
static const float widths[] = {1, 5, 60, 500, 3e38f};

static void fill_scores(struct check *check, const struct softmax_state *before)
{
    struct rng *rng = &check->rng;
    float width = widths[rng_next(rng) % (sizeof widths / sizeof widths[0])];
    grid_fill(&before->s, rng, width);
    grid_fill(&before->max, rng, width);
    for (size_t r = 0; r < before->s.rows; r++) {
        size_t forbidden = rng_between(rng, 0, 4); /* 0: none, 4: all */
        for (size_t j = 0; j < before->s.cols; j++)
            if (rng_next(rng) % 4 < forbidden)
                before->s.at[r * before->s.ld + j] = -INFINITY;
        bool first = rng_next(rng) % 3 == 0;
        if (first)
            before->max.at[r] = -INFINITY;
        before->sum.at[r] = first ? 0 : 1 + 50 * fabsf(rng_unit(rng));
    }
}

static struct softmax_state place_state(struct pen *a, struct pen *b, struct pen *c, struct pen *d,
                                        struct rng *rng, size_t rows, size_t n)
{
    return (struct softmax_state){
        .s = grid_index(a, rng, rows, n),
        .max = grid_index(b, rng, 1, rows),
        .sum = grid_index(c, rng, 1, rows),
        .rescale = grid_index(d, rng, 1, rows),
    };
}

static const char *compare_softmax_row(const struct softmax_state *after,
                                       const struct softmax_state *before, size_t r)
{
    const float *was = before->s.at + r * before->s.ld, *is = after->s.at + r * after->s.ld;
    size_t n = before->s.cols;
    float top = before->max.at[r], rescale = after->rescale.at[r];
    for (size_t j = 0; j < n; j++)
        top = fmaxf(top, was[j]);
    if (after->max.at[r] != top)
        return "the maximum is wrong";
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        if (!(top == -INFINITY ? is[j] == 0 : is_exp(is[j], was[j] - top)))
            return "an exp is wrong";
        sum += is[j];
    }
    if (!(top == -INFINITY ? rescale == 1 : is_exp(rescale, before->max.at[r] - top)))
        return "rescale is wrong";
    sum += (double)before->sum.at[r] * rescale;
    if (!(fabs(after->sum.at[r] - sum) <= (4 + 2 * sqrt((double)n)) * 0x1p-24 * sum))
        return "the sum is wrong";
    return NULL;
}

/* Whether row r, computed alone, has the same bits. */
static bool softmax_row_same(struct check *check, const struct softmax_state *after,
                             const struct softmax_state *before, size_t r)
{
    struct grid s = grid_index(&check->pens[5], &check->rng, 1, before->s.cols);
    grid_copy(&s, &before->s, r);
    float max = before->max.at[r], sum = before->sum.at[r], rescale;
    check->kernels->softmax(s.at, s.ld, &max, &sum, &rescale, 1, s.cols);
    return grid_same_row(&s, 0, &after->s, r) && grid_intact(&s) &&
           memcmp(&max, after->max.at + r, sizeof max) == 0 &&
           memcmp(&sum, after->sum.at + r, sizeof sum) == 0 &&
           memcmp(&rescale, after->rescale.at + r, sizeof rescale) == 0;
}

const char *check_softmax(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)k;
    struct rng *rng = &check->rng;
    struct pen *pens = check->pens;
    snprintf(check->what, sizeof check->what, "rows %zu, n %zu", rows, n);
    /* The state before needs no guards but for the scores. */
    static float memory[3][128];
    struct softmax_state after = place_state(pens, pens + 1, pens + 2, pens + 3, rng, rows, n);
    struct softmax_state before = {
        .s = grid_index(&pens[4], rng, rows, n),
        .max = {.at = memory[0], .rows = 1, .cols = rows, .ld = rows},
        .sum = {.at = memory[1], .rows = 1, .cols = rows, .ld = rows},
        .rescale = {.at = memory[2], .rows = 1, .cols = rows, .ld = rows},
    };
    fill_scores(check, &before);
    grid_copy(&after.s, &before.s, 0);
    grid_copy(&after.max, &before.max, 0);
    grid_copy(&after.sum, &before.sum, 0);
    check->kernels->softmax(after.s.at, after.s.ld, after.max.at, after.sum.at, after.rescale.at,
                            rows, n);
    if (!grid_intact(&after.s) || !grid_intact(&after.max) || !grid_intact(&after.sum) ||
        !grid_intact(&after.rescale))
        return "wrote outside its result";
    const char *wrong = NULL;
    for (size_t r = 0; r < rows && wrong == NULL; r++) {
        wrong = compare_softmax_row(&after, &before, r);
        if (wrong == NULL && !softmax_row_same(check, &after, &before, r))
            wrong = "a row computed alone has other bits";
    }
    return wrong;
}

/* ---- finish_weights, scale_rows, all_within -------------------------------------------------- */

const char *check_finish_weights(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)rows, (void)k;
    struct rng *rng = &check->rng;
    struct grid w = grid_index(&check->pens[0], rng, 1, n);
    struct grid was = grid_index(&check->pens[1], rng, 1, n);
    float width = widths[rng_next(rng) % (sizeof widths / sizeof widths[0])];
    bool nothing = rng_next(rng) % 8 == 0;
    grid_fill(&was, rng, width);
    for (size_t j = 0; j < n; j++)
        if (nothing || rng_next(rng) % 8 == 0)
            was.at[j] = -INFINITY;
    float max = nothing ? -INFINITY : width, factor = nothing ? INFINITY : 1.5f + rng_unit(rng);
    snprintf(check->what, sizeof check->what, "n %zu, max %g, factor %g", n, (double)max,
             (double)factor);
    grid_copy(&w, &was, 0);
    check->kernels->finish_weights(w.at, max, factor, n);
    for (size_t j = 0; j < n; j++) {
        double exact = nothing ? 0 : exp(was.at[j] - max);
        if (!(exact < FLT_MIN ? w.at[j] == 0 : ulps(w.at[j], exact * factor) <= 2 * EXP_ULPS + 1))
            return "a weight is wrong";
    }
    return grid_intact(&w) ? NULL : "wrote outside its result";
}

const char *check_scale_rows(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)k;
    struct rng *rng = &check->rng;
    struct grid x = grid_index(&check->pens[0], rng, rows, n);
    struct grid was = grid_index(&check->pens[1], rng, rows, n);
    struct grid factor = grid_index(&check->pens[2], rng, 1, rows);
    snprintf(check->what, sizeof check->what, "rows %zu, n %zu", rows, n);
    grid_fill(&was, rng, 1e20f);
    grid_fill(&factor, rng, 1e-20f);
    grid_copy(&x, &was, 0);
    check->kernels->scale_rows(x.at, x.ld, factor.at, rows, n);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++)
            if (x.at[r * x.ld + j] != was.at[r * was.ld + j] * factor.at[r])
                return "a product is wrong";
    return grid_intact(&x) ? NULL : "wrote outside its result";
}

const char *check_scale(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)rows, (void)k;
    struct rng *rng = &check->rng;
    struct grid x = grid_index(&check->pens[0], rng, 1, n);
    struct grid out = grid_index(&check->pens[1], rng, 1, n);
    float factor = rng_unit(rng);
    snprintf(check->what, sizeof check->what, "n %zu", n);
    grid_fill(&x, rng, 1e20f);
    check->kernels->scale(out.at, x.at, factor, n);
    for (size_t j = 0; j < n; j++)
        if (out.at[j] != x.at[j] * factor)
            return "a product is wrong";
    check->kernels->scale(x.at, x.at, factor, n);
    if (!grid_same_row(&x, 0, &out, 0))
        return "in place it is another";
    return grid_intact(&x) && grid_intact(&out) ? NULL : "wrote outside its result";
}

const char *check_all_within(struct check *check, size_t rows, size_t k, size_t n)
{
    (void)rows, (void)k;
    struct rng *rng = &check->rng;
    static const float limits[] = {0, 1, FLT_MAX, INFINITY};
    float limit = limits[rng_next(rng) % (sizeof limits / sizeof limits[0])];
    const float bad[] = {NAN, -NAN, nextafterf(limit, INFINITY), -nextafterf(limit, INFINITY)};
    struct grid x = grid_index(&check->pens[0], rng, 1, n);
    snprintf(check->what, sizeof check->what, "n %zu, limit %g", n, (double)limit);
    grid_fill(&x, rng, limit < FLT_MAX ? limit : FLT_MAX);
    x.at[rng_next(rng) % n] = limit;
    x.at[rng_next(rng) % n] = -limit;
    if (!check->kernels->all_within(x.at, n, limit) || !check->kernels->all_within(x.at, 0, limit))
        return "refused what is within";
    for (size_t j = 0; j < n; j++) {
        float kept = x.at[j];
        x.at[j] = bad[rng_next(rng) % (limit < INFINITY ? 4 : 2)];
        if (check->kernels->all_within(x.at, n, limit))
            return "accepted what is beyond";
        x.at[j] = kept;
    }
    return grid_intact(&x) ? NULL : "wrote to its input";
}

/* ---- exp ------------------------------------------------------------------------------------- */

/* finish_weights with maximum 0 and factor 1 is exp. */
double exp_error(float *at, const struct attn_kernels *kernels, size_t step)
{
    enum { CHUNK = 1024 };
    const float lowest = -104;
    uint32_t first = 0x80000000u, last; /* -0 and the bits of `lowest`: ascending bits, falling x */
    memcpy(&last, &lowest, sizeof last);
    float x[CHUNK], e[CHUNK];
    double worst = 0;
    for (uint64_t bits = first; bits <= last;) {
        size_t count = 0;
        for (; count < CHUNK && bits <= last; count++, bits += step) {
            uint32_t b = (uint32_t)bits;
            memcpy(x + count, &b, sizeof b);
        }
        memcpy(e, x, sizeof e);
        kernels->finish_weights(e, 0, 1, count);
        for (size_t i = 0; i < count; i++) {
            double exact = exp(x[i]);
            double error = exact < FLT_MIN ? (e[i] == 0 ? 0 : INFINITY) : ulps(e[i], exact);
            if (!(error <= worst)) {
                worst = error;
                *at = x[i];
            }
        }
    }
    return worst;
}
