/* stats.h: what a finished row of attention weights says about its head.
 *
 * Each row is measured on its own, by whichever thread finished it; a head's statistics are then
 * reduced from its rows in their order, in double, so they do not depend on threads. */
#ifndef ATTN_LIB_STATS_H
#define ATTN_LIB_STATS_H

#include "attn.h"

/* One row of one head.  Reachable keys are those that causality and padding leave; chances are what
 * a head would have that spread its weight evenly over them.  All is 0 where the row sees nothing.
 */
struct attn_row_stats {
    uint32_t reachable; /* keys */
    uint32_t strongest; /* the key of the largest weight */
    float entropy, distance;
    float self, previous, first, local, largest;
    float chance_self, chance_previous, chance_first, chance_local;
};

/* Measures weights [n] of a query at key position `query`.  reachable[j] != 0 where key j is
 * reachable, nowhere if the row sees nothing; `first` is the first key that is no padding, n where
 * there is none.  The weights are >= 0 and sum to at most 1, up to rounding; those of other keys
 * are 0. */
void attn_stats_row(struct attn_row_stats *out, const float *weights, const uint8_t *reachable,
                    size_t n, int64_t query, size_t first, size_t local_radius);

/* Reduces `count` rows of one head, row t of which stood at key position query + t. */
void attn_stats_reduce(struct attn_head_stats *out, const struct attn_row_stats *rows, size_t count,
                       int64_t query);

#endif
