/* unread.c: jobs that wait for sessions whose tokens are still on the disk.
 *
 * A start may leave tokens on the disk, which the store reads while requests are served.  A job
 * that needs them waits before it is bound or begun, in the fair queue, so that it is counted and
 * cancelled as others are.  Jobs that come later for the same session wait behind it. */
#include "base/clock.h"
#include "schedule/dispatch.h"
#include "store/stores.h"

/* Whether the job must wait for this session, which it then holds; else gives the reference back.
 * A job that `comes` waits too where others do already. */
static bool is_awaited(struct srv_job *job, struct srv_session *session, bool comes)
{
    if (session != NULL && (session->presence == SRV_UNREAD || (comes && session->parked > 0))) {
        job->awaited = session;
        return true;
    }
    srv_session_put(session);
    return false;
}

/* Finds the first session that the job must wait for.  A start is repeated where its session is
 * there already. */
static bool find_awaited(struct srv_dispatch *d, struct srv_job *job, bool comes)
{
    if (job->type->needs != NULL && is_awaited(job, job->type->needs(job), comes))
        return true;
    bool found = false;
    for (size_t i = 0; i < job->num_items && !found; i++) {
        const struct srv_item *item = &job->items[i];
        if (item->error.code == SRV_OK && item->rows->session_id != NULL)
            found = is_awaited(
                job,
                srv_session_get(d->context->sessions, &job->request->key, item->rows->session_id),
                comes);
    }
    return found;
}

static void wait_in_queue(struct srv_dispatch *d, struct srv_job *job)
{
    atomic_fetch_add(&job->awaited->parked, 1);
    job->node =
        (struct srv_queue_node){.kind = SRV_NODE_JOB, .caller = job->request->caller, .cost = 1};
    srv_fair_queue_put(&d->queue, SRV_QUEUE_UNREAD, &job->node);
}

/* A session may become readable before srv_store_want; then the job looks again: nobody will wake
 * it. */
static bool park(struct srv_dispatch *d, struct srv_job *job, bool comes)
{
    while (find_awaited(d, job, comes)) {
        if (srv_store_want(d->context->store, job->awaited) || job->awaited->parked > 0) {
            wait_in_queue(d, job);
            return true;
        }
        srv_session_put(job->awaited);
        job->awaited = NULL;
    }
    return false;
}

bool srv_dispatch_park(struct srv_dispatch *d, struct srv_job *job)
{
    if (srv_stores_restoring(d->context->store) == 0 && d->queue.waiting[SRV_QUEUE_UNREAD] == 0)
        return false;
    return park(d, job, true);
}

void srv_dispatch_unpark(struct srv_job *job)
{
    if (job->awaited == NULL)
        return;
    job->awaited->used_ns = srv_now_ns();
    atomic_fetch_sub(&job->awaited->parked, 1);
    srv_session_put(job->awaited);
    job->awaited = NULL;
}

struct srv_job *srv_dispatch_take_parked(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    for (struct srv_queue_node *node; (node = srv_queue_walk_peek(&walk)) != NULL;) {
        struct srv_job *job = srv_job_of(node);
        if (job->awaited->presence == SRV_UNREAD) {
            srv_queue_walk_pass(&walk);
            continue;
        }
        srv_queue_walk_remove(&walk);
        const bool lost = job->awaited->presence == SRV_LOST;
        if (lost)
            srv_session_check_present(job->awaited, &job->error);
        srv_dispatch_unpark(job);
        if (lost || !park(d, job, false))
            return job;
        srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    }
    return NULL;
}
