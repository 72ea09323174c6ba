/* gguf_model.h: GGUF files as the Hugging Face checkpoint that they were made from: its
 * configuration, the names of its tensors, and what the conversion changed in them.
 *
 * A model may be cut into splits, NAME-00001-of-00003.gguf and so on, each with a header of its
 * own; the first one has the keys.
 *
 * Source: the writers of llama.cpp (conversion/, gguf-py/gguf/constants.py) and its src/models. */
#ifndef ATTN_LIB_FILES_GGUF_MODEL_H
#define ATTN_LIB_FILES_GGUF_MODEL_H

#include "files/gguf.h"
#include "files/gguf_config.h"

/* A tensor under the name that it has in such a checkpoint. */
struct attn_gguf_named {
    const char *name; /* first: attn_sort_names; an allocation of its own */
    const struct attn_tensor_entry *entry;
};

/* Open files, their headers, and the names of the tensors; for readers to read.  config has the
 * text of the config.json that stands for the keys. */
struct attn_gguf_model {
    struct attn_gguf **splits; /* [num_splits] */
    size_t num_splits;
    struct attn_gguf_config config;
    struct attn_gguf_named *tensors; /* [num_tensors], by name */
    size_t num_tensors, names;       /* bytes that the names take */
    struct attn_gguf_joined *joined; /* [num_joined] */
    size_t num_joined;
};

/* Opens file `name` of a directory descriptor, and the other splits of a model whose first
 * it is.
 * Errors: those of attn_gguf_open; ATTN_MALFORMED (a key is missing or of another kind, a split
 * belongs to another model), ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED (the architecture),
 * ATTN_NO_MEMORY. */
enum attn_status attn_gguf_model_open(struct attn_gguf_model **out, int directory, const char *name,
                                      struct attn_error *error);
void attn_gguf_model_close(struct attn_gguf_model *model); /* takes NULL */

/* Memory that the model takes; 0 for NULL. */
size_t attn_gguf_model_memory(const struct attn_gguf_model *model);

/* Refuses a configuration of a model_type that the file's architecture does not stand for: its
 * numbers and names would be those of another family.  Error: ATTN_UNSUPPORTED. */
enum attn_status attn_gguf_model_check_type(const struct attn_gguf_model *model,
                                            const char *model_type, struct attn_error *error);

/* The tensor that has this name in such a checkpoint, or has no counterpart there and this name in
 * the file; NULL if there is none.  Borrowed. */
const struct attn_tensor_entry *attn_gguf_model_find(const struct attn_gguf_model *model,
                                                     const char *name);

/* Writes the name that a tensor of that name of Hugging Face's has in the file. */
void attn_gguf_model_name(char out[ATTN_SAFETENSORS_MAX_NAME], const struct attn_gguf_model *model,
                          const char *name);

/* As attn_gguf_read_f32, with the numbers that Hugging Face's checkpoint has: rows of queries and
 * keys in its order, norms without the 1 that Gemma adds, kv_b_proj whole. */
enum attn_status attn_gguf_model_read_f32(float *out, const struct attn_gguf_model *model,
                                          const struct attn_tensor_entry *entry, size_t first,
                                          size_t count, struct attn_error *error);

/* The descriptor of the file that an entry is in.  Borrowed. */
int attn_gguf_model_entry_file(const struct attn_gguf_model *model,
                               const struct attn_tensor_entry *entry);

#endif
