/* table_text.c: prints the table of options in the form of a manual page, of a shell's completion
 * or of a document, and the tables of bounds and errors for documents.
 *
 *   table_text flags|keys|bash|zsh|fish|options|bounds|errors
 *
 * tests/tools/fill.sh puts what is printed into the templates of config/, tests/tools/docs.sh into
 * docs/. */
#include <stdio.h>
#include <string.h>

#include "base/errors.h"
#include "config/bounds.h"
#include "config/options.h"

#define ACCEPTED_MAX 256

static bool has_value(const struct srv_option *option) { return option->kind != SRV_OPTION_MODE; }

static const char *flag_of(const struct srv_option *option)
{
    static _Thread_local char flag[SRV_OPTION_SPELL_MAX];
    srv_option_spell(flag, option, SRV_FROM_FLAG);
    return flag + strlen("--");
}

/* Prints text of a manual page: a capital first where `opens`, with what roff would take for its
 * own escaped. */
static void put_roff(const char *text, bool opens)
{
    if (text[0] == '.' || text[0] == '\'')
        fputs("\\&", stdout);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(opens && c == text && *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
}

/* ---- Manual pages ---------------------------------------------------------------------------- */

static void put_meaning(const struct srv_option *option)
{
    char accepted[ACCEPTED_MAX];
    put_roff(option->help, true);
    puts(".");
    if (has_value(option)) {
        srv_option_describe(accepted, sizeof accepted, option);
        put_roff(accepted, true);
        puts(".");
    }
    if (option->initial != NULL) {
        fputs("Default: ", stdout);
        put_roff(option->initial, false);
        puts(".");
    }
}

/* The items of attnd(1). */
static void put_flag(const struct srv_option *option)
{
    char variable[SRV_OPTION_SPELL_MAX];
    printf(".It Fl \\-%s%s%s\n", flag_of(option), has_value(option) ? " Ar " : "",
           srv_option_value(option));
    put_meaning(option);
    if (has_value(option)) {
        srv_option_spell(variable, option, SRV_FROM_VARIABLE);
        printf("Variable:\n.Ev %s .\n", variable);
    }
}

/* The items of attnd.conf(5), but for `models`, which the template describes. */
static void put_key(const struct srv_option *option)
{
    if (!srv_option_in_file(option) || option->kind == SRV_OPTION_MODELS)
        return;
    printf(".It Cm %s\n", option->name);
    put_meaning(option);
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool names_directory(const struct srv_option *option)
{
    return strstr(srv_option_value(option), "DIR") != NULL;
}

static bool names_file(const struct srv_option *option)
{
    return strcmp(srv_option_value(option), "FILE") == 0;
}

static void put_words(const char *choices)
{
    for (const char *c = choices; c != NULL && *c != '\0'; c++)
        putchar(*c == '|' ? ' ' : *c);
}

/* Prints text between single quotes of a shell; zsh takes [, ] and : for its own too. */
static void put_quoted(const char *text, const char *escaped)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'')
            fputs("'\\'", stdout);
        else if (strchr(escaped, *c) != NULL)
            putchar('\\');
        putchar(*c);
    }
}

/* A case of attnd.bash: what completes the word after a flag that takes a value. */
static void put_bash(const struct srv_option *option)
{
    if (!has_value(option))
        return;
    printf("    --%s) ", flag_of(option));
    if (option->choices != NULL) {
        fputs("list='", stdout);
        put_words(option->choices);
        fputs("' ;;\n", stdout);
    } else {
        printf("action=%s ;;\n", names_directory(option) ? "directory"
                                 : names_file(option)    ? "file"
                                                         : "none");
    }
}

/* A specification of _arguments. */
static void put_zsh(const struct srv_option *option)
{
    printf("    '--%s%s[", flag_of(option), has_value(option) ? "=" : "");
    put_quoted(option->help, "[]:\\");
    fputs("]", stdout);
    if (option->choices != NULL) {
        fputs(":word:(", stdout);
        put_words(option->choices);
        fputs(")", stdout);
    } else if (has_value(option)) {
        fputs(names_directory(option) ? ":directory:_files -/"
              : names_file(option)    ? ":file:_files"
                                      : ":value: ",
              stdout);
    }
    puts("'");
}

static void put_fish(const struct srv_option *option)
{
    printf("complete -c attnd -l %s -d '", flag_of(option));
    put_quoted(option->help, "\\");
    fputs("'", stdout);
    if (option->choices != NULL) {
        fputs(" -x -a '", stdout);
        put_words(option->choices);
        fputs("'", stdout);
    } else if (has_value(option)) {
        fputs(names_directory(option) ? " -x -a '(__fish_complete_directories)'"
              : names_file(option)    ? " -r -F"
                                      : " -x",
              stdout);
    }
    puts("");
}

/* ---- Documents ------------------------------------------------------------------------------- */

/* What happens beyond a bound; NULL stands for no bound. */
static void put_beyond(const struct srv_bound *bound)
{
    if (bound != NULL && bound->code != SRV_OK)
        printf("%u `%s`", srv_error_status(bound->code), srv_error_word(bound->code));
    else
        fputs(bound != NULL ? bound->beyond : "", stdout);
}

static const struct srv_bound *bound_of(const struct srv_option *option)
{
    for (size_t i = 0; i < srv_bound_count; i++)
        if (srv_bounds[i].is_option && strcmp(srv_bounds[i].name, option->name) == 0)
            return &srv_bounds[i];
    return NULL;
}

/* A row of docs/OPERATIONS.md. */
static void put_option(const struct srv_option *option)
{
    char accepted[ACCEPTED_MAX];
    if (!has_value(option))
        return;
    if (option->kind == SRV_OPTION_SIZE)
        snprintf(accepted, sizeof accepted, "%zu to %zu%s%s", option->min, option->max,
                 option->unit != NULL ? " " : "", option->unit != NULL ? option->unit : "");
    else
        srv_option_describe(accepted, sizeof accepted, option);
    printf("| `--%s` | %s | %s | %s | ", flag_of(option), accepted,
           option->initial != NULL ? option->initial : "none", option->help);
    put_beyond(bound_of(option));
    puts(" |");
}

/* The rows of docs/OPERATIONS.md: bounds that no option sets. */
static void put_bounds(void)
{
    for (const struct srv_bound *bound = srv_bounds; bound < srv_bounds + srv_bound_count;
         bound++) {
        if (bound->is_option)
            continue;
        printf("| `%s` | %zu%s%s | %s | ", bound->name, bound->value,
               bound->unit != NULL ? " " : "", bound->unit != NULL ? bound->unit : "",
               bound->subject);
        put_beyond(bound);
        puts(" |");
    }
}

/* The rows of docs/API.md. */
static void put_errors(void)
{
    for (enum srv_error_code code = SRV_OK + 1; code < SRV_ERROR_COUNT; code++)
        printf("| `%s` | %u | %s | %s |\n", srv_error_word(code), srv_error_status(code),
               srv_error_retryable(code) ? "yes" : "no", srv_error_meaning(code));
}

static void put_options(void (*put)(const struct srv_option *option))
{
    for (size_t i = 0; i < srv_option_count; i++)
        put(&srv_options[i]);
}

static const struct form {
    const char *name;
    void (*put)(const struct srv_option *option); /* for each option; NULL: put_all once */
    void (*put_all)(void);
} forms[] = {
    {"flags", put_flag, NULL},    {"keys", put_key, NULL},      {"bash", put_bash, NULL},
    {"zsh", put_zsh, NULL},       {"fish", put_fish, NULL},     {"options", put_option, NULL},
    {"bounds", NULL, put_bounds}, {"errors", NULL, put_errors},
};

int main(int argc, char *argv[])
{
    for (size_t i = 0; argc == 2 && i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(argv[1], forms[i].name) != 0)
            continue;
        if (forms[i].put != NULL)
            put_options(forms[i].put);
        else
            forms[i].put_all();
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fputs("usage: table_text flags|keys|bash|zsh|fish|options|bounds|errors\n", stderr);
    return 2;
}
