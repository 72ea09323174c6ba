/* pooling.h: maps of weights or scores reduced to blocks, while their rows are computed.
 *
 * Bin i of `bins` over n cells is cells floor(i n / bins) to ceil((i + 1) n / bins) - 1, as in the
 * adaptive pooling of PyTorch; neighbours may share a cell.  A pooled cell is the largest, or the
 * mean, of the cells of its bin of rows and its bin of columns.
 *
 * Rows come from several threads in any order, and yet results do not depend on threads: what the
 * rows of one unit (attention/attention.h) add to a bin is summed apart, in double, by the one
 * thread that computes the unit, and the sums of units are reduced in their order after the last
 * row.  Row r of bins and unit u have sum row u + r: no two pairs share one, since rows ascend with
 * tokens.  Where the selected rows do not ascend, or are fewer, each row has a sum row of its own.
 * */
#ifndef ATTN_LIB_KERNELS_POOLING_H
#define ATTN_LIB_KERNELS_POOLING_H

#include "attn.h"
#include "machine/pool.h"

/* The maps of one kind of a batch. */
struct attn_pooling {
    enum attn_pool_type type;
    size_t maps;                  /* M of each sequence: H', or 1 of the mean over heads */
    size_t rows, columns;         /* of a whole map: T', W or S */
    size_t row_bins, column_bins; /* of a pooled map: R', C' */
    const size_t *tokens;         /* [rows]: the token of each row; NULL: its index */
    size_t unit_tokens;
    bool by_row;     /* each row has a sum row */
    size_t sum_rows; /* of a map */
    float *out;      /* [B M][R'][C']; NULL: no such map is wanted */
    double *sums;    /* [B M][sum_rows][C']: the largest, or sums, so far */
    double *counts;  /* likewise: finite cells of each sum; NULL: all cells count */
};

/* Sets by_row and sum_rows of a pooling whose sizes are set. */
void attn_pooling_plan(struct attn_pooling *pooling);

/* Doubles of the sums of one sequence; of `counts` as many. */
size_t attn_pooling_doubles(const struct attn_pooling *pooling);

/* Before the first row: clears n of the sums of the batch from `first` on. */
void attn_pooling_clear(const struct attn_pooling *pooling, size_t first, size_t n);

/* A row of a map: its token, and its index among the selected rows. */
struct attn_pooling_row {
    size_t token, index;
};

/* Adds cells [first, first + n), n >= 1, of a row of map m, counted through the batch.  One thread
 * at a time adds the rows of a unit.  Minus infinity counts as itself for the largest; a mean with
 * counts leaves it out. */
void attn_pooling_add(const struct attn_pooling *pooling, size_t m, struct attn_pooling_row row,
                      size_t first, const float *cells, size_t n);

/* After the last row: writes row r of bins of map m.  A mean of no cell is minus infinity.  Pauses
 * as `thread` of the pool. */
void attn_pooling_reduce(const struct attn_pooling *pooling, size_t m, size_t r,
                         struct attn_pool *pool, unsigned thread);

#endif
