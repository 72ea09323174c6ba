/* test_limits.c: what a request may take from others, and what it leaves when it fails: memory,
 * scores, the queue, sessions of starts; fields that would be ignored; running out of
 * descriptors. */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "calls.h"
#include "clock.h"
#include "raw.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 120000 /* for an answer: sanitizers are slow */
#define LONG_ROWS 65   /* rows of a step that runs on its own */
#define SLOW_SECONDS 0.3
#define SLOW_HEADS 64
#define SLOW_ROWS 128
#define MAX_SLOW 64 /* slow computations at once */

/* One thread with portable kernels, which make long computations easy to have. */
#define CONFIG_SLOW(members) \
    CONFIG_SMALL("\"threads\":1,\"cpu_level\":\"portable\",\"max_tokens\":1048576," members)

static void expect_post(const char *path, const char *body, const char *const headers[],
                        long status, const char *code)
{
    struct answer answer = client_send(
        &client,
        &(struct request){.method = "POST", .path = path, .body = body, .headers = headers});
    expect_answer(&answer, status, code, path);
    answer_free(&answer);
}

static const char *item_code(const struct answer *answer, size_t i)
{
    const json_t *item = json_array_get(json_object_get(answer->json, "sequences"), i);
    const char *code = json_string_value(json_object_get(json_object_get(item, "error"), "code"));
    ck_assert_msg(item != NULL, "no item %zu in %.600s", i, answer->text);
    return code != NULL ? code : "";
}

/* Adds an item to the list of a /decode; an empty body first gets the list's beginning. */
static void add_item(struct text *body, const char *id, unsigned seed, size_t rows,
                     const char *extra)
{
    text_add(body, body->length > 0 ? ",{" : "{\"model\":\"tiny\",\"sequences\":[{");
    text_steps(body, id, seed, rows, extra);
    text_add(body, "}");
}

/* Adds a tensor of zeros with heads of width 1. */
static void add_zeros(struct text *body, const char *name, size_t heads, size_t tokens)
{
    text_add(body, "\"%s\":{\"shape\":[%zu,%zu,1],\"data\":[0", name, heads, tokens);
    for (size_t i = 1; i < heads * tokens; i++)
        text_add(body, ",0");
    text_add(body, "]}");
}

static void make_weightless(struct text *body, size_t heads, size_t queries, size_t keys)
{
    text_free(body);
    text_add(body, "{");
    add_zeros(body, "query", heads, queries);
    text_add(body, ",");
    add_zeros(body, "key", 1, keys);
    text_add(body, ",");
    add_zeros(body, "value", 1, keys);
    text_add(body, "}");
}

/* ---- Work that takes long -------------------------------------------------------------------- */

/* An /attend that takes SLOW_SECONDS or more on this machine. */
struct slow {
    struct text body;
    double seconds;
};

/* The faster of two runs counts, so that a hiccup of the machine does not. */
static void make_slow(struct slow *slow)
{
    *slow = (struct slow){0};
    for (size_t keys = 512; slow->seconds < SLOW_SECONDS; keys *= 2) {
        ck_assert_uint_le(keys, 1048576);
        make_weightless(&slow->body, SLOW_HEADS, SLOW_ROWS, keys);
        for (int i = 0; i < 2; i++) {
            double start = clock_s();
            expect_post("/attend", slow->body.data, NULL, 200, NULL);
            double seconds = clock_s() - start;
            slow->seconds = i == 0 || seconds < slow->seconds ? seconds : slow->seconds;
        }
    }
}

/* Opens a connection and sends the head of a POST; `more` is "" or fields, each with CR LF. */
static void send_head(struct raw *raw, const char *path, size_t length, const char *more)
{
    char head[256];
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n%s\r\n",
             path, length, more);
    raw_open(raw, served.host, served.port);
    ck_assert(raw_text(raw, head));
}

/* Sends a POST whose answer is read later. */
static void post_raw(struct raw *raw, const char *path, const char *body)
{
    send_head(raw, path, strlen(body), "");
    ck_assert(raw_text(raw, body));
}

static void expect_raw(struct raw *raw, unsigned status, const char *code)
{
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == status && strstr(answer.body, code) != NULL,
                  "expected %u %s, got %u: %.600s", status, code, answer.status,
                  answer.body != NULL ? answer.body : "");
    raw_answer_free(&answer);
    raw_close(raw);
}

static void await_depth(double depth)
{
    for (unsigned i = 0; call_metric(&client, "attnd_queue_depth") < depth; i++) {
        ck_assert_uint_lt(i, 5000);
        pause_ms(2);
    }
}

/* ---- Starts that fail ------------------------------------------------------------------------ */

CASE(small, serve_small, serve_end, 0)

TEST(failed_start_leaves_no_session_though_another_step_waits_for_it)
{
    struct text body = {0};
    add_item(&body, "s1", 1, 1, ",\"start\":true,\"position\":5");
    add_item(&body, "s1", 2, 1, ",\"position\":7");
    text_add(&body, "]}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "list");
    ck_assert_str_eq(item_code(&answer, 0), "position_gap");
    ck_assert_str_eq(item_code(&answer, 1), "session_not_found");
    ck_assert_int_eq(call_status(&client, "s1"), 404);
    answer_free(&answer);
    answer = call_decode(&client, "s1", 1, ",\"start\":true");
    expect_answer(&answer, 200, NULL, "start");
    expect_decode(&client, "s1", 2, 1);
    answer_free(&answer);
    text_free(&body);
}

/* Sends a prefill that starts a session; `extra` may make it fail. */
static void post_start(struct raw *raw, const char *id, const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"start\":true,");
    text_steps(&body, id, 1, LONG_ROWS, extra);
    text_add(&body, "}");
    post_raw(raw, "/attend", body.data);
    text_free(&body);
}

/* A round computes one prefill and one /attend: while the second /attend runs, the failing start
 * waits after another prefill, its session made.  False where the test was too slow to see that. */
static bool replace_waiting_start(const struct slow *slow, unsigned attempt)
{
    struct raw first, prefill, failing, second;
    char other[16], id[16], path[32];
    bool seen = false;
    snprintf(other, sizeof other, "other%u", attempt);
    snprintf(id, sizeof id, "x%u", attempt);
    snprintf(path, sizeof path, "/sessions/%s", id);
    post_raw(&first, "/attend", slow->body.data);
    await_depth(1);
    pause_ms(20); /* the first /attend is computed now */
    post_start(&prefill, other, "");
    post_start(&failing, id, ",\"position\":5");
    post_raw(&second, "/attend", slow->body.data);
    for (double deadline = clock_s() + 4 * slow->seconds; !seen && clock_s() < deadline;
         pause_ms(1))
        seen = call_status(&client, id) == 200;
    struct answer deleted = client_delete(&client, path);
    if (seen)
        call_create(&client, id, "");
    expect_raw(&first, 200, "output");
    expect_raw(&prefill, 200, "output");
    expect_raw(&failing, 409, "position_gap");
    expect_raw(&second, 200, "output");
    ck_assert_int_eq(call_status(&client, id), seen ? 200 : 404);
    bool replaced = seen && deleted.status == 204;
    answer_free(&deleted);
    return replaced;
}

TEST(start_with_an_epoch_is_refused_and_leaves_no_session)
{
    refuse_decode(&client, "early", 1, ",\"start\":true,\"epoch\":1", 409, "epoch_mismatch");
    ck_assert_int_eq(call_status(&client, "early"), 404);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

#define IN_FLIGHT                                                             \
    "\"max_in_flight_bytes\":1048576,\"max_client_in_flight_bytes\":1048576," \
    "\"max_body_bytes\":1048576,"

/* Sends the head of an upload and waits until it is answered: by 100 Continue, or refused. */
static void declare_upload(struct raw *raw, size_t length)
{
    send_head(raw, "/attend", length, "Expect: 100-continue\r\n");
    struct pollfd readable = {.fd = raw->fd, .events = POLLIN};
    ck_assert_int_eq(poll(&readable, 1, WAIT_MS), 1);
}

/* ---- Fields ---------------------------------------------------------------------------------- */

TEST(fields_that_would_be_ignored_are_refused)
{
    static const char weightless[] = "{\"query\":[[[1]]],\"key\":[[[1]]],\"value\":[[[1]]]%s}";
    static const char *const header[] = {"X-Session-Id: crossed", NULL};
    static const char *const extra[] = {",\"model\":\"tiny\"", ",\"layer\":0", ",\"layer\":1"};
    char body[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(body, sizeof body, weightless, extra[i]);
        expect_post("/attend", body, NULL, 400, "invalid_value");
    }
    snprintf(body, sizeof body, weightless, ",\"model\":null");
    expect_post("/attend", body, NULL, 200, NULL);
    expect_post("/attend", body, header, 400, "invalid_value");
    call_create(&client, "crossed", "");
    struct answer answer = call_prefill(
        &client, "crossed", 1, 2, ",\"encoder_hidden_states\":[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]");
    expect_answer(&answer, 400, "invalid_value", "encoder_hidden_states beside session_id");
    ck_assert_uint_eq(call_length(&client, "crossed", 0), 0);
    answer_free(&answer);
}

TEST(null_fields_of_a_new_session_count_as_left_out)
{
    static const char body[] =
        "{\"session_id\":null,\"model\":\"tiny\",\"max_length\":null,\"ttl_s\":null}";
    expect_post("/sessions", body, NULL, 201, NULL);
}

static void expect_no_allow(const char *method, const char *path, const char *body, long status)
{
    char value[256];
    struct answer answer =
        client_send(&client, &(struct request){.method = method, .path = path, .body = body});
    ck_assert_int_eq(answer.status, status);
    ck_assert_msg(!answer_header(value, &answer, "Allow"), "%s %s: Allow: %s", method, path, value);
    answer_free(&answer);
}

TEST(allow_is_sent_with_405_alone)
{
    char value[256];
    call_create(&client, "there", "");
    expect_no_allow("GET", "/sessions?limit=none", NULL, 400);
    expect_no_allow("POST", "/sessions", "{\"none\":1}", 400);
    expect_no_allow("DELETE", "/sessions/there", NULL, 204);
    expect_no_allow("DELETE", "/sessions/there", NULL, 404);
    struct answer answer = client_get(&client, "/decode");
    expect_answer(&answer, 405, "method_not_allowed", "GET /decode");
    ck_assert(answer_header(value, &answer, "Allow"));
    answer_free(&answer);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

/* Accepting begins again although one connection stays open all the while. */
TEST(clients_are_accepted_again_once_descriptors_have_run_out_and_come_back)
{
    struct rlimit before, none;
    struct raw raw;
    bool accepted = false;
    const pid_t pid = served.process.pid;
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
    none = (struct rlimit){1, before.rlim_max};
    ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &none, NULL), 0);
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n"));
    pause_ms(300);
    struct pollfd answered = {.fd = raw.fd, .events = POLLIN};
    ck_assert_int_eq(poll(&answered, 1, 0), 0);
    ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &before, NULL), 0);
    for (unsigned waited = 0; waited < 10000 && !accepted; waited += 50) {
        ck_assert_int_eq(call_status(&client, "nobody"), 404);
        accepted = poll(&answered, 1, 50) > 0;
    }
    ck_assert(accepted);
    expect_raw(&raw, 200, "");
}

CASE(configured, NULL, serve_end, 0)

TEST(failed_start_leaves_alone_a_session_that_others_made_under_its_id)
{
    struct slow slow;
    bool replaced = false;
    serve(CONFIG_SLOW(""));
    make_slow(&slow);
    for (unsigned i = 0; i < 5 && !replaced; i++)
        replaced = replace_waiting_start(&slow, i);
    ck_assert(replaced);
    text_free(&slow.body);
}

TEST(items_beyond_the_reply_bound_fail_alone_and_are_not_applied)
{
    enum { N = 30 };
    struct text body = {0};
    char id[16];
    unsigned applied = 0;
    serve(CONFIG_SMALL("\"max_reply_bytes\":20480,"));
    for (unsigned i = 0; i < N; i++) {
        snprintf(id, sizeof id, "item%u", i);
        call_create(&client, id, "");
        add_item(&body, id, i, 1, ",\"position\":0");
    }
    text_add(&body, "]}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "list");
    ck_assert_uint_le(answer.length, 20480);
    for (unsigned i = 0; i < N; i++) {
        bool good = item_code(&answer, i)[0] == '\0';
        snprintf(id, sizeof id, "item%u", i);
        if (!good)
            ck_assert_str_eq(item_code(&answer, i), "reply_too_large");
        ck_assert_uint_eq(call_length(&client, id, 0), good ? 1 : 0);
        applied += good;
    }
    ck_assert(applied > 0 && applied < N);
    answer_free(&answer);
    text_free(&body);
}

TEST(list_whose_errors_could_pass_the_reply_bound_is_refused_unapplied)
{
    enum { N = 200 };
    struct text body = {0};
    char id[16];
    serve(CONFIG_SMALL("\"max_reply_bytes\":16384,"));
    call_create(&client, "item0", "");
    for (unsigned i = 0; i < N; i++) {
        snprintf(id, sizeof id, "item%u", i);
        add_item(&body, id, i, 1, "");
    }
    text_add(&body, "]}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 422, "reply_too_large", "list");
    ck_assert_uint_eq(call_length(&client, "item0", 0), 0);
    answer_free(&answer);
    text_free(&body);
}

TEST(scores_beyond_the_bound_are_refused_and_leave_the_session)
{
    struct text body = {0};
    serve(CONFIG_SMALL("\"max_scores\":1000,"));
    make_weightless(&body, 1, 20, 50);
    expect_post("/attend", body.data, NULL, 200, NULL);
    make_weightless(&body, 1, 20, 51);
    expect_post("/attend", body.data, NULL, 422, "too_many_tokens");
    make_weightless(&body, 2, 20, 26);
    expect_post("/attend", body.data, NULL, 422, "too_many_tokens");
    call_create(&client, "scored", "");
    expect_decode(&client, "scored", 0, 0);
    struct answer answer = call_prefill(&client, "scored", 1, 16, ""); /* 4 heads x 16 x 17 */
    expect_answer(&answer, 422, "too_many_tokens", "prefill");
    ck_assert_uint_eq(call_length(&client, "scored", 0), 1);
    answer_free(&answer);
    answer = call_prefill(&client, "scored", 1, 15, ""); /* 4 x 15 x 16 */
    expect_answer(&answer, 200, NULL, "prefill within the bound");
    answer_free(&answer);
    text_free(&body);
}

TEST(lengths_that_are_only_declared_take_no_memory_from_others)
{
    static const size_t lengths[] = {262144, 262144, 1000000, 1000000};
    struct raw uploads[4];
    serve(CONFIG_SMALL(IN_FLIGHT));
    for (size_t i = 0; i < 4; i++)
        declare_upload(&uploads[i], lengths[i]);
    struct answer answer = call_decode(&client, "beside", 1, ",\"start\":true");
    expect_answer(&answer, 200, NULL, "beside declared lengths");
    answer_free(&answer);
    for (size_t i = 0; i < 4; i++)
        raw_close(&uploads[i]);
}

TEST(health_is_answered_while_uploads_use_up_the_memory)
{
    enum { LENGTH = 262144 };
    static const char *const paths[] = {"/healthz", "/health", "/livez", "/readyz"};
    static char bytes[LENGTH];
    struct raw uploads[4];
    memset(bytes, ' ', sizeof bytes);
    serve(CONFIG_SMALL(IN_FLIGHT));
    for (size_t i = 0; i < 4; i++) {
        declare_upload(&uploads[i], LENGTH);
        ck_assert(raw_slowly(&uploads[i], bytes, LENGTH - 1, 65536, 5));
    }
    for (unsigned i = 0; call_metric(&client, "attnd_in_flight_bytes") < 4 * (LENGTH - 1); i++) {
        ck_assert_uint_lt(i, 1000);
        pause_ms(5);
    }
    struct answer answer = call_decode(&client, "late", 1, ",\"start\":true");
    ck_assert_str_eq(answer_code(&answer), "out_of_memory");
    answer_free(&answer);
    for (size_t i = 0; i < 4; i++) {
        answer = client_get(&client, paths[i]);
        expect_answer(&answer, 200, NULL, paths[i]);
        answer_free(&answer);
    }
    for (size_t i = 0; i < 4; i++)
        raw_close(&uploads[i]);
}

/* Each step of the list waits for one slow computation, so the last of them waits for longer than
 * the 3 seconds that a session lives unused.  GET of the session does not prolong its life. */
TEST(session_is_not_expired_while_it_waits_in_a_long_queue)
{
    struct slow slow;
    struct raw raws[MAX_SLOW], list;
    struct text body = {0};
    serve(CONFIG_SLOW("\"session_ttl_s\":3,"));
    make_slow(&slow);
    size_t count = (size_t)(4.5 / slow.seconds) + 2;
    ck_assert_uint_lt(count, MAX_SLOW);
    for (unsigned i = 0; i < count; i++)
        add_item(&body, "patient", i, LONG_ROWS, i > 0 ? "" : ",\"start\":true");
    text_add(&body, "]}");
    for (size_t i = 0; i < count; i++)
        post_raw(&raws[i], "/attend", slow.body.data);
    await_depth(1);
    post_raw(&list, "/decode", body.data);
    expect_raw(&list, 200, "output");
    for (double until = clock_s() + 1.2; clock_s() < until;
         pause_ms(20)) /* sessions expire each second */
        ck_assert_int_eq(call_status(&client, "patient"), 200);
    expect_decode(&client, "patient", 1, LONG_ROWS * count);
    for (size_t i = 0; i < count; i++)
        expect_raw(&raws[i], 200, "output");
    text_free(&slow.body);
    text_free(&body);
}

CASE(stopping, NULL, NULL, 0)

TEST(end_does_not_wait_for_what_is_queued_once_the_time_to_drain_is_over)
{
    struct slow slow;
    struct raw raws[MAX_SLOW];
    size_t refused = 0;
    serve(CONFIG_SLOW("\"drain_timeout_s\":1,"));
    make_slow(&slow);
    double limit = 1 + 2 * slow.seconds + 3;
    size_t count = (size_t)(2 * limit / slow.seconds) + 1; /* together twice the limit */
    ck_assert_uint_le(count, MAX_SLOW);
    for (size_t i = 0; i < count; i++)
        post_raw(&raws[i], "/attend", slow.body.data);
    await_depth((double)count / 2);
    daemon_terminate(&served);
    double start = clock_s();
    daemon_expect_end(&served);
    ck_assert_double_lt(clock_s() - start, limit);
    for (size_t i = 0; i < count; i++) {
        struct raw_answer answer = raw_read(&raws[i], false, 5000);
        if (answer.status == 503)
            ck_assert_ptr_nonnull(strstr(answer.body, "draining"));
        ck_assert(answer.status == 503 || answer.status == 200 || answer.status == 0);
        refused += answer.status != 200;
        raw_answer_free(&answer);
        raw_close(&raws[i]);
    }
    ck_assert_uint_gt(refused, 0);
    client_close(&client);
    process_end(&served.process);
    text_free(&slow.body);
}

TEST(nobody_connected_and_no_descriptor_left_takes_no_processor_time)
{
    struct rlimit before, none;
    struct daemon daemon;
    struct raw raw;
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    ck_assert_int_eq(prlimit(daemon.process.pid, RLIMIT_NOFILE, NULL, &before), 0);
    none =
        (struct rlimit){4, before.rlim_max}; /* fewer than are open; poll takes no more entries */
    ck_assert_int_eq(prlimit(daemon.process.pid, RLIMIT_NOFILE, &none, NULL), 0);
    raw_open(&raw, daemon.host, daemon.port);
    ck_assert(raw_text(&raw, "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n"));
    pause_ms(100);
    double used = daemon_cpu_s(&daemon);
    pause_ms(1000);
    used = daemon_cpu_s(&daemon) - used;
    ck_assert_msg(used < 0.1, "%.2f s of a second", used);
    ck_assert_int_eq(prlimit(daemon.process.pid, RLIMIT_NOFILE, &before, NULL), 0);
    expect_raw(&raw, 200, "");
    daemon_stop(&daemon);
}

SUITE(limits)
