/* stats.h: statistics of rows of attention weights, and of the heads that the rows belong to.
 *
 * The thread that finishes a row measures it.  A head's statistics are then reduced from its rows
 * in their order, in double, so they do not depend on the number of threads. */
#ifndef ATTN_LIB_KERNELS_STATS_H
#define ATTN_LIB_KERNELS_STATS_H

#include "attn.h"

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

#endif
