/* test_coding.c: calls with bodies and replies in gzip and deflate, compared with plain ones. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "binary.h"
#include "calls.h"
#include "served.h"
#include "suites.h"

#define CONFIG(compression)                                                                       \
    CONFIG_SMALL("\"threads\":2,\"max_body_bytes\":\"4MiB\",\"reply_compression\":\"" compression \
                 "\",")

static void setup(void) { serve(CONFIG("json")); }

static const char *const codings[] = {"gzip", "deflate"};
static const int windows[] = {MAX_WBITS + 16, MAX_WBITS};

/* The body compressed as codings[which]; the caller's to free. */
static struct text compress_text(const struct text *body, int which)
{
    struct text out = {0};
    z_stream z = {.next_in = (Bytef *)body->data, .avail_in = (uInt)body->length};
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, windows[which], 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, body->length);
    char *bytes = malloc(room);
    z.next_out = (Bytef *)bytes;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    text_bytes(&out, bytes, room - z.avail_out);
    deflateEnd(&z);
    free(bytes);
    return out;
}

/* Replaces the answer's body by its decompressed form. */
static void decompress_answer(struct answer *answer, int which)
{
    size_t room = 64 << 20;
    char *bytes = malloc(room);
    z_stream z = {.next_in = (Bytef *)answer->text, .avail_in = (uInt)answer->length};
    ck_assert_int_eq(inflateInit2(&z, windows[which]), Z_OK);
    z.next_out = (Bytef *)bytes;
    z.avail_out = (uInt)room - 1;
    ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(z.avail_in, 0);
    free(answer->text);
    answer->text = bytes;
    answer->length = room - 1 - z.avail_out;
    bytes[answer->length] = '\0';
    inflateEnd(&z);
    json_decref(answer->json);
    answer->json = json_loadb(bytes, answer->length, 0, NULL);
}

static struct answer post(const char *path, const struct text *body, const char *coding,
                          const char *more)
{
    char line[64];
    snprintf(line, sizeof line, "Content-Encoding: %s", coding);
    const char *const headers[] = {line, more, NULL};
    return client_send(&client, &(struct request){.method = "POST",
                                                  .path = path,
                                                  .body = body->data,
                                                  .length = body->length,
                                                  .headers = headers});
}

static void make_attend(struct text *body, size_t rows, const char *extra)
{
    float *x = malloc(rows * TINY * sizeof *x);
    make_numbers(x, rows * TINY, 3);
    text_add(body, "{\"model\":\"tiny\",\"hidden_states\":");
    text_floats(body, x, 9, 2, (const size_t[]){rows, TINY});
    text_add(body, "%s}", extra);
    free(x);
}

CASE(coding, setup, serve_end, 0)

TEST_EACH(a_coded_body_gets_the_reply_of_the_plain_one, 2)
{
    static const size_t rows[] = {1, 40, 2000};
    for (size_t i = 0; i < 3; i++) {
        struct text body = {0};
        make_attend(&body, rows[i], "");
        struct text coded = compress_text(&body, _i);
        struct answer want = post("/attend", &body, "identity", NULL);
        struct answer got = post("/attend", &coded, codings[_i], NULL);
        expect_answer(&got, 200, NULL, codings[_i]);
        ck_assert_uint_eq(got.length, want.length);
        ck_assert(memcmp(got.text, want.text, want.length) == 0);
        answer_free(&want);
        answer_free(&got);
        text_free(&coded);
        text_free(&body);
    }
}

TEST_EACH(the_length_of_json_counts_bytes_that_have_been_expanded, 2)
{
    struct text json = {0}, body = {0};
    char length[64];
    make_attend(&json, 30, "");
    size_t json_length = binary_body(&body, json.data, AS_FP32, 3);
    struct text coded = compress_text(&body, _i);
    struct answer want = binary_send(&client, "/attend", &body, json_length, NULL);
    snprintf(length, sizeof length, JSON_LENGTH ": %zu", json_length);
    struct answer got = post("/attend", &coded, codings[_i], length);
    expect_answer(&want, 200, NULL, "plain");
    expect_answer(&got, 200, NULL, "coded");
    ck_assert_str_eq(got.text, want.text);
    answer_free(&got);
    snprintf(length, sizeof length, JSON_LENGTH ": %zu", body.length + 1);
    got = post("/attend", &coded, codings[_i], length);
    ck_assert_int_eq(got.status, 400);
    answer_free(&got);
    answer_free(&want);
    text_free(&coded);
    text_free(&body);
    text_free(&json);
}

TEST_EACH(small_documents_may_be_coded_and_stay_small, 2)
{
    struct text body = {0}, large = {0};
    text_add(&body, "{\"session_id\":\"coded-%d\",\"model\":\"tiny\"}", _i);
    text_add(&large, "{\"model\":\"tiny\",\"session_id\":\"%40000s\"}", "x");
    struct text coded = compress_text(&body, _i), coded_large = compress_text(&large, _i);
    struct answer answer = post("/sessions", &coded, codings[_i], NULL);
    expect_answer(&answer, 201, NULL, "a coded document");
    answer_free(&answer);
    answer = post("/sessions", &coded_large, codings[_i], NULL);
    expect_answer(&answer, 413, "too_complex", "a document that expands beyond its bound");
    answer_free(&answer);
    char path[40];
    snprintf(path, sizeof path, "/sessions/coded-%d/fork", _i); /* which has no tensors */
    answer = post(path, &coded_large, codings[_i], NULL);
    expect_answer(&answer, 413, "body_too_large", "a document that is not expanded beyond it");
    answer_free(&answer);
    text_free(&body);
    text_free(&large);
    text_free(&coded);
    text_free(&coded_large);
}

TEST_EACH(damaged_bodies_and_bombs_change_no_session, 2)
{
    struct text body = {0}, bomb = {0};
    call_create(&client, "safe", "");
    expect_decode(&client, "safe", 1, 0);
    text_add(&body, "{");
    text_step(&body, "safe", 2, ",\"model\":\"tiny\"}");
    struct text coded = compress_text(&body, _i);
    coded.data[coded.length - 3] ^= 1; /* in the checksum or the length */
    struct answer answer = post("/decode", &coded, codings[_i], NULL);
    expect_answer(&answer, 400, "malformed_encoding", "a wrong checksum");
    answer_free(&answer);
    text_add(&bomb, "{\"model\":\"tiny\",\"hidden_states\":[%*s", 40 << 20, "");
    struct text coded_bomb = compress_text(&bomb, _i);
    ck_assert_uint_lt(coded_bomb.length, 1 << 20);
    answer = post("/decode", &coded_bomb, codings[_i], NULL);
    expect_answer(&answer, 413, "body_too_large", "a bomb");
    answer_free(&answer);
    text_free(&bomb);
    text_free(&coded_bomb);
    bomb = (struct text){0};
    text_add(&bomb, "%*s", 2 << 20, ""); /* beyond the rule, but not beyond max_body_bytes */
    coded_bomb = compress_text(&bomb, _i);
    answer = post("/decode", &coded_bomb, codings[_i], NULL);
    expect_answer(&answer, 413, "body_too_large", "more than 200 times");
    ck_assert_msg(strstr(answer.text, "the larger of 200 times its coded length and 1 MiB") != NULL,
                  "%s", answer.text);
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "safe", 0), 1);
    for (unsigned i = 0; call_metric(&client, "attnd_in_flight_bytes") > 0; i++) {
        ck_assert_uint_lt(i, 1000);
        pause_ms(5);
    }
    text_free(&body);
    text_free(&bomb);
    text_free(&coded);
    text_free(&coded_bomb);
}

/* POSTs an /attend whose reply has `rows` rows, with these members in the body and this
 * Accept-Encoding, or none where it is NULL. */
static struct answer attend_with(size_t rows, const char *members, const char *accepted)
{
    struct text body = {0};
    char line[96], extra[128];
    const char *const headers[] = {line, NULL};
    snprintf(extra, sizeof extra, ",\"outputs\":[\"output\",\"key\"]%s", members);
    make_attend(&body, rows, extra);
    snprintf(line, sizeof line, "Accept-Encoding: %s", accepted != NULL ? accepted : "");
    struct answer answer =
        client_send(&client, &(struct request){.method = "POST",
                                               .path = "/attend",
                                               .body = body.data,
                                               .headers = accepted != NULL ? headers : NULL});
    expect_answer(&answer, 200, NULL, "attend");
    text_free(&body);
    return answer;
}

static struct answer attend(size_t rows, const char *accepted)
{
    return attend_with(rows, "", accepted);
}

TEST_EACH(large_replies_have_the_accepted_coding_and_a_vary_field, 2)
{
    char value[256], line[64];
    struct answer want = attend(2000, NULL);
    ck_assert_uint_gt(want.length, 262144);
    ck_assert(!answer_header(value, &want, "Content-Encoding"));
    ck_assert(answer_header(value, &want, "Vary"));
    ck_assert_str_eq(value, "Accept-Encoding");
    snprintf(line, sizeof line, "br, %s;q=0.5", codings[_i]);
    struct answer got = attend(2000, line);
    ck_assert(answer_header(value, &got, "Content-Encoding"));
    ck_assert_str_eq(value, codings[_i]);
    ck_assert(answer_header(value, &got, "Vary"));
    ck_assert_uint_lt(got.length, want.length);
    decompress_answer(&got, _i);
    ck_assert_uint_eq(got.length, want.length);
    ck_assert(memcmp(got.text, want.text, want.length) == 0);
    answer_free(&got);
    snprintf(line, sizeof line, "%s;q=0", codings[_i]);
    got = attend(2000, line);
    ck_assert(!answer_header(value, &got, "Content-Encoding"));
    answer_free(&got);
    answer_free(&want);
}

TEST(small_replies_are_never_coded)
{
    char value[256];
    struct answer answer = attend(10, "gzip, deflate");
    ck_assert(!answer_header(value, &answer, "Content-Encoding"));
    ck_assert(!answer_header(value, &answer, "Vary"));
    ck_assert_ptr_nonnull(answer.json);
    answer_free(&answer);
}

/* What the option compresses in JSON, in binary form, and where the body says true and false. */
static const struct {
    const char *config;
    bool json, binary;
} options[] = {{CONFIG_SMALL("\"threads\":2,"), false, false}, /* asked, the default */
               {CONFIG("asked"), false, false},
               {CONFIG("json"), true, false},
               {CONFIG("all"), true, true}};

/* Expects a large reply to be coded or not, with Vary only where Accept-Encoding decides. */
static void expect_coded(const char *members, const char *accepted, bool coded, bool varies)
{
    char value[256];
    struct answer answer = attend_with(4200, members, accepted);
    ck_assert_uint_gt(answer.length, 100000);
    ck_assert_msg(answer_header(value, &answer, "Content-Encoding") == coded, "%s", members);
    ck_assert_msg(answer_header(value, &answer, "Vary") == varies, "%s", members);
    answer_free(&answer);
}

CASE(policy, NULL, NULL, 0)

TEST_EACH(replies_are_coded_where_the_body_or_else_the_option_says, COUNT(options))
{
    static const char browser[] = "gzip, deflate, br, zstd";
    serve(options[_i].config);
    expect_coded("", browser, options[_i].json, options[_i].json);
    expect_coded(",\"compressed_output\":null", browser, options[_i].json, options[_i].json);
    expect_coded(",\"binary_output\":true", browser, options[_i].binary, options[_i].binary);
    expect_coded(",\"compressed_output\":true", browser, true, true);
    expect_coded(",\"compressed_output\":true", NULL, false, true);
    expect_coded(",\"compressed_output\":true,\"binary_output\":true", browser, true, true);
    expect_coded(",\"compressed_output\":false", browser, false, false);
    expect_coded(",\"compressed_output\":false,\"binary_output\":true", browser, false, false);
    serve_end();
}

SUITE(coding)
