/* replies.c: replies that are due, and what ends with them. */
#include "base/clock.h"
#include "schedule/dispatch.h"

#define ALONE_BYTES 32768 /* of bodies or replies, below which waking threads does not pay */

struct task {
    void (*run)(struct srv_request *request);
    struct srv_request **requests;
};

static void run_task(void *context, size_t i)
{
    const struct task *task = context;
    task->run(task->requests[i]);
}

void srv_replies_run(struct srv_dispatch *d, void (*run)(struct srv_request *request),
                     struct srv_request *requests[], size_t count, size_t bytes)
{
    if (count > 1 && bytes > ALONE_BYTES)
        attn_engine_run(d->context->engine, run_task, &(struct task){run, requests}, count);
    else
        for (size_t i = 0; i < count; i++)
            run(requests[i]);
}

void srv_replies_add(struct srv_dispatch *d, struct srv_request *request)
{
    request->t_computed = srv_now_ns();
    d->ended[d->num_ended++] = request;
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

void srv_replies_send(struct srv_dispatch *d)
{
    srv_admission_count_ended(&d->admission, d->ended, d->num_ended);
    d->num_ended = srv_codec_workers_accept_large(d->codec_workers, d->ended, d->num_ended);
    if (d->num_ended == 0)
        return;
    size_t bytes = 0;
    for (size_t i = 0; i < d->num_ended; i++)
        bytes += d->ended[i]->reply_bytes;
    srv_replies_run(d, srv_write_reply, d->ended, d->num_ended, bytes);
    for (size_t i = 0; i < d->num_ended; i++)
        leave_scheduler(d, d->ended[i]);
    hand_back(d, d->ended, d->num_ended);
    d->num_ended = 0;
}

void srv_replies_handle(struct srv_dispatch *d, struct srv_request *request)
{
    request->route->handle(request);
    hand_back(d, &request, 1);
}

bool srv_replies_write_piece(struct srv_dispatch *d, struct srv_request *request)
{
    if (srv_write_reply_piece(request))
        return true;
    leave_scheduler(d, request);
    srv_request_release(request);
    hand_back(d, &request, 1);
    return false;
}
