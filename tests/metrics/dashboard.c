/* dashboard.c: walks the panels, and replaces what Grafana replaces. */
#include "dashboard.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prometheus.h"
#include "text.h"

#define COLUMNS 24
#define LINES 1000

static json_t *read_json; /* kept for the titles */
static bool taken[LINES][COLUMNS];
static bool ids[LINES];

/* At a scrape a second, four seconds have the samples that a rate needs. */
static const struct {
    const char *name, *value;
} variables[] = {
    {"$__rate_interval", "4s"}, {"$__range", "10s"}, {"$job", PROMETHEUS_JOB},
    {"$instance", ".*"},        {"$model", ".*"},
};
#define NUM_VARIABLES (sizeof variables / sizeof variables[0])

static char *replace_variables(const char *text)
{
    struct text out = {0};
    while (*text != '\0') {
        size_t i = 0;
        while (*text == '$' && i < NUM_VARIABLES &&
               strncmp(text, variables[i].name, strlen(variables[i].name)) != 0)
            i++;
        ck_assert_msg(*text != '$' || i < NUM_VARIABLES, "unknown variable: %s", text);
        text_add(&out, "%.*s", *text != '$', text);
        text_add(&out, "%s", *text == '$' ? variables[i].value : "");
        text += *text == '$' ? strlen(variables[i].name) : 1;
    }
    return out.data;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    ck_assert_msg(text != NULL && text[0] != '\0', "no %s", name);
    return text;
}

static void add_query(struct dashboard *d, const char *panel, const char *text)
{
    ck_assert_uint_lt(d->count, MAX_QUERIES);
    d->queries[d->count++] = (struct query){replace_variables(text), panel, false};
}

static void expect_source(const json_t *object, const char *panel)
{
    const json_t *source = json_object_get(object, "datasource");
    ck_assert_msg(strcmp(text_of(source, "uid"), "${datasource}") == 0, "%s", panel);
    ck_assert_msg(strcmp(text_of(source, "type"), "prometheus") == 0, "%s", panel);
}

static size_t number(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    ck_assert_msg(value >= 0 && value < LINES, "%s is %lld", name, (long long)value);
    return (size_t)value;
}

static void take_place(const json_t *panel, const char *title)
{
    const json_t *place = json_object_get(panel, "gridPos");
    size_t id = number(panel, "id"), x = number(place, "x"), y = number(place, "y");
    size_t w = number(place, "w"), h = number(place, "h");
    ck_assert_msg(!ids[id], "%s: the id %zu is another's", title, id);
    ck_assert_msg(w > 0 && h > 0 && x + w <= COLUMNS && y + h <= LINES, "%s: its place", title);
    ids[id] = true;
    for (size_t line = y; line < y + h; line++)
        for (size_t column = x; column < x + w; column++) {
            ck_assert_msg(!taken[line][column], "%s covers another panel", title);
            taken[line][column] = true;
        }
}

static void read_panel(struct dashboard *d, const json_t *panel)
{
    const char *title = text_of(panel, "title");
    const json_t *targets = json_object_get(panel, "targets");
    take_place(panel, title);
    if (strcmp(text_of(panel, "type"), "row") == 0) {
        d->rows++;
        return;
    }
    d->panels++;
    expect_source(panel, title);
    text_of(panel, "description");
    ck_assert_msg(json_array_size(targets) > 0, "%s has no query", title);
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const json_t *target = json_array_get(targets, i);
        expect_source(target, title);
        ck_assert_int_eq(text_of(target, "refId")[0], (int)('A' + i));
        add_query(d, title, text_of(target, "expr"));
    }
}

/* label_values(SERIES, LABEL) has values where count by (LABEL) (SERIES) has samples. */
static void read_variable(struct dashboard *d, const json_t *variable)
{
    char series[128], label[64], query[256];
    const char *name = text_of(variable, "name");
    d->variables++;
    if (strcmp(text_of(variable, "type"), "datasource") == 0)
        return;
    const char *text = text_of(json_object_get(variable, "query"), "query");
    expect_source(variable, name);
    ck_assert_msg(sscanf(text, "label_values(%127[^,], %63[^)])", series, label) == 2, "%s", text);
    snprintf(query, sizeof query, "count by (%s) (%s)", label, series);
    add_query(d, name, query);
}

void dashboard_read(struct dashboard *d, const char *path)
{
    json_error_t error;
    *d = (struct dashboard){0};
    read_json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(read_json != NULL, "%s:%d: %s", path, error.line, error.text);
    const json_t *panels = json_object_get(read_json, "panels");
    const json_t *list = json_object_get(json_object_get(read_json, "templating"), "list");
    ck_assert_uint_ge(number(read_json, "schemaVersion"), 39);
    for (size_t i = 0; i < json_array_size(list); i++)
        read_variable(d, json_array_get(list, i));
    for (size_t i = 0; i < json_array_size(panels); i++)
        read_panel(d, json_array_get(panels, i));
}

void dashboard_free(struct dashboard *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->queries[i].text);
    json_decref(read_json);
}
