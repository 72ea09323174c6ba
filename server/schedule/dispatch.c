/* dispatch.c: the stages of jobs, and where each job and item goes next.
 *
 *   request --parse--> job --enter_stage--> items, long computation, pieces or change --> reply
 *
 * Every job that is parsed ends in end_job, once; every item that is bound ends in srv_item_end or
 * srv_item_end_next, once. */
#include "schedule/dispatch.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ops/metrics.h"
#include "schedule/steps.h"

#define BATCH_LOOKS ((size_t)4 * SRV_BATCH_STEPS) /* most items looked at for one batch */
#define COST_WORK 65536                           /* multiply-adds that a caller is charged 1 for */
#define PIECE_COST 512                            /* of a piece of about a millisecond */
#define CHANGE_COST 64                            /* of a change, beside its wait for the disk */

#define RETRY_NS (5 * SRV_MS_NS) /* between two looks of what waits for memory */

/* Both in multiply-adds. */
#define SMALL_WORK 2000000 /* most of the steps of a round that an event thread runs */
#define BATCH_WORK 200000  /* take as long as beginning and ending a batch */

const struct srv_job_stage srv_steps_stage = {SRV_QUEUE_STEPS, .run = NULL};

static void enter_stage(struct srv_dispatch *d, struct srv_job *job,
                        const struct srv_job_stage *stage);

static size_t cost_of(size_t work) { return 1 + work / COST_WORK; }

/* ---- Items ----------------------------------------------------------------------------------- */

static void enqueue_item(struct srv_dispatch *d, struct srv_item *item)
{
    struct srv_request *request = item->job->request;
    item->work = srv_item_work(item);
    item->node = (struct srv_queue_node){
        .request = request, .item = item, .caller = request->caller, .cost = cost_of(item->work)};
    srv_fair_queue_put(&d->queue, srv_item_is_long(item) ? SRV_QUEUE_LONG_STEPS : SRV_QUEUE_STEPS,
                       &item->node);
}

/* Goes on with a job whose last item has ended; does nothing before that. */
static void end_items(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->pending == 0)
        enter_stage(d, job, job->items[0].error.code == SRV_OK ? job->finish : NULL);
}

/* Binds items to their sessions, and queues each that is its session's first; others follow in the
 * session's list.  An item that cannot be bound ends here. */
static void bind_items(struct srv_dispatch *d, struct srv_job *job)
{
    for (size_t i = 0; i < job->num_items; i++) {
        struct srv_item *item = &job->items[i];
        if (item->error.code != SRV_OK || !srv_item_bind(item))
            job->pending--;
        else if (item->is_first)
            enqueue_item(d, item);
    }
    end_items(d, job);
}

/* Ends an item that was queued, and queues the next one of its session. */
static void end_item(struct srv_dispatch *d, struct srv_item *item)
{
    struct srv_item *next = srv_item_end(item);
    if (next != NULL)
        enqueue_item(d, next);
    end_items(d, item->job);
}

/* ---- Jobs and their stages ------------------------------------------------------------------- */

static void end_job(struct srv_dispatch *d, struct srv_job *job)
{
    /* A single item's error is the request's. */
    if (job->num_items == 1 && job->call.sequences == NULL && job->error.code == SRV_OK)
        job->error = job->items[0].error;
    srv_dispatch_unpark(job);
    if (job->error.code != SRV_OK && job->session != NULL) /* which is not in the table */
        srv_store_import_abandon(d->context->store, &job->recorded, job->session);
    srv_replies_add(d, job->request);
}

/* Ends a job that is cancelled; false where it goes on. */
static bool end_cancelled_job(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->stage->completes ||
        srv_request_check_cancelled(job->request, srv_now_ns(), &job->error) == SRV_OK)
        return false;
    end_job(d, job);
    return true;
}

/* Runs the stage that the job waits for, or a piece of it. */
static void run_stage(struct srv_dispatch *d, struct srv_job *job)
{
    if (job->room > 0 && srv_dispatch_job_waits(d, job))
        return;
    const bool is_long = job->stage->queue == SRV_QUEUE_ATTENDS;
    const uint64_t start = srv_now_ns();
    if (is_long)
        job->yield = srv_running_begin(d, job->request, NULL, job->work);
    else
        srv_admission_count_begun(&d->admission, job->request);
    const struct srv_job_stage *next = job->stage->run(job);
    if (is_long)
        srv_running_end(d, &job->error);
    if (is_long && job->error.code == SRV_OK)
        srv_metrics_attend(d->context->metrics,
                           job->model != NULL ? job->model->index : SRV_NO_MODEL, job->rows,
                           srv_now_ns() - start);
    enter_stage(d, job, next);
}

/* Whether a change may be made now, which may be of the session of a long step that runs. */
static bool may_change(const struct srv_dispatch *d, const struct srv_job *job)
{
    bool long_step_runs = false;
    for (size_t i = 0; i < d->num_running; i++)
        long_step_runs = long_step_runs || d->running[i].step != NULL;
    return job->stage->any_time || !long_step_runs;
}

/* Goes on with a stage: queues the job or its items, or makes a change that has nothing to wait
 * for.  Ends the job after its last stage or an error.  Where a journal is kept each change may
 * wait for the disk, and takes its turn. */
static void enter_stage(struct srv_dispatch *d, struct srv_job *job,
                        const struct srv_job_stage *stage)
{
    while (stage != NULL && stage->at_once && job->error.code == SRV_OK)
        stage = stage->run(job);
    job->stage = stage;
    if (stage == NULL || job->error.code != SRV_OK) {
        end_job(d, job);
    } else if (stage->queue == SRV_QUEUE_STEPS) {
        bind_items(d, job);
    } else if (stage->queue == SRV_QUEUE_CHANGES && !d->context->records_on_disk &&
               may_change(d, job)) {
        if (!end_cancelled_job(d, job))
            run_stage(d, job);
    } else {
        size_t cost = stage->queue == SRV_QUEUE_ATTENDS ? cost_of(job->work)
                      : stage->queue == SRV_QUEUE_PIECES
                          ? PIECE_COST
                          : CHANGE_COST * (job->changes > 0 ? job->changes : 1);
        job->node = (struct srv_queue_node){
            .request = job->request, .caller = job->request->caller, .cost = cost};
        srv_fair_queue_put(&d->queue, stage->queue, &job->node);
    }
}

/* ---- Parsing --------------------------------------------------------------------------------- */

void srv_dispatch_parse_and_queue(struct srv_dispatch *d, struct srv_request *requests[],
                                  size_t count, size_t bytes)
{
    size_t kept = 0;
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < count; i++) { /* a cancelled request ends before its body is parsed */
        struct srv_error error;
        if (srv_body_is_parsed(requests[i]) ||
            srv_request_check_cancelled(requests[i], now, &error) == SRV_OK) {
            requests[kept++] = requests[i];
        } else {
            srv_reply_error(requests[i], &error);
            srv_replies_add(d, requests[i]);
        }
    }
    kept = srv_codec_workers_accept_large(d->codec_workers, requests, kept);
    srv_replies_run(d, srv_parse_body, requests, kept, bytes);
    /* Again: some bodies turned out to be large when they were decompressed. */
    kept = srv_codec_workers_accept_large(d->codec_workers, requests, kept);
    now = srv_now_ns();
    for (size_t i = 0; i < kept; i++) {
        struct srv_request *request = requests[i];
        srv_parse_body(request); /* refuses a body that the workers no longer take */
        if (request->t_compute == 0)
            request->t_compute = now;
        if (request->job == NULL)
            srv_replies_add(d, request);
        else if (!srv_dispatch_park(d, request->job))
            enter_stage(d, request->job, request->job->stage);
    }
}

void srv_dispatch_release_parked(struct srv_dispatch *d)
{
    for (struct srv_job *job; (job = srv_dispatch_pop_parked(d)) != NULL;)
        enter_stage(d, job, job->stage);
}

/* ---- One of a kind --------------------------------------------------------------------------- */

/* Removes items of one layer, up to `most`, from the queue; ends the cancelled items it meets. */
static void pop_batch(struct srv_batch *batch, struct srv_dispatch *d, enum srv_queue_kind kind,
                      size_t most)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    uint64_t now = srv_now_ns();
    *batch = (struct srv_batch){.count = 0};
    srv_queue_walk_begin(&walk, &d->queue, kind);
    for (size_t looks = 0;
         looks < BATCH_LOOKS && batch->count < most && (node = srv_queue_walk_next(&walk)) != NULL;
         looks++) {
        if (srv_request_check_cancelled(node->request, now, &node->item->error) != SRV_OK) {
            srv_queue_walk_remove(&walk);
            end_item(d, node->item);
        } else if (srv_batch_add(batch, node->item)) {
            srv_queue_walk_remove_and_charge(&walk);
        }
    }
}

/* Removes the items that are to wait for memory; the sessions of the others stay in memory. */
static void keep_ready(struct srv_batch *batch, struct srv_dispatch *d)
{
    size_t ready = 0, taken = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct srv_item *item = batch->items[i];
        if (srv_dispatch_item_waits(d, item, &taken))
            continue;
        item->session->pinned = SRV_PIN_NEXT;
        batch->items[ready++] = item;
    }
    batch->count = ready;
    for (size_t i = 0; i < ready; i++)
        batch->items[i]->session->pinned = SRV_PIN_RUNS;
}

/* Ends an item that has run, or has it run again: another thread may have taken the room. */
static void end_run(struct srv_dispatch *d, struct srv_item *item)
{
    item->session->pinned = SRV_PIN_NONE;
    item->session->fresh = false;
    item->session->uses++;
    if (!srv_dispatch_item_waits_again(d, item))
        end_item(d, item);
}

bool srv_dispatch_run_batch(struct srv_dispatch *d)
{
    struct srv_batch batch;
    pop_batch(&batch, d, SRV_QUEUE_STEPS, SRV_BATCH_STEPS);
    if (batch.count == 0)
        return false;
    keep_ready(&batch, d);
    for (size_t i = 0; i < batch.count; i++)
        srv_admission_count_begun(&d->admission, batch.items[i]->job->request);
    if (batch.count > 0)
        srv_items_run(batch.items, batch.count);
    for (size_t i = 0; i < batch.count; i++)
        end_run(d, batch.items[i]);
    return true;
}

/* The long step's item ends before changes begin, so that they see whether it has created its
 * session. */
static void run_long_step(struct srv_dispatch *d, struct srv_item *item)
{
    struct srv_batch batch = {.items = {item}, .count = 1};
    keep_ready(&batch, d);
    if (batch.count == 0)
        return;
    item->step.yield = srv_running_begin(d, item->job->request, item, item->work);
    srv_items_run(&item, 1);
    srv_running_end(d, &item->error);
    end_run(d, item);
    while (!d->context->records_on_disk && srv_dispatch_run_change(d))
        ;
}

void srv_dispatch_run_long_step(struct srv_dispatch *d)
{
    struct srv_batch batch;
    pop_batch(&batch, d, SRV_QUEUE_LONG_STEPS, 1);
    if (batch.count > 0)
        run_long_step(d, batch.items[0]);
}

void srv_dispatch_run_job(struct srv_dispatch *d, enum srv_queue_kind kind)
{
    struct srv_queue_node *node;
    while ((node = srv_fair_queue_pop(&d->queue, kind)) != NULL &&
           end_cancelled_job(d, node->request->job))
        ;
    if (node != NULL)
        run_stage(d, node->request->job);
}

struct srv_job *srv_dispatch_find_change(struct srv_dispatch *d, bool pop)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_CHANGES);
    while ((node = srv_queue_walk_next(&walk)) != NULL && !may_change(d, node->request->job))
        ;
    if (node != NULL && pop)
        srv_queue_walk_remove_and_charge(&walk);
    return node != NULL ? node->request->job : NULL;
}

bool srv_dispatch_run_change(struct srv_dispatch *d)
{
    struct srv_job *job = srv_dispatch_find_change(d, true);
    if (job != NULL && !end_cancelled_job(d, job) &&
        !(job->type->needs != NULL && srv_dispatch_park(d, job))) /* its session has left memory */
        run_stage(d, job);
    return job != NULL;
}

bool srv_dispatch_run_interrupting(struct srv_dispatch *d)
{
    struct srv_queue_node *node = srv_running_find_interrupting(d, true);
    if (node != NULL && node->item == NULL)
        run_stage(d, node->request->job);
    else if (node != NULL)
        run_long_step(d, node->item);
    return node != NULL;
}

void srv_dispatch_retry_waiting(struct srv_dispatch *d)
{
    const uint64_t now = srv_now_ns();
    struct srv_queue_walk walk;
    if (d->queue.waiting[SRV_QUEUE_WAITING] == 0 || now < d->next_retry_ns)
        return;
    d->next_retry_ns = now + RETRY_NS;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_WAITING);
    for (struct srv_queue_node *node; (node = srv_queue_walk_next(&walk)) != NULL;) {
        srv_queue_walk_remove(&walk);
        node->cost = 0; /* it was charged when it first left its queue */
        srv_fair_queue_put(&d->queue,
                           node->item == NULL             ? node->request->job->stage->queue
                           : srv_item_is_long(node->item) ? SRV_QUEUE_LONG_STEPS
                                                          : SRV_QUEUE_STEPS,
                           node);
    }
}

/* ---- Cancelling and refusing ----------------------------------------------------------------- */

/* Whether the node is a job that goes on also where its request is cancelled. */
static bool completes(const struct srv_queue_node *node)
{
    return node->item == NULL && node->request->job->stage->completes;
}

/* Ends an item or job that was removed from the queue and is not computed. */
static void refuse_node(struct srv_dispatch *d, struct srv_queue_node *node,
                        const struct srv_error *error)
{
    if (node->item != NULL) {
        node->item->error = *error;
        end_item(d, node->item);
    } else if (completes(node)) {
        run_stage(d, node->request->job);
    } else {
        node->request->job->error = *error;
        end_job(d, node->request->job);
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
            end_items(d, next->job);
        }
    }
}

void srv_dispatch_end_cancelled(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    struct srv_error error;
    const uint64_t now = srv_now_ns();
    for (size_t i = 0; i < d->num_running; i++)
        if (d->running[i].step != NULL)
            end_cancelled_following(d, d->running[i].step, now);
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++) {
        srv_queue_walk_begin(&walk, &d->queue, kind);
        for (struct srv_queue_node *node; (node = srv_queue_walk_next(&walk)) != NULL;) {
            if (node->item != NULL)
                end_cancelled_following(d, node->item, now);
            if (!completes(node) &&
                srv_request_check_cancelled(node->request, now, &error) != SRV_OK) {
                srv_queue_walk_remove(&walk);
                refuse_node(d, node, &error);
            }
        }
    }
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
        srv_replies_add(d, requests[i]);
    }
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        for (struct srv_queue_node *node; (node = srv_fair_queue_pop(&d->queue, kind)) != NULL;)
            refuse_node(d, node, &error);
}

/* ---- What waits ------------------------------------------------------------------------------ */

bool srv_dispatch_has_work(const struct srv_dispatch *d)
{
    size_t waiting = 0;
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        waiting +=
            kind != SRV_QUEUE_UNREAD && kind != SRV_QUEUE_WAITING ? d->queue.waiting[kind] : 0;
    return waiting > 0;
}

bool srv_dispatch_fits_event_thread(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    const size_t *count = d->queue.waiting;
    size_t work = 0;
    if (count[SRV_QUEUE_LONG_STEPS] + count[SRV_QUEUE_ATTENDS] + count[SRV_QUEUE_PIECES] > 0)
        return false;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_STEPS);
    while (work <= SMALL_WORK && (node = srv_queue_walk_next(&walk)) != NULL) {
        const struct srv_item *item = node->item;
        work += item->work;
        /* The items that follow it in its session are a batch each. */
        while ((item = item->next_of_session) != NULL && work <= SMALL_WORK)
            work += BATCH_WORK + srv_item_work(item);
    }
    return work <= SMALL_WORK;
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
    srv_codec_workers_free(d->codec_workers);
    srv_admission_fini(&d->admission);
    free(d->ended);
}
