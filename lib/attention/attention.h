/* attention.h: the core algorithm, the same for every call.
 *
 * A problem is one sequence: queries of T tokens and H heads against keys and values of S tokens
 * and G heads.  Self-attention, cross-attention and weightless attention bring rows of keys and
 * values, which are filled into tiles on the way.  Steps over a cache bring its blocks, which hold
 * tiles already. */
#ifndef ATTN_LIB_ATTENTION_ATTENTION_H
#define ATTN_LIB_ATTENTION_ATTENTION_H

#include "basics/tile.h"
#include "caches/kvcache.h"
#include "engine/engine.h"
#include "engine/maps.h"
#include "engine/mask.h"
#include "layers/relative.h"

/* Rows [token][head][width]; `token` and `head` are their strides in floats. */
struct attn_rows {
    float *data;
    size_t token, head;
};

/* Bounds on the memory of a solution.  calls/footprint.c adds them up. */
#define ATTN_TILES_BYTES ((size_t)8 << 20)   /* tiles filled at a time, or those of one head */
#define ATTN_SPLITS_FLOATS ((size_t)2 << 20) /* sums of splits of keys, of all threads */
#define ATTN_HEAD_RANGE_BYTES ((size_t)120)  /* for each key/value head of each problem */

/* Bytes of a sequence of a call, or a step of a batch, beside its rows and products, and of one
 * product (calls/decode.c). */
#define ATTN_SEQUENCE_BYTES ((size_t)1568)
#define ATTN_PRODUCT_BYTES ((size_t)144)

struct attn_problem {
    size_t queries, keys;                                     /* T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim; /* H, G, D, Dv */
    struct attn_rows q;                                       /* [T][H][D] rotated, not scaled */
    struct attn_cache_view cache; /* keys and values; blocks NULL: k and v below instead */
    struct attn_rows k, v;        /* [S][G][D], [S][G][Dv] */
    /* Key/value head g has the values of head first_value_head + g % value_heads; value_heads 0:
     * its own. */
    size_t first_value_head, value_heads;
    float *extra_k, *extra_v; /* a tile of keys after all others, never masked */
    size_t extra;             /* its columns in use */
    struct attn_mask mask;
    /* Of an indexer: queries [T][I][head_dim], weights [T][I], and, where the problem has no cache,
     * the first key, as far from the next as rows of values are; NULL in other layers. */
    const float *index_q, *index_w, *index_k;
    const struct attn_relative *relative; /* of a disentangled position bias, else NULL */
    size_t first_key; /* the first key that is not padding; only where maps have head_stats */
    float scale;
    float softcap;          /* 0: none */
    const float *sinks;     /* [H] or NULL */
    const float *head_mask; /* [H] or NULL */
    struct attn_rows out;   /* [T][H][Dv]; data NULL: not wanted */
    struct attn_maps maps;  /* columns = S + extra */
    float *lse;             /* [H][T] or NULL */
    bool invariant;         /* bits that do not depend on T: not through OpenBLAS */
    bool pairs;             /* rows of keys and values are multiplied as pairs of bf16 */
};

/* Solves `count` problems on all threads of the engine, whose lock the caller holds.  All inputs
 * must be within ATTN_MAX_MAGNITUDE.  Cost: O(T S H (D + Dv)) of each problem, less what masks hide
 * by whole tiles; nothing where out, lse and maps are not wanted.  Errors: ATTN_NO_MEMORY.  A
 * cancelled call returns ATTN_OK: the caller then asks attn_engine_cancelled. */
enum attn_status attn_solve(struct attn_engine *engine, const struct attn_problem *problems,
                            size_t count);

#endif
