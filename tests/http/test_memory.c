/* test_memory.c: what attnd says it takes at most: refused where there is less, and kept to. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binary.h"
#include "client.h"
#include "raw.h"
#include "suites.h"

/* Little of everything, so that all of it can be used up. */
#define CONFIG_LITTLE(members)                                                                  \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"threads\":2,\"max_body_bytes\":\"2MiB\","             \
    "\"max_reply_bytes\":\"8MiB\",\"max_in_flight_bytes\":\"24MiB\",\"cache_bytes\":\"24MiB\"," \
    "\"max_connections\":64,\"max_sessions\":64,\"max_queue\":64," members                      \
    "\"models\":[{\"name\":\"wide\",\"random\":{\"hidden_size\":256,\"num_attention_heads\":4," \
    "\"is_causal\":true,\"seed\":7}}]}"
#define WIDTH 256
#define ROWS 1000 /* of a call: a body of 1 MiB, results of 4 MiB */
#define CALLERS 6
#define SESSIONS 3 /* of each */
#define CALLS 10
#define IDLE 40

/* The figure of a line of --check's sum, in bytes. */
static double checked_bytes(const char *config, const char *name)
{
    char directory[64], path[96], line[64], *out, *err;
    config_write(directory, path, config);
    const char *const arguments[] = {"--check", "--config", path, NULL};
    ck_assert_int_eq(process_run(&out, &err, arguments, NULL), 0);
    snprintf(line, sizeof line, "\n  %s ", name);
    const char *sum = strstr(out, "memory at most:"), *found = sum ? strstr(sum, line) : NULL;
    ck_assert_msg(found != NULL, "no %s in %s", name, out);
    double bytes = strtod(found + strlen(line), NULL);
    free(out);
    free(err);
    config_remove(directory);
    return bytes;
}

static void expect_refusal(const char *config, const char *argument, const char *part)
{
    char directory[64], path[96], *out, *err;
    config_write(directory, path, config);
    const char *const arguments[] = {"--config", path, argument, NULL};
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 1 && strstr(err, part) != NULL, "status %d: %s", status, err);
    ck_assert_ptr_null(strstr(out, "ready"));
    ck_assert_ptr_eq(strchr(err, '\n'), err + strlen(err) - 1);
    free(out);
    free(err);
    config_remove(directory);
}

START_TEST(test_what_does_not_fit_is_refused_with_every_term_before_weights_are_read)
{
    static const char *const terms[] = {"memory_limit gives 16.0 MiB",
                                        "program 24.0 + weights",
                                        " + caches 24.0 + ",
                                        " + requests ",
                                        " + working ",
                                        " + connections ",
                                        "; lower cache_bytes"};
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        expect_refusal(CONFIG_LITTLE("\"memory_limit\":\"16MiB\","), NULL, terms[i]);
        expect_refusal(CONFIG_LITTLE("\"memory_limit\":\"16MiB\","), "--check", terms[i]);
    }
    /* Far more weights than any machine has, made only when they are loaded. */
    expect_refusal("{\"port\":0,\"models\":[{\"name\":\"huge\",\"random\":{\"hidden_size\":65536,"
                   "\"num_attention_heads\":1024,\"num_hidden_layers\":1024}}]}",
                   NULL, " + weights 67108");
}
END_TEST

START_TEST(test_the_sum_is_that_of_its_terms_and_enough_of_a_limit)
{
    static const char *const names[] = {"program",  "weights",  "caches",  "blocks",
                                        "sessions", "requests", "working", "connections",
                                        "queue",    "threads",  "store",   "loading"};
    char flag[64];
    double sum = 0, together = checked_bytes(CONFIG_LITTLE(""), "together");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        sum += checked_bytes(CONFIG_LITTLE(""), names[i]);
    ck_assert_double_eq(sum, together);
    snprintf(flag, sizeof flag, "--memory-limit=%.0f", together - 1);
    expect_refusal(CONFIG_LITTLE(""), flag, "memory_limit gives");
    snprintf(flag, sizeof flag, "--memory-limit=%.0f", together);
    const char *const enough[] = {flag, NULL};
    struct daemon daemon;
    daemon_start(&daemon, CONFIG_LITTLE(""), enough, NULL);
    daemon_stop(&daemon);
}
END_TEST

/* ---- Load ------------------------------------------------------------------------------------ */

struct load {
    const struct daemon *daemon;
    unsigned number, good, full;
};

/* A call of ROWS rows in binary form, with these members. */
static size_t make_call(struct text *body, unsigned seed, const char *members)
{
    float *rows = malloc((size_t)ROWS * WIDTH * sizeof *rows);
    size_t bytes = (size_t)ROWS * WIDTH * sizeof *rows;
    make_numbers(rows, (size_t)ROWS * WIDTH, seed);
    text_add(body,
             "{%s\"outputs\":[\"output\",\"key\",\"value\",\"head_stats\"],\"hidden_states\":"
             "{\"shape\":[%d,%d],\"datatype\":\"FP32\",\"binary_data_size\":%zu}}",
             members, ROWS, WIDTH, bytes);
    size_t json_length = body->length;
    text_bytes(body, rows, bytes);
    free(rows);
    return json_length;
}

static void call(struct client *client, struct load *load, const char *members)
{
    struct text body = {0};
    size_t json_length = make_call(&body, load->number, members);
    struct answer answer =
        binary_send(client, "/attend", &body, json_length, "Accept: application/octet-stream");
    load->good += answer.status == 200;
    load->full += answer.status == 503;
    ck_assert_msg(answer.status == 200 || answer.status == 503, "status %ld: %.300s", answer.status,
                  answer.text);
    answer_free(&answer);
    text_free(&body);
}

/* Sessions until the pool is full, and calls beside them until memory in flight is. */
static void *load_main(void *argument)
{
    struct load *load = argument;
    struct client client;
    char body[128];
    client_open(&client, load->daemon);
    for (unsigned i = 0; i < SESSIONS; i++) {
        snprintf(body, sizeof body, "{\"session_id\":\"s-%u-%u\"}", load->number, i);
        struct answer answer = client_post(&client, "/sessions", body);
        expect_answer(&answer, 201, NULL, body);
        answer_free(&answer);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        snprintf(body, sizeof body, "\"session_id\":\"s-%u-%u\",", load->number, i % SESSIONS);
        call(&client, load, body);
        call(&client, load, "");
    }
    client_close(&client);
    return NULL;
}

static size_t peak_bytes(const struct daemon *daemon)
{
    char path[64], line[256];
    size_t kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->process.pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (kib == 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "VmHWM: %zu kB", &kib);
    fclose(file);
    return kib * 1024;
}

/* A sanitizer's shadow memory is not the daemon's. */
static bool is_instrumented(const char *path)
{
    return strstr(path, "asan") != NULL || strstr(path, "tsan") != NULL;
}

START_TEST(test_the_peak_under_load_stays_below_the_sum)
{
    static struct raw idle[IDLE];
    struct load loads[CALLERS];
    pthread_t threads[CALLERS];
    struct daemon daemon;
    const char *attnd = getenv("ATTND");
    double together = checked_bytes(CONFIG_LITTLE(""), "together");
    size_t good = 0, full = 0;
    daemon_start(&daemon, CONFIG_LITTLE(""), NULL, NULL);
    for (size_t i = 0; i < IDLE; i++)
        raw_open(&idle[i], daemon.host, daemon.port);
    for (unsigned i = 0; i < CALLERS; i++) {
        loads[i] = (struct load){&daemon, i, 0, 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load_main, &loads[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        good += loads[i].good;
        full += loads[i].full;
    }
    double peak = (double)peak_bytes(&daemon);
    ck_assert_uint_ge(good, CALLERS * (INSTRUMENTED ? 1 : CALLS)); /* slow ones meet more often */
    ck_assert_uint_ge(full, 1);
    for (size_t i = 0; i < IDLE; i++)
        raw_close(&idle[i]);
    daemon_stop(&daemon);
    if (attnd != NULL && is_instrumented(attnd))
        return;
    fprintf(stderr, "memory: peak %.1f of %.1f MiB\n", peak / 1048576, together / 1048576);
    ck_assert_double_lt(peak, together);
    ck_assert_double_gt(peak, 0.25 * together); /* or the load was none */
}
END_TEST

Suite *suite_memory(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_add_test(tests,
                   test_what_does_not_fit_is_refused_with_every_term_before_weights_are_read);
    tcase_add_test(tests, test_the_sum_is_that_of_its_terms_and_enough_of_a_limit);
    tcase_add_test(tests, test_the_peak_under_load_stays_below_the_sum);
    suite_add_tcase(suite, tests);
    return suite;
}
