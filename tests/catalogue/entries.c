/* entries.c: parses lines into entries, and expands escapes, definitions and repetitions in
 * them. */
#include "entries.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TIMES 2000000 /* of a repetition */

struct let {
    char *name;
    struct text value;
};

struct reading {
    struct catalogue *catalogue;
    unsigned number; /* of the line being read */
};

static void refuse(const struct reading *r, const char *what, const char *text)
{
    ck_abort_msg("%s:%u: %s: %.60s", r->catalogue->file, r->number, what, text);
}

static char *copy(const char *text, size_t length)
{
    char *out = strndup(text, length);
    ck_assert_ptr_nonnull(out);
    return out;
}

/* ---- Expanding ------------------------------------------------------------------------------- */

static void expand(struct text *out, const struct reading *r, const char *text, size_t length);

static unsigned digit(const struct reading *r, const char *at)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = *at != '\0' ? strchr(digits, *at) : NULL;
    if (found == NULL)
        refuse(r, "no hexadecimal digit (small letters)", at);
    return (unsigned)(found - digits);
}

/* Expands the escape at `at`, after its backslash; returns how many characters of it were read. */
static size_t escape(struct text *out, const struct reading *r, const char *at)
{
    static const char names[] = "nrt0\\$}", bytes[] = "\n\r\t\0\\$}";
    if (*at == 'x') {
        char byte = (char)(digit(r, at + 1) * 16 + digit(r, at + 2));
        text_bytes(out, &byte, 1);
        return 3;
    }
    const char *found = *at != '\0' ? strchr(names, *at) : NULL;
    if (found == NULL)
        refuse(r, "an unknown escape", at);
    text_bytes(out, bytes + (found - names), 1);
    return 1;
}

static void expand_let(struct text *out, const struct reading *r, const char *name, size_t length)
{
    const struct catalogue *c = r->catalogue;
    for (size_t i = 0; i < c->num_lets; i++) {
        const struct let *let = &c->lets[i];
        if (strlen(let->name) == length && strncmp(let->name, name, length) == 0) {
            text_bytes(out, let->value.data, let->value.length);
            return;
        }
    }
    refuse(r, "no such definition", name);
}

/* Expands the text, preceded by its length in 8 little-endian bytes, as safetensors files begin. */
static void expand_sized(struct text *out, const struct reading *r, const char *text, size_t length)
{
    struct text inner = {0};
    expand(&inner, r, text, length);
    uint64_t size = inner.length;
    text_bytes(out, &size, sizeof size);
    text_bytes(out, inner.data, inner.length);
    text_free(&inner);
}

/* Expands the text between ${ and }: a name, "sized TEXT" or "TIMES*TEXT". */
static void expand_braces(struct text *out, const struct reading *r, const char *text,
                          size_t length)
{
    char *end;
    unsigned long times = strtoul(text, &end, 10);
    if (strncmp(text, "sized ", 6) == 0) {
        expand_sized(out, r, text + 6, length - 6);
    } else if (end > text && *end == '*') {
        struct text inner = {0};
        if (times > MAX_TIMES)
            refuse(r, "too often", text);
        expand(&inner, r, end + 1, length - (size_t)(end + 1 - text));
        for (unsigned long i = 0; i < times; i++)
            text_bytes(out, inner.data, inner.length);
        text_free(&inner);
    } else {
        expand_let(out, r, text, length);
    }
}

/* Returns the index of the brace that closes the one before `at`; braces within ${..} pair up,
 * others do not count. */
static size_t find_close(const struct reading *r, const char *at, size_t length)
{
    unsigned depth = 0;
    for (size_t i = 0; i < length; i++) {
        if (at[i] == '\\')
            i++;
        else if (at[i] == '$' && i + 1 < length && at[i + 1] == '{')
            depth++, i++;
        else if (at[i] == '}' && depth-- == 0)
            return i;
    }
    refuse(r, "no } after ${", at);
    return 0;
}

static void expand(struct text *out, const struct reading *r, const char *text, size_t length)
{
    text_bytes(out, "", 0);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\') {
            i += escape(out, r, text + i + 1);
        } else if (text[i] == '$' && i + 1 < length && text[i + 1] == '{') {
            size_t close = find_close(r, text + i + 2, length - i - 2);
            expand_braces(out, r, text + i + 2, close);
            i += close + 2;
        } else {
            text_bytes(out, text + i, 1);
        }
    }
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void *grow(void *array, size_t count, size_t size)
{
    void *out = realloc(array, (count + 1) * size);
    ck_assert_ptr_nonnull(out);
    return out;
}

static void add_let(const struct reading *r, const char *name, const char *value)
{
    struct catalogue *c = r->catalogue;
    struct let let = {.name = copy(name, strcspn(name, " "))};
    expand(&let.value, r, value, strlen(value));
    c->lets = grow(c->lets, c->num_lets, sizeof *c->lets);
    c->lets[c->num_lets++] = let;
}

static void add_line(const struct reading *r, struct entry *entry, const char *text)
{
    size_t key = strcspn(text, " ");
    const char *value = text + key + (text[key] == ' ');
    struct line line = {.key = copy(text, key), .number = r->number};
    expand(&line.value, r, value, strlen(value));
    entry->lines = grow(entry->lines, entry->count, sizeof *entry->lines);
    entry->lines[entry->count++] = line;
}

static void add_entry(const struct reading *r, const char *name)
{
    struct catalogue *c = r->catalogue;
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            refuse(r, "a second case of that name", name);
    c->entries = grow(c->entries, c->count, sizeof *c->entries);
    c->entries[c->count++] = (struct entry){.name = copy(name, strlen(name)), .number = r->number};
}

static void read_file(struct reading *r, const char *file);

/* Reads a file of the same directory. */
static void include(const struct reading *r, const char *name)
{
    char path[256];
    const char *slash = strrchr(r->catalogue->file, '/');
    int directory = slash != NULL ? (int)(slash - r->catalogue->file) + 1 : 0;
    struct reading inner = {.catalogue = r->catalogue};
    snprintf(path, sizeof path, "%.*s%s", directory, r->catalogue->file, name);
    read_file(&inner, path);
}

static void take_line(const struct reading *r, const char *text)
{
    struct catalogue *c = r->catalogue;
    if (text[0] == '\0' || text[0] == '#')
        return;
    if (strncmp(text, "let ", 4) == 0) {
        const char *blank = strchr(text + 4, ' ');
        if (blank == NULL)
            refuse(r, "a definition of nothing", text);
        else
            add_let(r, text + 4, blank + 1);
    } else if (strncmp(text, "include ", 8) == 0) {
        include(r, text + 8);
    } else if (strncmp(text, "case ", 5) == 0) {
        add_entry(r, text + 5);
    } else {
        add_line(r, c->count > 0 ? &c->entries[c->count - 1] : &c->head, text);
    }
}

static void read_file(struct reading *r, const char *file)
{
    FILE *stream = fopen(file, "r");
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    ck_assert_msg(stream != NULL, "%s cannot be opened", file);
    while ((length = getline(&text, &size, stream)) > 0) {
        r->number++;
        if (text[length - 1] == '\n')
            text[length - 1] = '\0';
        take_line(r, text);
    }
    free(text);
    fclose(stream);
}

void catalogue_open(struct catalogue *out, const char *file, const char *dir)
{
    *out = (struct catalogue){.file = file, .head.name = copy("", 0)};
    struct reading r = {.catalogue = out};
    add_let(&r, "dir", dir);
    read_file(&r, file);
}

static void free_entry(struct entry *entry)
{
    for (size_t i = 0; i < entry->count; i++) {
        free(entry->lines[i].key);
        text_free(&entry->lines[i].value);
    }
    free(entry->lines);
    free(entry->name);
}

void catalogue_close(struct catalogue *catalogue)
{
    free_entry(&catalogue->head);
    for (size_t i = 0; i < catalogue->count; i++)
        free_entry(&catalogue->entries[i]);
    for (size_t i = 0; i < catalogue->num_lets; i++) {
        free(catalogue->lets[i].name);
        text_free(&catalogue->lets[i].value);
    }
    free(catalogue->entries);
    free(catalogue->lets);
}

/* ---- Looking things up ----------------------------------------------------------------------- */

const struct line *entry_line(const struct entry *entry, const char *key, const struct line *after)
{
    size_t first = after != NULL ? (size_t)(after - entry->lines) + 1 : 0;
    for (size_t i = first; i < entry->count; i++)
        if (strcmp(entry->lines[i].key, key) == 0)
            return &entry->lines[i];
    return NULL;
}

const char *entry_text(const struct entry *entry, const char *key)
{
    const struct line *line = entry_line(entry, key, NULL);
    return line != NULL ? line->value.data : "";
}

void entry_check_keys(const struct catalogue *catalogue, const struct entry *entry,
                      const char *const keys[])
{
    for (size_t i = 0; i < entry->count; i++) {
        const struct line *line = &entry->lines[i];
        size_t k = 0;
        while (keys[k] != NULL && strcmp(keys[k], line->key) != 0)
            k++;
        ck_assert_msg(keys[k] != NULL, "%s:%u: no key \"%s\" here", catalogue->file, line->number,
                      line->key);
    }
}
