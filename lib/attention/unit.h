/* unit.h: units of work of attention.c: up to ATTN_TILE rows of one key/value head,
 * against all keys that these rows see. */
#ifndef ATTN_LIB_ATTENTION_UNIT_H
#define ATTN_LIB_ATTENTION_UNIT_H

#include "attention/attention.h"

static inline size_t attn_heads_per_group(const struct attn_problem *p)
{
    return p->num_heads / p->num_kv_heads;
}

static inline size_t attn_key_tiles(const struct attn_problem *p)
{
    return attn_ceil_div(p->keys, ATTN_TILE);
}

/* Floats from one row of a unit's queries to the next: D, in whole words as int8 needs them, or in
 * whole steps of pairs. */
static inline size_t attn_query_stride(const struct attn_problem *p)
{
    const size_t each = p->pairs ? ATTN_PAIR_STEP : 4;
    return attn_ceil_div(p->head_dim, each) * each;
}

/* ---- Tiles ---- */

/* A tile that a unit is computed against. */
struct attn_unit_tile {
    struct attn_tile tile; /* read only */
    size_t count;          /* tokens in it */
    struct attn_tile next; /* the tile computed after it, for prefetching; k NULL: none */
};

/* All tiles of one key/value head. */
struct attn_head_tiles {
    const struct attn_problem *problem;
    size_t group;
    float *tiles; /* filled: keys, then values of each tile; NULL: in the blocks of the cache */
};

/* Tile j of the head, keys and values [j * ATTN_TILE, ...), and how many tokens it holds.  *out
 * must be where the tile's description is read from: a copy of it would wait for the cache. */
void attn_head_tile(struct attn_tile *out, const struct attn_head_tiles *head, size_t j);
size_t attn_head_tile_tokens(const struct attn_head_tiles *head, size_t j);

/* Floats of all filled tiles of one key/value head; and filling tile j of a head from the problem's
 * rows, where keys of unused slots become zero. */
size_t attn_head_tiles_floats(const struct attn_problem *p);
void attn_fill_tile(const struct attn_kernels *kernels, const struct attn_head_tiles *head,
                    size_t j);

/* ---- Tiles of latents ---- */

/* Whether a problem attends over cached latents (struct attn_mla_spec): all its heads have the key
 * [latent | shared part] and the value latent, so its tiles are the same for every head. */
static inline bool attn_is_latent(const struct attn_problem *p)
{
    return p->cache.blocks != NULL && p->cache.spec->mla.kv_lora_rank > 0;
}

/* Whether tiles of latents are multiplied as they are cached. */
static inline bool attn_latent_is_whole(const struct attn_problem *p,
                                        const struct attn_kernels *kernels)
{
    return kernels->matmul_many != NULL && p->cache.spec->kv_dtype == ATTN_BF16;
}

/* A tile of latents as keys and values, in float32 or as it is cached, shared by the units
 * that a task computes. */
struct attn_latent_tile {
    size_t index; /* of the tile it holds; SIZE_MAX: none yet */
    struct attn_tile tile;
};

/* Floats of memory for it; 0 in other problems. */
size_t attn_latent_floats(const struct attn_problem *p);

/* Makes `latent` hold tile j, whose first `count` tokens are in use, in that memory. */
void attn_latent_read(struct attn_latent_tile *latent, const struct attn_problem *p, float *floats,
                      const struct attn_kernels *kernels, size_t j, size_t count);

/* ---- Sums: the state of an online softmax over some keys (sums.c) ---- */

/* Of each row over the keys seen so far: the largest score m, the sum of e^(score - m), and the sum
 * of e^(score - m) value. */
struct attn_sums {
    float *out;       /* [rows][Dv] */
    float *max, *sum; /* [rows]; -inf and 0 where the row has seen no key */
};

/* Floats that hold the sums of so many rows, and the sums placed in as many floats. */
static inline size_t attn_sums_floats(size_t rows, size_t dv) { return rows * (dv + 2); }
struct attn_sums attn_sums_in(float *floats, size_t rows, size_t dv);

/* Makes them the sums over no keys. */
void attn_sums_clear(struct attn_sums sums, size_t rows, size_t dv);

/* total = total e^(total max - m) + sums e^(max - m), m the larger maximum, for each row.  Where
 * one of the two has seen no key the result is the other, bit for bit. */
void attn_sums_merge(const struct attn_kernels *kernels, struct attn_sums total,
                     struct attn_sums sums, size_t rows, size_t dv);

/* ---- Units ---- */

/* R = tokens * heads rows; row r is query token t0 + r / heads of query head h0 + r % heads. */
struct attn_unit {
    const struct attn_kernels *kernels;
    const struct attn_gemm *gemm; /* for products of ATTN_GEMM_ROWS and more; NULL: not used */
    struct attn_pool *pool;       /* paused as `thread` */
    unsigned thread;
    const struct attn_problem *p;
    struct attn_head_tiles kv; /* keys and values of its group */
    size_t t0, tokens, h0, heads, rows;
    float *latent_floats;            /* [attn_latent_floats] of the thread */
    struct attn_latent_tile *latent; /* of the units computed together; NULL in other problems */
    float *weight_rows; /* [R][W] where weights are asked for beside the caller's map, else NULL */
    float *average;     /* [tokens][W] the mean over heads where that is to be pooled, else NULL */
    uint8_t *reachable; /* [S] of one row, where weight_rows is */

    /* Filled by attn_unit_layout: scratch. */
    float *q;       /* scaled: [R][attn_query_stride], or by columns [D][ATTN_TILE] */
    float *scores;  /* [R][ATTN_TILE], or by columns [ATTN_TILE][ATTN_TILE] */
    float *rescale; /* [R] */
    /* Rows of q and of weights prepared for products with int8 tiles: [R] each. */
    struct attn_prepared_row *prepared_queries, *prepared_weights;
    struct {
        float *q;        /* [R][attn_query_stride] scaled queries */
        float *by_query; /* [R][ATTN_RELATIVE_ROWS] their products with keys made of rows */
        float *rows;     /* [ATTN_TILE][attn_query_stride] queries made of rows, scaled */
        float *by_key;   /* [ATTN_RELATIVE_ROWS][ATTN_TILE] their products with keys */
        struct attn_prepared_row *prepared; /* [ATTN_TILE] */
    } relative;                             /* of products with relative rows, else not laid out */
    struct attn_sums sums;                  /* of the split being computed */
    struct attn_sums total;                 /* of the splits before it */

    /* Filled by the solving functions. */
    struct attn_span first_span, last_span; /* keys that its first and its last token see */
    size_t split;                           /* being computed */
    bool has_total;                         /* `total` holds the sums of a split */
};

/* Tiles of a split.  Keys are summed split by split; splits begin at fixed keys, and their sums are
 * merged in order by log-sum-exp.  A sum over 65,536 keys in one chain would lose a digit, and
 * threads can share the keys of one unit, a split each. */
#define ATTN_SPLIT_TILES 64

static inline size_t attn_splits(const struct attn_problem *p)
{
    return attn_ceil_div(attn_key_tiles(p), ATTN_SPLIT_TILES);
}

/* Floats of the sums of a unit over one split. */
static inline size_t attn_split_floats(const struct attn_problem *p)
{
    return attn_sums_floats(ATTN_TILE, p->value_head_dim);
}

/* Floats of scratch of a unit of at most `rows` rows; and giving that scratch to a
 * unit.  A unit that goes by columns needs the scratch of ATTN_TILE rows. */
size_t attn_unit_scratch_floats(const struct attn_problem *p, size_t rows);
void attn_unit_layout(struct attn_unit *u, float *scratch, size_t rows);

/* The query token and the query head of row r.  Divisions of 32 bits take a third of the time of
 * others. */
static inline size_t attn_unit_token(const struct attn_unit *u, size_t r)
{
    return u->t0 + (uint32_t)r / (uint32_t)u->heads;
}

static inline size_t attn_unit_head(const struct attn_unit *u, size_t r)
{
    return u->h0 + (uint32_t)r % (uint32_t)u->heads;
}

/* Whether the unit makes rows of weights; and where row r of them [W] is made: in the caller's map,
 * in weight_rows, or nowhere (NULL). */
static inline bool attn_unit_makes_weights(const struct attn_unit *u)
{
    return u->p->maps.weights != NULL || u->weight_rows != NULL;
}
float *attn_unit_weight_row(const struct attn_unit *u, size_t r);

/* Rows of a disentangled position bias that are multiplied at a time: in whole tiles, those of a
 * unit and a tile whose tokens follow each other. */
#define ATTN_RELATIVE_ROWS (3 * ATTN_TILE)

/* Adds the disentangled position bias of the problem to u->scores of a tile whose first key is
 * `first` (relative.c). */
void attn_unit_add_relative(const struct attn_unit *u, const struct attn_unit_tile *part,
                            size_t first);

/* ---- A tile by rows (rows.c) ---- */

/* Fills u->q with the scaled queries, row by row, for tiles of a dtype. */
void attn_unit_load_queries_by_rows(struct attn_unit *u, enum attn_dtype dtype);

/* Adds a tile, whose first key is `first`, to u->sums: scores, soft cap, mask (if `masked`), online
 * softmax, weighted sum.  Copies and keeps scores where maps want them. */
void attn_unit_add_tile_by_rows(struct attn_unit *u, const struct attn_unit_tile *part,
                                size_t first, bool masked);

/* ---- A tile by columns (columns.c) ---- */

/* Fills u->q with the scaled queries, transposed. */
void attn_unit_load_queries_by_columns(struct attn_unit *u);

/* Adds a tile, whose first key is `first`, to u->sums: one of which all rows see all keys, or, if
 * `masked`, each row its span. */
void attn_unit_add_tile_by_columns(struct attn_unit *u, const struct attn_unit_tile *part,
                                   size_t first, bool masked);

/* ---- Solving ---- */

/* Solves units of one problem and writes all results that the problem asks for.  The units have
 * either the same heads and consecutive tokens (equally many, but for the last unit), or the same
 * tokens and consecutive key/value heads.  Tile by tile all units are computed in turn, so a tile
 * that they share comes from memory once, and tiles that are neighbours come as one stream. */
void attn_units_solve(struct attn_unit units[], size_t count);

/* The same in two steps, for a unit of a problem without maps: the sums of each split, in any order
 * and by any thread, then merging all of them, which are attn_split_floats apart, and writing the
 * results.  The bits are those of attn_units_solve. */
void attn_unit_solve_split(struct attn_unit *u, size_t split, float *sums);
void attn_unit_merge(struct attn_unit *u, float *sums);

#endif
