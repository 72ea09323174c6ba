/* test_promises.c: promises of docs/API.md and docs/OPERATIONS.md that no other suite looks at.
 * tests/promises/ takes the line out that keeps each, and sees that a test here fails. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "files/checksum.h"
#include "inspected.h"
#include "long_call.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "waiting.h"

/* ---- Connections ----------------------------------------------------------------------------- */

TEST(a_connection_without_a_request_is_closed_after_the_idle_timeout)
{
    struct raw raw;
    struct timespec start;
    serve(CONFIG_SMALL("\"idle_timeout_s\":1,\"header_timeout_ms\":600000,"));
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, LIVEZ));
    raw_expect_status(&raw, 200);
    clock_gettime(CLOCK_MONOTONIC, &start);
    ck_assert(raw_read_to_end(&raw, SOON_MS));
    ck_assert(seconds_since(&start) > 0.9);
    ck_assert_uint_eq(raw.length, 0);
    raw_close(&raw);
    serve_end();
}

TEST(a_head_that_stops_on_a_used_connection_ends_it_after_the_header_timeout)
{
    struct raw raw;
    serve(CONFIG_SMALL("\"idle_timeout_s\":600,\"header_timeout_ms\":400,"));
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, LIVEZ));
    raw_expect_status(&raw, 200);
    pause_ms(800); /* the idle timeout runs, not that of a head */
    ck_assert(!raw_readable(&raw, 0));
    ck_assert(raw_text(&raw, "GET /livez HTTP/1.1\r\nHost: "));
    ck_assert(raw_read_to_end(&raw, SOON_MS));
    raw_close(&raw);
    serve_end();
}

/* The deadline of a body ends with the body. */
TEST(a_request_that_is_computed_for_longer_than_the_body_timeout_is_answered)
{
    static const char config[] =
        "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"body_timeout_ms\":250,"
        "\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"slow\",\"random\":{\"hidden_size\":64,"
        "\"num_attention_heads\":16,\"is_causal\":true,\"seed\":1}}]}";
    struct long_call call;
    struct timespec start;
    serve(config);
    clock_gettime(CLOCK_MONOTONIC, &start);
    long_begin(&call, &client, "", 6144);
    long_end(&call, 200, NULL);
    ck_assert_msg(seconds_since(&start) > 0.6, "too fast to tell: %.2f s", seconds_since(&start));
    serve_end();
}

/* ---- Header fields --------------------------------------------------------------------------- */

TEST(a_request_id_that_is_no_word_reaches_neither_reply_nor_log)
{
    static const char *const odd[] = {"X-Request-Id: odd\",\"level\":\"error",
                                      "X-Request-Id: odd id", "X-Request-Id: odd\\u0041",
                                      "X-Request-Id: odd/../id", "X-Request-Id: odd\"id"};
    serve_small();
    for (size_t i = 0; i < COUNT(odd); i++) {
        char id[256];
        const char *const headers[] = {odd[i], NULL};
        struct answer answer = client_send(
            &client, &(struct request){.method = "GET", .path = "/nowhere", .headers = headers});
        expect_answer(&answer, 404, "route_not_found", odd[i]);
        ck_assert(answer_header(id, &answer, "X-Request-Id"));
        ck_assert_uint_eq(strspn(id, "0123456789abcdef"), 16);
        ck_assert_ptr_null(strstr(answer.text, "odd"));
        answer_free(&answer);
    }
    char *log = daemon_log(&served);
    ck_assert_ptr_null(strstr(log, "odd"));
    free(log);
    serve_end();
}

TEST(a_log_of_level_info_has_no_requests)
{
    serve(CONFIG_SMALL("\"log\":\"info\","));
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    char *log = daemon_log(&served);
    ck_assert_ptr_nonnull(strstr(log, "\"event\":\"ready\""));
    ck_assert_ptr_null(strstr(log, "\"status\":404"));
    free(log);
    serve_end();
}

TEST(a_full_table_of_sessions_says_when_to_come_again)
{
    char after[256];
    serve(CONFIG_SMALL("\"max_sessions\":1,"));
    call_create(&client, "only", "");
    struct answer answer = client_post(&client, "/sessions", "{\"model\":\"tiny\"}");
    expect_answer(&answer, 503, "session_limit", "a second session");
    ck_assert(answer_header(after, &answer, "Retry-After"));
    long seconds = strtol(after, NULL, 10);
    ck_assert_msg(seconds >= 1 && seconds <= 60, "Retry-After: %s", after);
    answer_free(&answer);
    serve_end();
}

/* ---- Sessions -------------------------------------------------------------------------------- */

TEST(a_step_that_is_not_kept_leaves_the_last_step_repeatable)
{
    serve_small();
    call_create(&client, "s", "");
    expect_decode(&client, "s", 1, 0);
    struct answer answer = call_decode(&client, "s", 2, ",\"commit\":false");
    expect_answer(&answer, 200, NULL, "a step that is not kept");
    answer_free(&answer);
    answer = call_decode(&client, "s", 1, ",\"position\":0");
    expect_answer(&answer, 200, NULL, "the last step again");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
    ck_assert_uint_eq(call_length(&client, "s", 0), 1);
    serve_end();
}

TEST(a_repeat_with_other_position_ids_is_a_conflict)
{
    serve_small();
    call_create(&client, "s", "");
    struct answer answer = call_decode(&client, "s", 1, ",\"position\":0,\"position_ids\":[5]");
    expect_answer(&answer, 200, NULL, "a step");
    answer_free(&answer);
    refuse_decode(&client, "s", 1, ",\"position\":0,\"position_ids\":[6]", 409,
                  "position_conflict");
    refuse_decode(&client, "s", 1, ",\"position\":0", 409, "position_conflict");
    answer = call_decode(&client, "s", 1, ",\"position\":0,\"position_ids\":[5]");
    expect_answer(&answer, 200, NULL, "the same step");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
    serve_end();
}

TEST(a_start_whose_step_fails_counts_as_no_session_created)
{
    serve_small();
    double before = call_metric(&client, "attnd_sessions_created_total");
    refuse_decode(&client, "s", 1, ",\"start\":true,\"position\":3", 409, "position_gap");
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == before);
    struct answer answer = call_decode(&client, "s", 1, ",\"start\":true");
    expect_answer(&answer, 200, NULL, "a step");
    answer_free(&answer);
    ck_assert(call_metric(&client, "attnd_sessions_created_total") == before + 1);
    serve_end();
}

static struct answer post_keyed(const char *path, const char *body)
{
    const char *const headers[] = {"Idempotency-Key: once", NULL};
    return client_send(
        &client,
        &(struct request){.method = "POST", .path = path, .body = body, .headers = headers});
}

/* The bodies are equal, byte for byte. */
TEST(an_idempotency_key_does_not_mistake_one_path_for_another)
{
    static const char body[] = "{\"session_id\":\"made\"}";
    serve("{\"port\":0,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"one\",\"random\":"
          "{\"hidden_size\":16,\"num_attention_heads\":2}}]}");
    struct answer answer = client_post(&client, "/sessions", "{\"session_id\":\"a\"}");
    expect_answer(&answer, 201, NULL, "a");
    answer_free(&answer);
    expect_posted(&client, "/sessions", "{\"session_id\":\"b\"}", 201, NULL);
    answer = post_keyed("/sessions/a/fork", body);
    expect_answer(&answer, 201, NULL, "a fork of a");
    answer_free(&answer);
    answer = post_keyed("/sessions/b/fork", body);
    expect_answer(&answer, 409, "idempotency_conflict", "a fork of b");
    answer_free(&answer);
    answer = post_keyed("/sessions", body);
    expect_answer(&answer, 409, "idempotency_conflict", "a new session");
    answer_free(&answer);
    answer = post_keyed("/sessions/a/fork", body);
    expect_answer(&answer, 201, NULL, "the fork of a again");
    ck_assert(json_is_true(json_object_get(answer.json, "replayed")));
    answer_free(&answer);
    serve_end();
}

/* Expires the session where repeats do not count as use: they come for twice its time to live. */
TEST(repeats_of_a_creation_keep_its_session_alive)
{
    static const char body[] = "{\"session_id\":\"kept\",\"model\":\"tiny\",\"ttl_s\":2}";
    struct timespec start;
    serve_small();
    struct answer answer = post_keyed("/sessions", body);
    expect_answer(&answer, 201, NULL, "the creation");
    answer_free(&answer);
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (seconds_since(&start) < 4.5) {
        pause_ms(200);
        answer = post_keyed("/sessions", body);
        expect_answer(&answer, 201, NULL, "a repeat");
        ck_assert_msg(json_is_true(json_object_get(answer.json, "replayed")), "%s", answer.text);
        answer_free(&answer);
    }
    serve_end();
}

#define MOST_ROWS 32768

/* Prefills a session with more rows each time until that takes longer than the session may be idle,
 * and then looks for the session when expiry has had its turn after the prefill's end.  A short
 * reply, so that the caller knows of that end when it is. */
TEST(a_session_is_not_idle_before_its_step_has_ended)
{
    char id[16], body[64];
    struct timespec end;
    double took = 0;
    serve(SLOW_CONFIG);
    for (size_t rows = 6144; took < 2.2 && rows <= MOST_ROWS; rows += rows / 2) {
        struct long_call call;
        struct timespec start;
        snprintf(id, sizeof id, "s%zu", rows);
        snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"ttl_s\":2}", id);
        expect_posted(&client, "/sessions", body, 201, NULL);
        snprintf(body, sizeof body, "\"outputs\":[\"head_stats\"],\"session_id\":\"%s\",", id);
        clock_gettime(CLOCK_MONOTONIC, &start);
        long_begin(&call, &client, body, rows);
        long_end(&call, 200, NULL);
        took = seconds_since(&start);
        clock_gettime(CLOCK_MONOTONIC, &end);
    }
    ck_assert_msg(took > 2.1, "too fast to tell: %.2f s", took);
    pause_ms(1300); /* sessions expire each second */
    ck_assert(call_status(&client, id) == 200 || seconds_since(&end) >= 2);
    serve_end();
}

/* Exports the session; the caller frees the answer. */
static struct answer export_state(const char *id)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer answer = client_get(&client, path);
    expect_answer(&answer, 200, NULL, "an export");
    return answer;
}

/* Replaces the value of a note by another of the same length, and makes the checksum, which
 * docs/API.md describes, right again. */
static void change_note(struct answer *file, const char *name, const char *value)
{
    static const char *const notes[] = {"epoch",         "fingerprint",   "format",
                                        "layers.0.last", "layers.1.last", "lengths",
                                        "max_length",    "model",         "ttl_s"};
    struct attn_checksum sum;
    uint64_t length;
    char pattern[64], line[256];
    memcpy(&length, file->text, sizeof length);
    json_t *header = json_loadb(file->text + sizeof length, length, 0, NULL);
    json_t *said = json_object_get(header, "__metadata__");
    ck_assert_uint_le(json_object_size(said), COUNT(notes) + 1);
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, file->text + 8 + length, file->length - 8 - length);
    for (size_t i = 0; i < COUNT(notes); i++) {
        const char *text = json_string_value(json_object_get(said, notes[i]));
        int count = snprintf(line, sizeof line, "%s=%s\n", notes[i],
                             strcmp(notes[i], name) == 0 ? value : text);
        attn_checksum_add(&sum, line, text != NULL ? (size_t)count : 0);
    }
    int count = snprintf(pattern, sizeof pattern, "\"%s\":\"", name);
    char *at = memmem(file->text + 8, length, pattern, (size_t)count);
    ck_assert_ptr_nonnull(at);
    memcpy(at + count, value, strlen(value));
    at = memmem(file->text + 8, length, "\"checksum\":\"", 12);
    ck_assert_ptr_nonnull(at);
    attn_checksum_hex(at + 12, &sum);
    json_decref(header);
}

static struct answer import_state(const char *id, const struct answer *file)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    return client_send(&client, &(struct request){.method = "PUT",
                                                  .path = path,
                                                  .body = file->text,
                                                  .length = file->length,
                                                  .headers = headers});
}

TEST(no_state_brings_a_time_to_live_beyond_a_year)
{
    serve_small();
    call_create(&client, "s", ",\"ttl_s\":31536000");
    expect_decode(&client, "s", 1, 0);
    struct answer file = export_state("s");
    change_note(&file, "ttl_s", "20000000");
    struct answer answer = import_state("same", &file);
    expect_answer(&answer, 201, NULL, "within a year");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 20000000);
    answer_free(&answer);
    change_note(&file, "ttl_s", "99999999");
    answer = import_state("long", &file);
    expect_answer(&answer, 201, NULL, "beyond a year");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 31536000);
    answer_free(&answer);
    answer_free(&file);
    serve_end();
}

TEST(a_state_that_is_exported_counts_as_in_flight)
{
    serve(CONFIG_SMALL("\"max_in_flight_bytes\":131072,"));
    call_create(&client, "s", "");
    for (unsigned i = 0; i < 44; i++) {
        struct answer answer = call_decode_rows(&client, "s", i, 50, "");
        expect_answer(&answer, 200, NULL, "rows");
        answer_free(&answer);
    }
    struct answer answer = client_get(&client, "/sessions/s/state"); /* 140,800 bytes */
    expect_answer(&answer, 503, "out_of_memory", "an export");
    answer_free(&answer);
    ck_assert(call_metric(&client, "attnd_in_flight_bytes") < 65536);
    serve_end();
}

/* ---- Keys ------------------------------------------------------------------------------------ */

#define KEYS 8
#define KEY "%u-key-of-%u-zyxwvutsrqponmlkjihgfedcba-%u"
#define KEY_END "-zyxwvutsrqponmlkjihgfedcba-" /* what freeing a copy overwrites comes before it */

/* The text of a file of so many keys; the caller frees it. */
static char *print_keys(void)
{
    struct text text = {0};
    for (unsigned i = 0; i < KEYS; i++)
        text_add(&text, "%s{\"name\":\"k%u\",\"key\":\"" KEY "\",\"scopes\":[\"infer\"]}",
                 i > 0 ? "," : "{\"keys\":[", i, i, i, i);
    text_add(&text, "]}");
    return text.data;
}

TEST_EACH(no_memory_of_the_daemon_holds_a_key_of_its_file, !INSTRUMENTED)
{
    char path[SECRET_PATH], variable[SECRET_PATH + 16];
    const char *const variables[] = {variable, NULL};
    char *text = print_keys();
    bool read = false;
    secret_write(path, text);
    free(text);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    daemon_start(&served, CONFIG_SMALL(""), NULL, variables);
    ck_assert(inspected_memory_holds(served.process.pid, "ATTN_API_KEYS")); /* it can be read */
    ck_assert(!inspected_memory_holds(served.process.pid, KEY_END));
    ck_assert_int_eq(kill(served.process.pid, SIGHUP), 0);
    for (unsigned tries = 0; !read && tries < SOON_MS / 10; tries++) {
        char *log = daemon_log(&served);
        read = strstr(log, "\"event\":\"keys\"") != NULL;
        free(log);
        pause_ms(10);
    }
    ck_assert(read);
    ck_assert(!inspected_memory_holds(served.process.pid, KEY_END));
    daemon_stop(&served);
    unlink(path);
}

/* Two keys of a group, of which the second may not let sessions live for longer than a minute, one
 * key without a group, and one for all. */
#define OWNERS                                                                                  \
    "{\"keys\":[{\"name\":\"long\",\"key\":\"" KEY_INFER "\",\"scopes\":[\"infer\"],"           \
    "\"group\":\"g\"},{\"name\":\"short\",\"key\":\"" KEY_ADMIN "\",\"scopes\":[\"infer\"],"    \
    "\"group\":\"g\",\"max_ttl_s\":60},{\"name\":\"lead\",\"key\":\"" KEY_BOTH "\",\"scopes\":" \
    "[\"infer\",\"admin\"]}]}"
#define AS_LONG "Authorization: Bearer " KEY_INFER
#define AS_SHORT "Authorization: Bearer " KEY_ADMIN
#define AS_LEAD "Authorization: Bearer " KEY_BOTH

static void serve_owners(void)
{
    char path[SECRET_PATH], variable[SECRET_PATH + 16];
    const char *const variables[] = {variable, NULL};
    secret_write(path, OWNERS);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    daemon_start(&served, CONFIG_SMALL(""), NULL, variables);
    unlink(path);
    served.authorization = AS_LONG;
    client_open(&client, &served);
}

TEST(forks_and_imports_live_no_longer_than_their_key_allows)
{
    serve_owners();
    call_create(&client, "s", ",\"ttl_s\":1000");
    expect_decode(&client, "s", 1, 0);
    struct answer file = export_state("s");
    served.authorization = AS_SHORT;
    struct answer answer = client_post(&client, "/sessions/s/fork", "{\"session_id\":\"fork\"}");
    expect_answer(&answer, 201, NULL, "a fork");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 60);
    answer_free(&answer);
    answer = import_state("import", &file);
    expect_answer(&answer, 201, NULL, "an import");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 60);
    answer_free(&answer);
    answer_free(&file);
    serve_end();
}

TEST(an_admin_who_names_an_owner_gets_that_owner_s_session_or_none)
{
    serve_owners();
    call_create(&client, "s", ",\"shared\":true");
    served.authorization = AS_LEAD;
    ck_assert_int_eq(call_status(&client, "s?owner=long"), 200);
    ck_assert_int_eq(call_status(&client, "s?owner=short"), 404); /* would find the shared one */
    ck_assert_int_eq(call_status(&client, "s?owner=lead"), 404);
    serve_end();
}

SUITE(promises)
