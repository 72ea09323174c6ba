/* inspect_measure.h: what rounding weights and caches does to a checkpoint's outputs, measured. */
#ifndef SRV_INSPECT_MEASURE_H
#define SRV_INSPECT_MEASURE_H

#include "attn.h"
#include "base/buffer.h"

/* Computes each resident layer of `model`, which is not loaded and was opened from `path` with
 * `options`, with the dtypes of the options and in float32, over the same random rows, and prints a
 * line on how far the outputs are apart.  A layer that has no cache, or whose keys or values do not
 * fit its dtype, gets a line that says so.  One layer is in memory at a time, twice.  Errors: as
 * attn_model_load, attn_engine_open. */
ATTN_MUST_CHECK enum attn_status srv_inspect_measure(struct srv_buffer *out, const char *path,
                                                     const struct attn_model_options *options,
                                                     const struct attn_model *model,
                                                     struct attn_error *error);

#endif
