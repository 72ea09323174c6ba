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
#define MAX_LENGTH 200

static struct srv_app app;
static struct srv_journal journal;
static struct srv_restore restore;
static struct srv_replay_result replayed;
static float row[WIDTH] = {1, 2, 3, 4};

static void set_up_model(char *random)
{
    const struct srv_config config = {
        .limits = {.max_sessions = 8, .max_session_length = MAX_LENGTH, .session_ttl_s = 3600}};
    store_app_open(&app, &config, "tiny", random, (size_t)1 << 20);
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, "test"));
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    journal.older_synced = true;
}

static void set_up(void)
{
    static char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"seed\":1}";
    set_up_model(random);
}

static void set_up_window(void)
{
    static char random[] =
        "{\"hidden_size\":4,\"num_attention_heads\":1,\"sliding_window\":8,\"seed\":1}";
    set_up_model(random);
}

static void tear_down(void)
{
    srv_journal_close(&journal);
    srv_sessions_close(app.sessions);
    store_app_close(&app);
}

struct reports {
    size_t times, most;
};

static void note_progress(void *context, size_t end)
{
    struct reports *reports = context;
    reports->most = end > reports->most ? end : reports->most;
    reports->times++;
}

/* ---- Records --------------------------------------------------------------------------------- */

static struct srv_record_made made_of(const char *id, const char *model)
{
    struct srv_record_made made = {.create = {.used_ns = 1, .ttl_s = 9, .max_length = MAX_LENGTH},
                                   .revision = 1};
    snprintf(made.create.id, sizeof made.create.id, "%s", id);
    snprintf(made.create.model, sizeof made.create.model, "%s", model);
    snprintf(made.create.fingerprint, sizeof made.create.fingerprint, "%s",
             app.models.items[0].info.fingerprint);
    return made;
}

static void add(enum srv_record_type type, uint64_t epoch, uint64_t chain, const void *bytes,
                size_t size)
{
    const struct srv_record_part part = {bytes, size};
    struct srv_record_head head = {.type = type, .epoch = epoch, .chain = chain};
    srv_journal_add(&journal, &head, &part, size > 0);
}

static void add_session(uint64_t epoch, const char *id)
{
    const struct srv_record_made made = made_of(id, "tiny");
    add(SRV_RECORD_CREATE, epoch, 0, &made, sizeof made);
}

static void add_row(uint64_t epoch, uint64_t chain, uint64_t position)
{
    const struct srv_record_rows rows = {.used_ns = 1, .position = position, .rows = 1};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {row, sizeof row}, {row, sizeof row}};
    struct srv_record_head head = {.type = SRV_RECORD_ROWS, .epoch = epoch, .chain = chain};
    srv_journal_add(&journal, &head, parts, 3);
}

static void flush(bool sync) { ck_assert_int_eq(srv_journal_flush(&journal, sync), 0); }

/* Reads the journal, which is flushed, into `restore`; `reports` may be NULL. */
static enum srv_restore_status read_journal(struct reports *reports, size_t window)
{
    struct srv_file_reader reader;
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    if (reports != NULL) {
        reader.room = window;
        reader.progress = note_progress;
        reader.context = reports;
    }
    srv_restore_init(&restore, app.sessions, app.config.limits.max_sessions, &app.models);
    enum srv_restore_status status = srv_restore_journal(&replayed, &restore, 1, &reader);
    srv_file_reader_close(&reader);
    return status;
}

/* Reads it and lists its sessions. */
static struct srv_restore_result restore_journal(void)
{
    struct srv_restore_result result;
    ck_assert_int_eq(read_journal(NULL, 0), SRV_RESTORE_OK);
    ck_assert(srv_restore_publish(&result, &restore));
    srv_restore_fini(&restore);
    return result;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Adds the records of an import, with its commit or without, and of another session. */
static void add_import(bool committed)
{
    const struct srv_record_last last = {0};
    struct srv_record_made made = made_of("a", "tiny");
    made.create.pending = 1;
    add(SRV_RECORD_CREATE, 7, 0, &made, sizeof made);
    add_row(7, 1, 0);
    if (committed)
        add(SRV_RECORD_COMMIT, 7, 2, &last, sizeof last);
    flush(true);
    add_session(8, "b");
    flush(false);
}

CASE(restore, set_up, tear_down, 60)

/* A byte of the journal is changed, where it is not the first one. */
TEST_EACH(import_that_is_damaged_is_lost_and_one_that_was_torn_is_not, 4)
{
    const size_t rows = SRV_JOURNAL_HEAD + SRV_RECORD_HEAD + sizeof(struct srv_record_made);
    const size_t commit = rows + SRV_RECORD_HEAD + sizeof(struct srv_record_rows) + 2 * sizeof row;
    const struct {
        bool committed;
        size_t damaged, lost, found;
    } cases[] = {
        {false, 0, 0, 1}, {true, 0, 0, 2}, {true, rows + 80, 1, 1}, {true, commit + 80, 1, 1}};
    const off_t damaged = (off_t)cases[_i].damaged;
    unsigned char byte;
    add_import(cases[_i].committed);
    ck_assert_int_eq(pread(journal.fd, &byte, 1, damaged), 1);
    byte ^= damaged != 0;
    ck_assert_int_eq(pwrite(journal.fd, &byte, 1, damaged), 1);
    struct srv_restore_result result = restore_journal();
    ck_assert_uint_eq(replayed.gaps, damaged != 0);
    ck_assert_uint_eq(result.lost, cases[_i].lost);
    ck_assert_uint_eq(result.published + result.expired, cases[_i].found);
}

/* Its rows have a number that it cannot have; then it is deleted. */
TEST_EACH(a_lost_session_that_is_deleted_is_not_lost, 2)
{
    add_session(7, "a");
    add_row(7, 5, 0);
    if (_i == 1)
        add(SRV_RECORD_DELETE, 7, 0, NULL, 0);
    flush(false);
    ck_assert_uint_eq(restore_journal().lost, _i == 0);
}

/* A fork of both steps knows the last one, a fork of the first one knows none: the parent's last
 * step is beyond its end. */
TEST(a_fork_has_its_parents_last_step_only_where_it_ends_with_it)
{
    add_session(7, "a");
    for (uint64_t i = 0; i < 2; i++)
        add_row(7, 1 + i, i);
    for (uint64_t length = 1; length <= 2; length++) {
        struct srv_record_made made = made_of(length == 1 ? "f1" : "f2", "tiny");
        made.create.parent = 7;
        made.create.parent_chain = 3;
        made.create.length = length;
        add(SRV_RECORD_FORK, 7 + length, 0, &made, sizeof made);
    }
    flush(false);
    ck_assert_int_eq(read_journal(NULL, 0), SRV_RESTORE_OK);
    for (uint64_t length = 1; length <= 2; length++) {
        const struct srv_restored_session *fork = srv_restore_find(&restore, 7 + length);
        ck_assert(fork != NULL && fork->session != NULL);
        ck_assert_uint_eq(attn_cache_length(fork->session->cache, 0), length);
        ck_assert_uint_eq(fork->session->last_steps[0].rows, length == 2);
    }
    srv_restore_fini(&restore);
}

#define MANY 50000

/* However long a journal is, sessions that it deletes take no memory. */
TEST(sessions_that_are_deleted_take_no_room_while_a_journal_is_read)
{
    for (uint64_t epoch = 1; epoch <= MANY; epoch++) {
        add_session(epoch, "a");
        if (epoch % (MANY / 4) != 0)
            add(SRV_RECORD_DELETE, epoch, 1, NULL, 0);
    }
    flush(false);
    ck_assert_int_eq(read_journal(NULL, 0), SRV_RESTORE_OK);
    ck_assert_uint_eq(replayed.records, 2 * MANY - 4);
    ck_assert_uint_le(restore.capacity, 64);
    for (uint64_t i = 1; i <= 4; i++) {
        const struct srv_restored_session *left = srv_restore_find(&restore, i * (MANY / 4));
        ck_assert(left != NULL && left->session != NULL);
    }
    srv_restore_fini(&restore);
}

/* For a table of 8, too many are more than 2 * (8 + 128) sessions, or 8 * (8 + 128) lost ones. */
TEST_EACH(journal_with_too_many_sessions_is_left_before_its_end, 2)
{
    static const size_t most[] = {2 * 136, 8 * 136};
    const struct srv_record_made made = made_of("a", _i == 0 ? "tiny" : "another");
    for (uint64_t epoch = 1; epoch <= most[_i] * 3 / 2; epoch++)
        add(SRV_RECORD_CREATE, epoch, 0, &made, sizeof made);
    flush(false);
    ck_assert_int_eq(read_journal(NULL, 0), SRV_RESTORE_FULL);
    ck_assert_ptr_nonnull(strstr(restore.message, "max_sessions"));
    ck_assert_uint_gt(restore.made, most[_i]);
    srv_restore_fini(&restore);
}

#define ROWS 512
#define WINDOW 1024

TEST(progress_is_reported_within_a_record_as_long_as_a_journal)
{
    static const float many[ROWS * WIDTH];
    const struct srv_record_rows rows = {.used_ns = 1, .rows = ROWS};
    const struct srv_record_part parts[] = {
        {&rows, sizeof rows}, {many, sizeof many}, {many, sizeof many}};
    struct srv_record_head head = {.type = SRV_RECORD_ROWS, .epoch = 9, .chain = 1};
    struct reports reports = {0};
    add_import(true);
    srv_journal_add(&journal, &head, parts, 3);
    flush(false);
    const size_t size = (size_t)lseek(journal.fd, 0, SEEK_END);
    ck_assert_int_eq(read_journal(&reports, WINDOW), SRV_RESTORE_OK);
    ck_assert_uint_ge(reports.times, size / WINDOW);
    ck_assert_uint_eq(reports.most, size);
    srv_restore_fini(&restore);
}

CASE(windows, set_up_window, tear_down, 0)

/* The last step, at 199, sees tokens from 192 on: the layer begins there. */
TEST_EACH(a_truncation_goes_back_to_tokens_that_the_window_has_kept, 3)
{
    static const struct {
        uint64_t length;
        size_t first, lost;
    } cases[] = {{199, 192, 0}, {198, 0, 1}, {0, 0, 0}};
    const struct srv_record_truncate truncate = {
        .used_ns = 2, .length = cases[_i].length, .revision = 2, .before = 1};
    struct srv_restore_result result;
    add_session(7, "w");
    for (uint64_t i = 0; i < MAX_LENGTH; i++)
        add_row(7, 1 + i, i);
    add(SRV_RECORD_TRUNCATE, 7, 1 + MAX_LENGTH, &truncate, sizeof truncate);
    flush(true);
    ck_assert_int_eq(read_journal(NULL, 0), SRV_RESTORE_OK);
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
}

SUITE(restore)
