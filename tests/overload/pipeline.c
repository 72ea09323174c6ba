/* pipeline.c: one thread with epoll keeps the sockets full, and throws away what comes back. */
#include "pipeline.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

#define EVENTS 256
#define COPIES 64 /* of the request in one send */
#define MOST_TAKEN ((size_t)1 << 20)

struct pipeline_connection {
    int fd;
    size_t sent; /* of the copies */
};

static struct {
    char text[COPIES * 256];
    size_t length;
} asks;

static void send_more(struct pipeline_connection *connection)
{
    ssize_t sent = send(connection->fd, asks.text + connection->sent,
                        asks.length - connection->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
        connection->sent = (connection->sent + (size_t)sent) % asks.length;
}

static size_t take(struct pipeline_connection *connection)
{
    static char room[MOST_TAKEN];
    ssize_t got = recv(connection->fd, room, sizeof room, MSG_DONTWAIT | MSG_TRUNC);
    return got > 0 ? (size_t)got : 0;
}

static void *run(void *argument)
{
    struct pipeline *pipeline = argument;
    struct epoll_event events[EVENTS];
    while (!atomic_load(&pipeline->over)) {
        int count = epoll_wait(pipeline->epoll, events, EVENTS, 100);
        for (int i = 0; i < count; i++) {
            struct pipeline_connection *connection = events[i].data.ptr;
            if ((events[i].events & EPOLLIN) != 0)
                atomic_fetch_add(&pipeline->received, take(connection));
            if ((events[i].events & EPOLLOUT) != 0)
                send_more(connection);
        }
    }
    return NULL;
}

void pipeline_begin(struct pipeline *pipeline, unsigned port, size_t count, const char *path)
{
    *pipeline = (struct pipeline){.port = port, .count = count};
    asks.length = 0;
    for (size_t i = 0; i < COPIES; i++)
        asks.length += (size_t)snprintf(asks.text + asks.length, sizeof asks.text - asks.length,
                                        "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    pipeline->epoll = epoll_create1(EPOLL_CLOEXEC);
    pipeline->connections = calloc(count, sizeof *pipeline->connections);
    ck_assert(pipeline->epoll >= 0 && pipeline->connections != NULL);
    for (size_t i = 0; i < count; i++) {
        struct pipeline_connection *connection = &pipeline->connections[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = connection};
        connection->fd = load_dial(port, 0);
        ck_assert_int_eq(epoll_ctl(pipeline->epoll, EPOLL_CTL_ADD, connection->fd, &event), 0);
    }
    ck_assert_int_eq(pthread_create(&pipeline->thread, NULL, run, pipeline), 0);
}

void pipeline_end(struct pipeline *pipeline)
{
    atomic_store(&pipeline->over, true);
    ck_assert_int_eq(pthread_join(pipeline->thread, NULL), 0);
    for (size_t i = 0; i < pipeline->count; i++)
        close(pipeline->connections[i].fd);
    free(pipeline->connections);
    close(pipeline->epoll);
}
