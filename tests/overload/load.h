/* load.h: requests at a rate, whatever the answers do, or one after the other.
 *
 * One thread with epoll and as many connections as it is given, each with one request that it sends
 * again and again.  Of what is due at a rate a request goes out on any connection that is free, in
 * bursts of a millisecond, so that the sender itself takes little of the processor. */
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
    size_t *free;                        /* [num_free] of connections */
    struct load_result *result;
    double now, end;
    unsigned random;
};

struct load_times {
    float *ms; /* [count] sorted when the run is over */
    size_t count, capacity;
};

/* Of one run; a refusal is 429, 503 or 504.  Times are from sending to the whole answer. */
struct load_result {
    double seconds;
    size_t sent, good, refused, other;
    size_t unsent; /* due while every connection waited */
    struct load_times good_ms, refused_ms;
};

/* `requests` [count] are borrowed: whole requests as bytes. */
void load_open(struct load *load, unsigned port, const struct text requests[], size_t count);
void load_close(struct load *load);

/* `rate` per second, at random times; 0: the next request of `most` connections goes out with each
 * answer.  Counts what is answered within `seconds`, then waits for the rest. */
void load_run(struct load_result *out, struct load *load, double rate, double seconds, size_t most);

/* One request and its answer: milliseconds; infinity where it was not a good one. */
double load_ask(struct load *load);
void load_add(struct load_times *times, double ms);
void load_sort(struct load_times *times);
double load_ms(const struct load_times *times, double share); /* 0.99: p99; 0 where none */
void load_result_free(struct load_result *result);

/* A connection; `buffer` bytes to receive into, 0: as many as is usual.  And a question on it that
 * is answered, after which it counts as idle. */
int load_dial(unsigned port, int buffer);
void load_greet(int fd);

double load_now(void); /* seconds, monotonic */

#endif
