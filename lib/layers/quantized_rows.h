/* quantized_rows.h: the rows of projections with int8 weights, as integers. */
#ifndef ATTN_LIB_LAYERS_QUANTIZED_ROWS_H
#define ATTN_LIB_LAYERS_QUANTIZED_ROWS_H

#include "layers/linear.h"

/* The rows of a projection, quantized for int8 weights.  An integer of 16 bits is two of 8, a high
 * one and a low one: each is a plane, a matrix of rows with scales of its own, and the product with
 * the weights is the sum of both planes' products. */
struct attn_quantized_rows {
    const struct attn_projection *projection;
    const struct attn_kernels *kernels;
    int8_t *x;    /* [planes][rows][ldx], zero beyond the row */
    float *scale; /* [planes][rows] */
    size_t ldx;
    size_t task_end; /* tasks of quantizing, up to the end of these rows */
};

/* Quantizes the rows of projections [count] on all threads, into the engine's workspace;
 * consecutive projections of the same rows share them.  Returns [count], NULL where memory is
 * short. */
struct attn_quantized_rows *attn_quantize_rows(struct attn_engine *engine,
                                               const struct attn_projection *projections,
                                               size_t count);

#endif
