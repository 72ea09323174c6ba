/* test_binary.c: calls and replies in binary form equal those in JSON, bit for bit: every form of
 * call, every kind of tensor, both directions; headers, retries and limits of binary calls. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binary.h"
#include "calls.h"
#include "forms.h"
#include "served.h"
#include "suites.h"

static void set_up(void)
{
    serve_small();
    forms_begin(&client);
}

#define BINARY_REPLY "Accept: application/octet-stream"

static struct answer post_json(const char *path, const char *json, const char *header)
{
    const char *const headers[] = {header, NULL};
    struct request request = {.method = "POST", .path = path, .body = json, .headers = headers};
    return client_send(&client, &request);
}

/* Makes the call as JSON, with bytes in, with bytes out, and with both, expecting one answer. */
static void expect_both_ways(const char *path, const char *json, enum binary_type type,
                             const char *what)
{
    struct answer plain = post_json(path, json, NULL);
    struct answer in = binary_post(&client, path, json, type, 0, NULL);
    struct answer out = post_json(path, json, BINARY_REPLY);
    struct answer both = binary_post(&client, path, json, type, 3, BINARY_REPLY);
    expect_answer(&plain, 200, NULL, what);
    expect_answer(&in, 200, NULL, what);
    binary_decode(&out, what);
    binary_decode(&both, what);
    expect_same_answers(&in, &plain, what);
    expect_same_answers(&out, &plain, what);
    expect_same_answers(&both, &plain, what);
    answer_free(&plain);
    answer_free(&in);
    answer_free(&out);
    answer_free(&both);
}

/* ---- Every form ------------------------------------------------------------------------------ */

static const char *const outputs[] = {
    "",
    ",\"outputs\":[\"attention_weights\",\"output\",\"lse\",\"attention_scores\",\"head_stats\"]",
    ",\"outputs\":[\"attention_scores\"],\"stage\":\"masked\",\"heads\":[1,0],\"rows\":[2,0]",
    ",\"outputs\":[\"attention_weights\"],\"top_k\":2",
    ",\"outputs\":[\"lse\",\"attention_weights\"],\"top_k\":3,\"average_heads\":true,\"heads\":[1]",
    ",\"outputs\":[\"attention_weights\"],\"average_heads\":true,\"rows\":[1]",
    ",\"outputs\":[\"head_stats\"],\"heads\":[1],\"target_groups\":[[0],[2,1]]",
    ",\"outputs\":[\"head_stats\"],\"heads\":[1]",
    ",\"outputs\":[\"attention_weights\",\"attention_scores\",\"output\"],\"pool\":[2,3]",
    ",\"outputs\":[\"attention_weights\"],\"pool\":[2,3],\"average_heads\":true",
};

CASE(same, set_up, serve_end, 0)

TEST_EACH(every_output_of_every_form_is_the_same_in_bytes, FORM_COUNT)
{
    struct text body = {0};
    for (size_t i = 0; i < COUNT(outputs); i++) {
        body.length = 0;
        form_body(&body, _i, outputs[i]);
        expect_both_ways(form_path(_i), body.data, AS_FP32, forms[_i].name);
    }
    if (_i != FORM_WEIGHTLESS) {
        body.length = 0;
        form_body(&body, _i,
                  ",\"outputs\":[\"value\",\"key\",\"concat\",\"query\",\"head_output\"]");
        expect_both_ways(form_path(_i), body.data, AS_FP32, "key, value, query, heads");
    }
    text_free(&body);
}

/* Adds masks and integers that fit a form's sizes. */
static void add_modifiers(struct text *extra, int i)
{
    const struct form *f = &forms[i];
    uint8_t mask[16 * 16], padding[16];
    float bias[16 * 16], heads[4] = {1, 0.5f, 0, -2};
    int64_t positions[16];
    for (size_t k = 0; k < f->rows * f->keys; k++) {
        mask[k] = k % 5 != 3;
        bias[k] = k % 7 == 2 ? -INFINITY : (float)k / 64;
    }
    for (size_t k = 0; k < f->keys; k++)
        padding[k] = k != 1;
    for (size_t k = 0; k < f->rows; k++)
        positions[k] = (int64_t)(3 * k + 1);
    text_add(extra, ",\"attention_mask\":");
    text_flags(extra, mask, true, SHAPE(f->rows, f->keys));
    text_add(extra, ",\"attention_bias\":");
    text_floats(extra, bias, 9, SHAPE(f->rows, f->keys));
    text_add(extra, ",\"padding_mask\":");
    text_flags(extra, padding, false, SHAPE(f->keys));
    text_add(extra, ",\"head_mask\":");
    text_floats(extra, heads, 9, SHAPE(f->heads));
    text_add(extra, ",\"sliding_window\":[4,2]");
    if (i != FORM_CROSS && i != FORM_WEIGHTLESS) {
        text_add(extra, ",\"position_ids\":");
        text_integers(extra, positions, SHAPE(f->rows));
    }
    if (f->cached == 0 || i == FORM_WEIGHTLESS || i == FORM_CROSS)
        text_add(extra, ",\"query_offset\":1");
    for (size_t k = 0; k < f->rows; k++)
        positions[k] = (int64_t)(k % f->keys) - 1;
    text_add(extra, ",\"targets\":");
    text_integers(extra, positions, SHAPE(f->rows));
    text_add(extra, ",\"outputs\":[\"output\",\"attention_scores\",\"lse\",\"head_stats\"],"
                    "\"stage\":\"masked\"");
}

TEST_EACH(masks_and_integers_of_every_form_are_the_same_in_bytes, FORM_COUNT)
{
    struct text body = {0}, extra = {0};
    add_modifiers(&extra, _i);
    form_body(&body, _i, extra.data);
    expect_both_ways(form_path(_i), body.data, AS_FP32, forms[_i].name);
    text_free(&body);
    text_free(&extra);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Adds n rows of numbers that both halves and bfloats represent exactly. */
static void add_short_numbers(struct text *body, size_t n)
{
    float rows[8 * TINY];
    for (size_t i = 0; i < n * TINY; i++)
        rows[i] = (float)((int)(i * 37 % 255) - 127) / 64;
    text_floats(body, rows, 9, SHAPE(n, TINY));
}

TEST(halves_and_bfloats_are_the_numbers_they_stand_for)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"hidden_states\":");
    add_short_numbers(&body, 3);
    text_add(&body, ",\"attention_bias\":[[0,null,0.5],[1,2,null],[0.25,0,-8]],\"heads\":[3,1],"
                    "\"head_mask\":[1,0.5,0,-2],\"position_ids\":[5,2147483647,0],"
                    "\"outputs\":[\"output\",\"lse\",\"attention_weights\"]}");
    expect_both_ways("/attend", body.data, AS_FP32, "FP32");
    expect_both_ways("/attend", body.data, AS_FP16, "FP16");
    expect_both_ways("/attend", body.data, AS_BF16, "BF16");
    text_free(&body);
}

TEST(bytes_may_begin_anywhere)
{
    struct text extra = {0}, body = {0};
    add_modifiers(&extra, FORM_SELF);
    form_body(&body, FORM_SELF, extra.data);
    struct answer plain = client_post(&client, "/attend", body.data);
    expect_answer(&plain, 200, NULL, "JSON");
    for (size_t padding = 0; padding < 64; padding++) {
        struct answer shifted =
            binary_post(&client, "/attend", body.data, AS_FP32, padding, BINARY_REPLY);
        binary_decode(&shifted, "shifted");
        expect_same_answers(&shifted, &plain, "shifted");
        answer_free(&shifted);
    }
    answer_free(&plain);
    text_free(&extra);
    text_free(&body);
}

TEST(minus_infinity_is_itself_in_bytes)
{
    static const uint32_t minus_infinity = 0xff800000;
    struct answer answer = post_json(
        "/attend",
        "{\"query\":[[[1,0],[0,1]]],\"key\":[[[1,0]]],\"value\":[[[1,2]]],\"binary_output\":true,"
        "\"attention_mask\":[[0],[1]],\"outputs\":[\"lse\"]}",
        NULL);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_uint_ge(answer.length, 8);
    ck_assert_mem_eq(answer.text + answer.length - 8, &minus_infinity, sizeof minus_infinity);
    binary_decode(&answer, "lse");
    answer_free(&answer);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

TEST(a_session_fed_with_bytes_equals_one_fed_with_json)
{
    static const char *const ids[] = {"json", "bytes"};
    struct answer plain, binary;
    for (unsigned step = 0; step < 6; step++) {
        struct text bodies[2] = {{0}, {0}};
        for (size_t i = 0; i < 2; i++) {
            text_add(&bodies[i], "{\"model\":\"tiny\",");
            if (step == 0)
                text_steps(&bodies[i], ids[i], 1, 5, ",\"start\":true}");
            else
                text_step(&bodies[i], ids[i], 10 * step, ",\"outputs\":[\"output\",\"key\"]}");
        }
        plain = client_post(&client, step == 0 ? "/attend" : "/decode", bodies[0].data);
        binary = binary_post(&client, step == 0 ? "/attend" : "/decode", bodies[1].data, AS_FP32,
                             step, BINARY_REPLY);
        expect_answer(&plain, 200, NULL, "JSON");
        binary_decode(&binary, "bytes");
        json_object_set_new(binary.json, "session_id", json_string("json"));
        json_object_set(binary.json, "epoch", json_object_get(plain.json, "epoch"));
        json_object_set(binary.json, "revision", json_object_get(plain.json, "revision"));
        expect_same_answers(&binary, &plain, "a step");
        answer_free(&plain);
        answer_free(&binary);
        text_free(&bodies[0]);
        text_free(&bodies[1]);
    }
}

TEST(a_step_repeated_in_another_form_is_the_same_step)
{
    static const enum binary_type types[] = {AS_FP32, AS_FP16, AS_BF16};
    struct text body = {0};
    call_create(&client, "again", "");
    text_add(&body, "{\"session_id\":\"again\",\"position\":0,\"position_ids\":[4,9],"
                    "\"hidden_states\":");
    add_short_numbers(&body, 2);
    text_add(&body, "}");
    struct answer first = client_post(&client, "/decode", body.data);
    expect_answer(&first, 200, NULL, "first");
    json_object_set_new(first.json, "replayed", json_true());
    for (size_t i = 0; i < 3; i++) {
        struct answer again = binary_post(&client, "/decode", body.data, types[i], i, BINARY_REPLY);
        binary_decode(&again, "again");
        ck_assert(json_is_true(json_object_get(again.json, "replayed")));
        char *got = json_dumps(json_object_get(again.json, "length"), JSON_ENCODE_ANY);
        ck_assert_str_eq(got, "2");
        json_t *output = json_object_get(again.json, "output");
        struct answer a = {.json = json_pack("{s:O}", "output", output)};
        struct answer b = {.json =
                               json_pack("{s:O}", "output", json_object_get(first.json, "output"))};
        expect_same_answers(&a, &b, "again");
        json_decref(a.json);
        json_decref(b.json);
        free(got);
        answer_free(&again);
    }
    ck_assert_uint_eq(call_length(&client, "again", 0), 2);
    answer_free(&first);
    text_free(&body);
}

TEST(items_that_fail_have_no_bytes_among_those_that_succeed)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"sequences\":[{");
    text_steps(&body, "formed", 1, 2, ",\"commit\":false},{");
    text_step(&body, "nobody", 2, "},{");
    text_step(&body, "formed", 3, ",\"commit\":false,\"outputs\":[\"lse\",\"output\"]},{");
    text_step(&body, "formed", 4, ",\"position\":77},{");
    text_steps(&body, "formed", 5, 3, ",\"commit\":false,\"outputs\":[\"head_stats\"]}]}");
    expect_both_ways("/decode", body.data, AS_FP32, "a list");
    text_free(&body);
}

/* ---- Headers and limits ---------------------------------------------------------------------- */

/* Makes a call, checks that its answer is whole, and returns whether that is bytes. */
static bool replies_bytes(const char *extra, const char *header)
{
    char type[256], length[256];
    struct text body = {0};
    form_body(&body, FORM_SELF, extra);
    struct answer answer = post_json("/attend", body.data, header);
    ck_assert_msg(answer.status == 200, "%s %s: %s", extra, header, answer.text);
    ck_assert(answer_header(type, &answer, "Content-Type"));
    bool bytes = strcmp(type, "application/octet-stream") == 0;
    ck_assert(bytes == answer_header(length, &answer, JSON_LENGTH));
    ck_assert(bytes || answer.json != NULL);
    if (bytes)
        binary_decode(&answer, extra);
    answer_free(&answer);
    text_free(&body);
    return bytes;
}

TEST(the_body_decides_the_reply_and_else_accept)
{
    ck_assert(!replies_bytes("", NULL));
    ck_assert(!replies_bytes("", "Accept: application/json, application/octet-stream;q=0.9"));
    ck_assert(replies_bytes("", BINARY_REPLY));
    ck_assert(replies_bytes("", "Accept: application/octet-stream, application/json"));
    ck_assert(replies_bytes(",\"binary_output\":true", NULL));
    ck_assert(replies_bytes(",\"binary_output\":true", "Accept: application/json"));
    ck_assert(!replies_bytes(",\"binary_output\":false", BINARY_REPLY));
    ck_assert(replies_bytes(",\"binary_output\":null", BINARY_REPLY));
}

TEST(errors_are_json_whatever_was_asked_for)
{
    char type[256];
    struct answer answer = binary_post(
        &client, "/attend", "{\"model\":\"tiny\",\"hidden_states\":[[1]],\"binary_output\":true}",
        AS_FP32, 0, BINARY_REPLY);
    expect_answer(&answer, 422, "shape_mismatch", "an error");
    ck_assert(answer_header(type, &answer, "Content-Type"));
    ck_assert_str_eq(type, "application/json");
    ck_assert(!answer_header(type, &answer, JSON_LENGTH));
    answer_free(&answer);
}

TEST(the_length_of_json_may_come_with_a_json_type_and_chunks)
{
    struct text json = {0}, body = {0};
    form_body(&json, FORM_SELF, "");
    struct answer plain = client_post(&client, "/attend", json.data);
    char length[80];
    size_t json_length = binary_body(&body, json.data, AS_FP32, 1);
    const char *const headers[] = {"content-type: application/json; charset=utf-8", length,
                                   "Transfer-Encoding: chunked", NULL};
    snprintf(length, sizeof length, "inference-header-content-length: %zu", json_length);
    struct request request = {.method = "POST",
                              .path = "/attend",
                              .body = body.data,
                              .length = body.length,
                              .headers = headers};
    struct answer answer = client_send(&client, &request);
    expect_answer(&answer, 200, NULL, "chunks");
    expect_same_answers(&answer, &plain, "chunks");
    answer_free(&answer);
    answer =
        binary_send(&client, "/attend", &json, json.length, NULL); /* no bytes after the JSON */
    expect_answer(&answer, 200, NULL, "JSON alone");
    expect_same_answers(&answer, &plain, "JSON alone");
    answer_free(&answer);
    answer_free(&plain);
    text_free(&json);
    text_free(&body);
}

/* One head with one component: queries and keys count up from 1, so that each score is the product
 * of two known integers. */
TEST(a_reply_of_many_pieces_arrives_whole_and_in_order)
{
    enum { QUERIES = 300, KEYS = 500 };
    struct text body = {0};
    float numbers[KEYS];
    char length[256];
    for (size_t i = 0; i < KEYS; i++)
        numbers[i] = (float)(i + 1);
    text_add(&body, "{\"outputs\":[\"attention_scores\"],\"scale\":1,\"query\":");
    text_floats(&body, numbers, 9, SHAPE(1, QUERIES, 1));
    text_add(&body, ",\"key\":");
    text_floats(&body, numbers, 9, SHAPE(1, KEYS, 1));
    text_add(&body, ",\"value\":");
    text_floats(&body, numbers, 9, SHAPE(1, KEYS, 1));
    text_add(&body, "}");
    struct answer answer = post_json("/attend", body.data, BINARY_REPLY);
    expect_answer(&answer, 200, NULL, "scores");
    ck_assert(answer_header(length, &answer, JSON_LENGTH));
    size_t json_length = strtoul(length, NULL, 10);
    ck_assert_uint_eq(answer.length - json_length, (size_t)QUERIES * KEYS * sizeof(float));
    for (size_t i = 0; i < (size_t)QUERIES * KEYS; i++) {
        float score;
        memcpy(&score, answer.text + json_length + i * sizeof score, sizeof score);
        ck_assert_float_eq(score, numbers[i / KEYS] * numbers[i % KEYS]);
    }
    answer_free(&answer);
    text_free(&body);
}

static void set_up_narrow(void) { serve(CONFIG_SMALL("\"max_reply_bytes\":65536,")); }

/* Asks for 4 heads of n x n weights, in the form that the header names; expects this status. */
static void expect_weights(size_t n, const char *header, long status)
{
    static float rows[64 * TINY];
    struct text body = {0};
    make_numbers(rows, n * TINY, 3);
    text_add(&body, "{\"model\":\"tiny\",\"outputs\":[\"attention_weights\"],\"hidden_states\":");
    text_floats(&body, rows, 9, SHAPE(n, TINY));
    text_add(&body, "}");
    struct answer answer = post_json("/attend", body.data, header);
    expect_answer(&answer, status, status == 200 ? NULL : "reply_too_large", "weights");
    answer_free(&answer);
    text_free(&body);
}

CASE(limits, set_up_narrow, serve_end, 0)

TEST(a_number_in_bytes_counts_as_four)
{
    expect_weights(25, NULL, 200); /* 600 + 4 * 25^2 * 25 bytes */
    expect_weights(26, NULL, 422);
    expect_weights(26, BINARY_REPLY, 200);
    expect_weights(63, BINARY_REPLY, 200); /* 600 + 160 + 4 * 63^2 * 4 bytes */
    expect_weights(64, BINARY_REPLY, 422);
    ck_assert_double_eq(call_metric(&client, "attnd_queue_depth"), 0);
}

SUITE(binary)
