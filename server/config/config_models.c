/* config_models.c: the `models` list of the configuration file.
 *
 * An entry is {"name", "path", "layers"?, "stack"?} for a checkpoint or {"name", "random": {..}},
 * either with "dtype"? and "kv_dtype"?.  A table has the keys and the function that reads each.
 * The library checks the contents of `random`, so these are kept as text. */
#include "config/config_models.h"

#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "base/id.h"

const char *const srv_stack_names[SRV_STACKS] = {"encoder", "decoder", "cross"};

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
        return refuse(member,
                      "must be 1 to 64 letters, digits, '.', '_' or '-', the first a letter "
                      "or digit");
    const struct srv_config *config = member->reading->config;
    for (size_t i = 0; i < config->num_models; i++) {
        if (strcmp(config->models[i].name, name) == 0)
            return refuse(member, "names an earlier model too");
    }
    memcpy(member->entry->name, name, strlen(name) + 1);
    return true;
}

/* A relative path starts at the directory of the configuration file, not at the working
 * directory. */
static bool read_path(const struct member *member, const json_t *value)
{
    const char *path = json_string_value(value);
    if (path == NULL || path[0] == '\0')
        return refuse(member, "must be the name of a directory");
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

static bool read_random(const struct member *member, const json_t *value)
{
    if (!json_is_object(value))
        return refuse(member, "must be an object");
    member->entry->random = json_dumps(value, JSON_COMPACT);
    return member->entry->random != NULL || refuse(member, "out of memory");
}

static bool read_dtype(const struct member *member, const json_t *value)
{
    const char *name = json_string_value(value);
    return (name != NULL && attn_dtype_find(&member->entry->dtype, name) &&
            member->entry->dtype != ATTN_F16) ||
           refuse(member, "must be \"f32\", \"bf16\" or \"int8\"");
}

static bool read_kv_dtype(const struct member *member, const json_t *value)
{
    const char *name = json_string_value(value);
    return (name != NULL && attn_dtype_find(&member->entry->kv_dtype, name)) ||
           refuse(member, "must be \"f32\", \"bf16\", \"f16\" or \"int8\"");
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
    return refuse(member, "must be \"encoder\", \"decoder\" or \"cross\"");
}

static const struct {
    const char *key;
    bool (*read)(const struct member *member, const json_t *value);
} readers[] = {
    {"name", read_name},     {"path", read_path},   {"layers", read_layers},
    {"random", read_random}, {"dtype", read_dtype}, {"kv_dtype", read_kv_dtype},
    {"stack", read_stack},
};

static bool read_member(const struct member *member, const json_t *value)
{
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strcmp(readers[i].key, member->key) == 0)
            return readers[i].read(member, value);
    }
    return refuse(member, "unknown key");
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
    return true;
}

bool srv_config_models(struct srv_config_reading *reading, const json_t *list)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > SRV_MAX_MODELS)
        return srv_config_refuse(reading, "models: must be a list of at most %d entries",
                                 SRV_MAX_MODELS);
    struct srv_config *config = reading->config;
    config->models = calloc(count > 0 ? count : 1, sizeof *config->models);
    if (config->models == NULL)
        return srv_config_refuse(reading, "models: out of memory");
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(list, i);
        struct member member = {
            .reading = reading, .entry = &config->models[i], .index = i, .key = ""};
        if (!json_is_object(object))
            return srv_config_refuse(reading, "models[%zu]: must be an object", i);
        bool read = read_entry(&member, object);
        config->num_models++; /* also after a failure: srv_config_fini frees what was read */
        if (!read)
            return false;
    }
    return true;
}
