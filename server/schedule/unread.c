/* unread.c: what waits while tokens of sessions are on the disk alone, or memory is short.
 *
 * A job that needs tokens which are not in memory is parked before it is bound or begun, in the
 * fair queue, so that it is counted and cancelled as others are.  Jobs that come later for the same
 * session are parked behind it.  A list that names more sessions than memory holds is parked once
 * for each at most; its items then wait one by one, as do items whose sessions have left memory
 * since they were bound, and what needs room in memory that others are to leave. */
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
    const size_t sessions = job->num_items + job->changes;
    if (sessions > 1 && job->parks > 2 * sessions)
        return false;
    for (struct srv_session *session; (session = find_unread(d, job, comes)) != NULL;
         srv_session_put(session)) {
        const bool follows = atomic_fetch_add(&session->parked, 1) > 0;
        if (srv_store_want(d->context->store, session) || follows) {
            job->parked_for = session;
            job->parks++;
            job->node = (struct srv_queue_node){
                .request = job->request, .caller = job->request->caller, .cost = 1};
            srv_fair_queue_put(&d->queue, SRV_QUEUE_UNREAD, &job->node);
            return true;
        }
        atomic_fetch_sub(&session->parked, 1);
    }
    return false;
}

bool srv_dispatch_park(struct srv_dispatch *d, struct srv_job *job)
{
    if (srv_stores_unread(d->context->store) == 0 && d->queue.waiting[SRV_QUEUE_UNREAD] == 0)
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

/* Whether the pool cannot hold a session; said to one that waits. */
static bool is_refused(struct srv_session *session, struct srv_error *error)
{
    if (!atomic_exchange(&session->refused, false))
        return false;
    srv_fail(error, SRV_E_POOL_FULL, "session_id",
             "the cache pool has no room for the session's %zu bytes beside what is in use",
             attn_cache_bytes(session->cache));
    return true;
}

struct srv_job *srv_dispatch_pop_parked(struct srv_dispatch *d)
{
    struct srv_queue_walk walk;
    srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    for (struct srv_queue_node *node; (node = srv_queue_walk_next(&walk)) != NULL;) {
        struct srv_job *job = node->request->job;
        const enum srv_presence presence = job->parked_for->presence;
        const bool refused = presence == SRV_UNREAD && is_refused(job->parked_for, &job->error);
        if (presence == SRV_UNREAD && !refused) {
            (void)srv_store_want(d->context->store, job->parked_for); /* it may have left again */
            continue;
        }
        srv_queue_walk_remove(&walk);
        if (presence == SRV_LOST)
            srv_session_check_present(job->parked_for, &job->error);
        srv_dispatch_unpark(job);
        if (refused || presence == SRV_LOST || !park(d, job, false))
            return job;
        srv_queue_walk_begin(&walk, &d->queue, SRV_QUEUE_UNREAD);
    }
    return NULL;
}

#define MOST_RETRIES 8 /* of an item, each of which takes memory of its request for outputs */

/* ---- Room ------------------------------------------------------------------------------------ */

/* Whether what needs so many bytes is to wait; where nothing can leave it is refused as it runs. */
static bool waits_for_room(struct srv_dispatch *d, size_t bytes, const struct srv_session *whose)
{
    struct srv_store *store = d->context->store;
    return store != NULL && bytes > 0 &&
           srv_stores_make_room(store, bytes, whose) == SRV_ROOM_LATER;
}

/* Bytes of blocks that the item's rows take. */
static size_t bytes_of(const struct srv_item *item)
{
    return item->model->is_cross
               ? 0
               : attn_cache_growth(item->session->cache, item->layer, item->sizes.queries);
}

bool srv_dispatch_item_waits(struct srv_dispatch *d, struct srv_item *item, size_t *taken)
{
    struct srv_session *session = item->session;
    bool waits = false;
    if (session->presence == SRV_UNREAD && is_refused(session, &item->error))
        return false;
    waits = session->presence == SRV_UNREAD && srv_store_want(d->context->store, session);
    if (!waits && srv_session_check_present(session, &item->error) == SRV_OK) {
        const size_t bytes = bytes_of(item);
        waits = bytes > 0 && (*taken == SIZE_MAX || waits_for_room(d, *taken + bytes, session));
        *taken = waits || *taken == SIZE_MAX ? SIZE_MAX : *taken + bytes;
    }
    if (waits)
        srv_fair_queue_put(&d->queue, SRV_QUEUE_WAITING, &item->node);
    return waits;
}

bool srv_dispatch_item_waits_again(struct srv_dispatch *d, struct srv_item *item)
{
    struct srv_store *store = d->context->store;
    if (item->error.code != SRV_E_POOL_FULL || store == NULL || item->retries == MOST_RETRIES ||
        srv_stores_make_room(store, bytes_of(item), item->session) == SRV_ROOM_NEVER)
        return false;
    item->retries++;
    item->error = (struct srv_error){.code = SRV_OK};
    item->step.error = (struct attn_error){.status = ATTN_OK};
    srv_fair_queue_put(&d->queue, SRV_QUEUE_WAITING, &item->node);
    return true;
}

bool srv_dispatch_job_waits(struct srv_dispatch *d, struct srv_job *job)
{
    const bool waits = waits_for_room(d, job->room, NULL);
    if (waits)
        srv_fair_queue_put(&d->queue, SRV_QUEUE_WAITING, &job->node);
    else
        job->room = 0;
    return waits;
}
