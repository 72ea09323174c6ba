/* unread.c: jobs that are parked for sessions whose tokens are still on the disk.
 *
 * A start may leave tokens on the disk, which the store reads while requests are served.  A job
 * that needs them is parked before it is bound or begun, in the fair queue, so that it is counted
 * and cancelled as others are.  Jobs that come later for the same session are parked behind it. */
#include "base/clock.h"
#include "schedule/dispatch.h"
#include "store/stores.h"

/* The session, if a job is to be parked for it; else gives the reference back and returns NULL.  A
 * job that `comes` is parked too where others are already. */
static struct srv_session *keep_unread(struct srv_session *session, bool comes)
{
    if (session != NULL && (session->presence == SRV_UNREAD || (comes && session->parked > 0)))
        return session;
    srv_session_put(session);
    return NULL;
}

/* The first session that the job is to be parked for, with a reference; NULL where there is none.
 * A start is repeated where its session is there already. */
static struct srv_session *find_unread(struct srv_dispatch *d, struct srv_job *job, bool comes)
{
    struct srv_session *found =
        job->type->needs != NULL ? keep_unread(job->type->needs(job), comes) : NULL;
    for (size_t i = 0; i < job->num_items && found == NULL; i++) {
        const struct srv_item *item = &job->items[i];
        const char *id = item->error.code == SRV_OK ? item->rows->session_id : NULL;
        if (id != NULL)
            found =
                keep_unread(srv_session_get(d->context->sessions, &job->request->key, id), comes);
    }
    return found;
}

/* A session may become readable before srv_store_want; then the job looks again: nobody will wake
 * it. */
static bool park(struct srv_dispatch *d, struct srv_job *job, bool comes)
{
    for (struct srv_session *session; (session = find_unread(d, job, comes)) != NULL;
         srv_session_put(session)) {
        if (srv_store_want(d->context->store, session) || session->parked > 0) {
            job->parked_for = session;
            atomic_fetch_add(&session->parked, 1);
            job->node = (struct srv_queue_node){
                .request = job->request, .caller = job->request->caller, .cost = 1};
            srv_fair_queue_put(&d->queue, SRV_QUEUE_UNREAD, &job->node);
            return true;
        }
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
    struct srv_session *session = job->parked_for;
    if (session == NULL)
        return;
    job->parked_for = NULL;
    session->used_ns = srv_now_ns();
    atomic_fetch_sub(&session->parked, 1);
    srv_session_put(session);
}

struct srv_job *srv_dispatch_pop_parked(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    for (struct srv_queue_node *node; (node = srv_queue_walk_next(&walk)) != NULL;) {
        struct srv_job *job = node->request->job;
        const enum srv_presence presence = job->parked_for->presence;
        if (presence == SRV_UNREAD)
            continue;
        srv_queue_walk_remove(&walk);
        if (presence == SRV_LOST)
            srv_session_check_present(job->parked_for, &job->error);
        srv_dispatch_unpark(job);
        if (presence == SRV_LOST || !park(d, job, false))
            return job;
        srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    }
    return NULL;
}
