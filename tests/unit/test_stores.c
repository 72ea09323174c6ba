/* test_stores.c: the stores of several directories in one daemon: what one refuses, the others
 * take, and each has a clock of its own. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "disk.h"
#include "schedule/steps.h"
#include "store/store_internal.h"
#include "store/stores.h"
#include "store_app.h"
#include "suites.h"

#define NS_PER_S UINT64_C(1000000000)
#define TTL_S 100

static struct srv_app app;
static struct srv_error error;
static char own[SCRATCH_PATH], adopted[SCRATCH_PATH], message[512];

/* Opens the stores of a daemon of that name over a directory. */
static void open_stores(const char *instance, char *directory, const char *adopt)
{
    app.config.state_dir = directory;
    ck_assert(srv_sessions_open(&app.sessions, &app.config.limits, instance));
    const struct srv_store_context context = srv_app_store_context(&app);
    ck_assert_msg(srv_stores_open(&app.store, &context, adopt, message, sizeof message) &&
                      srv_stores_load(app.store, message, sizeof message),
                  "%s", message);
}

static bool close_stores(void)
{
    bool saved = srv_stores_close(app.store);
    srv_sessions_close(app.sessions);
    return saved;
}

/* Makes a session of one row, on record, in the directory that its id names. */
static void make(const char *id)
{
    struct srv_session *session = store_app_session(&app, id);
    ck_assert_int_eq(store_app_append(&app, session), SRV_OK);
    srv_session_put(session);
}

static enum srv_error_code append(const char *id)
{
    struct srv_session *session = srv_session_get(app.sessions, NULL, id);
    ck_assert_ptr_nonnull(session);
    enum srv_error_code code = store_app_append(&app, session);
    srv_session_put(session);
    return code;
}

/* The directory of b has the session b.x. */
static void set_up(void)
{
    disk_reset();
    store_app_open_tiny(&app, 8, 64);
    app.config.limits.session_ttl_s = TTL_S;
    snprintf(own, sizeof own, "%s", app.config.state_dir);
    scratch_make(adopted);
    open_stores("b", adopted, NULL);
    make("b.x");
    ck_assert(close_stores());
}

static void tear_down(void)
{
    char command[SCRATCH_PATH + 16];
    store_app_close(&app);
    snprintf(command, sizeof command, "rm -rf '%s'", adopted);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(test_stores_that_refuse_records_leave_the_others_theirs)
{
    open_stores("a", own, adopted);
    make("a.x");
    int unwritable = open("/dev/null", O_RDONLY);
    ck_assert_int_ge(dup2(unwritable, app.store->adopted[0]->journal.fd), 0);
    close(unwritable);
    ck_assert_int_eq(append("b.x"), SRV_E_STORAGE);
    ck_assert_int_eq(append("a.x"), SRV_OK);
    (void)close_stores();
    open_stores("a", own, adopted);
    ck_assert_uint_eq(store_app_length(&app, "a.x"), 2);
    ck_assert_uint_eq(store_app_length(&app, "b.x"), 1);
    ck_assert(close_stores());
}
END_TEST

/* Whether a session has expired after so many idle seconds. */
static size_t expired_after(uint64_t seconds)
{
    size_t count = 0;
    struct srv_session *list = srv_sessions_expire(app.sessions, srv_now_ns() + seconds * NS_PER_S);
    while (list != NULL) {
        struct srv_session *next = list->next;
        srv_session_put(list);
        list = next;
        count++;
    }
    return count;
}

/* The directory b was closed, by its clock, two days before a was made. */
START_TEST(test_stores_have_clocks_of_their_own)
{
    disk.wall_s = 200000;
    open_stores("a", own, NULL);
    make("a.x");
    ck_assert(close_stores());
    open_stores("a", own, adopted);
    ck_assert_uint_eq(store_app_length(&app, "b.x"), 1);
    ck_assert_int_eq(append("b.x"), SRV_OK);
    ck_assert_int_eq(append("a.x"), SRV_OK);
    ck_assert(close_stores());
    disk.wall_s = 0;
    open_stores("a", own, NULL);
    ck_assert_uint_eq(store_app_length(&app, "a.x"), 2);
    ck_assert_uint_eq(expired_after(TTL_S / 2), 0);
    ck_assert(close_stores());
    open_stores("b", adopted, NULL);
    ck_assert_uint_eq(store_app_length(&app, "b.x"), 2);
    ck_assert_uint_eq(expired_after(TTL_S / 2), 0);
    ck_assert_uint_eq(expired_after(TTL_S + 1), 1);
    ck_assert(close_stores());
}
END_TEST

/* A batch of a small model has the work of 2^30 multiply-adds; a step is heavy from a sixteenth of
 * that on. */
START_TEST(test_heavy_steps_leave_half_of_a_batch_to_light_ones)
{
    open_stores("a", own, NULL);
    make("a.x");
    struct srv_session *session = srv_session_peek(app.sessions, NULL, "a.x");
    const struct srv_rows rows = {.outputs = 0};
    struct srv_job job = {.call.layer = 0};
    struct srv_batch batch = {0};
    struct srv_item light = {.job = &job,
                             .model = &app.models.items[0],
                             .session = session,
                             .rows = &rows,
                             .sizes.queries = 1,
                             .work = 1};
    struct srv_item heavy = light;
    heavy.work = ((size_t)1 << 26) + 1;
    for (size_t i = 0; i < 7; i++)
        ck_assert(srv_batch_add(&batch, &heavy));
    ck_assert(!srv_batch_add(&batch, &heavy));
    ck_assert(srv_batch_add(&batch, &light));
    srv_session_put(session);
    ck_assert(close_stores());
}
END_TEST

START_TEST(test_stores_make_batches_and_snapshots_of_their_own)
{
    open_stores("a", own, adopted);
    make("a.x");
    struct srv_session *sessions[] = {srv_session_peek(app.sessions, NULL, "a.x"),
                                      srv_session_peek(app.sessions, NULL, "b.x")};
    const struct srv_rows rows = {.outputs = 0};
    struct srv_job job = {.call.layer = 0};
    struct srv_batch batch = {0};
    struct srv_item items[2];
    for (size_t i = 0; i < 2; i++)
        items[i] = (struct srv_item){.job = &job,
                                     .model = &app.models.items[0],
                                     .session = sessions[i],
                                     .rows = &rows,
                                     .sizes.queries = 1};
    ck_assert(srv_batch_add(&batch, &items[0]));
    ck_assert(!srv_batch_add(&batch, &items[1]));
    ck_assert(srv_batch_add(&batch, &items[0]));
    ck_assert(srv_snapshot_begin_journal(app.store->adopted[0]));
    struct srv_snapshot *snapshot = srv_snapshot_freeze(app.store->adopted[0]);
    ck_assert_ptr_nonnull(snapshot);
    ck_assert_uint_eq(snapshot->count, 1);
    ck_assert_uint_eq(snapshot->entries[0].epoch, sessions[1]->epoch);
    ck_assert(srv_snapshot_finish(app.store->adopted[0], snapshot));
    for (size_t i = 0; i < 2; i++)
        srv_session_put(sessions[i]);
    (void)close_stores();
}
END_TEST

/* An own directory of the same name, as after a volume came back: ids tell the two by generation.
 */
START_TEST(test_stores_of_one_instance_are_told_by_generation)
{
    char id[SRV_ID_MAX + 1];
    open_stores("b", own, adopted);
    const struct srv_identity *mine = srv_sessions_identity(app.sessions);
    snprintf(id, sizeof id, "b.%s0123456789abcdefghjkm", mine->generation);
    struct srv_session *session = store_app_session(&app, id);
    ck_assert_uint_eq(session->store, 0);
    srv_session_put(session);
    ck_assert_int_eq(srv_session_fail_missing(app.sessions, "b.000000123456789abcdefghjkm", &error),
                     SRV_E_SESSION_LOST);
    ck_assert(srv_sessions_set_identity(app.sessions, 2, &(struct srv_identity){"b", "00000"}));
    ck_assert_int_eq(srv_session_fail_missing(app.sessions, "b.000000123456789abcdefghjkm", &error),
                     SRV_E_SESSION_NOT_FOUND);
    ck_assert(!srv_sessions_set_identity(app.sessions, 3, &(struct srv_identity){"b", "00000"}));
    ck_assert(close_stores());
}
END_TEST

Suite *suite_stores(void)
{
    Suite *suite = suite_create("stores");
    TCase *tests = suite_cases(suite, "stores", set_up, tear_down, 0);
    tcase_add_test(tests, test_stores_that_refuse_records_leave_the_others_theirs);
    tcase_add_test(tests, test_stores_have_clocks_of_their_own);
    tcase_add_test(tests, test_heavy_steps_leave_half_of_a_batch_to_light_ones);
    tcase_add_test(tests, test_stores_make_batches_and_snapshots_of_their_own);
    tcase_add_test(tests, test_stores_of_one_instance_are_told_by_generation);
    return suite;
}
