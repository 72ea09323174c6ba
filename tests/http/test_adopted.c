/* test_adopted.c: a daemon that serves the directories of others beside its own: their sessions
 * keep ids and bits, and each directory can be given back. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "state_files.h"
#include "suites.h"
#include "tensors.h"

static char root[SCRATCH_PATH]; /* the directories a, b, c are in it, each named as its instance */
static const char *durability, *sandbox;

static void set_up(void)
{
    scratch_make(root);
    durability = "journal";
    sandbox = "off";
}

static void shell(const char *format)
{
    char command[256];
    snprintf(command, sizeof command, "cd %s && %s", root, format);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void tear_down(void) { scratch_remove(root); }

/* ---- Daemons --------------------------------------------------------------------------------- */

#define WORDS 24

/* The arguments of a daemon named as the directory `own` that adopts those of `adopted`, a letter
 * each. */
static void list_arguments(const char *out[WORDS], char paths[8][80], const char *own,
                           const char *adopted)
{
    size_t n = 0;
    const char *const first[] = {"--state-dir",  paths[0],   "--instance", own,
                                 "--durability", durability, "--sandbox",  sandbox};
    snprintf(paths[0], 80, "%s/%s", root, own);
    memcpy(out, first, sizeof first);
    n = COUNT(first);
    for (size_t i = 0; adopted[i] != '\0'; i++) {
        ck_assert_uint_lt(i, 7);
        snprintf(paths[i + 1], 80, "%s/%c", root, adopted[i]);
        out[n++] = "--adopt";
        out[n++] = paths[i + 1];
    }
    out[n] = NULL;
}

static void start_as(struct daemon *daemon, struct client *to, const char *own, const char *adopted)
{
    const char *arguments[WORDS];
    char paths[8][80];
    list_arguments(arguments, paths, own, adopted);
    daemon_start(daemon, CONFIG_SMALL("\"log\":\"info\","), arguments, NULL);
    client_open(to, daemon);
}

static void start(const char *own, const char *adopted)
{
    start_as(&served, &client, own, adopted);
}

static void expect_refused(const char *own, const char *adopted, const char *complaint)
{
    const char *arguments[WORDS + 3];
    char paths[8][80], directory[64], config[96], *out, *err;
    size_t n = 0;
    list_arguments(arguments, paths, own, adopted);
    config_write(directory, config, CONFIG_SMALL(""));
    while (arguments[n] != NULL)
        n++;
    arguments[n++] = "--config";
    arguments[n++] = config;
    arguments[n] = NULL;
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && strstr(err, complaint) != NULL, "%d: %s", status, err);
    free(out);
    free(err);
    config_remove(directory);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static void post_for_id(char id[65], const char *path, const char *body)
{
    struct answer answer = client_post(&client, path, body);
    expect_answer(&answer, 201, NULL, path);
    snprintf(id, 65, "%s", json_string_value(json_object_get(answer.json, "session_id")));
    answer_free(&answer);
}

static void fork_for_id(char id[65], const char *parent, const char *body)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s/fork", parent);
    post_for_id(id, path, body);
}

static void decode(struct client *to, const char *id, unsigned from, unsigned to_row)
{
    for (unsigned i = from; i < to_row; i++)
        expect_decode(to, id, i, i);
}

static void make(char id[65], unsigned rows)
{
    post_for_id(id, "/sessions", "{\"model\":\"tiny\"}");
    decode(&client, id, 0, rows);
}

/* The bits that a session of these rows gives in a daemon that has no directory. */
static char *reference_bits(unsigned rows)
{
    struct daemon daemon = {.process.pid = 0};
    struct client other;
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    client_open(&other, &daemon);
    call_create(&other, "reference", "");
    decode(&other, "reference", 0, rows);
    char *bits = call_next_bits(&other, "reference");
    client_close(&other);
    daemon_stop(&daemon);
    return bits;
}

static void expect_bits(struct client *at, const char *id, const char *want)
{
    char *got = call_next_bits(at, id);
    ck_assert_msg(strcmp(got, want) == 0, "%s: %s, expected %s", id, got, want);
    free(got);
}

static void expect_owner(const char *id, const char *want)
{
    char path[96], owner[256];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 421, "wrong_instance", id);
    ck_assert(answer_header(owner, &answer, "X-Attn-Owner"));
    ck_assert_str_eq(owner, want);
    ck_assert(answer_header(owner, &answer, "Retry-After"));
    ck_assert_str_eq(owner, "1");
    answer_free(&answer);
}

/* Makes the directories b and c, each with a session of 5 rows under an id that attnd makes, and
 * one of 3 rows under a chosen one. */
static void make_others(char ids[2][65])
{
    static const char *const names[] = {"b", "c"}, *const chosen[] = {"b.chosen", "c.chosen"};
    for (size_t i = 0; i < 2; i++) {
        start(names[i], "");
        make(ids[i], 5);
        call_create(&client, chosen[i], "");
        decode(&client, chosen[i], 0, 3);
        serve_end();
    }
}

/* ---- Serving --------------------------------------------------------------------------------- */

/* Steps of one list over sessions of all directories. */
static void decode_all(const char *const ids[], size_t count, unsigned seed)
{
    struct text list = {0};
    text_add(&list, "{\"model\":\"tiny\",\"sequences\":[");
    for (size_t i = 0; i < count; i++) {
        text_add(&list, i > 0 ? ",{" : "{");
        text_step(&list, ids[i], seed, "");
        text_add(&list, "}");
    }
    text_add(&list, "]}");
    struct answer answer = client_post(&client, "/decode", list.data);
    expect_answer(&answer, 200, NULL, "list");
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(json_object_get(answer.json, "sequences"), i);
        ck_assert_msg(json_object_get(item, "error") == NULL, "%s", answer.text);
        ck_assert_int_eq(json_integer_value(json_object_get(item, "length")), seed + 1);
    }
    answer_free(&answer);
    free(list.data);
}

CASE(adopted, set_up, tear_down, 120)

TEST_EACH(adopted_sessions_go_on_and_their_directory_is_given_back, 1)
{
    char ids[2][65], own[65], fork[65], path[320];
    struct daemon moved = {.process.pid = 0};
    struct client other;
    sandbox = _i == 1 ? "on" : "off";
    char *five = reference_bits(5), *seven = reference_bits(7), *three = reference_bits(3);
    make_others(ids);
    start("a", "bc");
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 4);
    expect_bits(&client, ids[0], five);
    expect_bits(&client, "c.chosen", three);
    make(own, 5);
    ck_assert_int_eq(strncmp(own, "a.", 2), 0);
    fork_for_id(fork, ids[0], "{}");
    ck_assert_int_eq(strncmp(fork, ids[0], strlen("b.12345")), 0);
    decode_all((const char *const[]){own, ids[0], ids[1], fork}, 4, 5);
    decode_all((const char *const[]){fork, ids[1], own, ids[0]}, 4, 6);
    call_create(&client, "b.new", "");
    decode(&client, "b.new", 0, 3);
    call_delete(&client, "b.chosen");
    serve_kill();
    start("a", "c");
    expect_owner(ids[0], "b");
    expect_owner(fork, "b");
    ck_assert_int_eq(call_status(&client, "b.new"), 404); /* a chosen id does not tell */
    start_as(&moved, &other, "b", "");
    expect_bits(&client, own, seven);
    expect_bits(&client, ids[1], seven);
    expect_bits(&client, "c.chosen", three);
    expect_bits(&other, ids[0], seven);
    expect_bits(&other, fork, seven);
    expect_bits(&other, "b.new", three);
    ck_assert_int_eq(call_status(&other, "b.chosen"), 404);
    ck_assert_int_eq((int)call_metric(&other, "attnd_sessions"), 3);
    decode(&other, ids[0], 7, 8);
    client_close(&other);
    daemon_stop(&moved);
    serve_end();
    ck_assert_uint_eq(state_files_find(path, root, ".damaged"), 0);
    free(five);
    free(seven);
    free(three);
}

TEST(adopted_sessions_are_saved_at_the_end_and_by_snapshots)
{
    char ids[2][65], path[320], directory[80];
    durability = "snapshot";
    make_others(ids);
    start("a", "bc");
    decode(&client, ids[0], 5, 6);
    call_snapshot(&client);
    decode(&client, ids[1], 5, 6);
    serve_kill(); /* what follows the snapshot is gone */
    for (const char *name = "abc"; *name != '\0'; name++) {
        snprintf(directory, sizeof directory, "%s/%c", root, *name);
        ck_assert_uint_ge(state_files_find(path, directory, ".manifest"), 1);
    }
    start("b", "");
    ck_assert_uint_eq(call_length(&client, ids[0], 0), 6);
    serve_end();
    start("a", "bc");
    ck_assert_uint_eq(call_length(&client, ids[1], 0), 5);
    decode(&client, ids[1], 5, 7);
    serve_end();
    start("c", "");
    ck_assert_uint_eq(call_length(&client, ids[1], 0), 7);
    serve_end();
}

/* A session is kept by the directory that its id names, so that a proxy finds it where the
 * directory is. */
TEST(a_session_goes_into_the_directory_that_its_id_names)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char ids[2][65], id[65], path[128];
    make_others(ids);
    start("a", "b");
    call_create(&client, "b.made", "");
    call_create(&client, "plain", "");
    fork_for_id(id, "plain", "{\"session_id\":\"plain-fork\"}");
    fork_for_id(id, "b.chosen", "{\"session_id\":\"fork-of-b\"}");
    snprintf(path, sizeof path, "/sessions/%s/state", ids[0]);
    struct answer state = client_get(&client, path);
    expect_answer(&state, 200, NULL, "state");
    struct answer put = client_send(
        &client, &(struct request){"PUT", "/sessions/b.put/state", state.text, state.length, type});
    expect_answer(&put, 201, NULL, "put");
    answer_free(&put);
    answer_free(&state);
    struct answer refused =
        client_post(&client, "/sessions/b.chosen/fork", "{\"session_id\":\"a.fork\"}");
    expect_answer(&refused, 400, "invalid_value", "a fork into another directory");
    answer_free(&refused);
    expect_posted(&client, "/sessions/plain/fork", "{\"session_id\":\"b.fork\"}", 400,
                  "invalid_value");
    serve_end();
    start("b", "");
    ck_assert_int_eq(call_status(&client, "b.made"), 200);
    ck_assert_int_eq(call_status(&client, "fork-of-b"), 200);
    ck_assert_uint_eq(call_length(&client, "b.put", 0), 5);
    ck_assert_int_eq(call_status(&client, "plain"), 404);
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 5);
    serve_end();
    start("a", "");
    ck_assert_int_eq(call_status(&client, "plain"), 200);
    ck_assert_int_eq(call_status(&client, "plain-fork"), 200);
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 2);
    serve_end();
}

/* The key of a creation is found whichever directory has the session, and two directories may have
 * sessions of one key. */
TEST(idempotency_keys_of_two_directories_do_not_hinder_the_start)
{
    static const char *const key[] = {"Idempotency-Key: once", NULL};
    static const char *const names[] = {"b", "c"};
    for (size_t i = 0; i < 2; i++) {
        start(names[i], "");
        struct answer answer = client_send(
            &client, &(struct request){"POST", "/sessions", "{\"model\":\"tiny\"}", 0, key});
        expect_answer(&answer, 201, NULL, "created");
        answer_free(&answer);
        serve_end();
    }
    start("a", "bc");
    for (unsigned i = 0; i < 3; i++) { /* the first two are the sessions of the key */
        char path[96];
        struct answer answer = client_send(
            &client, &(struct request){"POST", "/sessions", "{\"model\":\"tiny\"}", 0, key});
        expect_answer(&answer, 201, NULL, "sent again");
        ck_assert(json_is_true(json_object_get(answer.json, "replayed")) == (i < 1));
        snprintf(path, sizeof path, "%s",
                 json_string_value(json_object_get(answer.json, "session_id")));
        ck_assert_int_eq(path[0], i == 0 ? 'b' : 'a');
        answer_free(&answer);
        call_delete(&client, path);
    }
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 1);
    serve_end();
    start("c", "");
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 1);
    serve_end();
}

TEST(bounds_hold_for_all_directories_together)
{
    char ids[2][65];
    make_others(ids);
    const char *arguments[WORDS];
    char paths[8][80];
    list_arguments(arguments, paths, "a", "bc");
    daemon_start(&served, CONFIG_SMALL("\"max_sessions\":5,"), arguments, NULL);
    client_open(&client, &served);
    call_create(&client, "fifth", "");
    expect_posted(&client, "/sessions", "{\"model\":\"tiny\"}", 503, "session_limit");
    serve_end();
}

TEST(sessions_of_a_lost_adopted_directory_are_lost)
{
    char ids[2][65];
    make_others(ids);
    shell("rm -rf b");
    start("b", "");
    serve_end();
    start("a", "b");
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s", ids[0]);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 410, "session_lost", ids[0]);
    answer_free(&answer);
    serve_end();
}

/* ---- Refusals -------------------------------------------------------------------------------- */

TEST(directories_that_cannot_be_adopted_are_refused)
{
    char ids[2][65];
    make_others(ids);
    expect_refused("a", "x", "adopt: state_dir ");
    shell("test ! -e x && mkdir x");
    expect_refused("a", "x", "it has no identity: start it once with --state-dir ");
    expect_refused("a", "bb", "b: it is the same directory as ");
    expect_refused("a", "a", "a: it is the same directory as ");
    shell("ln -s b link && mv link l");
    expect_refused("a", "bl", "l: it is the same directory as ");
    shell("cp -r b y");
    expect_refused("a", "by", "it is a copy of another directory");
    shell("echo > y/identity");
    expect_refused("a", "y", "identity is damaged");
    start("b", "");
    expect_refused("a", "b", "another attnd uses it");
    serve_end();
    start("a", "bc");
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 4);
    serve_end();
}

/* Which of the two a caller means nobody can tell, and neither is deleted. */
TEST(sessions_of_one_id_in_two_directories_are_refused_and_kept)
{
    static const char *const names[] = {"a", "b"};
    for (size_t i = 0; i < 2; i++) {
        start(names[i], "");
        call_create(&client, "twin", "");
        serve_end();
    }
    shell("ls a b >before");
    expect_refused("a", "b",
                   "/b: the sessions of state_dir cannot be held: another directory has a "
                   "session of the same id, twin: serve the two apart");
    shell("ls a b | cmp - before");
    for (size_t i = 0; i < 2; i++) {
        start(names[i], "");
        ck_assert_int_eq(call_status(&client, "twin"), 200);
        if (i == 1)
            call_delete(&client, "twin");
        serve_end();
    }
    start("a", "b");
    ck_assert_int_eq(call_status(&client, "twin"), 200);
    serve_end();
}

TEST(a_directory_whose_models_are_not_here_is_refused_and_kept)
{
    char ids[2][65], paths[8][80], *out, *err;
    const char *arguments[WORDS];
    size_t n = 0;
    make_others(ids);
    list_arguments(arguments, paths, "a", "b");
    while (arguments[n] != NULL)
        n++;
    arguments[n] = "--port=0";
    arguments[n + 1] = NULL;
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && strstr(err, "it has a session whose model is not here") != NULL,
                  "%d: %s", status, err);
    free(out);
    free(err);
    start("a", "b");
    decode(&client, ids[0], 5, 6);
    serve_end();
}

CASE(sandboxed, set_up, tear_down, 120)
AGAIN(adopted_sessions_go_on_and_their_directory_is_given_back, 1, 2)

SUITE(adopted)
