/* project.c: checks of project for each dtype of weights, and of quantize.
 *
 * float32 and bf16 are compared with a sum in double, int8 with the one float that its formula
 * gives.  As in products.c each row must have the same bits alone and at another place.  Columns
 * must have the same bits computed from any panel on, because threads share a product by panels.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernelcheck.h"
#include "kernels/gemm.h"

/* A case: y = addend + x w.  A panel of w is a row of its grid.  x of int8 is counted in words. */
struct projection {
    struct grid y, addend, x, w;
    struct grid row_scale, scale; /* [1][rows], [1][n], of int8 */
    enum { FROM_ZERO, FROM_ROW, FROM_Y } from;
    enum attn_dtype dtype;
    size_t k, n;
    float *scratch;
};

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Byte i of a grid's row. */
static uint8_t byte_at(const struct grid *grid, size_t row, size_t i)
{
    uint8_t byte;
    memcpy(&byte, (const char *)(grid->at + row * grid->ld) + i, 1);
    return byte;
}

/* The index of weight i of column j in its panel, counted in numbers. */
static size_t weight_index(const struct projection *p, size_t i, size_t j)
{
    size_t each = attn_numbers_per_word(p->dtype);
    return (i / each * ATTN_PANEL + j % ATTN_PANEL) * each + i % each;
}

static double weight(const struct projection *p, size_t i, size_t j)
{
    const float *panel = p->w.at + j / ATTN_PANEL * p->w.ld;
    size_t at = weight_index(p, i, j);
    uint16_t half;
    if (p->dtype == ATTN_F32)
        return (double)panel[at];
    if (p->dtype == ATTN_INT8)
        return (double)byte_at(&p->w, j / ATTN_PANEL, at) - 128;
    memcpy(&half, (const char *)panel + 2 * at, 2);
    return (double)attn_bf16_to_float(half);
}

/* x as a kernel that rounds rows to bf16 computes with it: denormals count as zeros. */
static double rounded(float x)
{
    float half = attn_bf16_to_float(attn_float_to_bf16(x));
    return fabsf(half) < FLT_MIN ? 0 : (double)half;
}

/* A weight as a kernel that rounds rows multiplies with it. */
static double flushed_weight(const struct projection *p, size_t i, size_t j)
{
    double w = i < p->k ? weight(p, i, j) : 0;
    return fabs(w) < (double)FLT_MIN ? 0 : w;
}

static void fill_bytes(const struct grid *grid, struct rng *rng, int extreme)
{
    for (size_t r = 0; r < grid->rows; r++)
        for (size_t i = 0; i < 4 * grid->cols; i++) {
            int8_t byte = (int8_t)(extreme != 0 ? extreme : (int)rng_between(rng, 1, 255) - 128);
            memcpy((char *)(grid->at + r * grid->ld) + i, &byte, 1);
        }
}

/* Fills a case of int8: bytes of weights are 128 too high, rows are zero beyond k. */
static void fill_integers(struct projection *p, struct rng *rng)
{
    int extreme = rng_next(rng) % 4 == 0 ? 127 : 0, sign = rng_next(rng) % 2 ? 1 : -1;
    fill_bytes(&p->x, rng, sign * extreme);
    fill_bytes(&p->w, rng, extreme != 0 ? -1 : 0); /* byte 255, the weight 127 */
    for (size_t r = 0; r < p->x.rows; r++)
        memset((char *)(p->x.at + r * p->x.ld) + p->k, 0, 4 * p->x.cols - p->k);
    grid_fill(&p->row_scale, rng, 1);
    grid_fill(&p->scale, rng, 1);
}

/* Turns the weights into bf16 in place: two to a word, zero beyond k. */
static void make_halves(const struct projection *p)
{
    for (size_t row = 0; row < p->w.rows; row++)
        for (size_t i = 0; i < p->w.cols; i++) {
            float *word = p->w.at + row * p->w.ld + i, second = *word * 0.7f;
            uint16_t halves[2] = {attn_float_to_bf16(*word), attn_float_to_bf16(second)};
            halves[1] = 2 * (i / ATTN_PANEL) + 1 < p->k ? halves[1] : 0;
            memcpy(word, halves, sizeof halves);
        }
}

/* ---- Running --------------------------------------------------------------------------------- */

/* A part of a case: rows [first, first + x->rows) of x by n columns from a panel on. */
struct part {
    const struct grid *y, *x; /* the rows and columns of the part alone */
    size_t first, panel, n;
    bool rows_copied; /* the run before had the same rows */
};

static void run_project(const struct check *check, const struct projection *p, struct part part)
{
    const bool integers = p->dtype == ATTN_INT8;
    const struct attn_projection_part product = {
        .y = part.y->at,
        .addend = p->from == FROM_ZERO  ? NULL
                  : p->from == FROM_ROW ? p->addend.at + part.panel * ATTN_PANEL
                                        : part.y->at,
        .x = part.x->at,
        .w = p->w.at + part.panel * p->w.ld,
        .row_scale = integers ? p->row_scale.at + part.first : NULL,
        .scale = integers ? p->scale.at + part.panel * ATTN_PANEL : NULL,
        .scratch = p->scratch,
        .rows_copied = part.rows_copied,
        .ldy = part.y->ld,
        .ldaddend = p->from == FROM_Y ? part.y->ld : 0,
        .ldx = part.x->ld * (integers ? 4 : 1),
        .ldpanel = p->w.ld,
        .rows = part.x->rows,
        .k = p->k,
        .n = part.n,
    };
    check->kernels->project[p->dtype](&product);
}

/* Fills y with what it holds before it is added to. */
static void fill_addend(const struct grid *y, const struct projection *p, size_t row, size_t column)
{
    for (size_t r = 0; p->from == FROM_Y && r < y->rows; r++)
        memcpy(y->at + r * y->ld, p->addend.at + (row + r) * p->addend.ld + column,
               y->cols * sizeof(float));
}

static bool kernels_use_bfdot(const struct attn_kernels *kernels)
{
    return strcmp(kernels->name, "bf16") == 0;
}

static bool is_sum(const struct projection *p, double addend, size_t r, size_t j, bool rounds)
{
    double sum = addend, magnitude = fabs(sum);
    for (size_t i = 0; i < p->k; i++) {
        float x = p->x.at[r * p->x.ld + i];
        double w = weight(p, i, j), term = (double)x * w;
        if (rounds)
            term = rounded(x) * flushed_weight(p, i, j);
        sum += term;
        magnitude += fabs(term);
    }
    return product_near(p->y.at[r * p->y.ld + j], sum, magnitude, p->k + 1,
                        rounds ? 2 * (double)FLT_MIN : 0x1p-149);
}

/* Whether an element has the bits that bfdot gives. */
static bool is_bfdot_sum(const struct projection *p, float addend, size_t r, size_t j)
{
    double sum = 0;
    for (size_t i = 0; i < p->k; i += 2) {
        const float *x = p->x.at + r * p->x.ld + i;
        const double pair[2] = {rounded(x[0]), i + 1 < p->k ? rounded(x[1]) : 0};
        const double w[2] = {flushed_weight(p, i, j), flushed_weight(p, i + 1, j)};
        sum = bfdot(sum, pair, w);
    }
    float want = addend + (float)sum, got = p->y.at[r * p->y.ld + j];
    return got == want || (isnan(got) && isnan(want));
}

static bool kernels_use_tiles(const struct attn_kernels *kernels)
{
    return strcmp(kernels->name, "avx512amx") == 0;
}

/* x + y z rounded once; a denormal result becomes zero. */
static float multiply_add(float x, double y, double z)
{
    float sum = fmaf((float)y, (float)z, x);
    return fabsf(sum) < FLT_MIN ? copysignf(0, sum) : sum;
}

#define TILE_NUMBERS 32 /* numbers of a row that TDPBF16PS multiplies */

/* Whether an element has the bits that TDPBF16PS gives: of each TILE_NUMBERS a chain of the even
 * numbers and one of the odd, added to each other and then to the sum so far. */
static bool is_tile_sum(const struct projection *p, float addend, size_t r, size_t j)
{
    float sum = 0;
    for (size_t i = 0; i < p->k; i += TILE_NUMBERS) {
        float chain[2] = {0, 0};
        for (size_t at = i; at < attn_min(i + TILE_NUMBERS, p->k); at++)
            chain[at % 2] = multiply_add(chain[at % 2], rounded(p->x.at[r * p->x.ld + at]),
                                         flushed_weight(p, at, j));
        sum = multiply_add(sum, (double)multiply_add(chain[1], (double)chain[0], 1), 1);
    }
    float want = addend + sum, got = p->y.at[r * p->y.ld + j];
    return got == want || (isnan(got) && isnan(want));
}

static bool is_integer_sum(const struct projection *p, float addend, size_t r, size_t j)
{
    int32_t sum = 0;
    for (size_t i = 0; i < p->k; i++)
        sum += (int8_t)byte_at(&p->x, r, i) * (int32_t)weight(p, i, j);
    float want = addend + (float)sum * (p->row_scale.at[r] * p->scale.at[j]);
    return p->y.at[r * p->y.ld + j] == want;
}

static const char *compare_project(const struct projection *p, const struct attn_kernels *kernels)
{
    for (size_t r = 0; r < p->y.rows; r++)
        for (size_t j = 0; j < p->n; j++) {
            size_t from = p->from == FROM_Y ? r * p->addend.ld + j : j;
            float addend = p->from == FROM_ZERO ? 0 : p->addend.at[from];
            const bool rounds = p->dtype == ATTN_BF16 && kernels->bf16_rounds_rows;
            if (!(p->dtype == ATTN_INT8 ? is_integer_sum(p, addend, r, j)
                                        : is_sum(p, (double)addend, r, j, rounds)))
                return "a result is wrong";
            if (rounds && kernels_use_bfdot(kernels) && !is_bfdot_sum(p, addend, r, j))
                return "a result is not bfdot's";
            if (rounds && kernels_use_tiles(kernels) && !is_tile_sum(p, addend, r, j))
                return "a result is not TDPBF16PS's";
        }
    return NULL;
}

static bool project_rows_same(struct check *check, const struct projection *p, size_t first,
                              size_t count)
{
    struct grid part = grid_index(&check->pens[4], &check->rng, count, p->n);
    struct grid rows = grid_index(&check->pens[5], &check->rng, count, p->x.cols);
    fill_addend(&part, p, first, 0);
    grid_copy(&rows, &p->x, first);
    run_project(check, p, (struct part){.y = &part, .x = &rows, .first = first, .n = p->n});
    for (size_t r = 0; r < count; r++)
        if (!grid_same_row(&part, r, &p->y, first + r))
            return false;
    return grid_intact(&part);
}

/* Whether the columns from the beginning of column j's panel to j, computed alone, have the same
 * bits; also with rows that the run before has copied. */
static bool project_columns_same(struct check *check, const struct projection *p, size_t j,
                                 bool rows_copied)
{
    size_t first = j / ATTN_PANEL * ATTN_PANEL, n = j - first + 1;
    struct grid part = grid_index(&check->pens[4], &check->rng, p->y.rows, n);
    fill_addend(&part, p, 0, first);
    run_project(
        check, p,
        (struct part){
            .y = &part, .x = &p->x, .panel = j / ATTN_PANEL, .n = n, .rows_copied = rows_copied});
    for (size_t r = 0; r < p->y.rows; r++)
        if (memcmp(part.at + r * part.ld, p->y.at + r * p->y.ld + first, n * sizeof(float)) != 0)
            return false;
    return grid_intact(&part);
}

/* Parts of the product against all of it. */
static const char *compare_parts(struct check *check, const struct projection *p)
{
    const size_t rows = p->x.rows;
    for (size_t r = 0; r < rows; r++)
        if (!project_rows_same(check, p, r, 1))
            return "a row computed alone has other bits";
    if (rows > 1 && !project_rows_same(check, p, 1, rows - 1))
        return "a row at another place has other bits";
    for (size_t j = 0; j < p->n; j++)
        if (!project_columns_same(check, p, j, j % 2 == 1))
            return "a column has other bits in narrower products";
    return NULL;
}

static struct projection place_case(struct check *check, enum attn_dtype dtype, size_t rows,
                                    size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    size_t words = attn_ceil_div(k, attn_numbers_per_word(dtype));
    struct projection p = {.dtype = dtype, .from = rng_next(rng) % 3, .k = k, .n = n};
    p.x = grid_index(&check->pens[0], rng, rows, dtype == ATTN_INT8 ? words : k);
    p.w = grid_index(&check->pens[1], rng, attn_ceil_div(n, ATTN_PANEL), words * ATTN_PANEL);
    p.y = grid_index(&check->pens[2], rng, rows, n);
    p.addend = grid_index(&check->pens[3], rng, p.from == FROM_Y ? rows : 1, n);
    p.scratch =
        grid_index(&check->pens[6], rng, 1, attn_max(ATTN_PRODUCT_SCRATCH, ATTN_GEMM_SCRATCH)).at;
    p.row_scale = grid_index(&check->pens[7], rng, 1, rows);
    p.scale = grid_index(&check->pens[8], rng, 1, n);
    return p;
}

static const char *check_dtype(struct check *check, enum attn_dtype dtype, size_t rows, size_t k,
                               size_t n)
{
    struct rng *rng = &check->rng;
    const float *scale = product_scales[rng_next(rng) % NUM_PRODUCT_SCALES];
    const size_t most = ATTN_RANGE_WORDS * attn_numbers_per_word(dtype);
    k = rng_next(rng) % 8 == 0 ? rng_between(rng, 1, most) : attn_min(k, most);
    if (rng_next(rng) % 8 == 0)
        rows = rng_between(rng, 1, ATTN_PRODUCT_ROWS);
    struct projection p = place_case(check, dtype, rows, k, n);
    snprintf(check->what, sizeof check->what, "%s, rows %zu, k %zu, n %zu, scales %g %g, from %d",
             attn_dtype_name(dtype), rows, k, n, (double)scale[0], (double)scale[1], p.from);
    grid_fill(&p.x, rng, scale[0] / (float)k);
    grid_fill(&p.w, rng, scale[1]);
    grid_fill(&p.addend, rng, scale[0] * scale[1]);
    if (dtype == ATTN_INT8)
        fill_integers(&p, rng);
    if (dtype == ATTN_BF16)
        make_halves(&p);
    fill_addend(&p.y, &p, 0, 0);
    run_project(check, &p, (struct part){.y = &p.y, .x = &p.x, .n = n});
    if (!grid_intact(&p.y) || !grid_intact(&p.x) || !grid_intact(&p.w) || !grid_intact(&p.addend))
        return "wrote outside its result";
    const char *differs = check->bits_vary ? NULL : compare_parts(check, &p);
    return differs != NULL ? differs : compare_project(&p, check->kernels);
}

const char *check_project(struct check *check, size_t rows, size_t k, size_t n)
{
    return check_dtype(check, ATTN_F32, rows, k, n);
}

const char *check_project_bf16(struct check *check, size_t rows, size_t k, size_t n)
{
    return check_dtype(check, ATTN_BF16, rows, k, n);
}

const char *check_project_int8(struct check *check, size_t rows, size_t k, size_t n)
{
    return check_dtype(check, ATTN_INT8, rows, k, n);
}

/* ---- quantize -------------------------------------------------------------------------------- */

/* Magnitudes of a row: ordinary, near the largest and the smallest that count, too small, zero. */
static const float widths[] = {1, 1, 3e38f, 2e-36f, 1e-37f, 1e-40f, 0};

const char *check_quantize(struct check *check, size_t rows, size_t k, size_t n)
{
    struct rng *rng = &check->rng;
    float width = widths[rng_next(rng) % (sizeof widths / sizeof widths[0])], max = 0;
    struct grid x = grid_index(&check->pens[0], rng, 1, n);
    struct grid words = grid_index(&check->pens[1], rng, 1, attn_ceil_div(n, 4));
    struct grid scale = grid_index(&check->pens[2], rng, 1, 1);
    int8_t *out = (int8_t *)(words.at + words.cols) - n; /* ends with its memory */
    uint8_t before[4];
    (void)rows, (void)k;
    snprintf(check->what, sizeof check->what, "n %zu, width %g", n, (double)width);
    grid_fill(&x, rng, width);
    memcpy(before, words.at, sizeof before);
    check->kernels->quantize(out, scale.at, x.at, n);
    if (!grid_intact(&x) || !grid_intact(&words) || !grid_intact(&scale) ||
        memcmp(before, words.at, 4 * words.cols - n) != 0)
        return "wrote outside its result";
    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, fabsf(x.at[i]));
    bool none = max < ATTN_MIN_QUANTIZABLE;
    if (*scale.at != (none ? 0 : max / 127))
        return "the scale is wrong";
    for (size_t i = 0; i < n; i++)
        if ((float)out[i] != (none ? 0 : rintf(x.at[i] * (127 / max))))
            return "an integer is wrong";
    return NULL;
}
