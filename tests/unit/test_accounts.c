/* test_accounts.c: what API keys may take: limits under 32 threads, requests by the second, limits
 * that change, and sessions that count for their owners. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attn.h"
#include "attn_state.h"
#include "config/keys.h"
#include "scratch.h"
#include "session/models.h"
#include "session/session.h"
#include "suites.h"

#define THREADS 32
#define TURNS 500000
#define LIMIT 1000
#define ROOM 100
#define SECOND_NS UINT64_C(1000000000)

static struct srv_account account;

static void set_limit(enum srv_quota quota, size_t limit)
{
    account = (struct srv_account){.name = "a"};
    for (size_t i = 0; i < SRV_QUOTAS; i++)
        atomic_init(&account.limits[i], i == quota ? limit : SRV_NO_QUOTA);
}

static void run_threads(void *(*work)(void *), void *context)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, context), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static atomic_size_t held, highest;

static void note_held(size_t now)
{
    size_t high = atomic_load(&highest);
    while (now > high && !atomic_compare_exchange_weak(&highest, &high, now))
        ;
}

/* Takes and returns amounts of 1 to 97, of which there is room for two or so; what threads hold
 * together is counted beside the account, after taking and before returning, so that the count is
 * never above what was taken. */
static void *take_and_return(void *seed)
{
    unsigned state = (unsigned)atomic_fetch_add((atomic_size_t *)seed, 1);
    for (size_t i = 0; i < TURNS; i++) {
        size_t amount = 1 + (state = state * 1103515245 + 12345) / 65536 % 97;
        if (!srv_account_charge(&account, SRV_QUOTA_CACHE, amount))
            continue;
        note_held(atomic_fetch_add(&held, amount) + amount);
        atomic_fetch_sub(&held, amount);
        srv_account_uncharge(&account, SRV_QUOTA_CACHE, amount);
    }
    return NULL;
}

TEST(accounts_32_threads_pass_no_limit_and_leave_nothing_taken)
{
    atomic_size_t seed = 1;
    set_limit(SRV_QUOTA_CACHE, LIMIT);
    ck_assert(srv_account_charge(&account, SRV_QUOTA_CACHE, LIMIT - ROOM));
    run_threads(take_and_return, &seed);
    ck_assert_uint_le(highest, ROOM);
    ck_assert_uint_eq(account.used[SRV_QUOTA_CACHE], LIMIT - ROOM);
}

static void *take_ones(void *taken)
{
    for (size_t i = 0; i < TURNS; i++)
        if (srv_account_charge(&account, SRV_QUOTA_SESSIONS, 1))
            atomic_fetch_add((atomic_size_t *)taken, 1);
    return NULL;
}

TEST(accounts_exactly_the_limit_can_be_taken)
{
    atomic_size_t taken = 0;
    set_limit(SRV_QUOTA_SESSIONS, LIMIT);
    run_threads(take_ones, &taken);
    ck_assert_uint_eq(taken, LIMIT);
    ck_assert(!srv_account_has(&account, SRV_QUOTA_SESSIONS, 1));
    ck_assert(!srv_account_charge(&account, SRV_QUOTA_SESSIONS, 1));
    ck_assert(!srv_account_charge(&account, SRV_QUOTA_SESSIONS, SIZE_MAX));
}

TEST(accounts_a_lower_limit_takes_nothing_away_and_lets_nothing_grow)
{
    set_limit(SRV_QUOTA_CACHE, 100);
    ck_assert(srv_account_charge(&account, SRV_QUOTA_CACHE, 90));
    atomic_store(&account.limits[SRV_QUOTA_CACHE], 50);
    ck_assert(!srv_account_charge(&account, SRV_QUOTA_CACHE, 1));
    srv_account_uncharge(&account, SRV_QUOTA_CACHE, 45);
    ck_assert(srv_account_charge(&account, SRV_QUOTA_CACHE, 5));
    ck_assert(!srv_account_charge(&account, SRV_QUOTA_CACHE, 1));
}

/* ---- Requests by the second ------------------------------------------------------------------ */

static size_t take_all(uint64_t now_ns, size_t most)
{
    size_t taken = 0;
    while (taken < most && srv_account_admit_request(&account, now_ns))
        taken++;
    return taken;
}

TEST_EACH(accounts_a_second_s_requests_may_come_at_once_and_no_more, 7)
{
    static const size_t limits[] = {1, 2, 3, 7, 100, 999, 1000000};
    size_t limit = limits[_i];
    uint64_t now = 5 * SECOND_NS;
    set_limit(SRV_QUOTA_REQUESTS, limit);
    ck_assert_uint_eq(take_all(now, 2 * limit), limit);
    ck_assert_uint_eq(take_all(now + SECOND_NS / limit / 2, 2), 0);
    ck_assert_uint_le(take_all(now + SECOND_NS / 2, 2 * limit), limit / 2);
    ck_assert_uint_eq(take_all(now + 10 * SECOND_NS, 2 * limit), limit);
}

static void *take_at_one_time(void *taken)
{
    atomic_fetch_add((atomic_size_t *)taken, take_all(7 * SECOND_NS, TURNS));
    return NULL;
}

TEST(accounts_requests_of_32_threads_are_counted_together)
{
    atomic_size_t taken = 0;
    set_limit(SRV_QUOTA_REQUESTS, LIMIT);
    run_threads(take_at_one_time, &taken);
    ck_assert_uint_eq(taken, LIMIT);
    ck_assert_uint_eq(account.requests, LIMIT);
}

/* ---- The file of keys ------------------------------------------------------------------------ */

#define KEY "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ENTRY(name, more) \
    "{\"name\":\"" name "\",\"key\":\"" KEY name "\",\"scopes\":[\"infer\"]" more "}"

static struct srv_keyring ring = SRV_KEYRING_EMPTY;

static void read_file(const char *text, size_t keys)
{
    char directory[SCRATCH_PATH], path[SCRATCH_PATH + 16], message[SRV_MESSAGE_MAX];
    scratch_make(directory);
    snprintf(path, sizeof path, "%s/keys.json", directory);
    scratch_write(directory, "keys.json", text, strlen(text));
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_uint_eq(srv_keyring_read(&ring, path, message), keys);
    scratch_remove(directory);
}

static void expect_limits(const char *name, size_t sessions, size_t requests)
{
    const struct srv_account *found = srv_accounts_get(&ring.accounts, name);
    ck_assert_uint_eq(srv_account_limit(found, SRV_QUOTA_SESSIONS), sessions);
    ck_assert_uint_eq(srv_account_limit(found, SRV_QUOTA_REQUESTS), requests);
}

TEST(accounts_have_the_limits_of_the_file_its_defaults_or_none)
{
    read_file("{\"keys\":[" ENTRY("b", ",\"max_sessions\":5") "," ENTRY(
                  "c", "") "],"
                           "\"defaults\":{\"max_sessions\":9}}",
              2);
    expect_limits("b", 5, SRV_NO_QUOTA);
    expect_limits("c", 9, SRV_NO_QUOTA);
    expect_limits("gone", 9, SRV_NO_QUOTA);
    struct srv_account *b = srv_accounts_get(&ring.accounts, "b");
    ck_assert(srv_account_charge(b, SRV_QUOTA_SESSIONS, 3));
    read_file(
        "{\"keys\":[" ENTRY("c", ",\"requests_per_s\":7") "],"
                                                          "\"defaults\":{\"requests_per_s\":2}}",
        1);
    ck_assert_ptr_eq(srv_accounts_get(&ring.accounts, "b"), b);
    ck_assert_uint_eq(b->used[SRV_QUOTA_SESSIONS], 3);
    expect_limits("b", SRV_NO_QUOTA, 2);
    expect_limits("c", SRV_NO_QUOTA, 7);
    read_file("{\"keys\":[" ENTRY("b", "") "],\"defaults\":{\"max_sessions\":0}}", 0);
    read_file("{\"keys\":[" ENTRY("b", ",\"max_ttl_s\":1.5") "]}", 0);
    read_file("{\"keys\":[" ENTRY("b", ",\"requests_per_s\":1000001") "]}", 0);
    read_file("{\"keys\":[" ENTRY("b", ",\"cache_bytes\":1125899906842625") "]}", 0);
    expect_limits("c", SRV_NO_QUOTA, 7);
    ck_assert_ptr_null(srv_accounts_get(&ring.accounts, ""));
    srv_keyring_fini(&ring);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

#define BLOCK 4096 /* bytes of 64 tokens: a head's keys and values of 8 components in float32 */

static struct srv_model model;
static struct srv_sessions *sessions;
static struct srv_error error;

static void open_table(void)
{
    static const struct srv_limits limits = {.max_sessions = 100, .session_ttl_s = 100};
    static const char random[] = "{\"hidden_size\":8,\"num_attention_heads\":1,\"seed\":1}";
    struct attn_error cause = {0};
    ck_assert_int_eq(attn_cache_pool_new(&model.pool, 1 << 20), ATTN_OK);
    ck_assert_int_eq(attn_model_open_random(&model.attn, random, sizeof random - 1, NULL, &cause),
                     ATTN_OK);
    attn_model_describe(&model.info, model.attn);
    model.max_length = 1000;
    ck_assert(srv_sessions_open(&sessions, &limits, "here"));
    read_file(
        "{\"keys\":[" ENTRY(
            "b", ",\"max_sessions\":2,\"cache_bytes\":8192,\"max_ttl_s\":50") "," ENTRY("c",
                                                                                        "") "]}",
        2);
}

static void close_table(void)
{
    srv_sessions_close(sessions);
    for (size_t i = 0; i < ring.accounts.count; i++)
        ck_assert_uint_eq(ring.accounts.items[i]->used[SRV_QUOTA_CACHE], 0);
    srv_keyring_fini(&ring);
    attn_model_close(model.attn);
    attn_cache_pool_free(model.pool);
}

static enum srv_error_code create(struct srv_session **out, const char *owner, const char *id,
                                  size_t ttl_s)
{
    const struct srv_session_options options = {.id = id, .ttl_s = ttl_s, .owner = owner};
    error = (struct srv_error){0};
    return srv_session_create(out, sessions, &model, &options, &error);
}

static void expect_refused(enum srv_error_code code, const char *name)
{
    ck_assert_int_eq(code, SRV_E_QUOTA);
    ck_assert_str_eq(error.param, name);
}

CASE(table, open_table, close_table, 0)

TEST(accounts_sessions_count_for_their_owner_until_they_end)
{
    struct srv_session *first, *second, *other;
    const struct srv_account *b = srv_accounts_get(&ring.accounts, "b");
    srv_sessions_set_accounts(sessions, &ring.accounts);
    ck_assert_int_eq(create(&first, "b", "1", 0), SRV_OK);
    ck_assert_uint_eq(first->ttl_ns, 50 * SECOND_NS);
    ck_assert_int_eq(create(&second, "b", "2", 50), SRV_OK);
    expect_refused(create(&other, "b", "3", 51), "max_ttl_s");
    expect_refused(create(&other, "b", "3", 0), "max_sessions");
    ck_assert_int_eq(create(&other, "b", "1", 0), SRV_E_SESSION_EXISTS);
    ck_assert_int_eq(create(&other, "c", "1", 51), SRV_OK);
    ck_assert_uint_eq(b->used[SRV_QUOTA_SESSIONS], 2);
    ck_assert_uint_eq(b->refused[SRV_QUOTA_SESSIONS], 1);
    srv_session_put(other);
    ck_assert(srv_session_remove(sessions, first));
    ck_assert(!srv_session_remove(sessions, first));
    srv_session_put(first);
    ck_assert_uint_eq(b->used[SRV_QUOTA_SESSIONS], 1);
    ck_assert_int_eq(create(&first, "b", "3", 0), SRV_OK);
    srv_session_put(first);
    srv_session_put(second);
}

TEST(accounts_blocks_count_until_their_last_holder_lets_go)
{
    struct srv_session *session;
    const struct srv_account *b = srv_accounts_get(&ring.accounts, "b");
    srv_sessions_set_accounts(sessions, &ring.accounts);
    ck_assert_int_eq(create(&session, "b", "1", 0), SRV_OK);
    size_t bytes = attn_cache_layer_bytes(session->cache, 0, 65);
    ck_assert_uint_eq(bytes, 2 * BLOCK);
    ck_assert_uint_eq(attn_cache_layer_bytes(session->cache, 1, 65), 0);
    ck_assert_int_eq(srv_session_charge(session, bytes, &error), SRV_OK);
    expect_refused(srv_session_charge(session, 1, &error), "cache_bytes");
    ck_assert_uint_eq(b->used[SRV_QUOTA_CACHE], 2 * BLOCK);
    srv_session_uncharge(session, BLOCK);
    ck_assert(srv_session_remove(sessions, session));
    ck_assert_uint_eq(b->used[SRV_QUOTA_CACHE], BLOCK); /* a step may run over the session still */
    srv_session_put(session);
    ck_assert_uint_eq(b->used[SRV_QUOTA_CACHE], 0);
}

/* As at a start: sessions are restored first, whatever the limits, and then counted. */
TEST(accounts_restored_sessions_count_whatever_the_limits)
{
    struct srv_session *session;
    struct srv_error cause = {0};
    static float zeros[100 * 8];
    struct attn_error attn = {0};
    const struct srv_account *b = srv_accounts_get(&ring.accounts, "b");
    for (int i = 0; i < 3; i++) {
        char id[2] = {(char)('1' + i), '\0'};
        ck_assert_int_eq(create(&session, "b", id, 99), SRV_OK);
        ck_assert_int_eq(attn_cache_write(session->cache, 0, 100, zeros, zeros, &attn), ATTN_OK);
        srv_session_put(session);
    }
    srv_sessions_set_accounts(sessions, &ring.accounts);
    ck_assert_uint_eq(b->used[SRV_QUOTA_SESSIONS], 3);
    ck_assert_uint_eq(b->used[SRV_QUOTA_CACHE], 6 * BLOCK);
    expect_refused(create(&session, "b", "4", 0), "max_sessions");
    session = srv_session_peek_owned(sessions, "b", "1");
    ck_assert_int_eq(srv_session_charge(session, 1, &cause), SRV_E_QUOTA);
    srv_session_truncate(session, &(struct srv_revision){.number = 1, .length = 64});
    ck_assert_uint_eq(b->used[SRV_QUOTA_CACHE], 5 * BLOCK);
    srv_session_put(session);
}

SUITE(accounts)
