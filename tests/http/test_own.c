/* test_own.c: a layer of one's own, from a file of NumPy that the configuration names: /attend, a
 * session, and what the daemon says of it.  The expected rows are NumPy's (tests/own/make.py). */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "own_expected.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

/* Serves it with a key that no family has, which the configuration says to pass over. */
static void serve_own(void)
{
    struct text config = {0};
    char file[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("tests/own/small.npz", file));
    text_add(
        &config,
        "{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\","
        "\"models\":[{\"name\":\"own\",\"path\":\"%s\",\"config\":{\"model_type\":\"attention\","
        "\"d_model\":8,\"num_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4,\"frobs\":1,"
        "\"value_head_dim\":3,\"is_causal\":true,\"transposed\":true},"
        "\"ignore_keys\":[\"frobs\",\"more\"]}]}",
        file);
    serve(config.data);
    text_free(&config);
}

/* Posts rows [first, first + count), with `extra` before them. */
static struct answer post_rows(const char *path, const char *extra, size_t first, size_t count)
{
    struct text body = {0};
    text_add(&body, "{%s\"hidden_states\":", extra);
    text_floats(&body, own_rows + first * OWN_WIDTH, 9, 2, (const size_t[]){count, OWN_WIDTH});
    text_add(&body, "}");
    struct answer answer = client_post(&client, path, body.data);
    text_free(&body);
    return answer;
}

static void expect_rows(const char *what, const struct answer *answer, size_t first, size_t count)
{
    expect_answer(answer, 200, NULL, what);
    float *got = tensor_of(answer->json, "output", 2, (const size_t[]){count, OWN_WIDTH});
    expect_close(what, got, own_expected + first * OWN_WIDTH, count * OWN_WIDTH, 1e-5);
    free(got);
}

CASE(own, serve_own, serve_end, 0)

TEST(own_layers_log_warns_of_keys_that_are_passed_over)
{
    free(daemon_log_with(&served, "model own: key 'frobs' of its configuration is passed over"));
    free(daemon_log_with(&served, "model own: key 'more' of its configuration is passed over"));
}

TEST(own_layer_attends_and_serves_a_session)
{
    struct answer answer = post_rows("/attend", "", 0, OWN_ROWS);
    expect_rows("attend", &answer, 0, OWN_ROWS);
    answer_free(&answer);
    expect_posted(&client, "/sessions", "{\"session_id\":\"a\"}", 201, NULL);
    answer = post_rows("/attend", "\"session_id\":\"a\",", 0, 3);
    expect_rows("prefill", &answer, 0, 3);
    answer_free(&answer);
    for (size_t t = 3; t < OWN_ROWS; t++) {
        answer = post_rows("/decode", "\"session_id\":\"a\",", t, 1);
        expect_rows("decode", &answer, t, 1);
        answer_free(&answer);
    }
}

TEST(own_layer_is_described)
{
    struct answer answer = client_get(&client, "/models/own");
    expect_answer(&answer, 200, NULL, "models");
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {{"parameters", 336}, {"head_dim", 4}, {"value_head_dim", 3}, {"num_layers", 1}};
    for (size_t i = 0; i < COUNT(numbers); i++)
        ck_assert_int_eq(json_integer_value(json_object_get(answer.json, numbers[i].name)),
                         numbers[i].value);
    ck_assert_str_eq(json_string_value(json_object_get(answer.json, "family")), "attention");
    ck_assert_str_eq(json_string_value(json_object_get(answer.json, "weights_dtype")), "F32");
    answer_free(&answer);
}

SUITE(own)
