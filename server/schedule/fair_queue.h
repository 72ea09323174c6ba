/* fair_queue.h: what waits to be computed, read or written, in an order that is fair to callers.
 *
 * A caller is an API key; all requests without keys are one caller.  Each caller has a
 * first-in-first-out queue for each kind of work.  The next node is always the first one of the
 * caller that has had the least service so far, counted in the cost of its nodes; so a caller that
 * asks for little does not wait for one that asks for much.  A caller that had nothing waiting
 * comes back with at least `virtual_time` as its service: rest earns nothing.
 *
 * Nothing here locks.  The engine thread has one fair queue (scheduler.c), the I/O workers have
 * another one under their lock (codec_workers.c). */
#ifndef SRV_FAIR_QUEUE_H
#define SRV_FAIR_QUEUE_H

#include "config/bounds.h"
#include "wire/request.h"

struct srv_queue {
    struct srv_queue_node *first, **last; /* `last` is where the next node is linked */
};

/* Kinds of work, each with queues of its own.  The first seven are the engine thread's, the last
 * two the I/O workers'. */
enum srv_queue_kind {
    SRV_QUEUE_STEPS,      /* items whose steps are computed in batches */
    SRV_QUEUE_LONG_STEPS, /* items whose steps run alone: prefills and heavy decodes */
    SRV_QUEUE_ATTENDS,    /* jobs: attention over given rows, and encoder rows of a session */
    SRV_QUEUE_PIECES,     /* jobs: exports, imports and records, which go on piece by piece */
    SRV_QUEUE_CHANGES,    /* jobs: changes that wait for a long step's end, or for their turn */
    SRV_QUEUE_UNREAD,     /* jobs that wait for a session's tokens, which are still on the disk */
    SRV_QUEUE_WAITING,    /* items and jobs that wait for room in memory, or items for tokens */
    SRV_QUEUE_READS,      /* requests whose bodies are to be read */
    SRV_QUEUE_WRITES,     /* requests whose replies are to be written */
    SRV_NUM_QUEUES
};

struct srv_caller_queues {
    struct srv_queue queues[SRV_NUM_QUEUES];
    size_t waiting;   /* nodes of all kinds */
    uint64_t service; /* cost of all nodes charged so far */
};

struct srv_fair_queue {
    struct srv_caller_queues callers[SRV_MAX_CALLERS];
    size_t num_callers;             /* 1 more than the highest caller that ever waited */
    size_t waiting[SRV_NUM_QUEUES]; /* nodes of all callers */
    uint64_t virtual_time;          /* service that the caller served last had before that */
};

void srv_fair_queue_init(struct srv_fair_queue *queue);
void srv_fair_queue_put(struct srv_fair_queue *queue, enum srv_queue_kind kind,
                        struct srv_queue_node *node);

/* Removes the next node of a kind and charges it to its caller; NULL where none waits.  Cost:
 * proportional to the number of callers. */
struct srv_queue_node *srv_fair_queue_pop(struct srv_fair_queue *queue, enum srv_queue_kind kind);

/* A walk over all nodes of a kind in fair order.  `next` returns NULL at the end; the node that it
 * returned last may be removed, else it stays in the queue.  The walk may or may not see nodes that
 * are put during it. */
struct srv_queue_walk {
    struct srv_fair_queue *queue;
    enum srv_queue_kind kind;
    size_t num_callers;
    size_t caller;                                  /* of the last node */
    bool stays;                                     /* the last node, behind which `next` looks */
    struct srv_queue_node **links[SRV_MAX_CALLERS]; /* to the next node of each caller */
};

void srv_queue_walk_begin(struct srv_queue_walk *walk, struct srv_fair_queue *queue,
                          enum srv_queue_kind kind);
struct srv_queue_node *srv_queue_walk_next(struct srv_queue_walk *walk);
void srv_queue_walk_pass_caller(struct srv_queue_walk *walk); /* leaves the rest of its caller's */
void srv_queue_walk_remove_and_charge(struct srv_queue_walk *walk); /* its caller pays its cost */
void srv_queue_walk_remove(struct srv_queue_walk *walk);            /* its caller pays nothing */

#endif
