/* test_restoring.c: sessions whose tokens are still on the disk when the daemon is ready: who waits
 * for them, what they count for, and what becomes of them; and a directory that is full. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"
#include "waiting.h"

#define ROWS 70    /* one block and a part of the next */
#define BLOCK 4096 /* bytes of 64 tokens in a layer of `tiny` */
#define WAIT_MS 60000
#define INFER "small-0123456789abcdef0123456789abcdef"
#define WATCH "watch-0123456789abcdef0123456789abcdef"
#define KEYS                                                                          \
    "{\"keys\":[{\"name\":\"small\",\"key\":\"" INFER                                 \
    "\",\"scopes\":[\"infer\"],\"cache_bytes\":40960,\"max_sessions\":2},"            \
    "{\"name\":\"watch\",\"key\":\"" WATCH "\",\"scopes\":[\"metrics\",\"admin\"]}]," \
    "\"metrics_keys\":true}"

static char root[SCRATCH_PATH]; /* the directories a, b, c are in it, each named as its instance */
static char keys_path[SECRET_PATH];
static const char *keys; /* what ATTN_API_KEYS is; NULL: none */

static void shell(const char *line)
{
    char command[256];
    snprintf(command, sizeof command, "cd %s && %s", root, line);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void set_up(void)
{
    scratch_make(root);
    shell("mkdir a b c");
    keys = NULL;
}

static void tear_down(void) { scratch_remove(root); }

/* A daemon of the instance `own` that adopts the directories of `adopted`, a letter each. */
static void start(const char *own, const char *adopted)
{
    char paths[3][80], preload[512], list[160];
    size_t n = 8;
    const char *arguments[16] = {"--state-dir",  paths[0],  "--instance", own,
                                 "--durability", "journal", "--log",      "info"};
    const char *const variables[] = {preload, keys != NULL ? list : NULL, NULL};
    snprintf(paths[0], sizeof paths[0], "%s/%s", root, own);
    snprintf(list, sizeof list, "ATTN_API_KEYS=%s", keys_path);
    process_preload(preload, "held_disk.so");
    for (size_t i = 0; adopted[i] != '\0'; i++) {
        snprintf(paths[i + 1], sizeof paths[0], "%s/%c", root, adopted[i]);
        arguments[n++] = "--adopt";
        arguments[n++] = paths[i + 1];
    }
    daemon_start(&served, CONFIG_SMALL(""), arguments, variables);
    if (keys != NULL)
        served.authorization = "Authorization: Bearer " INFER;
    client_open(&client, &served);
}

static void prefill(const char *id, size_t rows)
{
    struct answer answer = call_prefill(&client, id, 1, rows, "");
    expect_answer(&answer, 200, NULL, id);
    answer_free(&answer);
}

static void make(const char *id, size_t rows)
{
    call_create(&client, id, "");
    prefill(id, rows);
}

/* Makes the directory of that letter, with a session `LETTER.one`, whose blocks stand in a
 * snapshot; else in a journal, which a start reads at once. */
static void make_directory(const char *own, bool snapshot)
{
    char id[8];
    start(own, "");
    snprintf(id, sizeof id, "%s.one", own);
    make(id, ROWS);
    if (snapshot)
        call_snapshot(&client);
    serve_kill();
}

static void damage(const char *directory)
{
    char path[320], whole[80];
    snprintf(whole, sizeof whole, "%s/%s", root, directory);
    ck_assert_uint_eq(state_files_find(path, whole, ".blocks"), 1);
    state_files_flip(path, BLOCK + 200); /* in the second block, of 6 tokens */
}

static void await_set_aside(const char *directory)
{
    char whole[80];
    snprintf(whole, sizeof whole, "%s/%s", root, directory);
    state_files_await(whole, ".manifest.damaged");
}

/* ---- Requests that wait ---------------------------------------------------------------------- */

/* Sends a decode of the session, whose answer is read later. */
static void send_decode(struct raw *raw, const char *id, unsigned seed)
{
    char head[160];
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",");
    text_step(&body, id, seed, "");
    text_add(&body, "}");
    snprintf(head, sizeof head,
             "POST /decode HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             strlen(body.data));
    raw_open(raw, served.host, served.port);
    ck_assert(raw_text(raw, head) && raw_text(raw, body.data));
    free(body.data);
}

static size_t restoring(void) { return (size_t)call_metric(&client, "attnd_sessions_restoring"); }

static void await_restored(void)
{
    for (unsigned waited = 0; restoring() > 0; waited += 5) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(5);
    }
}

/* The answer to what `raw` has sent comes when the directory is released, and not before. */
static void expect_wait(struct raw *raw, const char *release, long status, const char *code)
{
    ck_assert(!raw_readable(raw, QUIET_MS));
    shell(release);
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == status && strstr(answer.body, code) != NULL, "%u: %s",
                  answer.status, answer.body != NULL ? answer.body : "");
    raw_answer_free(&answer);
    raw_close(raw);
}

CASE(restoring, set_up, tear_down, 240)

TEST_EACH(request_waits_for_its_session_and_no_other_request_does, !INSTRUMENTED)
{
    struct raw raw;
    start("a", "");
    make("a.one", ROWS);
    make("a.two", ROWS);
    call_snapshot(&client);
    char *bits = call_next_bits(&client, "a.two");
    serve_kill();
    shell("touch a/hold");
    start("a", "");
    ck_assert_uint_eq(restoring(), 2);
    ck_assert_uint_eq(call_length(&client, "a.one", 0), ROWS);
    send_decode(&raw, "a.one", ROWS);
    call_create(&client, "a.new", "");
    expect_decode(&client, "a.new", 1, 0);
    ck_assert_uint_eq(restoring(), 2);
    expect_wait(&raw, "rm a/hold", 200, "\"length\":71");
    char *again = call_next_bits(&client, "a.two");
    ck_assert_str_eq(again, bits);
    expect_decode(&client, "a.one", 1, ROWS + 1);
    await_restored();
    serve_end();
    free(bits);
    free(again);
}

/* A batch waits for each of the sessions that it forks, the second one too. */
TEST_EACH(a_batch_waits_for_all_of_its_sessions, !INSTRUMENTED)
{
    static const char body[] = "{\"fork\":[{\"from\":\"a.one\",\"session_id\":\"a.1\"},{\"from\":"
                               "\"b.one\",\"session_id\":\"b.1\"}]}";
    char head[200];
    struct raw raw;
    make_directory("b", true);
    make_directory("a", true);
    shell("touch a/hold b/hold");
    start("a", "b");
    snprintf(head, sizeof head,
             "POST /sessions/batch HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             strlen(body));
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, head) && raw_text(&raw, body));
    ck_assert(!raw_readable(&raw, QUIET_MS));
    shell("rm a/hold");
    for (unsigned waited = 0; restoring() > 1; waited += 5) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(5);
    }
    expect_wait(&raw, "rm b/hold", 200, "\"session_id\":\"b.1\"");
    expect_decode(&client, "a.1", 1, ROWS);
    expect_decode(&client, "b.1", 1, ROWS);
    serve_end();
}

/* Sound (0) and damaged (1). */
TEST_EACH(adopted_sessions_wait_for_their_own_directory_alone, INSTRUMENTED ? 0 : 2)
{
    const long status = _i == 0 ? 200 : 404; /* in the end */
    struct raw raw;
    make_directory("b", true);
    make_directory("a", true);
    if (_i == 1)
        damage("b");
    shell("touch b/hold");
    start("a", "b");
    ck_assert_uint_eq(call_length(&client, "b.one", 0), ROWS);
    send_decode(&raw, "b.one", ROWS);
    expect_decode(&client, "a.one", ROWS, ROWS);
    ck_assert_uint_eq(restoring(), 1);
    expect_wait(&raw, "rm b/hold", _i == 0 ? 200 : 410, _i == 0 ? "\"length\":71" : "session_lost");
    await_restored();
    expect_decode(&client, "a.one", 1, ROWS + 1);
    ck_assert_int_eq(call_status(&client, "b.one"), status);
    if (_i == 1)
        await_set_aside("b");
    ck_assert_double_eq(call_metric(&client, "attnd_sessions_lost_total"), _i);
    serve_end();
    start("b", "");
    ck_assert_int_eq(call_status(&client, "b.one"), status);
    if (_i == 0)
        ck_assert_uint_eq(call_length(&client, "b.one", 0), ROWS + 1);
    serve_end();
}

/* ---- Quotas ---------------------------------------------------------------------------------- */

static double gauge(const char *name)
{
    char sample[96];
    snprintf(sample, sizeof sample, "attnd_key_%s{key=\"small\"}", name);
    served.authorization = "Authorization: Bearer " WATCH;
    double value = call_metric(&client, sample);
    served.authorization = "Authorization: Bearer " INFER;
    return value;
}

static void expect_refused(struct answer answer, const char *limit)
{
    expect_answer(&answer, 429, "quota_exceeded", limit);
    ck_assert_ptr_nonnull(strstr(answer.text, limit));
    answer_free(&answer);
}

TEST_EACH(sessions_that_are_unread_count_for_their_owner, !INSTRUMENTED)
{
    secret_write(keys_path, KEYS);
    keys = keys_path;
    start("a", "");
    make("a.one", 6 * 64);
    call_create(&client, "a.two", "");
    served.authorization = "Authorization: Bearer " WATCH;
    call_snapshot(&client);
    serve_kill();
    shell("touch a/hold");
    start("a", "");
    ck_assert_double_eq(gauge("sessions"), 2);
    ck_assert_double_eq(gauge("cache_bytes"), 6 * BLOCK);
    expect_refused(client_post(&client, "/sessions", "{\"model\":\"tiny\"}"), "max_sessions");
    expect_refused(call_prefill(&client, "a.two", 1, 4 * 64 + 1, ""), "cache_bytes");
    prefill("a.two", 4 * 64);
    ck_assert_double_eq(gauge("cache_bytes"), 10 * BLOCK);
    call_delete(&client, "a.one");
    ck_assert_double_eq(gauge("sessions"), 1);
    call_create(&client, "a.three", "");
    expect_refused(call_prefill(&client, "a.three", 1, 1, ""), "cache_bytes");
    shell("rm a/hold"); /* its reader lets the deleted session's blocks go */
    for (unsigned waited = 0; gauge("cache_bytes") > 4 * BLOCK; waited += 5) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(5);
    }
    prefill("a.three", 6 * 64);
    ck_assert_double_eq(gauge("cache_bytes"), 10 * BLOCK);
    serve_end();
    unlink(keys_path);
}

/* ---- A full directory ------------------------------------------------------------------------ */

/* A list of one step of each of the three sessions. */
static struct answer decode_list(unsigned seed)
{
    struct text list = {0};
    text_add(&list, "{\"model\":\"tiny\",\"sequences\":[{");
    text_step(&list, "a.one", seed, "");
    text_add(&list, "},{");
    text_step(&list, "b.one", seed, "");
    text_add(&list, "},{");
    text_step(&list, "c.one", seed, "");
    text_add(&list, "}]}");
    struct answer answer = client_post(&client, "/decode", list.data);
    free(list.data);
    return answer;
}

static void expect_items(const struct answer *answer, const char *const codes[3])
{
    for (size_t i = 0; i < 3; i++) {
        const json_t *item = json_array_get(json_object_get(answer->json, "sequences"), i);
        const char *code =
            json_string_value(json_object_get(json_object_get(item, "error"), "code"));
        ck_assert_msg(strcmp(code != NULL ? code : "", codes[i]) == 0, "%zu: %s", i, answer->text);
    }
}

TEST_EACH(full_adopted_directory_refuses_its_own_sessions_alone, !INSTRUMENTED)
{
    for (const char *name = "cba"; *name != '\0'; name++)
        make_directory((char[]){*name, '\0'}, false);
    start("a", "bc");
    await_restored();
    shell("touch b/full");
    refuse_decode(&client, "b.one", 1, "", 507, "insufficient_storage");
    expect_decode(&client, "a.one", 1, ROWS);
    expect_decode(&client, "c.one", 1, ROWS);
    struct answer list = decode_list(2);
    expect_items(&list, (const char *const[]){"", "insufficient_storage", ""});
    answer_free(&list);
    expect_posted(&client, "/sessions", "{\"model\":\"tiny\",\"session_id\":\"b.new\"}", 507,
                  "insufficient_storage");
    call_create(&client, "c.new", "");
    ck_assert_uint_eq(call_length(&client, "b.one", 0), ROWS);
    shell("rm b/full");
    expect_decode(&client, "b.one", 2, ROWS);
    serve_kill();
    start("a", "bc");
    ck_assert_uint_eq(call_length(&client, "a.one", 0), ROWS + 2);
    ck_assert_uint_eq(call_length(&client, "b.one", 0), ROWS + 1);
    ck_assert_uint_eq(call_length(&client, "c.one", 0), ROWS + 2);
    ck_assert_int_eq(call_status(&client, "b.new"), 404);
    serve_end();
}

SUITE(restoring)
