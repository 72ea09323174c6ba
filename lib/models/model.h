/* model.h: the resident layers of a model, for the rest of the library.
 *
 * A layer has the number that the checkpoint gives it.  A resident layer also has an index, 0 to
 * attn_model_num_resident - 1, in the same order. */
#ifndef ATTN_LIB_MODELS_MODEL_H
#define ATTN_LIB_MODELS_MODEL_H

#include "attn.h"
#include "files/checksum.h"
#include "layers/layer.h"

/* The layer with its weights; NULL where the layer is not resident or the model is not loaded. */
const struct attn_layer *attn_model_loaded_layer(const struct attn_model *model, size_t layer);

size_t attn_model_num_resident(const struct attn_model *model);

/* The index of a layer among the resident ones, SIZE_MAX where it is not resident. */
size_t attn_model_resident_index(const struct attn_model *model, size_t layer);

/* The specification of a resident layer, NULL beyond the last. */
const struct attn_layer_spec *attn_model_resident_spec(const struct attn_model *model,
                                                       size_t resident);

/* The checksum of the file that the weights are pages of, in ATTN_CHECKSUM_DIGITS digits; NULL
 * where they are memory of this process.  Of such a file: whether its note has that line; adding
 * one (layers/weights_file.h). */
const char *attn_model_mapped_checksum(const struct attn_model *model);
bool attn_model_noted(const struct attn_model *model, const char *fact,
                      const char digest[ATTN_CHECKSUM_DIGITS]);
void attn_model_note(const struct attn_model *model, const char *fact,
                     const char digest[ATTN_CHECKSUM_DIGITS]);

/* Memory that is taken until the model is loaded: of the headers of the checkpoint's files, and of
 * threads that decode quantised weights. */
size_t attn_model_headers_memory(const struct attn_model *model);

#endif
