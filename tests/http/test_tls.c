/* test_tls.c: HTTPS: the same answers as over HTTP, and peers that break TLS instead of HTTP. */
#include <check.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "binary.h"
#include "calls.h"
#include "clock.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define TIMEOUT_MS 1000 /* header_timeout_ms and body_timeout_ms */
#define HOST "127.0.0.1"
#define LIVEZ "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
#define CONFIG                                                                             \
    CONFIG_SMALL("\"header_timeout_ms\":1000,\"body_timeout_ms\":1000,\"max_body_bytes\":" \
                 "4194304,\"max_tokens\":65536,")

static char certificate[SECRET_PATH], key[SECRET_PATH], keys[SECRET_PATH];

static void make_files(void)
{
    certificate_make(certificate, key);
    secret_write(keys, KEYS_THREE);
}

static void remove_files(void)
{
    unlink(certificate);
    unlink(key);
    unlink(keys);
}

static void begin(void)
{
    const char *const flags[] = {"--tls-cert", certificate, "--tls-key", key,
                                 "--api-keys", keys,        NULL};
    make_files();
    daemon_start(&served, CONFIG, flags, NULL);
    served.trusted = certificate;
    served.authorization = "Authorization: Bearer " KEY_BOTH;
    client_open(&client, &served);
}

static void end(void)
{
    serve_end();
    remove_files();
}

/* Expects that the daemon serves others and has closed the broken connection. */
static void expect_well(void)
{
    double connections = 0;
    for (unsigned waited = 0; waited < 10000; waited += 10) {
        connections = call_metric(&client, "attnd_connections");
        if (connections == 1)
            return;
        pause_ms(10);
    }
    ck_abort_msg("%g connections are open, one is ours", connections);
}

static void open_tls(struct raw *raw) { ck_assert(raw_open_tls(raw, HOST, served.port, NULL)); }

static void expect_next(struct raw *raw, unsigned status)
{
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == status, "%u: %.300s", answer.status,
                  answer.body != NULL ? answer.body : raw->data);
    char date[256];
    ck_assert(raw_header(date, &answer, "Date") && strlen(date) == 29);
    raw_answer_free(&answer);
}

/* ---- As over HTTP ---------------------------------------------------------------------------- */

CASE(same, begin, end, 0)

TEST(url_is_https_and_clients_can_check_the_certificate)
{
    struct answer answer;
    ck_assert_int_eq(strncmp(served.url, "https://", 8), 0);
    answer = client_get(&client, "/readyz");
    expect_answer(&answer, 200, NULL, "readyz");
    answer_free(&answer);
    client_close(&client);
    client_open(&client, &served);
    served.trusted = NULL; /* the system's own authorities */
    ck_assert(!client_try(&answer, &client, &(struct request){.method = "GET", .path = "/livez"}));
    answer_free(&answer);
    served.trusted = certificate;
}

/* Steps, prefills and states, in both forms, have the bits that they have over HTTP. */
TEST(answers_have_the_bits_of_http)
{
    static const char body[] = "{\"model\":\"plain\",\"hidden_states\":[[1,2,3,4,5,6,7,8],"
                               "[8,7,6,5,4,3,2,1]],\"outputs\":[\"output\",\"lse\"]}";
    struct daemon other;
    struct client plain;
    struct client *const both[] = {&client, &plain};
    struct answer attended[2], steps[2], states[2];
    daemon_start(&other, CONFIG, NULL, NULL);
    client_open(&plain, &other);
    for (size_t i = 0; i < 2; i++) {
        call_create(both[i], "a", "");
        struct answer prefill = call_prefill(both[i], "a", 1, 40, "");
        expect_answer(&prefill, 200, NULL, "prefill");
        answer_free(&prefill);
        steps[i] = call_decode(both[i], "a", 50, "");
        states[i] = client_get(both[i], "/sessions/a/state");
        attended[i] =
            binary_post(both[i], "/attend", body, AS_FP32, 0, "Accept: application/octet-stream");
        binary_decode(&attended[i], "binary");
    }
    for (size_t i = 0; i < 2; i++) {
        json_object_del(steps[i].json, "epoch");
        json_object_del(steps[i].json, "revision");
    }
    expect_same_answers(&steps[0], &steps[1], "step");
    expect_same_answers(&attended[0], &attended[1], "attend");
    ck_assert_uint_eq(states[0].length, states[1].length);
    ck_assert_uint_gt(states[0].length, 40 * 16 * 4);
    for (size_t i = 0; i < 2; i++) {
        answer_free(&attended[i]);
        answer_free(&steps[i]);
        answer_free(&states[i]);
    }
    client_close(&plain);
    daemon_stop(&other);
}

/* A body of `rows` rows for the model plain. */
static void add_rows(struct text *body, size_t rows)
{
    text_add(body,
             "{\"model\":\"plain\",\"outputs\":[\"lse\"],\"query_offset\":0,\"sliding_window\":"
             "[0,0],\"hidden_states\":[[1,2,3,4,5,6,7,8]");
    for (size_t i = 1; i < rows; i++)
        text_add(body, ",[1,2,3,4,5,6,7,%zu]", i % 9);
    text_add(body, "]}");
}

static void add_head(struct text *out, const char *path, size_t length, const char *more)
{
    text_add(out,
             "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Authorization: Bearer " KEY_BOTH "\r\nContent-Length: %zu\r\n%s\r\n",
             path, length, more);
}

/* A record of 16 KiB does not fit libmicrohttpd's buffer whole. */
TEST(large_bodies_and_replies_arrive_whole_however_they_are_split)
{
    static const size_t pieces[] = {1 << 20, 16384, 16383, 1000, 7};
    struct text body = {0}, all = {0};
    add_rows(&body, 4000);
    add_head(&all, "/attend", body.length, "");
    text_bytes(&all, body.data, body.length);
    ck_assert_uint_gt(body.length, 60000);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        struct raw raw;
        open_tls(&raw);
        ck_assert(raw_slowly(&raw, all.data, all.length, pieces[i], 0));
        struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
        ck_assert_msg(answer.status == 200, "pieces of %zu: %u %.200s", pieces[i], answer.status,
                      answer.body);
        ck_assert_uint_gt(answer.length, 4000 * 2 * 4);
        raw_answer_free(&answer);
        raw_text(&raw, LIVEZ);
        expect_next(&raw, 200);
        raw_close(&raw);
    }
    text_free(&body);
    text_free(&all);
    expect_well();
}

TEST(megabytes_go_both_ways)
{
    struct text body = {0};
    struct answer answer;
    for (int i = 0; i < 3; i++) {
        text_free(&body);
        text_add(&body, "{\"model\":\"plain\",\"outputs\":[\"output\",\"key\",\"value\"],"
                        "\"hidden_states\":[[[1,2,3,4,5,6,7,8]]");
        for (size_t row = 1; row < 10000; row++)
            text_add(&body, ",[[1,2,3,4,5,6,7.25,%zu.125]]", row % 99);
        text_add(&body, "]}");
        answer = client_post(&client, "/attend", body.data);
        expect_answer(&answer, 200, NULL, "10,000 sequences");
        ck_assert_uint_gt(body.length, 250000);
        ck_assert_uint_gt(answer.length, 1000000);
        answer_free(&answer);
    }
    text_free(&body);
}

TEST(requests_in_one_record_are_answered_in_order)
{
    struct raw raw;
    struct text all = {0};
    for (int i = 0; i < 100; i++)
        text_add(&all, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: r%d\r\n\r\n", i);
    open_tls(&raw);
    raw_send(&raw, all.data, all.length);
    for (int i = 0; i < 100; i++) {
        char id[256], want[16];
        struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
        snprintf(want, sizeof want, "r%d", i);
        raw_header(id, &answer, "X-Request-Id");
        ck_assert_uint_eq(answer.status, 200);
        ck_assert_str_eq(id, want);
        raw_answer_free(&answer);
    }
    raw_close(&raw);
    text_free(&all);
}

/* libmicrohttpd takes 128 events from one epoll_wait. */
TEST(many_connections_at_once_are_all_answered)
{
    enum { MANY = 160 };
    static struct raw raws[MANY];
    for (size_t i = 0; i < MANY; i++) {
        open_tls(&raws[i]);
        raw_text(&raws[i], LIVEZ);
        expect_next(&raws[i], 200);
    }
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < MANY; i++)
            raw_text(&raws[i], LIVEZ);
        for (size_t i = 0; i < MANY; i++)
            expect_next(&raws[i], 200);
    }
    for (size_t i = 0; i < MANY; i++)
        raw_close(&raws[i]);
    expect_well();
}

TEST(chunked_bodies_and_100_continue_work)
{
    struct raw raw;
    open_tls(&raw);
    raw_text(&raw, "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   "Authorization: Bearer " KEY_INFER "\r\nTransfer-Encoding: chunked\r\n"
                   "Expect: 100-continue\r\n\r\n");
    pause_ms(50);
    raw_text(&raw, "10\r\n{\"model\":\"tiny\"}\r\n0\r\n\r\n");
    expect_next(&raw, 201);
    raw_close(&raw);
}

TEST(keys_are_asked_for)
{
    struct raw raw;
    open_tls(&raw);
    raw_text(&raw, "GET /models HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_next(&raw, 401);
    raw_text(&raw,
             "GET /models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " KEY_ADMIN "\r\n\r\n");
    expect_next(&raw, 403);
    raw_text(&raw,
             "GET /models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " KEY_INFER "\r\n\r\n");
    expect_next(&raw, 200);
    raw_close(&raw);
}

/* ---- Refusals, which attnd writes to the session itself -------------------------------------- */

TEST(late_body_is_answered_408_within_tls)
{
    struct raw raw;
    struct text head = {0};
    add_head(&head, "/decode", 100, "");
    open_tls(&raw);
    raw_send(&raw, head.data, head.length);
    expect_next(&raw, 408);
    ck_assert(raw_read_to_end(&raw, WAIT_MS));
    ck_assert_uint_eq(raw.length, 0);
    ck_assert(!raw.cut);
    raw_close(&raw);
    text_free(&head);
    expect_well();
}

TEST(late_head_is_answered_408_or_closed)
{
    struct raw raw;
    open_tls(&raw);
    raw_text(&raw, "GET /livez HTTP/1.1\r\nHost: ");
    ck_assert(raw_read_to_end(&raw, 10 * TIMEOUT_MS));
    raw_close(&raw);
    expect_well();
}

/* The length is declared: the answer does not wait for the body, and the body does not undo it. */
TEST(body_that_is_too_large_is_answered_413_though_it_is_sent)
{
    static char bytes[300000];
    struct raw raw;
    struct text head = {0};
    add_head(&head, "/decode", 190000000, "");
    open_tls(&raw);
    raw_send(&raw, head.data, head.length);
    raw_send(&raw, bytes, sizeof bytes);
    expect_next(&raw, 413);
    raw_close(&raw);
    text_free(&head);
    expect_well();
}

/* The chunks pass max_body_bytes, and then the number of bytes that are discarded. */
TEST(chunks_without_end_are_answered_413)
{
    static char chunk[65536 + 9];
    struct raw raw;
    bool taken = true;
    snprintf(chunk, sizeof chunk, "10000\r\n");
    memset(chunk + 7, ' ', 65536);
    memcpy(chunk + 7 + 65536, "\r\n", 2);
    open_tls(&raw);
    raw_text(&raw, "POST /decode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   "Authorization: Bearer " KEY_INFER "\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1000 && taken; i++)
        taken = raw_send(&raw, chunk, sizeof chunk);
    ck_assert(taken); /* and thrown away, so that the answer is read */
    expect_next(&raw, 413);
    raw_close(&raw);
    expect_well();
}

/* ---- Peers that break TLS -------------------------------------------------------------------- */

/* Sends bytes that are no handshake, or a part of one: the connection must be closed in time, and
 * the daemon must not burn a CPU until then. */
static void expect_closed(const void *bytes, size_t count)
{
    struct raw raw;
    double cpu_s = daemon_cpu_s(&served), start_s = clock_s();
    raw_open(&raw, HOST, served.port);
    if (count > 0)
        raw_send(&raw, bytes, count);
    struct answer answer = client_get(&client, "/readyz"); /* others are served meanwhile */
    expect_answer(&answer, 200, NULL, "readyz");
    answer_free(&answer);
    ck_assert(raw_read_to_end(&raw, 20 * TIMEOUT_MS));
    ck_assert_msg(strncmp(raw.data, "HTTP", 4) != 0, "%.60s", raw.data);
    raw_close(&raw);
    double spent_s = daemon_cpu_s(&served) - cpu_s, waited_s = clock_s() - start_s;
    ck_assert_msg(spent_s < 0.1 + waited_s / 4, "%g s of CPU in %g s", spent_s, waited_s);
    expect_well();
}

/* The first flight of a handshake, as GnuTLS sends it to a port of our own. */
static size_t record_hello(char *out, size_t most)
{
    int ends[2];
    gnutls_session_t tls;
    gnutls_certificate_credentials_t trust;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    ck_assert_int_eq(gnutls_certificate_allocate_credentials(&trust), GNUTLS_E_SUCCESS);
    ck_assert_int_eq(gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL),
                     GNUTLS_E_SUCCESS);
    gnutls_set_default_priority(tls);
    gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, trust);
    gnutls_transport_set_int(tls, ends[0]);
    ck_assert_int_eq(gnutls_handshake(tls), GNUTLS_E_AGAIN);
    ssize_t got = read(ends[1], out, most);
    ck_assert_int_gt(got, 100);
    gnutls_deinit(tls);
    gnutls_certificate_free_credentials(trust);
    close(ends[0]);
    close(ends[1]);
    return (size_t)got;
}

TEST(handshake_that_stops_is_closed_in_time)
{
    char hello[4096];
    size_t length = record_hello(hello, sizeof hello);
    const size_t stops[] = {0, 6, length - 1, length};
    for (size_t i = 0; i < COUNT(stops); i++)
        expect_closed(hello, stops[i]);
}

TEST(bytes_that_are_no_tls_are_closed_without_an_answer)
{
    static const char zeros[64], ssl2[] = "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10";
    static const char huge[] = "\x16\x03\x01\xff\xff\x01\x00\xff\xfb";
    expect_closed(zeros, sizeof zeros);
    expect_closed(ssl2, sizeof ssl2 - 1);
    expect_closed(huge, sizeof huge - 1);
}

TEST(plain_http_is_told_to_ask_https)
{
    char large[20000];
    const char *const requests[] = {LIVEZ, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", large};
    memset(large, 'x', sizeof large - 1);
    memcpy(large, "POST /attend", 12);
    large[sizeof large - 1] = '\0';
    for (size_t i = 0; i < COUNT(requests); i++) {
        struct raw raw;
        raw_open(&raw, HOST, served.port);
        raw_send(&raw, requests[i], strlen(requests[i]));
        ck_assert(raw_read_to_end(&raw, 20 * TIMEOUT_MS));
        const char *body = strstr(raw.data, "\r\n\r\n");
        ck_assert_msg(strncmp(raw.data, "HTTP/1.1 400 ", 13) == 0 && body != NULL, "%s", raw.data);
        ck_assert_str_eq(body + 4, "This port speaks TLS: ask https://.\n");
        ck_assert_ptr_nonnull(strstr(raw.data, "Content-Length: 36\r\n"));
        raw_close(&raw);
        expect_well();
    }
}

TEST(reset_in_the_handshake_leaves_nothing)
{
    char hello[4096];
    size_t length = record_hello(hello, sizeof hello);
    for (size_t i = 0; i < 50; i++) {
        struct raw raw;
        raw_open(&raw, HOST, served.port);
        raw_send(&raw, hello, length * i / 49);
        raw_reset(&raw);
    }
    expect_well();
}

/* Half a step, and then bytes that are no record, the end without a close alert, or a reset. */
TEST(tls_that_breaks_within_a_body_computes_nothing)
{
    struct text all = {0};
    call_create(&client, "a", "");
    expect_decode(&client, "a", 1, 0);
    text_add(&all, "{\"model\":\"tiny\",");
    text_step(&all, "a", 2, "");
    text_add(&all, "}");
    for (int how = 0; how < 4; how++) {
        struct raw raw;
        struct text head = {0};
        add_head(&head, "/decode", all.length, "");
        open_tls(&raw);
        raw_send(&raw, head.data, head.length);
        raw_send(&raw, all.data, how == 3 ? all.length - 1 : all.length / 2);
        if (how == 0)
            ck_assert_int_eq(send(raw.fd, "garbage garbage garbage", 23, 0), 23);
        if (how <= 1)
            shutdown(raw.fd, SHUT_WR);
        if (how == 3) {
            raw_half_close(&raw);
            raw_read_to_end(&raw, WAIT_MS);
            ck_assert_msg(raw.length == 0 || strstr(raw.data, " 200 ") == NULL, "%s", raw.data);
        }
        if (how == 2)
            raw_reset(&raw);
        else
            raw_close(&raw);
        text_free(&head);
        expect_well();
        ck_assert_uint_eq(call_length(&client, "a", 0), 1);
    }
    text_free(&all);
}

/* TLS lets one side end alone: a client that has sent everything may still wait for the answer. */
TEST(client_that_ends_its_side_after_the_request_is_answered)
{
    struct text body = {0}, all = {0};
    add_rows(&body, 3000);
    add_head(&all, "/attend", body.length, "");
    text_bytes(&all, body.data, body.length);
    for (int i = 0; i < 10; i++) {
        struct raw raw;
        open_tls(&raw);
        raw_send(&raw, all.data, all.length);
        ck_assert_int_eq(gnutls_bye(raw.tls, GNUTLS_SHUT_WR), GNUTLS_E_SUCCESS);
        expect_next(&raw, 200);
        raw_close(&raw);
    }
    text_free(&body);
    text_free(&all);
    expect_well();
}

TEST(versions_before_1_2_and_weak_ciphers_are_refused)
{
    static const struct {
        const char *priorities;
        bool taken;
    } cases[] = {
        {"NORMAL:-VERS-ALL:+VERS-TLS1.3", true},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2", true},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.1", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.0", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-MAC-ALL:+SHA1", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+RSA", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+AES-256-GCM", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct raw raw;
        bool taken = raw_open_tls(&raw, HOST, served.port, cases[i].priorities);
        ck_assert_msg(taken == cases[i].taken, "%s", cases[i].priorities);
        raw_close(&raw);
    }
    expect_well();
}

/* A new key exchange within a connection costs attnd more than the peer. */
TEST(renegotiation_ends_the_connection)
{
    struct raw raw;
    ck_assert(raw_open_tls(&raw, HOST, served.port, "NORMAL:-VERS-ALL:+VERS-TLS1.2"));
    raw_text(&raw, LIVEZ);
    expect_next(&raw, 200);
    ck_assert_int_lt(gnutls_handshake(raw.tls), 0);
    raw_close(&raw);
    expect_well();
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* Expects that --check and a start both end with this status and these words. */
static void expect_start(const char *cert, const char *of, int status, const char *words)
{
    static const char *const modes[] = {"--check", "--port=0"};
    char directory[64], config[96], cert_flag[96], key_flag[96];
    config_write(directory, config, CONFIG_SMALL(""));
    snprintf(cert_flag, sizeof cert_flag, "--tls-cert=%s", cert);
    snprintf(key_flag, sizeof key_flag, "--tls-key=%s", of);
    for (size_t mode = 0; mode < 2; mode++) {
        char *out, *err;
        const char *const arguments[] = {modes[mode], "--log=off", "--config",
                                         config,      cert_flag,   of != NULL ? key_flag : NULL,
                                         NULL};
        ck_assert_int_eq(process_run(&out, &err, arguments, NULL), status);
        ck_assert_msg(strstr(err, words) != NULL, "\"%s\" is not in: %s", words, err);
        ck_assert_ptr_eq(strchr(err, '\n'), err + strlen(err) - 1);
        ck_assert_ptr_null(strstr(out, "ready"));
        free(out);
        free(err);
    }
    config_remove(directory);
}

/* The bytes of the term `connections` in what --check prints. */
static unsigned long connection_bytes(const char *out)
{
    const char *line = strstr(out, "\n  connections ");
    ck_assert_ptr_nonnull(line);
    return strtoul(line + strlen("\n  connections "), NULL, 10);
}

static int ask_health(const struct daemon *daemon, bool tls, const char *words)
{
    char port[32], *out, *err;
    snprintf(port, sizeof port, "--port=%u", daemon->port);
    const char *const arguments[] = {
        "--health-check", port, tls ? "--tls-cert" : NULL, certificate, "--tls-key", key, NULL};
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(strstr(err, words) != NULL, "%s", err);
    free(out);
    free(err);
    return status;
}

TEST(health_check_speaks_tls_where_the_daemon_does)
{
    struct daemon plain;
    double start_s;
    daemon_start(&plain, CONFIG_SMALL("\"header_timeout_ms\":60000,"), NULL, NULL);
    ck_assert_int_eq(ask_health(&served, true, ""), 0);
    ck_assert_int_eq(ask_health(&served, false, "attnd: http://"), 1);
    ck_assert_int_eq(ask_health(&plain, false, ""), 0);
    start_s = clock_s();
    ck_assert_int_eq(ask_health(&plain, true, "attnd: https://"), 1);
    ck_assert(clock_s() - start_s < 30);
    daemon_stop(&plain);
}

CASE(starts, make_files, remove_files, 0)

TEST(files_that_are_no_pair_fail_the_check_and_the_start)
{
    char other[SECRET_PATH], other_key[SECRET_PATH], chain[SECRET_PATH];
    certificate_make(other, other_key);
    expect_start(certificate, NULL, 2, "tls_cert and tls_key: one needs the other");
    expect_start("/nonexistent", key, 1, "/nonexistent: No such file");
    expect_start(certificate, "/nonexistent", 1, "/nonexistent: No such file");
    expect_start("/tmp", key, 1, "/tmp: ");
    expect_start(key, key, 1, "no certificate in PEM form");
    expect_start(certificate, keys, 1, "no key in PEM form");
    expect_start(certificate, other_key, 1, "not the key of the certificate");
    certificate_make_unsorted(chain, certificate);
    expect_start(chain, key, 1, "no certificate in PEM form");
    unlink(chain);
    ck_assert_int_eq(truncate(other, 200), 0);
    expect_start(other, other_key, 1, "no certificate in PEM form");
    ck_assert_int_eq(truncate(other_key, 0), 0);
    expect_start(certificate, other_key, 1, "no key in PEM form");
    ck_assert_int_eq(chmod(key, 0644), 0);
    expect_start(certificate, key, 1, "others must not read it");
    unlink(other);
    unlink(other_key);
}

TEST(check_says_when_the_certificate_ends)
{
    char *out, *err, *plain, day[32], line[64];
    const char *const without[] = {"--check", NULL};
    time_t then = time(NULL) + 2 * 86400;
    struct tm utc;
    const char *const arguments[] = {"--check", "--tls-cert", certificate, "--tls-key", key, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 0);
    ck_assert_uint_gt(strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&then, &utc)), 0);
    snprintf(line, sizeof line, "\ntls: the certificate expires %s\n", day);
    ck_assert_msg(strstr(out, line) != NULL, "%s", out);
    free(err);
    ck_assert_int_eq(process_run(&plain, &err, without, NULL), 0);
    ck_assert_uint_eq(connection_bytes(out) - connection_bytes(plain), (16384ul + 32) * 48 << 10);
    free(out);
    free(plain);
    free(err);
}

SUITE(tls)
