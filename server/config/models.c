/* models.c: the models that the configuration names: the list `models` of the file, and
 * NAME=DIR of ATTN_MODELS and --model.
 *
 * An entry is {"name", "path", "config"?: {..}, "ignore_keys"?, "layers"?, "stack"?} for a
 * checkpoint or {"name", "random": {..}}, either with "dtype"? and "kv_dtype"?.  A table has the
 * keys and the function that reads each.  The library checks the contents of `config` and `random`,
 * so these are kept as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "config/options.h"

const char *const srv_stack_names[SRV_STACKS] = {"encoder", "decoder", "cross", "text", "vision"};

/* ---- The file -------------------------------------------------------------------------------- */

static bool read_name(struct srv_object *object, json_t *value)
{
    const struct srv_config *config = object->context;
    const char *name = json_string_value(value);
    if (name == NULL || !srv_id_valid(name))
        return false;
    if (srv_config_find_model(config, name, strlen(name)) != NULL)
        return srv_object_refuse(object, "names an earlier model too");
    memcpy(object->to, name, strlen(name) + 1);
    return true;
}

/* A relative path starts at the directory of the configuration file, not at the working
 * directory. */
static bool read_path(struct srv_object *object, json_t *value)
{
    const struct srv_config *config = object->context;
    char **out = object->to;
    const char *path = json_string_value(value), *slash = strrchr(config->config_file, '/');
    if (path == NULL || path[0] == '\0')
        return false;
    int length = path[0] != '/' && slash != NULL ? (int)(slash - config->config_file) + 1 : 0;
    if (asprintf(out, "%.*s%s", length, config->config_file, path) >= 0)
        return true;
    *out = NULL;
    return srv_object_refuse(object, "out of memory");
}

static bool read_layers(struct srv_object *object, json_t *value)
{
    struct srv_model_entry *entry = object->out;
    size_t count = json_array_size(value);
    json_int_t least = 0;
    if (count == 0 || count > ATTN_MAX_LAYERS)
        return false;
    entry->layers = calloc(count, sizeof *entry->layers);
    entry->num_layers = count;
    if (entry->layers == NULL)
        return srv_object_refuse(object, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < least || layer >= ATTN_MAX_LAYERS)
            return false;
        entry->layers[i] = (size_t)layer;
        least = layer + 1;
    }
    return true;
}

/* Keeps an object as text. */
static bool read_text(struct srv_object *object, json_t *value)
{
    char **out = object->to;
    if (!json_is_object(value))
        return false;
    *out = json_dumps(value, JSON_COMPACT);
    return *out != NULL || srv_object_refuse(object, "out of memory");
}

/* Keeps a list of keys as one text, with blanks between. */
static bool read_keys(struct srv_object *object, json_t *value)
{
    char **out = object->to;
    size_t i, size = 1;
    json_t *key;
    if (!json_is_array(value))
        return false;
    json_array_foreach(value, i, key) {
        if (json_string_length(key) == 0 || strchr(json_string_value(key), ' ') != NULL)
            return false;
        size += json_string_length(key) + 1;
    }
    *out = calloc(size, 1);
    if (*out == NULL)
        return srv_object_refuse(object, "out of memory");
    char *at = *out;
    json_array_foreach(value, i, key) {
        if (i > 0)
            *at++ = ' ';
        at = mempcpy(at, json_string_value(key), json_string_length(key));
    }
    return true;
}

static bool read_dtype(struct srv_object *object, json_t *value)
{
    struct srv_model_entry *entry = object->out;
    entry->has_dtype = true;
    return json_is_string(value) && attn_dtype_find(&entry->dtype, json_string_value(value)) &&
           attn_dtype_of_weights(entry->dtype);
}

static bool read_kv_dtype(struct srv_object *object, json_t *value)
{
    struct srv_model_entry *entry = object->out;
    entry->has_kv_dtype = true;
    return json_is_string(value) && attn_dtype_find(&entry->kv_dtype, json_string_value(value)) &&
           attn_dtype_of_caches(entry->kv_dtype);
}

static bool read_stack(struct srv_object *object, json_t *value)
{
    const char **out = object->to, *stack = json_string_value(value);
    for (size_t i = 0; i < SRV_STACKS && stack != NULL; i++)
        if (strcmp(stack, srv_stack_names[i]) == 0)
            *out = srv_stack_names[i];
    return *out != NULL;
}

static bool refuse_unknown(struct srv_object *object, json_t *value);

#define AT(member) offsetof(struct srv_model_entry, member)

static const struct srv_member members[] = {
    {"name", read_name, AT(name), "must be " SRV_ID_RULE},
    {"path", read_path, AT(path), "must be the name of a directory or file"},
    {"layers", read_layers, AT(layers), "must be a list of layer indices in ascending order"},
    {"random", read_text, AT(random), "must be an object"},
    {"dtype", read_dtype, AT(dtype), "must be " ATTN_DTYPE_WORDS},
    {"kv_dtype", read_kv_dtype, AT(kv_dtype), "must be " ATTN_KV_DTYPE_WORDS},
    {"stack", read_stack, AT(stack),
     "must be \"encoder\", \"decoder\", \"cross\", \"text\" or \"vision\""},
    {"config", read_text, AT(config), "must be an object"},
    {"ignore_keys", read_keys, AT(ignore_keys), "must be a list of keys of the configuration"},
    {NULL, refuse_unknown, 0, NULL},
};
#define MEMBERS (sizeof members / sizeof members[0] - 1)

static bool refuse_unknown(struct srv_object *object, json_t *value)
{
    const char *names[MEMBERS];
    (void)value;
    for (size_t i = 0; i < MEMBERS; i++)
        names[i] = members[i].name;
    const char *nearest = attn_nearest(object->member, names, MEMBERS);
    return nearest == NULL ? srv_object_refuse(object, "unknown key")
                           : srv_object_refuse(object, "unknown key: did you mean %s?", nearest);
}

static bool check_entry(struct srv_object *object)
{
    const struct srv_model_entry *entry = object->out;
    const bool random = entry->random != NULL;
    const struct {
        bool is_wrong;
        const char *member, *why;
    } checks[] = {
        {entry->name[0] == '\0', "name", "is missing"},
        {(entry->path == NULL) != random, "path", "exactly one of path and random must be given"},
        {random && entry->layers != NULL, "layers",
         "has no meaning for a random model, which says num_hidden_layers"},
        {random && entry->stack != NULL, "stack",
         "has no meaning for a random model, which has one"},
        {random && entry->ignore_keys != NULL, "ignore_keys",
         "has no meaning for a random model, whose keys are all understood"},
        {random && entry->config != NULL, "config",
         "has no meaning for a random model: random is its configuration"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        object->member = checks[i].member;
        if (checks[i].is_wrong)
            return srv_object_refuse(object, "%s", checks[i].why);
    }
    return true;
}

bool srv_config_models(struct srv_config_reading *reading, json_t *list)
{
    size_t i;
    json_t *value;
    if (!json_is_array(list) || json_array_size(list) > SRV_MAX_MODELS)
        return srv_refuse(reading->message, "models: must be a list of at most %d entries",
                          SRV_MAX_MODELS);
    json_array_foreach(list, i, value) {
        struct srv_object object = {.context = reading->config, .message = reading->message};
        struct srv_model_entry *entry = object.out = srv_config_new_model(reading);
        snprintf(object.path, sizeof object.path, "models[%zu]", i);
        if (entry == NULL || !srv_object_read(&object, members, value) || !check_entry(&object))
            return false;
        entry->source = SRV_FROM_FILE;
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
        return srv_refuse(reading->message,
                          "%s: \"%.*s\" is not NAME=DIR (a name is " SRV_ID_RULE ")", name,
                          (int)(length < 64 ? length : 64), text);
    struct srv_model_entry *entry = srv_config_find_model(reading->config, id, end);
    if (entry != NULL && entry->source == source)
        return srv_refuse(reading->message, "%s: two models are named %s", name, id);
    if (entry != NULL)
        srv_config_free_model(entry);
    else if ((entry = srv_config_new_model(reading)) == NULL)
        return false;
    *entry = (struct srv_model_entry){.source = (unsigned char)source};
    memcpy(entry->name, id, sizeof entry->name);
    entry->path = strndup(text + end + 1, length - end - 1);
    return entry->path != NULL || srv_refuse(reading->message, "%s: out of memory", name);
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
        srv_refuse(reading->message, "models: out of memory");
    else
        srv_refuse(reading->message, "models: there are more than %d", SRV_MAX_MODELS);
    return NULL;
}

void srv_config_free_model(struct srv_model_entry *entry)
{
    free(entry->path);
    free(entry->random);
    free(entry->config);
    free(entry->ignore_keys);
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
