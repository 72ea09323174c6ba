/* choice.h: which family reads a configuration, and from which object in it. */
#ifndef ATTN_LIB_FAMILIES_CHOICE_H
#define ATTN_LIB_FAMILIES_CHOICE_H

#include <jansson.h>

#include "families/family.h"

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

/* The nested object that holds the family's settings; NULL where the configuration has none. */
json_t *attn_config_nested(const struct attn_family *family, const json_t *object);

/* The family of the configuration's model_type and of `stack`, NULL for the default one.
 * Errors: ATTN_MALFORMED, ATTN_UNSUPPORTED; also where `architectures` names a class that attends
 * otherwise. */
enum attn_status attn_config_family(const struct attn_family **out, const json_t *object,
                                    const char *stack, struct attn_error *error);

#endif
