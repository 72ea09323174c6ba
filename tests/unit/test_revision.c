/* test_revision.c: the revision of a session: how it is drawn, that files keep it, and that a step
 * is held against it when it runs. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_state.h"
#include "dispatch_app.h"
#include "suites.h"

static struct dispatch_app served;
static struct srv_app *const app = &served.app;

static void set_up(void)
{
    store_app_open_tiny(app, 8, 64);
    app->config.limits.max_session_waiting = 2;
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

TEST(each_truncation_draws_another_revision_and_knows_the_one_before)
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

TEST(a_truncation_is_known_again_by_the_revision_before_and_its_length)
{
    const struct srv_revision made = {7, 0, 0}, cut = {9, 7, 5};
    ck_assert(srv_revision_repeats(&cut, 7, 5));
    ck_assert(!srv_revision_repeats(&cut, 7, 4));
    ck_assert(!srv_revision_repeats(&cut, 9, 5));
    ck_assert(!srv_revision_repeats(&cut, 0, 5));
    ck_assert(!srv_revision_repeats(&made, 0, 0)); /* none was named, none was made */
}

/* ---- Files ----------------------------------------------------------------------------------- */

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

enum way { JOURNAL, KILLED, MANIFEST };

/* Ends the store and begins it again, so that the session is read from a journal; from what was
 * there when the daemon was killed; from a manifest. */
static void read_again(enum way way)
{
    if (way == MANIFEST)
        store_app_snapshot(app);
    if (way == KILLED)
        store_app_crash(app);
    else
        store_app_end(app);
    store_app_begin(app);
}

CASE(files, set_up, tear_down, 60)

TEST_RANGE(files_keep_the_revision_and_the_last_truncation, JOURNAL, MANIFEST + 1)
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

/* A manifest that holds what no session can have: the session is lost, and not wrong. */
TEST_EACH(a_revision_that_cannot_be_is_damage, 3)
{
    static const struct srv_revision wrong[] = {
        {0, 0, 0}, {SRV_REVISION_MAX + 1, 0, 0}, {1, SRV_REVISION_MAX + 1, 0}};
    struct srv_session *a = make_cut("a");
    srv_session_set_revision(a, &wrong[_i]);
    srv_session_put(a);
    srv_session_put(make_cut("b"));
    read_again(MANIFEST);
    ck_assert_uint_eq(store_app_length(app, "a"), SIZE_MAX);
    ck_assert_uint_eq(store_app_length(app, "b"), 3);
}

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

CASE(steps, set_up, NULL, 0)

/* The truncation leaves the length as it is: the position alone would not tell. */
TEST(a_truncation_that_comes_while_a_step_is_queued_refuses_the_step)
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

SUITE(revision)
