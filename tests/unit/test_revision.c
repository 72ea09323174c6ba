/* test_revision.c: the revision of a session: how it is drawn, that files keep it, what sessions of
 * older files have, and that a step is held against it when it runs. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn_state.h"
#include "base/checksum.h"
#include "dispatch_app.h"
#include "store/journal.h"
#include "store/restore.h"
#include "store/session_notes.h"
#include "store/store_files.h"
#include "suites.h"

static struct dispatch_app served;
static struct srv_app *const app = &served.app;

static void set_up(void)
{
    static char random[] = "{\"hidden_size\":4,\"num_attention_heads\":1,\"seed\":1}";
    const struct srv_config config = {.durability = SRV_DURABLE_JOURNAL,
                                      .journal_bytes = (size_t)1 << 30,
                                      .limits = {.max_sessions = 8,
                                                 .max_session_length = 64,
                                                 .max_session_waiting = 2,
                                                 .session_ttl_s = 3600,
                                                 .max_reply_bytes = (size_t)1 << 20,
                                                 .max_in_flight_bytes = (size_t)1 << 30}};
    store_app_open(app, &config, "tiny", random, (size_t)1 << 20);
    store_app_begin(app);
}

static void tear_down(void)
{
    store_app_end(app);
    store_app_close(app);
}

static void expect_equal(const struct srv_revision *got, const struct srv_revision *want)
{
    ck_assert_uint_eq(got->number, want->number);
    ck_assert_uint_eq(got->before, want->before);
    ck_assert_uint_eq(got->length, want->length);
}

/* The revision of the live session of that id. */
static struct srv_revision revision_of(const char *id)
{
    struct srv_session *session = srv_session_peek(app->sessions, NULL, id);
    ck_assert_msg(session != NULL, "no session %s", id);
    struct srv_revision revision = srv_session_revision(session);
    srv_session_put(session);
    return revision;
}

/* ---- Drawing --------------------------------------------------------------------------------- */

START_TEST(test_each_truncation_draws_another_revision_and_knows_the_one_before)
{
    struct srv_revision now, after;
    ck_assert(srv_revision_draw(&now, NULL, 0));
    ck_assert_uint_eq(now.before, 0);
    uint64_t bits = 0;
    for (uint64_t i = 0; i < 1000; i++, now = after) {
        ck_assert(srv_revision_draw(&after, &now, i));
        ck_assert_uint_ge(after.number, 1);
        ck_assert_uint_le(after.number, SRV_REVISION_MAX);
        ck_assert_uint_ne(after.number, now.number);
        ck_assert_uint_eq(after.before, now.number);
        ck_assert_uint_eq(after.length, i);
        bits |= after.number;
    }
    ck_assert_uint_eq(bits, SRV_REVISION_MAX); /* each of the 52 is drawn */
}
END_TEST

START_TEST(test_a_truncation_is_known_again_by_the_revision_before_and_its_length)
{
    const struct srv_revision made = {7, 0, 0}, cut = {9, 7, 5};
    ck_assert(srv_revision_repeats(&cut, 7, 5));
    ck_assert(!srv_revision_repeats(&cut, 7, 4));
    ck_assert(!srv_revision_repeats(&cut, 9, 5));
    ck_assert(!srv_revision_repeats(&cut, 0, 5));
    ck_assert(!srv_revision_repeats(&made, 0, 0)); /* none was named, none was made */
}
END_TEST

START_TEST(test_sessions_of_older_files_have_the_same_revision_whenever_they_are_read)
{
    uint64_t seen[64];
    for (uint64_t i = 0; i < 64; i++) {
        seen[i] = srv_revision_of_older(1000 + i / 8, i % 8);
        ck_assert_uint_eq(seen[i], srv_revision_of_older(1000 + i / 8, i % 8));
        ck_assert_uint_ge(seen[i], 1);
        ck_assert_uint_le(seen[i], SRV_REVISION_MAX);
        for (uint64_t j = 0; j < i; j++)
            ck_assert_uint_ne(seen[i], seen[j]);
    }
}
END_TEST

/* ---- Files of this version ------------------------------------------------------------------- */

/* A session of three tokens that was truncated twice. */
static struct srv_session *make_cut(const char *id)
{
    struct srv_session *session = store_app_session(app, id);
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq(store_app_append(app, session), SRV_OK);
    ck_assert_int_eq(store_app_truncate(app, session, 4), SRV_OK);
    ck_assert_int_eq(store_app_truncate(app, session, 2), SRV_OK);
    ck_assert_int_eq(store_app_append(app, session), SRV_OK);
    return session;
}

enum way { JOURNAL, KILLED, BASE, FILES };

/* Ends the store and begins it again, so that the session is read from a journal; from what was
 * there when the daemon was killed; from a base; from its file alone. */
static void read_again(enum way way)
{
    if (way == BASE || way == FILES)
        store_app_snapshot(app);
    if (way == KILLED)
        store_app_crash(app);
    else
        store_app_end(app);
    if (way == FILES)
        store_app_shell(app, "rm *.base *.journal"); /* whose marks would miss the base */
    store_app_begin(app);
}

START_TEST(test_files_keep_the_revision_and_the_last_truncation)
{
    struct srv_session *a = make_cut("a"), *whole = store_app_session(app, "whole");
    ck_assert_int_eq(store_app_append(app, whole), SRV_OK);
    struct srv_session *fork = store_app_fork(app, a, "fork");
    const struct srv_revision want = srv_session_revision(a), made = srv_session_revision(whole),
                              of_fork = srv_session_revision(fork);
    ck_assert_uint_ne(of_fork.number, want.number);
    ck_assert_uint_eq(of_fork.before, 0);
    srv_session_put(a);
    srv_session_put(whole);
    srv_session_put(fork);
    for (size_t again = 0; again < 2; again++) {
        read_again((enum way)_i);
        struct srv_revision got = revision_of("a");
        expect_equal(&got, &want);
        got = revision_of("whole");
        expect_equal(&got, &made);
        got = revision_of("fork");
        expect_equal(&got, &of_fork);
        ck_assert_uint_eq(store_app_length(app, "a"), 3);
    }
}
END_TEST

/* A base and a file that hold what no session can have: the session is lost, and not wrong. */
START_TEST(test_a_revision_that_cannot_be_is_damage)
{
    static const struct srv_revision wrong[] = {
        {0, 0, 0}, {SRV_REVISION_MAX + 1, 0, 0}, {1, SRV_REVISION_MAX + 1, 0}};
    struct srv_session *a = make_cut("a");
    srv_session_set_revision(a, &wrong[_i]);
    srv_session_put(a);
    srv_session_put(make_cut("b"));
    read_again(_i == 0 ? FILES : BASE); /* a base of 0 is an older one */
    ck_assert_uint_eq(store_app_length(app, "a"), SIZE_MAX);
    ck_assert_uint_eq(store_app_length(app, "b"), 3);
}
END_TEST

/* ---- Files of older versions ----------------------------------------------------------------- */

/* Adds a session of two rows and a truncation to one, as version 3 wrote them. */
static void write_older(struct srv_journal *journal)
{
    struct srv_record_create create = {.used_ns = 1, .ttl_s = 9, .max_length = 64, .id = "a"};
    const struct srv_record_rows rows = {.used_ns = 1, .rows = 2};
    const struct srv_record_truncate cut = {.used_ns = 1, .length = 1};
    const float two[2 * STORE_APP_WIDTH] = {1};
    const struct srv_record_part made = {&create, sizeof create},
                                 less = {&cut, SRV_RECORD_TRUNCATE_V3},
                                 parts[] = {
                                     {&rows, sizeof rows}, {two, sizeof two}, {two, sizeof two}};
    struct srv_record_head head = {.type = SRV_RECORD_CREATE, .epoch = 7};
    snprintf(create.model, sizeof create.model, "tiny");
    snprintf(create.fingerprint, sizeof create.fingerprint, "%s",
             app->models.items[0].info.fingerprint);
    srv_journal_add(journal, &head, &made, 1);
    head = (struct srv_record_head){.type = SRV_RECORD_ROWS, .epoch = 7, .chain = 1};
    srv_journal_add(journal, &head, parts, 3);
    head = (struct srv_record_head){.type = SRV_RECORD_TRUNCATE, .epoch = 7, .chain = 2};
    srv_journal_add(journal, &head, &less, 1);
    ck_assert_int_eq(srv_journal_flush(journal, true), 0);
}

static struct srv_revision restore_older(void)
{
    struct srv_journal journal;
    struct srv_restore restore;
    struct srv_replay_result replayed;
    struct srv_file_reader reader;
    ck_assert(srv_journal_open(&journal, memfd_create("journal", 0), 1));
    write_older(&journal);
    ck_assert(srv_file_reader_take(&reader, dup(journal.fd)));
    srv_restore_init(&restore, app->sessions, app->config.limits.max_sessions, &app->models);
    ck_assert_int_eq(srv_restore_journal(&replayed, &restore, 1, &reader), SRV_RESTORE_OK);
    const struct srv_restored_session *entry = srv_restore_find(&restore, 7);
    ck_assert(entry != NULL && entry->session != NULL);
    ck_assert_uint_eq(attn_cache_length(entry->session->cache, 0), 1);
    struct srv_revision revision = srv_session_revision(entry->session);
    srv_restore_fini(&restore);
    srv_file_reader_close(&reader);
    srv_journal_close(&journal);
    return revision;
}

START_TEST(test_records_of_older_versions_give_a_revision_that_stays)
{
    const struct srv_revision want = {srv_revision_of_older(7, 2), srv_revision_of_older(7, 0), 1};
    for (size_t again = 0; again < 2; again++) {
        struct srv_revision got = restore_older();
        expect_equal(&got, &want);
    }
}
END_TEST

/* Writes the file of `a` anew without the note, as older versions wrote it. */
static void drop_note(void)
{
    struct srv_note_text texts[SRV_NOTES + 1];
    struct attn_note notes[SRV_NOTES + 1];
    struct attn_export *export;
    struct attn_error cause;
    struct srv_file file;
    size_t kept = 0;
    struct srv_session *a = srv_session_peek(app->sessions, NULL, "a");
    const struct srv_session_moment now = {
        a->cache, a->last_steps, srv_session_used(app->sessions, a), a->next_record, {1, 0, 0}};
    size_t count = srv_notes_print(texts, a, &now, true);
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i].name, "revision") != 0)
            notes[kept++] = (struct attn_note){texts[i].name, texts[i].value};
    ck_assert_uint_eq(kept, count - 1);
    ck_assert_int_eq(attn_export_open(&export, a->cache, notes, kept, &cause), ATTN_OK);
    srv_file_name(&file, SRV_FILE_SESSION, a->file_generation, a->epoch);
    ck_assert(srv_file_export(srv_store_directory(app->store), file.name, export, false));
    attn_export_close(export);
    srv_session_put(a);
}

#define BASE_HEAD 40 /* magic, generation, count, version, sum; an entry and the time have 24 */
#define BASE_SESSION (BASE_HEAD + 2 * 24)
#define BASE_TAIL 24 /* shares, bytes of the sessions, 0 */

/* Makes the base, of one session that shares nothing, one of version 4. */
static void drop_revision_of_base(void)
{
    const size_t gone = sizeof(struct srv_revision);
    const size_t at = BASE_SESSION + offsetof(struct srv_base_session, revision);
    const uint64_t version = 4;
    uint64_t bytes;
    size_t size;
    struct srv_checksum sum;
    struct srv_store_status status;
    struct srv_file file;
    srv_store_describe(&status, app->store);
    srv_file_name(&file, SRV_FILE_BASE, status.base, 0);
    char *base = scratch_read(&size, app->config.state_dir, file.name);
    memmove(base + at, base + at + gone, size - at - gone);
    size -= gone;
    memcpy(&bytes, base + size - BASE_TAIL + 8, sizeof bytes);
    ck_assert_uint_eq(bytes, srv_base_session_bytes(1));
    bytes -= gone;
    memcpy(base + size - BASE_TAIL + 8, &bytes, sizeof bytes);
    memcpy(base + 24, &version, sizeof version);
    srv_checksum_init(&sum);
    srv_checksum_add(&sum, base, 32);
    srv_checksum_add(&sum, base + BASE_HEAD, size - BASE_HEAD);
    bytes = srv_checksum_end(&sum);
    memcpy(base + 32, &bytes, sizeof bytes);
    scratch_write(app->config.state_dir, file.name, base, size);
    free(base);
}

/* The base says what the session is, or where the base is gone the file does. */
START_TEST(test_snapshots_of_older_versions_give_a_revision_that_stays)
{
    struct srv_session *a = make_cut("a");
    const struct srv_revision want = {srv_revision_of_older(a->epoch, 0), 0, 0};
    srv_session_put(a);
    store_app_snapshot(app);
    drop_note();
    drop_revision_of_base();
    store_app_end(app);
    if (_i == 1)
        store_app_shell(app, "rm *.base *.journal"); /* whose marks would miss the base */
    for (size_t again = 0; again < 2; again++) {
        store_app_load(app);
        ck_assert_uint_eq(srv_store_restoring(app->store), _i == 0);
        store_app_end(app);
        store_app_begin(app);
        struct srv_revision got = revision_of("a");
        expect_equal(&got, &want);
        ck_assert_uint_eq(store_app_length(app, "a"), 3);
        store_app_end(app);
    }
    store_app_begin(app);
}
END_TEST

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Queues a step of the session's next row that names this revision. */
static void send_step(char body[200], const struct srv_session *session, uint64_t revision)
{
    snprintf(body, 200,
             "{\"session_id\":\"%s\",\"hidden_states\":[1,2,3,4],\"position\":%zu,"
             "\"revision\":%llu}",
             session->id, attn_cache_length(session->cache, 0), (unsigned long long)revision);
    dispatch_app_begin(&served, SRV_POST, "/decode");
    served.request->body = body;
    served.request->body_length = strlen(body);
    dispatch_app_send(&served);
}

/* The truncation leaves the length as it is: the position alone would not tell. */
START_TEST(test_a_truncation_that_comes_while_a_step_is_queued_refuses_the_step)
{
    char body[200];
    struct srv_session *a = make_cut("a");
    dispatch_app_open(&served, NULL);
    send_step(body, a, a->revision);
    ck_assert_int_eq(store_app_truncate(app, a, 3), SRV_OK);
    const struct srv_revision now = srv_session_revision(a);
    ck_assert(srv_dispatch_run_batch(&served.dispatch));
    const struct srv_error *error = &served.request->job->items[0].error;
    ck_assert_int_eq(error->code, SRV_E_REVISION_MISMATCH);
    ck_assert_uint_eq(error->revision, now.number);
    ck_assert_uint_eq(error->epoch, a->epoch);
    ck_assert_uint_eq(error->length, 3);
    ck_assert_uint_eq(attn_cache_length(a->cache, 0), 3);
    srv_session_put(a);
    dispatch_app_close(&served);
}
END_TEST

Suite *suite_revision(void)
{
    Suite *suite = suite_create("revision");
    TCase *drawn = tcase_create("drawn");
    tcase_add_test(drawn, test_each_truncation_draws_another_revision_and_knows_the_one_before);
    tcase_add_test(drawn, test_a_truncation_is_known_again_by_the_revision_before_and_its_length);
    tcase_add_test(drawn,
                   test_sessions_of_older_files_have_the_same_revision_whenever_they_are_read);
    suite_add_tcase(suite, drawn);
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, set_up, tear_down);
    tcase_set_timeout(files, 60);
    tcase_add_loop_test(files, test_files_keep_the_revision_and_the_last_truncation, JOURNAL,
                        FILES + 1);
    tcase_add_loop_test(files, test_a_revision_that_cannot_be_is_damage, 0, 3);
    tcase_add_test(files, test_records_of_older_versions_give_a_revision_that_stays);
    tcase_add_loop_test(files, test_snapshots_of_older_versions_give_a_revision_that_stays, 0, 2);
    suite_add_tcase(suite, files);
    TCase *steps = tcase_create("steps"); /* which end all by themselves */
    tcase_add_checked_fixture(steps, set_up, NULL);
    tcase_add_test(steps, test_a_truncation_that_comes_while_a_step_is_queued_refuses_the_step);
    suite_add_tcase(suite, steps);
    return suite;
}
