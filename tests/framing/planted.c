/* planted.c: a relay that passes bytes on, and changes some of them.  Text is replaced by text of
 * the same length, so that a relay needs to know nothing of HTTP: attnd behind it is then a server
 * that does not know chunks, or lengths, and so on. */
#include "planted.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inspected.h"
#include "process.h"
#include "raw.h"

#define PIECE 65536
#define IDLE_MS 60000

enum direction { TO_ATTND, TO_CLIENT };

/* The first text becomes the second; without a second, the piece that holds it is sent twice, or
 * not at all. */
static const struct defect {
    const char *name;
    enum direction direction;
    const char *from, *to;
    bool twice;
} defects[PLANTED_COUNT] = {
    {.name = "chunks are not known",
     .from = "\r\nTransfer-Encoding",
     .to = "\r\nX-ransfer-Encoding"},
    {.name = "lengths are not known", .from = "\r\nContent-Length", .to = "\r\nX-ntent-Length"},
    {.name = "a second length is overlooked",
     .from = "\r\nContent-Length: 0\r\n",
     .to = "\r\nX-ntent-Length: 0\r\n"},
    {.name = "a request comes twice", .from = "GET /livez HTTP/1.1\r\nHost", .twice = true},
    {.name = "a reply is lost", .direction = TO_CLIENT, .from = "\"status\":\"ok\""},
    {.name = "a byte of a reply differs",
     .direction = TO_CLIENT,
     .from = "\r\n\r\n{\"model\"",
     .to = "\r\n\r\n{\"modem\""},
};

const char *planted_name(size_t defect) { return defects[defect].name; }

static struct {
    const struct defect *defect;
    unsigned attnd_port;
    int listener;
    pthread_t thread;
    atomic_size_t open; /* connections */
} relay;

static bool send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

static bool pass_on(int to, char *bytes, size_t count, enum direction direction)
{
    const struct defect *defect = relay.defect;
    size_t length = strlen(defect->from);
    char *found =
        direction == defect->direction ? memmem(bytes, count, defect->from, length) : NULL;
    if (found == NULL)
        return send_all(to, bytes, count);
    if (defect->to != NULL)
        memcpy(found, defect->to, length);
    else if (!defect->twice)
        return true;
    return send_all(to, bytes, count) && (!defect->twice || send_all(to, bytes, count));
}

/* Passes a piece on; false at the end of the connection. */
static bool pass_piece(const int fds[2], enum direction direction)
{
    char bytes[PIECE];
    ssize_t got = recv(fds[direction], bytes, sizeof bytes, 0);
    if (got == 0)
        shutdown(fds[!direction], SHUT_WR);
    return got > 0 && pass_on(fds[!direction], bytes, (size_t)got, direction);
}

static void *run_connection(void *context)
{
    struct raw *client = context, attnd;
    raw_open(&attnd, "127.0.0.1", relay.attnd_port);
    const int fds[2] = {client->fd, attnd.fd};
    struct pollfd ready[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
    bool goes_on = true;
    while (goes_on && poll(ready, 2, IDLE_MS) > 0) {
        if (ready[TO_ATTND].revents != 0 && !pass_piece(fds, TO_ATTND))
            ready[TO_ATTND].fd = -1;
        if (ready[TO_CLIENT].revents != 0)
            goes_on = pass_piece(fds, TO_CLIENT);
    }
    raw_close(&attnd);
    raw_close(client);
    free(client);
    atomic_fetch_sub(&relay.open, 1);
    return NULL;
}

static void *run(void *context)
{
    pthread_t thread;
    for (;;) {
        struct raw *client = malloc(sizeof *client);
        ck_assert_ptr_nonnull(client);
        if (!raw_accept(client, relay.listener)) {
            free(client);
            return context;
        }
        atomic_fetch_add(&relay.open, 1);
        ck_assert_int_eq(pthread_create(&thread, NULL, run_connection, client), 0);
        pthread_detach(thread);
    }
}

unsigned planted_open(size_t defect, unsigned attnd_port)
{
    unsigned port;
    relay.defect = &defects[defect];
    relay.attnd_port = attnd_port;
    relay.listener = inspected_listen(&port);
    ck_assert_int_eq(pthread_create(&relay.thread, NULL, run, NULL), 0);
    return port;
}

void planted_close(void)
{
    shutdown(relay.listener, SHUT_RDWR);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
    while (atomic_load(&relay.open) > 0)
        pause_ms(1);
}
