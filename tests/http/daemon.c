/* daemon.c: starts a daemon from the text of a configuration, waits until it is ready, and ends
 * it. */
#include "daemon.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_SECONDS 120
#define STOP_SECONDS 120
#define POLL_MS 2
#define LOG_WAIT_MS 60000
#define SHOWN_BYTES 20000 /* of a log */

void config_write(char directory[64], char path[96], const char *config)
{
    snprintf(directory, 64, "/tmp/attnd-http-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, 96, "%s/config.json", directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(config, file);
    ck_assert_int_eq(fclose(file), 0);
}

void config_remove(const char *directory)
{
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", directory);
    unlink(path);
    rmdir(directory);
}

/* Reads "attnd: ready on http://HOST:PORT\n", or https; false while the line is not whole. */
static bool read_ready(struct daemon *daemon)
{
    static const char begin[] = "attnd: ready on ";
    char *text = process_text(daemon->process.out);
    const char *line = strstr(text, begin);
    bool whole = line != NULL && strchr(line, '\n') != NULL;
    if (whole) {
        line += strlen(begin);
        snprintf(daemon->url, sizeof daemon->url, "%.*s", (int)strcspn(line, "\n"), line);
    }
    free(text);
    return whole;
}

/* Splits the url into host, without brackets, and port. */
static void split_url(struct daemon *daemon)
{
    const char *host = strstr(daemon->url, "://"), *colon = strrchr(daemon->url, ':');
    ck_assert_int_eq(strncmp(daemon->url, "http", 4), 0);
    ck_assert_ptr_nonnull(host);
    host += strlen("://");
    bool v6 = host[0] == '[';
    int length = (int)(colon - host) - 2 * v6;
    snprintf(daemon->host, sizeof daemon->host, "%.*s", length, host + v6);
    daemon->port = (unsigned)strtoul(colon + 1, NULL, 10);
    ck_assert_uint_gt(daemon->port, 0);
}

/* Ends the daemon, and fails the test with the end of its log. */
static void fail_with_log(struct daemon *daemon, const char *what, int status)
{
    daemon_show_log(daemon);
    process_end(&daemon->process);
    ck_abort_msg("the daemon %s (wait status 0x%x); what it wrote is above", what,
                 (unsigned)status);
}

void daemon_start(struct daemon *daemon, const char *config, const char *const arguments[],
                  const char *const variables[])
{
    char path[96];
    const char *words[PROCESS_MAX_WORDS] = {"--config", path};
    const char *environment[PROCESS_MAX_WORDS] = {"ATTN_ALLOWED_HOSTS=" DAEMON_HOSTS};
    int status = 0;
    bool ended = false;
    for (size_t i = 0; arguments != NULL && arguments[i] != NULL; i++)
        words[i + 2] = arguments[i];
    for (size_t i = 0; variables != NULL && variables[i] != NULL; i++)
        environment[i + 1] = variables[i];
    daemon->authorization = daemon->trusted = NULL;
    config_write(daemon->directory, path, config);
    process_start(&daemon->process, words, environment);
    bool ready = read_ready(daemon);
    for (unsigned waited = 0; !ready && !ended && waited < READY_SECONDS * 1000;
         waited += POLL_MS) {
        pause_ms(POLL_MS);
        ended = process_wait(&status, &daemon->process, 0);
        ready = read_ready(daemon);
    }
    config_remove(daemon->directory);
    if (!ready || ended)
        fail_with_log(daemon, "did not get ready", status);
    split_url(daemon);
}

void daemon_terminate(const struct daemon *daemon)
{
    ck_assert_int_eq(kill(daemon->process.pid, SIGTERM), 0);
}

void daemon_expect_end(struct daemon *daemon)
{
    int status = 0;
    if (!process_wait(&status, &daemon->process, STOP_SECONDS))
        fail_with_log(daemon, "did not end", status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_with_log(daemon, "failed", status);
}

void daemon_stop(struct daemon *daemon)
{
    daemon_terminate(daemon);
    daemon_expect_end(daemon);
    process_end(&daemon->process);
}

char *daemon_log(const struct daemon *daemon) { return process_text(daemon->process.err); }

char *daemon_log_with(const struct daemon *daemon, const char *words)
{
    char *log = daemon_log(daemon);
    for (unsigned waited = 0; strstr(log, words) == NULL; waited++) {
        ck_assert_msg(waited < LOG_WAIT_MS, "no \"%s\" in %s", words, log);
        free(log);
        pause_ms(1);
        log = daemon_log(daemon);
    }
    return log;
}

void daemon_show_log(const struct daemon *daemon)
{
    char *text = daemon_log(daemon);
    size_t length = strlen(text);
    fprintf(stderr, "%s\n", length > SHOWN_BYTES ? text + length - SHOWN_BYTES : text);
    free(text);
}

char *daemon_status(const struct daemon *daemon, pid_t thread)
{
    static const size_t size = 8192;
    char path[96], *text = malloc(size);
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/status", (long)daemon->process.pid,
             (long)thread);
    FILE *file = fopen(path, "re");
    ck_assert(text != NULL && file != NULL);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    return text;
}

unsigned long daemon_status_number(const struct daemon *daemon, pid_t thread, const char *name,
                                   int base)
{
    char line[64], *text = daemon_status(daemon, thread);
    snprintf(line, sizeof line, "\n%s:", name);
    const char *found = strstr(text, line);
    ck_assert_msg(found != NULL, "no %s in %s", name, text);
    unsigned long number = strtoul(found + strlen(line), NULL, base);
    free(text);
    return number;
}

size_t daemon_threads(pid_t out[DAEMON_MAX_THREADS], const struct daemon *daemon)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)daemon->process.pid);
    DIR *tasks = opendir(path);
    ck_assert_ptr_nonnull(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread == 0 || thread == daemon->process.pid)
            continue;
        ck_assert_uint_lt(count, DAEMON_MAX_THREADS);
        out[count++] = thread;
    }
    closedir(tasks);
    return count;
}

double daemon_cpu_s(const struct daemon *daemon)
{
    char path[64];
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)daemon->process.pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    int read = fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                      &user, &kernel);
    fclose(file);
    ck_assert_int_eq(read, 2);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}
