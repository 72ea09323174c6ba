/* test_lifecycle.c: starting and stopping: where a daemon listens, and what becomes of requests
 * that run when it is signalled to end. */
#include <arpa/inet.h>
#include <check.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "scratch.h"
#include "suites.h"

/* ---- Draining -------------------------------------------------------------------------------- */

#define SLOW_TOKENS 5120
#define SLOW_WIDTH 64
#define SLOW_CALLERS 3

/* One thread with portable kernels: SLOW_TOKENS rows take about a second. */
static const char slow_config[] =
    "{\"port\":0,\"threads\":1,\"cpu_level\":\"portable\",\"drain_timeout_s\":300,\"models\":[{"
    "\"name\":\"slow\","
    "\"random\":{\"hidden_size\":64,\"num_attention_heads\":16,\"seed\":1}}]}";

struct slow {
    struct daemon daemon;
    struct text body;
    pthread_t threads[SLOW_CALLERS];
    struct slow_call {
        const struct slow *slow;
        long status;
        size_t length;
    } calls[SLOW_CALLERS];
};

static void *call_slowly(void *argument)
{
    struct slow_call *call = argument;
    struct client own;
    struct answer answer;
    client_open(&own, &call->slow->daemon);
    const struct request request = {
        .method = "POST", .path = "/attend", .body = call->slow->body.data};
    if (client_try(&answer, &own, &request))
        call->status = answer.status;
    call->length = answer.length;
    answer_free(&answer);
    client_close(&own);
    return NULL;
}

/* Starts the daemon and has all callers wait for their answers. */
static void slow_begin(struct slow *slow, struct client *client)
{
    *slow = (struct slow){0};
    daemon_start(&slow->daemon, slow_config, NULL, NULL);
    text_add(&slow->body, "{\"hidden_states\":{\"shape\":[%d,%d],\"data\":[", SLOW_TOKENS,
             SLOW_WIDTH);
    for (int i = 0; i < SLOW_TOKENS * SLOW_WIDTH; i++)
        text_add(&slow->body, i > 0 ? ",%d" : "%d", i * 7 % 11 - 5);
    text_add(&slow->body, "]}}");
    client_open(client, &slow->daemon);
    for (size_t i = 0; i < SLOW_CALLERS; i++) {
        slow->calls[i] = (struct slow_call){.slow = slow};
        ck_assert_int_eq(pthread_create(&slow->threads[i], NULL, call_slowly, &slow->calls[i]), 0);
    }
    unsigned tries = 0;
    while (call_metric(client, "attnd_queue_depth") < SLOW_CALLERS) {
        ck_assert_uint_lt(tries++, 5000);
        pause_ms(2);
    }
}

static void slow_end(struct slow *slow)
{
    for (size_t i = 0; i < SLOW_CALLERS; i++)
        pthread_join(slow->threads[i], NULL);
    text_free(&slow->body);
    process_end(&slow->daemon.process);
}

/* Waits until the daemon has received the signal. */
static void await_draining(const struct slow *slow)
{
    bool draining = false;
    for (unsigned tries = 0; !draining && tries < 5000; tries++) {
        char *log = daemon_log(&slow->daemon);
        draining = strstr(log, "\"draining\"") != NULL;
        free(log);
        pause_ms(2);
    }
    ck_assert(draining);
}

TEST(termination_lets_running_requests_finish_and_refuses_others)
{
    struct slow slow;
    struct client polled, asked, late;
    struct answer answer;
    slow_begin(&slow, &polled);
    client_open(&asked, &slow.daemon);
    answer = client_get(&asked, "/models"); /* opens the connection */
    answer_free(&answer);
    daemon_terminate(&slow.daemon);
    await_draining(&slow);
    answer = client_get(&polled, "/readyz");
    expect_answer(&answer, 503, "draining", "/readyz");
    answer_free(&answer);
    answer = client_get(&asked, "/models");
    expect_answer(&answer, 503, "draining", "/models on an open connection");
    answer_free(&answer);
    client_open(&late, &slow.daemon);
    if (client_try(&answer, &late, &(struct request){.method = "GET", .path = "/models"}))
        expect_answer(&answer, 503, "draining", "a new connection");
    answer_free(&answer);
    daemon_expect_end(&slow.daemon);
    client_close(&polled);
    client_close(&asked);
    client_close(&late);
    slow_end(&slow);
    for (size_t i = 0; i < SLOW_CALLERS; i++) {
        ck_assert_int_eq(slow.calls[i].status, 200);
        ck_assert_uint_gt(slow.calls[i].length, SLOW_TOKENS * SLOW_WIDTH);
    }
}

TEST(second_signal_ends_at_once_with_failure)
{
    struct slow slow;
    struct client client;
    int status = 0;
    slow_begin(&slow, &client);
    ck_assert_int_eq(kill(slow.daemon.process.pid, SIGINT), 0);
    await_draining(&slow);
    daemon_terminate(&slow.daemon);
    ck_assert(process_wait(&status, &slow.daemon.process, 60));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    client_close(&client);
    slow_end(&slow);
}

static bool blocks_termination(const struct daemon *daemon, pid_t thread)
{
    return (daemon_status_number(daemon, thread, "SigBlk", 16) >> (SIGTERM - 1) & 1) == 1;
}

/* Run 0 with packed products, run 1 with OpenBLAS', which must bring no thread of its own. */
TEST_EACH(every_thread_leaves_termination_to_the_main_one, 2)
{
    static const char *const modes[] = {"packed", "openblas"};
    char directory[SCRATCH_PATH];
    const char *const arguments[] = {"--durability", "journal",         "--state-dir",
                                     directory,      "--journal-fsync", "everysec",
                                     "--gemm",       modes[_i],         NULL};
    const char *const variables[] = {"OPENBLAS_NUM_THREADS=2", NULL};
    struct daemon daemon;
    struct client client;
    pid_t threads[DAEMON_MAX_THREADS];
    scratch_make(directory);
    daemon_start(&daemon, CONFIG_SMALL("\"threads\":2,"), arguments, variables);
    client_open(&client, &daemon);
    call_create(&client, "kept", "");
    size_t count = daemon_threads(threads, &daemon);
    ck_assert_uint_eq(count,
                      9); /* event, scheduler, worker, I/O worker, store, read, sync, upkeep, log */
    for (size_t i = 0; i < count; i++)
        ck_assert(blocks_termination(&daemon, threads[i]));
    ck_assert_int_eq(kill(daemon.process.pid, SIGTERM), 0);
    daemon_expect_end(&daemon);
    char *log = daemon_log(&daemon);
    ck_assert_ptr_nonnull(strstr(log, "\"event\":\"stopped\""));
    free(log);
    client_close(&client);
    process_end(&daemon.process);
    scratch_remove(directory);
}

/* A directory before all others of the loader, in which OpenBLAS is an empty file. */
TEST(without_openblas_only_gemm_openblas_does_not_start)
{
    char directory[SCRATCH_PATH], library[64], variable[64], *out, *err;
    scratch_make(directory);
    snprintf(library, sizeof library, "%s/libopenblas.so.0", directory);
    snprintf(variable, sizeof variable, "LD_LIBRARY_PATH=%s", directory);
    fclose(fopen(library, "w"));
    const char *const variables[] = {variable, NULL};
    const char *const demanding[] = {"--port", "0", "--gemm", "openblas", NULL};
    ck_assert_int_eq(process_run(&out, &err, demanding, variables), 1);
    ck_assert_ptr_nonnull(strstr(err, "attnd: gemm is openblas: OpenBLAS cannot be loaded "
                                      "(Debian: libopenblas0-pthread): "));
    free(out);
    free(err);
    struct daemon daemon;
    const char *const content[] = {"--cpu-level", "portable", "--gemm", "auto", NULL};
    daemon_start(&daemon, CONFIG_SMALL(""), content, variables);
    char *log = daemon_log(&daemon);
    ck_assert_ptr_nonnull(strstr(log, "\"event\":\"gemm\",\"message\":\"packed products only: "));
    free(log);
    daemon_stop(&daemon);
    unlink(library);
    rmdir(directory);
}

TEST(idle_connections_do_not_hold_up_the_end)
{
    struct daemon daemon;
    struct client client;
    daemon_start(&daemon, CONFIG_SMALL("\"drain_timeout_s\":600,"), NULL, NULL);
    client_open(&client, &daemon);
    call_create(&client, "left", "");
    expect_decode(&client, "left", 0, 0);
    daemon_stop(&daemon); /* exit status 0, within its own deadline */
    client_close(&client);
}

/* ---- Where it listens and what it serves ----------------------------------------------------- */

/* Starts a daemon with these, expects an answer at `host`, and stops it. */
static void expect_served_at(const char *config, const char *const arguments[],
                             const char *const variables[], const char *host)
{
    struct daemon daemon;
    struct client client;
    daemon_start(&daemon, config, arguments, variables);
    client_open(&client, &daemon);
    snprintf(client.url, sizeof client.url, "http://%s:%u", host, daemon.port);
    struct answer answer = client_get(&client, "/readyz");
    expect_answer(&answer, 200, NULL, host);
    answer_free(&answer);
    client_close(&client);
    daemon_stop(&daemon);
}

TEST(any_address_serves_the_local_one)
{
    static const char *const host[] = {"--host", "0.0.0.0", "--allow-unauthenticated=true", NULL};
    expect_served_at(CONFIG_SMALL(""), host, NULL, "127.0.0.1");
}

TEST(listening_beyond_loopback_is_warned_of)
{
    static const char *const far[] = {"--host=0.0.0.0", "--allow-unauthenticated=true",
                                      "--log=info", NULL};
    static const char *const near[] = {"--allow-unauthenticated=true", NULL};
    struct daemon daemon;
    char *log;
    daemon_start(&daemon, CONFIG_SMALL(""), far, NULL);
    log = daemon_log(&daemon);
    ck_assert_msg(strstr(log, "\"event\":\"exposed\",\"message\":\"no API keys") != NULL, "%s",
                  log);
    free(log);
    daemon_stop(&daemon);
    daemon_start(&daemon, CONFIG_SMALL(""), near, NULL);
    log = daemon_log(&daemon);
    ck_assert_msg(strstr(log, "exposed") == NULL, "%s", log);
    free(log);
    daemon_stop(&daemon);
}

/* The IPv6 test is left out on machines without IPv6. */
static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

TEST(ipv6_address_is_served_and_named_in_brackets)
{
    static const char *const host[] = {"--host", "::1", NULL};
    if (has_ipv6())
        expect_served_at(CONFIG_SMALL(""), host, NULL, "[::1]");
    else
        printf("lifecycle: no IPv6 on this machine, left out\n");
}

/* No host has the address 192.0.2.1 (RFC 5737): listening there fails. */
TEST(variable_beats_the_file_and_a_flag_beats_the_variable)
{
    static const char file[] = "{\"host\":\"192.0.2.1\",\"port\":0,\"models\":[]}";
    static const char *const variable[] = {"ATTN_HOST=127.0.0.1", NULL};
    static const char *const wrong[] = {"ATTN_HOST=192.0.2.1", NULL};
    static const char *const flag[] = {"--host=127.0.0.1", NULL};
    expect_served_at(file, NULL, variable, "127.0.0.1");
    expect_served_at(file, flag, wrong, "127.0.0.1");
}

TEST(variable_names_the_port)
{
    struct daemon daemon, other;
    char variable[32];
    const char *const variables[] = {variable, NULL};
    daemon_start(&daemon, CONFIG_SMALL(""), NULL, NULL);
    snprintf(variable, sizeof variable, "ATTN_PORT=%u", daemon.port);
    daemon_stop(&daemon);
    daemon_start(&other, CONFIG_SMALL(""), NULL, variables); /* whose file says 0 */
    ck_assert_uint_eq(other.port, daemon.port);
    daemon_stop(&other);
}

/* The path from `from` up to the root and down to `to`; both absolute. */
static void make_relative(char out[PATH_MAX], const char *from, const char *to)
{
    size_t length = 0;
    for (const char *c = from; *c != '\0'; c++)
        if (*c == '/')
            length += (size_t)snprintf(out + length, PATH_MAX - length, "../");
    snprintf(out + length, PATH_MAX - length, "%s", to + 1);
}

TEST(relative_checkpoint_path_starts_at_the_configuration_file)
{
    char whole[PATH_MAX], path[PATH_MAX];
    struct text config = {0};
    struct daemon daemon;
    struct client client;
    ck_assert_ptr_nonnull(realpath("tests/golden/llama_gqa/model", whole));
    make_relative(path, "/tmp/attnd-http-XXXXXX", whole);
    text_add(&config,
             "{\"port\":0,\"models\":[{\"name\":\"llama\",\"layers\":[1],\"path\":\"%s\"}]}", path);
    daemon_start(&daemon, config.data, NULL, NULL);
    client_open(&client, &daemon);
    struct answer answer = client_get(&client, "/models/llama");
    expect_answer(&answer, 200, NULL, "/models/llama");
    ck_assert_str_eq(json_string_value(json_object_get(answer.json, "family")), "llama");
    const json_t *layers = json_object_get(answer.json, "resident_layers");
    ck_assert_uint_eq(json_array_size(layers), 1);
    ck_assert_int_eq(json_integer_value(json_array_get(layers, 0)), 1);
    ck_assert_ptr_null(strstr(answer.text, "/")); /* the reply shows no path */
    answer_free(&answer);
    expect_posted(&client, "/attend", "{\"layer\":0,\"hidden_states\":[[1]]}", 404,
                  "layer_not_found");
    client_close(&client);
    daemon_stop(&daemon);
    text_free(&config);
}

SUITE(lifecycle)
