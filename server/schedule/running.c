/* running.c: long computations, and which waiting work may interrupt a running one.
 *
 * A long computation pauses (scheduler.c).  At a pause short steps may run, and one attention or
 * long step of another caller.  A less-served caller may interrupt with equal work, others with an
 * eighth.  So a caller waits for about as long as its own request takes, and not for the end of
 * another's.  Such a computation may be interrupted in turn, unless it is short; the innermost one
 * is short.
 *
 * The computation that is interrupted goes on when the inner one has ended, and then runs
 * undisturbed for as long as that took: half of the time is its own, whatever interrupts it. */
#include "schedule/dispatch.h"
#include "schedule/steps.h"

#define SHORTER 8         /* parts of a computation's work, one of which may interrupt it */
#define INTERRUPT_LOOKS 4 /* most nodes of each caller looked at for one that may */
#define SHORT_WORK ((size_t)1 << 30) /* multiply-adds of what is not interrupted, at most */

struct srv_running_call *srv_running_innermost(struct srv_dispatch *d)
{
    return &d->running[d->num_running - 1];
}

const struct attn_yield *srv_running_begin(struct srv_dispatch *d, struct srv_request *request,
                                           struct srv_item *step, size_t work)
{
    srv_replies_send(d);
    srv_admission_count_begun(&d->admission, request);
    d->running[d->num_running++] =
        (struct srv_running_call){.request = request, .step = step, .work = work};
    srv_running_note_waiting(d);
    return d->num_running == 1 || work > SHORT_WORK ? &d->yield : NULL;
}

/* The library ends every stopped computation with ATTN_CANCELLED,
 * which base/errors.c turns into `draining`; the true reason is known here. */
void srv_running_end(struct srv_dispatch *d, struct srv_error *error)
{
    const struct srv_running_call *ended = &d->running[--d->num_running];
    if (error->code == SRV_E_DRAINING && ended->stop_error.code != SRV_OK)
        *error = ended->stop_error;
}

/* ---- At a pause ------------------------------------------------------------------------------ */

/* The memory that the computation takes, at most. */
static size_t bytes_of(const struct srv_dispatch *d, const struct srv_queue_node *node)
{
    struct attn_engine_info engine;
    attn_engine_describe(&engine, d->context->engine);
    const struct srv_item *item = node->item;
    if (item == NULL) {
        const struct srv_job *job = node->request->job;
        return attn_call_bytes(job->model != NULL ? job->model->attn : NULL, &job->size,
                               engine.threads);
    }
    const size_t rows = item->sizes.queries;
    const struct attn_call_size size = {
        .rows = rows, .tokens = rows, .batched_rows = rows, .cached = srv_item_keys(item)};
    return attn_call_bytes(item->model->attn, &size, engine.threads);
}

static bool may_interrupt(struct srv_dispatch *d, const struct srv_queue_node *node)
{
    const struct srv_running_call *running = srv_running_innermost(d);
    const struct srv_caller_queues *callers = d->queue.callers;
    size_t work = node->item == NULL ? node->request->job->work : node->item->work;
    bool innermost = d->num_running + 1 == ATTN_YIELD_LEVELS, is_short = work <= SHORT_WORK;
    bool served_less = callers[node->caller].service < callers[running->request->caller].service;
    if (node->caller == running->request->caller ||
        work > (served_less ? running->work : running->work / SHORTER) || (innermost && !is_short))
        return false;
    return bytes_of(d, node) <= attn_engine_free_bytes(d->context->engine, !is_short);
}

static struct srv_queue_node *find_in(struct srv_dispatch *d, enum srv_queue_kind kind, bool pop)
{
    struct srv_queue_walk walk;
    struct srv_queue_node *node;
    unsigned char looks[SRV_MAX_CALLERS] = {0};
    srv_queue_walk_begin(&walk, &d->queue, kind);
    while ((node = srv_queue_walk_next(&walk)) != NULL && !may_interrupt(d, node))
        if (++looks[walk.caller] >= INTERRUPT_LOOKS)
            srv_queue_walk_pass_caller(&walk);
    if (node != NULL && pop)
        srv_queue_walk_remove_and_charge(&walk);
    return node;
}

struct srv_queue_node *srv_running_find_interrupting(struct srv_dispatch *d, bool pop)
{
    if (d->num_running == 0 || d->num_running == ATTN_YIELD_LEVELS)
        return NULL;
    struct srv_queue_node *node = find_in(d, SRV_QUEUE_ATTENDS, pop);
    return node != NULL ? node : find_in(d, SRV_QUEUE_LONG_STEPS, pop);
}

void srv_running_note_waiting(struct srv_dispatch *d)
{
    d->work_waiting =
        d->queue.waiting[SRV_QUEUE_STEPS] > 0 || srv_dispatch_find_change(d, false) != NULL;
    d->interrupting_waiting = srv_running_find_interrupting(d, false) != NULL;
}
