/* config_lists.c: values of config.json that are lists, or stand for one: JSON -> struct
 * attn_hf_config, and the arrays by layer of struct attn_config. */
#include <string.h>

#include "basics/text.h"
#include "families/config_reader.h"

/* Gives layer i a type, which another key has given it already or not at all. */
static bool set_type(struct attn_reader *reader, const struct attn_hf_key *key, size_t i,
                     size_t type, const json_t *value)
{
    uint8_t *types = reader->r.config->types;
    if (type == ATTN_NUM_LAYER_TYPES)
        return attn_refuse_value(reader, key->name, value);
    if (reader->is_set[key->offset] && types[i] != type)
        return attn_refuse_contradiction(reader, key->name);
    types[i] = (uint8_t)type;
    return true;
}

/* Whether a key of layers' types has numbers, 0 and 1, in place of names. */
static bool is_numbers(const struct attn_hf_key *key)
{
    return key->kind == ATTN_CONFIG_LAYER_TYPES && key->only != NULL && strchr(key->only, '0');
}

/* Lists, by kind of key: a text for errors, and the type of the elements. */
static const struct list {
    const char *text;
    json_type type;
    json_int_t max; /* of integers from 0 on; 0: attn_check_range says it */
} lists[] = {
    [ATTN_CONFIG_FACTORS] = {"a list of numbers", JSON_REAL, 0},
    [ATTN_CONFIG_ROPE_THETAS] = {"a list of numbers", JSON_REAL, 0},
    [ATTN_CONFIG_PARTIALS] = {"a list of numbers", JSON_REAL, 0},
    [ATTN_CONFIG_LAYER_HEADS] = {"a list of integers", JSON_INTEGER, 0},
    [ATTN_CONFIG_WINDOWS] = {"an integer or a list of integers", JSON_INTEGER, 0},
    [ATTN_CONFIG_ROPE_LAYERS] = {"a list of 0 and 1", JSON_INTEGER, 1},
    [ATTN_CONFIG_FULL_LAYERS] = {"a list of indices of layers", JSON_INTEGER, ATTN_MAX_LAYERS - 1},
    [ATTN_CONFIG_LAYER_TYPES] = {"a list of strings", JSON_STRING, 0},
    [ATTN_CONFIG_MLP_TYPES] = {"a list of strings", JSON_STRING, 0},
};

static const struct list *list_of(const struct attn_hf_key *key)
{
    return &lists[is_numbers(key) ? ATTN_CONFIG_ROPE_LAYERS : key->kind];
}

/* Checks that a window is even, as Hugging Face's class does. */
static bool check_even(struct attn_reader *reader, const struct attn_hf_key *key, json_int_t window)
{
    return window % 2 == 0 ||
           attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name,
                           " is %lld, must be even: half of a window lies on each side of a token",
                           (long long)window);
}

static bool read_element(struct attn_reader *reader, const struct attn_hf_key *key, size_t i,
                         const json_t *element)
{
    struct attn_config *config = reader->r.config;
    const char *text = json_string_value(element);
    const double number = json_number_value(element);
    const struct list *list = list_of(key);
    if ((list->type == JSON_REAL ? !json_is_number(element) : json_typeof(element) != list->type) ||
        (list->max > 0 && (number < key->min || number > (double)list->max)))
        return attn_refuse_type(reader, key->name, list->text);
    switch (key->kind) {
    case ATTN_CONFIG_FACTORS:
        config->factors[config->num_lists][i] = number;
        return attn_check_range(reader, key, number);
    case ATTN_CONFIG_ROPE_THETAS:
        config->rope_thetas[i] = number;
        return attn_check_range(reader, key, number);
    case ATTN_CONFIG_PARTIALS:
        config->partials[i] = number;
        return attn_check_range(reader, key, number);
    case ATTN_CONFIG_LAYER_HEADS:
        config->heads[i] = (size_t)json_integer_value(element);
        return attn_check_range(reader, key, number);
    case ATTN_CONFIG_WINDOWS:
        config->windows[i] = (size_t)json_integer_value(element);
        return attn_check_range(reader, key, number) &&
               check_even(reader, key, json_integer_value(element));
    case ATTN_CONFIG_ROPE_LAYERS:
        config->rotates[i] = number == 1;
        return true;
    case ATTN_CONFIG_FULL_LAYERS:
        config->is_listed[(size_t)(number - key->min)] = true;
        return true;
    case ATTN_CONFIG_MLP_TYPES:
        config->dense[i] = strcmp(text, "dense") == 0;
        return config->dense[i] || strcmp(text, "sparse") == 0 ||
               attn_refuse_value(reader, key->name, element);
    default:
        if (is_numbers(key))
            text = number == 1 ? "1" : "0";
        return set_type(reader, key, i, attn_layer_type_find(config->family, key, text), element);
    }
}

/* Reads a list into the configuration: factors, into its next free list; others by layer, of which
 * an empty list of layers that rotate is none, as in Hugging Face's classes. */
bool attn_read_list(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value)
{
    struct attn_config *config = reader->r.config;
    const bool factors = key->kind == ATTN_CONFIG_FACTORS;
    const bool layers = key->kind == ATTN_CONFIG_ROPE_LAYERS || is_numbers(key);
    const size_t count = json_array_size(value);
    const size_t most = factors ? ATTN_MAX_HEAD_DIM / 2 : ATTN_MAX_LAYERS;
    if (!json_is_array(value))
        return attn_refuse_type(reader, key->name, list_of(key)->text);
    if (factors &&
        (config->num_lists == ATTN_CONFIG_LISTS || reader->is_set[reader->base + key->offset]))
        return attn_refuse_contradiction(reader, key->name);
    if (count > most || (count == 0 && !layers))
        return attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name, " has %zu entries, %s%zu",
                               count, layers ? "at most " : "must be 1 to ", most);
    for (size_t i = 0; i < count; i++)
        if (!read_element(reader, key, i, json_array_get(value, i)))
            return false;
    size_t filled = count;
    if (key->kind == ATTN_CONFIG_FULL_LAYERS)
        for (filled = ATTN_MAX_LAYERS; !config->is_listed[filled - 1];)
            filled--;
    if (!factors)
        return attn_set_field(reader, key, &filled);
    return attn_set_field(reader, key,
                          &(struct attn_factors){count, config->factors[config->num_lists++]});
}

/* Reads the window of each layer, or that of all. */
bool attn_read_windows(struct attn_reader *reader, const struct attn_hf_key *key,
                       const json_t *value)
{
    struct attn_hf_key all = *key;
    all.offset = HF_FIELD(sliding_window);
    return !json_is_integer(value) ? attn_read_list(reader, key, value)
                                   : attn_read_size(reader, &all, value) &&
                                         check_even(reader, key, json_integer_value(value));
}

bool attn_read_cross_layers(struct attn_reader *reader, const struct attn_hf_key *key,
                            const json_t *value)
{
    const size_t count = json_array_size(value);
    for (size_t i = 0; i < count; i++) {
        const json_int_t layer = json_integer_value(json_array_get(value, i));
        if (!json_is_integer(json_array_get(value, i)))
            return attn_refuse_type(reader, key->name, "a list of layers");
        if (layer < 0 || layer >= ATTN_MAX_LAYERS)
            return attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name,
                                   " has %lld, must be 0 to %d", (long long)layer,
                                   ATTN_MAX_LAYERS - 1);
        reader->r.config->crosses[layer] = true;
    }
    return json_is_array(value) ? attn_set_field(reader, key, &count)
                                : attn_refuse_type(reader, key->name, "a list of layers");
}

/* Reads a letter for each layer. */
bool attn_read_letters(struct attn_reader *reader, const struct attn_hf_key *key,
                       const json_t *value)
{
    const size_t count = json_string_length(value);
    if (!json_is_string(value))
        return attn_refuse_type(reader, key->name, "a string");
    if (count == 0 || count > ATTN_MAX_LAYERS)
        return attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name,
                               " has %zu letters, must be 1 to %d", count, ATTN_MAX_LAYERS);
    for (size_t i = 0; i < count; i++) {
        const char letter = json_string_value(value)[i];
        size_t type = 0;
        while (attn_layer_letters[type] != '\0' &&
               (letter == ' ' || attn_layer_letters[type] != letter))
            type++;
        if (!set_type(reader, key, i, type, value))
            return false;
    }
    return attn_set_field(reader, key, &count);
}

/* Reads an object of each layer, nemotron-nas': whether the layer attends, and how many query heads
 * share a key/value head. */
bool attn_read_blocks(struct attn_reader *reader, const struct attn_hf_key *key,
                      const json_t *value)
{
    static const char *const without[] = {"sparsify", "num_sink_tokens", "unshifted_sink",
                                          "use_prefill_window_in_sink_attention", "window_length"};
    const size_t count = json_array_size(value);
    if (count == 0 || count > ATTN_MAX_LAYERS)
        return attn_refuse_type(reader, key->name, "a list of an object for each layer");
    for (size_t i = 0; i < count; i++) {
        const json_t *own = json_object_get(json_array_get(value, i), "attention");
        const json_int_t heads = json_integer_value(json_object_get(own, "n_heads_in_group"));
        const bool absent = json_is_true(json_object_get(own, "no_op")) ||
                            json_is_true(json_object_get(own, "replace_with_linear"));
        if (!absent && (heads < 1 || heads > ATTN_MAX_HEADS))
            return attn_refuse_key(&reader->r, ATTN_OUT_OF_RANGE, key->name,
                                   ": n_heads_in_group of layer %zu must be 1 to %d", i,
                                   ATTN_MAX_HEADS);
        for (size_t k = 0; k < sizeof without / sizeof without[0] && !absent; k++)
            if (json_is_true(json_object_get(own, without[k])) ||
                json_is_number(json_object_get(own, without[k])) ||
                json_is_object(json_object_get(own, without[k])))
                return attn_refuse_key(&reader->r, ATTN_UNSUPPORTED, key->name,
                                       ": %s of layer %zu is not supported", without[k], i);
        if (!set_type(reader, key, i, absent ? ATTN_LAYER_MLP : ATTN_LAYER_FULL, value))
            return false;
        reader->r.config->sharers[i] = absent ? 0 : (size_t)heads;
    }
    return attn_set_field(reader, key, &count);
}

/* Reads a list such as [[["global", "local"], 12]]: runs of names, each as often as it says. */
bool attn_read_runs(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value)
{
    const struct attn_family *family = reader->r.config->family;
    size_t count = 0;
    for (size_t run = 0; run < json_array_size(value); run++) {
        const json_t *pair = json_array_get(value, run), *names = json_array_get(pair, 0);
        const json_int_t times = json_integer_value(json_array_get(pair, 1));
        const size_t length = json_array_size(names);
        if (json_array_size(pair) != 2 || length == 0 || length > ATTN_MAX_LAYERS || times < 1 ||
            times > ATTN_MAX_LAYERS || count + length * (size_t)times > ATTN_MAX_LAYERS)
            return attn_refuse_value(reader, key->name, value);
        for (size_t i = 0; i < length * (size_t)times; i++) {
            const json_t *name = json_array_get(names, i % length);
            const char *text = json_is_string(name) ? json_string_value(name) : "";
            if (!set_type(reader, key, count++, attn_layer_type_find(family, key, text), value))
                return false;
        }
    }
    return count != 0 ? attn_set_field(reader, key, &count)
                      : attn_refuse_type(reader, key->name, "a list of lists of names and counts");
}

/* Reads "c2p", "p2c", both with '|' between, or a list of these. */
bool attn_read_terms(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value)
{
    const size_t both = ATTN_TERM_C2P | ATTN_TERM_P2C;
    const size_t bits[] = {0, ATTN_TERM_C2P, ATTN_TERM_P2C, both, both};
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    size_t terms = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *element = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(element))
            return attn_refuse_type(reader, key->name, "a string, or a list of strings");
        const size_t term =
            bits[attn_text_word_number("c2p p2c c2p|p2c p2c|c2p", json_string_value(element))];
        if (term == 0)
            return attn_refuse_value(reader, key->name, element);
        terms |= term;
    }
    return attn_set_field(reader, key, &terms);
}
