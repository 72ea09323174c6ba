/* test_phases.c: from the start to the end of a daemon: what is answered while models load and
 * while requests drain, health checks, descriptors, memory that goes back to the system. */
#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "inspected.h"
#include "long_call.h"
#include "raw.h"
#include "scratch.h"
#include "served.h"
#include "suites.h"
#include "waiting.h"

/* ---- Start and stop -------------------------------------------------------------------------- */

/* Weights of some hundred megabytes, drawn at random, take a second or more. */
#define LOADING_CONFIG                                                                      \
    "{\"port\":0,\"threads\":1,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"large\"," \
    "\"dtype\":\"int8\",\"random\":{\"hidden_size\":2048,\"num_attention_heads\":16,"       \
    "\"num_hidden_layers\":24}}]}"

struct starting {
    struct process process;
    char directory[SCRATCH_PATH], path[96];
    struct daemon daemon; /* host and port, for raw_exchange */
};

/* Starts a daemon that loads, and waits until its port is open. */
static void start_loading(struct starting *starting, const char *option, const char *value)
{
    const char *const arguments[] = {
        "--config", starting->path, "--allowed-hosts", DAEMON_HOSTS, option, value, NULL};
    config_write(starting->directory, starting->path, LOADING_CONFIG);
    process_start(&starting->process, arguments, NULL);
    starting->daemon.port = inspected_await_port(starting->process.pid, WAIT_MS);
}

static void end_loading(struct starting *starting)
{
    process_end(&starting->process);
    config_remove(starting->directory);
}

static void expect_get(unsigned port, const char *path, unsigned status, const char *part)
{
    char text[128];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    struct raw_answer answer = raw_exchange("127.0.0.1", port, text, WAIT_MS);
    ck_assert_msg(answer.status == status, "%s: %u %s", path, answer.status, answer.body);
    ck_assert_msg(strstr(answer.body, part) != NULL, "%s: %s", path, answer.body);
    raw_answer_free(&answer);
}

TEST(while_models_load_only_health_metrics_and_the_page_answer)
{
    struct starting starting;
    start_loading(&starting, NULL, NULL);
    unsigned port = starting.daemon.port;
    expect_get(port, "/readyz", 503, "\"loading\"");
    expect_get(port, "/livez", 200, "\"phase\":\"loading\"");
    expect_get(port, "/metrics", 200, "attnd_ready 0");
    expect_get(port, "/", 200, "<!doctype html>");
    expect_get(port, "/models", 503, "\"loading\"");
    expect_get(port, "/sessions", 503, "\"loading\"");
    expect_get(port, "/readyz", 503, " of 384 MiB"); /* so it was loading all the time */
    end_loading(&starting);
}

/* Starts the daemon with its standard output on a terminal, of which *master is the other end. */
static pid_t start_on_terminal(int *master, const char *config)
{
    int terminal;
    const char *program = getenv("ATTND");
    ck_assert_int_eq(openpty(master, &terminal, NULL, NULL, NULL), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(terminal, STDOUT_FILENO) >= 0)
            execl(program != NULL ? program : "build/attnd", "attnd", "--config", config,
                  "--lame-duck-s", "0", (char *)NULL);
        _exit(127);
    }
    close(terminal);
    return child;
}

/* What the terminal shows until its line with an address is there. */
static void read_terminal(char *out, size_t size, int master)
{
    struct pollfd ready = {.fd = master, .events = POLLIN};
    size_t length = 0;
    out[0] = '\0';
    while (strstr(out, "http://") == NULL && length + 1 < size) {
        ck_assert_msg(poll(&ready, 1, WAIT_MS) == 1, "the terminal shows: %s", out);
        const ssize_t count = read(master, out + length, size - 1 - length);
        ck_assert_msg(count > 0, "the terminal shows: %s", out);
        length += (size_t)count;
        out[length] = '\0';
    }
}

TEST(a_terminal_shows_how_far_loading_is_and_then_the_address)
{
    static char shown[65536];
    int master, status;
    unsigned done, rate, left;
    char directory[SCRATCH_PATH], path[96];
    config_write(directory, path, LOADING_CONFIG);
    const pid_t child = start_on_terminal(&master, path);
    read_terminal(shown, sizeof shown, master);
    kill(child, SIGTERM);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    close(master);
    config_remove(directory);
    const char *line = shown, *address = strstr(shown, "attnd: ready on ");
    ck_assert_ptr_nonnull(address);
    for (int rated = 0; rated == 0; line++) { /* the first lines have no rate yet */
        line = strstr(line, "\rattnd: loading weights: ");
        ck_assert_msg(line != NULL, "no rate in: %s", shown);
        rated = sscanf(line, "\rattnd: loading weights: %u of 384 MiB, %u MiB/s, %u s left\033[K",
                       &done, &rate, &left) == 3;
    }
    ck_assert_uint_lt(done, 384);
    ck_assert_uint_gt(rate, 0);
    ck_assert(address - shown > 4 && memcmp(address - 4, "\r\033[K", 4) == 0); /* cleared */
    ck_assert_ptr_null(strchr(address, '\033'));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_file_gets_no_line_of_loading_and_no_code_of_a_terminal)
{
    struct starting starting;
    start_loading(&starting, NULL, NULL);
    char *out = NULL;
    for (unsigned waited = 0; out == NULL; waited += 10) {
        ck_assert_uint_lt(waited, WAIT_MS);
        pause_ms(10);
        out = process_text(starting.process.out);
        if (strstr(out, "http://") == NULL) {
            free(out);
            out = NULL;
        }
    }
    char *err = process_text(starting.process.err);
    ck_assert_msg(strpbrk(out, "\r\033") == NULL && strpbrk(err, "\r\033") == NULL, "%s%s", out,
                  err);
    ck_assert_ptr_null(strstr(out, "loading"));
    free(out);
    free(err);
    end_loading(&starting);
}

TEST(a_signal_while_models_load_ends_it_at_once_with_success)
{
    struct starting starting;
    int status;
    start_loading(&starting, NULL, NULL);
    expect_get(starting.daemon.port, "/readyz", 503, "\"loading\"");
    ck_assert_int_eq(kill(starting.process.pid, SIGTERM), 0);
    ck_assert(process_wait(&status, &starting.process, 60));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char *out = process_text(starting.process.out);
    ck_assert_ptr_null(strstr(out, "ready"));
    free(out);
    end_loading(&starting);
}

/* Asks with --health-check; returns its exit status, or -1 where that takes too long. */
static int health_check(unsigned port)
{
    char digits[16], *out, *err;
    const char *const arguments[] = {"--health-check", "--port", digits, NULL};
    snprintf(digits, sizeof digits, "%u", port);
    int status = process_run(&out, &err, arguments, NULL);
    free(out);
    free(err);
    return status;
}

TEST(a_health_check_fails_while_models_load)
{
    struct starting starting;
    start_loading(&starting, NULL, NULL);
    ck_assert_int_eq(health_check(starting.daemon.port), 1);
    expect_get(starting.daemon.port, "/readyz", 503, "\"loading\"");
    end_loading(&starting);
}

TEST(a_health_check_of_a_port_that_says_nothing_ends_after_three_seconds)
{
    struct timespec start;
    unsigned port;
    int listener = inspected_listen(&port);
    clock_gettime(CLOCK_MONOTONIC, &start);
    ck_assert_int_eq(health_check(port), 1);
    ck_assert_msg(seconds_since(&start) > 2.5, "%.2f s", seconds_since(&start));
    ck_assert_msg(seconds_since(&start) < 20, "%.2f s", seconds_since(&start));
    close(listener);
}

TEST(sessions_that_cannot_be_saved_at_the_end_make_the_exit_status_1)
{
    char directory[SCRATCH_PATH];
    const char *const arguments[] = {"--durability", "snapshot", "--state-dir", directory, NULL};
    int status;
    scratch_make(directory);
    daemon_start(&served, CONFIG_SMALL(""), arguments, NULL);
    client_open(&client, &served);
    call_create(&client, "s", "");
    expect_decode(&client, "s", 1, 0);
    scratch_remove(directory);
    client_close(&client);
    daemon_terminate(&served);
    ck_assert(process_wait(&status, &served.process, 60));
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 1);
    process_end(&served.process);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Expects at least so many files, none of them open to others. */
static void expect_private_files(const char *directory, size_t least)
{
    size_t files = 0;
    DIR *all = opendir(directory);
    ck_assert_ptr_nonnull(all);
    for (const struct dirent *e; (e = readdir(all)) != NULL;) {
        struct stat about;
        ck_assert_int_eq(fstatat(dirfd(all), e->d_name, &about, 0), 0);
        if (!S_ISREG(about.st_mode))
            continue;
        ck_assert_msg((about.st_mode & 07777) == 0600, "%s: %o", e->d_name, about.st_mode);
        files++;
    }
    closedir(all);
    ck_assert_uint_ge(files, least);
}

TEST(no_file_of_the_state_directory_is_open_to_others)
{
    char directory[SCRATCH_PATH];
    const char *const arguments[] = {"--durability", "journal", "--state-dir", directory, NULL};
    scratch_make(directory);
    mode_t mask = umask(0);
    daemon_start(&served, CONFIG_SMALL(""), arguments, NULL);
    umask(mask);
    client_open(&client, &served);
    call_create(&client, "s", "");
    expect_decode(&client, "s", 1, 0);
    call_snapshot(&client);
    expect_private_files(directory, 6); /* lock, identity, journal, manifest, copy, blocks */
    serve_end();
    scratch_remove(directory);
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

#define HARD 500     /* descriptors */
#define RESERVED 196 /* 64 for files, and 132 for an event thread */
#define PROBING 32   /* connections beyond max_connections, of an event thread */
#define CROWD 400

/* Lowers the limit on descriptors of this process, whose children inherit it. */
static void limit_descriptors(rlim_t soft, rlim_t hard)
{
    const struct rlimit files = {soft, hard};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}

TEST(the_limit_of_descriptors_is_raised_and_connections_are_kept_below_it)
{
    static struct raw crowd[CROWD];
    struct rlimit files;
    struct rlimit own;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &own), 0);
    limit_descriptors(HARD / 2, HARD);
    serve_small();
    ck_assert_int_eq(prlimit(served.process.pid, RLIMIT_NOFILE, NULL, &files), 0);
    ck_assert_uint_eq(files.rlim_cur, HARD);
    limit_descriptors(HARD, HARD);
    ck_assert_int_eq(call_status(&client, "nobody"), 404);
    for (size_t i = 0; i < CROWD; i++)
        raw_open(&crowd[i], served.host, served.port);
    ck_assert(raw_text(&crowd[CROWD - 1], LIVEZ));
    raw_expect_status(&crowd[CROWD - 1], 200);
    ck_assert_double_eq(call_metric(&client, "attnd_connections_limit"), HARD - RESERVED);
    ck_assert_double_ge(call_metric(&client, "attnd_connections"), HARD - RESERVED);
    ck_assert_double_le(call_metric(&client, "process_open_fds"), HARD - RESERVED + PROBING + 64);
    for (size_t i = 0; i < CROWD; i++)
        raw_close(&crowd[i]);
    serve_end();
}

/* ---- Memory ---------------------------------------------------------------------------------- */

#define MANY 4000      /* sessions, of some KiB each in many small pieces */
#define WAIT_TRIM_S 60 /* attnd says ten, and a busy machine may be late */
#define MANY_CONFIG                                                                  \
    "{\"port\":0,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"m\",\"random\":" \
    "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_hidden_layers\":32}}]}"

static unsigned long resident_kib(void)
{
    return daemon_status_number(&served, served.process.pid, "VmRSS", 10);
}

/* Returns the resident memory with all of them. */
static unsigned long make_and_delete_many(void)
{
    char text[64];
    for (unsigned i = 0; i <= MANY; i++) {
        snprintf(text, sizeof text, "{\"session_id\":\"s%u\"}", i);
        expect_posted(&client, "/sessions", text, 201, NULL);
    }
    unsigned long most = resident_kib();
    for (unsigned i = 0; i < MANY; i++) { /* the last one lies above the others */
        snprintf(text, sizeof text, "s%u", i);
        call_delete(&client, text);
    }
    return most;
}

TEST_EACH(freed_memory_goes_back_to_the_system, !INSTRUMENTED)
{
    serve(MANY_CONFIG);
    unsigned long before = resident_kib();
    unsigned long most = make_and_delete_many();
    ck_assert_msg(most > before + 4096, "too little to tell: %lu of %lu KiB", most, before);
    unsigned waited = 0;
    while (resident_kib() > before + (most - before) / 2 && waited++ < 10 * WAIT_TRIM_S)
        pause_ms(100);
    ck_assert_msg(waited < 10 * WAIT_TRIM_S, "%lu KiB remain of %lu", resident_kib(), most);
    serve_end();
}

CASE(timed, NULL, NULL, 0)

TEST(while_it_drains_connections_are_refused_and_replies_are_the_last_of_theirs)
{
    struct long_call call;
    struct raw kept;
    bool refused = false;
    serve(SLOW_CONFIG);
    raw_open(&kept, served.host, served.port);
    ck_assert(raw_text(&kept, LIVEZ));
    raw_expect_status(&kept, 200);
    long_begin(&call, &client, "", 5120);
    daemon_terminate(&served);
    for (unsigned tries = 0; !refused && tries < SOON_MS / 2; tries++) {
        pause_ms(2);
        refused = !inspected_accepts(served.port);
    }
    ck_assert_msg(refused && !atomic_load(&call.answered), "no connection was refused");
    ck_assert(raw_text(&kept, "GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n"));
    struct raw_answer answer = raw_read(&kept, false, WAIT_MS);
    char value[256];
    ck_assert_uint_eq(answer.status, 503);
    ck_assert(raw_header(value, &answer, "Connection"));
    ck_assert_str_eq(value, "close");
    raw_answer_free(&answer);
    ck_assert(raw_read_to_end(&kept, SOON_MS));
    raw_close(&kept);
    long_end(&call, 200, NULL);
    client_close(&client);
    daemon_expect_end(&served);
}

CASE(sandboxed, NULL, NULL, 0)

TEST(a_sandbox_takes_new_privileges_away_before_models_load)
{
    struct starting starting;
    start_loading(&starting, "--sandbox", "on");
    starting.daemon.process = starting.process;
    ck_assert_uint_eq(
        daemon_status_number(&starting.daemon, starting.process.pid, "NoNewPrivs", 10), 1);
    expect_get(starting.daemon.port, "/readyz", 503, "\"loading\"");
    end_loading(&starting);
}

SUITE(phases)
