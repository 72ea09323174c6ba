/* test_unread.c: a fork of a session whose tokens are still on the disk waits until they are read,
 * and for nothing else. */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "attn_state.h"
#include "dispatch_app.h"
#include "suites.h"

static struct dispatch_app served;
static struct srv_app *const app = &served.app;
static struct srv_dispatch *const dispatch = &served.dispatch;
static struct srv_request *const request = &served.exchange.request;
static struct srv_error error;
static char body[] = "{\"session_id\":\"fork\"}";

#define ROWS 100

/* A session that is unread. */
static void make_unread(void)
{
    struct srv_session *session = store_app_session(app, "a");
    for (int i = 0; i < ROWS; i++)
        ck_assert_int_eq(store_app_append(app, session), SRV_OK);
    srv_session_put(session);
    store_app_snapshot(app);
    store_app_end(app);
    store_app_load(app);
    ck_assert_uint_eq(srv_store_restoring(app->store), 1);
}

static void set_up(void)
{
    store_app_open_tiny(app, 8, 256);
    store_app_begin(app);
    make_unread();
    dispatch_app_open(&served, NULL);
    app->scheduler_context.records_on_disk = true;
}

static void tear_down(void) { dispatch_app_close(&served); }

/* POST /sessions/a/fork */
static void send_fork(void)
{
    dispatch_app_begin(&served, SRV_POST, "/sessions/a/fork");
    request->body = body;
    request->body_length = strlen(body);
    dispatch_app_send(&served);
}

/* The same, which waits for a's tokens. */
static void ask_for_fork(void)
{
    send_fork();
    ck_assert_uint_eq(dispatch->queue.waiting[SRV_QUEUE_UNREAD], 1);
    ck_assert(!srv_dispatch_has_work(dispatch));
    srv_dispatch_release_parked(dispatch); /* there is no reason yet */
    ck_assert_uint_eq(dispatch->num_ended, 0);
}

static void read_tokens(void)
{
    char message[256];
    ck_assert(srv_store_start(app->store, message, sizeof message));
    for (int i = 0; i < 1000 && !srv_store_has_restored(app->store); i++)
        usleep(10000);
    ck_assert(srv_store_take_restored(app->store));
    srv_dispatch_release_parked(dispatch);
    while (srv_dispatch_has_work(dispatch))
        srv_dispatch_run_change(dispatch);
}

static const float row[STORE_APP_WIDTH] = {1, 2, 3, 4}; /* of store_app_append */

CASE(unread, set_up, tear_down, 60)

TEST(fork_of_an_unread_session_waits_until_it_is_read)
{
    float key[STORE_APP_WIDTH];
    ask_for_fork();
    read_tokens();
    ck_assert_uint_eq(dispatch->num_ended, 1);
    ck_assert_msg(request->job->error.code == SRV_OK, "%s", request->job->error.message);
    ck_assert_int_eq(request->reply.status, 201);
    struct srv_session *fork = srv_session_peek(app->sessions, NULL, "fork");
    ck_assert_uint_eq(attn_cache_length(fork->cache, 0), ROWS);
    attn_cache_read_from(key, NULL, fork->cache, 0, ROWS - 1, 1);
    ck_assert_mem_eq(key, row, sizeof row);
    srv_session_put(fork);
}

TEST(fork_of_a_session_that_turns_out_damaged_is_told_that_it_is_lost)
{
    store_app_damage_block(app, "a");
    ask_for_fork();
    read_tokens();
    ck_assert_uint_eq(dispatch->num_ended, 1);
    ck_assert_int_eq(request->job->error.code, SRV_E_SESSION_LOST);
    ck_assert_ptr_null(srv_session_peek(app->sessions, NULL, "a"));
}

TEST(fork_of_an_unread_session_that_is_deleted_finds_none)
{
    ask_for_fork();
    struct srv_session *session = srv_session_peek(app->sessions, NULL, "a");
    ck_assert_int_eq(srv_store_delete(app->store, session, &error), SRV_OK);
    ck_assert(srv_session_remove(app->sessions, session));
    srv_session_put(session);
    read_tokens();
    ck_assert_int_eq(request->job->error.code, SRV_E_SESSION_NOT_FOUND);
}

/* A start repeats the one that has made the session, as far as attnd knows before it is read. */
TEST(start_under_the_id_of_an_unread_session_waits_too)
{
    static char start[] = "{\"session_id\":\"a\",\"start\":true,\"hidden_states\":[1,2,3,4]}";
    dispatch_app_begin(&served, SRV_POST, "/decode");
    request->body = start;
    request->body_length = strlen(start);
    dispatch_app_send(&served);
    ck_assert_uint_eq(dispatch->queue.waiting[SRV_QUEUE_UNREAD], 1);
    read_tokens();
    ck_assert_int_eq(request->job->items[0].error.code, SRV_E_SESSION_EXISTS);
}

/* A session may leave memory between the look at it and the fork, which then waits. */
TEST(fork_does_not_begin_on_an_unread_session)
{
    struct srv_session *session = srv_session_peek(app->sessions, NULL, "a");
    atomic_store(&session->presence, SRV_PRESENT);
    send_fork();
    atomic_store(&session->presence, SRV_UNREAD);
    srv_session_put(session);
    srv_dispatch_run_change(dispatch);
    ck_assert_uint_eq(dispatch->queue.waiting[SRV_QUEUE_UNREAD], 1);
    ck_assert_int_eq(request->job->error.code, SRV_OK);
}

TEST(session_for_which_a_request_waits_does_not_expire)
{
    ask_for_fork();
    ck_assert_ptr_null(srv_sessions_expire(app->sessions, UINT64_MAX));
    request->deadline_ns = 1;
    srv_dispatch_end_cancelled(dispatch);
    struct srv_session *expired = srv_sessions_expire(app->sessions, UINT64_MAX);
    ck_assert_ptr_nonnull(expired);
    srv_session_put(expired);
}

static unsigned finished;

static const struct srv_job_stage *count_finished(struct srv_job *job)
{
    (void)job;
    finished++;
    return NULL;
}

/* What follows a step on record is done at a stop, and the request is answered as it went. */
TEST(stop_finishes_what_is_on_record)
{
    static const struct srv_job_stage finish = {SRV_QUEUE_CHANGES, .completes = true,
                                                .run = count_finished};
    struct srv_item item = {.error.code = SRV_OK};
    struct srv_job job = {.stage = &finish, .request = request, .items = &item, .num_items = 1};
    finished = 0;
    dispatch_app_begin(&served, SRV_POST, "/decode");
    request->job = &job;
    job.node = (struct srv_queue_node){.request = request, .cost = 1};
    srv_fair_queue_put(&dispatch->queue, SRV_QUEUE_CHANGES, &job.node);
    srv_dispatch_refuse(dispatch, NULL, 0);
    ck_assert_uint_eq(finished, 1);
    ck_assert_uint_eq(dispatch->num_ended, 1);
    ck_assert_int_eq(job.error.code, SRV_OK);
    request->job = NULL;
}

/* Its client leaves, or its deadline passes. */
TEST_EACH(request_that_waits_for_tokens_is_cancelled_as_others_are, 2)
{
    ask_for_fork();
    if (_i == 0)
        atomic_store(&request->client_gone, true);
    else
        request->deadline_ns = 1;
    srv_dispatch_end_cancelled(dispatch);
    ck_assert_uint_eq(dispatch->num_ended, 1);
    ck_assert_int_eq(request->job->error.code, _i == 0 ? SRV_E_CLIENT_GONE : SRV_E_DEADLINE);
    ck_assert_uint_eq(dispatch->queue.waiting[SRV_QUEUE_UNREAD], 0);
}

SUITE(unread)
