/* dispatch.c: reading, computing and replying, for whoever drives. */
#include "schedule/dispatch.h"

#include <stdlib.h>

#include "app.h"
#include "base/clock.h"
#include "schedule/batch.h"
#include "schedule/steps.h"

/* Below these, waking another thread costs more than it brings. */
#define ALONE_BYTES 32768 /* of bodies or replies that are read or written by one thread */
#define BATCH_LOOKS ((size_t)4 * SRV_BATCH_STEPS) /* at items of other layers too, for a batch */
#define PIECE_ROWS 64                             /* that a piece counts for */
#define SMALL_WORK 2000000 /* multiply-adds of the steps in a round that an event thread runs */
#define BATCH_WORK 200000  /* that it takes to begin a batch, and to end it */

/* For each i below count, on all threads where as many `bytes` are read or written make it pay. */
static void run_tasks(struct srv_dispatch *s, void (*task)(void *context, size_t i), void *context,
                      size_t count, size_t bytes)
{
    if (count > 1 && bytes > ALONE_BYTES) {
        attn_engine_run(s->app->engine, task, context, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(context, i);
}

/* ---- Ended jobs ---- */

static void end_request(struct srv_dispatch *s, struct srv_request *request)
{
    request->t_computed = srv_now_ns();
    s->ended[s->num_ended++] = request;
}

static void end_job(struct srv_dispatch *s, struct srv_job *job)
{
    /* A single item's error is the request's. */
    if (job->num_items == 1 && job->call.sequences == NULL)
        job->error = job->items[0].error;
    if (job->error.code != SRV_OK && job->abandon != NULL)
        job->abandon(job);
    end_request(s, job->request);
}

static void write_task(void *requests, size_t i)
{
    srv_write_reply(((struct srv_request **)requests)[i]);
}

/* Before it is handed back. */
static void let_go(struct srv_dispatch *s, struct srv_request *request)
{
    if (request->job != NULL)
        srv_job_release(request->job);
    srv_admission_leave(&s->admission, request);
}

void srv_dispatch_reply(struct srv_dispatch *s)
{
    srv_admission_pace(&s->admission, s->ended, s->num_ended);
    s->num_ended = srv_io_workers_take_large(s->clerk, s->ended, s->num_ended);
    if (s->num_ended == 0)
        return;
    size_t bytes = 0;
    for (size_t i = 0; i < s->num_ended; i++)
        bytes += s->ended[i]->reply_bytes;
    run_tasks(s, write_task, s->ended, s->num_ended, bytes);
    for (size_t i = 0; i < s->num_ended; i++)
        let_go(s, s->ended[i]);
    srv_http_resume(s->app->http, s->ended, s->num_ended);
    s->num_ended = 0;
}

bool srv_dispatch_write_piece(struct srv_dispatch *s, struct srv_request *request)
{
    if (srv_write_reply_piece(request))
        return true;
    let_go(s, request);
    srv_request_release(request);
    srv_http_resume(s->app->http, &request, 1);
    return false;
}

/* ---- Reading ---- */

static void read_task(void *requests, size_t i)
{
    srv_read_body(((struct srv_request **)requests)[i]);
}

static void put_item(struct srv_dispatch *s, struct srv_item *item)
{
    item->work = srv_item_work(item);
    item->waiting.caller = item->job->request->caller;
    item->waiting.rows = item->sizes.queries;
    srv_fair_queue_put(&s->lines, srv_item_is_long(item) ? SRV_QUEUE_PREFILLS : SRV_QUEUE_STEPS,
                       &item->waiting);
}

static void queue_item(struct srv_dispatch *s, struct srv_item *item)
{
    if (item->error.code != SRV_OK || !srv_item_bind(item, s->app))
        item->job->pending--;
    else if (item->first)
        put_item(s, item);
}

static void put_job(struct srv_dispatch *s, enum srv_queue_kind kind, struct srv_job *job,
                    size_t rows)
{
    job->waiting.caller = job->request->caller;
    job->waiting.rows = rows;
    srv_fair_queue_put(&s->lines, kind, &job->waiting);
}

/* Where a job goes that has been begun. */
static void queue_begun(struct srv_dispatch *s, struct srv_job *job)
{
    if (job->compute != NULL)
        put_job(s, SRV_QUEUE_ATTENDS, job, job->sizes.batch * job->sizes.queries);
    else if (job->advance != NULL && job->error.code == SRV_OK)
        put_job(s, SRV_QUEUE_PIECES, job, PIECE_ROWS);
    else if (job->pending == 0)
        end_job(s, job);
}

/* Ends a job that nobody waits for any more. */
static bool drop_job(struct srv_dispatch *s, struct srv_job *job)
{
    if (srv_request_check_cancelled(job->request, srv_now_ns(), &job->error) == SRV_OK)
        return false;
    end_job(s, job);
    return true;
}

static void begin_job(struct srv_dispatch *s, struct srv_job *job)
{
    if (drop_job(s, job))
        return;
    job->begin(job);
    queue_begun(s, job);
}

/* The next job of a kind that somebody waits for; those before it end. */
static struct srv_job *take_live(struct srv_dispatch *s, enum srv_queue_kind kind)
{
    struct srv_job *job = (struct srv_job *)srv_fair_queue_take(&s->lines, kind);
    while (job != NULL && drop_job(s, job))
        job = (struct srv_job *)srv_fair_queue_take(&s->lines, kind);
    return job;
}

/* What changes sessions waits for the end of a running prefill: it may be of that one. */
static void queue_job(struct srv_dispatch *s, struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++)
        queue_item(s, &job->items[i]);
    if (job->begin == NULL)
        queue_begun(s, job);
    else if (s->prefill != NULL)
        put_job(s, SRV_QUEUE_CHANGES, job, 1);
    else
        begin_job(s, job);
}

/* Ends requests that nobody waits for any more, before they are read; the rest move up. */
static size_t drop_requests(struct srv_dispatch *s, struct srv_request *requests[], size_t count)
{
    size_t kept = 0;
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        struct srv_error error;
        bool read = requests[i]->job != NULL || requests[i]->reply.status != 0;
        if (read || srv_request_check_cancelled(requests[i], now, &error) == SRV_OK) {
            requests[kept++] = requests[i];
        } else {
            srv_reply_error(requests[i], &error);
            end_request(s, requests[i]);
        }
    }
    return kept;
}

void srv_dispatch_read(struct srv_dispatch *s, struct srv_request *requests[], size_t count,
                       size_t bytes)
{
    count = drop_requests(s, requests, count);
    count = srv_io_workers_take_large(s->clerk, requests, count);
    run_tasks(s, read_task, requests, count, bytes);
    count = srv_io_workers_take_large(s->clerk, requests,
                                      count); /* what expands to more than is small */
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        srv_read_body(requests[i]); /* what no clerk takes any more is refused */
        if (requests[i]->t_compute == 0)
            requests[i]->t_compute = now;
        if (requests[i]->job != NULL)
            queue_job(s, requests[i]->job);
        else
            end_request(s, requests[i]);
    }
}

/* ---- Steps ---- */

/* One of the job's items has ended, maybe the last. */
static void count_end(struct srv_dispatch *s, struct srv_job *job)
{
    if (job->pending > 0 || job->ended)
        return;
    job->ended = true;
    end_job(s, job);
}

/* The one end of an item that was in line: the next of its session is. */
static void end_item(struct srv_dispatch *s, struct srv_item *item)
{
    struct srv_item *next = srv_item_end(item);
    if (next != NULL)
        put_item(s, next);
    count_end(s, item->job);
}

/* Takes up to `most` items of one layer out of line; those that nobody waits for end. */
static void take_batch(struct srv_batch *batch, struct srv_dispatch *s, enum srv_queue_kind kind,
                       size_t most)
{
    struct srv_queue_walk walk;
    struct srv_item *item;
    uint64_t now = srv_now_ns();
    srv_batch_clear(batch);
    srv_queue_walk_begin(&walk, &s->lines, kind);
    for (size_t looks = 0; looks < BATCH_LOOKS && batch->count < most; looks++) {
        item = (struct srv_item *)srv_queue_walk_peek(&walk);
        if (item == NULL)
            break;
        if (srv_request_check_cancelled(item->job->request, now, &item->error) != SRV_OK) {
            srv_queue_walk_drop(&walk);
            end_item(s, item);
        } else if (srv_batch_add(batch, item)) {
            srv_queue_walk_take(&walk);
        } else {
            srv_queue_walk_pass(&walk);
        }
    }
}

static void begin_long(struct srv_dispatch *s, const struct srv_request *request,
                       struct srv_item *prefill)
{
    srv_dispatch_reply(s);
    s->long_request = request;
    s->prefill = prefill;
    s->stopped.code = SRV_OK;
    s->more = srv_dispatch_has_short_steps(s);
}

bool srv_dispatch_check_long(struct srv_dispatch *s)
{
    return s->long_request == NULL ||
           srv_request_check_cancelled(s->long_request, srv_now_ns(), &s->stopped) == SRV_OK;
}

/* They counted for nothing while they waited, and do not now. */
static void begin_changes(struct srv_dispatch *s)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, &s->lines, SRV_QUEUE_CHANGES);
    for (struct srv_queue_node *job; (job = srv_queue_walk_peek(&walk)) != NULL;) {
        srv_queue_walk_drop(&walk);
        begin_job(s, (struct srv_job *)job);
    }
}

/* `error` is the computation's: where it was stopped it says why, as far as the library knows. */
static void end_long(struct srv_dispatch *s, struct srv_error *error)
{
    if (error->code == SRV_E_DRAINING && s->stopped.code != SRV_OK)
        *error = s->stopped;
    s->long_request = NULL;
    s->prefill = NULL;
}

bool srv_dispatch_batch(struct srv_dispatch *s, bool want_long)
{
    struct srv_batch batch;
    take_batch(&batch, s, want_long ? SRV_QUEUE_PREFILLS : SRV_QUEUE_STEPS,
               want_long ? 1 : SRV_BATCH_STEPS);
    if (batch.count == 0)
        return false;
    struct srv_item *lead = batch.items[0];
    if (want_long) {
        begin_long(s, lead->job->request, lead);
        lead->step.yield = &s->yield;
    }
    srv_items_run(batch.items, batch.count, s->app);
    if (want_long)
        end_long(s, &lead->error);
    for (size_t i = 0; i < batch.count; i++)
        end_item(s, batch.items[i]);
    if (want_long)
        begin_changes(s); /* which find what has become of the session that it was to start */
    return true;
}

void srv_dispatch_attend(struct srv_dispatch *s)
{
    struct srv_job *job = take_live(s, SRV_QUEUE_ATTENDS);
    if (job == NULL)
        return;
    uint64_t start = srv_now_ns();
    begin_long(s, job->request, NULL);
    job->yield = &s->yield;
    job->compute(job);
    end_long(s, &job->error);
    if (job->error.code == SRV_OK)
        srv_metrics_attend(s->app->metrics, job->sizes.batch * job->sizes.queries,
                           srv_now_ns() - start);
    end_job(s, job);
}

/* Those that take turns here are all long; each gets a piece of one round. */
void srv_dispatch_piece(struct srv_dispatch *s)
{
    struct srv_job *job = take_live(s, SRV_QUEUE_PIECES);
    if (job == NULL)
        return;
    if (job->advance(job))
        put_job(s, SRV_QUEUE_PIECES, job, PIECE_ROWS);
    else
        end_job(s, job);
}

/* ---- What is not computed -------------------------------------------------------------------- */

static bool is_item(enum srv_queue_kind kind)
{
    return kind == SRV_QUEUE_STEPS || kind == SRV_QUEUE_PREFILLS;
}

static const struct srv_request *request_of(enum srv_queue_kind kind,
                                            const struct srv_queue_node *waiting)
{
    return is_item(kind) ? ((const struct srv_item *)waiting)->job->request
                         : ((const struct srv_job *)waiting)->request;
}

static void refuse(struct srv_dispatch *s, enum srv_queue_kind kind, struct srv_queue_node *waiting,
                   const struct srv_error *error)
{
    if (is_item(kind)) {
        struct srv_item *item = (struct srv_item *)waiting;
        item->error = *error;
        end_item(s, item);
    } else {
        struct srv_job *job = (struct srv_job *)waiting;
        job->error = *error;
        end_job(s, job);
    }
}

/* The steps that wait for their session behind one that runs or is in line. */
static void sweep_behind(struct srv_dispatch *s, struct srv_item *item, uint64_t now)
{
    for (struct srv_item *next; (next = item->behind) != NULL;) {
        if (srv_request_check_cancelled(next->job->request, now, &next->error) == SRV_OK) {
            item = next;
        } else {
            srv_item_end_next(item);
            count_end(s, next->job);
        }
    }
}

static void sweep_line(struct srv_dispatch *s, enum srv_queue_kind kind)
{
    struct srv_queue_walk walk;
    struct srv_error error;
    uint64_t now = srv_now_ns();
    srv_queue_walk_begin(&walk, &s->lines, kind);
    for (struct srv_queue_node *waiting; (waiting = srv_queue_walk_peek(&walk)) != NULL;) {
        if (is_item(kind))
            sweep_behind(s, (struct srv_item *)waiting, now);
        if (srv_request_check_cancelled(request_of(kind, waiting), now, &error) == SRV_OK) {
            srv_queue_walk_pass(&walk);
        } else {
            srv_queue_walk_drop(&walk);
            refuse(s, kind, waiting, &error);
        }
    }
}

void srv_dispatch_drop_cancelled(struct srv_dispatch *s)
{
    if (s->prefill != NULL)
        sweep_behind(s, s->prefill, srv_now_ns());
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        sweep_line(s, kind);
}

void srv_dispatch_fail_draining(struct srv_error *error)
{
    srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

void srv_dispatch_refuse(struct srv_dispatch *s, struct srv_request *requests[], size_t count)
{
    struct srv_error error;
    srv_dispatch_fail_draining(&error);
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->reply.status == 0)
            srv_reply_error(requests[i], &error);
        end_request(s, requests[i]);
    }
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        for (struct srv_queue_node *waiting;
             (waiting = srv_fair_queue_take(&s->lines, kind)) != NULL;)
            refuse(s, kind, waiting, &error);
}

/* ---- What waits ---- */

bool srv_dispatch_has_work(const struct srv_dispatch *s)
{
    return !srv_fair_queue_is_empty(&s->lines);
}

bool srv_dispatch_has_short_steps(const struct srv_dispatch *s)
{
    return s->lines.waiting[SRV_QUEUE_STEPS] > 0;
}

/* Of an item and those behind it, which are a batch each; or of as many as are too much. */
static size_t work_from(const struct srv_item *item)
{
    size_t work = item->work;
    while ((item = item->behind) != NULL && work <= SMALL_WORK)
        work += BATCH_WORK + srv_item_work(item);
    return work;
}

bool srv_dispatch_is_small(struct srv_dispatch *s)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *waiting;
    const size_t *count = s->lines.waiting;
    size_t work = 0;
    if (count[SRV_QUEUE_PREFILLS] + count[SRV_QUEUE_ATTENDS] + count[SRV_QUEUE_PIECES] > 0)
        return false;
    srv_queue_walk_begin(&walk, &s->lines, SRV_QUEUE_STEPS);
    while (work <= SMALL_WORK && (waiting = srv_queue_walk_peek(&walk)) != NULL) {
        work += work_from((const struct srv_item *)waiting);
        srv_queue_walk_pass(&walk);
    }
    return work <= SMALL_WORK;
}

/* ---- Life ---- */

bool srv_dispatch_init(struct srv_dispatch *s, struct srv_app *app, size_t capacity)
{
    s->app = app;
    s->ended = calloc(capacity, sizeof *s->ended);
    srv_fair_queue_init(&s->lines);
    return srv_admission_init(&s->admission, capacity, app->routes) && s->ended != NULL;
}

void srv_dispatch_fini(struct srv_dispatch *s)
{
    srv_io_workers_free(s->clerk);
    srv_admission_fini(&s->admission);
    free(s->ended);
}
