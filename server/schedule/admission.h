/* admission.h: how many requests wait, whose they are, how fast they go, and so who may join.
 *
 * Counted from admission to the reply.  Where several callers (API keys) are known, the last eighth
 * of the queue is kept for those that have less than their share of it, so that nobody is refused
 * because another has filled it.  How long a request will wait is told from those of its route: how
 * many there are, and how fast they went of late; routes hardly wait for each other.
 *
 * Checking takes no lock; pacing is whoever drives' (scheduler.c). */
#ifndef SRV_ADMISSION_H
#define SRV_ADMISSION_H

#include <stdatomic.h>

#include "wire/route.h"

struct srv_pace {
    atomic_size_t depth;          /* requests of a route, waiting or running */
    atomic_uint_fast64_t ns_each; /* from one's end to the next's, with work to do; 0: unknown */
    uint64_t ended_ns, busy_ns, count; /* whoever drives': the last end, and what is averaged */
};

struct srv_admission {
    size_t capacity;
    atomic_size_t depth;               /* requests waiting or running */
    atomic_size_t of[SRV_MAX_CALLERS]; /* of each caller */
    atomic_size_t num_callers;         /* the highest that ever came, and 1 */
    struct srv_pace *paces;            /* [routes->count] */
    const struct srv_routes *routes;
};

bool srv_admission_init(struct srv_admission *admission, size_t capacity,
                        const struct srv_routes *routes); /* false: no memory */
void srv_admission_fini(struct srv_admission *admission);

/* Whether the request may join, and be answered before its deadline as far as can be told.  Errors:
 * queue_full, deadline_exceeded. */
enum srv_error_code srv_admission_check(const struct srv_admission *admission,
                                        const struct srv_request *request, struct srv_error *error);

/* It joins; it leaves.  Whoever needs the capacity to hold checks and joins under one lock. */
void srv_admission_join(struct srv_admission *admission, const struct srv_request *request);
void srv_admission_leave(struct srv_admission *admission, const struct srv_request *request);

/* These have just been computed. */
void srv_admission_pace(struct srv_admission *admission, struct srv_request *const requests[],
                        size_t count);

/* How long a request like this would wait, about; and in whole seconds, from 1 to SRV_MAX_RETRY_S,
 * for whoever is to come again. */
uint64_t srv_admission_wait_ns(const struct srv_admission *admission,
                               const struct srv_request *request);
unsigned srv_admission_retry_after_s(const struct srv_admission *admission,
                                     const struct srv_request *request);

#endif
