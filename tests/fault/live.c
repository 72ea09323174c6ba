/* live.c: one daemon, many injections.
 *
 * An injection prepares a step, arms the fault, sends the request and disarms the fault.  The reply
 * must be the right answer, an error that the table of errors has for faults or, where the fault
 * hit the connection itself, none.  The request, sent once more, must be answered right; the
 * sessions and the next decodes must be what they are without a fault, and the daemon's gauges must
 * return. */
#include "live.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "inject.h"
#include "steps.h"

#define SETTLE_MS 8000
#define AGAIN_MS 10000
#define ACCEPT_MS 10
#define BLOCKS_MS 50
#define LEAK_MIN 6 /* blocks that the injections of one step may leave: caches that have grown */

static const char *const gauges[] = {"attnd_in_flight_bytes",  "attnd_queue_depth",
                                     "attnd_cache_used_bytes", "attnd_sessions",
                                     "attnd_connections",      "process_open_fds"};
#define GAUGES (sizeof gauges / sizeof gauges[0])

static struct live {
    const char *scene;
    struct daemon daemon;
    struct client client;
    struct steps steps;
    double gauges[GAUGES];
    bool durable;
} live;

/* ---- Gauges ---------------------------------------------------------------------------------- */

static void read_gauges(double out[GAUGES])
{
    struct answer answer = client_get(&live.client, "/metrics");
    expect_answer(&answer, 200, NULL, "metrics");
    for (size_t i = 0; i < GAUGES; i++) {
        char sample[64];
        snprintf(sample, sizeof sample, "\n%s ", gauges[i]);
        const char *at = strstr(answer.text, sample);
        ck_assert_msg(at != NULL, "no gauge %s", gauges[i]);
        out[i] = strtod(at + strlen(sample), NULL);
    }
    answer_free(&answer);
}

/* Waits until all gauges have returned; returns NULL, or the name of one that has not. */
static const char *gauge_left(double *now)
{
    double values[GAUGES];
    for (unsigned waited = 0;; waited += 2) {
        size_t i = 0;
        read_gauges(values);
        while (i < GAUGES && values[i] == live.gauges[i])
            i++;
        if (i == GAUGES)
            return NULL;
        *now = values[i];
        if (waited >= SETTLE_MS)
            return gauges[i];
        pause_ms(2);
    }
}

/* ---- One injection --------------------------------------------------------------------------- */

/* Asks for a snapshot, which replaces a broken journal, and does not wait for its end. */
static void mend_journal(void)
{
    struct answer answer = client_post(&live.client, "/snapshot", NULL);
    answer_free(&answer);
}

/* Sends the step until the answer is right.  `lost`: the first request had no answer, and may have
 * taken effect. */
static bool again(const struct step *step, const struct fault *fault, bool lost)
{
    struct answer answer;
    for (unsigned waited = 0; waited < AGAIN_MS; waited += 10) {
        bool answered = step_send(&answer, step, &live.client);
        bool right = answered && (step_right(step, &answer) ||
                                  (lost && (answer.status == 404 || answer.status == 409)));
        bool later = answered && !right && live.durable && steps_refused(&answer);
        if (!right && !later)
            inject_wrong(live.scene, fault, "%s: sent again: %ld %.300s", step->name, answer.status,
                         answer.text);
        answer_free(&answer);
        if (!later)
            return right;
        if (waited == 0)
            mend_journal();
        pause_ms(10);
    }
    inject_wrong(live.scene, fault, "%s: refused for good", step->name);
    return false;
}

/* Whether the fault may have hit the connection itself: the first of attnd's own allocations is a
 * connection's record, or, for a higher descriptor than any before, the table of connections. */
static bool may_be_silent(const struct fault *fault)
{
    return fault->kind == FAULT_TRANSPORT || fault->kind == FAULT_ACCEPT ||
           (fault->kind == FAULT_MEMORY && fault->at <= 2);
}

static bool judge(const struct step *step, const struct fault *fault, const struct answer *answer,
                  bool answered)
{
    if (answered && step_right(step, answer))
        return true;
    if (answered && steps_refused(answer)) {
        figures.refused++;
        return again(step, fault, false);
    }
    if (!answered && may_be_silent(fault)) {
        figures.unanswered++;
        return again(step, fault, true);
    }
    inject_wrong(live.scene, fault, "%s: %ld %.160s", step->name, answered ? answer->status : 0,
                 answered ? answer->text : "no answer");
    return false;
}

static bool check_after(const struct step *step, const struct fault *fault)
{
    char wrong[600] = "";
    double now = 0;
    if (!step_state(wrong, &step->after, &live.client)) {
        inject_wrong(live.scene, fault, "%s: %s", step->name, wrong);
        return false;
    }
    step_clean(&live.client);
    const char *left = gauge_left(&now);
    if (left != NULL) {
        inject_wrong(live.scene, fault, "%s: %s is %g", step->name, left, now);
        read_gauges(live.gauges);
        return false;
    }
    char *bits = steps_bits(&live.client, "base");
    bool same = bits != NULL && strcmp(bits, live.steps.witness) == 0;
    if (!same)
        inject_wrong(live.scene, fault, "%s: the witness decodes otherwise", step->name);
    free(bits);
    return same;
}

static void *disarm_soon(void *nothing)
{
    pause_ms(ACCEPT_MS);
    inject_disarm();
    return nothing;
}

/* Sends the step while connections are not accepted: the client waits, and the fault ends
 * meanwhile. */
static bool send_unaccepted(struct answer *answer, const struct step *step)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, disarm_soon, NULL), 0);
    bool answered = step_send(answer, step, &live.client);
    pthread_join(thread, NULL);
    return answered;
}

static void inject(const struct step *step, const struct fault *fault)
{
    struct answer answer;
    step_prepare(step, &live.client);
    inject_arm(fault);
    bool answered = fault->kind == FAULT_ACCEPT ? send_unaccepted(&answer, step)
                                                : step_send(&answer, step, &live.client);
    inject_disarm();
    bool fired = inject_fired();
    (void)(judge(step, fault, &answer, answered) && check_after(step, fault));
    step_clean(&live.client);
    answer_free(&answer);
    figures.injections += fired;
}

/* ---- All ------------------------------------------------------------------------------------- */

static void count_calls(uint64_t counts[FAULT_KINDS], const struct step *step)
{
    struct answer answer;
    step_prepare(step, &live.client);
    inject_arm(NULL);
    ck_assert(step_send(&answer, step, &live.client));
    answer_free(&answer);
    inject_counts(counts, false);
    step_clean(&live.client);
    double now;
    (void)gauge_left(&now);
}

static void run_step(const struct step *step, unsigned stride)
{
    uint64_t counts[FAULT_KINDS];
    struct fault fault = {0};
    size_t before = figures.injections;
    count_calls(counts, step);
    int64_t blocks = inject_blocks();
    while (inject_next(&fault, counts, stride))
        inject(step, &fault);
    int64_t grown = inject_blocks() - blocks;
    for (unsigned waited = 0; grown > 0 && waited < BLOCKS_MS; waited += 5) {
        pause_ms(5); /* the event thread frees a closed connection a little later */
        grown = inject_blocks() - blocks;
    }
    if (grown > LEAK_MIN && grown > (int64_t)(figures.injections - before) / 4) {
        figures.leaks++;
        fprintf(stderr, "fault: %s, %s: %zu injections left %lld blocks\n", live.scene, step->name,
                figures.injections - before, (long long)grown);
    }
}

static void start(const char *const arguments[])
{
    inject_daemon(&live.daemon, CONFIG_SMALL("\"threads\":2,\"log\":\"error\","), arguments);
    client_open(&live.client, &live.daemon);
}

static void stop(void)
{
    client_close(&live.client);
    daemon_stop(&live.daemon); /* under LeakSanitizer a leak is a failure here */
}

/* Starts the daemon again: the sessions of the last one must be there, whole. */
static void restart(const char *const arguments[])
{
    const struct fault none = {0};
    start(arguments);
    char *bits = steps_bits(&live.client, "base");
    if (bits == NULL || strcmp(bits, live.steps.witness) != 0 ||
        call_metric(&live.client, "attnd_damaged_files_total") > 0 ||
        call_metric(&live.client, "attnd_sessions_lost_total") > 0)
        inject_wrong(live.scene, &none, "the state is not whole after a restart");
    free(bits);
    stop();
}

void live_run(const char *scene, const char *const arguments[], unsigned stride)
{
    live = (struct live){.scene = scene, .durable = arguments != NULL};
    start(arguments);
    steps_open(&live.steps, &live.client);
    pause_ms(20); /* until the connections of the steps are closed */
    read_gauges(live.gauges);
    for (size_t i = 0; i < live.steps.count; i++)
        run_step(&live.steps.items[i], stride);
    stop();
    if (live.durable)
        restart(arguments);
    steps_close(&live.steps);
}
