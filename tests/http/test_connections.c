/* test_connections.c: how a connection ends: bytes after a body in chunks are not read, and a
 * client may close its side with the last byte of its request; memory of heads that do not end;
 * how many requests a turn takes; machines that vanish. */
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define CREATE                                                               \
    "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r" \
    "\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"model\":\"tiny\"}\r\n0\r\n\r\n"
#define NEXT "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
#define MANY 20000 /* copies of NEXT: more than sockets and buffers hold */
#define WIDE 500   /* rows and keys of an attention whose weights are more than that, too */

/* Expects one answer of this status, and the end of the connection. */
static void expect_last(struct raw *raw, unsigned status)
{
    char connection[256];
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == status, "%u %s", answer.status,
                  answer.body != NULL ? answer.body : "");
    ck_assert(raw_header(connection, &answer, "Connection"));
    ck_assert_str_eq(connection, "close");
    raw_answer_free(&answer);
    ck_assert(raw_read_to_end(raw, WAIT_MS));
    ck_assert_msg(raw->length == 0, "%s", raw->data);
}

static void set_up(void) { serve(CONFIG_SMALL("\"body_timeout_ms\":1000,")); }

CASE(chunks, set_up, serve_end, 0)

TEST(nothing_after_chunks_is_answered_and_their_answer_arrives)
{
    struct text all = {0};
    text_add(&all, CREATE);
    for (size_t i = 0; i < MANY; i++)
        text_add(&all, NEXT);
    for (int i = 0; i < 10; i++) {
        struct raw raw;
        raw_open(&raw, served.host, served.port);
        raw_send(&raw, all.data, i == 0 ? strlen(CREATE NEXT) : all.length);
        expect_last(&raw, 201);
        raw_close(&raw);
    }
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 10);
    text_free(&all);
}

static void add_zeros(struct text *out, const char *name)
{
    text_add(out, "\"%s\":{\"shape\":[1,%d,1],\"data\":[0", name, WIDE);
    for (int i = 1; i < WIDE; i++)
        text_add(out, ",0");
    text_add(out, "]},");
}

/* Closing a socket that holds unread bytes discards the bytes that it has not sent. */
TEST(a_large_answer_to_chunks_arrives_whole_though_more_follows_them)
{
    struct text body = {0}, all = {0};
    struct raw raw;
    text_add(&body, "{");
    add_zeros(&body, "query");
    add_zeros(&body, "key");
    add_zeros(&body, "value");
    text_add(&body, "\"outputs\":[\"attention_weights\"]}");
    text_add(&all,
             "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
             body.length, body.data);
    for (size_t i = 0; i < MANY; i++)
        text_add(&all, NEXT);
    raw_open(&raw, served.host, served.port);
    raw_send(&raw, all.data, all.length);
    for (unsigned waited = 0; call_metric(&client, "attnd_in_flight_bytes") > 0; waited++) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(1);
    }
    expect_last(&raw, 200);
    raw_close(&raw);
    text_free(&body);
    text_free(&all);
}

/* The cork makes the last bytes and the end one segment. */
static void send_and_end(struct raw *raw, const char *text)
{
    int on = 1;
    raw_open(raw, served.host, served.port);
    ck_assert_int_eq(setsockopt(raw->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    ck_assert(raw_text(raw, text));
    raw_half_close(raw);
}

TEST(client_that_ends_its_side_along_with_its_chunks_is_answered)
{
    for (int i = 0; i < 10; i++) {
        struct raw raw;
        send_and_end(&raw, CREATE);
        expect_last(&raw, 201);
        raw_close(&raw);
    }
}

TEST(client_that_ends_its_side_along_with_its_request_gets_the_last_answer)
{
    for (int i = 0; i < 10; i++) {
        struct raw raw;
        send_and_end(&raw, NEXT);
        expect_last(&raw, 200);
        raw_close(&raw);
    }
}

TEST(body_that_ends_early_ends_its_connection_at_once)
{
    struct raw raw;
    send_and_end(&raw, "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       "Content-Length: 100\r\n\r\n{\"model\":\"tiny\"}");
    ck_assert(raw_read_to_end(&raw, WAIT_MS));
    ck_assert_msg(raw.length == 0, "%s", raw.data); /* no 408 at the deadline */
    raw_close(&raw);
}

TEST(chunks_that_end_early_are_not_carried_out)
{
    struct raw raw;
    send_and_end(&raw, "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"model\":\"tiny\"}\r\n");
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_msg(answer.status == 0 || answer.status == 408, "%u", answer.status);
    raw_answer_free(&answer);
    ck_assert(raw_read_to_end(&raw, WAIT_MS));
    raw_close(&raw);
    ck_assert_double_eq(call_metric(&client, "attnd_sessions"), 0);
    ck_assert_double_eq(call_metric(&client, "attnd_in_flight_bytes"), 0);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

#define STALLED 200
#define LONG_TARGET 15000
#define LEAST_LOST ((double)STALLED * LONG_TARGET / 4)

/* Memory in use while STALLED heads, whose targets have this many bytes, lack only their last
 * line. */
static double heap_with_heads(size_t bytes)
{
    struct raw raws[STALLED];
    struct text head = {0};
    text_add(&head, "GET /livez?");
    for (size_t i = 0; i < bytes; i++)
        text_add(&head, "a");
    text_add(&head, " HTTP/1.1\r\nHost: x\r\n");
    for (size_t i = 0; i < STALLED; i++) {
        raw_open(&raws[i], served.host, served.port);
        ck_assert(raw_send(&raws[i], head.data, head.length));
    }
    for (unsigned i = 0; call_metric(&client, "attnd_connections") < STALLED; i++)
        ck_assert_uint_lt(i, WAIT_MS);
    pause_ms(200); /* the daemon reads the heads */
    double heap = call_metric(&client, "attnd_heap_bytes");
    for (size_t i = 0; i < STALLED; i++) {
        ck_assert(raw_text(&raws[i], "\r\n"));
        struct raw_answer answer = raw_read(&raws[i], false, WAIT_MS);
        ck_assert_uint_eq(answer.status, 200);
        raw_answer_free(&answer);
        raw_close(&raws[i]);
    }
    text_free(&head);
    return heap;
}

CASE(heads, serve_small, serve_end, 0)

TEST(long_targets_take_no_more_memory_than_short_ones)
{
    heap_with_heads(1); /* the first run takes memory that stays */
    double few = heap_with_heads(1), many = heap_with_heads(LONG_TARGET);
    ck_assert_msg(many - few < LEAST_LOST, "%.0f bytes, and %.0f with long targets", few, many);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

#define CALLERS 100
#define TURN_SOCKETS 32 /* of server/http/mhd_workarounds.c */

static void send_step(struct raw *raw, unsigned caller)
{
    struct text body = {0}, request = {0};
    char id[32];
    snprintf(id, sizeof id, "s%u", caller);
    text_add(&body, "{");
    text_step(&body, id, caller, "");
    text_add(&body, "}");
    text_add(&request,
             "POST /decode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             body.length, body.data);
    ck_assert(raw_send(raw, request.data, request.length));
    text_free(&request);
    text_free(&body);
}

static void expect_200(struct raw *raw)
{
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_msg(answer.status == 200, "%u %s", answer.status, answer.body);
    raw_answer_free(&answer);
}

/* All requests are there when the stopped daemon goes on. */
TEST(a_turn_answers_some_requests_before_it_reads_the_others)
{
    static struct raw callers[CALLERS];
    char id[32], *const most = "attnd_decode_batch_size_bucket{model=\"tiny\",le=\"32\"}";
    for (unsigned i = 0; i < CALLERS; i++) {
        snprintf(id, sizeof id, "s%u", i);
        call_create(&client, id, "");
        raw_open(&callers[i], served.host, served.port);
        ck_assert(raw_text(&callers[i], NEXT));
        expect_200(&callers[i]);
    }
    ck_assert_int_eq(kill(served.process.pid, SIGSTOP), 0);
    for (unsigned i = 0; i < CALLERS; i++)
        send_step(&callers[i], i);
    ck_assert_int_eq(kill(served.process.pid, SIGCONT), 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        expect_200(&callers[i]);
        raw_close(&callers[i]);
    }
    double batches = call_metric(&client, "attnd_decode_batch_size_count{model=\"tiny\"}");
    ck_assert_double_eq(call_metric(&client, most), batches);
    ck_assert_double_ge(batches, CALLERS / TURN_SOCKETS);
}

#define FROZEN_MS 4000

static void set_up_frozen(void) { serve(CONFIG_SMALL("\"body_timeout_ms\":3000,")); }

CASE(frozen, set_up_frozen, serve_end, 0)

/* A step and the rest of a body that were sent in time count, though the daemon reads them late.
 * Little is done between what starts a time and the freeze, which is longer than all of them. */
TEST(frozen_daemon_reads_what_was_sent_before_anything_expires)
{
    static struct raw bodies[CALLERS], steps[CALLERS];
    char id[32];
    for (unsigned i = 0; i < CALLERS; i++) {
        raw_open(&steps[i], served.host, served.port);
        raw_open(&bodies[i], served.host, served.port);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        snprintf(id, sizeof id, "s%u", i);
        call_create(&client, id, ",\"ttl_s\":3");
    }
    for (unsigned i = 0; i < CALLERS; i++)
        ck_assert(raw_text(&bodies[i], "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                       "application/json\r\nContent-Length: 16\r\n\r\n{\"model\""));
    ck_assert_double_ge(call_metric(&client, "attnd_connections"), CALLERS);
    ck_assert_int_eq(kill(served.process.pid, SIGSTOP), 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        send_step(&steps[i], i);
        ck_assert(raw_text(&bodies[i], ":\"tiny\"}"));
    }
    pause_ms(FROZEN_MS);
    ck_assert_int_eq(kill(served.process.pid, SIGCONT), 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        expect_200(&steps[i]);
        struct raw_answer answer = raw_read(&bodies[i], false, WAIT_MS);
        ck_assert_msg(answer.status == 201, "%u %s", answer.status, answer.body);
        raw_answer_free(&answer);
        raw_close(&steps[i]);
        raw_close(&bodies[i]);
    }
}

#define PIPELINE 200

static void serve_brief(void) { serve(CONFIG_SMALL("\"drain_timeout_s\":1,")); }

static void close_client(void) { client_close(&client); }

CASE(pipelines, serve_brief, close_client, 0)

/* More than a turn serves of one connection's, small and in pieces; then a stop with all that. */
TEST(pipelines_are_answered_whole_and_in_their_order)
{
    static struct raw callers[CALLERS / 5];
    struct text asks = {0};
    const size_t count = COUNT(callers);
    for (size_t i = 0; i < PIPELINE / 2; i++)
        text_add(&asks,
                 "GET /openapi.json HTTP/1.1\r\nHost: x\r\nX-Request-Id: a%zu\r\n\r\n"
                 "GET /models HTTP/1.1\r\nHost: x\r\nX-Request-Id: b%zu\r\n\r\n",
                 i, i);
    struct raw_answer whole = raw_exchange(
        served.host, served.port, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", WAIT_MS);
    for (size_t i = 0; i < count; i++) {
        raw_open(&callers[i], served.host, served.port);
        ck_assert(raw_send(&callers[i], asks.data, asks.length));
    }
    for (size_t i = 0; i < count * PIPELINE / 4; i++) {
        char id[256], wanted[32];
        size_t of_caller = i / count;
        struct raw_answer answer = raw_read(&callers[i % count], false, WAIT_MS);
        snprintf(wanted, sizeof wanted, "%c%zu", of_caller % 2 == 0 ? 'a' : 'b', of_caller / 2);
        ck_assert_uint_eq(answer.status, 200);
        ck_assert(raw_header(id, &answer, "X-Request-Id"));
        ck_assert_str_eq(id, wanted);
        if (of_caller % 2 == 0)
            ck_assert_str_eq(answer.body, whole.body);
        raw_answer_free(&answer);
    }
    daemon_terminate(&served);
    daemon_expect_end(&served);
    for (size_t i = 0; i < count; i++)
        raw_close(&callers[i]);
    raw_answer_free(&whole);
    text_free(&asks);
}

/* ---- Machines that vanish -------------------------------------------------------------------- */

#define MOST_DESCRIPTORS 64
#define TIMEOUT_MS 4321

/* A copy of the daemon's end of our connection; -1 where the system allows no such look. */
static int other_end(const struct raw *raw, pid_t pid)
{
    struct sockaddr_in own, peer;
    socklen_t size = sizeof own;
    int process = (int)syscall(SYS_pidfd_open, pid, 0), found = -1;
    ck_assert_int_eq(getsockname(raw->fd, (struct sockaddr *)&own, &size), 0);
    for (int fd = 0; fd < MOST_DESCRIPTORS && found < 0; fd++) {
        int copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
        size = sizeof peer;
        if (copy >= 0 && getpeername(copy, (struct sockaddr *)&peer, &size) == 0 &&
            peer.sin_family == AF_INET && peer.sin_port == own.sin_port)
            found = copy;
        else if (copy >= 0)
            close(copy);
    }
    close(process);
    return found;
}

static void serve_timed(void) { serve(CONFIG_SMALL("\"reply_timeout_ms\":4321,")); }

CASE(vanished, serve_timed, serve_end, 0)

TEST(unacknowledged_bytes_end_a_connection_soon_after_reply_timeout_ms)
{
    struct raw raw;
    unsigned timeout_ms = 0;
    socklen_t size = sizeof timeout_ms;
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, NEXT));
    expect_200(&raw);
    int fd = other_end(&raw, served.process.pid);
    if (fd < 0) {
        printf("connections: the system allows no look at the daemon's sockets\n");
    } else {
        ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &size), 0);
        ck_assert_uint_eq(timeout_ms, TIMEOUT_MS + 5000);
        close(fd);
    }
    raw_close(&raw);
}

SUITE(connections)
