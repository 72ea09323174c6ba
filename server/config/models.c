/* models.c: the models that the configuration names: the list `models` of the file, and
 * NAME=DIR of ATTN_MODELS and --model.
 *
 * An entry is {"name", "path", "config"?: {..}, "layers"?, "stack"?} for a checkpoint or {"name",
 * "random": {..}}, either with "dtype"? and "kv_dtype"?.  A table has the keys and the function
 * that reads each.  The library checks the contents of `config` and `random`, so these are kept as
 * text. */
#include "config/models.h"

#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "base/id.h"
#include "base/nearest.h"

const char *const srv_stack_names[SRV_STACKS] = {"encoder", "decoder", "cross", "text", "vision"};

/* The member that is being read, which messages name: models[index].key */
struct member {
    struct srv_config_reading *reading;
    struct srv_model_entry *entry;
    size_t index;
    const char *key;
};

static bool refuse(const struct member *member, const char *what)
{
    return srv_config_refuse(member->reading, "models[%zu].%.64s: %s", member->index, member->key,
                             what);
}

static bool read_name(const struct member *member, const json_t *value)
{
    const char *name = json_string_value(value);
    if (name == NULL || !srv_id_valid(name))
        return refuse(member, "must be " SRV_ID_RULE);
    if (srv_config_find_model(member->reading->config, name, strlen(name)) != NULL)
        return refuse(member, "names an earlier model too");
    memcpy(member->entry->name, name, strlen(name) + 1);
    return true;
}

/* A relative path starts at the directory of the configuration file, not at the working
 * directory. */
static bool read_path(const struct member *member, const json_t *value)
{
    const char *path = json_string_value(value);
    if (path == NULL || path[0] == '\0')
        return refuse(member, "must be the name of a directory or file");
    const char *file = member->reading->config->config_file;
    const char *slash = strrchr(file, '/');
    size_t directory = path[0] != '/' && slash != NULL ? (size_t)(slash - file) + 1 : 0;
    size_t length = strlen(path);
    char *joined = malloc(directory + length + 1);
    if (joined == NULL)
        return refuse(member, "out of memory");
    memcpy(joined, file, directory);
    memcpy(joined + directory, path, length + 1);
    member->entry->path = joined;
    return true;
}

static bool read_layers(const struct member *member, const json_t *value)
{
    static const char wanted[] = "must be a list of layer indices in ascending order";
    size_t count = json_array_size(value);
    if (count == 0 || count > ATTN_MAX_LAYERS)
        return refuse(member, wanted);
    size_t *layers = calloc(count, sizeof *layers);
    if (layers == NULL)
        return refuse(member, "out of memory");
    member->entry->layers = layers;
    member->entry->num_layers = count;
    json_int_t least = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < least || layer >= ATTN_MAX_LAYERS)
            return refuse(member, wanted);
        layers[i] = (size_t)layer;
        least = layer + 1;
    }
    return true;
}

static bool read_object(char **out, const struct member *member, const json_t *value)
{
    if (!json_is_object(value))
        return refuse(member, "must be an object");
    *out = json_dumps(value, JSON_COMPACT);
    return *out != NULL || refuse(member, "out of memory");
}

static bool read_random(const struct member *member, const json_t *value)
{
    return read_object(&member->entry->random, member, value);
}

static bool read_config(const struct member *member, const json_t *value)
{
    return read_object(&member->entry->config, member, value);
}

static bool read_dtype(const struct member *member, const json_t *value)
{
    const char *name = json_string_value(value);
    member->entry->has_dtype = true;
    return (name != NULL && attn_dtype_find(&member->entry->dtype, name) &&
            member->entry->dtype != ATTN_F16) ||
           refuse(member, "must be " ATTN_DTYPE_WORDS);
}

static bool read_kv_dtype(const struct member *member, const json_t *value)
{
    const char *name = json_string_value(value);
    member->entry->has_kv_dtype = true;
    return (name != NULL && attn_dtype_find(&member->entry->kv_dtype, name) &&
            member->entry->kv_dtype != ATTN_W8A16) ||
           refuse(member, "must be " ATTN_KV_DTYPE_WORDS);
}

static bool read_stack(const struct member *member, const json_t *value)
{
    const char *stack = json_string_value(value);
    for (size_t i = 0; i < SRV_STACKS && stack != NULL; i++) {
        if (strcmp(stack, srv_stack_names[i]) == 0) {
            member->entry->stack = srv_stack_names[i];
            return true;
        }
    }
    return refuse(member, "must be \"encoder\", \"decoder\", \"cross\", \"text\" or \"vision\"");
}

static const struct {
    const char *key;
    bool (*read)(const struct member *member, const json_t *value);
} readers[] = {
    {"name", read_name},     {"path", read_path},     {"layers", read_layers},
    {"random", read_random}, {"dtype", read_dtype},   {"kv_dtype", read_kv_dtype},
    {"stack", read_stack},   {"config", read_config},
};
#define READERS (sizeof readers / sizeof readers[0])

static bool read_member(const struct member *member, const json_t *value)
{
    for (size_t i = 0; i < READERS; i++) {
        if (strcmp(readers[i].key, member->key) == 0)
            return readers[i].read(member, value);
    }
    const char *names[READERS];
    for (size_t i = 0; i < READERS; i++)
        names[i] = readers[i].key;
    const char *nearest = attn_nearest(member->key, names, READERS);
    if (nearest == NULL)
        return refuse(member, "unknown key");
    return srv_config_refuse(member->reading, "models[%zu].%.64s: unknown key: did you mean %s?",
                             member->index, member->key, nearest);
}

static bool read_entry(struct member *member, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        member->key = key;
        if (!read_member(member, value))
            return false;
    }
    const struct srv_model_entry *entry = member->entry;
    member->key = "name";
    if (entry->name[0] == '\0')
        return refuse(member, "is missing");
    member->key = "path";
    if ((entry->path == NULL) == (entry->random == NULL))
        return refuse(member, "exactly one of path and random must be given");
    member->key = "layers";
    if (entry->random != NULL && entry->layers != NULL)
        return refuse(member, "has no meaning for a random model, which says num_hidden_layers");
    member->key = "stack";
    if (entry->random != NULL && entry->stack != NULL)
        return refuse(member, "has no meaning for a random model, which has one");
    member->key = "config";
    if (entry->random != NULL && entry->config != NULL)
        return refuse(member, "has no meaning for a random model: random is its configuration");
    return true;
}

bool srv_config_models(struct srv_config_reading *reading, const json_t *list)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > SRV_MAX_MODELS)
        return srv_config_refuse(reading, "models: must be a list of at most %d entries",
                                 SRV_MAX_MODELS);
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(list, i);
        if (!json_is_object(object))
            return srv_config_refuse(reading, "models[%zu]: must be an object", i);
        struct member member = {.reading = reading, .index = i, .key = ""};
        member.entry = srv_config_new_model(reading);
        if (member.entry == NULL || !read_entry(&member, object))
            return false;
        member.entry->source = SRV_FROM_FILE;
    }
    return true;
}

/* ---- NAME=DIR -------------------------------------------------------------------------------- */

#define SEPARATORS ", \t\n"

/* Adds the model of the first `length` bytes of `text`. */
static bool add_model(struct srv_config_reading *reading, const char *name, const char *text,
                      size_t length, enum srv_config_source source)
{
    size_t end = strcspn(text, "=");
    char id[SRV_ID_MAX + 1] = "";
    if (end <= SRV_ID_MAX)
        memcpy(id, text, end);
    if (end + 1 >= length || !srv_id_valid(id))
        return srv_config_refuse(reading,
                                 "%s: \"%.*s\" is not NAME=DIR (a name is " SRV_ID_RULE ")", name,
                                 (int)(length < 64 ? length : 64), text);
    struct srv_model_entry *entry = srv_config_find_model(reading->config, id, end);
    if (entry != NULL && entry->source == source)
        return srv_config_refuse(reading, "%s: two models are named %s", name, id);
    if (entry != NULL)
        srv_config_free_model(entry);
    else if ((entry = srv_config_new_model(reading)) == NULL)
        return false;
    *entry = (struct srv_model_entry){.source = (unsigned char)source};
    memcpy(entry->name, id, sizeof entry->name);
    entry->path = strndup(text + end + 1, length - end - 1);
    return entry->path != NULL || srv_config_refuse(reading, "%s: out of memory", name);
}

bool srv_config_model_list(struct srv_config_reading *reading, const char *name, const char *text,
                           enum srv_config_source source)
{
    if (source == SRV_FROM_FLAG)
        return add_model(reading, name, text, strlen(text), source);
    for (text += strspn(text, SEPARATORS); *text != '\0'; text += strspn(text, SEPARATORS)) {
        size_t length = strcspn(text, SEPARATORS);
        if (!add_model(reading, name, text, length, source))
            return false;
        text += length;
    }
    return true;
}

/* ---- Entries --------------------------------------------------------------------------------- */

struct srv_model_entry *srv_config_find_model(const struct srv_config *config, const char *name,
                                              size_t length)
{
    for (size_t i = 0; i < config->num_models; i++) {
        struct srv_model_entry *entry = &config->models[i];
        if (strlen(entry->name) == length && memcmp(entry->name, name, length) == 0)
            return entry;
    }
    return NULL;
}

struct srv_model_entry *srv_config_new_model(struct srv_config_reading *reading)
{
    struct srv_config *config = reading->config;
    if (config->models == NULL)
        config->models = calloc(SRV_MAX_MODELS, sizeof *config->models);
    if (config->models != NULL && config->num_models < SRV_MAX_MODELS)
        return &config->models[config->num_models++];
    if (config->models == NULL)
        srv_config_refuse(reading, "models: out of memory");
    else
        srv_config_refuse(reading, "models: there are more than %d", SRV_MAX_MODELS);
    return NULL;
}

void srv_config_free_model(struct srv_model_entry *entry)
{
    free(entry->path);
    free(entry->random);
    free(entry->config);
    free(entry->layers);
}

void srv_config_model_dtypes(struct srv_config *config)
{
    static const enum attn_dtype of_weights[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};
    for (size_t i = 0; i < config->num_models; i++) {
        struct srv_model_entry *entry = &config->models[i];
        if (!entry->has_dtype)
            entry->dtype = of_weights[config->dtype];
        if (!entry->has_kv_dtype)
            entry->kv_dtype = (enum attn_dtype)config->kv_dtype;
    }
}
