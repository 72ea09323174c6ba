/* test_slow_disk.c: a journal on a disk whose flushes take half a second.  No event thread and not
 * the main thread waits for that disk: probes are answered and signals are seen meanwhile. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "suites.h"

#define SYNC_MS 500
#define WRITERS 4
#define PROBES 200
#define PROBE_PAUSE_MS 10
#define LATEST_MS 5 /* of 99 of 100 probes */
#define TRIES 5     /* another program may have the CPU during one */

#define CONFIG CONFIG_SMALL("\"durability\":\"journal\",\"journal_fsync\":\"always\",%s")

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- A daemon with a slow disk --------------------------------------------------------------- */

struct slow {
    struct daemon daemon;
    char directory[64]; /* of sessions */
};

/* The library stands beside this program. */
static void find_library(char out[512])
{
    char path[400];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    snprintf(out, 512, "LD_PRELOAD=%s/slow_sync.so", path);
}

static void begin(struct slow *slow, const char *members)
{
    char config[1024], preload[512], wait[64];
    const char *const arguments[] = {"--state-dir", slow->directory, NULL};
    const char *const variables[] = {preload, wait, NULL};
    snprintf(slow->directory, sizeof slow->directory, "/tmp/attnd-slow-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(slow->directory));
    find_library(preload);
    snprintf(wait, sizeof wait, "SLOW_SYNC_MS=%d", SYNC_MS);
    snprintf(config, sizeof config, CONFIG, members);
    daemon_start(&slow->daemon, config, arguments, variables);
}

static void end(struct slow *slow)
{
    char command[96];
    process_end(&slow->daemon.process);
    snprintf(command, sizeof command, "rm -r %s", slow->directory);
    ck_assert_int_eq(system(command), 0);
}

/* ---- Event threads --------------------------------------------------------------------------- */

/* A client that creates and deletes sessions, one after the other. */
struct writer {
    const struct daemon *daemon;
    atomic_bool *stop;
    unsigned number, changes;
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
        double before = now_ms();
        snprintf(id, sizeof id, "w%u.%u", writer->number, i);
        call_create(&own, id, "");
        if (now_ms() - before > writer->longest_ms)
            writer->longest_ms = now_ms() - before;
        call_delete(&own, id);
        writer->changes += 2;
    }
    client_close(&own);
    return NULL;
}

/* Whether 99 of 100 probes of the path are answered within LATEST_MS.  *slowest is the slowest. */
static bool is_soon(double *slowest, struct client *client, const char *path)
{
    size_t late = 0;
    for (size_t i = 0; i < PROBES && late <= PROBES / 100; i++) {
        double before = now_ms();
        struct answer answer = client_get(client, path);
        double ms = now_ms() - before;
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
    ck_assert_msg(soon, "%s: more than 1 of 100 answers take over %d ms, one of them %.1f", path,
                  LATEST_MS, slowest);
}

START_TEST(test_probes_are_answered_at_once_while_four_clients_wait_for_a_slow_disk)
{
    static const char *const paths[] = {"/livez", "/metrics", "/sessions"};
    struct slow slow;
    struct client client;
    struct writer writers[WRITERS];
    atomic_bool stop = false;
    begin(&slow, "");
    client_open(&client, &slow.daemon);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.daemon = &slow.daemon, .stop = &stop, .number = i};
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_main, &writers[i]), 0);
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        expect_soon(&client, paths[i]);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        ck_assert_uint_ge(writers[i].changes, 2);
        ck_assert_double_ge(writers[i].longest_ms, SYNC_MS); /* the disk was slow */
    }
    client_close(&client);
    end(&slow);
}
END_TEST

Suite *suite_slow_disk(void)
{
    Suite *suite = suite_create("slow_disk");
    TCase *tests = tcase_create("slow_disk");
    tcase_set_timeout(tests, 240);
    if (!INSTRUMENTED) /* the library would come before the sanitizer's */
        tcase_add_test(tests,
                       test_probes_are_answered_at_once_while_four_clients_wait_for_a_slow_disk);
    suite_add_tcase(suite, tests);
    return suite;
}
