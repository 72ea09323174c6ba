/* test_lame_duck.c: a daemon that is asked to stop serves on for lame_duck_s while /readyz is 503,
 * then drains: by SIGTERM and POST /admin/drain, and who may ask. */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inspected.h"
#include "long_call.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"
#include "waiting.h"

#define AUTHORIZATION "Authorization: Bearer " KEY_BOTH
#define READYZ "GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n"

/* Starts a daemon that is a lame duck for so long; `more` ends in NULL, or is NULL. */
static void serve_lame(const char *config, const char *seconds, const char *const more[])
{
    const char *arguments[8] = {"--lame-duck-s", seconds};
    for (size_t i = 0; more != NULL && more[i] != NULL; i++)
        arguments[2 + i] = more[i];
    daemon_start(&served, config, arguments, NULL);
    client_open(&client, &served);
}

/* The same with keys; the client has one that may do everything. */
static void serve_lame_with_keys(const char *config, const char *seconds)
{
    char keys[SECRET_PATH];
    secret_write(keys, KEYS_THREE);
    serve_lame(config, seconds, (const char *const[]){"--api-keys", keys, NULL});
    unlink(keys);
    served.authorization = AUTHORIZATION;
}

static void send_signal(int number) { ck_assert_int_eq(kill(served.process.pid, number), 0); }

static void await_log(const char *text) { free(daemon_log_with(&served, text)); }

static void await_phase(const char *event)
{
    char text[64];
    snprintf(text, sizeof text, "\"event\":\"%s\"", event);
    await_log(text);
}

/* The milliseconds in the message of an event. */
static unsigned long logged_ms(const char *event)
{
    char begin[64], *log = daemon_log(&served), *end;
    snprintf(begin, sizeof begin, "\"event\":\"%s\",\"message\":\"", event);
    const char *found = strstr(log, begin);
    ck_assert_msg(found != NULL, "no %s in %s", event, log);
    unsigned long ms = strtoul(found + strlen(begin), &end, 10);
    ck_assert_msg(strncmp(end, " ms after it was asked for", 26) == 0, "%s", end);
    free(log);
    return ms;
}

static void expect_status(int wanted)
{
    int status = 0;
    ck_assert(process_wait(&status, &served.process, WAIT_MS / 1000));
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == wanted, "wait status 0x%x",
                  (unsigned)status);
    client_close(&client);
    process_end(&served.process);
}

static void ask_drain(void)
{
    struct answer answer = client_post(&client, "/admin/drain", NULL);
    expect_answer(&answer, 202, NULL, "/admin/drain");
    ck_assert_str_eq(json_string_value(json_object_get(answer.json, "phase")), "lame_duck");
    answer_free(&answer);
}

static void expect_readyz(long status, const char *code)
{
    struct answer answer = client_get(&client, "/readyz");
    expect_answer(&answer, status, code, "/readyz");
    answer_free(&answer);
}

/* ---- While it is one ------------------------------------------------------------------------- */

static void expect_closing(struct raw *raw, bool closes)
{
    char value[256];
    struct raw_answer answer = raw_read(raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    ck_assert_int_eq(raw_header(value, &answer, "Connection") && strcmp(value, "close") == 0,
                     closes);
    raw_answer_free(&answer);
}

/* Two requests at once on an open connection: the first reply must not end it. */
static void expect_last_of_two_ends(void)
{
    struct raw raw;
    raw_open(&raw, served.host, served.port);
    ck_assert(raw_text(&raw, LIVEZ LIVEZ));
    expect_closing(&raw, false);
    expect_closing(&raw, true);
    ck_assert(raw_read_to_end(&raw, WAIT_MS));
    raw_close(&raw);
}

CASE(lame_duck, NULL, NULL, 300)

TEST(a_lame_duck_serves_all_and_says_that_it_is_not_ready)
{
    struct client late;
    serve_lame(CONFIG_SMALL(""), "600", NULL);
    call_create(&client, "before", "");
    expect_readyz(200, NULL);
    daemon_terminate(&served);
    await_phase("lame_duck");
    expect_readyz(503, "lame_duck");
    ck_assert(call_metric(&client, "attnd_ready") == 0);
    ck_assert(call_metric(&client, "attnd_draining") == 1);
    expect_decode(&client, "before", 0, 0);
    call_create(&client, "during", "");
    client_open(&late, &served);
    expect_decode(&late, "during", 0, 0);
    expect_decode(&late, "before", 1, 1);
    client_close(&late);
    expect_last_of_two_ends();
    send_signal(SIGHUP);
    await_phase("reload");
    expect_readyz(503, "lame_duck");
    send_signal(SIGTERM);
    expect_status(1); /* the second one ends it at once */
}

/* ---- How long -------------------------------------------------------------------------------- */

TEST(a_lame_duck_ends_after_its_time_and_the_log_says_how_long_all_took)
{
    struct timespec start;
    serve_lame(CONFIG_SMALL("\"log\":\"info\","), "1", NULL);
    clock_gettime(CLOCK_MONOTONIC, &start);
    daemon_terminate(&served);
    await_phase("lame_duck");
    expect_readyz(503, "lame_duck");
    daemon_expect_end(&served);
    double took = seconds_since(&start);
    ck_assert_msg(took >= 1 && took < 30, "%.2f s", took);
    unsigned long drained = logged_ms("drained"), stopped = logged_ms("stopped");
    ck_assert_msg(drained >= 1000 && stopped >= drained && (double)stopped <= took * 1000,
                  "drained after %lu, stopped after %lu of %.0f ms", drained, stopped, took * 1000);
    client_close(&client);
    process_end(&served.process);
}

TEST(an_interrupt_ends_it_without_a_lame_duck)
{
    serve_lame(CONFIG_SMALL("\"log\":\"info\","), "600", NULL);
    send_signal(SIGINT);
    daemon_expect_end(&served);
    char *log = daemon_log(&served);
    ck_assert_ptr_null(strstr(log, "\"lame_duck\""));
    ck_assert_ptr_nonnull(strstr(log, "\"drained\""));
    free(log);
    client_close(&client);
    process_end(&served.process);
}

TEST(the_second_signal_after_the_request_to_drain_ends_it_at_once)
{
    serve_lame_with_keys(CONFIG_SMALL(""), "600");
    ask_drain();
    daemon_terminate(&served);
    while (daemon_status_number(&served, served.process.pid, "ShdPnd", 16) != 0)
        pause_ms(2);
    expect_readyz(503, "lame_duck");
    daemon_terminate(&served);
    expect_status(1);
}

/* ---- Who may ask ----------------------------------------------------------------------------- */

static void expect_refused(const char *authorization, long status, const char *code)
{
    const char *const headers[] = {authorization, NULL};
    struct answer answer = client_send(
        &client, &(struct request){.method = "POST", .path = "/admin/drain", .headers = headers});
    expect_answer(&answer, status, code, "/admin/drain");
    answer_free(&answer);
    expect_readyz(200, NULL);
}

TEST(a_daemon_without_keys_is_drained_by_signals_alone)
{
    serve_lame(CONFIG_SMALL(""), "600", NULL);
    expect_refused(NULL, 403, "forbidden");
    send_signal(SIGINT);
    expect_status(0);
}

TEST(signals_without_a_meaning_end_nothing_and_sigquit_is_sigterm)
{
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM,  SIGVTALRM,    SIGPROF,
                           SIGIO,   SIGPIPE, SIGRTMIN, SIGRTMIN + 3, SIGRTMAX};
    serve_lame(CONFIG_SMALL(""), "600", NULL);
    for (size_t i = 0; i < COUNT(signals); i++)
        send_signal(signals[i]);
    while (daemon_status_number(&served, served.process.pid, "ShdPnd", 16) != 0)
        pause_ms(2);
    send_signal(SIGHUP);
    await_phase("reload");
    expect_readyz(200, NULL);
    send_signal(SIGQUIT);
    await_phase("lame_duck");
    send_signal(SIGINT);
    expect_status(1);
}

/* ---- What is lost ---------------------------------------------------------------------------- */

#define CALLERS 8

struct caller {
    pthread_t thread;
    char id[16];
    unsigned answered;
    bool unanswered; /* the last request got no answer */
    long status;     /* of the first one that was refused */
    char code[32];
};

/* Decodes until a request is refused. */
static void *decode_on(void *argument)
{
    struct caller *caller = argument;
    struct client own;
    client_open(&own, &served);
    while (caller->status == 0 && !caller->unanswered) {
        struct text body = {0};
        struct answer answer;
        text_add(&body, "{");
        text_step(&body, caller->id, caller->answered, "}");
        const struct request request = {.method = "POST", .path = "/decode", .body = body.data};
        if (!client_try(&answer, &own, &request)) {
            caller->unanswered = own.code != CURLE_COULDNT_CONNECT;
            caller->status = caller->unanswered ? 0 : -1;
        } else if (answer.status == 200) {
            caller->answered++;
        } else {
            caller->status = answer.status;
            snprintf(caller->code, sizeof caller->code, "%s", answer_code(&answer));
        }
        answer_free(&answer);
        text_free(&body);
    }
    client_close(&own);
    return NULL;
}

static void start_callers(struct caller callers[CALLERS])
{
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){0};
        snprintf(callers[i].id, sizeof callers[i].id, "s%zu", i);
        call_create(&client, callers[i].id, ",\"max_length\":100000");
    }
    for (size_t i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, decode_on, &callers[i]), 0);
}

/* Every step that was answered is there after a restart, and no step that was refused. */
static void expect_steps(const struct caller *caller)
{
    size_t length = call_length(&client, caller->id, 0);
    ck_assert_msg(caller->answered > 0, "%ld %s", caller->status, caller->code);
    ck_assert_msg(length == caller->answered ||
                      (caller->unanswered && length == caller->answered + 1),
                  "%s: %zu rows after %u answers%s", caller->id, length, caller->answered,
                  caller->unanswered ? " and a request without one" : "");
    if (caller->status > 0) {
        ck_assert_int_eq(caller->status, 503);
        ck_assert_str_eq(caller->code, "draining");
    }
}

TEST(a_stop_under_load_loses_and_doubles_no_step)
{
    char directory[SCRATCH_PATH];
    struct caller callers[CALLERS];
    scratch_make(directory);
    const char *const journal[] = {"--durability", "journal", "--state-dir", directory, NULL};
    serve_lame(CONFIG_SMALL("\"log\":\"info\","), "1", journal);
    start_callers(callers);
    daemon_terminate(&served);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
    expect_status(0);
    serve_lame(CONFIG_SMALL(""), "0", journal);
    for (size_t i = 0; i < CALLERS; i++)
        expect_steps(&callers[i]);
    serve_end();
    scratch_remove(directory);
}

CASE(timed, NULL, NULL, 300)

TEST(after_the_lame_duck_requests_are_refused_before_anything_is_done)
{
    struct long_call call;
    struct raw kept;
    char value[256];
    serve_lame_with_keys(SLOW_CONFIG, "600");
    raw_open(&kept, served.host, served.port);
    ck_assert(raw_text(&kept, LIVEZ));
    raw_expect_status(&kept, 200);
    ask_drain();
    expect_readyz(503, "lame_duck");
    long_begin(&call, &client, "", 5120);
    ask_drain(); /* changes nothing */
    send_signal(SIGINT);
    await_phase("draining");
    ck_assert(!atomic_load(&call.answered) && !inspected_accepts(served.port));
    ck_assert(raw_text(&kept, "POST /sessions HTTP/1.1\r\nHost: test\r\n" AUTHORIZATION
                              "\r\nContent-Length: 0\r\n\r\n"));
    struct raw_answer answer = raw_read(&kept, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 503);
    ck_assert_ptr_nonnull(strstr(answer.body, "\"draining\""));
    ck_assert(raw_header(value, &answer, "Retry-After") && strtoul(value, NULL, 10) > 0);
    ck_assert(raw_header(value, &answer, "Connection") && strcmp(value, "close") == 0);
    raw_answer_free(&answer);
    raw_close(&kept);
    long_end(&call, 200, NULL);
    expect_status(0);
}

/* An orchestrator asks for it by HTTP and sends SIGTERM then: that is no second signal. */
TEST(a_signal_after_the_request_to_drain_cuts_nothing_off)
{
    struct long_call call;
    serve_lame_with_keys(SLOW_CONFIG, "0");
    long_begin(&call, &client, "", 5120);
    ask_drain();
    await_phase("draining");
    daemon_terminate(&served);
    long_end(&call, 200, NULL);
    expect_status(0);
}

#define WAITING 400

/* Connections that the stopped daemon has not accepted when the signal comes. */
TEST_EACH(requests_that_wait_to_be_accepted_are_answered_as_it_drains, 3)
{
    static struct raw waiting[WAITING];
    unsigned answered = 0;
    serve_lame(CONFIG_SMALL(""), "0", NULL);
    send_signal(SIGSTOP);
    for (size_t i = 0; i < WAITING; i++) {
        raw_open(&waiting[i], served.host, served.port);
        ck_assert(raw_text(&waiting[i], LIVEZ));
    }
    send_signal(SIGTERM);
    send_signal(SIGCONT);
    for (size_t i = 0; i < WAITING; i++) {
        struct raw_answer answer = raw_read(&waiting[i], false, WAIT_MS);
        answered += answer.status == 200;
        raw_answer_free(&answer);
        raw_close(&waiting[i]);
    }
    ck_assert_msg(answered == WAITING, "%u of %d", answered, WAITING);
    expect_status(0);
}

CASE(sandboxed, NULL, NULL, 300)

TEST(only_a_key_of_the_scope_admin_drains_also_from_within_the_sandbox)
{
    char keys[SECRET_PATH];
    secret_write(keys, KEYS_THREE);
    const char *const more[] = {"--api-keys", keys, "--sandbox", "on", NULL};
    daemon_start(&served, CONFIG_SMALL("\"lame_duck_s\":0,"),
                 (const char *const[]){more[0], more[1], more[2], more[3], NULL},
                 (const char *const[]){PROCESS_NO_LEAKS, NULL});
    client_open(&client, &served);
    expect_refused(NULL, 401, "unauthorized");
    expect_refused("Authorization: Bearer " KEY_INFER, 403, "forbidden");
    served.authorization = "Authorization: Bearer " KEY_ADMIN;
    ask_drain();
    expect_status(0);
    unlink(keys);
}

SUITE(lame_duck)
