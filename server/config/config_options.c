/* config_options.c: the option table, values of options from text, and the texts made from the
 * table: --help and the list that --check prints.
 *
 * File, variables and flags all arrive here as text, so that there is one reading of a number, one
 * check of its bounds and one wording of the refusal. */
#include "config/config_options.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "base/buffer.h"

static bool host_valid(const char *text)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

static bool instance_valid(const char *text)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-";
    size_t length = strlen(text);
    return length <= 32 && text[0] != '-' && strspn(text, set) == length;
}

#define OFFSET(member) offsetof(struct srv_config, member)
#define AT(member) OFFSET(member), false
#define LIMIT(member) SRV_OPTION_SIZE, AT(limits.member)
#define SHARE(member) SRV_OPTION_SIZE, OFFSET(limits.member), true
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

const struct srv_option srv_options[] = {
    {"config", SRV_OPTION_TEXT, AT(config_file), NULL, 0, 0, "a file name",
     "JSON file with these keys and `models`", NULL},
    {"host", SRV_OPTION_TEXT, AT(host), "127.0.0.1", 0, 0, "a numeric IPv4 or IPv6 address",
     "address to listen on", host_valid},
    {"port", SRV_OPTION_SIZE, AT(port), "8080", 0, 65535, "", "TCP port; 0 for any free one", NULL},
    {"instance", SRV_OPTION_TEXT, AT(instance), NULL, 0, 0,
     "1 to 32 letters, digits and hyphens, the first no hyphen",
     "this daemon's name, which begins its session ids [the host's]", instance_valid},
    {"event_threads", SRV_OPTION_SIZE, AT(event_threads), "1", 1, SRV_MAX_EVENT_THREADS, "",
     "threads that watch connections", NULL},
    {"threads", SRV_OPTION_SIZE, AT(threads), "0", 0, ATTN_MAX_THREADS, "",
     "threads that compute; 0 for one per usable CPU", NULL},
    {"cpu_level", SRV_OPTION_CHOICE, AT(cpu_level), "auto", 0, 0,
     "auto|portable|avx2|avx512|avx512vnni|avx512bf16", "instructions to use", NULL},
    {"log", SRV_OPTION_CHOICE, AT(log), "access", 0, 0, "off|error|info|access",
     "what to log; access: a line per request", NULL},
    {"sandbox", SRV_OPTION_CHOICE, AT(sandbox), "off", 0, 0, "off|on",
     "give up what serving does not need: seccomp, and landlock where the kernel has it", NULL},
    {"max_body_bytes", SHARE(max_body_bytes), "64MiB", KIB, 64 * GIB, "bytes", "one request body",
     NULL},
    {"max_reply_bytes", SHARE(max_reply_bytes), "256MiB", KIB, 64 * GIB, "bytes",
     "one reply, estimated before computing", NULL},
    {"max_state_bytes", SHARE(max_state_bytes), "512MiB", KIB, 64 * GIB, "bytes",
     "one session's state, sent or received", NULL},
    {"max_in_flight_bytes", SHARE(max_in_flight_bytes), "1GiB", KIB, 1024 * GIB, "bytes",
     "bodies, tensors and replies of all requests together", NULL},
    {"max_connections", SHARE(max_connections), "16384", 1, MIB, "", "open connections", NULL},
    {"max_queue", LIMIT(max_queue), "4096", 1, MIB, "", "requests waiting or running", NULL},
    {"max_sessions", SHARE(max_sessions), "16384", 1, MIB, "", "live sessions", NULL},
    {"max_session_length", LIMIT(max_session_length), "131072", 1, ATTN_MAX_TOKENS, "tokens",
     "cache of one session, unless it asks for less", NULL},
    {"max_tokens", LIMIT(max_tokens), "32768", 1, ATTN_MAX_TOKENS, "tokens",
     "rows of one call or of one decode item", NULL},
    {"max_scores", LIMIT(max_scores), "8589934592", 1, SIZE_MAX / 2, "",
     "scores of one computation: sequences x heads x query tokens x key tokens", NULL},
    {"max_sequences", LIMIT(max_sequences), "1024", 1, MIB, "", "items of one /decode", NULL},
    {"max_session_waiting", LIMIT(max_session_waiting), "2", 1, MIB, "",
     "requests waiting for one session, beside the one that runs", NULL},
    {"cache_bytes", SHARE(cache_bytes), "1GiB", KIB, 65536 * GIB, "bytes",
     "key/value caches of all sessions together", NULL},
    {"memory_limit", SRV_OPTION_SIZE, AT(memory_limit), "0", 0, 65536 * GIB, "bytes",
     "memory that attnd may count on; 0 for what the control group or the machine gives", NULL},
    {"session_ttl_s", LIMIT(session_ttl_s), "3600", 1, SRV_MAX_TTL_S, "seconds",
     "idle time after which a session expires", NULL},
    {"header_timeout_ms", LIMIT(header_timeout_ms), "10000", 1, 3600000, "milliseconds",
     "time for a request's headers to arrive", NULL},
    {"body_timeout_ms", LIMIT(body_timeout_ms), "30000", 1, 3600000, "milliseconds",
     "time for a request's body to arrive", NULL},
    {"idle_timeout_s", LIMIT(idle_timeout_s), "75", 1, 86400, "seconds",
     "time a connection may stay open between requests", NULL},
    {"drain_timeout_s", LIMIT(drain_timeout_s), "30", 0, 86400, "seconds",
     "time for running requests to finish after SIGTERM", NULL},
    {"durability", SRV_OPTION_CHOICE, AT(durability), "none", 0, 0, "none|snapshot|journal",
     "how sessions outlive the process", NULL},
    {"state_dir", SRV_OPTION_TEXT, AT(state_dir), NULL, 0, 0, "a directory name",
     "directory of the sessions' files, for one daemon", NULL},
    {"journal_fsync", SRV_OPTION_CHOICE, AT(journal_fsync), "os", 0, 0, "os|everysec|always",
     "when the journal is brought to the disk", NULL},
    {"journal_bytes", SRV_OPTION_SIZE, AT(journal_bytes), "256MiB", 4 * KIB, 64 * GIB, "bytes",
     "journal that a snapshot replaces", NULL},
    {"snapshot_interval_s", SRV_OPTION_SIZE, AT(snapshot_interval_s), "300", 0, 86400, "seconds",
     "time between snapshots; 0 for none", NULL},
    {"snapshot_tokens", SRV_OPTION_SIZE, AT(snapshot_tokens), "0", 0, SIZE_MAX / 2, "tokens",
     "tokens between snapshots; 0 for any number", NULL},
    {"api_keys", SRV_OPTION_TEXT, AT(api_keys), NULL, 0, 0, "a file name",
     "JSON file of the keys that requests must come with", NULL},
    {"tls_cert", SRV_OPTION_TEXT, AT(tls_cert), NULL, 0, 0, "a file name",
     "PEM file of the certificate, and its chain, for HTTPS", NULL},
    {"tls_key", SRV_OPTION_TEXT, AT(tls_key), NULL, 0, 0, "a file name",
     "PEM file of that certificate's key", NULL},
    {"allow_unauthenticated", SRV_OPTION_CHOICE, AT(allow_unauthenticated), "false", 0, 0,
     "false|true", "listen beyond loopback without api_keys", NULL},
    {"check", SRV_OPTION_MODE, AT(mode), NULL, SRV_RUN_CHECK, 0, "",
     "read configuration and models' headers, print what would be served", NULL},
    {"health_check", SRV_OPTION_MODE, AT(mode), NULL, SRV_RUN_HEALTH, 0, "",
     "ask the daemon at host and port whether it is ready", NULL},
    {"help", SRV_OPTION_MODE, AT(mode), NULL, SRV_RUN_HELP, 0, "", "print this text", NULL},
    {"version", SRV_OPTION_MODE, AT(mode), NULL, SRV_RUN_VERSION, 0, "",
     "print the versions of attnd and of what it stands on", NULL},
};
const size_t srv_option_count = sizeof srv_options / sizeof srv_options[0];

_Static_assert(sizeof srv_options / sizeof srv_options[0] <= SRV_MAX_OPTIONS,
               "struct srv_config has a source for each option");

void srv_option_spell(char out[SRV_OPTION_SPELL_MAX], const struct srv_option *option,
                      enum srv_config_source source)
{
    static const char *const prefixes[] = {"", "", "", "ATTN_", "--"};
    size_t start = strlen(prefixes[source]);
    snprintf(out, SRV_OPTION_SPELL_MAX, "%s%s", prefixes[source], option->name);
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
    return option->kind != SRV_OPTION_MODE && option->offset != OFFSET(config_file);
}

bool srv_size_parse(size_t *out, const char *text)
{
    static const struct {
        const char *suffix;
        size_t factor;
    } units[] = {{"", 1},      {"KiB", KIB},    {"MiB", MIB},      {"GiB", GIB},
                 {"k", 1000u}, {"M", 1000000u}, {"G", 1000000000u}};
    size_t value = 0;
    const char *at = text;
    for (; isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(value, (size_t)10, &value) ||
            __builtin_add_overflow(value, (size_t)(*at - '0'), &value))
            return false;
    }
    if (at == text)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(at, units[i].suffix) == 0)
            return !__builtin_mul_overflow(value, units[i].factor, out);
    }
    return false;
}

/* ---- One value ------------------------------------------------------------------------------- */

static void *value_of(const struct srv_config *config, const struct srv_option *option)
{
    return (char *)(uintptr_t)config + option->offset;
}

/* What the option accepts, in words that follow "is not". */
static void describe(char *out, size_t size, const struct srv_option *option)
{
    if (option->kind == SRV_OPTION_SIZE) {
        snprintf(out, size, "a whole number %s%s%sfrom %zu to %zu (suffixes KiB MiB GiB k M G)",
                 option->words[0] != '\0' ? "of " : "", option->words,
                 option->words[0] != '\0' ? " " : "", option->min, option->max);
        return;
    }
    snprintf(out, size, "%s%s", option->kind == SRV_OPTION_CHOICE ? "one of " : "", option->words);
    for (char *bar = strchr(out, '|'); bar != NULL; bar = strchr(bar, '|'))
        *bar = ' ';
}

static bool set_size(size_t *out, const struct srv_option *option, const char *text)
{
    size_t value;
    if (!srv_size_parse(&value, text) || value < option->min || value > option->max)
        return false;
    *out = value;
    return true;
}

/* The start of word `index` of the option's choices and its length; NULL past the last. */
static const char *choice(size_t *length, const struct srv_option *option, unsigned index)
{
    const char *word = option->words;
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
    for (unsigned i = 0;; i++) {
        const char *word = choice(&length, option, i);
        if (word == NULL)
            return false;
        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            *out = i;
            return true;
        }
    }
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

bool srv_option_set(struct srv_config *config, const struct srv_option *option,
                    enum srv_config_source source, const char *text, char *message, size_t size)
{
    void *value = value_of(config, option);
    bool set = false;
    switch (option->kind) {
    case SRV_OPTION_TEXT:
        set = set_text(value, option, text);
        break;
    case SRV_OPTION_SIZE:
        set = set_size(value, option, text);
        break;
    case SRV_OPTION_CHOICE:
        set = set_choice(value, option, text);
        break;
    case SRV_OPTION_MODE: /* has no value */
        break;
    }
    if (!set) {
        char name[SRV_OPTION_SPELL_MAX], wanted[160];
        srv_option_spell(name, option, source);
        describe(wanted, sizeof wanted, option);
        snprintf(message, size, "%s: \"%.64s\" is not %s", name, text, wanted);
        return false;
    }
    config->sources[option - srv_options] = (unsigned char)source;
    return true;
}

void srv_config_divide_shares(struct srv_config *config, unsigned divisor)
{
    for (size_t i = 0; i < srv_option_count; i++) {
        const struct srv_option *option = &srv_options[i];
        size_t initial;
        if (!option->is_share || config->sources[i] > SRV_FROM_MEMORY ||
            !srv_size_parse(&initial, option->initial))
            continue;
        *(size_t *)value_of(config, option) = initial / divisor;
        config->sources[i] = divisor > 1 ? SRV_FROM_MEMORY : SRV_FROM_DEFAULT;
    }
}

/* ---- Texts made from the table --------------------------------------------------------------- */

static void print_value(struct srv_buffer *out, const struct srv_config *config,
                        const struct srv_option *option)
{
    const void *value = value_of(config, option);
    if (option->kind == SRV_OPTION_SIZE) {
        srv_buffer_printf(out, "%zu%s%s", *(const size_t *)value,
                          option->words[0] != '\0' ? " " : "", option->words);
    } else if (option->kind == SRV_OPTION_CHOICE) {
        size_t length;
        const char *word = choice(&length, option, *(const unsigned *)value);
        srv_buffer_append(out, word, length);
    } else {
        const char *text = *(char *const *)value;
        srv_buffer_text(out, text != NULL ? text : "none");
    }
}

void srv_config_print(struct srv_buffer *out, const struct srv_config *config)
{
    static const char *const sources[] = {"default", "memory", "file", "variable", "flag"};
    for (size_t i = 0; i < srv_option_count; i++) {
        if (srv_options[i].kind == SRV_OPTION_MODE)
            continue;
        srv_buffer_printf(out, "  %-19s = ", srv_options[i].name);
        print_value(out, config, &srv_options[i]);
        srv_buffer_printf(out, " (%s)\n", sources[config->sources[i]]);
    }
}

static void help_option(struct srv_buffer *out, const struct srv_option *option)
{
    static const char *const values[] = {" TEXT", " N", " WORD", ""};
    char flag[SRV_OPTION_SPELL_MAX];
    srv_option_spell(flag, option, SRV_FROM_FLAG);
    int width = 28 - (int)strlen(flag);
    srv_buffer_printf(out, "  %s%-*s %s", flag, width, values[option->kind], option->help);
    if (option->kind == SRV_OPTION_CHOICE)
        srv_buffer_printf(out, ": %s", option->words);
    if (option->kind == SRV_OPTION_SIZE && option->words[0] != '\0')
        srv_buffer_printf(out, ", %s", option->words);
    if (option->initial != NULL)
        srv_buffer_printf(out, " [%s]", option->initial);
    srv_buffer_text(out, "\n");
}

void srv_config_help(struct srv_buffer *out)
{
    srv_buffer_text(out, "attnd: attention layers and key/value caches over HTTP\n\n"
                         "  attnd [--config FILE] [OPTION ...]\n"
                         "  attnd inspect DIR [--stack NAME] [--layers 0,3,5] [--dtype NAME]\n"
                         "                    [--kv-dtype NAME]\n\n"
                         "The second form prints what the checkpoint in DIR holds, layer by\n"
                         "layer, and what loading it would cost.\n\n"
                         "Options, with their defaults:\n\n");
    for (size_t i = 0; i < srv_option_count; i++)
        help_option(out, &srv_options[i]);
    srv_buffer_text(
        out, "\nEach option with a value is also a variable, as ATTN_MAX_QUEUE is of\n"
             "--max-queue, and, but for --config, a key of the file, \"max_queue\".  A flag\n"
             "beats a variable, a variable the file, the file the default.  Numbers take\n"
             "the suffixes KiB, MiB, GiB, k, M and G.  The file's key \"models\" lists what\n"
             "to serve: {\"name\", \"path\", \"layers\"?, \"stack\"?} or {\"name\", \"random\": "
             "{...}}.\n"
             "\nStatus: 0 all is well, 1 it failed, 2 the configuration is wrong.\n");
}
