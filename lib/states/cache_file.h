/* cache_file.h: the form of a cache's file, on which export.c and import.c agree; attn_state.h
 * describes it. */
#ifndef ATTN_LIB_STATES_CACHE_FILE_H
#define ATTN_LIB_STATES_CACHE_FILE_H

#include "attn_state.h"
#include "files/checksum.h"
#include "files/safetensors.h"

#define ATTN_CACHE_FILE_FORMAT "attn-cache-1"

/* The format of a cache whose windows have forgotten tokens: beside the lengths it notes the first
 * token of each layer. */
#define ATTN_CACHE_FILE_WINDOWS "attn-cache-2"

/* A resident layer, in the order of layers.  Its tensors have tokens [first, length). */
struct attn_cache_file_layer {
    size_t layer, first, length;
    const struct attn_layer_spec *spec;
};

/* Lists the resident layers of a model, with length 0.  *out is the caller's to attn_free.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_cache_file_layers(struct attn_cache_file_layer **out, size_t *count,
                                        const struct attn_model *model, struct attn_error *error);

/* The two tensors of a layer, in the order of the file. */
enum attn_cache_file_kind { ATTN_CACHE_FILE_KEY = 0, ATTN_CACHE_FILE_VALUE = 1 };

/* Bytes of one token's key or value in one head of the layer. */
size_t attn_cache_file_row_bytes(const struct attn_cache_file_layer *layer,
                                 enum attn_cache_file_kind kind);

/* Bytes of the whole tensor, [G][length - first][row]. */
size_t attn_cache_file_tensor_bytes(const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind);

/* Bytes of ATTN_TILE tokens of the largest layer, keys and values. */
size_t attn_cache_file_scratch_bytes(const struct attn_model *model);

/* Memory of the lists that attn_cache_file_layers, attn_cache_file_lengths and
 * attn_cache_file_firsts make for the model. */
size_t attn_cache_file_lists_bytes(const struct attn_model *model);

/* Writes the name of a tensor: "layers.3.key" or "layers.3.value". */
#define ATTN_CACHE_FILE_NAME 48
void attn_cache_file_tensor_name(char out[ATTN_CACHE_FILE_NAME],
                                 const struct attn_cache_file_layer *layer,
                                 enum attn_cache_file_kind kind);

/* Writes the lengths with blanks between them, as the note `lengths` has them.  *out is the
 * caller's to attn_free.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_cache_file_lengths(char **out, const struct attn_cache_file_layer *layers,
                                         size_t count, struct attn_error *error);

/* The same for the note `first`, and back; false where the note is not what is written for these
 * layers, each first token a multiple of ATTN_TILE. */
enum attn_status attn_cache_file_firsts(char **out, const struct attn_cache_file_layer *layers,
                                        size_t count, struct attn_error *error);
bool attn_cache_file_read_firsts(struct attn_cache_file_layer *layers, size_t count,
                                 const char *note);

/* Whether a layer has forgotten tokens: the file is of format ATTN_CACHE_FILE_WINDOWS. */
bool attn_cache_file_forgets(const struct attn_cache_file_layer *layers, size_t count);

/* Adds a note to the checksum: name, '=', value, line feed. */
void attn_cache_file_sum_note(struct attn_checksum *sum, const char *name, const char *value);

/* Ends the sum of a file's tensors with its notes and compares it with the note `checksum`.  Error:
 * ATTN_MALFORMED. */
enum attn_status attn_cache_file_check_sum(struct attn_checksum *sum,
                                           const struct attn_safetensors *file,
                                           struct attn_error *error);

/* As attn_import_verify. */
enum attn_status attn_cache_file_verify(struct attn_safetensors *file, struct attn_error *error);

#endif
