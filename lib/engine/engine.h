/* engine.h: the resources of a computation: kernels, threads, workspace, scratch, and the lock. */
#ifndef ATTN_LIB_ENGINE_ENGINE_H
#define ATTN_LIB_ENGINE_ENGINE_H

#include <pthread.h>

#include "attn.h"
#include "basics/mem.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "machine/pool.h"
#include "machine/workspace.h"

struct attn_engine {
    struct attn_kernels kernels;
    struct attn_pool *pool;
    enum attn_gemm_mode gemm_mode;
    struct attn_gemm gemm;          /* OpenBLAS; not loaded where no product goes through it */
    size_t gemm_project_rows;       /* of a projection that does, at least; SIZE_MAX: none does */
    bool gemm_attends;              /* whether products of attention of ATTN_GEMM_ROWS or more do */
    struct attn_error gemm_missing; /* why it was not loaded, though the mode asks for it */
    pthread_mutex_t lock;           /* one computation at a time; guards all fields below */
    struct attn_workspace workspace; /* of the call that computes */
    float *scratch;                  /* [threads][ATTN_SCRATCH_FLOATS], of the same call */
    /* Memory for the calls inside each further yield; while it runs, that of the calls outside. */
    struct attn_engine_memory {
        struct attn_workspace workspace;
        float *scratch;
    } spare[ATTN_YIELD_LEVELS - 1];
    size_t call_bytes, yield_call_bytes; /* the options */
    /* Of the call of each level, or NULL. */
    const struct attn_yield *yields[ATTN_YIELD_LEVELS];
    struct attn_yield pool_yield; /* the pool's: exchanges the memory around the caller's */
};

/* Floats of scratch of each thread: as many as a block of a product needs, or ATTN_TASK_UNITS units
 * of attention with heads 512 wide, which is fewer units with wider heads. */
#define ATTN_UNIT_SCRATCH(width) ((size_t)64 * (3 * (width) + 64 + 13))
#define ATTN_TASK_UNITS 4 /* units of ATTN_TILE rows that a task computes together, at most */
#define ATTN_UNITS_SCRATCH (ATTN_TASK_UNITS * ATTN_UNIT_SCRATCH(512))
#define ATTN_SCRATCH_FLOATS attn_max(ATTN_UNITS_SCRATCH, ATTN_PRODUCT_SCRATCH)
_Static_assert(ATTN_UNIT_SCRATCH(ATTN_MAX_HEAD_DIM) <= ATTN_UNITS_SCRATCH,
               "a unit with the widest heads has room");
_Static_assert(ATTN_GEMM_SCRATCH <= ATTN_UNITS_SCRATCH, "a block for OpenBLAS has room too");

/* Whether an engine of such options loads OpenBLAS. */
bool attn_engine_uses_openblas(const struct attn_engine_options *options);

/* Begins a call: takes the lock, sets the yield that its pauses ask (NULL: none) and bounds its
 * memory.  A call may be made inside a yield, on the same thread. */
void attn_engine_lock(struct attn_engine *engine, const struct attn_yield *yield);

/* Ends a call: gives back the workspace's memory and releases the lock. */
void attn_engine_unlock(struct attn_engine *engine);

/* Whether a yield has cancelled the call; its results are then void.  If so fills *error, which may
 * be NULL. */
bool attn_engine_cancelled(const struct attn_engine *engine, struct attn_error *error);

/* Whether |x[i]| <= limit for all of x [n], computed on all threads; false where one is NaN. */
bool attn_engine_all_within(struct attn_engine *engine, const float *x, size_t n, float limit);

/* Checks an input of n floats on all threads.  The caller holds the engine's lock.  Errors:
 * ATTN_NON_FINITE, which names the first element at fault. */
enum attn_status attn_input_check(struct attn_engine *engine, const float *x, size_t n,
                                  const char *param, struct attn_error *error);

#endif
