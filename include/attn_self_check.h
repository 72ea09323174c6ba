/* attn_self_check.h: batch invariance, proved on the machine at hand.
 *
 * attn_decode promises that the bits of a step's results depend neither on the other steps of its
 * batch nor on the number of threads.  The proof covers CPU, compiler and kernels that came
 * together in this process; whether results are right is for the test suites to say.  Notation,
 * errors, ownership and threads are those of attn.h. */
#ifndef ATTN_SELF_CHECK_H
#define ATTN_SELF_CHECK_H

#include "attn.h"

/* The steps that were compared, and the first difference. */
struct attn_self_check {
    bool same;          /* no bit differed */
    size_t layer;       /* the first layer that keeps a cache; a model without one is `same`, and
                           all else is 0 */
    size_t steps, rows; /* of the batch */
    size_t length;      /* tokens in the longest cache */
    unsigned threads;   /* of the engine */
    size_t step_rows;   /* of the step whose bits differ */
    size_t step_length; /* tokens in its cache */
    bool is_noted;      /* nothing was computed: the note of the mapped file of weights says that
                           steps were the same before, with this CPU, build, level and threads */
    bool in_batch;      /* it differed in the batch; false: alone, on all threads */
};

/* Computes steps over one layer of a loaded model: each alone on one thread, then all in one batch
 * and one of them alone on all threads of the engine, and compares the outputs bit by bit.  Rows
 * and caches are random, of sizes that take kernels through their whole tiles and their remainders.
 * A difference is no error: out->same is false then.  Of mapped weights (attn_model_load_cached)
 * the result is noted beside the file and found there the next time.  The engine is held as by
 * attn_decode.
 * Cost: the layer's weights are read five times; up to 16 MiB are taken while the call lasts.
 * Error: ATTN_NO_MEMORY. */
ATTN_MUST_CHECK enum attn_status attn_self_check(struct attn_self_check *out,
                                                 struct attn_engine *engine,
                                                 const struct attn_model *model,
                                                 struct attn_error *error);

#endif
