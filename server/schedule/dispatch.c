/* dispatch.c: the parts of a round, and where each job and item goes next.
 *
 *   request --read--> job --queue--> batch, long step, attend or piece --end--> reply
 *
 * Every job that is read ends in end_job, once; every item that is bound ends in srv_item_end or
 * srv_item_end_next, once. */
#include "schedule/dispatch.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ops/metrics.h"
#include "schedule/batch.h"
#include "schedule/encoding.h"
#include "schedule/steps.h"

#define BATCH_LOOKS ((size_t)4 * SRV_BATCH_STEPS) /* most items looked at for one batch */
#define COST_WORK 65536                           /* multiply-adds that a caller is charged 1 for */
#define PIECE_COST 512                            /* of a piece of about a millisecond */
#define CHANGE_COST 64 /* of a job that begins, beside its wait for the disk */

/* ---- Ended jobs ------------------------------------------------------------------------------ */

static void end_request(struct srv_dispatch *d, struct srv_request *request)
{
    request->t_computed = srv_now_ns();
    d->ended[d->num_ended++] = request;
}

static void end_job(struct srv_dispatch *d, struct srv_job *job)
{
    /* A single item's error is the request's. */
    if (job->num_items == 1 && job->call.sequences == NULL && job->error.code == SRV_OK)
        job->error = job->items[0].error;
    srv_dispatch_unpark(job);
    srv_encoding_abandon(job);
    if (job->error.code != SRV_OK && job->type->abandon != NULL)
        job->type->abandon(job);
    end_request(d, job->request);
}

/* ---- Queueing -------------------------------------------------------------------------------- */

static size_t cost_of(size_t work) { return 1 + work / COST_WORK; }

static void enqueue_item(struct srv_dispatch *d, struct srv_item *item)
{
    item->work = srv_item_work(item);
    item->node = (struct srv_queue_node){
        .kind = SRV_NODE_ITEM, .caller = item->job->request->caller, .cost = cost_of(item->work)};
    srv_fair_queue_put(&d->queue, srv_item_is_long(item) ? SRV_QUEUE_LONG_STEPS : SRV_QUEUE_STEPS,
                       &item->node);
}

/* Binds an item to its session, and queues the item if it is the session's first; others follow in
 * the session's list.  An item that cannot be bound ends here. */
static void bind_item(struct srv_dispatch *d, struct srv_item *item)
{
    if (item->error.code != SRV_OK || !srv_item_bind(item))
        item->job->pending--;
    else if (item->is_first)
        enqueue_item(d, item);
}

static void enqueue_job(struct srv_dispatch *d, enum srv_queue_kind kind, struct srv_job *job,
                        size_t cost)
{
    job->node =
        (struct srv_queue_node){.kind = SRV_NODE_JOB, .caller = job->request->caller, .cost = cost};
    srv_fair_queue_put(&d->queue, kind, &job->node);
}

static void enqueue_attend(struct srv_dispatch *d, struct srv_job *job)
{
    job->work = srv_attend_work(job);
    enqueue_job(d, SRV_QUEUE_ATTENDS, job, cost_of(job->work));
}

/* Begins a job's encoding, and queues the job for the long computation that follows; true where
 * nothing is left of it, since the session was made before. */
static bool begin_encoding(struct srv_dispatch *d, struct srv_job *job)
{
    srv_encoding_begin(job);
    if (job->error.code != SRV_OK)
        end_job(d, job);
    if (job->error.code != SRV_OK || !srv_encoding_is_due(job))
        return job->error.code == SRV_OK;
    job->work = srv_encoding_work(job->encoding);
    enqueue_job(d, SRV_QUEUE_ATTENDS, job, cost_of(job->work));
    return false;
}

/* Queues a job that has no `begin` or has begun; ends the job if nothing is left to do. */
static void enqueue_or_end_job(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->type->compute != NULL)
        enqueue_attend(d, job);
    else if (job->type->advance != NULL && job->error.code == SRV_OK)
        enqueue_job(d, SRV_QUEUE_PIECES, job, PIECE_COST);
    else if (job->pending == 0)
        end_job(d, job);
}

/* Ends a job that is cancelled; false where it is not. */
static bool end_cancelled_job(struct srv_dispatch *d, struct srv_job *job)
{
    if (srv_request_check_cancelled(job->request, srv_now_ns(), &job->error) == SRV_OK)
        return false;
    end_job(d, job);
    return true;
}

/* Begins a job, or ends a cancelled one.  One whose items have ended is there to be finished. */
static void begin_job(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->ended)
        srv_job_finish(job);
    else if (end_cancelled_job(d, job))
        return;
    else
        job->type->begin(job);
    srv_admission_count_begun(&d->admission, job->request);
    enqueue_or_end_job(d, job);
}

/* Takes the next job of a kind, or NULL; ends the cancelled jobs that it meets. */
static struct srv_job *take_job(struct srv_dispatch *d, enum srv_queue_kind kind)
{
    for (struct srv_queue_node *node; (node = srv_fair_queue_take(&d->queue, kind)) != NULL;)
        if (!end_cancelled_job(d, srv_job_of(node)))
            return srv_job_of(node);
    return NULL;
}

/* Binds the job's items, and begins the job or queues it for its beginning: where a journal is kept
 * each job that begins may wait for the disk, and takes its turn. */
static void bind_and_begin_job(struct srv_dispatch *d, struct srv_job *job)
{
    if (srv_encoding_is_due(job) && !begin_encoding(d, job))
        return;
    for (size_t i = 0; i < job->num_items; i++)
        bind_item(d, &job->items[i]);
    if (job->type->begin == NULL)
        enqueue_or_end_job(d, job);
    else if (d->context->records_on_disk || !srv_dispatch_may_begin(d, job))
        enqueue_job(d, SRV_QUEUE_CHANGES, job, CHANGE_COST * (job->changes > 0 ? job->changes : 1));
    else
        begin_job(d, job);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void read_task(void *requests, size_t i)
{
    srv_read_body(((struct srv_request **)requests)[i]);
}

/* Ends cancelled requests before their bodies are read; the others move up. */
static size_t end_cancelled_requests(struct srv_dispatch *d, struct srv_request *requests[],
                                     size_t count)
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
            end_request(d, requests[i]);
        }
    }
    return kept;
}

void srv_dispatch_parse_and_queue(struct srv_dispatch *d, struct srv_request *requests[],
                                  size_t count, size_t bytes)
{
    count = end_cancelled_requests(d, requests, count);
    count = srv_io_workers_take_large(d->io_workers, requests, count);
    srv_dispatch_run_tasks(d, read_task, requests, count, bytes);
    /* Again: some bodies turned out to be large when they were decompressed. */
    count = srv_io_workers_take_large(d->io_workers, requests, count);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) {
        srv_read_body(requests[i]); /* refuses a body that the workers no longer take */
        if (requests[i]->t_compute == 0)
            requests[i]->t_compute = now;
        if (requests[i]->job == NULL)
            end_request(d, requests[i]);
        else if (!srv_dispatch_park(d, requests[i]->job))
            bind_and_begin_job(d, requests[i]->job);
    }
}

void srv_dispatch_release_parked(struct srv_dispatch *d)
{
    for (struct srv_job *job; (job = srv_dispatch_take_parked(d)) != NULL;) {
        if (job->error.code == SRV_OK)
            bind_and_begin_job(d, job);
        else
            end_job(d, job);
    }
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* Ends a job whose last item has ended; does nothing before that. */
static void end_job_after_last_item(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->pending > 0 || job->ended)
        return;
    job->ended = true;
    if (job->type->finish != NULL && d->context->records_on_disk) {
        enqueue_job(d, SRV_QUEUE_CHANGES, job, CHANGE_COST);
        return;
    }
    srv_job_finish(job);
    end_job(d, job);
}

/* Ends an item that was queued, and queues the next one of its session. */
static void end_item(struct srv_dispatch *d, struct srv_item *item)
{
    struct srv_item *next = srv_item_end(item);
    if (next != NULL)
        enqueue_item(d, next);
    end_job_after_last_item(d, item->job);
}

/* Takes items of one layer, up to `most`, out of the queue; ends the cancelled items it meets. */
static void take_batch(struct srv_batch *batch, struct srv_dispatch *d, enum srv_queue_kind kind,
                       size_t most)
{
    struct srv_queue_walk walk;
    uint64_t now = srv_now_ns();
    srv_batch_clear(batch);
    srv_queue_walk_begin(&walk, &d->queue, kind);
    for (size_t looks = 0; looks < BATCH_LOOKS && batch->count < most; looks++) {
        struct srv_queue_node *node = srv_queue_walk_peek(&walk);
        if (node == NULL)
            break;
        struct srv_item *item = srv_item_of(node);
        if (srv_request_check_cancelled(item->job->request, now, &item->error) != SRV_OK) {
            srv_queue_walk_remove(&walk);
            end_item(d, item);
        } else if (srv_batch_add(batch, item)) {
            srv_queue_walk_remove_and_charge(&walk);
        } else {
            srv_queue_walk_pass(&walk);
        }
    }
}

bool srv_dispatch_run_batch(struct srv_dispatch *d)
{
    struct srv_batch batch;
    take_batch(&batch, d, SRV_QUEUE_STEPS, SRV_BATCH_STEPS);
    if (batch.count == 0)
        return false;
    for (size_t i = 0; i < batch.count; i++)
        srv_admission_count_begun(&d->admission, batch.items[i]->job->request);
    srv_items_run(batch.items, batch.count);
    for (size_t i = 0; i < batch.count; i++)
        end_item(d, batch.items[i]);
    return true;
}

/* ---- Long computations and pieces ------------------------------------------------------------ */

void srv_dispatch_run_change(struct srv_dispatch *d)
{
    struct srv_job *job = srv_dispatch_find_change(d, true);
    if (job != NULL)
        begin_job(d, job);
}

/* The long step's item ends before changes begin, so that they see whether it has created its
 * session. */
static void run_long_step(struct srv_dispatch *d, struct srv_item *item)
{
    srv_dispatch_begin_long(d, &(struct srv_long){item->job->request, item, .work = item->work});
    item->step.yield = srv_dispatch_yield(d);
    srv_items_run(&item, 1);
    srv_dispatch_end_long(d, &item->error);
    end_item(d, item);
    while (!d->context->records_on_disk && srv_dispatch_find_change(d, false) != NULL)
        srv_dispatch_run_change(d);
}

static void run_attend(struct srv_dispatch *d, struct srv_job *job)
{
    uint64_t start = srv_now_ns();
    const bool encodes = srv_encoding_is_due(job);
    srv_dispatch_begin_long(d, &(struct srv_long){job->request, NULL, .work = job->work});
    job->yield = srv_dispatch_yield(d);
    (encodes ? srv_encoding_compute : job->type->compute)(job);
    srv_dispatch_end_long(d, &job->error);
    if (encodes && job->error.code == SRV_OK) {
        srv_metrics_attend(d->context->metrics, job->encoding->model->index,
                           job->encoding->args.rows, srv_now_ns() - start);
        enqueue_job(d, SRV_QUEUE_PIECES, job, PIECE_COST);
        return;
    }
    if (job->error.code == SRV_OK)
        srv_metrics_attend(d->context->metrics,
                           job->model != NULL ? job->model->index : SRV_NO_MODEL,
                           job->sizes.batch * job->sizes.queries, srv_now_ns() - start);
    end_job(d, job);
}

void srv_dispatch_run_long_step(struct srv_dispatch *d)
{
    struct srv_batch batch;
    take_batch(&batch, d, SRV_QUEUE_LONG_STEPS, 1);
    if (batch.count > 0)
        run_long_step(d, batch.items[0]);
}

void srv_dispatch_run_attend(struct srv_dispatch *d)
{
    struct srv_job *job = take_job(d, SRV_QUEUE_ATTENDS);
    if (job != NULL)
        run_attend(d, job);
}

bool srv_dispatch_run_interrupting(struct srv_dispatch *d)
{
    struct srv_queue_node *node = srv_dispatch_find_interrupting(d, SRV_QUEUE_ATTENDS, true);
    if (node != NULL) {
        run_attend(d, srv_job_of(node));
        return true;
    }
    node = srv_dispatch_find_interrupting(d, SRV_QUEUE_LONG_STEPS, true);
    if (node != NULL)
        run_long_step(d, srv_item_of(node));
    return node != NULL;
}

/* The job's session is made: binds its step, or replies where that was all. */
static void end_encoding(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->num_items > 0) {
        bind_and_begin_job(d, job);
        return;
    }
    job->type->begin(job);
    end_job(d, job);
}

void srv_dispatch_run_piece(struct srv_dispatch *d)
{
    struct srv_job *job = take_job(d, SRV_QUEUE_PIECES);
    if (job == NULL)
        return;
    const bool encodes = srv_encoding_is_due(job);
    if ((encodes ? srv_encoding_advance : job->type->advance)(job))
        enqueue_job(d, SRV_QUEUE_PIECES, job, PIECE_COST);
    else if (encodes && job->error.code == SRV_OK)
        end_encoding(d, job);
    else
        end_job(d, job);
}

/* ---- Cancelling and refusing ----------------------------------------------------------------- */

static const struct srv_request *request_of(struct srv_queue_node *node)
{
    return node->kind == SRV_NODE_ITEM ? srv_item_of(node)->job->request
                                       : srv_job_of(node)->request;
}

/* Ends an item or job that was taken out of the queue and is not computed. */
static void refuse(struct srv_dispatch *d, struct srv_queue_node *node,
                   const struct srv_error *error)
{
    if (node->kind == SRV_NODE_ITEM) {
        srv_item_of(node)->error = *error;
        end_item(d, srv_item_of(node));
    } else if (srv_job_of(node)->ended) { /* its step is on record */
        srv_job_finish(srv_job_of(node));
        end_job(d, srv_job_of(node));
    } else {
        srv_job_of(node)->error = *error;
        end_job(d, srv_job_of(node));
    }
}

/* Ends the cancelled ones among the items that follow an item in its session. */
static void end_cancelled_following(struct srv_dispatch *d, struct srv_item *item, uint64_t now)
{
    for (struct srv_item *next; (next = item->next_of_session) != NULL;) {
        if (srv_request_check_cancelled(next->job->request, now, &next->error) == SRV_OK) {
            item = next;
        } else {
            srv_item_end_next(item);
            end_job_after_last_item(d, next->job);
        }
    }
}

static void end_cancelled_queued(struct srv_dispatch *d, enum srv_queue_kind kind)
{
    struct srv_queue_walk walk;
    struct srv_error error;
    uint64_t now = srv_now_ns();
    srv_queue_walk_begin(&walk, &d->queue, kind);
    for (struct srv_queue_node *node; (node = srv_queue_walk_peek(&walk)) != NULL;) {
        if (node->kind == SRV_NODE_ITEM)
            end_cancelled_following(d, srv_item_of(node), now);
        bool applied = node->kind == SRV_NODE_JOB && srv_job_of(node)->ended;
        if (applied || srv_request_check_cancelled(request_of(node), now, &error) == SRV_OK) {
            srv_queue_walk_pass(&walk);
        } else {
            srv_queue_walk_remove(&walk);
            refuse(d, node, &error);
        }
    }
}

void srv_dispatch_end_cancelled(struct srv_dispatch *d)
{
    for (size_t i = 0; i < d->num_longs; i++)
        if (d->longs[i].step != NULL)
            end_cancelled_following(d, d->longs[i].step, srv_now_ns());
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        end_cancelled_queued(d, kind);
}

void srv_dispatch_fail_draining(struct srv_error *error)
{
    srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

void srv_dispatch_refuse(struct srv_dispatch *d, struct srv_request *requests[], size_t count)
{
    struct srv_error error;
    srv_dispatch_fail_draining(&error);
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->reply.status == 0)
            srv_reply_error(requests[i], &error);
        end_request(d, requests[i]);
    }
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        for (struct srv_queue_node *node; (node = srv_fair_queue_take(&d->queue, kind)) != NULL;)
            refuse(d, node, &error);
}

/* ---- Life ------------------------------------------------------------------------------------ */

bool srv_dispatch_init(struct srv_dispatch *d, const struct srv_scheduler_context *context,
                       size_t capacity)
{
    d->context = context;
    d->ended = calloc(capacity, sizeof *d->ended);
    srv_fair_queue_init(&d->queue);
    return srv_admission_init(&d->admission, capacity, context->routes) && d->ended != NULL;
}

void srv_dispatch_fini(struct srv_dispatch *d)
{
    srv_io_workers_free(d->io_workers);
    srv_admission_fini(&d->admission);
    free(d->ended);
}
