/* codec_workers.c: the queue of large bodies and replies, and the threads that code them.
 *
 * Requests wait in a fair queue, counted in bytes.  The next one is always of the caller that has
 * had least service; among equals, bodies to be read come before replies to be written.
 * Compressing a reply takes longest and is done in pieces: after each piece the request goes to the
 * end of its caller's queue.  A busy worker asks many times a second whether its request is
 * cancelled, and stops then.  Ten times a second one of the workers also looks for cancelled
 * requests in the queue. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "schedule/dispatch.h"
#include "schedule/fair_queue.h"

#define SMALL_CODED ((size_t)64 << 10) /* bytes of a compressed body that no worker need read */
#define CODED_COST ((size_t)1 << 20)   /* bytes to write in the time of compressing one piece */

struct srv_codec_workers {
    srv_codec_work *work;
    void *context;
    pthread_mutex_t lock; /* guards queue, next_sweep_ns and closing */
    pthread_cond_t wake;
    struct srv_fair_queue queue;
    uint64_t next_sweep_ns;
    bool closing;
    pthread_t *threads; /* [started] */
    unsigned started;
};

/* ---- The queue ------------------------------------------------------------------------------- */

static void put(struct srv_codec_workers *workers, struct srv_request *request)
{
    bool computed = request->t_computed != 0;
    size_t bytes = request->compressor != NULL
                       ? CODED_COST
                       : request->reply_bytes + (computed ? 0 : request->body_length);
    request->node =
        (struct srv_queue_node){.request = request, .caller = request->caller, .cost = bytes + 1};
    srv_fair_queue_put(&workers->queue, computed ? SRV_QUEUE_WRITES : SRV_QUEUE_READS,
                       &request->node);
}

/* Removes the next request from the queue; NULL where none waits. */
static struct srv_request *pop_next(struct srv_codec_workers *workers)
{
    struct srv_queue_walk reads, writes;
    const struct srv_caller_queues *callers = workers->queue.callers;
    srv_queue_walk_begin(&reads, &workers->queue, SRV_QUEUE_READS);
    srv_queue_walk_begin(&writes, &workers->queue, SRV_QUEUE_WRITES);
    struct srv_queue_node *read = srv_queue_walk_next(&reads),
                          *write = srv_queue_walk_next(&writes);
    bool reads_first = write == NULL || (read != NULL && callers[reads.caller].service <=
                                                             callers[writes.caller].service);
    struct srv_queue_node *next = reads_first ? read : write;
    if (next == NULL)
        return NULL;
    srv_queue_walk_remove_and_charge(reads_first ? &reads : &writes);
    return next->request;
}

/* A cancelled request, removed from the queue, if it is time to search for one.  Where one is
 * found, the next search may follow at once. */
static struct srv_request *sweep(struct srv_codec_workers *workers)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node = NULL;
    struct srv_error error;
    uint64_t now = srv_now_ns();
    pthread_mutex_lock(&workers->lock);
    const bool due = now >= workers->next_sweep_ns;
    for (enum srv_queue_kind kind = SRV_QUEUE_READS;
         due && node == NULL && kind <= SRV_QUEUE_WRITES; kind++) {
        srv_queue_walk_begin(&walk, &workers->queue, kind);
        while ((node = srv_queue_walk_next(&walk)) != NULL &&
               srv_codec_goes_on(node->request, &error) == SRV_OK)
            ;
    }
    if (node != NULL)
        srv_queue_walk_remove(&walk);
    else if (due)
        workers->next_sweep_ns = now + SRV_CANCEL_NS;
    pthread_mutex_unlock(&workers->lock);
    return node != NULL ? node->request : NULL;
}

enum srv_error_code srv_codec_check(void *context, struct srv_error *error)
{
    struct srv_request *request = context, *cancelled;
    struct srv_codec_workers *workers = request->codec_workers;
    if (workers == NULL)
        return SRV_OK;
    while ((cancelled = sweep(workers)) != NULL)
        workers->work(workers->context, cancelled); /* ends that request at once */
    return srv_codec_goes_on(request, error);
}

bool srv_codec_workers_accept(struct srv_codec_workers *workers, struct srv_request *request)
{
    pthread_mutex_lock(&workers->lock);
    bool accepted = !workers->closing;
    if (accepted) {
        request->codec_workers = workers;
        put(workers, request);
        pthread_cond_signal(&workers->wake);
    }
    pthread_mutex_unlock(&workers->lock);
    return accepted;
}

static bool is_large(const struct srv_request *request)
{
    size_t small = request->coding == SRV_IDENTITY ? SRV_LARGE_BYTES : SMALL_CODED;
    bool large = request->body_length > small || request->expands;
    if (request->t_computed == 0)
        return large && !srv_body_is_parsed(request);
    return (large || request->reply_bytes > SRV_LARGE_BYTES) && request->reply.status == 0;
}

size_t srv_codec_workers_accept_large(struct srv_codec_workers *workers,
                                      struct srv_request *requests[], size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_large(requests[i]) || !srv_codec_workers_accept(workers, requests[i]))
            requests[kept++] = requests[i];
    return kept;
}

/* ---- Workers --------------------------------------------------------------------------------- */

static void *worker_main(void *argument)
{
    struct srv_codec_workers *workers = argument;
    struct srv_request *request = NULL;
    bool more = false;
    struct srv_error error;
    pthread_setname_np(pthread_self(), "attnd-io");
    for (;;) {
        pthread_mutex_lock(&workers->lock);
        if (more)
            put(workers, request);
        while ((request = pop_next(workers)) == NULL && !workers->closing)
            pthread_cond_wait(&workers->wake, &workers->lock);
        pthread_mutex_unlock(&workers->lock);
        if (request == NULL)
            return NULL;
        (void)srv_codec_check(request, &error);
        more = workers->work(workers->context, request);
    }
}

bool srv_codec_workers_open(struct srv_codec_workers **out, unsigned threads, srv_codec_work *work,
                            void *context)
{
    struct srv_codec_workers *workers = calloc(1, sizeof *workers);
    if (workers == NULL)
        return false;
    workers->work = work;
    workers->context = context;
    workers->threads = calloc(threads, sizeof *workers->threads);
    srv_fair_queue_init(&workers->queue);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->wake, NULL);
    bool made = workers->threads != NULL;
    while (made && workers->started < threads) {
        pthread_t *thread = &workers->threads[workers->started];
        made = srv_thread_start(thread, worker_main, workers);
        workers->started += made;
    }
    if (!made) {
        srv_codec_workers_finish(workers);
        srv_codec_workers_free(workers);
        return false;
    }
    *out = workers;
    return true;
}

void srv_codec_workers_finish(struct srv_codec_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    workers->closing = true;
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->started; i++)
        pthread_join(workers->threads[i], NULL);
    workers->started = 0;
}

void srv_codec_workers_free(struct srv_codec_workers *workers)
{
    if (workers == NULL)
        return;
    pthread_cond_destroy(&workers->wake);
    pthread_mutex_destroy(&workers->lock);
    free(workers->threads);
    free(workers);
}
