/* test_v2.c: the Open Inference Protocol: sequences that start, are repeated and end, also in a
 * journal; timeouts, statistics, keys, coded replies.  tests/v2 has the forms of requests. */
#include <check.h>
#include <pthread.h>
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
#include "tensors.h"
#include "waiting.h"

#define INFER "/v2/models/tiny/infer"

/* ---- Asking ---------------------------------------------------------------------------------- */

/* An infer request of `rows` rows, seed by seed; `members` and `parameters` are "" or end in a
 * comma. */
static void infer_body(struct text *body, unsigned seed, size_t rows, const char *members,
                       const char *parameters)
{
    float *numbers = malloc(rows * TINY * sizeof *numbers);
    ck_assert_ptr_nonnull(numbers);
    make_numbers(numbers, rows * TINY, seed);
    text_add(body, "{%s\"parameters\":{%s\"binary_data_output\":false},\"inputs\":[", members,
             parameters);
    text_add(
        body,
        "{\"name\":\"hidden_states\",\"shape\":[1,%zu,16],\"datatype\":\"FP32\",\"data\":", rows);
    text_floats(body, numbers, 9, SHAPE(rows * TINY));
    text_add(body, "}]}");
    free(numbers);
}

static struct answer infer_at(const char *path, unsigned seed, size_t rows, const char *members,
                              const char *parameters, const char *header)
{
    struct text body = {0};
    const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", header, NULL};
    infer_body(&body, seed, rows, members, parameters);
    struct answer answer = client_send(
        &client,
        &(struct request){.method = "POST", .path = path, .body = body.data, .headers = headers});
    text_free(&body);
    return answer;
}

static struct answer infer(unsigned seed, size_t rows, const char *members, const char *parameters)
{
    return infer_at(INFER, seed, rows, members, parameters, NULL);
}

/* Fails unless the answer is a success, or an error of that code in the protocol's form; frees
 * it. */
static void expect_infer(struct answer answer, long status, const char *code)
{
    const char *word = json_string_value(json_object_get(answer.json, "code"));
    bool is_error = json_is_string(json_object_get(answer.json, "error"));
    ck_assert_msg(answer.status == status && is_error == (code != NULL) &&
                      (code == NULL || (word != NULL && strcmp(word, code) == 0)),
                  "%ld, expected %ld %s: %.400s", answer.status, status, code ? code : "",
                  answer.text);
    answer_free(&answer);
}

static bool is_replayed(const struct answer *answer)
{
    return json_is_true(json_object_get(json_object_get(answer->json, "parameters"), "replayed"));
}

/* ---- Sequences ------------------------------------------------------------------------------- */

#define START "\"sequence_id\":7,\"sequence_start\":true,\"sequence_end\":false,"
#define NEXT "\"sequence_id\":7,\"sequence_start\":false,\"sequence_end\":false,"
#define END "\"sequence_id\":7,\"sequence_start\":false,\"sequence_end\":true,"

CASE(v2, serve_small, serve_end, 0)

TEST(a_start_is_repeatable_by_id_and_position_alone)
{
    struct answer first = infer(1, 2, "\"id\":\"a\",", START "\"position\":0,");
    struct answer again = infer(1, 2, "\"id\":\"a\",", START "\"position\":0,");
    ck_assert_msg(first.status == 200 && again.status == 200, "%s", again.text);
    ck_assert(!is_replayed(&first) && is_replayed(&again));
    expect_same("outputs", again.json, first.json, "outputs");
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == 1);
    expect_infer(infer(1, 2, "\"id\":\"b\",", START "\"position\":0,"), 409, "session_exists");
    expect_infer(infer(1, 2, "\"id\":\"a\",", START), 409, "session_exists");
    expect_infer(infer(1, 2, "", START "\"position\":0,"), 409, "session_exists");
    expect_infer(infer(9, 2, "\"id\":\"a\",", START "\"position\":0,"), 409, "position_conflict");
    ck_assert_uint_eq(call_length(&client, "7", 0), 2);
    expect_infer(infer(2, 1, "\"id\":\"b\",", NEXT "\"position\":2,"), 200, NULL);
    expect_infer(infer(1, 2, "\"id\":\"a\",", START "\"position\":0,"), 409, "position_conflict");
    ck_assert_uint_eq(call_length(&client, "7", 0), 3);
    answer_free(&first);
    answer_free(&again);
}

TEST(the_id_of_a_start_is_of_its_own_sequence)
{
    expect_infer(infer(1, 1, "\"id\":\"1\",", START "\"position\":0,"), 200, NULL);
    expect_infer(infer(1, 1, "\"id\":\"1\",",
                       "\"sequence_id\":\"8\",\"sequence_start\":true,\"position\":0,"),
                 200, NULL);
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == 2);
}

TEST(an_end_deletes_the_session_after_its_step_and_only_then)
{
    expect_infer(infer(1, 2, "", START), 200, NULL);
    expect_infer(infer(2, 1, "", END "\"position\":9,"), 409, "position_gap");
    expect_infer(infer(2, 1, "", END "\"heads\":[0],"), 400, "invalid_value");
    ck_assert_uint_eq(call_length(&client, "7", 0), 2);
    expect_infer(infer(2, 1, "", END "\"position\":2,"), 200, NULL);
    ck_assert_int_eq(call_status(&client, "7"), 404);
    ck_assert(call_metric(&client, "attnd_sessions_deleted_total") == 1);
    expect_infer(infer(2, 1, "", END "\"position\":2,"), 404, "session_not_found");
    expect_infer(infer(3, 1, "", NEXT), 404, "session_not_found");
    expect_infer(
        infer(3, 1, "", "\"sequence_id\":7,\"sequence_start\":true,\"sequence_end\":true,"), 200,
        NULL);
    ck_assert_int_eq(call_status(&client, "7"), 404);
    ck_assert(call_metric(&client, "attnd_sessions") == 0);
}

TEST(a_start_that_fails_leaves_no_session)
{
    expect_infer(infer(1, 2, "\"id\":\"a\",", START "\"position\":5,"), 409, "position_gap");
    ck_assert_int_eq(call_status(&client, "7"), 404);
    expect_infer(infer(1, 2, "\"id\":\"a\",", START "\"position\":0,"), 200, NULL);
}

/* A sequence is the session of its decimal text, and of its model. */
TEST(integers_and_texts_name_one_sequence)
{
    expect_infer(infer(1, 1, "", "\"sequence_id\":18446744073709551615,\"sequence_start\":true,"),
                 200, NULL);
    expect_infer(infer(2, 1, "", "\"sequence_id\":\"18446744073709551615\",\"position\":1,"), 200,
                 NULL);
    ck_assert_uint_eq(call_length(&client, "18446744073709551615", 0), 2);
    expect_infer(infer_at("/v2/models/tiny.1/infer", 3, 1, "",
                          "\"sequence_id\":18446744073709551615,\"position\":0,", NULL),
                 200, NULL);
    ck_assert_uint_eq(call_length(&client, "18446744073709551615", 1), 1);
    expect_infer(infer(1, 1, "", "\"sequence_id\":0,\"sequence_start\":false,"), 200, NULL);
    ck_assert(call_metric(&client, "attnd_sessions") == 1);
    expect_infer(infer(1, 1, "", "\"sequence_id\":\"0\","), 404, "session_not_found");
    expect_infer(infer(1, 1, "", "\"sequence_id\":\"0\",\"sequence_start\":true,"), 200, NULL);
    ck_assert_uint_eq(call_length(&client, "0", 0), 1);
}

/* ---- In a journal ---------------------------------------------------------------------------- */

static char directory[SCRATCH_PATH];

static void start_journal(void) { serve_state(CONFIG_SMALL(""), directory, "journal"); }

static void begin_journal(void)
{
    scratch_make(directory);
    start_journal();
}

static void end_journal(void)
{
    serve_end();
    scratch_remove(directory);
}

#define ENDERS 8
#define ENDED 40 /* sequences of each */

/* Starts, steps and ends sequences of its own, each request twice. */
static void *end_many(void *argument)
{
    unsigned number = *(const unsigned *)argument;
    struct client own;
    client_open(&own, &served);
    for (unsigned i = 0; i < ENDED; i++)
        for (unsigned step = 0; step < 3; step++) {
            char id[32], parameters[160];
            struct text body = {0};
            snprintf(id, sizeof id, "\"id\":\"%u\",", step);
            snprintf(parameters, sizeof parameters,
                     "\"sequence_id\":\"s%u-%u\",\"sequence_start\":%s,\"sequence_end\":%s,"
                     "\"position\":%u,",
                     number, i, step == 0 ? "true" : "false", step == 2 ? "true" : "false", step);
            infer_body(&body, step, 1, id, parameters);
            for (unsigned again = 0; again < (step < 2 ? 2 : 1); again++) {
                struct answer answer = client_post(&own, INFER, body.data);
                ck_assert_msg(answer.status == 200 && is_replayed(&answer) == (again == 1), "%s",
                              answer.text);
                answer_free(&answer);
            }
            text_free(&body);
        }
    client_close(&own);
    return NULL;
}

TEST(many_sequences_end_at_once)
{
    pthread_t threads[ENDERS];
    unsigned numbers[ENDERS];
    for (unsigned i = 0; i < ENDERS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, end_many, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < ENDERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(call_metric(&client, "attnd_sessions") == 0);
    ck_assert(call_metric(&client, "attnd_sessions_deleted_total") == ENDERS * ENDED);
    ck_assert(call_metric(&client, "attnd_queue_depth") == 0);
}

/* ---- Timeouts, statistics -------------------------------------------------------------------- */

TEST(a_timeout_is_a_deadline)
{
    expect_infer(infer(1, 1, "", START "\"timeout\":1,"), 504, "deadline_exceeded");
    ck_assert_int_eq(call_status(&client, "7"), 404);
    expect_infer(infer(1, 1, "", START "\"timeout\":0,\"priority\":9,"), 200, NULL);
    expect_infer(infer(1, 1, "", NEXT "\"timeout\":9223372036854775807,"), 200, NULL);
    expect_infer(infer_at(INFER, 1, 1, "", NEXT "\"timeout\":60000000,", "X-Deadline-Ms: 60000"),
                 200, NULL);
    expect_infer(infer(1, 1, "", NEXT "\"timeout\":18446744073709551615,"), 200, NULL);
    expect_infer(infer(1, 1, "", NEXT "\"priority\":18446744073709551615,"), 200, NULL);
}

/* The body comes when its time has passed already. */
TEST(a_timeout_counts_from_the_requests_begin)
{
    char head[256];
    struct raw raw;
    struct text body = {0};
    infer_body(&body, 1, 1, "", START "\"timeout\":50000,");
    snprintf(head, sizeof head,
             "POST " INFER " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\nExpect: 100-continue\r\n\r\n",
             body.length);
    raw_open(&raw, "127.0.0.1", served.port);
    ck_assert(raw_text(&raw, head));
    ck_assert(raw_readable(&raw, SOON_MS)); /* 100 Continue: the head has been read */
    pause_ms(100);
    ck_assert(raw_send(&raw, body.data, body.length));
    struct raw_answer answer = raw_read(&raw, false, 10000);
    ck_assert_msg(answer.status == 504, "%u %s", answer.status, answer.body);
    raw_answer_free(&answer);
    raw_close(&raw);
    text_free(&body);
}

/* A figure of a model's statistics: a member, or the `count` of one of its inference_stats. */
static json_int_t figure(const char *model, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "/v2/models/%s/stats", model);
    struct answer answer = client_get(&client, path);
    ck_assert_int_eq(answer.status, 200);
    json_t *stats = json_array_get(json_object_get(answer.json, "model_stats"), 0);
    json_t *part = json_object_get(json_object_get(stats, "inference_stats"), name);
    json_int_t count = json_integer_value(part != NULL ? json_object_get(part, "count")
                                                       : json_object_get(stats, name));
    answer_free(&answer);
    return count;
}

TEST(statistics_count_what_was_computed)
{
    for (unsigned i = 0; i < 3; i++)
        expect_infer(infer(i, 2, "", ""), 200, NULL);
    expect_infer(infer_at("/v2/models/tiny.1/infer", 1, 1, "", START, NULL), 200, NULL);
    expect_infer(infer_at("/v2/models/tiny.1/infer", 1, 1, "", START, NULL), 409, "session_exists");
    expect_infer(infer(1, 1, "", "\"scale\":-1,"), 400, "invalid_value");
    expect_infer(infer(1, 1, "", "\"layer\":1,\"rows\":[0],"), 400, "invalid_value");
    expect_infer(infer(1, 1, "", "\"layer\":1,\"sliding_window\":0,"), 422, "number_out_of_range");
    expect_infer(infer(1, 1, "", NEXT "\"layer\":1,\"position\":99,"), 409, "position_gap");
    expect_posted(
        &client, "/attend",
        "{\"query\":[[[[1]]],[[[1]]]],\"key\":[[[[1]]],[[[1]]]],\"value\":[[[[1]]],[[[1]]]]}", 200,
        NULL);
    ck_assert_int_eq(figure("tiny.0", "inference_count"), 3);
    ck_assert_int_eq(figure("tiny.0", "execution_count"), 3);
    ck_assert_int_eq(figure("tiny.0", "compute_infer"), 3);
    ck_assert_int_eq(figure("tiny.0", "fail"), 1);
    ck_assert_int_eq(figure("tiny.1", "success"), 1);
    ck_assert_int_eq(figure("tiny.1", "fail"), 4);
    ck_assert_int_eq(figure("tiny", "inference_count"), 4);
    ck_assert_int_eq(figure("tiny", "fail"), 5);
    ck_assert_int_eq(figure("attention", "success"), 1);
    ck_assert_int_eq(figure("attention", "inference_count"), 2);
    ck_assert_int_eq(figure("plain", "success"), 0);
}

/* An item's layer need not be one of its model when the item is counted. */
TEST(items_without_a_layer_are_counted_nowhere)
{
    call_create(&client, "here", "");
    struct answer answer = client_post(&client, "/decode",
                                       "{\"model\":\"tiny\",\"layer\":1023,\"sequences\":["
                                       "{\"session_id\":\"here\",\"hidden_states\":[1]}]}");
    expect_answer(&answer, 200, NULL, "a list");
    ck_assert_ptr_nonnull(strstr(answer.text, "layer_not_found"));
    answer_free(&answer);
    ck_assert_int_eq(figure("tiny", "fail"), 0);
}

CASE(journal, begin_journal, end_journal, 0)
AGAIN(many_sequences_end_at_once, 0, 1)

TEST(starts_and_ends_outlive_a_kill)
{
    expect_infer(infer(1, 2, "\"id\":\"a\",", START "\"position\":0,"), 200, NULL);
    serve_kill();
    start_journal();
    struct answer again = infer(1, 2, "\"id\":\"a\",", START "\"position\":0,");
    ck_assert_msg(again.status == 200 && is_replayed(&again), "%s", again.text);
    answer_free(&again);
    expect_infer(infer(1, 2, "\"id\":\"b\",", START "\"position\":0,"), 409, "session_exists");
    expect_infer(infer(2, 1, "\"id\":\"c\",", END "\"position\":2,"), 200, NULL);
    serve_kill();
    start_journal();
    ck_assert_int_eq(call_status(&client, "7"), 404);
    ck_assert(call_metric(&client, "attnd_sessions_restored_total") == 0);
}

/* ---- Codings --------------------------------------------------------------------------------- */

static void serve_deep(void)
{
    serve("{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":"
          "\"deep\",\"random\":{\"hidden_size\":2,\"num_attention_heads\":1,"
          "\"num_hidden_layers\":1000,\"seed\":1}}]}");
}

CASE(deep, serve_deep, serve_end, 0)

/* The lists of a model of many layers are as large as a reply that /attend would compress. */
TEST(no_reply_but_that_of_infer_is_coded)
{
    static const char *const accept[] = {"Accept-Encoding: gzip, deflate", NULL};
    static const char *const paths[] = {"/v2/models/stats", "/v2/models/deep/config"};
    for (size_t i = 0; i < 2; i++) {
        char coding[256];
        struct answer answer = client_send(
            &client, &(struct request){.method = "GET", .path = paths[i], .headers = accept});
        expect_answer(&answer, 200, NULL, paths[i]);
        ck_assert(!answer_header(coding, &answer, "Content-Encoding"));
        ck_assert(i > 0 || answer.length > 256 << 10);
        answer_free(&answer);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static char keys_path[SECRET_PATH];

static void begin_keys(void)
{
    secret_write(keys_path,
                 "{\"keys\":[{\"name\":\"one\",\"key\":\"" KEY_INFER "\",\"scopes\":[\"infer\"]},"
                 "{\"name\":\"two\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\"]},"
                 "{\"name\":\"ops\",\"key\":\"" KEY_ADMIN "\",\"scopes\":[\"admin\"]}]}");
    serve_keys(CONFIG_SMALL(""), keys_path);
}

#define AS_ONE "Authorization: Bearer " KEY_INFER
#define AS_TWO "Authorization: Bearer " KEY_BOTH
#define AS_OPS "Authorization: Bearer " KEY_ADMIN

CASE(keys, begin_keys, serve_end, 0)

TEST(keys_hold_and_sequences_belong_to_them)
{
    const char *start = START "\"position\":0,";
    expect_infer(infer(1, 1, "", ""), 401, "unauthorized");
    expect_infer(infer_at(INFER, 1, 1, "", "", AS_OPS), 403, "forbidden");
    expect_infer(client_get(&client, "/v2/health/live"), 200, NULL);
    expect_infer(client_get(&client, "/v2/models/tiny"), 401, "unauthorized");
    expect_infer(client_get(&client, "/v2/none"), 401, "unauthorized");
    expect_infer(infer_at(INFER, 1, 1, "\"id\":\"a\",", start, AS_ONE), 200, NULL);
    expect_infer(infer_at(INFER, 1, 1, "\"id\":\"a\",", NEXT, AS_TWO), 404, "session_not_found");
    struct answer other = infer_at(INFER, 1, 1, "\"id\":\"a\",", start, AS_TWO);
    ck_assert_msg(other.status == 200 && !is_replayed(&other), "%s", other.text);
    answer_free(&other);
    expect_infer(infer_at(INFER, 2, 1, "", END "\"position\":1,", AS_TWO), 200, NULL);
    struct answer mine = infer_at(INFER, 1, 1, "\"id\":\"a\",", start, AS_ONE);
    ck_assert_msg(mine.status == 200 && is_replayed(&mine), "%s", mine.text);
    answer_free(&mine);
}

SUITE(v2)
