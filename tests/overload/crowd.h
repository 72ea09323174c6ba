/* crowd.h: connections that cost a daemon something and give it nothing: idle ones, slow ones that
 * send a byte now and then, and ones that never read their answers.
 *
 * One thread of the crowd drives all of them until the daemon has closed each that it has to
 * close. */
#ifndef TESTS_OVERLOAD_CROWD_H
#define TESTS_OVERLOAD_CROWD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "text.h"

enum crowd_kind {
    CROWD_IDLE,     /* had one answer, and sends nothing more */
    CROWD_HEADS,    /* sends a byte of a head now and then */
    CROWD_BODIES,   /* sends a byte of a body now and then */
    CROWD_READLESS, /* asks for large answers and reads none */
    CROWD_KINDS
};

struct crowd_member;

struct crowd {
    unsigned port;
    int epoll;
    size_t wanted[CROWD_KINDS], opened[CROWD_KINDS], total;
    struct crowd_member *members; /* [total] */
    const struct text *asks;      /* what a CROWD_READLESS connection sends */
    double patience_s;            /* for the daemon to close the slow connections */
    pthread_t thread;
    atomic_bool over; /* each connection that had to be closed is, or the patience is over */
    size_t closed[CROWD_KINDS];    /* by the daemon */
    double slowest_s[CROWD_KINDS]; /* from opening to closing */
};

/* Opens the idle connections, which takes a while, and returns when each has had its answer. */
void crowd_open(struct crowd *crowd, unsigned port, const size_t wanted[CROWD_KINDS],
                const struct text *asks, double patience_s);

/* crowd_start starts the thread, which opens the other connections within two seconds and sends for
 * them; crowd_join waits for its end. */
void crowd_start(struct crowd *crowd);
void crowd_join(struct crowd *crowd);
void crowd_close(struct crowd *crowd);

#endif
