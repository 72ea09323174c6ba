/* pipeline.h: connections that ask for one thing again and again without waiting for answers. */
#ifndef TESTS_OVERLOAD_PIPELINE_H
#define TESTS_OVERLOAD_PIPELINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct pipeline {
    unsigned port;
    int epoll;
    size_t count;
    struct pipeline_connection *connections; /* [count] */
    pthread_t thread;
    atomic_bool over;
    atomic_size_t received; /* bytes */
};

/* Opens the connections, and sends GET `path` on each of them as often as sockets take it. */
void pipeline_begin(struct pipeline *pipeline, unsigned port, size_t count, const char *path);
void pipeline_end(struct pipeline *pipeline);

#endif
