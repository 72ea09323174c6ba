/* test_reload.c: SIGHUP: API keys and certificates are read again while requests come in; files
 * with errors leave the ones in use; a caller's idempotency keys stay its own. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "raw.h"
#include "scratch.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 60000
#define KEY_NEW "new-0123456789abcdef0123456789abcdef"
#define KEYS_NEW                                                                    \
    "{\"keys\":[{\"name\":\"new\",\"key\":\"" KEY_NEW "\",\"scopes\":[\"infer\"]}," \
    "{\"name\":\"lead\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\",\"admin\"]}]}"
#define CALLERS 2
#define RELOADS 20

static char keys[SECRET_PATH], certificate[SECRET_PATH], key[SECRET_PATH];

static void begin(const char *const arguments[])
{
    daemon_start(&served, CONFIG_SMALL("\"event_threads\":2,"), arguments, NULL);
}

static void begin_with_keys(void)
{
    const char *const arguments[] = {"--api-keys", keys, NULL};
    secret_write(keys, KEYS_THREE);
    begin(arguments);
}

static void rewrite(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static size_t count(const char *text, const char *part)
{
    size_t found = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        found++;
    return found;
}

/* Sends SIGHUP and returns once the log has one line more with this text. */
static void reload(const char *event)
{
    char *log = daemon_log(&served);
    size_t before = count(log, event), after = before;
    ck_assert_int_eq(kill(served.process.pid, SIGHUP), 0);
    for (unsigned waited = 0; after == before; waited++) {
        ck_assert_msg(waited < WAIT_MS, "no %s in %s", event, log);
        pause_ms(1);
        free(log);
        log = daemon_log(&served);
        after = count(log, event);
    }
    free(log);
}

/* The status of GET /models with this key, on a new connection. */
static long ask(const char *api_key)
{
    struct client caller;
    char field[128];
    snprintf(field, sizeof field, "Authorization: Bearer %s", api_key);
    const char *const headers[] = {field, NULL};
    client_open(&caller, &served);
    struct answer answer = client_send(
        &caller, &(struct request){.method = "GET", .path = "/models", .headers = headers});
    long status = answer.status;
    answer_free(&answer);
    client_close(&caller);
    return status;
}

/* ---- API keys -------------------------------------------------------------------------------- */

CASE(reload, NULL, NULL, 120)

TEST(keys_are_read_again_and_removed_ones_are_refused)
{
    begin_with_keys();
    ck_assert_int_eq(ask(KEY_INFER), 200);
    ck_assert_int_eq(ask(KEY_NEW), 401);
    rewrite(keys, KEYS_NEW);
    reload("\"event\":\"keys\",\"message\":\"2, from ");
    ck_assert_int_eq(ask(KEY_INFER), 401);
    ck_assert_int_eq(ask(KEY_NEW), 200);
    ck_assert_int_eq(ask(KEY_BOTH), 200);
    daemon_stop(&served);
    unlink(keys);
}

TEST(a_file_that_is_wrong_leaves_the_keys_and_is_logged)
{
    static const char *const wrong[] = {"", "{\"keys\":[]}", KEYS_NEW "x"};
    begin_with_keys();
    for (size_t i = 0; i < COUNT(wrong); i++) {
        rewrite(keys, wrong[i]);
        reload("\"level\":\"error\",\"event\":\"keys\",\"message\":\"are what they were: /");
        ck_assert_int_eq(ask(KEY_INFER), 200);
        ck_assert_int_eq(ask(KEY_NEW), 401);
    }
    rewrite(keys, KEYS_NEW);
    ck_assert_int_eq(chmod(keys, 0644), 0);
    reload("others must not read it");
    unlink(keys);
    reload("No such file");
    ck_assert_int_eq(ask(KEY_INFER), 200);
    daemon_stop(&served);
}

TEST(a_request_that_is_under_way_keeps_the_key_that_it_came_with)
{
    static const char head[] = "POST /attend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                               "\r\nAuthorization: Bearer " KEY_INFER "\r\n";
    static const char body[] = "{\"model\":\"plain\",\"hidden_states\":[[1,2,3,4,5,6,7,8]]}";
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct raw raw;
    struct raw_answer answer;
    char text[512];
    begin_with_keys();
    raw_open(&raw, served.host, served.port);
    snprintf(text, sizeof text, "%sExpect: 100-continue\r\nContent-Length: %zu\r\n\r\n", head,
             strlen(body));
    ck_assert(raw_text(&raw, text));
    /* The interim answer shows that the head has been checked. */
    ck_assert_int_eq(poll(&(struct pollfd){.fd = raw.fd, .events = POLLIN}, 1, WAIT_MS), 1);
    ck_assert_int_ge(recv(raw.fd, text, sizeof text, 0), (ssize_t)strlen(interim));
    ck_assert_int_eq(strncmp(text, interim, strlen(interim)), 0);
    rewrite(keys, KEYS_NEW);
    reload("\"event\":\"keys\",\"message\":\"2, from ");
    ck_assert(raw_text(&raw, body));
    answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 200);
    raw_answer_free(&answer);
    ck_assert(raw_text(&raw, head) && raw_text(&raw, "Content-Length: 2\r\n\r\n{}"));
    answer = raw_read(&raw, false, WAIT_MS);
    ck_assert_uint_eq(answer.status, 401);
    raw_answer_free(&answer);
    raw_close(&raw);
    free(daemon_log_with(&served, "\"caller\":\"router\",\"status\":200"));
    daemon_stop(&served);
    unlink(keys);
}

/* ---- Idempotency keys ------------------------------------------------------------------------ */

/* KEYS_MOVED: three callers, two of them in changed places.  KEYS_HEIR: a key under a new name. */
#define KEYS_MOVED                                                                    \
    "{\"keys\":[{\"name\":\"lead\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\"]}," \
    "{\"name\":\"new\",\"key\":\"" KEY_NEW "\",\"scopes\":[\"infer\"]},"              \
    "{\"name\":\"router\",\"key\":\"" KEY_INFER "\",\"scopes\":[\"infer\"]}]}"
#define KEYS_HEIR                                                                      \
    "{\"keys\":[{\"name\":\"heir\",\"key\":\"" KEY_INFER "\",\"scopes\":[\"infer\"]}," \
    "{\"name\":\"lead\",\"key\":\"" KEY_BOTH "\",\"scopes\":[\"infer\"]}]}"
#define CREATE_TINY "{\"model\":\"tiny\",\"shared\":true}" /* both fork one of them */

struct made {
    char id[80];
    bool replayed;
};

/* Sends a POST with an API key and an Idempotency-Key, which makes a session or finds it. */
static struct made make(const char *api_key, const char *path, const char *name, const char *body)
{
    struct client caller;
    struct made made = {0};
    char fields[2][128];
    const char *const headers[] = {fields[0], fields[1], NULL};
    snprintf(fields[0], sizeof fields[0], "Authorization: Bearer %s", api_key);
    snprintf(fields[1], sizeof fields[1], "Idempotency-Key: %s", name);
    client_open(&caller, &served);
    struct answer answer = client_send(
        &caller,
        &(struct request){.method = "POST", .path = path, .body = body, .headers = headers});
    expect_answer(&answer, 201, NULL, name);
    snprintf(made.id, sizeof made.id, "%s",
             json_string_value(json_object_get(answer.json, "session_id")));
    made.replayed = json_is_true(json_object_get(answer.json, "replayed"));
    answer_free(&answer);
    client_close(&caller);
    return made;
}

static struct made make_new(const char *api_key, const char *path, const char *name,
                            const char *body)
{
    struct made made = make(api_key, path, name, body);
    ck_assert_msg(!made.replayed, "%s was found with key %s", made.id, name);
    return made;
}

/* The caller repeats its POST and finds the session that it made. */
static void expect_again(const struct made *made, const char *api_key, const char *path,
                         const char *name)
{
    const char *body = strcmp(path, "/sessions") == 0 ? CREATE_TINY : "{}";
    struct made again = make(api_key, path, name, body);
    ck_assert(again.replayed);
    ck_assert_str_eq(again.id, made->id);
}

TEST(idempotency_keys_are_each_caller_s_own_over_reloads_and_restarts)
{
    char dir[SCRATCH_PATH], fork[128];
    const char *const arguments[] = {"--api-keys", keys, "--durability", "journal", "--state-dir",
                                     dir,          NULL};
    scratch_make(dir);
    secret_write(keys, KEYS_THREE);
    begin(arguments);
    struct made router = make_new(KEY_INFER, "/sessions", "-1", CREATE_TINY);
    struct made lead = make_new(KEY_BOTH, "/sessions", "-1", CREATE_TINY);
    snprintf(fork, sizeof fork, "/sessions/%s/fork", router.id);
    struct made router_fork = make_new(KEY_INFER, fork, "2", "{}");
    struct made lead_fork = make_new(KEY_BOTH, fork, "2", "{}");
    make_new(KEY_BOTH, "/sessions", "3", CREATE_TINY);
    make_new(KEY_INFER, "/sessions", "3", "{\"model\":\"plain\"}"); /* no conflict */
    for (int i = 0; i < 3; i++) {
        expect_again(&router, KEY_INFER, "/sessions", "-1");
        expect_again(&lead, KEY_BOTH, "/sessions", "-1");
        expect_again(&router_fork, KEY_INFER, fork, "2");
        expect_again(&lead_fork, KEY_BOTH, fork, "2");
        if (i == 0) {
            rewrite(keys, KEYS_MOVED);
            reload("\"event\":\"keys\",\"message\":\"3, from ");
        } else if (i == 1) {
            daemon_stop(&served);
            begin(arguments);
        }
    }
    make_new(KEY_NEW, "/sessions", "-1", CREATE_TINY);
    rewrite(keys, KEYS_HEIR);
    reload("\"event\":\"keys\",\"message\":\"2, from ");
    make_new(KEY_INFER, "/sessions", "-1", CREATE_TINY);
    expect_again(&lead, KEY_BOTH, "/sessions", "-1");
    daemon_stop(&served);
    unlink(keys);
    scratch_remove(dir);
}

static atomic_bool over;

static void *ask_on(void *refused)
{
    while (!atomic_load(&over))
        atomic_fetch_add((atomic_size_t *)refused, ask(KEY_BOTH) != 200);
    return NULL;
}

TEST(a_key_that_stays_is_never_refused_while_keys_are_read_again)
{
    pthread_t threads[CALLERS];
    atomic_size_t refused = 0;
    begin_with_keys();
    atomic_store(&over, false);
    for (size_t i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_on, &refused), 0);
    for (size_t i = 0; i < RELOADS; i++) {
        rewrite(keys, i % 2 == 0 ? KEYS_NEW : KEYS_THREE);
        reload("\"event\":\"keys\",\"message\":\"");
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(refused, 0);
    daemon_stop(&served);
    unlink(keys);
}

/* ---- Certificates ---------------------------------------------------------------------------- */

static void copy(const char *to, const char *from)
{
    char text[16384] = "";
    FILE *file = fopen(from, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    rewrite(to, text);
}

/* Whether a new connection shows the certificate of that file. */
static bool shows(const char *trusted)
{
    struct client caller;
    struct answer answer;
    served.trusted = trusted;
    client_open(&caller, &served);
    bool shown = client_try(&answer, &caller, &(struct request){.method = "GET", .path = "/livez"});
    answer_free(&answer);
    client_close(&caller);
    return shown;
}

/* /metrics, over a connection of the first certificate, says that new ones get a certificate that
 * expires in so many days. */
static void expect_days(struct client *caller, const char *first, double days)
{
    served.trusted = first;
    double expires = call_metric(caller, "attnd_certificate_expiry_timestamp_seconds");
    ck_assert_double_eq_tol((expires - (double)time(NULL)) / 86400, days, 0.1);
}

TEST(certificate_is_read_again_for_new_connections)
{
    char next[SECRET_PATH], next_key[SECRET_PATH], first[SECRET_PATH];
    struct client caller;
    certificate_make(certificate, key);
    certificate_make_valid(next, next_key, "9");
    secret_write(first, "");
    copy(first, certificate);
    const char *const arguments[] = {"--tls-cert", certificate, "--tls-key", key, NULL};
    begin(arguments);
    served.trusted = first;
    client_open(&caller, &served);
    ck_assert_int_eq(call_status(&caller, "none"), 404);
    ck_assert(shows(first) && !shows(next));
    expect_days(&caller, first, 2);

    copy(certificate, next); /* without its key so far */
    reload("\"level\":\"error\",\"event\":\"certificate\",\"message\":\"is what it was: /");
    ck_assert(shows(first) && !shows(next));
    expect_days(&caller, first, 2);
    copy(key, next_key);
    reload("\"level\":\"info\",\"event\":\"certificate\",\"message\":\"expires 2");
    ck_assert(!shows(first) && shows(next));
    reload("\"level\":\"info\",\"event\":\"certificate\",\"message\":\"expires 2");
    ck_assert(!shows(first) && shows(next));

    served.trusted = first; /* the open connection does not check it again */
    expect_days(&caller, first, 9);
    ck_assert_int_eq(call_status(&caller, "none"), 404);
    client_close(&caller);
    daemon_stop(&served);
    const char *const files[] = {certificate, key, next, next_key, first};
    for (size_t i = 0; i < COUNT(files); i++)
        unlink(files[i]);
}

/* ---- Without keys and certificate ------------------------------------------------------------ */

TEST(without_keys_or_certificate_a_hangup_is_harmless)
{
    begin(NULL);
    reload("\"event\":\"reload\",\"message\":\"neither");
    reload("\"event\":\"reload\",\"message\":\"neither");
    ck_assert_int_eq(ask("none"), 200);
    daemon_stop(&served);
}

/* 2020-09-13: it starts, since a certificate can be replaced while it runs, and says so. */
TEST(a_certificate_whose_time_is_over_is_named)
{
    static const char said[] = "expires 2020-09-13, which is past: clients refuse it";
    struct daemon daemon;
    char *out, *err;
    const char *const check[] = {"--check", "--tls-cert", certificate, "--tls-key", key, NULL};
    certificate_make(certificate, key);
    certificate_end(certificate, key, 1600000000);
    ck_assert_int_eq(process_run(&out, &err, check, NULL), 0);
    ck_assert_msg(strstr(out, said) != NULL, "%s", out);
    free(out);
    free(err);
    daemon_start(&daemon, CONFIG_SMALL(""), check + 1, NULL);
    free(daemon_log_with(&daemon, said));
    daemon_stop(&daemon);
    unlink(certificate);
    unlink(key);
}

SUITE(reload)
