/* stats.h: what becomes of rows of attention weights: statistics of them and of the heads that they
 * belong to (stats.c), the k largest of a row (largest.c), pooled maps (pooling.c).
 *
 * The thread that finishes a row measures it.  A head's statistics are then reduced from its rows
 * in their order, in double, so they do not depend on the number of threads. */
#ifndef ATTN_LIB_KERNELS_STATS_H
#define ATTN_LIB_KERNELS_STATS_H

#include "attn.h"
#include "machine/pool.h"

/* Statistics of one row of one head.  Reachable keys are those that causality and padding leave.  A
 * chance_ field is the share that a head would have which spread its weight evenly over the
 * reachable keys.  All fields are 0 where the row sees no key. */
struct attn_row_stats {
    uint32_t reachable;                          /* keys */
    uint32_t strongest;                          /* the key of the largest weight */
    float entropy, distance;                     /* nats; sum of weight times |query - key| */
    float self, previous, first, local, largest; /* weights, as in struct attn_head_stats */
    float chance_self, chance_previous, chance_first, chance_local;
    float target; /* weight, set by who has targets; 0: the row has none */
};

/* Measures the weights [n] of a query at key position `query`.  reachable[j] != 0 where key j is
 * reachable; nowhere if the row sees no key.  `first` is the first key that is not padding, n where
 * there is none.  The weights of reachable keys are >= 0 and sum to at most 1, up to rounding; all
 * others are 0. */
void attn_stats_row(struct attn_row_stats *out, const float *weights, const uint8_t *reachable,
                    size_t n, int64_t query, size_t first, size_t local_radius);

/* Adds some of a row's weights [n] to its sums over groups of keys; bit g of groups[j] is set where
 * key j is in group g. */
void attn_stats_add_keys(double sums[ATTN_MAX_TARGET_GROUPS], const float *weights,
                         const uint16_t *groups, size_t n);

/* Reduces `count` rows of one head, whose row t is that of the query at key position query + t. */
void attn_stats_reduce(struct attn_head_stats *out, const struct attn_row_stats *rows, size_t count,
                       int64_t query);

/* Sets the members about targets from the same rows and their targets [count]. */
void attn_stats_reduce_targets(struct attn_head_stats *out, const struct attn_row_stats *rows,
                               size_t count, const int64_t *targets);

/* Adds some of the same rows, whose sums over groups are shares [count][num_groups], to
 * sums [num_groups], of those that see a key. */
void attn_stats_add_rows(struct attn_group_stats *sums, const struct attn_row_stats *rows,
                         const float *shares, size_t count, const uint16_t *groups,
                         size_t num_groups);

/* ---- largest.c ---- */

/* Finds the k largest of values [n]: value[i] and its index[i], i < k, largest first, equal values
 * by ascending index.  k is 1 to n; no value is NaN.  Cost: O(n log k).  Pauses as `thread` of the
 * pool; a NULL pool means no pauses. */
void attn_largest(uint32_t *index, float *value, size_t k, const float *values, size_t n,
                  struct attn_pool *pool, unsigned thread);

/* ---- pooling.c: maps of weights or scores reduced to blocks, while their rows are computed.
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
 * ---- */

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
