/* family_config.h: a JSON configuration -> the specification of its layers. */
#ifndef ATTN_LIB_FAMILY_CONFIG_H
#define ATTN_LIB_FAMILY_CONFIG_H

#include "attn.h"
#include "family.h"

struct attn_config {
    const struct attn_family *family;
    size_t num_layers;
    size_t max_position;         /* 0: the configuration sets none */
    uint64_t seed;               /* random weights only */
    struct attn_layer_spec spec; /* of every layer */
};

/* Resolves `text`, a JSON object of `length` bytes.  family NULL: the one of its model_type.
 * Every key is understood or refused by name, in error->param.
 * Errors: ATTN_MALFORMED (not JSON; a value missing, of the wrong type, or two that contradict
 * each other), ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED, ATTN_NO_MEMORY. */
enum attn_status attn_config_read(struct attn_config *out, const struct attn_family *family,
                                  const char *text, size_t length, struct attn_error *error);

#endif
