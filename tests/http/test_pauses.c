/* test_pauses.c: long computations give way: decodes of other sessions are answered while one runs,
 * steps of its own session wait for it, and one that outlasts the drain is stopped.  So is one
 * whose deadline passes or whose client leaves; what waits meanwhile is dropped uncomputed. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "raw.h"
#include "suites.h"

#define WIDTH 64
#define TOKENS 4096   /* one thread with portable kernels takes a second or two for them, */
#define ENDLESS 20480 /* and a good part of a minute for these */
#define STEPS 10
#define FEW_ROWS 64                      /* of a step, */
#define STEPPERS (INSTRUMENTED ? 3 : 12) /* of each of these sessions, */
#define SHARED_STEPS 100                 /* far fewer of which are a long call's time */
#define WAIT_MS 120000                   /* for an answer: sanitizers are slow */

#define CONFIG(members)                                                                      \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\"," members "\"models\":[{\"name\":" \
    "\"slow\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":16,\"is_causal\":true," \
    "\"seed\":1}}]}"

/* A request that takes long, on a thread and a connection of its own. */
struct long_call {
    const struct daemon *daemon;
    const char *path;
    const char *const *headers;
    struct text body;
    pthread_t thread;
    atomic_bool answered;
    struct answer answer;
};

static void add_rows(struct text *body, size_t rows)
{
    text_add(body, "\"hidden_states\":{\"shape\":[%zu,%d],\"data\":[", rows, WIDTH);
    for (size_t i = 0; i < rows * WIDTH; i++)
        text_add(body, i > 0 ? ",%zu" : "%zu", i * 7 % 11);
    text_add(body, "]}}");
}

static void *call_long(void *argument)
{
    struct long_call *call = argument;
    struct client own;
    client_open(&own, call->daemon);
    call->answer = client_send(&own, &(struct request){.method = "POST",
                                                       .path = call->path,
                                                       .body = call->body.data,
                                                       .headers = call->headers});
    atomic_store(&call->answered, true);
    client_close(&own);
    return NULL;
}

static void await_depth(struct client *client, double low, double high)
{
    double depth = -1;
    for (unsigned tries = 0; depth < low || depth > high; tries++) {
        ck_assert_uint_lt(tries, WAIT_MS / 2);
        pause_ms(2);
        depth = call_metric(client, "attnd_queue_depth");
    }
}

/* Sends the call and waits until it is queued. */
static void long_send(struct long_call *call, struct client *client)
{
    ck_assert_int_eq(pthread_create(&call->thread, NULL, call_long, call), 0);
    await_depth(client, 1, 100);
}

/* Begins POST /attend of so many rows, `members` before them. */
static void long_begin_with(struct long_call *call, struct client *client,
                            const char *const headers[], const char *members, size_t rows)
{
    *call = (struct long_call){.daemon = client->daemon, .path = "/attend", .headers = headers};
    text_add(&call->body, "{%s", members);
    add_rows(&call->body, rows);
    long_send(call, client);
}

static void long_begin(struct long_call *call, struct client *client, const char *members,
                       size_t rows)
{
    long_begin_with(call, client, NULL, members, rows);
}

static void long_end(struct long_call *call, long status, const char *code)
{
    pthread_join(call->thread, NULL);
    expect_answer(&call->answer, status, code, "the long call");
    answer_free(&call->answer);
    text_free(&call->body);
}

/* One row to /decode; returns the position it got. */
static json_int_t step(struct client *client, const char *id, bool start)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",%s", id, start ? "\"start\":true," : "");
    add_rows(&body, 1);
    struct answer answer = client_post(client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, id);
    json_int_t position = answer_integer(&answer, "position");
    answer_free(&answer);
    text_free(&body);
    return position;
}

/* Several, one after the other: the first few may have come before the long one began. */
static void expect_steps_beside(struct client *client, const struct long_call *call)
{
    for (int i = 0; i < STEPS; i++)
        ck_assert_int_eq(step(client, "short", i == 0), i);
    ck_assert_msg(!atomic_load(&call->answered), "the long call was answered first: %s",
                  call->answer.text);
}

START_TEST(test_decodes_are_answered_while_a_long_attend_runs)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    daemon_start(&daemon, CONFIG(""), NULL, NULL);
    client_open(&client, &daemon);
    long_begin(&call, &client, "", TOKENS);
    expect_steps_beside(&client, &call);
    long_end(&call, 200, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}
END_TEST

START_TEST(test_decodes_are_answered_while_a_prefill_runs_and_those_of_its_session_follow_it)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    daemon_start(&daemon, CONFIG(""), NULL, NULL);
    client_open(&client, &daemon);
    long_begin(&call, &client, "\"session_id\":\"long\",\"start\":true,", TOKENS);
    for (unsigned tries = 0; call_status(&client, "long") != 200; tries++) {
        ck_assert_uint_lt(tries, 5000);
        pause_ms(2);
    }
    expect_steps_beside(&client, &call);
    ck_assert_int_eq(step(&client, "long", false), TOKENS);
    long_end(&call, 200, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}
END_TEST

/* Steps of many rows over long sessions, one after the other, until the long call is answered. */
struct stepper {
    const struct daemon *daemon;
    const struct long_call *beside;
    char id[8];
    pthread_t thread;
    unsigned steps;
};

static void *step_main(void *argument)
{
    struct stepper *stepper = argument;
    struct client own;
    struct text body = {0};
    client_open(&own, stepper->daemon);
    text_add(&body, "{\"session_id\":\"%s\",\"commit\":false,", stepper->id);
    add_rows(&body, FEW_ROWS);
    while (!atomic_load(&stepper->beside->answered) && stepper->steps < SHARED_STEPS) {
        struct answer answer = client_post(&own, "/decode", body.data);
        expect_answer(&answer, 200, NULL, stepper->id);
        answer_free(&answer);
        stepper->steps++;
    }
    text_free(&body);
    client_close(&own);
    return NULL;
}

/* Each batch takes longer than it is between two looks at what waits. */
START_TEST(test_a_long_attend_gets_its_share_beside_batches_of_any_length)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    struct stepper steppers[STEPPERS];
    daemon_start(&daemon, CONFIG(""), NULL, NULL);
    client_open(&client, &daemon);
    long_begin(&call, &client, "\"session_id\":\"s0\",\"start\":true,", TOKENS);
    long_end(&call, 200, NULL);
    for (unsigned i = 1; i < STEPPERS; i++) {
        char body[32];
        snprintf(body, sizeof body, "{\"session_id\":\"s%u\"}", i);
        struct answer answer = client_post(&client, "/sessions/s0/fork", body);
        expect_answer(&answer, 201, NULL, body);
        answer_free(&answer);
    }
    long_begin(&call, &client, "", TOKENS);
    for (unsigned i = 0; i < STEPPERS; i++) {
        steppers[i] = (struct stepper){.daemon = &daemon, .beside = &call};
        snprintf(steppers[i].id, sizeof steppers[i].id, "s%u", i);
        ck_assert_int_eq(pthread_create(&steppers[i].thread, NULL, step_main, &steppers[i]), 0);
    }
    for (unsigned i = 0; i < STEPPERS; i++) {
        pthread_join(steppers[i].thread, NULL);
        ck_assert_uint_lt(steppers[i].steps, SHARED_STEPS);
    }
    long_end(&call, 200, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}
END_TEST

START_TEST(test_what_outlasts_the_drain_is_stopped_and_told_so)
{
    struct daemon daemon;
    struct client client;
    struct long_call attend, prefill;
    daemon_start(&daemon, CONFIG("\"drain_timeout_s\":1,"), NULL, NULL);
    client_open(&client, &daemon);
    long_begin(&attend, &client, "", ENDLESS);
    long_begin(&prefill, &client, "\"session_id\":\"long\",\"start\":true,", ENDLESS);
    await_depth(&client, 2, 2);
    expect_steps_beside(&client, &attend);
    daemon_terminate(&daemon);
    long_end(&attend, 503, "draining");
    long_end(&prefill, 503, "draining");
    daemon_expect_end(&daemon);
    client_close(&client);
}
END_TEST

/* ---- Deadlines ------------------------------------------------------------------------------- */

static const char *const soon[] = {"X-Deadline-Ms: 300", NULL};
static const char *const late[] = {"X-Deadline-Ms: 86400000", NULL};

static void begin(struct daemon *daemon, struct client *client)
{
    daemon_start(daemon, CONFIG(""), NULL, NULL);
    client_open(client, daemon);
}

static void end(struct daemon *daemon, struct client *client)
{
    client_close(client);
    daemon_stop(daemon);
}

START_TEST(test_attend_whose_deadline_passes_while_it_runs_is_stopped)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    begin(&daemon, &client);
    long_begin_with(&call, &client, soon, "", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), 0);
    long_begin_with(&call, &client, late, "", TOKENS);
    long_end(&call, 200, NULL);
    end(&daemon, &client);
}
END_TEST

START_TEST(test_prefill_whose_deadline_passes_leaves_its_session_as_it_was)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    begin(&daemon, &client);
    ck_assert_int_eq(step(&client, "kept", true), 0);
    long_begin_with(&call, &client, soon, "\"session_id\":\"kept\",", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_int_eq(step(&client, "kept", false), 1);
    long_begin_with(&call, &client, soon, "\"session_id\":\"begun\",\"start\":true,", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_int_eq(call_status(&client, "begun"), 404);
    end(&daemon, &client);
}
END_TEST

/* Rows of attends are counted when they are computed. */
START_TEST(test_what_waits_beyond_its_deadline_is_told_so_then_and_not_computed)
{
    struct daemon daemon;
    struct client client;
    struct long_call first, second;
    begin(&daemon, &client);
    long_begin(&first, &client, "", TOKENS);
    long_begin_with(&second, &client, soon, "", TOKENS);
    long_end(&second, 504, "deadline_exceeded");
    ck_assert(!atomic_load(&first.answered));
    long_end(&first, 200, NULL);
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), TOKENS);
    end(&daemon, &client);
}
END_TEST

/* ---- Heavy steps ----------------------------------------------------------------------------- */

#define LONG_SESSION 8192
#define HEAVY_CONFIG                                                                            \
    "{\"port\":0,\"threads\":1,\"models\":[{\"name\":\"heavy\",\"random\":{\"hidden_size\":64," \
    "\"num_attention_heads\":16,\"num_key_value_heads\":1,\"head_dim\":128,\"is_causal\":true," \
    "\"seed\":1}}]}"

/* Steps over as many sessions h0, h1, ...: those of 64 rows are long each for itself, the others
 * together. */
static const struct heavy {
    size_t items, rows;
} heavies[] = {{6, 64}, {64, 6}};
#define NUM_HEAVIES 2
#define PART 3 /* of the time of all: a tenth is usual */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void begin_heavy(struct daemon *daemon, struct client *client, size_t sessions,
                        size_t tokens)
{
    struct long_call call;
    daemon_start(daemon, HEAVY_CONFIG, NULL, NULL);
    client_open(client, daemon);
    long_begin(&call, client, "\"session_id\":\"h0\",\"start\":true,\"sliding_window\":1,", tokens);
    long_end(&call, 200, NULL);
    for (size_t i = 1; i < sessions; i++) {
        char body[32];
        snprintf(body, sizeof body, "{\"session_id\":\"h%zu\"}", i);
        struct answer answer = client_post(client, "/sessions/h0/fork", body);
        expect_answer(&answer, 201, NULL, body);
        answer_free(&answer);
    }
}

/* All in one request. */
static void send_heavy(struct long_call *call, struct client *client, const char *const headers[],
                       const struct heavy *heavy)
{
    *call = (struct long_call){.daemon = client->daemon, .path = "/decode", .headers = headers};
    text_add(&call->body, "{\"sequences\":[");
    for (size_t i = 0; i < heavy->items; i++) {
        text_add(&call->body, "%s{\"session_id\":\"h%zu\",\"commit\":false,", i > 0 ? "," : "", i);
        add_rows(&call->body, heavy->rows);
    }
    text_add(&call->body, "]}");
    long_send(call, client);
}

/* None of the other's steps waits for more than a small part of the request. */
START_TEST(test_decodes_are_answered_beside_a_request_of_heavy_steps_over_long_sessions)
{
    struct daemon daemon;
    struct client client;
    struct long_call call;
    begin_heavy(&daemon, &client, heavies[_i].items, LONG_SESSION);
    ck_assert_int_eq(step(&client, "short", true), 0);
    double began = now_ms(), longest = 0;
    send_heavy(&call, &client, NULL, &heavies[_i]);
    while (!atomic_load(&call.answered)) {
        double asked = now_ms();
        (void)step(&client, "short", false);
        longest = fmax(longest, now_ms() - asked);
    }
    double whole = now_ms() - began;
    ck_assert_msg(longest * PART < whole, "a decode took %.1f ms beside a request of %.1f ms",
                  longest, whole);
    long_end(&call, 200, NULL);
    end(&daemon, &client);
}
END_TEST

START_TEST(test_rows_of_32_sessions_of_4096_tokens_are_one_batch)
{
    static const struct heavy usual = {32, 1};
    struct daemon daemon;
    struct client client;
    struct long_call call;
    begin_heavy(&daemon, &client, usual.items, 4096);
    send_heavy(&call, &client, NULL, &usual);
    long_end(&call, 200, NULL);
    ck_assert_double_eq(call_metric(&client, "attnd_decode_batch_size_count"), 1);
    end(&daemon, &client);
}
END_TEST

/* Of a list those that were not computed say so; rows are counted when they are computed. */
START_TEST(test_heavy_steps_whose_deadline_passes_are_stopped_or_not_begun)
{
    const struct heavy *heavy = &heavies[_i];
    struct daemon daemon;
    struct client client;
    struct long_call call;
    begin_heavy(&daemon, &client, heavy->items, LONG_SESSION);
    send_heavy(&call, &client, soon, heavy);
    pthread_join(call.thread, NULL);
    expect_answer(&call.answer, 200, NULL, "the list");
    ck_assert_ptr_nonnull(strstr(call.answer.text, "\"deadline_exceeded\""));
    ck_assert_double_lt(call_metric(&client, "attnd_decode_rows_total"),
                        (double)(heavy->items * heavy->rows));
    answer_free(&call.answer);
    text_free(&call.body);
    ck_assert_int_eq(step(&client, "h0", false), LONG_SESSION);
    end(&daemon, &client);
}
END_TEST

/* ---- Clients that leave ---------------------------------------------------------------------- */

#define GONE "attnd_errors_total{code=\"client_gone\"}"

/* Sends a POST of so many rows whose answer is read later, or never. */
static void post_raw(struct raw *raw, const struct daemon *daemon, const char *path,
                     const char *members, size_t rows)
{
    struct text body = {0}, head = {0};
    text_add(&body, "{%s", members);
    add_rows(&body, rows);
    text_add(&head,
             "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             path, body.length);
    raw_open(raw, daemon->host, daemon->port);
    ck_assert(raw_text(raw, head.data) && raw_text(raw, body.data));
    text_free(&body);
    text_free(&head);
}

/* It is counted when its connection ends, a little after it has left the queue. */
static void await_gone(struct client *client, double count)
{
    for (unsigned waited = 0; call_metric(client, GONE) < count && waited < WAIT_MS; waited += 5)
        pause_ms(5);
    ck_assert_double_eq(call_metric(client, GONE), count);
}

START_TEST(test_attend_whose_client_leaves_is_stopped)
{
    struct daemon daemon;
    struct client client;
    struct raw leaving;
    begin(&daemon, &client);
    for (int reset = 0; reset < 2; reset++) {
        post_raw(&leaving, &daemon, "/attend", "", ENDLESS);
        await_depth(&client, 1, 1);
        (reset ? raw_reset : raw_close)(&leaving);
        await_depth(&client, 0, 0);
        await_gone(&client, reset + 1);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), 0);
    end(&daemon, &client);
}
END_TEST

START_TEST(test_step_whose_client_leaves_while_it_waits_is_not_applied)
{
    static const char session[] = "\"session_id\":\"long\",";
    struct daemon daemon;
    struct client client;
    struct long_call call;
    struct raw leaving, staying;
    begin(&daemon, &client);
    ck_assert_int_eq(step(&client, "long", true), 0);
    long_begin(&call, &client, session, TOKENS);
    pause_ms(50); /* it runs, and has the session */
    post_raw(&leaving, &daemon, "/decode", session, 1);
    post_raw(&staying, &daemon, "/decode", session, 1);
    await_depth(&client, 3, 3);
    raw_close(&leaving);
    raw_half_close(&staying);
    long_end(&call, 200, NULL);
    struct raw_answer answer = raw_read(&staying, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    raw_close(&staying);
    await_depth(&client, 0, 0);
    await_gone(&client, 1);
    ck_assert_int_eq(step(&client, "long", false), TOKENS + 2);
    end(&daemon, &client);
}
END_TEST

/* ---- One session ----------------------------------------------------------------------------- */

static void expect_position(struct raw *raw, size_t position)
{
    char want[40];
    snprintf(want, sizeof want, "\"position\":%zu,", position);
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    ck_assert_msg(strstr(answer.body, want) != NULL, "no %s in %.200s", want, answer.body);
    raw_answer_free(&answer);
}

START_TEST(test_two_wait_for_a_session_that_is_busy_and_a_third_is_told_when_to_come_again)
{
    static const char session[] = "\"session_id\":\"long\",";
    struct daemon daemon;
    struct client client;
    struct long_call call;
    struct raw waiting[2], third;
    char after[256];
    begin(&daemon, &client);
    ck_assert_int_eq(step(&client, "long", true), 0);
    long_begin(&call, &client, session, TOKENS);
    pause_ms(50); /* it runs, and has the session */
    for (size_t i = 0; i < 2; i++) {
        post_raw(&waiting[i], &daemon, "/decode", session, 1);
        await_depth(&client, (double)i + 2, (double)i + 2);
    }
    pause_ms(50); /* they have been read */
    post_raw(&third, &daemon, "/decode", session, 1);
    struct raw_answer answer = raw_read(&third, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 429);
    ck_assert_ptr_nonnull(strstr(answer.body, "session_busy"));
    ck_assert(raw_header(after, &answer, "Retry-After"));
    ck_assert(strtol(after, NULL, 10) >= 1 && strtol(after, NULL, 10) <= 60);
    ck_assert(!atomic_load(&call.answered));
    raw_answer_free(&answer);
    raw_close(&third);
    long_end(&call, 200, NULL);
    for (size_t i = 0; i < 2; i++) {
        expect_position(&waiting[i], TOKENS + 1 + i);
        raw_close(&waiting[i]);
    }
    end(&daemon, &client);
}
END_TEST

/* A body beyond 256 KiB is read by another thread; a connection has its answers in order all the
 * same. */
START_TEST(test_requests_of_one_connection_are_applied_in_their_order)
{
    static const char path[] = "/attend", session[] = "\"session_id\":\"order\",";
    struct daemon daemon;
    struct client client;
    struct raw raw;
    struct text both = {0};
    begin(&daemon, &client);
    ck_assert_int_eq(step(&client, "order", true), 0);
    post_raw(&raw, &daemon, path, session, 3000); /* some 380 KB */
    for (size_t i = 0; i < 2; i++) {
        struct text body = {0};
        text_add(&body, "{%s", session);
        add_rows(&body, 1);
        text_add(&both,
                 "POST /decode HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 body.length, body.data);
        text_free(&body);
    }
    ck_assert(raw_text(&raw, both.data));
    expect_position(&raw, 1);
    expect_position(&raw, 3001);
    expect_position(&raw, 3002);
    raw_close(&raw);
    text_free(&both);
    end(&daemon, &client);
}
END_TEST

Suite *suite_pauses(void)
{
    Suite *suite = suite_create("pauses");
    TCase *pauses = tcase_create("pauses");
    tcase_add_test(pauses, test_decodes_are_answered_while_a_long_attend_runs);
    tcase_add_test(
        pauses, test_decodes_are_answered_while_a_prefill_runs_and_those_of_its_session_follow_it);
    tcase_add_test(pauses, test_a_long_attend_gets_its_share_beside_batches_of_any_length);
    tcase_add_test(pauses, test_what_outlasts_the_drain_is_stopped_and_told_so);
    suite_add_tcase(suite, pauses);
    TCase *steps = tcase_create("heavy");
    tcase_add_loop_test(
        steps, test_decodes_are_answered_beside_a_request_of_heavy_steps_over_long_sessions, 0,
        NUM_HEAVIES);
    tcase_add_test(steps, test_rows_of_32_sessions_of_4096_tokens_are_one_batch);
    tcase_add_loop_test(steps, test_heavy_steps_whose_deadline_passes_are_stopped_or_not_begun, 0,
                        NUM_HEAVIES);
    suite_add_tcase(suite, steps);
    TCase *useless = tcase_create("useless");
    tcase_add_test(useless, test_attend_whose_deadline_passes_while_it_runs_is_stopped);
    tcase_add_test(useless, test_prefill_whose_deadline_passes_leaves_its_session_as_it_was);
    tcase_add_test(useless, test_what_waits_beyond_its_deadline_is_told_so_then_and_not_computed);
    tcase_add_test(useless, test_attend_whose_client_leaves_is_stopped);
    tcase_add_test(useless, test_step_whose_client_leaves_while_it_waits_is_not_applied);
    suite_add_tcase(suite, useless);
    TCase *session = tcase_create("session");
    tcase_add_test(session,
                   test_two_wait_for_a_session_that_is_busy_and_a_third_is_told_when_to_come_again);
    tcase_add_test(session, test_requests_of_one_connection_are_applied_in_their_order);
    suite_add_tcase(suite, session);
    return suite;
}
