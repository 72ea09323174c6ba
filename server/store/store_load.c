/* store_load.c: a state directory becomes sessions.
 *
 * The newest manifest that counts says what sessions are (load_manifest.c), and the journals from
 * its generation on follow it.  Blocks of the manifest are absent, rows of journals are in memory;
 * blocks are read while requests are served (store_reader.c), or before a snapshot that the start
 * has to make: where something is damaged, and where snapshots alone are kept.
 *
 * A damaged file is logged and set aside, and what it leaves whole is loaded.  A file that cannot
 * be read now may be sound: it stays, and the start is refused.  No session is published before all
 * files were read, and no file is touched before all sessions are published. */
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

bool srv_load_refuse(struct srv_load *load)
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

bool srv_load_refuse_unreadable(struct srv_load *load, const char *name, const char *why)
{
    snprintf(load->message, load->size, "state_dir: %s cannot be read: %s", name, why);
    return false;
}

bool srv_load_refuse_memory(struct srv_load *load)
{
    snprintf(load->message, load->size, "out of memory");
    return false;
}

bool srv_load_set_aside(struct srv_load *load, const char *name, const char *why)
{
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

/* ---- All ------------------------------------------------------------------------------------- */

/* The newest generation of a journal or a manifest; that of files of blocks is not looked at, since
 * a later start would miss the journals between. */
static uint64_t newest_of(const struct srv_file files[], size_t count, bool with_blocks)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < count; i++)
        if (files[i].generation > newest && (with_blocks || files[i].kind != SRV_FILE_BLOCKS))
            newest = files[i].generation;
    return newest;
}

/* Opens the files of blocks.  What manifests name that were set aside stays as it is. */
static bool open_slots(struct srv_load *load)
{
    struct srv_store *store = load->store;
    struct srv_file *aside;
    size_t count;
    if (!srv_files_list_set_aside(&aside, &count, store->directory)) {
        snprintf(load->message, load->size, "state_dir: it cannot be read: %s", strerror(errno));
        return false;
    }
    const struct srv_file *manifest = srv_files_newest_manifest(aside, count, UINT64_MAX);
    store->slots = srv_slots_new(store->directory, newest_of(load->files, load->count, true) + 1,
                                 store->context.index);
    if (store->slots != NULL && manifest != NULL)
        srv_slots_keep(store->slots, manifest->generation);
    free(aside);
    load->restore.slots = store->slots;
    return store->slots != NULL || srv_load_refuse_memory(load);
}

static bool list_files(struct srv_load *load)
{
    struct srv_store *store = load->store;
    if (!srv_files_list(&load->files, &load->count, store->directory)) {
        snprintf(load->message, load->size, "state_dir: it cannot be read: %s", strerror(errno));
        return false;
    }
    store->generation = newest_of(load->files, load->count, false);
    return open_slots(load);
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
        return srv_load_refuse(load);
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
    srv_file_name(&journal, SRV_FILE_JOURNAL, store->generation);
    if (store->journal.fd >= 0 && srv_files_list(&files, &count, store->directory)) {
        for (size_t i = 0; i < count; i++)
            if (strcmp(files[i].name, journal.name) == 0)
                files[i].generation = 0;
        if (newest_of(files, count, false) < store->generation)
            unlinkat(store->directory, journal.name, 0);
        free(files);
    }
    errno = error;
}

/* Removes the files of blocks that a start has made which failed, unless a manifest names them. */
static void drop_blocks(const struct srv_load *load)
{
    const struct srv_store *store = load->store;
    struct srv_file *files;
    size_t count;
    if (store->manifest.named != 0 || !srv_files_list(&files, &count, store->directory))
        return;
    const uint64_t before = newest_of(load->files, load->count, true);
    for (size_t i = 0; i < count; i++)
        if (files[i].kind == SRV_FILE_BLOCKS && files[i].generation > before)
            unlinkat(store->directory, files[i].name, 0);
    free(files);
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

/* Reads all absent blocks: a snapshot follows, or no thread reads them later. */
static bool read_blocks(struct srv_load *load)
{
    if (srv_store_read_now(load->store))
        return true;
    snprintf(load->message, load->size, "state_dir: blocks cannot be read: %s",
             strerrordesc_np(errno));
    return false;
}

/* Names of journals reach the disk in order. */
static bool sync_names(struct srv_store *store)
{
    const bool synced = srv_sync_directory(store->directory) || srv_store_fail_file(store, "", 0);
    if (synced && errno != 0)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "%s: this file system cannot flush directories (%s): files made just before "
                      "a power failure may be missing after it",
                      store->path, strerror(errno));
    return synced;
}

/* Opens a new journal; or makes a snapshot first, where the files do not say what the sessions are
 * now, or journals are there that nothing would follow. */
static bool start_recording(struct srv_load *load)
{
    struct srv_store *store = load->store;
    char why[SRV_UNWRITTEN_TEXT];
    const bool journals = srv_store_journals(store);
    bool needs_snapshot = load->incomplete || (!journals && store->older_journals > 0);
    store->base_generation = load->generation;
    store->keep_journals = load->incomplete;
    if (load->incomplete)
        srv_slots_keep(store->slots, store->generation);
    if ((needs_snapshot || store->context.reads_at_once) && !read_blocks(load))
        return false;
    needs_snapshot = needs_snapshot || store->damage_found; /* of a block */
    const bool named = sync_names(store);
    if (needs_snapshot) {
        if (named && srv_store_make_snapshot(store))
            return true;
        srv_store_drop_journal(store);
        drop_blocks(load);
    } else if (named && srv_store_sync_files(store, load->files, load->count) &&
               (srv_store_new_journal(&store->journal, store) || start_refusing(store))) {
        store->generation += store->journal.fd >= 0;
        store->journal.older_synced = true;
        store->owed_generation = load->differs ? store->generation + 1 : 0;
        srv_store_note_journal(store);
        return true;
    }
    srv_store_describe_unwritten(why, store);
    snprintf(load->message, load->size, "state_dir: %s", why);
    return false;
}

/* Gives up the slot of a block that is no more; under the lock of the pool of blocks. */
static void drop_slot(void *context, const struct attn_stored *place)
{
    const struct srv_store *own = context;
    const size_t index = place->file / SRV_SLOT_FILES;
    const struct srv_store *store = index == 0 ? own : own->adopted[index - 1];
    srv_slots_drop(store->slots, (struct srv_slot){place->file, place->slot});
}

static void begin(struct srv_load *load)
{
    const struct srv_store_context *context = &load->store->context;
    srv_restore_init(&load->restore, context->sessions, context->max_sessions, context->models);
    load->restore.store = context->index;
}

static void end(struct srv_load *load)
{
    srv_restore_fini(&load->restore);
    srv_repairs_fini(&load->repairs);
    free(load->files);
}

bool srv_store_load(struct srv_store *store, char *message, size_t size)
{
    if (store == NULL)
        return true;
    struct srv_load load = {
        .store = store, .message = message, .size = size, .reported_ns = srv_now_ns()};
    begin(&load);
    if (store->context.index == 0)
        attn_cache_pool_set_dropped(store->context.pool, drop_slot, store);
    bool loaded = list_files(&load) && srv_load_manifest(&load) && srv_load_journals(&load) &&
                  publish_sessions(&load) && srv_load_hand_over(&load);
    if (loaded)
        repair_files(&load);
    loaded = loaded && start_recording(&load);
    end(&load);
    return store->loaded = loaded;
}

/* ---- Counting what a start would restore ----------------------------------------------------- */

static bool count_sessions(struct srv_store_count *out, struct srv_load *load)
{
    struct srv_restore *restore = &load->restore;
    if (!list_files(load) || !srv_load_manifest(load) || !srv_load_journals(load))
        return false;
    struct srv_restore_result result;
    srv_restore_count(&result, restore);
    out->served = result.published;
    out->expired = result.expired;
    out->lost = result.lost;
    for (size_t i = 0; i < restore->capacity && out->report != NULL; i++)
        if (restore->entries[i].lost)
            out->report(out->context, restore->entries[i].epoch,
                        restore->entries[i].without_manifest);
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
    begin(&load);
    load.restore.counts = true;
    const bool counted = count_sessions(out, &load);
    end(&load);
    srv_slots_free(store.slots);
    return counted;
}
