/* test_notify.c: what the daemon tells the service manager that started it, and when: READY=1 not
 * before /readyz is 200. */
#include <check.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "inspected.h"
#include "raw.h"
#include "secret.h"
#include "served.h"
#include "suites.h"

#define WAIT_MS 120000
#define SOON_MS 20000
#define DATAGRAM_MAX 4096

/* The socket of a service manager, and the variable that names it. */
struct manager {
    int fd;
    char path[64]; /* "" where the name is abstract */
    char variable[96];
};

static void manager_open(struct manager *manager, bool abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = WAIT_MS / 1000};
    socklen_t length = sizeof address;
    static unsigned count;
    snprintf(manager->path, sizeof manager->path, "/tmp/attnd-notify-%ld-%u", (long)getpid(),
             count++);
    snprintf(manager->variable, sizeof manager->variable, "NOTIFY_SOCKET=%s%s", abstract ? "@" : "",
             manager->path);
    snprintf(address.sun_path + abstract, sizeof address.sun_path - abstract, "%s", manager->path);
    if (abstract)
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(manager->path));
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(manager->fd, 0);
    ck_assert_int_eq(setsockopt(manager->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience),
                     0);
    ck_assert_int_eq(bind(manager->fd, (const struct sockaddr *)&address, length), 0);
    if (abstract)
        manager->path[0] = '\0';
}

static void manager_close(struct manager *manager)
{
    close(manager->fd);
    if (manager->path[0] != '\0')
        unlink(manager->path);
}

/* Waits for the next datagram, whose first line must be `line`; returns its MONOTONIC_USEC. */
static uint64_t expect(const struct manager *manager, const char *line)
{
    char text[DATAGRAM_MAX + 1];
    ssize_t length = recv(manager->fd, text, DATAGRAM_MAX, 0);
    ck_assert_msg(length > 0, "no datagram with %s", line);
    text[length] = '\0';
    const char *time = strstr(text, "MONOTONIC_USEC=");
    ck_assert_msg(strncmp(text, line, strlen(line)) == 0, "%s, not %s", text, line);
    ck_assert_msg(time != NULL && strstr(text, "\nSTATUS=") != NULL, "%s", text);
    return strtoull(time + strlen("MONOTONIC_USEC="), NULL, 10);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Weights of some hundred megabytes, drawn at random, take a second or more. */
#define LOADING_CONFIG                                                                      \
    "{\"port\":0,\"threads\":1,\"memory_limit\":\"64GiB\",\"models\":[{\"name\":\"large\"," \
    "\"dtype\":\"int8\",\"random\":{\"hidden_size\":2048,\"num_attention_heads\":16,"       \
    "\"num_hidden_layers\":12}}]}"

static unsigned readyz(unsigned port)
{
    struct raw_answer answer =
        raw_exchange("127.0.0.1", port, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", SOON_MS);
    unsigned status = answer.status;
    raw_answer_free(&answer);
    return status;
}

CASE(service_manager, NULL, NULL, 300)

TEST(ready_is_told_once_readyz_is_200_and_not_before)
{
    struct manager manager;
    struct process process;
    char directory[64], path[96];
    const char *const arguments[] = {"--config", path, NULL};
    manager_open(&manager, false);
    config_write(directory, path, LOADING_CONFIG);
    process_start(&process, arguments, (const char *const[]){manager.variable, NULL});
    expect(&manager, "MONOTONIC_USEC=");
    unsigned port = inspected_await_port(process.pid, WAIT_MS);
    ck_assert_uint_eq(readyz(port), 503);
    expect(&manager, "READY=1\n");
    ck_assert_uint_eq(readyz(port), 200);
    process_end(&process);
    config_remove(directory);
    manager_close(&manager);
}

/* Nobody listens, the address is no address, it is too long. */
TEST(a_manager_that_cannot_be_told_does_not_stop_the_daemon)
{
    static const char *const named[] = {
        "NOTIFY_SOCKET=/tmp/attnd-notify-nobody", "NOTIFY_SOCKET=vsock:2:1", "NOTIFY_SOCKET=@",
        "NOTIFY_SOCKET=/tmp/"
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < COUNT(named); i++) {
        daemon_start(&served, CONFIG_SMALL(""), NULL, (const char *const[]){named[i], NULL});
        char *log = daemon_log(&served);
        ck_assert_msg(strstr(log, "\"event\":\"notify\",\"message\":\"NOTIFY_SOCKET: ") != NULL,
                      "%s: %s", named[i], log);
        free(log);
        ck_assert_uint_eq(readyz(served.port), 200);
        daemon_stop(&served);
    }
    daemon_start(&served, CONFIG_SMALL(""), NULL, (const char *const[]){"NOTIFY_SOCKET=", NULL});
    char *log = daemon_log(&served);
    ck_assert_msg(strstr(log, "notify") == NULL, "%s", log);
    free(log);
    daemon_stop(&served);
}

CASE(sandboxed, NULL, NULL, 300)

TEST(a_reload_and_the_end_are_told_from_within_the_sandbox)
{
    struct manager manager;
    char keys[SECRET_PATH];
    secret_write(keys, KEYS_THREE);
    const char *const arguments[] = {"--sandbox", "on", "--api-keys", keys, NULL};
    manager_open(&manager, true);
    const char *const variables[] = {manager.variable, PROCESS_NO_LEAKS, NULL};
    daemon_start(&served, CONFIG_SMALL(""), arguments, variables);
    expect(&manager, "MONOTONIC_USEC=");
    expect(&manager, "READY=1\n");
    for (unsigned reloads = 0; reloads < 2; reloads++) {
        uint64_t before = now_us();
        ck_assert_int_eq(kill(served.process.pid, SIGHUP), 0);
        uint64_t told = expect(&manager, "RELOADING=1\n");
        ck_assert(told >= before && told <= now_us());
        expect(&manager, "READY=1\n");
    }
    daemon_terminate(&served);
    expect(&manager, "STOPPING=1\n");
    daemon_expect_end(&served);
    process_end(&served.process);
    unlink(keys);
    manager_close(&manager);
}

SUITE(notify)
