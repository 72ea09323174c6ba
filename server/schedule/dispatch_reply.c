/* dispatch_reply.c: replies that are due, and what ends with them. */
#include "schedule/dispatch.h"

#include "wire/route.h"

#define ALONE_BYTES 32768 /* of bodies or replies, below which waking threads does not pay */

void srv_dispatch_run_tasks(struct srv_dispatch *d, void (*task)(void *context, size_t i),
                            void *context, size_t count, size_t bytes)
{
    if (count > 1 && bytes > ALONE_BYTES) {
        attn_engine_run(d->context->engine, task, context, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(context, i);
}

static void write_task(void *requests, size_t i)
{
    srv_write_reply(((struct srv_request **)requests)[i]);
}

/* Gives up the request's references to sessions and its place in the queue. */
static void leave_scheduler(struct srv_dispatch *d, struct srv_request *request)
{
    if (request->job != NULL)
        srv_job_release(request->job);
    srv_admission_leave(&d->admission, request);
}

static void hand_back(struct srv_dispatch *d, struct srv_request *const requests[], size_t count)
{
    d->context->resume(d->context->resume_context, requests, count);
}

void srv_dispatch_reply(struct srv_dispatch *d)
{
    srv_admission_count_ended(&d->admission, d->ended, d->num_ended);
    d->num_ended = srv_io_workers_take_large(d->io_workers, d->ended, d->num_ended);
    if (d->num_ended == 0)
        return;
    size_t bytes = 0;
    for (size_t i = 0; i < d->num_ended; i++)
        bytes += d->ended[i]->reply_bytes;
    srv_dispatch_run_tasks(d, write_task, d->ended, d->num_ended, bytes);
    for (size_t i = 0; i < d->num_ended; i++)
        leave_scheduler(d, d->ended[i]);
    hand_back(d, d->ended, d->num_ended);
    d->num_ended = 0;
}

bool srv_dispatch_handle(struct srv_dispatch *d, struct srv_request *request)
{
    request->route->handle(request);
    hand_back(d, &request, 1);
    return false;
}

bool srv_dispatch_write_piece(struct srv_dispatch *d, struct srv_request *request)
{
    if (srv_write_reply_piece(request))
        return true;
    leave_scheduler(d, request);
    srv_request_release(request);
    hand_back(d, &request, 1);
    return false;
}
