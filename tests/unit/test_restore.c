/* test_restore.c: the records of one journal become sessions. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn_state.h"
#include "base/checksum.h"
#include "store/journal.h"
#include "store/restore.h"
#include "store_app.h"
#include "suites.h"

#define WIDTH 4

static struct srv_app app;
static float row[WIDTH] = {1, 2, 3, 4};

static void set_up(void)
{
    static char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"seed\":1}";
    const struct srv_config config = {
        .limits = {.max_sessions = 8, .max_session_length = 64, .session_ttl_s = 3600}};
    store_app_open(&app, &config, "tiny", random, (size_t)1 << 20);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
}

static void tear_down(void)
{
    srv_sessions_close(app.sessions);
    store_app_close(&app);
}

/* Adds the records of an import, with its commit or without, and of another session. */
static void write_import(struct srv_journal *journal, bool committed)
{
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"}, .revision = 1};
    const struct srv_record_rows rows = {.used_ns = 1, .rows = 1};
    const struct srv_record_last last = {0};
    const struct srv_record_part made = {&created, sizeof created}, commit = {&last, sizeof last};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
    struct srv_record_head head = {.type = SRV_RECORD_CREATE, .epoch = 7};
    snprintf(created.create.model, sizeof created.create.model, "tiny");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    created.create.pending = 1;
    srv_journal_add(journal, &head, &made, 1);
    head = (struct srv_record_head){.type = SRV_RECORD_ROWS, .epoch = 7, .chain = 1};
    srv_journal_add(journal, &head, parts, 3);
    head = (struct srv_record_head){.type = SRV_RECORD_COMMIT, .epoch = 7, .chain = 2};
    if (committed)
        srv_journal_add(journal, &head, &commit, 1);
    ck_assert_int_eq(srv_journal_flush(journal, true), 0);
    head = (struct srv_record_head){.type = SRV_RECORD_CREATE, .epoch = 8};
    created.create.pending = 0;
    snprintf(created.create.id, sizeof created.create.id, "b");
    srv_journal_add(journal, &head, &made, 1);
    ck_assert_int_eq(srv_journal_flush(journal, false), 0);
}

/* Restores that journal with the byte at `damaged` changed; 0: none. */
static struct srv_restore_result restore_import(bool committed, off_t damaged)
{
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_restore_result result;
    struct srv_file_reader reader;
    unsigned char byte;
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    journal.older_synced = true;
    write_import(&journal, committed);
    ck_assert_int_eq(pread(journal.fd, &byte, 1, damaged), 1);
    byte ^= 1;
    if (damaged != 0)
        ck_assert_int_eq(pwrite(journal.fd, &byte, 1, damaged), 1);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    ck_assert_uint_eq(replayed.gaps, damaged != 0);
    ck_assert(srv_restore_publish(&result, &restore));
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
    return result;
}

START_TEST(test_import_that_is_damaged_is_lost_and_one_that_was_torn_is_not)
{
    const size_t rows = SRV_JOURNAL_HEAD + SRV_RECORD_HEAD + sizeof(struct srv_record_made);
    const size_t commit = rows + SRV_RECORD_HEAD + sizeof(struct srv_record_rows) + 2 * sizeof row;
    const struct {
        bool committed;
        size_t damaged, lost, found;
    } cases[] = {
        {false, 0, 0, 1}, {true, 0, 0, 2}, {true, rows + 80, 1, 1}, {true, commit + 80, 1, 1}};
    struct srv_restore_result result =
        restore_import(cases[_i].committed, (off_t)cases[_i].damaged);
    ck_assert_uint_eq(result.lost, cases[_i].lost);
    ck_assert_uint_eq(result.published + result.expired, cases[_i].found);
}
END_TEST

/* ---- Windows --------------------------------------------------------------------------------- */

#define TOKENS 200

/* Adds a session of TOKENS steps of one row, and the truncation to `length`. */
static void write_truncated(struct srv_journal *journal, uint64_t length)
{
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = TOKENS, .id = "w"}, .revision = 1};
    const struct srv_record_truncate truncate = {
        .used_ns = 2, .length = length, .revision = 2, .before = 1};
    const struct srv_record_part made = {&created, sizeof created},
                                 cut = {&truncate, sizeof truncate};
    struct srv_record_head head = {.type = SRV_RECORD_CREATE, .epoch = 7};
    snprintf(created.create.model, sizeof created.create.model, "tiny");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    srv_journal_add(journal, &head, &made, 1);
    for (uint64_t i = 0; i < TOKENS; i++) {
        const struct srv_record_rows rows = {.used_ns = 1, .position = i, .rows = 1};
        const struct srv_record_part parts[] = {
            {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
        head = (struct srv_record_head){.type = SRV_RECORD_ROWS, .epoch = 7, .chain = 1 + i};
        srv_journal_add(journal, &head, parts, 3);
    }
    head = (struct srv_record_head){.type = SRV_RECORD_TRUNCATE, .epoch = 7, .chain = 1 + TOKENS};
    srv_journal_add(journal, &head, &cut, 1);
    ck_assert_int_eq(srv_journal_flush(journal, true), 0);
}

static void set_up_window(void)
{
    static char random[] =
        "{\"hidden_size\":4,\"num_attention_heads\":1,\"sliding_window\":8,\"seed\":1}";
    const struct srv_config config = {
        .limits = {.max_sessions = 8, .max_session_length = TOKENS, .session_ttl_s = 3600}};
    store_app_open(&app, &config, "tiny", random, (size_t)1 << 20);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
}

/* The last step, at 199, sees tokens from 192 on: the layer begins there. */
START_TEST(test_a_truncation_goes_back_to_tokens_that_the_window_has_kept)
{
    static const struct {
        uint64_t length;
        size_t first, lost;
    } cases[] = {{199, 192, 0}, {198, 0, 1}, {0, 0, 0}};
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_restore_result result;
    struct srv_file_reader reader;
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    journal.older_synced = true;
    write_truncated(&journal, cases[_i].length);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    ck_assert_uint_eq(replayed.gaps, 0);
    const struct srv_restored_session *entry = srv_restore_find(&restore, 7);
    ck_assert_ptr_nonnull(entry);
    if (cases[_i].lost == 0) {
        ck_assert_uint_eq(attn_cache_length(entry->session->cache, 0), cases[_i].length);
        ck_assert_uint_eq(attn_cache_first(entry->session->cache, 0), cases[_i].first);
        ck_assert_uint_eq(entry->session->used_ns, 2);
    }
    ck_assert(srv_restore_publish(&result, &restore));
    ck_assert_uint_eq(result.lost, cases[_i].lost);
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

/* Its rows have a number that it cannot have; then it is deleted. */
START_TEST(test_a_lost_session_that_is_deleted_is_not_lost)
{
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_restore_result result;
    struct srv_file_reader reader;
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"}, .revision = 1};
    const struct srv_record_rows rows = {.used_ns = 1, .rows = 1};
    const struct srv_record_part made = {&created, sizeof created};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
    struct srv_record_head head = {.type = SRV_RECORD_CREATE, .epoch = 7};
    snprintf(created.create.model, sizeof created.create.model, "tiny");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    srv_journal_add(&journal, &head, &made, 1);
    head = (struct srv_record_head){.type = SRV_RECORD_ROWS, .epoch = 7, .chain = 5};
    srv_journal_add(&journal, &head, parts, 3);
    head = (struct srv_record_head){.type = SRV_RECORD_DELETE, .epoch = 7};
    if (_i == 1)
        srv_journal_add(&journal, &head, NULL, 0);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    ck_assert(srv_restore_publish(&result, &restore));
    ck_assert_uint_eq(result.lost, _i == 0);
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

/* A fork of both steps knows the last one, a fork of the first one knows none: the parent's last
 * step is beyond its end. */
START_TEST(test_a_fork_has_its_parents_last_step_only_where_it_ends_with_it)
{
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader reader;
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"}, .revision = 1};
    const struct srv_record_part made = {&created, sizeof created};
    struct srv_record_head head = {.type = SRV_RECORD_CREATE, .epoch = 7};
    snprintf(created.create.model, sizeof created.create.model, "tiny");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    srv_journal_add(&journal, &head, &made, 1);
    for (uint64_t i = 0; i < 2; i++) {
        const struct srv_record_rows rows = {.used_ns = 1, .position = i, .rows = 1};
        const struct srv_record_part parts[] = {
            {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
        head = (struct srv_record_head){.type = SRV_RECORD_ROWS, .epoch = 7, .chain = 1 + i};
        srv_journal_add(&journal, &head, parts, 3);
    }
    created.create.parent = 7;
    created.create.parent_chain = 3;
    for (uint64_t length = 1; length <= 2; length++) {
        created.create.length = length;
        snprintf(created.create.id, sizeof created.create.id, "f%u", (unsigned)length);
        head = (struct srv_record_head){.type = SRV_RECORD_FORK, .epoch = 7 + length};
        srv_journal_add(&journal, &head, &made, 1);
    }
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    for (uint64_t length = 1; length <= 2; length++) {
        const struct srv_restored_session *fork = srv_restore_find(&restore, 7 + length);
        ck_assert(fork != NULL && fork->session != NULL);
        ck_assert_uint_eq(attn_cache_length(fork->session->cache, 0), length);
        ck_assert_uint_eq(fork->session->last_steps[0].rows, length == 2);
    }
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

#define MANY 50000

/* However long a journal is, sessions that it deletes take no memory. */
START_TEST(test_sessions_that_are_deleted_take_no_room_while_a_journal_is_read)
{
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader reader;
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"}, .revision = 1};
    const struct srv_record_part part = {&created, sizeof created};
    snprintf(created.create.model, sizeof created.create.model, "tiny");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    for (uint64_t epoch = 1; epoch <= MANY; epoch++) {
        struct srv_record_head made = {.type = SRV_RECORD_CREATE, .epoch = epoch};
        struct srv_record_head deleted = {.type = SRV_RECORD_DELETE, .epoch = epoch, .chain = 1};
        srv_journal_add(&journal, &made, &part, 1);
        if (epoch % (MANY / 4) != 0)
            srv_journal_add(&journal, &deleted, NULL, 0);
    }
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    ck_assert_uint_eq(replayed.records, 2 * MANY - 4);
    ck_assert_uint_le(restore.capacity, 64);
    for (uint64_t i = 1; i <= 4; i++) {
        const struct srv_restored_session *left = srv_restore_find(&restore, i * (MANY / 4));
        ck_assert(left != NULL && left->session != NULL);
    }
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

/* For a table of 8, too many are more than 2 * (8 + 128) sessions, or 8 * (8 + 128) lost ones. */
START_TEST(test_journal_with_too_many_sessions_is_left_before_its_end)
{
    static const size_t most[] = {2 * 136, 8 * 136};
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader reader;
    struct srv_record_made created = {
        .create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"}, .revision = 1};
    const struct srv_record_part part = {&created, sizeof created};
    snprintf(created.create.model, sizeof created.create.model, _i == 0 ? "tiny" : "another");
    snprintf(created.create.fingerprint, sizeof created.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    for (uint64_t epoch = 1; epoch <= most[_i] * 3 / 2; epoch++) {
        struct srv_record_head made = {.type = SRV_RECORD_CREATE, .epoch = epoch};
        srv_journal_add(&journal, &made, &part, 1);
    }
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_FULL);
    ck_assert_ptr_nonnull(strstr(restore.message, "max_sessions"));
    ck_assert_uint_gt(restore.made, most[_i]);
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

struct reports {
    size_t times, most;
};

static void note_progress(void *context, size_t end)
{
    struct reports *reports = context;
    reports->most = end > reports->most ? end : reports->most;
    reports->times++;
}

#define ROWS 512

START_TEST(test_progress_is_reported_within_a_record_as_long_as_a_journal)
{
    static const float many[ROWS * WIDTH];
    const struct srv_record_rows rows = {.used_ns = 1, .rows = ROWS};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {many, sizeof many}, {many, sizeof many}};
    struct srv_record_head head = {.type = SRV_RECORD_ROWS, .epoch = 9, .chain = 1};
    struct reports reports = {0};
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader reader;
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    write_import(&journal, true);
    srv_journal_add(&journal, &head, parts, 3);
    ck_assert_int_eq(srv_journal_flush(&journal, false), 0);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    reader.room = 1024;
    reader.progress = note_progress;
    reader.context = &reports;
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    ck_assert_uint_ge(reports.times, reader.size / reader.room);
    ck_assert_uint_eq(reports.most, reader.size);
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
}
END_TEST

Suite *suite_restore(void)
{
    Suite *suite = suite_create("restore");
    TCase *tests = tcase_create("restore");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_import_that_is_damaged_is_lost_and_one_that_was_torn_is_not, 0,
                        4);
    tcase_add_loop_test(tests, test_a_lost_session_that_is_deleted_is_not_lost, 0, 2);
    tcase_add_test(tests, test_a_fork_has_its_parents_last_step_only_where_it_ends_with_it);
    tcase_add_test(tests, test_sessions_that_are_deleted_take_no_room_while_a_journal_is_read);
    tcase_add_loop_test(tests, test_journal_with_too_many_sessions_is_left_before_its_end, 0, 2);
    tcase_add_test(tests, test_progress_is_reported_within_a_record_as_long_as_a_journal);
    suite_add_tcase(suite, tests);
    TCase *windows = tcase_create("windows");
    tcase_add_checked_fixture(windows, set_up_window, tear_down);
    tcase_add_loop_test(windows, test_a_truncation_goes_back_to_tokens_that_the_window_has_kept, 0,
                        3);
    suite_add_tcase(suite, windows);
    return suite;
}
