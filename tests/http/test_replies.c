/* test_replies.c: clients that do not read their replies, or read slowly: how long they hold the
 * memory of requests. */
#include <check.h>
#include <sys/socket.h>
#include <time.h>

#include "calls.h"
#include "long_call.h"
#include "raw.h"
#include "served.h"
#include "suites.h"

#define REPLY_MS 1000 /* reply_timeout_ms */
#define SLACK_MS 1500 /* a sweep, and a busy machine */
#define WIDE 2300     /* rows and keys of an attention whose weights are LARGE bytes */
#define LITTLE 8192
#define LARGE ((double)WIDE * WIDE * 4)

/* Sends an /attend with an answer of LARGE bytes, on a connection that takes at most `buffered`
 * bytes at once; 0: as the system likes. */
static void ask_large(struct raw *raw, int buffered)
{
    struct text body = {0}, head = {0};
    add_weights_call(&body, WIDE);
    text_add(&head,
             "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
             body.length);
    raw_open(raw, served.host, served.port);
    if (buffered > 0)
        setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &buffered, sizeof buffered);
    ck_assert(raw_send(raw, head.data, head.length) && raw_send(raw, body.data, body.length));
    text_free(&body);
    text_free(&head);
}

static double in_flight(void) { return call_metric(&client, "attnd_in_flight_bytes"); }

/* Waits until more, or less, than this is in flight; returns the milliseconds that it took. */
static unsigned await_in_flight(bool more, double bytes, unsigned most_ms)
{
    struct timespec from, now;
    unsigned ms;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        pause_ms(5);
        double is = in_flight();
        clock_gettime(CLOCK_MONOTONIC, &now);
        ms = (unsigned)((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000);
        if (more ? is > bytes : is < bytes)
            return ms;
    } while (ms < most_ms);
    ck_abort_msg("%.0f bytes are in flight after %u ms", in_flight(), ms);
}

static size_t receive(struct raw *raw, size_t most)
{
    static char bytes[65536];
    ssize_t got = recv(raw->fd, bytes, most < sizeof bytes ? most : sizeof bytes, 0);
    return got > 0 ? (size_t)got : 0;
}

static void set_up(void) { serve(CONFIG_SMALL("\"reply_timeout_ms\":1000,")); }

CASE(slow, set_up, serve_end, 0)

TEST(replies_that_nobody_reads_are_ended_and_their_memory_is_free)
{
    struct raw raws[3];
    size_t got = 0, piece;
    for (size_t i = 0; i < 3; i++)
        ask_large(&raws[i], LITTLE);
    await_in_flight(true, 2 * LARGE, WAIT_MS);
    await_in_flight(false, LARGE, (INSTRUMENTED ? 20 : 1) * (REPLY_MS + 2 * SLACK_MS));
    ck_assert_double_eq(call_metric(&client, "attnd_connections"), 1);
    while ((piece = receive(&raws[0], SIZE_MAX)) > 0)
        got += piece;
    ck_assert(got < (size_t)LARGE); /* what the two systems held */
    for (size_t i = 0; i < 3; i++)
        raw_close(&raws[i]);
}

/* A client that takes a little every now and then, so that there is always some progress. */
TEST(reply_that_is_read_too_slowly_is_ended)
{
    struct raw raw;
    unsigned ms = 0;
    ask_large(&raw, LITTLE);
    await_in_flight(true, LARGE, WAIT_MS);
    for (; in_flight() > 0; ms += 50) {
        ck_assert_uint_lt(ms, (INSTRUMENTED ? 20 : 1) * (3 * REPLY_MS + 2 * SLACK_MS));
        (void)receive(&raw, 2200); /* 44 KB a second */
        pause_ms(50);
    }
    raw_close(&raw);
}

/* The whole takes several times reply_timeout_ms. */
TEST(reply_that_is_read_fast_enough_arrives_whole)
{
    struct raw raw;
    size_t got = 0, piece = 1;
    ask_large(&raw, 0);
    for (size_t paced = 0; paced < 4 * (REPLY_MS / 100); paced++) {
        for (size_t taken = 0; taken < 65536 && piece > 0; taken += piece)
            got += piece = receive(&raw, 65536 - taken);
        pause_ms(100);
    }
    while (piece > 0 && got < (size_t)LARGE)
        got += piece = receive(&raw, SIZE_MAX);
    ck_assert_msg(got >= (size_t)LARGE, "%zu bytes", got);
    raw_close(&raw);
}

SUITE(replies)
