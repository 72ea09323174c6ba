/* test_store_unread.c: sessions whose blocks a start leaves on the disk: what they are before those
 * are read, who is read first, and what is found then. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn_state.h"
#include "disk.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define SESSIONS 24
#define MANY 1200
#define ROWS 70 /* of a session: one block and a part of the next */
#define WIDTH STORE_APP_WIDTH

static struct srv_app app;
static struct srv_error error;

static void set_up(void)
{
    disk_reset();
    store_app_open_tiny(&app, SESSIONS, 256);
    app.config.journal_fsync = SRV_FSYNC_ALWAYS;
    store_app_begin(&app);
}

static void tear_down(void)
{
    disk_reset();
    store_app_end(&app);
    store_app_close(&app);
}

/* ---- Sessions with rows of their own --------------------------------------------------------- */

/* The row at `position` of the session that is called `name`. */
static void make_row(float out[WIDTH], char name, size_t position)
{
    for (size_t i = 0; i < WIDTH; i++)
        out[i] = (float)(1000 * name) + (float)(4 * position + i);
}

static void append(struct srv_session *session, char name, size_t rows)
{
    float row[WIDTH];
    struct attn_error cause;
    for (size_t i = 0; i < rows; i++) {
        const size_t position = attn_cache_length(session->cache, 0);
        const struct attn_step step = {.position = position, .rows = 1};
        const struct attn_appended appended = {&step, row, row};
        const struct srv_store_step one = {session, 0, &appended, (uint64_t[2]){name, position}};
        make_row(row, name, position);
        ck_assert_int_eq(srv_store_steps(app.store, &one, 1, &error), SRV_OK);
        ck_assert_int_eq(attn_cache_write(session->cache, 0, 1, row, row, &cause), ATTN_OK);
        session->last_steps[0] = (struct srv_last_step){position, 1, {(uint64_t)name, position}};
    }
}

static struct srv_session *find(char name)
{
    const char id[] = {name, '\0'};
    return srv_session_peek(app.sessions, NULL, id);
}

static void make_session(char name, size_t rows)
{
    const char id[] = {name, '\0'};
    struct srv_session *session = store_app_session(&app, id);
    append(session, name, rows);
    srv_session_put(session);
}

/* Expects rows [first, end) of a session to be those that `name` has appended. */
static void expect_rows(char session_name, char name, size_t first, size_t end)
{
    float want[WIDTH], key[WIDTH], value[WIDTH];
    struct srv_session *session = find(session_name);
    ck_assert_ptr_nonnull(session);
    ck_assert_int_eq(session->presence, SRV_PRESENT);
    for (size_t i = first; i < end; i++) {
        make_row(want, name, i);
        attn_cache_read_from(key, value, session->cache, 0, i, 1);
        ck_assert_mem_eq(key, want, sizeof want);
        ck_assert_mem_eq(value, want, sizeof want);
    }
    srv_session_put(session);
}

static void start_reading(void)
{
    char message[256];
    ck_assert_msg(srv_store_start(app.store, message, sizeof message), "%s", message);
}

static void await_reading(void)
{
    for (int i = 0; i < 1000 && srv_store_restoring(app.store) > 0; i++)
        usleep(10000);
    ck_assert_uint_eq(srv_store_restoring(app.store), 0);
}

static void delete_session(char name)
{
    struct srv_session *session = find(name);
    ck_assert_int_eq(srv_store_delete(app.store, session, &error), SRV_OK);
    ck_assert(srv_session_remove(app.sessions, session));
    srv_session_put(session);
}

static void fork_session(char parent_name, char name)
{
    const char id[] = {name, '\0'};
    struct srv_session *parent = find(parent_name);
    srv_session_put(store_app_fork(&app, parent, id));
    srv_session_put(parent);
}

static void append_to(char name, size_t rows)
{
    struct srv_session *session = find(name);
    append(session, name, rows);
    srv_session_put(session);
}

static void truncate_to(char name, size_t length)
{
    struct srv_session *session = find(name);
    ck_assert_int_eq(store_app_truncate(&app, session, length), SRV_OK);
    srv_session_put(session);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* p and its fork f share blocks; g is a fork of f, cut short and grown again.  The snapshot comes
 * before the forks (0), between them (1), at the end (2) or never (3). */
static void make_family(int snapshot)
{
    make_session('p', ROWS);
    if (snapshot == 0)
        store_app_snapshot(&app);
    fork_session('p', 'f');
    append_to('p', 5);
    append_to('f', 70);
    if (snapshot == 1)
        store_app_snapshot(&app);
    fork_session('f', 'g');
    truncate_to('g', 66);
    append_to('g', 3);
    if (snapshot == 2)
        store_app_snapshot(&app);
}

static void expect_family(void)
{
    expect_rows('p', 'p', 0, ROWS + 5);
    expect_rows('f', 'p', 0, ROWS);
    expect_rows('f', 'f', ROWS, ROWS + 70);
    expect_rows('g', 'p', 0, 66);
    expect_rows('g', 'g', 66, 69);
    ck_assert_uint_eq(store_app_length(&app, "p"), ROWS + 5);
    ck_assert_uint_eq(store_app_length(&app, "f"), ROWS + 70);
    ck_assert_uint_eq(store_app_length(&app, "g"), 69);
}

/* Rows of journals are in memory at once, and so is what of a shared block they go on from; without
 * a snapshot nobody is unread. */
START_TEST(test_sessions_have_lengths_blocks_and_last_steps_before_their_tokens)
{
    static const size_t unread[] = {3, 3, 3, 0};
    make_family(_i);
    const size_t used = attn_cache_pool_used(app.pool);
    store_app_crash(&app);
    store_app_load(&app);
    ck_assert_uint_eq(srv_store_restoring(app.store), unread[_i]);
    ck_assert_uint_eq(store_app_length(&app, "p"), ROWS + 5);
    ck_assert_uint_eq(store_app_length(&app, "f"), ROWS + 70);
    ck_assert_uint_eq(store_app_length(&app, "g"), 69);
    if (_i < 3)
        ck_assert_uint_lt(attn_cache_pool_used(app.pool), used);
    struct srv_session *session = find('g');
    ck_assert_int_eq(session->presence, _i < 3 ? SRV_UNREAD : SRV_PRESENT);
    ck_assert_uint_eq(session->last_steps[0].digest[0], 'g');
    ck_assert_uint_eq(session->last_steps[0].position, 68);
    srv_session_put(session);
    start_reading();
    await_reading();
    expect_family();
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), used);
}
END_TEST

START_TEST(test_kills_before_tokens_are_read_lose_nothing)
{
    make_family(_i);
    for (char name = 'a'; name < 'd'; name++) {
        store_app_crash(&app);
        store_app_load(&app);
        make_session(name, 2);
    }
    store_app_crash(&app);
    store_app_begin(&app);
    expect_family();
    for (char name = 'a'; name < 'd'; name++)
        expect_rows(name, name, 0, 2);
}
END_TEST

START_TEST(test_session_that_is_wanted_is_read_before_all_others)
{
    for (char name = 'a'; name < 'a' + SESSIONS; name++)
        make_session(name, ROWS);
    store_app_snapshot(&app);
    store_app_end(&app);
    store_app_load(&app);
    ck_assert_uint_eq(srv_store_restoring(app.store), SESSIONS);
    ck_assert(!srv_store_has_restored(app.store));
    struct srv_session *session = find('a' + SESSIONS / 2);
    srv_store_want(app.store, session);
    atomic_store(&disk.pread_ms, 10);
    start_reading();
    for (int i = 0; i < 2000 && session->presence != SRV_PRESENT; i++)
        usleep(1000);
    ck_assert_int_eq(session->presence, SRV_PRESENT);
    ck_assert_uint_ge(srv_store_restoring(app.store), SESSIONS - 3);
    ck_assert(srv_store_take_restored(app.store));
    atomic_store(&disk.pread_ms, 0);
    srv_session_put(session);
    await_reading();
    for (char name = 'a'; name < 'a' + SESSIONS; name++)
        expect_rows(name, name, 0, ROWS);
}
END_TEST

START_TEST(test_session_that_is_deleted_before_it_is_read_gives_its_blocks_back)
{
    make_session('a', ROWS);
    const size_t used = attn_cache_pool_used(app.pool);
    make_session('b', ROWS);
    store_app_snapshot(&app);
    store_app_end(&app);
    store_app_load(&app);
    struct srv_session *session = find('b');
    delete_session('b');
    start_reading();
    await_reading();
    ck_assert_int_eq(session->presence, SRV_DROPPED);
    srv_session_put(session);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), used);
    ck_assert_uint_eq(store_app_find_again(&app, "b"), SIZE_MAX);
    expect_rows('a', 'a', 0, ROWS);
}
END_TEST

/* In a first start (0), and in one that follows another (1).  The blocks stay, which the manifest
 * names that is set aside. */
START_TEST(test_damage_found_late_costs_the_session_that_has_it)
{
    for (char name = 'a'; name < 'd'; name++)
        make_session(name, ROWS);
    store_app_snapshot(&app);
    store_app_damage_block(&app, "b");
    store_app_crash(&app);
    if (_i == 1) {
        store_app_load(&app);
        store_app_crash(&app);
    }
    store_app_shell(&app, "cat *.blocks >before");
    store_app_load(&app);
    struct srv_session *lost = find('b');
    ck_assert_int_eq(lost->presence, SRV_UNREAD);
    start_reading();
    await_reading();
    ck_assert_int_eq(lost->presence, SRV_LOST);
    srv_session_put(lost);
    ck_assert_ptr_null(find('b'));
    expect_rows('a', 'a', 0, ROWS);
    expect_rows('c', 'c', 0, ROWS);
    append_to('a', 5);
    store_app_await_snapshot(&app); /* without the lost one, whose files are set aside */
    store_app_take_snapshot(&app);
    append_to('a', 1);
    store_app_snapshot(&app);
    store_app_shell(&app, "ls *.manifest.damaged *.copy.damaged *.journal.damaged >/dev/null && "
                          "cmp $(ls *.blocks | head -1) before");
    ck_assert_uint_eq(store_app_find_again(&app, "b"), SIZE_MAX);
    expect_rows('a', 'a', 0, ROWS + 6);
    expect_rows('c', 'c', 0, ROWS);
    store_app_shell(&app, "cmp $(ls *.blocks | head -1) before");
}
END_TEST

/* A fork's record goes on in a block of its parent that is damaged. */
START_TEST(test_damage_that_a_record_meets_costs_the_sessions_that_share_the_block)
{
    make_session('a', ROWS);
    make_session('c', ROWS);
    store_app_snapshot(&app);
    fork_session('a', 'f');
    append_to('f', 5);
    append_to('c', 5);
    store_app_damage_block(&app, "a");
    store_app_crash(&app);
    store_app_begin(&app);
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_null(find('a'));
        ck_assert_ptr_null(find('f'));
        expect_rows('c', 'c', 0, ROWS + 5);
        (void)store_app_find_again(&app, "c");
    }
    store_app_shell(&app, "ls *.manifest.damaged *.copy.damaged *.journal.damaged >/dev/null");
}
END_TEST

static bool has_logged(int log, const char *text)
{
    char lines[4096];
    ssize_t length = pread(log, lines, sizeof lines - 1, 0);
    lines[length > 0 ? length : 0] = '\0';
    return strstr(lines, text) != NULL;
}

START_TEST(test_session_that_cannot_be_read_now_waits_and_is_not_called_damaged)
{
    make_session('a', ROWS);
    store_app_snapshot(&app);
    store_app_crash(&app);
    store_app_load(&app);
    int log = memfd_create("log", 0);
    srv_log_close(&app.log);
    srv_log_open(&app.log, SRV_LOG_INFO, log);
    atomic_store(&disk.unreadable, EIO);
    start_reading();
    for (int i = 0; i < 2000 && !has_logged(log, "a session waits until"); i++)
        usleep(1000);
    atomic_store(&disk.unreadable, 0);
    await_reading();
    ck_assert(has_logged(log, "a session waits until") && !has_logged(log, "damaged"));
    expect_rows('a', 'a', 0, ROWS);
    srv_log_close(&app.log);
    srv_log_open(&app.log, SRV_LOG_OFF, STDERR_FILENO);
    close(log);
}
END_TEST

/* A manifest of snapshots alone names the blocks of sessions that are still unread. */
START_TEST(test_last_snapshot_keeps_the_blocks_of_sessions_that_are_unread)
{
    store_app_end(&app);
    app.config.durability = SRV_DURABLE_SNAPSHOT;
    store_app_begin(&app);
    make_family(4);
    store_app_end(&app);
    for (int i = 0; i < 3; i++) {
        store_app_load(&app);
        ck_assert_uint_eq(srv_store_restoring(app.store), 3);
        store_app_end(&app);
    }
    store_app_begin(&app);
    expect_family();
}
END_TEST

/* More sessions than a window over the manifest holds: each part of both copies is read once, and
 * once more for its checksum. */
START_TEST(test_start_reads_the_manifest_and_no_block)
{
    char id[16];
    struct stat manifest;
    store_app_end(&app);
    app.config.journal_fsync = SRV_FSYNC_OS;
    app.config.limits.max_sessions = MANY;
    store_app_begin(&app);
    for (int i = 0; i < MANY; i++) {
        snprintf(id, sizeof id, "s%d", i);
        struct srv_session *session = store_app_session(&app, id);
        append(session, 's', 1);
        srv_session_put(session);
    }
    store_app_snapshot(&app);
    struct srv_store_status status;
    struct srv_file file;
    srv_store_describe(&status, app.store);
    srv_file_name(&file, SRV_FILE_MANIFEST, status.base);
    ck_assert_int_eq(fstatat(srv_store_directory(app.store), file.name, &manifest, 0), 0);
    store_app_end(&app);
    ck_assert_int_gt(manifest.st_size, SRV_FILE_READER_WINDOW);
    atomic_store(&disk.unreadable_blocks, EIO);
    atomic_store(&disk.read_bytes, 0);
    store_app_load(&app);
    ck_assert_uint_eq(srv_sessions_count(app.sessions), MANY);
    ck_assert_uint_le(atomic_load(&disk.read_bytes), 5 * (size_t)manifest.st_size);
}
END_TEST

Suite *suite_store_unread(void)
{
    Suite *suite = suite_create("store_unread");
    TCase *tests = suite_cases(suite, "store_unread", set_up, tear_down, 60);
    tcase_add_loop_test(tests, test_sessions_have_lengths_blocks_and_last_steps_before_their_tokens,
                        0, 4);
    tcase_add_loop_test(tests, test_kills_before_tokens_are_read_lose_nothing, 0, 4);
    tcase_add_test(tests, test_session_that_is_wanted_is_read_before_all_others);
    tcase_add_test(tests, test_session_that_is_deleted_before_it_is_read_gives_its_blocks_back);
    tcase_add_loop_test(tests, test_damage_found_late_costs_the_session_that_has_it, 0, 2);
    tcase_add_test(tests, test_damage_that_a_record_meets_costs_the_sessions_that_share_the_block);
    tcase_add_test(tests, test_session_that_cannot_be_read_now_waits_and_is_not_called_damaged);
    tcase_add_test(tests, test_start_reads_the_manifest_and_no_block);
    tcase_add_test(tests, test_last_snapshot_keeps_the_blocks_of_sessions_that_are_unread);
    return suite;
}
