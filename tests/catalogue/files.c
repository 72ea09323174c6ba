/* files.c: writes an entry's files, runs attnd over them, and removes them. */
#include "files.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

#define MAX_PATH 256

const char *const file_keys[] = {"file",     "secret", "link", "directory", "run",
                                 "variable", "exit",   "says", NULL};

/* Builds the path in `dir` of the name that `value` begins with; *rest points after the name. */
static void take_name(char path[MAX_PATH], const char **rest, const char *dir, const char *value)
{
    size_t length = strcspn(value, " ");
    ck_assert_int_lt(snprintf(path, MAX_PATH, "%s/%.*s", dir, (int)length, value), MAX_PATH);
    *rest = value + length + (value[length] == ' ');
}

static void write_file(const struct line *line, const char *dir)
{
    char path[MAX_PATH];
    const char *content;
    take_name(path, &content, dir, line->value.data);
    size_t size = line->value.length - (size_t)(content - line->value.data);
    FILE *file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s cannot be written", path);
    ck_assert_uint_eq(fwrite(content, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

/* Writes a file that only its owner may read. */
static void write_secret(const struct line *line, const char *dir)
{
    char path[MAX_PATH];
    const char *content;
    write_file(line, dir);
    take_name(path, &content, dir, line->value.data);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void make_link(const struct line *line, const char *dir)
{
    char path[MAX_PATH];
    const char *target;
    take_name(path, &target, dir, line->value.data);
    ck_assert_int_eq(symlink(target, path), 0);
}

static void make_directory(const struct line *line, const char *dir)
{
    char path[MAX_PATH];
    const char *rest;
    take_name(path, &rest, dir, line->value.data);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static const struct {
    const char *key;
    void (*make)(const struct line *line, const char *dir);
} makers[] = {{"directory", make_directory},
              {"file", write_file},
              {"secret", write_secret},
              {"link", make_link}};

static void make_files(const struct entry *entry, const char *dir)
{
    for (size_t i = 0; i < entry->count; i++)
        for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++)
            if (strcmp(entry->lines[i].key, makers[m].key) == 0)
                makers[m].make(&entry->lines[i], dir);
}

static void remove_all(const char *dir)
{
    DIR *stream = opendir(dir);
    const struct dirent *found;
    ck_assert_ptr_nonnull(stream);
    while ((found = readdir(stream)) != NULL) {
        char path[2 * MAX_PATH];
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, found->d_name);
        ck_assert_msg(unlink(path) == 0 || rmdir(path) == 0, "%s stays", path);
    }
    closedir(stream);
}

/* Splits the value of the first line `key` at its blanks; out ends in NULL. */
static char *split(const char *out[PROCESS_MAX_WORDS], const struct entry *entry, const char *key)
{
    char *text = strdup(entry_text(entry, key)), *state = NULL;
    size_t count = 0;
    ck_assert_ptr_nonnull(text);
    for (char *word = strtok_r(text, " ", &state); word != NULL; word = strtok_r(NULL, " ", &state))
        if (count + 1 < PROCESS_MAX_WORDS)
            out[count++] = word;
    out[count] = NULL;
    return text;
}

/* Whether the error output is whole lines of printable text, and has the text of each line
 * `says`. */
static bool complains(const struct entry *entry, const char *err)
{
    const struct line *line = NULL;
    size_t length = strlen(err);
    if (length == 0 || err[length - 1] != '\n')
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)err[i] < ' ' && err[i] != '\n')
            return false;
    while ((line = entry_line(entry, "says", line)) != NULL)
        if (strstr(err, line->value.data) == NULL)
            return false;
    return true;
}

bool files_try(char wrong[600], const struct entry *entry, const char *dir)
{
    const char *words[PROCESS_MAX_WORDS], *variables[PROCESS_MAX_WORDS];
    char *out, *err;
    char *run = split(words, entry, "run"), *variable = split(variables, entry, "variable");
    make_files(entry, dir);
    int status = process_run(&out, &err, words, variables);
    bool right = status == (int)strtol(entry_text(entry, "exit"), NULL, 10) &&
                 complains(entry, err) && strstr(out, "ready on") == NULL;
    if (!right) {
        snprintf(wrong, 600, "exit status %d, said: %.500s", status, err);
        wrong[strcspn(wrong, "\n")] = '\0';
    }
    remove_all(dir);
    free(run);
    free(variable);
    free(out);
    free(err);
    return right;
}
