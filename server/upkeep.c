/* upkeep.c: what comes round once a second.
 *
 * Expiring a hundred thousand sessions and trimming a large heap take long, so they are not the
 * main thread's, which has to see signals at once. */
#include "main.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"

#define TRIM_NS (10 * SRV_S_NS) /* from one trim of the heap to the next, at least */
#define GAP_NS (3 * SRV_S_NS)   /* of a wait for a second: the process stood still */
#define TRIM_RATIO 1000         /* a trim may take this part of the time */

struct srv_upkeep {
    struct srv_app *app;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `stop` */
    pthread_cond_t wake;
    bool stop;
};

static void expire_sessions(struct srv_app *app, uint64_t now)
{
    struct srv_session *session = srv_sessions_expire(app->sessions, now), *next;
    for (; session != NULL; session = next) {
        next = session->next;
        srv_store_expire(app->store, session);
        srv_metrics_session(app->metrics, SRV_SESSION_EXPIRED, 1);
        srv_session_put(session);
    }
}

/* Gives free pages of the heap back to the system, also those between blocks in use; threads that
 * allocate wait meanwhile.  Returns when to do it next. */
static uint64_t trim_heap(void)
{
    uint64_t start = srv_now_ns();
    (void)malloc_trim(0);
    uint64_t took = srv_now_ns() - start;
    return start + (took > TRIM_NS / TRIM_RATIO ? took * TRIM_RATIO : TRIM_NS);
}

/* Waits a second; false once it is time to stop. */
static bool await_second(struct srv_upkeep *upkeep)
{
    const uint64_t until_ns = srv_now_ns() + SRV_S_NS;
    pthread_mutex_lock(&upkeep->lock);
    while (!upkeep->stop && srv_cond_wait_until(&upkeep->wake, &upkeep->lock, until_ns))
        ;
    bool goes_on = !upkeep->stop;
    pthread_mutex_unlock(&upkeep->lock);
    return goes_on;
}

/* Whether sessions may expire in this round, which may come after a gap, as of SIGSTOP or a paused
 * container.  After one nothing expires in two rounds: steps that were sent in time are still in
 * their sockets.  Gaps in these rounds do not count, or on a machine without time to run nothing
 * would ever expire. */
static bool may_expire(unsigned *passed_over, bool gap)
{
    if (*passed_over == 0 && !gap)
        return true;
    *passed_over = (*passed_over + 1) % 3;
    return *passed_over == 0;
}

static void *upkeep_main(void *argument)
{
    struct srv_upkeep *upkeep = argument;
    uint64_t ended_ns = srv_now_ns(), trim_ns = ended_ns + TRIM_NS;
    unsigned passed_over = 0;
    pthread_setname_np(pthread_self(), "attnd-upkeep");
    while (await_second(upkeep)) {
        uint64_t now = srv_now_ns();
        if (may_expire(&passed_over, now - ended_ns >= GAP_NS))
            expire_sessions(upkeep->app, now);
        srv_inputs_expire(upkeep->app->inputs, now);
        srv_mapped_check();
        if (srv_now_ns() >= trim_ns)
            trim_ns = trim_heap();
        ended_ns = srv_now_ns();
    }
    return NULL;
}

static void free_upkeep(struct srv_upkeep *upkeep)
{
    pthread_cond_destroy(&upkeep->wake);
    pthread_mutex_destroy(&upkeep->lock);
    free(upkeep);
}

bool srv_upkeep_open(struct srv_app *app)
{
    struct srv_upkeep *upkeep = calloc(1, sizeof *upkeep);
    if (upkeep == NULL)
        return false;
    upkeep->app = app;
    pthread_mutex_init(&upkeep->lock, NULL);
    srv_cond_init(&upkeep->wake);
    if (!srv_thread_start(&upkeep->thread, upkeep_main, upkeep)) {
        free_upkeep(upkeep);
        return false;
    }
    app->upkeep = upkeep;
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
