/* work.h: a shape made ready to run: model, inputs, filled caches, room for the output.
 *
 * All numbers come from counter-based streams, so a check of the result generates the same inputs
 * again without any value from the library. */
#ifndef TESTS_BENCH_WORK_H
#define TESTS_BENCH_WORK_H

#include "attn.h"
#include "shapes.h"

struct bench_work {
    const struct bench_shape *shape;
    const struct bench_dtype *dtype;
    size_t context; /* decode: tokens cached at present */
    struct attn_model *model;
    struct attn_cache_pool *pool;
    struct attn_cache **caches; /* [batch] */
    struct attn_step *steps;    /* [batch] */
    struct attn_step **list;    /* [batch] to them */
    float *x;                   /* [batch][T][E]; decode [batch][E]; core: query [H][T][D] */
    float *key, *value;         /* core: [G][T][D]; decode without weights: [batch][G][D] */
    float *out;                 /* as x */
    size_t size;                /* floats of x and out */
};

#define BENCH_SEED 1

/* Makes the shape ready; fails through bench_die.  The engine's threads fill inputs and caches. */
void bench_work_open(struct bench_work *out, const struct bench_shape *shape,
                     const struct bench_dtype *dtype, struct attn_engine *engine);
void bench_work_close(struct bench_work *work);

/* Makes one call and returns its seconds.  A decode is committed, and undone after it is timed. */
double bench_work_run(struct bench_work *work, struct attn_engine *engine);

/* Shortens all caches to `context` tokens for later runs. */
void bench_work_shorten(struct bench_work *work, size_t context);

/* The key [G][D] of a cached token followed by its value [G][D], or the latent and the shared part
 * of a latent layer: bench_cached_width floats. */
void bench_cached_row(float *out, const struct bench_layer *layer, size_t session, size_t token);

#endif
