/* store_load.c: a state directory becomes sessions.
 *
 * The newest sound base names the session files that count, and the journals from the base's
 * generation on follow them.  Without a base, the newest file of each session counts, up to the
 * generation that newest_trusted gives.
 *
 * A damaged file is logged and set aside, and what it leaves whole is loaded.  A file that cannot
 * be read now may be sound: it stays, and the start is refused.  No session is published before all
 * files were read, and no file is touched before all sessions are published. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/restore.h"
#include "store/store_internal.h"

#define PROGRESS_NS UINT64_C(2000000000) /* between two lines of progress */

struct load {
    struct srv_store *store;
    struct srv_restore restore;
    struct srv_file *files; /* [count] */
    size_t count;
    uint64_t generation; /* of the base; 0: none */
    struct srv_file_reader base_file;
    struct srv_base_size base_size;
    struct srv_share *shares; /* [base_size.shares] */
    size_t next_share;        /* the first one of the entries that are still to be read */
    size_t bytes;             /* of the files that were read */
    size_t reached;           /* of the file that is being read */
    uint64_t reported_ns;     /* when progress was last logged */
    bool incomplete;          /* something of the files is not in the sessions */
    size_t journal;           /* the file that is being read */
    bool ended;               /* journals after it do not count */
    struct srv_repairs repairs;
    char *message;
    size_t size;
};

static struct srv_log *log_of(const struct load *load) { return load->store->context.log; }

static void count_damaged(const struct load *load)
{
    srv_metrics_store(load->store->context.metrics, SRV_FILE_DAMAGED, 1);
}

/* ---- Reading a file, and its progress -------------------------------------------------------- */

/* `end`: the file is read up to there; parts of a file are read twice. */
static void report_progress(void *context, size_t end)
{
    struct load *load = context;
    uint64_t now = srv_now_ns();
    load->reached = end > load->reached ? end : load->reached;
    if (now - load->reported_ns < PROGRESS_NS)
        return;
    load->reported_ns = now;
    srv_log_event(log_of(load), SRV_LOG_INFO, "restoring", "%zu sessions, %zu bytes so far",
                  load->restore.made, load->bytes + load->reached);
}

static bool begin_file(struct srv_file_reader *out, struct load *load, const char *name)
{
    if (!srv_file_reader_open(out, load->store->directory, name))
        return false;
    out->progress = report_progress;
    out->context = load;
    return true;
}

static void end_file(struct load *load, struct srv_file_reader *file)
{
    srv_file_reader_close(file);
    load->bytes += file->size;
    load->reached = 0;
    report_progress(load, 0);
}

/* ---- Refusals and repairs -------------------------------------------------------------------- */

static bool refuse(struct load *load)
{
    const struct attn_cache_pool *pool = load->store->context.pool;
    snprintf(load->message, load->size,
             "the sessions of state_dir cannot be held: %s (cache_bytes %zu, used %zu after %zu "
             "bytes of files)",
             load->restore.message, attn_cache_pool_budget(pool), attn_cache_pool_used(pool),
             load->bytes);
    return false;
}

static bool refuse_unreadable(struct load *load, const char *name, const char *why)
{
    snprintf(load->message, load->size, "state_dir: %s cannot be read: %s", name, why);
    return false;
}

static bool refuse_memory(struct load *load)
{
    snprintf(load->message, load->size, "out of memory");
    return false;
}

static bool set_aside(struct load *load, const char *name, const char *why)
{
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s will be set aside: %s", name, why);
    count_damaged(load);
    return srv_repairs_set_aside(&load->repairs, name) || refuse_memory(load);
}

/* Has the torn write at the end of a journal removed: no client was answered for its records, and a
 * later start is not to report it again. */
static bool truncate_tail(struct load *load, const char *name, size_t good, size_t size)
{
    srv_log_event(log_of(load), SRV_LOG_INFO, "torn",
                  "%s ends in a write that was cut off: %zu bytes of it go", name, size - good);
    return srv_repairs_truncate(&load->repairs, name, good) || refuse_memory(load);
}

/* Makes the repairs, and removes files that were not finished.  Journals that are incomplete are
 * kept as they are: they are set aside when the next checkpoint replaces them. */
static void repair_files(const struct load *load)
{
    srv_repairs_apply(&load->repairs, load->store, !load->incomplete);
    for (size_t i = 0; i < load->count; i++)
        if (load->files[i].kind == SRV_FILE_UNFINISHED)
            unlinkat(load->store->directory, load->files[i].name, 0);
}

/* ---- The base -------------------------------------------------------------------------------- */

static bool read_base(struct load *load, const struct srv_file *file)
{
    if (!srv_file_reader_open(&load->base_file, load->store->directory, file->name))
        return refuse_unreadable(load, file->name, strerror(errno));
    if (srv_base_check(&load->base_size, &load->base_file, file->generation) &&
        srv_base_shares(&load->shares, &load->base_file, &load->base_size)) {
        load->generation = load->restore.base_generation = file->generation;
        srv_restore_note_time(&load->restore, load->base_size.time_ns);
        return true;
    }
    int error = load->base_file.error;
    srv_file_reader_close(&load->base_file);
    if (error != 0)
        return refuse_unreadable(load, file->name, strerror(error));
    if (load->restore.base_generation == 0) /* its files have what earlier journals had */
        load->restore.base_generation = file->generation;
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

/* The session's file does not exist. */
static bool miss_session(struct load *load, uint64_t epoch, const char *name)
{
    struct srv_restored_session *entry = srv_restore_entry(&load->restore, epoch);
    if (entry == NULL)
        return refuse(load);
    entry->lost = true;
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s is missing", name);
    count_damaged(load);
    return true;
}

static bool read_session(struct load *load, const struct srv_session_file *session)
{
    struct srv_file file;
    struct srv_file_reader reader;
    srv_file_name(&file, SRV_FILE_SESSION, session->generation, session->epoch);
    if (!begin_file(&reader, load, file.name))
        return errno == ENOENT ? miss_session(load, session->epoch, file.name)
                               : refuse_unreadable(load, file.name, strerror(errno));
    enum srv_restore_status result = srv_restore_file(&load->restore, session, &reader);
    end_file(load, &reader);
    if (result == SRV_RESTORE_UNREADABLE)
        return refuse_unreadable(load, file.name, load->restore.message);
    if (result == SRV_RESTORE_DAMAGED || result == SRV_RESTORE_NO_MODEL)
        return set_aside(load, file.name, load->restore.message);
    return result != SRV_RESTORE_FULL || refuse(load);
}

/* Reads the file of a base's entry, whose shares are the next ones. */
static bool read_entry(struct load *load, const struct srv_base_entry *entry)
{
    struct srv_session_file file = {entry->epoch, entry->generation,
                                    load->shares + load->next_share, 0};
    while (load->next_share < load->base_size.shares &&
           load->shares[load->next_share].session == entry->epoch) {
        load->next_share++;
        file.num_shares++;
    }
    if (!read_session(load, &file))
        return false;
    const struct srv_restored_session *restored = srv_restore_find(&load->restore, entry->epoch);
    srv_restore_note_time(&load->restore, entry->used_ns);
    if (restored != NULL && restored->session != NULL)
        restored->session->used_ns = entry->used_ns;
    else if (restored != NULL && !restored->unknown_model)
        srv_shares_replace(load->shares, load->base_size.shares, entry->epoch);
    return true;
}

static bool read_listed(struct load *load)
{
    bool going = true;
    for (size_t i = 0; i < load->base_size.entries && going; i++) {
        struct srv_base_entry entry;
        if (srv_base_entry(&entry, &load->base_file, i))
            going = read_entry(load, &entry);
        else
            going = refuse_unreadable(load, "the base", strerror(load->base_file.error));
    }
    srv_file_reader_close(&load->base_file);
    return going;
}

/* The newest generation whose session files can be trusted: that of the newest base, which
 * is damaged; without one, that of the first journal if none is missing after it, since later files
 * may come from an unfinished checkpoint; else all. */
static uint64_t newest_trusted(const struct load *load)
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

/* Without a base: reads the newest file of each session. */
static bool read_found(struct load *load)
{
    bool going = true;
    uint64_t last = newest_trusted(load);
    for (size_t i = load->count; i-- > 0 && going;) {
        const struct srv_file *file = &load->files[i];
        if (file->kind == SRV_FILE_SESSION && file->epoch != 0 && file->generation <= last &&
            srv_restore_find(&load->restore, file->epoch) == NULL)
            going = read_session(load, &(struct srv_session_file){.epoch = file->epoch,
                                                                  .generation = file->generation});
    }
    return going;
}

/* ---- Journals -------------------------------------------------------------------------------- */

/* As struct srv_journal_reader has it: asks the journals after the one that is being read. */
static uint64_t synced_later(void *context)
{
    struct load *load = context;
    uint64_t end = UINT64_MAX, synced = 0;
    for (size_t i = load->journal + 1; i < load->count; i++) {
        struct srv_file_reader journal;
        struct srv_record first;
        struct srv_record_mark mark;
        if (load->files[i].kind != SRV_FILE_JOURNAL ||
            !begin_file(&journal, load, load->files[i].name))
            continue;
        uint64_t found = srv_journal_synced(&first, &journal, load->files[i].generation);
        synced = found > synced ? found : synced;
        if (srv_restore_read_mark(&mark, &first) &&
            mark.previous.generation == load->files[load->journal].generation)
            end = mark.previous.sequence;
        srv_file_reader_close(&journal);
    }
    return synced > 0 ? end : 0;
}

static void report_journal(struct load *load, const struct srv_file *file,
                           const struct srv_replay_result *replayed, size_t size)
{
    if (replayed->gaps > 0)
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "%s has %zu damaged places; it will be set aside", file->name,
                      replayed->gaps);
    if (replayed->last)
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "%s does not count from byte %zu of %zu on, nor do later journals: it had "
                      "not been flushed, and a part is missing; it will be set aside",
                      file->name, replayed->good, size);
    if (replayed->gaps == 0 && !replayed->last)
        return;
    count_damaged(load);
    load->incomplete = true;
    load->ended = replayed->last;
}

static bool read_journal(struct load *load, const struct srv_file *file)
{
    struct srv_file_reader journal;
    struct srv_replay_result replayed;
    if (!begin_file(&journal, load, file->name))
        return refuse_unreadable(load, file->name, strerror(errno));
    load->journal = (size_t)(file - load->files);
    enum srv_restore_status result =
        srv_restore_journal(&replayed, &load->restore, file->generation, &journal);
    end_file(load, &journal);
    if (result == SRV_RESTORE_UNREADABLE)
        return refuse_unreadable(load, file->name, strerror(journal.error));
    if (result == SRV_RESTORE_FULL)
        return refuse(load);
    report_journal(load, file, &replayed, journal.size);
    load->store->older_bytes += journal.size;
    return !replayed.torn || replayed.last || replayed.good == journal.size ||
           truncate_tail(load, file->name, replayed.good, journal.size);
}

static void miss_journal(struct load *load, const char *name, uint64_t generation)
{
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "a journal before %s is missing", name);
    srv_restore_open_gap(&load->restore, (struct srv_place){generation, 1});
    load->incomplete = true;
}

static bool read_journals(struct load *load)
{
    uint64_t expected = 0;
    bool going = true;
    load->restore.synced_later = synced_later;
    load->restore.context = load;
    for (size_t i = 0; i < load->count && going; i++) {
        const struct srv_file *file = &load->files[i];
        if (file->kind != SRV_FILE_JOURNAL || file->generation < load->generation)
            continue;
        if (!load->ended &&
            ((expected != 0 && file->generation != expected) ||
             (expected == 0 && load->generation != 0 && file->generation > load->generation + 1)))
            miss_journal(load, file->name, expected != 0 ? expected : load->generation);
        expected = file->generation + 1;
        going = load->ended || read_journal(load, file);
        load->store->older_journals++;
    }
    return going;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* The newest generation that is in use.  Where there is a base, session files do not count: one
 * that is younger than base and journals belongs to a checkpoint that did not end.  The next
 * journal gets its generation; if no journal had it, a later start would report one as missing. */
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

/* Sessions that expired while no daemon ran, and the older of two sessions of one id, are still in
 * the files. */
static void defer_deletions(const struct load *load)
{
    for (size_t i = 0; i < load->restore.capacity; i++) {
        const struct srv_restored_session *entry = &load->restore.entries[i];
        if (entry->session != NULL && !entry->published)
            srv_store_defer_deletion(load->store, entry->epoch);
    }
}

/* Begins the notes of the first mark, which lists all sessions. */
static void note_sessions(const struct load *load)
{
    struct srv_store *store = load->store;
    for (size_t i = 0; i < load->restore.capacity; i++) {
        const struct srv_restored_session *entry = &load->restore.entries[i];
        if (entry->published)
            srv_marks_note(&store->marks,
                           &(struct srv_mark_note){entry->epoch, entry->session->next_record},
                           (struct srv_place){store->generation + 1, 1});
    }
    store->marks.whole = store->marks.older = store->marks.count;
    store->marks.next_since = (struct srv_place){store->generation + 1, 1};
    store->previous = load->restore.end;
}

static bool publish_sessions(struct load *load)
{
    struct srv_restore_result result;
    if (!srv_restore_publish(&result, &load->restore))
        return refuse(load);
    defer_deletions(load);
    note_sessions(load);
    struct srv_metrics *metrics = load->store->context.metrics;
    size_t missing = result.lost + result.unknown_model;
    srv_metrics_store(metrics, SRV_SESSIONS_RESTORED, result.published);
    srv_metrics_store(metrics, SRV_SESSIONS_LOST, missing);
    load->incomplete = load->incomplete || missing > 0;
    srv_log_event(log_of(load), missing > 0 ? SRV_LOG_ERROR : SRV_LOG_INFO, "restored",
                  "%zu sessions from %zu bytes; %zu had expired, %zu are lost to damage, %zu are "
                  "of models that are not here",
                  result.published, load->bytes, result.expired, result.lost, result.unknown_model);
    return true;
}

/* Removes the empty journal of a first checkpoint that failed, so that the next start finds the
 * directory unchanged.  The journal stays where another file has its generation: the next start
 * would begin the journal after that one, and a later start would miss the one removed. */
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

/* Opens a new journal; or makes a checkpoint first, where the files do not say what the sessions
 * are now.  Where only checkpoints are kept, there is always a base: without the one of the first
 * start, the files of a checkpoint that did not end could be taken for those of a lost base. */
static bool start_recording(struct load *load)
{
    struct srv_store *store = load->store;
    bool needs_base =
        !srv_store_journals(store) && (store->older_journals > 0 || load->generation == 0);
    store->base_generation = load->generation;
    store->keep_journals = load->incomplete;
    bool named = fsync(store->directory) == 0; /* names of journals reach the disk in order */
    if (load->incomplete || needs_base) {
        if (named && srv_store_make_checkpoint(store)) {
            store->keep_journals = false;
            return true;
        }
        drop_journal(store);
    } else if (named && srv_store_sync_files(store, load->files, load->count) &&
               srv_store_new_journal(&store->journal, store)) {
        store->generation += srv_store_journals(store);
        store->journal.older_synced = true;
        srv_store_note_journal(store);
        return true;
    }
    snprintf(load->message, load->size, "state_dir: it cannot be written: %s", strerror(errno));
    return false;
}

bool srv_store_load(struct srv_store *store, char *message, size_t size)
{
    if (store == NULL)
        return true;
    struct load load = {
        .store = store, .message = message, .size = size, .reported_ns = srv_now_ns()};
    srv_restore_init(&load.restore, store->context.sessions, store->context.max_sessions,
                     store->context.models);
    load.restore.store = store->context.index;
    bool loaded = list_files(&load) && find_base(&load) &&
                  (load.generation != 0 ? read_listed(&load) : read_found(&load)) &&
                  read_journals(&load) && publish_sessions(&load);
    srv_restore_fini(&load.restore);
    if (loaded)
        repair_files(&load);
    loaded = loaded && start_recording(&load);
    srv_repairs_fini(&load.repairs);
    free(load.shares);
    free(load.files);
    return store->loaded = loaded;
}
