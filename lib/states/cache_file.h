/* cache_file.h: the form of a cache's file, on which export.c and import.c agree; attn_state.h
 * describes it. */
#ifndef ATTN_LIB_STATES_CACHE_FILE_H
#define ATTN_LIB_STATES_CACHE_FILE_H

#include "attn_state.h"
#include "caches/kvcache.h"
#include "files/checksum.h"
#include "files/safetensors.h"

#define ATTN_CACHE_FILE_FORMAT "attn-cache-1"

/* The format of a cache whose windows have forgotten tokens: beside the lengths it notes the first
 * token of each layer. */
#define ATTN_CACHE_FILE_WINDOWS "attn-cache-2"

/* The two tensors of a layer, in the order of the file. */
enum attn_cache_file_kind { ATTN_CACHE_FILE_KEY = 0, ATTN_CACHE_FILE_VALUE = 1 };

/* A resident layer, in the order of layers.  Its tensors are [heads][length - first][row]. */
struct attn_cache_file_layer {
    size_t layer, first, length;
    const struct attn_layer_spec *spec;
    size_t heads, row_bytes[2]; /* of a token's key or value in one head, by kind */
};

/* Lists the resident layers of a model, with length 0.  *out is the caller's to attn_free.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_cache_file_layers(struct attn_cache_file_layer **out, size_t *count,
                                        const struct attn_model *model, struct attn_error *error);

/* Bytes of a whole tensor. */
size_t attn_cache_file_tensor_bytes(const struct attn_cache_file_layer *layer,
                                    enum attn_cache_file_kind kind);

/* Bytes of ATTN_TILE tokens of the largest layer, keys and values. */
size_t attn_cache_file_scratch_bytes(const struct attn_model *model);

/* Memory of the lists that attn_cache_file_layers and attn_cache_file_numbers make for the
 * model. */
size_t attn_cache_file_lists_bytes(const struct attn_model *model);

/* Writes the name of a tensor: "layers.3.key" or "layers.3.value". */
#define ATTN_CACHE_FILE_NAME 48
void attn_cache_file_tensor_name(char out[ATTN_CACHE_FILE_NAME],
                                 const struct attn_cache_file_layer *layer,
                                 enum attn_cache_file_kind kind);

/* Writes the lengths, or the first tokens, with blanks between them, as the notes `lengths` and
 * `first` have them.  *out is the caller's to attn_free.
 * Error: ATTN_NO_MEMORY. */
enum attn_status attn_cache_file_numbers(char **out, const struct attn_cache_file_layer *layers,
                                         size_t count, bool firsts, struct attn_error *error);

/* Reads the note `first`; false where it is not what is written for these layers, each first token
 * a multiple of ATTN_TILE. */
bool attn_cache_file_read_firsts(struct attn_cache_file_layer *layers, size_t count,
                                 const char *note);

/* Adds a note to the checksum: name, '=', value, line feed. */
void attn_cache_file_sum_note(struct attn_checksum *sum, const char *name, const char *value);

#endif
