/* test_latent.c: sessions of latent attention, which keep kv_lora_rank + qk_rope_head_dim numbers a
 * token, and with an indexer its key: what /models says, batches, retries, forks, truncation,
 * files, kills and damage. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"
#include "tensors.h"

#define LATENT(indexer)                                                                           \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"kv_lora_rank\":10,\"q_lora_rank\":12,"       \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"value_head_dim\":5,\"num_hidden_layers\":2," \
    "\"rope_theta\":10000,\"is_causal\":true," indexer "\"seed\":9}"
#define CONFIG(indexer)                                                              \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"log\":\"off\",\"memory_limit\":\"64GiB\"," \
    "\"models\":[{\"name\":\"tiny\",\"random\":" LATENT(indexer) "}]}"
enum { RANK = 10, ROPE = 4, HEADS = 4, D = 10, DV = 5, INDEX = 6, ROWS = 70 };

/* By the loop index of a test: without an indexer, and with one. */
static const char *const configs[] = {
    CONFIG(""), CONFIG("\"index_n_heads\":3,\"index_head_dim\":6,\"index_topk\":4,")};

static char directory[SCRATCH_PATH];

static void set_up(void) { scratch_make(directory); }

static void tear_down(void) { scratch_remove(directory); }

static void start(int kind)
{
    const char *const arguments[] = {
        "--state-dir", directory, "--durability", "journal", "--journal-fsync", "os", NULL};
    daemon_start(&served, configs[kind], arguments, NULL);
    client_open(&client, &served);
}

static void prefill(const char *id, size_t rows)
{
    call_create(&client, id, "");
    struct answer answer = call_prefill(&client, id, 1, rows, "");
    expect_answer(&answer, 200, NULL, "prefill");
    answer_free(&answer);
}

/* Compares the next decode of two sessions, bit by bit. */
static void expect_alike(const char *a, const char *b)
{
    char *of_a = call_next_bits(&client, a), *of_b = call_next_bits(&client, b);
    ck_assert_str_eq(of_a, of_b);
    free(of_a);
    free(of_b);
}

CASE(latent, set_up, tear_down, 60)

TEST_EACH(latent_models_say_what_a_token_takes, 2)
{
    start(_i);
    struct answer answer = client_get(&client, "/models/tiny");
    expect_answer(&answer, 200, NULL, "/models/tiny");
    const json_t *mla = json_object_get(answer.json, "mla");
    ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "cache_bytes_per_token")),
                     2 * (RANK + ROPE + _i * INDEX) * 4);
    ck_assert_int_eq(json_integer_value(json_object_get(mla, "kv_lora_rank")), RANK);
    ck_assert_int_eq(json_integer_value(json_object_get(mla, "qk_rope_head_dim")), ROPE);
    answer_free(&answer);
    serve_end();
}

/* Steps, one by one, equal a call over the given rows: output, keys and values. */
TEST_EACH(latent_steps_equal_a_call_over_given_rows, 2)
{
    start(_i);
    call_create(&client, "s", "");
    struct answer step = {0};
    for (unsigned i = 0; i < 5; i++) {
        answer_free(&step);
        step = call_decode(&client, "s", 1 + i, ",\"outputs\":[\"output\",\"key\",\"value\"]");
        expect_answer(&step, 200, NULL, "step");
    }
    struct text body = {0};
    float rows[5 * TINY];
    for (unsigned i = 0; i < 5; i++)
        make_numbers(rows + i * TINY, TINY, 1 + i);
    text_add(&body, "{\"model\":\"tiny\",\"layer\":0,\"outputs\":[\"output\",\"key\",\"value\"],"
                    "\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(5, TINY));
    text_add(&body, "}");
    struct answer whole = client_post(&client, "/attend", body.data);
    expect_answer(&whole, 200, NULL, "/attend");
    float *a = tensor_of(step.json, "output", SHAPE(TINY));
    float *b = tensor_of(whole.json, "output", SHAPE(5, TINY));
    for (size_t i = 0; i < TINY; i++)
        ck_assert_float_eq_tol(a[i], b[4 * TINY + i], 1e-5f);
    free(a);
    free(b);
    a = tensor_of(step.json, "key", SHAPE(HEADS, 5, D));
    b = tensor_of(whole.json, "key", SHAPE(HEADS, 5, D));
    for (size_t i = 0; i < HEADS * 5 * D; i++)
        ck_assert_float_eq_tol(a[i], b[i], 1e-5f);
    free(a);
    free(b);
    a = tensor_of(step.json, "value", SHAPE(HEADS, 5, DV));
    b = tensor_of(whole.json, "value", SHAPE(HEADS, 5, DV));
    for (size_t i = 0; i < HEADS * 5 * DV; i++)
        ck_assert_float_eq_tol(a[i], b[i], 1e-5f);
    free(a);
    free(b);
    answer_free(&step);
    answer_free(&whole);
    text_free(&body);
    serve_end();
}

/* Of a layer with an indexer, whose keys are those of all heads. */
TEST(latent_masks_that_differ_by_head_are_refused)
{
    static const char *const fields[] = {"attention_mask", "attention_bias"};
    static const float row[TINY] = {1};
    start(1);
    call_create(&client, "s", "");
    for (size_t i = 0; i < 4; i++) {
        struct text body = {0};
        text_add(&body, "{\"model\":\"tiny\",\"layer\":0,%s\"%s\":[[[[1]],[[1]],[[1]],[[0]]]],",
                 i < 2 ? "" : "\"session_id\":\"s\",", fields[i % 2]);
        text_add(&body, "\"hidden_states\":");
        text_floats(&body, row, 9, SHAPE(1, TINY));
        text_add(&body, "}");
        struct answer answer = client_post(&client, i < 2 ? "/attend" : "/decode", body.data);
        expect_answer(&answer, 422, "unsupported", fields[i % 2]);
        ck_assert_ptr_nonnull(strstr(answer.text, "differs by head"));
        answer_free(&answer);
        text_free(&body);
    }
    serve_end();
}

/* A fork at ROWS tokens, its parent after truncation and an import of its state go on alike. */
TEST_EACH(latent_forks_truncations_and_files_go_on_alike, 2)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    start(_i);
    prefill("parent", ROWS);
    call_fork(&client, "parent", "fork", "");
    expect_decode(&client, "parent", 500, ROWS);
    struct answer answer = client_post(&client, "/sessions/parent/truncate",
                                       "{\"length\":"
                                       "70"
                                       "}");
    expect_answer(&answer, 200, NULL, "truncate");
    answer_free(&answer);
    expect_alike("parent", "fork");
    struct answer state = client_get(&client, "/sessions/fork/state");
    ck_assert_int_eq(state.status, 200);
    ck_assert_uint_ge(state.length, (size_t)ROWS * (size_t)(RANK + ROPE + _i * INDEX) * 4);
    ck_assert_uint_le(state.length, (size_t)ROWS * (size_t)(RANK + ROPE + _i * INDEX) * 4 + 1024);
    answer = client_send(&client, &(struct request){"PUT", "/sessions/imported/state", state.text,
                                                    .length = state.length, .headers = type});
    expect_answer(&answer, 201, NULL, "import");
    answer_free(&answer);
    expect_alike("imported", "fork");
    state.text[state.length - 3] ^= 1; /* a cached number, so that the checksum is another */
    answer = client_send(&client, &(struct request){"PUT", "/sessions/damaged/state", state.text,
                                                    .length = state.length, .headers = type});
    ck_assert_int_eq(answer.status / 100, 4);
    answer_free(&answer);
    answer_free(&state);
    ck_assert_int_eq(call_status(&client, "damaged"), 404);
    serve_end();
}

/* A step that is sent again answers with the same bits and appends nothing. */
TEST_EACH(latent_steps_sent_again_have_the_same_bits, 2)
{
    start(_i);
    prefill("s", ROWS);
    struct answer first = call_decode(&client, "s", 7, ",\"position\":70");
    struct answer again = call_decode(&client, "s", 7, ",\"position\":70");
    expect_answer(&first, 200, NULL, "step");
    expect_answer(&again, 200, NULL, "step again");
    ck_assert(
        json_equal(json_object_get(first.json, "output"), json_object_get(again.json, "output")));
    ck_assert(json_is_true(json_object_get(again.json, "replayed")));
    ck_assert_uint_eq(call_length(&client, "s", 0), ROWS + 1);
    answer_free(&first);
    answer_free(&again);
    serve_end();
}

/* A kill loses nothing that was answered; a damaged record of the journal ends it there. */
TEST_EACH(latent_sessions_survive_a_kill, 2)
{
    char path[320];
    start(_i);
    prefill("s", ROWS);
    expect_decode(&client, "s", 7, ROWS);
    char *before = call_next_bits(&client, "s");
    serve_kill();
    ck_assert_uint_eq(state_files_find(path, directory, ".journal"), 1);
    off_t last = state_files_record(path, SRV_RECORD_ROWS, 1);
    state_files_flip(path, last + 100);
    start(_i);
    ck_assert_uint_eq(call_length(&client, "s", 0), ROWS);
    expect_decode(&client, "s", 7, ROWS);
    serve_kill();
    start(_i);
    ck_assert_uint_eq(call_length(&client, "s", 0), ROWS + 1);
    char *after = call_next_bits(&client, "s");
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    serve_end();
}

SUITE(latent)
