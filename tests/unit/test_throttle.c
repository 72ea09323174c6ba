/* test_throttle.c: when a wrong API key is answered, by address. */
#include <arpa/inet.h>
#include <check.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http_throttle.h"
#include "suites.h"

#define SECOND UINT64_C(1000000000)
#define START (1000 * SECOND)

static struct srv_throttle throttle;

static void set_up(void)
{
    memset(&throttle, 0, sizeof throttle);
    throttle = (struct srv_throttle){.lock = PTHREAD_MUTEX_INITIALIZER, .seed = 4711};
}

/* How many of `count` wrong keys at one time are answered at once. */
static size_t at_once(uint64_t address, uint64_t now_ns, size_t count)
{
    size_t answered = 0;
    for (size_t i = 0; i < count; i++)
        answered += srv_throttle_wrong_key(&throttle, address, now_ns) == 0;
    return answered;
}

START_TEST(test_throttle_ten_a_minute_are_answered_at_once)
{
    ck_assert_uint_eq(at_once(1, START, 11), 10);
    ck_assert_uint_eq(at_once(1, START + 5 * SECOND, 5), 0);
    ck_assert_uint_eq(at_once(1, START + 12 * SECOND, 5), 2);
    ck_assert_uint_eq(at_once(1, START + 72 * SECOND, 20), 10);
    ck_assert_uint_eq(at_once(2, START, 11), 10);
}
END_TEST

START_TEST(test_throttle_answers_beyond_are_a_tenth_of_a_second_apart_or_never)
{
    uint64_t last = START + 9 * SECOND / 10;
    at_once(1, START, 10);
    for (size_t i = 0; i < 91; i++) {
        uint64_t when = srv_throttle_wrong_key(&throttle, 1, START);
        ck_assert_uint_eq(when, last + SECOND / 10);
        last = when;
    }
    ck_assert_uint_eq(srv_throttle_wrong_key(&throttle, 1, START), SRV_THROTTLE_NEVER);
    ck_assert_uint_eq(srv_throttle_wrong_key(&throttle, 1, START + SECOND / 10),
                      last + SECOND / 10);
    ck_assert_uint_eq(srv_throttle_wrong_key(&throttle, 2, START), 0);
}
END_TEST

/* A minute of 100,000 a second: what is answered is what the two rates allow. */
START_TEST(test_throttle_a_flood_gets_no_more_than_the_rates_and_is_forgiven_in_a_minute)
{
    size_t answered = 0;
    for (uint64_t i = 0; i < 600000; i++)
        answered += srv_throttle_wrong_key(&throttle, 9, START + i * (SECOND / 10000)) !=
                    SRV_THROTTLE_NEVER;
    ck_assert_uint_le(answered, 10 + 10 + 10 * (60 + 10));
    ck_assert_uint_ge(answered, 10 * 60);
    ck_assert_uint_eq(at_once(9, START + 121 * SECOND, 20), 10);
}
END_TEST

/* Any number of addresses takes the same room, and one that is slowed stays so among others. */
START_TEST(test_throttle_forgets_the_address_that_was_slow_longest_ago)
{
    at_once(1, START + 500 * SECOND, 20);
    for (uint64_t i = 2; i < 200000; i++)
        ck_assert_uint_eq(srv_throttle_wrong_key(&throttle, i, START + i), 0);
    ck_assert_uint_eq(at_once(1, START + 500 * SECOND, 5), 0);
}
END_TEST

static uint64_t address_of(int family, const char *text)
{
    struct sockaddr_storage peer = {.ss_family = (sa_family_t)family};
    void *to = family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)&peer)->sin6_addr
                                  : (void *)&((struct sockaddr_in *)(void *)&peer)->sin_addr;
    ck_assert_int_eq(inet_pton(family, text, to), 1);
    return srv_throttle_address((struct sockaddr *)&peer);
}

START_TEST(test_throttle_addresses_are_ipv4_or_64_bits_of_ipv6)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    ck_assert_uint_eq(address_of(AF_INET, "192.0.2.1"), 0xc0000201);
    ck_assert_uint_eq(address_of(AF_INET6, "::ffff:192.0.2.1"), 0xc0000201);
    ck_assert_uint_eq(address_of(AF_INET6, "2001:db8:1:2::1"), UINT64_C(0x20010db800010002));
    ck_assert_uint_eq(address_of(AF_INET6, "2001:db8:1:2:3:4:5:6"), UINT64_C(0x20010db800010002));
    ck_assert_uint_ne(address_of(AF_INET6, "2001:db8:1:3::1"), UINT64_C(0x20010db800010002));
    ck_assert_uint_eq(srv_throttle_address(&none), 0);
}
END_TEST

Suite *suite_throttle(void)
{
    Suite *suite = suite_create("throttle");
    TCase *attempts = tcase_create("attempts");
    tcase_add_checked_fixture(attempts, set_up, NULL);
    tcase_add_test(attempts, test_throttle_ten_a_minute_are_answered_at_once);
    tcase_add_test(attempts, test_throttle_answers_beyond_are_a_tenth_of_a_second_apart_or_never);
    tcase_add_test(attempts,
                   test_throttle_a_flood_gets_no_more_than_the_rates_and_is_forgiven_in_a_minute);
    tcase_add_test(attempts, test_throttle_forgets_the_address_that_was_slow_longest_ago);
    tcase_add_test(attempts, test_throttle_addresses_are_ipv4_or_64_bits_of_ipv6);
    suite_add_tcase(suite, attempts);
    return suite;
}
