/* pooling.c: bins, sums of units, and their reduction. */
#include "kernels/stats.h"

#include <math.h>

#include "basics/mem.h"

#define REDUCED_COLUMNS ((size_t)64) /* of sum rows, reduced at a time */

#define LANES ((size_t)8) /* chains of a reduction, so that a vector holds some of them */

struct span {
    size_t first, end;
};

/* ---- Bins ---- */

/* The cells of bin i. */
static struct span cells_of_bin(size_t i, size_t cells, size_t bins)
{
    return (struct span){i * cells / bins, attn_ceil_div((i + 1) * cells, bins)};
}

/* The bins that have one of the cells [first, end). */
static struct span bins_of_cells(size_t first, size_t end, size_t cells, size_t bins)
{
    return (struct span){first * bins / cells, attn_ceil_div(end * bins, cells)};
}

/* ---- Sums ---- */

static size_t token_of(const struct attn_pooling *p, size_t row)
{
    return p->tokens != NULL ? p->tokens[row] : row;
}

void attn_pooling_plan(struct attn_pooling *p)
{
    p->by_row = true;
    p->sum_rows = p->rows;
    for (size_t i = 1; p->tokens != NULL && i < p->rows; i++)
        if (p->tokens[i - 1] >= p->tokens[i])
            return;
    if (p->rows == 0)
        return;
    size_t of_units = token_of(p, p->rows - 1) / p->unit_tokens + p->row_bins;
    p->by_row = p->rows <= of_units;
    p->sum_rows = attn_min(p->rows, of_units);
}

size_t attn_pooling_doubles(const struct attn_pooling *p)
{
    return attn_mul(p->maps, attn_mul(p->sum_rows, p->column_bins));
}

void attn_pooling_clear(const struct attn_pooling *p, size_t first, size_t n)
{
    const double none = p->type == ATTN_POOL_MAX ? (double)-INFINITY : 0;
    for (size_t i = first; i < first + n; i++)
        p->sums[i] = none;
    for (size_t i = first; p->counts != NULL && i < first + n; i++)
        p->counts[i] = 0;
}

/* ---- Cells ---- */

static float larger(float a, float b) { return a > b ? a : b; }

static float largest_of(const float *cells, size_t n)
{
    float lanes[LANES], largest = -INFINITY;
    size_t i = 0;
    if (n >= 2 * LANES) {
        for (size_t j = 0; j < LANES; j++)
            lanes[j] = cells[j];
        for (i = LANES; i + LANES <= n; i += LANES)
            for (size_t j = 0; j < LANES; j++)
                lanes[j] = larger(cells[i + j], lanes[j]);
        for (size_t j = 0; j < LANES; j++)
            largest = larger(lanes[j], largest);
    }
    for (; i < n; i++)
        largest = larger(cells[i], largest);
    return largest;
}

static double sum_of(const float *cells, size_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lanes[j] += (double)cells[i + j];
    for (size_t j = 0; j < LANES && i > 0; j++)
        sum += lanes[j];
    for (; i < n; i++)
        sum += (double)cells[i];
    return sum;
}

/* The sum of the cells above minus infinity; adds their number to *count. */
static double finite_sum_of(const float *cells, size_t n, double *count)
{
    double sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) {
        bool counts = cells[i] > -INFINITY;
        sum += counts ? (double)cells[i] : 0;
        finite += counts;
    }
    *count += (double)finite;
    return sum;
}

static void add_bin(const struct attn_pooling *p, size_t at, const float *cells, size_t n)
{
    if (p->type == ATTN_POOL_MAX) {
        double largest = (double)largest_of(cells, n);
        p->sums[at] = largest > p->sums[at] ? largest : p->sums[at];
    } else {
        p->sums[at] +=
            p->counts != NULL ? finite_sum_of(cells, n, &p->counts[at]) : sum_of(cells, n);
    }
}

/* Adds cells [first, first + n) to the sum row that begins at `at`.  Bin c ends where the next one
 * begins, or one cell after, where (c + 1) columns / bins has a remainder. */
static void add_cells(const struct attn_pooling *p, size_t at, size_t first, const float *cells,
                      size_t n)
{
    const struct span bins = bins_of_cells(first, first + n, p->columns, p->column_bins);
    const size_t step = p->columns / p->column_bins, more = p->columns % p->column_bins;
    size_t begin = bins.first * p->columns / p->column_bins;
    size_t rest = bins.first * p->columns % p->column_bins;
    for (size_t c = bins.first; c < bins.end; c++) {
        const size_t from = attn_max(begin, first);
        const bool carries = rest + more >= p->column_bins;
        begin += step + carries;
        rest += more - (carries ? p->column_bins : 0);
        const size_t end = attn_min(begin + (rest > 0), first + n);
        add_bin(p, at + c, cells + (from - first), end - from);
    }
}

/* ---- Rows ---- */

void attn_pooling_add(const struct attn_pooling *p, size_t m, struct attn_pooling_row row,
                      size_t first, const float *cells, size_t n)
{
    const struct span bins = bins_of_cells(row.index, row.index + 1, p->rows, p->row_bins);
    const size_t sums = m * p->sum_rows, unit = row.token / p->unit_tokens;
    if (p->by_row)
        add_cells(p, (sums + row.index) * p->column_bins, first, cells, n);
    for (size_t r = bins.first; r < bins.end && !p->by_row; r++)
        add_cells(p, (sums + unit + r) * p->column_bins, first, cells, n);
}

/* Reduces the sum rows of a bin in their order, columns [first, first + n) of them. */
static void reduce_columns(double *out, double *counts, const struct attn_pooling *p,
                           struct span rows, size_t first, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        out[c] = p->type == ATTN_POOL_MAX ? (double)-INFINITY : 0;
        counts[c] = 0;
    }
    for (size_t at = rows.first * p->column_bins + first; rows.first < rows.end;
         rows.first++, at += p->column_bins)
        for (size_t c = 0; c < n; c++) {
            double sum = p->sums[at + c];
            if (p->type == ATTN_POOL_MEAN)
                out[c] += sum;
            else
                out[c] = sum > out[c] ? sum : out[c];
            counts[c] += p->counts != NULL ? p->counts[at + c] : 0;
        }
}

/* The cells that a mean divides by: counted, or all of the bin. */
static double divisor(const struct attn_pooling *p, size_t r, size_t c, double counted)
{
    const struct span rows = cells_of_bin(r, p->rows, p->row_bins);
    const struct span columns = cells_of_bin(c, p->columns, p->column_bins);
    return p->counts != NULL ? counted
                             : (double)((rows.end - rows.first) * (columns.end - columns.first));
}

void attn_pooling_reduce(const struct attn_pooling *p, size_t m, size_t r, struct attn_pool *pool,
                         unsigned thread)
{
    double sums[REDUCED_COLUMNS], counts[REDUCED_COLUMNS];
    struct span rows = cells_of_bin(r, p->rows, p->row_bins);
    float *out = p->out + (m * p->row_bins + r) * p->column_bins;
    if (!p->by_row) /* sum rows of units in the middle without a row were cleared: nobody's */
        rows = (struct span){token_of(p, rows.first) / p->unit_tokens + r,
                             token_of(p, rows.end - 1) / p->unit_tokens + r + 1};
    rows.first += m * p->sum_rows;
    rows.end += m * p->sum_rows;
    for (size_t first = 0; first < p->column_bins; first += REDUCED_COLUMNS) {
        const size_t n = attn_min(p->column_bins - first, REDUCED_COLUMNS);
        attn_pool_pause(pool, thread);
        reduce_columns(sums, counts, p, rows, first, n);
        for (size_t c = 0; c < n; c++) {
            double cells = p->type == ATTN_POOL_MEAN ? divisor(p, r, first + c, counts[c]) : 1;
            out[first + c] = cells > 0 ? (float)(sums[c] / cells) : -INFINITY;
        }
    }
}
