/* test_revisions.c: requests that the network held up and that arrive once more, after their copies
 * were answered and others have followed, change nothing.  A held request is one that is sent a
 * second time, as it was, later. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

#define INFER "/v2/models/tiny/infer"

/* What the last answer said of the session: its sender's knowledge. */
static json_int_t epoch, revision;

static const json_t *facts_of(const struct answer *answer)
{
    const json_t *parameters = json_object_get(answer->json, "parameters");
    const json_t *items = json_object_get(answer->json, "sequences");
    return parameters != NULL ? parameters
           : items != NULL    ? json_array_get(items, 0)
                              : answer->json;
}

static json_int_t number_of(const json_t *object, const char *name)
{
    const json_t *number = json_object_get(object, name);
    ck_assert_msg(json_is_integer(number), "no %s", name);
    return json_integer_value(number);
}

/* Sends a request, which must succeed, and takes what the answer says of the session. */
static struct answer ask(const char *path, const char *body)
{
    struct answer answer = client_post(&client, path, body);
    ck_assert_msg(answer.status == 200 || answer.status == 201, "%s: %.300s", body, answer.text);
    epoch = number_of(facts_of(&answer), "epoch");
    revision = number_of(facts_of(&answer), "revision");
    ck_assert_int_ge(revision, 1);
    ck_assert_int_lt(revision, (json_int_t)1 << 52);
    return answer;
}

static void sent(const char *path, const char *body)
{
    struct answer answer = ask(path, body);
    answer_free(&answer);
}

/* Sends a request that must be refused, and returns its error; the caller frees the answer. */
static struct answer refused(const char *path, const char *body, const char *code)
{
    struct answer answer = client_post(&client, path, body);
    expect_answer(&answer, 409, code, body);
    return answer;
}

/* The same where the error says what the session is. */
static void expect_other(const char *path, const char *body, size_t length)
{
    struct answer answer = refused(path, body, "revision_mismatch");
    const json_t *error = json_object_get(answer.json, "error");
    error = json_is_object(error) ? error : answer.json; /* of /v2 */
    ck_assert_int_eq(number_of(error, "epoch"), epoch);
    ck_assert_int_eq(number_of(error, "revision"), revision);
    ck_assert_int_eq(number_of(error, "length"), (json_int_t)length);
    ck_assert(json_is_false(json_object_get(error, "retryable")));
    answer_free(&answer);
}

/* ---- Bodies, with what is known -------------------------------------------------------------- */

static char *step_body(unsigned i)
{
    struct text body = {0};
    char extra[120];
    snprintf(extra, sizeof extra, ",\"position\":%u,\"epoch\":%lld,\"revision\":%lld", i,
             (long long)epoch, (long long)revision);
    text_add(&body, "{");
    text_step(&body, "s", i, extra);
    text_add(&body, "}");
    return body.data;
}

static char *cut_body(size_t length)
{
    struct text body = {0};
    text_add(&body, "{\"length\":%zu,\"epoch\":%lld,\"revision\":%lld}", length, (long long)epoch,
             (long long)revision);
    return body.data;
}

static char *infer_body(unsigned i, const char *parameters)
{
    struct text body = {0};
    float row[TINY];
    make_numbers(row, TINY, i);
    text_add(&body, "{\"id\":\"a\",\"parameters\":{\"sequence_id\":\"s\",\"position\":%u%s},", i,
             parameters);
    text_add(&body, "\"inputs\":[{\"name\":\"hidden_states\",\"shape\":[1,1,16],"
                    "\"datatype\":\"FP32\",\"data\":");
    text_floats(&body, row, 9, SHAPE(TINY));
    text_add(&body, "}]}");
    return body.data;
}

static char *known_infer_body(unsigned i, const char *more)
{
    char parameters[160];
    snprintf(parameters, sizeof parameters, ",\"epoch\":%lld,\"revision\":%lld%s", (long long)epoch,
             (long long)revision, more);
    return infer_body(i, parameters);
}

static void do_steps(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char *body = step_body(i);
        sent("/decode", body);
        free(body);
    }
}

static void cut_to(size_t length)
{
    char *body = cut_body(length);
    sent("/sessions/s/truncate", body);
    free(body);
}

/* Starts the session `s` with `tokens` steps in its first layer. */
static void begin(unsigned tokens)
{
    sent("/sessions", "{\"model\":\"tiny\",\"session_id\":\"s\"}");
    do_steps(0, tokens);
}

static void expect_length(size_t length)
{
    ck_assert_uint_eq(call_length(&client, "s", 0), length);
}

static bool is_replayed(const struct answer *answer)
{
    return json_is_true(json_object_get(facts_of(answer), "replayed"));
}

/* ---- Truncations ----------------------------------------------------------------------------- */

CASE(requests, serve_small, serve_end, 0)

TEST(a_truncation_that_arrives_again_after_later_steps_changes_nothing)
{
    begin(9);
    char *held = cut_body(5);
    json_int_t before = revision;
    sent("/sessions/s/truncate", held);
    json_int_t after = revision;
    ck_assert_int_ne(after, before);
    do_steps(5, 9);
    char *bits = call_next_bits(&client, "s");
    struct answer late = ask("/sessions/s/truncate", held);
    ck_assert(is_replayed(&late));
    ck_assert_int_eq(revision, after);
    const json_t *lengths = json_object_get(late.json, "lengths");
    ck_assert_int_eq(number_of(json_array_get(lengths, 0), "length"), 9);
    expect_length(9);
    char *same = call_next_bits(&client, "s");
    ck_assert_str_eq(bits, same);
    answer_free(&late);
    free(bits);
    free(same);
    free(held);
}

/* A session of the same id has ended meanwhile: what was sent to it is not the present one's. */
TEST(a_truncation_that_arrives_again_of_another_epoch_is_refused)
{
    begin(9);
    cut_to(7);
    char *held = cut_body(5);
    cut_to(5);
    struct text other = {0};
    text_add(&other, "%s", held);
    char *number = strstr(other.data, "\"epoch\":") + strlen("\"epoch\":");
    number[0] = number[0] == '1' ? '2' : '1';
    struct answer late = refused("/sessions/s/truncate", other.data, "epoch_mismatch");
    expect_length(5);
    answer_free(&late);
    text_free(&other);
    free(held);
}

/* Each names a revision that is neither the present one nor, with this length, the one before. */
TEST(a_truncation_of_another_revision_is_refused)
{
    begin(9);
    char *first = cut_body(7), *other = cut_body(6);
    cut_to(7);
    expect_other("/sessions/s/truncate", other, 7);
    char *second = cut_body(5);
    cut_to(5);
    expect_other("/sessions/s/truncate", first, 5);
    do_steps(5, 7);
    struct answer again = ask("/sessions/s/truncate", second);
    ck_assert(is_replayed(&again));
    expect_length(7);
    sent("/sessions/s/truncate", "{\"length\":7}"); /* of any revision, and removes nothing */
    expect_other("/sessions/s/truncate", second, 7);
    expect_length(7);
    answer_free(&again);
    free(first);
    free(other);
    free(second);
}

TEST(every_truncation_gives_another_revision)
{
    begin(3);
    json_int_t seen[20];
    for (size_t i = 0; i < 20; i++) {
        sent("/sessions/s/truncate", "{\"length\":3}");
        seen[i] = revision;
        for (size_t j = 0; j < i; j++)
            ck_assert_int_ne(seen[i], seen[j]);
    }
    expect_length(3);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

TEST(a_step_that_arrives_again_after_a_truncation_is_refused)
{
    begin(8);
    char *held = step_body(8);
    sent("/decode", held);
    cut_to(8);
    expect_other("/decode", held, 8);
    expect_other("/attend", held, 8);
    expect_length(8);
    do_steps(8, 9);
    expect_other("/decode", held, 9); /* also where the step is the last one, of another revision */
    free(held);
}

TEST(a_step_of_a_list_names_a_revision_of_its_own)
{
    begin(4);
    char *held = step_body(4);
    cut_to(4);
    char *good = step_body(4);
    struct text body = {0};
    text_add(&body, "{\"sequences\":[%s,%s]}", held, good);
    struct answer answer = client_post(&client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "a list");
    const json_t *items = json_object_get(answer.json, "sequences");
    const json_t *error = json_object_get(json_array_get(items, 0), "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "revision_mismatch");
    ck_assert_int_eq(number_of(error, "revision"), revision);
    ck_assert_int_eq(number_of(json_array_get(items, 1), "revision"), revision);
    ck_assert_int_eq(number_of(json_array_get(items, 1), "length"), 5);
    answer_free(&answer);
    text_free(&body);
    free(held);
    free(good);
}

TEST(a_retry_of_the_last_step_has_the_present_revision)
{
    begin(2);
    cut_to(2);
    json_int_t present = revision;
    char *last = step_body(2);
    sent("/decode", last);
    struct answer again = ask("/decode", last);
    ck_assert(is_replayed(&again));
    ck_assert_int_eq(revision, present);
    answer_free(&again);
    free(last);
}

/* ---- Forks, states and ends ------------------------------------------------------------------ */

TEST(a_fork_of_another_revision_is_refused_and_one_of_this_has_its_own)
{
    begin(6);
    char held[128], present[128];
    snprintf(held, sizeof held, "{\"session_id\":\"f\",\"length\":6,\"revision\":%lld}",
             (long long)revision);
    cut_to(4);
    expect_other("/sessions/s/fork", held, 4);
    ck_assert_int_eq(call_status(&client, "f"), 404);
    json_int_t parent = revision;
    snprintf(present, sizeof present, "{\"session_id\":\"f\",\"epoch\":%lld,\"revision\":%lld}",
             (long long)epoch, (long long)revision);
    sent("/sessions/s/fork", present);
    ck_assert_int_ne(revision, parent);
    ck_assert_uint_eq(call_length(&client, "f", 0), 4);
}

TEST(a_session_made_from_a_state_has_a_revision_of_its_own)
{
    begin(3);
    cut_to(2);
    struct answer file = client_get(&client, "/sessions/s/state");
    const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    struct answer made = client_send(&client, &(struct request){.method = "PUT",
                                                                .path = "/sessions/m/state",
                                                                .body = file.text,
                                                                .length = file.length,
                                                                .headers = headers});
    expect_answer(&made, 201, NULL, "import");
    ck_assert_int_ne(number_of(made.json, "revision"), revision);
    ck_assert_ptr_null(strstr(file.text + 8, "\"revision\""));
    answer_free(&file);
    answer_free(&made);
}

static struct answer end_with(const char *query)
{
    char path[160];
    snprintf(path, sizeof path, "/sessions/s%s", query);
    return client_delete(&client, path);
}

static void expect_end(const char *query, long status, const char *code)
{
    struct answer answer = end_with(query);
    expect_answer(&answer, status, code, query);
    answer_free(&answer);
}

TEST(an_end_that_arrives_again_leaves_the_next_session_of_that_id)
{
    char held[80];
    begin(2);
    snprintf(held, sizeof held, "?epoch=%lld", (long long)epoch);
    expect_end(held, 204, NULL);
    expect_end(held, 404, "session_not_found");
    begin(3);
    expect_end(held, 409, "epoch_mismatch");
    expect_length(3);
}

TEST(an_end_of_another_revision_leaves_the_session)
{
    char held[120];
    begin(5);
    snprintf(held, sizeof held, "?revision=%lld&epoch=%lld", (long long)revision, (long long)epoch);
    cut_to(2);
    struct answer answer = end_with(held);
    expect_answer(&answer, 409, "revision_mismatch", held);
    const json_t *error = json_object_get(answer.json, "error");
    ck_assert_int_eq(number_of(error, "revision"), revision);
    ck_assert_int_eq(number_of(error, "length"), 2);
    answer_free(&answer);
    expect_length(2);
    snprintf(held, sizeof held, "?revision=%lld", (long long)revision);
    expect_end(held, 204, NULL);
}

/* ---- /v2 ------------------------------------------------------------------------------------- */

#define SEQUENCE_START ",\"sequence_start\":true"
#define SEQUENCE_END ",\"sequence_end\":true"

static void infer(char *body)
{
    sent(INFER, body);
    free(body);
}

TEST(an_infer_step_that_arrives_again_after_a_truncation_is_refused)
{
    infer(infer_body(0, SEQUENCE_START));
    infer(known_infer_body(1, ""));
    char *held = known_infer_body(2, "");
    sent(INFER, held);
    cut_to(2);
    expect_other(INFER, held, 2);
    infer(known_infer_body(2, ""));
    expect_length(3);
    free(held);
}

TEST(an_end_of_a_sequence_that_arrives_again_leaves_the_next_sequence)
{
    infer(infer_body(0, SEQUENCE_START));
    char *held = known_infer_body(1, SEQUENCE_END);
    sent(INFER, held);
    ck_assert_int_eq(call_status(&client, "s"), 404);
    infer(infer_body(0, SEQUENCE_START));
    struct answer late = refused(INFER, held, "epoch_mismatch");
    expect_length(1);
    answer_free(&late);
    free(held);
}

/* The start names no revision: it is the session as it was made. */
TEST(a_start_of_a_sequence_that_arrives_again_after_a_truncation_is_refused)
{
    char *held = infer_body(0, SEQUENCE_START);
    sent(INFER, held);
    struct answer again = ask(INFER, held);
    ck_assert(is_replayed(&again));
    cut_to(0);
    expect_other(INFER, held, 0);
    expect_length(0);
    answer_free(&again);
    free(held);
}

/* ---- Restarts -------------------------------------------------------------------------------- */

static char directory[SCRATCH_PATH];

static void start_kept(const char *durability, const char *journal_fsync)
{
    const char *const arguments[] = {"--state-dir", directory,         "--durability",
                                     durability,    "--journal-fsync", journal_fsync,
                                     NULL};
    daemon_start(&served, CONFIG_SMALL(""), arguments, NULL);
    client_open(&client, &served);
}

static void set_up_directory(void) { scratch_make(directory); }

static void tear_down_directory(void) { scratch_remove(directory); }

static const struct kept {
    const char *durability, *journal_fsync;
    bool is_killed, has_snapshot;
} kept[] = {
    {"journal", "always", true, false}, {"journal", "os", true, true},
    {"journal", "os", false, false},    {"snapshot", "os", false, false},
    {"snapshot", "os", true, true},
};

CASE(restarts, set_up_directory, tear_down_directory, 120)

TEST_EACH(a_revision_and_the_last_truncation_outlive_a_restart, (int)COUNT(kept))
{
    const struct kept *how = &kept[_i];
    start_kept(how->durability, how->journal_fsync);
    begin(9);
    char *step = step_body(8), *first = cut_body(7);
    cut_to(7);
    char *held = cut_body(5);
    cut_to(5);
    do_steps(5, 9);
    json_int_t present = revision;
    char whole[80];
    sent("/sessions/s/fork", "{\"session_id\":\"f\"}");
    json_int_t of_fork = revision;
    if (how->has_snapshot)
        call_snapshot(&client);
    if (how->is_killed)
        serve_kill();
    else
        serve_end();
    for (size_t again = 0; again < 2; again++) {
        start_kept(how->durability, how->journal_fsync);
        struct answer late = ask("/sessions/s/truncate", held);
        ck_assert(is_replayed(&late));
        ck_assert_int_eq(revision, present);
        expect_length(9);
        expect_other("/sessions/s/truncate", first, 9);
        expect_other("/decode", step, 9);
        struct answer fork = client_get(&client, "/sessions/f");
        ck_assert_int_eq(number_of(fork.json, "revision"), of_fork);
        answer_free(&fork);
        answer_free(&late);
        if (again == 0)
            serve_end();
    }
    snprintf(whole, sizeof whole, "?revision=%lld", (long long)revision);
    expect_end(whole, 204, NULL);
    serve_end();
    free(step);
    free(first);
    free(held);
}

SUITE(revisions)
