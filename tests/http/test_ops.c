/* test_ops.c: what operators and load balancers see: health, models, metrics, methods, headers, the
 * access log. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "calls.h"
#include "metrics_text.h"
#include "raw.h"
#include "served.h"
#include "suites.h"

static struct answer send_with(const char *method, const char *path, const char *header)
{
    const char *const headers[] = {header, NULL};
    struct request request = {.method = method, .path = path, .headers = headers};
    return client_send(&client, &request);
}

static const char *member(const struct answer *answer, const char *name)
{
    const char *text = json_string_value(json_object_get(answer->json, name));
    return text != NULL ? text : "";
}

CASE(ops, serve_small, serve_end, 0)

TEST(health_routes_answer)
{
    static const char *const paths[] = {"/healthz", "/livez", "/health"};
    for (size_t i = 0; i < 3; i++) {
        struct answer answer = client_get(&client, paths[i]);
        expect_answer(&answer, 200, NULL, paths[i]);
        ck_assert_str_eq(member(&answer, "status"), "ok");
        ck_assert_str_eq(member(&answer, "phase"), "ready");
        ck_assert_uint_eq(json_object_size(answer.json), 2);
        answer_free(&answer);
    }
    struct answer ready = client_get(&client, "/readyz");
    expect_answer(&ready, 200, NULL, "/readyz");
    ck_assert_str_eq(member(&ready, "status"), "ready");
    answer_free(&ready);
}

TEST(every_answer_has_one_date_which_is_now)
{
    static const char *const paths[] = {"/livez", "/models", "/nowhere"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct answer answer = client_get(&client, paths[i]);
        struct tm date = {0};
        const char *line = strcasestr(answer.headers, "\r\nDate: ");
        ck_assert_msg(line != NULL, "%s", answer.headers);
        const char *end = strptime(line + 8, "%a, %d %b %Y %H:%M:%S GMT", &date);
        ck_assert_msg(end != NULL && strncmp(end, "\r\n", 2) == 0, "%s", line);
        ck_assert_int_le(labs(timegm(&date) - time(NULL)), 60);
        ck_assert_ptr_null(strcasestr(end, "\r\nDate:"));
        answer_free(&answer);
    }
}

TEST(models_report_their_resolved_options)
{
    struct answer all = client_get(&client, "/models"), one = client_get(&client, "/models/tiny");
    expect_answer(&all, 200, NULL, "/models");
    expect_answer(&one, 200, NULL, "/models/tiny");
    const json_t *list = json_object_get(all.json, "models");
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert(json_equal(json_array_get(list, 0), one.json));
    static const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {{"hidden_size", 16},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"head_dim", 4},
                   {"value_head_dim", 4},
                   {"num_layers", 2},
                   {"cache_bytes_per_token", 2 * 2 * (4 + 4) * 4}};
    for (size_t i = 0; i < COUNT(numbers); i++)
        ck_assert_int_eq(answer_integer(&one, numbers[i].name), numbers[i].value);
    ck_assert_str_eq(member(&one, "family"), "random");
    ck_assert_str_eq(member(&one, "mask"), "causal");
    ck_assert_uint_eq(strlen(member(&one, "fingerprint")), 16);
    ck_assert(json_is_true(json_object_get(one.json, "random")));
    ck_assert(json_is_object(json_object_get(one.json, "rope")));
    ck_assert(json_is_object(json_object_get(one.json, "kernels")));
    struct answer none = client_get(&client, "/models/none");
    expect_answer(&none, 404, "model_not_found", "/models/none");
    answer_free(&all);
    answer_free(&one);
    answer_free(&none);
}

TEST(metrics_are_well_formed_and_count)
{
    char type[256];
    static const char decodes[] =
        "attnd_requests_total{route=\"/decode\",method=\"POST\",status=\"404\"}";
    call_create(&client, "counted", "");
    expect_decode(&client, "counted", 0, 0);
    refuse_decode(&client, "uncounted", 0, "", 404, "session_not_found");
    double before = call_metric(&client, decodes);
    refuse_decode(&client, "uncounted", 0, "", 404, "session_not_found");
    ck_assert_double_eq(call_metric(&client, decodes), before + 1);
    ck_assert_double_ge(call_metric(&client, "attnd_errors_total{code=\"session_not_found\"}"), 2);
    ck_assert_double_ge(call_metric(&client, "attnd_decode_rows_total"), 1);
    ck_assert_double_eq(call_metric(&client, "attnd_ready"), 1);
    struct answer answer = client_get(&client, "/metrics");
    expect_answer(&answer, 200, NULL, "/metrics");
    ck_assert(answer_header(type, &answer, "Content-Type"));
    ck_assert_int_eq(strncmp(type, "text/plain; version=0.0.4", 25), 0);
    ck_assert_uint_ge(metrics_check(answer.text), 100);
    answer_free(&answer);
}

/* ---- Methods and paths ----------------------------------------------------------------------- */

TEST(other_methods_are_refused_with_the_allowed_ones)
{
    static const struct {
        const char *method, *path, *allow;
    } cases[] = {
        {"GET", "/attend", "POST"},
        {"GET", "/decode", "POST"},
        {"DELETE", "/attend", "POST"},
        {"POST", "/healthz", "GET, HEAD"},
        {"POST", "/metrics", "GET, HEAD"},
        {"DELETE", "/models/tiny", "GET, HEAD"},
        {"PUT", "/sessions", "POST, GET, HEAD"},
        {"POST", "/sessions/a", "GET, HEAD, DELETE"},
        {"PATCH", "/sessions/a", "GET, HEAD, DELETE"},
        {"OPTIONS", "/decode", "POST"},
        {"HEAD", "/decode", "POST"},
    };
    char allow[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer = send_with(cases[i].method, cases[i].path, NULL);
        if (strcmp(cases[i].method, "HEAD") != 0)
            expect_answer(&answer, 405, "method_not_allowed", cases[i].path);
        ck_assert_int_eq(answer.status, 405);
        ck_assert_msg(answer_header(allow, &answer, "Allow"), "%s", cases[i].path);
        ck_assert_str_eq(allow, cases[i].allow);
        answer_free(&answer);
    }
}

TEST(unknown_paths_are_not_found)
{
    static const char *const paths[] = {"/ui/",        "/healthz/",     "/healthz/x",
                                        "/models//",   "/models/a/b",   "/sessions/a/forks",
                                        "/Decode",     "/decode%20",    "/%2e%2e/models",
                                        "/models/../", "/sessions/?x=1"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct answer answer = client_get(&client, paths[i]);
        expect_answer(&answer, 404, "route_not_found", paths[i]);
        answer_free(&answer);
    }
}

TEST(head_is_get_without_the_body)
{
    char of_get[256], of_head[256];
    struct answer get = client_get(&client, "/models/tiny");
    struct answer head = send_with("HEAD", "/models/tiny", NULL);
    ck_assert_int_eq(head.status, 200);
    ck_assert_uint_eq(head.length, 0);
    ck_assert(answer_header(of_get, &get, "Content-Length"));
    ck_assert(answer_header(of_head, &head, "Content-Length"));
    ck_assert_str_eq(of_head, of_get);
    struct answer none = send_with("HEAD", "/models/none", NULL);
    ck_assert_int_eq(none.status, 404);
    answer_free(&get);
    answer_free(&head);
    answer_free(&none);
}

TEST(pipelined_requests_are_answered_in_order)
{
    static const char *const ids[] = {"first", "second", "third"};
    struct text text = {0};
    struct raw raw;
    char id[256];
    text_add(&text, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: first\r\n\r\n");
    text_add(&text, "POST /attend HTTP/1.1\r\nHost: x\r\nX-Request-Id: second\r\n"
                    "Content-Type: application/json\r\nContent-Length: 52\r\n\r\n"
                    "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]]}     ");
    text_add(&text, "GET /models HTTP/1.1\r\nHost: x\r\nX-Request-Id: third\r\n\r\n");
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_send(&raw, text.data, text.length));
    for (size_t i = 0; i < 3; i++) {
        struct raw_answer answer = raw_read(&raw, false, 60000);
        ck_assert_uint_eq(answer.status, 200);
        ck_assert(raw_header(id, &answer, "X-Request-Id"));
        ck_assert_str_eq(id, ids[i]);
        raw_answer_free(&answer);
    }
    raw_close(&raw);
    text_free(&text);
}

/* ---- Headers --------------------------------------------------------------------------------- */

TEST(request_id_is_echoed_or_made)
{
    char id[256], other[256];
    struct answer echoed = send_with("GET", "/healthz", "X-Request-Id: Trace-4.2_x");
    ck_assert(answer_header(id, &echoed, "X-Request-Id"));
    ck_assert_str_eq(id, "Trace-4.2_x");
    struct answer wrong = send_with("GET", "/healthz", "X-Request-Id: a b/\"c\"");
    ck_assert(answer_header(id, &wrong, "X-Request-Id"));
    ck_assert_uint_eq(strspn(id, "0123456789abcdef"), 16);
    struct answer made = client_get(&client, "/healthz");
    ck_assert(answer_header(other, &made, "X-Request-Id"));
    ck_assert_uint_eq(strspn(other, "0123456789abcdef"), 16);
    ck_assert_str_ne(id, other);
    answer_free(&echoed);
    answer_free(&wrong);
    answer_free(&made);
}

/* The head must have exactly the fields `names` ("A B"), each once. */
static void expect_fields(const char *head, const char *names)
{
    size_t count = 0;
    int length;
    for (const char *at = names; *at != '\0'; at += length + (at[length] == ' '), count++) {
        char line[64];
        length = (int)strcspn(at, " ");
        snprintf(line, sizeof line, "\r\n%.*s: ", length, at);
        const char *found = strstr(head, line);
        ck_assert_msg(found != NULL, "no %.*s in %s", length, at, head);
        ck_assert_msg(strcspn(found + length + 4, "\r\n") > 0, "empty: %s", found);
        ck_assert_msg(strstr(found + 1, line) == NULL, "again: %s", found + 2);
    }
    for (const char *at = strstr(head, "\r\n"); at != NULL; at = strstr(at + 2, "\r\n"))
        count -= at[2] != '\0' && at[2] != '\r';
    ck_assert_msg(count == 0, "other fields than %s: %s", names, head);
}

TEST(each_line_of_an_answers_head_is_a_field_of_its_own)
{
    static const char attend[] = "POST /attend HTTP/1.1\r\nHost: x\r\n"
                                 "Content-Type: application/json\r\nContent-Length: ";
#define COMMON "Cache-Control X-Request-Id X-Attn-Instance Content-Length Date"
    static const struct {
        const char *line, *body;
        unsigned status;
        const char *names;
    } cases[] = {
        {"GET /livez HTTP/1.1\r\nHost: x\r\n", "", 200, COMMON " Content-Type"},
        {"PUT /decode HTTP/1.1\r\nHost: x\r\n", "", 405, COMMON " Content-Type Allow"},
        {"GET /livez HTTP/1.1\r\n", "", 400, COMMON " Content-Type Connection"},
        {"GET /livez HTTP/1.0\r\n", "", 200, COMMON " Content-Type Connection"},
        {attend, "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]]}", 200,
         COMMON " Content-Type Server-Timing"},
        {attend, "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]],\"binary_output\":true}",
         200, COMMON " Content-Type Inference-Header-Content-Length Server-Timing"},
    };
#undef COMMON
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct text text = {0};
        text_add(&text, "%s", cases[i].line);
        if (cases[i].line == attend)
            text_add(&text, "%zu\r\n", strlen(cases[i].body));
        text_add(&text, "\r\n%s", cases[i].body);
        struct raw_answer answer = raw_exchange(served.host, served.port, text.data, 60000);
        ck_assert_uint_eq(answer.status, cases[i].status);
        expect_fields(answer.head, cases[i].names);
        raw_answer_free(&answer);
        text_free(&text);
    }
}

TEST(computed_answers_report_their_stages)
{
    char text[256];
    double parse, queue, compute, write;
    call_create(&client, "timed", "");
    struct answer answer = call_decode(&client, "timed", 0, "");
    ck_assert(answer_header(text, &answer, "Server-Timing"));
    ck_assert_msg(sscanf(text, "parse;dur=%lf, queue;dur=%lf, compute;dur=%lf, write;dur=%lf",
                         &parse, &queue, &compute, &write) == 4,
                  "%s", text);
    ck_assert(parse >= 0 && queue >= 0 && compute > 0 && write >= 0);
    ck_assert(answer_header(text, &answer, "X-Attn-Instance"));
    ck_assert_str_eq(text, "test");
    ck_assert(answer_header(text, &answer, "Content-Type"));
    ck_assert_str_eq(text, "application/json");
    answer_free(&answer);
}

TEST(a_large_body_may_wait_for_100_continue)
{
    enum { BATCH = 800, TOKENS = 10 };
    static float rows[BATCH * TOKENS * TINY];
    struct text body = {0};
    make_numbers(rows, BATCH * TOKENS * TINY, 1);
    text_add(&body, "{\"model\":\"tiny\",\"outputs\":[\"lse\"],\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(BATCH, TOKENS, TINY));
    text_add(&body, "}");
    ck_assert_uint_gt(body.length, 1 << 20);
    const char *const headers[] = {"Expect: 100-continue", NULL};
    struct answer answer = client_send(
        &client, &(struct request){
                     .method = "POST", .path = "/attend", .body = body.data, .headers = headers});
    expect_answer(&answer, 200, NULL, "100-continue");
    answer_free(&answer);
    text_free(&body);
}

/* ---- The log --------------------------------------------------------------------------------- */

/* The access line of that request, or NULL; every line of the log must be a JSON object. */
static json_t *find_line(const char *log, const char *id)
{
    json_t *found = NULL;
    while (*log != '\0') {
        size_t length = strcspn(log, "\n");
        json_t *line = json_loadb(log, length, JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(json_is_object(line), "not an object: %.*s", (int)length, log);
        const char *request = json_string_value(json_object_get(line, "request_id"));
        if (found == NULL && request != NULL && strcmp(request, id) == 0)
            found = json_incref(line);
        json_decref(line);
        log += length + (log[length] == '\n');
    }
    return found;
}

static void expect_line(const char *id, const char *method, const char *route, json_int_t status,
                        const char *code)
{
    json_t *line = NULL;
    for (unsigned tries = 0; line == NULL && tries < 500; tries++) {
        char *log = daemon_log(&served);
        line = find_line(log, id);
        free(log);
        if (line == NULL)
            pause_ms(10);
    }
    ck_assert_msg(line != NULL, "no line for %s", id);
    ck_assert_str_eq(json_string_value(json_object_get(line, "method")), method);
    ck_assert_str_eq(json_string_value(json_object_get(line, "route")), route);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "status")), status);
    const char *got = json_string_value(json_object_get(line, "code"));
    ck_assert_str_eq(got != NULL ? got : "", code);
    ck_assert(json_is_number(json_object_get(line, "ms")));
    ck_assert(json_is_integer(json_object_get(line, "bytes_out")));
    json_decref(line);
}

TEST(each_request_is_a_log_line_with_the_routes_pattern)
{
    struct answer seen = send_with("GET", "/sessions/nobody", "X-Request-Id: log-1");
    struct answer lost = send_with("GET", "/secret/path?key=1", "X-Request-Id: log-2");
    struct answer wrong = send_with("DELETE", "/decode", "X-Request-Id: log-3");
    struct answer ready = send_with("GET", "/readyz", "X-Request-Id: log-4");
    struct answer models = send_with("GET", "/models/", "X-Request-Id: log-5");
    expect_line("log-1", "GET", "/sessions/{id}", 404, "session_not_found");
    expect_line("log-2", "GET", "none", 404, "route_not_found");
    expect_line("log-3", "DELETE", "none", 405, "method_not_allowed");
    expect_line("log-4", "GET", "/readyz", 200, "");
    expect_line("log-5", "GET", "/models", 200, "");
    char *log = daemon_log(&served);
    ck_assert_ptr_null(strstr(log, "secret"));
    ck_assert_ptr_null(strstr(log, "nobody"));
    free(log);
    answer_free(&seen);
    answer_free(&lost);
    answer_free(&wrong);
    answer_free(&ready);
    answer_free(&models);
}

/* ---- Costs ----------------------------------------------------------------------------------- */

#define ASKED 1000
#define LAYERS 128
#define CONNECTIONS 2000

/* Returns the daemon's processor time for so many GETs of a path. */
static double cost_of(const char *path, unsigned count)
{
    double before = daemon_cpu_s(&served);
    for (unsigned i = 0; i < count; i++) {
        struct answer answer = client_get(&client, path);
        expect_answer(&answer, 200, NULL, path);
        answer_free(&answer);
    }
    return daemon_cpu_s(&served) - before;
}

/* False where this process is not allowed so many descriptors. */
static bool allow_files(rlim_t count)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < count && files.rlim_max >= count)
        files.rlim_cur = count;
    return setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= count;
}

/* Whether a thread has this name; a thread names itself as it begins. */
static bool has_thread(const char *name)
{
    pid_t threads[DAEMON_MAX_THREADS];
    char line[64];
    bool found = false;
    snprintf(line, sizeof line, "Name:\t%s\n", name);
    for (size_t i = daemon_threads(threads, &served); i-- > 0 && !found;) {
        char *status = daemon_status(&served, threads[i]);
        found = strncmp(status, line, strlen(line)) == 0;
        free(status);
    }
    return found;
}

TEST(every_kind_of_thread_has_its_own_name)
{
    static const char *const names[] = {"attnd-event", "attnd-scheduler", "attnd-io"};
    for (size_t i = 0; i < COUNT(names); i++)
        for (unsigned waited = 0; !has_thread(names[i]); waited += 2) {
            ck_assert_msg(waited < 5000, "no %s", names[i]);
            pause_ms(2);
        }
}

CASE(costs, NULL, NULL, 240)

TEST(models_of_many_layers_cost_no_more_to_ask_for_than_health)
{
    serve("{\"port\":0,\"models\":[{\"name\":\"deep\",\"random\":{\"hidden_size\":16,"
          "\"num_attention_heads\":4,\"num_hidden_layers\":128,\"seed\":1}}]}");
    struct answer answer = client_get(&client, "/models/deep");
    ck_assert_int_eq(answer_integer(&answer, "num_layers"), LAYERS);
    answer_free(&answer);
    double health = cost_of("/livez", ASKED);
    ck_assert_double_lt(cost_of("/models", ASKED), 3 * health + 0.1);
    ck_assert_double_lt(cost_of("/models/deep", ASKED), 3 * health + 0.1);
    serve_end();
}

TEST(metrics_cost_the_same_beside_many_connections_and_count_them)
{
    static struct raw idle[CONNECTIONS];
    if (!allow_files(CONNECTIONS + 100)) {
        printf("ops: too few descriptors for %d connections, left out\n", CONNECTIONS);
        return;
    }
    serve_small();
    double alone = cost_of("/metrics", ASKED), files = call_metric(&client, "process_open_fds");
    for (size_t i = 0; i < CONNECTIONS; i++)
        raw_open(&idle[i], served.host, served.port);
    for (unsigned waited = 0; call_metric(&client, "attnd_connections") < CONNECTIONS + 1;
         waited += 2) {
        ck_assert_uint_lt(waited, 60000);
        pause_ms(2);
    }
    ck_assert_double_lt(cost_of("/metrics", ASKED), 1.5 * alone + 0.2);
    files += CONNECTIONS; /* on old kernels attnd counts them once a second */
    for (unsigned waited = 0; call_metric(&client, "process_open_fds") < files && waited < 5000;
         waited += 2)
        pause_ms(2);
    ck_assert_double_eq(call_metric(&client, "process_open_fds"), files);
    for (size_t i = 0; i < CONNECTIONS; i++)
        raw_close(&idle[i]);
    serve_end();
}

SUITE(ops)
