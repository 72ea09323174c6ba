/* test_sessions.c: creating, listing and deleting sessions, and their limits. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "clock.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

static struct answer create(const char *body) { return client_post(&client, "/sessions", body); }

static void refuse_create(const char *body, long status, const char *code)
{
    struct answer answer = create(body);
    expect_answer(&answer, status, code, body);
    answer_free(&answer);
}

CASE(sessions, serve_small, serve_end, 0)

TEST(created_session_says_what_it_is)
{
    struct answer made = create("{\"session_id\":\"whole\",\"model\":\"tiny\",\"max_length\":32,"
                                "\"ttl_s\":60}");
    expect_answer(&made, 201, NULL, "create");
    expect_decode(&client, "whole", 0, 0);
    struct answer seen = client_get(&client, "/sessions/whole");
    expect_answer(&seen, 200, NULL, "get");
    ck_assert_str_eq(json_string_value(json_object_get(seen.json, "session_id")), "whole");
    ck_assert_str_eq(json_string_value(json_object_get(seen.json, "model")), "tiny");
    ck_assert_int_eq(answer_integer(&seen, "max_length"), 32);
    ck_assert_int_eq(answer_integer(&seen, "ttl_s"), 60);
    ck_assert_int_eq(answer_integer(&seen, "epoch"), answer_integer(&made, "epoch"));
    ck_assert_int_eq(answer_integer(&made, "bytes"), 0);
    ck_assert_int_gt(answer_integer(&seen, "bytes"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(seen.json, "lengths")), 2);
    answer_free(&made);
    answer_free(&seen);
}

/* Asks until some time has passed since the session was used: never more than since it was made. */
TEST(idle_time_is_in_seconds)
{
    double idle = 0;
    const double before = clock_s();
    call_create(&client, "idle", "");
    for (unsigned i = 0; i < 100000 && idle == 0; i++) {
        struct answer seen = client_get(&client, "/sessions/idle");
        expect_answer(&seen, 200, NULL, "get");
        idle = json_number_value(json_object_get(seen.json, "idle_s"));
        ck_assert_double_le(idle, clock_s() - before);
        answer_free(&seen);
    }
    ck_assert_double_gt(idle, 0);
}

TEST(created_id_begins_with_the_instance_and_is_unlike_others)
{
    struct answer one = create("{\"model\":\"tiny\"}"), two = create("{\"model\":\"tiny\"}");
    const char *a = json_string_value(json_object_get(one.json, "session_id"));
    const char *b = json_string_value(json_object_get(two.json, "session_id"));
    ck_assert(a != NULL && b != NULL);
    ck_assert_int_eq(strncmp(a, "test.", 5), 0);
    ck_assert_uint_ge(strlen(a), 20);
    ck_assert_str_ne(a, b);
    expect_decode(&client, a, 0, 0);
    answer_free(&one);
    answer_free(&two);
}

TEST(a_session_that_is_created_again_by_its_key_counts_once)
{
    static const char *const headers[] = {"Idempotency-Key: once", NULL};
    const double before = call_metric(&client, "attnd_sessions_created_total");
    for (unsigned i = 0; i < 3; i++) {
        struct answer made = client_send(&client, &(struct request){.method = "POST",
                                                                    .path = "/sessions",
                                                                    .body = "{\"model\":\"tiny\"}",
                                                                    .headers = headers});
        expect_answer(&made, 201, NULL, "create");
        ck_assert(json_is_true(json_object_get(made.json, "replayed")) == (i > 0));
        answer_free(&made);
    }
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == before + 1);
}

TEST(creating_what_exists_or_cannot_be_is_refused)
{
    call_create(&client, "once", "");
    refuse_create("{\"session_id\":\"once\",\"model\":\"tiny\"}", 409, "session_exists");
    refuse_create("{\"session_id\":\"x\"}", 400, "missing_field");
    refuse_create("{\"session_id\":\"x\",\"model\":\"other\"}", 404, "model_not_found");
    refuse_create("{\"session_id\":\"../x\",\"model\":\"tiny\"}", 400, "invalid_value");
    refuse_create("{\"session_id\":\"x\",\"model\":\"tiny\",\"max_length\":0}", 400,
                  "invalid_value");
    refuse_create("{\"session_id\":\"x\",\"model\":\"tiny\",\"max_length\":131073}", 400,
                  "invalid_value");
    refuse_create("{\"session_id\":\"x\",\"model\":\"tiny\",\"ttl_s\":31536001}", 400,
                  "invalid_value");
    ck_assert_int_eq(call_status(&client, "x"), 404);
}

/* Bodies that clients send with DELETE.  None of them means anything. */
TEST(delete_ignores_a_small_body_of_any_type)
{
    static const char *const text[] = {"Content-Type: text/plain", NULL};
    static const char *const coded[] = {"Content-Encoding: gzip", NULL};
    static const struct {
        const char *body;
        const char *const *headers;
    } bodies[] = {{"{}", NULL},   {"{\"session_id\":\"other\"}", NULL},
                  {"null", NULL}, {"", NULL},
                  {"{\"a", NULL}, {"bye", text},
                  {"{}", coded},  {" ", NULL}};
    call_create(&client, "other", "");
    for (size_t i = 0; i < COUNT(bodies); i++) {
        call_create(&client, "embodied", "");
        struct answer gone = client_send(&client, &(struct request){.method = "DELETE",
                                                                    .path = "/sessions/embodied",
                                                                    .body = bodies[i].body,
                                                                    .headers = bodies[i].headers});
        expect_answer(&gone, 204, NULL, bodies[i].body);
        ck_assert_int_eq(call_status(&client, "embodied"), 404);
        answer_free(&gone);
    }
    ck_assert_int_eq(call_status(&client, "other"), 200);
    call_delete(&client, "other");
}

TEST(deleted_session_is_not_found_and_its_memory_is_free_at_once)
{
    call_create(&client, "deleted", "");
    double before = call_metric(&client, "attnd_cache_used_bytes");
    expect_decode(&client, "deleted", 0, 0);
    ck_assert(call_metric(&client, "attnd_cache_used_bytes") > before);
    call_delete(&client, "deleted");
    ck_assert(call_metric(&client, "attnd_cache_used_bytes") == before);
    ck_assert_int_eq(call_status(&client, "deleted"), 404);
    struct answer again = client_delete(&client, "/sessions/deleted");
    expect_answer(&again, 404, "session_not_found", "second delete");
    refuse_decode(&client, "deleted", 1, "", 404, "session_not_found");
    answer_free(&again);
}

TEST(epoch_tells_a_session_from_a_later_one_of_its_name)
{
    char extra[64];
    json_int_t old = call_create(&client, "phoenix", "");
    snprintf(extra, sizeof extra, ",\"epoch\":%lld", (long long)old);
    struct answer answer = call_decode(&client, "phoenix", 0, extra);
    expect_answer(&answer, 200, NULL, "same epoch");
    ck_assert_int_eq(answer_integer(&answer, "epoch"), old);
    call_delete(&client, "phoenix");
    ck_assert_int_ne(call_create(&client, "phoenix", ""), old);
    refuse_decode(&client, "phoenix", 1, extra, 409, "epoch_mismatch");
    ck_assert_uint_eq(call_length(&client, "phoenix", 0), 0);
    answer_free(&answer);
}

TEST(session_belongs_to_one_model)
{
    call_create(&client, "owned", "");
    struct answer answer = client_post(&client, "/decode",
                                       "{\"model\":\"plain\",\"session_id\":\"owned\","
                                       "\"hidden_states\":[1,2,3,4,5,6,7,8]}");
    expect_answer(&answer, 409, "model_mismatch", "decode");
    ck_assert_uint_eq(call_length(&client, "owned", 0), 0);
    answer_free(&answer);
}

TEST(session_knows_its_model)
{
    struct text body = {0};
    call_create(&client, "knows", "");
    text_add(&body, "{");
    text_step(&body, "knows", 0, "}");
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "decode without a model");
    ck_assert_uint_eq(call_length(&client, "knows", 0), 1);
    answer_free(&answer);
    text_free(&body);
}

TEST(full_session_refuses_and_stays_as_it_was)
{
    call_create(&client, "small", ",\"max_length\":3");
    for (unsigned i = 0; i < 3; i++)
        expect_decode(&client, "small", i, i);
    refuse_decode(&client, "small", 3, "", 409, "session_full");
    refuse_decode(&client, "small", 3, ",\"commit\":false", 409, "session_full");
    struct answer replay = call_decode(&client, "small", 2, ",\"position\":2");
    expect_answer(&replay, 200, NULL, "replay in a full session");
    ck_assert(json_is_true(json_object_get(replay.json, "replayed")));
    ck_assert_uint_eq(call_length(&client, "small", 0), 3);
    call_create(&client, "small2", ",\"max_length\":3");
    struct answer rows = call_decode_rows(&client, "small2", 0, 4, "");
    expect_answer(&rows, 409, "session_full", "four rows into three");
    ck_assert_uint_eq(call_length(&client, "small2", 0), 0);
    answer_free(&replay);
    answer_free(&rows);
}

/* ---- The list -------------------------------------------------------------------------------- */

/* Reads the pages of `limit` sessions with ids after "page."; returns the number of sessions. */
static size_t walk_pages(unsigned limit)
{
    char path[160], last[80] = "page.";
    size_t count = 0;
    for (size_t pages = 0; pages < 20; pages++) {
        snprintf(path, sizeof path, "/sessions?after=%s&limit=%u", last, limit);
        struct answer answer = client_get(&client, path);
        expect_answer(&answer, 200, NULL, path);
        const json_t *list = json_object_get(answer.json, "sessions");
        ck_assert(json_is_array(list) && json_array_size(list) <= limit);
        for (size_t i = 0; i < json_array_size(list); i++, count++) {
            const char *id =
                json_string_value(json_object_get(json_array_get(list, i), "session_id"));
            ck_assert_str_gt(id, last);
            snprintf(last, sizeof last, "%s", id);
        }
        const char *next = json_string_value(json_object_get(answer.json, "next"));
        bool done = next == NULL;
        ck_assert(done || strcmp(next, last) == 0);
        answer_free(&answer);
        if (done)
            return count;
    }
    ck_abort_msg("the pages do not end");
}

TEST(pages_list_every_session_once_in_order)
{
    char id[32];
    for (unsigned i = 0; i < 11; i++) {
        snprintf(id, sizeof id, "page.%02u", i * 7 % 11);
        call_create(&client, id, "");
    }
    size_t all = walk_pages(100);
    ck_assert_uint_ge(all, 11);
    ck_assert_uint_eq(walk_pages(4), all);
    ck_assert_uint_eq(walk_pages(1), all);
}

#define LISTED 30
#define PAGE_BYTES 65536 /* of server/wire/route.h */

/* Reads all pages; returns how many there are, and in *listed the sessions. */
static size_t count_pages(size_t *listed, const char *query, bool details)
{
    char path[160], next[80] = "";
    size_t pages = 0;
    for (*listed = 0; pages == 0 || next[0] != '\0'; pages++) {
        snprintf(path, sizeof path, "/sessions?%s%s%s", query, pages > 0 ? "&after=" : "", next);
        struct answer answer = client_get(&client, path);
        expect_answer(&answer, 200, NULL, path);
        const json_t *list = json_object_get(answer.json, "sessions");
        ck_assert_uint_le(answer.length, PAGE_BYTES);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *entry = json_array_get(list, i);
            ck_assert_int_eq(json_integer_value(json_object_get(entry, "length")), 0);
            ck_assert(json_is_array(json_object_get(entry, "lengths")) == details);
            ck_assert(json_is_object(json_object_get(entry, "weightless")) == details);
        }
        *listed += json_array_size(list);
        const char *more = json_string_value(json_object_get(answer.json, "next"));
        snprintf(next, sizeof next, "%s", more != NULL ? more : "");
        answer_free(&answer);
    }
    return pages;
}

TEST(lists_are_short_and_details_come_in_pages_of_64_kib)
{
    size_t listed;
    for (size_t i = 0; i < LISTED; i++) {
        expect_posted(&client, "/sessions",
                      "{\"num_attention_heads\":1,\"num_key_value_heads\":1,"
                      "\"head_dim\":8,\"num_hidden_layers\":256}",
                      201, NULL);
    }
    ck_assert_uint_eq(count_pages(&listed, "limit=100", false), 1);
    ck_assert_uint_eq(listed, LISTED);
    ck_assert_uint_eq(count_pages(&listed, "limit=30", false), LISTED / 30); /* and no empty one */
    ck_assert_uint_ge(count_pages(&listed, "details=1&limit=100", true), 3);
    ck_assert_uint_eq(listed, LISTED);
}

#define DETAILS_6 "details=1&details=1&details=1&details=1&details=1&details=1&"
#define DETAILS_18 DETAILS_6 DETAILS_6 DETAILS_6 /* 180 characters */

TEST(wrong_queries_of_the_list_are_refused)
{
    static const struct {
        const char *path, *code;
    } cases[] = {{"/sessions?limit=0", "invalid_value"},
                 {"/sessions?limit=1001", "invalid_value"},
                 {"/sessions?limit=-1", "invalid_value"},
                 {"/sessions?limit=1x", "invalid_value"},
                 {"/sessions?limit=01000x", "invalid_value"},
                 {"/sessions?limit=99999999999999999999", "invalid_value"},
                 {"/sessions?after=../x", "invalid_value"},
                 {"/sessions?after=%2", "invalid_value"},
                 {"/sessions?%61fter=a", "unknown_field"},
                 {"/sessions?" DETAILS_18 "after=abcdef", "invalid_value"}, /* is cut */
                 {"/sessions?page=2", "unknown_field"},
                 {"/sessions?details=2", "unknown_field"},
                 {"/sessions?limit", "unknown_field"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer = client_get(&client, cases[i].path);
        expect_answer(&answer, 400, cases[i].code, cases[i].path);
        answer_free(&answer);
    }
}

/* ---- Limits, each with a daemon of its own --------------------------------------------------- */

TEST(idle_session_expires_and_a_used_one_does_not)
{
    call_create(&client, "idle", ",\"ttl_s\":1");
    call_create(&client, "busy", ",\"ttl_s\":3");
    call_create(&client, "default", "");
    unsigned i = 0;
    for (; i < 60 && call_status(&client, "idle") != 404; i++) {
        expect_decode(&client, "busy", i, i);
        pause_ms(250);
    }
    ck_assert_uint_ge(i, 3); /* not before its second has passed */
    refuse_decode(&client, "idle", 0, "", 404, "session_not_found");
    ck_assert_int_eq(call_status(&client, "busy"), 200);
    ck_assert_int_eq(call_status(&client, "default"), 200);
    ck_assert(call_metric(&client, "attnd_sessions_expired_total") >= 1);
}

CASE(limits, NULL, NULL, 0)

TEST(sessions_beyond_max_sessions_are_refused_until_one_ends)
{
    char id[16], retry[256];
    struct daemon few;
    struct client own;
    daemon_start(&few, CONFIG_SMALL("\"max_sessions\":3,"), NULL, NULL);
    client_open(&own, &few);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%u", i);
        call_create(&own, id, "");
    }
    struct answer refused =
        client_post(&own, "/sessions", "{\"session_id\":\"s3\",\"model\":\"tiny\"}");
    expect_answer(&refused, 503, "session_limit", "a fourth session");
    ck_assert(answer_header(retry, &refused, "Retry-After"));
    refuse_decode(&own, "s3", 0, ",\"start\":true", 503, "session_limit");
    expect_decode(&own, "s2", 0, 0);
    call_delete(&own, "s0");
    call_create(&own, "s3", "");
    expect_decode(&own, "s3", 0, 0);
    answer_free(&refused);
    client_close(&own);
    daemon_stop(&few);
}

/* One block of 64 tokens of one layer of `tiny` takes 2 heads x 64 x (4 + 4) floats: 4 KiB. */
TEST(full_pool_refuses_without_a_trace_until_a_session_ends)
{
    char retry[256];
    struct daemon few;
    struct client own;
    daemon_start(&few, CONFIG_SMALL("\"cache_bytes\":16384,"), NULL, NULL);
    client_open(&own, &few);
    call_create(&own, "first", "");
    struct answer whole = call_prefill(&own, "first", 0, 192, "");
    expect_answer(&whole, 200, NULL, "192 rows");
    call_create(&own, "second", "");
    struct answer kept = call_decode_rows(&own, "second", 0, 60, "");
    expect_answer(&kept, 200, NULL, "60 rows");
    struct answer refused = call_decode_rows(&own, "second", 60, 8, "");
    expect_answer(&refused, 503, "pool_full", "8 rows more");
    ck_assert(answer_header(retry, &refused, "Retry-After"));
    ck_assert_uint_eq(call_length(&own, "second", 0), 60);
    refuse_decode(&own, "third", 0, ",\"start\":true", 503, "pool_full");
    ck_assert_int_eq(call_status(&own, "third"), 404);
    call_delete(&own, "first");
    struct answer taken = call_decode_rows(&own, "second", 60, 8, ",\"position\":60");
    expect_answer(&taken, 200, NULL, "after DELETE");
    ck_assert_uint_eq(call_length(&own, "second", 0), 68);
    answer_free(&whole);
    answer_free(&kept);
    answer_free(&refused);
    answer_free(&taken);
    client_close(&own);
    daemon_stop(&few);
}

SUITE(sessions)
