/* test_keys.c: which key may use which route: every route with every kind of key; replies, log and
 * unread bodies of requests without one that suffices. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define CONFIG CONFIG_SMALL("\"durability\":\"snapshot\",\"state_dir\":\"%s\",")

static char state_dir[SCRATCH_PATH], keys_path[SECRET_PATH];

/* The daemon is stopped and its files are gone when this returns. */
static void end(void)
{
    serve_end();
    scratch_remove(state_dir);
}

static void begin(void)
{
    char config[1024];
    scratch_make(state_dir);
    secret_write(keys_path, KEYS_THREE);
    snprintf(config, sizeof config, CONFIG, state_dir);
    serve_keys(config, keys_path);
}

static struct answer ask(const char *method, const char *path, const char *body, const char *field)
{
    const char *const headers[] = {field, NULL};
    return client_send(
        &client,
        &(struct request){.method = method, .path = path, .body = body, .headers = headers});
}

/* ---- Every route ----------------------------------------------------------------------------- */

enum kind { NONE, WRONG, INFER, ADMIN, BOTH, KINDS };

static const char *const fields[KINDS] = {
    NULL,
    "Authorization: Bearer infer-0123456789abcdef0123456789abcdeF",
    "Authorization: Bearer " KEY_INFER,
    "Authorization: Bearer " KEY_ADMIN,
    "Authorization: Bearer " KEY_BOTH,
};

enum access { FOR_INFER, FOR_ADMIN, FOR_OWNER, FOR_METRICS, FOR_ANY, FOR_ALL };

/* Status by access and kind of key; 200: the key suffices, and the status is the route's own. */
static const unsigned wanted[][KINDS] = {
    [FOR_INFER] = {401, 401, 200, 403, 200}, [FOR_ADMIN] = {401, 401, 403, 200, 200},
    [FOR_OWNER] = {401, 401, 200, 200, 200}, [FOR_METRICS] = {401, 401, 403, 200, 200},
    [FOR_ANY] = {401, 401, 200, 200, 200},   [FOR_ALL] = {200, 200, 200, 200, 200},
};

#define ROW "[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]"

/* With a key that suffices none of these requests may be answered with 401 or 403. */
static const struct {
    const char *method, *path, *body;
    enum access access;
} routes[] = {
    {"POST", "/attend", "{\"model\":\"tiny\",\"hidden_states\":[" ROW "]}", FOR_INFER},
    {"POST", "/decode", "{\"session_id\":\"none\",\"hidden_states\":" ROW "}", FOR_INFER},
    {"POST", "/sessions", "{\"model\":\"tiny\"}", FOR_INFER},
    {"GET", "/sessions", NULL, FOR_ADMIN},
    {"HEAD", "/sessions", NULL, FOR_ADMIN},
    {"GET", "/sessions/none", NULL, FOR_OWNER},
    {"DELETE", "/sessions/none", NULL, FOR_OWNER},
    {"POST", "/sessions/none/fork", "{}", FOR_INFER},
    {"POST", "/sessions/none/truncate", "{\"length\":0}", FOR_INFER},
    {"GET", "/sessions/none/state", NULL, FOR_INFER},
    {"PUT", "/sessions/none/state", "x", FOR_INFER},
    {"POST", "/snapshot", NULL, FOR_ADMIN},
    {"GET", "/snapshot", NULL, FOR_ADMIN},
    {"GET", "/models", NULL, FOR_INFER},
    {"GET", "/models/tiny", NULL, FOR_INFER},
    {"GET", "/healthz", NULL, FOR_ALL},
    {"GET", "/health", NULL, FOR_ALL},
    {"GET", "/livez", NULL, FOR_ALL},
    {"GET", "/readyz", NULL, FOR_ALL},
    {"HEAD", "/readyz", NULL, FOR_ALL},
    {"GET", "/metrics", NULL, FOR_METRICS},
    {"GET", "/", NULL, FOR_ALL},
    {"GET", "/ui/dom.js", NULL, FOR_ALL},
    {"GET", "/nowhere", NULL, FOR_ANY},
    {"GET", "/sessions/", NULL, FOR_ANY},
    {"PUT", "/attend", "{}", FOR_ANY},
    {"DELETE", "/livez", NULL, FOR_ANY},
    {"BREW", "/attend", NULL, FOR_ANY},
};

CASE(keys, begin, end, 0)

TEST(each_route_is_for_the_keys_that_the_table_says)
{
    for (size_t i = 0; i < COUNT(routes); i++) {
        for (enum kind kind = NONE; kind < KINDS; kind++) {
            struct answer answer =
                ask(routes[i].method, routes[i].path, routes[i].body, fields[kind]);
            unsigned want = wanted[routes[i].access][kind];
            bool right = want == 200 ? answer.status != 401 && answer.status != 403
                                     : answer.status == (long)want;
            ck_assert_msg(right, "%s %s under key %d: %ld %s", routes[i].method, routes[i].path,
                          (int)kind, answer.status, answer.text);
            answer_free(&answer);
        }
    }
}

TEST(a_key_after_another_word_than_bearer_is_none)
{
    static const char *const others[] = {
        "Authorization: Digest " KEY_INFER, "Authorization: Basic  " KEY_INFER,
        "Authorization: " KEY_INFER, "Authorization: Bearer" KEY_INFER};
    for (size_t i = 0; i < COUNT(others); i++) {
        struct answer answer = ask("GET", "/models", NULL, others[i]);
        expect_answer(&answer, 401, "unauthorized", others[i]);
        answer_free(&answer);
    }
    struct answer answer = ask("GET", "/models", NULL, "Authorization: bearer " KEY_INFER);
    expect_answer(&answer, 200, NULL, "bearer");
    answer_free(&answer);
}

/* 404, 405, 501, 503 or 413 would show which paths there are. */
TEST(without_a_key_every_path_is_answered_alike)
{
    for (size_t i = 0; i < COUNT(routes); i++) {
        char value[256];
        if (routes[i].access == FOR_ALL || strcmp(routes[i].method, "HEAD") == 0)
            continue;
        struct answer answer = ask(routes[i].method, routes[i].path, routes[i].body, NULL);
        expect_answer(&answer, 401, "unauthorized", routes[i].path);
        ck_assert(answer_header(value, &answer, "WWW-Authenticate"));
        ck_assert_str_eq(value, "Bearer");
        ck_assert(!answer_header(value, &answer, "Allow"));
        json_object_del(json_object_get(answer.json, "error"), "request_id");
        char *text = json_dumps(answer.json, JSON_COMPACT);
        ck_assert_str_eq(text,
                         "{\"error\":{\"code\":\"unauthorized\",\"message\":\"this needs an API "
                         "key: Authorization: Bearer KEY, once\",\"param\":\"Authorization\","
                         "\"retryable\":false}}");
        free(text);
        answer_free(&answer);
    }
}

/* ---- Bodies of refused requests -------------------------------------------------------------- */

/* The declared length is above max_body_bytes, and no byte follows: a request with a key gets
 * 413. */
TEST(without_a_key_no_body_is_waited_for)
{
    static const char head[] =
        "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 999999999\r\n%s\r\n";
    char text[512];
    snprintf(text, sizeof text, head, "");
    struct raw_answer answer = raw_exchange("127.0.0.1", served.port, text, WAIT_MS);
    ck_assert_uint_eq(answer.status, 401);
    raw_answer_free(&answer);
    snprintf(text, sizeof text, head, "Expect: 100-continue\r\n");
    answer = raw_exchange("127.0.0.1", served.port, text, WAIT_MS);
    ck_assert_uint_eq(answer.status, 401);
    raw_answer_free(&answer);
    snprintf(text, sizeof text, head, "Authorization: Bearer " KEY_INFER "\r\n");
    answer = raw_exchange("127.0.0.1", served.port, text, WAIT_MS);
    ck_assert_uint_eq(answer.status, 413);
    raw_answer_free(&answer);
}

/* A short body is discarded, so that a proxy's connection serves the next caller. */
TEST(connection_goes_on_after_a_refusal)
{
    struct raw raw;
    static const char *const texts[] = {
        "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}",
        "GET /models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " KEY_INFER "\r\n\r\n",
        "GET /models HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    static const unsigned statuses[] = {401, 200, 401};
    raw_open(&raw, "127.0.0.1", served.port);
    for (size_t i = 0; i < 3; i++) {
        raw_text(&raw, texts[i]);
        struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
        ck_assert_uint_eq(answer.status, statuses[i]);
        raw_answer_free(&answer);
    }
    raw_close(&raw);
}

/* ---- Log and metrics ------------------------------------------------------------------------- */

TEST(log_names_the_key_and_never_shows_it)
{
    static const char path[] = "/models/none?key=" KEY_BOTH;
    struct answer answer;
    for (enum kind kind = NONE; kind < KINDS; kind++) {
        answer = ask("GET", path, NULL, fields[kind]);
        ck_assert_msg(strstr(answer.text, "0123456789abcdef") == NULL, "%s", answer.text);
        answer_free(&answer);
    }
    answer = ask("GET", "/metrics", NULL, fields[ADMIN]);
    ck_assert_ptr_null(strstr(answer.text, "0123456789abcdef"));
    ck_assert_ptr_nonnull(strstr(answer.text, "attnd_errors_total{code=\"unauthorized\"} 2\n"));
    ck_assert_ptr_nonnull(strstr(answer.text, "attnd_errors_total{code=\"forbidden\"} 1\n"));
    answer_free(&answer);
    char *log = daemon_log_with(&served, "\"route\":\"/metrics\"");
    ck_assert_msg(strstr(log, "0123456789abcdef") == NULL, "%s", log);
    ck_assert_ptr_nonnull(strstr(log, "\"caller\":\"router\",\"status\":404"));
    ck_assert_ptr_nonnull(strstr(log, "\"caller\":\"ops\",\"status\":403"));
    ck_assert_ptr_nonnull(strstr(log, "\"route\":\"/models/{name}\",\"status\":401"));
    free(log);
}

TEST(sessions_work_under_a_key_as_without)
{
    served.authorization = fields[INFER];
    call_create(&client, "a", "");
    expect_decode(&client, "a", 1, 0);
    expect_decode(&client, "a", 2, 1);
    ck_assert_uint_eq(call_length(&client, "a", 0), 2);
    call_delete(&client, "a");
}

/* ---- Starting -------------------------------------------------------------------------------- */

static void expect_start(const char *path, int status, const char *out, const char *err)
{
    char directory[64], config[96], flag[96], *got_out, *got_err;
    config_write(directory, config, CONFIG_SMALL(""));
    snprintf(flag, sizeof flag, "--api-keys=%s", path);
    const char *const check[] = {"--check", "--config", config, flag, NULL};
    ck_assert_int_eq(process_run(&got_out, &got_err, check, NULL), status);
    ck_assert_msg(strstr(got_out, out) != NULL, "%s", got_out);
    ck_assert_msg(strstr(got_err, err) != NULL, "%s", got_err);
    free(got_out);
    free(got_err);
    if (status != 0) {
        ck_assert_int_eq(process_run(&got_out, &got_err, check + 1, NULL), status);
        ck_assert_msg(strstr(got_err, err) != NULL, "%s", got_err);
        ck_assert_ptr_null(strstr(got_out, "ready"));
        free(got_out);
        free(got_err);
    }
    config_remove(directory);
}

CASE(starts, NULL, NULL, 0)

TEST(check_lists_names_and_scopes_and_a_bad_file_fails_it_and_the_start)
{
    char good[SECRET_PATH], limited[SECRET_PATH], bad[SECRET_PATH];
    secret_write(good, KEYS_THREE);
    secret_write(limited, "{\"keys\":[{\"name\":\"a\",\"key\":\"" KEY_INFER
                          "\",\"scopes\":[\"infer\"],\"group\":\"g\",\"requests_per_s\":7}],"
                          "\"defaults\":{\"max_sessions\":5}}");
    secret_write(bad, "{\"keys\":[{\"name\":\"a\"}]}");
    expect_start(good, 0, "api keys: 3\n  router: infer\n  ops: admin\n  lead: infer admin\n", "");
    expect_start(limited, 0, "  a: infer, group g, max_sessions 5, requests_per_s 7\n", "");
    expect_start(bad, 1, "", "keys[0].scopes: is missing");
    expect_start("/nonexistent", 1, "", "/nonexistent: No such file");
    unlink(good);
    unlink(limited);
    unlink(bad);
}

TEST(keys_that_cross_a_network_in_the_clear_are_warned_of)
{
    struct daemon open;
    char path[SECRET_PATH], flag[96];
    const char *const flags[] = {"--host=0.0.0.0", "--log=info", flag, NULL};
    secret_write(path, KEYS_THREE);
    snprintf(flag, sizeof flag, "--api-keys=%s", path);
    daemon_start(&open, CONFIG_SMALL(""), flags, NULL);
    char *log = daemon_log(&open);
    ck_assert_msg(strstr(log, "\"event\":\"exposed\",\"message\":\"no TLS") != NULL, "%s", log);
    free(log);
    daemon_stop(&open);
    unlink(path);
}

SUITE(keys)
