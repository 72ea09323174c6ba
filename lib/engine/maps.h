/* maps.h: what a call asks to see of its attention weights: maps, means, the largest, statistics.
 *
 * Weights exist one row at a time.  The scores of a row are kept while its tiles are computed and
 * become weights when its softmax is complete.  attn_maps_measure_row and attn_maps_add_row then
 * add the row to statistics, to the mean, to a pooled map, or pick its largest.  A row that belongs
 * in the caller's map is kept there from the start.  No T x S matrix is needed beyond those asked
 * for. */
#ifndef ATTN_LIB_ENGINE_MAPS_H
#define ATTN_LIB_ENGINE_MAPS_H

#include "attn.h"
#include "kernels/pooling.h"
#include "kernels/stats.h"
#include "machine/pool.h"
#include "machine/workspace.h"

#define ATTN_WEIGHT_ROWS_FLOATS ((size_t)2 << 20) /* weights kept by a thread, or one row */

enum attn_pooled { ATTN_POOLED_WEIGHTS, ATTN_POOLED_AVERAGE, ATTN_POOLED_SCORES, ATTN_POOLED_MAPS };

/* The outputs asked for of one sequence, or of a whole batch until attn_maps_of_sequence narrows
 * it. */
struct attn_maps {
    size_t num_heads, queries, keys, columns; /* H, T, S, W = S + extra */
    size_t heads, rows;                       /* H', T': selected */
    const uint32_t *head_index, *row_index;   /* [H], [T]: index among the selected, or
                                                 ATTN_MAPS_NONE; NULL: all are selected */
    size_t unit_heads, unit_tokens;    /* of a unit of rows (attention/attention.h), at most */
    float *weights;                    /* [H'][T'][W]; NULL also where pooled */
    float *average;                    /* [T'][W]; likewise */
    float *scores;                     /* [H'][T'][S] at `stage`; likewise */
    const struct attn_pooling *pooled; /* [ATTN_POOLED_MAPS] of the batch, NULL: none */
    size_t sequence;                   /* of the batch */
    enum attn_stage stage;
    size_t top_k;
    uint32_t *top_index; /* [H'][T'][top_k]; of the average, [T'][top_k], where that is wanted */
    float *top_weight;
    struct attn_row_stats *row_stats;   /* [H][T] */
    struct attn_head_stats *head_stats; /* [H] */
    size_t local_radius;
    const int64_t *targets;               /* [T] */
    const uint16_t *target_groups;        /* [S] */
    size_t num_target_groups;             /* N; 0: none */
    float *group_shares;                  /* [H][T][N] */
    struct attn_group_stats *group_stats; /* [H][N] */
};

#define ATTN_MAPS_NONE UINT32_MAX

/* Checks what the outputs of a call ask for and takes the memory that it needs from the workspace.
 * Errors: ATTN_OUT_OF_RANGE, ATTN_INVALID (selection, top_k, pool, targets), ATTN_NO_MEMORY. */
enum attn_status attn_maps_init(struct attn_maps *out, struct attn_workspace *workspace,
                                const struct attn_outputs *outputs,
                                const struct attn_map_sizes *sizes, struct attn_error *error);

/* The maps of sequence b of the batch. */
struct attn_maps attn_maps_of_sequence(const struct attn_maps *maps, size_t b);

/* Whether rows of weights are needed that are not kept in the caller's map. */
bool attn_maps_need_rows(const struct attn_maps *maps);

/* Whether anything is wanted of any of these query heads and tokens; statistics are of all. */
bool attn_maps_any(const struct attn_maps *maps, size_t head, size_t heads, size_t token,
                   size_t tokens);

/* Whether scores are wanted; whether the mean over heads is; and whether that is to be pooled. */
bool attn_maps_need_scores(const struct attn_maps *maps);
bool attn_maps_need_average(const struct attn_maps *maps);
bool attn_maps_pool_average(const struct attn_maps *maps);

/* Where the weights [W] of a row belong in the caller's map; NULL: nowhere. */
float *attn_maps_weights(const struct attn_maps *maps, size_t h, size_t t);

/* Stores the scores [n] of the row of head h, query t over keys from `first` on. */
void attn_maps_store_scores(const struct attn_maps *maps, size_t h, size_t t, size_t first,
                            const float *scores, size_t n);

/* Before the first row: clears the mean and the sums of pooled maps, on all threads. */
void attn_maps_clear(const struct attn_maps *maps, struct attn_pool *pool);

/* Measures the finished row of head h, query t for its statistics: weights [W] before head_mask, of
 * a query at key position `query`; `reachable` and `first` as for attn_stats_row. */
void attn_maps_measure_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                           const uint8_t *reachable, int64_t query, size_t first);

/* The same for groups of keys, where there are any.  Pauses as `thread` of the pool. */
void attn_maps_measure_groups(const struct attn_maps *maps, size_t h, size_t t,
                              const float *weights, struct attn_pool *pool, unsigned thread);

/* Adds the finished row of head h, query t, weights [W] after head_mask, to the mean and to its
 * pooled map, or picks its largest.  Where the mean is wanted one thread calls it for all heads of
 * a query, in their order; `average` [W] is the mean of this query where that is to be pooled, else
 * NULL.  Pauses as `thread` of the pool. */
void attn_maps_add_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                       float *average, struct attn_pool *pool, unsigned thread);

/* Adds the mean [W] over the heads of query t to its pooled map. */
void attn_maps_add_average(const struct attn_maps *maps, size_t t, const float *average);

/* After the last row, on all threads: picks the largest of the mean, reduces the statistics of
 * heads, query 0 being at key position `query`, and pooled maps. */
void attn_maps_reduce(const struct attn_maps *maps, int64_t query, struct attn_pool *pool);

#endif
