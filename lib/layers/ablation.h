/* ablation.h: how much a layer's output changes without each of its heads. */
#ifndef ATTN_LIB_LAYERS_ABLATION_H
#define ATTN_LIB_LAYERS_ABLATION_H

#include "layers/layer.h"

/* Rows of a layer before and after its output projection. */
struct attn_ablated {
    const struct attn_layer *layer;
    const float *concat;       /* [sequences][T][H*Dv], after head_mask */
    const float *output;       /* [sequences][T][E], or NULL: it is computed */
    size_t sequences, queries; /* sequences, T */
};

/* Fills ablation [sequences][H]: the Frobenius norm of what a head adds to the output of a
 * sequence, concat_h Wo_h, relative to that of the output, bias included; 0 where the output is all
 * 0, at most FLT_MAX.  The projection is linear, so that is the change of the output without the
 * head.  With int8 weights the head's rows are quantized on their own, by their own largest number.
 *
 * Squares are summed in double in the order of rows and columns, so neither threads nor other
 * sequences change the bits.  Cost: an output projection for all heads together, in
 * ATTN_ABLATED_ROWS rows of one head at a time, and one more where `output` is NULL; memory of so
 * many rows of E and of 2 Dv from the engine's workspace, whose lock the caller holds.  Pauses as
 * projections do; a cancelled call returns ATTN_OK.  Errors: ATTN_NO_MEMORY, ATTN_OVERFLOW. */
#define ATTN_ABLATED_ROWS 256
ATTN_MUST_CHECK enum attn_status attn_ablate(double *ablation, struct attn_engine *engine,
                                             const struct attn_ablated *ablated,
                                             struct attn_error *error);

#endif
