/* main.c: runs the catalogue: every file of tests/catalogue/, its requests first straight to the
 * daemon, then over TLS and then through HAProxy.
 *
 * Each file and way is a test of libcheck's, in a process of its own; counts come back through
 * shared memory, and the last line is their sum.  A mismatch is one line of output, and does not
 * end the file. */
#include <check.h>
#include <curl/curl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"
#include "cases.h"
#include "entries.h"
#include "files.h"
#include "proxy.h"
#include "requests.h"
#include "secret.h"
#include "verdict.h"
#include "watch.h"

#define FILES "tests/catalogue/*.txt"
#define TIMEOUT_S "900"
#define REQUESTS_MIN 400
#define STATE_ROWS 3 /* of the session that is exported for entries to edit */

enum way { DIRECT, SECURE, PROXIED, WAYS };

static const char *const way_words[WAYS] = {"", " (over TLS)", " (through HAProxy)"};

static struct counts {
    size_t requests[WAYS], files, mismatches, refused_through_proxy;
} * counts; /* shared with the tests' processes */

static glob_t paths;

/* ---- A daemon and its requests --------------------------------------------------------------- */

struct stand {
    struct catalogue catalogue;
    struct daemon daemon;
    struct proxy proxy;
    struct watch watch;
    struct text state; /* an exported session */
    enum way way;
    struct request_way to;
    char certificate[SECRET_PATH], key[SECRET_PATH]; /* files, of SECURE */
};

/* Makes the sessions that the file's entries expect, by its lines `before KEY METHOD PATH BODY`,
 * where KEY is an Idempotency-Key. */
static void prepare(struct stand *s)
{
    const struct line *line = NULL;
    while ((line = entry_line(&s->catalogue.head, "before", line)) != NULL) {
        char key[64], field[96], method[16], path[128], *body = strchr(line->value.data, '{');
        const char *const headers[] = {field, NULL};
        ck_assert_int_eq(sscanf(line->value.data, "%63s %15s %127s", key, method, path), 3);
        snprintf(field, sizeof field, "Idempotency-Key: %s", key);
        struct answer answer = client_send(
            &s->watch.looks,
            &(struct request){.method = method, .path = path, .body = body, .headers = headers});
        ck_assert_msg(answer.status / 100 == 2, "%s: %ld %s", line->value.data, answer.status,
                      answer.text);
        answer_free(&answer);
    }
}

static void export_state(struct stand *s)
{
    for (unsigned i = 0; i < STATE_ROWS; i++)
        expect_decode(&s->watch.looks, "source", i, i);
    struct answer answer = client_get(&s->watch.looks, "/sessions/source/state");
    expect_answer(&answer, 200, NULL, "export");
    text_bytes(&s->state, answer.text, answer.length);
    answer_free(&answer);
}

/* Starts the daemon, with a file of API keys where the catalogue's file has a line `keys`. */
static void start_daemon(struct stand *s)
{
    char path[SECRET_PATH], variable[SECRET_PATH + 16];
    const struct entry *head = &s->catalogue.head;
    const char *const variables[] = {variable, NULL};
    const char *const tls[] = {"--tls-cert", s->certificate, "--tls-key", s->key, NULL};
    bool keys = entry_line(head, "keys", NULL) != NULL;
    if (keys) {
        secret_write(path, entry_text(head, "keys"));
        snprintf(variable, sizeof variable, "ATTN_API_KEYS=%s", path);
    }
    if (s->way == SECURE)
        certificate_make(s->certificate, s->key);
    daemon_start(&s->daemon, entry_text(head, "daemon"), s->way == SECURE ? tls : NULL,
                 keys ? variables : NULL);
    s->daemon.trusted = s->way == SECURE ? s->certificate : NULL;
    if (keys) {
        s->daemon.authorization = entry_text(head, "as");
        unlink(path);
    }
}

static void set_up(struct stand *s)
{
    start_daemon(s);
    s->to = (struct request_way){s->daemon.port, s->way == SECURE, s->way == PROXIED};
    if (s->way == PROXIED) {
        proxy_start(&s->proxy, &s->daemon);
        s->to.port = s->proxy.port;
    }
    watch_open(&s->watch, &s->daemon, s->way == PROXIED ? s->to.port : 0);
    call_create(&s->watch.looks, "source", ",\"max_length\":100");
    prepare(s);
    export_state(s);
}

static void tear_down(struct stand *s)
{
    watch_close(&s->watch);
    if (s->way == PROXIED)
        proxy_stop(&s->proxy);
    daemon_stop(&s->daemon);
    if (s->way == SECURE) {
        unlink(s->certificate);
        unlink(s->key);
    }
    text_free(&s->state);
}

static void try_entry(struct stand *s, const struct entry *entry)
{
    char wrong[600];
    struct text bytes = {0};
    struct replies_seen seen = {.count = 0};
    bool differs = s->way == PROXIED && entry_line(entry, "proxy", NULL) != NULL;
    bool stepped = s->way == PROXIED && entry_line(entry, "proxy-step", NULL) != NULL;
    entry_check_keys(&s->catalogue, entry, request_keys);
    ck_assert_msg(entry_line(entry, "want", NULL) != NULL, "%s: wants nothing", entry->name);
    request_build(&bytes, &s->catalogue, entry, &s->state);
    watch_before(&s->watch);
    bool right = request_try(wrong, &seen, &s->to, entry, differs ? "proxy" : "want", &bytes);
    if (right)
        right =
            watch_after(wrong, &s->watch, stepped) && replies_are_logged(wrong, &seen, &s->daemon);
    else
        watch_after((char[600]){0}, &s->watch, stepped);
    if (!right)
        printf("%s:%u: %s%s: %s\n", s->catalogue.file, entry->number, entry->name,
               way_words[s->way], wrong);
    counts->requests[s->way]++;
    counts->refused_through_proxy += differs;
    counts->mismatches += !right;
    text_free(&bytes);
}

static void try_requests(const char *path, enum way way)
{
    struct stand s = {.way = way};
    catalogue_open(&s.catalogue, path, "");
    if (entry_line(&s.catalogue.head, "daemon", NULL) != NULL) {
        set_up(&s);
        for (size_t i = 0; i < s.catalogue.count; i++)
            try_entry(&s, &s.catalogue.entries[i]);
        tear_down(&s);
    }
    catalogue_close(&s.catalogue);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void try_files(const char *path)
{
    char dir[] = "/tmp/attnd-catalogue-XXXXXX", wrong[600];
    struct catalogue catalogue;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    catalogue_open(&catalogue, path, dir);
    bool requests = entry_line(&catalogue.head, "daemon", NULL) != NULL;
    for (size_t i = 0; i < catalogue.count && !requests; i++) {
        const struct entry *entry = &catalogue.entries[i];
        entry_check_keys(&catalogue, entry, file_keys);
        bool right = files_try(wrong, entry, dir);
        if (!right)
            printf("%s:%u: %s: %s\n", path, entry->number, entry->name, wrong);
        counts->files++;
        counts->mismatches += !right;
    }
    catalogue_close(&catalogue);
    rmdir(dir);
}

/* ---- Running --------------------------------------------------------------------------------- */

START_TEST(test_requests_are_refused_and_leave_no_trace)
{
    try_requests(paths.gl_pathv[_i], DIRECT);
}
END_TEST

START_TEST(test_requests_over_tls_are_refused_and_leave_no_trace)
{
    try_requests(paths.gl_pathv[_i], SECURE);
}
END_TEST

START_TEST(test_requests_through_a_proxy_are_refused_and_leave_no_trace)
{
    try_requests(paths.gl_pathv[_i], PROXIED);
}
END_TEST

START_TEST(test_files_and_arguments_are_refused) { try_files(paths.gl_pathv[_i]); }
END_TEST

static Suite *suite_catalogue(void)
{
    Suite *suite = suite_create("catalogue");
    TCase *cases = suite_cases(suite, "catalogue", NULL, NULL, 0);
    int n = (int)paths.gl_pathc;
    tcase_add_loop_test(cases, test_requests_are_refused_and_leave_no_trace, 0, n);
    tcase_add_loop_test(cases, test_requests_over_tls_are_refused_and_leave_no_trace, 0, n);
    tcase_add_loop_test(cases, test_requests_through_a_proxy_are_refused_and_leave_no_trace, 0, n);
    tcase_add_loop_test(cases, test_files_and_arguments_are_refused, 0, n);
    return suite;
}

int main(void)
{
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED || setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0) != 0 ||
        glob(FILES, 0, NULL, &paths) != 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return EXIT_FAILURE;
    SRunner *runner = srunner_create(suite_catalogue());
    srunner_run_all(runner, CK_ENV);
    const bool ran = srunner_ntests_failed(runner) == 0; /* no test broke off */
    srunner_free(runner);
    globfree(&paths);
    curl_global_cleanup();
    const struct verdict_condition conditions[] = {
        VERDICT(ran),
        VERDICT(counts->mismatches == 0),
        VERDICT(counts->requests[DIRECT] >= REQUESTS_MIN),
        VERDICT(counts->requests[SECURE] == counts->requests[DIRECT]),
        VERDICT(counts->requests[PROXIED] == counts->requests[DIRECT]),
        VERDICT(counts->files > 0),
    };
    const bool right = VERDICTS("catalogue", conditions);
    printf("catalogue: %zu cases: %zu requests direct, %zu over TLS and %zu through HAProxy (%zu "
           "as HAProxy has them), %zu of files and arguments; %zu mismatches%s\n",
           counts->requests[DIRECT] + counts->files, counts->requests[DIRECT],
           counts->requests[SECURE], counts->requests[PROXIED], counts->refused_through_proxy,
           counts->files, counts->mismatches, right ? ": ok" : ": FAILED");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
