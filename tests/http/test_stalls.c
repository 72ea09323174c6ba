/* test_stalls.c: clients that stop within a request or a TLS handshake cost the daemon no time and
 * a good client nothing; a line of a chunk's size that is too long is refused. */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define BODY_MS 1000
#define NUM_STALLED 40
#define SETTLE_MS 300
#define LOOK_MS 500
#define MOST_CPU 0.1 /* seconds of LOOK_MS, those of the good client's requests included */
#define EXACT 24280  /* bytes that fill the buffer of a connection after CHUNKED's head */

#define LIVEZ "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

/* What a client sends before it stops: `text`, then `filler` times an 'a', after a pause or not;
 * and the end of its side. */
static const struct stall {
    const char *name, *text, *after_pause;
    size_t filler;
    bool half_close;
} stalls[] = {
    {"a chunk's line without end", CHUNKED "2;", "", 30000, false},
    {"the same, with the end of the client's side", CHUNKED "2;", "", 30000, true},
    {"a chunk's line that fills the buffer", CHUNKED, "2;", EXACT - 2, false},
    {"the same, at once", CHUNKED "2;", "", EXACT - 2, false},
    {"one byte less", CHUNKED, "2;", EXACT - 3, false},
    {"one byte more", CHUNKED, "2;", EXACT - 1, false},
    {"a chunk's line after a chunk", CHUNKED "1\r\n{\r\n2;", "", 30000, false},
    {"a chunk's line behind a request", LIVEZ CHUNKED "2;", "", 30000, false},
    {"half of a chunk", CHUNKED "7000\r\n", "", 20000, false},
    {"a trailer without end", CHUNKED "2\r\n{}\r\n0\r\nX: ", "", 30000, false},
    {"half of a trailer", CHUNKED "2\r\n{}\r\n0\r\nX: ", "", 10, false},
    {"a field without end", "GET /livez HTTP/1.1\r\nX: ", "", 40000, false},
    {"half of a head", "GET /livez HTTP/1.1\r\nX: ", "", 10000, false},
    {"a target without end", "GET /", "", 40000, false},
    {"half of a body", POST "Content-Length: 30000\r\n\r\n", "", 29999, false},
    {"the same, with the end of the client's side", POST "Content-Length: 30000\r\n\r\n", "", 29999,
     true},
    {"100 Continue that is not heard",
     POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n", "", 0, false},
};

static void stop_after(struct raw *raw, const struct stall *stall)
{
    struct text filler = {0};
    text_add(&filler, "%s", stall->after_pause);
    for (size_t i = 0; i < stall->filler; i++)
        text_add(&filler, "a");
    (void)raw_text(raw, stall->text);
    if (stall->after_pause[0] != '\0')
        pause_ms(5);
    (void)raw_send(raw, filler.data, filler.length);
    if (stall->half_close)
        raw_half_close(raw);
    text_free(&filler);
}

/* Expects that the daemon, of which a good client asks something every few milliseconds, takes
 * hardly any processor time. */
static void expect_idle(const char *what)
{
    pause_ms(INSTRUMENTED ? 5 * SETTLE_MS : SETTLE_MS);
    double before = daemon_cpu_s(&served);
    for (unsigned ms = 0; ms < LOOK_MS; ms += 5) {
        struct answer answer = client_get(&client, "/livez");
        expect_answer(&answer, 200, NULL, what);
        answer_free(&answer);
        pause_ms(5);
    }
    double cpu_s = daemon_cpu_s(&served) - before;
    ck_assert_msg(INSTRUMENTED || cpu_s < MOST_CPU, "%s: %.2f s of processor time", what, cpu_s);
}

CASE(plain, serve_small, serve_end, 0)

TEST_EACH(clients_that_stop_within_a_request_cost_no_time, COUNT(stalls))
{
    struct raw raws[NUM_STALLED];
    for (size_t i = 0; i < NUM_STALLED; i++) {
        raw_open(&raws[i], served.host, served.port);
        stop_after(&raws[i], &stalls[_i]);
    }
    expect_idle(stalls[_i].name);
    for (size_t i = 0; i < NUM_STALLED; i++)
        raw_close(&raws[i]);
}

/* ---- Lines of chunks ------------------------------------------------------------------------- */

TEST(a_chunks_line_without_end_is_answered_400_once)
{
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    stop_after(&raw, &stalls[0]);
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 400);
    ck_assert_ptr_nonnull(strstr(answer.body, "chunk"));
    ck_assert(raw_read_to_end(&raw, WAIT_MS));
    ck_assert_msg(raw.length == 0, "%s", raw.data);
    raw_answer_free(&answer);
    raw_close(&raw);
}

/* Chunks with extensions, in small pieces with pauses, beside stalled ones that give the event
 * thread work. */
TEST(chunks_that_come_slowly_with_extensions_are_taken)
{
    struct raw raw, busy;
    struct text line = {0};
    text_add(&line, "8;x=\"");
    for (int i = 0; i < 1000; i++)
        text_add(&line, "a");
    text_add(&line, "\"\r\n{\"model\"\r\n8;y\r\n:\"tiny\"}\r\n0\r\n\r\n");
    raw_open(&busy, served.host, served.port);
    stop_after(&busy, &stalls[4]);
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                             "\r\nTransfer-Encoding: chunked\r\n\r\n"));
    ck_assert(raw_slowly(&raw, line.data, line.length, 97, 4));
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_msg(answer.status == 201, "%u %s", answer.status, answer.body);
    raw_answer_free(&answer);
    raw_close(&raw);
    raw_close(&busy);
    text_free(&line);
}

static void serve_late(void) { serve(CONFIG_SMALL("\"body_timeout_ms\":1000,")); }

CASE(late, serve_late, serve_end, 0)

TEST(a_chunks_line_that_fills_the_buffer_ends_the_connection)
{
    struct raw raws[NUM_STALLED];
    for (size_t i = 0; i < NUM_STALLED; i++) {
        raw_open(&raws[i], served.host, served.port);
        stop_after(&raws[i], &stalls[3]);
    }
    for (unsigned ms = 0; call_metric(&client, "attnd_connections") > 1; ms += 10) {
        ck_assert_uint_lt(ms, 3 * BODY_MS);
        pause_ms(10);
    }
    for (size_t i = 0; i < NUM_STALLED; i++)
        raw_close(&raws[i]);
}

/* ---- Handshakes ------------------------------------------------------------------------------ */

#define NUM_HALVES 700
#define BOUND 512 /* SRV_MAX_HANDSHAKES */
#define HEADER_MS 4000

/* The begin of a record of 512 bytes. */
static const char half_record[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

static char certificate[SECRET_PATH], key[SECRET_PATH];

static void begin_tls(void)
{
    const char *const flags[] = {"--tls-cert", certificate, "--tls-key", key, NULL};
    certificate_make(certificate, key);
    daemon_start(&served, CONFIG_SMALL("\"header_timeout_ms\":4000,"), flags, NULL);
    served.trusted = certificate;
    client_open(&client, &served);
}

static void end_tls(void)
{
    serve_end();
    unlink(certificate);
    unlink(key);
}

CASE(tls, begin_tls, end_tls, 0)

TEST_EACH(handshakes_that_stop_cost_no_time, 2)
{
    struct raw raws[BOUND];
    size_t count = _i == 0 ? sizeof half_record - 1 : 1;
    for (size_t i = 0; i < BOUND; i++) {
        raw_open(&raws[i], served.host, served.port);
        ck_assert(raw_send(&raws[i], half_record, count));
    }
    expect_idle("half of a handshake");
    for (size_t i = 0; i < BOUND; i++) {
        ck_assert(!raw_read_to_end(&raws[i], 0));
        raw_close(&raws[i]);
    }
}

TEST(handshakes_are_bounded_in_number_and_the_oldest_end_first)
{
    struct raw raws[NUM_HALVES], good;
    for (size_t i = 0; i < NUM_HALVES; i++) {
        raw_open(&raws[i], served.host, served.port);
        ck_assert(raw_send(&raws[i], half_record, 1));
    }
    ck_assert(raw_open_tls(&good, served.host, served.port, NULL));
    for (unsigned i = 0; call_metric(&client, "attnd_connections") > BOUND + 2; i += 10) {
        ck_assert_uint_lt(i, HEADER_MS / 2 - 200);
        pause_ms(10);
    }
    ck_assert(raw_read_to_end(&raws[0], WAIT_MS)); /* the oldest */
    ck_assert(raw_text(&good, LIVEZ));
    struct raw_answer answer = raw_read(&good, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    raw_close(&good);
    for (size_t i = 0; i < NUM_HALVES; i++)
        raw_close(&raws[i]);
}

/* The head of a client whose handshake took long still has its whole time. */
TEST(handshake_has_half_the_time_of_a_head)
{
    struct raw half, good;
    ck_assert(raw_open_tls(&good, served.host, served.port, NULL));
    raw_open(&half, served.host, served.port);
    ck_assert(raw_send(&half, half_record, 1));
    pause_ms(HEADER_MS * 3 / 8);
    ck_assert_double_eq(call_metric(&client, "attnd_connections"), 3);
    ck_assert(raw_read_to_end(&half, HEADER_MS * 3 / 8));
    ck_assert(raw_text(&good, LIVEZ));
    struct raw_answer answer = raw_read(&good, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    raw_close(&good);
    raw_close(&half);
}

TEST(daemon_stops_while_clients_are_waited_for)
{
    struct raw raws[NUM_STALLED];
    for (size_t i = 0; i < NUM_STALLED; i++) {
        raw_open(&raws[i], served.host, served.port);
        ck_assert(raw_send(&raws[i], half_record, 1));
    }
    pause_ms(SETTLE_MS);
    serve_end(); /* expects the end with status 0 */
    for (size_t i = 0; i < NUM_STALLED; i++)
        raw_close(&raws[i]);
    begin_tls();
}

SUITE(stalls)
