/* test_pauses.c: long computations give way: decodes of other sessions are answered while one runs,
 * steps of its own session wait for it, and one that outlasts the drain is stopped. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "suites.h"

#define WIDTH 64
#define TOKENS 4096   /* one thread with portable kernels takes a second or two for them, */
#define ENDLESS 20480 /* and a good part of a minute for these */
#define STEPS 10

#define CONFIG(members)                                                                      \
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\"," members "\"models\":[{\"name\":" \
    "\"slow\",\"random\":{\"hidden_size\":64,\"num_attention_heads\":16,\"is_causal\":true," \
    "\"seed\":1}}]}"

/* A request that takes long, on a thread and a connection of its own. */
struct long_call {
    const struct daemon *daemon;
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
    call->answer = client_post(&own, "/attend", call->body.data);
    atomic_store(&call->answered, true);
    client_close(&own);
    return NULL;
}

/* Begins POST /attend of so many rows, `members` before them, and waits until it is queued. */
static void long_begin(struct long_call *call, struct client *client, const char *members,
                       size_t rows)
{
    *call = (struct long_call){.daemon = client->daemon};
    text_add(&call->body, "{%s", members);
    add_rows(&call->body, rows);
    ck_assert_int_eq(pthread_create(&call->thread, NULL, call_long, call), 0);
    unsigned tries = 0;
    while (call_metric(client, "attnd_queue_depth") < 1) {
        ck_assert_uint_lt(tries++, 5000);
        pause_ms(2);
    }
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

START_TEST(test_what_outlasts_the_drain_is_stopped_and_told_so)
{
    struct daemon daemon;
    struct client client;
    struct long_call attend, prefill;
    daemon_start(&daemon, CONFIG("\"drain_timeout_s\":1,"), NULL, NULL);
    client_open(&client, &daemon);
    long_begin(&attend, &client, "", ENDLESS);
    long_begin(&prefill, &client, "\"session_id\":\"long\",\"start\":true,", ENDLESS);
    expect_steps_beside(&client, &attend);
    daemon_terminate(&daemon);
    long_end(&attend, 503, "draining");
    long_end(&prefill, 503, "draining");
    daemon_expect_end(&daemon);
    client_close(&client);
}
END_TEST

Suite *suite_pauses(void)
{
    Suite *suite = suite_create("pauses");
    TCase *pauses = tcase_create("pauses");
    tcase_add_test(pauses, test_decodes_are_answered_while_a_long_attend_runs);
    tcase_add_test(
        pauses, test_decodes_are_answered_while_a_prefill_runs_and_those_of_its_session_follow_it);
    tcase_add_test(pauses, test_what_outlasts_the_drain_is_stopped_and_told_so);
    suite_add_tcase(suite, pauses);
    return suite;
}
