/* test_shares.c: what the requests of one address or API key may hold in flight: never a byte more
 * than max_client_in_flight_bytes under 32 threads, but for a request that is the only one. */
#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/exchange.h"
#include "suites.h"
#include "wire/request.h"
#include "wire/route.h"

#define THREADS 32
#define TURNS 100000
#define SHARE 1000
#define DAEMON ((size_t)1 << 30)

static struct srv_limits limits;
static struct srv_budget in_flight;
static struct srv_clients clients;
static struct srv_account account;

static void set_up(void)
{
    limits =
        (struct srv_limits){.max_in_flight_bytes = DAEMON, .max_client_in_flight_bytes = SHARE};
    in_flight = (struct srv_budget){.limit = DAEMON};
    memset(&clients, 0, sizeof clients);
    clients.seed = 4711;
    account = (struct srv_account){.name = "a"};
    for (size_t i = 0; i < SRV_QUOTAS; i++)
        atomic_init(&account.limits[i], SRV_NO_QUOTA);
}

static struct srv_request request_of(uint64_t address, struct srv_account *of)
{
    return (struct srv_request){.limits = &limits,
                                .in_flight = &in_flight,
                                .client_bytes = srv_clients_bytes(&clients, address),
                                .key.account = of};
}

/* ---- Threads --------------------------------------------------------------------------------- */

static atomic_size_t held, highest, seeds, refused;
static struct srv_account *account_of_all;

static void note_held(size_t now)
{
    size_t high = atomic_load(&highest);
    while (now > high && !atomic_compare_exchange_weak(&highest, &high, now))
        ;
}

/* Requests of three pieces of 1 to 97 bytes.  What all hold is counted beside the counter under
 * test, after charging and before the request ends, so that it is never above what was granted. */
static void *charge_and_end(void *unused)
{
    unsigned state = (unsigned)atomic_fetch_add(&seeds, 1);
    (void)unused;
    for (size_t i = 0; i < TURNS; i++) {
        struct srv_request request = request_of(1, account_of_all);
        for (size_t piece = 0; piece < 3; piece++) {
            size_t bytes = 1 + (state = state * 1103515245 + 12345) / 65536 % 97;
            if (srv_request_charge(&request, bytes))
                note_held(atomic_fetch_add(&held, bytes) + bytes);
            else
                atomic_fetch_add(&refused, 1);
        }
        atomic_fetch_sub(&held, request.charged);
        srv_request_uncharge(&request);
    }
    return NULL;
}

/* A request of another thread holds `taken` all the time, so that no other is ever alone. */
static void run_threads(struct srv_account *of)
{
    pthread_t threads[THREADS];
    struct srv_request first = request_of(1, of);
    const size_t taken = SHARE - 100;
    held = highest = refused = 0;
    account_of_all = of;
    ck_assert(srv_request_charge(&first, taken));
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, charge_and_end, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_le(highest, SHARE - taken);
    ck_assert_uint_gt(highest, 0);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_eq(in_flight.used, taken);
    srv_request_uncharge(&first);
    ck_assert_uint_eq(in_flight.used, 0);
    ck_assert_uint_eq(*srv_clients_bytes(&clients, 1), 0);
    ck_assert_uint_eq(account.used[SRV_QUOTA_IN_FLIGHT], 0);
}

CASE(shares, set_up, NULL, 120)

TEST(shares_32_threads_of_an_address_never_pass_it_by_a_byte) { run_threads(NULL); }

TEST(shares_32_threads_of_a_key_never_pass_it_by_a_byte) { run_threads(&account); }

TEST(shares_32_threads_of_a_key_never_pass_its_own_limit)
{
    limits.max_client_in_flight_bytes = DAEMON;
    atomic_store(&account.limits[SRV_QUOTA_IN_FLIGHT], SHARE);
    run_threads(&account);
}

/* ---- One request ----------------------------------------------------------------------------- */

TEST(shares_are_to_the_byte)
{
    struct srv_request a = request_of(1, NULL), b = request_of(1, NULL);
    ck_assert(srv_request_charge(&a, SHARE - 10));
    ck_assert(srv_request_client_allows(&b, 10) && srv_request_charge(&b, 10));
    struct srv_request c = request_of(1, NULL), other = request_of(2, NULL);
    ck_assert(!srv_request_client_allows(&c, 1) && !srv_request_charge(&c, 1));
    ck_assert(!srv_request_charge(&a, 1) && !srv_request_charge(&b, SIZE_MAX));
    ck_assert(srv_request_charge(&other, SHARE));
    srv_request_uncharge(&b);
    ck_assert(srv_request_charge(&c, 10) && !srv_request_charge(&c, 1));
}

TEST(shares_do_not_bound_a_request_that_is_alone)
{
    struct srv_request a = request_of(1, NULL), b = request_of(1, NULL);
    ck_assert(srv_request_client_allows(&a, 3 * SHARE));
    ck_assert(srv_request_charge(&a, 3 * SHARE) && srv_request_charge(&a, SHARE));
    ck_assert(!srv_request_client_allows(&b, 1) && !srv_request_charge(&b, 1));
    ck_assert(!srv_request_charge(&a, DAEMON));
    ck_assert_uint_eq(*srv_clients_bytes(&clients, 1), 4 * SHARE);
    srv_request_uncharge(&a);
    ck_assert(srv_request_charge(&b, 1) && !srv_request_charge(&a, SHARE));
}

TEST(shares_of_keys_are_theirs_and_not_the_address_s)
{
    struct srv_account second = account;
    struct srv_request a = request_of(1, &account), b = request_of(1, &second);
    struct srv_request same = request_of(2, &account);
    ck_assert(srv_request_charge(&a, SHARE) && srv_request_charge(&b, SHARE));
    ck_assert(!srv_request_charge(&same, 1));
    ck_assert_uint_eq(*srv_clients_bytes(&clients, 1), 0);
}

TEST(shares_give_way_to_a_limit_of_the_key)
{
    struct srv_request a = request_of(1, &account), b = request_of(1, &account);
    atomic_store(&account.limits[SRV_QUOTA_IN_FLIGHT], 2 * SHARE);
    ck_assert(!srv_request_charge(&a, 2 * SHARE + 1) && a.over_quota && !a.over_client_limit);
    ck_assert(srv_request_charge(&a, SHARE) && srv_request_charge(&b, SHARE));
    ck_assert(!srv_request_charge(&b, 1) && b.over_quota);
    atomic_store(&account.limits[SRV_QUOTA_IN_FLIGHT], SRV_NO_QUOTA); /* as SIGHUP does */
    ck_assert(!srv_request_charge(&b, 1) && b.over_client_limit && !b.over_quota);
    srv_request_uncharge(&a);
    srv_request_uncharge(&b);
    ck_assert_uint_eq(account.used[SRV_QUOTA_IN_FLIGHT], 0);
}

TEST(shares_leave_room_for_probes)
{
    static const struct srv_route probe = {.while_draining = true};
    struct srv_request a = request_of(1, NULL), b = request_of(1, NULL), c = b;
    struct srv_request d = request_of(2, NULL);
    ck_assert(srv_request_charge(&a, SHARE));
    b.route = &probe;
    c.route = &probe;
    ck_assert(srv_request_charge(&b, SRV_PROBE_BYTES) && !srv_request_charge(&c, 1));
    ck_assert(srv_request_charge(&d, SHARE - 1) && srv_request_charge(&d, 1));
    srv_request_uncharge(&b);
    ck_assert(srv_request_charge(&c, SRV_PROBE_BYTES));
    ck_assert_uint_eq(srv_clients_bytes(&clients, 1)[0], SHARE);
}

/* What the daemon's own bound refuses is not left counted for the client. */
TEST(shares_get_back_what_the_daemon_has_no_room_for)
{
    struct srv_request a = request_of(1, NULL), b = request_of(2, NULL);
    in_flight.limit = SHARE;
    ck_assert(srv_request_charge(&a, SHARE - 1));
    ck_assert(!srv_request_charge(&b, 2) && !b.over_client_limit);
    ck_assert_uint_eq(*srv_clients_bytes(&clients, 2), 0);
}

TEST(shares_spread_addresses_by_a_secret)
{
    static size_t counts[SRV_CLIENT_COUNTERS];
    size_t most = 0, moved = 0;
    for (uint64_t address = 0; address < 5 * SRV_CLIENT_COUNTERS; address++) {
        clients.seed = 4711;
        atomic_size_t *at = srv_clients_bytes(&clients, address << 32);
        size_t place = (size_t)(at - clients.bytes[0]) / 2;
        ck_assert_uint_lt(place, SRV_CLIENT_COUNTERS);
        size_t now = ++counts[place];
        most = now > most ? now : most;
        clients.seed = 4712;
        moved += srv_clients_bytes(&clients, address << 32) != at;
    }
    ck_assert_uint_le(most, 25); /* of 5 in the mean */
    ck_assert_uint_gt(moved, 5 * SRV_CLIENT_COUNTERS * 9 / 10);
}

static uint64_t address_of(int family, const char *text)
{
    struct sockaddr_storage peer = {.ss_family = (sa_family_t)family};
    void *to = family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)(void *)&peer)->sin6_addr
                                  : (void *)&((struct sockaddr_in *)(void *)&peer)->sin_addr;
    ck_assert_int_eq(inet_pton(family, text, to), 1);
    return srv_client_address((struct sockaddr *)&peer);
}

TEST(shares_addresses_are_ipv4_or_64_bits_of_ipv6)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    ck_assert_uint_eq(address_of(AF_INET, "192.0.2.1"), 0xc0000201);
    ck_assert_uint_eq(address_of(AF_INET6, "::ffff:192.0.2.1"), 0xc0000201);
    ck_assert_uint_eq(address_of(AF_INET6, "2001:db8:1:2::1"), UINT64_C(0x20010db800010002));
    ck_assert_uint_eq(address_of(AF_INET6, "2001:db8:1:2:3:4:5:6"), UINT64_C(0x20010db800010002));
    ck_assert_uint_ne(address_of(AF_INET6, "2001:db8:1:3::1"), UINT64_C(0x20010db800010002));
    ck_assert_uint_eq(srv_client_address(&none), 0);
}

SUITE(shares)
