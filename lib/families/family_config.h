/* family_config.h: a JSON configuration -> the specification of its layers. */
#ifndef ATTN_LIB_FAMILY_CONFIG_H
#define ATTN_LIB_FAMILY_CONFIG_H

#include "attn.h"
#include "families/family.h"

#define ATTN_CONFIG_LISTS 4 /* short and long factors for two types of layers */

/* What a configuration resolves to.  It points into itself, so it stays where it was read. */
struct attn_config {
    const struct attn_family *family;
    size_t num_layers;
    size_t max_position; /* 0: the configuration sets none */
    uint64_t seed;       /* random weights only */
    struct attn_layer_spec
        spec; /* what layers have in common; the rest is attn_config_layer_spec's */
    struct attn_rope_spec rope[2]; /* of layers that attend in full, and of those that slide */
    size_t sliding_window;         /* of those that slide; 0: none */
    bool scale_by_layer;           /* layer l's scale is divided by l + 1 */
    bool sliding[ATTN_MAX_LAYERS];
    double factors[ATTN_CONFIG_LISTS][ATTN_MAX_HEAD_DIM / 2]; /* of longrope */
    size_t num_lists;
};

/* Resolves `text`, a JSON object of `length` bytes.  family NULL: the one of its model_type and
 * `stack`, which is NULL for the default one.  Every key is understood or refused by name, in
 * error->param.
 * Errors: ATTN_MALFORMED (not JSON; a value missing, of the wrong type, or two that contradict
 * each other), ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED, ATTN_NO_MEMORY. */
enum attn_status attn_config_read(struct attn_config *out, const struct attn_family *family,
                                  const char *stack, const char *text, size_t length,
                                  struct attn_error *error);

/* The specification of layer `layer`, which exists; it borrows from the configuration. */
void attn_config_layer_spec(struct attn_layer_spec *out, const struct attn_config *config,
                            size_t layer);

#endif
