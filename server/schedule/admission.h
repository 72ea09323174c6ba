/* admission.h: who may join the queue: its depth, the shares of callers, the wait to expect.
 *
 * A request counts from admission until its reply is handed back.  Where several callers (API keys)
 * are known, the last eighth of the queue is reserved for callers that have less than their share
 * of it, so that nobody is refused because another caller has filled the queue.
 *
 * Checking takes no lock.  srv_admission_count_ended is the engine owner's (scheduler.c). */
#ifndef SRV_ADMISSION_H
#define SRV_ADMISSION_H

#include "wire/route.h"

/* Of the requests of one route. */
struct srv_route_pace {
    atomic_size_t depth;          /* requests that wait or run */
    atomic_uint_fast64_t ns_each; /* mean time from one end to the next while any run; 0: unknown */
    uint64_t ended_ns;            /* the last end; this and the next two are the engine owner's */
    uint64_t busy_ns, count;      /* the sums that ns_each is the quotient of */
};

struct srv_admission {
    size_t capacity;
    atomic_size_t depth;                            /* requests that wait or run */
    atomic_size_t running;                          /* those of them whose computation has begun */
    atomic_size_t depth_of_caller[SRV_MAX_CALLERS]; /* requests of each that wait or run */
    atomic_size_t num_callers;    /* 1 more than the highest caller that ever joined */
    struct srv_route_pace *paces; /* [routes->count] */
    const struct srv_routes *routes;
};

/* False where memory is short. */
bool srv_admission_init(struct srv_admission *admission, size_t capacity,
                        const struct srv_routes *routes);
void srv_admission_fini(struct srv_admission *admission);

/* Whether there is a place for the request, and its deadline is likely to be kept.  Any thread.
 * Errors: queue_full, deadline_exceeded. */
enum srv_error_code srv_admission_check(const struct srv_admission *admission,
                                        const struct srv_request *request, struct srv_error *error);

/* Counts a request that joins the queue, and one that leaves it.  The capacity holds if checking
 * and joining are done under one lock. */
void srv_admission_join(struct srv_admission *admission, const struct srv_request *request);
void srv_admission_leave(struct srv_admission *admission, const struct srv_request *request);

/* Counts a request as running until it leaves, where it does not yet count.  The engine owner's. */
void srv_admission_count_begun(struct srv_admission *admission, struct srv_request *request);

/* Counts requests that have just been computed towards the paces of their routes. */
void srv_admission_count_ended(struct srv_admission *admission,
                               struct srv_request *const requests[], size_t count);

/* After how many seconds a refused request should be sent again: the wait to expect, rounded up,
 * from 1 to SRV_MAX_RETRY_S.  Any thread. */
unsigned srv_admission_retry_after_s(const struct srv_admission *admission,
                                     const struct srv_request *request);

#endif
