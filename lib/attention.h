/* attention.h: the core algorithm, the same for every call.
 *
 * A problem is one sequence: queries of T tokens and H heads against keys and values of S tokens
 * and G heads.  Self-attention, cross-attention and weightless attention bring rows, which are made
 * into tiles on the way; steps over a cache bring its blocks, which are tiles already. */
#ifndef ATTN_LIB_ATTENTION_H
#define ATTN_LIB_ATTENTION_H

#include "engine.h"
#include "kvcache.h"
#include "maps.h"
#include "mask.h"
#include "tile.h"

/* Rows [token][head][width], by their strides in floats. */
struct attn_rows {
    float *data;
    size_t token, head;
};

/* Memory of a solution: tiles of keys and values that are made at a time, where one head's do not
 * take more; rows of weights that a thread keeps, where one does not take more; sums of stretches
 * of keys, at most; and the list of heads. */
#define ATTN_PACK_BYTES ((size_t)8 << 20)
#define ATTN_WEIGHT_ROWS_FLOATS ((size_t)2 << 20)
#define ATTN_SPLITS_FLOATS ((size_t)2 << 20)
#define ATTN_ITEM_BYTES ((size_t)120)

/* What a sequence of a call or a step of a batch takes beside its rows (attend.c, decode.c). */
#define ATTN_SEQUENCE_BYTES ((size_t)1280)

struct attn_problem {
    size_t queries, keys;                                     /* T, S */
    size_t num_heads, num_kv_heads, head_dim, value_head_dim; /* H, G, D, Dv */
    struct attn_rows q;                                       /* [T][H][D] rotated, not scaled */
    struct attn_cache_view cache; /* blocks NULL: k and v below instead */
    struct attn_rows k, v;        /* [S][G][D], [S][G][Dv] */
    float *extra_k, *extra_v;     /* tile of keys that stand last and are never masked */
    size_t extra;                 /* its columns in use */
    struct attn_mask mask;
    size_t first_key; /* that is no padding; only where maps have head_stats */
    float scale;
    float softcap;          /* 0: none */
    const float *sinks;     /* [H] or NULL */
    const float *head_mask; /* [H] or NULL */
    struct attn_rows out;   /* [T][H][Dv]; data NULL: not wanted */
    struct attn_maps maps;  /* columns = S + extra */
    float *lse;             /* [H][T] or NULL */
    bool invariant;         /* bits that do not depend on T: not through OpenBLAS */
};

/* Solves `count` problems on all threads of the engine, whose lock the caller holds.  All inputs
 * are within ATTN_MAX_MAGNITUDE.  Errors: ATTN_NO_MEMORY; whether the
 * call was cancelled is the engine's to say. */
enum attn_status attn_solve(struct attn_engine *engine, const struct attn_problem *problems,
                            size_t count);

#endif
