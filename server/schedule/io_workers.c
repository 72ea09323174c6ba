/* io_workers.c: reading and writing requests, and the lines of those that other threads do it for.
 *
 * They wait as what is to be computed does (lines.h), counted in bytes: next is always the caller
 * that has been given least, and of its requests what is to be read before what is to be written.
 * Coding a reply, which takes longest, is done in pieces, behind each of which the request goes to
 * the end of its line.  A clerk that is busy pauses many times a second all the same.  It drops
 * what it does once nobody waits for that, and ten times a second, whichever clerk comes first,
 * what waits in line. */
#include "schedule/io_workers.h"

#include <pthread.h>
#include <stdlib.h>

#include "app.h"
#include "base/clock.h"
#include "schedule/job.h"

#define SMALL_CODED ((size_t)64 << 10) /* of a coded body that is read where others are */
#define CODED_COUNT ((size_t)1 << 20)  /* bytes that a piece of coding takes as long as */
#define SWEEP_NS UINT64_C(100000000)   /* from one look at all that waits to the next */

struct srv_io_workers {
    srv_io_work *work;
    void *context;
    pthread_mutex_t lock; /* guards what follows, up to the threads */
    pthread_cond_t wake;
    struct srv_fair_queue lines;
    uint64_t next_sweep_ns;
    bool closing;
    pthread_t *threads; /* [started] */
    unsigned started;
};

/* ---- Whom it is done for --------------------------------------------------------------------- */

/* Whether a reply is to be written: a small one always.  What was computed for nobody is dropped;
 * but who had a session changed is told so late too, and at the end is not told of a refusal. */
static enum srv_error_code check_reply(struct srv_request *request, struct srv_error *error)
{
    if (request->reply_bytes <= SRV_LARGE_BYTES)
        return SRV_OK;
    enum srv_error_code code = srv_request_check_cancelled(request, srv_now_ns(), error);
    if (request->job->compute != NULL || code == SRV_OK || code == SRV_E_CLIENT_GONE)
        return code;
    if (code == SRV_E_DEADLINE)
        return error->code = SRV_OK;
    atomic_store(&request->left, true);
    return srv_fail(error, SRV_E_CLIENT_GONE, NULL, "attnd stops before its reply is written");
}

static enum srv_error_code check(struct srv_request *request, struct srv_error *error)
{
    return request->t_computed == 0 ? srv_request_check_cancelled(request, srv_now_ns(), error)
                                    : check_reply(request, error);
}

/* ---- Reading and writing ---- */

static bool is_read(const struct srv_request *request)
{
    return request->job != NULL || request->reply.status != 0;
}

/* What a clerk does not have is coded only where it is small, and most often stays so. */
static size_t expansion_limit(const struct srv_request *request)
{
    size_t most = srv_body_limit(request);
    return request->clerk == NULL && most > SRV_LARGE_BYTES ? SRV_LARGE_BYTES : most;
}

static enum srv_error_code read_body(struct srv_request *request, struct srv_error *error)
{
    const struct srv_cancel cancel = {srv_io_workers_check, request};
    size_t most = expansion_limit(request);
    request->expands = false;
    if (check(request, error) != SRV_OK)
        return error->code;
    if (srv_body_decompress(request, most, &cancel, error) == SRV_OK)
        return request->route->parse(request, error);
    request->expands = error->code == SRV_E_BODY_TOO_LARGE && most < srv_body_limit(request);
    return error->code;
}

void srv_read_body(struct srv_request *request)
{
    struct srv_error error = {.code = SRV_OK};
    if (!is_read(request) && read_body(request, &error) != SRV_OK && !request->expands) {
        request->job = NULL;
        srv_reply_error(request, &error);
    }
    request->clerk = NULL;
}

/* The reply's text, which is there already where it is being coded. */
static enum srv_error_code write_text(struct srv_request *request)
{
    struct srv_job *job = request->job;
    struct srv_error *error = &job->error;
    if (error->code != SRV_OK || check_reply(request, error) != SRV_OK)
        return error->code;
    if (request->compressor != NULL)
        return SRV_OK;
    srv_job_write_reply(job);
    if (!request->reply.body.failed || check_reply(request, error) != SRV_OK)
        return error->code;
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
}

bool srv_write_reply_piece(struct srv_request *request)
{
    if (request->reply.status != 0)
        return false; /* reading it failed, and said so */
    if (write_text(request) != SRV_OK) {
        srv_reply_compress_stop(request);
        srv_reply_error(request, &request->job->error);
        return false;
    }
    bool more = srv_reply_compress(request);
    if (!more)
        srv_reply_status(request, 200);
    return more;
}

void srv_write_reply(struct srv_request *request)
{
    while (srv_write_reply_piece(request))
        ;
}

/* ---- The lines ---- */

static void put(struct srv_io_workers *clerk, struct srv_request *request)
{
    bool written = request->t_computed != 0;
    size_t bytes = request->compressor != NULL ? CODED_COUNT
                   : written                   ? request->reply_bytes
                                               : request->body_length;
    request->waiting = (struct srv_queue_node){.caller = request->caller, .rows = bytes + 1};
    srv_fair_queue_put(&clerk->lines, written ? SRV_QUEUE_WRITES : SRV_QUEUE_READS,
                       &request->waiting);
}

static struct srv_request *request_of(struct srv_queue_node *waiting)
{
    return (struct srv_request *)((char *)waiting - offsetof(struct srv_request, waiting));
}

/* Takes the next request out of line; NULL where none waits. */
static struct srv_request *take_next(struct srv_io_workers *clerk)
{
    struct srv_queue_walk reads, writes;
    const struct srv_caller_queues *callers = clerk->lines.callers;
    srv_queue_walk_begin(&reads, &clerk->lines, SRV_QUEUE_READS);
    srv_queue_walk_begin(&writes, &clerk->lines, SRV_QUEUE_WRITES);
    struct srv_queue_node *read = srv_queue_walk_peek(&reads),
                          *write = srv_queue_walk_peek(&writes);
    bool reads_first = write == NULL || (read != NULL && callers[reads.caller].given <=
                                                             callers[writes.caller].given);
    struct srv_queue_node *next = reads_first ? read : write;
    if (next == NULL)
        return NULL;
    srv_queue_walk_take(reads_first ? &reads : &writes);
    return request_of(next);
}

/* Takes one out of line that nobody waits for any more; NULL where there is none. */
static struct srv_request *take_useless(struct srv_io_workers *clerk, enum srv_queue_kind kind)
{
    struct srv_queue_walk walk;
    struct srv_error error;
    srv_queue_walk_begin(&walk, &clerk->lines, kind);
    for (struct srv_queue_node *waiting; (waiting = srv_queue_walk_peek(&walk)) != NULL;) {
        if (check(request_of(waiting), &error) != SRV_OK) {
            srv_queue_walk_drop(&walk);
            return request_of(waiting);
        }
        srv_queue_walk_pass(&walk);
    }
    return NULL;
}

/* One to be dropped, if it is time to look for them; the next look is at once then. */
static struct srv_request *sweep(struct srv_io_workers *clerk)
{
    struct srv_request *request = NULL;
    uint64_t now = srv_now_ns();
    pthread_mutex_lock(&clerk->lock);
    if (now >= clerk->next_sweep_ns) {
        request = take_useless(clerk, SRV_QUEUE_READS);
        if (request == NULL)
            request = take_useless(clerk, SRV_QUEUE_WRITES);
        if (request == NULL)
            clerk->next_sweep_ns = now + SWEEP_NS;
    }
    pthread_mutex_unlock(&clerk->lock);
    return request;
}

enum srv_error_code srv_io_workers_check(void *context, struct srv_error *error)
{
    struct srv_request *request = context, *useless;
    struct srv_io_workers *clerk = request->clerk;
    if (clerk == NULL)
        return SRV_OK;
    while ((useless = sweep(clerk)) != NULL)
        clerk->work(clerk->context, useless); /* which asks nothing, and drops it */
    return check(request, error);
}

/* Puts back what there is more to do for, and waits for the next; NULL where none will come. */
static struct srv_request *take(struct srv_io_workers *clerk, struct srv_request *unfinished)
{
    struct srv_request *request;
    pthread_mutex_lock(&clerk->lock);
    if (unfinished != NULL)
        put(clerk, unfinished);
    while ((request = take_next(clerk)) == NULL && !clerk->closing)
        pthread_cond_wait(&clerk->wake, &clerk->lock);
    pthread_mutex_unlock(&clerk->lock);
    return request;
}

static void *clerk_main(void *argument)
{
    struct srv_io_workers *clerk = argument;
    struct srv_request *request = NULL;
    bool more = false;
    struct srv_error error;
    pthread_setname_np(pthread_self(), "attnd-io");
    while ((request = take(clerk, more ? request : NULL)) != NULL) {
        (void)srv_io_workers_check(request, &error);
        more = clerk->work(clerk->context, request);
    }
    return NULL;
}

/* False where it is closing. */
static bool give(struct srv_io_workers *clerk, struct srv_request *request)
{
    pthread_mutex_lock(&clerk->lock);
    bool taken = !clerk->closing;
    if (taken) {
        request->clerk = clerk;
        put(clerk, request);
        pthread_cond_signal(&clerk->wake);
    }
    pthread_mutex_unlock(&clerk->lock);
    return taken;
}

static bool is_large(const struct srv_request *request)
{
    size_t small = request->coding == SRV_IDENTITY ? SRV_LARGE_BYTES : SMALL_CODED;
    bool large = request->body_length > small || request->expands;
    if (request->t_computed == 0)
        return large && !is_read(request);
    return (large || request->reply_bytes > SRV_LARGE_BYTES) && request->reply.status == 0;
}

size_t srv_io_workers_take_large(struct srv_io_workers *clerk, struct srv_request *requests[],
                                 size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_large(requests[i]) || !give(clerk, requests[i]))
            requests[kept++] = requests[i];
    return kept;
}

bool srv_io_workers_open(struct srv_io_workers **out, unsigned threads, srv_io_work *work,
                         void *context)
{
    struct srv_io_workers *clerk = calloc(1, sizeof *clerk);
    if (clerk == NULL)
        return false;
    clerk->work = work;
    clerk->context = context;
    clerk->threads = calloc(threads, sizeof *clerk->threads);
    srv_fair_queue_init(&clerk->lines);
    pthread_mutex_init(&clerk->lock, NULL);
    pthread_cond_init(&clerk->wake, NULL);
    bool made = clerk->threads != NULL;
    while (made && clerk->started < threads) {
        made = pthread_create(&clerk->threads[clerk->started], NULL, clerk_main, clerk) == 0;
        clerk->started += made;
    }
    if (!made) {
        srv_io_workers_finish(clerk);
        srv_io_workers_free(clerk);
        return false;
    }
    *out = clerk;
    return true;
}

void srv_io_workers_finish(struct srv_io_workers *clerk)
{
    pthread_mutex_lock(&clerk->lock);
    clerk->closing = true;
    pthread_cond_broadcast(&clerk->wake);
    pthread_mutex_unlock(&clerk->lock);
    for (unsigned i = 0; i < clerk->started; i++)
        pthread_join(clerk->threads[i], NULL);
    clerk->started = 0;
}

void srv_io_workers_free(struct srv_io_workers *clerk)
{
    if (clerk == NULL)
        return;
    pthread_cond_destroy(&clerk->wake);
    pthread_mutex_destroy(&clerk->lock);
    free(clerk->threads);
    free(clerk);
}
