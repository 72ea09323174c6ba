/* test_dispatch.c: an import that fails, while the I/O worker that would write its reply is busy
 * with another request. */
#include <check.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_state.h"
#include "dispatch_app.h"
#include "session/notes.h"
#include "suites.h"

#define WIDTH 64
#define TOKENS 700 /* their keys and values are more than a piece, and a large body */

static struct dispatch_app served;
static struct srv_app *const app = &served.app;
static struct srv_dispatch *const dispatch = &served.dispatch;
static struct srv_request *const request = &served.exchange.request;
static struct srv_error error;
static sem_t go_on;

/* The I/O worker is busy with another request for as long as the test takes. */
static bool be_busy(void *context, struct srv_request *given)
{
    (void)context;
    (void)given;
    sem_wait(&go_on);
    return false;
}

static void set_up(void)
{
    static char random[] = "{\"hidden_size\":64,\"num_attention_heads\":1,\"seed\":1}";
    const struct srv_config config = {.durability = SRV_DURABLE_JOURNAL,
                                      .journal_bytes = (size_t)1 << 30,
                                      .limits = {.max_sessions = 8,
                                                 .max_session_length = TOKENS,
                                                 .session_ttl_s = 3600,
                                                 .max_state_bytes = (size_t)1 << 24,
                                                 .max_in_flight_bytes = (size_t)1 << 30}};
    store_app_open(app, &config, "one", random, (size_t)8 << 20);
    store_app_begin(app);
    sem_init(&go_on, 0, 0);
    dispatch_app_open(&served, be_busy);
}

static void tear_down(void)
{
    char *const sent = request->body;
    sem_post(&go_on);
    dispatch_app_close(&served);
    free(sent);
}

/* Puts a session of that id into the table, without keeping a reference. */
static void list_session(const char *id)
{
    struct srv_session *session = store_app_session(app, id);
    ck_assert_int_eq(srv_store_create(app->store, session, &error), SRV_OK);
    srv_session_put(session);
}

/* Makes a session's file the body of the request. */
static void make_body(void)
{
    static const float rows[TOKENS * WIDTH] = {1, 2, 3};
    struct attn_cache *cache;
    struct attn_export *export;
    struct attn_error cause;
    const struct attn_note notes[] = {{"model", "one"}};
    const struct srv_model *model = &app->models.items[0];
    ck_assert_int_eq(attn_cache_new(&cache, app->pool, model->attn, TOKENS, &cause), ATTN_OK);
    ck_assert_int_eq(attn_cache_write(cache, 0, TOKENS, rows, rows, &cause), ATTN_OK);
    ck_assert_int_eq(attn_export_open(&export, cache, notes, 1, &cause), ATTN_OK);
    request->body_length = attn_export_bytes(export);
    ck_assert_uint_gt(request->body_length, SRV_LARGE_BYTES);
    request->body = aligned_alloc(64, (request->body_length + 63) / 64 * 64);
    while (attn_export_run(export, request->body, SIZE_MAX))
        ;
    attn_export_close(export);
    attn_cache_free(cache);
}

/* PUT /sessions/x/state, as it comes from an I/O worker that has read it. */
static void begin_import(void)
{
    dispatch_app_begin(&served, SRV_PUT, "/sessions/x/state");
    make_body();
    dispatch_app_send(&served);
    ck_assert(srv_dispatch_has_work(dispatch));
}

/* Imports until some of the session is in the journal. */
static void import_some(void)
{
    struct srv_store_status before, now;
    srv_store_describe(&before, app->store);
    do {
        srv_dispatch_run_job(dispatch, SRV_QUEUE_PIECES);
        srv_store_describe(&now, app->store);
    } while (now.journal_bytes == before.journal_bytes && srv_dispatch_has_work(dispatch));
    ck_assert(srv_dispatch_has_work(dispatch));
}

/* Fails the import: another session of its id comes first, its deadline passes, or its client
 * leaves. */
static enum srv_error_code fail_import(int way)
{
    if (way == 0)
        list_session("x");
    else if (way == 1)
        request->deadline_ns = 1;
    else
        atomic_store(&request->client_gone, true);
    while (srv_dispatch_has_work(dispatch))
        srv_dispatch_run_job(dispatch, SRV_QUEUE_PIECES);
    srv_replies_send(dispatch);
    return request->job->error.code;
}

static void await_cut(void)
{
    struct srv_store_status status;
    srv_store_request_snapshot(&status, app->store);
    for (unsigned waited = 0; !srv_store_wants_snapshot(app->store); waited += 10) {
        ck_assert_uint_lt(waited, 20000);
        usleep(10000);
    }
}

CASE(dispatch, set_up, tear_down, 60)

TEST_EACH(snapshot_does_not_wait_for_the_reply_of_an_import_that_failed, 3)
{
    static const enum srv_error_code codes[] = {SRV_E_SESSION_EXISTS, SRV_E_DEADLINE,
                                                SRV_E_CLIENT_GONE};
    begin_import();
    import_some();
    ck_assert_int_eq(fail_import(_i), codes[_i]);
    ck_assert_uint_eq(request->reply.status, 0); /* queued for the I/O worker */
    await_cut();
    srv_store_take_snapshot(app->store);
    ck_assert(!srv_store_wants_snapshot(app->store));
}

SUITE(dispatch)
