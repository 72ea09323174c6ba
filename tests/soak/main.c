/* main.c: ten minutes of everything at once: build/soak [--quick] [--seconds N] [--series FILE]
 * [--thread-caches].
 *
 * Callers decode in JSON and in binary form, prefill, attend, make, fork, truncate, export, import,
 * list and delete sessions of a daemon that keeps a small journal.  In between, callers send
 * invalid requests, or close the connection in the middle of a request or before its answer.  All
 * answers must be right.  Memory, sampled throughout, must not rise once the daemon is warm.  When
 * all sessions are deleted, descriptors, threads and gauges must be what they were at the
 * beginning.  The load goes on until there was every kind of action.
 *
 * Two slopes must be zero: within their own error, or below a page a minute.  The slope of
 * allocated memory, by the least value in each stretch of time, shows leaks and leaves out requests
 * in progress.  The slope of resident memory shows fragmentation too.  The caches that glibc keeps
 * for each thread, up to 240 KiB, would hide both: they fill for hours and count as allocated.  The
 * daemon therefore runs without them; with --thread-caches it runs as shipped, and is not judged.
 *
 * All cache that sessions may take, and the working memory of steps in the pauses of long calls,
 * are used once before the load begins; otherwise the most that was ever in use at once would rise
 * throughout the run.  The quick form lasts seconds, in which one huge page touched for the first
 * time is 26,000 KiB a minute. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "binary.h"
#include "calls.h"
#include "cases.h"
#include "raw.h"
#include "samples.h"
#include "suite_run.h"
#include "verdict.h"

#define SECONDS 600
#define SECONDS_QUICK 10
#define TOLERANCE 4 /* KiB a minute */
#define TOLERANCE_QUICK 32768
#define CALLERS 4
#define SESSIONS 6     /* of each caller */
#define LONG 150       /* tokens after which a session is deleted */
#define FULL 230       /* tokens of each layer that no session passes */
#define PIECE 115      /* of these in one request */
#define LONG_CALLS 8   /* long calls before the load, */
#define LONG_ROWS 2048 /* each of so many rows, beside steps */
#define SETTLE_MS 10000
#define MORE 10 /* times as long, at most, until every kind of action was done */

static unsigned seconds = SECONDS;
static double tolerance = TOLERANCE;
static bool thread_caches;
static const char *series; /* file of samples; NULL: none */
static pthread_barrier_t full;
static atomic_bool long_calls_done;
static struct daemon served;
static char directory[64];
static struct timespec began;

static double elapsed_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

/* The kinds of action of a caller. */
enum action {
    STEP,
    STEP_BINARY,
    PREFILL,
    ATTEND,
    LIST,
    WRONG,
    MAKE,
    FORK,
    TRUNCATE,
    EXPORT,
    IMPORT,
    END,
    LEAVE,
    LEAVE_EARLY,
    ACTIONS
};

#define MAX_LEFT 2 /* abandoned steps of a session: as many as may wait (max_session_waiting) */

struct session {
    char id[32];
    size_t length; /* of the first layer, approximately */
    size_t left;   /* complete steps abandoned since the last that was answered */
    bool live;
};

static struct caller {
    unsigned number, random, names, seeds;
    struct client client;
    struct session sessions[SESSIONS];
} callers[CALLERS];

static atomic_size_t done[ACTIONS];

static unsigned below(struct caller *caller, unsigned n)
{
    caller->random = caller->random * 1664525u + 1013904223u;
    return (caller->random >> 8) % n;
}

static void name(struct caller *caller, struct session *session)
{
    *session = (struct session){.live = true};
    snprintf(session->id, sizeof session->id, "s%u-%u", caller->number, ++caller->names);
}

/* Sends a body to the session's `path` and expects `status`. */
static void post_to(struct caller *caller, const struct session *session, const char *verb,
                    const char *body, long status)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s/%s", session->id, verb);
    struct answer answer = client_post(&caller->client, path, body);
    expect_answer(&answer, status, NULL, path);
    answer_free(&answer);
}

/* ---- Actions --------------------------------------------------------------------------------- */

static void step(struct caller *caller, struct session *session)
{
    struct answer answer = call_decode(&caller->client, session->id, ++caller->seeds, "");
    expect_answer(&answer, 200, NULL, "a step");
    answer_free(&answer);
    session->length++;
    session->left = 0;
}

static void step_binary(struct caller *caller, struct session *session)
{
    struct text body = {0};
    text_add(&body, "{\"model\":\"tiny\",\"layer\":1,");
    text_step(&body, session->id, ++caller->seeds, "");
    text_add(&body, "}");
    struct answer answer = binary_post(&caller->client, "/decode", body.data, AS_FP32, 0,
                                       "Accept: application/octet-stream");
    binary_decode(&answer, "a binary step");
    answer_free(&answer);
    text_free(&body);
    session->left = 0;
}

static void prefill(struct caller *caller, struct session *session)
{
    size_t n = 1 + below(caller, 80);
    struct answer answer =
        call_prefill(&caller->client, session->id, ++caller->seeds, n, ",\"outputs\":[\"output\"]");
    expect_answer(&answer, 200, NULL, "a prefill");
    answer_free(&answer);
    session->length += n;
}

static void attend_rows(struct caller *caller, size_t n, const char *outputs)
{
    struct text body = {0};
    float *rows = malloc(n * PLAIN * sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    make_numbers(rows, n * PLAIN, ++caller->seeds);
    text_add(&body, "{\"model\":\"plain\",\"outputs\":[%s],\"hidden_states\":", outputs);
    text_floats(&body, rows, 9, SHAPE(n, PLAIN));
    text_add(&body, "}");
    expect_posted(&caller->client, "/attend", body.data, 200, NULL);
    text_free(&body);
    free(rows);
}

static void attend(struct caller *caller, struct session *session)
{
    (void)session;
    attend_rows(caller, 8, "\"output\",\"attention_weights\"");
}

static void list(struct caller *caller, struct session *session)
{
    static const char *const paths[] = {"/sessions", "/metrics", "/models", "/readyz"};
    struct answer answer = client_get(&caller->client, paths[below(caller, 4)]);
    (void)session;
    expect_answer(&answer, 200, NULL, "a look");
    answer_free(&answer);
}

/* Sends an invalid request; different layers of the daemon refuse them. */
static void wrong(struct caller *caller, struct session *session)
{
    static const struct {
        const char *path, *body;
        long status;
    } refused[] = {
        {"/decode", "{\"model\":\"tiny\",\"session_id\":\"nobody\",\"hidden_states\":[0]}", 404},
        {"/decode", "{\"model\":\"tiny\",\"session_id\":\"x\",\"hidden_states\":[[1,2],[3]]}", 422},
        {"/decode", "{\"model\":\"tiny\",", 400},
        {"/attend", "{\"model\":\"plain\",\"hidden_states\":[[1e400]]}", 422},
        {"/attend", "[1,2,3", 400},
        {"/sessions", "{\"model\":\"none\"}", 404},
        {"/sessions/nobody/fork", "{}", 404},
        {"/nowhere", "{}", 404},
        {"/livez", "{}", 405},
    };
    size_t i = below(caller, sizeof refused / sizeof refused[0]);
    struct answer answer = client_post(&caller->client, refused[i].path, refused[i].body);
    (void)session;
    ck_assert_msg(answer.status >= 400 && answer.status < 500, "%s %s: %ld %s", refused[i].path,
                  refused[i].body, answer.status, answer.text);
    answer_free(&answer);
}

static void make(struct caller *caller, struct session *session)
{
    name(caller, session);
    call_create(&caller->client, session->id, "");
}

static struct session *some_session(struct caller *caller, bool live)
{
    for (size_t i = 0, first = below(caller, SESSIONS); i < SESSIONS; i++) {
        struct session *session = &caller->sessions[(first + i) % SESSIONS];
        if (session->live == live)
            return session;
    }
    return NULL;
}

static void fork_one(struct caller *caller, struct session *session)
{
    char body[96];
    const struct session *from = some_session(caller, true);
    if (from == NULL)
        return;
    name(caller, session);
    session->length = from->length;
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"}", session->id);
    post_to(caller, from, "fork", body, 201);
}

static void truncate_one(struct caller *caller, struct session *session)
{
    post_to(caller, session, "truncate", "{\"length\":0}", 200);
    session->length = 0;
}

static struct answer get_state(struct caller *caller, const struct session *session)
{
    char path[96];
    snprintf(path, sizeof path, "/sessions/%s/state", session->id);
    struct answer answer = client_get(&caller->client, path);
    expect_answer(&answer, 200, NULL, path);
    return answer;
}

static void export(struct caller *caller, struct session *session)
{
    struct answer answer = get_state(caller, session);
    answer_free(&answer);
}

/* Imports an exported session under a new id, then once more with a byte changed, which must be
 * refused. */
static void import(struct caller *caller, struct session *session)
{
    static const char *const type[] = {"Content-Type: application/octet-stream", NULL};
    char path[96];
    const struct session *from = some_session(caller, true);
    if (from == NULL)
        return;
    struct answer state = get_state(caller, from), answer;
    name(caller, session);
    session->length = from->length;
    snprintf(path, sizeof path, "/sessions/%s/state", session->id);
    struct request request = {
        .method = "PUT", .path = path, .body = state.text, .length = state.length, .headers = type};
    state.text[state.length - 1] ^= 1;
    answer = client_send(&caller->client, &request);
    ck_assert_msg(answer.status >= 400 && answer.status < 500, "%s: %ld", path, answer.status);
    answer_free(&answer);
    state.text[state.length - 1] ^= 1;
    answer = client_send(&caller->client, &request);
    expect_answer(&answer, 201, NULL, path);
    answer_free(&answer);
    answer_free(&state);
}

static void end(struct caller *caller, struct session *session)
{
    call_delete(&caller->client, session->id);
    session->live = false;
}

/* Sends a whole request for a step, or half of it, and closes the connection without waiting for
 * the answer. */
static void send_and_leave(struct caller *caller, const struct session *session, bool whole)
{
    struct raw raw;
    struct text body = {0}, head = {0};
    text_add(&body, "{\"model\":\"tiny\",");
    text_step(&body, session->id, ++caller->seeds, "");
    text_add(&body, "}");
    text_add(&head,
             "POST /decode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             body.length);
    raw_open(&raw, served.host, served.port);
    raw_send(&raw, head.data, head.length);
    raw_send(&raw, body.data, whole ? body.length : body.length / 2);
    (below(caller, 2) ? raw_reset : raw_close)(&raw);
    text_free(&head);
    text_free(&body);
}

/* On a busy machine all abandoned steps of a session may still wait in the queue when its next
 * request comes.  After a third abandoned step that request would be one too many, and refused. */
static void leave(struct caller *caller, struct session *session)
{
    if (session->left == MAX_LEFT) {
        step(caller, session);
        return;
    }
    send_and_leave(caller, session, true);
    session->length++;
    session->left++;
}

static void leave_early(struct caller *caller, struct session *session)
{
    send_and_leave(caller, session, false);
}

static const struct {
    unsigned chance; /* percent */
    bool live;       /* acts on an existing session; else on a free slot */
    void (*act)(struct caller *caller, struct session *session);
} actions[ACTIONS] = {
    [STEP] = {34, true, step},
    [STEP_BINARY] = {20, true, step_binary},
    [PREFILL] = {4, true, prefill},
    [ATTEND] = {8, true, attend},
    [LIST] = {5, true, list},
    [WRONG] = {8, true, wrong},
    [MAKE] = {4, false, make},
    [FORK] = {3, false, fork_one},
    [TRUNCATE] = {2, true, truncate_one},
    [EXPORT] = {2, true, export},
    [IMPORT] = {2, false, import},
    [END] = {3, true, end},
    [LEAVE] = {3, true, leave},
    [LEAVE_EARLY] = {2, true, leave_early},
};

static void act(struct caller *caller)
{
    unsigned left = below(caller, 100), action = 0;
    while (left >= actions[action].chance)
        left -= actions[action++].chance;
    struct session *session = some_session(caller, actions[action].live);
    if (session == NULL)
        return;
    actions[action].act(caller, session);
    done[action]++;
    if (session->live && session->length > LONG)
        end(caller, session);
}

/* Fills all sessions of all callers at once with as many tokens as the load can reach. */
static void fill(struct caller *caller)
{
    static const char *const extra[] = {",\"outputs\":[\"output\"]",
                                        ",\"layer\":1,\"outputs\":[\"output\"]"};
    for (size_t i = 0; i < SESSIONS; i++) {
        make(caller, &caller->sessions[i]);
        caller->sessions[i].length = FULL;
        for (size_t rows = 0; rows < 2 * (size_t)FULL; rows += PIECE) {
            struct answer answer = call_prefill(&caller->client, caller->sessions[i].id,
                                                ++caller->seeds, PIECE, extra[rows / FULL]);
            expect_answer(&answer, 200, NULL, "a session's filling");
            answer_free(&answer);
        }
    }
    pthread_barrier_wait(&full);
}

/* Computes steps in the pauses of long calls, so that their working memory, which stays, is taken
 * before the load; under load the first such pause might come late. */
static void warm_up_long_calls(struct caller *caller)
{
    if (caller->number == 0) {
        for (unsigned i = 0; i < LONG_CALLS; i++)
            attend_rows(caller, LONG_ROWS, "\"output\"");
        atomic_store(&long_calls_done, true);
    }
    while (!atomic_load(&long_calls_done)) {
        struct answer answer = call_decode(&caller->client, caller->sessions[0].id, ++caller->seeds,
                                           ",\"commit\":false");
        expect_answer(&answer, 200, NULL, "a step beside a long call");
        answer_free(&answer);
    }
}

static size_t count_actions(void)
{
    size_t count = 0;
    for (size_t action = 0; action < ACTIONS; action++)
        count += done[action];
    return count;
}

static size_t count_kinds(void)
{
    size_t count = 0;
    for (size_t action = 0; action < ACTIONS; action++)
        count += done[action] > 0;
    return count;
}

/* Whether the load goes on. */
static bool goes_on(void)
{
    const double now = elapsed_s();
    return now < seconds || (count_kinds() < ACTIONS && now < MORE * (double)seconds);
}

/* Has the daemon make the files of blocks and the manifest, which it keeps open. */
static void open_files(struct client *client)
{
    call_create(client, "first", "");
    struct answer answer = call_decode(client, "first", 1, "");
    expect_answer(&answer, 200, NULL, "first");
    answer_free(&answer);
    call_snapshot(client);
    call_delete(client, "first");
}

static void *call(void *argument)
{
    struct caller *caller = argument;
    client_open(&caller->client, &served);
    fill(caller);
    warm_up_long_calls(caller);
    while (goes_on())
        act(caller);
    for (size_t i = 0; i < SESSIONS; i++)
        if (caller->sessions[i].live)
            end(caller, &caller->sessions[i]);
    client_close(&caller->client);
    return NULL;
}

/* ---- What must return ------------------------------------------------------------------------ */

static const char *const gauges[] = {"attnd_in_flight_bytes", "attnd_queue_depth", "attnd_sessions",
                                     "attnd_cache_used_bytes", "attnd_connections"};
#define NUM_GAUGES (sizeof gauges / sizeof gauges[0])

static struct {
    struct slope memory, heap;
    size_t warm, beyond; /* samples until the daemon is warm; gauges that did not return */
    struct usage before, after;
} result;

static bool settled(struct client *client, const double before[NUM_GAUGES])
{
    bool same = true;
    for (size_t i = 0; i < NUM_GAUGES; i++)
        same = same && call_metric(client, gauges[i]) == before[i];
    result.after = usage_of(served.process.pid);
    return same && result.after.descriptors == result.before.descriptors &&
           result.after.threads == result.before.threads;
}

static void wait_until_settled(struct client *client, const double before[NUM_GAUGES])
{
    for (unsigned waited = 0; !settled(client, before) && waited < SETTLE_MS; waited += 20)
        pause_ms(20);
    for (size_t i = 0; i < NUM_GAUGES; i++) {
        double now = call_metric(client, gauges[i]);
        result.beyond += now != before[i];
        if (now != before[i])
            fprintf(stderr, "check-soak: %s is %g, was %g\n", gauges[i], now, before[i]);
    }
}

static void sample(struct samples *memory, struct samples *heap, struct client *client)
{
    FILE *file = series != NULL ? fopen(series, "w") : NULL;
    while (goes_on()) {
        struct usage usage = usage_of(served.process.pid);
        double in_use = call_metric(client, "attnd_heap_bytes") / 1024, now = elapsed_s();
        samples_add(memory, now / 60, (double)usage.resident_kib);
        samples_add(heap, now / 60, in_use);
        if (now < seconds / 2.5)
            result.warm = memory->count;
        if (file != NULL)
            fprintf(file, "%.1f %zu %.1f %zu\n", now, usage.resident_kib, in_use, count_actions());
        pause_ms(seconds > 100 ? 500 : 50);
    }
    if (file != NULL)
        fclose(file);
}

START_TEST(test_ten_minutes_of_mixed_load_leak_nothing)
{
    static struct samples memory, heap;
    const char *const arguments[] = {"--durability", "journal",         "--state-dir",
                                     directory,      "--journal-bytes", "4MiB",
                                     "--log",        "error",           NULL};
    const char *const variables[] = {"GLIBC_TUNABLES=glibc.malloc.tcache_count=0", NULL};
    pthread_t threads[CALLERS];
    struct client witness;
    double before[NUM_GAUGES];
    daemon_start(&served, CONFIG_SMALL(""), arguments, thread_caches ? NULL : variables);
    client_open(&witness, &served);
    open_files(&witness);
    for (size_t i = 0; i < NUM_GAUGES; i++)
        before[i] = call_metric(&witness, gauges[i]);
    result.before = usage_of(served.process.pid);
    clock_gettime(CLOCK_MONOTONIC, &began);
    ck_assert_int_eq(pthread_barrier_init(&full, NULL, CALLERS), 0);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.number = i, .random = i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    sample(&memory, &heap, &witness);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    samples_slope(&result.memory, &memory, result.warm, SLOPE_OF_MEANS);
    samples_slope(&result.heap, &heap, result.warm, SLOPE_OF_LEAST);
    wait_until_settled(&witness, before);
    client_close(&witness);
    daemon_stop(&served);
}
END_TEST

static bool run(void)
{
    Suite *suite = suite_create("soak");
    TCase *tests = suite_cases(suite, "soak", NULL, NULL, 0);
    tcase_add_test(tests, test_ten_minutes_of_mixed_load_leak_nothing);
    return suite_run(suite);
}

/* False where an option is unknown. */
static bool read_arguments(int argc, char *argv[])
{
    bool known = true;
    for (int i = 1; i < argc && known; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--quick") == 0) {
            seconds = SECONDS_QUICK;
            tolerance = TOLERANCE_QUICK;
        } else if (strcmp(argv[i], "--seconds") == 0 && strtoul(value, NULL, 10) >= SECONDS_QUICK) {
            seconds = (unsigned)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--series") == 0 && value[0] != '\0') {
            series = argv[++i];
        } else if (strcmp(argv[i], "--thread-caches") == 0) {
            thread_caches = true;
        } else {
            known = false;
        }
    }
    return known;
}

static bool is_flat(const struct slope *slope)
{
    return INSTRUMENTED || thread_caches || slope->per_minute <= slope->error ||
           slope->per_minute <= tolerance;
}

int main(int argc, char *argv[])
{
    char command[128];
    snprintf(directory, sizeof directory, "/tmp/attnd-soak-XXXXXX");
    if (!read_arguments(argc, argv) || mkdtemp(directory) == NULL ||
        curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    bool ran = run();
    snprintf(command, sizeof command, "rm -rf %s", directory);
    bool removed = system(command) == 0;
    const size_t kinds = count_kinds();
    const struct verdict_condition conditions[] = {
        VERDICT(ran),
        VERDICT(removed),
        VERDICT(kinds == ACTIONS),
        VERDICT(result.beyond == 0),
        VERDICT(is_flat(&result.heap)),
        VERDICT(is_flat(&result.memory)),
        VERDICT(result.after.descriptors == result.before.descriptors),
        VERDICT(result.after.threads == result.before.threads),
    };
    const bool right = VERDICTS("check-soak", conditions);
    printf("check-soak: %u s, %zu operations of %zu kinds: heap in use %+.1f +- %.1f KiB a minute, "
           "resident %+.1f +- %.1f at %.1f MiB (zero, or at most %g); descriptors %zu, were %zu; "
           "threads %zu, were %zu; %zu of %zu gauges not back%s\n",
           seconds, count_actions(), kinds, result.heap.per_minute, result.heap.error,
           result.memory.per_minute, result.memory.error, result.memory.end_kib / 1024, tolerance,
           result.after.descriptors, result.before.descriptors, result.after.threads,
           result.before.threads, result.beyond, NUM_GAUGES, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
