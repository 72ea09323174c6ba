/* store_thread.c: the store's threads.
 *
 * One thread decides when a snapshot is due, asks the engine thread to take it, and writes it.
 * Another one reads blocks (store_reader.c).
 * With a journal another thread records what no request records, and flushes the journal, since
 * writing a snapshot may take the disk minutes. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/store_internal.h"

#define RETRY_NS (5 * SRV_S_NS) /* after a snapshot that failed */
#define MANY_JOURNALS 8

/* ---- Snapshots ------------------------------------------------------------------------------- */

/* Under `lock`: waits for the snapshot that the engine thread was asked for.  *out is NULL where
 * there was no memory for it.  False where none was taken. */
static bool await_snapshot(struct srv_snapshot **out, struct srv_store *store)
{
    while (atomic_load(&store->take_pending) && !store->stop)
        pthread_cond_wait(&store->wake, &store->lock);
    bool taken = !atomic_exchange(&store->take_pending, false) && !store->missed;
    *out = store->snapshot;
    store->snapshot = NULL;
    return taken;
}

/* Under `lock`, which is unlocked meanwhile: makes a snapshot while requests are served.  A
 * client that asked for one waits for a new generation, so the generation of a failed snapshot is
 * used again only where nobody has asked since.  False where the snapshot failed. */
static bool make_snapshot(struct srv_store *store)
{
    struct srv_snapshot *snapshot = NULL;
    store->same_journal =
        store->generation >= store->owed_generation && srv_snapshot_may_keep_journal(store);
    store->missed = false;
    store->asked_by_client = store->needs_moment = false;
    store->running = true;
    pthread_mutex_unlock(&store->lock);
    srv_store_note_damage(store);
    bool ready = store->same_journal || srv_snapshot_begin_journal(store);
    if (ready) {
        atomic_store(&store->take_pending, true);
        store->context.wake_engine_thread(store->context.callback_context);
    }
    pthread_mutex_lock(&store->lock);
    bool taken = ready && await_snapshot(&snapshot, store), missed = store->missed;
    pthread_mutex_unlock(&store->lock);
    bool made = taken && srv_snapshot_finish(store, snapshot);
    if (ready && !taken)
        srv_journal_close(&store->next); /* an empty one: its file does no harm */
    pthread_mutex_lock(&store->lock);
    store->running = false;
    store->same_journal = false;
    return made || missed;
}

static bool is_due(const struct srv_store *store, uint64_t since_ns, uint64_t now)
{
    const struct srv_store_context *options = &store->context;
    size_t changes = atomic_load(&store->changes);
    uint64_t bytes = store->older_bytes + store->current_bytes;
    if (store->asked_by_client || store->base_generation < store->owed_generation ||
        atomic_load(&store->last_snapshot_failed) || store->needs_moment)
        return true;
    if (srv_store_journals(store))
        return store->broken || bytes > options->journal_bytes ||
               store->older_journals > MANY_JOURNALS;
    return changes > 0 && ((options->snapshot_interval_s > 0 &&
                            now - since_ns >= options->snapshot_interval_s * SRV_S_NS) ||
                           (options->snapshot_tokens > 0 && changes >= options->snapshot_tokens));
}

/* Under `lock`, which is unlocked meanwhile: waits a second, or until something happens. */
static void wait_a_second(struct srv_store *store)
{
    srv_cond_wait_until(&store->wake, &store->lock, srv_now_ns() + SRV_S_NS);
}

static void *snapshot_thread(void *argument)
{
    struct srv_store *store = argument;
    pthread_setname_np(pthread_self(), "attnd-store");
    uint64_t last_ns = srv_now_ns();
    pthread_mutex_lock(&store->lock);
    while (!store->stop && !store->tails_read)
        pthread_cond_wait(&store->wake, &store->lock);
    while (!store->stop) {
        if (!store->asked_by_client &&
            (!store->needs_moment || srv_now_ns() < store->not_before_ns))
            wait_a_second(store);
        pthread_mutex_unlock(&store->lock);
        (void)srv_store_find_removed(store);
        pthread_mutex_lock(&store->lock);
        uint64_t now = srv_now_ns();
        if (store->stop || (!store->asked_by_client && now < store->not_before_ns) ||
            !is_due(store, last_ns, now))
            continue;
        bool made = make_snapshot(store);
        last_ns = srv_now_ns();
        store->not_before_ns = made ? 0 : last_ns + RETRY_NS;
        pthread_mutex_unlock(&store->lock);
        srv_store_tell_engine_thread(store); /* sessions can leave memory */
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

/* ---- Once a second --------------------------------------------------------------------------- */

/* Seconds between two flushes; 0: each batch is flushed.  With `os` the system has written most of
 * it before, and a start can tell damage from what was never written. */
static const size_t flush_s[] = {
    [SRV_FSYNC_OS] = 60, [SRV_FSYNC_EVERYSEC] = 1, [SRV_FSYNC_ALWAYS] = 0};

static void *sync_thread(void *argument)
{
    struct srv_store *store = argument;
    pthread_setname_np(pthread_self(), "attnd-sync");
    pthread_mutex_lock(&store->lock);
    for (size_t second = 1; !store->stop; second++) {
        wait_a_second(store);
        pthread_mutex_unlock(&store->lock);
        srv_store_record_rest(store, false);
        if (flush_s[store->context.fsync] > 0 && second % flush_s[store->context.fsync] == 0)
            (void)srv_store_sync(store);
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

/* ---- Starting and asking --------------------------------------------------------------------- */

bool srv_store_start(struct srv_store *store, char *message, size_t size)
{
    void *(*const mains[])(void *) = {snapshot_thread, srv_store_read_thread, sync_thread};
    if (store == NULL)
        return true;
    size_t threads = srv_store_journals(store) ? 3 : 2;
    while (store->started < threads &&
           srv_thread_start(&store->threads[store->started], mains[store->started], store))
        store->started++;
    if (store->started < threads) {
        snprintf(message, size, "out of memory");
        srv_thread_explain(message, size);
    }
    return store->started == threads;
}

/* Under `lock`. */
static struct srv_store_status describe(const struct srv_store *store)
{
    return (struct srv_store_status){
        .generation = store->generation,
        .base = store->base_generation,
        .journal_bytes = store->older_bytes + store->current_bytes,
        .running = store->running || store->asked_by_client,
        .owed = store->owed_generation,
    };
}

void srv_store_request_snapshot(struct srv_store_status *out, struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->asked_by_client = true;
    store->owed_generation = store->generation + 1;
    *out = describe(store);
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
}

void srv_store_describe(struct srv_store_status *out, struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    *out = describe(store);
    pthread_mutex_unlock(&store->lock);
}
