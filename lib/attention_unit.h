/* attention_unit.h: the units that attention.c cuts a problem into: up to ATTN_TILE rows each,
 * against all keys that they see. */
#ifndef ATTN_LIB_ATTENTION_UNIT_H
#define ATTN_LIB_ATTENTION_UNIT_H

#include "attention.h"
#include "attention_sums.h"

static inline size_t attn_heads_per_group(const struct attn_problem *p)
{
    return p->num_heads / p->num_kv_heads;
}

static inline size_t attn_key_tiles(const struct attn_problem *p)
{
    return attn_ceil_div(p->keys, ATTN_TILE);
}

/* From one row of queries to the next: whole words, as rows that meet int8 are of. */
static inline size_t attn_query_stride(const struct attn_problem *p)
{
    return attn_ceil_div(p->head_dim, 4) * 4;
}

struct attn_unit_tile {
    struct attn_tile tile; /* written to only where attention.c makes it */
    size_t count;          /* tokens in it */
    struct attn_tile next; /* that is met after it; no keys at the end */
};

/* The tiles of one key/value head. */
struct attn_head_tiles {
    const struct attn_problem *problem;
    size_t group;
    float *tiles; /* keys, then values of each; NULL: the cache's */
};

/* Tile j of the head, keys and values [j * ATTN_TILE, ...), and how many tokens it holds.  *out
 * must be where the tile's description is read from: a copy of it would wait for the cache. */
void attn_head_tile(struct attn_tile *out, const struct attn_head_tiles *head, size_t j);
size_t attn_head_tile_tokens(const struct attn_head_tiles *head, size_t j);

/* Floats of all packed tiles of one key/value head.  Packing tile j of a head from the problem's
 * rows; keys of unused slots become zero. */
size_t attn_packed_floats(const struct attn_problem *p);
void attn_pack_tile(const struct attn_kernels *kernels, const struct attn_head_tiles *head,
                    size_t j);

struct attn_unit {
    const struct attn_kernels *kernels;
    struct attn_pool *pool; /* which it pauses for others, as this thread */
    unsigned thread;
    const struct attn_problem *p;
    struct attn_head_tiles keys;
    size_t t0, tokens, h0, heads, rows; /* rows = tokens * heads; row r: token t0 + r / heads,
                                           head h0 + r % heads */
    float *kept;                        /* [rows][W] where rows of weights are looked at */
    uint8_t *reachable;                 /* [S] of one row, beside it */
    /* What follows is its own. */
    struct attn_span head, tail; /* keys that its first and its last token see */

    float *q;       /* scaled: [rows][D to whole words] or, by columns, [D][ATTN_TILE] */
    float *scores;  /* [rows][ATTN_TILE] or [ATTN_TILE][ATTN_TILE] */
    float *rescale; /* [rows] */
    struct attn_prepared_row *queries, *weights; /* [rows], where tiles are of int8 */
    struct attn_sums sums;                       /* of the stretch that it is in */
    struct attn_sums total;                      /* of those behind it */
    size_t stretch;                              /* that it is in */
    bool folded;                                 /* some are behind it */
};

/* Keys are summed up by stretches of as many tiles, which begin at fixed places, and the sums of
 * stretches are merged in order by their log-sum-exp: a sum over 65,536 keys in one chain would
 * lose a digit, and several threads can share the keys of one unit. */
#define ATTN_SPLIT_TILES 64

static inline size_t attn_splits(const struct attn_problem *p)
{
    return attn_ceil_div(attn_key_tiles(p), ATTN_SPLIT_TILES);
}

/* Floats of the sums of a unit over one stretch. */
static inline size_t attn_split_floats(const struct attn_problem *p)
{
    return attn_sums_floats(ATTN_TILE, p->value_head_dim);
}

/* Floats of scratch for a unit of up to so many rows, ATTN_UNIT_SCRATCH at most; and gives it to
 * one.  Fewer than ATTN_TILE rows must not go by columns. */
size_t attn_unit_scratch_floats(const struct attn_problem *p, size_t rows);
void attn_unit_layout(struct attn_unit *u, float *scratch, size_t rows);

/* The unit's scores of all of a tile's keys; and the weighted sum of its values, added up by what
 * scores have become. */
void attn_unit_scores(const struct attn_unit *u, const struct attn_unit_tile *part);
void attn_unit_weighted_sum(const struct attn_unit *u, const struct attn_unit_tile *part);

/* Units of one problem: the same heads and consecutive tokens, equally many but for the last one's,
 * or the same tokens and consecutive key/value heads.  Solves their rows, for all of them in turn
 * with the keys of the same tokens, and hands out what the problem wants. */
void attn_units_solve(struct attn_unit units[], size_t count);

/* The same in two steps, for a unit of a problem that wants no maps: sums over one stretch each, in
 * any order and by any thread, then those of all stretches (attn_split_floats behind each other)
 * merged and handed out.  The bits are those of attn_units_solve. */
void attn_unit_solve_split(struct attn_unit *u, size_t stretch, float *sums);
void attn_unit_merge(struct attn_unit *u, float *sums);

#endif
