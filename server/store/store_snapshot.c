/* store_snapshot.c: one moment of all sessions.
 *
 * A snapshot is taken between two batches, while all computing waits.  So the engine thread does
 * three short things: it switches to a new journal, freezes changed caches (block lists, no
 * tokens), and copies last steps.  The store's thread does everything else
 * (store_write.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/models.h"
#include "store/store_internal.h"

/* ---- Journals -------------------------------------------------------------------------------- */

/* Nothing but the head of a journal stands in a file of this generation: one that could not be
 * begun, nor removed then. */
static int open_journal(const struct srv_store *store, const char *name)
{
    struct stat facts;
    int fd = openat(store->directory, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || (fstat(fd, &facts) == 0 && facts.st_size <= SRV_JOURNAL_HEAD))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

bool srv_store_new_journal(struct srv_journal *out, struct srv_store *store)
{
    struct srv_file file;
    *out = (struct srv_journal){.fd = -1};
    if (!srv_store_journals(store))
        return true;
    srv_file_name(&file, SRV_FILE_JOURNAL, store->generation + 1);
    int fd = open_journal(store, file.name);
    if (fd < 0)
        return srv_store_fail_file(store, file.name, SRV_JOURNAL_HEAD);
    if (srv_journal_open(out, fd, store->generation + 1) && fdatasync(fd) == 0 &&
        srv_sync_directory(store->directory))
        return true;
    int error = errno;
    if (out->fd < 0)
        close(fd);
    srv_journal_close(out);
    unlinkat(store->directory, file.name, 0);
    errno = error;
    return srv_store_fail_file(store, file.name, SRV_JOURNAL_HEAD);
}

/* Under `records` and `lock`.  Where what was refused may still stand at the end of the journal
 * that is left, a start would apply it before the records of the new one; and where that journal or
 * what it follows was removed, a start has nothing for them to follow.  Until a snapshot stands in
 * for the old journal, the new one takes none. */
static void switch_journal(struct srv_store *store)
{
    struct srv_journal *journal = &store->journal;
    bool always = store->context.fsync == SRV_FSYNC_ALWAYS;
    store->older_bytes += journal->fd >= 0 ? journal->length : 0;
    store->older_journals += journal->fd >= 0;
    if (journal->sequence > 1) /* with `always`, what was not flushed was not answered either */
        store->previous =
            (struct srv_place){journal->generation, always ? journal->synced : journal->sequence};
    store->next.older_synced =
        journal->older_synced && journal->synced == journal->sequence && !journal->broken;
    const int held = journal->uncut || journal->gone || store->held ? journal->broken : 0;
    store->old = *journal;
    *journal = store->next;
    journal->broken = held;
    store->last_change = store->stated = 0;
    store->next = (struct srv_journal){.fd = -1};
    store->current_bytes = journal->length;
    store->broken = store->held = held != 0;
    store->gone = false;
    store->generation++;
    atomic_store(&store->changes, 0);
}

bool srv_snapshot_may_keep_journal(const struct srv_store *store)
{
    return srv_store_journals(store) && atomic_load(&store->last_snapshot_failed) &&
           (!store->broken || store->held) && !store->gone &&
           store->current_bytes == SRV_JOURNAL_HEAD;
}

/* ---- Entries --------------------------------------------------------------------------------- */

void srv_snapshot_free(struct srv_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    for (size_t i = 0; i < snapshot->count; i++) {
        attn_cache_free(snapshot->entries[i].frozen);
        srv_session_put(snapshot->entries[i].session);
        free(snapshot->entries[i].layers);
    }
    free(snapshot->entries);
    free(snapshot);
}

/* Copies the last steps of a session; the store's thread adds what the frozen cache has
 * (store_write.c).  NULL where memory is short. */
static struct srv_manifest_layer *describe_layers(const struct srv_session *session)
{
    const size_t count = session->model->info.num_layers;
    struct srv_manifest_layer *layers = calloc(count, sizeof *layers);
    for (size_t i = 0; i < count && layers != NULL; i++) {
        const struct srv_last_step *last = &session->last_steps[i];
        if (last->rows == 0 || last->position + last->rows != attn_cache_length(session->cache, i))
            continue;
        layers[i].rows = (uint32_t)last->rows;
        layers[i].digest[0] = last->digest[0];
        layers[i].digest[1] = last->digest[1];
    }
    return layers;
}

static bool fail_memory(struct srv_error *error, const char *what)
{
    srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for %s", what);
    return false;
}

/* `whole`: the manifest is to say all of all sessions, as it does of one of which the last snapshot
 * that listed it has failed. */
static bool freeze_session(struct srv_snapshot_entry *entry, const struct srv_store *store,
                           bool whole, struct srv_error *error)
{
    struct attn_error cause = {0};
    struct srv_session *session = entry->session;
    entry->epoch = session->epoch;
    entry->facts = (struct srv_manifest_session){
        .used_ns = srv_session_used(store->context.sessions, session),
        .next_record = session->next_record,
        .revision = srv_session_revision(session),
    };
    const bool told = session->listed != 0 && session->listed <= store->told_moment;
    entry->say = whole || !told                               ? SRV_SAY_ALL
                 : session->changed                           ? SRV_SAY_CHANGES
                 : entry->facts.used_ns != session->listed_ns ? SRV_SAY_USE
                                                              : SRV_SAY_NOTHING;
    session->listed = store->moments;
    session->changed = false;
    session->listed_ns = entry->facts.used_ns;
    if (entry->say < SRV_SAY_CHANGES) { /* its memory is not needed, where it is deleted now */
        srv_session_put(session);
        entry->session = NULL;
        return true;
    }
    entry->layers = describe_layers(session);
    if (entry->layers == NULL)
        return fail_memory(error, "what a session is");
    if (attn_cache_freeze(&entry->frozen, session->cache, &cause) != ATTN_OK) {
        srv_fail_attn(error, &cause);
        return false;
    }
    return true;
}

/* ---- All sessions ---------------------------------------------------------------------------- */

/* Under `records` and `lock`: lists the sessions that are on record at this moment. */
static bool list_sessions(struct srv_snapshot *snapshot, struct srv_store *store)
{
    struct srv_session **all;
    size_t count;
    if (!srv_sessions_all(&all, &count, store->context.sessions))
        return false;
    snapshot->entries = calloc(count + 1, sizeof *snapshot->entries);
    for (size_t i = 0; i < count; i++)
        if (snapshot->entries != NULL && all[i]->store == store->context.index &&
            all[i]->record_state == SRV_RECORDED)
            snapshot->entries[snapshot->count++].session = all[i];
        else
            srv_session_put(all[i]);
    free(all);
    return snapshot->entries != NULL;
}

/* Lists the sessions and switches to the new journal, between two batches.  False where no
 * snapshot follows: there is no memory for it (NULL), or a record has been written to the journal
 * that was to be reused. */
static bool begin(struct srv_snapshot *snapshot, struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    pthread_mutex_lock(&store->lock);
    store->missed = store->same_journal && !srv_snapshot_may_keep_journal(store);
    bool going = !store->missed;
    if (going && snapshot != NULL && !list_sessions(snapshot, store))
        snapshot->failed = !fail_memory(&snapshot->error, "a list of sessions");
    if (going && !store->same_journal)
        switch_journal(store);
    if (going && snapshot != NULL) {
        srv_slots_begin_moment(store->slots);
        snapshot->moment = ++store->moments;
    }
    if (snapshot != NULL)
        snapshot->generation = store->generation;
    pthread_mutex_unlock(&store->lock);
    pthread_mutex_unlock(&store->records);
    return going && snapshot != NULL;
}

struct srv_snapshot *srv_snapshot_freeze(struct srv_store *store)
{
    struct srv_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!begin(snapshot, store)) {
        free(snapshot);
        return NULL;
    }
    const bool whole = srv_manifest_is_due(&store->manifest);
    for (size_t i = 0; i < snapshot->count && !snapshot->failed; i++)
        snapshot->failed = !freeze_session(&snapshot->entries[i], store, whole, &snapshot->error);
    return snapshot;
}

bool srv_store_wants_snapshot(const struct srv_store *store)
{
    return store != NULL && atomic_load(&store->take_pending);
}

void srv_store_take_snapshot(struct srv_store *store)
{
    if (!srv_store_wants_snapshot(store) || store->imports > 0)
        return;
    struct srv_snapshot *snapshot = srv_snapshot_freeze(store);
    pthread_mutex_lock(&store->lock);
    store->snapshot = snapshot;
    atomic_store(&store->take_pending, false);
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
}
