/* engine.h: what a computation needs besides its data: kernels, threads, scratch, a lock. */
#ifndef ATTN_LIB_ENGINE_H
#define ATTN_LIB_ENGINE_H

#include <pthread.h>

#include "attn.h"
#include "gemm.h"
#include "kernels/kernels.h"
#include "mem.h"
#include "pool.h"
#include "workspace.h"

struct attn_engine {
    struct attn_kernels kernels;
    struct attn_pool *pool;
    enum attn_cpu_level level;
    enum attn_gemm_mode gemm_mode;
    struct attn_gemm gemm;          /* OpenBLAS; not loaded where no product goes through it */
    size_t gemm_project_rows;       /* of a projection that does, at least; SIZE_MAX: none does */
    bool gemm_attends;              /* whether products of attention of ATTN_GEMM_ROWS or more do */
    struct attn_error gemm_missing; /* why it was not loaded, though the mode asks for it */
    pthread_mutex_t lock;           /* one computation at a time; guards what follows */
    struct attn_workspace workspace; /* of the call that computes */
    float *scratch; /* [threads][ATTN_SCRATCH_FLOATS] likewise: tasks are told where it is */
    /* Of a call inside a pause, which exchanges them with those above. */
    struct attn_workspace spare;
    float *spare_scratch;
    const struct attn_yield *yield; /* the caller's, or NULL */
    struct attn_yield pauses;       /* the pool's: changes workspace and scratch around it */
};

/* Floats of scratch for each thread: what one block of a product needs, or its units
 * of attention at the widest heads. */
#define ATTN_UNIT_SCRATCH ((size_t)64 * (3 * ATTN_MAX_HEAD_DIM + 64 + 13))
#define ATTN_TASK_UNITS 4 /* units of attention of ATTN_TILE rows at a time, at most */
#define ATTN_SCRATCH_FLOATS attn_max(ATTN_TASK_UNITS *ATTN_UNIT_SCRATCH, ATTN_PRODUCT_SCRATCH)
_Static_assert(ATTN_GEMM_SCRATCH <= ATTN_TASK_UNITS * ATTN_UNIT_SCRATCH,
               "a block for OpenBLAS has room too");

/* Whether an engine of such options loads OpenBLAS. */
bool attn_engine_uses_openblas(const struct attn_engine_options *options);

/* Begins a call, which gives way to `yield` (NULL: to nothing) at its pauses.  A call inside one
 * comes in on the same thread, and has no pauses of its own. */
void attn_engine_lock(struct attn_engine *engine, const struct attn_yield *yield);

/* Gives the workspace back and lets the next call in. */
void attn_engine_unlock(struct attn_engine *engine);

/* Whether the call was told to stop at a pause: what it has computed since is void.  Fills *error
 * then, which may be NULL. */
bool attn_engine_cancelled(const struct attn_engine *engine, struct attn_error *error);

/* Whether x [n] is within +-limit throughout, without NaN, on all threads. */
bool attn_engine_all_within(struct attn_engine *engine, const float *x, size_t n, float limit);

#endif
