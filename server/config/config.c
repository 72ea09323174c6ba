/* config.c: reads the configuration from flags, variables and the file.
 *
 * All three name options of the table in options.c; the file also has the list of models.
 * Values are applied from the weakest source to the strongest, each checked as it is applied, so a
 * wrong value is an error even where a stronger source overrides it. */
#include "config/config.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "attn_limits.h"
#include "base/buffer.h"
#include "base/nearest.h"
#include "config/options.h"

/* The texts that command line and environment give for each option; NULL: none. */
struct given {
    const char *flags[SRV_MAX_OPTIONS];
    const char *variables[SRV_MAX_OPTIONS];
    const char *models[SRV_MAX_MODELS]; /* of the flags --model, which may be several */
    size_t num_models;
    const char *repeated[SRV_MAX_ADOPTED]; /* of the flags of the option that repeats */
    size_t num_repeated;
};

void srv_config_note(struct srv_config_reading *reading, const char *format, ...)
{
    size_t i = 0;
    while (i < SRV_CONFIG_NOTES && reading->config->notes[i][0] != '\0')
        i++;
    if (i == SRV_CONFIG_NOTES)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(reading->config->notes[i], SRV_CONFIG_NOTE, format, args);
    va_end(args);
}

/* ---- Unknown names --------------------------------------------------------------------------- */

/* The option of which `name`, without the prefix of its source, is probably a misspelling; NULL
 * where there is none. */
static const struct srv_option *option_near(const char *name, enum srv_config_source source)
{
    const char *names[SRV_MAX_OPTIONS] = {NULL};
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        bool may_come_from =
            source == SRV_FROM_FLAG || (source == SRV_FROM_FILE ? srv_option_in_file(option)
                                                                : option->kind != SRV_OPTION_MODE);
        names[i] = may_come_from ? option->name : NULL;
    }
    const char *nearest = attn_nearest(name, names, srv_option_count);
    for (size_t i = 0; i < srv_option_count; i++) {
        if (nearest != NULL && names[i] == nearest)
            return &srv_options[i];
    }
    return NULL;
}

/* Refuses what `source` has named: `text` is the `length` bytes that the message shows, of which
 * the first `prefix` are the source's. */
static bool refuse_unknown(struct srv_config_reading *reading, const char *text, size_t length,
                           size_t prefix, enum srv_config_source source)
{
    static const char *const kinds[] = {
        [SRV_FROM_FILE] = "key", [SRV_FROM_VARIABLE] = "variable", [SRV_FROM_FLAG] = "argument"};
    char name[ATTN_NEAREST_MAX + 1] = "", spelled[SRV_OPTION_SPELL_MAX];
    if (length - prefix < sizeof name)
        memcpy(name, text + prefix, length - prefix);
    const struct srv_option *option = option_near(name, source);
    int shown = (int)(length < 64 ? length : 64);
    if (option == NULL)
        return srv_refuse(reading->message, "unknown %s \"%.*s\" (see attnd --help)", kinds[source],
                          shown, text);
    srv_option_spell(spelled, option, source);
    return srv_refuse(reading->message, "unknown %s \"%.*s\": did you mean %s?", kinds[source],
                      shown, text, spelled);
}

/* ---- Flags and variables --------------------------------------------------------------------- */

/* Takes the flag at argv[*at]: `--name=value`, `--name value` (then *at moves to the value), or the
 * `--name` of a run mode. */
static bool read_flag(struct srv_config_reading *reading, struct given *given, int *at, int argc,
                      char *const argv[])
{
    const char *flag = strcmp(argv[*at], "-h") == 0 ? "--help" : argv[*at];
    size_t length = strcspn(flag, "=");
    const struct srv_option *option = srv_option_find(flag, length, SRV_FROM_FLAG);
    if (option == NULL)
        return refuse_unknown(reading, flag, length, strspn(flag, "-"), SRV_FROM_FLAG);
    const char *value = flag[length] == '=' ? flag + length + 1 : NULL;
    if (option->kind == SRV_OPTION_MODE) {
        if (value != NULL)
            return srv_refuse(reading->message, "%.*s takes no value", (int)length, flag);
        reading->config->mode = option->mode;
        return true;
    }
    if (value == NULL && *at + 1 == argc)
        return srv_refuse(reading->message, "%.64s needs a value", flag);
    if (value == NULL)
        value = argv[++*at];
    if (option->repeats && given->num_repeated == SRV_MAX_ADOPTED)
        return srv_refuse(reading->message, "%.64s: more than %d are given", flag, SRV_MAX_ADOPTED);
    if (option->repeats)
        given->repeated[given->num_repeated++] = value;
    else if (option->kind != SRV_OPTION_MODELS)
        given->flags[option - srv_options] = value;
    else if (given->num_models < SRV_MAX_MODELS)
        given->models[given->num_models++] = value;
    else
        return srv_refuse(reading->message, "--model: more than %d are given", SRV_MAX_MODELS);
    return true;
}

/* Takes a variable that begins with ATTND_, of which `name` is the rest.  Variables that
 * docker-compose.yml reads, and the address that Kubernetes gives as ATTND_PORT where a service is
 * named attnd, are passed over; any other is refused where the rest is near an option's name, since
 * such a name is a mistake. */
static bool pass_over(struct srv_config_reading *reading, const char *variable, const char *value)
{
    static const char *const of_compose[] = {"MODELS", "PORT", "CPUS", "MEMORY", "REVISION"};
    size_t length = strcspn(variable, "="), prefix = strlen("ATTND_");
    char name[ATTN_NEAREST_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)(length - prefix), variable + prefix);
    if (value[0] == '\0' || strstr(value, "://") != NULL ||
        option_near(name, SRV_FROM_VARIABLE) == NULL)
        return true;
    for (size_t i = 0; i < sizeof of_compose / sizeof of_compose[0]; i++) {
        if (strcmp(name, of_compose[i]) == 0) {
            srv_config_note(reading,
                            "the variable ATTND_%s is for docker-compose.yml; attnd reads ATTN_%s",
                            name, name);
            return true;
        }
    }
    return refuse_unknown(reading, variable, length, prefix, SRV_FROM_VARIABLE);
}

/* Takes the variable `NAME=value` if its name begins with ATTN_ and its value is not empty. */
static bool read_variable(struct srv_config_reading *reading, struct given *given,
                          const char *variable)
{
    size_t length = strcspn(variable, "="), prefix = strlen("ATTN_");
    const char *value = variable[length] == '=' ? variable + length + 1 : "";
    if (strncmp(variable, "ATTND_", prefix + 1) == 0)
        return pass_over(reading, variable, value);
    if (strncmp(variable, "ATTN_", prefix) != 0)
        return true;
    const struct srv_option *option = srv_option_find(variable, length, SRV_FROM_VARIABLE);
    if (option == NULL || option->kind == SRV_OPTION_MODE)
        return refuse_unknown(reading, variable, length, prefix, SRV_FROM_VARIABLE);
    if (value[0] != '\0')
        given->variables[option - srv_options] = value;
    return true;
}

static bool apply_given(struct srv_config_reading *reading, const char *const texts[],
                        enum srv_config_source source)
{
    char name[SRV_OPTION_SPELL_MAX];
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        if (texts[i] == NULL)
            continue;
        srv_option_spell(name, option, source);
        if (option->kind == SRV_OPTION_MODELS
                ? !srv_config_model_list(reading, name, texts[i], source)
                : !srv_option_set(reading, option, source, texts[i]))
            return false;
    }
    return true;
}

/* Applies the flags that may be given several times; those of the option that repeats make one
 * list. */
static bool apply_repeated(struct srv_config_reading *reading, const struct given *given)
{
    struct srv_buffer text;
    const struct srv_option *option = srv_options;
    while (!option->repeats)
        option++;
    srv_buffer_init(&text, SRV_MAX_CONFIG_BYTES);
    for (size_t i = 0; i < given->num_repeated; i++)
        srv_buffer_printf(&text, "%s%s", i > 0 ? "," : "", given->repeated[i]);
    srv_buffer_append(&text, "", 1);
    bool applied = text.failed ? srv_refuse(reading->message, "out of memory")
                               : given->num_repeated == 0 ||
                                     srv_option_set(reading, option, SRV_FROM_FLAG, text.data);
    srv_buffer_fini(&text);
    for (size_t i = 0; i < given->num_models && applied; i++)
        applied = srv_config_model_list(reading, "--model", given->models[i], SRV_FROM_FLAG);
    return applied;
}

/* ---- Defaults -------------------------------------------------------------------------------- */

void srv_instance_of(char out[SRV_INSTANCE_MAX + 1], const char *host)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t length = strcspn(host, ".");
    size_t first = length > SRV_INSTANCE_MAX ? length - SRV_INSTANCE_MAX : 0, n = 0;
    for (size_t i = first; i < length; i++) {
        bool letter = strchr(letters, host[i]) != NULL;
        if (letter || n > 0)
            out[n++] = letter ? host[i] : '-';
    }
    out[n] = '\0';
    if (n == 0)
        memcpy(out, "attnd", sizeof "attnd");
}

static bool apply_defaults(struct srv_config_reading *reading)
{
    char host[HOST_NAME_MAX + 1] = "", name[SRV_INSTANCE_MAX + 1];
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        if (option->initial != NULL &&
            !srv_option_set(reading, option, SRV_FROM_DEFAULT, option->initial))
            return false;
    }
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    srv_instance_of(name, host);
    reading->config->instance = strdup(name);
    return reading->config->instance != NULL || srv_refuse(reading->message, "out of memory");
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Sets an option from a list of texts, which are joined by commas. */
static bool set_list(struct srv_config_reading *reading, const struct srv_option *option,
                     json_t *list)
{
    struct srv_buffer text;
    size_t i;
    json_t *entry;
    bool strings = true;
    srv_buffer_init(&text, SRV_MAX_CONFIG_BYTES);
    json_array_foreach(list, i, entry) {
        strings = strings && json_is_string(entry) && strchr(json_string_value(entry), ',') == NULL;
        srv_buffer_text(&text, i > 0 ? "," : "");
        srv_buffer_text(&text, strings ? json_string_value(entry) : "");
    }
    srv_buffer_append(&text, "", 1);
    bool done = strings && !text.failed
                    ? srv_option_set(reading, option, SRV_FROM_FILE, text.data)
                    : srv_refuse(reading->message, "%s: must be a list of strings", option->name);
    srv_buffer_fini(&text);
    return done;
}

static bool apply_member(struct srv_object *object, json_t *value)
{
    struct srv_config_reading *reading = object->context;
    const char *key = object->member;
    const struct srv_option *option = srv_option_find(key, strlen(key), SRV_FROM_FILE);
    if (option == NULL || !srv_option_in_file(option))
        return refuse_unknown(reading, key, strlen(key), 0, SRV_FROM_FILE);
    if (option->kind == SRV_OPTION_MODELS)
        return srv_config_models(reading, value);
    if (json_is_array(value) && option->is_list)
        return set_list(reading, option, value);
    if (json_is_string(value))
        return srv_option_set(reading, option, SRV_FROM_FILE, json_string_value(value));
    if (json_is_boolean(value) && option->kind == SRV_OPTION_CHOICE)
        return srv_option_set(reading, option, SRV_FROM_FILE,
                              json_is_true(value) ? "true" : "false");
    if (!json_is_integer(value) || option->kind != SRV_OPTION_SIZE)
        return srv_refuse(reading->message, "%s: must be a string%s", key,
                          option->kind == SRV_OPTION_SIZE ? " or a whole number" : "");
    char text[32];
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return srv_option_set(reading, option, SRV_FROM_FILE, text);
}

static const struct srv_option *option_of(const char *key)
{
    return srv_option_find(key, strlen(key), SRV_FROM_FILE);
}

/* Applies the file, which a flag or a variable names: that option comes before all others. */
static bool apply_named_file(struct srv_config_reading *reading, const struct given *given)
{
    static const struct srv_member members[] = {{.name = NULL, .read = apply_member}};
    struct srv_object file = {.context = reading, .message = reading->message};
    const struct srv_option *option = option_of("config");
    const char *variable = given->variables[option - srv_options];
    const char *flag = given->flags[option - srv_options];
    if ((variable != NULL && !srv_option_set(reading, option, SRV_FROM_VARIABLE, variable)) ||
        (flag != NULL && !srv_option_set(reading, option, SRV_FROM_FLAG, flag)))
        return false;
    const char *path = reading->config->config_file;
    return path == NULL ||
           srv_object_read_file(&file, members, path, SRV_MAX_CONFIG_BYTES, SRV_TEXT_PUBLIC);
}

/* ---- All together ---------------------------------------------------------------------------- */

bool srv_config_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static enum srv_config_source source_of(const struct srv_config *config, const char *key)
{
    return config->sources[option_of(key) - srv_options];
}

bool srv_config_implies_journal(const struct srv_config *config)
{
    return source_of(config, "durability") == SRV_FROM_STATE_DIR;
}

struct attn_engine_options srv_config_engine(const struct srv_config *config)
{
    return (struct attn_engine_options){
        .threads = config->threads != 0 ? (unsigned)config->threads : attn_usable_cpus(),
        .level = (enum attn_cpu_level)config->cpu_level,
        .gemm = (enum attn_gemm_mode)config->gemm,
    };
}

/* Fills in what several options say together, and checks it. */
static bool complete(struct srv_config_reading *reading)
{
    struct srv_config *config = reading->config;
    config->names_instance = source_of(config, "instance") != SRV_FROM_DEFAULT;
    if (config->state_dir != NULL && source_of(config, "durability") == SRV_FROM_DEFAULT &&
        !srv_option_set(reading, option_of("durability"), SRV_FROM_STATE_DIR, "journal"))
        return false;
    if (strcmp(config->host, "localhost") == 0)
        memcpy(config->host, "127.0.0.1", sizeof "localhost"); /* which is as long */
    if (config->mode != SRV_RUN_HEALTH && !srv_config_model_dir(reading))
        return false;
    srv_config_model_dtypes(config);
    /* Anyone who reaches a port without API keys can use and end every session. */
    if (config->mode != SRV_RUN_HEALTH && config->api_keys == NULL &&
        !config->allow_unauthenticated && !srv_config_is_loopback(config->host))
        return srv_refuse(reading->message,
                          "host: %s can be reached from elsewhere: give api_keys, or say "
                          "allow_unauthenticated true where something in front of attnd decides "
                          "who may ask",
                          config->host);
    if ((config->tls_cert == NULL) != (config->tls_key == NULL))
        return srv_refuse(reading->message, "tls_cert and tls_key: one needs the other");
    if (config->adopt != NULL && config->durability == 0)
        return srv_refuse(reading->message, "adopt: needs a durability, and a state_dir beside");
    return config->durability == 0 || config->state_dir != NULL ||
           srv_refuse(reading->message, "durability: snapshot and journal need a state_dir");
}

bool srv_config_read(struct srv_config *config, int argc, char *const argv[],
                     char *const variables[], char message[SRV_MESSAGE_MAX])
{
    struct srv_config_reading reading = {.config = config, .message = message};
    struct given given = {.flags = {NULL}};
    memset(config, 0, sizeof *config);
    for (int i = 1; i < argc; i++)
        if (!read_flag(&reading, &given, &i, argc, argv))
            return false;
    if (config->mode == SRV_RUN_HELP || config->mode == SRV_RUN_VERSION)
        return true; /* even where something else is wrong */
    for (; *variables != NULL; variables++)
        if (!read_variable(&reading, &given, *variables))
            return false;
    return apply_defaults(&reading) && apply_named_file(&reading, &given) &&
           apply_given(&reading, given.variables, SRV_FROM_VARIABLE) &&
           apply_given(&reading, given.flags, SRV_FROM_FLAG) && apply_repeated(&reading, &given) &&
           complete(&reading);
}

void srv_config_fini(struct srv_config *config)
{
    for (size_t i = 0; i < config->num_models; i++)
        srv_config_free_model(&config->models[i]);
    free(config->models);
    for (size_t i = 0; i < srv_option_count; i++)
        if (srv_options[i].kind == SRV_OPTION_TEXT)
            free(*(char **)(void *)((char *)config + srv_options[i].offset));
    memset(config, 0, sizeof *config);
}

void srv_config_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port)
{
    bool v6 = strchr(config->host, ':') != NULL;
    snprintf(out, SRV_URL_MAX, "%s://%s%.48s%s:%u", config->tls_cert != NULL ? "https" : "http",
             v6 ? "[" : "", config->host, v6 ? "]" : "", port);
}
