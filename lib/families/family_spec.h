/* family_spec.h: what a configuration says -> what its layers are, between the files that do
 * it. */
#ifndef ATTN_LIB_FAMILY_SPEC_H
#define ATTN_LIB_FAMILY_SPEC_H

#include "families/family_config.h"

/* Fills all of *config but family, sliding (where layer types were given) and factors, which
 * reading has filled.  Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
enum attn_status attn_config_from_hf(struct attn_config *config, const struct attn_hf_config *hf,
                                     struct attn_error *error);

/* *out = RoPE of heads of width head_dim, as `rope` has it, which is one of the two of `settings`.
 * Errors: as above. */
enum attn_status attn_rope_from_hf(struct attn_rope_spec *out, const struct attn_family *family,
                                   const struct attn_hf_config *hf, const struct attn_hf_rope *rope,
                                   size_t head_dim, struct attn_error *error);

/* The name under which the family knows the field at `offset` of the settings, for messages. */
const char *attn_family_key_name(const struct attn_family *family, size_t offset);

#endif
