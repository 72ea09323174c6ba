/* crowd.h: connections that cost a daemon something and give it nothing: those that keep still,
 * those that send a byte now and then, those that never read their answers.
 *
 * All are driven by one thread of their own, until those that are to be cut have been. */
#ifndef TESTS_OVERLOAD_CROWD_H
#define TESTS_OVERLOAD_CROWD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "text.h"

enum crowd_kind {
    CROWD_IDLE,     /* had an answer, and asks for nothing more */
    CROWD_HEADS,    /* a byte of a head now and then */
    CROWD_BODIES,   /* a byte of a body now and then */
    CROWD_READLESS, /* asks for large answers and reads none */
    CROWD_KINDS
};

struct crowd_member;

struct crowd {
    unsigned port;
    int epoll;
    size_t wanted[CROWD_KINDS], opened[CROWD_KINDS], total;
    struct crowd_member *members; /* [total] */
    const struct text *asks;      /* what a reader of nothing sends */
    double patience_s;            /* for the slow ones to be cut */
    pthread_t thread;
    atomic_bool over;              /* all that had to be cut are, or the patience is over */
    size_t cut[CROWD_KINDS];       /* by the daemon */
    double slowest_s[CROWD_KINDS]; /* from its beginning until it was */
};

/* Opens the idle ones, which takes a while, and returns when each has had its answer. */
void crowd_open(struct crowd *crowd, unsigned port, const size_t wanted[CROWD_KINDS],
                const struct text *asks, double patience_s);

/* Begins the thread, which opens the others within `ramp_s` and sends for them; and waits for its
 * end. */
void crowd_start(struct crowd *crowd);
void crowd_join(struct crowd *crowd);
void crowd_close(struct crowd *crowd);

#endif
