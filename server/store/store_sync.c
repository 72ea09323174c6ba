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

static bool flush_file(const struct srv_store *store, int fd, const char *what)
{
    if (fdatasync(fd) == 0)
        return true;
    srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "%s is not on disk: %s", what,
                  strerror(errno));
    return false;
}

bool srv_store_sync_old(struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    int fd = store->journal.older_synced || store->old.broken ? -1 : store->old.fd;
    pthread_mutex_unlock(&store->records);
    if (fd < 0)
        return true;
    bool synced = flush_file(store, fd, "a journal that ended");
    pthread_mutex_lock(&store->records);
    if (synced)
        store->journal.older_synced = store->old.older_synced;
    else
        store->old.broken = true;
    pthread_mutex_unlock(&store->records);
    return synced;
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
    bool synced = flush_file(store, fd, "the journal");
    pthread_mutex_lock(&store->records);
    if (journal->generation != generation) /* it was left meanwhile */
        journal = &store->old;
    if (synced && !journal->broken)
        journal->synced = end;
    else
        journal->broken = true;
    srv_store_note_journal(store);
    pthread_mutex_unlock(&store->records);
    return synced;
}

bool srv_store_sync(struct srv_store *store)
{
    pthread_mutex_lock(&store->flushing);
    bool old_synced = srv_store_sync_old(store);
    bool synced = sync_current(store) && old_synced;
    pthread_mutex_unlock(&store->flushing);
    return synced;
}

bool srv_store_sync_files(const struct srv_store *store, const struct srv_file files[],
                          size_t count)
{
    bool synced = true;
    for (size_t i = 0; i < count && synced; i++) {
        if (files[i].kind != SRV_FILE_JOURNAL)
            continue;
        int fd = openat(store->directory, files[i].name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        synced = fd >= 0 && fdatasync(fd) == 0;
        int error = errno;
        if (fd >= 0)
            close(fd);
        errno = error;
    }
    return synced;
}
