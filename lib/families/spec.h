/* spec.h: a parsed configuration -> the specification of each layer; shared by
 * config.c, spec.c and rope.c. */
#ifndef ATTN_LIB_FAMILIES_SPEC_H
#define ATTN_LIB_FAMILIES_SPEC_H

#include "families/config.h"

/* Resolves a parsed configuration into *config.  attn_config_read has filled config->family, the
 * factors and, where layer types were given, `sliding`; this function fills the rest.
 * Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
enum attn_status attn_config_from_hf(struct attn_config *config,
                                     const struct attn_hf_config *parsed, struct attn_error *error);

/* *out = RoPE of heads of width head_dim by `rope`, which is hf->rope or hf->sliding_rope.
 * Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
enum attn_status attn_rope_from_hf(struct attn_rope_spec *out, const struct attn_family *family,
                                   const struct attn_hf_config *hf, const struct attn_hf_rope *rope,
                                   size_t head_dim, struct attn_error *error);

/* The key by which the family fills the field at `offset` of attn_hf_config, for messages; "" if it
 * has none. */
const char *attn_family_key_name(const struct attn_family *family, size_t offset);

/* 0.1 m ln(factor) + 1, the gain by which yarn scales scores up. */
double attn_yarn_gain(double factor, double m);

#endif
