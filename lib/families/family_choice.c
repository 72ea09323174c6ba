/* family_choice.c: the JSON of a configuration, the family that reads it, the object that holds its
 * settings. */
#include "families/family_choice.h"

#include "attn_json.h"
#include "attn_limits.h"
#include "status.h"

enum attn_status attn_config_parse(json_t **out, const char *text, size_t length,
                                   struct attn_error *error)
{
    json_error_t why;
    if (length > ATTN_CHECKPOINT_MAX_CONFIG)
        return attn_fail(error, ATTN_MALFORMED, "", "configuration of %zu bytes, limit %d", length,
                         ATTN_CHECKPOINT_MAX_CONFIG);
    enum attn_status status = attn_json_load(out, text, length, JSON_REJECT_DUPLICATES, &why);
    if (status == ATTN_NO_MEMORY)
        return attn_fail_memory(error, length);
    if (status != ATTN_OK)
        return attn_fail(error, ATTN_MALFORMED, "", "not valid JSON, line %d column %d", why.line,
                         why.column);
    if (!json_is_object(*out)) {
        json_decref(*out);
        return attn_fail(error, ATTN_MALFORMED, "", "configuration is not a JSON object");
    }
    return ATTN_OK;
}

json_t *attn_config_object(const json_t *object, const char *name)
{
    json_t *inner = name != NULL ? json_object_get(object, name) : NULL;
    return json_is_object(inner) ? inner : NULL;
}

json_t *attn_config_nested(const struct attn_family *family, const json_t *object)
{
    json_t *inner = attn_config_object(object, family->subconfig);
    return inner != NULL ? inner : attn_config_object(object, family->subconfig_dict);
}

/* The nested model_type, whichever nested object has one that a family of `type` reads. */
static enum attn_status find_nested(const struct attn_family **out, const json_t *object,
                                    const char *type, const char *stack, struct attn_error *error)
{
    const struct attn_family *first = attn_family_find(type, NULL, stack);
    const json_t *inner = first != NULL ? attn_config_nested(first, object) : NULL;
    const json_t *subtype = json_object_get(inner, "model_type");
    *out = attn_family_find(type, json_string_value(subtype), stack);
    if (*out == NULL && first != NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, first->subconfig,
                         "%s: model_type '%.64s' is not supported", first->subconfig,
                         json_string_value(subtype));
    return ATTN_OK;
}

enum attn_status attn_config_family(const struct attn_family **out, const json_t *object,
                                    const char *stack, struct attn_error *error)
{
    const json_t *type = json_object_get(object, "model_type");
    if (!json_is_string(type))
        return attn_fail(error, ATTN_MALFORMED, "model_type", "model_type must be a string");
    if (attn_family_find(json_string_value(type), NULL, NULL) == NULL)
        return attn_fail(error, ATTN_UNSUPPORTED, "model_type",
                         "model_type: \"%.60s\" is not supported", json_string_value(type));
    enum attn_status status = find_nested(out, object, json_string_value(type), stack, error);
    if (status != ATTN_OK || *out != NULL)
        return status;
    return attn_fail(error, ATTN_UNSUPPORTED, "stack", "stack: a %.32s model has no stack '%.64s'",
                     json_string_value(type), stack);
}
