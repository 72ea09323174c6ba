/* store_checkpoint.c: all sessions as files.
 *
 * A cut is one moment of all sessions: between two batches the scheduler's thread goes on in a new
 * journal, freezes the caches that have changed, which copies no token, and copies the last steps;
 * nothing else, since all computing waits for it.  What follows takes its time on the store's own
 * thread: what is frozen is written as files, one at a time, then the base that names them all is
 * put in its place, and what it replaces is removed.  Before the base is there the old one and both
 * journals say the same; so this may end anywhere, and what fails takes its files away. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/session_notes.h"
#include "store/store_parts.h"

#define NS_PER_S UINT64_C(1000000000)
#define PAUSE_NS (5 * NS_PER_S) /* after a snapshot that failed */
#define MANY_FILES 32           /* that are brought to the disk together */
#define MANY_JOURNALS 8

/* ---- Making a cut ---------------------------------------------------------------------------- */

bool srv_store_new_journal(struct srv_journal *out, const struct srv_store *store)
{
    struct srv_file file;
    *out = (struct srv_journal){.fd = -1};
    if (!srv_store_journals(store))
        return true;
    srv_file_name(&file, SRV_FILE_JOURNAL, store->generation + 1, 0);
    int fd = openat(store->directory, file.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    if (srv_journal_open(out, fd, store->generation + 1) && fdatasync(fd) == 0 &&
        fsync(store->directory) == 0)
        return true;
    int error = errno;
    if (out->fd < 0)
        close(fd);
    srv_journal_close(out);
    unlinkat(store->directory, file.name, 0);
    errno = error;
    return false;
}

/* Copies the last steps; NULL where memory is short. */
static struct srv_last_step *copy_last(const struct srv_session *session)
{
    size_t bytes = session->model->info.num_layers * sizeof *session->last;
    struct srv_last_step *copy = malloc(bytes);
    return copy != NULL ? memcpy(copy, session->last, bytes) : NULL;
}

static bool take_session(struct srv_checkpoint_entry *entry, const struct srv_store *store,
                         uint64_t generation, struct srv_error *error)
{
    struct srv_session *session = entry->session;
    struct attn_error cause = {0};
    entry->base = (struct srv_base_entry){session->epoch, session->file_generation,
                                          srv_session_used(session)};
    if (!session->changed && session->file_generation != 0 && !atomic_load(&store->rewrite))
        return true;
    entry->chain = session->chain;
    entry->last = copy_last(session);
    if (entry->last == NULL) {
        srv_fail(error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a session's last steps");
        return false;
    }
    if (attn_cache_freeze(&entry->frozen, session->cache, &cause) != ATTN_OK) {
        srv_fail_attn(error, &cause);
        return false;
    }
    session->changed = false;
    session->file_generation = entry->base.generation = generation;
    return true;
}

/* Under the lock: the sessions that are recorded at this moment, and on to the next journal. */
static bool list_sessions(struct srv_checkpoint *cut, struct srv_store *store)
{
    struct srv_session **all;
    size_t count;
    if (!srv_sessions_all(&all, &count, store->app->sessions))
        return false;
    cut->entries = calloc(count + 1, sizeof *cut->entries);
    for (size_t i = 0; i < count; i++)
        if (cut->entries != NULL && all[i]->record == SRV_RECORDED)
            cut->entries[cut->count++].session = all[i];
        else
            srv_session_put(all[i]);
    free(all);
    return cut->entries != NULL;
}

static void go_on(struct srv_store *store)
{
    store->older_bytes += store->journal.fd >= 0 ? store->journal.length : 0;
    store->older_journals += store->journal.fd >= 0;
    store->old = store->journal;
    store->journal = store->next;
    store->next = (struct srv_journal){.fd = -1};
    store->generation++;
    atomic_store(&store->changes, 0);
}

/* Whether the journal was begun for a snapshot that failed, and holds nothing yet: then another one
 * can be of the same moment, so that a disk which stays full does not fill with journals. */
static bool can_stay(const struct srv_store *store)
{
    return srv_store_journals(store) && atomic_load(&store->rewrite) && !store->journal.broken &&
           store->journal.length == SRV_JOURNAL_HEAD;
}

/* What was taken of a session: others want its blocks, which are all free where it was deleted
 * meanwhile. */
static void let_go(struct srv_checkpoint_entry *entry)
{
    attn_cache_free(entry->frozen);
    free(entry->last);
    srv_session_put(entry->session);
    entry->frozen = NULL;
    entry->last = NULL;
    entry->session = NULL;
}

/* NULL where memory is short, or something was recorded where it was to stay.  The journal that was
 * begun for it is gone on to in any case: a file has its number now. */
static struct srv_checkpoint *make_cut(struct srv_store *store)
{
    struct srv_checkpoint *cut = calloc(1, sizeof *cut);
    pthread_mutex_lock(&store->lock);
    store->missed = store->stay && !can_stay(store);
    if (store->missed) {
        pthread_mutex_unlock(&store->lock);
        free(cut);
        return NULL;
    }
    if (cut != NULL)
        cut->failed = !list_sessions(cut, store);
    if (!store->stay)
        go_on(store);
    if (cut != NULL)
        cut->generation = store->generation;
    pthread_mutex_unlock(&store->lock);
    if (cut == NULL)
        return NULL;
    if (cut->failed)
        srv_fail(&cut->error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for a list of sessions");
    for (size_t i = 0; i < cut->count && !cut->failed; i++) {
        cut->failed = !take_session(&cut->entries[i], store, cut->generation, &cut->error);
        if (cut->entries[i].frozen == NULL)
            let_go(&cut->entries[i]);
    }
    return cut;
}

static void free_cut(struct srv_checkpoint *cut)
{
    for (size_t i = 0; cut != NULL && i < cut->count; i++)
        let_go(&cut->entries[i]);
    if (cut != NULL)
        free(cut->entries);
    free(cut);
}

bool srv_store_wants_checkpoint(const struct srv_store *store)
{
    return store != NULL && atomic_load(&store->cut_wanted);
}

void srv_store_take_checkpoint(struct srv_store *store)
{
    if (!srv_store_wants_checkpoint(store) || store->imports > 0)
        return;
    struct srv_checkpoint *cut = make_cut(store);
    pthread_mutex_lock(&store->lock);
    store->cut = cut;
    atomic_store(&store->cut_wanted, false);
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
}

/* ---- Writing it ------------------------------------------------------------------------------ */

/* NULL with errno. */
static struct attn_export *open_export(const struct srv_checkpoint_entry *entry)
{
    struct attn_export *export = NULL;
    struct attn_error cause = {.status = ATTN_NO_MEMORY};
    const struct srv_session_moment then = {entry->frozen, entry->last, entry->base.used_ns,
                                            entry->chain};
    size_t most = SRV_NOTES + entry->session->model->info.num_layers;
    struct srv_note_text *texts = malloc(most * sizeof *texts);
    struct attn_note *notes = malloc(most * sizeof *notes);
    if (texts != NULL && notes != NULL) {
        size_t count = srv_notes_print(texts, entry->session, &then, true);
        for (size_t i = 0; i < count; i++)
            notes[i] = (struct attn_note){texts[i].name, texts[i].value};
        cause.status = attn_export_open(&export, entry->frozen, notes, count, &cause);
    }
    free(texts);
    free(notes);
    errno = cause.status == ATTN_NO_MEMORY ? ENOMEM : EOVERFLOW;
    return cause.status == ATTN_OK ? export : NULL;
}

static bool write_file(const struct srv_checkpoint_entry *entry, const struct srv_store *store,
                       bool sync)
{
    struct srv_file file;
    struct attn_export *export = open_export(entry);
    if (export == NULL)
        return false;
    srv_file_name(&file, SRV_FILE_SESSION, entry->base.generation, entry->base.epoch);
    bool written = srv_file_export(store->directory, file.name, export, sync);
    int error = errno;
    attn_export_close(export);
    errno = error;
    return written;
}

static bool write_files(const struct srv_checkpoint *cut, const struct srv_store *store)
{
    size_t files = 0;
    for (size_t i = 0; i < cut->count; i++)
        files += cut->entries[i].frozen != NULL;
    for (size_t i = 0; i < cut->count; i++) {
        struct srv_checkpoint_entry *entry = &cut->entries[i];
        if (entry->frozen == NULL)
            continue;
        if (!write_file(entry, store, files <= MANY_FILES))
            return false;
        entry->written = true;
        let_go(entry);
    }
    return (files <= MANY_FILES || syncfs(store->directory) == 0) && fsync(store->directory) == 0;
}

static bool write_base(const struct srv_checkpoint *cut, const struct srv_store *store)
{
    struct srv_base_entry *entries = malloc((cut->count + 1) * sizeof *entries);
    for (size_t i = 0; entries != NULL && i < cut->count; i++)
        entries[i] = cut->entries[i].base;
    bool written =
        entries != NULL && srv_base_write(store->directory, cut->generation, entries, cut->count);
    int error = errno;
    free(entries);
    errno = error;
    return written;
}

/* What was written is not named by any base, and goes; or a base that was not written may yet
 * stand, and its files keep what they say from here on. */
static void give_up(const struct srv_checkpoint *cut, struct srv_store *store)
{
    struct srv_file file;
    srv_file_name(&file, SRV_FILE_BASE, cut->generation, 0);
    if (faccessat(store->directory, file.name, F_OK, 0) == 0 || errno != ENOENT) {
        pthread_mutex_lock(&store->lock);
        store->wanted = store->generation + 1;
        pthread_mutex_unlock(&store->lock);
        return;
    }
    for (size_t i = 0; i < cut->count; i++) {
        const struct srv_base_entry *base = &cut->entries[i].base;
        srv_file_name(&file, SRV_FILE_SESSION, base->generation, base->epoch);
        if (cut->entries[i].written)
            unlinkat(store->directory, file.name, 0);
    }
}

static bool write_cut(const struct srv_checkpoint *cut, struct srv_store *store)
{
    if (!write_files(cut, store) || !write_base(cut, store)) {
        int error = errno;
        srv_log_event(&store->app->log, SRV_LOG_ERROR, "storage",
                      "a snapshot of %zu sessions cannot be written: %s", cut->count,
                      strerrordesc_np(error));
        give_up(cut, store);
        errno = error;
        return false;
    }
    srv_store_remove_older(store, cut);
    srv_log_event(&store->app->log, SRV_LOG_INFO, "snapshot", "generation %llu: %zu sessions",
                  (unsigned long long)cut->generation, cut->count);
    return true;
}

/* The journal that was left; where it cannot be brought to the disk the snapshot will stand in. */
static void leave_journal(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    while (store->syncing)
        pthread_cond_wait(&store->wake, &store->lock);
    pthread_mutex_unlock(&store->lock);
    if (store->old.fd >= 0 && fdatasync(store->old.fd) != 0)
        srv_log_event(&store->app->log, SRV_LOG_ERROR, "storage",
                      "a journal that ended is not on disk: %s", strerror(errno));
    srv_journal_close(&store->old);
}

/* Writes the cut, NULL where there was no memory for it, and frees it. */
static bool finish(struct srv_store *store, struct srv_checkpoint *cut)
{
    bool written = false;
    leave_journal(store);
    if (cut != NULL && cut->failed)
        srv_log_event(&store->app->log, SRV_LOG_ERROR, "storage", "no snapshot was made: %s",
                      cut->error.message);
    else if (cut != NULL)
        written = write_cut(cut, store);
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->rewrite, !written);
    if (written) {
        store->base = cut->generation;
        store->older_bytes = 0;
        store->older_journals = 0;
    }
    pthread_mutex_unlock(&store->lock);
    srv_metrics_store(store->app->metrics, written ? SRV_SNAPSHOT_MADE : SRV_SNAPSHOT_FAILED, 1);
    free_cut(cut);
    return written;
}

/* What every snapshot of a new generation begins with. */
static bool begin_journal(struct srv_store *store)
{
    if (srv_store_new_journal(&store->next, store))
        return true;
    srv_log_event(&store->app->log, SRV_LOG_ERROR, "storage", "no new journal: %s",
                  strerror(errno));
    srv_metrics_store(store->app->metrics, SRV_SNAPSHOT_FAILED, 1);
    return false;
}

bool srv_store_snapshot(struct srv_store *store)
{
    return begin_journal(store) && finish(store, make_cut(store));
}

/* ---- The store's threads --------------------------------------------------------------------- */

/* Under the lock, which it gives back meanwhile: asks the scheduler's thread for a cut.  Who asked
 * for a snapshot waits for one of a new generation, however often it fails.  False where it has. */
static bool snapshot_live(struct srv_store *store)
{
    struct srv_checkpoint *cut = NULL;
    store->stay = store->generation >= store->wanted && can_stay(store);
    store->missed = false;
    store->requested = false;
    store->running = true;
    pthread_mutex_unlock(&store->lock);
    bool ready = store->stay || begin_journal(store);
    if (ready) {
        atomic_store(&store->cut_wanted, true);
        srv_scheduler_wake(store->app->scheduler);
    }
    pthread_mutex_lock(&store->lock);
    while (ready && atomic_load(&store->cut_wanted) && !store->stop)
        pthread_cond_wait(&store->wake, &store->lock);
    bool missed = store->missed, taken = ready && !atomic_exchange(&store->cut_wanted, false);
    taken = taken && !missed;
    cut = store->cut;
    store->cut = NULL;
    pthread_mutex_unlock(&store->lock);
    bool made = taken && finish(store, cut);
    if (ready && !taken)
        srv_journal_close(&store->next); /* an empty one: it does no harm */
    pthread_mutex_lock(&store->lock);
    store->running = false;
    store->stay = false;
    return made || missed;
}

static bool snapshot_is_due(const struct srv_store *store, uint64_t since_ns, uint64_t now)
{
    const struct srv_config *config = &store->app->config;
    size_t changes = atomic_load(&store->changes);
    uint64_t bytes = store->older_bytes + store->journal.length;
    if (store->requested || store->base < store->wanted || atomic_load(&store->rewrite))
        return true;
    if (srv_store_journals(store))
        return store->journal.broken || bytes > config->journal_bytes ||
               store->older_journals > MANY_JOURNALS;
    return changes > 0 && ((config->snapshot_interval_s > 0 &&
                            now - since_ns >= config->snapshot_interval_s * NS_PER_S) ||
                           (config->snapshot_tokens > 0 && changes >= config->snapshot_tokens));
}

/* Under the lock, which it gives back meanwhile. */
static void sync_journal(struct srv_store *store)
{
    int fd = store->journal.fd;
    if (store->fsync != SRV_FSYNC_EVERYSEC || !store->unsynced || fd < 0)
        return;
    store->unsynced = false;
    store->syncing = true;
    pthread_mutex_unlock(&store->lock);
    bool synced = fdatasync(fd) == 0;
    if (!synced)
        srv_log_event(&store->app->log, SRV_LOG_ERROR, "storage", "the journal is not on disk: %s",
                      strerror(errno));
    pthread_mutex_lock(&store->lock);
    store->syncing = false;
    if (!synced && store->journal.fd == fd)
        store->journal.broken = true; /* what it holds is anybody's guess: go on in a new one */
    pthread_cond_broadcast(&store->wake);
}

/* Under the lock, which it gives back meanwhile: a second, or until something happens. */
static void wait_a_second(struct srv_store *store)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&store->wake, &store->lock, &until);
}

/* A thread of its own, since files of sessions may take the disk minutes. */
void *srv_store_sync(void *argument)
{
    struct srv_store *store = argument;
    pthread_setname_np(pthread_self(), "attnd-sync");
    pthread_mutex_lock(&store->lock);
    while (!store->stop) {
        wait_a_second(store);
        sync_journal(store);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

void *srv_store_main(void *argument)
{
    struct srv_store *store = argument;
    uint64_t last_ns = srv_now_ns(), not_before = 0;
    pthread_setname_np(pthread_self(), "attnd-store");
    pthread_mutex_lock(&store->lock);
    while (!store->stop) {
        if (!store->requested)
            wait_a_second(store);
        uint64_t now = srv_now_ns();
        if (store->stop || (!store->requested && now < not_before) ||
            !snapshot_is_due(store, last_ns, now))
            continue;
        bool made = snapshot_live(store);
        last_ns = srv_now_ns();
        not_before = made ? 0 : last_ns + PAUSE_NS;
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

/* Under the lock. */
static struct srv_store_status describe(const struct srv_store *store)
{
    return (struct srv_store_status){
        .generation = store->generation,
        .base = store->base,
        .journal_bytes = store->older_bytes + store->journal.length,
        .running = store->running || store->requested,
    };
}

void srv_store_request_checkpoint(struct srv_store_status *out, struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->requested = true;
    store->wanted = store->generation + 1;
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
