/* scheduler.c: the inbox, and who holds the engine.
 *
 * Event threads and I/O workers put requests into the inbox.  The engine thread is the one that
 * holds engine_lock: the scheduler's thread, or an event thread for a round that ends before
 * another thread would have woken.  Only that thread takes requests out of the inbox and calls
 * the engine.
 *
 * Only the engine thread changes, forks and freezes the caches of sessions, with the engine's
 * threads as its helpers.  Every other thread may do five things with caches, and no more:
 *   - read lengths and sizes, which are atomic;
 *   - read a frozen copy that it holds, as the store's thread does;
 *   - make an empty cache for a new session, before other threads see that session;
 *   - free a cache, by dropping the last reference to its session;
 *   - fill a cache that nobody else uses from the disk: the main thread before the daemon is ready
 *     (store_load.c), a thread of the store those of unread sessions (store_reader.c).
 *
 * A round (dispatch.h):
 *
 *   pop        the whole inbox
 *   read       bodies are parsed into jobs, on all threads
 *   steps      up to ROUND_BATCHES batches, each of the waiting steps of one layer
 *   long step  one step that is computed alone: a prefill or a heavy decode
 *   attend     one attention over given rows, or encoder rows
 *   piece      one piece of an export, an import or a session's record
 *
 * Replies that are due are written on all threads and handed back together: after each batch,
 * before each long computation and at the end.  Work that a round leaves in the queue is done in
 * the rounds after it.
 *
 * A long step or an attend pauses inside the library many times a millisecond.  At a pause whose
 * turn has come one batch runs, of steps that wait, and then one long step or attend that may
 * interrupt the other (running.c), with pauses of its own.  After that no pause runs anything for
 * PAUSE_RATIO times the CPU time of that pause. */
#include "schedule/scheduler.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "schedule/dispatch.h"
#include "store/stores.h"

#define ROUND_BATCHES 4 /* of steps, before a long step, an attend and a piece */
#define THREADS_PER_IO_WORKER 4
#define PAUSE_RATIO 1 /* times the CPU time of a pause that computes, until the next such pause */
#define SMALL_BYTES 65536 /* of bodies in a round that an event thread runs */

struct srv_scheduler {
    const struct srv_scheduler_context *context;
    pthread_t thread;

    pthread_mutex_t inbox_lock; /* guards the next five members */
    pthread_cond_t wake;        /* of the scheduler's thread */
    bool stop;
    bool handed_over;           /* an event thread has left a round to the scheduler's thread */
    struct srv_request **inbox; /* [max_queue] */
    size_t inbox_count, inbox_bytes;
    atomic_bool inbox_ready; /* requests are in the inbox, or it is time to stop */

    pthread_mutex_t engine_lock; /* the engine thread holds it, and with it all members below */
    struct srv_request **popped; /* [max_queue] of this round */
    size_t num_popped, popped_bytes;
    bool parked;   /* the scheduler's thread knows that jobs wait for tokens that are read */
    bool stopping; /* `stop`, as it was when the inbox was taken: what waits is refused */
    struct srv_dispatch dispatch;
    uint64_t next_pause_ns;     /* a long computation has the engine until then */
    uint64_t next_interrupt_ns; /* and then shares it with batches alone, until then */
    uint64_t next_sweep_ns;
};

/* ---- The inbox ------------------------------------------------------------------------------- */

/* The caller holds inbox_lock, and the inbox has room. */
static void put_into_inbox(struct srv_scheduler *s, struct srv_request *request)
{
    s->inbox[s->inbox_count++] = request;
    s->inbox_bytes += request->coding == SRV_IDENTITY ? request->body_length : SMALL_BYTES + 1;
    atomic_store(&s->inbox_ready, true);
}

/* Whether jobs are parked for sessions that are being read, or memory is waited for. */
static bool has_parked(const struct srv_scheduler *s)
{
    const size_t *waiting = s->dispatch.queue.waiting;
    return waiting[SRV_QUEUE_UNREAD] + waiting[SRV_QUEUE_WAITING] > 0;
}

/* Moves the inbox to `popped`.  False when there is nothing to do. */
static bool pop_inbox(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->inbox_lock);
    s->num_popped = s->inbox_count;
    s->popped_bytes = s->inbox_bytes;
    memcpy(s->popped, s->inbox, s->inbox_count * sizeof *s->inbox);
    s->inbox_count = s->inbox_bytes = 0;
    s->stopping = s->stop;
    atomic_store(&s->inbox_ready, false);
    pthread_mutex_unlock(&s->inbox_lock);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < s->num_popped; i++)
        if (s->popped[i]->t_popped == 0)
            s->popped[i]->t_popped = now;
    return s->num_popped > 0 || srv_dispatch_has_work(&s->dispatch) ||
           (s->stopping && has_parked(s));
}

/* Goes on with jobs whose sessions have been read, and with what waits for memory. */
static void release_parked(struct srv_scheduler *s)
{
    if (srv_stores_take_restored(s->context->store)) {
        srv_dispatch_release_parked(&s->dispatch);
        srv_stores_answer_readers(s->context->store);
        s->dispatch.next_retry_ns = 0;
    }
    srv_dispatch_retry_waiting(&s->dispatch);
}

static void queue_popped(struct srv_scheduler *s)
{
    release_parked(s);
    srv_dispatch_parse_and_queue(&s->dispatch, s->popped, s->num_popped, s->popped_bytes);
    s->num_popped = 0;
}

static void refuse_all(struct srv_scheduler *s)
{
    srv_dispatch_refuse(&s->dispatch, s->popped, s->num_popped);
    s->num_popped = 0;
}

/* The work of I/O workers; a request whose body is read goes back into the inbox. */
static bool read_or_write(void *context, struct srv_request *request)
{
    struct srv_scheduler *s = context;
    if (request->route->handle != NULL) {
        srv_replies_handle(&s->dispatch, request);
        return false;
    }
    if (request->t_computed != 0)
        return srv_replies_write_piece(&s->dispatch, request);
    srv_parse_body(request);
    srv_arena_populate(&request->arena);
    request->t_compute = srv_now_ns();
    pthread_mutex_lock(&s->inbox_lock);
    put_into_inbox(s, request);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->inbox_lock);
    return false;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Ends cancelled requests, every SRV_CANCEL_NS, so that each is answered soon. */
static void sweep(struct srv_scheduler *s)
{
    if (srv_now_ns() < s->next_sweep_ns)
        return;
    srv_dispatch_end_cancelled(&s->dispatch);
    srv_replies_send(&s->dispatch);
    s->next_sweep_ns = srv_now_ns() + SRV_CANCEL_NS;
}

/* Up to ROUND_BATCHES batches of steps, with one change before each, then at most one long step,
 * one attention over given rows and one piece, so that none of the kinds starves the others.  Steps
 * that arrive during a batch join the next batch. */
static void run_round(struct srv_scheduler *s)
{
    struct srv_dispatch *dispatch = &s->dispatch;
    srv_stores_take_snapshot(s->context->store);
    queue_popped(s);
    sweep(s);
    for (int i = 0; i < ROUND_BATCHES && !s->stopping; i++) {
        srv_dispatch_run_change(dispatch);
        if (!srv_dispatch_run_batch(dispatch))
            break;
        srv_replies_send(dispatch);
        sweep(s);
        if (pop_inbox(s) && !s->stopping)
            queue_popped(s);
    }
    if (s->stopping)
        return;
    srv_replies_send(dispatch);
    s->next_interrupt_ns = 0; /* for what begins now has not been interrupted */
    srv_dispatch_run_long_step(dispatch);
    s->next_interrupt_ns = 0;
    if (!s->stopping)
        srv_dispatch_run_job(dispatch, SRV_QUEUE_ATTENDS);
    if (!s->stopping)
        srv_dispatch_run_job(dispatch, SRV_QUEUE_PIECES);
}

/* Waits for work.  Where jobs are parked, no longer than a sweep: one may be cancelled, and nothing
 * else wakes this thread.  False once it is time to stop and nothing is left in the inbox. */
static bool await_work(struct srv_scheduler *s)
{
    const bool parked = s->parked;
    bool slept = false;
    const uint64_t until_ns = srv_now_ns() + SRV_CANCEL_NS;
    pthread_mutex_lock(&s->inbox_lock);
    while (s->inbox_count == 0 && !s->handed_over && !s->stop && !(parked && slept) &&
           !srv_stores_want_snapshot(s->context->store) &&
           !srv_stores_have_restored(s->context->store)) {
        if (parked)
            srv_cond_wait_until(&s->wake, &s->inbox_lock, until_ns);
        else
            pthread_cond_wait(&s->wake, &s->inbox_lock);
        slept = true;
    }
    bool found = s->inbox_count > 0 || s->handed_over || !s->stop;
    s->handed_over = false;
    pthread_mutex_unlock(&s->inbox_lock);
    return found;
}

static void *scheduler_main(void *argument)
{
    struct srv_scheduler *s = argument;
    bool goes_on = true;
    pthread_setname_np(pthread_self(), "attnd-scheduler");
    while (goes_on) {
        goes_on = await_work(s); /* when false, an event thread may still have left work */
        pthread_mutex_lock(&s->engine_lock);
        srv_stores_take_snapshot(s->context->store);
        release_parked(s); /* also where nothing else is there to do */
        if (has_parked(s))
            sweep(s);
        srv_replies_send(&s->dispatch);
        while (pop_inbox(s)) {
            if (!s->stopping)
                run_round(s);
            if (s->stopping)
                refuse_all(s);
            srv_replies_send(&s->dispatch);
        }
        s->parked = has_parked(s);
        pthread_mutex_unlock(&s->engine_lock);
    }
    return NULL;
}

/* ---- Pauses of a long computation ------------------------------------------------------------ */

/* attn_yield.wanted */
static bool pause_wanted(void *context)
{
    struct srv_scheduler *s = context;
    uint64_t now = srv_now_ns();
    bool work = s->dispatch.work_waiting ||
                atomic_load_explicit(&s->inbox_ready, memory_order_relaxed) ||
                (s->dispatch.interrupting_waiting && now >= s->next_interrupt_ns);
    return (work && now >= s->next_pause_ns) || now >= s->next_sweep_ns ||
           srv_request_check_cancelled(srv_running_innermost(&s->dispatch)->request, now, NULL) !=
               SRV_OK;
}

/* The clock of what a pause is charged: CPU time of this thread; with a journal, wall time, which
 * waits for the disk too. */
static uint64_t charged_ns(const struct srv_scheduler *s)
{
    return s->context->records_on_disk ? srv_now_ns() : srv_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Runs one batch and one computation that may interrupt the running one, if it is time for that;
 * each puts off the next one by the time that it took since `start`, when the pause began. */
static void run_in_pause(struct srv_scheduler *s, uint64_t start)
{
    struct srv_dispatch *d = &s->dispatch;
    queue_popped(s);
    srv_dispatch_run_change(d);
    srv_dispatch_run_batch(d);
    srv_replies_send(d);
    uint64_t begin = charged_ns(s), batch_ns = begin - start;
    if (srv_now_ns() >= s->next_interrupt_ns && srv_dispatch_run_interrupting(d)) {
        /* The running one then has as long without another; batches go on meanwhile. */
        srv_replies_send(d);
        s->next_interrupt_ns = srv_now_ns() + (charged_ns(s) - begin) * PAUSE_RATIO;
    }
    srv_running_note_waiting(d);
    s->next_pause_ns = srv_now_ns() + batch_ns * PAUSE_RATIO;
}

/* attn_yield.run: a pause, once its turn has come.  Steps that arrive during it wait for the next
 * one.  False where the long computation is to stop. */
static bool pause_run(void *context)
{
    struct srv_scheduler *s = context;
    struct srv_running_call *running = srv_running_innermost(&s->dispatch);
    uint64_t start = charged_ns(s);
    if (srv_request_check_cancelled(running->request, srv_now_ns(), &running->stop_error) != SRV_OK)
        return false;
    sweep(s);
    if (srv_now_ns() < s->next_pause_ns)
        return true;
    pop_inbox(s);
    if (s->stopping) {
        srv_dispatch_fail_draining(&running->stop_error);
        return false;
    }
    run_in_pause(s, start);
    return true;
}

/* ---- Rounds on an event thread --------------------------------------------------------------- */

/* False where work is left for the scheduler's thread.  Event threads run nothing that may wait for
 * the disk: whatever journal_fsync is, a write waits while the journal is flushed, or while too
 * much has not been written back. */
static bool run_small_round(struct srv_scheduler *s)
{
    pthread_mutex_lock(&s->inbox_lock);
    bool small = !s->handed_over && !s->stop && s->inbox_bytes <= SMALL_BYTES &&
                 !s->context->records_on_disk;
    pthread_mutex_unlock(&s->inbox_lock);
    if (!small)
        return false;
    if (!pop_inbox(s))
        return true;
    if (s->stopping)
        refuse_all(s);
    queue_popped(s);
    small = srv_dispatch_fits_event_thread(&s->dispatch);
    while (small && srv_dispatch_run_batch(&s->dispatch))
        ;
    srv_replies_send(&s->dispatch);
    if (has_parked(s) && !s->parked) /* the scheduler's thread then sleeps from sweep to sweep */
        return false;
    return small && !srv_dispatch_has_work(&s->dispatch); /* a session's next may be long */
}

void srv_scheduler_run_or_wake(struct srv_scheduler *s)
{
    bool done = false;
    if (pthread_mutex_trylock(&s->engine_lock) == 0) {
        done = run_small_round(s);
        pthread_mutex_unlock(&s->engine_lock);
    }
    if (done)
        return;
    pthread_mutex_lock(&s->inbox_lock);
    s->handed_over = true;
    pthread_mutex_unlock(&s->inbox_lock);
    pthread_cond_signal(&s->wake); /* after unlocking: the woken thread takes the lock at once */
}

/* ---- Admission ------------------------------------------------------------------------------- */

enum srv_error_code srv_scheduler_admits(const struct srv_scheduler *s,
                                         const struct srv_request *request, struct srv_error *error)
{
    return srv_admission_check(&s->dispatch.admission, request, error);
}

unsigned srv_scheduler_retry_after_s(const struct srv_scheduler *s,
                                     const struct srv_request *request)
{
    return s != NULL && request->route != NULL
               ? srv_admission_retry_after_s(&s->dispatch.admission, request)
               : 1;
}

bool srv_scheduler_submit(struct srv_scheduler *s, struct srv_request *request,
                          struct srv_error *error)
{
    bool queued = false;
    pthread_mutex_lock(&s->inbox_lock);
    if (s->stop)
        srv_dispatch_fail_draining(error);
    else if (srv_scheduler_admits(s, request, error) == SRV_OK) {
        srv_admission_join(&s->dispatch.admission, request);
        put_into_inbox(s, request);
        queued = true;
    }
    pthread_mutex_unlock(&s->inbox_lock);
    return queued;
}

bool srv_scheduler_handle(struct srv_scheduler *s, struct srv_request *request)
{
    if (s == NULL)
        return false;
    request->reply_bytes = SRV_SHORT_BYTES; /* more or less */
    return srv_codec_workers_accept(s->dispatch.codec_workers, request);
}

size_t srv_scheduler_depth(const struct srv_scheduler *s)
{
    return atomic_load(&s->dispatch.admission.depth);
}

size_t srv_scheduler_running(const struct srv_scheduler *s)
{
    return atomic_load(&s->dispatch.admission.running);
}

/* ---- Life ------------------------------------------------------------------------------------ */

void srv_scheduler_wake(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    atomic_store(&s->inbox_ready, true); /* a long computation pauses too */
    pthread_mutex_lock(&s->inbox_lock);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->inbox_lock);
}

void srv_scheduler_free(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    free(s->inbox);
    free(s->popped);
    srv_dispatch_fini(&s->dispatch);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->inbox_lock);
    pthread_mutex_destroy(&s->engine_lock);
    free(s);
}

bool srv_scheduler_open(struct srv_scheduler **out, const struct srv_scheduler_context *context)
{
    struct attn_engine_info engine;
    struct srv_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return false;
    s->context = context;
    const size_t capacity = context->limits->max_queue;
    s->inbox = calloc(capacity, sizeof *s->inbox);
    s->popped = calloc(capacity, sizeof *s->popped);
    pthread_mutex_init(&s->inbox_lock, NULL);
    pthread_mutex_init(&s->engine_lock, NULL);
    srv_cond_init(&s->wake);
    attn_engine_describe(&engine, context->engine);
    bool opened =
        srv_dispatch_init(&s->dispatch, context, capacity) && s->inbox != NULL &&
        s->popped != NULL &&
        srv_codec_workers_open(&s->dispatch.codec_workers,
                               1 + engine.threads / THREADS_PER_IO_WORKER, read_or_write, s);
    s->dispatch.yield = (struct attn_yield){pause_wanted, pause_run, s};
    if (opened && srv_thread_start(&s->thread, scheduler_main, s)) {
        *out = s;
        return true;
    }
    if (opened)
        srv_codec_workers_finish(s->dispatch.codec_workers);
    srv_scheduler_free(s);
    return false;
}

/* The I/O workers end before the thread that they give requests back to. */
void srv_scheduler_stop(struct srv_scheduler *s)
{
    if (s == NULL)
        return;
    atomic_store(s->context->stopping, true);
    srv_codec_workers_finish(s->dispatch.codec_workers);
    pthread_mutex_lock(&s->inbox_lock);
    s->stop = true;
    atomic_store(&s->inbox_ready, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->inbox_lock);
    pthread_join(s->thread, NULL);
}
