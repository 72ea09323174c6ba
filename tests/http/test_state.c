/* test_state.c: sessions as files: an imported session is the exported one, and a damaged file is
 * refused without a trace. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "served.h"
#include "suites.h"
#include "tensors.h"

#define FLIPS 10000

static void set_up(void) { serve(CONFIG_SMALL("\"log\":\"error\",")); }

static struct answer export_of(struct client *from, const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    struct answer answer = client_get(from, path);
    expect_answer(&answer, 200, NULL, path);
    return answer;
}

static struct answer import_as(struct client *to, const char *id, const char *file, size_t length,
                               const char *type)
{
    char path[128];
    const char *const headers[] = {type, NULL};
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    return client_send(
        to, &(struct request){
                .method = "PUT", .path = path, .body = file, .length = length, .headers = headers});
}

static struct answer put(const char *id, const char *file, size_t length)
{
    return import_as(&client, id, file, length, "Content-Type: application/octet-stream");
}

static void start_session(const char *id, unsigned n)
{
    call_create(&client, id, ",\"max_length\":100,\"ttl_s\":500");
    for (unsigned i = 0; i < n; i++)
        expect_decode(&client, id, i, i);
}

static char *decode_bits(struct client *with, const char *id, unsigned seed, const char *extra)
{
    struct answer answer = call_decode(with, id, seed, extra);
    expect_answer(&answer, 200, NULL, id);
    char *bits = exact_text(answer.json, "output");
    answer_free(&answer);
    return bits;
}

CASE(state, set_up, serve_end, 240)

TEST(imported_session_continues_as_the_exported_one_in_another_daemon_too)
{
    char type[256];
    struct daemon second;
    struct client other;
    daemon_start(&second, CONFIG_SMALL(""), NULL, NULL);
    client_open(&other, &second);
    start_session("moves", 70);
    struct answer file = export_of(&client, "moves");
    ck_assert(answer_header(type, &file, "Content-Type"));
    ck_assert_str_eq(type, "application/octet-stream");
    struct answer made =
        import_as(&other, "here", file.text, file.length, "Content-Type: application/octet-stream");
    expect_answer(&made, 201, NULL, "import");
    ck_assert_int_eq(answer_integer(&made, "max_length"), 100);
    ck_assert_int_eq(answer_integer(&made, "ttl_s"), 500);
    ck_assert_uint_eq(call_length(&other, "here", 0), 70);
    for (unsigned i = 69; i < 80; i++) { /* the first is a retry */
        char extra[40];
        snprintf(extra, sizeof extra, ",\"position\":%u", i);
        char *a = decode_bits(&client, "moves", i, extra);
        char *b = decode_bits(&other, "here", i, extra);
        ck_assert_str_eq(a, b);
        free(a);
        free(b);
    }
    ck_assert_uint_eq(call_length(&other, "here", 0), 80);
    answer_free(&file);
    answer_free(&made);
    client_close(&other);
    daemon_stop(&second);
}

TEST(export_of_an_import_is_the_same_file_but_for_epoch_and_checksum)
{
    start_session("one", 10);
    struct answer first = export_of(&client, "one");
    struct answer made = put("two", first.text, first.length);
    expect_answer(&made, 201, NULL, "import");
    struct answer second = export_of(&client, "two");
    ck_assert_uint_eq(first.length, second.length);
    uint64_t header;
    memcpy(&header, first.text, sizeof header);
    ck_assert_int_eq(
        memcmp(first.text + 8 + header, second.text + 8 + header, first.length - 8 - header), 0);
    size_t differing = 0;
    for (size_t i = 0; i < 8 + header; i++)
        differing += first.text[i] != second.text[i];
    ck_assert_uint_ge(differing, 1);
    ck_assert_uint_le(differing, 64 + 16); /* digits of the checksum and the epoch */
    answer_free(&first);
    answer_free(&second);
    answer_free(&made);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

/* State that a refused import must not change. */
struct traces {
    double sessions, created, cache, in_flight;
    char *list;
};

static struct traces read_traces(void)
{
    struct answer list = client_get(&client, "/sessions");
    json_t *shown = json_object_get(list.json, "sessions");
    for (size_t i = 0; i < json_array_size(shown); i++)
        json_object_del(json_array_get(shown, i), "idle_s");
    struct traces traces = {
        .sessions = call_metric(&client, "attnd_sessions"),
        .created = call_metric(&client, "attnd_sessions_created_total"),
        .cache = call_metric(&client, "attnd_cache_used_bytes"),
        .in_flight = call_metric(&client, "attnd_in_flight_bytes"),
        .list = json_dumps(list.json, JSON_COMPACT | JSON_SORT_KEYS),
    };
    answer_free(&list);
    return traces;
}

static void expect_no_traces(struct traces *before)
{
    struct traces now = read_traces();
    ck_assert_str_eq(now.list, before->list);
    ck_assert(now.sessions == before->sessions && now.created == before->created);
    ck_assert(now.cache == before->cache && now.in_flight == before->in_flight);
    free(now.list);
    free(before->list);
}

/* Imports a file that must be refused as an invalid state. */
static void refuse_file(const char *file, size_t length, const char *what, size_t where)
{
    struct answer answer = put("never", file, length);
    ck_assert_msg(answer.status >= 400 && answer.status < 500 && answer_code(&answer)[0] != '\0',
                  "%s %zu: status %ld: %s", what, where, answer.status, answer.text);
    answer_free(&answer);
}

TEST(every_prefix_of_a_state_is_refused_without_a_trace)
{
    start_session("prefix", 3);
    struct answer file = export_of(&client, "prefix");
    struct traces before = read_traces();
    for (size_t length = 1; length < file.length; length++)
        refuse_file(file.text, length, "a prefix of length", length);
    refuse_file("", 0, "no body", 0);
    expect_no_traces(&before);
    answer_free(&file);
}

TEST(flipped_bits_of_a_state_are_refused_without_a_trace)
{
    uint64_t random = 88172645463325252u;
    start_session("bits", 3);
    struct answer file = export_of(&client, "bits");
    struct traces before = read_traces();
    for (size_t i = 0; i < FLIPS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t bit = random % (8 * file.length);
        file.text[bit / 8] ^= (char)(1 << bit % 8);
        refuse_file(file.text, file.length, "bit", bit);
        file.text[bit / 8] ^= (char)(1 << bit % 8);
    }
    expect_no_traces(&before);
    struct answer made = put("whole", file.text, file.length);
    expect_answer(&made, 201, NULL, "the file as it was");
    printf("state: %d turned bits of %zu bytes refused without a trace\n", FLIPS, file.length);
    answer_free(&made);
    answer_free(&file);
}

static void refuse_put(const char *id, const struct answer *file, const char *type, long status,
                       const char *code)
{
    struct answer answer = import_as(&client, id, file->text, file->length, type);
    expect_answer(&answer, status, code, type);
    answer_free(&answer);
}

TEST(import_names_what_it_refuses)
{
    static const char bytes[] = "Content-Type: application/octet-stream";
    start_session("source", 3);
    struct answer file = export_of(&client, "source");
    struct traces before = read_traces();
    refuse_put("source", &file, bytes, 409, "session_exists");
    refuse_put("-x", &file, bytes, 400, "invalid_value");
    refuse_put("a%2f", &file, bytes, 400, "invalid_value");
    refuse_put("x", &file, "Content-Type: application/json", 415, "unsupported_media_type");
    char *model = memmem(file.text, file.length, "\"model\":\"tiny\"", 14);
    ck_assert_ptr_nonnull(model);
    memcpy(model, "\"model\":\"tinY\"", 14);
    refuse_put("x", &file, bytes, 404, "model_not_found");
    memcpy(model, "\"model\":\"tiny\"", 14);
    char *print = memmem(file.text, file.length, "\"fingerprint\":\"", 15);
    ck_assert_ptr_nonnull(print);
    print[15] = print[15] == '0' ? '1' : '0';
    refuse_put("x", &file, bytes, 409, "fingerprint_mismatch");
    expect_no_traces(&before);
    answer_free(&file);
}

TEST(import_accepts_a_body_without_a_type)
{
    start_session("untyped", 3);
    struct answer file = export_of(&client, "untyped");
    struct answer made = import_as(&client, "typeless", file.text, file.length, "Content-Type:");
    expect_answer(&made, 201, NULL, "as curl -T sends it");
    answer_free(&file);
    answer_free(&made);
}

TEST(export_refuses_unknown_sessions_and_other_media_types)
{
    const char *const accept[] = {"Accept: application/json", NULL};
    const char *const session[] = {"X-Session-Id: other", NULL};
    struct answer none = client_get(&client, "/sessions/nobody/state");
    expect_answer(&none, 404, "session_not_found", "no session");
    start_session("there", 1);
    struct answer json = client_send(
        &client,
        &(struct request){.method = "GET", .path = "/sessions/there/state", .headers = accept});
    expect_answer(&json, 406, "not_acceptable", "a state is no JSON");
    struct answer other = client_send(
        &client,
        &(struct request){.method = "GET", .path = "/sessions/there/state", .headers = session});
    expect_answer(&other, 400, "invalid_value", "X-Session-Id");
    answer_free(&none);
    answer_free(&json);
    answer_free(&other);
}

/* ---- Limits, each with a daemon of its own --------------------------------------------------- */

TEST(state_beyond_max_state_bytes_or_cache_bytes_is_refused)
{
    struct daemon small;
    struct client own;
    start_session("large", 70);
    struct answer file = export_of(&client, "large");
    daemon_start(&small, CONFIG_SMALL("\"max_state_bytes\":4096,\"max_body_bytes\":1024,"), NULL,
                 NULL);
    client_open(&own, &small);
    struct answer refused =
        import_as(&own, "x", file.text, file.length, "Content-Type: application/octet-stream");
    expect_answer(&refused, 413, "body_too_large", "a state above max_state_bytes");
    answer_free(&refused);
    call_create(&own, "grows", "");
    for (unsigned i = 0; i < 70; i++)
        expect_decode(&own, "grows", i, i);
    refused = client_get(&own, "/sessions/grows/state");
    expect_answer(&refused, 422, "reply_too_large", "an export above max_state_bytes");
    answer_free(&refused);
    expect_decode(&own, "grows", 70, 70);
    client_close(&own);
    daemon_stop(&small);

    daemon_start(&small, CONFIG_SMALL("\"cache_bytes\":4096,"), NULL, NULL);
    client_open(&own, &small);
    refused =
        import_as(&own, "x", file.text, file.length, "Content-Type: application/octet-stream");
    expect_answer(&refused, 503, "pool_full", "a state above cache_bytes");
    ck_assert(call_metric(&own, "attnd_cache_used_bytes") == 0);
    answer_free(&refused);
    answer_free(&file);
    client_close(&own);
    daemon_stop(&small);
}

/* A layer of which 64 tokens take 4 MiB. */
#define TALL(bytes)                                                                     \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"memory_limit\":\"64GiB\",\"log\":\"error\","  \
    "\"max_in_flight_bytes\":\"" bytes "\",\"models\":[{\"name\":\"tall\",\"random\":{" \
    "\"hidden_size\":16,\"num_attention_heads\":16,\"head_dim\":512,\"seed\":7}}]}"

/* Returns the state of a session with one row of that layer. */
static struct answer tall_file(void)
{
    struct text body = {0};
    struct answer made = client_post(&client, "/sessions", "{\"session_id\":\"a\"}");
    expect_answer(&made, 201, NULL, "create");
    answer_free(&made);
    text_add(&body, "{");
    text_step(&body, "a", 1, "}");
    expect_posted(&client, "/decode", body.data, 200, NULL);
    text_free(&body);
    return export_of(&client, "a");
}

TEST(import_is_refused_without_memory_in_flight)
{
    serve_end();
    serve(TALL("6MiB"));
    struct answer file = tall_file(), made = put("b", file.text, file.length);
    expect_answer(&made, 201, NULL, "an import that has room");
    answer_free(&made);
    serve_end();
    serve(TALL("5MiB"));
    made = put("b", file.text, file.length);
    expect_answer(&made, 503, "out_of_memory", "an import without room for 64 tokens");
    answer_free(&made);
    answer_free(&file);
}

/* ---- Beside steps ---------------------------------------------------------------------------- */

#define STEPS 150

/* Exports "busy" again and again until its thread is joined; each file must be one moment of it. */
static void *export_often(void *count)
{
    struct client own;
    client_open(&own, &served);
    for (size_t length = 0; length < STEPS; ++*(size_t *)count) {
        struct answer file = export_of(&own, "busy");
        struct answer made = import_as(&own, "copy", file.text, file.length,
                                       "Content-Type: application/octet-stream");
        expect_answer(&made, 201, NULL, "import of a moment");
        length = call_length(&own, "copy", 0);
        call_delete(&own, "copy");
        answer_free(&file);
        answer_free(&made);
    }
    client_close(&own);
    return NULL;
}

TEST(exports_beside_steps_are_consistent)
{
    pthread_t thread;
    size_t exports = 0;
    call_create(&client, "busy", "");
    call_create(&client, "quiet", "");
    ck_assert_int_eq(pthread_create(&thread, NULL, export_often, &exports), 0);
    for (unsigned i = 0; i < STEPS; i++)
        expect_decode(&client, "busy", i, i);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < STEPS; i++)
        expect_decode(&client, "quiet", i, i);
    char *a = decode_bits(&client, "busy", 1000, ""), *b = decode_bits(&client, "quiet", 1000, "");
    ck_assert_str_eq(a, b);
    ck_assert_uint_ge(exports, 2);
    free(a);
    free(b);
}

SUITE(state)
