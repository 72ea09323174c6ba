/* test_algebra.c: forking and rolling back sessions, and creating one exactly once. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static struct answer change(const char *id, const char *what, const char *body)
{
    char path[160];
    snprintf(path, sizeof path, "/sessions/%s/%s", id, what);
    return client_post(&client, path, body);
}

static void expect_change(const char *id, const char *what, const char *body)
{
    struct answer answer = change(id, what, body);
    expect_answer(&answer, strcmp(what, "fork") == 0 ? 201 : 200, NULL, body);
    answer_free(&answer);
}

static void refuse_change(const char *id, const char *what, const char *body, long status,
                          const char *code)
{
    struct answer answer = change(id, what, body);
    expect_answer(&answer, status, code, body);
    answer_free(&answer);
}

/* Starts a session with `n` tokens, of seeds from 0 on. */
static void start_session(const char *id, unsigned n)
{
    call_create(&client, id, "");
    for (unsigned i = 0; i < n; i++)
        expect_decode(&client, id, i, i);
}

/* Decodes the token of this seed; returns the output as text, which has all its bits. */
static char *output_of(const char *id, unsigned seed)
{
    struct answer answer = call_decode(&client, id, seed, "");
    expect_answer(&answer, 200, NULL, id);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

/* Fails unless a decode of both sessions gives the same bits. */
static void expect_same_decode(const char *a, const char *b, unsigned seed)
{
    char *first = output_of(a, seed), *second = output_of(b, seed);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
}

CASE(algebra, serve_small, serve_end, 0)

TEST(fork_continues_as_its_parent_would)
{
    start_session("parent", 70);
    double before = call_metric(&client, "attnd_cache_used_bytes");
    expect_change("parent", "fork", "{\"session_id\":\"child\"}");
    ck_assert(call_metric(&client, "attnd_cache_used_bytes") == before + 2 * 16);
    ck_assert_uint_eq(call_length(&client, "child", 0), 70);
    for (unsigned i = 70; i < 75; i++)
        expect_same_decode("parent", "child", i);
}

TEST(fork_and_parent_never_see_each_other)
{
    start_session("left", 60);
    start_session("alone", 60);
    expect_change("left", "fork", "{\"session_id\":\"right\"}");
    for (unsigned i = 0; i < 10; i++) /* within the shared block, and past its end */
        free(output_of("right", 900 + i));
    for (unsigned i = 60; i < 70; i++)
        expect_same_decode("left", "alone", i);
    expect_change("left", "truncate", "{\"length\":30}");
    ck_assert_uint_eq(call_length(&client, "right", 0), 70);
    call_delete(&client, "left");
    start_session("again", 60);
    for (unsigned i = 0; i < 10; i++)
        free(output_of("again", 900 + i));
    expect_same_decode("right", "again", 7);
}

TEST(fork_of_a_length_equals_the_parent_at_that_length)
{
    start_session("long", 70);
    start_session("short", 64);
    expect_change("long", "fork", "{\"session_id\":\"forked\",\"length\":64}");
    ck_assert_uint_eq(call_length(&client, "forked", 0), 64);
    ck_assert_uint_eq(call_length(&client, "long", 0), 70);
    expect_same_decode("forked", "short", 99);
    expect_change("long", "fork", "{\"session_id\":\"none\",\"length\":0}");
    ck_assert_uint_eq(call_length(&client, "none", 0), 0);
    expect_decode(&client, "none", 0, 0);
}

TEST(fork_without_an_id_gets_one_and_keeps_the_parents_limits)
{
    call_create(&client, "named", ",\"max_length\":40,\"ttl_s\":77");
    expect_decode(&client, "named", 0, 0);
    struct answer answer =
        client_send(&client, &(struct request){.method = "POST", .path = "/sessions/named/fork"});
    expect_answer(&answer, 201, NULL, "fork without a body");
    const char *id = json_string_value(json_object_get(answer.json, "session_id"));
    ck_assert_int_eq(strncmp(id, "test.", 5), 0);
    ck_assert_int_eq(answer_integer(&answer, "max_length"), 40);
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 77);
    ck_assert_uint_eq(call_length(&client, id, 0), 1);
    answer_free(&answer);
}

TEST(fork_answers_a_retry_of_its_parents_last_step)
{
    start_session("retried", 3);
    expect_change("retried", "fork", "{\"session_id\":\"whole\"}");
    expect_change("retried", "fork", "{\"session_id\":\"part\",\"length\":2}");
    struct answer answer = call_decode(&client, "whole", 2, ",\"position\":2");
    expect_answer(&answer, 200, NULL, "retry in the fork");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
    refuse_decode(&client, "part", 1, ",\"position\":1", 409, "position_conflict");
    expect_decode(&client, "part", 2, 2);
}

TEST(fork_refuses_invalid_requests)
{
    char body[96];
    start_session("root", 3);
    refuse_change("nobody", "fork", "{}", 404, "session_not_found");
    refuse_change("root", "fork", "{\"session_id\":\"root\"}", 409, "session_exists");
    refuse_change("root", "fork", "{\"session_id\":\"../x\"}", 400, "invalid_value");
    refuse_change("root", "fork", "{\"session_id\":7}", 400, "invalid_type");
    refuse_change("root", "fork", "{\"session_id\":\"x\",\"length\":-1}", 400, "invalid_value");
    refuse_change("root", "fork", "{\"session_id\":\"x\",\"length\":4}", 409, "position_gap");
    refuse_change("root", "fork", "{\"session_id\":\"x\",\"epoch\":1}", 409, "epoch_mismatch");
    refuse_change("root", "fork", "{\"session_id\":\"x\",\"ttl_s\":1}", 400, "unknown_field");
    refuse_change("root", "fork", "[]", 400, "malformed_json");
    ck_assert_int_eq(call_status(&client, "x"), 404);
    struct answer seen = client_get(&client, "/sessions/root");
    snprintf(body, sizeof body, "{\"session_id\":\"x\",\"epoch\":%lld}",
             (long long)answer_integer(&seen, "epoch"));
    expect_change("root", "fork", body);
    answer_free(&seen);
}

TEST(truncate_rolls_every_layer_back)
{
    struct text body = {0};
    start_session("back", 70);
    text_add(&body, "{\"layer\":1,");
    text_steps(&body, "back", 500, 3, "}");
    expect_posted(&client, "/decode", body.data, 200, NULL);
    text_free(&body);
    start_session("fresh", 20);
    expect_change("back", "truncate", "{\"length\":20}");
    ck_assert_uint_eq(call_length(&client, "back", 0), 20);
    ck_assert_uint_eq(call_length(&client, "back", 1), 3);
    expect_change("back", "truncate", "{\"length\":20}"); /* the same length: no change */
    expect_same_decode("back", "fresh", 20);
    expect_change("back", "truncate", "{\"length\":0}");
    ck_assert_uint_eq(call_length(&client, "back", 1), 0);
    expect_decode(&client, "back", 0, 0);
}

TEST(truncate_forgets_the_last_step)
{
    start_session("forgets", 5);
    expect_change("forgets", "truncate", "{\"length\":4}");
    refuse_decode(&client, "forgets", 3, ",\"position\":3", 409, "position_conflict");
    refuse_decode(&client, "forgets", 4, ",\"position\":5", 409, "position_gap");
    expect_decode(&client, "forgets", 4, 4);
    ck_assert_uint_eq(call_length(&client, "forgets", 0), 5);
}

TEST(truncate_refuses_invalid_requests)
{
    start_session("firm", 3);
    refuse_change("nobody", "truncate", "{\"length\":1}", 404, "session_not_found");
    refuse_change("firm", "truncate", "{}", 400, "missing_field");
    refuse_change("firm", "truncate", "{\"length\":null}", 400, "missing_field");
    refuse_change("firm", "truncate", "{\"length\":1.5}", 400, "invalid_type");
    refuse_change("firm", "truncate", "{\"length\":-1}", 400, "invalid_value");
    refuse_change("firm", "truncate", "{\"length\":1,\"epoch\":5}", 409, "epoch_mismatch");
    refuse_change("firm", "truncate", "{\"length\":1,\"session_id\":\"x\"}", 400, "unknown_field");
    struct answer answer = change("firm", "truncate", "{\"length\":4}");
    expect_answer(&answer, 409, "position_gap", "beyond the end");
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(answer.json, "error"), "length")), 3);
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "firm", 0), 3);
}

/* ---- Idempotency ----------------------------------------------------------------------------- */

static struct answer post_with_key(const char *path, const char *key, const char *body)
{
    char header[128];
    snprintf(header, sizeof header, "Idempotency-Key: %s", key);
    const char *const headers[] = {header, NULL};
    return client_send(
        &client,
        &(struct request){.method = "POST", .path = path, .body = body, .headers = headers});
}

/* Sends the request twice; the second must find the session that the first created. */
static void expect_once(const char *path, const char *key, const char *body)
{
    double created = call_metric(&client, "attnd_sessions_created_total");
    struct answer first = post_with_key(path, key, body), again = post_with_key(path, key, body);
    expect_answer(&first, 201, NULL, body);
    expect_answer(&again, 201, NULL, body);
    ck_assert(json_object_get(first.json, "replayed") == NULL);
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    ck_assert_str_eq(json_string_value(json_object_get(first.json, "session_id")),
                     json_string_value(json_object_get(again.json, "session_id")));
    ck_assert_int_eq(answer_integer(&first, "epoch"), answer_integer(&again, "epoch"));
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == created + 1);
    answer_free(&first);
    answer_free(&again);
}

static void refuse_with_key(const char *path, const char *key, const char *body, long status,
                            const char *code)
{
    struct answer answer = post_with_key(path, key, body);
    expect_answer(&answer, status, code, body);
    answer_free(&answer);
}

TEST(same_key_and_body_make_one_session)
{
    expect_once("/sessions", "k1", "{\"model\":\"tiny\"}");
    expect_once("/sessions", "k2", "{\"model\":\"tiny\",\"session_id\":\"own\"}");
    start_session("stem", 2);
    expect_once("/sessions/stem/fork", "k3", "{}");
}

TEST(same_key_with_another_request_is_a_conflict)
{
    expect_once("/sessions", "key", "{\"model\":\"tiny\",\"session_id\":\"first\"}");
    refuse_with_key("/sessions", "key", "{\"model\":\"tiny\",\"session_id\":\"second\"}", 409,
                    "idempotency_conflict");
    refuse_with_key("/sessions", "key", "{\"model\":\"plain\"}", 409, "idempotency_conflict");
    refuse_with_key("/sessions/first/fork", "key", "{}", 409, "idempotency_conflict");
    refuse_with_key("/sessions", "other", "{\"model\":\"tiny\",\"session_id\":\"first\"}", 409,
                    "session_exists");
    ck_assert_int_eq(call_status(&client, "second"), 404);
}

TEST(key_is_forgotten_with_its_session_and_by_a_refusal)
{
    static const char body[] = "{\"model\":\"tiny\",\"session_id\":\"mayfly\"}";
    refuse_with_key("/sessions", "brief", "{\"model\":\"none\"}", 404, "model_not_found");
    expect_once("/sessions", "brief", body);
    call_delete(&client, "mayfly");
    expect_once("/sessions", "brief", body);
}

TEST(key_must_be_a_word)
{
    refuse_with_key("/sessions", "two words", "{\"model\":\"tiny\"}", 400, "invalid_value");
    refuse_with_key("/sessions", "\"quoted\"", "{\"model\":\"tiny\"}", 400, "invalid_value");
    refuse_with_key("/sessions",
                    "a234567890123456789012345678901234567890123456789012345678901234x",
                    "{\"model\":\"tiny\"}", 400, "invalid_value");
}

SUITE(algebra)
