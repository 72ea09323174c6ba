/* options.c: the option table, values of options from text, and the texts made from the
 * table: --help and the list that --check prints.
 *
 * Values from file, variables and flags all arrive here as text, so that one function reads a
 * number, one checks its bounds and one words the refusal. */
#include "config/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/number.h"

#define OPTION(kind_, name_, member) \
    .name = #name_, .kind = SRV_OPTION_##kind_, .offset = offsetof(struct srv_config, member)
#define TEXT(member, accepts_, help_) \
    OPTION(TEXT, member, member), .accepts = accepts_, .help = help_
#define CHOICE(member, initial_, choices_, help_) \
    OPTION(CHOICE, member, member), .initial = initial_, .choices = choices_, .help = help_
#define NUMBER(name_, member, initial_, min_, max_, unit_, help_)                              \
    OPTION(SIZE, name_, member), .initial = initial_, .min = min_, .max = max_, .unit = unit_, \
                                 .help = help_
#define SIZE(member, ...) NUMBER(member, member, __VA_ARGS__)
#define LIMIT(member, ...) NUMBER(member, limits.member, __VA_ARGS__)
#define SCALED(member, ...) LIMIT(member, __VA_ARGS__), .scales_with_memory = true
#define MODE(name_, value, help_) \
    .name = #name_, .kind = SRV_OPTION_MODE, .mode = value, .help = help_
#define A_FILE "a file name"
#define A_DIRECTORY "a directory name"
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define TIB ((size_t)1 << 40)

/* A new option is a row here and the member of struct srv_config (config.h) that the row names, or
 * of struct srv_limits (bounds.h) where it is a bound, and a row in the table of
 * docs/OPERATIONS.md.  A bound also needs a row in bounds.c.
 *
 * The value of a CHOICE is the index of its word: the words stand in the order of the enum, or of
 * the numbers, that the member's comment names. */
const struct srv_option srv_options[] = {
    {OPTION(TEXT, config, config_file), .accepts = A_FILE,
     .help = "JSON file with these keys and `models`"},
    {.name = "model",
     .kind = SRV_OPTION_MODELS,
     .accepts = "NAME=DIR",
     .help = "serve the checkpoint in DIR, or a GGUF file, as NAME; may be given several times"},
    {TEXT(model_dir, A_DIRECTORY,
          "serve each directory in it that holds a config.json or a GGUF file, by its own name")},
    {CHOICE(dtype, "f32", ATTN_DTYPE_NAMES, "how weights are kept, where a model does not say it")},
    {CHOICE(kv_dtype, "f32", ATTN_KV_DTYPE_NAMES,
            "how sessions cache keys and values, where a model does not say it")},
    {TEXT(weights_cache, A_DIRECTORY,
          "directory of packed weights, which daemons that are given the same one share")},
    {TEXT(host, "localhost, or a numeric IPv4 or IPv6 address",
          "address to listen on; localhost is 127.0.0.1"),
     .initial = "127.0.0.1", .valid = srv_host_valid},
    {SIZE(port, "8080", 0, 65535, NULL, "TCP port; 0 for any free one")},
    {TEXT(instance, "1 to 32 letters, digits and hyphens, the first no hyphen",
          "this daemon's name, which begins its session ids [state_dir's, or the host's]"),
     .valid = srv_instance_valid},
    {SIZE(event_threads, "1", 1, SRV_MAX_EVENT_THREADS, NULL, "threads that watch connections")},
    {SIZE(threads, "0", 0, ATTN_MAX_THREADS, NULL,
          "threads that compute; 0 for one per usable CPU")},
    {CHOICE(cpu_level, "auto", ATTN_CPU_LEVEL_NAMES, "instructions to use")},
    {CHOICE(gemm, "auto", "auto|packed|openblas",
            "what matrix products go through; auto: whichever is faster")},
    {CHOICE(log, "access", "off|error|info|access", "what to log; access: a line per request")},
    {CHOICE(sharded, "off", "off|on",
            "every session id begins with its instance's name and a point, those of clients too")},
    {CHOICE(sandbox, "off", "off|on",
            "give up what serving does not need: seccomp, and landlock where the kernel has it")},
    {SCALED(max_body_bytes, "128MiB", KIB, 64 * GIB, "bytes", "one request body")},
    {SCALED(max_reply_bytes, "256MiB", KIB, 64 * GIB, "bytes",
            "one reply, estimated before computing")},
    {SCALED(max_state_bytes, "512MiB", KIB, 64 * GIB, "bytes",
            "one session's state, sent or received")},
    {SCALED(max_in_flight_bytes, "1GiB", KIB, 1024 * GIB, "bytes",
            "bodies, tensors and replies of all requests together")},
    {LIMIT(max_client_in_flight_bytes, "0", 0, 1024 * GIB, "bytes",
           "of these, what one API key or address may hold; 0 for half")},
    {SCALED(inputs_bytes, "128MiB", KIB, 1024 * GIB, "bytes",
            "rows that PUT /inputs/{digest} has brought; what was used longest ago goes first")},
    {SCALED(max_connections, "16384", 1, MIB, NULL,
            "open connections; beyond: 503 connection_limit, but to probes")},
    {LIMIT(max_queue, "4096", 1, MIB, NULL, "requests waiting or running")},
    {SCALED(max_sessions, "16384", 1, MIB, NULL, "live sessions")},
    {LIMIT(max_weightless_shapes, "4", 0, 64, NULL,
           "different shapes of live weightless sessions; 0: none are made")},
    {LIMIT(max_session_length, "131072", 1, ATTN_MAX_TOKENS, "tokens",
           "cache of one session, unless it asks for less")},
    {LIMIT(max_tokens, "32768", 1, ATTN_MAX_TOKENS, "tokens",
           "rows of one call or of one decode item")},
    {LIMIT(max_scores, "8589934592", 1, SIZE_MAX / 2, NULL,
           "scores of one computation: sequences x heads x query tokens x key tokens")},
    {LIMIT(max_sequences, "1024", 1, MIB, NULL, "items of one /decode")},
    {LIMIT(max_session_waiting, "2", 1, MIB, NULL,
           "requests waiting for one session, beside the one that runs")},
    {SCALED(cache_bytes, "1GiB", KIB, 65536 * GIB, "bytes",
            "key/value caches of all sessions together")},
    {SIZE(memory_limit, "0", 0, 65536 * GIB, "bytes",
          "memory that attnd may count on; 0 for what the control group or the machine gives")},
    {LIMIT(session_ttl_s, "3600", 1, SRV_MAX_TTL_S, "seconds",
           "idle time after which a session expires")},
    {LIMIT(header_timeout_ms, "10000", 1, 3600000, "milliseconds",
           "time for a request's headers to arrive")},
    {LIMIT(body_timeout_ms, "30000", 1, 3600000, "milliseconds",
           "time for a request's body to arrive")},
    {LIMIT(reply_timeout_ms, "30000", 1, 3600000, "milliseconds",
           "time that a client may take nothing of its reply")},
    {LIMIT(idle_timeout_s, "75", 1, 86400, "seconds",
           "time a connection may stay open between requests")},
    {SIZE(lame_duck_s, "5", 0, 3600, "seconds",
          "time after SIGTERM in which /readyz is 503 and all is still served")},
    {LIMIT(drain_timeout_s, "30", 0, 86400, "seconds",
           "time for running requests to finish after that")},
    {CHOICE(reply_compression, "asked", "asked|json|all",
            "large replies to compress for Accept-Encoding; asked: by compressed_output only")},
    {CHOICE(durability, "none", "none|snapshot|journal", "how sessions outlive the process")},
    {TEXT(state_dir, A_DIRECTORY, "directory of the sessions' files, for one daemon")},
    {TEXT(adopt, "names of directories, separated by commas, 16 at most",
          "state directory of another instance to serve too; may be given several times"),
     .valid = srv_adopted_valid, .is_list = true, .repeats = true},
    {CHOICE(journal_fsync, "os", "os|everysec|always", "when the journal is brought to the disk")},
    {SIZE(journal_bytes, "256MiB", 4 * KIB, 64 * GIB, "bytes", "journal that a snapshot replaces")},
    {SIZE(snapshot_interval_s, "300", 0, 86400, "seconds", "time between snapshots; 0 for none")},
    {SIZE(snapshot_tokens, "0", 0, SIZE_MAX / 2, "tokens",
          "tokens between snapshots; 0 for any number")},
    {TEXT(api_keys, A_FILE, "JSON file of the keys that requests must come with")},
    {TEXT(tls_cert, A_FILE, "PEM file of the certificate, and its chain, for HTTPS")},
    {TEXT(tls_key, A_FILE, "PEM file of that certificate's key")},
    {CHOICE(allow_unauthenticated, "false", "false|true",
            "listen beyond loopback without api_keys")},
    {TEXT(allowed_hosts, "names without ports, separated by commas",
          "names beside addresses and localhost that Host may have; needed without api_keys"),
     .valid = srv_hosts_valid, .is_list = true},
    {TEXT(allow_origins,
          "exact origins such as https://app.example, separated by commas "
          "(a star would let in every page that a browser shows)",
          "web pages that may use the daemon from a browser (CORS)"),
     .valid = srv_origins_valid, .is_list = true},
    {MODE(check, SRV_RUN_CHECK,
          "read configuration and models' headers, print what would be served")},
    {MODE(check_short, SRV_RUN_CHECK_SHORT,
          "the same without options and bounds: models, memory and the verdict")},
    {MODE(health_check, SRV_RUN_HEALTH, "ask the daemon at host and port whether it is ready")},
    {MODE(help, SRV_RUN_HELP, "print this text")},
    {MODE(version, SRV_RUN_VERSION, "print the versions of attnd and of what it stands on")},
};
const size_t srv_option_count = sizeof srv_options / sizeof srv_options[0];

_Static_assert(sizeof srv_options / sizeof srv_options[0] <= SRV_MAX_OPTIONS,
               "struct srv_config has a source for each option");

void srv_option_spell(char out[SRV_OPTION_SPELL_MAX], const struct srv_option *option,
                      enum srv_config_source source)
{
    static const char *const prefixes[] = {
        [SRV_FROM_DEFAULT] = "", [SRV_FROM_MEMORY] = "",        [SRV_FROM_STATE_DIR] = "",
        [SRV_FROM_FILE] = "",    [SRV_FROM_VARIABLE] = "ATTN_", [SRV_FROM_FLAG] = "--"};
    size_t start = strlen(prefixes[source]);
    bool plural = option->kind == SRV_OPTION_MODELS && source != SRV_FROM_FLAG;
    snprintf(out, SRV_OPTION_SPELL_MAX, "%s%s%s", prefixes[source], option->name,
             plural ? "s" : "");
    for (char *c = out + start; *c != '\0'; c++) {
        if (source == SRV_FROM_VARIABLE)
            *c = (char)toupper((unsigned char)*c);
        else if (source == SRV_FROM_FLAG && *c == '_')
            *c = '-';
    }
}

const struct srv_option *srv_option_find(const char *text, size_t length,
                                         enum srv_config_source source)
{
    char spelled[SRV_OPTION_SPELL_MAX];
    for (size_t i = 0; i < srv_option_count; i++) {
        srv_option_spell(spelled, &srv_options[i], source);
        if (strlen(spelled) == length && memcmp(spelled, text, length) == 0)
            return &srv_options[i];
    }
    return NULL;
}

bool srv_option_in_file(const struct srv_option *option)
{
    return option->kind != SRV_OPTION_MODE &&
           option->offset != offsetof(struct srv_config, config_file);
}

bool srv_size_parse(size_t *out, const char *text)
{
    static const struct {
        const char *suffix;
        size_t factor;
    } units[] = {{"", 1},
                 {"KiB", KIB},
                 {"MiB", MIB},
                 {"GiB", GIB},
                 {"TiB", TIB},
                 {"k", 1000u},
                 {"kB", 1000u},
                 {"KB", 1000u},
                 {"M", 1000000u},
                 {"MB", 1000000u},
                 {"G", 1000000000u},
                 {"GB", 1000000000u},
                 {"T", 1000000000000u},
                 {"TB", 1000000000000u}};
    uint64_t value;
    const size_t digits = strspn(text, "0123456789");
    if (!srv_unsigned_read(&value, text, digits))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].suffix) == 0)
            return !__builtin_mul_overflow(value, units[i].factor, out);
    }
    return false;
}

/* ---- One value ------------------------------------------------------------------------------- */

static void *value_at(const struct srv_config *config, const struct srv_option *option)
{
    return (char *)(uintptr_t)config + option->offset;
}

void srv_option_describe(char *out, size_t size, const struct srv_option *option)
{
    bool has_unit = option->unit != NULL;
    bool is_bytes = has_unit && strcmp(option->unit, "bytes") == 0;
    if (option->kind == SRV_OPTION_SIZE) {
        snprintf(out, size, "a whole number %s%s%sfrom %zu to %zu%s", has_unit ? "of " : "",
                 has_unit ? option->unit : "", has_unit ? " " : "", option->min, option->max,
                 is_bytes ? " (suffixes KiB MiB GiB TiB KB MB GB TB)" : "");
    } else if (option->accepts != NULL) {
        snprintf(out, size, "%s", option->accepts);
    } else {
        snprintf(out, size, "one of %s", option->choices);
        for (char *bar = strchr(out, '|'); bar != NULL; bar = strchr(bar, '|'))
            *bar = ' ';
    }
}

/* The start and length of word `index` of the option's choices; NULL past the last. */
static const char *choice(size_t *length, const struct srv_option *option, unsigned index)
{
    const char *word = option->choices;
    for (unsigned i = 0; i < index && word != NULL; i++) {
        word = strchr(word, '|');
        word = word != NULL ? word + 1 : NULL;
    }
    *length = word != NULL ? strcspn(word, "|") : 0;
    return word;
}

static bool set_choice(unsigned *out, const struct srv_option *option, const char *text)
{
    size_t length;
    const char *word;
    for (unsigned i = 0; (word = choice(&length, option, i)) != NULL; i++) {
        if (strlen(text) != length || memcmp(word, text, length) != 0)
            continue;
        *out = i;
        return true;
    }
    return false;
}

static bool set_text(char **out, const struct srv_option *option, const char *text)
{
    if (text[0] == '\0' || (option->valid != NULL && !option->valid(text)))
        return false;
    char *copy = strdup(text);
    if (copy == NULL)
        return false;
    free(*out);
    *out = copy;
    return true;
}

bool srv_option_set(struct srv_config_reading *reading, const struct srv_option *option,
                    enum srv_config_source source, const char *text)
{
    void *value = value_at(reading->config, option);
    char name[SRV_OPTION_SPELL_MAX], accepted[160];
    size_t number;
    bool set = false;
    if (option->kind == SRV_OPTION_TEXT) {
        set = set_text(value, option, text);
    } else if (option->kind == SRV_OPTION_CHOICE) {
        set = set_choice(value, option, text);
    } else if (option->kind == SRV_OPTION_SIZE) {
        set = srv_size_parse(&number, text) && number >= option->min && number <= option->max;
        if (set)
            *(size_t *)value = number;
    }
    if (set) {
        reading->config->sources[option - srv_options] = (unsigned char)source;
        return true;
    }
    srv_option_spell(name, option, source);
    srv_option_describe(accepted, sizeof accepted, option);
    return srv_refuse(reading->message, "%s: \"%.64s\" is not %s", name, text, accepted);
}

void srv_config_divide_defaults(struct srv_config *config, unsigned divisor)
{
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        size_t initial;
        if (!option->scales_with_memory || config->sources[i] > SRV_FROM_MEMORY ||
            !srv_size_parse(&initial, option->initial))
            continue;
        *(size_t *)value_at(config, option) = initial / divisor;
        config->sources[i] = divisor > 1 ? SRV_FROM_MEMORY : SRV_FROM_DEFAULT;
    }
}

/* ---- Texts made from the table --------------------------------------------------------------- */

void srv_config_print(struct srv_buffer *out, const struct srv_config *config)
{
    static const char *const sources[] = {
        [SRV_FROM_DEFAULT] = "default",     [SRV_FROM_MEMORY] = "memory",
        [SRV_FROM_STATE_DIR] = "state_dir", [SRV_FROM_FILE] = "file",
        [SRV_FROM_VARIABLE] = "variable",   [SRV_FROM_FLAG] = "flag"};
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        const void *value = value_at(config, option);
        const char *unit = option->unit != NULL ? option->unit : "";
        size_t length;
        if (option->kind == SRV_OPTION_MODE || option->kind == SRV_OPTION_MODELS)
            continue;
        srv_buffer_printf(out, "  %-19s = ", option->name);
        if (option->kind == SRV_OPTION_SIZE) {
            srv_buffer_printf(out, "%zu%s%s", *(const size_t *)value, unit[0] != '\0' ? " " : "",
                              unit);
        } else if (option->kind == SRV_OPTION_CHOICE) {
            const char *word = choice(&length, option, *(const unsigned *)value);
            srv_buffer_append(out, word, length);
        } else {
            const char *text = *(char *const *)value;
            srv_buffer_text(out, text != NULL ? text : "none");
        }
        srv_buffer_printf(out, " (%s)\n", sources[config->sources[i]]);
    }
}

const char *srv_option_value(const struct srv_option *option)
{
    static const char *const values[] = {[SRV_OPTION_TEXT] = "TEXT",
                                         [SRV_OPTION_SIZE] = "N",
                                         [SRV_OPTION_CHOICE] = "WORD",
                                         [SRV_OPTION_MODELS] = "NAME=DIR",
                                         [SRV_OPTION_MODE] = ""};
    if (option->kind == SRV_OPTION_TEXT && strcmp(option->accepts, A_FILE) == 0)
        return "FILE";
    if (option->kind == SRV_OPTION_TEXT && strcmp(option->accepts, A_DIRECTORY) == 0)
        return "DIR";
    return values[option->kind];
}

void srv_config_help(struct srv_buffer *out)
{
    srv_buffer_text(out,
                    "attnd: attention layers and key/value caches over HTTP\n\n"
                    "  attnd [--config FILE] [OPTION ...]\n"
                    "  attnd inspect PATH [--stack NAME] [--layers 0,3,5] [--dtype NAME]\n"
                    "                     [--kv-dtype NAME] [--config JSON] [--json]\n"
                    "  attnd inspect --family [NAME]\n"
                    "  attnd journal check DIR\n"
                    "  attnd journal salvage DIR [--config FILE] [OPTION ...]\n\n"
                    "inspect prints what a checkpoint holds, layer by layer, and what it would\n"
                    "cost.  PATH is its directory, a GGUF file, config.json alone, or a single\n"
                    "file of tensors with the configuration JSON.  --family prints the keys,\n"
                    "tensors and rules of the family NAME, or all names.  journal check says\n"
                    "which files of the state directory DIR are damaged; salvage saves what can\n"
                    "be saved of sessions that a start with this configuration leaves out.\n\n"
                    "Options, with their defaults:\n\n");
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        char flag[SRV_OPTION_SPELL_MAX];
        srv_option_spell(flag, option, SRV_FROM_FLAG);
        int width = 27 - (int)strlen(flag);
        srv_buffer_printf(out, "  %s %-*s %s", flag, width, srv_option_value(option), option->help);
        if (option->choices != NULL)
            srv_buffer_printf(out, ": %s", option->choices);
        if (option->unit != NULL)
            srv_buffer_printf(out, ", %s", option->unit);
        if (option->initial != NULL)
            srv_buffer_printf(out, " [%s]", option->initial);
        srv_buffer_text(out, "\n");
    }
    srv_buffer_text(
        out, "\nEach option with a value is also a variable, as ATTN_MAX_QUEUE is of\n"
             "--max-queue, and, but for --config, a key of the file, \"max_queue\".  A flag\n"
             "beats a variable, a variable the file, the file the default.  Numbers take\n"
             "the suffixes KiB, MiB, GiB, TiB, KB, MB, GB and TB; a variable that is empty\n"
             "counts as unset.  The file's key \"models\" lists what to serve: {\"name\",\n"
             "\"path\", \"layers\"?, \"stack\"?} or {\"name\", \"random\": {...}}; the variable\n"
             "ATTN_MODELS is a list NAME=DIR,NAME=DIR.\n"
             "\nStatus: 0 all is well, 1 it failed, 2 the configuration is wrong.\n");
}
