/* test_wrong_keys.c: wrong API keys by the thousand from one address: their answers come at a
 * bounded rate, nobody with a right key notices, also behind that address, and the daemon can
 * stop. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WRONG "Authorization: Bearer wrong-0123456789abcdef0123456789abcdef"
#define RIGHT "Authorization: Bearer " KEY_BOTH
#define AT_ONCE 10 /* wrong keys that are answered at once */
#define PER_S 10   /* answers a second beyond */
#define THREADS 16
#define FLOOD_S 3.0
#define RIGHT_MOST_S 0.5 /* for a right key in the middle of it, on a machine that is shared */

static char keys_path[SECRET_PATH];

static void begin(void)
{
    char variable[96];
    const char *const variables[] = {variable, NULL};
    secret_write(keys_path, KEYS_THREE);
    snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", keys_path);
    daemon_start(&served, CONFIG_SMALL(""), NULL, variables);
    client_open(&client, &served);
}

static void end(void)
{
    serve_end();
    unlink(keys_path);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double stop_s;
static atomic_size_t answers, others, ends;

/* Sends wrong keys, each on a new connection where the last one was ended. */
static void *flood(void *context)
{
    struct client own;
    struct answer answer;
    const char *const headers[] = {WRONG, NULL};
    (void)context;
    client_open(&own, &served);
    while (now_s() < stop_s) {
        bool answered =
            client_try(&answer, &own,
                       &(struct request){.method = "GET", .path = "/models", .headers = headers});
        atomic_fetch_add(!answered ? &ends : answer.status == 401 ? &answers : &others, 1);
        answer_free(&answer);
    }
    client_close(&own);
    return NULL;
}

START_TEST(test_wrong_keys_are_slowed_and_right_ones_from_that_address_are_not)
{
    pthread_t threads[THREADS];
    const char *const headers[] = {RIGHT, NULL};
    double start = now_s(), slowest = 0;
    size_t served_right = 0;
    stop_s = start + FLOOD_S;
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, flood, NULL), 0);
    for (double from = now_s(); from < stop_s; from = now_s(), served_right++) {
        struct answer answer = client_send(
            &client, &(struct request){.method = "GET", .path = "/models", .headers = headers});
        expect_answer(&answer, 200, NULL, "a right key");
        answer_free(&answer);
        double took = now_s() - from;
        slowest = took > slowest ? took : slowest;
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    double took = now_s() - start;
    printf("wrong_keys: %zu answered in %.1f s, %zu ended; %zu right ones, slowest %.1f ms\n",
           (size_t)answers, took, (size_t)ends, served_right, slowest * 1e3);
    ck_assert_uint_eq(others, 0);
    ck_assert_uint_ge(answers, AT_ONCE);
    ck_assert_double_le((double)answers, AT_ONCE + PER_S * (took + 1));
    ck_assert_uint_gt(served_right, 100);
    ck_assert_msg(slowest < RIGHT_MOST_S || INSTRUMENTED, "%.3f s", slowest);
}
END_TEST

/* The answer to the eleventh comes after a second, as a whole, and ends the connection. */
START_TEST(test_a_slowed_answer_is_the_usual_one)
{
    static const char request[] = "POST /attend HTTP/1.1\r\nHost: x\r\n" WRONG "\r\n"
                                  "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    for (size_t i = 0; i <= AT_ONCE; i++) {
        double start = now_s();
        struct raw_answer answer = raw_exchange("127.0.0.1", served.port, request, 60000);
        double took = now_s() - start;
        ck_assert_uint_eq(answer.status, 401);
        ck_assert_ptr_nonnull(strstr(answer.body, "this API key is not known"));
        ck_assert_ptr_nonnull(strstr(answer.head, "WWW-Authenticate: Bearer"));
        ck_assert_msg(i < AT_ONCE ? took < 1 : took >= 1, "%zu: %.3f s", i, took);
        ck_assert((i == AT_ONCE) <= (strstr(answer.head, "Connection: close") != NULL));
        raw_answer_free(&answer);
    }
}
END_TEST

/* No key at all is no attempt at one. */
START_TEST(test_requests_without_a_key_are_answered_at_once)
{
    double start = now_s();
    for (size_t i = 0; i < 10 * AT_ONCE; i++) {
        struct answer answer = client_get(&client, "/models");
        expect_answer(&answer, 401, "unauthorized", "no key");
        answer_free(&answer);
    }
    ck_assert_double_lt(now_s() - start, 5);
}
END_TEST

static void hold_some(struct raw held[], size_t count)
{
    static const char request[] = "GET /models HTTP/1.1\r\nHost: x\r\n" WRONG "\r\n\r\n";
    for (size_t i = 0; i < count; i++) {
        raw_open(&held[i], "127.0.0.1", served.port);
        ck_assert(raw_text(&held[i], request));
    }
    pause_ms(100);
}

/* An attempt that would wait too long gets no answer, and its end tells it nothing at once. */
START_TEST(test_an_attempt_beyond_the_longest_wait_ends_after_a_second)
{
    struct raw held[AT_ONCE + 150];
    size_t count = sizeof held / sizeof held[0];
    double start = now_s();
    hold_some(held, count);
    struct raw *last = &held[count - 1];
    ck_assert(raw_read_to_end(last, 60000));
    double took = now_s() - start;
    ck_assert_msg(last->length == 0 && took >= 1, "%zu bytes after %.3f s", last->length, took);
    for (size_t i = 0; i < count; i++)
        raw_close(&held[i]);
}
END_TEST

START_TEST(test_a_held_answer_to_head_has_no_body)
{
    static const char request[] = "HEAD /models HTTP/1.1\r\nHost: x\r\n" WRONG "\r\n\r\n";
    struct raw held[AT_ONCE], raw;
    hold_some(held, AT_ONCE);
    raw_open(&raw, "127.0.0.1", served.port);
    ck_assert(raw_text(&raw, request));
    struct raw_answer answer = raw_read(&raw, true, 60000);
    ck_assert_uint_eq(answer.status, 401);
    ck_assert(raw_read_to_end(&raw, 60000));
    ck_assert_uint_eq(raw.length, 0);
    raw_answer_free(&answer);
    raw_close(&raw);
    for (size_t i = 0; i < AT_ONCE; i++)
        raw_close(&held[i]);
}
END_TEST

/* Some connections are held, some of them have been left by their clients. */
START_TEST(test_the_daemon_stops_while_requests_are_held)
{
    struct raw held[AT_ONCE + 60];
    size_t count = sizeof held / sizeof held[0];
    hold_some(held, count);
    for (size_t i = 0; i < count; i += 3)
        raw_reset(&held[i]);
    double start = now_s();
    serve_end();
    ck_assert_double_lt(now_s() - start, 5);
    unlink(keys_path);
    for (size_t i = 0; i < count; i++)
        if (i % 3 != 0)
            raw_close(&held[i]);
    begin();
}
END_TEST

START_TEST(test_the_daemon_stops_at_once_while_requests_are_held)
{
    static const char *const arguments[] = {"--drain-timeout-s=0", "--api-keys", keys_path, NULL};
    struct raw held[AT_ONCE + 60];
    size_t count = sizeof held / sizeof held[0];
    end();
    secret_write(keys_path, KEYS_THREE);
    daemon_start(&served, CONFIG_SMALL(""), arguments, NULL);
    client_open(&client, &served);
    hold_some(held, count);
    serve_end();
    for (size_t i = 0; i < count; i++)
        raw_close(&held[i]);
    unlink(keys_path);
    begin();
}
END_TEST

Suite *suite_wrong_keys(void)
{
    Suite *suite = suite_create("wrong_keys");
    TCase *attempts = tcase_create("attempts");
    tcase_set_timeout(attempts, 120);
    tcase_add_checked_fixture(attempts, begin, end);
    tcase_add_test(attempts, test_wrong_keys_are_slowed_and_right_ones_from_that_address_are_not);
    tcase_add_test(attempts, test_a_slowed_answer_is_the_usual_one);
    tcase_add_test(attempts, test_requests_without_a_key_are_answered_at_once);
    tcase_add_test(attempts, test_an_attempt_beyond_the_longest_wait_ends_after_a_second);
    tcase_add_test(attempts, test_a_held_answer_to_head_has_no_body);
    tcase_add_test(attempts, test_the_daemon_stops_while_requests_are_held);
    tcase_add_test(attempts, test_the_daemon_stops_at_once_while_requests_are_held);
    suite_add_tcase(suite, attempts);
    return suite;
}
