/* attn_self_check.h: batch invariance, proved on the machine at hand.
 *
 * Notation, errors, ownership and threads are those of attn.h. */
#ifndef ATTN_SELF_CHECK_H
#define ATTN_SELF_CHECK_H

#include "attn.h"

/* What was compared, and the first difference. */
struct attn_self_check {
    bool same;          /* no bit differed */
    size_t layer;       /* the first that keeps a cache; where there is none all is 0, and same */
    size_t steps, rows; /* of the batch */
    size_t length;      /* tokens in the longest cache */
    unsigned threads;   /* of the engine */
    size_t step_rows; /* where bits differ: the step's rows, the tokens in its cache, and whether */
    size_t step_length; /* it was then in the batch; alone it was on other threads */
    bool in_batch;
};

/* Computes steps over a layer of the model alone on one thread, then together and alone on all
 * threads of the engine, and compares outputs bit by bit: what attn_decode promises of them.  Rows
 * and caches are random, of sizes that take kernels through their whole tiles and their remainders.
 * It reads the layer's weights five times, and takes up to 16 MiB beside them while it lasts.
 * Errors: ATTN_NO_MEMORY; no error is returned for a difference. */
ATTN_MUST_CHECK enum attn_status attn_self_check(struct attn_self_check *out,
                                                 struct attn_engine *engine,
                                                 const struct attn_model *model,
                                                 struct attn_error *error);

#endif
