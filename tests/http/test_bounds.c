/* test_bounds.c: bounds of calls and replies, each met exactly and passed by the least step. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "raw.h"
#include "served.h"
#include "suites.h"

/* Adds "name":{"shape":[..],"data":[0,0,..]}. */
static void add_zeros(struct text *body, const char *name, size_t rank, const size_t *shape)
{
    size_t count = 1;
    text_add(body, "\"%s\":{\"shape\":[", name);
    for (size_t i = 0; i < rank; i++) {
        count *= shape[i];
        text_add(body, i > 0 ? ",%zu" : "%zu", shape[i]);
    }
    text_add(body, "],\"data\":[0");
    for (size_t i = 1; i < count; i++)
        text_bytes(body, ",0", 2);
    text_add(body, "]}");
}

/* POSTs the body, which it frees; the reply must have this status, and the error `code` or NULL. */
static void expect_post(const char *path, struct text *body, long status, const char *code)
{
    expect_posted(&client, path, body->data, status, code);
    text_free(body);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void attend_to_others(size_t rows, size_t keys, size_t values, long status, const char *code)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"plain\",");
    add_zeros(&body, "hidden_states", SHAPE(rows, PLAIN));
    text_add(&body, ",");
    add_zeros(&body, "key_hidden_states", SHAPE(keys, PLAIN));
    text_add(&body, ",");
    add_zeros(&body, "value_hidden_states", SHAPE(values, PLAIN));
    text_add(&body, "}");
    expect_post("/attend", &body, status, code);
}

TEST(max_tokens_bounds_rows_and_keys_alike)
{
    serve(CONFIG_SMALL("\"max_tokens\":20,"));
    attend_to_others(20, 20, 20, 200, NULL);
    attend_to_others(21, 20, 20, 422, "too_many_tokens");
    attend_to_others(1, 21, 21, 422, "too_many_tokens");
    serve_end();
}

TEST(rows_of_keys_and_of_values_are_equal_in_number)
{
    serve_small();
    attend_to_others(2, 3, 3, 200, NULL);
    attend_to_others(2, 3, 2, 422, "shape_mismatch");
    attend_to_others(2, 3, 4, 422, "shape_mismatch");
    serve_end();
}

static void attend_batch(size_t batch, size_t rows, long status, const char *code)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"plain\",");
    add_zeros(&body, "hidden_states", SHAPE(batch, rows, PLAIN));
    text_add(&body, "}");
    expect_post("/attend", &body, status, code);
}

/* A model with 2 heads: 3 sequences of 4 rows are 3 * 2 * 4 * 4 scores. */
TEST(max_scores_counts_sequences_and_heads)
{
    serve(CONFIG_SMALL("\"max_scores\":96,"));
    attend_batch(3, 4, 200, NULL);
    attend_batch(4, 4, 422, "too_many_tokens");
    attend_batch(1, 6, 200, NULL);
    attend_batch(1, 7, 422, "too_many_tokens");
    serve_end();
}

static void attend_sequences(size_t batch, long status, const char *code)
{
    struct text body = {0};
    text_add(&body, "{");
    add_zeros(&body, "query", SHAPE(batch, 1, 1, 1));
    text_add(&body, ",");
    add_zeros(&body, "key", SHAPE(batch, 1, 1, 1));
    text_add(&body, ",");
    add_zeros(&body, "value", SHAPE(batch, 1, 1, 1));
    text_add(&body, "}");
    expect_post("/attend", &body, status, code);
}

TEST(a_batch_has_65536_sequences_at_most)
{
    serve_small();
    attend_sequences(65536, 200, NULL);
    attend_sequences(65537, 422, "too_many_tokens");
    serve_end();
}

#define CHUNK 200000

/* Of chunks no length is declared, so nothing but their bytes can be counted. */
TEST(bodies_in_chunks_count_as_in_flight)
{
    static char blanks[CHUNK];
    struct raw raw;
    serve(CONFIG_SMALL("\"max_in_flight_bytes\":65536,"));
    memset(blanks, ' ', sizeof blanks);
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, "POST /attend HTTP/1.1\r\nHost: test\r\nContent-Type: "
                             "application/json\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n"));
    (void)raw_send(&raw, blanks, sizeof blanks); /* attnd may end the connection meanwhile */
    (void)raw_text(&raw, "\r\n0\r\n\r\n");
    struct raw_answer answer = raw_read(&raw, false, 60000);
    ck_assert_msg(answer.status == 503, "%u %s", answer.status, answer.body);
    ck_assert_ptr_nonnull(strstr(answer.body, "\"out_of_memory\""));
    raw_answer_free(&answer);
    raw_close(&raw);
    ck_assert(call_metric(&client, "attnd_in_flight_bytes") < 65536);
    serve_end();
}

/* ---- Replies --------------------------------------------------------------------------------- */

#define ITEM_TEXT 600 /* bytes that docs and code count for an item of a reply */

static void decode_list(size_t items, long status, const char *code)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"sequences\":[");
    for (size_t i = 0; i < items; i++)
        text_add(&body, "%s{\"session_id\":\"nobody\",\"hidden_states\":[1]}", i > 0 ? "," : "");
    text_add(&body, "]}");
    expect_post("/decode", &body, status, code);
}

/* Each item of both lists fails. */
TEST(a_list_of_errors_counts_against_max_reply_bytes)
{
    serve(CONFIG_SMALL("\"max_reply_bytes\":6000,"));
    decode_list(6000 / ITEM_TEXT, 200, NULL);
    decode_list(6000 / ITEM_TEXT + 1, 422, "reply_too_large");
    serve_end();
}

static void attend_output(const char *output, size_t rows, const char *extra, long status)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"plain\",\"outputs\":[\"%s\"]%s,", output, extra);
    add_zeros(&body, "hidden_states", SHAPE(rows, PLAIN));
    text_add(&body, "}");
    expect_post("/attend", &body, status, status == 200 ? NULL : "reply_too_large");
}

/* 2 heads of width 4 have 8 numbers of 25 bytes in a row. */
TEST(queries_and_outputs_of_heads_count_against_max_reply_bytes)
{
    serve(CONFIG_SMALL("\"max_reply_bytes\":6600,"));
    attend_output("query", 30, "", 200);
    attend_output("query", 31, "", 422);
    attend_output("head_output", 30, "", 200);
    attend_output("head_output", 31, "", 422);
    attend_output("head_output", 60, ",\"heads\":[1]", 200);
    attend_output("head_output", 61, ",\"heads\":[1]", 422);
    attend_output("concat", 30, "", 200);
    attend_output("concat", 31, "", 422);
    serve_end();
}

static struct answer attend_weights(size_t rows, const char *const headers[])
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"plain\",\"outputs\":[\"attention_weights\"],");
    add_zeros(&body, "hidden_states", SHAPE(rows, PLAIN));
    text_add(&body, "}");
    struct answer answer = client_send(
        &client, &(struct request){
                     .method = "POST", .path = "/attend", .body = body.data, .headers = headers});
    text_free(&body);
    return answer;
}

/* 2 heads of 64 x 64 weights take 32 KiB as numbers and, at 25 bytes each, 200 KiB as text. */
TEST(the_text_of_outputs_counts_as_in_flight)
{
    serve(CONFIG_SMALL("\"max_in_flight_bytes\":163840,"));
    struct answer answer = attend_weights(64, NULL);
    expect_answer(&answer, 503, "out_of_memory", "64 rows");
    answer_free(&answer);
    answer = attend_weights(32, NULL);
    expect_answer(&answer, 200, NULL, "32 rows");
    answer_free(&answer);
    serve_end();
}

/* The weights of equal rows are 1 / S: some 13 bytes each of a power of three. */
static size_t length_of_weights(size_t rows, bool *coded, bool *varies)
{
    const char *const headers[] = {"Accept-Encoding: gzip", NULL};
    char value[256];
    struct answer answer = attend_weights(rows, headers);
    expect_answer(&answer, 200, NULL, "weights");
    *coded = answer_header(value, &answer, "Content-Encoding");
    *varies = answer_header(value, &answer, "Vary");
    size_t length = answer.length;
    answer_free(&answer);
    return length;
}

TEST(replies_of_at_most_256_kib_are_never_coded)
{
    bool coded, varies;
    serve(CONFIG_SMALL("\"reply_compression\":\"all\","));
    size_t length = length_of_weights(99, &coded, &varies);
    ck_assert_msg(length > 196608 && length <= 262144, "%zu bytes", length);
    ck_assert(!coded && !varies);
    length_of_weights(135, &coded, &varies);
    ck_assert(coded && varies);
    serve_end();
}

SUITE(bounds)
