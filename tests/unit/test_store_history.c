/* test_store_history.c: sessions that are made, forked, cut, grown and deleted have the same rows
 * after every start, whatever snapshots were made or failed before, however the daemon ended, and
 * whatever became of one copy of the manifest. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "attn_state.h"
#include "disk.h"
#include "rng.h"
#include "store_app.h"
#include "suites.h"

#define SESSIONS 6
#define LONGEST 256
#define WIDTH STORE_APP_WIDTH
#define TURNS 60

static struct srv_app app;
static struct srv_error error;
static struct rng rng;
static float next_row;

/* What a session is to be; no two rows that were appended are the same. */
static struct known {
    bool lives;
    size_t length;
    float rows[LONGEST];
} known[SESSIONS];

static void set_up(void)
{
    disk_reset();
    memset(known, 0, sizeof known);
    next_row = 1;
    store_app_open_tiny(&app, SESSIONS, LONGEST);
    app.config.journal_fsync = SRV_FSYNC_OS;
    store_app_begin(&app);
}

static void tear_down(void)
{
    disk_reset();
    store_app_end(&app);
    store_app_close(&app);
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* The session of a number; the caller's to put. */
static struct srv_session *find(size_t i)
{
    const char id[] = {(char)('a' + i), '\0'};
    return srv_session_peek(app.sessions, NULL, id);
}

static void append(size_t i, size_t rows)
{
    struct srv_session *session = find(i);
    struct known *k = &known[i];
    struct attn_error cause;
    for (; rows > 0 && k->length < LONGEST; rows--) {
        const float row[WIDTH] = {next_row, -next_row, 1, 2};
        const struct attn_step step = {.position = k->length, .rows = 1};
        const struct attn_appended appended = {&step, row, row};
        const struct srv_store_step one = {session, 0, &appended, (uint64_t[2]){1, 2}};
        ck_assert_int_eq(srv_store_steps(app.store, &one, 1, &error), SRV_OK);
        ck_assert_int_eq(attn_cache_write(session->cache, 0, 1, row, row, &cause), ATTN_OK);
        k->rows[k->length++] = next_row++;
    }
    srv_session_put(session);
}

static void make(size_t i)
{
    const char id[] = {(char)('a' + i), '\0'};
    const size_t parent = rng_below(&rng, SESSIONS);
    if (known[parent].lives && rng_below(&rng, 3) > 0) {
        struct srv_session *session = find(parent);
        known[i] = known[parent];
        srv_session_put(store_app_fork(&app, session, id));
        srv_session_put(session);
    } else {
        known[i] = (struct known){.lives = true};
        srv_session_put(store_app_session(&app, id));
        append(i, 1 + rng_below(&rng, 100));
    }
}

static void change(size_t i)
{
    struct srv_session *session = find(i);
    const unsigned what = rng_below(&rng, 8);
    if (what == 0) {
        ck_assert_int_eq(srv_store_delete(app.store, session, &error), SRV_OK);
        ck_assert(srv_session_remove(app.sessions, session));
        known[i].lives = false;
    } else if (what < 3) {
        known[i].length = rng_below(&rng, (unsigned)known[i].length + 1);
        ck_assert_int_eq(store_app_truncate(&app, session, known[i].length), SRV_OK);
    }
    srv_session_put(session);
    if (what >= 3)
        append(i, 1 + rng_below(&rng, 90));
}

/* ---- Moments and ends ------------------------------------------------------------------------ */

static void make_snapshot(void)
{
    struct srv_store_status before, status;
    const unsigned fault = rng_below(&rng, 8);
    srv_store_request_snapshot(&before, app.store);
    store_app_await_snapshot(&app);
    atomic_store(&disk.full, fault == 0);
    atomic_store(&disk.no_manifest, fault == 1);
    status = store_app_take_snapshot(&app);
    if (fault >= 2 && status.base == before.generation) { /* one that failed before goes first */
        store_app_await_snapshot(&app);
        status = store_app_take_snapshot(&app);
    }
    atomic_store(&disk.full, false);
    atomic_store(&disk.no_manifest, false);
    ck_assert(fault < 2 || status.base > before.generation);
    ck_assert(fault >= 2 || status.base == before.base);
}

static void expect_all(void)
{
    for (size_t i = 0; i < SESSIONS; i++) {
        struct srv_session *session = find(i);
        float key[WIDTH], value[WIDTH];
        ck_assert_int_eq(session != NULL, known[i].lives);
        if (session == NULL)
            continue;
        ck_assert_uint_eq(attn_cache_length(session->cache, 0), known[i].length);
        for (size_t at = 0; at < known[i].length; at++) {
            const float row[WIDTH] = {known[i].rows[at], -known[i].rows[at], 1, 2};
            attn_cache_read_from(key, value, session->cache, 0, at, 1);
            ck_assert_mem_eq(key, row, sizeof row);
            ck_assert_mem_eq(value, row, sizeof row);
        }
        srv_session_put(session);
    }
}

/* The daemon is killed, or ended, half of the time again before it has read a block. */
static void start_again(const char *damage)
{
    char command[128];
    const size_t used = attn_cache_pool_used(app.pool);
    for (unsigned starts = 1 + rng_below(&rng, 2); starts > 0; starts--) {
        if (rng_below(&rng, 2) == 0)
            store_app_crash(&app);
        else
            store_app_end(&app);
        snprintf(command, sizeof command, "if ls *.copy >.list 2>&1; then %s; fi; rm .list",
                 damage);
        store_app_shell(&app, command);
        if (starts > 1)
            store_app_load(&app);
    }
    store_app_begin(&app);
    expect_all();
    ck_assert_uint_le(attn_cache_pool_used(app.pool), used);
}

START_TEST(test_every_start_has_the_rows_of_every_session)
{
    static const char *const damages[] = {":", "truncate -s -9 *.copy", "truncate -s 40 *.manifest",
                                          "rm *.copy"};
    const char *const damage = damages[_i % 4];
    rng = rng_seeded(500 + (uint64_t)_i);
    for (size_t turn = 0; turn < TURNS; turn++) {
        const size_t i = rng_below(&rng, SESSIONS);
        const unsigned what = rng_below(&rng, 8);
        if (what == 0)
            start_again(damage);
        else if (what < 3)
            make_snapshot();
        else if (known[i].lives)
            change(i);
        else
            make(i);
    }
    start_again(damage);
}
END_TEST

Suite *suite_store_history(void)
{
    Suite *suite = suite_create("store_history");
    TCase *tests = suite_cases(suite, "store_history", set_up, tear_down, 120);
    tcase_add_loop_test(tests, test_every_start_has_the_rows_of_every_session, 0, 8);
    return suite;
}
