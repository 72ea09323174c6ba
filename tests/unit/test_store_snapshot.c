/* test_store_snapshot.c: what the engine thread, for whom all computing waits, does for a
 * snapshot. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attn_state.h"
#include "session/notes.h"
#include "store/store_files.h"
#include "store_app.h"
#include "suites.h"

#define LAYERS 256
#define SESSIONS 24
#define WIDTH 4

static struct srv_app app;
static struct srv_error error;

static void set_up(void)
{
    static char random[] =
        "{\"hidden_size\":4,\"num_attention_heads\":1,\"num_hidden_layers\":256}";
    const struct srv_config config = {
        .durability = SRV_DURABLE_SNAPSHOT,
        .limits = {.max_sessions = SESSIONS, .max_session_length = 64, .session_ttl_s = 3600}};
    store_app_open(&app, &config, "deep", random, (size_t)64 << 20);
    store_app_begin(&app);
}

static void tear_down(void)
{
    store_app_end(&app);
    store_app_close(&app);
}

/* Creates a session with a token in each layer, with a reference for the caller. */
static struct srv_session *make_session(void)
{
    static const float row[WIDTH] = {1, 2, 3, 4};
    struct srv_session *session;
    struct attn_error cause;
    const struct srv_session_options options = {.id = NULL};
    ck_assert_int_eq(
        srv_session_create(&session, app.sessions, &app.models.items[0], &options, &error), SRV_OK);
    ck_assert_int_eq(srv_store_create(app.store, session, &error), SRV_OK);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        ck_assert_int_eq(attn_cache_write(session->cache, layer, 1, row, row, &cause), ATTN_OK);
        session->last_steps[layer] = (struct srv_last_step){.rows = 1, .digest = {layer, 1}};
    }
    session->changed = true;
    return session;
}

/* CPU time of this thread. */
static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The CPU time of making the notes and headers of all these sessions' exports, which say as much of
 * a session as a manifest does. */
static double time_headers(struct srv_session *const sessions[])
{
    double begin = cpu_ms();
    for (size_t i = 0; i < SESSIONS; i++) {
        static struct srv_note_text texts[SRV_NOTES + LAYERS];
        static struct attn_note notes[SRV_NOTES + LAYERS];
        struct attn_export *export;
        struct attn_error cause;
        const size_t count = srv_notes_print(texts, sessions[i]);
        for (size_t n = 0; n < count; n++)
            notes[n] = (struct attn_note){texts[n].name, texts[n].value};
        ck_assert_int_eq(attn_export_open(&export, sessions[i]->cache, notes, count, &cause),
                         ATTN_OK);
        attn_export_close(export);
    }
    return cpu_ms() - begin;
}

static void ask_for_snapshot(void)
{
    struct srv_store_status status;
    srv_store_request_snapshot(&status, app.store);
    store_app_await_snapshot(&app);
}

static void await_end(void)
{
    struct srv_store_status status = {.running = true};
    for (unsigned waited = 0; status.running; waited += 10) {
        ck_assert_uint_lt(waited, 20000);
        usleep(10000);
        srv_store_describe(&status, app.store);
    }
    ck_assert_uint_gt(status.base, 0);
}

START_TEST(test_snapshot_leaves_saying_what_sessions_are_to_the_thread_of_the_store)
{
    struct srv_session *sessions[SESSIONS];
    for (size_t i = 0; i < SESSIONS; i++)
        sessions[i] = make_session();
    double headers = time_headers(sessions);
    ask_for_snapshot();
    double begin = cpu_ms();
    srv_store_take_snapshot(app.store);
    double taking = cpu_ms() - begin;
    ck_assert_msg(taking < headers / 4,
                  "a snapshot takes %.2f ms, saying what its sessions are %.2f", taking, headers);
    await_end();
    for (size_t i = 0; i < SESSIONS; i++)
        srv_session_put(sessions[i]);
}
END_TEST

/* The manifest says what a session was when the snapshot was taken, however long writing takes. */
START_TEST(test_snapshot_is_one_moment_of_lengths_and_last_steps)
{
    static const float row[WIDTH] = {4, 3, 2, 1};
    struct srv_session *session = make_session();
    struct attn_error cause;
    char id[SRV_ID_MAX + 1];
    ask_for_snapshot();
    srv_store_take_snapshot(app.store);
    ck_assert_int_eq(attn_cache_write(session->cache, 0, 1, row, row, &cause), ATTN_OK);
    session->last_steps[0] = (struct srv_last_step){.position = 1, .rows = 1, .digest = {9, 9}};
    snprintf(id, sizeof id, "%s", session->id);
    await_end();
    srv_session_put(session);
    store_app_crash(&app);
    store_app_begin(&app);
    session = srv_session_peek(app.sessions, NULL, id);
    ck_assert_ptr_nonnull(session);
    ck_assert_uint_eq(attn_cache_length(session->cache, 0), 1);
    ck_assert_uint_eq(session->last_steps[0].position, 0);
    ck_assert_uint_eq(session->last_steps[0].rows, 1);
    ck_assert_uint_eq(session->last_steps[7].digest[0], 7);
    srv_session_put(session);
}
END_TEST

Suite *suite_store_snapshot(void)
{
    Suite *suite = suite_create("store_snapshot");
    TCase *tests = suite_cases(suite, "store_snapshot", set_up, tear_down, 60);
    tcase_add_test(tests, test_snapshot_leaves_saying_what_sessions_are_to_the_thread_of_the_store);
    tcase_add_test(tests, test_snapshot_is_one_moment_of_lengths_and_last_steps);
    return suite;
}
