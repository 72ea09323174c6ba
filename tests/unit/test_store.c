/* test_store.c: what the store does while the disk is slow or full, or has kept bytes of a write
 * that failed (disk.h). */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn_state.h"
#include "disk.h"
#include "store/journal.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define SLOW_MS 2500

/* ---- A store and its sessions ---------------------------------------------------------------- */

static struct srv_app app;
static char message[512];
static struct srv_error error;
static float row[STORE_APP_WIDTH] = {1, 2, 3, 4};

static void set_up(void)
{
    error = (struct srv_error){0};
    disk_reset();
    store_app_open_tiny(&app, 8, 64);
    app.config.journal_fsync = SRV_FSYNC_EVERYSEC;
    store_app_begin(&app);
}

static void tear_down(void)
{
    store_app_end(&app);
    store_app_close(&app);
}

/* Deletes the session from the store and the table, and gives the caller's reference back. */
static void delete_session(struct srv_session *session)
{
    ck_assert_int_eq(srv_store_delete(app.store, session, &error), SRV_OK);
    ck_assert(srv_session_remove(app.sessions, session));
    srv_session_put(session);
}

/* Asks for a snapshot that fails, as no file may be longer than the head of a journal. */
static struct srv_store_status fail_snapshot(void)
{
    struct srv_store_status status;
    store_app_limit_files(SRV_JOURNAL_HEAD);
    srv_store_request_snapshot(&status, app.store);
    store_app_await_snapshot(&app);
    struct srv_store_status after = store_app_take_snapshot(&app);
    store_app_limit_files(RLIM_INFINITY);
    ck_assert_uint_eq(after.base, status.base);
    ck_assert_uint_eq(after.generation, status.generation + 1);
    return after;
}

static size_t count_failed(void)
{
    static const char name[] = "\nattnd_snapshots_failed_total ";
    struct srv_buffer text;
    srv_buffer_init(&text, 1 << 20);
    srv_metrics_print(&text, app.metrics);
    srv_buffer_append(&text, "", 1);
    const char *at = strstr(text.data, name);
    ck_assert_ptr_nonnull(at);
    size_t count = strtoul(at + sizeof name - 1, NULL, 10);
    srv_buffer_fini(&text);
    return count;
}

static size_t count_files(enum srv_file_kind kind)
{
    struct srv_file *files;
    size_t count, found = 0;
    ck_assert(srv_files_list(&files, &count, srv_store_directory(app.store)));
    for (size_t i = 0; i < count; i++)
        found += files[i].kind == kind;
    free(files);
    return found;
}

/* Records a step, a fork and another step, makes a snapshot, and begins again with the files as
 * they were and those of the snapshot that the command leaves. */
static void kill_snapshot(struct srv_session *parent, const char *command)
{
    ck_assert_int_eq(store_app_append(&app, parent), SRV_OK);
    srv_session_put(store_app_fork(&app, parent, "fork"));
    ck_assert_int_eq(store_app_append(&app, parent), SRV_OK);
    srv_session_put(parent);
    store_app_shell(&app,
                    "mkdir kept && find . -maxdepth 1 -name '*.*' -type f -exec cp {} kept \\;");
    store_app_snapshot(&app);
    store_app_end(&app);
    store_app_shell(&app, command);
    store_app_shell(&app, "cp -n kept/* . && rm -r kept");
    store_app_begin(&app);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

START_TEST(test_journal_is_flushed_each_second_while_a_snapshot_waits_for_the_disk)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    atomic_store(&disk.fsync_ms, SLOW_MS);
    struct srv_store_status status;
    srv_store_request_snapshot(&status, app.store);
    ck_assert(status.running);
    store_app_await_snapshot(&app);
    srv_store_take_snapshot(app.store);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    size_t before = disk_count(DISK_FDATASYNC, "2.journal"); /* once when it was made */
    while (disk_count(DISK_FDATASYNC, "2.journal") == before && status.running) {
        usleep(10000);
        srv_store_describe(&status, app.store);
    }
    ck_assert(status.running);
    atomic_store(&disk.fsync_ms, 0);
    srv_session_put(session);
}
END_TEST

/* The snapshot needs blocks of sessions that have changed alone. */
START_TEST(test_session_deleted_while_a_snapshot_is_written_gives_its_memory_back_at_once)
{
    struct srv_session *unchanged = store_app_session(&app, "a"),
                       *changed = store_app_session(&app, "b");
    struct srv_store_status status;
    ck_assert_int_eq(store_app_append(&app, unchanged), SRV_OK);
    store_app_snapshot(&app);
    ck_assert_int_eq(store_app_append(&app, changed), SRV_OK);
    srv_store_request_snapshot(&status, app.store);
    store_app_await_snapshot(&app);
    atomic_store(&disk.fdatasync_ms, SLOW_MS);
    srv_store_take_snapshot(app.store);
    const size_t before = attn_cache_pool_used(app.pool),
                 bytes = attn_cache_bytes(unchanged->cache);
    delete_session(unchanged);
    ck_assert_uint_eq(attn_cache_pool_used(app.pool), before - bytes);
    srv_store_describe(&status, app.store);
    ck_assert(status.running);
    atomic_store(&disk.fdatasync_ms, 0);
    delete_session(changed);
}
END_TEST

START_TEST(test_session_that_could_not_be_recorded_is_not_recorded_by_a_step_that_found_it)
{
    struct srv_session *session = store_app_session(&app, "a");
    store_app_limit_files(1);
    ck_assert_int_eq(srv_store_create(app.store, session, &error), SRV_E_STORAGE);
    store_app_limit_files(RLIM_INFINITY);
    (void)store_app_append(&app, session); /* a step that found it before its maker took it back */
    ck_assert_int_ne(srv_store_create(app.store, session, &error),
                     SRV_OK); /* nor by a retry of its creation */
    srv_session_remove(app.sessions, session);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), SIZE_MAX);
}
END_TEST

/* Bytes of a write that failed stay in a journal where truncating it fails too; a record that was
 * answered later has the same number. */
START_TEST(test_session_with_two_records_of_one_number_is_lost_and_not_wrong)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    const struct srv_record_rows rows = {srv_session_used(app.sessions, session), 0, 1, 0, {3, 4}};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
    struct srv_record_head head = {.type = SRV_RECORD_ROWS, .epoch = session->epoch, .chain = 1};
    struct srv_journal journal;
    struct srv_file file;
    srv_file_name(&file, SRV_FILE_JOURNAL, 2);
    int fd = openat(srv_store_directory(app.store), file.name, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert(srv_journal_open(&journal, fd, 2));
    srv_journal_add(&journal, &head, parts, 3);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    srv_journal_close(&journal);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), SIZE_MAX);
}
END_TEST

/* A snapshot that is asked for gets a new journal, since its caller waits for a larger number. */
START_TEST(test_snapshot_that_is_tried_again_makes_no_new_journal)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    struct srv_store_status failed = fail_snapshot();
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 2);
    failed = fail_snapshot();
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 3);
    store_app_await_snapshot(&app); /* the store tries again after some seconds */
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 3);
    struct srv_store_status made = store_app_take_snapshot(&app);
    ck_assert_uint_eq(made.generation, failed.generation);
    ck_assert_uint_eq(made.base, failed.generation);
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 1);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 2);
}
END_TEST

/* The record is written after the store has found the journal empty, and before the snapshot. */
START_TEST(test_snapshot_that_is_tried_again_begins_a_journal_where_something_was_recorded)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    struct srv_store_status failed = fail_snapshot();
    store_app_await_snapshot(&app);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    struct srv_store_status made = store_app_take_snapshot(&app);
    ck_assert_uint_eq(made.base, 0);
    store_app_await_snapshot(&app);
    made = store_app_take_snapshot(&app);
    ck_assert_uint_eq(made.base, failed.generation + 1);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 3);
}
END_TEST

/* A snapshot that is asked for while there is no room even for its journal is made once there is
 * room, with a generation of its own. */
START_TEST(test_snapshot_that_was_asked_for_is_owed_until_it_is_made)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    fail_snapshot();
    size_t failed = count_failed();
    struct srv_store_status asked, status;
    store_app_limit_files(1);
    srv_store_request_snapshot(&asked, app.store);
    do {
        usleep(10000);
        srv_store_describe(&status, app.store);
    } while (status.running);
    usleep(1500000); /* it is not tried again without a pause */
    store_app_limit_files(RLIM_INFINITY);
    ck_assert_uint_eq(count_failed(), failed + 1);
    ck_assert_uint_eq(status.base, asked.base);
    store_app_await_snapshot(&app);
    ck_assert_uint_eq(store_app_take_snapshot(&app).base, asked.generation + 1);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 1);
}
END_TEST

/* The manifest may be on the disk. */
START_TEST(test_snapshot_whose_manifest_may_stand_is_tried_again)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    struct srv_store_status asked;
    srv_store_request_snapshot(&asked, app.store);
    store_app_await_snapshot(&app);
    atomic_store(&disk.unsafe_manifest, asked.generation + 1);
    ck_assert_uint_eq(store_app_take_snapshot(&app).base, asked.base);
    ck_assert_uint_eq(count_files(SRV_FILE_MANIFEST), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 2);
    atomic_store(&disk.unsafe_manifest, 0);
    if (_i > 0)
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    store_app_await_snapshot(&app);
    ck_assert_uint_eq(store_app_take_snapshot(&app).base, asked.generation + 1 + (uint64_t)_i);
    ck_assert_uint_eq(count_files(SRV_FILE_MANIFEST), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_COPY), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 1);
    srv_session_put(session);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 1 + (size_t)_i);
}
END_TEST

/* The daemon is killed while it writes the first snapshot of a directory, or before it has removed
 * what that replaces; after power loss names of blocks may be on the disk without bytes.  A part of
 * a snapshot shadows no record, and the next snapshot removes it. */
START_TEST(test_fork_outlives_a_first_snapshot_that_was_killed)
{
    static const char *const kills[] = {"rm *.manifest *.copy",
                                        "rm *.manifest *.copy && truncate -s 0 *.blocks",
                                        "for f in *.manifest *.copy; do mv $f $f.new; done",
                                        "for f in *.copy; do mv $f $f.new; done", ":"};
    kill_snapshot(store_app_session(&app, "a"), kills[_i]);
    ck_assert_uint_eq(count_files(SRV_FILE_BLOCKS), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_UNFINISHED), 0);
    ck_assert_uint_eq(store_app_length(&app, "a"), 2);
    ck_assert_uint_eq(store_app_length(&app, "fork"), 1);
    store_app_snapshot(&app);
    ck_assert_uint_eq(count_files(SRV_FILE_BLOCKS), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_MANIFEST), 1);
    ck_assert_uint_eq(count_files(SRV_FILE_JOURNAL), 1);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 2);
    ck_assert_uint_eq(store_app_find_again(&app, "fork"), 1);
}
END_TEST

/* What one copy says counts, also where a part of a later moment stands beside it. */
START_TEST(test_damaged_copy_of_a_manifest_costs_nothing)
{
    static const char *const damages[] = {"truncate -s 5 *.manifest", "truncate -s 5 *.copy",
                                          "rm *.manifest", "rm *.copy"};
    struct srv_session *session = store_app_session(&app, "a");
    struct srv_store_status status;
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    store_app_snapshot(&app);
    kill_snapshot(session, "rm -f *3.manifest *3.copy");
    store_app_end(&app);
    store_app_shell(&app, damages[_i]);
    store_app_begin(&app);
    store_app_await_snapshot(&app); /* that nobody has asked for */
    status = store_app_take_snapshot(&app);
    ck_assert_uint_eq(status.base, status.generation);
    store_app_shell(&app, "test $(ls *.manifest *.copy | wc -l) = 2 && ! ls *.damaged 2>/dev/null");
    ck_assert_uint_eq(store_app_length(&app, "a"), 3);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 3);
    ck_assert_uint_eq(store_app_length(&app, "fork"), 2);
}
END_TEST

/* Where both copies are damaged, what journals have alone is served, and all files are kept, the
 * blocks too: in later starts and snapshots, which share one file of blocks more. */
START_TEST(test_damaged_manifest_leaves_the_journals_since_and_keeps_its_blocks)
{
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    store_app_snapshot(&app);
    session = store_app_session(&app, "b");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    store_app_end(&app);
    store_app_shell(&app, "truncate -s 5 *.manifest *.copy && cat *.blocks >before");
    for (int i = 0; i < 3; i++) {
        store_app_begin(&app);
        ck_assert_uint_eq(store_app_length(&app, "a"), SIZE_MAX);
        ck_assert_uint_eq(store_app_length(&app, "b"), 1 + (size_t)i);
        session = srv_session_peek(app.sessions, NULL, "b");
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
        store_app_snapshot(&app);
        store_app_shell(&app, "test -f *.manifest.damaged -a -f *.copy.damaged && "
                              "cmp $(ls *.blocks | head -1) before && "
                              "test $(ls *.blocks | wc -l) = 2");
        store_app_end(&app);
    }
    store_app_begin(&app);
}
END_TEST

/* Names and sizes of the directory's files. */
static void list_files(char out[4096])
{
    char command[128];
    snprintf(command, sizeof command, "find %s -type f -printf '%%f %%s\\n' | sort",
             app.config.state_dir);
    FILE *stream = popen(command, "r");
    ck_assert_ptr_nonnull(stream);
    out[fread(out, 1, 4095, stream)] = '\0';
    ck_assert_int_eq(pclose(stream), 0);
}

/* Fails a start that begins with a snapshot: the disk has no room for blocks (0), or none for the
 * manifest (1), or may lose its name (2). */
static void fail_start(int why)
{
    if (why == 0)
        store_app_limit_files(1500);
    atomic_store(&disk.no_manifest, why == 1);
    atomic_store(&disk.unsafe_manifest, why == 2 ? 2 : 0);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
    const struct srv_store_context context = srv_app_store_context(&app);
    ck_assert(srv_store_open(&app.store, &context, message, sizeof message));
    ck_assert(!srv_store_load(app.store, message, sizeof message));
    ck_assert_msg(strstr(message, "cannot be written") != NULL, "%s", message);
    ck_assert(srv_store_close(app.store));
    srv_sessions_close(app.sessions);
    atomic_store(&disk.no_manifest, false);
    atomic_store(&disk.unsafe_manifest, 0);
    store_app_limit_files(RLIM_INFINITY);
}

/* Makes four sessions, of which the first is lost to damage in the journal. */
static void lose_one_of_four(void)
{
    static const char *const ids[] = {"lost", "small", "large", "tiny"};
    for (size_t i = 0; i < 4; i++) {
        struct srv_session *session = store_app_session(&app, ids[i]);
        for (size_t rows = 0; rows < (i == 2 ? 60 : 1); rows++)
            ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
    }
    store_app_end(&app);
    size_t mark = SRV_RECORD_HEAD + sizeof(struct srv_record_mark), head = SRV_RECORD_HEAD;
    char command[128];
    snprintf(command, sizeof command,
             "printf x | dd of=0000000000000001.journal bs=1 seek=%zu conv=notrunc 2>/dev/null",
             SRV_JOURNAL_HEAD + mark + head + 8);
    store_app_shell(&app, command);
}

/* The next start finds the same files. */
START_TEST(test_start_whose_first_snapshot_fails_leaves_no_more_files_however_often_it_is_tried)
{
    char before[4096], once[4096], twice[4096];
    lose_one_of_four();
    list_files(before);
    fail_start(_i);
    list_files(once);
    fail_start(_i);
    list_files(twice);
    if (_i < 2)
        ck_assert_str_eq(once, before);
    ck_assert_str_eq(twice, once);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "lost"), SIZE_MAX);
    ck_assert_uint_eq(store_app_length(&app, "small"), 1);
    ck_assert_uint_eq(store_app_length(&app, "large"), 60);
    ck_assert_uint_eq(store_app_length(&app, "tiny"), 1);
    ck_assert_uint_eq(store_app_find_again(&app, "large"), 60);
}
END_TEST

#define COME_AND_GO 3200 /* sessions: of twice as many records several windows are read */

/* The number of bytes in the first line of progress. */
static size_t first_reported(int log)
{
    static const char words[] = "sessions, ";
    char text[4096];
    ssize_t length = pread(log, text, sizeof text - 1, 0);
    ck_assert_int_gt(length, 0);
    text[length] = '\0';
    const char *line = strstr(text, "\"restoring\"");
    ck_assert_msg(line != NULL && (line = strstr(line, words)) != NULL, "%s", text);
    return strtoul(line + sizeof words - 1, NULL, 10);
}

START_TEST(test_start_logs_how_far_it_is_within_one_journal)
{
    for (unsigned i = 0; i < COME_AND_GO; i++) {
        struct srv_session *session = store_app_session(&app, "a");
        ck_assert_int_eq(srv_store_create(app.store, session, &error), SRV_OK);
        ck_assert_int_eq(srv_store_delete(app.store, session, &error), SRV_OK);
        srv_session_remove(app.sessions, session);
        srv_session_put(session);
    }
    struct srv_store_status status;
    srv_store_describe(&status, app.store);
    int log = memfd_create("log", 0);
    store_app_end(&app);
    srv_log_close(&app.log);
    srv_log_open(&app.log, SRV_LOG_INFO, log);
    atomic_store(&disk.pread_s, 1);
    store_app_begin(&app);
    srv_log_flush(&app.log);
    size_t bytes = first_reported(log);
    ck_assert_uint_gt(bytes, 0);
    ck_assert_uint_lt(bytes, status.journal_bytes);
    srv_log_close(&app.log);
    srv_log_open(&app.log, SRV_LOG_OFF, STDERR_FILENO);
    close(log);
}
END_TEST

/* The blocks of a killed snapshot have a number that no journal has to follow. */
START_TEST(test_sessions_outlive_a_change_to_journals_after_a_snapshot_that_was_killed)
{
    store_app_end(&app);
    app.config.durability = SRV_DURABLE_SNAPSHOT;
    store_app_begin(&app);
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    store_app_end(&app);
    store_app_shell(&app, "cp *.blocks $(ls *.blocks | sed s/^0/1/)");
    app.config.durability = SRV_DURABLE_JOURNAL;
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 1);
    ck_assert_uint_eq(store_app_find_again(&app, "a"), 1);
}
END_TEST

START_TEST(test_what_is_no_regular_file_is_not_waited_for)
{
    struct srv_file_reader reader;
    store_app_shell(&app, "mkfifo fifo && mkdir folder");
    static const char *const names[] = {"fifo", "folder"};
    for (size_t i = 0; i < 2; i++) {
        ck_assert(!srv_file_reader_open(&reader, srv_store_directory(app.store), names[i]));
        ck_assert_int_eq(errno, EINVAL);
    }
}
END_TEST

/* All files (0), or blocks alone, which a start that makes a snapshot reads (1). */
START_TEST(test_start_is_refused_where_files_cannot_be_read_that_may_be_sound)
{
    char before[4096], after[4096];
    struct srv_session *session = store_app_session(&app, "a");
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
    store_app_snapshot(&app);
    store_app_end(&app);
    list_files(before);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
    struct srv_store_context context = srv_app_store_context(&app);
    context.reads_at_once = true;
    ck_assert(srv_store_open(&app.store, &context, message, sizeof message));
    atomic_store(_i == 0 ? &disk.unreadable : &disk.unreadable_blocks, EIO);
    ck_assert(!srv_store_load(app.store, message, sizeof message));
    ck_assert_msg(strstr(message, "cannot be read: Input/output error") != NULL, "%s", message);
    disk_reset();
    store_app_end(&app);
    list_files(after);
    ck_assert_str_eq(after, before);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "a"), 1);
}
END_TEST

/* Opens the directory of a closed store as a user, and expects a refusal with the text. */
static void expect_refused_directory(const char *expected, uid_t user)
{
    struct srv_store *store;
    const struct srv_store_context context = srv_app_store_context(&app);
    ck_assert_int_eq(seteuid(user), 0);
    bool opened = srv_store_open(&store, &context, message, sizeof message);
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert(!opened);
    ck_assert_msg(strstr(message, expected) != NULL, "%s", message);
}

/* As root, since another user cannot make what belongs to somebody else. */
START_TEST(test_directory_of_another_user_is_refused_with_the_owner_and_the_remedy)
{
    static const struct {
        const char *command, *owner;
    } cases[] = {{"chmod 755 . && chown 0 . lock", "user 0 owns it"},
                 {"chown 65533 . lock && chmod 700 .", "user 65533 owns it"},
                 {"chown 65532 . && chown 0 lock && chmod 600 lock", "user 0 owns it"}};
    char expected[512];
    store_app_end(&app);
    for (size_t i = 0; getuid() == 0 && i < sizeof cases / sizeof *cases; i++) {
        store_app_shell(&app, cases[i].command);
        snprintf(expected, sizeof expected,
                 "Permission denied: %s and attnd runs as user 65532: chown -R 65532 %s",
                 cases[i].owner, app.config.state_dir);
        expect_refused_directory(expected, 65532);
    }
    if (getuid() == 0)
        store_app_shell(&app, "chown -R 65532 . && chmod 500 . && rm lock");
    else
        store_app_shell(&app, "rm lock && chmod 500 .");
    snprintf(expected, sizeof expected, "state_dir %s: Permission denied", app.config.state_dir);
    expect_refused_directory(expected, getuid() == 0 ? 65532 : getuid());
    ck_assert_msg(strstr(message, "chown") == NULL, "%s", message);
    store_app_shell(&app, "chmod 700 .");
    store_app_begin(&app);
}
END_TEST

Suite *suite_store(void)
{
    Suite *suite = suite_create("store");
    TCase *tests = suite_cases(suite, "store", set_up, tear_down, 60);
    tcase_add_test(tests, test_journal_is_flushed_each_second_while_a_snapshot_waits_for_the_disk);
    tcase_add_test(tests,
                   test_session_deleted_while_a_snapshot_is_written_gives_its_memory_back_at_once);
    tcase_add_test(tests,
                   test_session_that_could_not_be_recorded_is_not_recorded_by_a_step_that_found_it);
    tcase_add_test(tests, test_session_with_two_records_of_one_number_is_lost_and_not_wrong);
    tcase_add_test(tests, test_snapshot_that_is_tried_again_makes_no_new_journal);
    tcase_add_test(tests,
                   test_snapshot_that_is_tried_again_begins_a_journal_where_something_was_recorded);
    tcase_add_test(tests, test_snapshot_that_was_asked_for_is_owed_until_it_is_made);
    tcase_add_loop_test(tests, test_snapshot_whose_manifest_may_stand_is_tried_again, 0, 2);
    tcase_add_loop_test(tests, test_fork_outlives_a_first_snapshot_that_was_killed, 0, 5);
    tcase_add_loop_test(tests, test_damaged_copy_of_a_manifest_costs_nothing, 0, 4);
    tcase_add_test(tests, test_damaged_manifest_leaves_the_journals_since_and_keeps_its_blocks);
    tcase_add_loop_test(
        tests, test_start_whose_first_snapshot_fails_leaves_no_more_files_however_often_it_is_tried,
        0, 3);
    tcase_add_test(tests, test_start_logs_how_far_it_is_within_one_journal);
    tcase_add_test(tests,
                   test_sessions_outlive_a_change_to_journals_after_a_snapshot_that_was_killed);
    tcase_add_test(tests, test_what_is_no_regular_file_is_not_waited_for);
    tcase_add_loop_test(tests, test_start_is_refused_where_files_cannot_be_read_that_may_be_sound,
                        0, 2);
    tcase_add_test(tests, test_directory_of_another_user_is_refused_with_the_owner_and_the_remedy);
    return suite;
}
