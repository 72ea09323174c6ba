/* config.c: reads config.json by its family's list of keys: JSON -> struct attn_hf_config.
 *
 * The struct starts as the family's defaults.  Every key is checked alone and against other keys of
 * the same meaning: `is_set` marks, by offset, the fields that a key has filled.  null clears a
 * field that no key has filled, as it does in Hugging Face's classes, where it overrides the
 * default.  spec.c makes specifications of the result. */
#include "families/config_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_json.h"
#include "basics/status.h"
#include "basics/text.h"
#include "families/quantization.h"
#include "families/spec.h"

/* ---- Complaints ---------------------------------------------------------------------------- */

bool attn_refuse_type(struct attn_reader *reader, const char *key, const char *wanted)
{
    return attn_refuse_key(&reader->r, ATTN_MALFORMED, key, " must be %s", wanted);
}

bool attn_refuse_contradiction(struct attn_reader *reader, const char *key)
{
    return attn_refuse_key(&reader->r, ATTN_MALFORMED, key, " contradicts another key");
}

bool attn_refuse_value(struct attn_reader *reader, const char *key, const json_t *value)
{
    char text[64];
    size_t length = json_dumpb(value, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    text[length < sizeof text ? length : 0] = '\0';
    return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, key, ": %s is not supported",
                           text[0] != '\0' ? text : "this value");
}

bool attn_check_range(struct attn_reader *reader, const struct attn_hf_key *key, double value)
{
    return (value >= key->min && value <= key->max) ||
           attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name,
                           " is %.17g, must be %.17g to %.17g", value, key->min, key->max);
}

/* ---- Fields -------------------------------------------------------------------------------- */

/* The bytes of the field that a key of this kind fills. */
static size_t size_of(enum attn_hf_key_kind kind)
{
    return kind == ATTN_CONFIG_NUMBER ? sizeof(double)
           : kind == ATTN_CONFIG_FLAG || kind == ATTN_CONFIG_GATING ||
                   kind == ATTN_CONFIG_SCALED_TYPES
               ? sizeof(bool)
           : kind == ATTN_CONFIG_FACTORS                               ? sizeof(struct attn_factors)
           : kind == ATTN_CONFIG_ROPE || kind >= ATTN_CONFIG_PER_LAYER ? 0
                                                                       : sizeof(size_t);
}

bool attn_set_field(struct attn_reader *reader, const struct attn_hf_key *key, const void *value)
{
    const size_t offset = reader->base + key->offset;
    char *field = (char *)&reader->r.config->hf + offset;
    if (reader->is_set[offset] && memcmp(field, value, size_of(key->kind)) != 0)
        return attn_refuse_contradiction(reader, key->name);
    reader->is_set[offset] = true;
    memcpy(field, value, size_of(key->kind));
    return true;
}

/* Clears the scaling of the row's default, unless an object has been read already. */
static void clear_rope(struct attn_reader *reader)
{
    struct attn_hf_rope *rope = &reader->r.config->hf.rope;
    if (reader->is_set[HF_FIELD(rope.type)])
        return;
    *rope = (struct attn_hf_rope){
        .type = rope->type != ATTN_ROPE_NONE ? ATTN_ROPE_DEFAULT : ATTN_ROPE_NONE,
        .dim = rope->dim,
        .partial_rotary_factor =
            reader->r.config->hf.rope_by_type ? 0 : rope->partial_rotary_factor,
        .interleaved = rope->interleaved,
        .reversed = rope->reversed,
        .truncate = true,
        .theta = rope->theta,
    };
}

/* ---- Single values ------------------------------------------------------------------------- */

bool attn_read_size(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value)
{
    size_t size = (size_t)json_integer_value(value);
    if (!json_is_integer(value))
        return attn_refuse_type(reader, key->name, "an integer");
    return attn_check_range(reader, key, (double)json_integer_value(value)) &&
           attn_set_field(reader, key, &size);
}

static bool read_name(struct attn_reader *reader, const struct attn_hf_key *key,
                      const json_t *value)
{
    if (!json_is_string(value))
        return attn_refuse_type(reader, key->name, "a string");
    size_t number = attn_hf_name_number(key, json_string_value(value));
    bool mrope = key->kind == ATTN_CONFIG_ROPE_TYPE && reader->r.config->family->mrope;
    if (mrope && strcmp(json_string_value(value), "mrope") == 0)
        number = ATTN_ROPE_DEFAULT;
    return number != 0 ? attn_set_field(reader, key, &number)
                       : attn_refuse_value(reader, key->name, value);
}

/* Whether a value is the only one that is computed, or a list of it; 1 and 1.0 are the same. */
static bool is_fixed(const json_t *value, const json_t *only, bool lists)
{
    for (size_t i = 0; lists && i < json_array_size(value); i++)
        if (!is_fixed(json_array_get(value, i), only, false))
            return false;
    if (lists && json_is_array(value))
        return true;
    return json_is_number(only) && json_is_number(value)
               ? json_number_value(only) == json_number_value(value)
               : json_equal(only, value) != 0;
}

static bool read_fixed(struct attn_reader *reader, const struct attn_hf_key *key,
                       const json_t *value)
{
    json_t *only;
    json_error_t why;
    if (attn_json_load(&only, key->only, strlen(key->only), JSON_DECODE_ANY, &why) != ATTN_OK)
        return attn_resolved(&reader->r, attn_fail_memory(reader->r.error, strlen(key->only)));
    const bool same = is_fixed(value, only, key->min > 0);
    json_decref(only);
    if (same || key->remedy == NULL)
        return same || attn_refuse_value(reader, key->name, value);
    return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, key->name, " is not supported: %s",
                           key->remedy);
}

/* Reads the period of full attention: a number, or its letters, of which the last is G (global) and
 * all others L (local). */
static bool read_period(struct attn_reader *reader, const struct attn_hf_key *key,
                        const json_t *value)
{
    if (!json_is_string(value))
        return attn_read_size(reader, key, value);
    const char *letters = json_string_value(value);
    size_t count = strlen(letters);
    if (count == 0 || count > ATTN_MAX_LAYERS || strspn(letters, "L") != count - 1 ||
        letters[count - 1] != 'G')
        return attn_refuse_value(reader, key->name, value);
    return attn_set_field(reader, key, &count);
}

/* Reads whether a gate has one number for each head. */
static bool read_gating(struct attn_reader *reader, const struct attn_hf_key *key,
                        const json_t *value)
{
    const char *name = json_is_true(value) ? "per-head" : json_string_value(value);
    const bool by_head = name != NULL && strcmp(name, "per-head") == 0;
    if (!by_head && (name == NULL || strcmp(name, "per-element") != 0))
        return attn_refuse_value(reader, key->name, value);
    return attn_set_field(reader, key, &by_head);
}

/* Reads which types of layers have RoPE's scaling. */
static bool read_scaled_types(struct attn_reader *reader, const struct attn_hf_key *key,
                              const json_t *value)
{
    const char *first = json_string_value(json_array_get(value, 0));
    const size_t count = json_array_size(value);
    const bool full =
        count == 1 && first != NULL && strcmp(first, attn_layer_types[ATTN_LAYER_FULL]) == 0;
    return full || (json_is_array(value) && count == 0)
               ? attn_set_field(reader, key, &full)
               : attn_refuse_value(reader, key->name, value);
}

/* ---- Keys that are passed over ---- */

/* Whether a key of that name changes what some family computes, or what code of others does. */
static bool changes_mathematics(const char *name)
{
    static const char others[] = "alibi_starting_size attention_window dual_chunk_attention_config";
    const struct attn_family *family;
    const struct attn_hf_key *key = attn_hf_key_find(attn_rope_keys, name);
    if (key == NULL)
        key = attn_hf_key_find(attn_common_keys, name);
    for (size_t i = 0; key == NULL && (family = attn_family_at(i)) != NULL; i++) {
        key = attn_hf_key_find(family->rope_keys, name);
        for (const struct attn_hf_key *k = family->keys; key == NULL && k->name != NULL; k++) {
            const char *dot = k->kind != ATTN_CONFIG_IGNORED ? strchr(k->name, '.') : NULL;
            if (k->kind != ATTN_CONFIG_IGNORED && strcmp(dot ? dot + 1 : k->name, name) == 0)
                key = k;
        }
        if (key != NULL && key->kind == ATTN_CONFIG_IGNORED)
            key = NULL;
    }
    return attn_hf_names_have(others, name) || (key != NULL && key->kind != ATTN_CONFIG_IGNORED);
}

static bool check_ignored(struct attn_reader *reader)
{
    char name[96];
    size_t length;
    for (const char *at = reader->ignored; at != NULL && *at != '\0';
         at += length + (at[length] == ' ')) {
        length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (changes_mathematics(name))
            return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, "ignore_keys",
                                   ": '%s' changes what is computed, so it cannot be passed over",
                                   name);
    }
    return true;
}

/* Whether a key that is not understood is passed over; else it is refused, in the object `within`,
 * "" for the configuration itself. */
static bool pass_over(struct attn_reader *reader, const char *within, const char *key,
                      const struct attn_hf_key *keys)
{
    return attn_hf_names_have(reader->ignored, key) ||
           attn_resolved(&reader->r, attn_fail_key(within, key, keys, reader->r.error));
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static bool read_key(struct attn_reader *reader, const struct attn_hf_key *key,
                     const json_t *value);

/* Reads the keys of an object other than RoPE's; the family's list has them after a dot. */
static bool read_members(struct attn_reader *reader, const struct attn_hf_key *object,
                         const json_t *value)
{
    char name[128];
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return attn_refuse_type(reader, object->name, "an object");
    json_object_foreach((json_t *)value, key, item) {
        int length = snprintf(name, sizeof name, "%s.%s", object->name, key);
        const struct attn_hf_key *known =
            (size_t)length < sizeof name ? attn_hf_key_find(reader->r.config->family->keys, name)
                                         : NULL;
        if (!(known != NULL
                  ? read_key(reader, known, item)
                  : attn_hf_names_have(reader->ignored, key) ||
                        attn_resolved(&reader->r, attn_fail(reader->r.error, ATTN_UNSUPPORTED, key,
                                                            "%s: key '%.96s' is not understood",
                                                            object->name, key))))
            return false;
    }
    return true;
}

/* Reads the width of another object; one without it has the default. */
static bool read_width(struct attn_reader *reader, const struct attn_hf_key *object,
                       const json_t *value)
{
    struct attn_hf_key key = *object;
    const json_t *width = json_object_get(value, "hidden_size");
    key.name = object->only;
    if (!json_is_object(value))
        return attn_refuse_type(reader, object->name, "an object");
    return width == NULL || attn_read_size(reader, &key, width);
}

/* Reads an object of layers: "5": {"head_dim": 512, "num_key_value_heads": 2}. */
static bool read_per_layer(struct attn_reader *reader, const struct attn_hf_key *key,
                           const json_t *value)
{
    const struct attn_family *family = reader->r.config->family;
    const char *index, *name;
    json_t *layer, *item;
    if (!json_is_object(value))
        return attn_refuse_type(reader, key->name, "an object");
    json_object_foreach((json_t *)value, index, layer) {
        char *end;
        const unsigned long i = strtoul(index, &end, 10);
        if (!json_is_object(layer) || *end != '\0' || end == index || i >= ATTN_MAX_LAYERS)
            return attn_refuse_type(reader, key->name, "an object of objects by index of layer");
        json_object_foreach(layer, name, item) {
            const struct attn_hf_key *known = attn_family_key(family, name);
            if (strcmp(name, "head_dim") == 0)
                known = attn_hf_key_find(family->keys, "global_head_dim");
            else if (strcmp(name, "num_key_value_heads") == 0)
                known = attn_hf_key_find(family->keys, "num_global_key_value_heads");
            else if (known == NULL || known->kind != ATTN_CONFIG_IGNORED)
                return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, key->name,
                                       ": %.64s by layer is not supported", name);
            if (known->kind != ATTN_CONFIG_IGNORED && !attn_read_size(reader, known, item))
                return false;
            reader->r.config->differs[i] |= known->kind != ATTN_CONFIG_IGNORED;
        }
    }
    return true;
}

static bool read_number(struct attn_reader *reader, const struct attn_hf_key *key,
                        const json_t *value)
{
    if (!json_is_number(value))
        return attn_refuse_type(reader, key->name, "a number");
    return attn_check_range(reader, key, json_number_value(value)) &&
           attn_set_field(reader, key, &(double){json_number_value(value)});
}

static bool read_flag(struct attn_reader *reader, const struct attn_hf_key *key,
                      const json_t *value)
{
    if (key->max > 1 && json_is_integer(value))
        return attn_check_range(reader, key, json_number_value(value)) &&
               attn_set_field(reader, key, &(bool){json_integer_value(value) != 0});
    return json_is_boolean(value) ? attn_set_field(reader, key, &(bool){json_is_true(value)})
                                  : attn_refuse_type(reader, key->name, "true or false");
}

static bool read_quantization(struct attn_reader *reader, const struct attn_hf_key *key,
                              const json_t *value)
{
    return attn_resolved(&reader->r, attn_quantization_read(&reader->r.config->hf.quantization,
                                                            key->name, value, reader->r.error));
}

/* Reads one key, except objects of RoPE (read_rope).  null clears its field. */
static bool read_key(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value)
{
    static bool (*const read[])(struct attn_reader *, const struct attn_hf_key *,
                                const json_t *) = {
        [ATTN_CONFIG_INTEGER] = attn_read_size,
        [ATTN_CONFIG_NUMBER] = read_number,
        [ATTN_CONFIG_FLAG] = read_flag,
        [ATTN_CONFIG_ROPE_TYPE] = read_name,
        [ATTN_CONFIG_NAME] = read_name,
        [ATTN_CONFIG_FACTORS] = attn_read_list,
        [ATTN_CONFIG_LAYER_TYPES] = attn_read_list,
        [ATTN_CONFIG_LAYER_RUNS] = attn_read_runs,
        [ATTN_CONFIG_LAYER_LETTERS] = attn_read_letters,
        [ATTN_CONFIG_LAYER_BLOCKS] = attn_read_blocks,
        [ATTN_CONFIG_FULL_LAYERS] = attn_read_list,
        [ATTN_CONFIG_PERIOD] = read_period,
        [ATTN_CONFIG_ROPE_LAYERS] = attn_read_list,
        [ATTN_CONFIG_PARTIALS] = attn_read_list,
        [ATTN_CONFIG_SCALED_TYPES] = read_scaled_types,
        [ATTN_CONFIG_ROPE_THETAS] = attn_read_list,
        [ATTN_CONFIG_LAYER_HEADS] = attn_read_list,
        [ATTN_CONFIG_WINDOWS] = attn_read_windows,
        [ATTN_CONFIG_MLP_TYPES] = attn_read_list,
        [ATTN_CONFIG_GATING] = read_gating,
        [ATTN_CONFIG_TERMS] = attn_read_terms,
        [ATTN_CONFIG_CROSS_LAYERS] = attn_read_cross_layers,
        [ATTN_CONFIG_WIDTH] = read_width,
        [ATTN_CONFIG_PER_LAYER] = read_per_layer,
        [ATTN_CONFIG_FIXED] = read_fixed,
        [ATTN_CONFIG_QUANTIZATION] = read_quantization,
        [ATTN_CONFIG_OBJECT] = read_members,
        [ATTN_CONFIG_IGNORED] = NULL,
    };
    const size_t offset = reader->base + key->offset;
    if (!json_is_null(value))
        return read[key->kind] == NULL || read[key->kind](reader, key, value);
    if (!reader->is_set[offset])
        memset((char *)&reader->r.config->hf + offset, 0, size_of(key->kind));
    return true;
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

/* Reads the keys of one RoPE object into the struct attn_hf_rope at reader->base. */
static bool read_rope_keys(struct attn_reader *reader, const char *name, json_t *object)
{
    const char *const types[] = {"rope_type", "type"}, *key;
    json_t *item;
    if (!json_is_object(object))
        return attn_refuse_type(reader, name, "an object");
    if (json_object_get(object, types[0]) == NULL && json_object_get(object, types[1]) == NULL)
        return attn_refuse_key(&reader->r, ATTN_MALFORMED, name, " has no rope_type");

    /* The type is read first: which other keys are allowed depends on it, and a wrong type is the
     * more useful error. */
    for (size_t i = 0; i < 2; i++)
        if ((item = json_object_get(object, types[i])) != NULL &&
            !read_name(reader, attn_hf_key_find(attn_rope_keys, types[i]), item))
            return false;

    json_object_foreach(object, key, item) {
        const struct attn_hf_key *known = attn_hf_key_find(attn_rope_keys, key);
        if (known == NULL)
            known = attn_hf_key_find(reader->r.config->family->rope_keys, key);
        if (!(known != NULL ? read_key(reader, known, item)
                            : pass_over(reader, name, key, attn_rope_keys)))
            return false;
    }
    return true;
}

/* Reads an object for each type of layers.  Where one is missing, that type has no scaling. */
static bool read_rope_by_type(struct attn_reader *reader, const char *name, json_t *object)
{
    const char *key;
    json_t *item;
    if (!reader->r.config->hf.rope_by_type)
        reader->r.config->hf.sliding_rope = reader->r.config->hf.rope;
    reader->r.config->hf.rope_by_type = reader->typed_rope = true;
    json_object_foreach(object, key, item) {
        const bool full = strcmp(attn_layer_types[ATTN_LAYER_FULL], key) == 0;
        if (!full && strcmp(attn_layer_types[ATTN_LAYER_SLIDING], key) != 0)
            return attn_resolved(&reader->r,
                                 attn_fail(reader->r.error, ATTN_UNSUPPORTED, key,
                                           "%s: key '%.96s' is not understood", name, key));
        reader->base = full ? HF_FIELD(rope) : HF_FIELD(sliding_rope);
        if (!json_is_null(item) && !read_rope_keys(reader, key, item))
            return false;
    }
    return true;
}

static bool read_rope(struct attn_reader *reader, const struct attn_hf_key *key, json_t *value)
{
    bool by_type = json_object_get(value, attn_layer_types[ATTN_LAYER_FULL]) != NULL ||
                   json_object_get(value, attn_layer_types[ATTN_LAYER_SLIDING]) != NULL;
    const struct attn_hf_rope *own = &reader->r.config->family->defaults.rope;
    if (json_is_null(value) && own->type == ATTN_ROPE_YARN && own->scaling_beta == 0)
        return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, key->name,
                               ": null is plain RoPE in some versions of Hugging Face's class, and "
                               "the class's own scaling in others: write the object out, or "
                               "{\"rope_type\": \"default\"}");
    if (!json_is_null(value) || (own->type != ATTN_ROPE_PROPORTIONAL &&
                                 own->type != ATTN_ROPE_LLAMA3 && own->scaling_beta == 0))
        clear_rope(reader); /* else: classes with scaling of their own put it in null's place */
    if (json_is_null(value))
        return true;
    /* An object by type beside a plain one would contradict it, or be mixed with it. */
    if (reader->typed_rope || (by_type && reader->is_set[HF_FIELD(rope.type)]))
        return attn_refuse_contradiction(reader, key->name);
    reader->base = HF_FIELD(rope);
    return by_type ? read_rope_by_type(reader, key->name, value)
                   : read_rope_keys(reader, key->name, value);
}

/* Sets the sizes of the family's class, which a text model inside another may leave out. */
static void set_inner_sizes(struct attn_hf_config *hf, const struct attn_family *family)
{
    if (family->inner.hidden_size == 0)
        return;
    hf->hidden_size = family->inner.hidden_size;
    hf->num_heads = family->inner.num_heads;
    hf->num_layers = family->inner.num_layers;
    hf->max_position = family->inner.max_position;
}

/* ---- The whole ----------------------------------------------------------------------------- */

/* Reads all keys, objects of RoPE last: keys beside these objects hold for both types of layers. */
static bool read_object(struct attn_reader *reader, json_t *object)
{
    for (int pass = 0; pass < 2; pass++) {
        const char *key;
        json_t *value;
        json_object_foreach(object, key, value) {
            const struct attn_hf_key *known = attn_family_key(reader->r.config->family, key);
            reader->base = 0;
            if (known == NULL && !pass_over(reader, "", key, reader->r.config->family->keys))
                return false;
            const bool rope = known != NULL && known->kind == ATTN_CONFIG_ROPE;
            if (known != NULL && rope == (pass == 1) &&
                !(rope ? read_rope(reader, known, value) : read_key(reader, known, value)))
                return false;
        }
    }
    return true;
}

/* Reads the settings: a nested object, or the two nested ones, or the configuration itself.  Of
 * keys beside a nested object only those that are known to change the mathematics count. */
static bool read_settings(struct attn_reader *reader, json_t *object, json_t *settings)
{
    const struct attn_family *family = reader->r.config->family;
    json_t *second = attn_config_object(object, family->subconfig_dict);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const struct attn_hf_key *known = attn_family_key(family, key);
        const bool counts =
            settings != object && known != NULL && !json_is_null(value) &&
            (known->kind == ATTN_CONFIG_FIXED || known->kind == ATTN_CONFIG_QUANTIZATION ||
             known->kind == ATTN_CONFIG_WIDTH);
        if (counts && !read_key(reader, known, value))
            return false;
    }
    return read_object(reader, settings) && (second == NULL || read_object(reader, second));
}

enum attn_status attn_config_read(struct attn_config *out, const struct attn_config_options *given,
                                  const char *text, size_t length, struct attn_error *error)
{
    const struct attn_config_options options =
        given != NULL ? *given : (struct attn_config_options){.family = NULL};
    json_t *object;
    enum attn_status status = attn_config_parse(&object, text, length, error);
    if (status != ATTN_OK)
        return status;
    struct attn_choice choice = {.family = options.family, .settings = object};
    if (choice.family == NULL)
        status = attn_config_choose(&choice, object, options.stack, error);
    if (status == ATTN_OK) {
        struct attn_reader reader = {.r = {.config = out, .error = error},
                                     .ignored = options.ignore_keys};
        const struct attn_family *family = choice.family;
        *out = (struct attn_config){.family = family,
                                    .hf = family->defaults,
                                    .is_wrapped = choice.is_wrapped,
                                    .is_vision = choice.is_vision};
        if (choice.is_wrapped && choice.settings != object)
            set_inner_sizes(&out->hf, family);
        bool read = check_ignored(&reader) && read_settings(&reader, object, choice.settings);
        out->says_layout = reader.is_set[HF_FIELD(transposed)];
        out->layout = out->hf.transposed ? ATTN_LAYOUT_TRANSPOSED : family->layout;
        if (read)
            attn_resolve(&reader.r);
        status = reader.r.status;
    }
    json_decref(object);
    return status;
}
