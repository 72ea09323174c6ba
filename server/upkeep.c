/* upkeep.c: what comes round once a second.
 *
 * Expiring a hundred thousand sessions and trimming a large heap take long, so they are not the
 * main thread's, which has to see signals at once. */
#include "upkeep.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "mapped.h"
#include "ops/heap.h"
#include "ops/metrics.h"
#include "session/session.h"
#include "store/store.h"

#define TRIM_NS (10 * SRV_S_NS) /* from one trim of the heap to the next, at least */
#define TRIM_SHARE 1000         /* a trim may take this part of the time */

struct srv_upkeep {
    struct srv_sessions *sessions;
    struct srv_store *store;
    struct srv_metrics *metrics;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `stop` */
    pthread_cond_t wake;
    bool stop;
};

static void expire_sessions(struct srv_upkeep *upkeep)
{
    struct srv_session *session = srv_sessions_expire(upkeep->sessions, srv_now_ns()), *next;
    for (; session != NULL; session = next) {
        next = session->next;
        srv_store_expire(upkeep->store, session);
        srv_metrics_session(upkeep->metrics, SRV_SESSION_EXPIRED, 1);
        srv_session_put(session);
    }
}

/* Trims the heap, while which threads that allocate wait, and returns when to do it next. */
static uint64_t trim_heap(void)
{
    uint64_t start = srv_now_ns();
    srv_heap_trim();
    uint64_t took = srv_now_ns() - start;
    return start + (took > TRIM_NS / TRIM_SHARE ? took * TRIM_SHARE : TRIM_NS);
}

/* Waits a second; false once it is time to stop. */
static bool await_second(struct srv_upkeep *upkeep)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&upkeep->lock);
    while (!upkeep->stop && pthread_cond_timedwait(&upkeep->wake, &upkeep->lock, &until) == 0)
        ;
    bool goes_on = !upkeep->stop;
    pthread_mutex_unlock(&upkeep->lock);
    return goes_on;
}

static void *upkeep_main(void *argument)
{
    struct srv_upkeep *upkeep = argument;
    uint64_t trim_ns = srv_now_ns() + TRIM_NS;
    pthread_setname_np(pthread_self(), "attnd-upkeep");
    while (await_second(upkeep)) {
        expire_sessions(upkeep);
        srv_mapped_check();
        if (srv_now_ns() >= trim_ns)
            trim_ns = trim_heap();
    }
    return NULL;
}

static void free_upkeep(struct srv_upkeep *upkeep)
{
    pthread_cond_destroy(&upkeep->wake);
    pthread_mutex_destroy(&upkeep->lock);
    free(upkeep);
}

bool srv_upkeep_open(struct srv_upkeep **out, struct srv_sessions *sessions,
                     struct srv_store *store, struct srv_metrics *metrics)
{
    pthread_condattr_t monotonic;
    struct srv_upkeep *upkeep = calloc(1, sizeof *upkeep);
    if (upkeep == NULL)
        return false;
    upkeep->sessions = sessions;
    upkeep->store = store;
    upkeep->metrics = metrics;
    pthread_mutex_init(&upkeep->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&upkeep->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&upkeep->thread, NULL, upkeep_main, upkeep) != 0) {
        free_upkeep(upkeep);
        return false;
    }
    *out = upkeep;
    return true;
}

void srv_upkeep_close(struct srv_upkeep *upkeep)
{
    if (upkeep == NULL)
        return;
    pthread_mutex_lock(&upkeep->lock);
    upkeep->stop = true;
    pthread_cond_signal(&upkeep->wake);
    pthread_mutex_unlock(&upkeep->lock);
    pthread_join(upkeep->thread, NULL);
    free_upkeep(upkeep);
}
