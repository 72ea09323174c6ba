/* test_instances.c: whose a session is that is not here: another instance's, one of a state
 * directory that is gone, or nobody's. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

#define FOREIGN "other-2.0123456789abcdefghjkmnpqrs"
#define ROW "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"

static char directory[SCRATCH_PATH];
static const char *durability;

static void start(void) { serve_state(CONFIG_SMALL(""), directory, durability); }

static void set_up(void)
{
    scratch_make(directory);
    durability = "journal";
}

/* The format has one %s, the directory. */
static void shell(const char *format)
{
    char command[256];
    snprintf(command, sizeof command, format, directory);
    ck_assert_int_eq(system(command), 0);
}

static void tear_down(void) { shell("rm -rf %s"); }

static void again(void)
{
    serve_end();
    start();
}

/* Makes a session of one row under an id that attnd makes. */
static void make(char id[65])
{
    struct answer answer = client_post(&client, "/sessions", "{\"model\":\"tiny\"}");
    expect_answer(&answer, 201, NULL, "made");
    snprintf(id, 65, "%s", json_string_value(json_object_get(answer.json, "session_id")));
    answer_free(&answer);
    expect_decode(&client, id, 0, 0);
}

static void expect_status(const char *id, long status, const char *code)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, status, code, id);
    answer_free(&answer);
    if (code != NULL)
        refuse_decode(&client, id, 0, "", status, code);
}

/* A request that would make a session under that id, or asks for one. */
static void expect_of(const char *path, const char *body, const char *id, long status,
                      const char *code)
{
    char text[256];
    snprintf(text, sizeof text, body, id);
    expect_posted(&client, path, text, status, code);
}

CASE(instances, set_up, tear_down, 120)

TEST(a_sharded_daemon_takes_ids_of_its_own_name_alone)
{
    static const char create[] = "{\"model\":\"tiny\",\"session_id\":\"%s\"}";
    static const char begin[] =
        "{\"model\":\"tiny\",\"session_id\":\"%s\",\"start\":true,\"hidden_states\":" ROW "}";
    char id[65];
    daemon_start(&served, CONFIG_SMALL("\"sharded\":\"on\","), NULL, NULL);
    client_open(&client, &served);
    make(id);
    expect_of("/sessions", create, "test.mine", 201, NULL);
    expect_of("/sessions", create, "other.mine", 421, "wrong_instance");
    expect_of("/sessions", create, "mine", 400, "invalid_value");
    expect_of("/decode", begin, "test.new", 200, NULL);
    expect_of("/decode", begin, "other.new", 421, "wrong_instance");
    expect_of("/decode", begin, "new", 400, "invalid_value");
    expect_status("other.new", 421, "wrong_instance");
    expect_status("test.absent", 404, "session_not_found");
    expect_status("absent", 404, "session_not_found");
    serve_end();
}

/* ---- Another instance's ---------------------------------------------------------------------- */

static const struct {
    const char *method, *path, *body;
} foreign[] = {
    {"GET", "/sessions/" FOREIGN, NULL},
    {"DELETE", "/sessions/" FOREIGN, NULL},
    {"GET", "/sessions/" FOREIGN "/state", NULL},
    {"POST", "/sessions/" FOREIGN "/fork", "{}"},
    {"POST", "/sessions/" FOREIGN "/truncate", "{\"length\":0}"},
    {"POST", "/sessions/here/fork", "{\"session_id\":\"" FOREIGN "\"}"},
    {"POST", "/sessions", "{\"model\":\"tiny\",\"session_id\":\"" FOREIGN "\"}"},
    {"POST", "/sessions",
     "{\"session_id\":\"" FOREIGN "\",\"num_attention_heads\":1,\"head_dim\":1}"},
    {"POST", "/decode",
     "{\"model\":\"tiny\",\"session_id\":\"" FOREIGN "\",\"hidden_states\":" ROW "}"},
    {"POST", "/decode", "{\"session_id\":\"" FOREIGN "\",\"hidden_states\":" ROW "}"},
    {"POST", "/decode",
     "{\"session_id\":\"" FOREIGN "\",\"query\":[[1]],\"key\":[[1]],\"value\":[[1]]}"},
    {"POST", "/decode",
     "{\"model\":\"tiny\",\"session_id\":\"" FOREIGN "\",\"start\":true,\"hidden_states\":" ROW
     "}"},
    {"POST", "/attend",
     "{\"model\":\"tiny\",\"session_id\":\"" FOREIGN "\",\"hidden_states\":[" ROW "]}"},
    {"POST", "/attend",
     "{\"model\":\"tiny\",\"session_id\":\"" FOREIGN "\",\"start\":true,\"hidden_states\":[" ROW
     "]}"},
    {"POST", "/v2/models/tiny/infer",
     "{\"parameters\":{\"sequence_id\":\"" FOREIGN "\",\"sequence_end\":false},"
     "\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":\"FP32\",\"shape\":[1,16],"
     "\"data\":" ROW "}]}"},
    {"POST", "/v2/models/tiny/infer",
     "{\"parameters\":{\"sequence_id\":\"" FOREIGN "\",\"sequence_start\":true},"
     "\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":\"FP32\",\"shape\":[1,16],"
     "\"data\":" ROW "}]}"},
};

TEST_EACH(every_route_names_the_owner_of_an_id_of_another_instance, COUNT(foreign))
{
    char owner[256];
    start();
    call_create(&client, "here", "");
    struct answer answer =
        client_send(&client, &(struct request){foreign[_i].method, foreign[_i].path,
                                               foreign[_i].body, 0, NULL});
    const json_t *error = json_object_get(answer.json, "error");
    if (json_is_string(error)) /* of the Open Inference Protocol */
        error = answer.json;
    const char *code = json_string_value(json_object_get(error, "code"));
    ck_assert_msg(answer.status == 421 && code != NULL && strcmp(code, "wrong_instance") == 0,
                  "%s %s: %ld %s", foreign[_i].method, foreign[_i].path, answer.status,
                  answer.text);
    ck_assert(answer_header(owner, &answer, "X-Attn-Owner"));
    ck_assert_str_eq(owner, "other-2");
    ck_assert_str_eq(json_string_value(json_object_get(error, "owner")), "other-2");
    ck_assert(json_is_true(json_object_get(error, "retryable")));
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 1);
    answer_free(&answer);
    serve_end();
}

TEST(an_item_of_a_list_names_the_owner_and_the_others_go_on)
{
    static const char list[] =
        "{\"model\":\"tiny\",\"sequences\":[{\"session_id\":\"here\",\"hidden_states\":" ROW "},"
        "{\"session_id\":\"" FOREIGN "\",\"hidden_states\":" ROW "},"
        "{\"session_id\":\"" FOREIGN "\",\"start\":true,\"hidden_states\":" ROW "}]}";
    char owner[256];
    start();
    call_create(&client, "here", "");
    struct answer answer = client_post(&client, "/decode", list);
    expect_answer(&answer, 200, NULL, "list");
    ck_assert(!answer_header(owner, &answer, "X-Attn-Owner"));
    const json_t *items = json_object_get(answer.json, "sequences");
    for (size_t i = 1; i < 3; i++) {
        const json_t *error = json_object_get(json_array_get(items, i), "error");
        ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "wrong_instance");
        ck_assert_str_eq(json_string_value(json_object_get(error, "owner")), "other-2");
    }
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "here", 0), 1);
    ck_assert_int_eq((int)call_metric(&client, "attnd_sessions"), 1);
    serve_end();
}

TEST(a_state_is_not_put_under_an_id_of_another_instance)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char id[65], path[96], owner[256];
    start();
    make(id);
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer state = client_get(&client, path);
    expect_answer(&state, 200, NULL, "state");
    struct answer put = client_send(&client, &(struct request){"PUT", "/sessions/" FOREIGN "/state",
                                                               state.text, state.length, type});
    expect_answer(&put, 421, "wrong_instance", "put");
    ck_assert(answer_header(owner, &put, "X-Attn-Owner"));
    answer_free(&put);
    call_delete(&client, id);
    expect_status(id, 404, "session_not_found");
    put = client_send(&client, &(struct request){"PUT", path, state.text, state.length, type});
    expect_answer(&put, 201, NULL, "put back");
    answer_free(&put);
    answer_free(&state);
    expect_decode(&client, id, 1, 1);
    serve_end();
}

/* ---- A directory that is gone ---------------------------------------------------------------- */

TEST(sessions_outlive_a_restart_and_deleted_ones_are_not_found)
{
    char kept[65], deleted[65];
    start();
    make(kept);
    make(deleted);
    call_delete(&client, deleted);
    again();
    expect_status(kept, 200, NULL);
    expect_decode(&client, kept, 1, 1);
    expect_status(deleted, 404, "session_not_found");
    expect_status("test", 404, "session_not_found");
    serve_end();
}

TEST(sessions_of_an_emptied_directory_are_lost)
{
    char id[65], new[65];
    start();
    make(id);
    serve_end();
    shell("rm -rf %s/*");
    start();
    expect_status(id, 410, "session_lost");
    refuse_decode(&client, id, 0, ",\"start\":true", 410, "session_lost");
    make(new);
    ck_assert_int_ne(strncmp(id, new, strlen("test.") + 5), 0);
    again();
    expect_status(id, 410, "session_lost");
    expect_status(new, 200, NULL);
    serve_end();
}

TEST(sessions_of_an_emptied_directory_are_lost_with_snapshots)
{
    char id[65];
    durability = "snapshot";
    start();
    make(id);
    again();
    expect_status(id, 200, NULL);
    serve_end();
    shell("rm -rf %s/*");
    start();
    expect_status(id, 410, "session_lost");
    serve_end();
}

TEST(sessions_that_nothing_keeps_are_lost_with_the_daemon)
{
    char id[65], deleted[65];
    durability = "none";
    start();
    make(id);
    make(deleted);
    call_delete(&client, deleted);
    expect_status(deleted, 404, "session_not_found");
    again();
    expect_status(id, 410, "session_lost");
    expect_status(deleted, 410, "session_lost");
    serve_end();
}

/* ---- The directory's name -------------------------------------------------------------------- */

/* Runs attnd over the directory, which must end with this complaint. */
static void expect_refused(const char *instance, const char *complaint)
{
    const char *const arguments[] = {
        "--state-dir", directory, "--durability",   "journal", "--instance", instance,
        "--port",      "0",       "--memory-limit", "64GiB",   NULL};
    char *out, *err;
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && strstr(err, complaint) != NULL, "%d: %s", status, err);
    ck_assert_ptr_null(strstr(out, "ready"));
    free(out);
    free(err);
}

TEST(a_directory_of_another_instance_is_refused)
{
    char id[65];
    start();
    make(id);
    serve_end();
    expect_refused("another", "give --instance test, or another --state-dir and --adopt");
    start();
    expect_status(id, 200, NULL);
    serve_end();
}

TEST(a_damaged_identity_is_refused_and_no_session_is_lost)
{
    char id[65];
    start();
    make(id);
    serve_end();
    shell("cd %s && cp identity whole && truncate -s 20 identity");
    expect_refused("test", "identity is damaged: ");
    shell("cd %s && cmp -n 20 identity whole && test $(stat -c %%s identity) = 20 && mv whole "
          "identity");
    start();
    expect_status(id, 200, NULL);
    serve_end();
}

TEST(a_directory_without_identity_keeps_its_sessions)
{
    char id[65];
    start();
    make(id);
    call_create(&client, "chosen", "");
    serve_end();
    shell("rm %s/identity");
    start();
    expect_status(id, 200, NULL);
    expect_status("chosen", 200, NULL);
    call_delete(&client, id);
    expect_status(id, 410, "session_lost"); /* it was of a generation that is not here */
    serve_end();
    shell("test -s %s/identity");
}

/* The host's name is no configured one. */
TEST(a_daemon_without_a_name_takes_its_directorys)
{
    char id[65], name[256];
    start();
    make(id);
    serve_end();
    const char *const arguments[] = {"--state-dir", directory, "--durability", "journal", NULL};
    daemon_start(&served,
                 "{\"port\":0,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"tiny\","
                 "\"random\":{\"hidden_size\":16,\"num_attention_heads\":4,"
                 "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"rope_theta\":10000,"
                 "\"is_causal\":true,\"seed\":7}}]}",
                 arguments, NULL);
    client_open(&client, &served);
    struct answer answer = client_get(&client, "/livez");
    ck_assert(answer_header(name, &answer, "X-Attn-Instance"));
    ck_assert_str_eq(name, "test");
    answer_free(&answer);
    expect_status(id, 200, NULL);
    serve_end();
}

SUITE(instances)
