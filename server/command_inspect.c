/* command_inspect.c: attnd inspect: prints a checkpoint as loading it would resolve it: family,
 * layers, costs.  With --family, command_family.c prints what is read of a family.
 *
 * A layer's text is made from its JSON in GET /models (api/layer_json.c), so the two cannot differ.
 * Each stack of an architecture with several is a model of its own and is printed as one.  Weights
 * are not read. */
#include "main.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/layer_json.h"
#include "attn_limits.h"

#define TEXT_MAX ((size_t)4 << 20) /* of what is printed */

struct arguments {
    const char *directory; /* or a single file */
    const char *stack;     /* NULL: every stack of the checkpoint */
    const char *config;    /* JSON in place of config.json, NULL: that file */
    const char *family;    /* of which to print what is read, "": all names; NULL: of none */
    size_t layers[ATTN_MAX_LAYERS];
    size_t num_layers; /* 0: all */
    enum attn_dtype dtype, kv_dtype;
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
static bool take_layers(struct arguments *arguments, const char *text)
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

static bool take_dtype(struct arguments *arguments, const char *text)
{
    return attn_dtype_find(&arguments->dtype, text) ||
           refuse("--dtype must be " ATTN_DTYPE_WORDS ", not %s", text);
}

static bool take_kv_dtype(struct arguments *arguments, const char *text)
{
    return attn_dtype_find(&arguments->kv_dtype, text) ||
           refuse("--kv-dtype must be " ATTN_KV_DTYPE_WORDS ", not %s", text);
}

#define TEXT(name_, member) .name = name_, .text = offsetof(struct arguments, member)
#define TAKE(name_, function) .name = name_, .take = function

static const struct {
    const char *name;
    bool (*take)(struct arguments *arguments, const char *text);
    size_t text;         /* where `take` is NULL: the member that the value becomes */
    const char *without; /* the value where none is given, NULL: one must be */
} flags[] = {
    {TEXT("--stack", stack)},
    {TEXT("--config", config)},
    {TAKE("--layers", take_layers)},
    {TAKE("--dtype", take_dtype)},
    {TAKE("--kv-dtype", take_kv_dtype)},
    {TEXT("--family", family), .without = ""},
};
#define NUM_FLAGS (sizeof flags / sizeof flags[0])

/* Takes the flag at argv[*at], as `--name value` (then *at moves to the value) or
 * `--name=value`. */
static bool take_flag(struct arguments *arguments, int *at, int argc, char *const argv[])
{
    const char *flag = argv[*at];
    size_t length = strcspn(flag, "="), i = 0;
    while (i < NUM_FLAGS &&
           (strlen(flags[i].name) != length || memcmp(flags[i].name, flag, length) != 0))
        i++;
    if (i == NUM_FLAGS)
        return refuse("unknown argument \"%.64s\"", flag);
    const char *value = flag[length] == '=' ? flag + length + 1
                        : *at + 1 < argc    ? argv[++*at]
                                            : flags[i].without;
    if (value == NULL)
        return refuse("%s needs a value", flag);
    if (flags[i].take != NULL)
        return flags[i].take(arguments, value);
    *(const char **)(void *)((char *)arguments + flags[i].text) = value;
    return true;
}

static bool parse(struct arguments *arguments, int argc, char *const argv[])
{
    int given = 0;
    for (int i = 0; i < argc; i++, given++) {
        if (argv[i][0] == '-') {
            if (!take_flag(arguments, &i, argc, argv))
                return false;
        } else if (arguments->directory != NULL) {
            return refuse("unknown argument \"%.64s\"", argv[i]);
        } else {
            arguments->directory = argv[i];
        }
    }
    if (arguments->family != NULL && given > 1)
        return refuse("--family stands alone: it is about no checkpoint");
    return arguments->directory != NULL || arguments->family != NULL ||
           refuse("usage: attnd inspect DIR|FILE [--config JSON] [--stack NAME] [--layers 0,3,5] "
                  "[--dtype NAME] [--kv-dtype NAME] | attnd inspect --family [NAME]");
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

/* Prints each run of consecutive resident layers with the same JSON as one. */
static void print_runs(struct srv_buffer *out, const struct attn_model *model, size_t num_layers)
{
    json_t *run = NULL;
    size_t first = 0;
    for (size_t i = 0; i <= num_layers; i++) {
        const struct attn_layer_spec *spec = i < num_layers ? attn_model_layer(model, i) : NULL;
        json_t *layer = spec != NULL ? srv_layer_json(spec) : NULL;
        if (run != NULL && layer != NULL && json_equal(run, layer)) {
            json_decref(layer);
            continue;
        }
        if (run != NULL) {
            srv_buffer_printf(out, first + 1 == i ? "  layer %zu: " : "  layers %zu-%zu: ", first,
                              i - 1);
            print_members(out, run);
            srv_buffer_text(out, "\n");
        }
        json_decref(run);
        run = layer;
        first = i;
    }
}

static void print_model(struct srv_buffer *out, const struct attn_model *model)
{
    struct attn_model_info info;
    char family[SRV_FAMILY_MAX];
    attn_model_describe(&info, model);
    srv_model_print_family(family, &info);
    srv_buffer_printf(out, "%s: %zu layers, weights stored as %s", family, info.num_layers,
                      info.weights_dtype);
    if (info.dtype != ATTN_F32)
        srv_buffer_printf(out, ", kept as %s", attn_dtype_name(info.dtype));
    if (info.kv_dtype != ATTN_F32)
        srv_buffer_printf(out, ", cached as %s", attn_dtype_name(info.kv_dtype));
    if (info.num_resident < info.num_layers)
        srv_buffer_printf(out, ", %zu to be loaded", info.num_resident);
    if (info.num_linear_layers > 0)
        srv_buffer_printf(out, ", %zu are linear_attention, which is not computed",
                          info.num_linear_layers);
    srv_buffer_text(out, "\n");
    print_runs(out, model, info.num_layers);
    srv_buffer_printf(out, "  %zu parameters, loading takes %zu bytes", info.num_parameters,
                      info.weight_bytes);
    srv_buffer_printf(out, ", a cached %s %zu",
                      srv_model_first_layer(model)->is_cross ? "encoder row" : "token",
                      info.cache_bytes_per_token);
    if (info.max_position > 0 && !srv_model_first_layer(model)->is_cross)
        srv_buffer_printf(out, ", a session of %zu tokens %zu", info.max_position,
                          attn_model_cache_bytes(model, info.max_position));
    srv_buffer_text(out, "\n");
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* Opens a stack, NULL: the default one.  *out stays NULL where the family has no stack of that name
 * and `any` is true. */
static bool open_stack(struct attn_model **out, const struct arguments *arguments,
                       const char *stack, bool any)
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
    if (attn_model_open(out, arguments->directory, &options, &error) == ATTN_OK)
        return true;
    if (any && error.status == ATTN_UNSUPPORTED && strcmp(error.param, "stack") == 0)
        return true;
    return refuse("%s: %s", arguments->directory, error.message);
}

/* Prints the stack that was asked for, or the only one, or else each of them. */
static bool inspect(struct srv_buffer *out, const struct arguments *arguments)
{
    struct attn_model *model = NULL;
    struct attn_model_info info;
    if (!open_stack(&model, arguments, arguments->stack, false))
        return false;
    attn_model_describe(&info, model);
    bool single = arguments->stack != NULL || info.stack[0] == '\0';
    if (single)
        print_model(out, model);
    attn_model_close(model);
    for (size_t i = 0; i < SRV_STACKS && !single; i++) {
        if (!open_stack(&model, arguments, srv_stack_names[i], true))
            return false;
        if (model != NULL)
            print_model(out, model);
        attn_model_close(model);
    }
    return true;
}

int srv_command_inspect(int argc, char *const argv[])
{
    struct arguments *arguments = calloc(1, sizeof *arguments);
    struct srv_buffer text;
    int status = 1;
    srv_buffer_init(&text, TEXT_MAX);
    if (arguments == NULL)
        refuse("out of memory");
    else if (!parse(arguments, argc, argv))
        status = 2;
    else if (arguments->family != NULL)
        status = srv_command_family(arguments->family);
    else if (inspect(&text, arguments))
        status = srv_print_text(&text);
    srv_buffer_fini(&text);
    free(arguments);
    return status;
}
