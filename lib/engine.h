/* engine.h: what a computation needs besides its data: kernels, threads, scratch, a lock. */
#ifndef ATTN_LIB_ENGINE_H
#define ATTN_LIB_ENGINE_H

#include <pthread.h>

#include "attn.h"
#include "kernels.h"
#include "mem.h"
#include "pool.h"
#include "workspace.h"

struct attn_engine {
    struct attn_kernels kernels;
    struct attn_pool *pool;
    enum attn_cpu_level level;
    pthread_mutex_t lock;            /* one computation at a time; guards what follows */
    struct attn_workspace workspace; /* of the call that holds the lock */
    float *scratch;                  /* [threads][ATTN_SCRATCH_FLOATS], see attention.c */
    float *kept;                     /* [threads][kept_stride] rows of weights, in the workspace */
    size_t kept_stride;
};

/* Floats of scratch for each thread: what one block of a product needs, or its units
 * of attention at the widest heads. */
#define ATTN_TILE_SCRATCH ((size_t)64 * (2 * ATTN_MAX_HEAD_DIM + 64 + 4))
#define ATTN_TOGETHER 4 /* units of attention at a time, at most */
#define ATTN_SCRATCH_FLOATS attn_max(ATTN_TOGETHER *ATTN_TILE_SCRATCH, ATTN_PRODUCT_SCRATCH)

void attn_engine_lock(struct attn_engine *engine);

/* Gives the workspace back and lets the next call in. */
void attn_engine_unlock(struct attn_engine *engine);

#endif
