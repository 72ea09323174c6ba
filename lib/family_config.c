/* family_config.c: reads the keys of a configuration by its family's list, then resolves defaults.
 *
 * Two passes: JSON -> struct attn_settings, where every key is checked alone and against others
 * that mean the same; settings -> struct attn_layer_spec, where what is missing gets its default
 * and what must fit together is checked. */
#include "family_config.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "checkpoint.h"
#include "members.h"
#include "status.h"

/* ---- JSON -> settings ---------------------------------------------------------------------- */

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

static enum attn_status check_range(const struct attn_key *key, double value,
                                    struct attn_error *error)
{
    if (value >= key->min && value <= key->max)
        return ATTN_OK;
    return attn_fail(error, ATTN_OUT_OF_RANGE, key->name, "%s is %.17g, must be %.17g to %.17g",
                     key->name, value, key->min, key->max);
}

static enum attn_status store_size(size_t *field, const struct attn_key *key, size_t value,
                                   struct attn_error *error)
{
    if (*field != 0 && *field != value)
        return fail_contradiction(key->name, error);
    *field = value;
    return ATTN_OK;
}

static enum attn_status read_size(size_t *field, const struct attn_key *key, const json_t *value,
                                  struct attn_error *error)
{
    if (!json_is_integer(value))
        return fail_type(key->name, "an integer", error);
    enum attn_status status = check_range(key, (double)json_integer_value(value), error);
    return status == ATTN_OK ? store_size(field, key, (size_t)json_integer_value(value), error)
                             : status;
}

static enum attn_status read_number(double *field, const struct attn_key *key, const json_t *value,
                                    struct attn_error *error)
{
    if (!json_is_number(value))
        return fail_type(key->name, "a number", error);
    double number = json_number_value(value);
    enum attn_status status = check_range(key, number, error);
    if (status != ATTN_OK)
        return status;
    if (*field != 0 && *field != number)
        return fail_contradiction(key->name, error);
    *field = number;
    return ATTN_OK;
}

static enum attn_status read_flag(enum attn_flag *field, const struct attn_key *key,
                                  const json_t *value, struct attn_error *error)
{
    if (!json_is_boolean(value))
        return fail_type(key->name, "true or false", error);
    *field = json_is_true(value) ? ATTN_FLAG_YES : ATTN_FLAG_NO;
    return ATTN_OK;
}

static enum attn_status read_rope_type(size_t *field, const struct attn_key *key,
                                       const json_t *value, struct attn_error *error)
{
    static const struct {
        const char *name;
        enum attn_rope_type type;
    } types[] = {{"default", ATTN_ROPE_DEFAULT}, {"llama3", ATTN_ROPE_LLAMA3}};
    if (!json_is_string(value))
        return fail_type(key->name, "a string", error);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, json_string_value(value)) == 0)
            return store_size(field, key, types[i].type, error);
    return fail_value(key->name, value, error);
}

/* Whether a value is the only one that is computed; 1 and 1.0 are the same. */
static enum attn_status read_fixed(const struct attn_key *key, const json_t *value,
                                   struct attn_error *error)
{
    json_t *only = json_loads(key->only, JSON_DECODE_ANY, NULL);
    if (only == NULL)
        return attn_fail_memory(error, strlen(key->only));
    bool same = json_is_number(only) && json_is_number(value)
                    ? json_number_value(only) == json_number_value(value)
                    : json_equal(only, value) != 0;
    json_decref(only);
    return same ? ATTN_OK : fail_value(key->name, value, error);
}

static enum attn_status read_rope(struct attn_settings *settings, const char *name, json_t *value,
                                  struct attn_error *error);

static enum attn_status read_key(struct attn_settings *settings, const struct attn_key *key,
                                 json_t *value, struct attn_error *error)
{
    void *field = (char *)settings + key->offset;
    if (json_is_null(value))
        return ATTN_OK;
    switch (key->kind) {
    case ATTN_KEY_SIZE:
        return read_size(field, key, value, error);
    case ATTN_KEY_NUMBER:
        return read_number(field, key, value, error);
    case ATTN_KEY_FLAG:
        return read_flag(field, key, value, error);
    case ATTN_KEY_ROPE:
        return read_rope(settings, key->name, value, error);
    case ATTN_KEY_ROPE_TYPE:
        return read_rope_type(field, key, value, error);
    case ATTN_KEY_FIXED:
        return read_fixed(key, value, error);
    case ATTN_KEY_HARMLESS:
        break;
    }
    return ATTN_OK;
}

static enum attn_status read_rope(struct attn_settings *settings, const char *name, json_t *value,
                                  struct attn_error *error)
{
    if (!json_is_object(value))
        return fail_type(name, "an object", error);
    const char *types[] = {"rope_type", "type"};
    bool typed = false;

    /* The type first: what else there may be depends on it, and it is the better complaint. */
    for (size_t i = 0; i < 2; i++) {
        json_t *type = json_object_get(value, types[i]);
        if (type == NULL)
            continue;
        typed = true;
        enum attn_status status =
            read_key(settings, attn_key_find(attn_rope_keys, types[i]), type, error);
        if (status != ATTN_OK)
            return status;
    }
    if (!typed)
        return attn_fail(error, ATTN_MALFORMED, name, "%s has no rope_type", name);

    const char *key;
    json_t *item;
    json_object_foreach(value, key, item) {
        const struct attn_key *known = attn_key_find(attn_rope_keys, key);
        if (known == NULL)
            return attn_fail(error, ATTN_UNSUPPORTED, key, "%s: key '%.96s' is not understood",
                             name, key);
        enum attn_status status = read_key(settings, known, item, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static enum attn_status read_settings(struct attn_settings *settings,
                                      const struct attn_family *family, json_t *object,
                                      struct attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const struct attn_key *known = attn_family_key(family, key);
        if (known == NULL)
            return attn_fail(error, ATTN_UNSUPPORTED, key, "key '%.96s' is not understood", key);
        enum attn_status status = read_key(settings, known, value, error);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* ---- Settings -> specification ------------------------------------------------------------- */

static bool flag_or(enum attn_flag flag, bool otherwise)
{
    return flag == ATTN_FLAG_UNSET ? otherwise : flag == ATTN_FLAG_YES;
}

/* The name under which `family` knows the field at `offset`, for messages. */
static const char *key_of(const struct attn_family *family, size_t offset)
{
    const struct attn_key *key = family->keys;
    while (key->name != NULL && (key->kind != ATTN_KEY_SIZE || key->offset != offset))
        key++;
    return key->name != NULL ? key->name : "";
}

static enum attn_status check_present(const struct attn_family *family,
                                      const struct attn_settings *settings,
                                      struct attn_error *error)
{
    static const size_t needed[] = {
        offsetof(struct attn_settings, hidden_size),
        offsetof(struct attn_settings, num_heads),
        offsetof(struct attn_settings, num_layers),
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const char *key = key_of(family, needed[i]);
        if (*(const size_t *)((const char *)settings + needed[i]) == 0)
            return attn_fail(error, ATTN_MALFORMED, key, "%s is missing", key);
    }
    return ATTN_OK;
}

static enum attn_status resolve_heads(struct attn_layer_spec *spec,
                                      const struct attn_family *family,
                                      const struct attn_settings *settings,
                                      struct attn_error *error)
{
    const char *key = key_of(family, offsetof(struct attn_settings, num_heads));
    spec->hidden_size = settings->hidden_size;
    spec->key_size = settings->key_size != 0 ? settings->key_size : spec->hidden_size;
    spec->value_size = settings->value_size != 0 ? settings->value_size : spec->hidden_size;
    spec->num_heads = settings->num_heads;
    spec->num_kv_heads = settings->num_kv_heads != 0 ? settings->num_kv_heads : spec->num_heads;
    if (spec->num_heads % spec->num_kv_heads != 0)
        return attn_fail(error, ATTN_MALFORMED, "num_key_value_heads",
                         "num_key_value_heads is %zu, which does not divide %zu heads",
                         spec->num_kv_heads, spec->num_heads);

    spec->head_dim = settings->head_dim;
    if (spec->head_dim == 0) {
        if (spec->hidden_size % spec->num_heads != 0)
            return attn_fail(error, ATTN_MALFORMED, key,
                             "%s is %zu, which does not divide a width of %zu", key,
                             spec->num_heads, spec->hidden_size);
        spec->head_dim = spec->hidden_size / spec->num_heads;
    }
    spec->value_head_dim = spec->head_dim;
    spec->scale = flag_or(settings->scaled, true) ? 1 / sqrt((double)spec->head_dim) : 1;
    return ATTN_OK;
}

static enum attn_status resolve_rope(struct attn_rope_spec *rope, const struct attn_family *family,
                                     const struct attn_settings *settings, size_t head_dim,
                                     struct attn_error *error)
{
    rope->theta = settings->rope_theta != 0 ? settings->rope_theta : family->rope_theta;
    if (rope->theta == 0 && settings->rope_type == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (rope->theta == 0)
        return attn_fail(error, ATTN_MALFORMED, "rope_theta", "rope_theta is missing");
    if (head_dim % 2 != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "head_dim",
                         "head_dim is %zu, rotary embedding needs an even one", head_dim);
    rope->type = settings->rope_type == ATTN_ROPE_LLAMA3 ? ATTN_ROPE_LLAMA3 : ATTN_ROPE_DEFAULT;
    rope->dim = head_dim;
    if (rope->type != ATTN_ROPE_LLAMA3)
        return ATTN_OK;

    rope->factor = settings->factor;
    rope->low_freq_factor = settings->low_freq_factor;
    rope->high_freq_factor = settings->high_freq_factor;
    rope->original_max_position = settings->original_max_position;
    if (rope->factor == 0 || rope->low_freq_factor == 0 || rope->high_freq_factor == 0 ||
        rope->original_max_position == 0)
        return attn_fail(error, ATTN_MALFORMED, "rope_scaling",
                         "rope_scaling: llama3 needs factor, low_freq_factor, high_freq_factor and "
                         "original_max_position_embeddings");
    if (rope->low_freq_factor >= rope->high_freq_factor)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "low_freq_factor",
                         "low_freq_factor is %g, must be below high_freq_factor, %g",
                         rope->low_freq_factor, rope->high_freq_factor);
    return ATTN_OK;
}

static enum attn_status resolve(struct attn_config *out, const struct attn_family *family,
                                struct attn_settings *settings, struct attn_error *error)
{
    if (settings->num_layers == 0)
        settings->num_layers = family->num_layers;
    enum attn_status status = check_present(family, settings, error);
    if (status != ATTN_OK)
        return status;

    struct attn_layer_spec *spec = &out->spec;
    *out = (struct attn_config){
        .family = family,
        .num_layers = settings->num_layers,
        .max_position = settings->max_position,
        .seed = settings->seed,
    };
    status = resolve_heads(spec, family, settings, error);
    if (status != ATTN_OK)
        return status;
    bool bias = flag_or(settings->bias, family->bias);
    spec->q_bias = spec->k_bias = spec->v_bias = spec->o_bias = bias;
    spec->bias_kv = flag_or(settings->bias_kv, false);
    spec->add_zero_attn = flag_or(settings->add_zero_attn, false);
    spec->is_causal = flag_or(settings->is_causal, family->is_causal);
    return resolve_rope(&spec->rope, family, settings, spec->head_dim, error);
}

/* ---- The whole ----------------------------------------------------------------------------- */

static enum attn_status parse(json_t **out, const char *text, size_t length,
                              struct attn_error *error)
{
    json_error_t why = {0};
    if (length > ATTN_CHECKPOINT_MAX_CONFIG)
        return attn_fail(error, ATTN_MALFORMED, "", "configuration of %zu bytes, limit %d", length,
                         ATTN_CHECKPOINT_MAX_CONFIG);
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (*out == NULL && attn_json_ran_out(&why))
        return attn_fail_memory(error, length);
    if (*out == NULL)
        return attn_fail(error, ATTN_MALFORMED, "", "not valid JSON, line %d column %d", why.line,
                         why.column);
    if (!json_is_object(*out)) {
        json_decref(*out);
        return attn_fail(error, ATTN_MALFORMED, "", "configuration is not a JSON object");
    }
    return ATTN_OK;
}

static enum attn_status find_family(const struct attn_family **out, const json_t *object,
                                    struct attn_error *error)
{
    const json_t *type = json_object_get(object, "model_type");
    if (!json_is_string(type))
        return fail_type("model_type", "a string", error);
    *out = attn_family_find(json_string_value(type));
    return *out != NULL ? ATTN_OK : fail_value("model_type", type, error);
}

enum attn_status attn_config_read(struct attn_config *out, const struct attn_family *family,
                                  const char *text, size_t length, struct attn_error *error)
{
    json_t *object;
    enum attn_status status = parse(&object, text, length, error);
    if (status != ATTN_OK)
        return status;
    struct attn_settings settings = {0};
    if (family == NULL)
        status = find_family(&family, object, error);
    if (status == ATTN_OK)
        status = read_settings(&settings, family, object, error);
    if (status == ATTN_OK)
        status = resolve(out, family, &settings, error);
    json_decref(object);
    return status;
}
