/* test_shares.c: max_client_in_flight_bytes: an address, or an API key, that does not read its
 * replies leaves the other half of the memory in flight to others. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls.h"
#include "long_call.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WIDE 1500 /* rows and keys of an attention whose weights are LARGE bytes */
#define LARGE ((double)WIDE * WIDE * 4)
#define LITTLE 8192 /* bytes that a connection takes at once of a reply that nobody reads */
#define IN_FLIGHT "\"max_in_flight_bytes\":\"64MiB\","
#define FIELD(name) "Authorization: Bearer " name "-0123456789abcdef0123456789abcdef\r\n"
#define ENTRY(name)                                                                 \
    "{\"name\":\"" name "\",\"key\":\"" name "-0123456789abcdef0123456789abcdef\"," \
    "\"scopes\":[\"infer\",\"metrics\"]"

static void open_from(struct raw *raw, const char *address)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int little = LITTLE;
    to.sin_port = htons((uint16_t)served.port);
    ck_assert_int_eq(inet_pton(AF_INET, address, &from.sin_addr), 1);
    ck_assert_int_eq(inet_pton(AF_INET, served.host, &to.sin_addr), 1);
    *raw = (struct raw){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .data = calloc(1, 1)};
    ck_assert(raw->fd >= 0 && raw->data != NULL);
    setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    ck_assert_int_eq(bind(raw->fd, (struct sockaddr *)&from, sizeof from), 0);
    ck_assert_int_eq(connect(raw->fd, (struct sockaddr *)&to, sizeof to), 0);
}

/* Sends an /attend whose weights are LARGE bytes; `fields` are lines of the head. */
static void ask_large(struct raw *raw, const char *address, const char *fields)
{
    struct text body = {0}, head = {0};
    add_weights_call(&body, WIDE);
    text_add(&head,
             "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s"
             "Accept: application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
             fields, body.length);
    open_from(raw, address);
    ck_assert(raw_send(raw, head.data, head.length) && raw_send(raw, body.data, body.length));
    text_free(&body);
    text_free(&head);
}

static void await_in_flight(double bytes)
{
    for (unsigned i = 0; call_metric(&client, "attnd_in_flight_bytes") < bytes; i++) {
        ck_assert_uint_lt(i, WAIT_MS / 5);
        pause_ms(5);
    }
}

/* Asks, and leaves the reply unread on the connection. */
static void hold_large(struct raw *raw, const char *address, const char *fields)
{
    double before = call_metric(&client, "attnd_in_flight_bytes");
    ask_large(raw, address, fields);
    await_in_flight(before + LARGE);
}

static void expect_served(const char *address, const char *fields)
{
    struct raw raw;
    ask_large(&raw, address, fields);
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_msg(answer.status == 200, "%s: %u %s", address, answer.status, answer.body);
    ck_assert_double_ge((double)answer.length, LARGE);
    raw_answer_free(&answer);
    raw_close(&raw);
}

static void expect_refused(const char *address, const char *fields, const char *whose)
{
    struct raw raw;
    char value[256];
    ask_large(&raw, address, fields);
    struct raw_answer answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_msg(answer.status == 503, "%s: %u", address, answer.status);
    ck_assert_ptr_nonnull(strstr(answer.body, "\"out_of_memory\""));
    ck_assert_ptr_nonnull(strstr(answer.body, "\"param\":\"max_client_in_flight_bytes\""));
    ck_assert_ptr_nonnull(strstr(answer.body, whose));
    ck_assert(raw_header(value, &answer, "Retry-After") && value[0] >= '1');
    raw_answer_free(&answer);
    raw_close(&raw);
}

/* By default half of what is in flight: one such reply, and not two. */
TEST(unread_replies_of_an_address_leave_another_its_half)
{
    struct raw first;
    serve(CONFIG_SMALL(IN_FLIGHT));
    hold_large(&first, "127.0.0.1", "");
    for (int i = 0; i < 2; i++)
        expect_refused("127.0.0.1", "", "of this address");
    expect_served("127.0.0.2", "");
    raw_close(&first);
    for (unsigned i = 0; call_metric(&client, "attnd_in_flight_bytes") > 0; i++) {
        ck_assert_uint_lt(i, WAIT_MS / 5);
        pause_ms(5);
    }
    expect_served("127.0.0.1", "");
    serve_end();
}

TEST(a_request_alone_may_be_larger_than_the_share)
{
    struct raw first;
    serve(CONFIG_SMALL(IN_FLIGHT "\"max_client_in_flight_bytes\":4096,"));
    expect_served("127.0.0.1", "");
    hold_large(&first, "127.0.0.1", "");
    expect_refused("127.0.0.1", "", "of this address");
    expect_served("127.0.0.2", "");
    raw_close(&first);
    serve_end();
}

/* A declared length is refused before the body: no 100 Continue. */
TEST(a_length_beyond_the_share_is_refused_before_its_body)
{
    struct raw first, second;
    serve(CONFIG_SMALL(IN_FLIGHT));
    hold_large(&first, "127.0.0.1", "");
    open_from(&second, "127.0.0.1");
    ck_assert(raw_text(&second, "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n"
                                "Content-Type: application/json\r\n"
                                "Expect: 100-continue\r\n\r\n"));
    struct raw_answer answer = raw_read(&second, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 503);
    ck_assert_ptr_nonnull(strstr(answer.body, "max_client_in_flight_bytes"));
    raw_answer_free(&answer);
    raw_close(&second);
    raw_close(&first);
    serve_end();
}

/* Keys have shares of their own wherever they come from, as behind a proxy; a limit of the key
 * stands in the place of the share. */
TEST(keys_have_shares_of_their_own)
{
    static const char keys[] = "{\"keys\":[" ENTRY("first") "}," ENTRY("other") "}," ENTRY(
        "watch") "}," ENTRY("large") ",\"max_in_flight_bytes\":47185920}]}";
    char path[SECRET_PATH], variable[96];
    const char *const variables[] = {variable, NULL};
    struct raw held[2];
    secret_write(path, keys);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    daemon_start(&served,
                 CONFIG_SMALL("\"max_in_flight_bytes\":\"128MiB\","
                              "\"max_client_in_flight_bytes\":\"12MiB\","),
                 NULL, variables);
    served.authorization = "Authorization: Bearer watch-0123456789abcdef0123456789abcdef";
    client_open(&client, &served);
    hold_large(&held[0], "127.0.0.1", FIELD("first"));
    expect_refused("127.0.0.1", FIELD("first"), "of this API key");
    expect_refused("127.0.0.2", FIELD("first"), "of this API key");
    expect_served("127.0.0.1", FIELD("other"));
    hold_large(&held[1], "127.0.0.1", FIELD("large"));
    expect_served("127.0.0.1", FIELD("large"));
    for (size_t i = 0; i < 2; i++)
        raw_close(&held[i]);
    serve_end();
    unlink(path);
}

SUITE(shares)
