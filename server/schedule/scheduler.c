/* scheduler.c: the inbox, and who drives.
 *
 * Event threads put requests into the inbox; whoever holds `drive` takes them out again and is the
 * only one that calls the engine and touches caches: the scheduler's thread, or an event thread
 * for a round that is over before another thread would have woken.  A round (rounds.h):
 *
 *   take     the whole inbox becomes jobs
 *   read     bodies are parsed on all threads
 *   steps    items whose session is free this round, few-row items of one layer as one batch, then
 *            one long item (a prefill, or few rows over a very long session)
 *   attend   one attention over given rows
 *   piece    of an export or import
 *   reply    bodies of ended jobs are written on all threads, then handed back together
 *
 * What a round leaves over (a second item of one session, further prefills and attends) stands
 * first in the next.
 *
 * A prefill or an attend pauses inside the library many times a millisecond: whatever decodes wait
 * run as a batch, then it has the engine for LONG_SHARE times as long as they took. */
#include "schedule/scheduler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"
#include "base/clock.h"
#include "schedule/dispatch.h"
#include "store/store.h"

#define ROUND_BATCHES 4 /* of decodes, before a prefill and an attend begin */
#define THREADS_PER_CLERK 4
#define LONG_SHARE 1 /* of a long computation's time to that of the batches that interrupt it */
#define SWEEP_NS UINT64_C(100000000) /* from one look at all that waits to the next */
#define SMALL_BYTES 65536            /* of bodies in a round that an event thread runs */

struct srv_scheduler {
    struct srv_app *app;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;                  /* guarded by lock, as are the inbox and its ends */
    bool left;                  /* an event thread has left a round to the scheduler's */
    struct srv_request **inbox; /* [inbox_capacity] */
    size_t inbox_count, inbox_capacity, inbox_bytes;
    bool waits_for_disk;        /* each batch does, so event threads run none */
    atomic_bool knocking;       /* the inbox is not empty, or it is time to stop */
    pthread_mutex_t drive;      /* whoever holds it drives, and owns the rest */
    struct srv_request **taken; /* [inbox_capacity] this round's */
    size_t num_taken, taken_bytes;
    bool stopping; /* what still waits is refused */
    struct srv_dispatch rounds;
    uint64_t next_pause_ns; /* a long computation has the engine until then */
    uint64_t next_sweep_ns;
};

/* ---- The inbox ---- */

/* The caller holds the lock, and there is room. */
static void put_into_inbox(struct srv_scheduler *s, struct srv_request *request)
{
    s->inbox[s->inbox_count++] = request;
    s->inbox_bytes += request->coding == SRV_IDENTITY ? request->body_length : SMALL_BYTES + 1;
    atomic_store(&s->knocking, true);
}

/* Moves the inbox to `taken`.  False when there is nothing to do. */
static bool take_inbox(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->num_taken = s->inbox_count;
    s->taken_bytes = s->inbox_bytes;
    memcpy(s->taken, s->inbox, s->inbox_count * sizeof *s->inbox);
    s->inbox_count = s->inbox_bytes = 0;
    s->stopping = s->stop;
    atomic_store(&s->knocking, false);
    pthread_mutex_unlock(&s->lock);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < s->num_taken; i++)
        if (s->taken[i]->t_taken == 0)
            s->taken[i]->t_taken = now;
    return s->num_taken > 0 || srv_dispatch_has_work(&s->rounds);
}

static void read_taken(struct srv_scheduler *s)
{
    srv_dispatch_read(&s->rounds, s->taken, s->num_taken, s->taken_bytes);
    s->num_taken = 0;
}

/* Late and left requests need not wait for their turn, nor for what comes next. */
static void sweep(struct srv_scheduler *s)
{
    if (srv_now_ns() < s->next_sweep_ns)
        return;
    srv_dispatch_drop_cancelled(&s->rounds);
    srv_dispatch_reply(&s->rounds);
    s->next_sweep_ns = srv_now_ns() + SWEEP_NS;
}

static void refuse_all(struct srv_scheduler *s)
{
    srv_dispatch_refuse(&s->rounds, s->taken, s->num_taken);
    s->num_taken = 0;
}

/* On a clerk's thread: a body to be read, or a piece of the reply of a job that has ended. */
static bool read_or_write(void *context, struct srv_request *request)
{
    struct srv_scheduler *s = context;
    if (request->t_computed != 0)
        return srv_dispatch_write_piece(&s->rounds, request);
    srv_read_body(request);
    srv_arena_populate(&request->arena);
    request->t_compute = srv_now_ns();
    pthread_mutex_lock(&s->lock);
    put_into_inbox(s, request);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return false;
}

/* ---- Rounds ---- */

/* Several batches of decodes to one long computation, so that neither starves the other; what
 * arrives meanwhile joins the next batch. */
static void run_round(struct srv_scheduler *s)
{
    struct srv_dispatch *rounds = &s->rounds;
    srv_store_take_checkpoint(s->app->store);
    read_taken(s);
    sweep(s);
    for (int i = 0; i < ROUND_BATCHES && !s->stopping && srv_dispatch_batch(rounds, false); i++) {
        srv_dispatch_reply(rounds);
        sweep(s);
        if (take_inbox(s) && !s->stopping)
            read_taken(s);
    }
    if (s->stopping)
        return;
    srv_dispatch_reply(rounds);
    srv_dispatch_batch(rounds, true);
    if (!s->stopping)
        srv_dispatch_attend(rounds);
    if (!s->stopping)
        srv_dispatch_piece(rounds);
}

/* False once it is to stop and nothing is left. */
static bool await_work(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->inbox_count == 0 && !s->left && !s->stop &&
           !srv_store_wants_checkpoint(s->app->store))
        pthread_cond_wait(&s->wake, &s->lock);
    bool found = s->inbox_count > 0 || s->left || !s->stop;
    s->left = false;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void *scheduler_main(void *argument)
{
    struct srv_scheduler *s = argument;
    bool goes_on = true;
    pthread_setname_np(pthread_self(), "attnd-scheduler");
    while (goes_on) {
        goes_on = await_work(s); /* the last time round, an event thread may still have left work */
        pthread_mutex_lock(&s->drive);
        srv_store_take_checkpoint(s->app->store);
        while (take_inbox(s)) {
            if (!s->stopping)
                run_round(s);
            if (s->stopping)
                refuse_all(s);
            srv_dispatch_reply(&s->rounds);
        }
        pthread_mutex_unlock(&s->drive);
    }
    return NULL;
}

/* ---- Pauses of a long computation ---- */

static bool pause_wanted(void *context)
{
    struct srv_scheduler *s = context;
    uint64_t now = srv_now_ns();
    bool knocks = s->rounds.more || atomic_load_explicit(&s->knocking, memory_order_relaxed);
    return (knocks && now >= s->next_pause_ns) || now >= s->next_sweep_ns ||
           srv_request_check_cancelled(s->rounds.long_request, now, NULL) != SRV_OK;
}

/* Of this thread: what a busy machine took from it is not held against the decodes. */
static uint64_t busy_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* One batch, if it is time for one: what arrives meanwhile waits for the next pause, what is long
 * for the end.  False where the long computation is to stop. */
static bool pause_run(void *context)
{
    struct srv_scheduler *s = context;
    uint64_t start = busy_ns();
    if (!srv_dispatch_check_long(&s->rounds))
        return false;
    sweep(s);
    if (srv_now_ns() < s->next_pause_ns)
        return true;
    take_inbox(s);
    if (s->stopping) {
        srv_dispatch_fail_draining(&s->rounds.stopped);
        return false;
    }
    read_taken(s);
    srv_dispatch_batch(&s->rounds, false);
    srv_dispatch_reply(&s->rounds);
    s->rounds.more = srv_dispatch_has_short_steps(&s->rounds);
    s->next_pause_ns = srv_now_ns() + (busy_ns() - start) * LONG_SHARE;
    return true;
}

/* ---- Rounds on an event thread ---- */

static bool inbox_is_small(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    bool small = !s->left && !s->stop && s->inbox_bytes <= SMALL_BYTES && !s->waits_for_disk;
    pthread_mutex_unlock(&s->lock);
    return small;
}

/* False where something is left to do. */
static bool drive_small(struct srv_scheduler *s)
{
    if (!inbox_is_small(s))
        return false;
    if (!take_inbox(s))
        return true;
    if (s->stopping)
        refuse_all(s);
    read_taken(s);
    bool small = srv_dispatch_is_small(&s->rounds);
    while (small && srv_dispatch_batch(&s->rounds, false))
        ;
    srv_dispatch_reply(&s->rounds);
    return small && !srv_dispatch_has_work(&s->rounds); /* something long may have come in line */
}

void srv_scheduler_run_or_wake(struct srv_scheduler *s)
{
    bool done = false;
    if (pthread_mutex_trylock(&s->drive) == 0) {
        done = drive_small(s);
        pthread_mutex_unlock(&s->drive);
    }
    if (done)
        return;
    pthread_mutex_lock(&s->lock);
    s->left = true;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_signal(&s->wake); /* not before: who wakes would wait for the lock at once */
}

/* ---- The public side ---- */

enum srv_error_code srv_scheduler_admits(const struct srv_scheduler *s,
                                         const struct srv_request *request, struct srv_error *error)
{
    return srv_admission_check(&s->rounds.admission, request, error);
}

unsigned srv_scheduler_retry_after_s(const struct srv_scheduler *s,
                                     const struct srv_request *request)
{
    return s != NULL && request->route != NULL
               ? srv_admission_retry_after_s(&s->rounds.admission, request)
               : 1;
}

bool srv_scheduler_submit(struct srv_scheduler *s, struct srv_request *request,
                          struct srv_error *error)
{
    bool taken = false;
    pthread_mutex_lock(&s->lock);
    if (s->stop)
        srv_dispatch_fail_draining(error);
    else if (srv_scheduler_admits(s, request, error) == SRV_OK) {
        srv_admission_join(&s->rounds.admission, request);
        put_into_inbox(s, request);
        taken = true;
    }
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void srv_scheduler_wake(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

size_t srv_scheduler_depth(const struct srv_scheduler *s)
{
    return atomic_load(&s->rounds.admission.depth);
}

static void free_scheduler(struct srv_scheduler *s)
{
    free(s->inbox);
    free(s->taken);
    srv_dispatch_fini(&s->rounds);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->drive);
    free(s);
}

static bool start_threads(struct srv_scheduler *s)
{
    struct attn_engine_info engine;
    attn_engine_describe(&engine, s->app->engine);
    if (!srv_io_workers_open(&s->rounds.clerk, 1 + engine.threads / THREADS_PER_CLERK,
                             read_or_write, s))
        return false;
    if (pthread_create(&s->thread, NULL, scheduler_main, s) == 0)
        return true;
    srv_io_workers_finish(s->rounds.clerk);
    return false;
}

bool srv_scheduler_open(struct srv_scheduler **out, struct srv_app *app)
{
    struct srv_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return false;
    s->app = app;
    s->inbox_capacity = app->config.limits.max_queue;
    s->waits_for_disk = app->config.durability == SRV_DURABLE_JOURNAL &&
                        app->config.journal_fsync == SRV_FSYNC_ALWAYS;
    s->inbox = calloc(s->inbox_capacity, sizeof *s->inbox);
    s->taken = calloc(s->inbox_capacity, sizeof *s->taken);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->drive, NULL);
    pthread_cond_init(&s->wake, NULL);
    bool made = srv_dispatch_init(&s->rounds, app, s->inbox_capacity);
    s->rounds.yield = (struct attn_yield){pause_wanted, pause_run, s};
    if (!made || s->inbox == NULL || s->taken == NULL || !start_threads(s)) {
        free_scheduler(s);
        return false;
    }
    *out = s;
    return true;
}

void srv_scheduler_stop(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    atomic_store(&s->app->stopping, true);
    srv_io_workers_finish(s->rounds.clerk); /* before the thread that it gives back to */
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    atomic_store(&s->knocking, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void srv_scheduler_free(struct srv_scheduler *s)
{
    if (s != NULL)
        free_scheduler(s);
}
