/* test_memory.c: the memory that attnd says it takes at most: refused where there is less, and
 * never exceeded. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "binary.h"
#include "calls.h"
#include "client.h"
#include "raw.h"
#include "scratch.h"
#include "suites.h"

/* Small bounds, so that a test can use up all of them. */
#define CONFIG_LITTLE(members)                                                                  \
    "{\"host\":\"127.0.0.1\",\"port\":0,\"threads\":2,\"max_body_bytes\":\"2MiB\","             \
    "\"max_reply_bytes\":\"8MiB\",\"max_in_flight_bytes\":\"24MiB\",\"cache_bytes\":\"24MiB\"," \
    "\"inputs_bytes\":\"1MiB\",\"max_connections\":64,\"max_sessions\":64,\"max_queue\":"       \
    "64," members                                                                               \
    "\"models\":[{\"name\":\"wide\",\"random\":{\"hidden_size\":256,\"num_attention_heads\":4," \
    "\"is_causal\":true,\"seed\":7}}]}"
#define WIDTH 256
#define ROWS 1000 /* of a call: a body of 1 MiB, results of 4 MiB */
#define CALLERS (INSTRUMENTED ? 6 : 8)
#define SESSIONS 3  /* of each */
#define CALLS 6     /* two steps in each of its sessions */
#define TRIES 10000 /* of a request that was refused for lack of memory */
#define IDLE 40

/* The output of --check for a configuration file, which must be accepted; for free(). */
static char *checked(const char *path, const char *argument)
{
    char *out, *err;
    const char *const arguments[] = {"--check", "--threads=2", "--config", path, argument, NULL};
    int status = process_run(&out, &err, arguments, NULL);
    ck_assert_msg(status == 0, "%s %s: status %d: %s", path, argument, status, err);
    free(err);
    return out;
}

/* The number after `name` in the `part` of --check's output. */
static double number_of(const char *out, const char *part, const char *name)
{
    char line[64];
    snprintf(line, sizeof line, "\n  %s ", name);
    const char *begin = strstr(out, part), *found = begin ? strstr(begin, line) : NULL;
    ck_assert_msg(found != NULL, "no %s in %s", name, out);
    found += strlen(line);
    return strtod(found + strspn(found, " ="), NULL);
}

/* The bytes of one term of --check's sum. */
static double checked_bytes(const char *config, const char *name)
{
    char directory[SCRATCH_PATH], path[96];
    config_write(directory, path, config);
    char *out = checked(path, NULL);
    double bytes = number_of(out, "memory at most:", name);
    free(out);
    config_remove(directory);
    return bytes;
}

static void expect_refusal(const char *config, const char *argument, const char *part)
{
    char directory[SCRATCH_PATH], path[96], *out, *err;
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

TEST(a_sum_above_the_limit_is_refused_with_every_term_before_weights_are_read)
{
    static const char *const terms[] = {"memory_limit gives 16.0 MiB",
                                        "program 38.5 + weights",
                                        " + caches 44.3 + ",
                                        " + requests ",
                                        " + working ",
                                        " + connections ",
                                        "; the least that would start is "};
    if (getenv("GEMM") != NULL) /* the first term counts OpenBLAS too */
        return;
    for (size_t i = 0; i < COUNT(terms); i++) {
        expect_refusal(CONFIG_LITTLE("\"memory_limit\":\"16MiB\","), NULL, terms[i]);
        expect_refusal(CONFIG_LITTLE("\"memory_limit\":\"16MiB\","), "--check", terms[i]);
    }
    expect_refusal(CONFIG_LITTLE("\"memory_limit\":\"16MiB\","), "--check-short",
                   "attnd: this configuration would not start: ");
    double without = checked_bytes(CONFIG_LITTLE("\"max_weightless_shapes\":0,"), "caches");
    ck_assert_double_ge(checked_bytes(CONFIG_LITTLE(""), "caches") - without, 16 * 1048576);
    /* Far more weights than fit any machine; they are made only when they are loaded. */
    expect_refusal("{\"port\":0,\"models\":[{\"name\":\"huge\",\"random\":{\"hidden_size\":65536,"
                   "\"num_attention_heads\":1024,\"num_hidden_layers\":1024}}]}",
                   NULL, " + weights 67170");
}

/* Starts as the advice of a refusal says, with no more memory than it names. */
static void follow_advice(const char *before)
{
    enum { WORDS = 24 };
    char *out, *err, *said, limit[64], *rest = NULL;
    const char *words[WORDS] = {"--check-short", limit};
    const char *const refused[] = {"--check-short", "--memory-limit", before, NULL};
    ck_assert_int_eq(process_run(&out, &err, refused, NULL), 1);
    free(out);
    char *advice = strstr(err, "it would start in "), *with;
    if (advice == NULL)
        advice = strstr(err, "the least that would start is ");
    ck_assert_msg(advice != NULL, "%s", err);
    advice += strcspn(advice, "0123456789");
    snprintf(limit, sizeof limit, "--memory-limit=%.0f", strtod(advice, &with) * 1048576);
    with = strstr(with, "with ");
    ck_assert_ptr_nonnull(with);
    with += strlen("with ");
    for (size_t i = 2; (words[i] = strtok_r(with, " \n", &rest)) != NULL; i++) {
        ck_assert_uint_lt(i, WORDS - 1);
        with = NULL;
    }
    int status = process_run(&out, &said, words, NULL);
    ck_assert_msg(status == 0, "%s: %s: %s", before, limit, said);
    free(out);
    free(err);
    free(said);
}

TEST(the_advice_of_a_refusal_can_be_followed)
{
    static const char *const limits[] = {"16MiB", "64MiB", "128MiB", "192MiB", "256MiB"};
    for (size_t i = 0; i < COUNT(limits); i++)
        follow_advice(limits[i]);
}

TEST(the_sum_equals_its_terms_and_suffices_as_a_limit)
{
    static const char *const names[] = {"program",  "weights", "caches",      "sessions",
                                        "requests", "working", "connections", "store"};
    char flag[64];
    double sum = 0, together = checked_bytes(CONFIG_LITTLE(""), "together");
    for (size_t i = 0; i < COUNT(names); i++)
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

TEST(a_limit_that_is_set_counts_also_above_what_the_machine_gives)
{
    char directory[SCRATCH_PATH], path[96];
    config_write(directory, path, CONFIG_LITTLE(""));
    char *out = checked(path, "--memory-limit=4096GiB");
    ck_assert_double_eq(number_of(out, "memory at most:", "limit"), 4096.0 * (1 << 30));
    free(out);
    config_remove(directory);
}

TEST(each_adopted_directory_takes_what_the_own_one_does)
{
#define KEPT "\"durability\":\"journal\",\"state_dir\":\"/tmp/attnd-a\","
    const double own = checked_bytes(CONFIG_LITTLE(KEPT), "store");
    ck_assert_double_gt(own, 0);
    ck_assert_double_eq(
        checked_bytes(CONFIG_LITTLE(KEPT "\"adopt\":\"/tmp/attnd-b,/tmp/attnd-c\","), "store"),
        3 * own);
}

/* Shipped configurations that must serve with 512 MiB unchanged. */
static const char *const shipped[] = {
    "config/attnd.json",         "config/presets/tiny.json", "config/presets/small.json",
    "config/presets/large.json", "config/presets/gpt2.json",
};

TEST_EACH(defaults_are_divided_until_they_fit_and_no_further, COUNT(shipped))
{
    for (size_t mib = 512; mib <= 8192; mib *= 2) {
        char flag[64];
        snprintf(flag, sizeof flag, "--memory-limit=%zuMiB", mib);
        char *out = checked(shipped[_i], flag);
        double cache = number_of(out, "options:", "cache_bytes        ");
        double together = number_of(out, "memory at most:", "together");
        double divisor = 1073741824 / cache;
        ck_assert_double_le(together, (double)mib * 1048576);
        ck_assert_double_eq(number_of(out, "options:", "max_in_flight_bytes"),
                            1073741824 / divisor);
        ck_assert_double_eq(number_of(out, "options:", "max_connections    "), 16384 / divisor);
        ck_assert((strstr(out, " (memory)\n") != NULL) == (divisor > 1));
        /* Twice as much of each share would have been too much. */
        ck_assert(divisor == 1 || 2 * together > (double)mib * 1048576);
        ck_assert(mib < 8192 || divisor == 1);
        free(out);
    }
}

TEST(attnd_serves_with_defaults_where_there_is_little_memory)
{
    static const char body[] = "{\"model\":\"plain\",\"hidden_states\":[[1,2,3,4,5,6,7,8]]}";
    static const char small[] =
        "{\"host\":\"127.0.0.1\",\"port\":0,\"models\":[{\"name\":\"plain\",\"random\":"
        "{\"hidden_size\":8,\"num_attention_heads\":2,\"seed\":3}}]}";
    static const char *const little[] = {"--memory-limit=512MiB", "--threads=2", NULL};
    struct daemon daemon;
    struct client client;
    daemon_start(&daemon, small, little, NULL);
    char *log = daemon_log(&daemon);
    ck_assert_msg(strstr(log, "memory_limit gives 512 MiB: defaults") != NULL, "%s", log);
    free(log);
    client_open(&client, &daemon);
    expect_posted(&client, "/attend", body, 200, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}

TEST(options_that_were_set_are_refused_and_never_divided)
{
    static const char *const values[][2] = {{"--cache-bytes=1GiB", " + caches 1092.0 + "},
                                            {"--max-in-flight-bytes=1GiB", " + requests 1155.6 "},
                                            {"--max-connections=16384", " + connections 730.4 "}};
    char config[256];
    snprintf(config, sizeof config,
             "{\"port\":0,\"memory_limit\":\"512MiB\",\"models\":[{\"name\":\"plain\","
             "\"random\":{\"hidden_size\":8,\"num_attention_heads\":2}}]}");
    for (size_t i = 0; i < COUNT(values); i++)
        expect_refusal(config, values[i][0], values[i][1]);
}

/* ---- Load ------------------------------------------------------------------------------------ */

#define ALL_OUTPUTS "\"outputs\":[\"output\",\"key\",\"value\",\"head_stats\"],"

struct load {
    const struct daemon *daemon;
    unsigned number, good, full;
};

/* Writes a call of ROWS rows in binary form, with these members; returns the length of its JSON. */
static size_t make_call(struct text *body, unsigned seed, const char *members)
{
    float *rows = malloc((size_t)ROWS * WIDTH * sizeof *rows);
    size_t bytes = (size_t)ROWS * WIDTH * sizeof *rows;
    make_numbers(rows, (size_t)ROWS * WIDTH, seed);
    text_add(
        body,
        "{%s\"hidden_states\":{\"shape\":[%d,%d],\"datatype\":\"FP32\",\"binary_data_size\":%zu}}",
        members, ROWS, WIDTH, bytes);
    size_t json_length = body->length;
    text_bytes(body, rows, bytes);
    free(rows);
    return json_length;
}

/* Makes the call; false where it was refused for lack of memory. */
static bool call(struct client *client, struct load *load, const char *members)
{
    struct text body = {0};
    size_t json_length = make_call(&body, load->number, members);
    struct answer answer =
        binary_send(client, "/attend", &body, json_length, "Accept: application/octet-stream");
    load->good += answer.status == 200;
    load->full += answer.status == 503;
    ck_assert_msg(answer.status == 200 || answer.status == 503, "status %ld: %.300s", answer.status,
                  answer.text);
    bool good = answer.status == 200;
    answer_free(&answer);
    text_free(&body);
    return good;
}

/* Creates a session; false where the calls of the other threads left no room for the request. */
static bool create(struct client *client, struct load *load, unsigned session)
{
    char body[160];
    snprintf(body, sizeof body, "{\"session_id\":\"s-%u-%u\"}", load->number, session);
    struct answer answer = client_post(client, "/sessions", body);
    bool good = answer.status == 201;
    if (!good)
        expect_answer(&answer, 503, "out_of_memory", body);
    answer_free(&answer);
    return good;
}

/* Fills the cache pool by sessions, and memory in flight by calls beside them, each repeated until
 * it finds room. */
static void *load_main(void *argument)
{
    struct load *load = argument;
    struct client client;
    char members[160];
    client_open(&client, load->daemon);
    for (unsigned i = 0; i < SESSIONS; i++)
        for (unsigned tries = 1; !create(&client, load, i); tries++)
            ck_assert_uint_lt(tries, TRIES);
    for (unsigned i = 0; i < CALLS; i++) {
        snprintf(members, sizeof members, ALL_OUTPUTS "\"session_id\":\"s-%u-%u\",", load->number,
                 i % SESSIONS);
        call(&client, load, members);
        for (unsigned tries = 1; !call(&client, load, ALL_OUTPUTS); tries++)
            ck_assert_uint_lt(tries, TRIES);
    }
    client_close(&client);
    return NULL;
}

static size_t peak_bytes(const struct daemon *daemon)
{
    return daemon_status_number(daemon, daemon->process.pid, "VmHWM", 10) * 1024;
}

/* Whether the program is instrumented: a sanitizer's shadow memory is not the daemon's. */
static bool is_instrumented(const char *path)
{
    return strstr(path, "asan") != NULL || strstr(path, "tsan") != NULL;
}

TEST(the_peak_under_load_stays_below_the_sum)
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
    ck_assert_uint_ge(good, CALLERS * CALLS);
    ck_assert_uint_ge(full, 1);
    for (size_t i = 0; i < IDLE; i++)
        raw_close(&idle[i]);
    daemon_stop(&daemon);
    if (attnd != NULL && is_instrumented(attnd))
        return;
    fprintf(stderr, "memory: peak %.1f of %.1f MiB\n", peak / 1048576, together / 1048576);
    ck_assert_double_lt(peak, together);
    ck_assert_double_gt(peak, together / 8); /* otherwise there was no load */
}

/* ---- Restarts -------------------------------------------------------------------------------- */

/* cache_bytes is not set, so it depends on what the sum leaves of the limit.  A token takes 544
 * bytes of caches and of a file of blocks, and 2 KiB of a journal. */
static const char kept[] =
    "{\"host\":\"127.0.0.1\",\"port\":0,\"threads\":2,\"max_tokens\":1024,\"max_body_bytes\":"
    "\"1088KiB\",\"max_reply_bytes\":\"8MiB\",\"max_in_flight_bytes\":\"20MiB\",\"max_"
    "connections\":64,"
    "\"max_sessions\":64,\"max_queue\":64,\"memory_limit\":\"344MiB\",\"durability\":\"journal\","
    "\"journal_bytes\":\"1GiB\",\"max_weightless_shapes\":0,\"log\":\"error\",\"models\":[{"
    "\"name\":\"wide\",\"kv_dtype\":"
    "\"int8\",\"random\":{\"hidden_size\":256,\"num_attention_heads\":4,\"is_causal\":true,"
    "\"seed\":7}}]}";
#define WINDOW "\"sliding_window\":[15,0]," /* of calls, not of the layer: caches keep all tokens */
#define LONG (INSTRUMENTED ? 28 : 48)       /* calls whose rows one session has in the end */
#define UNDONE 2 /* calls to another session, which are truncated again */

/* Bytes of the largest file of the directory. */
static size_t largest_bytes(const char *directory)
{
    char command[128];
    size_t bytes = 0;
    snprintf(command, sizeof command, "find %s -type f -printf '%%s\\n' | sort -n | tail -n 1",
             directory);
    FILE *lines = popen(command, "re");
    ck_assert(lines != NULL && fscanf(lines, "%zu", &bytes) == 1);
    pclose(lines);
    return bytes;
}

static struct answer next_step(struct client *client)
{
    float row[WIDTH];
    struct text body = {0};
    make_numbers(row, WIDTH, 99);
    text_add(&body, "{" WINDOW "\"session_id\":\"long\",\"commit\":false,\"hidden_states\":");
    text_floats(&body, row, 9, 1, (size_t[]){WIDTH});
    text_add(&body, "}");
    struct answer answer = client_post(client, "/decode", body.data);
    expect_answer(&answer, 200, NULL, "the next step");
    text_free(&body);
    return answer;
}

static void fill(struct client *client)
{
    struct load load = {.number = 1};
    for (unsigned i = 0; i < 2; i++) {
        expect_posted(client, "/sessions",
                      i == 0 ? "{\"session_id\":\"long\"}" : "{\"session_id\":\"short\"}", 201,
                      NULL);
    }
    for (unsigned i = 0; i < LONG + UNDONE; i++, load.number++) {
        call(client, &load,
             i < LONG ? WINDOW "\"session_id\":\"long\"," : WINDOW "\"session_id\":\"short\",");
        if (i < LONG)
            continue;
        expect_posted(client, "/sessions/short/truncate", "{\"length\":0}", 200, NULL);
    }
    ck_assert_uint_eq(load.good, LONG + UNDONE);
}

/* The first file is a journal larger than requests and their computation may be together, the
 * second a file of blocks larger than the term of the store. */
TEST(large_files_are_restored_within_the_sum_and_lower_no_default)
{
    char directory[SCRATCH_PATH], flag[64];
    const char *const arguments[] = {flag, NULL};
    const char *attnd = getenv("ATTND");
    struct daemon daemon;
    struct client client;
    scratch_make(directory);
    snprintf(flag, sizeof flag, "--state-dir=%s", directory);
    daemon_start(&daemon, kept, arguments, NULL);
    client_open(&client, &daemon);
    fill(&client);
    double budget = call_metric(&client, "attnd_cache_budget_bytes");
    struct answer want = next_step(&client);
    for (unsigned i = 0; i < 2; i++) {
        client_close(&client);
        process_end(&daemon.process); /* SIGKILL */
        size_t largest = largest_bytes(directory);
        ck_assert_uint_gt(largest, i == 0 ? (LONG + UNDONE) * ROWS * WIDTH * 2 * sizeof(float)
                                          : LONG * ROWS * 2 * (size_t)(WIDTH + 16));
        daemon_start(&daemon, kept, arguments, NULL);
        client_open(&client, &daemon);
        double peak = (double)peak_bytes(&daemon);
        ck_assert_double_eq(call_metric(&client, "attnd_cache_budget_bytes"), budget);
        ck_assert_uint_eq(call_length(&client, "long", 0), LONG * ROWS);
        ck_assert_uint_eq(call_length(&client, "short", 0), 0);
        struct answer got = next_step(&client);
        expect_same_answers(&got, &want, "the next step");
        answer_free(&got);
        fprintf(stderr, "memory: peak %.1f MiB after a file of %.1f MiB\n", peak / 1048576,
                (double)largest / 1048576);
        if (attnd == NULL || !is_instrumented(attnd))
            ck_assert_double_lt(peak, 64 * 1048576);
        call_snapshot(&client); /* a file of blocks has replaced the journal */
    }
    answer_free(&want);
    client_close(&client);
    daemon_stop(&daemon);
    scratch_remove(directory);
}

SUITE(memory)
