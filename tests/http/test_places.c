/* test_places.c: where max_connections are open, further connections are accepted for probes, and
 * clients that keep thousands of others open do not keep probes out. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "waiting.h"

#define RESERVED 32 /* beside max_connections, of one event thread */
#define ENDING 32   /* as many again may be about to be closed */
#define ORDINARY 30 /* max_connections beside a crowd */
#define CROWD 300   /* connections that say nothing */
#define TRIES 50    /* a second each: a reserved place is kept for no longer */
#define GET(path) "GET " path " HTTP/1.1\r\nHost: test\r\n\r\n"
#define POST                                                                           \
    "POST /attend HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent" \
    "-Length: 8000000\r\n\r\n{"
#define CONFIG(connections, members) \
    CONFIG_SMALL("\"max_connections\":" connections ",\"idle_timeout_s\":600," members)

/* Expects one answer of this status with this text in it, and the end of the connection. */
static void expect_last(const char *text, unsigned status, const char *part)
{
    char connection[256];
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, text));
    struct raw_answer answer = raw_read(&raw, false, SOON_MS);
    ck_assert_msg(answer.status == status, "%s: %u", text, answer.status);
    ck_assert_msg(strstr(answer.body, part) != NULL, "%s: %s", text, answer.body);
    ck_assert(raw_header(connection, &answer, "Connection"));
    ck_assert_str_eq(connection, "close");
    ck_assert(raw_header(connection, &answer, "Retry-After") == (status == 503));
    raw_answer_free(&answer);
    if (strstr(text, "POST") == NULL) /* whose body is still awaited */
        ck_assert(raw_read_to_end(&raw, SOON_MS));
    raw_close(&raw);
}

static void expect_probes(void)
{
    static const char *const probes[] = {GET("/livez"), GET("/readyz"), GET("/v2/health/ready")};
    for (size_t i = 0; i < COUNT(probes); i++)
        expect_last(probes[i], 200, "{");
}

CASE(places, NULL, NULL, 120)

TEST(beyond_max_connections_probes_are_answered_and_all_else_is_refused)
{
    static const char code[] = "\"code\":\"connection_limit\"";
    struct raw other;
    serve(CONFIG("2", ""));
    ck_assert_int_eq(call_status(&client, "nobody"), 404); /* one of the two */
    raw_open(&other, served.host, served.port);
    ck_assert(raw_text(&other, LIVEZ));
    raw_expect_status(&other, 200);
    expect_probes();
    expect_last(GET("/models"), 503, code);
    expect_last(GET("/metrics"), 503, code);
    expect_last(GET("/nowhere"), 503, code);
    expect_last(POST, 503, code);
    expect_last(GET("/v2/models/tiny"), 503, code);
    ck_assert(raw_text(&other, GET("/models"))); /* neither of the two is touched */
    raw_expect_status(&other, 200);
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    raw_close(&other);
    serve_end();
}

/* Both requests on one connection, which was opened beyond max_connections. */
static bool is_served_twice(struct raw *first)
{
    struct raw second;
    unsigned status[2] = {0};
    raw_open(&second, served.host, served.port);
    raw_close(first);
    while (call_metric(&client, "attnd_connections") > 2) /* the second ends by itself, if late */
        pause_ms(1);
    for (size_t i = 0; i < 2 && raw_text(&second, GET("/models")); i++) {
        struct raw_answer answer = raw_read(&second, false, SOON_MS);
        status[i] = answer.status;
        raw_answer_free(&answer);
    }
    *first = second;
    return status[0] == 200 && status[1] == 200;
}

TEST(a_connection_beyond_max_connections_is_as_others_once_one_of_them_has_ended)
{
    struct raw other;
    bool served_twice = false;
    serve(CONFIG("2", ""));
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    for (size_t tries = 0; !served_twice && tries < TRIES; tries++) {
        raw_open(&other, served.host, served.port);
        ck_assert(raw_text(&other, LIVEZ));
        raw_expect_status(&other, 200);
        served_twice = is_served_twice(&other);
        raw_close(&other);
    }
    ck_assert(served_twice);
    serve_end();
}

TEST(a_connection_beyond_max_connections_that_says_nothing_is_closed_soon)
{
    struct raw silent;
    serve(CONFIG("1", "\"header_timeout_ms\":600000,"));
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    raw_open(&silent, served.host, served.port);
    ck_assert(raw_read_to_end(&silent, SOON_MS));
    raw_close(&silent);
    raw_open(&silent, served.host, served.port);
    ck_assert(raw_text(&silent, "GET /livez HTTP/1.1\r\nHost: ")); /* slowly, for a request */
    ck_assert(raw_read_to_end(&silent, SOON_MS));
    raw_close(&silent);
    serve_end();
}

TEST(probes_are_answered_beside_any_number_of_silent_connections)
{
    static struct raw crowd[CROWD];
    double open;
    serve(CONFIG("30", "\"header_timeout_ms\":600000,"));
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    for (size_t i = 0; i < CROWD; i++) {
        raw_open(&crowd[i], served.host, served.port);
        if (i % 2 == 1)
            ck_assert(raw_text(&crowd[i], "G") || i >= ORDINARY - 1);
    }
    expect_probes();
    open = call_metric(&client, "attnd_connections");
    ck_assert_msg(open >= ORDINARY && open <= ORDINARY + RESERVED + ENDING, "%.0f", open);
    for (size_t i = 0; i < CROWD; i++)
        raw_close(&crowd[i]);
    serve_end();
}

/* A handshake and a head, both within the time of a reserved place. */
TEST(probes_over_tls_are_answered_beyond_max_connections)
{
    char certificate[SECRET_PATH], key[SECRET_PATH];
    const char *const flags[] = {"--tls-cert", certificate, "--tls-key", key, NULL};
    unsigned status = 0;
    certificate_make(certificate, key);
    daemon_start(&served, CONFIG("1", ""), flags, NULL);
    served.trusted = certificate;
    client_open(&client, &served);
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    for (size_t tries = 0; status != 200 && tries < TRIES; tries++) {
        struct raw raw;
        if (!raw_open_tls(&raw, served.host, served.port, NULL))
            continue;
        raw_text(&raw, LIVEZ);
        struct raw_answer answer = raw_read(&raw, false, SOON_MS);
        status = answer.status;
        raw_answer_free(&answer);
        raw_close(&raw);
    }
    ck_assert_uint_eq(status, 200);
    serve_end();
    unlink(certificate);
    unlink(key);
}

SUITE(places)
