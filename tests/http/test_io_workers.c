/* test_io_workers.c: the one I/O worker of a daemon of two threads, with seconds of compressing to
 * do: bodies and replies of other requests do not wait for that, cancelled replies are dropped, and
 * the end of the drain ends the compressing. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define TOKENS 2000 /* compressing the weights of so many takes from half a second to two */
#define FLOOD 4     /* replies of so many tokens */
#define WAIT_MS 120000
#define CONFIG                                                                           \
    CONFIG_SMALL("\"threads\":2,\"drain_timeout_s\":1,\"max_in_flight_bytes\":\"4GiB\"," \
                 "\"reply_compression\":\"json\",")
#define ROWS_DONE "attnd_attend_rows_total"
#define GONE "attnd_errors_total{code=\"client_gone\"}"

static struct raw flood[FLOOD];

/* A weightless /attend whose reply is the weights of so many tokens. */
static void make_weights(struct text *body, size_t tokens)
{
    static const char *const names[] = {"query", "key", "value"};
    float *x = malloc(tokens * sizeof *x);
    text_add(body, "{\"outputs\":[\"attention_weights\"]");
    for (unsigned i = 0; i < 3; i++) {
        make_numbers(x, tokens, i);
        text_add(body, ",\"%s\":", names[i]);
        text_floats(body, x, 3, SHAPE(1, tokens, 1));
    }
    text_add(body, "}");
    free(x);
}

/* Sends the body on a connection of its own, with these header fields: lines that end in CRLF. */
static void post_raw(struct raw *raw, const struct text *body, const char *fields)
{
    struct text head = {0};
    text_add(&head,
             "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Accept-Encoding: gzip\r\n%sContent-Length: %zu\r\n\r\n",
             fields, body->length);
    raw_open(raw, served.host, served.port);
    ck_assert(raw_send(raw, head.data, head.length) && raw_send(raw, body->data, body->length));
    text_free(&head);
}

static void await_metric(const char *sample, double least)
{
    for (unsigned waited = 0; call_metric(&client, sample) < least; waited += 2) {
        ck_assert_msg(waited < WAIT_MS, "%s", sample);
        pause_ms(2);
    }
}

/* When this returns, seconds of compressing are left to do. */
static void flood_begin(const char *fields)
{
    struct text body = {0};
    make_weights(&body, TOKENS);
    for (size_t i = 0; i < FLOOD; i++)
        post_raw(&flood[i], &body, fields);
    await_metric(ROWS_DONE, FLOOD * TOKENS);
    text_free(&body);
}

static void expect_flood_goes_on(void)
{
    ck_assert_double_ge(call_metric(&client, "attnd_queue_depth"), 1);
}

static void flood_end(void)
{
    for (size_t i = 0; i < FLOOD; i++) {
        struct raw_answer answer = raw_read(&flood[i], false, WAIT_MS);
        ck_assert_uint_eq(answer.status, 200);
        raw_answer_free(&answer);
        raw_close(&flood[i]);
    }
}

static void setup(void) { serve(CONFIG); }

static struct text code(const struct text *body)
{
    struct text out = {0};
    uLongf length = compressBound(body->length);
    Bytef *bytes = malloc(length);
    ck_assert_int_eq(compress(bytes, &length, (const Bytef *)body->data, body->length), Z_OK);
    text_bytes(&out, bytes, length);
    free(bytes);
    return out;
}

static struct answer post_coded(const char *path, const struct text *coded)
{
    static const char *const headers[] = {"Content-Encoding: deflate", NULL};
    return client_send(&client, &(struct request){.method = "POST",
                                                  .path = path,
                                                  .body = coded->data,
                                                  .length = coded->length,
                                                  .headers = headers});
}

CASE(io_workers, setup, serve_end, 240)

TEST(a_small_coded_body_does_not_wait_for_large_replies_that_are_coded)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",");
    text_step(&body, "small", 1, ",\"start\":true}");
    struct text coded = code(&body);
    flood_begin("");
    struct answer answer = post_coded("/decode", &coded);
    expect_answer(&answer, 200, NULL, "a coded step");
    expect_flood_goes_on();
    flood_end();
    answer_free(&answer);
    text_free(&coded);
    text_free(&body);
}

TEST(a_small_coded_body_that_expands_to_a_large_one_is_read_as_that)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":[%*s", 400000, "");
    for (size_t i = 0; i < 3 * TINY; i++)
        text_add(&body, "%s0", i == 0 ? "[" : i % TINY == 0 ? "],[" : ",");
    text_add(&body, "]]}");
    struct text coded = code(&body);
    ck_assert_uint_lt(coded.length, 65536);
    struct answer want = client_post(&client, "/attend", body.data);
    struct answer got = post_coded("/attend", &coded);
    expect_answer(&want, 200, NULL, "plain");
    expect_answer(&got, 200, NULL, "coded");
    ck_assert_str_eq(got.text, want.text);
    answer_free(&got);
    answer_free(&want);
    text_free(&coded);
    text_free(&body);
}

TEST(a_reply_whose_deadline_passes_while_it_is_coded_is_told_so_then)
{
    struct text body = {0};
    struct raw late;
    flood_begin("");
    make_weights(&body, TOKENS);
    post_raw(&late, &body, "X-Deadline-Ms: 800\r\n");
    struct raw_answer answer = raw_read(&late, false, WAIT_MS);
    expect_flood_goes_on();
    ck_assert_uint_eq(answer.status, 504);
    ck_assert_ptr_nonnull(strstr(answer.body, "\"deadline_exceeded\""));
    if (!INSTRUMENTED) /* its deadline passed after it was computed */
        ck_assert_double_eq(call_metric(&client, ROWS_DONE), (FLOOD + 1) * TOKENS);
    flood_end();
    raw_answer_free(&answer);
    raw_close(&late);
    text_free(&body);
}

TEST(replies_are_not_coded_for_clients_that_have_left)
{
    flood_begin("");
    for (size_t i = 0; i < FLOOD; i++)
        (i % 2 == 0 ? raw_close : raw_reset)(&flood[i]);
    for (unsigned waited = 0; call_metric(&client, "attnd_queue_depth") > 0; waited += 2) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(2);
    }
    for (unsigned waited = 0; call_metric(&client, GONE) < FLOOD && waited < 5000; waited += 5)
        pause_ms(5);
    ck_assert_double_eq(call_metric(&client, GONE), FLOOD);
}

CASE(own, NULL, NULL, 240)

TEST(large_bodies_and_replies_of_another_key_come_between_pieces_of_a_flood)
{
    char path[SECRET_PATH], variable[96], value[256];
    const char *const variables[] = {variable, NULL};
    struct text body = {0};
    struct raw other;
    secret_write(path, KEYS_THREE);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    daemon_start(&served, CONFIG, NULL, variables);
    served.authorization = "Authorization: Bearer " KEY_BOTH;
    client_open(&client, &served);
    flood_begin("Authorization: Bearer " KEY_INFER "\r\n");
    text_add(&body, "%*s", 300000, ""); /* large, so that the I/O worker reads it too */
    make_weights(&body, 300);
    post_raw(&other, &body, "Authorization: Bearer " KEY_BOTH "\r\n");
    struct raw_answer answer = raw_read(&other, false, WAIT_MS);
    expect_flood_goes_on();
    ck_assert_uint_eq(answer.status, 200);
    ck_assert(raw_header(value, &answer, "Content-Encoding"));
    flood_end();
    raw_answer_free(&answer);
    raw_close(&other);
    text_free(&body);
    serve_end();
    unlink(path);
}

/* A prefill whose reply is large, for it has the weights of one head: the rows are appended before
 * the I/O worker writes the reply. */
static void make_prefill(struct text *body, size_t rows)
{
    float *x = malloc(rows * TINY * sizeof *x);
    make_numbers(x, rows * TINY, 5);
    text_add(body, "{\"model\":\"tiny\",\"session_id\":\"kept\",\"start\":true,\"heads\":[0],"
                   "\"outputs\":[\"attention_weights\"],\"hidden_states\":");
    text_floats(body, x, 3, SHAPE(rows, TINY));
    text_add(body, "}");
    free(x);
}

/* A step that was appended gets no reply rather than a refusal. */
TEST(the_end_of_the_drain_refuses_replies_that_are_being_coded)
{
    struct text body = {0};
    struct raw kept;
    serve(CONFIG);
    flood_begin("");
    make_prefill(&body, TOKENS);
    post_raw(&kept, &body, "");
    await_metric(ROWS_DONE, (FLOOD + 1) * TOKENS);
    daemon_terminate(&served);
    for (size_t i = 0; i < FLOOD; i++) {
        struct raw_answer answer = raw_read(&flood[i], false, WAIT_MS);
        ck_assert_uint_eq(answer.status, 503);
        ck_assert_ptr_nonnull(strstr(answer.body, "\"draining\""));
        raw_answer_free(&answer);
        raw_close(&flood[i]);
    }
    struct raw_answer answer = raw_read(&kept, false, WAIT_MS);
    ck_assert_uint_ne(answer.status, 200);
    ck_assert_uint_ne(answer.status, 503);
    daemon_expect_end(&served);
    client_close(&client);
    raw_answer_free(&answer);
    raw_close(&kept);
    text_free(&body);
}

SUITE(io_workers)
