/* main.c: /metrics under Debian's Prometheus: build/observe [--quick] DIRECTORY of its programs.
 *
 * A daemon with TLS and a journal serves a mixed load, with errors, while Prometheus scrapes the
 * daemon once a second.  Then every query of the dashboard and of its variables must have data,
 * samples that are finite numbers; every metric that an alert names must be there; every alert must
 * be evaluated without an error and have cases of firing and of silence for `promtool test rules`.
 * promtool must find nothing to say about the text of /metrics.  The whole form goes on for half a
 * minute, and then asks each query over that time: there must be data for most of it, since a busy
 * machine may miss a scrape. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "cases.h"
#include "dashboard.h"
#include "load.h"
#include "metrics_text.h"
#include "prometheus.h"
#include "secret.h"
#include "suite_run.h"
#include "verdict.h"

#define DATA_MS 120000   /* until every query has data; a few seconds are usual */
#define RANGE_SECONDS 30 /* of the whole form */
#define ALERTS "config/prometheus/alerts.yml"
#define CASES "config/prometheus/alerts_test.yml"
#define MAX_METRICS 128

static bool quick;
static const char *programs;
static struct daemon served;
static struct prometheus prometheus;
static struct dashboard dashboard;
static struct {
    size_t with_data, alerts, metrics, samples, requests;
} result;

/* ---- The text of /metrics -------------------------------------------------------------------- */

static void check_text(struct client *client)
{
    char path[] = "/tmp/attnd-metrics-XXXXXX", words[128];
    struct answer answer = client_get(client, "/metrics");
    result.samples = metrics_check(answer.text);
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, answer.text, answer.length), (ssize_t)answer.length);
    close(fd);
    snprintf(words, sizeof words, "check metrics < %s", path);
    promtool(programs, words);
    unlink(path);
    answer_free(&answer);
}

/* ---- The dashboard --------------------------------------------------------------------------- */

/* Asks the queries that had no data so far; returns how many have had some. */
static size_t ask_queries(void)
{
    size_t with_data = 0;
    for (size_t i = 0; i < dashboard.count; i++) {
        struct query *query = &dashboard.queries[i];
        query->has_data = query->has_data || prometheus_count(&prometheus, query->text) > 0;
        with_data += query->has_data;
    }
    return with_data;
}

static void await_data(void)
{
    for (unsigned waited = 0; result.with_data < dashboard.count && waited < DATA_MS;
         waited += 200) {
        pause_ms(200);
        result.with_data = ask_queries();
    }
    for (size_t i = 0; i < dashboard.count; i++)
        if (!dashboard.queries[i].has_data)
            fprintf(stderr, "check-metrics: %s: no data: %s\n", dashboard.queries[i].panel,
                    dashboard.queries[i].text);
    ck_assert_uint_eq(result.with_data, dashboard.count);
}

/* The most points of a series that a query has between two times, at a step of a second. */
static size_t count_points(const char *query, time_t start, time_t end)
{
    struct text form = {0};
    size_t most = 0;
    char *error, *escaped = curl_easy_escape(prometheus.client.curl, query, 0);
    text_add(&form, "query=%s&start=%lld&end=%lld&step=1", escaped, (long long)start,
             (long long)end);
    json_t *data = prometheus_ask(&error, &prometheus, "query_range", form.data);
    ck_assert_msg(data != NULL, "%s: %s", query, error);
    const json_t *series = json_object_get(data, "result");
    for (size_t i = 0; i < json_array_size(series); i++) {
        size_t points = json_array_size(json_object_get(json_array_get(series, i), "values"));
        most = points > most ? points : most;
    }
    json_decref(data);
    curl_free(escaped);
    text_free(&form);
    return most;
}

static void check_range(void)
{
    time_t start = time(NULL);
    pause_ms(RANGE_SECONDS * 1000);
    for (size_t i = 0; i < dashboard.count; i++) {
        size_t points = count_points(dashboard.queries[i].text, start, start + RANGE_SECONDS - 2);
        ck_assert_msg(2 * points > RANGE_SECONDS, "%s has data for %zu of %d seconds",
                      dashboard.queries[i].text, points, RANGE_SECONDS - 1);
    }
}

/* ---- Alerts ---------------------------------------------------------------------------------- */

static char *metrics[MAX_METRICS];

static bool is_metric(const char *word)
{
    return strncmp(word, "attnd_", 6) == 0 || strncmp(word, "process_", 8) == 0 ||
           strcmp(word, "up") == 0;
}

static void expect_metric(const char *name)
{
    for (size_t i = 0; i < result.metrics; i++)
        if (strcmp(metrics[i], name) == 0)
            return;
    ck_assert_uint_lt(result.metrics, MAX_METRICS);
    metrics[result.metrics++] = strdup(name);
    ck_assert_msg(prometheus_count(&prometheus, name) > 0, "an alert names %s, which is not there",
                  name);
}

static void expect_metrics_of(const char *expression)
{
    char word[128];
    for (size_t length; *expression != '\0'; expression += length) {
        length = 0;
        while (isalnum((unsigned char)expression[length]) || expression[length] == '_')
            length++;
        snprintf(word, sizeof word, "%.*s", (int)length, expression);
        if (is_metric(word))
            expect_metric(word);
        length += length == 0;
    }
}

/* Whether the file of cases has one of the alert with `exp_alerts:` and what follows. */
static bool has_case(const char *cases, const char *name, const char *expected)
{
    char wanted[256];
    snprintf(wanted, sizeof wanted, "alertname: %s\n        exp_alerts:%s", name, expected);
    return strstr(cases, wanted) != NULL;
}

static void check_alert(const json_t *rule, const char *cases)
{
    const char *name = json_string_value(json_object_get(rule, "name"));
    ck_assert_ptr_nonnull(name);
    ck_assert_msg(has_case(cases, name, "\n") && has_case(cases, name, " []\n"),
                  "%s lacks a case of firing, or one of silence", name);
    ck_assert_str_eq(json_string_value(json_object_get(rule, "health")), "ok");
    expect_metrics_of(json_string_value(json_object_get(rule, "query")));
    result.alerts++;
}

/* False while a rule has not been evaluated. */
static bool are_evaluated(const json_t *rules)
{
    size_t unknown = 0;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *health = json_object_get(json_array_get(rules, i), "health");
        unknown += strcmp(json_string_value(health), "unknown") == 0;
    }
    return json_array_size(rules) > 0 && unknown == 0;
}

static void check_alerts(void)
{
    char *cases = NULL;
    size_t size = 0;
    json_t *rules = NULL;
    FILE *file = fopen(CASES, "r");
    ck_assert(file != NULL && getdelim(&cases, &size, '\0', file) > 0);
    fclose(file);
    for (unsigned waited = 0; !are_evaluated(rules) && waited < DATA_MS; waited += 100) {
        json_decref(rules);
        pause_ms(100);
        struct answer answer = client_get(&prometheus.client, "/api/v1/rules");
        json_t *group =
            json_array_get(json_object_get(json_object_get(answer.json, "data"), "groups"), 0);
        rules = json_incref(json_object_get(group, "rules"));
        answer_free(&answer);
    }
    for (size_t i = 0; i < json_array_size(rules); i++)
        check_alert(json_array_get(rules, i), cases);
    json_decref(rules);
    free(cases);
}

/* ---- All ------------------------------------------------------------------------------------- */

static void remove_directory(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", path);
    ck_assert_int_eq(system(command), 0);
}

/* Also after a failure: libcheck must have this process to itself when it reads its messages. */
static void stop_load(void) { result.requests = load_stop(); }

START_TEST(test_dashboard_and_alerts_have_data)
{
    static char certificate[SECRET_PATH]; /* which callers use until stop_load */
    char state[] = "/tmp/attnd-observe-XXXXXX", key[SECRET_PATH];
    struct client client;
    promtool(programs, "check rules " ALERTS);
    promtool(programs, "test rules " CASES);
    dashboard_read(&dashboard, "config/grafana/attnd.json");
    ck_assert_ptr_nonnull(mkdtemp(state));
    certificate_make(certificate, key);
    const char *const arguments[] = {"--durability", "journal",   "--state-dir", state,
                                     "--tls-cert",   certificate, "--tls-key",   key,
                                     "--log",        "error",     NULL};
    daemon_start(&served, CONFIG_SMALL(""), arguments, NULL);
    served.trusted = certificate;
    client_open(&client, &served);
    prometheus_start(&prometheus, programs, &served);
    load_start(&served);
    await_data();
    check_alerts();
    check_text(&client);
    if (!quick)
        check_range();
    stop_load();
    client_close(&client);
    prometheus_stop(&prometheus);
    daemon_stop(&served);
    remove_directory(state);
    unlink(certificate);
    unlink(key);
}
END_TEST

static bool run(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = suite_cases(suite, "metrics", NULL, stop_load, 0);
    tcase_add_test(tests, test_dashboard_and_alerts_have_data);
    return suite_run(suite);
}

int main(int argc, char *argv[])
{
    quick = argc > 2 && strcmp(argv[1], "--quick") == 0;
    programs = argv[argc - 1];
    if (argc < 2 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    const bool ran = run();
    const struct verdict_condition conditions[] = {
        VERDICT(ran),
        VERDICT(dashboard.count > 0),
        VERDICT(result.with_data == dashboard.count),
        VERDICT(result.alerts > 0),
        VERDICT(result.samples > 0),
    };
    const bool right = VERDICTS("check-metrics", conditions);
    printf("check-metrics: %zu of %zu queries of %zu panels and %zu variables have data under %zu "
           "requests; %zu alerts over %zu metrics that are there, each tested firing and silent; "
           "%zu samples of /metrics without a remark of promtool%s\n",
           result.with_data, dashboard.count, dashboard.panels, dashboard.variables,
           result.requests, result.alerts, result.metrics, result.samples,
           right ? ": ok" : ": FAILED");
    dashboard_free(&dashboard);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
