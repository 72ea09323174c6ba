/* metrics_text.c: reads the text line by line; its only state is the current family, the current
 * histogram and the samples seen. */
#include "metrics_text.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAMPLES 4096
#define MAX_LINE 512

struct reading {
    char family[128], type[32];
    char bucket[MAX_LINE]; /* series of the histogram being read: its labels but for le */
    double last, infinite; /* its last bucket, and the one of +Inf; -1: none yet */
    char *seen[MAX_SAMPLES];
    size_t count;
};

/* Returns the length of a metric's or label's name at `at`. */
static size_t name_length(const char *at)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_:0123456789";
    return *at >= '0' && *at <= '9' ? 0 : strspn(at, letters);
}

/* Returns the length of {name="value",...} at `at`; 0 where there is none. */
static size_t labels_length(const char *at)
{
    const char *start = at;
    do {
        at++; /* the brace or the comma */
        size_t name = name_length(at);
        if (name == 0 || at[name] != '=' || at[name + 1] != '"')
            return 0;
        at += name + 2;
        at += strcspn(at, "\"\\");
        if (*at != '"')
            return 0;
        at++;
    } while (*at == ',');
    return *at == '}' ? (size_t)(at + 1 - start) : 0;
}

static void take_type(struct reading *r, const char *line)
{
    char name[128], type[32];
    ck_assert_msg(sscanf(line, "# TYPE %127s %31s", name, type) == 2, "%s", line);
    ck_assert_msg(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
                      strcmp(type, "histogram") == 0,
                  "%s", line);
    snprintf(r->family, sizeof r->family, "%s", name);
    snprintf(r->type, sizeof r->type, "%s", type);
}

/* Checks a bucket; its series is the labels before le. */
static void take_bucket(struct reading *r, const char *line, const char *labels, double value)
{
    const char *le = strstr(labels, "le=\"");
    ck_assert_msg(le != NULL, "%s", line);
    char series[MAX_LINE];
    snprintf(series, sizeof series, "%.*s", (int)(le - labels), labels);
    if (strcmp(series, r->bucket) != 0 || r->infinite >= 0) {
        snprintf(r->bucket, sizeof r->bucket, "%s", series);
        r->last = 0;
        r->infinite = -1;
    }
    ck_assert_msg(value >= r->last, "fewer than in the bucket before: %s", line);
    r->last = value;
    if (strncmp(le, "le=\"+Inf\"", 9) == 0)
        r->infinite = value;
}

static void take_sample(struct reading *r, const char *line)
{
    size_t name = name_length(line), family = strlen(r->family);
    size_t labels = line[name] == '{' ? labels_length(line + name) : 0;
    char *end;
    ck_assert_msg(name > 0 && (labels > 0) == (line[name] == '{'), "%s", line);
    ck_assert_msg(line[name + labels] == ' ', "%s", line);
    double value = strtod(line + name + labels + 1, &end);
    ck_assert_msg(*end == '\0' && isfinite(value), "%s", line);
    ck_assert_msg(name >= family && strncmp(line, r->family, family) == 0, "no TYPE: %s", line);
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%.*s", (int)(name - family), line + family);
    bool histogram = strcmp(r->type, "histogram") == 0;
    if (histogram && strcmp(suffix, "_bucket") == 0)
        take_bucket(r, line, line + name, value);
    else if (histogram && strcmp(suffix, "_count") == 0)
        ck_assert_msg(value == r->infinite, "not what the last bucket holds: %s", line);
    else
        ck_assert_msg(strcmp(suffix, histogram ? "_sum" : "") == 0, "no TYPE: %s", line);
    ck_assert_uint_lt(r->count, MAX_SAMPLES);
    r->seen[r->count++] = strndup(line, name + labels);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void expect_distinct(struct reading *r)
{
    qsort(r->seen, r->count, sizeof r->seen[0], by_text);
    for (size_t i = 0; i + 1 < r->count; i++)
        ck_assert_msg(strcmp(r->seen[i], r->seen[i + 1]) != 0, "twice: %s", r->seen[i]);
    for (size_t i = 0; i < r->count; i++)
        free(r->seen[i]);
}

size_t metrics_check(const char *text)
{
    static struct reading reading;
    char line[MAX_LINE];
    reading = (struct reading){.infinite = -1};
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        ck_assert_uint_lt(length, MAX_LINE);
        ck_assert_msg(text[length] == '\n', "the last line has no end: %s", text);
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        text += length + 1;
        if (strncmp(line, "# TYPE ", 7) == 0)
            take_type(&reading, line);
        else if (strncmp(line, "# HELP ", 7) != 0)
            take_sample(&reading, line);
    }
    size_t count = reading.count;
    expect_distinct(&reading);
    return count;
}
