/* command_inspect.c: attnd inspect: prints a checkpoint, or a configuration alone, as loading it
 * would resolve it: family, layers, costs.  With --family, command_family.c prints what is read of
 * a family.
 *
 * The text is made from the JSON of --json, whose layers are those of GET /models
 * (api/layer_json.c), so none differs from another.  Each stack of an architecture with several is
 * a model of its own and is printed as one.  Weights are not read. */
#include "main.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>

#include "api/endpoints.h"
#include "attn_limits.h"
#include "base/text_file.h"
#include "wire/document.h"

#define TEXT_MAX ((size_t)4 << 20) /* of what is printed */
#define USAGE                                                                            \
    "attnd inspect PATH [--config JSON] [--stack NAME] [--layers 0,3,5] [--dtype NAME] " \
    "[--kv-dtype NAME] [--json] | attnd inspect --family [NAME]"

struct arguments {
    const char *path;   /* a directory, a single file of tensors, or a configuration, *.json */
    const char *stack;  /* NULL: every stack of the checkpoint */
    const char *config; /* JSON in place of config.json, NULL: that file */
    const char *family; /* of which to print what is read, "": all names; NULL: of none */
    bool json;
    size_t layers[ATTN_MAX_LAYERS];
    size_t num_layers; /* 0: all */
    enum attn_dtype dtype, kv_dtype;
    bool has_dtype, has_kv_dtype; /* else the costs of each are printed */
    char *text;                   /* of a configuration alone, else NULL */
    size_t length;
    bool lacks_weights; /* of that directory, whose configuration it is */
};

__attribute__((format(printf, 1, 2))) static bool refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("attnd: inspect: ", stderr);
    vfprintf(stderr, format, values);
    fputs("\n", stderr);
    va_end(values);
    return false;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

/* The text holds indices in ascending order, separated by commas. */
static bool read_layers(struct arguments *arguments, const char *text)
{
    const char *at = text;
    arguments->num_layers = 0;
    for (;;) {
        size_t index = 0, digits = 0;
        for (; isdigit((unsigned char)*at) && digits < 6; at++, digits++)
            index = index * 10 + (size_t)(*at - '0');
        bool ascending =
            arguments->num_layers == 0 || index > arguments->layers[arguments->num_layers - 1];
        if (digits == 0 || index >= ATTN_MAX_LAYERS || !ascending || (*at != ',' && *at != '\0'))
            return refuse("--layers must be indices in ascending order, as 0,3,5, not %s", text);
        arguments->layers[arguments->num_layers++] = index;
        if (*at++ == '\0')
            return true;
    }
}

static bool read_dtype(struct arguments *arguments, const char *text)
{
    arguments->has_dtype = true;
    return attn_dtype_find(&arguments->dtype, text) ||
           refuse("--dtype must be " ATTN_DTYPE_WORDS ", not %s", text);
}

static bool read_kv_dtype(struct arguments *arguments, const char *text)
{
    arguments->has_kv_dtype = true;
    return attn_dtype_find(&arguments->kv_dtype, text) ||
           refuse("--kv-dtype must be " ATTN_KV_DTYPE_WORDS ", not %s", text);
}

static bool read_json(struct arguments *arguments, const char *text)
{
    arguments->json = true;
    return text[0] == '\0' || refuse("--json takes no value");
}

#define TEXT(name_, member) .name = name_, .text = offsetof(struct arguments, member)
#define READ(name_, function) .name = name_, .read = function

static const struct {
    const char *name;
    bool (*read)(struct arguments *arguments, const char *text);
    size_t text;         /* where `read` is NULL: the member that the value becomes */
    const char *without; /* the value where none is given, NULL: one must be */
    bool alone;          /* the argument that follows is not its value */
} flags[] = {
    {TEXT("--stack", stack)},
    {TEXT("--config", config)},
    {READ("--layers", read_layers)},
    {READ("--dtype", read_dtype)},
    {READ("--kv-dtype", read_kv_dtype)},
    {TEXT("--family", family), .without = ""},
    {READ("--json", read_json), .without = "", .alone = true},
};
#define NUM_FLAGS (sizeof flags / sizeof flags[0])

/* Takes the flag at argv[*at], as `--name value` (then *at moves to the value) or
 * `--name=value`. */
static bool read_flag(struct arguments *arguments, int *at, int argc, char *const argv[])
{
    const char *flag = argv[*at];
    size_t length = strcspn(flag, "="), i = 0;
    while (i < NUM_FLAGS &&
           (strlen(flags[i].name) != length || memcmp(flags[i].name, flag, length) != 0))
        i++;
    if (i == NUM_FLAGS)
        return refuse("unknown argument \"%.64s\"", flag);
    const char *value = flag[length] == '='                 ? flag + length + 1
                        : *at + 1 < argc && !flags[i].alone ? argv[++*at]
                                                            : flags[i].without;
    if (value == NULL)
        return refuse("%s needs a value", flag);
    if (flags[i].read != NULL)
        return flags[i].read(arguments, value);
    *(const char **)(void *)((char *)arguments + flags[i].text) = value;
    return true;
}

static bool parse(struct arguments *arguments, int argc, char *const argv[])
{
    int given = 0;
    for (int i = 0; i < argc; i++, given++) {
        if (argv[i][0] == '-') {
            if (!read_flag(arguments, &i, argc, argv))
                return false;
        } else if (arguments->path != NULL) {
            return refuse("unknown argument \"%.64s\"", argv[i]);
        } else {
            arguments->path = argv[i];
        }
    }
    if (arguments->family != NULL && given > 1)
        return refuse("--family stands alone: it is about no checkpoint");
    return arguments->path != NULL || arguments->family != NULL || refuse("usage: " USAGE);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void print_value(struct srv_buffer *out, const json_t *value);

/* Appends "a 1, b(c 2, d)".  Members that are null, false or empty are left out; of a true member
 * the name alone is printed. */
static void print_members(struct srv_buffer *out, const json_t *object)
{
    const char *key, *comma = "";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        struct srv_buffer inner;
        if (json_is_null(value) || json_is_false(value))
            continue;
        srv_buffer_init(&inner, TEXT_MAX);
        print_value(&inner, value);
        if (!json_is_object(value) || inner.length > 2) {
            srv_buffer_printf(out, "%s%s", comma, key);
            srv_buffer_append(out, inner.data, inner.length);
            comma = ", ";
        }
        srv_buffer_fini(&inner);
    }
}

static void print_value(struct srv_buffer *out, const json_t *value)
{
    if (json_is_object(value)) {
        srv_buffer_text(out, "(");
        print_members(out, value);
        srv_buffer_text(out, ")");
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            print_value(out, json_array_get(value, i));
    } else if (json_is_string(value)) {
        srv_buffer_printf(out, " %s", json_string_value(value));
    } else if (json_is_number(value)) {
        srv_buffer_printf(out, " %.9g", json_number_value(value));
    }
}

/* Prints "  layers 0-4, 6: ". */
static void print_indices(struct srv_buffer *out, const json_t *indices)
{
#define INDEX(i) (size_t) json_integer_value(json_array_get(indices, i))
    const size_t count = json_array_size(indices);
    srv_buffer_text(out, count == 1 ? "  layer" : "  layers");
    for (size_t i = 0, first; i < count; i++) {
        first = i;
        while (i + 1 < count && INDEX(i + 1) == INDEX(i) + 1)
            i++;
        srv_buffer_printf(out, first == i ? "%s %zu" : "%s %zu-%zu", first > 0 ? "," : "",
                          INDEX(first), INDEX(i));
    }
    srv_buffer_text(out, ": ");
#undef INDEX
}

/* Prints {"f32": 512, "int8": 144} as " takes 512 bytes as f32, 144 as int8". */
static void print_bytes(struct srv_buffer *out, const json_t *bytes)
{
    const char *dtype, *separator = " takes", *unit = " bytes";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)bytes, dtype, value) {
        srv_buffer_printf(out, "%s %" JSON_INTEGER_FORMAT "%s as %s", separator,
                          json_integer_value(value), unit, dtype);
        separator = ",";
        unit = "";
    }
    srv_buffer_text(out, "\n");
}

static void print_model(struct srv_buffer *out, json_t *model, const struct arguments *arguments)
{
#define COUNT(name) (size_t) json_integer_value(json_object_get(model, name))
    const char *stored = json_string_value(json_object_get(model, "weights_dtype"));
    const char *stack = json_string_value(json_object_get(model, "stack"));
    const size_t layers = COUNT("num_layers"), linear = COUNT("num_linear_layers");
    const size_t resident = COUNT("num_resident_layers");
    json_t *kind;
    size_t i;
    srv_buffer_printf(out, "%s%s%s: %zu layers, ",
                      json_string_value(json_object_get(model, "family")), stack != NULL ? " " : "",
                      stack != NULL ? stack : "", layers);
    srv_buffer_printf(out, stored != NULL ? "weights stored as %s" : "of the configuration alone",
                      stored);
    if (arguments->has_dtype)
        srv_buffer_printf(out, ", kept as %s", attn_dtype_name(arguments->dtype));
    if (arguments->has_kv_dtype)
        srv_buffer_printf(out, ", cached as %s", attn_dtype_name(arguments->kv_dtype));
    if (resident < layers)
        srv_buffer_printf(out, ", %zu to be loaded", resident);
    if (linear > 0)
        srv_buffer_printf(out, ", %zu are %s, which is not computed", linear,
                          json_string_value(json_object_get(model, "linear_type")));
    srv_buffer_text(out, "\n");
    json_array_foreach(json_object_get(model, "layers"), i, kind) {
        print_indices(out, json_object_get(kind, "indices"));
        print_members(out, json_object_get(kind, "layer"));
        srv_buffer_text(out, "\n");
    }
    srv_buffer_printf(out, "  %zu parameters of attention\n  loading", COUNT("parameters"));
    print_bytes(out, json_object_get(model, "weight_bytes"));
    kind = json_object_get(json_array_get(json_object_get(model, "layers"), 0), "layer");
    srv_buffer_text(out, json_is_true(json_object_get(kind, "is_cross")) ? "  a cached encoder row"
                                                                         : "  a cached token");
    print_bytes(out, json_object_get(model, "cache_bytes_per_token"));
    if (json_object_size(json_object_get(model, "cache_bytes_per_session")) > 0) {
        srv_buffer_printf(out, "  a session of %zu tokens", COUNT("max_position"));
        print_bytes(out, json_object_get(model, "cache_bytes_per_session"));
    }
#undef COUNT
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Each different specification of resident layers once, with the layers that have it. */
static json_t *layers_json(const struct attn_model *model, size_t num_layers)
{
    json_t *kinds = json_array(), *kind;
    for (size_t i = 0; i < num_layers; i++) {
        const struct attn_layer_spec *spec = attn_model_layer(model, i);
        if (spec == NULL)
            continue;
        json_t *layer = srv_layer_json(spec), *indices = NULL;
        size_t k;
        json_array_foreach(kinds, k, kind)
            if (json_equal(json_object_get(kind, "layer"), layer))
                indices = json_object_get(kind, "indices");
        if (indices == NULL) {
            indices = json_array();
            srv_document_append(&kinds,
                                json_pack("{s:o, s:O}", "indices", indices, "layer", layer));
        }
        json_array_append_new(indices, json_integer((json_int_t)i));
        json_decref(layer);
    }
    return kinds;
}

/* Bytes of a model by dtype, as {"f32": 512}. */
struct costs {
    json_t *weights, *token, *session; /* resident; of a token in all layers; of a whole session */
};

/* Of each dtype that was asked for; a session has `length` tokens, 0: none is told of. */
static struct costs costs_json(struct attn_model *model, const struct arguments *arguments,
                               size_t length)
{
    struct costs costs = {json_object(), json_object(), json_object()};
    struct attn_model_info info;
    struct attn_error error;
    for (enum attn_dtype dtype = ATTN_F32; dtype <= ATTN_W8A16; dtype++) {
        const char *name = attn_dtype_name(dtype);
        if (arguments->has_dtype ? dtype == arguments->dtype : attn_dtype_of_weights(dtype))
            if (attn_model_set_dtypes(model, dtype, ATTN_F32, &error) == ATTN_OK) {
                attn_model_describe(&info, model);
                srv_document_set(&costs.weights, name, json_integer((json_int_t)info.weight_bytes));
            }
        if (arguments->has_kv_dtype ? dtype == arguments->kv_dtype : attn_dtype_of_caches(dtype))
            if (attn_model_set_dtypes(model, ATTN_F32, dtype, &error) == ATTN_OK) {
                attn_model_describe(&info, model);
                srv_document_set(&costs.token, name,
                                 json_integer((json_int_t)info.cache_bytes_per_token));
                if (length > 0)
                    srv_document_set(
                        &costs.session, name,
                        json_integer((json_int_t)attn_model_cache_bytes(model, length)));
            }
    }
    return costs;
}

static json_t *model_json(struct attn_model *model, const struct arguments *arguments)
{
    struct attn_model_info info;
    attn_model_describe(&info, model);
    const bool is_cross = srv_model_first_layer(model)->is_cross;
    const struct costs costs = costs_json(model, arguments, is_cross ? 0 : info.max_position);
    return json_pack("{s:s, s:s?, s:s?, s:I, s:I, s:I, s:s, s:I, s:I, s:o, s:o, s:o, s:o}",
                     "family", info.family, "stack", info.stack[0] != '\0' ? info.stack : NULL,
                     "weights_dtype", info.weights_dtype[0] != '\0' ? info.weights_dtype : NULL,
                     "num_layers", (json_int_t)info.num_layers, "num_resident_layers",
                     (json_int_t)info.num_resident, "num_linear_layers",
                     (json_int_t)info.num_linear_layers, "linear_type", info.linear_type,
                     "max_position", (json_int_t)info.max_position, "parameters",
                     (json_int_t)info.num_parameters, "weight_bytes", costs.weights,
                     "cache_bytes_per_token", costs.token, "cache_bytes_per_session", costs.session,
                     "layers", layers_json(model, info.num_layers));
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* Reads the configuration that is inspected alone. */
static bool read_config(struct arguments *arguments, const char *path)
{
    char message[256];
    return srv_text_read(&arguments->text, &arguments->length, path, ATTN_CHECKPOINT_MAX_CONFIG,
                         SRV_TEXT_PUBLIC, message, sizeof message) ||
           refuse("%s", message);
}

/* Opens the stack; of a directory without weights, what its configuration alone says. */
static enum attn_status open_model(struct attn_model **out, struct arguments *arguments,
                                   const struct attn_model_options *options,
                                   struct attn_error *error)
{
    char path[PATH_MAX];
    if (arguments->text == NULL) {
        enum attn_status status = attn_model_open(out, arguments->path, options, error);
        if (status != ATTN_NOT_FOUND || strcmp(error->param, "model.safetensors") != 0 ||
            arguments->config != NULL)
            return status;
        (void)refuse("%s: %s; of config.json alone:", arguments->path, error->message);
        snprintf(path, sizeof path, "%s/config.json", arguments->path);
        if (!read_config(arguments, path))
            return status;
        arguments->lacks_weights = true;
    }
    return attn_model_open_config(out, arguments->text, arguments->length, options, error);
}

/* Opens a stack, NULL: the default one.  *out stays NULL where the family has no stack of that name
 * and `any` is true. */
static bool open_stack(struct attn_model **out, struct arguments *arguments, const char *stack,
                       bool any)
{
    const struct attn_model_options options = {
        .layers = arguments->num_layers > 0 ? arguments->layers : NULL,
        .num_layers = arguments->num_layers,
        .stack = stack,
        .config = arguments->config,
        .dtype = arguments->dtype,
        .kv_dtype = arguments->kv_dtype,
    };
    struct attn_error error = {0};
    *out = NULL;
    if (open_model(out, arguments, &options, &error) == ATTN_OK)
        return true;
    if (any && error.status == ATTN_UNSUPPORTED && strcmp(error.param, "stack") == 0)
        return true;
    return refuse("%s: %s", arguments->path, error.message);
}

/* Describes the stack that was asked for, or the only one, or else each of them. */
static bool inspect(json_t **models, struct arguments *arguments)
{
    struct attn_model *model = NULL;
    struct attn_model_info info;
    if (!open_stack(&model, arguments, arguments->stack, false))
        return false;
    attn_model_describe(&info, model);
    bool single = arguments->stack != NULL || info.stack[0] == '\0';
    if (single)
        srv_document_append(models, model_json(model, arguments));
    attn_model_close(model);
    for (size_t i = 0; i < SRV_STACKS && !single; i++) {
        if (!open_stack(&model, arguments, srv_stack_names[i], true))
            return false;
        if (model != NULL)
            srv_document_append(models, model_json(model, arguments));
        attn_model_close(model);
    }
    return *models != NULL || refuse("out of memory");
}

/* Whether the path is that of a configuration: NAME.json. */
static bool is_config(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcmp(dot, ".json") == 0;
}

static bool print(struct arguments *arguments)
{
    struct srv_buffer text;
    json_t *models = json_array(), *model;
    size_t i;
    bool done = inspect(&models, arguments);
    srv_buffer_init(&text, TEXT_MAX);
    if (done && arguments->json) {
        done = srv_document_write(&text, json_pack("{s:O}", "models", models));
        srv_buffer_text(&text, "\n");
    }
    if (done && !arguments->json)
        json_array_foreach(models, i, model)
            print_model(&text, model, arguments);
    done = done && srv_print_text(&text) == 0;
    srv_buffer_fini(&text);
    json_decref(models);
    return done;
}

int srv_command_inspect(int argc, char *const argv[])
{
    struct arguments *arguments = calloc(1, sizeof *arguments);
    int status = 1;
    if (arguments == NULL)
        refuse("out of memory");
    else if (!parse(arguments, argc, argv))
        status = 2;
    else if (arguments->family != NULL)
        status = srv_command_family(arguments->family);
    else if ((!is_config(arguments->path) || read_config(arguments, arguments->path)) &&
             print(arguments) && !arguments->lacks_weights)
        status = 0;
    if (arguments != NULL)
        free(arguments->text);
    free(arguments);
    return status;
}
