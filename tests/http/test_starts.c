/* test_starts.c: whose a session of encoder rows is, and which start has made it: owners that
 * use one id, starts that are sent again with the same rows or others, also as a sequence of the
 * Open Inference Protocol. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

enum { E = 16, EK = 12, ROWS = 5 };
#define CONFIG                                                                                     \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\",\"log\":\"error\",\"models\":[" \
    "{\"name\":\"crossed\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"              \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"is_cross\":true,\"kdim\":12,\"vdim\":12," \
    "\"seed\":5}}]}"
#define KEY(name)                            \
    "{\"name\":\"" name "\",\"key\":\"" name \
    "-0123456789abcdef0123456789abcdef\",\"scopes\":[\"infer\"]}"
#define KEYS "{\"keys\":[" KEY("a") "," KEY("b") "]}"

static char keys_path[SECRET_PATH];

static void set_up(void)
{
    secret_write(keys_path, KEYS);
    serve_keys(CONFIG, keys_path);
}

static void tear_down(void)
{
    served.authorization = NULL;
    serve_end();
}

static void be(const char *owner)
{
    static char field[96];
    snprintf(field, sizeof field, "Authorization: Bearer %s-0123456789abcdef0123456789abcdef",
             owner);
    served.authorization = field;
}

/* An encoder's rows that the seed makes, as JSON [ROWS][EK]. */
static void add_encoder(struct text *body, unsigned seed)
{
    float rows[ROWS * EK];
    make_numbers(rows, ROWS * EK, seed);
    text_floats(body, rows, 9, SHAPE(ROWS, EK));
}

static struct answer post(const char *path, struct text *body)
{
    struct answer answer = client_post(&client, path, body->data);
    text_free(body);
    return answer;
}

/* A start over these rows: a step, POST /sessions, or the first request of a sequence. */
enum form { STEP, CREATE, SEQUENCE, FORMS };

static struct answer begin(enum form form, unsigned seed)
{
    struct text body = {0};
    if (form == SEQUENCE) {
        float rows[ROWS * EK];
        make_numbers(rows, ROWS * EK, seed);
        text_add(&body,
                 "{\"parameters\":{\"sequence_id\":\"s\",\"sequence_start\":true},\"inputs\":[{"
                 "\"name\":\"hidden_states\",\"datatype\":\"FP32\",\"shape\":[1,1,%d],\"data\":[1,"
                 "2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]},{\"name\":\"encoder_hidden_states\","
                 "\"datatype\":\"FP32\",\"shape\":[1,%d,%d],\"data\":",
                 E, ROWS, EK);
        text_floats(&body, rows, 9, SHAPE(ROWS * EK));
        text_add(&body, "}]}");
        return post("/v2/models/crossed/infer", &body);
    }
    text_add(&body, "{\"session_id\":\"s\",\"encoder_hidden_states\":");
    add_encoder(&body, seed);
    if (form == STEP)
        text_add(&body, ",\"start\":true,\"hidden_states\":[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]");
    text_add(&body, "}");
    return post(form == STEP ? "/decode" : "/sessions", &body);
}

static void expect_begun(enum form form, unsigned seed, bool replayed)
{
    struct answer answer = begin(form, seed);
    expect_answer(&answer, form == CREATE ? 201 : 200, NULL, "a start");
    const json_t *facts =
        form == SEQUENCE ? json_object_get(answer.json, "parameters") : answer.json;
    ck_assert(json_is_true(json_object_get(facts, "replayed")) == replayed);
    answer_free(&answer);
}

static void expect_refused(enum form form, unsigned seed, const char *code)
{
    struct answer answer = begin(form, seed);
    ck_assert_msg(answer.status == 409, "%ld %s", answer.status, answer.text);
    const json_t *error = json_object_get(answer.json, "error");
    const json_t *word =
        form == SEQUENCE ? json_object_get(answer.json, "code") : json_object_get(error, "code");
    ck_assert_msg(json_is_string(word) && strcmp(json_string_value(word), code) == 0, "%s",
                  answer.text);
    answer_free(&answer);
}

/* The bits of a step over "s" of whoever asks. */
static char *bits(void)
{
    struct answer answer =
        client_post(&client, "/decode",
                    "{\"session_id\":\"s\",\"hidden_states\":[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]}");
    expect_answer(&answer, 200, NULL, "s");
    char *text = exact_text(answer.json, "output");
    answer_free(&answer);
    return text;
}

CASE(starts, set_up, tear_down, 60)

TEST_EACH(owners_of_one_id_have_a_session_of_encoder_rows_each, FORMS)
{
    const enum form form = _i;
    char *of[2], *again[2];
    for (unsigned i = 0; i < 2; i++) {
        be(i == 0 ? "a" : "b");
        expect_begun(form, 7 + i, false);
        of[i] = bits();
    }
    ck_assert_str_ne(of[0], of[1]);
    for (unsigned i = 0; i < 2; i++) {
        be(i == 0 ? "a" : "b");
        if (form == CREATE)
            expect_refused(form, 7 + i, "session_exists");
        else
            expect_begun(form, 7 + i, true);
        expect_refused(form, 8 - i, "session_exists");
        again[i] = bits();
        ck_assert_str_eq(again[i], of[i]);
        free(of[i]);
        free(again[i]);
    }
    be("a");
    call_delete(&client, "s");
    expect_begun(form, 9, false);
    be("b");
    ck_assert_int_eq(call_status(&client, "s"), 200);
}

SUITE(starts)
