/* test_gone.c: what filled the pool fills it again after a restart, with no room for anything else:
 * not for sessions that were gone before others took theirs, nor for more than each had. */
#include <check.h>
#include <stdio.h>

#include "attn_limits.h"
#include "base/clock.h"
#include "store_app.h"
#include "suites.h"

#define ROOM 7  /* sessions that the pool has blocks for, */
#define ROWS 64 /* each of one block */
#define BLOCK (ROWS * 2 * STORE_APP_WIDTH * sizeof(float))
#define LONG_NS (UINT64_C(7200) * 1000000000)

static struct srv_app app;
static struct srv_error error;

static void set_up(void)
{
    static char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"seed\":1}";
    const struct srv_config config = {
        .durability = SRV_DURABLE_JOURNAL,
        .journal_bytes = (size_t)1 << 30,
        .limits = {.max_sessions = ROOM, .max_session_length = ROWS, .session_ttl_s = 3600}};
    store_app_open(&app, &config, "tiny", random, ROOM * BLOCK);
    store_app_begin(&app);
}

static void tear_down(void)
{
    store_app_end(&app);
    store_app_close(&app);
}

static void fill(struct srv_session *session)
{
    for (size_t i = 0; i < ROWS; i++)
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
}

/* Full sessions, used so long ago: letter0, letter1 and so on. */
static void make_sessions(char letter, size_t count, uint64_t ago_ns)
{
    char id[] = {letter, '0', '\0'};
    for (size_t i = 0; i < count; i++, id[1]++) {
        struct srv_session *session = store_app_session(&app, id);
        session->used_ns -= ago_ns;
        fill(session);
        srv_session_put(session);
    }
}

static void expect_sessions(char letter, size_t count, size_t length)
{
    char id[] = {letter, '0', '\0'};
    for (size_t i = 0; i < count; i++, id[1]++)
        ck_assert_uint_eq(store_app_length(&app, id), length);
}

static void delete_session(const char *id)
{
    struct srv_session *session = srv_session_peek(app.sessions, id);
    ck_assert_int_eq(srv_store_delete(app.store, session, &error), SRV_OK);
    ck_assert(srv_session_remove(app.sessions, session));
    srv_session_put(session);
}

static void expire_all(void)
{
    struct srv_session *session = srv_sessions_expire(app.sessions, srv_now_ns() + LONG_NS), *next;
    for (; session != NULL; session = next) {
        next = session->next;
        srv_store_expire(app.store, session);
        srv_session_put(session);
    }
}

/* New sessions fill the pool, and are there after each of two restarts. */
static void expect_room(void)
{
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), 0);
    make_sessions('n', ROOM, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(store_app_find_again(&app, "n0"), ROWS);
        expect_sessions('n', ROOM, ROWS);
        expect_sessions('e', ROOM, SIZE_MAX);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* In a journal, or in files of a snapshot. */
START_TEST(test_sessions_that_expired_while_no_daemon_ran_take_no_room_later)
{
    make_sessions('e', ROOM, LONG_NS);
    if (_i == 1)
        store_app_snapshot(&app);
    ck_assert_uint_eq(store_app_find_again(&app, "e0"), SIZE_MAX);
    expect_room();
}
END_TEST

START_TEST(test_sessions_that_expired_while_the_disk_was_full_take_no_room_later)
{
    make_sessions('e', ROOM, 0);
    store_app_limit_files(1);
    expire_all();
    store_app_limit_files(RLIM_INFINITY);
    expect_room();
}
END_TEST

/* What is refused was not recorded, and the ends before it neither. */
START_TEST(test_ends_are_owed_until_something_is_recorded)
{
    make_sessions('e', ROOM, LONG_NS);
    ck_assert_uint_eq(store_app_find_again(&app, "e0"), SIZE_MAX);
    store_app_limit_files(1);
    struct srv_session *session = store_app_session(&app, "refused");
    ck_assert_int_eq(srv_store_create(app.store, session, &error), SRV_E_STORAGE);
    ck_assert(srv_session_remove(app.sessions, session));
    srv_session_put(session);
    store_app_limit_files(RLIM_INFINITY);
    expect_room();
}
END_TEST

START_TEST(test_import_that_was_abandoned_while_the_disk_was_full_takes_no_room_later)
{
    struct srv_session *session;
    struct srv_store_import import = {.begun = false};
    const struct srv_session_options options = {.id = "e0"};
    const float rows[ROWS * STORE_APP_WIDTH] = {1};
    struct attn_error cause;
    bool more = true;
    ck_assert_int_eq(
        srv_session_new(&session, app.sessions, &app.models.items[0], &options, &error), SRV_OK);
    ck_assert_int_eq(attn_cache_write(session->cache, 0, ROWS, rows, rows, &cause), ATTN_OK);
    while (more)
        ck_assert_int_eq(srv_store_import_piece(&more, app.store, &import, session, &error),
                         SRV_OK);
    store_app_limit_files(1);
    srv_store_import_abandon(app.store, &import, session);
    store_app_limit_files(RLIM_INFINITY);
    srv_session_put(session);
    expect_room();
}
END_TEST

/* Blocks of equal tokens, which a start makes one, are those of the session that is left. */
START_TEST(test_session_whose_twins_go_takes_no_more_than_it_did)
{
    char id[] = "t0";
    make_sessions('t', ROOM, 0);
    store_app_snapshot(&app);
    for (; id[1] < '0' + ROOM - 1; id[1]++)
        delete_session(id);
    make_sessions('n', ROOM - 1, 0);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), ROOM * BLOCK);
    ck_assert_uint_eq(store_app_find_again(&app, id), ROWS);
    expect_sessions('n', ROOM - 1, ROWS);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), ROOM * BLOCK);
}
END_TEST

Suite *suite_gone(void)
{
    Suite *suite = suite_create("gone");
    TCase *tests = tcase_create("gone");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_sessions_that_expired_while_no_daemon_ran_take_no_room_later, 0,
                        2);
    tcase_add_test(tests, test_sessions_that_expired_while_the_disk_was_full_take_no_room_later);
    tcase_add_test(tests, test_ends_are_owed_until_something_is_recorded);
    tcase_add_test(tests,
                   test_import_that_was_abandoned_while_the_disk_was_full_takes_no_room_later);
    tcase_add_test(tests, test_session_whose_twins_go_takes_no_more_than_it_did);
    suite_add_tcase(suite, tests);
    return suite;
}
