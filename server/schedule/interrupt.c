/* interrupt.c: what is queued, and which of it may be computed before or inside what.
 *
 * A long computation pauses (scheduler.c).  At a pause short steps may run, and one attention or
 * long step of another caller: where that caller has had less service, one of no more work than the
 * computation that it interrupts, otherwise one of an eighth of that work.  So a caller waits for
 * about as long as its own request takes, and not for the end of another's.  Such a computation may
 * be interrupted in turn, unless it is short; the innermost one is short.
 *
 * The computation that is interrupted goes on when the inner one has ended, and then runs
 * undisturbed for as long as that took: half of the time is its own, whatever interrupts it. */
#include "attn_limits.h"
#include "base/clock.h"
#include "schedule/batch.h"
#include "schedule/dispatch.h"
#include "schedule/encoding.h"

#define SHORTER 8         /* parts of a computation's work, one of which may interrupt it */
#define INTERRUPT_LOOKS 4 /* most nodes of each caller looked at for one that may */
#define SHORT_WORK ((size_t)1 << 30) /* multiply-adds of what is not interrupted, at most */

/* Both in multiply-adds. */
#define SMALL_WORK 2000000 /* most of the steps of a round that an event thread runs */
#define BATCH_WORK 200000  /* take as long as beginning and ending a batch */

bool srv_dispatch_has_work(const struct srv_dispatch *d)
{
    size_t waiting = 0;
    for (enum srv_queue_kind kind = 0; kind < SRV_NUM_QUEUES; kind++)
        waiting += kind != SRV_QUEUE_UNREAD ? d->queue.waiting[kind] : 0;
    return waiting > 0;
}

/* ---- Jobs that wait to begin ----------------------------------------------------------------- */

bool srv_dispatch_may_begin(const struct srv_dispatch *d, const struct srv_job *job)
{
    bool long_step_runs = false;
    for (size_t i = 0; i < d->num_longs; i++)
        long_step_runs = long_step_runs || d->longs[i].step != NULL;
    return job->type->begins_any_time || !long_step_runs;
}

struct srv_job *srv_dispatch_find_change(struct srv_dispatch *d, bool take)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_CHANGES);
    for (struct srv_queue_node *node; (node = srv_queue_walk_peek(&walk)) != NULL;) {
        if (srv_dispatch_may_begin(d, srv_job_of(node))) {
            if (take)
                srv_queue_walk_remove_and_charge(&walk);
            return srv_job_of(node);
        }
        srv_queue_walk_pass(&walk);
    }
    return NULL;
}

/* ---- Long computations ----------------------------------------------------------------------- */

void srv_dispatch_begin_long(struct srv_dispatch *d, const struct srv_long *started)
{
    srv_dispatch_reply(d);
    srv_admission_count_begun(&d->admission, started->request);
    d->longs[d->num_longs++] = *started;
    srv_dispatch_note_waiting(d);
}

struct srv_long *srv_dispatch_running(struct srv_dispatch *d)
{
    return d->num_longs > 0 ? &d->longs[d->num_longs - 1] : NULL;
}

bool srv_dispatch_long_goes_on(struct srv_dispatch *d)
{
    struct srv_long *running = srv_dispatch_running(d);
    return running == NULL || srv_request_check_cancelled(running->request, srv_now_ns(),
                                                          &running->stop_error) == SRV_OK;
}

/* The library ends every stopped computation with ATTN_CANCELLED,
 * which base/errors.c turns into `draining`; the true reason is known here. */
void srv_dispatch_end_long(struct srv_dispatch *d, struct srv_error *error)
{
    const struct srv_long *ended = &d->longs[--d->num_longs];
    if (error->code == SRV_E_DRAINING && ended->stop_error.code != SRV_OK)
        *error = ended->stop_error;
}

/* ---- At a pause ------------------------------------------------------------------------------ */

/* The memory that the computation takes, at most. */
static size_t bytes_of(const struct srv_dispatch *d, struct srv_queue_node *node)
{
    struct attn_engine_info engine;
    attn_engine_describe(&engine, d->context->engine);
    const struct srv_job *job = node->kind == SRV_NODE_JOB ? srv_job_of(node) : NULL;
    const struct srv_item *item = job == NULL ? srv_item_of(node) : NULL;
    if (job != NULL && srv_encoding_is_due(job))
        return srv_encoding_bytes(job->encoding, engine.threads);
    const struct srv_sizes *sizes = job != NULL ? &job->sizes : &item->sizes;
    const struct srv_model *model = job != NULL ? job->model : item->model;
    size_t tokens = sizes->queries > sizes->keys ? sizes->queries : sizes->keys;
    struct attn_call_size size = {.rows = sizes->batch * tokens, .tokens = tokens};
    if (model == NULL) /* rows are floats of keys */
        size.rows *= sizes->num_kv_heads * (sizes->head_dim + sizes->value_head_dim);
    if (item != NULL) {
        size.rows = size.tokens = size.shared_rows = sizes->queries;
        size.cached = srv_item_keys(item);
    }
    return attn_call_bytes(model != NULL ? model->attn : NULL, &size, engine.threads);
}

static bool may_interrupt(struct srv_dispatch *d, struct srv_queue_node *node)
{
    const struct srv_long *running = srv_dispatch_running(d);
    const struct srv_caller_queues *callers = d->queue.callers;
    size_t work = node->kind == SRV_NODE_JOB ? srv_job_of(node)->work : srv_item_of(node)->work;
    bool innermost = d->num_longs + 1 == ATTN_YIELD_LEVELS, is_short = work <= SHORT_WORK;
    bool served_less = callers[node->caller].service < callers[running->request->caller].service;
    if (node->caller == running->request->caller ||
        work > (served_less ? running->work : running->work / SHORTER) || (innermost && !is_short))
        return false;
    return bytes_of(d, node) <= attn_engine_free_bytes(d->context->engine, !is_short);
}

const struct attn_yield *srv_dispatch_yield(struct srv_dispatch *d)
{
    bool alone = d->num_longs == 1;
    return alone || srv_dispatch_running(d)->work > SHORT_WORK ? &d->yield : NULL;
}

struct srv_queue_node *srv_dispatch_find_interrupting(struct srv_dispatch *d,
                                                      enum srv_queue_kind kind, bool take)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    unsigned char looks[SRV_MAX_CALLERS] = {0};
    if (d->num_longs == 0 || d->num_longs == ATTN_YIELD_LEVELS)
        return NULL;
    srv_queue_walk_begin(&walk, &d->queue, kind);
    while ((node = srv_queue_walk_peek(&walk)) != NULL) {
        if (may_interrupt(d, node)) {
            if (take)
                srv_queue_walk_remove_and_charge(&walk);
            return node;
        }
        if (++looks[walk.caller] < INTERRUPT_LOOKS)
            srv_queue_walk_pass(&walk);
        else
            srv_queue_walk_pass_caller(&walk);
    }
    return NULL;
}

void srv_dispatch_note_waiting(struct srv_dispatch *d)
{
    d->work_waiting =
        d->queue.waiting[SRV_QUEUE_STEPS] > 0 || srv_dispatch_find_change(d, false) != NULL;
    d->interrupting_waiting =
        srv_dispatch_find_interrupting(d, SRV_QUEUE_ATTENDS, false) != NULL ||
        srv_dispatch_find_interrupting(d, SRV_QUEUE_LONG_STEPS, false) != NULL;
}

/* ---- On an event thread ---------------------------------------------------------------------- */

/* The work of an item and of the items that follow it in its session, each a batch of its own;
 * counted no further than beyond SMALL_WORK. */
static size_t work_of_session(const struct srv_item *item)
{
    size_t work = item->work;
    while ((item = item->next_of_session) != NULL && work <= SMALL_WORK)
        work += BATCH_WORK + srv_item_work(item);
    return work;
}

bool srv_dispatch_is_small(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    const size_t *count = d->queue.waiting;
    size_t work = 0;
    if (count[SRV_QUEUE_LONG_STEPS] + count[SRV_QUEUE_ATTENDS] + count[SRV_QUEUE_PIECES] > 0)
        return false;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_STEPS);
    while (work <= SMALL_WORK && (node = srv_queue_walk_peek(&walk)) != NULL) {
        work += work_of_session(srv_item_of(node));
        srv_queue_walk_pass(&walk);
    }
    return work <= SMALL_WORK;
}
