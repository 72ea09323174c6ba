/* internal.h: the members of a model, for the files that open, load and map it. */
#ifndef ATTN_LIB_MODELS_INTERNAL_H
#define ATTN_LIB_MODELS_INTERNAL_H

#include "families/config.h"
#include "layers/checkpoint.h"
#include "layers/weights_file.h"
#include "models/model.h"

#define NOT_RESIDENT SIZE_MAX

struct attn_model {
    struct attn_config config;
    struct attn_checkpoint *checkpoint; /* NULL: random weights, or the model is loaded */
    char weights_dtype[32];             /* a copy: the checkpoint's own ends with it */
    size_t num_resident;
    size_t *indices;               /* [num_resident] the layers, ascending */
    size_t *index_of;              /* [config.num_layers] layer -> index among the resident ones,
                                      or NOT_RESIDENT */
    struct attn_layer_spec *specs; /* [num_resident], borrowing from config */
    struct attn_layer *layers;     /* [num_resident], zeroed until loaded; see weights_of */
    bool loaded;
    unsigned threads; /* these three: of attn_model_options */
    attn_load_progress *progress;
    void *progress_context;
    char fingerprint[17];
    char config_sum[ATTN_CHECKSUM_DIGITS]; /* of the configuration's text */
    struct attn_weights_file mapped;       /* what the layers' arrays point into; zeroed: they are
                                              memory of their own */
    int directory;                         /* where that file is, and its name */
    char weights_name[ATTN_WEIGHTS_NAME_MAX];
};

/* The resident layer that holds the weights of `resident`: the first one of those that share their
 * tensors, else itself. */
size_t attn_model_weights_of(const struct attn_model *model, size_t resident);

/* Error: ATTN_NOT_FOUND, where the model was opened from its configuration alone. */
enum attn_status attn_model_check_weights(const struct attn_model *model, struct attn_error *error);

/* Loads, hashes and packs every layer that has weights of its own, in order, and takes the
 * fingerprint.  Where `loaded` is given, each packed layer is handed to it; false ends the loading.
 * No layer is resident after an error.  Errors: those of attn_model_load. */
typedef bool attn_layer_loaded(void *context, struct attn_layer *layer);
enum attn_status attn_model_load_layers(struct attn_model *model, attn_layer_loaded *loaded,
                                        void *context, struct attn_error *error);
size_t attn_model_loading_threads(const struct attn_model *model); /* that it asks for */
void attn_model_unload(struct attn_model *model); /* frees layers, and ends the mapping */
void attn_model_loaded(struct attn_model *model); /* closes the checkpoint */

/* An attn_visit that leaves NULL in place of an array. */
void *attn_forget_array(void *context, void *array, size_t bytes);

#endif
