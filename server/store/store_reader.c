/* store_reader.c: sessions whose blocks are on the disk, and reading them.
 *
 * A start leaves all blocks on the disk, and blocks of sessions that nobody uses leave memory where
 * it is short (evict.c).  A thread reads them again, one session after the other: those for which a
 * request waits, between two layers of others too; after a start also those that were used last,
 * as long as memory has room.  Blocks that sessions share are read once.  A session becomes
 * SRV_PRESENT when each of its blocks is there; nobody uses its cache before, and its lengths do
 * not change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attn_state.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/store_load.h"

#define DEPTH 4                    /* a small session need not wait for a large one */
#define RETRY_NS (200 * SRV_MS_NS) /* where memory is short, or the disk cannot be read */
#define ROOM_NS (10 * SRV_MS_NS)   /* until the pool is looked at again */

/* ---- Handing over ---------------------------------------------------------------------------- */

static bool is_evicted(const struct srv_session *session)
{
    bool evicted = false;
    for (size_t i = 0; i < session->model->info.num_layers && !evicted; i++)
        evicted = attn_cache_is_evicted(session->cache, i);
    return evicted;
}

/* The one that was used last first. */
static int by_use(const void *a, const void *b)
{
    const struct srv_session *x = *(struct srv_session *const *)a;
    const struct srv_session *y = *(struct srv_session *const *)b;
    const uint64_t used_x = x->used_ns, used_y = y->used_ns;
    return (used_x < used_y) - (used_x > used_y);
}

bool srv_load_hand_over(struct srv_load *load)
{
    struct srv_store *store = load->store;
    const struct srv_restore *restore = &load->restore;
    store->last_wanted = &store->wanted;
    store->ahead = calloc(restore->count + 1, sizeof(struct srv_session *));
    if (store->ahead == NULL)
        return srv_load_refuse_memory(load);
    for (size_t i = 0; i < restore->capacity; i++) {
        const struct srv_restored_session *entry = &restore->entries[i];
        if (!entry->published || !is_evicted(entry->session))
            continue;
        atomic_fetch_add(&entry->session->references, 1);
        atomic_store(&entry->session->presence, SRV_UNREAD);
        entry->session->reading.ahead = true;
        store->ahead[store->num_ahead++] = entry->session;
    }
    qsort(store->ahead, store->num_ahead, sizeof(struct srv_session *), by_use);
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED,
                      load->published - store->num_ahead);
    atomic_store(&store->restoring, store->num_ahead);
    atomic_store(&store->unread, store->num_ahead);
    return true;
}

/* The rest is read when somebody wants it. */
static void forget_ahead(struct srv_store *store)
{
    struct srv_session **ahead = store->ahead;
    const size_t count = store->num_ahead;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < count; i++)
        ahead[i]->reading.ahead = false;
    store->ahead = NULL;
    store->num_ahead = 0;
    atomic_store(&store->restoring, 0);
    pthread_mutex_unlock(&store->lock);
    for (size_t i = 0; i < count; i++)
        srv_session_put(ahead[i]);
    free(ahead);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Under `lock`: lists a session last among those that are read first. */
static void list_wanted(struct srv_store *store, struct srv_session *session)
{
    atomic_fetch_add(&session->references, 1);
    session->reading.listed = true;
    session->reading.next = NULL;
    *store->last_wanted = session;
    store->last_wanted = &session->reading.next;
}

bool srv_store_want(struct srv_store *store, struct srv_session *session)
{
    store = srv_store_of(store, session);
    pthread_mutex_lock(&store->lock);
    const bool unread = session->presence == SRV_UNREAD;
    session->reading.wanted = session->reading.wanted || unread;
    if (unread && !session->reading.listed && !session->reading.now) {
        list_wanted(store, session);
        atomic_store(&session->refused, false);
        pthread_cond_broadcast(&store->wake);
    }
    pthread_mutex_unlock(&store->lock);
    return unread;
}

void srv_store_note_evicted(struct srv_store *store, struct srv_session *session)
{
    store = srv_store_of(store, session);
    pthread_mutex_lock(&store->lock);
    const bool deleted = session->record_state == SRV_DELETED;
    atomic_store(&session->presence, deleted ? SRV_DROPPED : SRV_UNREAD);
    atomic_fetch_add(&store->unread, !deleted);
    pthread_mutex_unlock(&store->lock);
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

size_t srv_store_unread(const struct srv_store *store)
{
    return store != NULL ? atomic_load(&store->unread) : 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* A session that is being read. */
struct reading {
    struct srv_store *store;
    struct srv_session *session;
    enum {
        WANTED, /* requests wait for it */
        AHEAD,  /* nobody waits: as long as memory has room */
        TAILS,  /* only what stands in blocks that have tokens of journals too */
    } what;
    unsigned depth; /* readings of other sessions that wait for this one's end */
    char why[256];
};

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

static enum attn_status read_wanted(struct srv_store *store, unsigned depth);

/* Between two layers: others go first, and this thread leaves the CPU to requests.  False where
 * reading is to end. */
static bool give_way(const struct reading *r)
{
    if (r->depth < DEPTH)
        (void)read_wanted(r->store, r->depth + 1);
    return !has_stopped(r->store) && !is_deleted(r->store, r->session);
}

/* Whether requests wait for the session. */
static bool has_waiting(const struct srv_session *session)
{
    return session->parked > 0 || session->waiting > 0;
}

/* Has the engine thread look for what this thread has done, or asks for. */
void srv_store_tell_engine_thread(struct srv_store *store)
{
    atomic_store(&store->restored, true);
    store->context.wake_engine_thread(store->context.callback_context);
}

/* Has the engine thread make room of that many bytes.  False where it cannot, or others have waited
 * for a while too, or nobody waits any more, or the store stops. */
static bool await_room(const struct reading *r, size_t bytes)
{
    struct srv_store *store = r->store;
    const uint64_t until = srv_now_ns() + RETRY_NS;
    pthread_mutex_lock(&store->lock);
    store->short_of = bytes;
    store->no_room = false;
    store->gives_up = !store->tails_read; /* no snapshot makes room before */
    while (store->short_of > 0 && !store->stop && !store->gives_up && has_waiting(r->session) &&
           (store->wanted == NULL || srv_now_ns() < until)) {
        pthread_mutex_unlock(&store->lock);
        srv_store_tell_engine_thread(store);
        pthread_mutex_lock(&store->lock);
        if (store->short_of > 0 && !store->stop)
            (void)srv_cond_wait_until(&store->wake, &store->lock, srv_now_ns() + ROOM_NS);
    }
    const bool room = store->short_of == 0 && !store->no_room && !store->gives_up;
    store->short_of = 0;
    pthread_mutex_unlock(&store->lock);
    return room;
}

/* Gives a layer memory. */
static enum attn_status admit(const struct reading *r, size_t layer)
{
    struct attn_cache *cache = r->session->cache;
    struct attn_error error;
    if (r->what == TAILS)
        return ATTN_OK;
    enum attn_status status = attn_cache_admit(cache, layer, &error);
    while (status == ATTN_POOL_FULL && r->what == WANTED && r->depth == 0 &&
           await_room(r, attn_cache_evicted_bytes(cache, layer)))
        status = attn_cache_admit(cache, layer, &error);
    return status;
}

static enum attn_status read_session(struct reading *r)
{
    const struct srv_session *session = r->session;
    const size_t layers = session->model->info.num_layers;
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < layers && (status = admit(r, i)) == ATTN_OK; i++) {
        pthread_mutex_lock(&r->store->moving);
        status = srv_blocks_fill(session->cache, session->model->attn, i, r->store->slots,
                                 &r->store->reader);
        pthread_mutex_unlock(&r->store->moving);
        snprintf(r->why, sizeof r->why, "session %s, layer %zu: %s", session->id, i,
                 status == ATTN_IO ? strerrordesc_np(errno) : "a block is damaged");
        const size_t bytes =
            attn_cache_layer_bytes(session->cache, i, attn_cache_length(session->cache, i));
        r->store->read_bytes += r->what == TAILS ? 0 : bytes;
        srv_metrics_store(r->store->context.metrics, SRV_BLOCK_BYTES_READ,
                          r->what == TAILS ? 0 : bytes);
        if (status == ATTN_OK && i + 1 < layers && r->what != TAILS && !give_way(r))
            status = ATTN_CANCELLED;
        if (status != ATTN_OK)
            break;
    }
    for (size_t i = 0; i < layers && status != ATTN_OK; i++)
        attn_cache_evict(session->cache, i);
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
    store->damage_found = true;
    store->owed_generation = store->generation + 1;
    pthread_mutex_unlock(&store->lock);
    srv_session_remove(store->context.sessions, session);
}

/* Ends the reading of a session: from here on requests see what became of it. */
static void end_reading(struct srv_store *store, struct srv_session *session,
                        enum srv_presence presence)
{
    pthread_mutex_lock(&store->lock);
    const bool wanted = session->reading.wanted, ahead = session->reading.ahead;
    session->reading.now = session->reading.wanted = session->reading.ahead = false;
    session->read_ns = srv_now_ns();
    session->fresh = wanted;
    atomic_store(&session->presence, presence);
    atomic_fetch_sub(&store->unread, 1);
    atomic_fetch_sub(&store->restoring, ahead);
    pthread_mutex_unlock(&store->lock);
    srv_metrics_store(store->context.metrics, ahead ? SRV_SESSIONS_RESTORED : SRV_SESSIONS_READ,
                      presence == SRV_PRESENT);
    if (wanted)
        srv_store_tell_engine_thread(store);
}

/* Leaves a session unread: one that somebody waits for is tried again, or refused where memory
 * cannot hold it.  Blocks that may be sound and cannot be read now are logged once. */
static void put_off(const struct reading *r, enum attn_status status)
{
    struct srv_store *store = r->store;
    struct srv_session *session = r->session;
    if (status == ATTN_IO && !session->reading.logged)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "a session waits until its blocks can be read: %s", r->why);
    pthread_mutex_lock(&store->lock);
    session->reading.logged = session->reading.logged || status == ATTN_IO;
    session->reading.now = false;
    const bool refused = status == ATTN_POOL_FULL && r->depth == 0 && store->no_room;
    atomic_store(&session->refused, refused);
    session->reading.wanted = session->reading.wanted && !refused && has_waiting(session);
    if (session->reading.wanted && !session->reading.listed)
        list_wanted(store, session);
    pthread_mutex_unlock(&store->lock);
    if (refused)
        srv_store_tell_engine_thread(store);
}

static enum attn_status read_one(struct reading *r)
{
    struct srv_store *store = r->store;
    struct srv_session *session = r->session;
    pthread_mutex_lock(&store->lock);
    session->reading.now = true;
    pthread_mutex_unlock(&store->lock);
    const enum attn_status status = is_deleted(store, session) ? ATTN_CANCELLED : read_session(r);
    const bool lost = status != ATTN_OK && status != ATTN_POOL_FULL && status != ATTN_NO_MEMORY &&
                      status != ATTN_IO && status != ATTN_CANCELLED;
    if (lost)
        lose(store, session, r->why);
    if (lost || is_deleted(store, session))
        end_reading(store, session, lost ? SRV_LOST : SRV_DROPPED);
    else if (status == ATTN_OK && r->what != TAILS)
        end_reading(store, session, SRV_PRESENT);
    else
        put_off(r, status);
    return status;
}

/* The next session for which requests wait, with a reference; NULL: none. */
static struct srv_session *take_wanted(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct srv_session *session = store->stop ? NULL : store->wanted;
    if (session != NULL) {
        session->reading.listed = false;
        store->wanted = session->reading.next;
        if (store->wanted == NULL)
            store->last_wanted = &store->wanted;
    }
    pthread_mutex_unlock(&store->lock);
    return session;
}

/* Reads the sessions that are wanted, up to one that is put off. */
static enum attn_status read_wanted(struct srv_store *store, unsigned depth)
{
    enum attn_status status = ATTN_OK;
    for (struct srv_session *session; status == ATTN_OK && (session = take_wanted(store)) != NULL;
         srv_session_put(session)) {
        struct reading r = {.store = store, .session = session, .what = WANTED, .depth = depth};
        if (session->presence == SRV_UNREAD && !session->reading.now)
            status = read_one(&r);
    }
    return status;
}

/* Reads parts of the sessions that a start has left, and before each one those that are wanted.
 * Returns ATTN_IO where one could not be read; ends early with ATTN_POOL_FULL where memory has no
 * room, and with ATTN_CANCELLED where the store stops. */
static enum attn_status read_ahead(struct srv_store *store, int what)
{
    enum attn_status result = ATTN_OK, status = ATTN_OK;
    for (size_t i = 0; i < store->num_ahead && status != ATTN_POOL_FULL; i++) {
        struct reading r = {.store = store, .session = store->ahead[i], .what = what};
        (void)read_wanted(store, 0);
        if (has_stopped(store))
            return ATTN_CANCELLED;
        if (r.session->presence == SRV_UNREAD)
            status = read_one(&r);
        result = status == ATTN_IO ? status : result;
    }
    return status == ATTN_POOL_FULL ? status : result;
}

void srv_store_note_damage(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    const bool found = store->damage_found;
    store->damage_found = false;
    store->keep_journals = store->keep_journals || found;
    store->manifest.broken = store->manifest.broken || found;
    pthread_mutex_unlock(&store->lock);
    if (found)
        srv_slots_keep(store->slots, store->generation);
}

bool srv_store_read_now(struct srv_store *store)
{
    const bool read = read_ahead(store, TAILS) != ATTN_IO && read_ahead(store, AHEAD) != ATTN_IO;
    errno = store->reader.error;
    forget_ahead(store);
    store->tails_read = true;
    return read;
}

/* Reads what a start has left on the disk.  Snapshots wait for the tails: they write such a block
 * whole. */
static void read_rest(struct srv_store *store)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    const uint64_t start = srv_now_ns();
    const size_t sessions = store->num_ahead;
    while (read_ahead(store, TAILS) == ATTN_IO)
        nanosleep(&pause, NULL);
    pthread_mutex_lock(&store->lock);
    store->tails_read = true;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
    while (read_ahead(store, AHEAD) == ATTN_IO)
        nanosleep(&pause, NULL);
    const size_t left = atomic_load(&store->restoring);
    forget_ahead(store);
    if (sessions > 0 && !has_stopped(store))
        srv_log_event(store->context.log, SRV_LOG_INFO, "read",
                      "the tokens of %zu sessions are in memory: %zu bytes in %llu ms; those of "
                      "%zu are read when they are needed",
                      sessions - left, store->read_bytes,
                      (unsigned long long)((srv_now_ns() - start) / SRV_MS_NS), left);
}

void *srv_store_read_thread(void *argument)
{
    struct srv_store *store = argument;
    enum attn_status status = ATTN_OK;
    pthread_setname_np(pthread_self(), "attnd-read");
    read_rest(store);
    pthread_mutex_lock(&store->lock);
    while (!store->stop) {
        if (status != ATTN_OK) /* one was put off */
            (void)srv_cond_wait_until(&store->wake, &store->lock, srv_now_ns() + RETRY_NS);
        else if (store->wanted == NULL)
            pthread_cond_wait(&store->wake, &store->lock);
        pthread_mutex_unlock(&store->lock);
        status = read_wanted(store, 0);
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

void srv_store_forget_unread(struct srv_store *store)
{
    forget_ahead(store);
    while (store->wanted != NULL) {
        struct srv_session *session = store->wanted;
        store->wanted = session->reading.next;
        srv_session_put(session);
    }
}
