/* store_watch.c: files of the directory that others remove while it is in use, as what cleans
 * temporary directories does.
 *
 * Each removal changes the time of the directory, so nothing is looked for while that stays.  Where
 * something that a start needs is not there any more, the journal refuses all changes until a
 * snapshot has written every session anew.  A journal whose file was removed is noticed before
 * that, by its next batch (journal.c).  The lock file and the identity are made again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_internal.h"

static bool is_missing(const struct srv_store *store, const char *name)
{
    return faccessat(store->directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

/* ---- The lock file and the identity ---------------------------------------------------------- */

static bool make_lock_file(struct srv_store *store)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(store->directory, SRV_LOCK_FILE, flags, 0600);
    bool made = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    int before = made ? store->lock_file : fd;
    store->lock_file = made ? fd : store->lock_file;
    if (before >= 0)
        close(before);
    return made;
}

static bool make_identity(struct srv_store *store)
{
    char message[SRV_UNWRITTEN_TEXT];
    struct srv_identity identity = store->identity;
    return srv_identity_resolve(&identity, store->directory, store->path, SRV_NAME_DEFAULT, message,
                                sizeof message);
}

/* Without the lock file a daemon on a file system that has no locks of directories would not be
 * noticed, and without the identity the next start would give the directory another one. */
static void make_again(struct srv_store *store)
{
    static const struct {
        const char *name;
        bool (*make)(struct srv_store *store);
    } files[] = {{SRV_LOCK_FILE, make_lock_file}, {SRV_IDENTITY_FILE, make_identity}};
    const size_t count = store->context.naming == SRV_NAME_NONE ? 1 : 2;
    for (size_t i = 0; i < count; i++)
        if (is_missing(store, files[i].name))
            srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                          "%s/%s was removed while attnd uses the directory: it %s", store->path,
                          files[i].name,
                          files[i].make(store) ? "is there again" : "cannot be made again");
}

/* ---- Journals, manifests and blocks ---------------------------------------------------------- */

static bool has_file(const struct srv_file files[], size_t count, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || strcmp(files[i].name, name) == 0;
    return found;
}

/* Looks for both copies of the manifest, the journals that follow it, and the files of blocks; true
 * with the name of one that is missing. */
static bool find_missing(char out[SRV_FILE_NAME], struct srv_store *store,
                         const struct srv_file files[], size_t count)
{
    struct srv_file named[3];
    size_t journals = 0, num_named = 0;
    bool missing = srv_slots_find_removed(out, store->slots);
    if (store->manifest_named != 0) {
        srv_file_name(&named[num_named++], SRV_FILE_MANIFEST, store->manifest_named);
        srv_file_name(&named[num_named++], SRV_FILE_COPY, store->manifest_named);
    }
    if (store->journal.fd >= 0)
        srv_file_name(&named[num_named++], SRV_FILE_JOURNAL, store->generation);
    for (size_t i = 0; i < num_named && !missing; i++) {
        missing = !has_file(files, count, named[i].name);
        if (missing)
            memcpy(out, named[i].name, SRV_FILE_NAME);
    }
    for (size_t i = 0; i < count; i++)
        journals +=
            files[i].kind == SRV_FILE_JOURNAL && files[i].generation >= store->base_generation;
    return missing || (store->journal.fd >= 0 && journals < store->older_journals + 1);
}

/* Has all changes refused, and all sessions written. */
static void begin_anew(struct srv_store *store, const char *name)
{
    srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                  "%s/%s was removed while attnd uses the directory: changes are refused until a "
                  "snapshot of all sessions is written",
                  store->path, name);
    pthread_mutex_lock(&store->records);
    if (srv_store_journals(store)) {
        store->journal.gone = true;
        if (store->journal.broken == 0)
            store->journal.broken = ENOENT;
        srv_store_note_journal(store);
    }
    store->manifest.broken = true; /* the next snapshot says all of all sessions, */
    atomic_store(&store->last_snapshot_failed, true); /* and is due */
    pthread_mutex_unlock(&store->records);
    store->removed = true;
}

bool srv_store_find_removed(struct srv_store *store)
{
    struct stat now;
    struct srv_file *files;
    size_t count;
    char name[SRV_FILE_NAME] = "a journal";
    if (store->removed || fstat(store->directory, &now) != 0 || srv_store_restoring(store) > 0 ||
        (now.st_mtim.tv_sec == store->looked_at.tv_sec &&
         now.st_mtim.tv_nsec == store->looked_at.tv_nsec))
        return store->removed;
    if (now.st_nlink > 0)
        make_again(store);
    if (!srv_files_list(&files, &count, store->directory))
        return false;
    store->looked_at = now.st_mtim;
    const bool missing = find_missing(name, store, files, count);
    free(files);
    if (missing)
        begin_anew(store, name);
    return store->removed;
}
