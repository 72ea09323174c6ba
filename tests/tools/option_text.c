/* option_text.c: prints the table of options in the form of a manual page or of a shell's
 * completion.
 *
 *   option_text flags|keys|bash|zsh|fish
 *
 * tests/tools/fill.sh puts what is printed into the templates of config/. */
#include <stdio.h>
#include <string.h>

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

static const struct form {
    const char *name;
    void (*put)(const struct srv_option *option);
} forms[] = {
    {"flags", put_flag}, {"keys", put_key},  {"bash", put_bash},
    {"zsh", put_zsh},    {"fish", put_fish},
};

int main(int argc, char *argv[])
{
    for (size_t i = 0; argc == 2 && i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(argv[1], forms[i].name) != 0)
            continue;
        for (size_t j = 0; j < srv_option_count; j++)
            forms[i].put(&srv_options[j]);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fputs("usage: option_text flags|keys|bash|zsh|fish\n", stderr);
    return 2;
}
