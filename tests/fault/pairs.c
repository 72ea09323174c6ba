/* pairs.c: two calls that fail in one request, and a kill.
 *
 * The first call makes the journal refuse what was asked for, and the second, counted from there,
 * hits what undoes that.  A request that was refused must have left no trace after SIGKILL and a
 * start without faults; one that was answered, at once or when it was sent again, must have taken
 * effect; and no session is lost. */
#include "pairs.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "inject.h"
#include "steps.h"

#define CONFIG CONFIG_SMALL("\"threads\":2,\"log\":\"error\",")
#define BACKGROUND_MS 15 /* in which a new journal begins, or does not */
#define AGAIN_MS 10000

static const enum fault_kind kinds[] = {FAULT_SYNC,  FAULT_WRITE,  FAULT_SHORT,
                                        FAULT_OTHER, FAULT_RENAME, FAULT_OPEN};
#define KINDS (sizeof kinds / sizeof kinds[0])
#define KINDS_QUICK 4

static struct {
    char template[96], state[96];
    struct steps steps;
    unsigned stride;
} pairs;

static void copy_template(void)
{
    char command[320];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", pairs.state, pairs.template,
             pairs.state);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void start(struct daemon *daemon, struct client *client, const char *directory)
{
    const char *const arguments[] = {"--durability",    "journal", "--state-dir", directory,
                                     "--journal-fsync", "always",  NULL};
    inject_daemon(daemon, CONFIG, arguments);
    client_open(client, daemon);
}

static void end(struct daemon *daemon, struct client *client)
{
    client_close(client);
    process_end(&daemon->process); /* SIGKILL */
}

/* Sends the step until it succeeds. */
static bool again(const struct step *step, struct client *client)
{
    bool right = false;
    for (unsigned waited = 0; !right && waited < AGAIN_MS; waited += 10) {
        struct answer answer, asked = client_post(client, "/snapshot", NULL);
        answer_free(&asked);
        pause_ms(10);
        right = step_send(&answer, step, client) && step_right(step, &answer);
        answer_free(&answer);
    }
    return right;
}

static bool is_sound(char wrong[600], struct client *client)
{
    if (call_metric(client, "attnd_damaged_files_total") == 0 &&
        call_metric(client, "attnd_sessions_lost_total") == 0)
        return true;
    snprintf(wrong, 600, "sessions are lost, or files damaged");
    return false;
}

/* Starts the daemon without faults: the state is that before the step or that after it. */
static void check_restart(const struct step *step, const struct fault *fault, bool done)
{
    struct daemon daemon;
    struct client client;
    char wrong[600];
    start(&daemon, &client, pairs.state);
    if (!is_sound(wrong, &client) ||
        !step_state(wrong, done ? &step->after : &step->before, &client))
        inject_wrong(step->name, fault, "%s, then killed: %s", done ? "answered" : "refused",
                     wrong);
    end(&daemon, &client);
}

/* `retries`: a request that is refused is sent again until it succeeds, before the kill. */
static void play(const struct step *step, const struct fault *fault, bool retries)
{
    struct daemon daemon;
    struct client client;
    struct answer answer;
    copy_template();
    start(&daemon, &client, pairs.state);
    step_prepare(step, &client);
    inject_arm(fault);
    bool answered = step_send(&answer, step, &client);
    bool done = answered && step_right(step, &answer);
    if (!done && (!answered || !steps_refused(&answer)))
        inject_wrong(step->name, fault, "%ld %.160s", answered ? answer.status : 0,
                     answered ? answer.text : "no answer");
    if (!done && retries) {
        pause_ms(BACKGROUND_MS);
        inject_disarm();
        done = again(step, &client);
        if (!done)
            inject_wrong(step->name, fault, "refused for good");
    }
    end(&daemon, &client);
    inject_disarm();
    answer_free(&answer);
    if (fault != NULL)
        check_restart(step, fault, done);
}

static void play_seconds(const struct step *step, const struct fault *first)
{
    uint64_t counts[FAULT_KINDS];
    inject_counts(counts, true);
    for (size_t i = 0; i < (pairs.stride > 0 ? KINDS : KINDS_QUICK); i++)
        for (size_t lasting = 0; lasting < 2; lasting++)
            for (uint64_t at = 1; at <= (pairs.stride > 0 ? counts[kinds[i]] : lasting);
                 at += pairs.stride + (pairs.stride == 0)) {
                const struct fault second = {kinds[i], at, lasting > 0, NULL};
                const struct fault pair = {first->kind, first->at, first->lasting, &second};
                for (int retries = 0; retries < 2; retries++) {
                    play(step, &pair, retries > 0);
                    figures.pairs += inject_second_fired();
                }
            }
}

static void play_step(const struct step *step)
{
    uint64_t counts[FAULT_KINDS];
    play(step, NULL, false);
    inject_counts(counts, false);
    for (size_t i = 0; i < (pairs.stride > 0 ? KINDS : 1); i++)
        for (size_t lasting = 0; lasting < 2; lasting++)
            for (uint64_t at = 1; at <= counts[kinds[i]]; at++) {
                const struct fault first = {kinds[i], at, lasting > 0, NULL};
                if (pairs.stride == 0 && lasting > 0)
                    continue;
                play(step, &first, true);
                if (inject_fired())
                    play_seconds(step, &first);
            }
}

/* Whether the step waits for a flush of the journal; of a short run, whether it is one of few. */
static bool is_played(const struct step *step)
{
    static const char *const few[] = {"decode", "fork", "truncate", "delete"};
    bool chosen = pairs.stride > 0;
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++)
        chosen = chosen || strcmp(step->name, few[i]) == 0;
    return chosen && !json_equal(step->before.sessions, step->after.sessions);
}

void pairs_run(const char *directory, unsigned stride)
{
    struct daemon daemon;
    struct client client;
    pairs.stride = stride;
    snprintf(pairs.template, sizeof pairs.template, "%s/pairs", directory);
    snprintf(pairs.state, sizeof pairs.state, "%s/pair", directory);
    start(&daemon, &client, pairs.template);
    steps_open(&pairs.steps, &client);
    client_close(&client);
    daemon_stop(&daemon);
    for (size_t i = 0; i < pairs.steps.count; i++)
        if (is_played(&pairs.steps.items[i]))
            play_step(&pairs.steps.items[i]);
    steps_close(&pairs.steps);
}
