/* proxy.c: HAProxy gets a listening socket that is made here, on a port that the kernel gives.  So
 * no port has to be guessed, and a client that connects early waits in the kernel's queue. */
#include "proxy.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspected.h"
#include "raw.h"

#define CONFIG "tests/catalogue/haproxy.cfg"
#define READY_MS 20000
#define END_SECONDS 20

static const char *program(void)
{
    const char *named = getenv("HAPROXY");
    return named != NULL ? named : "/usr/sbin/haproxy";
}

void proxy_start(struct proxy *proxy, const struct daemon *daemon)
{
    static const char *const arguments[] = {"-db", "-f", CONFIG, NULL};
    char listen_fd[32], server_port[32];
    int fd = inspected_listen(&proxy->port);
    ck_assert_int_eq(fcntl(fd, F_SETFD, 0), 0); /* HAProxy inherits it */
    snprintf(listen_fd, sizeof listen_fd, "LISTEN_FD=%d", fd);
    snprintf(server_port, sizeof server_port, "SERVER_PORT=%u", daemon->port);
    const char *const variables[] = {listen_fd, server_port, NULL};
    process_start_program(&proxy->process, program(), arguments, variables);
    close(fd);
    struct raw_answer answer =
        raw_exchange("127.0.0.1", proxy->port, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", READY_MS);
    char *text = process_text(proxy->process.err);
    ck_assert_msg(answer.status == 200, "HAProxy (%s) does not serve: %u %s", program(),
                  answer.status, text);
    free(text);
    raw_answer_free(&answer);
}

void proxy_stop(struct proxy *proxy) { process_end(&proxy->process); }

char *proxy_drain(struct proxy *proxy)
{
    int status;
    ck_assert_int_eq(kill(proxy->process.pid, SIGUSR1), 0);
    ck_assert_msg(process_wait(&status, &proxy->process, END_SECONDS), "HAProxy does not end");
    char *log = process_text(proxy->process.out);
    process_end(&proxy->process);
    return log;
}
