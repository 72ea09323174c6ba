/* test_inputs.c: rows that PUT /inputs/{digest} keeps, and calls that name them: the replies are
 * those of the same rows sent with the call. */
#include <check.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define DIGITS (2 * SHA256_DIGEST_SIZE)
#define ROWS "[[1,2,3,4,5,6,7,8],[8,7,6,5,4,3,2,1.5]]"
#define OTHER "[[0.5,1,2,3,4,5,6,7],[3,1,4,1,5,9,2,6]]"
#define BIAS "[[0,-1],[1,0.25]]"
#define KEY(name) name "-0123456789abcdef0123456789abcdef"
#define ENTRY(name) "{\"name\":\"" name "\",\"key\":\"" KEY(name) "\",\"scopes\":[\"infer\"]}"

static char keys_path[SECRET_PATH];

static void write_digest(char out[DIGITS + 1], const char *body)
{
    struct sha256_ctx context;
    uint8_t sum[SHA256_DIGEST_SIZE];
    sha256_init(&context);
    sha256_update(&context, strlen(body), (const uint8_t *)body);
    sha256_digest(&context, sizeof sum, sum);
    base16_encode_update(out, sizeof sum, sum);
    out[DIGITS] = '\0';
}

/* Asks /inputs/ about the digest of `rows`, by PUT with them and by GET without. */
static void expect_input(const char *method, const char *rows, long status, const char *code)
{
    char path[16 + DIGITS] = "/inputs/";
    write_digest(path + strlen(path), rows);
    const struct request request = {
        .method = method, .path = path, .body = strcmp(method, "PUT") == 0 ? rows : NULL};
    struct answer answer = client_send(&client, &request);
    expect_answer(&answer, status, code, method);
    answer_free(&answer);
}

/* Writes a body in which each %s stands for rows: themselves, or the digest under which they are
 * kept. */
static void write_body(char *out, size_t size, const char *form, const char *const rows[2],
                       bool by_digest)
{
    char texts[2][DIGITS + 16];
    for (size_t i = 0; i < 2; i++) {
        char digest[DIGITS + 1];
        write_digest(digest, rows[i]);
        snprintf(texts[i], sizeof texts[i], by_digest ? "{\"input\":\"%s\"}" : "%s",
                 by_digest ? digest : rows[i]);
    }
    const char *first = strstr(form, "%s"), *second = strstr(first + 2, "%s");
    snprintf(out, size, "%.*s%s%.*s%s%s", (int)(first - form), form, texts[0],
             (int)(second - first - 2), first + 2, texts[1], second + 2);
}

/* A body with two tensors, both of which are kept. */
static const struct call {
    const char *path, *form, *rows[2];
} calls[] = {
    {"/attend",
     "{\"model\":\"plain\",\"hidden_states\":%s,\"attention_bias\":%s,"
     "\"outputs\":[\"output\",\"lse\"]}",
     {ROWS, BIAS}},
    {"/attend", "{\"query\":%s,\"key\":%s,\"value\":[" ROWS "]}", {"[" ROWS "]", "[" OTHER "]"}},
    {"/decode",
     "{\"model\":\"plain\",\"sequences\":[{\"session_id\":\"a\",\"position\":0,\"hidden_states\":%"
     "s},"
     "{\"session_id\":\"b\",\"position\":0,\"hidden_states\":%s}]}",
     {ROWS, OTHER}},
};

static void expect_same(const struct call *call)
{
    char body[1024];
    struct answer answers[2];
    for (size_t i = 0; i < 2; i++) {
        expect_posted(&client, "/sessions", "{\"session_id\":\"a\",\"model\":\"plain\"}", 201,
                      NULL);
        expect_posted(&client, "/sessions", "{\"session_id\":\"b\",\"model\":\"plain\"}", 201,
                      NULL);
        write_body(body, sizeof body, call->form, call->rows, i == 1);
        answers[i] = client_post(&client, call->path, body);
        expect_answer(&answers[i], 200, NULL, body);
        expect_deleted(&client, "/sessions/a", 204, NULL);
        expect_deleted(&client, "/sessions/b", 204, NULL);
    }
    for (const char *a = answers[0].text, *b = answers[1].text; *a != '\0'; a++, b++) {
        if (strncmp(a, "\"epoch\":", 8) == 0) { /* other sessions, of other epochs and revisions */
            a = strchr(strstr(a, "\"revision\":"), ',');
            b = strchr(strstr(b, "\"revision\":"), ',');
        }
        ck_assert_msg(*a == *b, "%s: %s, by digest %s", call->form, answers[0].text,
                      answers[1].text);
    }
    answer_free(&answers[0]);
    answer_free(&answers[1]);
}

CASE(inputs, serve_small, serve_end, 0)

TEST_EACH(calls_compute_with_inputs_as_with_rows_of_their_own, COUNT(calls))
{
    const struct call *call = &calls[_i];
    for (size_t i = 0; i < 2; i++) {
        expect_input("GET", call->rows[i], 404, "input_not_found");
        expect_input("PUT", call->rows[i], 200, NULL);
        expect_input("GET", call->rows[i], 200, NULL);
    }
    expect_same(call);
}

static json_int_t executions(void)
{
    struct answer answer = client_get(&client, "/v2/models/attention/stats");
    expect_answer(&answer, 200, NULL, "statistics");
    const json_t *stats = json_array_get(json_object_get(answer.json, "model_stats"), 0);
    json_int_t count = json_integer_value(json_object_get(stats, "execution_count"));
    answer_free(&answer);
    return count;
}

TEST(keeping_an_input_is_no_inference)
{
    const json_int_t before = executions();
    expect_input("PUT", ROWS, 200, NULL);
    ck_assert_int_eq(executions(), before);
    expect_posted(&client, "/v2/models/plain/infer",
                  "{\"inputs\":[{\"name\":\"hidden_states\",\"input\":\"0\"}]}", 400,
                  "unknown_field");
}

static void serve_two_keys(void)
{
    secret_write(keys_path, "{\"keys\":[" ENTRY("alice") "," ENTRY("carol") "]}");
    serve_keys(CONFIG_SMALL(""), keys_path);
}

static void end_keys(void)
{
    serve_end();
    unlink(keys_path);
}

CASE(keys, serve_two_keys, end_keys, 0)

TEST(an_input_belongs_to_its_key)
{
    static const char *const names[] = {"Authorization: Bearer " KEY("alice"),
                                        "Authorization: Bearer " KEY("carol")};
    char path[16 + DIGITS] = "/inputs/";
    write_digest(path + strlen(path), ROWS);
    for (size_t i = 0; i < 4; i++) {
        const char *const headers[] = {names[i % 2], NULL};
        const struct request request = {.method = i == 0 ? "PUT" : "GET",
                                        .path = path,
                                        .body = i == 0 ? ROWS : NULL,
                                        .headers = headers};
        struct answer answer = client_send(&client, &request);
        expect_answer(&answer, i % 2 == 0 ? 200 : 404, i % 2 == 0 ? NULL : "input_not_found",
                      names[i % 2]);
        answer_free(&answer);
    }
}

SUITE(inputs)
