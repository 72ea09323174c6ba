/* store_sync.c: journals go to the disk in their order.
 *
 * A record says how much was on the disk when it was written (record.h).  So nothing of a journal
 * counts as flushed before the journal before it is, and nothing after a flush that failed: nobody
 * knows what the disk holds then, and a new journal is due. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "store/store_internal.h"

/* 0 or an errno. */
static int flush_file(struct srv_store *store, int fd, uint64_t generation)
{
    struct srv_file file;
    atomic_store(&store->flush_ns, srv_now_ns());
    int error = fdatasync(fd) == 0 ? 0 : errno;
    atomic_store(&store->flush_ns, 0);
    srv_file_name(&file, SRV_FILE_JOURNAL, generation);
    if (error != 0)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "%s/%s is not on disk: %s",
                      store->path, file.name, strerrordesc_np(error));
    return error;
}

bool srv_store_sync_old(struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    int fd = store->journal.older_synced || store->old.broken ? -1 : store->old.fd;
    const uint64_t generation = store->old.generation;
    pthread_mutex_unlock(&store->records);
    if (fd < 0)
        return true;
    int error = flush_file(store, fd, generation);
    pthread_mutex_lock(&store->records);
    if (error == 0 && !store->old.broken)
        store->journal.older_synced = store->old.older_synced;
    else
        store->old.broken = error != 0 ? error : store->old.broken;
    pthread_mutex_unlock(&store->records);
    return error == 0;
}

static bool sync_current(struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    struct srv_journal *journal = &store->journal;
    int fd = store->unsynced ? journal->fd : -1;
    const uint64_t generation = journal->generation, end = journal->sequence;
    store->unsynced = false;
    pthread_mutex_unlock(&store->records);
    if (fd < 0)
        return true;
    int error = flush_file(store, fd, generation);
    pthread_mutex_lock(&store->records);
    if (journal->generation != generation) /* it was left meanwhile */
        journal = &store->old;
    if (error == 0 && !journal->broken)
        journal->synced = end;
    else
        journal->broken = error != 0 ? error : journal->broken;
    srv_store_note_journal(store);
    pthread_mutex_unlock(&store->records);
    return error == 0;
}

bool srv_store_sync(struct srv_store *store)
{
    pthread_mutex_lock(&store->flushing);
    bool old_synced = srv_store_sync_old(store);
    bool synced = sync_current(store) && old_synced;
    pthread_mutex_unlock(&store->flushing);
    return synced;
}

/* Nothing changes the journal's file meanwhile: it is broken, and this thread has it replaced. */
bool srv_store_cut_journal(struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    const int fd = store->journal.uncut ? store->journal.fd : -1;
    const uint64_t length = store->journal.length;
    pthread_mutex_unlock(&store->records);
    if (fd < 0)
        return true;
    const bool cut = srv_journal_cut(fd, length);
    pthread_mutex_lock(&store->records);
    store->journal.uncut = !cut;
    pthread_mutex_unlock(&store->records);
    return cut;
}

bool srv_store_sync_files(struct srv_store *store, const struct srv_file files[], size_t count)
{
    bool synced = true;
    for (size_t i = 0; i < count && synced; i++) {
        if (files[i].kind != SRV_FILE_JOURNAL && !srv_file_is_manifest(&files[i]))
            continue;
        int fd = openat(store->directory, files[i].name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        synced = fd >= 0 && fdatasync(fd) == 0;
        if (!synced)
            (void)srv_store_fail_file(store, files[i].name, 0);
        if (fd >= 0)
            close(fd);
    }
    return synced;
}
