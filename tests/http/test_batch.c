/* test_batch.c: POST /sessions/batch: forks and deletes of several sessions in one request, each
 * with its own result. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define PATH "/sessions/batch"
#define FOREIGN "elsewhere.0123456789abcdefghjkmnpqrs" /* an id that another instance has made */

static struct answer batch_with(const char *body, const char *first, const char *second)
{
    const char *const headers[] = {first, second, NULL};
    return client_send(&client, &(struct request){"POST", PATH, body, 0, headers});
}

static struct answer batch(const char *body) { return batch_with(body, NULL, NULL); }

static json_t *item_of(const struct answer *answer, const char *list, size_t i)
{
    return json_array_get(json_object_get(answer->json, list), i);
}

/* Fails unless an item has this error, or where `code` is NULL is the session of this id. */
static void expect_item(const struct answer *answer, const char *list, size_t i, const char *id,
                        const char *code)
{
    const json_t *item = item_of(answer, list, i), *error = json_object_get(item, "error");
    const char *word = json_string_value(json_object_get(error, code != NULL ? "code" : "none"));
    const char *name = json_string_value(json_object_get(item, "session_id"));
    bool good = code != NULL ? word != NULL && strcmp(word, code) == 0 && name == NULL
                             : error == NULL && name != NULL && strcmp(name, id) == 0;
    ck_assert_msg(answer->status == 200 && good, "%s[%zu], expected %s: %s", list, i,
                  code != NULL ? code : id, answer->text);
}

static bool is_replayed(const struct answer *answer, size_t i)
{
    return json_is_true(json_object_get(item_of(answer, "fork", i), "replayed"));
}

static size_t length_of(const struct answer *answer, size_t i)
{
    const json_t *lengths = json_object_get(item_of(answer, "fork", i), "lengths");
    return (size_t)json_integer_value(json_object_get(json_array_get(lengths, 0), "length"));
}

static void make(const char *id, unsigned seed, size_t rows)
{
    call_create(&client, id, "");
    struct answer answer = call_prefill(&client, id, seed, rows, "");
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

/* ---- Items ----------------------------------------------------------------------------------- */

CASE(items, serve_small, serve_end, 0)

/* A step of a beam search: children of those that go on, and the end of all others. */
TEST(forks_are_made_in_order_and_then_the_deletes)
{
    make("a", 1, 70);
    make("b", 9, 5);
    char *of_a = call_next_bits(&client, "a"), *of_b = call_next_bits(&client, "b");
    double created = call_metric(&client, "attnd_sessions_created_total");
    struct answer answer = batch(
        "{\"fork\":[{\"from\":\"a\",\"session_id\":\"a1\"},{\"from\":\"a1\",\"session_id\":\"a2\"},"
        "{\"from\":\"b\",\"session_id\":\"b1\"},{\"from\":\"a\",\"session_id\":\"cut\",\"length\":"
        "64}],"
        "\"delete\":[{\"session_id\":\"a\"},{\"session_id\":\"b\"}]}");
    const char *const forks[] = {"a1", "a2", "b1", "cut"}, *const ended[] = {"a", "b"};
    for (size_t i = 0; i < 4; i++)
        expect_item(&answer, "fork", i, forks[i], NULL);
    for (size_t i = 0; i < 2; i++) {
        expect_item(&answer, "delete", i, ended[i], NULL);
        ck_assert_int_eq(call_status(&client, ended[i]), 404);
    }
    ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "fork")), 4);
    ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "delete")), 2);
    ck_assert_uint_eq(length_of(&answer, 3), 64);
    answer_free(&answer);
    for (size_t i = 0; i < 3; i++) {
        char *bits = call_next_bits(&client, forks[i]);
        ck_assert_str_eq(bits, i < 2 ? of_a : of_b);
        free(bits);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_created_total"), created + 4);
    free(of_a);
    free(of_b);
}

TEST(an_item_that_fails_stops_no_other)
{
    make("a", 1, 3);
    json_int_t epoch = call_create(&client, "c", "");
    char body[900];
    snprintf(body, sizeof body,
             "{\"fork\":[{\"from\":\"none\"},{\"from\":\"a\",\"session_id\":\"a\"},"
             "{\"from\":\"a\",\"length\":4},{\"from\":\"a\",\"epoch\":%lld},"
             "{\"from\":\"a\",\"session_id\":\"b\"},{\"from\":\"test.gone\"},"
             "{\"from\":\"" FOREIGN "\"}],"
             "\"delete\":[{\"session_id\":\"none\"},{\"session_id\":\"a\",\"epoch\":%lld},"
             "{\"session_id\":\"c\",\"epoch\":%lld},{\"session_id\":\"c\"}]}",
             (long long)epoch, (long long)epoch, (long long)epoch);
    struct answer answer = batch(body);
    expect_item(&answer, "fork", 0, NULL, "session_not_found");
    expect_item(&answer, "fork", 1, NULL, "session_exists");
    expect_item(&answer, "fork", 2, NULL, "position_gap");
    expect_item(&answer, "fork", 3, NULL, "epoch_mismatch");
    expect_item(&answer, "fork", 4, "b", NULL);
    expect_item(&answer, "fork", 5, NULL, "session_not_found");
    expect_item(&answer, "fork", 6, NULL, "wrong_instance");
    expect_item(&answer, "delete", 0, NULL, "session_not_found");
    expect_item(&answer, "delete", 1, NULL, "epoch_mismatch");
    expect_item(&answer, "delete", 2, "c", NULL);
    expect_item(&answer, "delete", 3, NULL, "session_not_found");
    const json_t *gap = json_object_get(item_of(&answer, "fork", 2), "error");
    ck_assert_int_eq(json_integer_value(json_object_get(gap, "length")), 3);
    answer_free(&answer);
    ck_assert_int_eq(call_status(&client, "a"), 200);
    expect_decode(&client, "b", 1, 3);
}

/* The largest batch, with ids and numbers of the greatest length. */
TEST(a_batch_of_64_forks_and_64_deletes_fits)
{
    char parent[65], last[65];
    struct text body = {0};
    snprintf(parent, sizeof parent, "%064d", 7);
    json_int_t epoch = call_create(&client, parent, "");
    for (int more = 0; more < 2; more++) {
        body.length = 0;
        text_add(&body, "{\"fork\":[");
        for (int i = 0; i < 64 + more; i++)
            text_add(&body,
                     "%s{\"from\":\"%s\",\"session_id\":\"%064d\",\"length\":0,\"epoch\":%lld,"
                     "\"shared\":false}",
                     i > 0 ? "," : "", parent, 100 + i, (long long)epoch);
        text_add(&body, "],\"delete\":[");
        for (int i = 0; i < 64; i++)
            text_add(&body, "%s{\"session_id\":\"%064d\"}", i > 0 ? "," : "", 100 + i);
        text_add(&body, "]}");
        struct answer answer = batch(body.data);
        expect_answer(&answer, more ? 413 : 200, more ? "too_complex" : NULL, "all");
        snprintf(last, sizeof last, "%064d", 163);
        if (more == 0)
            expect_item(&answer, "fork", 63, last, NULL);
        if (more == 0)
            expect_item(&answer, "delete", 63, last, NULL);
        answer_free(&answer);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 1);
    text_free(&body);
}

TEST(a_body_that_cannot_be_read_changes_nothing)
{
    static const struct {
        const char *body;
        long status;
        const char *code, *param;
    } wrong[] = {
        {"{}", 400, "invalid_value", "fork"},
        {"{\"fork\":[],\"delete\":[]}", 400, "invalid_value", "fork"},
        {"{\"fork\":{}}", 400, "invalid_type", "fork"},
        {"{\"delete\":[\"a\"]}", 400, "invalid_type", "delete"},
        {"{\"fork\":[{\"from\":\"a\"},{}]}", 400, "missing_field", "fork[1].from"},
        {"{\"fork\":[{\"from\":null}]}", 400, "missing_field", "fork[0].from"},
        {"{\"fork\":[{\"from\":\"a/b\"}]}", 400, "invalid_value", "fork[0].from"},
        {"{\"fork\":[{\"from\":\"a\",\"session_id\":\"\"}]}", 400, "invalid_value",
         "fork[0].session_id"},
        {"{\"fork\":[{\"from\":\"a\"}],\"delete\":[{\"session_id\":\"a\",\"length\":1}]}", 400,
         "unknown_field", "delete[0].length"},
        {"{\"fork\":[{\"from\":\"a\"}],\"delete\":[{\"session_id\":\"a\",\"epoch\":0}]}", 400,
         "invalid_value", "delete[0].epoch"},
        {"{\"forks\":[{\"from\":\"a\"}]}", 400, "unknown_field", "forks"},
        {"[]", 400, "malformed_json", NULL},
    };
    call_create(&client, "a", "");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct answer answer = batch(wrong[i].body);
        const json_t *error = json_object_get(answer.json, "error");
        const char *param = json_string_value(json_object_get(error, "param"));
        expect_answer(&answer, wrong[i].status, wrong[i].code, wrong[i].body);
        ck_assert_msg(wrong[i].param == NULL ? param == NULL : strcmp(param, wrong[i].param) == 0,
                      "%s", answer.text);
        answer_free(&answer);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 1);
}

TEST(the_header_names_one_of_the_sessions)
{
    static const char body[] = "{\"fork\":[{\"from\":\"a\",\"session_id\":\"b\"}],"
                               "\"delete\":[{\"session_id\":\"b\"}]}";
    call_create(&client, "a", "");
    const char *const named[] = {"X-Session-Id: a", "X-Session-Id: b", "X-Session-Id: c"};
    for (size_t i = 0; i < 3; i++) {
        struct answer answer = batch_with(body, named[i], NULL);
        expect_answer(&answer, i < 2 ? 200 : 400, i < 2 ? NULL : "invalid_value", named[i]);
        answer_free(&answer);
    }
}

/* ---- Repeats --------------------------------------------------------------------------------- */

#define KEY "Idempotency-Key: turn-1"
#define TURN                                                                            \
    "{\"fork\":[{\"from\":\"a\",\"session_id\":\"a1\"},{\"from\":\"a\"}],\"delete\":[{" \
    "\"session_id\":\"a\"}]}"

/* `made` is the id that attnd has made for the second fork; filled where it is empty. */
static void take_turn(bool again, char made[65])
{
    struct answer answer = batch_with(TURN, KEY, NULL);
    const char *id = json_string_value(json_object_get(item_of(&answer, "fork", 1), "session_id"));
    ck_assert_msg(id != NULL, "%s", answer.text);
    if (made[0] == '\0')
        snprintf(made, 65, "%s", id);
    expect_item(&answer, "fork", 0, "a1", NULL);
    expect_item(&answer, "fork", 1, made, NULL);
    expect_item(&answer, "delete", 0, "a", again ? "session_not_found" : NULL);
    ck_assert(is_replayed(&answer, 0) == again && is_replayed(&answer, 1) == again);
    answer_free(&answer);
}

TEST(a_repeat_finds_the_forks_and_ends_nothing_twice)
{
    char made[65] = "";
    make("a", 1, 3);
    take_turn(false, made);
    expect_decode(&client, made, 5, 3);
    take_turn(true, made);
    ck_assert_uint_eq(call_length(&client, made, 0), 4);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 2);
    struct answer other = batch_with(
        "{\"fork\":[{\"from\":\"a1\",\"session_id\":\"a1\"},{\"from\":\"a1\"}]}", KEY, NULL);
    expect_item(&other, "fork", 0, NULL, "idempotency_conflict");
    expect_item(&other, "fork", 1, NULL, "idempotency_conflict");
    answer_free(&other);
    other = batch_with("{\"fork\":[{\"from\":\"a1\"}]}", "Idempotency-Key: turn-2", NULL);
    ck_assert(!is_replayed(&other, 0) && item_of(&other, "fork", 0) != NULL);
    answer_free(&other);
}

static char directory[SCRATCH_PATH];

static void start_journal(void)
{
    serve_state(CONFIG_SMALL("\"log\":\"error\","), directory, "journal");
}

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

CASE(journal, begin_journal, end_journal, 0)

TEST(a_batch_outlives_a_kill)
{
    char made[65] = "";
    make("a", 1, 70);
    char *bits = call_next_bits(&client, "a");
    take_turn(false, made);
    serve_kill();
    start_journal();
    ck_assert_int_eq(call_status(&client, "a"), 404);
    char *again = call_next_bits(&client, made);
    ck_assert_str_eq(again, bits);
    take_turn(true, made);
    free(bits);
    free(again);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static char keys_path[SECRET_PATH];

static void begin_keys(void)
{
    secret_write(keys_path,
                 "{\"keys\":[{\"name\":\"one\",\"key\":\"" KEY_INFER
                 "\",\"scopes\":[\"infer\"],\"max_sessions\":3},"
                 "{\"name\":\"two\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\"]},"
                 "{\"name\":\"ops\",\"key\":\"" KEY_ADMIN "\",\"scopes\":[\"admin\"]}]}");
    serve_keys(CONFIG_SMALL(""), keys_path);
    served.authorization = "Authorization: Bearer " KEY_INFER;
}

CASE(keys, begin_keys, serve_end, 0)

TEST(keys_find_their_own_sessions_and_their_limits_hold)
{
    call_create(&client, "mine", "");
    struct answer answer = batch("{\"fork\":[{\"from\":\"mine\",\"session_id\":\"f1\"},"
                                 "{\"from\":\"mine\",\"session_id\":\"f2\"},{\"from\":\"mine\"}],"
                                 "\"delete\":[{\"session_id\":\"f1\"}]}");
    expect_item(&answer, "fork", 1, "f2", NULL);
    expect_item(&answer, "fork", 2, NULL, "quota_exceeded");
    expect_item(&answer, "delete", 0, "f1", NULL);
    answer_free(&answer);
    served.authorization = "Authorization: Bearer " KEY_BOTH;
    answer = batch("{\"fork\":[{\"from\":\"mine\"}],\"delete\":[{\"session_id\":\"mine\"}]}");
    expect_item(&answer, "fork", 0, NULL, "session_not_found");
    expect_item(&answer, "delete", 0, NULL, "session_not_found");
    answer_free(&answer);
    served.authorization = "Authorization: Bearer " KEY_ADMIN;
    answer = batch("{\"delete\":[{\"session_id\":\"mine\"}]}");
    expect_answer(&answer, 403, "forbidden", "admin");
    answer_free(&answer);
    served.authorization = "Authorization: Bearer " KEY_INFER;
    ck_assert_int_eq(call_status(&client, "mine"), 200);
}

SUITE(batch)
