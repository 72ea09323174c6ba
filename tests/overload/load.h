/* load.h: requests at a given rate, independent of the answers, or one after the other.
 *
 * One thread with epoll drives as many connections as it is given; each has one request that it
 * sends again and again.  A request that is due goes out on any free connection, in bursts of a
 * millisecond, so that the sender itself takes little of the processor. */
#ifndef TESTS_OVERLOAD_LOAD_H
#define TESTS_OVERLOAD_LOAD_H

#include <stddef.h>

#include "text.h"

struct load_connection;

struct load {
    unsigned port;
    int epoll;
    size_t count, num_free, num_busy;
    struct load_connection *connections; /* [count] */
    size_t *free;                        /* [num_free] indices of free connections */
    struct load_result *result;
    double now, end;
    unsigned random;
};

struct load_times {
    float *ms; /* [count] sorted after the run */
    size_t count, capacity;
};

/* The counts of one run; a refusal is 429, 503 or 504.  Times run from sending to the whole
 * answer. */
struct load_result {
    double seconds;
    size_t sent, good, refused, other;
    size_t unsent; /* due while no connection was free */
    struct load_times good_ms, refused_ms;
};

/* `requests` [count] are borrowed: whole requests as bytes. */
void load_open(struct load *load, unsigned port, const struct text requests[], size_t count);
void load_close(struct load *load);

/* Runs for `seconds`.  With `rate` > 0, so many requests a second are due at random times; with 0,
 * `most` connections send their next request with each answer.  Counts what is answered within
 * `seconds`, then waits for the other answers. */
void load_run(struct load_result *out, struct load *load, double rate, double seconds, size_t most);

/* Sends one request and returns the milliseconds until its answer; infinity where that is not
 * 200. */
double load_ask(struct load *load);
void load_add(struct load_times *times, double ms);
void load_sort(struct load_times *times);
double load_ms(const struct load_times *times, double share); /* 0.99: p99; 0 where none */
void load_result_free(struct load_result *result);

/* load_dial opens a connection; `buffer` is the size of its receive buffer, 0 for the usual one.
 * load_greet sends a small request on it and reads the answer, after which the connection counts as
 * idle. */
int load_dial(unsigned port, int buffer);
void load_greet(int fd);

double load_now(void); /* seconds, monotonic */

#endif
