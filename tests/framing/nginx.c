/* nginx.c: a configuration made of nginx.conf, in a directory of its own. */
#include "nginx.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text.h"

#define TEMPLATE "tests/framing/nginx.conf"
#define READY_MS 20000
#define POLL_MS 5
#define END_SECONDS 20

static char *read_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "cannot open %s", path);
    char *text = process_text(fd);
    close(fd);
    return text;
}

/* Writes the configuration, with the words between @ replaced by numbers and the directory. */
static void write_configuration(const struct nginx *nginx, const struct daemon *daemon,
                                const char *path)
{
    struct text out = {0};
    char *template = read_file(TEMPLATE), *end;
    for (char *at = template; *at != '\0'; at = end) {
        end = at + strcspn(at, "@");
        text_bytes(&out, at, (size_t)(end - at));
        if (*end == '\0')
            break;
        at = end + 1;
        size_t length = strcspn(at, "@");
        if (strncmp(at, "DIRECTORY", length) == 0)
            text_add(&out, "%s", nginx->directory);
        else if (strncmp(at, "SERVER_PORT", length) == 0)
            text_add(&out, "%u", daemon->port);
        else
            text_add(&out, "%u", nginx->ports[strncmp(at, "STREAMING_PORT", length) == 0]);
        end = at + length + 1;
    }
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(out.data, 1, out.length, file), out.length);
    ck_assert_int_eq(fclose(file), 0);
    text_free(&out);
    free(template);
}

static const char *program(void)
{
    const char *named = getenv("NGINX_PROGRAM");
    return named != NULL ? named : "/usr/sbin/nginx";
}

/* Binds a port that the kernel gives without listening: nginx may bind it as well, and nobody else
 * gets it meanwhile. */
static int hold_port(unsigned *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int shared = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* nginx writes the file of its id when it listens. */
static void wait_until_ready(struct nginx *nginx)
{
    char path[96];
    int status;
    snprintf(path, sizeof path, "%s/nginx.pid", nginx->directory);
    for (unsigned waited = 0; access(path, F_OK) != 0; waited += POLL_MS) {
        bool ended = process_wait(&status, &nginx->process, 0);
        char *text = process_text(nginx->process.err);
        ck_assert_msg(!ended && waited < READY_MS, "nginx (%s) does not serve: %s", program(),
                      text);
        free(text);
        pause_ms(POLL_MS);
    }
}

void nginx_start(struct nginx *nginx, const struct daemon *daemon)
{
    char path[96];
    const char *const arguments[] = {"-c", path, "-e", "stderr", NULL};
    snprintf(nginx->directory, sizeof nginx->directory, "/tmp/attnd-nginx-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(nginx->directory));
    snprintf(path, sizeof path, "%s/nginx.conf", nginx->directory);
    int first = hold_port(&nginx->ports[0]), second = hold_port(&nginx->ports[1]);
    write_configuration(nginx, daemon, path);
    process_start_program(&nginx->process, program(), arguments, NULL);
    wait_until_ready(nginx);
    close(first);
    close(second);
}

char *nginx_stop(struct nginx *nginx)
{
    char path[96], command[96];
    int status;
    ck_assert_int_eq(kill(nginx->process.pid, SIGQUIT), 0);
    ck_assert_msg(process_wait(&status, &nginx->process, END_SECONDS), "nginx does not end");
    process_end(&nginx->process);
    snprintf(path, sizeof path, "%s/access.log", nginx->directory);
    char *log = read_file(path);
    snprintf(command, sizeof command, "rm -rf %s", nginx->directory);
    ck_assert_int_eq(system(command), 0);
    return log;
}
