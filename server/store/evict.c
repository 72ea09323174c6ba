/* evict.c: which sessions leave memory.
 *
 * A session may leave where a snapshot has written all of it, and no step over it runs.  Of the
 * sessions in memory that were used least recently, NEAR of them, the one over which fewest steps
 * were made leaves first: with requests that follow Zipf's law this keeps a twentieth more of what
 * is asked for next than the least recently used one alone.  A session that was just read for a
 * request stays until that has used it.
 *
 * Cost of a pass: proportional to the sessions of the table; it makes somewhat more room than it
 * was asked for, so that passes are rare. */
#include <stdlib.h>
#include <string.h>

#include "attn_state.h"
#include "session/models.h"
#include "store/store_internal.h"
#include "store/stores.h"

#define NEAR 64                  /* sessions that are compared */
#define FRESH_NS (1 * SRV_S_NS)  /* for which one that was read for a request is kept for it */
#define MOMENT_NS (5 * SRV_S_NS) /* between snapshots that are made ahead */

struct candidate {
    struct srv_session *session;
    uint64_t used_ns; /* event threads change the session's */
};

/* The sessions of a pass. */
struct pass {
    struct srv_session **all; /* [count], with references */
    size_t count;
    struct candidate *clean; /* [num_clean] that may leave, the least recently used first */
    size_t num_clean, next;  /* those before `next` have left */
    size_t clean_bytes;      /* of the others */
    bool dirty;              /* some may once a snapshot is written */
    bool busy;               /* some are in use */
};

static bool is_written(struct srv_store *own, const struct srv_session *session)
{
    return !session->changed && session->listed <= srv_store_of(own, session)->told_moment;
}

/* Whether the request for which a session was read has not used it yet. */
static bool is_fresh(const struct srv_session *session, uint64_t now)
{
    return session->fresh && now - session->read_ns < FRESH_NS;
}

static int by_use(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Whether the thread that reads sessions of that one's store waits for room. */
static bool is_short(struct srv_store *own, const struct srv_session *session)
{
    struct srv_store *store = srv_store_of(own, session);
    pthread_mutex_lock(&store->lock);
    const bool waits = store->short_of > 0;
    pthread_mutex_unlock(&store->lock);
    return waits;
}

/* False where memory is short. */
static bool begin_pass(struct pass *pass, struct srv_store *own, const struct srv_session *whose,
                       bool for_reader)
{
    const uint64_t now = srv_now_ns();
    *pass = (struct pass){0};
    if (!srv_sessions_all(&pass->all, &pass->count, own->context.sessions))
        return false;
    pass->clean = malloc((pass->count + 1) * sizeof *pass->clean);
    for (size_t i = 0; i < pass->count && pass->clean != NULL; i++) {
        struct srv_session *session = pass->all[i];
        const size_t bytes = attn_cache_bytes(session->cache);
        if (session->reading.now && !(for_reader && is_short(own, session)))
            pass->busy = true;
        const enum srv_presence presence = session->presence;
        if (bytes == 0 || session == whose || session->pinned == SRV_PIN_NEXT ||
            (presence != SRV_PRESENT && presence != SRV_UNREAD))
            continue;
        if (presence == SRV_PRESENT &&
            (session->pinned || session->pending_creation || is_fresh(session, now))) {
            pass->busy = true;
        } else if (!is_written(own, session)) { /* if unread, with rows of journals */
            pass->dirty = true;
        } else if (presence == SRV_PRESENT) {
            pass->clean[pass->num_clean++] = (struct candidate){session, session->used_ns};
            pass->clean_bytes += bytes;
        }
    }
    if (pass->clean != NULL)
        qsort(pass->clean, pass->num_clean, sizeof *pass->clean, by_use);
    return pass->clean != NULL;
}

static void end_pass(struct pass *pass)
{
    for (size_t i = 0; i < pass->count; i++) {
        pass->all[i]->uses /= pass->next > 0 ? 2 : 1;
        srv_session_put(pass->all[i]);
    }
    free(pass->all);
    free(pass->clean);
}

/* Takes the session that is to leave first out of the clean ones. */
static struct srv_session *take_first(struct pass *pass)
{
    size_t first = pass->next;
    for (size_t i = first + 1; i < pass->num_clean && i < pass->next + NEAR; i++)
        if (pass->clean[i].session->uses < pass->clean[first].session->uses)
            first = i;
    const struct candidate taken = pass->clean[first];
    for (size_t i = first; i > pass->next; i--)
        pass->clean[i] = pass->clean[i - 1];
    pass->next++;
    return taken.session;
}

static void evict(struct srv_store *own, struct srv_session *session)
{
    for (size_t i = 0; i < session->model->info.num_layers; i++)
        attn_cache_evict(session->cache, i);
    srv_store_note_evicted(own, session);
    srv_metrics_store(own->context.metrics, SRV_SESSIONS_EVICTED, 1);
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* Whether a snapshot of any store runs; has one made where sessions would leave after it, unless
 * the last one has just failed, or the store cannot make one yet. */
static bool await_moment(struct srv_store *own, bool asks)
{
    const uint64_t now = srv_now_ns();
    bool awaited = false;
    for (size_t i = 0; i <= own->num_adopted; i++) {
        struct srv_store *store = i == 0 ? own : own->adopted[i - 1];
        pthread_mutex_lock(&store->lock);
        if (asks && !store->running && !store->needs_moment && store->tails_read &&
            now >= store->not_before_ns) {
            store->needs_moment = true;
            pthread_cond_broadcast(&store->wake);
        }
        awaited = awaited || store->running || store->needs_moment;
        pthread_mutex_unlock(&store->lock);
    }
    return awaited;
}

/* A snapshot that is made before a step has to wait for it. */
static void make_moment_ahead(struct srv_store *own, const struct pass *pass)
{
    const uint64_t now = srv_now_ns();
    if (!pass->dirty || pass->clean_bytes > attn_cache_pool_budget(own->context.pool) / 8 ||
        now < own->next_moment_ns)
        return;
    own->next_moment_ns = now + MOMENT_NS;
    (void)await_moment(own, true);
}

/* Threads that read, and wait for room, do not wait for each other's sessions, or their own. */
static enum srv_room make_room(struct srv_store *own, size_t bytes, const struct srv_session *whose,
                               bool for_reader)
{
    const struct attn_cache_pool *pool = own->context.pool;
    const size_t budget = attn_cache_pool_budget(pool), slack = budget / 64;
    const size_t most = bytes + slack < budget ? budget - bytes - slack : 0;
    struct pass pass;
    if (bytes > budget)
        return SRV_ROOM_NEVER;
    if (attn_cache_pool_used(pool) <= budget - bytes)
        return SRV_ROOM_NOW;
    if (!begin_pass(&pass, own, whose, for_reader)) {
        end_pass(&pass);
        return SRV_ROOM_LATER;
    }
    while (attn_cache_pool_used(pool) > most && pass.next < pass.num_clean) {
        struct srv_session *session = take_first(&pass);
        pass.clean_bytes -= attn_cache_bytes(session->cache);
        evict(own, session);
    }
    make_moment_ahead(own, &pass);
    const bool room = attn_cache_pool_used(pool) <= budget - bytes;
    const bool later = !room && (await_moment(own, pass.dirty) || pass.busy);
    end_pass(&pass);
    return room ? SRV_ROOM_NOW : later ? SRV_ROOM_LATER : SRV_ROOM_NEVER;
}

enum srv_room srv_stores_make_room(struct srv_store *own, size_t bytes,
                                   const struct srv_session *whose)
{
    return make_room(own, bytes, whose, false);
}

/* Answers a reading thread that waits for room; `first`: no other one does that comes before it.
 * Threads that hold parts of sessions and wait would wait for each other: the first goes on, the
 * others give up what they hold, and try again.  Whether it waits. */
static bool answer_reader(struct srv_store *own, struct srv_store *store, bool first)
{
    pthread_mutex_lock(&store->lock);
    const size_t bytes = store->short_of;
    pthread_mutex_unlock(&store->lock);
    if (bytes == 0)
        return false;
    const enum srv_room room = make_room(own, bytes, NULL, true);
    if (room == SRV_ROOM_LATER && first)
        return true;
    pthread_mutex_lock(&store->lock);
    store->short_of = 0;
    store->no_room = room == SRV_ROOM_NEVER && first;
    store->gives_up = room != SRV_ROOM_NOW;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
    return true;
}

void srv_stores_answer_readers(struct srv_store *own)
{
    bool first = true;
    for (size_t i = own != NULL ? own->num_adopted + 1 : 0; i-- > 0;)
        first = !answer_reader(own, i == 0 ? own : own->adopted[i - 1], first) && first;
}
