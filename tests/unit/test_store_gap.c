/* test_store_gap.c: what a crash or damage in the journals costs: the sessions whose records are
 * damaged, and what had not been flushed. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_state.h"
#include "disk.h"
#include "store/record.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define IDLE 100
#define PAGE 4096

static struct srv_app app;
static struct srv_error error;

static void set_up(void)
{
    disk_reset();
    store_app_open_tiny(&app, 2 * IDLE, 4096);
    app.config.journal_fsync = SRV_FSYNC_EVERYSEC;
    store_app_begin(&app);
}

static void tear_down(void)
{
    store_app_end(&app);
    store_app_close(&app);
}

static void make_idle_sessions(void)
{
    for (size_t i = 0; i < IDLE; i++) {
        char id[16];
        snprintf(id, sizeof id, "idle%zu", i);
        struct srv_session *session = store_app_session(&app, id);
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
        srv_session_put(session);
    }
}

/* Of the idle sessions, those that are there with their row. */
static size_t count_idle(void)
{
    size_t found = 0;
    for (size_t i = 0; i < IDLE; i++) {
        char id[16];
        snprintf(id, sizeof id, "idle%zu", i);
        found += store_app_length(&app, id) == 1;
    }
    return found;
}

static void append(struct srv_session *session, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
}

/* Waits until what has been recorded is on the disk. */
static void await_flush(void)
{
    size_t before = disk_count(DISK_FDATASYNC, ".journal");
    for (unsigned waited = 0; disk_count(DISK_FDATASYNC, ".journal") == before; waited += 10) {
        ck_assert_uint_lt(waited, 5000);
        usleep(10000);
    }
}

/* Waits until the journal says that what has been recorded is on the disk: after the flush of that
 * comes one of the mark, and none after it.  The first one that is seen may have begun before. */
static void await_mark(void)
{
    await_flush();
    await_flush();
    const size_t before = disk_count(DISK_FDATASYNC, ".journal");
    for (unsigned waited = 0; waited < 1500 && disk_count(DISK_FDATASYNC, ".journal") == before;
         waited += 10)
        usleep(10000);
}

/* ---- Journals as files ----------------------------------------------------------------------- */

static int open_journal(uint64_t generation)
{
    char path[SCRATCH_PATH + SRV_FILE_NAME];
    struct srv_file file;
    srv_file_name(&file, SRV_FILE_JOURNAL, generation);
    snprintf(path, sizeof path, "%s/%s", app.config.state_dir, file.name);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* The place of the nth record of a session, from 0 on; of epoch 0, of a mark. */
static off_t find_record(int fd, uint64_t epoch, size_t n)
{
    struct srv_record_head head;
    for (off_t at = SRV_JOURNAL_HEAD;; at += (off_t)(sizeof head + head.length)) {
        ck_assert_int_eq(pread(fd, &head, sizeof head, at), sizeof head);
        if (head.epoch == epoch && n-- == 0)
            return at;
    }
}

static void damage(int fd, off_t at, size_t bytes)
{
    static const char zeros[PAGE];
    ck_assert_int_eq(pwrite(fd, zeros, bytes, at), (ssize_t)bytes);
}

static size_t count_damaged(void)
{
    char command[SCRATCH_PATH + 64];
    snprintf(command, sizeof command, "ls %s/*.journal.damaged 2>/dev/null | wc -l",
             app.config.state_dir);
    FILE *stream = popen(command, "r");
    char text[16] = "";
    ck_assert_ptr_nonnull(fgets(text, sizeof text, stream));
    pclose(stream);
    return strtoul(text, NULL, 10);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* A page of the tail did not reach the disk, and later ones did. */
START_TEST(test_zeroed_page_in_the_unflushed_tail_costs_no_session_that_was_flushed_before)
{
    make_idle_sessions();
    await_mark();
    struct srv_session *busy = store_app_session(&app, "busy");
    append(busy, 1);
    uint64_t epoch = busy->epoch;
    append(busy, 300);
    srv_session_put(busy);
    store_app_crash(&app);
    int fd = open_journal(1);
    off_t at = find_record(fd, epoch, 20);
    damage(fd, at - at % PAGE + PAGE, PAGE);
    close(fd);
    store_app_begin(&app);
    ck_assert_uint_eq(count_idle(), IDLE);
    ck_assert_uint_ge(count_damaged(), 1);
    ck_assert_uint_eq(store_app_find_again(&app, "idle7"), 1);
}
END_TEST

/* Two neighbours, so that no record says whose both were. */
START_TEST(test_damaged_records_in_the_flushed_part_cost_the_sessions_that_they_are_of)
{
    make_idle_sessions();
    struct srv_session *busy[] = {store_app_session(&app, "x"), store_app_session(&app, "y"),
                                  store_app_session(&app, "gone")};
    for (size_t i = 0; i < 3; i++)
        append(busy[i], 1);
    uint64_t first = busy[0]->epoch, last = busy[2]->epoch;
    append(busy[0], 1);
    append(busy[1], 1);
    ck_assert_int_eq(srv_store_delete(app.store, busy[2], &error), SRV_OK);
    srv_session_remove(app.sessions, busy[2]);
    struct srv_session *made = store_app_session(&app, "made");
    append(made, 1);
    struct srv_session *fork = store_app_fork(&app, made, "fork");
    if (_i == 0) /* the daemon goes on, and its store writes marks */
        await_mark(), store_app_crash(&app);
    else
        store_app_end(&app);
    int fd = open_journal(1);
    off_t from = find_record(fd, first, 2), to = find_record(fd, last, 2);
    ck_assert_int_lt(from, to);
    damage(fd, from, (size_t)(to - from) + SRV_RECORD_HEAD + 8); /* and the creation of `made` */
    close(fd);
    store_app_begin(&app);
    ck_assert_uint_eq(count_idle(), IDLE);
    static const char *const lost[] = {"x", "y", "gone", "made", "fork"};
    for (size_t i = 0; i < 5; i++)
        ck_assert_uint_eq(store_app_length(&app, lost[i]), SIZE_MAX);
    for (size_t i = 0; i < 3; i++)
        srv_session_put(busy[i]);
    srv_session_put(made);
    srv_session_put(fork);
    ck_assert_uint_eq(count_damaged(), 1);
}
END_TEST

/* A journal ends where a record does, and the one after it says that there was more. */
START_TEST(test_journal_that_lost_its_end_between_two_writes_costs_the_sessions_of_the_end)
{
    make_idle_sessions();
    struct srv_session *cut = store_app_session(&app, "cut");
    append(cut, 2);
    uint64_t epoch = cut->epoch;
    srv_session_put(cut);
    store_app_end(&app);
    store_app_begin(&app);
    struct srv_session *later = store_app_session(&app, "later");
    append(later, 2);
    srv_session_put(later);
    store_app_end(&app);
    int fd = open_journal(1);
    ck_assert_int_eq(ftruncate(fd, find_record(fd, epoch, 2)), 0);
    close(fd);
    store_app_begin(&app);
    ck_assert_uint_eq(count_idle(), IDLE);
    ck_assert_uint_eq(store_app_length(&app, "cut"), SIZE_MAX); /* and not one row of two */
    ck_assert_uint_eq(store_app_length(&app, "later"), 2);
}
END_TEST

/* Waits for the journal of generation 2, with flushes slowed down, and takes the snapshot. */
static void switch_slowly(void)
{
    struct srv_store_status status;
    atomic_store(&disk.fdatasync_ms, 800);
    srv_store_request_snapshot(&status, app.store);
    store_app_await_snapshot(&app);
}

/* What follows from records that never reached the disk does not count either. */
START_TEST(test_journal_after_an_unflushed_end_that_was_lost_does_not_count)
{
    make_idle_sessions();
    struct srv_session *a = store_app_session(&app, "a"), *b = store_app_session(&app, "b");
    append(a, 1);
    append(b, 1);
    await_flush();
    uint64_t epoch = a->epoch;
    switch_slowly();
    append(a, 2); /* of the old journal */
    srv_store_take_snapshot(app.store);
    append(b, 2); /* of the new one */
    srv_session_put(a);
    srv_session_put(b);
    store_app_crash(&app);
    atomic_store(&disk.fdatasync_ms, 0);
    int fd = open_journal(1);
    ck_assert_int_eq(ftruncate(fd, find_record(fd, epoch, 3)), 0);
    close(fd);
    store_app_begin(&app);
    ck_assert_uint_eq(count_idle(), IDLE);
    ck_assert_uint_eq(store_app_length(&app, "a"), 2);
    ck_assert_uint_eq(store_app_length(&app, "b"), 1);
    ck_assert_uint_eq(count_damaged(), 2);
}
END_TEST

START_TEST(test_end_of_a_journal_is_flushed_before_the_journal_that_follows)
{
    struct srv_session *a = store_app_session(&app, "a");
    for (int i = 0; i < 3; i++) { /* the end is written at any time of the second */
        disk_reset();
        switch_slowly();
        append(a, 2);
        size_t written = disk_count(DISK_PWRITE, ".journal");
        srv_store_take_snapshot(app.store);
        append(a, 2);
        await_flush();
        await_flush();
        atomic_store(&disk.fdatasync_ms, 0);
        char old[32], new[32];
        snprintf(old, sizeof old, "%d.journal", i + 1);
        snprintf(new, sizeof new, "%d.journal", i + 2);
        size_t made = disk_find(DISK_FDATASYNC, new, 0);
        size_t begun = disk_find(DISK_PWRITE, new, made);
        size_t flushed = disk_find(DISK_FDATASYNC, new, begun);
        size_t last = SIZE_MAX;
        for (size_t k = 0; (k = disk_find(DISK_PWRITE, old, k)) != SIZE_MAX && k < begun; k++)
            last = k;
        ck_assert_uint_gt(written, 0);
        ck_assert(last < begun && begun < flushed);
        ck_assert_uint_lt(disk_find(DISK_FDATASYNC, old, last), flushed);
        struct srv_store_status status = {.running = true};
        while (status.running) {
            usleep(10000);
            srv_store_describe(&status, app.store);
        }
    }
    srv_session_put(a);
}
END_TEST

/* The marks go on, and drop their older notes. */
START_TEST(test_damage_between_many_marks_costs_the_sessions_that_it_hits)
{
    struct srv_session *idle = store_app_session(&app, "idle0");
    append(idle, 1);
    struct srv_session *busy = store_app_session(&app, "busy"),
                       *hit = store_app_session(&app, "hit");
    append(busy, 4000); /* beyond SRV_MARK_BYTES, twice */
    append(hit, 2);
    append(busy, 90);
    uint64_t epoch = hit->epoch;
    store_app_end(&app);
    int fd = open_journal(1);
    ck_assert_int_gt(lseek(fd, 0, SEEK_END), (off_t)(2 * (256 << 10)));
    find_record(fd, 0, 3); /* there are marks enough */
    damage(fd, find_record(fd, epoch, 1), 2 * PAGE / 8);
    close(fd);
    store_app_begin(&app);
    ck_assert_uint_eq(store_app_length(&app, "idle0"), 1);
    ck_assert_uint_eq(store_app_length(&app, "hit"), SIZE_MAX);
    srv_session_put(idle);
    srv_session_put(busy);
    srv_session_put(hit);
}
END_TEST

Suite *suite_store_gap(void)
{
    Suite *suite = suite_create("store_gap");
    TCase *tests = suite_cases(suite, "store_gap", set_up, tear_down, 120);
    tcase_add_test(tests,
                   test_zeroed_page_in_the_unflushed_tail_costs_no_session_that_was_flushed_before);
    tcase_add_loop_test(
        tests, test_damaged_records_in_the_flushed_part_cost_the_sessions_that_they_are_of, 0, 2);
    tcase_add_test(tests,
                   test_journal_that_lost_its_end_between_two_writes_costs_the_sessions_of_the_end);
    tcase_add_test(tests, test_journal_after_an_unflushed_end_that_was_lost_does_not_count);
    tcase_add_test(tests, test_end_of_a_journal_is_flushed_before_the_journal_that_follows);
    tcase_add_test(tests, test_damage_between_many_marks_costs_the_sessions_that_it_hits);
    return suite;
}
