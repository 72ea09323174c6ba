/* decode.h: a batch of steps while it is computed. */
#ifndef ATTN_LIB_CALLS_DECODE_H
#define ATTN_LIB_CALLS_DECODE_H

#include <stdatomic.h>

#include "attention/attention.h"
#include "attention/latents.h"
#include "attn_state.h"

#define PRODUCTS 4 /* of a step at most: queries, keys, values, gates */

struct admitted {
    struct attn_step *step;
    struct attn_cache *cache;    /* the keys that it sees: the step's cache, or `again` */
    struct attn_cache *again;    /* of a repeated step whose own keys are forgotten; NULL */
    size_t row;                  /* index of its first row in the batch's buffers */
    bool append;                 /* its rows are new, not computed again */
    atomic_bool failed;          /* before attention, which is then not computed */
    atomic_bool kv_overflow;     /* failed because a key or value does not fit kv_dtype */
    atomic_bool output_overflow; /* the output is beyond bounds; set for steps with own products */
    const float *inv_freq;       /* [rope.dim/2], NULL without RoPE */
    int64_t *positions;          /* [S + T] where the mask needs positions, else NULL */
    struct attn_maps maps;
};

struct batch {
    struct attn_engine *engine;
    const struct attn_model *model;
    const struct attn_layer *layer;
    size_t layer_index, count;
    struct admitted *admitted; /* [count] */
    size_t output_rows;        /* of the steps that share the product of `output` */
    size_t shared_rows;        /* of the steps that share products, whose rows come first */
    size_t rows;               /* of all steps */
    float *x, *y;              /* [shared_rows][E], [output_rows][E]: hidden states, outputs */
    float *q, *k, *v, *o;      /* [rows][H*D], [rows][G*D], [rows][G*Dv], [rows][H*Dv]; G, D and Dv
                                  of k and v are those of the cache (attn_cached_sizes) */
    struct attn_layer_inputs in;     /* the maps that read hidden states */
    float *first;                    /* [rows][in.q->out]: q, or latents of queries */
    struct attn_latent_rows latents; /* of a latent layer */
    float *gate;                     /* [rows][H*Dv] of layers with a gate */
    struct attn_projection *products;
    struct attn_problem *problems;
    struct attn_appended *appended; /* [count] */
};

_Static_assert(sizeof(struct admitted) +
                       PRODUCTS *
                           (sizeof(struct attn_projection) + ATTN_QUANTIZED_ROWS_DESCRIPTOR_BYTES) +
                       sizeof(struct attn_problem) + sizeof(struct attn_appended) +
                       ATTN_POOLED_MAPS * sizeof(struct attn_pooling) + ATTN_ALIGN <=
                   ATTN_SEQUENCE_BYTES,
               "footprint.c counts ATTN_SEQUENCE_BYTES");

static inline bool shares_products(const struct attn_step *step)
{
    return step->rows <= ATTN_SHARED_ROWS;
}

/* The order of steps in the buffers. */
enum place { SHARED_WITH_OUTPUT, SHARED, ALONE, PLACES };

static inline enum place place_of(const struct attn_step *step)
{
    if (!shares_products(step))
        return ALONE;
    return step->outputs.output != NULL ? SHARED_WITH_OUTPUT : SHARED;
}

/* Checks all outputs of the batch, and copies those that are copies.  Errors are the steps'. */
void attn_decode_write_outputs(const struct batch *batch);

#endif
