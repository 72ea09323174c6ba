/* prometheus.c: starts Prometheus, finds its port in its log, and asks its API. */
#include "prometheus.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text.h"

#define READY_MS 60000
#define TOOL_SECONDS 120
#define LISTENING "msg=\"Listening on\" address=127.0.0.1:"

static void write_config(const struct prometheus *p, const struct daemon *attnd)
{
    char path[96], *rules = realpath("config/prometheus/alerts.yml", NULL);
    ck_assert_ptr_nonnull(rules);
    snprintf(path, sizeof path, "%s/prometheus.yml", p->directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            "rule_files: ['%s']\n"
            "scrape_configs:\n"
            "  - job_name: " PROMETHEUS_JOB "\n"
            "    scheme: https\n"
            "    tls_config: {ca_file: %s}\n"
            "    static_configs: [{targets: ['%s:%u']}]\n",
            rules, attnd->trusted, attnd->host, attnd->port);
    ck_assert_int_eq(fclose(file), 0);
    free(rules);
}

static bool read_port(struct prometheus *p)
{
    char *log = process_text(p->daemon.process.err);
    const char *at = strstr(log, LISTENING);
    bool found = at != NULL && strchr(at, '\n') != NULL;
    if (found)
        p->daemon.port = (unsigned)strtoul(at + strlen(LISTENING), NULL, 10);
    free(log);
    return found;
}

static bool is_ready(struct prometheus *p)
{
    struct answer answer;
    bool ready =
        client_try(&answer, &p->client, &(struct request){.method = "GET", .path = "/-/ready"}) &&
        answer.status == 200;
    answer_free(&answer);
    return ready;
}

static void await_ready(struct prometheus *p)
{
    unsigned waited = 0;
    for (; !read_port(p) && waited < READY_MS; waited += 20)
        pause_ms(20);
    snprintf(p->daemon.host, sizeof p->daemon.host, "127.0.0.1");
    snprintf(p->daemon.url, sizeof p->daemon.url, "http://127.0.0.1:%u", p->daemon.port);
    client_open(&p->client, &p->daemon);
    for (; !is_ready(p) && waited < READY_MS; waited += 20)
        pause_ms(20);
    if (waited >= READY_MS)
        daemon_show_log(&p->daemon);
    ck_assert_uint_lt(waited, READY_MS);
}

void prometheus_start(struct prometheus *p, const char *programs, const struct daemon *attnd)
{
    char program[256], config[96], storage[96];
    *p = (struct prometheus){.directory = "/tmp/attnd-prometheus-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(p->directory));
    write_config(p, attnd);
    snprintf(program, sizeof program, "%s/prometheus", programs);
    snprintf(config, sizeof config, "--config.file=%s/prometheus.yml", p->directory);
    snprintf(storage, sizeof storage, "--storage.tsdb.path=%s/data", p->directory);
    const char *const arguments[] = {config, storage, "--web.listen-address=127.0.0.1:0", NULL};
    process_start_program(&p->daemon.process, program, arguments, NULL);
    await_ready(p);
}

void prometheus_stop(struct prometheus *p)
{
    char command[96];
    client_close(&p->client);
    process_end(&p->daemon.process);
    snprintf(command, sizeof command, "rm -r %s", p->directory);
    ck_assert_int_eq(system(command), 0);
}

/* ---- The API --------------------------------------------------------------------------------- */

json_t *prometheus_ask(char **error, struct prometheus *p, const char *path, const char *form)
{
    char target[64];
    const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    snprintf(target, sizeof target, "/api/v1/%s", path);
    struct answer answer = client_send(
        &p->client,
        &(struct request){.method = "POST", .path = target, .body = form, .headers = headers});
    json_t *data = json_incref(json_object_get(answer.json, "data"));
    *error = answer.status == 200 ? NULL : strdup(answer.text);
    answer_free(&answer);
    return data;
}

static bool is_finite(const json_t *sample)
{
    const char *value = json_string_value(json_array_get(json_object_get(sample, "value"), 1));
    char *end;
    return value != NULL && isfinite(strtod(value, &end)) && *end == '\0';
}

size_t prometheus_count(struct prometheus *p, const char *query)
{
    struct text form = {0};
    char *error, *escaped = curl_easy_escape(p->client.curl, query, 0);
    text_add(&form, "query=%s", escaped);
    json_t *data = prometheus_ask(&error, p, "query", form.data);
    ck_assert_msg(data != NULL, "%s: %s", query, error);
    const json_t *result = json_object_get(data, "result");
    size_t count = json_array_size(result), finite = 0;
    for (size_t i = 0; i < count; i++)
        finite += is_finite(json_array_get(result, i));
    json_decref(data);
    curl_free(escaped);
    text_free(&form);
    return finite == count ? count : 0;
}

/* ---- promtool -------------------------------------------------------------------------------- */

void promtool(const char *programs, const char *words)
{
    char command[512];
    struct process process;
    int status = 0;
    snprintf(command, sizeof command, "%s/promtool %s 2>&1", programs, words);
    const char *const arguments[] = {"-c", command, NULL};
    process_start_program(&process, "/bin/sh", arguments, NULL);
    bool ended = process_wait(&status, &process, TOOL_SECONDS);
    char *text = process_text(process.out);
    ck_assert_msg(ended && WIFEXITED(status) && WEXITSTATUS(status) == 0, "promtool %s: %s", words,
                  text);
    free(text);
    process_end(&process);
}
