/* fair_queue.h: what waits to be computed, or for a clerk, in a line for each caller.
 *
 * Each caller (an API key; all requests without keys are one) has a list for each kind of work, in
 * the order it came.  Next is always the first of the caller that has been given fewest rows so
 * far, so a caller with little to compute does not wait behind one with much.  Who comes after
 * having had nothing to wait for begins level with the others: rest earns nothing.
 *
 * Nothing here locks: lines are whoever drives' (scheduler.c), or under a lock (clerk.c). */
#ifndef SRV_FAIR_QUEUE_H
#define SRV_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/queue_node.h"
#include "config/bounds.h"

struct srv_queue {
    struct srv_queue_node *first, **last;
};

enum srv_queue_kind {
    SRV_QUEUE_STEPS,    /* items of few rows, which are computed in batches */
    SRV_QUEUE_PREFILLS, /* items of many, and others that take as long */
    SRV_QUEUE_ATTENDS,  /* jobs: attention over given rows */
    SRV_QUEUE_PIECES,   /* jobs: exports and imports */
    SRV_QUEUE_CHANGES,  /* jobs: changes to sessions, until a prefill that runs has ended */
    SRV_QUEUE_READS,    /* in lines of clerks: requests whose bodies are to be read, */
    SRV_QUEUE_WRITES,   /* and those whose replies are to be written */
    SRV_NUM_QUEUES
};

struct srv_caller_queues {
    struct srv_queue of[SRV_NUM_QUEUES];
    size_t waiting; /* of all kinds */
    uint64_t given; /* rows so far */
};

struct srv_fair_queue {
    struct srv_caller_queues callers[SRV_MAX_CALLERS];
    size_t num_callers; /* the highest that ever waited, and 1 */
    size_t waiting[SRV_NUM_QUEUES];
    uint64_t level; /* what the caller that was served last had been given until then */
};

void srv_fair_queue_init(struct srv_fair_queue *lines);
void srv_fair_queue_put(struct srv_fair_queue *lines, enum srv_queue_kind kind,
                        struct srv_queue_node *waiting);
struct srv_queue_node *srv_fair_queue_take(struct srv_fair_queue *lines,
                                           enum srv_queue_kind kind); /* NULL: none */
bool srv_fair_queue_is_empty(const struct srv_fair_queue *lines);

/* A walk over all that waits of a kind, fairest first, which may take some of it and pass over the
 * rest.  What is put meanwhile it may see or not. */
struct srv_queue_walk {
    struct srv_fair_queue *lines;
    enum srv_queue_kind kind;
    size_t num_callers;
    size_t caller;                                  /* of the one that is looked at */
    struct srv_queue_node **links[SRV_MAX_CALLERS]; /* to each caller's next one */
};

/* Begins before the first. */
void srv_queue_walk_begin(struct srv_queue_walk *walk, struct srv_fair_queue *lines,
                          enum srv_queue_kind kind);
struct srv_queue_node *srv_queue_walk_peek(
    struct srv_queue_walk *walk);                      /* at the next one; NULL at the end */
void srv_queue_walk_pass(struct srv_queue_walk *walk); /* leaves it in line */
void srv_queue_walk_take(struct srv_queue_walk *walk); /* takes it, and counts its rows */
void srv_queue_walk_drop(struct srv_queue_walk *walk); /* takes it for nothing */

#endif
