/* inspected.c: a process as /proc shows it. */
#include "inspected.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"

#define BACKLOG 64 /* connections that wait to be accepted */

/* ---- Ports ----------------------------------------------------------------------------------- */

/* Whether a descriptor of the process is the socket of that inode. */
static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[300], target[64], want[64];
    bool found = false;
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    for (const struct dirent *e; !found && directory != NULL && (e = readdir(directory)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.200s", (int)pid, e->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, want) == 0;
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

/* The port on which the process listens; 0 for none. */
static unsigned find_port(pid_t pid)
{
    char line[512];
    unsigned port = 0;
    FILE *sockets = fopen("/proc/net/tcp", "re");
    ck_assert_ptr_nonnull(sockets);
    while (port == 0 && fgets(line, sizeof line, sockets) != NULL) {
        unsigned at, state;
        unsigned long inode;
        bool listens = sscanf(line, "%*d: %*x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &at, &state,
                              &inode) == 3 &&
                       state == 10;
        if (listens && has_socket(pid, inode))
            port = at;
    }
    fclose(sockets);
    return port;
}

unsigned inspected_await_port(pid_t pid, unsigned timeout_ms)
{
    unsigned port = 0;
    for (unsigned waited = 0; port == 0; waited++) {
        ck_assert_msg(waited < timeout_ms, "process %d does not listen", (int)pid);
        pause_ms(1);
        port = find_port(pid);
    }
    return port;
}

bool inspected_accepts(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    bool accepted = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return accepted;
}

int inspected_listen(unsigned *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(fd >= 0 && bind(fd, (const struct sockaddr *)&address, size) == 0);
    ck_assert(listen(fd, BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

#define PIECE ((size_t)1 << 20)

/* Whether the bytes from `at` up to `end` hold the text; pages that cannot be read hold nothing. */
static bool range_holds(int memory, unsigned long at, unsigned long end, const char *text)
{
    size_t length = strlen(text);
    char *piece = malloc(PIECE + length);
    bool found = false;
    ck_assert_ptr_nonnull(piece);
    for (; at < end && !found; at += PIECE) {
        ssize_t got = pread(memory, piece, PIECE + length, (off_t)at);
        found = got > 0 && memmem(piece, (size_t)got, text, length) != NULL;
    }
    free(piece);
    return found;
}

bool inspected_memory_holds(pid_t pid, const char *text)
{
    char path[64], line[512], rights[5];
    bool found = false;
    unsigned long at, end;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(maps != NULL && memory >= 0, "the memory of %d cannot be read", (int)pid);
    while (!found && fgets(line, sizeof line, maps) != NULL)
        found = sscanf(line, "%lx-%lx %4s", &at, &end, rights) == 3 &&
                strncmp(rights, "rw", 2) == 0 && range_holds(memory, at, end, text);
    fclose(maps);
    close(memory);
    return found;
}
