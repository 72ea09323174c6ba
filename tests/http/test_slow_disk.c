/* test_slow_disk.c: a journal on a disk whose writes and flushes take a quarter of a second each,
 * or that is frozen.  No event thread and not the main thread waits for that disk: probes are
 * answered and signals are seen meanwhile. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "clock.h"
#include "scratch.h"
#include "suites.h"

#define SYNC_MS 250
#define WRITERS 4
#define MANY_WRITERS 10
#define TURN 5 /* changes that end during a decode, at most: two are expected, all would be ten */
#define PROBES 100
#define PROBE_PAUSE_MS 5
#define LATEST_MS (SYNC_MS / 5) /* of 99 of 100 probes: whoever waits for the disk is later */
#define TRIES 5                 /* another program may have the CPU during one */

#define SESSIONS 2000 /* that expire together, after */
#define TTL_S 5
#define SEEN_MS 100 /* until a signal is seen, at most */
#define WAIT_MS 60000
#define FROZEN_S 10     /* from which on the daemon is not ready */
#define READYZ_MS 30000 /* until /readyz has changed */

#define CONFIG CONFIG_SMALL("\"durability\":\"journal\",\"log\":\"info\",")

/* ---- A daemon with a slow disk --------------------------------------------------------------- */

struct slow {
    struct daemon daemon;
    struct client client;
    char directory
        [SCRATCH_PATH]; /* of the sessions' directory, and of the file that makes it slow */
};

static void begin(struct slow *slow, const char *fsync)
{
    char sessions[96], preload[512], wait[64], file[128];
    const char *const arguments[] = {"--state-dir", sessions, "--journal-fsync", fsync, NULL};
    const char *const variables[] = {preload, wait, file, NULL};
    scratch_make(slow->directory);
    snprintf(sessions, sizeof sessions, "%s/sessions", slow->directory);
    process_preload(preload, "slow_sync.so");
    snprintf(wait, sizeof wait, "SLOW_SYNC_MS=%d", SYNC_MS);
    snprintf(file, sizeof file, "SLOW_SYNC_FILE=%s/slow", slow->directory);
    daemon_start(&slow->daemon, CONFIG, arguments, variables);
    client_open(&slow->client, &slow->daemon);
}

/* From here on the disk is as the file's name says: "slow", "slow.frozen". */
static void make_disk(const struct slow *slow, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", slow->directory, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
}

static void slow_down(const struct slow *slow) { make_disk(slow, "slow"); }

static void end(struct slow *slow)
{
    client_close(&slow->client);
    process_end(&slow->daemon.process);
    scratch_remove(slow->directory);
}

/* ---- Event threads --------------------------------------------------------------------------- */

/* A client that creates and deletes sessions, one after the other. */
struct writer {
    const struct daemon *daemon;
    atomic_bool *stop;
    unsigned number;
    _Atomic unsigned changes; /* that have been answered */
    bool decodes;             /* each session once */
    double longest_ms;
    pthread_t thread;
};

static void *write_main(void *argument)
{
    struct writer *writer = argument;
    struct client own;
    char id[32];
    client_open(&own, writer->daemon);
    for (unsigned i = 0; !atomic_load(writer->stop) && i < 1000; i++) {
        double before = clock_ms();
        snprintf(id, sizeof id, "w%u.%u", writer->number, i);
        call_create(&own, id, "");
        writer->changes++;
        if (clock_ms() - before > writer->longest_ms)
            writer->longest_ms = clock_ms() - before;
        if (writer->decodes)
            expect_decode(&own, id, 0, 0);
        call_delete(&own, id);
        writer->changes++;
    }
    client_close(&own);
    return NULL;
}

/* Whether 99 of 100 probes of the path are answered within LATEST_MS.  *slowest is the slowest. */
static bool is_soon(double *slowest, struct client *client, const char *path)
{
    size_t late = 0;
    for (size_t i = 0; i < PROBES && late <= PROBES / 100; i++) {
        double before = clock_ms();
        struct answer answer = client_get(client, path);
        double ms = clock_ms() - before;
        expect_answer(&answer, 200, NULL, path);
        answer_free(&answer);
        *slowest = ms > *slowest ? ms : *slowest;
        late += ms > LATEST_MS;
        pause_ms(PROBE_PAUSE_MS);
    }
    return late <= PROBES / 100;
}

static void expect_soon(struct client *client, const char *path)
{
    double slowest = 0;
    bool soon = is_soon(&slowest, client, path);
    for (unsigned tries = 1; !soon && tries < TRIES; tries++)
        soon = is_soon(&slowest, client, path);
    printf("slow_disk: %s within %d ms in 99 of 100 cases, slowest %.1f\n", path, LATEST_MS,
           slowest);
    ck_assert_msg(soon, "%s: more than 1 of 100 answers take over %d ms, one of them %.1f", path,
                  LATEST_MS, slowest);
}

static void start_writers(struct writer writers[], unsigned count, const struct slow *slow,
                          bool decodes, atomic_bool *stop)
{
    atomic_store(stop, false);
    for (unsigned i = 0; i < count; i++) {
        writers[i] =
            (struct writer){.daemon = &slow->daemon, .stop = stop, .number = i, .decodes = decodes};
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_main, &writers[i]), 0);
    }
}

static void stop_writers(struct writer writers[], unsigned count, atomic_bool *stop)
{
    atomic_store(stop, true);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(writers[i].thread, NULL);
        ck_assert_uint_ge(writers[i].changes, 2);
        ck_assert_double_ge(writers[i].longest_ms, SYNC_MS); /* the disk was slow */
    }
}

CASE(slow_disk, NULL, NULL, 240)

/* One client alone leaves the engine idle, which an event thread might then take. */
TEST_EACH(probes_are_answered_at_once_while_clients_wait_for_a_slow_disk, INSTRUMENTED ? 0 : 3)
{
    static const char *const modes[] = {"always", "everysec", "os"};
    unsigned count = _i == 0 ? WRITERS : 1;
    static const char *const paths[] = {"/livez", "/metrics", "/sessions", "/snapshot"};
    struct slow slow;
    struct writer writers[WRITERS];
    atomic_bool stop;
    begin(&slow, modes[_i]);
    slow_down(&slow);
    start_writers(writers, count, &slow, true, &stop);
    for (size_t i = 0; i < COUNT(paths); i++)
        expect_soon(&slow.client, paths[i]);
    stop_writers(writers, count, &stop);
    end(&slow);
}

static unsigned count_changes(struct writer writers[], unsigned count)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += writers[i].changes;
    return sum;
}

TEST_EACH(decodes_take_turns_with_many_changes_on_a_slow_disk, !INSTRUMENTED)
{
    struct slow slow;
    struct writer writers[MANY_WRITERS];
    atomic_bool stop;
    begin(&slow, "always");
    call_create(&slow.client, "kept", "");
    expect_decode(&slow.client, "kept", 0, 0);
    slow_down(&slow);
    start_writers(writers, MANY_WRITERS, &slow, false, &stop);
    pause_ms(4 * SYNC_MS); /* all of them wait */
    for (size_t i = 1; i < 4; i++) {
        unsigned before = count_changes(writers, MANY_WRITERS);
        expect_decode(&slow.client, "kept", (unsigned)i, i);
        ck_assert_uint_le(count_changes(writers, MANY_WRITERS) - before, TURN);
    }
    stop_writers(writers, MANY_WRITERS, &stop);
    end(&slow);
}

/* ---- A frozen disk --------------------------------------------------------------------------- */

/* Waits until /readyz has this status; /livez answers meanwhile. */
static void await_readyz(struct client *client, long status, const char *code)
{
    struct answer answer = {0};
    for (unsigned waited = 0; answer.status != status; waited += 10) {
        answer_free(&answer);
        ck_assert_uint_lt(waited, READYZ_MS);
        pause_ms(10);
        answer = client_get(client, "/livez");
        expect_answer(&answer, 200, NULL, "/livez");
        answer_free(&answer);
        answer = client_get(client, "/readyz");
    }
    expect_answer(&answer, status, code, "/readyz");
    answer_free(&answer);
}

/* A batch of records waits, or with `everysec` the flush alone. */
TEST_EACH(while_the_disk_is_frozen_readyz_says_so_and_livez_is_200, INSTRUMENTED ? 0 : 2)
{
    static const struct {
        const char *fsync, *file;
    } disks[] = {{"always", "slow.frozen"}, {"everysec", "slow.stuck"}};
    struct slow slow;
    struct writer writer;
    atomic_bool stop;
    char path[96];
    begin(&slow, disks[_i].fsync);
    await_readyz(&slow.client, 200, NULL);
    make_disk(&slow, disks[_i].file);
    start_writers(&writer, 1, &slow, true, &stop);
    await_readyz(&slow.client, 503, "storage_stalled");
    ck_assert_double_ge(call_metric(&slow.client, "attnd_journal_wait_seconds"), FROZEN_S);
    ck_assert_double_eq(call_metric(&slow.client, "attnd_ready"), 0);
    snprintf(path, sizeof path, "%s/%s", slow.directory, disks[_i].file);
    ck_assert_int_eq(unlink(path), 0);
    await_readyz(&slow.client, 200, NULL);
    atomic_store(&stop, true);
    pthread_join(writer.thread, NULL);
    call_create(&slow.client, "after", "");
    ck_assert_double_eq(call_metric(&slow.client, "attnd_ready"), 1);
    end(&slow);
}

/* ---- The main thread ------------------------------------------------------------------------- */

static void await_expiry(struct client *client)
{
    for (unsigned tries = 0; call_metric(client, "attnd_sessions_expired_total") == 0; tries++) {
        ck_assert_uint_lt(tries, WAIT_MS / 2);
        pause_ms(2);
    }
}

/* Terminates the daemon; returns after how many milliseconds its log says so. */
static double terminate(const struct daemon *daemon)
{
    double before = clock_ms();
    daemon_terminate(daemon);
    for (bool seen = false; !seen && clock_ms() - before < WAIT_MS;) {
        pause_ms(1);
        char *log = daemon_log(daemon);
        seen = strstr(log, "draining") != NULL;
        free(log);
    }
    return clock_ms() - before;
}

TEST_EACH(signal_is_seen_at_once_while_many_sessions_expire_on_a_slow_disk, !INSTRUMENTED)
{
    struct slow slow;
    char id[32], ttl[32];
    snprintf(ttl, sizeof ttl, ",\"ttl_s\":%d", TTL_S);
    begin(&slow, "always");
    for (unsigned i = 0; i < SESSIONS; i++) {
        snprintf(id, sizeof id, "s%u", i);
        call_create(&slow.client, id, ttl);
    }
    slow_down(&slow);
    await_expiry(&slow.client);
    double ms = terminate(&slow.daemon);
    printf("slow_disk: SIGTERM under %d expiries is seen after %.0f ms\n", SESSIONS, ms);
    ck_assert_double_le(ms, SEEN_MS);
    end(&slow);
}

/* CIFS, sshfs and vboxsf: what was written is there at the next start all the same. */
TEST_EACH(directories_that_cannot_be_flushed_are_named_and_gone_on_with, !INSTRUMENTED)
{
    static const char said[] = "this file system cannot flush directories (Invalid argument)";
    char preload[512], directory[SCRATCH_PATH], sessions[96];
    const char *const arguments[] = {"--state-dir", sessions, NULL};
    const char *const variables[] = {preload, "NO_DIRECTORY_SYNC=1", NULL};
    scratch_make(directory);
    snprintf(sessions, sizeof sessions, "%s/sessions", directory);
    process_preload(preload, "slow_sync.so");
    for (unsigned start = 0; start < 3; start++) {
        struct daemon daemon;
        struct client client;
        daemon_start(&daemon, CONFIG, arguments, variables);
        free(daemon_log_with(&daemon, said));
        client_open(&client, &daemon);
        if (start == 0)
            call_create(&client, "kept", "");
        expect_decode(&client, "kept", start, start);
        client_close(&client);
        daemon_stop(&daemon);
    }
    scratch_remove(directory);
}

SUITE(slow_disk)
