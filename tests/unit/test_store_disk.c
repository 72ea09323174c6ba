/* test_store_disk.c: the promises of the store that only the order of its calls to the disk keeps;
 * who waits for the disk; and what of a session comes back. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "attn_state.h"
#include "base/clock.h"
#include "disk.h"
#include "store/record.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define SESSIONS 60
#define NS_PER_S UINT64_C(1000000000)

static struct srv_app app;
static struct srv_error error;
static const char *directory; /* its own name */

static void begin_with(enum srv_journal_fsync fsync)
{
    disk_reset();
    store_app_open_tiny(&app, SESSIONS, 64);
    app.config.journal_fsync = fsync;
    store_app_begin(&app);
    directory = strrchr(app.config.state_dir, '/') + 1;
}

static void set_up(void) { begin_with(SRV_FSYNC_EVERYSEC); }
static void set_up_always(void) { begin_with(SRV_FSYNC_ALWAYS); }

static void tear_down(void)
{
    store_app_end(&app);
    store_app_close(&app);
}

/* ---- The order of calls ---------------------------------------------------------------------- */

static size_t find_last(enum disk_call call, const char *end)
{
    size_t last = SIZE_MAX;
    for (size_t i = 0; (i = disk_find(call, end, i)) != SIZE_MAX; i++)
        last = i;
    return last;
}

/* Whether each write to a journal so far was followed by a flush of it. */
static bool all_flushed(void)
{
    const size_t last = find_last(DISK_PWRITE, ".journal");
    return last == SIZE_MAX || disk_find(DISK_FDATASYNC, ".journal", last) != SIZE_MAX;
}

START_TEST(test_always_flushes_every_change_before_the_call_returns)
{
    struct srv_session *a = store_app_session(&app, "a");
    disk_reset();
    ck_assert_int_eq(srv_store_create(app.store, a, &error), SRV_OK);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 1);
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 2);
    struct srv_session *fork = store_app_fork(&app, a, "fork");
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 3);
    ck_assert_int_eq(store_app_truncate(&app, a, 0), SRV_OK);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 4);
    ck_assert_int_eq(srv_store_delete(app.store, fork, &error), SRV_OK);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 5);
    srv_session_remove(app.sessions, fork);
    srv_session_put(fork);
    srv_session_put(a);
}
END_TEST

/* Nothing is answered that the disk has not taken. */
START_TEST(test_always_refuses_what_cannot_be_flushed)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    atomic_store(&disk.no_flush, true);
    ck_assert_int_eq(store_app_truncate(&app, a, 0), SRV_E_STORAGE);
    atomic_store(&disk.no_flush, false);
    srv_session_put(a);
}
END_TEST

/* An expiry is recorded without a flush, at the end of a journal that is left then. */
START_TEST(test_always_flushes_the_end_of_the_old_journal_before_it_answers_in_the_new_one)
{
    struct srv_session *a = store_app_session(&app, "a"), *b = store_app_session(&app, "b");
    struct srv_store_status status;
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    ck_assert_int_eq(store_app_append(&app, b), SRV_OK);
    srv_session_remove(app.sessions, b);
    disk_reset();
    srv_store_request_snapshot(&status, app.store);
    store_app_await_snapshot(&app);
    srv_store_expire(app.store, b);
    for (unsigned waited = 0; all_flushed() && waited < 4000; waited += 10)
        usleep(10000);
    atomic_store(&disk.fdatasync_ms, 300);
    srv_store_take_snapshot(app.store);
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    atomic_store(&disk.fdatasync_ms, 0);
    size_t end = find_last(DISK_PWRITE, "1.journal"), head = disk_find(DISK_PWRITE, "2.journal", 0);
    size_t recorded = disk_find(DISK_PWRITE, "2.journal", head + 1);
    size_t answered = disk_find(DISK_FDATASYNC, "2.journal", recorded);
    ck_assert(end < recorded && answered != SIZE_MAX);
    ck_assert_uint_lt(disk_find(DISK_FDATASYNC, "1.journal", end), answered);
    srv_session_put(a);
    srv_session_put(b);
}
END_TEST

START_TEST(test_everysec_flushes_within_two_seconds)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    for (unsigned waited = 0; !all_flushed(); waited += 10) {
        ck_assert_uint_lt(waited, 2000);
        usleep(10000);
    }
    srv_session_put(a);
}
END_TEST

/* What a killed daemon has not flushed is seen by clients after the start. */
START_TEST(test_start_flushes_the_journals_that_it_has_read)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    srv_session_put(a);
    store_app_crash(&app);
    disk_reset();
    store_app_begin(&app);
    size_t created = disk_find(DISK_PWRITE, "2.journal", 0); /* its head */
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, "1.journal"), 1);
    ck_assert_uint_lt(disk_find(DISK_FDATASYNC, "1.journal", 0), created);
    ck_assert_uint_lt(disk_find(DISK_FSYNC, directory, 0), created); /* names in their order */
}
END_TEST

/* Makes a snapshot of so many changed sessions and notes the calls that it makes. */
static void watch_snapshot(size_t sessions)
{
    for (size_t i = 0; i < sessions; i++) {
        struct srv_session *session = store_app_session(&app, NULL);
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
    }
    disk_reset();
    store_app_snapshot(&app);
}

START_TEST(test_new_journal_is_on_the_disk_by_name_before_anything_is_recorded_in_it)
{
    watch_snapshot(1);
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    size_t head = disk_find(DISK_PWRITE, "2.journal", 0);
    size_t flushed = disk_find(DISK_FDATASYNC, "2.journal", head);
    size_t named = disk_find(DISK_FSYNC, directory, head);
    size_t recorded = disk_find(DISK_PWRITE, "2.journal", head + 1);
    ck_assert(head < flushed && flushed < recorded && recorded != SIZE_MAX);
    ck_assert_uint_lt(named, disk_find(DISK_PWRITE, ".blocks", 0)); /* no flush of theirs */
    srv_session_put(a);
}
END_TEST

/* A new manifest (0), and a section of one that is there (1). */
START_TEST(test_manifest_names_blocks_that_are_on_the_disk_and_nothing_is_removed_before_it_is_too)
{
    watch_snapshot(3);
    if (_i == 1)
        watch_snapshot(2);
    const char *const manifest = _i == 0 ? "2.manifest.new" : "2.manifest";
    const char *const copy = _i == 0 ? "2.copy.new" : "2.copy";
    const size_t blocks = find_last(DISK_PWRITE, ".blocks");
    ck_assert_uint_ne(blocks, SIZE_MAX);
    ck_assert_uint_eq(disk_count(DISK_FDATASYNC, ".blocks"), 1); /* for all sessions */
    const size_t flushed = disk_find(DISK_FDATASYNC, ".blocks", blocks);
    const size_t named = _i == 0 ? disk_find(DISK_FSYNC, directory, flushed) : flushed;
    const size_t said = find_last(DISK_FDATASYNC, manifest),
                 twice = find_last(DISK_FDATASYNC, copy);
    ck_assert(flushed < said && named < said && said < twice && twice != SIZE_MAX);
    ck_assert_uint_lt(named, disk_find(DISK_RENAME, "2.manifest", 0));
    size_t whole = twice;
    if (_i == 0) {
        ck_assert_uint_lt(twice, disk_find(DISK_RENAME, "2.manifest", 0));
        whole = disk_find(DISK_FSYNC, directory, disk_find(DISK_RENAME, "2.copy", 0));
    }
    const size_t removed = disk_find(DISK_UNLINK, _i == 0 ? "1.journal" : "2.journal", 0);
    ck_assert(whole < removed && removed != SIZE_MAX);
    ck_assert_uint_eq(disk_find(DISK_UNLINK, ".journal", 0), removed);
}
END_TEST

/* A truncation to nothing, and the revision after it. */
static const struct srv_revision cut = {.number = 2, .before = 1};

/* ---- What was refused ------------------------------------------------------------------------ */

/* Neither the flush of a change succeeds nor the cut that undoes it, nor in the second run an
 * overwriting of its record. */
static struct srv_session *refuse_truncation(bool patches)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    atomic_store(&disk.no_flush, true);
    atomic_store(&disk.no_cut, true);
    atomic_store(&disk.no_patch, !patches);
    ck_assert_int_eq(srv_store_truncate(app.store, a, &cut, &error), SRV_E_STORAGE);
    atomic_store(&disk.no_flush, false);
    return a;
}

START_TEST(test_change_that_was_refused_leaves_no_trace_where_it_cannot_be_cut_off)
{
    srv_session_put(refuse_truncation(true));
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
}
END_TEST

/* The new journals, of which there are two, take nothing before a manifest is written. */
START_TEST(test_nothing_is_recorded_after_a_refused_change_until_a_snapshot_is_written)
{
    struct srv_store_status status;
    struct srv_session *a = refuse_truncation(false);
    atomic_store(&disk.no_manifest, true);
    for (int i = 0; i < 2; i++) {
        srv_store_request_snapshot(&status, app.store);
        store_app_await_snapshot(&app);
        ck_assert_uint_eq(store_app_take_snapshot(&app).base, 0);
        ck_assert_int_eq(srv_store_truncate(app.store, a, &cut, &error), SRV_E_STORAGE);
    }
    atomic_store(&disk.no_manifest, false);
    store_app_snapshot(&app);
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    srv_session_put(a);
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 2);
}
END_TEST

/* ---- A full disk ----------------------------------------------------------------------------- */

START_TEST(test_start_on_a_full_disk_serves_and_refuses_changes_until_there_is_room)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    srv_session_put(a);
    store_app_end(&app);
    atomic_store(&disk.full, true);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
    a = srv_session_peek(app.sessions, NULL, "a");
    ck_assert_int_eq(srv_store_truncate(app.store, a, &cut, &error), SRV_E_STORAGE);
    ck_assert_msg(strstr(error.message, "No space left on device") != NULL, "%s", error.message);
    store_app_end(&app);
    srv_session_put(a);
    store_app_begin(&app); /* as often as one likes */
    a = srv_session_peek(app.sessions, NULL, "a");
    atomic_store(&disk.full, false);
    store_app_await_snapshot(&app);
    (void)store_app_take_snapshot(&app);
    ck_assert_int_eq(srv_store_truncate(app.store, a, &cut, &error), SRV_OK);
    srv_session_put(a);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 0);
}
END_TEST

/* Where only snapshots are kept now, a start that finds a journal makes one. */
START_TEST(test_start_that_needs_room_says_for_what)
{
    static const char *const names[] = {"0000000000000002-00001000.blocks",
                                        "0000000000000002.manifest"};
    char message[512], name[256];
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    store_app_end(&app);
    app.config.durability = SRV_DURABLE_SNAPSHOT;
    const struct srv_store_context context = srv_app_store_context(&app);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
    struct srv_store_context own = context;
    own.sessions = app.sessions;
    ck_assert(srv_store_open(&app.store, &own, message, sizeof message));
    atomic_store(_i == 0 ? &disk.full : &disk.no_manifest, true);
    ck_assert(!srv_store_load(app.store, message, sizeof message));
    snprintf(name, sizeof name, "%s/%s cannot be written: No space", app.config.state_dir,
             names[_i]);
    ck_assert_msg(strstr(message, name) != NULL, "%s", message);
    store_app_end(&app);
    disk_reset();
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
}
END_TEST

START_TEST(test_journal_that_was_begun_and_could_not_be_removed_is_begun_again)
{
    struct srv_session *a = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, a), SRV_OK);
    srv_session_put(a);
    store_app_shell(&app, _i == 0
                              ? ": >0000000000000002.journal"
                              : "head -c 32 0000000000000001.journal >0000000000000002.journal");
    store_app_snapshot(&app);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 1);
}
END_TEST

/* ---- Who waits ------------------------------------------------------------------------------- */

static void *append_slowly(void *session)
{
    (void)store_app_append(&app, session);
    return NULL;
}

static uint64_t ms_since(uint64_t begin) { return (srv_now_ns() - begin) / SRV_MS_NS; }

/* The threads that serve ask for the status and for a snapshot, and have sessions expire. */
START_TEST(test_nobody_who_serves_waits_for_a_flush_and_expired_sessions_are_recorded_together)
{
    struct srv_session *sessions[SESSIONS];
    struct srv_store_status status;
    pthread_t thread;
    for (size_t i = 0; i < SESSIONS; i++) {
        sessions[i] = store_app_session(&app, NULL);
        ck_assert_int_eq(store_app_append(&app, sessions[i]), SRV_OK);
    }
    atomic_store(&disk.fdatasync_ms, 1000);
    ck_assert_int_eq(pthread_create(&thread, NULL, append_slowly, sessions[0]), 0);
    usleep(200000);
    uint64_t begin = srv_now_ns();
    for (size_t i = 1; i < SESSIONS; i++) {
        srv_session_remove(app.sessions, sessions[i]);
        srv_store_expire(app.store, sessions[i]);
    }
    srv_store_describe(&status, app.store);
    ck_assert_uint_lt(ms_since(begin), 300);
    pthread_join(thread, NULL);
    atomic_store(&disk.fdatasync_ms, 0);
    size_t flushes = disk_count(DISK_FDATASYNC, "1.journal");
    uint64_t before = status.journal_bytes;
    for (unsigned waited = 0; status.journal_bytes < before + (SESSIONS - 1) * SRV_RECORD_HEAD;
         waited += 10) {
        ck_assert_uint_lt(waited, 5000);
        usleep(10000);
        srv_store_describe(&status, app.store);
    }
    ck_assert_uint_le(disk_count(DISK_FDATASYNC, "1.journal"), flushes + 1);
    for (size_t i = 0; i < SESSIONS; i++)
        srv_session_put(sessions[i]);
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(srv_sessions_count(app.sessions), 1);
}
END_TEST

/* ---- What comes back ------------------------------------------------------------------------- */

static struct srv_session *make_owned_session(void)
{
    struct srv_session *session;
    const struct srv_session_options options = {.id = "a",
                                                .idempotency_key = "once",
                                                .key_digest = {3, 4},
                                                .owner = "anna",
                                                .group = "team",
                                                .shared = true};
    ck_assert_int_eq(
        srv_session_create(&session, app.sessions, &app.models.items[0], &options, &error), SRV_OK);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    session->last_steps[0] = (struct srv_last_step){.rows = 1, .digest = {1, 2}};
    return session;
}

static void check_owned_session(const char *id, bool forked)
{
    struct srv_session *session = srv_session_peek(app.sessions, NULL, id);
    ck_assert_ptr_nonnull(session);
    ck_assert_str_eq(session->owner, forked ? "" : "anna");
    ck_assert_str_eq(session->group, forked ? "" : "team");
    ck_assert(session->shared == !forked);
    ck_assert_str_eq(session->idempotency_key, forked ? "" : "once");
    ck_assert_uint_eq(session->key_digest[0], forked ? 0 : 3);
    ck_assert_uint_eq(session->key_digest[1], forked ? 0 : 4);
    ck_assert_uint_eq(session->last_steps[0].rows, 1);
    ck_assert_uint_eq(session->last_steps[0].digest[0], 1);
    ck_assert_uint_eq(session->last_steps[0].digest[1], 2);
    srv_session_put(session);
}

START_TEST(test_owner_keys_and_digests_come_back_from_the_journal_and_from_a_snapshot)
{
    struct srv_session *session = make_owned_session();
    struct srv_session *fork = store_app_fork(&app, session, "fork");
    fork->last_steps[0] = session->last_steps[0];
    srv_session_put(fork);
    if (_i > 0)
        store_app_snapshot(&app);
    srv_session_put(session);
    store_app_crash(&app);
    store_app_begin(&app);
    check_owned_session("a", false);
    check_owned_session("fork", true);
}
END_TEST

/* ---- Files that somebody else removes -------------------------------------------------------- */

/* A row more of the session, and whether it is taken. */
static void expect_row(struct srv_session *session, size_t at, enum srv_error_code code)
{
    ck_assert_int_eq(store_app_append(&app, session), code);
    if (code != SRV_OK) /* the caller undoes it */
        ck_assert(attn_cache_truncate(session->cache, at));
}

static const char *const removals[] = {"rm *.journal",
                                       "rm *.manifest",
                                       "rm *.copy",
                                       "rm *.manifest *.copy",
                                       "rm *.blocks",
                                       "rm *",
                                       "mkdir away && mv *.* away"};
#define REMOVALS ((int)(sizeof removals / sizeof *removals))

/* Two sessions with a snapshot, of which one has changed since; in the second half of the runs a
 * start has read the files. */
START_TEST(test_files_that_are_removed_in_use_cost_no_change_that_was_taken)
{
    struct srv_session *a = store_app_session(&app, "a"), *b = store_app_session(&app, "b");
    expect_row(a, 0, SRV_OK);
    expect_row(b, 0, SRV_OK);
    store_app_snapshot(&app);
    expect_row(a, 1, SRV_OK);
    if (_i >= REMOVALS) {
        srv_session_put(a);
        srv_session_put(b);
        ck_assert_uint_eq(store_app_find_again(&app, "a"), 2);
        a = srv_session_peek(app.sessions, NULL, "a");
        b = srv_session_peek(app.sessions, NULL, "b");
    }
    store_app_shell(&app, removals[_i % REMOVALS]);
    store_app_await_snapshot(&app); /* that nobody has asked for */
    expect_row(a, 2, SRV_E_STORAGE);
    store_app_take_snapshot(&app);
    expect_row(a, 2, SRV_OK);
    store_app_shell(&app, "test -f lock -a -f identity && rm -rf away");
    srv_session_put(a);
    srv_session_put(b);
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 3);
    ck_assert_uint_eq(store_app_length(&app, "b"), 1);
}
END_TEST

START_TEST(test_files_that_are_removed_in_use_are_written_anew_where_snapshots_alone_are_kept)
{
    store_app_end(&app);
    app.config.durability = SRV_DURABLE_SNAPSHOT;
    store_app_begin(&app);
    struct srv_session *a = store_app_session(&app, "a");
    expect_row(a, 0, SRV_OK);
    srv_session_put(a);
    store_app_snapshot(&app);
    store_app_shell(&app, _i == 0 ? "rm *.manifest *.copy" : "rm *.blocks");
    store_app_await_snapshot(&app); /* that nobody has asked for */
    store_app_take_snapshot(&app);
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
}
END_TEST

/* The lock of the directory holds where the file is gone, and that of the file where a build of
 * before has nothing else, or the file system has no locks of directories. */
START_TEST(test_directory_in_use_is_refused_by_its_own_lock_and_by_that_of_its_file)
{
    struct srv_store *second;
    char message[512] = "";
    struct srv_store_context context = srv_app_store_context(&app);
    if (_i == 0)
        store_app_shell(&app, "rm lock");
    else
        ck_assert_int_eq(flock(srv_store_directory(app.store), LOCK_UN), 0);
    ck_assert(!srv_store_open(&second, &context, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, ": another attnd uses it"));
    ck_assert_ptr_null(second);
}
END_TEST

/* ---- The clock ------------------------------------------------------------------------------- */

static uint64_t idle_s(const char *id)
{
    struct srv_session *session = srv_session_peek(app.sessions, NULL, id);
    ck_assert_ptr_nonnull(session);
    uint64_t idle = srv_now_ns() - session->used_ns;
    srv_session_put(session);
    return idle / NS_PER_S;
}

/* The wall clock jumps, in both directions, by more than the time to live. */
START_TEST(test_start_with_a_wall_clock_that_is_wrong_keeps_sessions_and_their_idle_time)
{
    struct srv_session *session = store_app_session(&app, "a");
    session->used_ns -= 100 * NS_PER_S;
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    if (_i == 1)
        store_app_snapshot(&app);
    static const long long hours[] = {7, -50, 100000};
    for (size_t i = 0; i < 3; i++) {
        atomic_store(&disk.wall_s, hours[i] * 3600);
        ck_assert_uint_eq(store_app_find_again(&app, "a"), 1);
        ck_assert_uint_ge(idle_s("a"), 100);
        ck_assert_uint_lt(idle_s("a"), 160);
    }
}
END_TEST

/* A block of another session is damaged (0), or the manifest (1). */
START_TEST(test_what_is_beside_damage_has_its_owner_and_its_idle_time)
{
    struct srv_session *session = make_owned_session(), *other = store_app_session(&app, "other");
    session->used_ns -= 100 * NS_PER_S;
    ck_assert_int_eq(store_app_append(&app, other), SRV_OK);
    srv_session_put(session);
    srv_session_put(other);
    store_app_snapshot(&app);
    if (_i == 0)
        store_app_damage_block(&app, "other");
    else
        store_app_shell(&app, "truncate -s 50 *.manifest");
    store_app_crash(&app);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "other"), _i == 0 ? SIZE_MAX : 1);
    check_owned_session("a", false);
    ck_assert_uint_ge(idle_s("a"), 100);
    ck_assert_uint_lt(idle_s("a"), 160);
}
END_TEST

/* A daemon that records nothing else records the time once a minute. */
START_TEST(test_idle_time_outlives_a_crash_but_for_a_minute)
{
    struct srv_store_status before, status;
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    usleep(3500000); /* all that is to be said about the step has been said */
    srv_store_describe(&before, app.store);
    atomic_store(&disk.monotonic_s, 100);
    for (unsigned waited = 0; waited == 0 || status.journal_bytes == before.journal_bytes;
         waited += 10) {
        ck_assert_uint_lt(waited, 5000);
        usleep(10000);
        srv_store_describe(&status, app.store);
    }
    store_app_crash(&app);
    atomic_store(&disk.monotonic_s, 0);
    store_app_begin(&app);
    ck_assert_uint_ge(idle_s("a"), 100);
}
END_TEST

Suite *suite_store_disk(void)
{
    Suite *suite = suite_create("store_disk");
    TCase *tests = suite_cases(suite, "everysec", set_up, tear_down, 120);
    TCase *always = suite_cases(suite, "always", set_up_always, tear_down, 120);
    tcase_add_test(always, test_always_flushes_every_change_before_the_call_returns);
    tcase_add_test(always, test_always_refuses_what_cannot_be_flushed);
    tcase_add_test(always,
                   test_always_flushes_the_end_of_the_old_journal_before_it_answers_in_the_new_one);
    tcase_add_test(
        always,
        test_nobody_who_serves_waits_for_a_flush_and_expired_sessions_are_recorded_together);
    tcase_add_test(always, test_change_that_was_refused_leaves_no_trace_where_it_cannot_be_cut_off);
    tcase_add_test(always,
                   test_nothing_is_recorded_after_a_refused_change_until_a_snapshot_is_written);
    tcase_add_test(tests, test_start_on_a_full_disk_serves_and_refuses_changes_until_there_is_room);
    tcase_add_loop_test(tests, test_start_that_needs_room_says_for_what, 0, 2);
    tcase_add_loop_test(tests, test_journal_that_was_begun_and_could_not_be_removed_is_begun_again,
                        0, 2);
    tcase_add_test(tests, test_everysec_flushes_within_two_seconds);
    tcase_add_test(tests, test_start_flushes_the_journals_that_it_has_read);
    tcase_add_test(always,
                   test_new_journal_is_on_the_disk_by_name_before_anything_is_recorded_in_it);
    tcase_add_loop_test(
        tests,
        test_manifest_names_blocks_that_are_on_the_disk_and_nothing_is_removed_before_it_is_too, 0,
        2);
    tcase_add_loop_test(tests, test_files_that_are_removed_in_use_cost_no_change_that_was_taken, 0,
                        2 * REMOVALS);
    tcase_add_loop_test(
        tests, test_files_that_are_removed_in_use_are_written_anew_where_snapshots_alone_are_kept,
        0, 2);
    tcase_add_loop_test(
        tests, test_directory_in_use_is_refused_by_its_own_lock_and_by_that_of_its_file, 0, 2);
    tcase_add_loop_test(
        tests, test_owner_keys_and_digests_come_back_from_the_journal_and_from_a_snapshot, 0, 2);
    tcase_add_loop_test(
        tests, test_start_with_a_wall_clock_that_is_wrong_keeps_sessions_and_their_idle_time, 0, 2);
    tcase_add_loop_test(tests, test_what_is_beside_damage_has_its_owner_and_its_idle_time, 0, 2);
    tcase_add_test(tests, test_idle_time_outlives_a_crash_but_for_a_minute);
    return suite;
}
