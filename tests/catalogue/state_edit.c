/* state_edit.c: edits of an exported state, for defects beyond a wrong checksum.  The format is
 * docs/API.md's, from whose description a checksum is put together here. */
#include "state_edit.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "files/checksum.h"

#define PREFIX 8

static uint64_t header_length(const struct text *file)
{
    uint64_t length;
    ck_assert_uint_ge(file->length, PREFIX);
    memcpy(&length, file->data, PREFIX);
    ck_assert_uint_le(length, file->length - PREFIX);
    return length;
}

static size_t data_begin(const struct text *file) { return PREFIX + header_length(file); }

/* Replaces the bytes [at, at + old) by `text`. */
static void replace(struct text *file, size_t at, size_t old, const char *text, size_t length)
{
    struct text whole = {0};
    text_bytes(&whole, file->data, at);
    text_bytes(&whole, text, length);
    text_bytes(&whole, file->data + at + old, file->length - at - old);
    text_free(file);
    *file = whole;
}

static void keep_bytes(struct text *file, const char *value, size_t size)
{
    long n = strtol(value, NULL, 10);
    ck_assert(size > 0 && (size_t)labs(n) <= file->length);
    file->length = n >= 0 ? (size_t)n : file->length - (size_t)-n;
}

static void flip(struct text *file, const char *value, size_t size)
{
    size_t bit = strtoul(value, NULL, 10), at = data_begin(file) + bit / 8;
    ck_assert(size > 0 && at < file->length);
    file->data[at] = (char)(file->data[at] ^ (1 << bit % 8));
}

static void change_header(struct text *file, const char *value, size_t size)
{
    static const char arrow[] = " => ";
    const char *middle = strstr(value, arrow);
    uint64_t length = header_length(file);
    ck_assert_msg(middle != NULL, "state header OLD => NEW");
    char *old = strndup(value, (size_t)(middle - value));
    const char *found = memmem(file->data + PREFIX, length, old, strlen(old));
    ck_assert_msg(found != NULL, "the header has no %s: %.*s", old, (int)length,
                  file->data + PREFIX);
    const char *new = middle + strlen(arrow);
    size_t new_length = size - (size_t)(new - value);
    length = length - strlen(old) + new_length;
    replace(file, (size_t)(found - file->data), strlen(old), new, new_length);
    memcpy(file->data, &length, PREFIX);
    free(old);
}

static void set_length(struct text *file, const char *value, size_t size)
{
    ck_assert_uint_gt(size, 0);
    uint64_t length = strtoull(value, NULL, 10);
    memcpy(file->data, &length, PREFIX);
}

static void change_data(struct text *file, const char *value, size_t size)
{
    size_t at = data_begin(file);
    ck_assert_uint_le(size, file->length - at);
    memcpy(file->data + at, value, size);
}

static void append(struct text *file, const char *value, size_t size)
{
    text_bytes(file, value, size);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds "name=value\n" of every note but the checksum, in the order of names. */
static void sum_notes(struct attn_checksum *sum, json_t *notes)
{
    size_t count = 0;
    const char *names[64], *name;
    json_t *value;
    json_object_foreach(notes, name, value) {
        ck_assert_uint_lt(count, 64);
        if (strcmp(name, "checksum") != 0)
            names[count++] = name;
    }
    qsort(names, count, sizeof names[0], by_text);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_object_get(notes, names[i]));
        attn_checksum_add(sum, names[i], strlen(names[i]));
        attn_checksum_add(sum, "=", 1);
        attn_checksum_add(sum, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
        attn_checksum_add(sum, "\n", 1);
    }
}

/* Makes the checksum right again.  It covers the tensors in the order of layers, each key before
 * its value, which is how they lie in the file, and then the notes. */
static void repair_sum(struct text *file, const char *value, size_t size)
{
    char digits[ATTN_CHECKSUM_DIGITS];
    struct attn_checksum sum;
    size_t begin = data_begin(file);
    json_t *header = json_loadb(file->data + PREFIX, begin - PREFIX, 0, NULL);
    json_t *notes = json_object_get(header, "__metadata__");
    const char *old = json_string_value(json_object_get(notes, "checksum"));
    ck_assert_msg(size == 0 && old != NULL, "sum%s: the header has no checksum", value);
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, file->data + begin, file->length - begin);
    sum_notes(&sum, notes);
    attn_checksum_hex(digits, &sum);
    char *at = memmem(file->data, begin, old, strlen(old));
    ck_assert_uint_eq(strlen(old), sizeof digits);
    memcpy(at, digits, sizeof digits);
    json_decref(header);
}

static void keep_as_is(struct text *file, const char *value, size_t size)
{
    ck_assert(file->length > 0 && size == 0 && value[0] == '\0');
}

static const struct {
    const char *word;
    void (*apply)(struct text *file, const char *value, size_t size);
} edits[] = {{"as is", keep_as_is},     {"cut", keep_bytes},    {"flip", flip},
             {"header", change_header}, {"length", set_length}, {"data", change_data},
             {"append", append},        {"sum", repair_sum}};

static void apply(struct text *file, const struct catalogue *catalogue, const struct line *line)
{
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        size_t length = strlen(edits[i].word);
        const char *rest = line->value.data + length;
        if (strncmp(line->value.data, edits[i].word, length) != 0 ||
            (*rest != ' ' && *rest != '\0'))
            continue;
        rest += *rest == ' ';
        edits[i].apply(file, rest, line->value.length - (size_t)(rest - line->value.data));
        return;
    }
    ck_abort_msg("%s:%u: no such edit", catalogue->file, line->number);
}

void state_edit(struct text *out, const struct catalogue *catalogue, const struct entry *entry,
                const struct text *state)
{
    struct text file = {0};
    text_bytes(&file, state->data, state->length);
    const struct line *line = NULL;
    while ((line = entry_line(entry, "state", line)) != NULL)
        apply(&file, catalogue, line);
    text_bytes(out, file.data, file.length);
    text_free(&file);
}
