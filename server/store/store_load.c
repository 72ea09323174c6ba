/* store_load.c: a state directory becomes sessions.
 *
 * The newest sound base names the session files that count, and the journals from the base's
 * generation on follow them.  Without a base, the newest file of each session counts, up to the
 * generation that newest_trusted gives.
 *
 * A damaged file is logged and set aside, and what it leaves whole is loaded.  A file that cannot
 * be read now may be sound: it stays, and the start is refused.  No session is published before all
 * files were read, and no file is touched before all sessions are published.
 *
 * Tokens are read later (store_reader.c) where the base says what its sessions are and the
 * journals are sound as far as they are looked at: then nothing is missing, and what is damaged
 * among tokens costs the sessions that have them, whenever that is found.  In all other cases the
 * files are read at once, from the beginning. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store_load.h"

#define PROGRESS_NS UINT64_C(2000000000) /* between two lines of progress */

static struct srv_log *log_of(const struct srv_load *load) { return load->store->context.log; }

void srv_load_count_damaged(const struct srv_load *load)
{
    if (load->restore.counts)
        return;
    srv_metrics_store(load->store->context.metrics, SRV_FILE_DAMAGED, 1);
}

/* ---- Reading a file, and its progress -------------------------------------------------------- */

/* `end`: the file is read up to there; parts of a file are read twice. */
static void report_progress(void *context, size_t end)
{
    struct srv_load *load = context;
    uint64_t now = srv_now_ns();
    load->reached = end > load->reached ? end : load->reached;
    if (now - load->reported_ns < PROGRESS_NS)
        return;
    load->reported_ns = now;
    srv_log_event(log_of(load), SRV_LOG_INFO, "restoring", "%zu sessions, %zu bytes so far",
                  load->restore.made, load->bytes + load->reached);
}

bool srv_load_begin_file(struct srv_file_reader *out, struct srv_load *load, const char *name)
{
    if (!srv_file_reader_open(out, load->store->directory, name))
        return false;
    out->progress = report_progress;
    out->context = load;
    return true;
}

void srv_load_end_file(struct srv_load *load, struct srv_file_reader *file)
{
    srv_file_reader_close(file);
    load->bytes += file->size;
    load->reached = 0;
    report_progress(load, 0);
}

/* ---- Refusals and repairs -------------------------------------------------------------------- */

static bool refuse(struct srv_load *load)
{
    const struct attn_cache_pool *pool = load->store->context.pool;
    if (load->restore.counts) {
        snprintf(load->message, load->size, "the sessions cannot be counted: out of memory");
        return false;
    }
    snprintf(load->message, load->size,
             "the sessions of state_dir cannot be held: %s (cache_bytes %zu, used %zu after %zu "
             "bytes of files)",
             load->restore.message, attn_cache_pool_budget(pool), attn_cache_pool_used(pool),
             load->bytes);
    return false;
}

/* Files that are read at once may say something else. */
bool srv_load_refuse(struct srv_load *load)
{
    return load->restore.extents != NULL ? srv_load_give_up(load) : refuse(load);
}

bool srv_load_refuse_unreadable(struct srv_load *load, const char *name, const char *why)
{
    snprintf(load->message, load->size, "state_dir: %s cannot be read: %s", name, why);
    return false;
}

bool srv_load_give_up(struct srv_load *load)
{
    load->gave_up = true;
    return false;
}

bool srv_load_refuse_memory(struct srv_load *load)
{
    snprintf(load->message, load->size, "out of memory");
    return false;
}

bool srv_load_set_aside(struct srv_load *load, const char *name, const char *why)
{
    if (load->restore.extents != NULL)
        return srv_load_give_up(load);
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s will be set aside: %s", name, why);
    srv_load_count_damaged(load);
    return srv_repairs_set_aside(&load->repairs, name) || srv_load_refuse_memory(load);
}

/* Makes the repairs, and removes files that were not finished.  Journals that are incomplete are
 * kept as they are: they are set aside when the next snapshot replaces them. */
static void repair_files(const struct srv_load *load)
{
    srv_repairs_apply(&load->repairs, load->store, !load->incomplete);
    for (size_t i = 0; i < load->count; i++)
        if (load->files[i].kind == SRV_FILE_UNFINISHED)
            unlinkat(load->store->directory, load->files[i].name, 0);
}

/* ---- The base -------------------------------------------------------------------------------- */

static bool read_base(struct srv_load *load, const struct srv_file *file)
{
    if (!srv_file_reader_open(&load->base_file, load->store->directory, file->name))
        return srv_load_refuse_unreadable(load, file->name, strerror(errno));
    if (srv_base_check(&load->base_size, &load->base_file, file->generation) &&
        srv_base_lists(&load->base, &load->base_file, &load->base_size)) {
        load->generation = load->restore.base_generation = file->generation;
        srv_restore_note_time(&load->restore, load->base_size.time_ns);
        return true;
    }
    int error = load->base_file.error;
    srv_file_reader_close(&load->base_file);
    if (error != 0)
        return srv_load_refuse_unreadable(load, file->name, strerror(error));
    if (load->restore.base_generation == 0) /* its files have what earlier journals had */
        load->restore.base_generation = file->generation;
    return srv_load_set_aside(load, file->name, "its checksum is wrong");
}

/* False where a base may be there and could not be read. */
static bool find_base(struct srv_load *load)
{
    bool going = true;
    for (size_t i = load->count; i-- > 0 && load->generation == 0 && going;)
        if (load->files[i].kind == SRV_FILE_BASE)
            going = read_base(load, &load->files[i]);
    return going;
}

/* ---- All ------------------------------------------------------------------------------------- */

/* The newest generation that is in use.  Where there is a base, session files do not count: one
 * that is younger than base and journals belongs to a snapshot that did not end.  The next
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

static bool list_files(struct srv_load *load)
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
static void defer_deletions(const struct srv_load *load)
{
    for (size_t i = 0; i < load->restore.capacity; i++) {
        const struct srv_restored_session *entry = &load->restore.entries[i];
        if (entry->session != NULL && !entry->published)
            srv_store_defer_deletion(load->store, entry->epoch);
    }
}

/* Begins the notes of the first mark, which lists all sessions. */
static void note_sessions(const struct srv_load *load)
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

static bool publish_sessions(struct srv_load *load)
{
    struct srv_restore_result result;
    if (!srv_restore_publish(&result, &load->restore))
        return refuse(load);
    defer_deletions(load);
    note_sessions(load);
    struct srv_metrics *metrics = load->store->context.metrics;
    size_t missing = result.lost + result.unknown_model;
    srv_metrics_store(metrics, SRV_SESSIONS_LOST, missing);
    load->incomplete = load->incomplete || missing > 0;
    srv_log_event(log_of(load), missing > 0 ? SRV_LOG_ERROR : SRV_LOG_INFO, "restored",
                  "%zu sessions from %zu bytes; %zu had expired, %zu are lost to damage, %zu are "
                  "of models that are not here",
                  result.published, load->bytes, result.expired, result.lost, result.unknown_model);
    load->published = result.published;
    return true;
}

void srv_store_drop_journal(const struct srv_store *store)
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

/* On a full disk: sessions are served, and what changes them is refused until there is room for a
 * journal, which the store's thread sees to. */
static bool start_refusing(struct srv_store *store)
{
    char why[SRV_UNWRITTEN_TEXT];
    const int error = store->unwritten.error;
    if ((error != ENOSPC && error != EDQUOT) || !srv_journal_open_refusing(&store->journal, error))
        return false;
    srv_store_describe_unwritten(why, store);
    srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                  "%s: changes are refused until it can be", why);
    return true;
}

/* Opens a new journal; or makes a snapshot first, where the files do not say what the sessions
 * are now.  Where only snapshots are kept, there is always a base: without the one of the first
 * start, the files of a snapshot that did not end could be taken for those of a lost base. */
static bool start_recording(struct srv_load *load)
{
    struct srv_store *store = load->store;
    char why[SRV_UNWRITTEN_TEXT];
    bool needs_base =
        !srv_store_journals(store) && (store->older_journals > 0 || load->generation == 0);
    store->base_generation = load->generation;
    store->keep_journals = load->incomplete;
    /* Names of journals reach the disk in order. */
    bool named = srv_sync_directory(store->directory) || srv_store_fail_file(store, "", 0);
    if (named && errno != 0)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "%s: this file system cannot flush directories (%s): files made just before "
                      "a power failure may be missing after it",
                      store->path, strerror(errno));
    if (load->incomplete || needs_base) {
        if (named && srv_store_make_snapshot(store)) {
            store->keep_journals = false;
            return true;
        }
        srv_store_drop_journal(store);
    } else if (named && srv_store_sync_files(store, load->files, load->count) &&
               (srv_store_new_journal(&store->journal, store) || start_refusing(store))) {
        store->generation += store->journal.fd >= 0;
        store->journal.older_synced = true;
        srv_store_note_journal(store);
        return true;
    }
    srv_store_describe_unwritten(why, store);
    snprintf(load->message, load->size, "state_dir: %s", why);
    return false;
}

/* Whether all that the files say is in the sessions. */
static bool is_whole(const struct srv_restore *restore)
{
    bool whole = restore->gap.generation == 0;
    for (size_t i = 0; i < restore->capacity && whole; i++) {
        const struct srv_restored_session *entry = &restore->entries[i];
        whole = !entry->lost && !(entry->session != NULL && entry->unproven);
    }
    return whole;
}

/* Where snapshots alone are kept, a start may have to write one, for which it needs all tokens;
 * and session files that no base names are read. */
static bool may_read_later(const struct srv_load *load)
{
    bool may = true;
    for (size_t i = 0; i < load->count; i++) {
        const enum srv_file_kind kind = load->files[i].kind;
        may = may && !(kind == SRV_FILE_SESSION && load->generation == 0) &&
              !(kind == SRV_FILE_JOURNAL && !srv_store_journals(load->store));
    }
    return may && (load->generation != 0 || srv_store_journals(load->store));
}

static bool read_files(struct srv_load *load)
{
    if (!find_base(load))
        return false;
    if (load->restore.extents != NULL && !may_read_later(load)) {
        if (load->generation != 0)
            srv_file_reader_close(&load->base_file);
        return srv_load_give_up(load);
    }
    if (!srv_load_sessions(load) || !srv_load_journals(load))
        return false;
    return load->restore.extents == NULL || is_whole(&load->restore) || srv_load_give_up(load);
}

static void begin(struct srv_load *load, struct srv_extents *extents)
{
    const struct srv_store_context *context = &load->store->context;
    srv_restore_init(&load->restore, context->sessions, context->max_sessions, context->models);
    load->restore.store = context->index;
    load->restore.extents = extents;
}

/* Begins again: the files are to be read at once. */
static void begin_again(struct srv_load *load)
{
    srv_restore_fini(&load->restore);
    srv_extents_fini(&load->extents);
    srv_repairs_fini(&load->repairs);
    srv_base_lists_fini(&load->base);
    load->repairs = (struct srv_repairs){0};
    load->base_size = (struct srv_base_size){0};
    load->generation = 0;
    load->next_share = load->bytes = load->reached = 0;
    load->gave_up = load->incomplete = load->ended = false;
    load->store->older_bytes = load->store->older_journals = 0;
    begin(load, NULL);
}

bool srv_store_load(struct srv_store *store, char *message, size_t size)
{
    if (store == NULL)
        return true;
    struct srv_load load = {
        .store = store, .message = message, .size = size, .reported_ns = srv_now_ns()};
    begin(&load, store->context.reads_at_once ? NULL : &load.extents);
    bool loaded = list_files(&load) && read_files(&load);
    if (load.gave_up) {
        begin_again(&load);
        loaded = read_files(&load);
    }
    loaded = loaded && publish_sessions(&load) && srv_load_hand_over(&load);
    srv_restore_fini(&load.restore);
    if (loaded)
        repair_files(&load);
    loaded = loaded && start_recording(&load);
    srv_repairs_fini(&load.repairs);
    srv_extents_fini(&load.extents);
    srv_base_lists_fini(&load.base);
    free(load.files);
    return store->loaded = loaded;
}

/* ---- Counting what a start would restore ----------------------------------------------------- */

static bool count_sessions(struct srv_store_count *out, struct srv_load *load)
{
    struct srv_restore *restore = &load->restore;
    if (!list_files(load) || !find_base(load) || !srv_load_sessions(load))
        return false;
    for (size_t i = 0; i < restore->capacity; i++)
        restore->entries[i].without_file = restore->entries[i].lost;
    if (!srv_load_journals(load))
        return false;
    struct srv_restore_result result;
    srv_restore_count(&result, restore);
    out->served = result.published;
    out->expired = result.expired;
    out->lost = result.lost;
    for (size_t i = 0; i < restore->capacity && out->report != NULL; i++)
        if (restore->entries[i].lost)
            out->report(out->context, restore->entries[i].epoch, restore->entries[i].without_file);
    return true;
}

bool srv_store_count(struct srv_store_count *out, int directory, char *message, size_t size)
{
    struct srv_log log;
    struct srv_store store = {.directory = directory, .journal.fd = -1};
    struct srv_load load = {
        .store = &store, .message = message, .size = size, .reported_ns = srv_now_ns()};
    (void)srv_log_open(&log, SRV_LOG_OFF, -1);
    store.context = (struct srv_store_context){
        .durability = SRV_DURABLE_JOURNAL, .max_sessions = SIZE_MAX / 2, .log = &log};
    begin(&load, NULL);
    load.restore.counts = true;
    bool counted = count_sessions(out, &load);
    srv_restore_fini(&load.restore);
    srv_repairs_fini(&load.repairs);
    srv_base_lists_fini(&load.base);
    free(load.files);
    return counted;
}
