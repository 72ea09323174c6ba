/* store_reader.c: the blocks that a start has left on the disk.
 *
 * The store's thread reads one session after the other, in the order of their creation, and between
 * two layers of one those for which a request waits.  Blocks that sessions share are read once.  A
 * session becomes SRV_PRESENT when each of its blocks is there; nobody uses its cache before, and
 * its lengths do not change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attn_state.h"
#include "base/clock.h"
#include "store/store_load.h"

#define DEPTH 4             /* a small session need not wait for a large one that is read */
#define RETRY_NS 200000000L /* where memory is short, or the disk cannot be read */

/* ---- Handing over ---------------------------------------------------------------------------- */

static bool is_unread(const struct srv_session *session)
{
    bool absent = false;
    for (size_t i = 0; i < session->model->info.num_layers && !absent; i++) {
        size_t count;
        struct attn_block *const *blocks = attn_cache_blocks(&count, session->cache, i);
        for (size_t j = 0; j < count && !absent; j++)
            absent = attn_block_absent(blocks[j]) > 0;
    }
    return absent;
}

static int by_order(const void *a, const void *b)
{
    const struct srv_unread *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

bool srv_load_hand_over(struct srv_load *load)
{
    struct srv_store *store = load->store;
    const struct srv_restore *restore = &load->restore;
    store->last_wanted = &store->wanted;
    store->unread = calloc(restore->count + 1, sizeof *store->unread);
    if (store->unread == NULL)
        return srv_load_refuse_memory(load);
    for (size_t i = 0; i < restore->capacity; i++) {
        const struct srv_restored_session *entry = &restore->entries[i];
        if (!entry->published || !is_unread(entry->session))
            continue;
        atomic_fetch_add(&entry->session->references, 1);
        store->unread[store->num_unread++] =
            (struct srv_unread){.session = entry->session, .order = entry->order};
    }
    qsort(store->unread, store->num_unread, sizeof *store->unread, by_order);
    for (size_t i = 0; i < store->num_unread; i++) {
        store->unread[i].session->unread = &store->unread[i];
        atomic_store(&store->unread[i].session->presence, SRV_UNREAD);
    }
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED,
                      load->published - store->num_unread);
    atomic_store(&store->restoring, store->num_unread);
    return true;
}

void srv_store_forget_unread(struct srv_store *store)
{
    for (size_t i = 0; i < store->num_unread; i++)
        srv_session_put(store->unread[i].session);
    free(store->unread);
    store->unread = NULL;
    store->num_unread = 0;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

bool srv_store_want(struct srv_store *store, struct srv_session *session)
{
    store = srv_store_of(store, session);
    pthread_mutex_lock(&store->lock);
    struct srv_unread *unread = session->unread;
    if (unread != NULL && !unread->listed) {
        unread->wanted = unread->listed = true;
        *store->last_wanted = unread;
        store->last_wanted = &unread->next_wanted;
        pthread_cond_broadcast(&store->wake);
    }
    pthread_mutex_unlock(&store->lock);
    return unread != NULL;
}

bool srv_store_has_restored(struct srv_store *store)
{
    return store != NULL && atomic_load(&store->restored);
}

bool srv_store_take_restored(struct srv_store *store)
{
    return store != NULL && atomic_exchange(&store->restored, false);
}

size_t srv_store_restoring(const struct srv_store *store)
{
    return store != NULL ? atomic_load(&store->restoring) : 0;
}

/* A session that is being read. */
struct reading {
    struct srv_store *store;
    const struct srv_session *session;
    unsigned depth; /* readings of other sessions that wait for this one's end */
    char why[256];
};

/* ---- Reading --------------------------------------------------------------------------------- */

static bool is_deleted(struct srv_store *store, const struct srv_session *session)
{
    pthread_mutex_lock(&store->lock);
    const bool deleted = session->record_state == SRV_DELETED;
    pthread_mutex_unlock(&store->lock);
    return deleted;
}

static bool has_stopped(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    const bool stop = store->stop;
    pthread_mutex_unlock(&store->lock);
    return stop;
}

static void read_wanted(struct srv_store *store, unsigned depth);

/* Between two layers: others go first, and this thread leaves the CPU to requests.  False where
 * reading is to end. */
static bool give_way(const struct reading *r)
{
    if (r->depth < DEPTH)
        read_wanted(r->store, r->depth + 1);
    return !has_stopped(r->store) && !is_deleted(r->store, r->session);
}

static enum attn_status read_session(struct reading *r)
{
    const struct srv_session *session = r->session;
    const size_t layers = session->model->info.num_layers;
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < layers && status == ATTN_OK; i++) {
        status = srv_blocks_fill(session->cache, session->model->attn, i, r->store->slots,
                                 &r->store->reader);
        snprintf(r->why, sizeof r->why, "session %s, layer %zu: %s", session->id, i,
                 status == ATTN_IO ? strerrordesc_np(errno) : "a block is damaged");
        r->store->read_bytes +=
            attn_cache_layer_bytes(session->cache, i, attn_cache_length(session->cache, i));
        if (status == ATTN_OK && i + 1 < layers && !give_way(r))
            status = ATTN_CANCELLED;
    }
    return status;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Takes a session out of the table of which a block is damaged.  The next snapshot, which is due at
 * once, begins a new manifest and sets aside the one that names the session, whose blocks stay. */
static void lose(struct srv_store *store, struct srv_session *session, const char *why)
{
    srv_log_event(store->context.log, SRV_LOG_ERROR, "damaged",
                  "a session is lost, the manifest will be set aside: %s", why);
    srv_metrics_store(store->context.metrics, SRV_FILE_DAMAGED, 1);
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_LOST, 1);
    pthread_mutex_lock(&store->lock);
    srv_slots_keep(store->slots, store->generation);
    session->record_state = SRV_DELETED;
    store->keep_journals = true;
    store->manifest.broken = true;
    store->owed_generation = store->generation + 1;
    pthread_mutex_unlock(&store->lock);
    srv_session_remove(store->context.sessions, session);
}

/* Ends the reading of a session: from here on requests see what became of it. */
static void end_reading(struct srv_store *store, struct srv_unread *unread,
                        enum srv_presence presence)
{
    struct srv_session *session = unread->session;
    pthread_mutex_lock(&store->lock);
    atomic_store(&session->presence, presence);
    const bool wanted = unread->wanted;
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED, presence == SRV_PRESENT);
    session->unread = NULL;
    unread->session = NULL;
    atomic_fetch_sub(&store->restoring, 1);
    if (wanted)
        atomic_store(&store->restored, true);
    pthread_mutex_unlock(&store->lock);
    srv_session_put(session);
    if (wanted)
        store->context.wake_engine_thread(store->context.callback_context);
}

/* Whether the session is to be tried again: the store stops, memory is short, or blocks that may
 * be sound cannot be read now, which is logged once. */
static bool is_put_off(struct srv_store *store, struct srv_unread *unread, const struct reading *r,
                       enum attn_status status)
{
    if (status == ATTN_IO && !unread->logged)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "a session waits until its blocks can be read: %s", r->why);
    unread->logged = unread->logged || status == ATTN_IO;
    return status == ATTN_NO_MEMORY || status == ATTN_IO ||
           (status == ATTN_CANCELLED && !is_deleted(store, r->session));
}

static void read_one(struct srv_store *store, struct srv_unread *unread, unsigned depth)
{
    struct reading r = {.store = store, .session = unread->session, .depth = depth};
    unread->reading = true;
    enum attn_status status =
        is_deleted(store, unread->session) ? ATTN_CANCELLED : read_session(&r);
    unread->reading = false;
    if (is_put_off(store, unread, &r, status))
        return;
    if (status != ATTN_OK && status != ATTN_CANCELLED)
        lose(store, unread->session, r.why);
    end_reading(store, unread,
                status == ATTN_OK          ? SRV_PRESENT
                : status == ATTN_CANCELLED ? SRV_DROPPED
                                           : SRV_LOST);
}

/* The next session for which requests wait; NULL: none. */
static struct srv_unread *take_wanted(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct srv_unread *unread = NULL;
    while (unread == NULL && store->wanted != NULL && !store->stop) {
        const bool due = store->wanted->session != NULL && !store->wanted->reading;
        unread = due ? store->wanted : NULL;
        store->wanted->listed = false;
        store->wanted = store->wanted->next_wanted;
        if (store->wanted == NULL)
            store->last_wanted = &store->wanted;
    }
    pthread_mutex_unlock(&store->lock);
    return unread;
}

static void read_wanted(struct srv_store *store, unsigned depth)
{
    for (struct srv_unread *unread; (unread = take_wanted(store)) != NULL;)
        read_one(store, unread, depth);
}

/* Reads all sessions once. */
static void read_all(struct srv_store *store)
{
    for (size_t i = 0; i < store->num_unread && !has_stopped(store); i++) {
        read_wanted(store, 0);
        if (store->unread[i].session != NULL)
            read_one(store, &store->unread[i], 0);
    }
}

bool srv_store_read_now(struct srv_store *store)
{
    read_all(store);
    const bool read = atomic_load(&store->restoring) == 0;
    const int error = store->reader.error;
    srv_store_forget_unread(store);
    atomic_store(&store->restoring, 0);
    errno = error != 0 ? error : ENOMEM;
    return read;
}

void srv_store_read_tokens(struct srv_store *store)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    const uint64_t start = srv_now_ns();
    const size_t sessions = store->num_unread;
    while (atomic_load(&store->restoring) > 0 && !has_stopped(store)) {
        read_all(store);
        if (atomic_load(&store->restoring) > 0 && !has_stopped(store))
            nanosleep(&pause, NULL);
    }
    if (sessions == 0 || atomic_load(&store->restoring) > 0)
        return;
    srv_log_event(store->context.log, SRV_LOG_INFO, "read",
                  "the tokens of %zu sessions are in memory: %zu bytes in %llu ms", sessions,
                  store->read_bytes, (unsigned long long)((srv_now_ns() - start) / 1000000));
    pthread_mutex_lock(&store->lock);
    srv_store_forget_unread(store);
    pthread_mutex_unlock(&store->lock);
}
