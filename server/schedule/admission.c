/* admission.c: depth and shares of the queue, and the wait to expect. */
#include "schedule/dispatch.h"

#include <stdlib.h>

#include "base/clock.h"

#define RESERVE_DIVISOR 8 /* one place in so many is reserved for callers below their share */
#define PREDICTED_DEPTH 8 /* requests of a route; with fewer the last one says little of the next */
#define AVERAGED_NS SRV_S_NS /* of work, over which a pace is the mean */

bool srv_admission_init(struct srv_admission *a, size_t capacity, const struct srv_routes *routes)
{
    a->capacity = capacity;
    atomic_init(&a->num_callers, 1);
    a->routes = routes;
    a->paces = calloc(routes->count, sizeof *a->paces);
    return a->paces != NULL;
}

void srv_admission_fini(struct srv_admission *a) { free(a->paces); }

static size_t read_count(const atomic_size_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static struct srv_route_pace *pace_of(const struct srv_admission *a,
                                      const struct srv_request *request)
{
    return &a->paces[request->route - a->routes->items];
}

/* ---- Depth and shares ------------------------------------------------------------------------ */

/* Callers that have requests in the queue, and this caller. */
static size_t count_active(const struct srv_admission *a, unsigned caller)
{
    size_t active = 0, callers = read_count(&a->num_callers);
    for (size_t i = 0; i < callers; i++)
        active += i == caller || read_count(&a->depth_of_caller[i]) > 0;
    return active > 0 ? active : 1;
}

static bool admits(const struct srv_admission *a, unsigned caller)
{
    size_t depth = read_count(&a->depth);
    size_t reserve = (a->capacity + RESERVE_DIVISOR - 1) / RESERVE_DIVISOR;
    if (depth >= a->capacity)
        return false;
    if (depth + reserve < a->capacity || read_count(&a->num_callers) == 1)
        return true;
    size_t active = count_active(a, caller), mine = read_count(&a->depth_of_caller[caller]);
    return mine == 0 || mine < a->capacity / (active > 1 ? active : 2);
}

void srv_admission_join(struct srv_admission *a, const struct srv_request *request)
{
    size_t callers = atomic_load(&a->num_callers);
    while (request->caller >= callers &&
           !atomic_compare_exchange_weak(&a->num_callers, &callers, (size_t)request->caller + 1))
        ;
    atomic_fetch_add(&pace_of(a, request)->depth, 1);
    atomic_fetch_add(&a->depth_of_caller[request->caller], 1);
    atomic_fetch_add(&a->depth, 1);
}

void srv_admission_leave(struct srv_admission *a, const struct srv_request *request)
{
    atomic_fetch_sub(&pace_of(a, request)->depth, 1);
    atomic_fetch_sub(&a->depth_of_caller[request->caller], 1);
    if (request->begun)
        atomic_fetch_sub(&a->running, 1);
    atomic_fetch_sub(&a->depth, 1);
}

void srv_admission_count_begun(struct srv_admission *a, struct srv_request *request)
{
    if (!request->begun)
        atomic_fetch_add(&a->running, 1);
    request->begun = true;
}

/* ---- The wait to expect ----------------------------------------------------------------------
 *
 * Depth times pace of a route is all that is predicted.  docs/API.md promises what is done with it:
 * Retry-After says when there will be room, and a request that would come too late at the pace of
 * its route is refused before its body is read. */

/* Only the time since the request was taken and the request before it ended counts as busy; both
 * sums are halved now and then, so that their quotient is of late. */
void srv_admission_count_ended(struct srv_admission *a, struct srv_request *const requests[],
                               size_t count)
{
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        struct srv_route_pace *pace = pace_of(a, requests[i]);
        uint64_t popped_ns = requests[i]->t_popped;
        uint64_t since = popped_ns > pace->ended_ns ? popped_ns : pace->ended_ns;
        pace->busy_ns += now > since ? now - since : 0;
        pace->ended_ns = now;
        pace->count++;
        atomic_store_explicit(&pace->ns_each, pace->busy_ns / pace->count, memory_order_relaxed);
        if (pace->busy_ns >= AVERAGED_NS && pace->count > 1) {
            pace->busy_ns /= 2;
            pace->count /= 2;
        }
    }
}

/* Callers are served in turn: requests of a caller beyond the number that this caller has do not
 * add to its wait. */
static uint64_t expected_wait_ns(const struct srv_admission *a, const struct srv_request *request)
{
    const struct srv_route_pace *pace = pace_of(a, request);
    size_t mine = read_count(&a->depth_of_caller[request->caller]) + 1,
           depth = read_count(&pace->depth);
    size_t turns = mine * count_active(a, request->caller);
    return (turns < depth ? turns : depth) * atomic_load(&pace->ns_each);
}

unsigned srv_admission_retry_after_s(const struct srv_admission *a,
                                     const struct srv_request *request)
{
    uint64_t seconds = (expected_wait_ns(a, request) + SRV_S_NS - 1) / SRV_S_NS;
    return seconds < 1 ? 1 : seconds > SRV_MAX_RETRY_S ? SRV_MAX_RETRY_S : (unsigned)seconds;
}

/* ---- Admission ------------------------------------------------------------------------------- */

enum srv_error_code srv_admission_check(const struct srv_admission *a,
                                        const struct srv_request *request, struct srv_error *error)
{
    if (!admits(a, request->caller))
        return srv_fail(error, SRV_E_QUEUE_FULL, NULL, "%zu requests are waiting, at most %zu",
                        read_count(&a->depth), a->capacity);
    if (request->deadline_ns == 0 || read_count(&pace_of(a, request)->depth) < PREDICTED_DEPTH)
        return SRV_OK;
    uint64_t wait = expected_wait_ns(a, request);
    if (srv_now_ns() + wait < request->deadline_ns)
        return SRV_OK;
    return srv_fail(error, SRV_E_DEADLINE, "X-Deadline-Ms",
                    "the queue takes about %llu ms, which is beyond the deadline",
                    (unsigned long long)(wait / SRV_MS_NS));
}
