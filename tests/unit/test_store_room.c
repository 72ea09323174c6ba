/* test_store_room.c: sessions that filled the pool fill it again after a restart, which leaves no
 * room for sessions that were deleted before, nor for more blocks than each session had. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_limits.h"
#include "base/clock.h"
#include "store/record.h"
#include "store_app.h"
#include "suites.h"

#define ROOM 7  /* sessions that the pool has blocks for */
#define ROWS 64 /* of a session, which fill one block */
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

/* Makes full sessions that were last used so long ago: letter0, letter1 and so on. */
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
    struct srv_session *session = srv_session_peek(app.sessions, NULL, id);
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

/* New sessions fill the pool, and exist after each of two restarts. */
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

/* The sessions are in a journal, or in a snapshot. */
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

/* A record that is refused was not written, nor were the deferred deletions before it. */
START_TEST(test_deletions_are_deferred_until_something_is_recorded)
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

/* ---- Forks ----------------------------------------------------------------------------------- */

#define PLACE 16 /* bytes that a shared block takes of the pool, for each session but one */

/* A full session "p" and forks of it, "f0", "f1" and so on: all of them share its block. */
static void make_forks(size_t count)
{
    char id[] = "f0";
    struct srv_session *parent = store_app_session(&app, "p");
    fill(parent);
    for (size_t i = 0; i < count; i++, id[1]++)
        srv_session_put(store_app_fork(&app, parent, id));
    srv_session_put(parent);
}

/* Expects the forks after a restart, and after another one that reads what the first one wrote. */
static void expect_forks(size_t count, size_t used)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(store_app_find_again(&app, "f0"), ROWS);
        expect_sessions('f', count, ROWS);
        ck_assert_uint_eq(attn_cache_pool_used(app.pool), used);
        store_app_snapshot(&app);
    }
}

START_TEST(test_session_whose_forks_go_takes_no_more_than_it_did)
{
    char id[] = "f0";
    make_forks(ROOM - 1);
    store_app_snapshot(&app);
    delete_session("p");
    for (; id[1] < '0' + ROOM - 2; id[1]++)
        delete_session(id);
    make_sessions('n', ROOM - 1, 0);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), ROOM * BLOCK);
    ck_assert_uint_eq(store_app_find_again(&app, id), ROWS);
    expect_sessions('n', ROOM - 1, ROWS);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), ROOM * BLOCK);
}
END_TEST

START_TEST(test_forks_of_a_parent_that_was_deleted_share_their_blocks_again)
{
    make_forks(3);
    delete_session("p");
    store_app_snapshot(&app);
    expect_forks(3, BLOCK + 2 * PLACE);
}
END_TEST

START_TEST(test_forks_share_with_a_session_that_was_on_the_disk_before_them)
{
    char id[] = "f2";
    make_forks(2);
    store_app_snapshot(&app);
    struct srv_session *first = srv_session_peek(app.sessions, NULL, "f0");
    for (; id[1] < '5'; id[1]++)
        srv_session_put(store_app_fork(&app, first, id));
    srv_session_put(first);
    store_app_snapshot(&app);
    expect_forks(5, BLOCK + 5 * PLACE);
}
END_TEST

/* Changes a byte of the session's record in both copies of the manifest. */
static void damage_record(const char *id)
{
    char field[sizeof((struct srv_record_create *)NULL)->id] = {0};
    static const char *const copies[] = {"0000000000000002.manifest", "0000000000000002.copy"};
    snprintf(field, sizeof field, "%s", id);
    for (size_t i = 0; i < 2; i++) {
        size_t length;
        char *bytes = scratch_read(&length, app.config.state_dir, copies[i]);
        char *at = memmem(bytes, length, field, sizeof field);
        ck_assert_ptr_nonnull(at);
        *at ^= 1;
        scratch_write(app.config.state_dir, copies[i], bytes, length);
        free(bytes);
    }
}

/* Each of them in turn, as one stands first in the manifest. */
START_TEST(test_forks_share_with_each_other_where_one_is_lost)
{
    static const char *const ids[] = {"p", "f0", "f1", "f2", "f3"};
    make_forks(4);
    store_app_snapshot(&app);
    damage_record(ids[_i]);
    (void)store_app_find_again(&app, ids[_i]);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(store_app_length(&app, ids[i]), i == _i ? SIZE_MAX : ROWS);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), BLOCK + 3 * PLACE);
}
END_TEST

/* A block that is damaged costs all that share it, and gives its room back. */
START_TEST(test_forks_that_share_a_damaged_block_leave_their_room)
{
    make_forks(4);
    make_sessions('n', 1, 0);
    store_app_snapshot(&app);
    store_app_damage_block(&app, "f2");
    ck_assert_uint_eq(store_app_find_again(&app, "p"), SIZE_MAX);
    expect_sessions('f', 4, SIZE_MAX);
    expect_sessions('n', 1, ROWS);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), BLOCK);
}
END_TEST

Suite *suite_store_room(void)
{
    Suite *suite = suite_create("store_room");
    TCase *tests = suite_cases(suite, "store_room", set_up, tear_down, 60);
    tcase_add_loop_test(tests, test_sessions_that_expired_while_no_daemon_ran_take_no_room_later, 0,
                        2);
    tcase_add_test(tests, test_sessions_that_expired_while_the_disk_was_full_take_no_room_later);
    tcase_add_test(tests, test_deletions_are_deferred_until_something_is_recorded);
    tcase_add_test(tests,
                   test_import_that_was_abandoned_while_the_disk_was_full_takes_no_room_later);
    tcase_add_test(tests, test_session_whose_forks_go_takes_no_more_than_it_did);
    tcase_add_test(tests, test_forks_of_a_parent_that_was_deleted_share_their_blocks_again);
    tcase_add_test(tests, test_forks_share_with_a_session_that_was_on_the_disk_before_them);
    tcase_add_loop_test(tests, test_forks_share_with_each_other_where_one_is_lost, 0, 5);
    tcase_add_test(tests, test_forks_that_share_a_damaged_block_leave_their_room);
    return suite;
}
