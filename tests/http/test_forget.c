/* test_forget.c: sessions over a window forget, and nobody sees it but in bytes: replies are those
 * of a model of the same weights without a window, whose calls name the window. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"
#include "waiting.h"

#define BLOCK 8192 /* bytes of 64 tokens: 4 heads of 4 numbers, keys and values */
#define WINDOW ",\"sliding_window\":[7,0]"
#define RANDOM(name, more)                                                                      \
    "{\"name\":\"" name "\",\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,\"rope_th" \
    "eta\":10000,\"is_causal\":true,\"seed\":7" more "}}"
#define CONFIG                                                                             \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"log\":\"error\",\"memory_limit\":\"64GiB\",\"mo" \
    "dels\":[" RANDOM("tiny", ",\"sliding_window\":8") "," RANDOM("open", "") "]}"

/* ---- Helpers --------------------------------------------------------------------------------- */

/* POST /decode of n rows of a model. */
static struct answer post(const char *model, const char *id, unsigned seed, size_t n,
                          const char *extra)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"%s\",", model);
    text_steps(&body, id, seed, n, extra);
    text_add(&body, "}");
    struct answer answer = client_post(&client, "/decode", body.data);
    text_free(&body);
    return answer;
}

/* The same rows over both sessions, "s" of `tiny` and "o" of `open`; their outputs are the same. */
static void step_both(unsigned seed, size_t n, const char *extra)
{
    char more[128];
    snprintf(more, sizeof more, "%s" WINDOW, extra);
    struct answer a = post("tiny", "s", seed, n, extra), b = post("open", "o", seed, n, more);
    expect_answer(&a, 200, NULL, "tiny");
    expect_answer(&b, 200, NULL, "open");
    expect_same("step", a.json, b.json, "output");
    ck_assert_int_eq(answer_integer(&a, "length"), answer_integer(&b, "length"));
    answer_free(&a);
    answer_free(&b);
}

static json_int_t session_number(const char *id, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 200, NULL, path);
    json_int_t number = json_integer_value(json_object_get(answer.json, name));
    answer_free(&answer);
    return number;
}

/* POSTs {"length":..} to a path, which must be refused with this lowest length. */
static void refuse_length(const char *path, size_t length, json_int_t lowest)
{
    char body[64];
    snprintf(body, sizeof body, "{\"length\":%zu}", length);
    struct answer answer = client_post(&client, path, body);
    expect_answer(&answer, 409, "position_forgotten", path);
    const json_t *error = json_object_get(answer.json, "error");
    ck_assert_int_eq(json_integer_value(json_object_get(error, "lowest_length")), lowest);
    answer_free(&answer);
}

static void truncate_to(const char *id, size_t length)
{
    char path[64], body[64];
    snprintf(path, sizeof path, "/sessions/%s/truncate", id);
    snprintf(body, sizeof body, "{\"length\":%zu}", length);
    expect_posted(&client, path, body, 200, NULL);
}

/* ---- Within one daemon ----------------------------------------------------------------------- */

static void set_up(void) { serve(CONFIG); }

CASE(live, set_up, serve_end, 60)

TEST(a_prefill_of_512_tokens_over_a_window_of_8_keeps_one_block)
{
    step_both(0, 512, ",\"start\":true");
    ck_assert_int_eq(session_number("s", "bytes"), BLOCK);
    ck_assert_int_eq(session_number("o", "bytes"), 8 * BLOCK);
    ck_assert_double_eq(call_metric(&client, "attnd_cache_used_bytes"), 9 * BLOCK);
    step_both(0, 512, ",\"position\":0"); /* a retry */
    for (unsigned i = 0; i < 70; i++)
        step_both(600 + i, 1, "");
    step_both(669, 1, ",\"position\":581");
    step_both(700, 3,
              ",\"commit\":false,\"attention_mask\":[[1,0,0],[1,1,0],[1,0,"
              "1]],\"position_ids\":[582,583,583]");
    ck_assert_int_eq(session_number("s", "bytes"), 2 * BLOCK); /* 512 to 581 */
}

TEST(truncation_fork_and_steps_below_what_is_kept_are_409_with_the_lowest_length)
{
    step_both(0, 512, ",\"start\":true");
    for (unsigned i = 0; i < 20; i++)
        step_both(600 + i, 1, "");
    ck_assert_int_eq(session_number("s", "lowest_length"), 512 + 7);
    ck_assert_int_eq(session_number("o", "lowest_length"), 0);
    refuse_length("/sessions/s/truncate", 518, 519);
    refuse_length("/sessions/s/fork", 518, 519);
    ck_assert_uint_eq(call_length(&client, "s", 0), 532);
    struct answer early = post("tiny", "s", 0, 1, ",\"position\":5");
    expect_answer(&early, 409, "position_conflict", "early");
    const json_t *error = json_object_get(early.json, "error");
    ck_assert_int_eq(json_integer_value(json_object_get(error, "lowest_length")), 519);
    ck_assert_int_eq(json_integer_value(json_object_get(error, "length")), 532);
    answer_free(&early);
    struct answer wide = post("tiny", "s", 0, 1, ",\"sliding_window\":[-1,0]");
    expect_answer(&wide, 409, "position_forgotten", "wide");
    answer_free(&wide);
    call_fork(&client, "s", "f", ",\"length\":519");
    ck_assert_int_eq(session_number("f", "bytes"), BLOCK);
    truncate_to("s", 519);
    truncate_to("o", 519);
    step_both(900, 3, "");
    truncate_to("s", 0);
    truncate_to("o", 0);
    ck_assert_int_eq(session_number("s", "lowest_length"), 0);
    step_both(0, 100, "");
}

TEST(outputs_over_forgotten_keys_are_hidden)
{
    step_both(0, 200, ",\"start\":true");
    struct answer answer = post(
        "tiny", "s", 300, 1, ",\"outputs\":[\"attention_weights\",\"attention_scores\",\"key\"]");
    expect_answer(&answer, 200, NULL, "maps");
    const json_t *scores = json_object_get(answer.json, "attention_scores");
    const json_t *weights = json_object_get(answer.json, "attention_weights");
    const json_t *key = json_object_get(answer.json, "key");
    while (json_is_array(json_array_get(scores, 0)))
        scores = json_array_get(scores, 0);
    while (json_is_array(json_array_get(weights, 0)))
        weights = json_array_get(weights, 0);
    while (json_is_array(json_array_get(json_array_get(key, 0), 0)))
        key = json_array_get(key, 0);
    ck_assert_uint_eq(json_array_size(scores), 201);
    ck_assert(json_is_null(json_array_get(scores, 0)));
    ck_assert(json_is_number(json_array_get(scores, 200)));
    ck_assert_double_eq(json_number_value(json_array_get(weights, 0)), 0);
    ck_assert_double_eq(json_number_value(json_array_get(json_array_get(key, 0), 1)), 0);
    ck_assert_double_ne(json_number_value(json_array_get(json_array_get(key, 200), 1)), 0);
    answer_free(&answer);
}

/* ---- Over restarts --------------------------------------------------------------------------- */

#define FIELD "Authorization: Bearer few-0123456789abcdef0123456789abcdef"
#define KEYS                                                                                    \
    "{\"keys\":[{\"name\":\"few\",\"key\":\"few-0123456789abcdef0123456789abcdef\",\"scopes\":" \
    "[\"infer\",\"metrics\",\"admin\"],\"cache_bytes\":%d}],\"metrics_keys\":true}"

static char directory[SCRATCH_PATH], keys_path[SECRET_PATH];

static void start(const char *durability)
{
    char variable[96];
    const char *const variables[] = {variable, NULL};
    const char *const arguments[] = {"--state-dir", directory, "--durability", durability, NULL};
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    served.authorization = FIELD;
    daemon_start(&served, CONFIG, arguments, variables);
    served.authorization = FIELD;
    client_open(&client, &served);
}

static void restart(const char *durability)
{
    serve_kill();
    start(durability);
}

static void begin_kept(void)
{
    char keys[256];
    scratch_make(directory);
    snprintf(keys, sizeof keys, KEYS, 14 * BLOCK);
    secret_write(keys_path, keys);
    start("journal");
}

static void end_kept(void)
{
    serve_end();
    served.authorization = NULL;
    unlink(keys_path);
    scratch_remove(directory);
}

/* GET's body of a session's state becomes the session `to`. */
static void copy_state(const char *from, const char *to)
{
    char path[64];
    const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    snprintf(path, sizeof path, "/sessions/%s/state", from);
    struct answer file = client_get(&client, path);
    expect_answer(&file, 200, NULL, path);
    ck_assert_uint_lt(file.length, 2 * BLOCK + 2048);
    snprintf(path, sizeof path, "/sessions/%s/state", to);
    struct answer made = client_send(&client, &(struct request){.method = "PUT",
                                                                .path = path,
                                                                .body = file.text,
                                                                .length = file.length,
                                                                .headers = headers});
    expect_answer(&made, 201, NULL, path);
    answer_free(&made);
    answer_free(&file);
}

CASE(kept, begin_kept, end_kept, 60)

/* A prefill, decodes that cross blocks, a rollback, a fork and an imported copy: after SIGKILL each
 * session is where it was, its last step can be repeated, and it goes on with the same bits. */
TEST_EACH(sessions_that_forgot_are_restored_as_they_were, 2)
{
    step_both(0, 200, ",\"start\":true");
    for (unsigned i = 0; i < 70; i++)
        step_both(300 + i, 1, "");
    truncate_to("s", 264);
    truncate_to("o", 264);
    step_both(500, 5, "");
    call_fork(&client, "s", "f", "");
    copy_state("s", "i");
    const json_int_t bytes = session_number("s", "bytes");
    const double used = call_metric(&client, "attnd_cache_used_bytes");
    ck_assert_int_eq(session_number("i", "bytes"), bytes);
    if (_i == 1)
        call_snapshot(&client);
    restart("journal");
    for (unsigned waited = 0; call_metric(&client, "attnd_sessions_unread") > 0; waited += 10) {
        ck_assert_uint_lt(waited, SOON_MS);
        pause_ms(10);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_cache_used_bytes"), used);
    for (size_t i = 0; i < 3; i++) {
        const char *id = (const char *const[]){"s", "f", "i"}[i];
        ck_assert_int_eq(session_number(id, "bytes"), bytes);
        ck_assert_int_eq(session_number(id, "lowest_length"), 256 + 7);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_key_cache_bytes{key=\"few\"}"),
                        (double)(3 * bytes + session_number("o", "bytes")));
    step_both(500, 5, ",\"position\":264"); /* a retry */
    char *want = call_next_bits(&client, "s");
    for (size_t i = 0; i < 2; i++) {
        char *got = call_next_bits(&client, (const char *const[]){"f", "i"}[i]);
        ck_assert_str_eq(got, want);
        free(got);
    }
    free(want);
    step_both(600, 9, "");
}

/* The key may hold 14 blocks: 8 of a prefill at a time, and one of each session that has been. */
TEST(quotas_are_given_back_what_sessions_forget)
{
    for (unsigned i = 0; i < 6; i++) {
        char id[8];
        snprintf(id, sizeof id, "q%u", i);
        struct answer answer = post("tiny", id, i, 512, ",\"start\":true");
        expect_answer(&answer, 200, NULL, id);
        answer_free(&answer);
        for (unsigned n = 0; n < 80; n++)
            expect_decode(&client, id, n, 512 + n);
        ck_assert_double_eq(call_metric(&client, "attnd_key_cache_bytes{key=\"few\"}"),
                            (double)((i + 1) * BLOCK));
    }
}

SUITE(forget)
