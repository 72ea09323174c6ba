/* test_cross.c: sessions of cross-attention: encoder rows are projected when the session starts,
 * and steps attend to them. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binary.h"
#include "calls.h"
#include "golden.h"
#include "long_call.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

#define E 16  /* width of the model `crossed` */
#define EK 12 /* of its encoder rows */
#define LAYERS 2
#define CONFIG(members)                                                                            \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\",\"log\":\"error\"," members     \
    "\"models\":[{\"name\":\"crossed\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"  \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"is_cross\":true,\"kdim\":12,\"vdim\":12," \
    "\"attention_bias\":true,\"seed\":5}}]}"
#define BLOCK ((size_t)2 * 64 * (4 + 4) * 4) /* bytes of 64 tokens in a layer */

static char directory[SCRATCH_PATH];

static void start(const char *config, const char *durability, const char *const variables[])
{
    const char *const arguments[] = {"--state-dir", directory, "--durability", durability, NULL};
    daemon_start(&served, config, arguments, variables);
    client_open(&client, &served);
}

static void set_up(void) { scratch_make(directory); }

static void tear_down(void) { scratch_remove(directory); }

static void serve_crossed(void) { serve(CONFIG("")); }

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* Rows of numbers that the seed makes, as a member. */
static void add_made(struct text *body, const char *name, unsigned seed, size_t rows, size_t width)
{
    float *x = malloc(rows * width * sizeof *x);
    make_numbers(x, rows * width, seed);
    text_add(body, ",\"%s\":", name);
    text_floats(body, x, 9, SHAPE(rows, width));
    free(x);
}

static struct answer post(const char *path, struct text *body)
{
    text_add(body, "}");
    struct answer answer = client_post(&client, path, body->data);
    text_free(body);
    return answer;
}

/* A step of `rows` query rows that starts a session over encoder rows. */
static struct answer start_session(const char *id, unsigned seed, size_t encoder_rows,
                                   const char *more)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",\"start\":true%s", id, more);
    add_made(&body, "hidden_states", 1, 2, E);
    add_made(&body, "encoder_hidden_states", seed, encoder_rows, EK);
    return post("/decode", &body);
}

static void make_session(const char *id, unsigned seed, size_t encoder_rows)
{
    struct answer answer = start_session(id, seed, encoder_rows, "");
    expect_answer(&answer, 200, NULL, id);
    ck_assert_int_eq(answer_integer(&answer, "length"), (json_int_t)encoder_rows);
    answer_free(&answer);
}

static const char outputs[] =
    ",\"outputs\":[\"output\",\"attention_weights\",\"lse\",\"key\",\"head_stats\"]";

/* The stateless answer to a query row: all outputs. */
static struct answer attend(unsigned layer, unsigned query, unsigned seed, size_t encoder_rows)
{
    struct text body = {0};
    text_add(&body, "{\"layer\":%u%s", layer, outputs);
    add_made(&body, "hidden_states", query, 1, E);
    add_made(&body, "encoder_hidden_states", seed, encoder_rows, EK);
    return post("/attend", &body);
}

static struct answer query_step(const char *id, unsigned layer, unsigned query, const char *more)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",\"layer\":%u%s", id, layer, more);
    add_made(&body, "hidden_states", query, 1, E);
    return post("/decode", &body);
}

/* The bits of a step in layer 1. */
static char *bits_of(const char *id)
{
    struct answer answer = query_step(id, 1, 9, "");
    expect_answer(&answer, 200, NULL, id);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

static void expect_bits(const char *id, const char *want)
{
    char *got = bits_of(id);
    ck_assert_str_eq(got, want);
    free(got);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void expect_stateless(const json_t *got, unsigned layer, unsigned query, unsigned seed,
                             size_t encoder_rows)
{
    const struct {
        const char *name;
        size_t count, shape[3];
        unsigned rank;
    } parts[] = {{"output", E, {1, E}, 2},
                 {"attention_weights", 4 * encoder_rows, {4, 1, encoder_rows}, 3},
                 {"lse", 4, {4, 1}, 2},
                 {"key", 8 * encoder_rows, {2, encoder_rows, 4}, 3}};
    struct answer want = attend(layer, query, seed, encoder_rows);
    expect_answer(&want, 200, NULL, "stateless");
    for (size_t i = 0; i < 4; i++) {
        float *a = tensor_of(got, parts[i].name, parts[i].rank, parts[i].shape);
        float *b = tensor_of(want.json, parts[i].name, parts[i].rank, parts[i].shape);
        expect_close(parts[i].name, a, b, parts[i].count, 1e-6);
        free(a);
        free(b);
    }
    answer_free(&want);
}

CASE(steps, serve_crossed, serve_end, 120)

TEST(steps_in_all_layers_equal_the_stateless_answers_and_append_nothing)
{
    make_session("a", 7, 150);
    size_t bytes = (size_t)call_metric(&client, "attnd_cache_used_bytes");
    ck_assert_uint_eq(bytes, LAYERS * 3 * BLOCK);
    for (unsigned query = 20; query < 24; query++)
        for (unsigned layer = 0; layer < LAYERS; layer++) {
            struct answer answer = query_step("a", layer, query, outputs);
            expect_answer(&answer, 200, NULL, "step");
            ck_assert_int_eq(answer_integer(&answer, "length"), 150);
            expect_stateless(answer.json, layer, query, 7, 150);
            answer_free(&answer);
        }
    ck_assert_uint_eq((size_t)call_metric(&client, "attnd_cache_used_bytes"), bytes);
}

TEST(a_step_may_be_repeated_at_any_position)
{
    make_session("a", 7, 70);
    struct answer first = query_step("a", 0, 3, ",\"position\":0"),
                  next = query_step("a", 0, 4, "");
    struct answer again = query_step("a", 0, 3, ",\"position\":0,\"commit\":false");
    expect_answer(&next, 200, NULL, "the step after");
    ck_assert_int_eq(answer_integer(&next, "position"), 70);
    ck_assert_int_eq(answer_integer(&again, "position"), 0);
    ck_assert_str_eq(first.text, again.text);
    ck_assert_uint_eq(call_length(&client, "a", 0), 70);
    answer_free(&first);
    answer_free(&next);
    answer_free(&again);
}

TEST(sessions_of_different_encoder_lengths_share_a_request)
{
    static const size_t lengths[] = {1, 64, 65, 300};
    struct text body = {0};
    text_add(&body, "{\"layer\":1,\"sequences\":[");
    for (unsigned i = 0; i < 4; i++) {
        char id[8];
        snprintf(id, sizeof id, "s%u", i);
        make_session(id, i, lengths[i]);
        text_add(&body, "%s{\"session_id\":\"%s\"%s", i > 0 ? "," : "", id, outputs);
        add_made(&body, "hidden_states", 30 + i, 1, E);
        text_add(&body, "}");
    }
    text_add(&body, "]");
    struct answer answer = post("/decode", &body);
    expect_answer(&answer, 200, NULL, "a list of steps");
    json_t *list = json_object_get(answer.json, "sequences");
    ck_assert_uint_eq(json_array_size(list), 4);
    for (unsigned i = 0; i < 4; i++)
        expect_stateless(json_array_get(list, i), 1, 30 + i, i, lengths[i]);
    answer_free(&answer);
}

TEST(rows_of_encoder_padding_are_left_out)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"p\",\"start\":true,\"encoder_padding_mask\":[1,0,1,1,0]");
    add_made(&body, "hidden_states", 8, 1, E);
    add_made(&body, "encoder_hidden_states", 2, 5, EK);
    struct answer answer = post("/attend", &body), want;
    expect_answer(&answer, 200, NULL, "padded");
    ck_assert_int_eq(answer_integer(&answer, "length"), 3);
    body = (struct text){0};
    text_add(&body, "{\"padding_mask\":[1,0,1,1,0]");
    add_made(&body, "hidden_states", 8, 1, E);
    add_made(&body, "encoder_hidden_states", 2, 5, EK);
    want = post("/attend", &body);
    expect_answer(&want, 200, NULL, "stateless");
    float *a = tensor_of(answer.json, "output", SHAPE(1, E));
    float *b = tensor_of(want.json, "output", SHAPE(1, E));
    expect_close("output", a, b, E, 1e-6);
    free(a);
    free(b);
    answer_free(&answer);
    answer_free(&want);
}

/* A start that is sent again, also after a restart, goes to the session that it has made. */
static void expect_start_replayed(void)
{
    struct answer answer = start_session("a", 7, 90, "");
    expect_answer(&answer, 200, NULL, "a start again");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
    answer = start_session("a", 8, 90, "");
    expect_answer(&answer, 409, "session_exists", "a start with other rows");
    answer_free(&answer);
}

TEST(a_start_that_is_repeated_is_answered_again)
{
    make_session("a", 7, 90);
    size_t used = (size_t)call_metric(&client, "attnd_cache_used_bytes");
    expect_start_replayed();
    ck_assert_uint_eq((size_t)call_metric(&client, "attnd_cache_used_bytes"), used);
    struct answer answer = start_session("a", 7, 90, ",\"position_ids\":[0,1]");
    expect_answer(&answer, 422, "unsupported", "a start again that fails");
    answer_free(&answer);
    answer = start_session("a", 7, 90, ",\"attention_mask\":[[1]]");
    expect_answer(&answer, 422, "shape_mismatch", "a start again that fails as a step");
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "a", 0), 90);
}

/* ---- POST /sessions -------------------------------------------------------------------------- */

/* POST /sessions over encoder rows, with an Idempotency-Key where `key` is not NULL. */
static struct answer create(const char *members, unsigned seed, size_t encoder_rows,
                            const char *key)
{
    char field[64];
    const char *const headers[] = {field, NULL};
    struct text body = {0};
    snprintf(field, sizeof field, "Idempotency-Key: %s", key != NULL ? key : "");
    text_add(&body, "{%s", members);
    add_made(&body, "encoder_hidden_states", seed, encoder_rows, EK);
    text_add(&body, "}");
    const struct request request = {"POST", "/sessions", body.data,
                                    .headers = key != NULL ? headers : NULL};
    struct answer answer = client_send(&client, &request);
    text_free(&body);
    return answer;
}

/* One head of so many rows of width 1. */
static void add_zeros(struct text *body, const char *before, size_t rows)
{
    text_add(body, "%s{\"shape\":[1,%zu,1],\"data\":[0", before, rows);
    for (size_t i = 1; i < rows; i++)
        text_add(body, ",0");
    text_add(body, "]}");
}

static void expect_created(const struct answer *answer, size_t encoder_rows)
{
    expect_answer(answer, 201, NULL, "POST /sessions");
    const json_t *lengths = json_object_get(answer->json, "lengths");
    ck_assert_uint_eq(json_array_size(lengths), LAYERS);
    for (size_t i = 0; i < LAYERS; i++)
        ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(lengths, i), "length")),
                         (json_int_t)encoder_rows);
}

TEST(a_created_session_has_its_options_and_answers_as_a_started_one)
{
    make_session("a", 7, 150);
    char *want = bits_of("a");
    struct answer answer =
        create("\"session_id\":\"c\",\"model\":\"crossed\",\"ttl_s\":77,\"max_length\":150,"
               "\"shared\":true",
               7, 150, NULL);
    expect_created(&answer, 150);
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 77);
    ck_assert_int_eq(answer_integer(&answer, "max_length"), 150);
    ck_assert(json_is_true(json_object_get(answer.json, "shared")));
    ck_assert_int_eq(answer_integer(&answer, "bytes"), (json_int_t)(LAYERS * 3 * BLOCK));
    answer_free(&answer);
    expect_bits("c", want);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_created_total"), 2);
    free(want);
}

/* 1,500 rows of JSON are read by an I/O worker. */
TEST(encoder_rows_of_a_created_session_come_as_json_or_as_bytes)
{
    struct text body = {0};
    float row[EK];
    make_session("a", 7, 1500);
    char *want = bits_of("a");
    struct answer answer = create("\"session_id\":\"json\"", 7, 1500, NULL);
    expect_created(&answer, 1500);
    answer_free(&answer);
    expect_bits("json", want);
    free(want);
    text_add(&body, "{\"session_id\":\"b\",\"encoder_padding_mask\":[1,0,1],"
                    "\"encoder_hidden_states\":[");
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < EK; j++)
            row[j] = (float)((i * 7 + j * 3) % 11) / 8;
        text_add(&body, i > 0 ? "," : "");
        text_floats(&body, row, 9, SHAPE(EK));
    }
    text_add(&body, "]}");
    answer = binary_post(&client, "/sessions", body.data, AS_FP16, 0, NULL);
    expect_created(&answer, 2);
    answer_free(&answer);
    body.data[strlen("{\"session_id\":\"")] = 'j';
    answer = client_post(&client, "/sessions", body.data);
    expect_created(&answer, 2);
    answer_free(&answer);
    text_free(&body);
    want = bits_of("b");
    expect_bits("j", want);
    free(want);
}

TEST(a_session_is_created_once_for_an_idempotency_key)
{
    struct answer first = create("\"ttl_s\":60", 7, 90, "k"), again;
    expect_created(&first, 90);
    again = create("\"ttl_s\":60", 7, 90, "k");
    expect_created(&again, 90);
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    ck_assert_int_eq(answer_integer(&again, "epoch"), answer_integer(&first, "epoch"));
    answer_free(&again);
    again = create("\"ttl_s\":60", 8, 90, "k");
    expect_answer(&again, 409, "idempotency_conflict", "other rows");
    answer_free(&again);
    again = create("\"ttl_s\":61", 7, 90, "k");
    expect_answer(&again, 409, "idempotency_conflict", "another ttl_s");
    answer_free(&again);
    answer_free(&first);
    first = create("\"session_id\":\"c\"", 7, 90, NULL);
    again = create("\"session_id\":\"c\",\"ttl_s\":5", 7, 90, NULL); /* which is no start */
    expect_answer(&again, 409, "session_exists", "a session of that id");
    answer_free(&first);
    answer_free(&again);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_created_total"), 2);
}

/* Both are begun while a long computation runs, and encoded after it. */
TEST(two_requests_of_one_idempotency_key_at_once_create_one_session)
{
    static const char *const headers[] = {"Idempotency-Key: k", NULL};
    struct long_call running = {.daemon = &served, .path = "/attend"}, calls[2];
    add_zeros(&running.body, "{\"query\":", 12000);
    add_zeros(&running.body, ",\"key\":", 12000);
    add_zeros(&running.body, ",\"value\":", 12000);
    text_add(&running.body, "}");
    long_send(&running, &client);
    for (size_t i = 0; i < 2; i++) {
        calls[i] = (struct long_call){.daemon = &served, .path = "/sessions", .headers = headers};
        text_add(&calls[i].body, "{\"ttl_s\":9");
        add_made(&calls[i].body, "encoder_hidden_states", 7, 500, EK);
        text_add(&calls[i].body, "}");
        long_send(&calls[i], &client);
    }
    for (size_t i = 0; i < 2; i++)
        long_end(&calls[i], 201, NULL);
    long_end(&running, 200, NULL);
    struct answer list = client_get(&client, "/sessions");
    ck_assert_uint_eq(json_array_size(json_object_get(list.json, "sessions")), 1);
    answer_free(&list);
    ck_assert_uint_eq((size_t)call_metric(&client, "attnd_cache_used_bytes"), LAYERS * 8 * BLOCK);
}

TEST(encoder_rows_that_cannot_be_create_no_session)
{
    static const struct {
        const char *body;
        long status;
        const char *code, *param;
    } cases[] = {
        {"{\"session_id\":\"x\"}", 422, "unsupported", "encoder_hidden_states"},
        {"{\"encoder_padding_mask\":[1]}", 400, "missing_field", "encoder_hidden_states"},
        {"{\"encoder_hidden_states\":true}", 400, "invalid_type", "encoder_hidden_states"},
        {"{\"encoder_hidden_states\":[[1,2,3]]}", 422, "shape_mismatch", "encoder_hidden_states"},
        {"{\"encoder_hidden_states\":[[0,0,0,0,0,0,0,0,0,0,0,0]],\"encoder_padding_mask\":[1,1]}",
         422, "shape_mismatch", "encoder_padding_mask"},
        {"{\"encoder_hidden_states\":[[0,0,0,0,0,0,0,0,0,0,0,0]],\"encoder_padding_mask\":[0]}",
         400, "invalid_value", "encoder_padding_mask"},
        {"{\"encoder_hidden_states\":[[0,0,0,0,0,0,0,0,0,0,0,0],[0,0,0,0,0,0,0,0,0,0,0,0]],"
         "\"max_length\":1}",
         409, "session_full", NULL},
        {"{\"encoder_hidden_states\":[[1]],\"num_attention_heads\":2,\"head_dim\":2}", 400,
         "invalid_value", "encoder_hidden_states"},
        {"{\"encoder_hidden_states\":[[1]],\"encoder_hidden_states\":[[1]]}", 400,
         "duplicate_field", NULL},
        {"{\"encoder_hidden_states\":[[1]],\"hidden_states\":[[1]]}", 400, "unknown_field",
         "hidden_states"},
        {"{\"encoder_hidden_states\":[[1e99]]}", 422, "number_out_of_range",
         "encoder_hidden_states"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct answer answer = client_post(&client, "/sessions", cases[i].body);
        expect_answer(&answer, cases[i].status, cases[i].code, cases[i].body);
        const char *param =
            json_string_value(json_object_get(json_object_get(answer.json, "error"), "param"));
        ck_assert_msg(cases[i].param == NULL || (param && strcmp(param, cases[i].param) == 0),
                      "%s: %s", cases[i].body, answer.text);
        answer_free(&answer);
    }
    struct answer list = client_get(&client, "/sessions");
    ck_assert_uint_eq(json_array_size(json_object_get(list.json, "sessions")), 0);
    ck_assert_uint_eq((size_t)call_metric(&client, "attnd_cache_used_bytes"), 0);
    answer_free(&list);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void expect_no_session(struct answer *answer, long status, const char *code)
{
    expect_answer(answer, status, code, "a start");
    answer_free(answer);
    ck_assert_int_eq(call_status(&client, "x"), 404);
    ck_assert_uint_eq((size_t)call_metric(&client, "attnd_cache_used_bytes"), 0);
}

TEST(a_start_that_fails_leaves_no_session)
{
    struct answer answer = start_session("x", 1, 20, ",\"encoder_padding_mask\":[1]");
    expect_no_session(&answer, 422, "shape_mismatch");
    answer = start_session("x", 1, 2, ",\"encoder_padding_mask\":[0,0]");
    expect_no_session(&answer, 400, "invalid_value");
    answer = start_session("x", 1, 20, ",\"position_ids\":[0,1]");
    expect_no_session(&answer, 422, "unsupported");
    answer = start_session("x", 1, 20, ",\"epoch\":1");
    expect_no_session(&answer, 409, "epoch_mismatch");
    answer = start_session("x", 1, 20, ",\"attention_mask\":[[1]]"); /* known after the encoding */
    expect_no_session(&answer, 422, "shape_mismatch");
    make_session("x", 1, 20);
    answer = start_session("x", 2, 30, "");
    expect_answer(&answer, 409, "session_exists", "a second start");
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "x", 0), 20);
}

#define KEYS                                                                                 \
    "{\"keys\":[{\"name\":\"a\",\"key\":\"a-0123456789abcdef0123456789abcdef\",\"scopes\":[" \
    "\"infer\"],\"cache_bytes\":16384}]}"

/* ---- What is kept ---------------------------------------------------------------------------- */

TEST(forks_and_states_keep_the_encoder_rows)
{
    make_session("a", 7, 100);
    char *want = bits_of("a");
    call_fork(&client, "a", "f", "");
    struct answer answer = client_post(&client, "/sessions/a/truncate", "{\"length\":99}");
    expect_answer(&answer, 409, "position_conflict", "a truncation");
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(answer.json, "error"), "length")), 100);
    answer_free(&answer);
    expect_posted(&client, "/sessions/a/fork", "{\"session_id\":\"g\",\"length\":99}", 409,
                  "position_conflict");
    expect_posted(&client, "/sessions/a/truncate", "{\"length\":100}", 200, NULL);
    answer = client_get(&client, "/sessions/a/state");
    call_delete(&client, "a");
    expect_bits("f", want);
    const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    const struct request put = {"PUT", "/sessions/i/state", answer.text, answer.length, headers};
    struct answer imported = client_send(&client, &put);
    expect_answer(&imported, 201, NULL, "import");
    expect_bits("i", want);
    answer_free(&imported);
    answer_free(&answer);
    free(want);
}

CASE(kept, set_up, tear_down, 120)

TEST(encoder_rows_beyond_the_pool_take_nothing)
{
    const char *const arguments[] = {"--cache-bytes", "64KiB", NULL};
    daemon_start(&served, CONFIG(""), arguments, NULL);
    client_open(&client, &served);
    struct answer answer = start_session("x", 1, 600, ""); /* 20 blocks of 4 KiB; there are 16 */
    expect_no_session(&answer, 503, "pool_full");
    make_session("y", 1, 512);
    serve_end();
}

/* The account has room for four blocks. */
TEST(encoder_rows_count_towards_the_quota)
{
    char path[SECRET_PATH], variable[96];
    const char *const variables[] = {variable, NULL};
    secret_write(path, KEYS);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    daemon_start(&served, CONFIG(""), NULL, variables);
    served.authorization = "Authorization: Bearer a-0123456789abcdef0123456789abcdef";
    client_open(&client, &served);
    struct answer answer = start_session("x", 1, 129, "");
    expect_answer(&answer, 429, "quota_exceeded", "six blocks");
    answer_free(&answer);
    make_session("y", 1, 128);
    answer = start_session("z", 1, 1, "");
    expect_answer(&answer, 429, "quota_exceeded", "two more");
    answer_free(&answer);
    call_delete(&client, "y");
    make_session("z", 1, 128);
    serve_end();
    unlink(path);
}

/* Of each session what was answered is there after a kill, and what has failed is not. */
TEST(a_killed_daemon_has_the_encoder_rows_again)
{
    start(CONFIG(""), "journal", NULL);
    make_session("a", 7, 90);
    struct answer created = create("\"session_id\":\"c\",\"ttl_s\":7777", 7, 90, "k");
    expect_created(&created, 90);
    answer_free(&created);
    make_session("gone", 8, 10);
    call_fork(&client, "a", "f", "");
    call_delete(&client, "gone");
    struct answer answer = start_session("x", 1, 20, ",\"attention_mask\":[[1]]");
    expect_answer(&answer, 422, "shape_mismatch", "a start that fails after the encoding");
    answer_free(&answer);
    char *want = bits_of("a");
    for (int round = 0; round < 2; round++) {
        serve_kill();
        start(CONFIG(""), "journal", NULL);
        expect_bits("a", want);
        expect_bits("f", want);
        expect_bits("c", want);
        created = create("\"session_id\":\"c\",\"ttl_s\":7777", 7, 90, "k");
        expect_created(&created, 90);
        ck_assert_int_eq(answer_integer(&created, "ttl_s"), 7777);
        ck_assert(json_is_true(json_object_get(created.json, "replayed")));
        answer_free(&created);
        expect_start_replayed();
        ck_assert_int_eq(call_status(&client, "gone"), 404);
        ck_assert_int_eq(call_status(&client, "x"), 404);
        answer = start_session("x", 1, 20, ",\"attention_mask\":[[1]]");
        answer_free(&answer);
    }
    serve_end();
    free(want);
}

TEST(a_stopped_daemon_has_the_encoder_rows_again)
{
    start(CONFIG(""), "snapshot", NULL);
    make_session("a", 7, 90);
    char *want = bits_of("a");
    serve_end();
    start(CONFIG(""), "snapshot", NULL);
    expect_bits("a", want);
    expect_start_replayed();
    serve_end();
    free(want);
}

/* ---- Golden vectors -------------------------------------------------------------------------- */

/* Sequence b of a case: a session that starts with its first row, and a step for each other. */
static void run_golden(const struct golden_case *c, size_t b)
{
    char id[32];
    snprintf(id, sizeof id, "s%zu", b);
    float *output = malloc(c->queries * c->hidden * sizeof *output);
    for (size_t t = 0; t < c->queries; t++) {
        struct text body = {0};
        text_add(&body,
                 "{\"model\":\"m\",\"session_id\":\"%s\",\"layer\":%zu,\"hidden_states\":", id,
                 c->layer);
        text_floats(&body, c->hidden_states + (b * c->queries + t) * c->hidden, 9,
                    SHAPE(1, c->hidden));
        if (t == 0) {
            text_add(&body, ",\"start\":true,\"encoder_hidden_states\":");
            text_floats(&body, c->key_states + b * c->keys * c->key_size, 9,
                        SHAPE(c->keys, c->key_size));
        }
        if (t == 0 && c->padding != NULL) {
            text_add(&body, ",\"encoder_padding_mask\":");
            text_flags(&body, c->padding + b * c->keys, true, SHAPE(1, c->keys));
        }
        struct answer answer = post("/decode", &body);
        expect_answer(&answer, 200, NULL, c->name);
        float *row = tensor_of(answer.json, "output", SHAPE(1, c->hidden));
        memcpy(output + t * c->hidden, row, c->hidden * sizeof *row);
        free(row);
        answer_free(&answer);
    }
    expect_close(c->name, output, c->output + b * c->queries * c->hidden, c->queries * c->hidden,
                 c->tolerance);
    free(output);
}

TEST(golden_cross_cases_hold_over_sessions)
{
    struct golden_set set;
    char path[PATH_MAX], config[2 * PATH_MAX];
    size_t runs = 0;
    golden_load(&set);
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        if (strcmp(c->stack, "cross") != 0 || c->value_states != NULL) /* of its keys' rows alone */
            continue;
        ck_assert_ptr_nonnull(realpath(c->path, path));
        snprintf(config, sizeof config,
                 "{\"port\":0,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"m\",\"path\":\"%s"
                 "\",\"stack\":\"cross\"}]}",
                 path);
        serve(config);
        for (size_t b = 0; b < c->batch; b++, runs++)
            run_golden(c, b);
        serve_end();
    }
    golden_free(&set);
    printf("cross: %zu golden sequences hold over sessions\n", runs);
    ck_assert_uint_ge(runs, 2);
}

SUITE(cross)
