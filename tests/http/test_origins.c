/* test_origins.c: requests that a browser sends for other people's pages are refused where no API
 * key is asked for, and pages of listed origins get what CORS needs. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "inspected.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define PAGE "https://app.example"
#define OTHER_PAGE "http://localhost:3000"
#define EVIL "Origin: http://evil.example"
#define PREFLIGHT "Access-Control-Request-Method: POST"
#define ORIGINS "\"allow_origins\":[\"" PAGE "\",\"" OTHER_PAGE "\"],"

static char keys_path[64];

static void begin_without(void) { serve_small(); }
static void begin_listed(void) { serve(CONFIG_SMALL(ORIGINS)); }

static void begin_with_keys(const char *config)
{
    secret_write(keys_path, KEYS_THREE);
    serve_keys(config, keys_path);
}

static struct answer ask(const char *method, const char *path, const char *body,
                         const char *const headers[])
{
    return client_send(
        &client,
        &(struct request){.method = method, .path = path, .body = body, .headers = headers});
}

/* The answer to a request with up to two fields more. */
static struct answer get(const char *method, const char *path, const char *first,
                         const char *second)
{
    const char *const headers[] = {first, second, NULL};
    return ask(method, path, NULL, headers);
}

static void expect_field(const struct answer *answer, const char *name, const char *value)
{
    char got[256];
    bool there = answer_header(got, answer, name);
    ck_assert_msg(value != NULL ? there && strcmp(got, value) == 0 : !there, "%s: %s, not %s", name,
                  there ? got : "none", value != NULL ? value : "none");
}

/* ---- Host ------------------------------------------------------------------------------------ */

CASE(without, begin_without, serve_end, 0)

TEST(without_keys_a_host_that_is_not_ours_is_refused_on_every_path)
{
    static const char *const paths[] = {"/livez", "/metrics", "/models", "/sessions", "/nowhere"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct answer answer = get("GET", paths[i], "Host: evil.example:8080", NULL);
        expect_answer(&answer, 421, "host_not_allowed", paths[i]);
        expect_field(&answer, "Access-Control-Allow-Origin", NULL);
        answer_free(&answer);
    }
    const char *const headers[] = {"Host: evil.example", NULL};
    struct answer answer =
        ask("POST", "/sessions", "{\"model\":\"tiny\",\"session_id\":\"mine\"}", headers);
    expect_answer(&answer, 421, "host_not_allowed", "a session");
    answer_free(&answer);
    answer = client_get(&client, "/sessions/mine");
    expect_answer(&answer, 404, "session_not_found", "it was not made");
    answer_free(&answer);
    answer = get("GET", "/livez", "Host: test:99", NULL); /* DAEMON_HOSTS */
    expect_answer(&answer, 200, NULL, "a listed name");
    answer_free(&answer);
    answer = get("GET", "/livez", "Host: localhost", NULL);
    expect_answer(&answer, 200, NULL, "localhost");
    answer_free(&answer);
}

TEST(a_refused_name_that_is_no_text_makes_no_reply_that_is_none)
{
    static const char *const fields[] = {"Host: \xff\xfe\xc3\"", "Host: x\r\nOrigin: \xc3\x28"};
    for (size_t i = 0; i < 2; i++) {
        char text[128];
        snprintf(text, sizeof text, "GET /livez HTTP/1.1\r\n%s\r\n\r\n", fields[i]);
        struct raw_answer answer = raw_exchange(served.host, served.port, text, 20000);
        json_t *json = json_loads(answer.body, 0, NULL); /* takes UTF-8 only */
        ck_assert_ptr_nonnull(json);
        ck_assert_uint_eq(answer.status, i == 0 ? 421 : 403);
        json_decref(json);
        raw_answer_free(&answer);
    }
}

/* ---- Pages without keys ---------------------------------------------------------------------- */

TEST(pages_of_the_daemon_itself_need_no_list)
{
    char own[128];
    snprintf(own, sizeof own, "Origin: http://127.0.0.1:%u", served.port);
    const char *const headers[] = {own, NULL};
    struct answer answer = ask("POST", "/sessions", "{\"model\":\"tiny\"}", headers);
    expect_answer(&answer, 201, NULL, "its own page");
    expect_field(&answer, "Access-Control-Allow-Origin", NULL);
    expect_field(&answer, "Vary", NULL);
    answer_free(&answer);
    snprintf(own, sizeof own, "Origin: http://127.0.0.1:%u", served.port - 1);
    answer = ask("POST", "/sessions", "{\"model\":\"tiny\"}", headers);
    expect_answer(&answer, 403, "origin_not_allowed", "another port's");
    answer_free(&answer);
}

CASE(own, NULL, NULL, 0)

TEST(with_keys_hosts_are_checked_where_they_are_listed)
{
    begin_with_keys(CONFIG_SMALL(""));
    struct answer answer = get("GET", "/livez", "Host: evil.example", NULL);
    expect_answer(&answer, 421, "host_not_allowed", "DAEMON_HOSTS are listed");
    answer_free(&answer);
    serve_end();
}

/* Without DAEMON_HOSTS; keys where _i is 1. */
TEST_EACH(where_none_are_listed_only_keys_make_any_host_good, 2)
{
    char directory[64], path[96];
    secret_write(keys_path, KEYS_THREE);
    config_write(directory, path, CONFIG_SMALL(""));
    const char *const arguments[] = {"--config", path, _i == 1 ? "--api-keys" : NULL, keys_path,
                                     NULL};
    struct process process;
    process_start(&process, arguments, NULL);
    unsigned port = inspected_await_port(process.pid, 60000);
    struct raw_answer answer =
        raw_exchange("127.0.0.1", port, "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", 20000);
    ck_assert_uint_eq(answer.status, _i == 1 ? 200 : 421);
    raw_answer_free(&answer);
    process_end(&process);
    config_remove(directory);
}

/* ---- Listed pages ---------------------------------------------------------------------------- */

static void expect_preflight(const char *path, const char *origin)
{
    char line[128];
    snprintf(line, sizeof line, "Origin: %s", origin);
    struct answer answer = get("OPTIONS", path, line, PREFLIGHT);
    ck_assert_msg(answer.status == 204, "%s: %ld %s", path, answer.status, answer.text);
    ck_assert_uint_eq(answer.length, 0);
    expect_field(&answer, "Access-Control-Allow-Origin", origin);
    expect_field(&answer, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    expect_field(&answer, "Access-Control-Max-Age", "600");
    expect_field(&answer, "Vary", "Origin");
    expect_field(&answer, "Access-Control-Allow-Credentials", NULL);
    expect_field(&answer, "Content-Length", NULL);
    ck_assert_ptr_nonnull(strstr(answer.headers, "Inference-Header-Content-Length"));
    ck_assert_ptr_nonnull(strstr(answer.headers, "Authorization"));
    answer_free(&answer);
}

/* An error and a success, both readable to the page. */
static void expect_readable(const char *authorization)
{
    const char *const headers[] = {"Origin: " OTHER_PAGE, authorization, NULL};
    struct answer answer = ask("POST", "/sessions", "{\"model\":\"tiny\"}", headers);
    expect_answer(&answer, 201, NULL, "a listed page");
    expect_field(&answer, "Access-Control-Allow-Origin", OTHER_PAGE);
    expect_field(&answer, "Vary", "Origin");
    ck_assert_ptr_nonnull(strstr(answer.headers, "Access-Control-Expose-Headers: "));
    answer_free(&answer);
    answer = ask("GET", "/nowhere", NULL, headers);
    expect_answer(&answer, 404, "route_not_found", "an error");
    expect_field(&answer, "Access-Control-Allow-Origin", OTHER_PAGE);
    answer_free(&answer);
}

/* The longest origin that the configuration takes, with the most fields beside it. */
TEST(a_long_origin_fits_every_reply)
{
    char origin[256] = "https://", config[2048], line[300];
    memset(origin + strlen(origin), 'a', 255 - strlen(origin));
    snprintf(config, sizeof config, CONFIG_SMALL("\"allow_origins\":\"%s\","), origin);
    snprintf(line, sizeof line, "Origin: %s", origin);
    serve(config);
    const char *const headers[] = {line, NULL};
    char asked[600], id[100];
    snprintf(asked, sizeof asked, "Access-Control-Request-Headers: %0512d", 0);
    snprintf(id, sizeof id, "X-Request-Id: %064d", 0);
    const char *const asking[] = {
        line,
        PREFLIGHT,
        asked,
        id,
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        NULL};
    struct answer answer = ask("OPTIONS", "/decode", NULL, asking);
    ck_assert_int_eq(answer.status, 204);
    ck_assert_ptr_nonnull(
        strstr(answer.headers, asked + strlen("Access-Control-Request-Headers: ")));
    answer_free(&answer);
    answer = ask("POST", "/attend",
                 "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[7]]],\"binary_output\":true}",
                 headers);
    ck_assert_int_eq(answer.status, 200);
    answer_free(&answer);
    serve_end();
}

TEST(with_keys_a_preflight_needs_none_and_a_page_of_elsewhere_gets_no_reply_to_read)
{
    begin_with_keys(CONFIG_SMALL(ORIGINS));
    expect_preflight("/decode", PAGE);
    expect_readable("Authorization: Bearer " KEY_BOTH);
    struct answer answer = get("OPTIONS", "/decode", EVIL, PREFLIGHT);
    expect_answer(&answer, 401, "unauthorized", "a preflight from elsewhere");
    expect_field(&answer, "Access-Control-Allow-Origin", NULL);
    answer_free(&answer);
    answer = get("GET", "/models", "Origin: " PAGE, NULL);
    expect_answer(&answer, 401, "unauthorized", "a listed page without a key");
    expect_field(&answer, "Access-Control-Allow-Origin", PAGE);
    answer_free(&answer);
    answer = get("GET", "/models", EVIL, "Authorization: Bearer " KEY_INFER);
    expect_answer(&answer, 200, NULL, "whoever has a key may come from anywhere");
    expect_field(&answer, "Access-Control-Allow-Origin", NULL);
    answer_free(&answer);
    serve_end();
}

CASE(listed, begin_listed, serve_end, 0)

/* What a form or `fetch` with `no-cors` sends: no preflight comes first. */
TEST(without_keys_a_page_of_elsewhere_runs_nothing)
{
    static const char *const origins[] = {
        EVIL,
        "Origin: null",
        "Origin: https://app.example.evil.example",
        "Origin: https://app.exampl",
        "Origin: https://app.example:444",
        "Origin: http://app.example",
        "Origin: https://app.example,http://localhost:3000",
        "Origin: *",
    };
    for (size_t i = 0; i < COUNT(origins); i++) {
        const char *const headers[] = {origins[i], NULL};
        const char *const plain[] = {origins[i], "Content-Type: text/plain", NULL};
        const char *const twice[] = {"Origin: " PAGE, origins[i], NULL};
        struct answer answer =
            ask("POST", "/sessions", "{\"model\":\"tiny\",\"session_id\":\"forged\"}", headers);
        expect_answer(&answer, 403, "origin_not_allowed", origins[i]);
        expect_field(&answer, "Access-Control-Allow-Origin", NULL);
        answer_free(&answer);
        answer = ask("POST", "/v2/models/tiny/infer", "{}", plain);
        expect_answer(&answer, 403, "origin_not_allowed", origins[i]);
        answer_free(&answer);
        answer = ask("GET", "/models", NULL, twice);
        expect_answer(&answer, 403, "origin_not_allowed", origins[i]);
        answer_free(&answer);
        answer = get("OPTIONS", "/sessions", origins[i], PREFLIGHT);
        expect_answer(&answer, 403, "origin_not_allowed", origins[i]);
        expect_field(&answer, "Access-Control-Allow-Origin", NULL);
        expect_field(&answer, "Access-Control-Allow-Methods", NULL);
        answer_free(&answer);
    }
    struct answer answer = client_get(&client, "/sessions/forged");
    expect_answer(&answer, 404, "session_not_found", "none was made");
    answer_free(&answer);
}

/* Fields of tracing and of SDKs, which mean nothing to attnd; what is no name is not repeated. */
TEST(a_preflight_allows_the_fields_that_it_asks_for)
{
    char many[700];
    snprintf(many, sizeof many, "Access-Control-Request-Headers: %0600d", 0);
    const struct {
        const char *asked, *allowed; /* allowed NULL: none beside attnd's own */
    } cases[] = {
        {"Access-Control-Request-Headers: content-type,traceparent,tracestate,baggage",
         "X-Session-Id, content-type,traceparent,tracestate,baggage\r\n"},
        {"Access-Control-Request-Headers: sentry-trace, x-stainless-os",
         "X-Session-Id, sentry-trace, x-stainless-os\r\n"},
        {"Access-Control-Request-Headers: a\"b", NULL},
        {"Access-Control-Request-Headers: a\x80", NULL},
        {"Access-Control-Request-Headers: *", NULL},
        {many, NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *const headers[] = {"Origin: " PAGE, PREFLIGHT, cases[i].asked, NULL};
        struct answer answer = ask("OPTIONS", "/decode", NULL, headers);
        ck_assert_int_eq(answer.status, 204);
        const char *allowed = cases[i].allowed != NULL ? cases[i].allowed : "X-Session-Id\r\n";
        ck_assert_msg(strstr(answer.headers, allowed) != NULL, "%s: %s", cases[i].asked,
                      answer.headers);
        answer_free(&answer);
    }
}

TEST(listed_pages_get_preflights_and_replies)
{
    expect_preflight("/decode", PAGE);
    expect_preflight("/sessions/any/state", OTHER_PAGE);
    expect_preflight("/nowhere", PAGE);
    expect_readable(NULL);
    struct answer answer = client_get(&client, "/models"); /* no page */
    expect_field(&answer, "Access-Control-Allow-Origin", NULL);
    expect_field(&answer, "Vary", "Origin");
    answer_free(&answer);
    answer = get("OPTIONS", "/models", "Origin: " PAGE, NULL);
    expect_answer(&answer, 405, "method_not_allowed", "OPTIONS that is no preflight");
    answer_free(&answer);
    answer = get("GET", "/livez", "Origin: " PAGE, PREFLIGHT);
    expect_answer(&answer, 200, NULL, "a preflight's field in a GET");
    expect_field(&answer, "Access-Control-Allow-Methods", NULL);
    answer_free(&answer);
    answer = get("GET", "/livez", "Host: evil.example", "Origin: " PAGE);
    expect_answer(&answer, 421, "host_not_allowed", "a listed page under a foreign name");
    answer_free(&answer);
}

TEST(a_reply_may_vary_by_coding_and_by_origin)
{
    struct text body = {0};
    text_add(&body, "{\"compressed_output\":true,\"model\":\"tiny\",\"hidden_states\":[");
    for (int i = 0; i < 4000; i++)
        text_add(&body, "%s[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6]", i > 0 ? "," : "");
    text_add(&body, "]}");
    const char *const headers[] = {"Origin: " PAGE, "Accept-Encoding: gzip", NULL};
    struct answer answer = ask("POST", "/attend", body.data, headers);
    ck_assert_int_eq(answer.status, 200);
    expect_field(&answer, "Content-Encoding", "gzip");
    expect_field(&answer, "Vary", "Accept-Encoding, Origin");
    expect_field(&answer, "Access-Control-Allow-Origin", PAGE);
    answer_free(&answer);
    text_free(&body);
}

SUITE(origins)
