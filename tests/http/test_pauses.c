/* test_pauses.c: long computations give way.  Decodes of other sessions are answered while a long
 * computation runs, and steps of its own session wait for its end.  A long computation is stopped
 * when the drain ends, its deadline passes or its client leaves; requests that wait are dropped
 * uncomputed for the same reasons. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "long_call.h"
#include "served.h"
#include "suites.h"

#define TOKENS 3072   /* a second or so of one thread with portable kernels */
#define ENDLESS 20480 /* a good part of a minute of the same */
#define STEPS 10
#define FEW_ROWS 64                      /* most rows of a step that is not long */
#define STEPPERS (INSTRUMENTED ? 3 : 12) /* sessions with a caller each */
#define SHARED_STEPS 100                 /* far more steps than fit into a long call's time */

#define CONFIG(members)                                                                      \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\"," members "\"models\":[{\"name\":" \
    "\"slow\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":16,\"is_causal\":true," \
    "\"seed\":1}}]}"

/* Waits until a session exists: a step that creates one does so when it is queued. */
static void await_session(const char *id)
{
    for (unsigned tries = 0; call_status(&client, id) != 200; tries++) {
        ck_assert_uint_lt(tries, WAIT_MS / 2);
        pause_ms(2);
    }
}

/* Several steps, one after the other: the first few may come before the long computation begins. */
static void expect_steps_beside(const struct long_call *call)
{
    for (int i = 0; i < STEPS; i++)
        ck_assert_int_eq(step(&client, "short", i == 0), i);
    ck_assert_msg(!atomic_load(&call->answered), "the long call was answered first: %s",
                  call->answer.text);
}

TEST(decodes_are_answered_while_a_long_attend_runs)
{
    struct long_call call;
    serve(CONFIG(""));
    long_begin(&call, &client, "", TOKENS);
    expect_steps_beside(&call);
    long_end(&call, 200, NULL);
    serve_end();
}

TEST(decodes_are_answered_while_a_prefill_runs_and_those_of_its_session_follow_it)
{
    struct long_call call;
    serve(CONFIG(""));
    long_begin(&call, &client, "\"session_id\":\"long\",\"start\":true,", TOKENS);
    await_session("long");
    expect_steps_beside(&call);
    ck_assert_int_eq(step(&client, "long", false), TOKENS);
    long_end(&call, 200, NULL);
    serve_end();
}

/* A caller of steps of many rows over a long session, until the long call is answered. */
struct stepper {
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
    client_open(&own, &served);
    text_add(&body, "{\"session_id\":\"%s\",\"commit\":false,", stepper->id);
    add_rows(&body, FEW_ROWS);
    while (!atomic_load(&stepper->beside->answered) && stepper->steps < SHARED_STEPS) {
        expect_posted(&own, "/decode", body.data, 200, NULL);
        stepper->steps++;
    }
    text_free(&body);
    client_close(&own);
    return NULL;
}

/* Each batch takes longer than the time between two searches for cancelled requests. */
TEST(a_long_attend_gets_its_share_beside_batches_of_any_length)
{
    struct long_call call;
    struct stepper steppers[STEPPERS];
    serve(CONFIG(""));
    long_begin(&call, &client, "\"session_id\":\"s0\",\"start\":true,", TOKENS);
    long_end(&call, 200, NULL);
    for (unsigned i = 1; i < STEPPERS; i++) {
        char id[32];
        snprintf(id, sizeof id, "s%u", i);
        call_fork(&client, "s0", id, "");
    }
    long_begin(&call, &client, "", TOKENS);
    for (unsigned i = 0; i < STEPPERS; i++) {
        steppers[i] = (struct stepper){.beside = &call};
        snprintf(steppers[i].id, sizeof steppers[i].id, "s%u", i);
        ck_assert_int_eq(pthread_create(&steppers[i].thread, NULL, step_main, &steppers[i]), 0);
    }
    for (unsigned i = 0; i < STEPPERS; i++) {
        pthread_join(steppers[i].thread, NULL);
        ck_assert_uint_lt(steppers[i].steps, SHARED_STEPS);
    }
    long_end(&call, 200, NULL);
    serve_end();
}

TEST(long_calls_that_outlast_the_drain_are_stopped_and_refused)
{
    struct long_call attend, prefill;
    serve(CONFIG("\"drain_timeout_s\":1,"));
    long_begin(&attend, &client, "", ENDLESS);
    long_begin(&prefill, &client, "\"session_id\":\"long\",\"start\":true,", ENDLESS);
    await_depth(&client, 2, 2);
    expect_steps_beside(&attend);
    daemon_terminate(&served);
    long_end(&attend, 503, "draining");
    long_end(&prefill, 503, "draining");
    daemon_expect_end(&served);
    client_close(&client);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static const char *const soon[] = {"X-Deadline-Ms: 100", NULL};
static const char *const late[] = {"X-Deadline-Ms: 86400000", NULL};

TEST(attend_whose_deadline_passes_while_it_runs_is_stopped)
{
    struct long_call call;
    serve(CONFIG(""));
    long_begin_with(&call, &client, soon, "", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), 0);
    long_begin_with(&call, &client, late, "", TOKENS);
    long_end(&call, 200, NULL);
    serve_end();
}

TEST(prefill_whose_deadline_passes_leaves_its_session_as_it_was)
{
    struct long_call call;
    serve(CONFIG(""));
    ck_assert_int_eq(step(&client, "kept", true), 0);
    long_begin_with(&call, &client, soon, "\"session_id\":\"kept\",", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_int_eq(step(&client, "kept", false), 1);
    long_begin_with(&call, &client, soon, "\"session_id\":\"begun\",\"start\":true,", ENDLESS);
    long_end(&call, 504, "deadline_exceeded");
    ck_assert_int_eq(call_status(&client, "begun"), 404);
    serve_end();
}

/* The metric counts the rows of attends when they are computed. */
TEST(attend_that_waits_beyond_its_deadline_is_refused_then_and_not_computed)
{
    struct long_call first, second;
    serve(CONFIG(""));
    long_begin(&first, &client, "", TOKENS);
    long_begin_with(&second, &client, soon, "", TOKENS);
    long_end(&second, 504, "deadline_exceeded");
    ck_assert(!atomic_load(&first.answered));
    long_end(&first, 200, NULL);
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), TOKENS);
    serve_end();
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

#define GONE "attnd_errors_total{code=\"client_gone\"}"

/* Posts a call of so many rows on a connection of its own. */
static void post_raw(struct raw *raw, const char *path, const char *members, size_t rows)
{
    struct text body = {0};
    text_add(&body, "{%s", members);
    add_rows(&body, rows);
    post_body(raw, &served, path, "1.1", "", &body);
}

/* The sample is there from the first client on that has left. */
static double count_gone(void)
{
    struct answer answer = client_get(&client, "/metrics");
    expect_answer(&answer, 200, NULL, GONE);
    const char *sample = strstr(answer.text, GONE " ");
    double count = sample != NULL ? strtod(sample + strlen(GONE), NULL) : 0;
    answer_free(&answer);
    return count;
}

/* A request is counted when its connection ends, a little after it has left the queue. */
static void await_gone(double count)
{
    for (unsigned waited = 0; count_gone() < count && waited < WAIT_MS; waited += 5)
        pause_ms(5);
    ck_assert_double_eq(count_gone(), count);
}

TEST(attend_whose_client_leaves_is_stopped)
{
    struct raw leaving;
    serve(CONFIG(""));
    for (int reset = 0; reset < 2; reset++) {
        post_raw(&leaving, "/attend", "", ENDLESS);
        await_depth(&client, 1, 1);
        (reset ? raw_reset : raw_close)(&leaving);
        await_depth(&client, 0, 0);
        await_gone(reset + 1);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_attend_rows_total"), 0);
    serve_end();
}

/* A client of HTTP/1.0 takes no interim reply, by which attnd could see whether it still reads. */
TEST(client_of_http_1_0_that_ends_its_side_has_left_and_is_sent_nothing)
{
    struct raw leaving;
    struct text body = {0};
    serve(CONFIG(""));
    text_add(&body, "{");
    add_rows(&body, ENDLESS);
    post_body(&leaving, &served, "/attend", "1.0", "", &body);
    await_depth(&client, 1, 1);
    raw_half_close(&leaving);
    ck_assert(raw_read_to_end(&leaving, WAIT_MS));
    ck_assert_msg(leaving.length == 0, "%s", leaving.data);
    raw_close(&leaving);
    await_gone(1);
    serve_end();
}

TEST(step_whose_client_leaves_while_it_waits_is_not_applied)
{
    static const char session[] = "\"session_id\":\"long\",";
    struct long_call call;
    struct raw leaving, staying;
    serve(CONFIG(""));
    long_begin(&call, &client, "\"session_id\":\"long\",\"start\":true,", 2 * TOKENS);
    await_session("long");
    post_raw(&leaving, "/decode", session, 1);
    post_raw(&staying, "/decode", session, 1);
    await_depth(&client, 3, 3);
    raw_close(&leaving);
    raw_half_close(&staying);
    await_depth(&client, 2, 2);
    ck_assert(!atomic_load(&call.answered));
    long_end(&call, 200, NULL);
    struct raw_answer answer = raw_read(&staying, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    raw_close(&staying);
    await_depth(&client, 0, 0);
    await_gone(1);
    ck_assert_int_eq(step(&client, "long", false), 2 * TOKENS + 1);
    serve_end();
}

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

TEST(two_wait_for_a_busy_session_and_a_third_is_refused_with_retry_after)
{
    static const char session[] = "\"session_id\":\"long\",";
    struct long_call call;
    struct raw waiting[2], third;
    char after[256];
    serve(CONFIG(""));
    ck_assert_int_eq(step(&client, "long", true), 0);
    long_begin(&call, &client, session, TOKENS);
    pause_ms(50); /* until the prefill runs */
    for (size_t i = 0; i < 2; i++) {
        post_raw(&waiting[i], "/decode", session, 1);
        await_depth(&client, (double)i + 2, (double)i + 2);
    }
    pause_ms(50); /* until both have been read */
    post_raw(&third, "/decode", session, 1);
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
    serve_end();
}

static void expect_refused(struct raw *raw, unsigned status, const char *code)
{
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, status);
    ck_assert_msg(strstr(answer.body, code) != NULL, "no %s in %.200s", code, answer.body);
    raw_answer_free(&answer);
    raw_close(raw);
}

TEST(step_whose_deadline_passes_during_a_prefill_is_refused_then_and_not_applied)
{
    static const char session[] = "\"session_id\":\"long\",";
    struct long_call call;
    struct raw staying, dropped;
    struct text body = {0};
    serve(CONFIG(""));
    long_begin(&call, &client, "\"session_id\":\"long\",\"start\":true,", TOKENS);
    await_session("long");
    post_raw(&staying, "/decode", session, 1);
    await_depth(&client, 2, 2);
    text_add(&body, "{%s", session);
    add_rows(&body, 1);
    post_body(&dropped, &served, "/decode", "1.1", "X-Deadline-Ms: 100\r\n", &body);
    expect_refused(&dropped, 504, "deadline_exceeded");
    ck_assert(!atomic_load(&call.answered));
    long_end(&call, 200, NULL);
    expect_position(&staying, TOKENS);
    raw_close(&staying);
    ck_assert_int_eq(step(&client, "long", false), TOKENS + 1);
    serve_end();
}

/* Posts two steps in one request, which counts as one that waits for the session. */
static void post_list(struct raw *raw, const char *session)
{
    struct text body = {0};
    text_add(&body, "{\"sequences\":[{%s", session);
    add_rows(&body, FEW_ROWS + 1);
    text_add(&body, ",{%s", session);
    add_rows(&body, FEW_ROWS + 1);
    text_add(&body, "]}");
    post_body(raw, &served, "/decode", "1.1", "", &body);
}

/* The list comes before the session's other steps, between two of them, or after them.  Three
 * requests may wait for the session. */
TEST_EACH(list_that_is_dropped_gives_its_place_back_and_leaves_the_others_in_order, 3)
{
    static const char session[] = "\"session_id\":\"long\",";
    static const size_t posted[] = {0, 1, 1}, left[] = {0, 1, 2}; /* after so many others */
    struct raw busy, list, waiting[3], beyond;
    serve(CONFIG(""));
    ck_assert_int_eq(step(&client, "long", true), 0);
    post_raw(&busy, "/attend", "\"session_id\":\"busy\",\"start\":true,", ENDLESS);
    await_session("busy");
    for (size_t i = 0, depth = 1; i < 3; i++) {
        await_depth(&client, (double)depth, (double)depth);
        if (i == posted[_i]) {
            post_list(&list, session);
            await_depth(&client, (double)(depth + 1), (double)(depth + 1));
            depth++;
        }
        if (i == left[_i]) {
            raw_close(&list);
            depth--;
            await_depth(&client, (double)depth, (double)depth);
        }
        post_raw(&waiting[i], "/decode", session, FEW_ROWS + 1);
        depth++;
    }
    await_depth(&client, 4, 4);
    post_raw(&beyond, "/decode", session, 1);
    expect_refused(&beyond, 429, "session_busy");
    raw_close(&busy);
    for (size_t i = 0; i < 3; i++) {
        expect_position(&waiting[i], 1 + i * (FEW_ROWS + 1));
        raw_close(&waiting[i]);
    }
    serve_end();
}

/* An I/O worker reads the first body, which is beyond 256 KiB; the answers of the connection come
 * in order all the same. */
TEST(requests_of_one_connection_are_applied_in_their_order)
{
    static const char path[] = "/attend", session[] = "\"session_id\":\"order\",";
    struct raw raw;
    struct text both = {0};
    serve(CONFIG(""));
    ck_assert_int_eq(step(&client, "order", true), 0);
    post_raw(&raw, path, session, 3000); /* some 380 KB */
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
    serve_end();
}

/* ---- Changes --------------------------------------------------------------------------------- */

#define CHANGES 3
static const char starts_long[] = "\"session_id\":\"long\",\"start\":true,";

static void post_change(struct raw *raw, const char *path, const char *call)
{
    struct text body = {0};
    text_add(&body, "%s", call);
    post_body(raw, &served, path, "1.1", "", &body);
}

/* A fork, a truncation and an export of the session `long`. */
static void post_changes(struct raw changes[CHANGES])
{
    post_change(&changes[0], "/sessions/long/fork", "{\"session_id\":\"fork\"}");
    post_change(&changes[1], "/sessions/long/truncate", "{\"length\":0}");
    raw_open(&changes[2], served.host, served.port);
    ck_assert(raw_text(&changes[2], "GET /sessions/long/state HTTP/1.1\r\nHost: test\r\n\r\n"));
}

static void expect_none_found(struct raw changes[CHANGES])
{
    for (size_t i = 0; i < CHANGES; i++)
        expect_refused(&changes[i], 404, "session_not_found");
    ck_assert_int_eq(call_status(&client, "fork"), 404);
}

TEST(changes_that_waited_for_a_prefill_that_failed_do_not_find_its_new_session)
{
    struct raw leaving, changes[CHANGES];
    serve(CONFIG(""));
    post_raw(&leaving, "/attend", starts_long, ENDLESS);
    await_session("long");
    post_changes(changes);
    await_depth(&client, 1 + CHANGES, 1 + CHANGES);
    raw_close(&leaving);
    expect_none_found(changes);
    ck_assert_int_eq(call_status(&client, "long"), 404);
    serve_end();
}

TEST(changes_do_not_find_a_session_whose_first_step_still_waits)
{
    struct raw busy, starting, changes[CHANGES];
    serve(CONFIG(""));
    post_raw(&busy, "/attend", "\"session_id\":\"busy\",\"start\":true,", ENDLESS);
    await_session("busy");
    post_raw(&starting, "/attend", starts_long, FEW_ROWS + 1);
    await_session("long");
    post_changes(changes);
    await_depth(&client, 2 + CHANGES, 2 + CHANGES);
    raw_close(&busy);
    expect_none_found(changes);
    expect_position(&starting, 0);
    raw_close(&starting);
    ck_assert_int_eq(step(&client, "long", false), FEW_ROWS + 1);
    serve_end();
}

TEST(fork_that_waited_for_the_prefill_that_starts_its_parent_has_all_its_tokens)
{
    struct long_call call;
    struct raw fork;
    serve(CONFIG(""));
    long_begin(&call, &client, starts_long, TOKENS);
    await_session("long");
    post_change(&fork, "/sessions/long/fork", "{\"session_id\":\"fork\"}");
    struct raw_answer answer = raw_read(&fork, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 201);
    long_end(&call, 200, NULL);
    ck_assert_uint_eq(call_length(&client, "fork", 0), TOKENS);
    raw_answer_free(&answer);
    raw_close(&fork);
    serve_end();
}

SUITE(pauses)
