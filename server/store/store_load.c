/* store_load.c: a state directory becomes sessions.
 *
 * The newest sound base says which session files count; without one the newest of each session that
 * is no younger than the journals does: what a snapshot has begun and not ended is in those, and as
 * a whole nowhere else.  Journals from the base on follow.
 * A file that is damaged is set aside and told of; what it leaves whole is loaded.  A file that
 * cannot be read now may be sound: it stays, and the start is refused.  Nothing is listed before
 * all has been read, and no file is touched before all is listed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/restore.h"
#include "store/store_parts.h"

#define PROGRESS_NS UINT64_C(2000000000)

/* What is to be done to a file once nothing refuses the start any more. */
struct mend {
    char name[SRV_FILE_NAME];
    bool aside;  /* else its tail is cut off, */
    size_t good; /* behind these bytes */
};

struct load {
    struct srv_store *store;
    struct srv_restore restore;
    struct srv_file *files; /* [count] */
    size_t count;
    uint64_t generation; /* of the base; 0: none */
    struct srv_file_reader base;
    size_t num_base;  /* entries of it */
    size_t bytes;     /* of files that were read, */
    size_t reached;   /* and of the one that is being read */
    uint64_t said_ns; /* when progress was last told */
    bool trouble;     /* something of a journal is not in the sessions */
    struct mend *mends;
    size_t num_mends, most_mends;
    char *message;
    size_t size;
};

static struct srv_log *log_of(const struct load *load) { return &load->store->app->log; }

/* Up to `end` the file that is being read was; parts of it are read twice. */
static void tell_progress(void *context, size_t end)
{
    struct load *load = context;
    uint64_t now = srv_now_ns();
    load->reached = end > load->reached ? end : load->reached;
    if (now - load->said_ns < PROGRESS_NS)
        return;
    load->said_ns = now;
    srv_log_event(log_of(load), SRV_LOG_INFO, "restoring", "%zu sessions, %zu bytes so far",
                  load->restore.made, load->bytes + load->reached);
}

static bool begin_file(struct srv_file_reader *out, struct load *load, const char *name)
{
    if (!srv_file_reader_open(out, load->store->directory, name))
        return false;
    out->progress = tell_progress;
    out->context = load;
    return true;
}

static void end_file(struct load *load, struct srv_file_reader *file)
{
    srv_file_reader_close(file);
    load->bytes += file->size;
    load->reached = 0;
    tell_progress(load, 0);
}

static bool refuse(struct load *load)
{
    size_t budget = attn_cache_pool_budget(load->store->app->pool);
    snprintf(load->message, load->size,
             "the sessions of state_dir cannot be held: %s (cache_bytes %zu, used %zu after %zu "
             "bytes of files)",
             load->restore.message, budget, attn_cache_pool_used(load->store->app->pool),
             load->bytes);
    return false;
}

static bool refuse_unread(struct load *load, const char *name, const char *why)
{
    snprintf(load->message, load->size, "state_dir: %s cannot be read: %s", name, why);
    return false;
}

/* ---- What is mended at the end --------------------------------------------------------------- */

static bool add_mend(struct load *load, const char *name, bool aside, size_t good)
{
    if (load->num_mends == load->most_mends) {
        size_t most = 2 * load->most_mends + 8;
        struct mend *more = realloc(load->mends, most * sizeof *more);
        if (more == NULL) {
            snprintf(load->message, load->size, "out of memory");
            return false;
        }
        load->mends = more;
        load->most_mends = most;
    }
    struct mend *mend = &load->mends[load->num_mends++];
    *mend = (struct mend){.aside = aside, .good = good};
    snprintf(mend->name, sizeof mend->name, "%s", name);
    return true;
}

static bool set_aside(struct load *load, const char *name, const char *why)
{
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s will be set aside: %s", name, why);
    srv_metrics_store(load->store->app->metrics, SRV_FILE_DAMAGED, 1);
    return add_mend(load, name, true, 0);
}

/* A tail that was cut off is nobody's: it goes, so that it is told of once. */
static bool cut_tail(struct load *load, const char *name, size_t good, size_t size)
{
    srv_log_event(log_of(load), SRV_LOG_INFO, "torn",
                  "%s ends in a write that was cut off: %zu bytes of it go", name, size - good);
    return add_mend(load, name, false, good);
}

static void cut_file(const struct load *load, const struct mend *mend)
{
    int fd = openat(load->store->directory, mend->name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && ftruncate(fd, (off_t)mend->good) != 0)
        srv_log_event(log_of(load), SRV_LOG_ERROR, "storage", "%s: %s", mend->name,
                      strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* Files that were not finished go too. */
static void mend_files(const struct load *load)
{
    for (size_t i = 0; i < load->num_mends; i++)
        if (load->mends[i].aside)
            srv_file_set_aside(load->store->directory, load->mends[i].name);
        else
            cut_file(load, &load->mends[i]);
    for (size_t i = 0; i < load->count; i++)
        if (load->files[i].kind == SRV_FILE_UNFINISHED)
            unlinkat(load->store->directory, load->files[i].name, 0);
}

/* ---- The base -------------------------------------------------------------------------------- */

static bool read_base(struct load *load, const struct srv_file *file)
{
    if (!srv_file_reader_open(&load->base, load->store->directory, file->name))
        return refuse_unread(load, file->name, strerror(errno));
    if (srv_base_check(&load->num_base, &load->base, file->generation)) {
        load->generation = file->generation;
        return true;
    }
    int error = load->base.error;
    srv_file_reader_close(&load->base);
    if (error != 0)
        return refuse_unread(load, file->name, strerror(error));
    return set_aside(load, file->name, "its checksum is wrong");
}

/* False where a base may be there and could not be read. */
static bool find_base(struct load *load)
{
    bool going = true;
    for (size_t i = load->count; i-- > 0 && load->generation == 0 && going;)
        if (load->files[i].kind == SRV_FILE_BASE)
            going = read_base(load, &load->files[i]);
    return going;
}

/* ---- Session files --------------------------------------------------------------------------- */

/* The session's file is not there. */
static bool miss_session(struct load *load, uint64_t epoch, const char *name)
{
    struct srv_restored_session *entry = srv_restore_entry(&load->restore, epoch);
    if (entry == NULL)
        return refuse(load);
    entry->lost = true;
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s is missing", name);
    srv_metrics_store(load->store->app->metrics, SRV_FILE_DAMAGED, 1);
    return true;
}

static bool read_session(struct load *load, uint64_t epoch, uint64_t generation)
{
    struct srv_file file;
    struct srv_file_reader source;
    srv_file_name(&file, SRV_FILE_SESSION, generation, epoch);
    if (!begin_file(&source, load, file.name))
        return errno == ENOENT ? miss_session(load, epoch, file.name)
                               : refuse_unread(load, file.name, strerror(errno));
    enum srv_restore_status result = srv_restore_file(&load->restore, epoch, generation, &source);
    end_file(load, &source);
    if (result == SRV_RESTORE_UNREADABLE)
        return refuse_unread(load, file.name, load->restore.message);
    if (result == SRV_RESTORE_DAMAGED || result == SRV_RESTORE_NO_MODEL)
        return set_aside(load, file.name, load->restore.message);
    return result != SRV_RESTORE_FULL || refuse(load);
}

static bool read_listed(struct load *load)
{
    bool going = true;
    for (size_t i = 0; i < load->num_base && going; i++) {
        struct srv_base_entry entry;
        if (!srv_base_entry(&entry, &load->base, i)) {
            going = refuse_unread(load, "the base", strerror(load->base.error));
            continue;
        }
        going = read_session(load, entry.epoch, entry.generation);
        const struct srv_restored_session *restored = srv_restore_find(&load->restore, entry.epoch);
        if (restored != NULL && restored->session != NULL)
            srv_session_set_used(restored->session, entry.used_ns);
    }
    srv_file_reader_close(&load->base);
    return going;
}

/* Without a base: up to which generation session files count.  Where a base was damaged its files
 * are whole.  Where there never was one the journals hold everything since the first of them began,
 * if none is missing; files that are younger are a part of a moment at most. */
static uint64_t last_found(const struct load *load)
{
    uint64_t base = 0, first = 0;
    size_t journals = 0;
    for (size_t i = 0; i < load->count; i++) {
        const struct srv_file *file = &load->files[i];
        if (file->kind == SRV_FILE_BASE)
            base = file->generation;
        if (file->kind == SRV_FILE_JOURNAL && journals++ == 0)
            first = file->generation;
    }
    if (base != 0)
        return base;
    bool whole = journals > 0 && load->store->generation - first + 1 == journals;
    return whole ? first : UINT64_MAX;
}

/* Without a base: the newest file of each session. */
static bool read_found(struct load *load)
{
    bool going = true;
    uint64_t last = last_found(load);
    for (size_t i = load->count; i-- > 0 && going;) {
        const struct srv_file *file = &load->files[i];
        if (file->kind == SRV_FILE_SESSION && file->epoch != 0 && file->generation <= last &&
            srv_restore_find(&load->restore, file->epoch) == NULL)
            going = read_session(load, file->epoch, file->generation);
    }
    return going;
}

/* ---- Journals -------------------------------------------------------------------------------- */

static bool read_journal(struct load *load, const struct srv_file *file)
{
    struct srv_file_reader journal;
    struct srv_replay_result replayed;
    if (!begin_file(&journal, load, file->name))
        return refuse_unread(load, file->name, strerror(errno));
    enum srv_restore_status result =
        srv_restore_journal(&replayed, &load->restore, file->generation, &journal);
    end_file(load, &journal);
    if (result == SRV_RESTORE_UNREADABLE)
        return refuse_unread(load, file->name, strerror(journal.error));
    if (result == SRV_RESTORE_FULL)
        return refuse(load);
    if (replayed.torn && replayed.good < journal.size &&
        !cut_tail(load, file->name, replayed.good, journal.size))
        return false;
    if (replayed.gaps > 0) {
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "%s has %zu damaged places; it will be set aside", file->name, replayed.gaps);
        srv_metrics_store(load->store->app->metrics, SRV_FILE_DAMAGED, 1);
        load->trouble = true;
    }
    load->store->older_bytes += journal.size;
    load->store->older_journals++;
    return true;
}

static bool read_journals(struct load *load)
{
    uint64_t expected = 0;
    bool going = true;
    for (size_t i = 0; i < load->count && going; i++) {
        const struct srv_file *file = &load->files[i];
        if (file->kind != SRV_FILE_JOURNAL || file->generation < load->generation)
            continue;
        if ((expected != 0 && file->generation != expected) ||
            (expected == 0 && load->generation != 0 && file->generation > load->generation + 1)) {
            srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "a journal before %s is missing",
                          file->name);
            srv_restore_doubt(&load->restore);
            load->trouble = true;
        }
        expected = file->generation + 1;
        going = read_journal(load, file);
    }
    return going;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* The newest generation that is in use.  Where there is a base, a session file that is younger is
 * of a snapshot that did not end: its number is free, and no journal of it will ever be missed. */
static uint64_t newest_of(const struct srv_file files[], size_t count)
{
    uint64_t newest = 0;
    bool based = false;
    for (size_t i = 0; i < count; i++)
        based = based || files[i].kind == SRV_FILE_BASE;
    for (size_t i = 0; i < count; i++)
        if (files[i].generation > newest && !(based && files[i].kind == SRV_FILE_SESSION))
            newest = files[i].generation;
    return newest;
}

static bool list_files(struct load *load)
{
    struct srv_store *store = load->store;
    if (!srv_files_list(&load->files, &load->count, store->directory)) {
        snprintf(load->message, load->size, "state_dir: it cannot be read: %s", strerror(errno));
        return false;
    }
    store->generation = newest_of(load->files, load->count);
    return true;
}

/* Files go on to hold sessions that expired meanwhile. */
static void owe_ends(const struct load *load)
{
    for (size_t i = 0; i < load->restore.capacity; i++) {
        const struct srv_restored_session *entry = &load->restore.entries[i];
        if (entry->session != NULL && !entry->listed)
            srv_store_owe_end(load->store, entry->epoch);
    }
}

static bool list_sessions(struct load *load)
{
    struct srv_restore_result result;
    if (!srv_restore_publish(&result, &load->restore))
        return refuse(load);
    owe_ends(load);
    struct srv_metrics *metrics = load->store->app->metrics;
    srv_metrics_store(metrics, SRV_SESSIONS_RESTORED, result.listed);
    srv_metrics_store(metrics, SRV_SESSIONS_LOST, result.lost + result.foreign);
    load->trouble = load->trouble || result.lost + result.foreign > 0;
    srv_log_event(
        log_of(load), result.lost + result.foreign > 0 ? SRV_LOG_ERROR : SRV_LOG_INFO, "restored",
        "%zu sessions from %zu bytes; %zu had expired, %zu are lost to damage, %zu are of "
        "models that are not here",
        result.listed, load->bytes, result.expired, result.lost, result.foreign);
    return true;
}

/* Removes the journal of a snapshot that was to be the first and failed: nothing is in it yet.  It
 * stays where another file has its number, which the next one would follow. */
static void drop_journal(const struct srv_store *store)
{
    struct srv_file *files, journal;
    size_t count;
    int error = errno;
    srv_file_name(&journal, SRV_FILE_JOURNAL, store->generation, 0);
    if (store->journal.fd >= 0 && srv_files_list(&files, &count, store->directory)) {
        for (size_t i = 0; i < count; i++)
            if (strcmp(files[i].name, journal.name) == 0)
                files[i].generation = 0;
        if (newest_of(files, count) < store->generation)
            unlinkat(store->directory, journal.name, 0);
        free(files);
    }
    errno = error;
}

/* Goes on from what was loaded: in a new journal, or where the old files do not say what the
 * sessions are now, with a snapshot. */
static bool begin(struct load *load)
{
    struct srv_store *store = load->store;
    bool journals_left = !srv_store_journals(store) && store->older_journals > 0;
    store->base = load->generation;
    store->keep_journals = load->trouble;
    if (load->trouble || journals_left) {
        if (srv_store_snapshot(store)) {
            store->keep_journals = false;
            return true;
        }
        drop_journal(store);
    } else if (srv_store_new_journal(&store->journal, store)) {
        store->generation += srv_store_journals(store);
        return true;
    }
    snprintf(load->message, load->size, "state_dir: it cannot be written: %s", strerror(errno));
    return false;
}

bool srv_store_load(struct srv_store *store, char *message, size_t size)
{
    if (store == NULL)
        return true;
    struct load load = {.store = store, .message = message, .size = size, .said_ns = srv_now_ns()};
    srv_restore_init(&load.restore, store->app->sessions, store->app->config.limits.max_sessions,
                     &store->app->models);
    bool loaded = list_files(&load) && find_base(&load) &&
                  (load.generation != 0 ? read_listed(&load) : read_found(&load)) &&
                  read_journals(&load) && list_sessions(&load);
    srv_restore_fini(&load.restore);
    if (loaded)
        mend_files(&load);
    loaded = loaded && begin(&load);
    free(load.mends);
    free(load.files);
    store->loaded = loaded;
    return loaded;
}

bool srv_store_start(struct srv_store *store, char *message, size_t size)
{
    void *(*const mains[])(void *) = {srv_store_main, srv_store_sync};
    if (store == NULL)
        return true;
    size_t wanted = store->fsync == SRV_FSYNC_EVERYSEC && srv_store_journals(store) ? 2 : 1;
    while (store->started < wanted &&
           pthread_create(&store->threads[store->started], NULL, mains[store->started], store) == 0)
        store->started++;
    if (store->started < wanted)
        snprintf(message, size, "out of memory");
    return store->started == wanted;
}

/* ---- What a snapshot replaces ---------------------------------------------------------------- */

static int by_epoch(const void *a, const void *b)
{
    const struct srv_base_entry *x = a, *y = b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

static bool is_replaced(const struct srv_file *file, const struct srv_base_entry base[],
                        size_t count, uint64_t generation)
{
    const struct srv_base_entry key = {.epoch = file->epoch};
    if (file->kind != SRV_FILE_SESSION)
        return file->kind != SRV_FILE_UNFINISHED && file->generation < generation;
    const struct srv_base_entry *entry = bsearch(&key, base, count, sizeof *base, by_epoch);
    return entry == NULL || entry->generation != file->generation;
}

/* Session files go before journals, so that without a base too no file outlives the record of its
 * session's end. */
void srv_store_remove_older(const struct srv_store *store, const struct srv_checkpoint *cut)
{
    struct srv_file *files;
    size_t count;
    struct srv_base_entry *base = malloc((cut->count + 1) * sizeof *base);
    if (base == NULL || !srv_files_list(&files, &count, store->directory)) {
        free(base);
        return;
    }
    for (size_t i = 0; i < cut->count; i++)
        base[i] = cut->entries[i].base;
    qsort(base, cut->count, sizeof *base, by_epoch);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            if ((files[i].kind == SRV_FILE_SESSION) != (pass == 0) ||
                !is_replaced(&files[i], base, cut->count, cut->generation))
                continue;
            if (files[i].kind == SRV_FILE_JOURNAL && store->keep_journals)
                srv_file_set_aside(store->directory, files[i].name);
            else
                unlinkat(store->directory, files[i].name, 0);
        }
    free(base);
    free(files);
}
