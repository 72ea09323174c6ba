/* spec.h: what the steps from a configuration to specifications share: choice.c, config.c, spec.c,
 * rope.c. */
#ifndef ATTN_LIB_FAMILIES_SPEC_H
#define ATTN_LIB_FAMILIES_SPEC_H

#include <jansson.h>

#include "families/config.h"

/* ---- choice.c: which family reads a configuration, and from which object in it ---- */

/* Parses `length` bytes as one JSON object, the caller's to release.
 * Errors: ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_config_parse(json_t **out, const char *text, size_t length,
                                   struct attn_error *error);

/* Fails with ATTN_UNSUPPORTED: a key that is not understood in the object `within`, "" for the
 * configuration itself.  The message names the nearest of `keys`, if one is near. */
enum attn_status attn_fail_key(const char *within, const char *key, const struct attn_hf_key *keys,
                               struct attn_error *error);

/* The object of that name in another, borrowed; NULL where there is none or `name` is NULL. */
json_t *attn_config_object(const json_t *object, const char *name);

/* Which family reads a configuration, and the object in it that holds the settings, borrowed: a
 * nested one, or the configuration itself.  Of a type that is unknown it is the family of the text
 * model inside (text_config and the like); of a type that has no stack `vision` of its own, this
 * stack is the model of images inside (vision_config). */
struct attn_choice {
    const struct attn_family *family;
    json_t *settings;
    bool is_wrapped; /* it is a part of a model of several */
    bool is_vision;  /* that part is the model of images, not the text model */
};

/* The choice for a configuration and for `stack`; NULL is the one that `architectures` names, else
 * the default.
 * Errors: ATTN_MALFORMED, ATTN_UNSUPPORTED; also where `architectures` names a class that attends
 * otherwise. */
enum attn_status attn_config_choose(struct attn_choice *out, json_t *object, const char *stack,
                                    struct attn_error *error);

/* ---- Resolving ---- */

/* A configuration that is being read and resolved.  The functions that do so return false where one
 * of them has refused the configuration, with the reason in `status` and `error`. */
struct attn_resolution {
    struct attn_config *config;
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
#define ATTN_KEY(r, field) attn_family_key_name((r)->config->family, HF_FIELD(field))
const char *attn_family_key_name(const struct attn_family *family, size_t offset);

/* Gives each type of layers of r->config, whose other sizes are there, its RoPE.
 * Errors: ATTN_MALFORMED, ATTN_OUT_OF_RANGE, ATTN_UNSUPPORTED. */
bool attn_resolve_rope(struct attn_resolution *r);

/* 0.1 m ln(factor) + 1, the gain by which yarn scales scores up. */
double attn_yarn_gain(double factor, double m);

#endif
