/* test_observed.c: what a monitoring system sees of a request: series by model, requests that wait
 * and that run, the process, the trace of a caller in reply and log. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "long_call.h"
#include "metrics_text.h"
#include "served.h"
#include "suites.h"

/* ---- Metrics --------------------------------------------------------------------------------- */

#define MODEL(name) \
    "{\"name\":\"" name "\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":4,\"seed\":1}}"
#define CONFIG                                                                            \
    "{\"port\":0,\"threads\":1,\"log\":\"access\",\"models\":[" MODEL("first") "," MODEL( \
        "second") "]}"

static void serve_two(void) { serve(CONFIG); }

static void decode(const char *id, const char *model)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",\"start\":true,\"model\":\"%s\",", id, model);
    add_rows(&body, 1);
    expect_posted(&client, "/decode", body.data, 200, NULL);
    text_free(&body);
}

CASE(observed, serve_two, serve_end, 240)

TEST(computations_sessions_and_weights_are_counted_by_model)
{
    decode("a", "first");
    decode("b", "first");
    decode("c", "second");
    expect_posted(&client, "/attend", "{\"query\":[[[1],[2]]],\"key\":[[[1]]],\"value\":[[[7]]]}",
                  200, NULL);
    static const struct {
        const char *sample;
        double value;
    } wanted[] = {
        {"attnd_decode_rows_total{model=\"first\"}", 2},
        {"attnd_decode_rows_total{model=\"second\"}", 1},
        {"attnd_decode_rows_total", 3},
        {"attnd_decode_batch_seconds_count{model=\"second\"}", 1},
        {"attnd_attend_rows_total{model=\"(none)\"}", 2},
        {"attnd_attend_rows_total{model=\"first\"}", 0},
        {"attnd_attend_seconds_count{model=\"(none)\"}", 1},
        {"attnd_model_sessions{model=\"first\"}", 2},
        {"attnd_model_sessions{model=\"second\"}", 1},
        {"attnd_sessions", 3},
    };
    for (size_t i = 0; i < COUNT(wanted); i++)
        ck_assert_msg(call_metric(&client, wanted[i].sample) == wanted[i].value, "%s is %g",
                      wanted[i].sample, call_metric(&client, wanted[i].sample));
    call_delete(&client, "a");
    ck_assert_double_eq(call_metric(&client, "attnd_model_sessions{model=\"first\"}"), 1);
    ck_assert_double_eq(call_metric(&client, "attnd_model_weight_bytes"),
                        call_metric(&client, "attnd_weight_bytes"));
}

/* No label of any series is a text of the client. */
TEST(texts_of_clients_are_no_labels)
{
    struct answer step = client_post(&client, "/decode",
                                     "{\"session_id\":\"intruder\",\"start\":true,"
                                     "\"model\":\"intruder\",\"hidden_states\":[1]}");
    expect_answer(&step, 404, "model_not_found", "/decode");
    struct answer path = client_get(&client, "/models/intruder?intruder");
    expect_answer(&path, 404, "model_not_found", "/models/intruder");
    struct answer metrics = client_get(&client, "/metrics");
    ck_assert_uint_ge(metrics_check(metrics.text), 100);
    ck_assert_ptr_null(strstr(metrics.text, "intruder"));
    answer_free(&step);
    answer_free(&path);
    answer_free(&metrics);
}

TEST(the_process_has_its_usual_metrics)
{
    double cpu = call_metric(&client, "process_cpu_seconds_total");
    double start = call_metric(&client, "process_start_time_seconds");
    ck_assert_double_gt(cpu, 0);
    ck_assert_double_le(cpu, daemon_cpu_s(&served) + 0.1);
    ck_assert_double_ge(start, (double)time(NULL) - 600);
    ck_assert_double_le(start, (double)time(NULL) + 1);
    ck_assert_double_ge(call_metric(&client, "process_virtual_memory_bytes"),
                        call_metric(&client, "process_resident_memory_bytes"));
    ck_assert_double_gt(call_metric(&client, "process_max_fds"),
                        call_metric(&client, "process_open_fds"));
    struct answer metrics = client_get(&client, "/metrics"); /* over plain HTTP */
    ck_assert_ptr_nonnull(strstr(metrics.text, " attnd_certificate_expiry_timestamp_seconds "));
    ck_assert_ptr_null(strstr(metrics.text, "\nattnd_certificate_expiry_timestamp_seconds "));
    answer_free(&metrics);
    decode("a", "first");
    ck_assert_double_gt(call_metric(&client, "process_cpu_seconds_total"), cpu);
    ck_assert_double_eq(call_metric(&client, "process_start_time_seconds"), start);
}

#define LONG_ROWS 12000

static double sample_of(const struct answer *metrics, const char *name)
{
    const char *at = strstr(metrics->text, name);
    ck_assert_msg(at != NULL, "no %s", name);
    return strtod(at + strlen(name), NULL);
}

/* Without API keys long calls are computed one after the other: the first runs, the second waits,
 * and every scrape says how many wait and how many run of those that are there. */
TEST(requests_that_wait_and_that_run_are_counted_apart)
{
    struct long_call first, second;
    bool seen = false;
    long_begin(&first, &client, "\"model\":\"first\",", LONG_ROWS);
    long_begin(&second, &client, "\"model\":\"second\",", LONG_ROWS);
    for (unsigned tries = 0; !atomic_load(&first.answered) && tries < WAIT_MS; tries++) {
        struct answer metrics = client_get(&client, "/metrics");
        double depth = sample_of(&metrics, "\nattnd_queue_depth ");
        double waiting = sample_of(&metrics, "\nattnd_requests_waiting ");
        double running = sample_of(&metrics, "\nattnd_requests_running ");
        ck_assert_double_eq(waiting + running, depth);
        seen = seen || (waiting == 1 && running == 1);
        answer_free(&metrics);
        pause_ms(1);
    }
    long_end(&first, 200, NULL);
    long_end(&second, 200, NULL);
    ck_assert_msg(seen, "no scrape has seen one that runs and one that waits");
    await_depth(&client, 0, 0);
    ck_assert_double_eq(call_metric(&client, "attnd_requests_running"), 0);
    ck_assert_double_eq(call_metric(&client, "attnd_requests_waiting"), 0);
}

/* ---- Traces ---------------------------------------------------------------------------------- */

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
#define HOST "Host: test\r\n"
#define TRACEPARENT "Traceparent: 00-" TRACE "-" PARENT "-01\r\n"
#define JSON_BODY(length) "Content-Type: application/json\r\nContent-Length: " length "\r\n"

/* Requests of every way to a reply: handlers, queued jobs, refusals at every stage. */
static const struct traced {
    const char *head, *body; /* the request but for the fields of its names */
    unsigned status;
} traced[] = {
    {"GET /livez HTTP/1.1\r\n" HOST, "", 200},
    {"HEAD /models HTTP/1.1\r\n" HOST, "", 200},
    {"POST /attend HTTP/1.1\r\n" HOST JSON_BODY("47"),
     "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]]}", 200},
    {"POST /decode HTTP/1.1\r\n" HOST JSON_BODY("2"), "{}", 400},
    {"POST /decode HTTP/1.1\r\n" HOST JSON_BODY("1"), "{", 400},
    {"GET /nowhere HTTP/1.1\r\n" HOST, "", 404},
    {"DELETE /decode HTTP/1.1\r\n" HOST, "", 405},
    {"BREW /livez HTTP/1.1\r\n" HOST, "", 501},
    {"GET /livez HTTP/1.1\r\n", "", 400},                                    /* no Host */
    {"POST /decode HTTP/1.1\r\n" HOST JSON_BODY("99999999999"), "", 413},    /* past MHD */
    {"POST /decode HTTP/1.1\r\n" HOST "Transfer-Encoding: br\r\n", "", 501}, /* likewise */
};
#define NUM_TRACED (int)COUNT(traced)

static struct raw_answer ask_traced(const struct traced *request, const char *fields)
{
    struct text text = {0};
    text_add(&text, "%s%s\r\n%s", request->head, fields, request->body);
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, text.data));
    struct raw_answer answer = raw_read(&raw, strncmp(request->head, "HEAD", 4) == 0, WAIT_MS);
    raw_close(&raw);
    ck_assert_msg(answer.status == request->status, "%u, not %u: %s", answer.status,
                  request->status, text.data);
    text_free(&text);
    return answer;
}

/* The access line of that request. */
static json_t *log_line(const char *request_id)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"request_id\":\"%s\"", request_id);
    for (unsigned waited = 0; waited < 5000; waited += 5) {
        char *log = daemon_log(&served);
        const char *at = strstr(log, wanted), *end = at != NULL ? strchr(at, '\n') : NULL;
        while (at != NULL && at > log && at[-1] != '\n')
            at--;
        json_t *line = end != NULL ? json_loadb(at, (size_t)(end - at), 0, NULL) : NULL;
        free(log);
        if (line != NULL)
            return line;
        pause_ms(5);
    }
    ck_abort_msg("no line of %s", request_id);
    return NULL;
}

static const char *logged(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));
    return text != NULL ? text : "";
}

TEST_EACH(a_trace_is_answered_and_logged_whatever_the_reply, NUM_TRACED)
{
    char id[32], fields[256], value[256], again[256];
    snprintf(id, sizeof id, "traced-%d", _i);
    snprintf(fields, sizeof fields, "X-Request-Id: %s\r\n" TRACEPARENT, id);
    struct raw_answer answer = ask_traced(&traced[_i], fields);
    struct raw_answer other = ask_traced(&traced[_i], TRACEPARENT);
    ck_assert_msg(raw_header(value, &answer, "traceparent"), "%s", answer.head);
    ck_assert_uint_eq(strlen(value), 55);
    ck_assert_int_eq(strncmp(value, "00-" TRACE "-", 36), 0);
    ck_assert_str_eq(value + 52, "-01");
    ck_assert_uint_eq(strspn(value + 36, "0123456789abcdef"), 16);
    ck_assert_int_ne(strncmp(value + 36, PARENT, 16), 0);
    ck_assert(raw_header(again, &other, "traceparent"));
    ck_assert_str_ne(again, value); /* each request is a span of its own */
    json_t *line = log_line(id);
    ck_assert_str_eq(logged(line, "trace_id"), TRACE);
    ck_assert_str_eq(logged(line, "parent_id"), PARENT);
    ck_assert_uint_eq(strlen(logged(line, "span_id")), 16);
    ck_assert_int_eq(strncmp(logged(line, "span_id"), value + 36, 16), 0);
    json_decref(line);
    raw_answer_free(&answer);
    raw_answer_free(&other);
}

/* A value that is not well-formed, or stands twice, changes nothing. */
TEST(a_traceparent_that_is_none_is_ignored)
{
    static const char *const values[] = {
        "",
        "traceparent:\r\n",
        "traceparent: 00-" TRACE "-0000000000000000-01\r\n",
        "traceparent: 00-" TRACE "-" PARENT "-01-more\r\n",
        "traceparent: ff-" TRACE "-" PARENT "-01\r\n",
        TRACEPARENT TRACEPARENT,
        "traceparent: nonsense\r\n" TRACEPARENT,
    };
    char id[32], fields[512], value[256];
    for (size_t i = 0; i < COUNT(values); i++) {
        snprintf(id, sizeof id, "plain-%zu", i);
        snprintf(fields, sizeof fields, "%sX-Request-Id: %s\r\n", values[i], id);
        struct raw_answer answer = ask_traced(&traced[i % 3], fields);
        ck_assert_msg(!raw_header(value, &answer, "traceparent"), "%s: %s", values[i], value);
        json_t *line = log_line(id);
        ck_assert_ptr_null(json_object_get(line, "trace_id"));
        ck_assert_ptr_null(json_object_get(line, "parent_id"));
        ck_assert_ptr_null(json_object_get(line, "span_id"));
        json_decref(line);
        raw_answer_free(&answer);
    }
}

SUITE(observed)
