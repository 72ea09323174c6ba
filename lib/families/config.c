/* config.c: reads config.json by its family's list of keys: JSON -> struct attn_hf_config.
 *
 * The struct starts as the family's defaults.  Every key is checked alone and against other keys of
 * the same meaning: `is_set` marks, by offset, the fields that a key has filled.  null clears a
 * field that no key has filled, as it does in Hugging Face's classes, where it overrides the
 * default.  spec.c makes specifications of the result. */
#include "families/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "attn_json.h"
#include "basics/status.h"
#include "families/choice.h"
#include "families/spec.h"
#include "layers/checkpoint.h"

struct reader {
    const struct attn_family *family;
    struct attn_config *config; /* receives lists */
    struct attn_hf_config hf;
    bool is_set[sizeof(struct attn_hf_config)];
    bool typed_rope; /* an object of RoPE for each type of layers has been read */
};

/* ---- Complaints ---------------------------------------------------------------------------- */

static enum attn_status fail_type(const char *key, const char *wanted, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, key, "%.96s must be %s", key, wanted);
}

static enum attn_status fail_contradiction(const char *key, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, key, "%.96s contradicts another key", key);
}

static enum attn_status fail_value(const char *key, const json_t *value, struct attn_error *error)
{
    char text[64];
    size_t length = json_dumpb(value, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    text[length < sizeof text ? length : 0] = '\0';
    return attn_fail(error, ATTN_UNSUPPORTED, key, "%.96s: %s is not supported", key,
                     text[0] != '\0' ? text : "this value");
}

static enum attn_status check_range(const struct attn_hf_key *key, double value,
                                    struct attn_error *error)
{
    if (value >= key->min && value <= key->max)
        return ATTN_OK;
    return attn_fail(error, ATTN_OUT_OF_RANGE, key->name, "%s is %.17g, must be %.17g to %.17g",
                     key->name, value, key->min, key->max);
}

/* ---- Single values ------------------------------------------------------------------------- */

/* Fills the field at `offset`.  A field that another key has filled must keep its value. */
static enum attn_status set_field(struct reader *reader, const struct attn_hf_key *key,
                                  size_t offset, const void *value, size_t size,
                                  struct attn_error *error)
{
    char *field = (char *)&reader->hf + offset;
    if (reader->is_set[offset] && memcmp(field, value, size) != 0)
        return fail_contradiction(key->name, error);
    reader->is_set[offset] = true;
    memcpy(field, value, size);
    return ATTN_OK;
}

static enum attn_status read_size(struct reader *reader, const struct attn_hf_key *key,
                                  size_t offset, const json_t *value, struct attn_error *error)
{
    if (!json_is_integer(value))
        return fail_type(key->name, "an integer", error);
    enum attn_status status = check_range(key, (double)json_integer_value(value), error);
    size_t size = (size_t)json_integer_value(value);
    return status == ATTN_OK ? set_field(reader, key, offset, &size, sizeof size, error) : status;
}

static enum attn_status read_number(struct reader *reader, const struct attn_hf_key *key,
                                    size_t offset, const json_t *value, struct attn_error *error)
{
    if (!json_is_number(value))
        return fail_type(key->name, "a number", error);
    double number = json_number_value(value);
    enum attn_status status = check_range(key, number, error);
    return status == ATTN_OK ? set_field(reader, key, offset, &number, sizeof number, error)
                             : status;
}

static enum attn_status read_flag(struct reader *reader, const struct attn_hf_key *key,
                                  size_t offset, const json_t *value, struct attn_error *error)
{
    if (!json_is_boolean(value))
        return fail_type(key->name, "true or false", error);
    bool flag = json_is_true(value);
    return set_field(reader, key, offset, &flag, sizeof flag, error);
}

static enum attn_status read_name(struct reader *reader, const struct attn_hf_key *key,
                                  size_t offset, const json_t *value, struct attn_error *error)
{
    if (!json_is_string(value))
        return fail_type(key->name, "a string", error);
    size_t number = attn_hf_name_number(key, json_string_value(value));
    bool mrope = key->kind == ATTN_CONFIG_ROPE_TYPE && reader->family->mrope;
    if (mrope && strcmp(json_string_value(value), "mrope") == 0)
        number = ATTN_ROPE_DEFAULT;
    return number != 0 ? set_field(reader, key, offset, &number, sizeof number, error)
                       : fail_value(key->name, value, error);
}

/* Checks that a value is the only one that is computed; 1 and 1.0 are the same. */
static enum attn_status read_fixed(const struct attn_hf_key *key, const json_t *value,
                                   struct attn_error *error)
{
    json_t *only;
    json_error_t why;
    if (attn_json_load(&only, key->only, strlen(key->only), JSON_DECODE_ANY, &why) != ATTN_OK)
        return attn_fail_memory(error, strlen(key->only));
    bool same = json_is_number(only) && json_is_number(value)
                    ? json_number_value(only) == json_number_value(value)
                    : json_equal(only, value) != 0;
    json_decref(only);
    if (same || key->remedy == NULL)
        return same ? ATTN_OK : fail_value(key->name, value, error);
    return attn_fail(error, ATTN_UNSUPPORTED, key->name, "%.96s is not supported: %s", key->name,
                     key->remedy);
}

/* ---- Lists --------------------------------------------------------------------------------- */

/* Reads a list of factors into the next free list of the configuration. */
static enum attn_status read_factors(struct reader *reader, const struct attn_hf_key *key,
                                     size_t offset, const json_t *value, struct attn_error *error)
{
    struct attn_config *config = reader->config;
    if (!json_is_array(value))
        return fail_type(key->name, "a list of numbers", error);
    if (config->num_lists == ATTN_CONFIG_LISTS || reader->is_set[offset])
        return fail_contradiction(key->name, error);
    struct attn_factors list = {json_array_size(value), config->factors[config->num_lists]};
    if (list.count == 0 || list.count > ATTN_MAX_HEAD_DIM / 2)
        return attn_fail(error, ATTN_OUT_OF_RANGE, key->name, "%s has %zu entries, must be 1 to %d",
                         key->name, list.count, ATTN_MAX_HEAD_DIM / 2);
    for (size_t i = 0; i < list.count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_number(item))
            return fail_type(key->name, "a list of numbers", error);
        enum attn_status status = check_range(key, json_number_value(item), error);
        if (status != ATTN_OK)
            return status;
        config->factors[config->num_lists][i] = json_number_value(item);
    }
    config->num_lists++;
    return set_field(reader, key, offset, &list, sizeof list, error);
}

static enum attn_status read_layer_types(struct reader *reader, const struct attn_hf_key *key,
                                         size_t offset, const json_t *value,
                                         struct attn_error *error)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value))
        return fail_type(key->name, "a list of strings", error);
    if (count == 0 || count > ATTN_MAX_LAYERS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, key->name, "%s has %zu entries, must be 1 to %d",
                         key->name, count, ATTN_MAX_LAYERS);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item))
            return fail_type(key->name, "a list of strings", error);
        size_t type = attn_layer_type_find(reader->family, json_string_value(item));
        if (type == ATTN_NUM_LAYER_TYPES)
            return fail_value(key->name, item, error);
        reader->config->types[i] = (uint8_t)type;
    }
    return set_field(reader, key, offset, &count, sizeof count, error);
}

/* Reads the list of layers that rotate; as in Hugging Face's classes, an empty one is none. */
static enum attn_status read_rope_layers(struct reader *reader, const struct attn_hf_key *key,
                                         size_t offset, const json_t *value,
                                         struct attn_error *error)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value))
        return fail_type(key->name, "a list of 0 and 1", error);
    if (count > ATTN_MAX_LAYERS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, key->name, "%s has %zu entries, at most %d",
                         key->name, count, ATTN_MAX_LAYERS);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) > 1)
            return fail_type(key->name, "a list of 0 and 1", error);
        reader->config->rotates[i] = json_integer_value(item) == 1;
    }
    return set_field(reader, key, offset, &count, sizeof count, error);
}

/* Reads the period of full attention: a number, or its letters, of which the last is G (global) and
 * all others L (local). */
static enum attn_status read_period(struct reader *reader, const struct attn_hf_key *key,
                                    size_t offset, const json_t *value, struct attn_error *error)
{
    if (!json_is_string(value))
        return read_size(reader, key, offset, value, error);
    const char *letters = json_string_value(value);
    size_t count = strlen(letters);
    if (count == 0 || count > ATTN_MAX_LAYERS || strspn(letters, "L") != count - 1 ||
        letters[count - 1] != 'G')
        return fail_value(key->name, value, error);
    return set_field(reader, key, offset, &count, sizeof count, error);
}

static enum attn_status read_terms(struct reader *reader, const struct attn_hf_key *key,
                                   size_t offset, const json_t *value, struct attn_error *error)
{
    static const char *const names[] = {"c2p", "p2c", "c2p|p2c", "p2c|c2p"};
    const size_t bits[] = {ATTN_TERM_C2P, ATTN_TERM_P2C, ATTN_TERM_C2P | ATTN_TERM_P2C,
                           ATTN_TERM_C2P | ATTN_TERM_P2C};
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    size_t terms = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        size_t n = 0;
        if (!json_is_string(item))
            return fail_type(key->name, "a string, or a list of strings", error);
        while (n < 4 && strcmp(names[n], json_string_value(item)) != 0)
            n++;
        if (n == 4)
            return fail_value(key->name, item, error);
        terms |= bits[n];
    }
    return set_field(reader, key, offset, &terms, sizeof terms, error);
}

/* ---- Keys ---------------------------------------------------------------------------------- */

/* Clears the scaling of the row's default, unless an object has been read already. */
static void clear_rope(struct reader *reader)
{
    struct attn_hf_rope *rope = &reader->hf.rope;
    if (reader->is_set[HF_FIELD(rope.type)])
        return;
    *rope = (struct attn_hf_rope){
        .type = rope->type != ATTN_ROPE_NONE ? ATTN_ROPE_DEFAULT : ATTN_ROPE_NONE,
        .dim = rope->dim,
        .partial_rotary_factor = reader->hf.rope_by_type ? 0 : rope->partial_rotary_factor,
        .interleaved = rope->interleaved,
        .truncate = true,
        .theta = rope->theta,
    };
}

static void clear_field(struct reader *reader, const struct attn_hf_key *key, size_t offset)
{
    static const size_t sizes[] = {
        [ATTN_CONFIG_INTEGER] = sizeof(size_t),
        [ATTN_CONFIG_NUMBER] = sizeof(double),
        [ATTN_CONFIG_FLAG] = sizeof(bool),
        [ATTN_CONFIG_NAME] = sizeof(size_t),
        [ATTN_CONFIG_FACTORS] = sizeof(struct attn_factors),
        [ATTN_CONFIG_LAYER_TYPES] = sizeof(size_t),
        [ATTN_CONFIG_PERIOD] = sizeof(size_t),
        [ATTN_CONFIG_ROPE_LAYERS] = sizeof(size_t),
        [ATTN_CONFIG_TERMS] = sizeof(size_t),
        [ATTN_CONFIG_OBJECT] = 0,
        [ATTN_CONFIG_IGNORED] = 0,
    };
    if (key->kind == ATTN_CONFIG_ROPE)
        clear_rope(reader);
    else if (!reader->is_set[offset])
        memset((char *)&reader->hf + offset, 0, sizes[key->kind]);
}

static enum attn_status read_key(struct reader *reader, const struct attn_hf_key *key,
                                 size_t offset, const json_t *value, struct attn_error *error);

/* Reads the keys of an object other than RoPE's; the family's list has them after a dot. */
static enum attn_status read_members(struct reader *reader, const struct attn_hf_key *object,
                                     const json_t *value, struct attn_error *error)
{
    char name[128];
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return fail_type(object->name, "an object", error);
    json_object_foreach((json_t *)value, key, item) {
        int length = snprintf(name, sizeof name, "%s.%s", object->name, key);
        const struct attn_hf_key *known =
            (size_t)length < sizeof name ? attn_hf_key_find(reader->family->keys, name) : NULL;
        if (known == NULL)
            return attn_fail(error, ATTN_UNSUPPORTED, key, "%s: key '%.96s' is not understood",
                             object->name, key);
        enum attn_status status = read_key(reader, known, known->offset, item, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Reads one key, except objects of RoPE (read_rope), into the field at `offset`. */
static enum attn_status read_key(struct reader *reader, const struct attn_hf_key *key,
                                 size_t offset, const json_t *value, struct attn_error *error)
{
    if (json_is_null(value)) {
        clear_field(reader, key, offset);
        return ATTN_OK;
    }
    switch (key->kind) {
    case ATTN_CONFIG_INTEGER:
        return read_size(reader, key, offset, value, error);
    case ATTN_CONFIG_NUMBER:
        return read_number(reader, key, offset, value, error);
    case ATTN_CONFIG_FLAG:
        return read_flag(reader, key, offset, value, error);
    case ATTN_CONFIG_ROPE_TYPE:
    case ATTN_CONFIG_NAME:
        return read_name(reader, key, offset, value, error);
    case ATTN_CONFIG_FACTORS:
        return read_factors(reader, key, offset, value, error);
    case ATTN_CONFIG_LAYER_TYPES:
        return read_layer_types(reader, key, offset, value, error);
    case ATTN_CONFIG_PERIOD:
        return read_period(reader, key, offset, value, error);
    case ATTN_CONFIG_ROPE_LAYERS:
        return read_rope_layers(reader, key, offset, value, error);
    case ATTN_CONFIG_FIXED:
        return read_fixed(key, value, error);
    case ATTN_CONFIG_TERMS:
        return read_terms(reader, key, offset, value, error);
    case ATTN_CONFIG_OBJECT:
        return read_members(reader, key, value, error);
    case ATTN_CONFIG_ROPE:
    case ATTN_CONFIG_IGNORED:
        break;
    }
    return ATTN_OK;
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

/* Reads the keys of one RoPE object into the struct attn_hf_rope at `base`. */
static enum attn_status read_rope_keys(struct reader *reader, size_t base, const char *name,
                                       json_t *object, struct attn_error *error)
{
    const char *types[] = {"rope_type", "type"};
    bool typed = false;
    if (!json_is_object(object))
        return fail_type(name, "an object", error);

    /* The type is read first: which other keys are allowed depends on it, and a wrong type is the
     * more useful error. */
    for (size_t i = 0; i < 2; i++) {
        const json_t *type = json_object_get(object, types[i]);
        const struct attn_hf_key *key = attn_hf_key_find(attn_rope_keys, types[i]);
        if (type == NULL)
            continue;
        typed = true;
        enum attn_status status = read_name(reader, key, base + key->offset, type, error);
        if (status != ATTN_OK)
            return status;
    }
    if (!typed)
        return attn_fail(error, ATTN_MALFORMED, name, "%s has no rope_type", name);

    const char *key;
    json_t *item;
    json_object_foreach(object, key, item) {
        const struct attn_hf_key *known = attn_hf_key_find(attn_rope_keys, key);
        if (known == NULL && reader->family->rope_keys != NULL)
            known = attn_hf_key_find(reader->family->rope_keys, key);
        if (known == NULL)
            return attn_fail_key(name, key, attn_rope_keys, error);
        enum attn_status status = read_key(reader, known, base + known->offset, item, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Reads an object for each type of layers.  Where one is missing, that type has no scaling. */
static enum attn_status read_rope_by_type(struct reader *reader, const char *name, json_t *object,
                                          struct attn_error *error)
{
    static const size_t bases[] = {HF_FIELD(rope), HF_FIELD(sliding_rope)};
    const char *key;
    json_t *item;
    if (!reader->hf.rope_by_type)
        reader->hf.sliding_rope = reader->hf.rope;
    reader->hf.rope_by_type = reader->typed_rope = true;
    json_object_foreach(object, key, item) {
        size_t type = ATTN_LAYER_FULL;
        while (type < 2 && strcmp(attn_layer_types[type], key) != 0)
            type++;
        if (type == 2)
            return attn_fail(error, ATTN_UNSUPPORTED, key, "%s: key '%.96s' is not understood",
                             name, key);
        enum attn_status status =
            json_is_null(item) ? ATTN_OK : read_rope_keys(reader, bases[type], key, item, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static enum attn_status read_rope(struct reader *reader, const struct attn_hf_key *key,
                                  json_t *value, struct attn_error *error)
{
    bool by_type = json_object_get(value, attn_layer_types[ATTN_LAYER_FULL]) != NULL ||
                   json_object_get(value, attn_layer_types[ATTN_LAYER_SLIDING]) != NULL;
    const struct attn_hf_rope *own = &reader->family->defaults.rope;
    if (!json_is_null(value) || (own->type != ATTN_ROPE_PROPORTIONAL && own->scaling_beta == 0))
        clear_rope(reader); /* else: classes with scaling of their own put it in null's place */
    if (json_is_null(value))
        return ATTN_OK;
    /* An object by type beside a plain one would contradict it, or be mixed with it. */
    if (reader->typed_rope || (by_type && reader->is_set[HF_FIELD(rope.type)]))
        return fail_contradiction(key->name, error);
    if (by_type)
        return read_rope_by_type(reader, key->name, value, error);
    return read_rope_keys(reader, key->offset, key->name, value, error);
}

/* Reads all keys, objects of RoPE last: keys beside these objects hold for both types of layers. */
static enum attn_status read_object(struct reader *reader, json_t *object, struct attn_error *error)
{
    for (int pass = 0; pass < 2; pass++) {
        const char *key;
        json_t *value;
        json_object_foreach(object, key, value) {
            const struct attn_hf_key *known = attn_family_key(reader->family, key);
            enum attn_status status = ATTN_OK;
            if (known == NULL)
                return attn_fail_key("", key, reader->family->keys, error);
            if (pass == 0 && known->kind != ATTN_CONFIG_ROPE)
                status = read_key(reader, known, known->offset, value, error);
            if (pass == 1 && known->kind == ATTN_CONFIG_ROPE)
                status = read_rope(reader, known, value, error);
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}

/* ---- The whole ----------------------------------------------------------------------------- */

/* Keys beside the nested object: only those that are known to change the mathematics count. */
static enum attn_status check_outer(const struct attn_family *family, json_t *object,
                                    struct attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const struct attn_hf_key *known = attn_family_key(family, key);
        enum attn_status status = ATTN_OK;
        if (known != NULL && known->kind == ATTN_CONFIG_FIXED && !json_is_null(value))
            status = read_fixed(known, value, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

enum attn_status attn_config_read(struct attn_config *out, const struct attn_family *family,
                                  const char *stack, const char *text, size_t length,
                                  struct attn_error *error)
{
    json_t *object;
    enum attn_status status = attn_config_parse(&object, text, length, error);
    if (status != ATTN_OK)
        return status;
    if (family == NULL)
        status = attn_config_family(&family, object, stack, error);
    if (status == ATTN_OK) {
        struct reader reader = {.family = family, .config = out, .hf = family->defaults};
        json_t *inner = attn_config_nested(family, object);
        *out = (struct attn_config){.family = family};
        if (inner != NULL)
            status = check_outer(family, object, error);
        if (status == ATTN_OK)
            status = read_object(&reader, inner != NULL ? inner : object, error);
        if (status == ATTN_OK && attn_config_object(object, family->subconfig_dict) != NULL)
            status =
                read_object(&reader, attn_config_object(object, family->subconfig_dict), error);
        out->says_layout = reader.is_set[HF_FIELD(transposed)];
        out->layout = reader.hf.transposed ? ATTN_LAYOUT_TRANSPOSED : family->layout;
        if (status == ATTN_OK)
            status = attn_config_from_hf(out, &reader.hf, error);
    }
    json_decref(object);
    return status;
}
