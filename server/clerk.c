/* clerk.c: reading and writing requests, and a ring of those that other threads do it for. */
#include "clerk.h"

#include <pthread.h>
#include <stdlib.h>

#include "app.h"
#include "job.h"

struct srv_clerk {
    srv_clerk_work *work;
    void *context;
    pthread_mutex_t lock; /* guards the ring */
    pthread_cond_t wake;
    struct srv_request **ring; /* [capacity], of which count from first on are waiting */
    size_t capacity, first, count;
    bool closing;
    pthread_t *threads; /* [started] */
    unsigned started;
};

/* ---- Reading and writing ---- */

static bool is_read(const struct srv_request *request)
{
    return request->job != NULL || request->reply.status != 0;
}

void srv_read_body(struct srv_request *request)
{
    struct srv_error error = {.code = SRV_OK};
    if (is_read(request))
        return;
    if (srv_body_expand(request, srv_body_limit(request), &error) != SRV_OK ||
        request->route->parse(request, &error) != SRV_OK) {
        request->job = NULL;
        srv_reply_error(request, &error);
    }
}

void srv_write_reply(struct srv_request *request)
{
    struct srv_job *job = request->job;
    if (request->reply.status != 0)
        return; /* reading it failed, and said so */
    if (job->error.code == SRV_OK) {
        srv_job_write(job);
        if (!request->reply.body.failed) {
            srv_reply_status(request, 200);
            srv_reply_code(request);
            return;
        }
        srv_fail(&job->error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
    }
    srv_reply_error(request, &job->error);
}

/* ---- The ring ---- */

/* The next request; NULL where there is none and none will come. */
static struct srv_request *take(struct srv_clerk *clerk)
{
    struct srv_request *request = NULL;
    pthread_mutex_lock(&clerk->lock);
    while (clerk->count == 0 && !clerk->closing)
        pthread_cond_wait(&clerk->wake, &clerk->lock);
    if (clerk->count > 0) {
        request = clerk->ring[clerk->first];
        clerk->first = (clerk->first + 1) % clerk->capacity;
        clerk->count--;
    }
    pthread_mutex_unlock(&clerk->lock);
    return request;
}

static void *clerk_main(void *argument)
{
    struct srv_clerk *clerk = argument;
    struct srv_request *request;
    while ((request = take(clerk)) != NULL)
        clerk->work(clerk->context, request);
    return NULL;
}

/* False where it is full or closing. */
static bool give(struct srv_clerk *clerk, struct srv_request *request)
{
    pthread_mutex_lock(&clerk->lock);
    bool taken = !clerk->closing && clerk->count < clerk->capacity;
    if (taken) {
        clerk->ring[(clerk->first + clerk->count++) % clerk->capacity] = request;
        pthread_cond_signal(&clerk->wake);
    }
    pthread_mutex_unlock(&clerk->lock);
    return taken;
}

static bool is_large(const struct srv_request *request)
{
    bool large = request->body_length > SRV_LARGE_BYTES;
    if (request->t_computed == 0)
        return (large || request->coding != SRV_IDENTITY) && !is_read(request);
    return (large || request->reply_bytes > SRV_LARGE_BYTES) && request->reply.status == 0;
}

size_t srv_clerk_relieve(struct srv_clerk *clerk, struct srv_request *requests[], size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_large(requests[i]) || !give(clerk, requests[i]))
            requests[kept++] = requests[i];
    return kept;
}

bool srv_clerk_open(struct srv_clerk **out, size_t capacity, unsigned threads, srv_clerk_work *work,
                    void *context)
{
    struct srv_clerk *clerk = calloc(1, sizeof *clerk);
    if (clerk == NULL)
        return false;
    clerk->work = work;
    clerk->context = context;
    clerk->capacity = capacity;
    clerk->ring = calloc(capacity, sizeof *clerk->ring);
    clerk->threads = calloc(threads, sizeof *clerk->threads);
    pthread_mutex_init(&clerk->lock, NULL);
    pthread_cond_init(&clerk->wake, NULL);
    bool made = clerk->ring != NULL && clerk->threads != NULL;
    while (made && clerk->started < threads) {
        made = pthread_create(&clerk->threads[clerk->started], NULL, clerk_main, clerk) == 0;
        clerk->started += made;
    }
    if (!made) {
        srv_clerk_finish(clerk);
        srv_clerk_free(clerk);
        return false;
    }
    *out = clerk;
    return true;
}

void srv_clerk_finish(struct srv_clerk *clerk)
{
    pthread_mutex_lock(&clerk->lock);
    clerk->closing = true;
    pthread_cond_broadcast(&clerk->wake);
    pthread_mutex_unlock(&clerk->lock);
    for (unsigned i = 0; i < clerk->started; i++)
        pthread_join(clerk->threads[i], NULL);
    clerk->started = 0;
}

void srv_clerk_free(struct srv_clerk *clerk)
{
    if (clerk == NULL)
        return;
    pthread_cond_destroy(&clerk->wake);
    pthread_mutex_destroy(&clerk->lock);
    free(clerk->ring);
    free(clerk->threads);
    free(clerk);
}
