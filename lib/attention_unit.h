/* attention_unit.h: the units that attention.c cuts a problem into: up to ATTN_TILE rows each,
 * against all keys that they see. */
#ifndef ATTN_LIB_ATTENTION_UNIT_H
#define ATTN_LIB_ATTENTION_UNIT_H

#include "attention.h"

static inline size_t attn_heads_per_group(const struct attn_problem *p)
{
    return p->num_heads / p->num_kv_heads;
}

static inline size_t attn_key_tiles(const struct attn_problem *p)
{
    return attn_ceil_div(p->keys, ATTN_TILE);
}

struct attn_keys {
    struct attn_tile tile; /* written to only where attention.c makes it */
    size_t count;          /* tokens in it */
    const char *next;      /* the keys of the tile after it, NULL at the end */
};

/* The tiles of one key/value head: those of keys, then those of values. */
struct attn_head_tiles {
    const struct attn_problem *problem;
    size_t group;
    float *tiles; /* NULL: the cache's */
};

/* Keys [j * ATTN_TILE, ...) of the head and their values. */
struct attn_keys attn_head_keys(const struct attn_head_tiles *head, size_t j);

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

    float *q;                   /* scaled: [rows][D] or, by columns, [D][ATTN_TILE] */
    float *scores;              /* [rows][ATTN_TILE] or [ATTN_TILE][ATTN_TILE] */
    float *out;                 /* [rows][Dv] */
    float *max, *sum, *rescale; /* [rows] */
    /* Of the stretches of keys that are behind it; nothing while `stretch` is its first. */
    float *total_out, *total_max, *total_sum; /* [rows][Dv], [rows], [rows] */
    size_t stretch;                           /* that it is in */
    bool folded;                              /* some are behind it */
};

/* Gives the unit its scratch, ATTN_TILE_SCRATCH floats. */
void attn_unit_lay_out(struct attn_unit *u, float *scratch);

/* Units of one problem and the same heads, of consecutive tokens, equally many but for the last
 * one's: solves their rows, each tile of keys for all of them in turn, and hands out what the
 * problem wants. */
void attn_units_solve(struct attn_unit units[], size_t count);

#endif
