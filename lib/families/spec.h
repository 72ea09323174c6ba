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

/* A configuration that is being resolved.  Its functions return false where one of them has refused
 * the configuration, with the reason in `status` and `error`. */
struct attn_resolution {
    struct attn_config *config;
    const struct attn_family *family;
    struct attn_hf_config hf;
    struct attn_error *error;
    enum attn_status status;
};

/* Refuses the configuration for a key, whose name the message begins with.  Returns false. */
bool attn_refuse_key(struct attn_resolution *r, enum attn_status status, const char *key,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The key by which the family fills a field of attn_hf_config; "" if it has none. */
#define ATTN_KEY(r, field) attn_family_key_name((r)->family, HF_FIELD(field))
const char *attn_family_key_name(const struct attn_family *family, size_t offset);

/* *out = RoPE of heads of width head_dim by `rope`, which is r->hf.rope or that of sliding layers.
 * Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
bool attn_rope_from_hf(struct attn_rope_spec *out, struct attn_resolution *r,
                       const struct attn_hf_rope *rope, size_t head_dim);

/* 0.1 m ln(factor) + 1, the gain by which yarn scales scores up. */
double attn_yarn_gain(double factor, double m);

#endif
