/* test_bad.c: every request of bad_cases.c, bad_bytes.c and bad_frames.c is refused as its table
 * says, and after each one the next good request is right.
 *
 * Two sessions get the same rows.  The twin's next step is taken before a bad request, the
 * witness's behind it: it must have the same bits, at the same position. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_cases.h"
#include "binary.h"
#include "calls.h"
#include "raw.h"
#include "suites.h"
#include "tensors.h"

#define TIMEOUT_MS 60000
#define MAX_FRAME_CPU_S 1.0 /* of the daemon, for one frame; thousands of times what it takes */

static struct daemon served;
static struct client client;
static unsigned next_row;
static double bytes_at_first; /* in flight, when only the question itself is */

static void open_daemon(void) { daemon_start(&served, CONFIG_SMALL(BAD_LIMITS), NULL, NULL); }
static void close_daemon(void) { daemon_stop(&served); }

static void open_sessions(void)
{
    client_open(&client, &served);
    call_create(&client, "witness", "");
    call_create(&client, "twin", "");
    next_row = 0;
    bytes_at_first = call_metric(&client, "attnd_in_flight_bytes");
}

/* There are no other sessions than the two, and nothing is left in flight. */
static void close_sessions(void)
{
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 2);
    ck_assert_double_eq(call_metric(&client, "attnd_in_flight_bytes"), bytes_at_first);
    ck_assert_double_eq(call_metric(&client, "attnd_queue_depth"), 0);
    call_delete(&client, "witness");
    call_delete(&client, "twin");
    client_close(&client);
}

static struct answer step_twin(void)
{
    struct answer answer = call_decode(&client, "twin", next_row, "");
    expect_answer(&answer, 200, NULL, "twin");
    return answer;
}

/* Takes the witness's step and compares it with the twin's, which it frees. */
static void expect_witness(struct answer *twin, const char *after)
{
    char extra[80];
    snprintf(extra, sizeof extra, ",\"outputs\":[\"output\"],\"position\":%u", next_row);
    struct answer answer = call_decode(&client, "witness", next_row, extra);
    expect_answer(&answer, 200, NULL, after);
    ck_assert_msg(json_object_get(answer.json, "replayed") == NULL, "%s stepped the witness",
                  after);
    expect_same(after, answer.json, twin->json, "output");
    expect_same(after, answer.json, twin->json, "length");
    answer_free(&answer);
    answer_free(twin);
    next_row++;
}

/* An error of ours has all its members, and names the request as the header does. */
static void expect_error_body(const json_t *json, const char *id, const char *name)
{
    const json_t *error = json_object_get(json, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *request = json_string_value(json_object_get(error, "request_id"));
    ck_assert_msg(message != NULL && message[0] != '\0', "%s: no message", name);
    ck_assert_msg(strchr(message, '\n') == NULL, "%s: more than a line", name);
    ck_assert_msg(json_is_boolean(json_object_get(error, "retryable")), "%s: retryable?", name);
    ck_assert_msg(request != NULL && strcmp(request, id) == 0, "%s: request_id", name);
}

/* ---- Good HTTP ------------------------------------------------------------------------------- */

static struct answer send_case(const struct bad_case *c, const char *method, const char *path)
{
    struct text made = {0};
    const char *const headers[] = {c->header, NULL};
    if (c->make != NULL)
        c->make(&made);
    struct request request = {.method = method,
                              .path = path,
                              .body = c->make != NULL ? made.data : c->body,
                              .length = made.length,
                              .headers = headers};
    struct answer answer = client_send(&client, &request);
    text_free(&made);
    return answer;
}

static void try_case(const struct bad_case *c)
{
    char method[16] = "POST", id[256];
    const char *path = strchr(c->path, ' ');
    if (path != NULL)
        snprintf(method, sizeof method, "%.*s", (int)(path - c->path), c->path);
    struct answer answer = send_case(c, method, path != NULL ? path + 1 : c->path);
    ck_assert_msg(answer.status == c->status && strcmp(answer_code(&answer), c->code) == 0,
                  "%s: expected %u %s, got %ld %s: %.500s", c->name, c->status, c->code,
                  answer.status, answer_code(&answer), answer.text);
    ck_assert_msg(answer_header(id, &answer, "X-Request-Id"), "%s: no X-Request-Id", c->name);
    expect_error_body(answer.json, id, c->name);
    answer_free(&answer);
}

START_TEST(test_bad_bodies_are_refused_and_the_next_request_is_right)
{
    open_sessions();
    for (size_t i = 0; i < bad_case_count; i++) {
        struct answer twin = step_twin();
        try_case(&bad_cases[i]);
        expect_witness(&twin, bad_cases[i].name);
    }
    close_sessions();
    printf("bad: %zu bad bodies and headers refused, each followed by a right answer\n",
           bad_case_count);
    ck_assert_uint_ge(bad_case_count, 100);
}
END_TEST

/* ---- Good HTTP that carries bytes ------------------------------------------------------------ */

static struct answer send_binary(const struct bad_binary *c)
{
    static const char zeros[4096];
    char length[80];
    struct text body = {0};
    text_add(&body, "%s", c->json);
    snprintf(length, sizeof length, JSON_LENGTH ": %zu", body.length);
    ck_assert_uint_le(c->length, sizeof zeros);
    text_bytes(&body, c->bytes != NULL ? c->bytes : zeros, c->length);
    const char *headers[4] = {"Content-Type: application/octet-stream"};
    size_t count = 1;
    if (c->header == NULL || c->header[0] != '\0')
        headers[count++] = c->header != NULL ? c->header : length;
    if (c->another != NULL)
        headers[count++] = c->another;
    headers[count] = NULL;
    struct request request = {.method = "POST",
                              .path = c->path,
                              .body = body.data,
                              .length = body.length,
                              .headers = headers};
    struct answer answer = client_send(&client, &request);
    text_free(&body);
    return answer;
}

START_TEST(test_bad_bytes_are_refused_and_the_next_request_is_right)
{
    open_sessions();
    for (size_t i = 0; i < bad_binary_count; i++) {
        const struct bad_binary *c = &bad_binaries[i];
        char id[256];
        struct answer twin = step_twin();
        struct answer answer = send_binary(c);
        expect_answer(&answer, c->status, c->code, c->name);
        ck_assert(answer_header(id, &answer, "X-Request-Id"));
        expect_error_body(answer.json, id, c->name);
        answer_free(&answer);
        expect_witness(&twin, c->name);
    }
    close_sessions();
    printf("bad: %zu bad binary bodies refused, each followed by a right answer\n",
           bad_binary_count);
    ck_assert_uint_ge(bad_binary_count, 25);
}
END_TEST

/* ---- Bad HTTP -------------------------------------------------------------------------------- */

static void expect_frame(const struct bad_frame *f, const struct raw_answer *answer)
{
    char id[256];
    json_t *json = json_loads(answer->body != NULL ? answer->body : "", 0, NULL);
    const char *code = json_string_value(json_object_get(json_object_get(json, "error"), "code"));
    ck_assert_msg(answer->status == f->status, "%s: expected status %u, got %u: %s", f->name,
                  f->status, answer->status, answer->body != NULL ? answer->body : "nothing");
    ck_assert_msg(strcmp(code != NULL ? code : "", f->code != NULL ? f->code : "") == 0,
                  "%s: expected %s: %s", f->name, f->code != NULL ? f->code : "a bare page",
                  answer->body);
    if (f->code != NULL) {
        raw_header(id, answer, "X-Request-Id");
        expect_error_body(json, id, f->name);
    }
    json_decref(json);
}

/* Takes the answers that the table names. */
static void expect_frames(struct raw *raw, const struct bad_frame *f)
{
    struct raw_answer answer;
    if (f->second) {
        answer = raw_read(raw, false, TIMEOUT_MS);
        ck_assert_msg(answer.status == 200, "%s: the good one got %u", f->name, answer.status);
        raw_answer_free(&answer);
    }
    answer = raw_read(raw, false, TIMEOUT_MS);
    if (f->status != 0)
        expect_frame(f, &answer);
    else
        ck_assert_msg(answer.status == 0 || answer.status == 408, "%s: got %u", f->name,
                      answer.status);
    raw_answer_free(&answer);
}

/* Sends a frame; attnd must not be kept busy by it. */
static void try_frame(const struct bad_frame *f)
{
    struct raw raw;
    struct text made = {0};
    double before_s = daemon_cpu_s(&served);
    if (f->make != NULL)
        f->make(&made);
    raw_open(&raw, served.host, served.port);
    /* The other side may stop taking bytes before the last one. */
    raw_send(&raw, f->make != NULL ? made.data : f->bytes,
             f->make != NULL ? made.length : f->length);
    if (f->half_close)
        raw_half_close(&raw);
    expect_frames(&raw, f);
    if (f->after == BAD_CLOSED) {
        bool ended = raw_read_to_end(&raw, TIMEOUT_MS);
        bool bare = f->status != 0 && f->code == NULL; /* its head may come twice */
        ck_assert_msg(ended && (bare || raw.length == 0), "%s: the connection goes on: %s", f->name,
                      raw.data);
    }
    raw_close(&raw);
    text_free(&made);
    double cpu_s = daemon_cpu_s(&served) - before_s;
    ck_assert_msg(cpu_s < MAX_FRAME_CPU_S, "%s cost %.2f s of CPU", f->name, cpu_s);
}

START_TEST(test_bad_framing_is_refused_and_the_next_request_is_right)
{
    ck_assert_uint_eq(strlen(BAD_STEP), strtoul(BAD_STEP_LENGTH, NULL, 10));
    open_sessions();
    for (size_t i = 0; i < bad_frame_count; i++) {
        struct answer twin = step_twin();
        try_frame(&bad_frames[i]);
        expect_witness(&twin, bad_frames[i].name);
    }
    close_sessions();
    printf("bad: %zu bad frames refused, each followed by a right answer\n", bad_frame_count);
    ck_assert_uint_ge(bad_frame_count, 40);
}
END_TEST

Suite *suite_bad(void)
{
    Suite *suite = suite_create("bad");
    TCase *requests = tcase_create("requests");
    tcase_add_checked_fixture(requests, open_daemon, close_daemon);
    tcase_add_test(requests, test_bad_bodies_are_refused_and_the_next_request_is_right);
    tcase_add_test(requests, test_bad_bytes_are_refused_and_the_next_request_is_right);
    tcase_add_test(requests, test_bad_framing_is_refused_and_the_next_request_is_right);
    suite_add_tcase(suite, requests);
    return suite;
}
