/* maps.h: what a call wants to see of its attention weights.
 *
 * Weights exist one row at a time: scores of a row are kept while its tiles pass, become weights
 * when the softmax is complete, and are then handed to attn_maps_take_row, which copies what was
 * selected, adds to the mean, picks the largest and measures.  A row that belongs in the caller's
 * map is kept there from the start.  So no T x S matrix is needed beyond what was asked for. */
#ifndef ATTN_LIB_MAPS_H
#define ATTN_LIB_MAPS_H

#include "attn.h"
#include "pool.h"
#include "stats.h"
#include "workspace.h"

/* The wishes of one sequence; of a whole batch until attn_maps_of_sequence narrows it. */
struct attn_maps {
    size_t num_heads, queries, keys, columns; /* H, T, S, W */
    size_t heads, rows;                       /* H', T': selected */
    const uint32_t *head_slot, *row_slot;     /* [H], [T]: place among the selected, or
                                                 ATTN_MAPS_NONE; NULL: all in their order */
    float *weights;                           /* [H'][T'][W] */
    float *average;                           /* [T'][W] */
    float *scores;                            /* [H'][T'][S] at `stage` */
    enum attn_stage stage;
    size_t top_k;
    uint32_t *top_index; /* [H'][T'][top_k], of the average where that is wanted */
    float *top_weight;
    struct attn_row_stats *row_stats;   /* [H][T] */
    struct attn_head_stats *head_stats; /* [H] */
    size_t local_radius;
};

#define ATTN_MAPS_NONE UINT32_MAX

/* Takes the wishes of a call with `columns` = W; what is needed besides comes from the workspace.
 * Errors: ATTN_OUT_OF_RANGE, ATTN_INVALID (selection, top_k), ATTN_NO_MEMORY. */
enum attn_status attn_maps_init(struct attn_maps *out, struct attn_workspace *workspace,
                                const struct attn_outputs *outputs, size_t batch, size_t num_heads,
                                size_t queries, size_t keys, size_t columns,
                                struct attn_error *error);

/* Those of sequence b of the batch. */
struct attn_maps attn_maps_of_sequence(const struct attn_maps *maps, size_t b);

/* Whether finished rows are looked at, beyond those that stand in `weights`. */
bool attn_maps_need_rows(const struct attn_maps *maps);

/* Where the weights, or the scores, of a row belong in the caller's map; NULL: nowhere. */
float *attn_maps_weights(const struct attn_maps *maps, size_t h, size_t t);
float *attn_maps_scores(const struct attn_maps *maps, size_t h, size_t t);

/* Begins: the mean is zero.  In attn_maps_begin_tasks pieces, by any threads in any order. */
size_t attn_maps_begin_tasks(const struct attn_maps *maps);
void attn_maps_begin_task(const struct attn_maps *maps, size_t i);

/* Measures the finished row of head h, query t: weights [W] before head_mask, of a query at key
 * position `query`; reachable and first as attn_stats_row has them. */
void attn_maps_measure_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                           const uint8_t *reachable, int64_t query, size_t first);

/* Takes the finished row, head_mask applied.  Rows of one query come in the order of their heads,
 * from one thread, where the mean is wanted.  Pauses as this thread of the pool. */
void attn_maps_take_row(const struct attn_maps *maps, size_t h, size_t t, const float *weights,
                        struct attn_pool *pool, unsigned thread);

/* Ends, when all rows are taken: the largest of the mean; statistics of heads, query 0 being at key
 * position `query`.  In attn_maps_end_tasks pieces, by any threads in any order. */
size_t attn_maps_end_tasks(const struct attn_maps *maps);
void attn_maps_end_task(const struct attn_maps *maps, size_t i, int64_t query,
                        struct attn_pool *pool, unsigned thread);

#endif
