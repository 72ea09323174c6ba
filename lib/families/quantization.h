/* quantization.h: weights that a checkpoint keeps quantised: what the configuration says of them,
 * and the tensors of each. */
#ifndef ATTN_LIB_FAMILIES_QUANTIZATION_H
#define ATTN_LIB_FAMILIES_QUANTIZATION_H

#include <jansson.h>

#include "families/family.h"
#include "layers/checkpoint.h"

/* Reads quantization_config, or `quantization` of MLX, whose quant_method is then "mlx".  What is
 * not known there is refused only where a weight needs it.
 * Errors: ATTN_MALFORMED, ATTN_UNSUPPORTED. */
enum attn_status attn_quantization_read(struct attn_quantization *out, const char *key,
                                        const json_t *value, struct attn_error *error);

/* Finds the weight [rows][columns] `name`, which ends in ".weight", in its quantised form:
 * out->entry stays NULL where the checkpoint has no tensor of one.
 * Errors: ATTN_NOT_FOUND (a tensor of its form is missing), ATTN_SHAPE_MISMATCH, ATTN_UNSUPPORTED,
 * ATTN_OUT_OF_RANGE, ATTN_MALFORMED; those of reading tensors; ATTN_NO_MEMORY. */
enum attn_status attn_quantization_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                        const struct attn_quantization *quantization,
                                        const char *name, size_t rows, size_t columns,
                                        struct attn_error *error);

/* The name of the weight to which a tensor of this name would belong: "...q_proj.scales" to
 * "...q_proj.weight".  False where it is no tensor of a quantised form. */
bool attn_quantization_weight(char *out, size_t size, const char *name);

#endif
