/* spec.h: a parsed configuration -> the specification of each layer; shared by
 * config.c, spec.c and rope.c. */
#ifndef ATTN_LIB_FAMILIES_SPEC_H
#define ATTN_LIB_FAMILIES_SPEC_H

#include "families/config.h"

/* A configuration that is being read and resolved.  The functions that do so return false where one
 * of them has refused the configuration, with the reason in `status` and `error`. */
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

/* Whether the status, which becomes that of r, is ATTN_OK. */
static inline bool attn_resolved(struct attn_resolution *r, enum attn_status status)
{
    r->status = status;
    return status == ATTN_OK;
}

/* Resolves what attn_config_read has read into r->config; the factors and, where they were given,
 * the types of layers are there already.
 * Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
bool attn_resolve(struct attn_resolution *r);

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
