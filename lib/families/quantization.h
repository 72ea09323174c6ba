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

/* The same from quantize_config.json of GPTQ or hf_quant_config.json of modelopt, where the
 * checkpoint has such a file, which is added to `sum`.
 * Errors: as above; ATTN_IO, ATTN_NO_MEMORY. */
enum attn_status attn_quantization_read_beside(struct attn_quantization *out,
                                               struct attn_checksum *sum,
                                               const struct attn_checkpoint *checkpoint,
                                               struct attn_error *error);

/* Finds the weight [rows][columns] `name`, which ends in ".weight", in its quantised form:
 * out->entry stays NULL where the checkpoint has no tensor of one.
 * Errors: ATTN_NOT_FOUND (a tensor of its form is missing), ATTN_SHAPE_MISMATCH, ATTN_UNSUPPORTED,
 * ATTN_OUT_OF_RANGE, ATTN_MALFORMED; those of reading tensors; ATTN_NO_MEMORY. */
enum attn_status attn_quantization_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                        const struct attn_quantization *quantization,
                                        const char *name, size_t rows, size_t columns,
                                        struct attn_error *error);

/* Whether the tensor `name` is one that the weight is in, or that is for activations which a format
 * would quantise and attnd does not. */
bool attn_quantization_has(const struct attn_quantized *weight, const char *name);

/* Whether a tensor is zeros that a writer of GPTQ stores as the bias of a layer that has none.
 * Errors: those of reading. */
enum attn_status attn_quantization_is_zero(bool *out, const struct attn_quantization *says,
                                           const struct attn_tensor *tensor,
                                           struct attn_error *error);

#endif
