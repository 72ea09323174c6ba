/* main.c: check-framing: connections with odd and good requests, directly and through HAProxy and
 * nginx.
 *
 *   framing [--quick] [--seed N] [--show N]
 *
 * Eight callers at a time open connections; each way has a daemon of its own, whose log is compared
 * with what the clients and the proxy know. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "exchange.h"
#include "nginx.h"
#include "proxy.h"
#include "secret.h"
#include "suite_run.h"
#include "verdict.h"

#define CONNECTIONS 20000
#define CONNECTIONS_QUICK (INSTRUMENTED ? 600 : 3000)
#define CALLERS 8
#define MAX_WRONG 32
#define SHOWN 12 /* wrong connections of a way that are printed */
#define CONFIG                                                                              \
    CONFIG_SMALL("\"log\":\"access\",\"max_body_bytes\":262144,\"header_timeout_ms\":3000," \
                 "\"drain_timeout_s\":1,")

enum { DIRECT, TLS, HAPROXY, NGINX, WAYS };

static struct way ways[WAYS] = {
    [DIRECT] = {.name = "direct"},
    [TLS] = {.name = "over TLS", .tls = true},
    [HAPROXY] = {.name = "HAProxy", .proxied = true},
    [NGINX] = {.name = "nginx", .proxied = true},
};
static struct figures {
    size_t logged, passed, answered,
        desynchronised; /* lines of logs; answered: of those passed on */
} figures[WAYS];

static unsigned long long seed = 1;
static unsigned connections = CONNECTIONS, shown = SHOWN;
static char certificate[SECRET_PATH], key[SECRET_PATH];

static struct {
    struct way *way;
    atomic_uint next;
    unsigned end;
} load;

/* Each wrong connection may have waited for a reply: not all of a bad daemon are waited for. */
static bool is_judged(struct way *way) { return atomic_load(&way->wrong) >= MAX_WRONG; }

static void *call(void *context)
{
    unsigned number;
    while ((number = atomic_fetch_add(&load.next, 1)) < load.end && !is_judged(load.way))
        exchange_try(load.way, number);
    return context;
}

static void run_callers(struct way *way)
{
    pthread_t threads[CALLERS];
    load.way = way;
    load.next = 0;
    load.end = way->planned;
    for (size_t i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, NULL), 0);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
}

static void start(struct daemon *daemon, struct way *way)
{
    static const char *const headers[] = {"X-Request-Id: rrrr", NULL}; /* as of requests alone */
    struct client client;
    const char *const flags[] = {"--tls-cert", certificate, "--tls-key", key, NULL};
    if (way->tls)
        certificate_make(certificate, key);
    daemon_start(daemon, CONFIG, way->tls ? flags : NULL, NULL);
    daemon->trusted = way->tls ? certificate : NULL;
    client_open(&client, daemon);
    struct answer answer =
        client_send(&client, &(struct request){.method = "POST",
                                               .path = "/sessions",
                                               .body = "{\"session_id\":\"" GENERATE_SESSION
                                                       "\",\"model\":\"tiny\"}",
                                               .headers = headers});
    expect_answer(&answer, 201, NULL, "the session");
    answer_free(&answer);
    client_close(&client);
    if (way->tls) {
        unlink(certificate);
        unlink(key);
    }
    way->seed = seed;
    way->shown = shown;
    way->planned = way->tls ? connections / 10 : connections;
    way->ports[0] = way->ports[1] = way->attnd_port = daemon->port;
    pthread_mutex_init(&way->replies.lock, NULL);
    pthread_mutex_init(&way->tails.lock, NULL);
}

/* Ends the daemon and compares the logs; `passed` is the proxy's, or NULL. */
static void stop(struct daemon *daemon, struct way *way, struct figures *out, const char *passed)
{
    struct records log = RECORDS_EMPTY, proxy = RECORDS_EMPTY;
    daemon_terminate(daemon);
    daemon_expect_end(daemon);
    char *text = daemon_log(daemon);
    process_end(&daemon->process);
    records_read_log(&log, text);
    if (passed != NULL)
        records_read_proxy(&proxy, passed);
    out->desynchronised = passed != NULL ? records_compare_proxy(&log, &proxy, &way->replies)
                                         : records_compare_direct(&log, &way->replies, &way->tails);
    out->logged = log.count;
    out->passed = proxy.count;
    for (size_t i = 0; i < proxy.count; i++)
        out->answered += proxy.items[i].id[0] != '\0';
    free(text);
    records_free(&log);
    records_free(&proxy);
    records_free(&way->replies);
    records_free(&way->tails);
}

START_TEST(test_requests_are_as_many_and_as_answered_as_a_strict_reader_says)
{
    struct daemon daemon;
    start(&daemon, &ways[DIRECT]);
    run_callers(&ways[DIRECT]);
    stop(&daemon, &ways[DIRECT], &figures[DIRECT], NULL);
}
END_TEST

START_TEST(test_the_same_holds_over_tls)
{
    struct daemon daemon;
    start(&daemon, &ways[TLS]);
    run_callers(&ways[TLS]);
    stop(&daemon, &ways[TLS], &figures[TLS], NULL);
}
END_TEST

START_TEST(test_what_haproxy_passes_on_as_n_requests_is_n_requests)
{
    struct daemon daemon;
    struct proxy proxy;
    start(&daemon, &ways[HAPROXY]);
    proxy_start(&proxy, &daemon);
    ways[HAPROXY].ports[0] = ways[HAPROXY].ports[1] = proxy.port;
    run_callers(&ways[HAPROXY]);
    char *log = proxy_drain(&proxy);
    stop(&daemon, &ways[HAPROXY], &figures[HAPROXY], log);
    free(log);
}
END_TEST

START_TEST(test_what_nginx_passes_on_as_n_requests_is_n_requests)
{
    struct daemon daemon;
    struct nginx nginx;
    start(&daemon, &ways[NGINX]);
    nginx_start(&nginx, &daemon);
    memcpy(ways[NGINX].ports, nginx.ports, sizeof nginx.ports);
    run_callers(&ways[NGINX]);
    char *log = nginx_stop(&nginx);
    stop(&daemon, &ways[NGINX], &figures[NGINX], log);
    free(log);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("framing");
    TCase *tests = tcase_create("framing");
    tcase_add_test(tests, test_requests_are_as_many_and_as_answered_as_a_strict_reader_says);
    tcase_add_test(tests, test_the_same_holds_over_tls);
    tcase_add_test(tests, test_what_haproxy_passes_on_as_n_requests_is_n_requests);
    tcase_add_test(tests, test_what_nginx_passes_on_as_n_requests_is_n_requests);
    suite_add_tcase(suite, tests);
    return suite;
}

/* Prints a way's line; returns whether it is as it has to be. */
static bool report(const struct way *way, const struct figures *out)
{
    const size_t opened = atomic_load(&way->connections);
    size_t requests = atomic_load(&way->requests), same = atomic_load(&way->same);
    size_t by_proxy = atomic_load(&way->by_proxy), wrong = atomic_load(&way->wrong);
    printf("  %s: %zu connections, %zu with a wrong request; %zu sound requests, %zu answered byte "
           "for byte as alone, ",
           way->name, opened, atomic_load(&way->refused), requests, same);
    if (way->proxied)
        printf("%zu refused by the proxy; %zu passed on, %zu of which answered; ", by_proxy,
               out->passed, out->answered);
    printf("%zu in attnd's log; %zu exchanges wrong, %zu desynchronisations\n", out->logged, wrong,
           out->desynchronised);
    const struct verdict_condition conditions[] = {
        VERDICT(wrong == 0),
        VERDICT(out->desynchronised == 0),
        VERDICT(same + by_proxy == requests),
        VERDICT(same >= way->planned),
        VERDICT(opened == way->planned),
        VERDICT(way->planned > 0),
        VERDICT(!way->proxied || out->answered >= same),
    };
    return VERDICTS(way->name, conditions);
}

int main(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            connections = CONNECTIONS_QUICK;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--show") == 0 && i + 1 < argc)
            shown = (unsigned)strtoul(argv[++i], NULL, 10);
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    const bool ran = suite_run(suite());
    bool ways_right = true;
    size_t exchanges = 0, wrong = 0;
    for (size_t i = 0; i < WAYS; i++) {
        ways_right = report(&ways[i], &figures[i]) && ways_right;
        exchanges += atomic_load(&ways[i].same);
        wrong += atomic_load(&ways[i].wrong) + figures[i].desynchronised;
    }
    const struct verdict_condition conditions[] = {VERDICT(ran), VERDICT(ways_right)};
    const bool right = VERDICTS("check-framing", conditions);
    printf(
        "check-framing: %zu exchanges byte for byte, directly and through HAProxy and nginx: %zu "
        "wrong or desynchronised%s\n",
        exchanges, wrong, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
