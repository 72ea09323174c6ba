/* test_quotas.c: the limits of API keys, under 32 threads at once: what is granted is what the file
 * of keys says, never one more; limits change with SIGHUP, and outlive a restart; /metrics by key.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "clock.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define THREADS 32
#define WAIT_MS 60000
#define CONFIG CONFIG_SMALL("\"durability\":\"journal\",\"state_dir\":\"%s\",")

#define FIELD(name) "Authorization: Bearer " name "-0123456789abcdef0123456789abcdef"
#define ENTRY(name, scope, more)                                                    \
    "{\"name\":\"" name "\",\"key\":\"" name "-0123456789abcdef0123456789abcdef\"," \
    "\"scopes\":[\"" scope "\"]" more "}"
#define BLOCK 4096 /* bytes of 64 tokens in a layer of `tiny` */
#define BLOCKS 10
#define SESSIONS 50
#define RATE 200
#define OTHERS                                                                                     \
    ENTRY("small", "infer", ",\"cache_bytes\":40960")                                              \
    "," ENTRY("narrow", "infer", ",\"max_in_flight_bytes\":65536") "," ENTRY(                      \
        "brief", "infer",                                                                          \
        ",\"max_ttl_s\":60") "," ENTRY("slow", "infer",                                            \
                                       ",\"requests_per_s\":200") "," ENTRY("ops", "admin",        \
                                                                            "") "," ENTRY("watch", \
                                                                                          "metric" \
                                                                                          "s",     \
                                                                                          "") "]," \
                                                                                              "\"" \
                                                                                              "me" \
                                                                                              "tr" \
                                                                                              "ic" \
                                                                                              "s_" \
                                                                                              "ke" \
                                                                                              "ys" \
                                                                                              "\"" \
                                                                                              ":t" \
                                                                                              "ru" \
                                                                                              "e}"
#define KEYS "{\"keys\":[" ENTRY("few", "infer", ",\"max_sessions\":50") "," OTHERS
#define KEYS_LESS "{\"keys\":[" ENTRY("few", "infer", ",\"max_sessions\":3") "," OTHERS
#define KEYS_WITHOUT "{\"keys\":[" OTHERS

static char state_dir[SCRATCH_PATH], keys_path[SECRET_PATH];

static void start(void)
{
    char config[1024];
    snprintf(config, sizeof config, CONFIG, state_dir);
    serve_keys(config, keys_path);
}

static void begin(void)
{
    scratch_make(state_dir);
    secret_write(keys_path, KEYS);
    start();
}

static void end(void)
{
    serve_end();
    scratch_remove(state_dir);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static atomic_size_t granted, refused, strange;

/* Counts an answer as granted, refused with that limit's name, or neither. */
static void count(struct answer *answer, const char *limit)
{
    const json_t *error = json_object_get(answer->json, "error");
    const char *param = json_string_value(json_object_get(error, "param"));
    if (answer->status < 300)
        atomic_fetch_add(&granted, 1);
    else if (answer->status == 429 && strcmp(answer_code(answer), "quota_exceeded") == 0 &&
             param != NULL && strcmp(param, limit) == 0)
        atomic_fetch_add(&refused, 1);
    else
        atomic_fetch_add(&strange, 1);
    answer_free(answer);
}

static void run_threads(void *(*work)(void *), const char *field)
{
    pthread_t threads[THREADS];
    static unsigned numbers[THREADS];
    granted = refused = strange = 0;
    served.authorization = field;
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(strange, 0);
}

static double sample(const char *name)
{
    const char *before = served.authorization;
    served.authorization = FIELD("watch");
    double value = call_metric(&client, name);
    served.authorization = before;
    return value;
}

static long status_of(const char *field, const char *method, const char *path, const char *body)
{
    served.authorization = field;
    struct answer answer =
        client_send(&client, &(struct request){.method = method, .path = path, .body = body});
    long status = answer.status;
    answer_free(&answer);
    return status;
}

/* ---- Sessions -------------------------------------------------------------------------------- */

/* Tries to create 8 sessions in each of three ways. */
static void *create(void *number)
{
    struct client own;
    char body[128], id[32];
    client_open(&own, &served);
    for (unsigned i = 0; i < 24; i++) {
        snprintf(id, sizeof id, "t%u-%u", *(unsigned *)number, i);
        snprintf(body, sizeof body, "{\"model\":\"tiny\",\"session_id\":\"%s\"}", id);
        struct answer answer;
        if (i % 3 == 0)
            answer = client_post(&own, "/sessions", body);
        else if (i % 3 == 1)
            answer = call_decode(&own, id, 1, ",\"start\":true");
        else
            answer = client_post(&own, "/sessions/base/fork", "{}");
        count(&answer, "max_sessions");
    }
    client_close(&own);
    return NULL;
}

/* The number of an owner's sessions, at most 100, and the sum of their bytes. */
static size_t count_listed(const char *owner, size_t *bytes)
{
    size_t i, found = 0;
    json_t *session;
    served.authorization = FIELD("ops");
    struct answer list = client_get(&client, "/sessions?limit=100");
    *bytes = 0;
    json_array_foreach(json_object_get(list.json, "sessions"), i, session) {
        if (strcmp(json_string_value(json_object_get(session, "owner")), owner) != 0)
            continue;
        found++;
        *bytes += (size_t)json_integer_value(json_object_get(session, "bytes"));
    }
    answer_free(&list);
    return found;
}

CASE(limits, begin, end, 120)

TEST(sessions_of_a_key_are_never_one_too_many)
{
    size_t bytes;
    served.authorization = FIELD("few");
    call_create(&client, "base", "");
    run_threads(create, FIELD("few"));
    ck_assert_uint_eq(granted, SESSIONS - 1);
    ck_assert_uint_eq(refused, THREADS * 24 - (SESSIONS - 1));
    ck_assert_uint_eq(count_listed("few", &bytes), SESSIONS);
    ck_assert_double_eq(sample("attnd_key_sessions{key=\"few\"}"), SESSIONS);
    ck_assert_double_eq(sample("attnd_key_refused_total{key=\"few\",limit=\"max_sessions\"}"),
                        (double)refused);
    ck_assert_int_eq(status_of(FIELD("few"), "DELETE", "/sessions/base", NULL), 204);
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 201);
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 429);
    ck_assert_int_eq(status_of(FIELD("narrow"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 201);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void *decode(void *number)
{
    struct client own;
    char id[32];
    client_open(&own, &served);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(id, sizeof id, "t%u-%u", *(unsigned *)number, i);
        struct answer answer = call_decode(&own, id, 1, ",\"start\":true");
        count(&answer, "cache_bytes");
    }
    client_close(&own);
    return NULL;
}

static atomic_bool watching;
static struct daemon watched; /* `served`, of which other threads change the authorization */

/* Looks at what the daemon says is taken, all the time. */
static void *watch(void *highest)
{
    struct client own;
    watched.authorization = FIELD("watch");
    client_open(&own, &watched);
    while (atomic_load(&watching)) {
        double bytes = call_metric(&own, "attnd_key_cache_bytes{key=\"small\"}");
        if (bytes > *(double *)highest)
            *(double *)highest = bytes;
    }
    client_close(&own);
    return NULL;
}

TEST(blocks_of_a_key_s_sessions_are_never_one_too_many)
{
    double highest = 0;
    size_t bytes;
    pthread_t thread;
    watching = true;
    watched = served;
    ck_assert_int_eq(pthread_create(&thread, NULL, watch, &highest), 0);
    run_threads(decode, FIELD("small"));
    watching = false;
    pthread_join(thread, NULL);
    ck_assert_uint_eq(granted, BLOCKS); /* a session that cannot take its first block is not made */
    ck_assert_double_le(highest, BLOCKS * BLOCK);
    ck_assert_uint_eq(count_listed("small", &bytes), BLOCKS);
    ck_assert_uint_eq(bytes, BLOCKS * BLOCK);
    ck_assert_double_eq(sample("attnd_key_cache_bytes{key=\"small\"}"), BLOCKS * BLOCK);
}

static void expect_refused(struct answer answer, const char *limit)
{
    granted = refused = strange = 0;
    count(&answer, limit);
    ck_assert_msg(refused == 1, "%s", limit);
}

/* Every way to take blocks, at a limit of ten; what fails or is undone gives them back. */
TEST(each_way_to_take_blocks_is_counted)
{
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    static const char gauge[] = "attnd_key_cache_bytes{key=\"small\"}";
    served.authorization = FIELD("small");
    call_create(&client, "a", "");
    struct answer answer = call_prefill(&client, "a", 1, 6 * 64, "");
    expect_answer(&answer, 200, NULL, "six blocks");
    answer_free(&answer);
    expect_refused(call_prefill(&client, "a", 1, 4 * 64 + 1, ""), "cache_bytes");
    expect_refused(call_prefill(&client, "a", 1, 4 * 64 + 1, ",\"commit\":false"), "cache_bytes");
    expect_refused(client_post(&client, "/sessions/a/fork", "{}"), "cache_bytes");
    answer = client_get(&client, "/sessions/a/state");
    const struct request put = {.method = "PUT",
                                .path = "/sessions/b/state",
                                .body = answer.text,
                                .length = answer.length,
                                .headers = headers};
    expect_refused(client_send(&client, &put), "cache_bytes");
    answer.text[answer.length - 1] ^= 1; /* refused before its checksum is looked at */
    expect_refused(client_send(&client, &put), "cache_bytes");
    answer.text[answer.length - 1] ^= 1;
    ck_assert_double_eq(sample(gauge), 6 * BLOCK);
    struct answer tried = call_prefill(&client, "a", 1, 4 * 64, ",\"commit\":false");
    expect_answer(&tried, 200, NULL, "not committed");
    answer_free(&tried);
    ck_assert_double_eq(sample(gauge), 6 * BLOCK);
    call_fork(&client, "a", "f", ",\"length\":256");
    ck_assert_double_eq(sample(gauge), 10 * BLOCK);
    call_delete(&client, "f");
    ck_assert_int_eq(status_of(FIELD("small"), "POST", "/sessions/a/truncate", "{\"length\":65}"),
                     200);
    ck_assert_double_eq(sample(gauge), 2 * BLOCK);
    struct answer imported = client_send(&client, &put);
    expect_answer(&imported, 201, NULL, "import");
    answer_free(&imported);
    ck_assert_double_eq(sample(gauge), 8 * BLOCK);
    call_delete(&client, "a");
    call_delete(&client, "b");
    ck_assert_double_eq(sample(gauge), 0);
    answer_free(&answer);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static double stop_s;

static void *hammer(void *number)
{
    struct client own;
    (void)number;
    client_open(&own, &served);
    while (clock_s() < stop_s) {
        struct answer answer = client_get(&own, "/models");
        char value[256] = "";
        if (answer.status == 429 &&
            (!answer_header(value, &answer, "Retry-After") || strcmp(value, "1") != 0))
            atomic_fetch_add(&strange, 1);
        count(&answer, "requests_per_s");
    }
    client_close(&own);
    return NULL;
}

TEST(requests_of_a_key_are_never_more_than_its_seconds_have)
{
    double start_s = clock_s();
    stop_s = start_s + 2;
    run_threads(hammer, FIELD("slow"));
    double most = RATE * (1 + clock_s() - start_s);
    printf("quotas: %zu requests granted, at most %.0f, %zu refused\n", (size_t)granted, most,
           (size_t)refused);
    ck_assert_double_le((double)granted, most);
    ck_assert_uint_ge(granted, RATE * 2);
    ck_assert_uint_gt(refused, 0);
    ck_assert_int_eq(status_of(FIELD("few"), "GET", "/models", NULL), 200);
}

TEST(memory_in_flight_of_a_key_is_bounded)
{
    static const char *const chunked[] = {"Transfer-Encoding: chunked", NULL};
    char *body = malloc(100001);
    ck_assert_ptr_nonnull(body);
    memset(body, ' ', 100000);
    body[100000] = '\0';
    served.authorization = FIELD("narrow");
    expect_refused(client_post(&client, "/attend", body), "max_in_flight_bytes");
    const struct request request = {
        .method = "POST", .path = "/attend", .body = body, .headers = chunked};
    expect_refused(client_send(&client, &request), "max_in_flight_bytes");
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/attend", body), 400);
    ck_assert_double_eq(sample("attnd_key_in_flight_bytes{key=\"narrow\"}"), 0);
    free(body);
}

TEST(a_ttl_beyond_the_key_s_is_refused_and_a_default_is_shortened)
{
    served.authorization = FIELD("brief");
    expect_refused(client_post(&client, "/sessions", "{\"model\":\"tiny\",\"ttl_s\":61}"),
                   "max_ttl_s");
    struct answer answer = client_post(&client, "/sessions", "{\"model\":\"tiny\"}");
    expect_answer(&answer, 201, NULL, "default");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 60);
    answer_free(&answer);
    ck_assert_int_eq(
        status_of(FIELD("brief"), "POST", "/sessions", "{\"model\":\"tiny\",\"ttl_s\":60}"), 201);
}

TEST(a_fork_lives_no_longer_than_its_own_key_allows)
{
    static const char parent[] =
        "{\"session_id\":\"long\",\"model\":\"tiny\",\"ttl_s\":600,\"shared\":true}";
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", parent), 201);
    served.authorization = FIELD("brief");
    struct answer answer = client_post(&client, "/sessions/long/fork", "{\"session_id\":\"f\"}");
    expect_answer(&answer, 201, NULL, "fork");
    ck_assert_int_eq(answer_integer(&answer, "ttl_s"), 60);
    answer_free(&answer);
}

/* ---- Changes and restarts -------------------------------------------------------------------- */

static void reload(const char *text)
{
    FILE *file = fopen(keys_path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(kill(served.process.pid, SIGHUP), 0);
    for (unsigned waited = 0;; waited++) {
        char *log = daemon_log(&served);
        bool read = strstr(log, "\"event\":\"keys\"") != NULL;
        free(log);
        if (read)
            return;
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(1);
    }
}

static void make_sessions(size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 201);
}

TEST(limits_change_with_sighup_and_end_no_session)
{
    size_t bytes;
    make_sessions(4);
    reload(KEYS_LESS);
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 429);
    ck_assert_uint_eq(count_listed("few", &bytes), 4);
}

TEST(sessions_of_a_removed_key_stay_and_an_admin_finds_them)
{
    size_t bytes;
    served.authorization = FIELD("few");
    call_create(&client, "a", "");
    reload(KEYS_WITHOUT);
    ck_assert_int_eq(status_of(FIELD("few"), "GET", "/sessions/a", NULL), 401);
    ck_assert_uint_eq(count_listed("few", &bytes), 1);
    ck_assert_int_eq(status_of(FIELD("ops"), "GET", "/sessions/a?owner=few", NULL), 200);
    ck_assert_int_eq(status_of(FIELD("ops"), "DELETE", "/sessions/a?owner=few", NULL), 204);
}

TEST(what_sessions_take_is_counted_again_after_a_restart)
{
    make_sessions(SESSIONS);
    served.authorization = FIELD("small");
    call_create(&client, "a", "");
    for (int i = 0; i < 2; i++) {
        struct answer answer = call_prefill(&client, "a", 1, 5 * 64, "");
        expect_answer(&answer, 200, NULL, "ten blocks");
        answer_free(&answer);
    }
    serve_end();
    start();
    ck_assert_double_eq(sample("attnd_key_sessions{key=\"few\"}"), SESSIONS);
    ck_assert_double_eq(sample("attnd_key_cache_bytes{key=\"small\"}"), BLOCKS * BLOCK);
    ck_assert_int_eq(status_of(FIELD("few"), "POST", "/sessions", "{\"model\":\"tiny\"}"), 429);
    served.authorization = FIELD("small");
    expect_refused(call_decode(&client, "a", 1, ""), "cache_bytes");
    call_delete(&client, "a");
    ck_assert_double_eq(sample("attnd_key_cache_bytes{key=\"small\"}"), 0);
}

/* ---- Metrics --------------------------------------------------------------------------------- */

TEST(metrics_are_for_their_own_scope_and_name_keys_where_asked)
{
    ck_assert_int_eq(status_of(FIELD("watch"), "GET", "/metrics", NULL), 200);
    ck_assert_int_eq(status_of(FIELD("ops"), "GET", "/metrics", NULL), 200);
    ck_assert_int_eq(status_of(FIELD("few"), "GET", "/metrics", NULL), 403);
    ck_assert_int_eq(status_of(FIELD("watch"), "GET", "/models", NULL), 403);
    ck_assert_int_eq(status_of(FIELD("watch"), "GET", "/sessions/a", NULL), 403);
    ck_assert_int_eq(status_of(FIELD("watch"), "GET", "/sessions", NULL), 403);
    ck_assert_double_ge(sample("attnd_key_requests_total{key=\"watch\"}"), 4);
    reload("{\"keys\":[" ENTRY("watch", "metrics", "") "]}");
    served.authorization = FIELD("watch");
    struct answer answer = client_get(&client, "/metrics");
    expect_answer(&answer, 200, NULL, "/metrics");
    ck_assert_ptr_null(strstr(answer.text, "key=\""));
    answer_free(&answer);
}

SUITE(quotas)
