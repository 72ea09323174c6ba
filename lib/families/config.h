/* config.h: a JSON configuration -> the specification of each layer. */
#ifndef ATTN_LIB_FAMILIES_CONFIG_H
#define ATTN_LIB_FAMILIES_CONFIG_H

#include "attn.h"
#include "families/family.h"

#define ATTN_CONFIG_LISTS 4 /* short and long factors, for full and for sliding layers */

/* A configuration as it resolves.  The struct points into itself, so it must not be copied or
 * moved. */
struct attn_config {
    const struct attn_family *family;
    struct attn_hf_config hf; /* as it is read */
    size_t num_layers;
    size_t max_position;     /* 0: the configuration sets none */
    enum attn_layout layout; /* of weights: the family's, or as the configuration says */
    bool says_layout;        /* the configuration says it */
    bool is_wrapped;         /* it is of a model inside a model of several */
    bool is_vision;          /* that one is the model of images */
    /* By enum attn_layer_type: the specification that layers of one type have in common;
     * attn_config_layer_spec adds the rest. */
    struct attn_layer_spec specs[ATTN_LAYER_LINEAR];
    uint8_t types[ATTN_MAX_LAYERS];      /* enum attn_layer_type */
    bool is_listed[ATTN_MAX_LAYERS];     /* in a list of full layers */
    bool rotates[ATTN_MAX_LAYERS];       /* false: a layer without RoPE */
    bool differs[ATTN_MAX_LAYERS];       /* layers that a key of kind PER_LAYER names */
    bool crosses[ATTN_MAX_LAYERS];       /* where num_cross_layers is not 0: the layers listed */
    bool dense[ATTN_MAX_LAYERS];         /* by mlp_layer_types */
    double rope_thetas[ATTN_MAX_LAYERS]; /* where hf.num_rope_thetas */
    double partials[ATTN_MAX_LAYERS];    /* where hf.num_partials */
    size_t heads[ATTN_MAX_LAYERS];       /* where hf.num_layer_heads */
    size_t sharers[ATTN_MAX_LAYERS];     /* query heads of a key/value head; 0: as in all */
    size_t windows[ATTN_MAX_LAYERS];     /* where hf.num_layer_windows */
    double factors[ATTN_CONFIG_LISTS][ATTN_MAX_HEAD_DIM / 2]; /* of longrope */
    size_t num_lists;
};

/* How a configuration is read; NULL: as with none of these. */
struct attn_config_options {
    const struct attn_family *family; /* NULL: that of its model_type and of `stack` */
    const char *stack;                /* NULL: the one of its class, or the default one */
    const char *ignore_keys; /* that are not understood and passed over, with blanks between */
};

/* Resolves `text`, a JSON object of `length` bytes.  A key that is not understood is refused by
 * name, in error->param; so is one of ignore_keys that changes what some family computes.
 * Errors: ATTN_MALFORMED (not JSON; a value missing, of the wrong type, or two that contradict each
 * other), ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED, ATTN_NO_MEMORY. */
enum attn_status attn_config_read(struct attn_config *out,
                                  const struct attn_config_options *options, const char *text,
                                  size_t length, struct attn_error *error);

/* The i-th prefix of tensor names, '*' in it being an index; false after the last.  Inside a model
 * of several the names have that of the part before those of the family. */
#define ATTN_PREFIX_MAX 64
bool attn_config_prefix(char out[ATTN_PREFIX_MAX], const struct attn_config *config, size_t i);

/* The index of layer `layer` among those that have tensors: its own, or that of its group. */
size_t attn_config_tensor_index(const struct attn_config *config, size_t layer);

/* Whether layer `layer`, which must exist, is attention of this stack. */
static inline bool attn_config_attends(const struct attn_config *config, size_t layer)
{
    return config->types[layer] < ATTN_LAYER_LINEAR;
}

/* The specification of layer `layer`, which must exist and be attention.  *out borrows
 * from the configuration. */
void attn_config_layer_spec(struct attn_layer_spec *out, const struct attn_config *config,
                            size_t layer);

#endif
