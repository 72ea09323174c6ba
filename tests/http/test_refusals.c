/* test_refusals.c: why a large body is refused reaches clients that send all of it before they
 * read; sockets that linger for them; clients that leave while their body is awaited. */
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define CLIENTS 20
#define FEW 4 /* clients of the largest bodies */
#define PIECE 65536
#define MB 1000000
#define SMALL_BODIES "\"max_body_bytes\":262144,"
#define SMALL_MEMORY "\"max_body_bytes\":134217728,\"max_in_flight_bytes\":614400,"
#define LARGE_BODIES "\"max_body_bytes\":134217728,"
#define KEY "infer-0123456789abcdef0123456789abcdef"
#define NARROW "narrow-0123456789abcdef0123456789abcdef"
#define KEYS                                                                                  \
    "{\"keys\":[{\"name\":\"all\",\"key\":\"" KEY "\",\"scopes\":[\"infer\"]},{\"name\":"     \
    "\"narrow\",\"key\":\"" NARROW "\",\"scopes\":[\"infer\"],\"max_in_flight_bytes\":65536}" \
    ",{\"name\":\"ops\",\"key\":\"" KEY_ADMIN "\",\"scopes\":[\"admin\"]}]}"

static const struct refusal {
    unsigned status;
    const char *code, *members, *path, *host, *key, *type;
} refusals[] = {
    {401, "unauthorized", LARGE_BODIES, "/attend", "x", "", "application/json"},
    {404, "route_not_found", LARGE_BODIES, "/nowhere", "x", KEY, "application/json"},
    {413, "body_too_large", SMALL_BODIES, "/attend", "x", KEY, "application/json"},
    {415, "unsupported_media_type", LARGE_BODIES, "/attend", "x", KEY, "text/plain"},
    {421, "host_not_allowed", LARGE_BODIES, "/attend", "other", KEY, "application/json"},
    {429, "quota_exceeded", LARGE_BODIES, "/attend", "x", NARROW, "application/json"},
    {503, "out_of_memory", SMALL_MEMORY, "/attend", "x", KEY, "application/json"},
};
#define REFUSALS COUNT(refusals)

static char keys_path[SECRET_PATH];

static void begin(const char *members)
{
    char variable[96];
    const char *const variables[] = {variable, NULL};
    struct text config = {0};
    text_add(&config, CONFIG_SMALL("%s\"body_timeout_ms\":30000,"), members);
    secret_write(keys_path, KEYS);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    daemon_start(&served, config.data, NULL, variables);
    served.authorization = "Authorization: Bearer " KEY_ADMIN;
    client_open(&client, &served);
    text_free(&config);
}

static void end(void)
{
    serve_end();
    unlink(keys_path);
}

/* ---- Reasons --------------------------------------------------------------------------------- */

struct upload {
    const struct refusal *refusal;
    size_t bytes;
    bool chunked, sent;
    struct raw_answer answer;
};

static bool send_body(struct raw *raw, size_t bytes, bool chunked)
{
    static const char zeros[PIECE];
    char line[32];
    bool sent = true;
    for (size_t now; bytes > 0 && sent; bytes -= now) {
        now = bytes < PIECE ? bytes : PIECE;
        snprintf(line, sizeof line, "%zx\r\n", now);
        sent = (!chunked || raw_text(raw, line)) && raw_send(raw, zeros, now) &&
               (!chunked || raw_text(raw, "\r\n"));
    }
    return sent && (!chunked || raw_text(raw, "0\r\n\r\n"));
}

static void *run_upload(void *argument)
{
    struct upload *upload = argument;
    const struct refusal *refusal = upload->refusal;
    struct text head = {0};
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    text_add(&head, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n", refusal->path,
             refusal->host, refusal->type);
    if (refusal->key[0] != '\0')
        text_add(&head, "Authorization: Bearer %s\r\n", refusal->key);
    if (upload->chunked)
        text_add(&head, "Transfer-Encoding: chunked\r\n\r\n");
    else
        text_add(&head, "Content-Length: %zu\r\n\r\n", upload->bytes);
    upload->sent =
        raw_send(&raw, head.data, head.length) && send_body(&raw, upload->bytes, upload->chunked);
    if (upload->sent)
        upload->answer = raw_read(&raw, false, WAIT_MS);
    raw_close(&raw);
    text_free(&head);
    return NULL;
}

/* All clients send at once. */
static void expect_reasons(const struct refusal *refusal, size_t bytes, bool chunked)
{
    const size_t clients = bytes > 8 * MB ? FEW : CLIENTS;
    pthread_t threads[CLIENTS];
    static struct upload uploads[CLIENTS];
    char code[64];
    snprintf(code, sizeof code, "\"code\":\"%s\"", refusal->code);
    for (size_t i = 0; i < clients; i++) {
        uploads[i] = (struct upload){.refusal = refusal, .bytes = bytes, .chunked = chunked};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_upload, &uploads[i]), 0);
    }
    for (size_t i = 0; i < clients; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < clients; i++) {
        struct raw_answer *answer = &uploads[i].answer;
        ck_assert_msg(uploads[i].sent && answer->status == refusal->status &&
                          strstr(answer->body, code) != NULL,
                      "%u, %zu bytes%s, client %zu: %s, %u %s", refusal->status, bytes,
                      chunked ? " in chunks" : "", i, uploads[i].sent ? "sent" : "broken pipe",
                      answer->status, answer->body != NULL ? answer->body : "");
        raw_answer_free(answer);
    }
}

TEST_EACH(reason_of_a_refused_body_is_read_each_time, REFUSALS)
{
    static const size_t sizes[] = {1 * MB, 8 * MB, 32 * MB};
    const struct refusal *refusal = &refusals[_i];
    begin(refusal->members);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        expect_reasons(refusal, sizes[i], false);
        expect_reasons(refusal, sizes[i], true);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_in_flight_bytes"), 0);
    end();
}

#define MOST_TAKEN (((size_t)1 << 30) + ((size_t)32 << 20)) /* with what the system buffers */

TEST(refused_body_without_end_is_cut_off)
{
    static const char zeros[PIECE];
    size_t taken = 0;
    struct raw raw;
    begin(LARGE_BODIES);
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                             "\r\nContent-Length: 99000000000\r\n\r\n"));
    while (taken < 2 * MOST_TAKEN && raw_send(&raw, zeros, sizeof zeros))
        taken += sizeof zeros;
    ck_assert_msg(taken < MOST_TAKEN, "%zu bytes were taken", taken);
    raw_close(&raw);
    end();
}

/* ---- Places ---------------------------------------------------------------------------------- */

#define PLACES 10

/* Clients whose bodies were refused, and that neither send nor leave, take no place from others. */
TEST(lingering_clients_take_no_place_from_others)
{
    struct raw lingering[PLACES], others[PLACES];
    begin("\"max_connections\":10,\"event_threads\":1,");
    client_close(&client);
    for (size_t i = 0; i < PLACES; i++) {
        raw_open(&lingering[i], served.host, served.port);
        ck_assert(raw_text(&lingering[i], "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                          "application/json\r\nContent-Length: 8000000\r\n\r\n{"));
        struct raw_answer answer = raw_read(&lingering[i], false, WAIT_MS);
        ck_assert_uint_eq(answer.status, 401);
        raw_answer_free(&answer);
    }
    for (size_t i = 0; i < PLACES; i++) {
        raw_open(&others[i], served.host, served.port);
        ck_assert(raw_text(&others[i], "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
        struct raw_answer answer = raw_read(&others[i], false, 2000);
        ck_assert_uint_eq(answer.status, 200);
        raw_answer_free(&answer);
    }
    for (size_t i = 0; i < PLACES; i++) {
        raw_close(&others[i]);
        raw_close(&lingering[i]);
    }
    client_open(&client, &served);
    end();
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

#define HEAD(path, fields) \
    "POST " path " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " KEY "\r\n" fields "\r\n"
#define AS_JSON "Content-Type: application/json\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"

static const char *const unfinished[] = {
    "POST /atte",
    "POST /attend HTTP/1.1\r\nHost: x\r\n",
    HEAD("/attend", AS_JSON "Content-Length: 1000\r\n"),
    HEAD("/attend", AS_JSON "Content-Length: 1000\r\n") "{",
    HEAD("/attend", AS_JSON "Content-Length: 24000000\r\n"),
    HEAD("/attend", AS_JSON "Expect: 100-continue\r\nContent-Length: 1000\r\n"),
    HEAD("/nowhere", AS_JSON "Content-Length: 1000\r\n"),
    HEAD("/nowhere", AS_JSON "Content-Length: 1000\r\n") "{",
    "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
    HEAD("/v2/models/tiny/infer", "Content-Length: 1000\r\n"),
    "PUT /sessions/a/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " KEY
    "\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n",
    HEAD("/attend", AS_JSON CHUNKED),
    HEAD("/attend", AS_JSON CHUNKED) "3e8\r\n",
    HEAD("/attend", AS_JSON CHUNKED) "1\r\n{\r\n",
    HEAD("/attend", AS_JSON CHUNKED) "1\r\n{\r\n0\r\n",
    HEAD("/nowhere", AS_JSON CHUNKED),
    "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" HEAD("/attend", AS_JSON "Content-Length: 1000\r\n"),
};

/* The cork makes the last bytes and the end one segment. */
static void send_and_leave(const char *text)
{
    int on = 1;
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    ck_assert_int_eq(setsockopt(raw.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    ck_assert(raw_text(&raw, text));
    raw_close(&raw);
}

TEST(client_that_leaves_before_its_body_is_noticed_at_once)
{
    begin("");
    for (size_t form = 0; form < COUNT(unfinished); form++) {
        for (int i = 0; i < CLIENTS; i++)
            send_and_leave(unfinished[form]);
        double held = CLIENTS;
        for (int i = 0; i < 100 && held > 1; i++) {
            pause_ms(20);
            held = call_metric(&client, "attnd_connections");
        }
        ck_assert_msg(held <= 1, "%.0f connections are held after 2 s: %s", held - 1,
                      unfinished[form]);
    }
    end();
}

SUITE(refusals)
