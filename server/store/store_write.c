/* store_write.c: a snapshot becomes files.
 *
 * The store's thread finds which sessions share blocks, writes session files one at a time, puts
 * the base that names them all in place, and removes the files that the base replaces.  Until the
 * base is there, the older base and the journals of both generations say the same as it will: so
 * writing may end anywhere, and a snapshot that fails removes the files that it has written. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session/models.h"
#include "store/session_notes.h"
#include "store/store_internal.h"

#define MANY_FILES 32 /* beyond it, one syncfs replaces an fsync of each file */

/* ---- Shares ---------------------------------------------------------------------------------- */

/* Finds which blocks the sessions share, and completes their descriptions.  Then frees the
 * caches of sessions that keep their older files. */
static void find_shares(struct srv_snapshot *snapshot, const struct srv_store *store)
{
    for (size_t i = 0; i < snapshot->count && !snapshot->failed; i++) {
        struct srv_snapshot_entry *entry = &snapshot->entries[i];
        entry->description->create = srv_store_describe_session(store, entry->session);
        if (entry->shares_blocks &&
            !srv_sharing_add(&snapshot->sharing, entry->listed.epoch, entry->frozen,
                             entry->session->model->info.num_layers)) {
            snapshot->failed = true;
            srv_fail(&snapshot->error, SRV_E_OUT_OF_MEMORY, NULL,
                     "no memory for what sessions share");
        }
        if (entry->keeps_file)
            srv_snapshot_release(entry);
    }
    srv_sharing_forget_blocks(&snapshot->sharing);
}

/* ---- What could not be written --------------------------------------------------------------- */

bool srv_store_fail_file(struct srv_store *store, const char *name, size_t bytes)
{
    store->unwritten = (struct srv_unwritten){.bytes = bytes, .error = errno};
    snprintf(store->unwritten.name, sizeof store->unwritten.name, "%s", name);
    return false;
}

void srv_store_describe_unwritten(char out[SRV_UNWRITTEN_TEXT], const struct srv_store *store)
{
    const struct srv_unwritten *file = &store->unwritten;
    char bytes[48] = "";
    if (file->bytes > 0)
        snprintf(bytes, sizeof bytes, " of %zu bytes", file->bytes);
    snprintf(out, SRV_UNWRITTEN_TEXT, "%.400s%s%s%s cannot be written: %s", store->path,
             file->name[0] != '\0' ? "/" : "", file->name, bytes, strerrordesc_np(file->error));
}

/* ---- Session files --------------------------------------------------------------------------- */

/* The last steps of a description; NULL where memory is short. */
static struct srv_last_step *last_steps_of(const struct srv_base_session *description)
{
    struct srv_last_step *steps = calloc((size_t)description->num_layers, sizeof *steps);
    for (size_t i = 0; steps != NULL && i < description->num_layers; i++) {
        const struct srv_base_layer *layer = &description->layers[i];
        steps[i] = (struct srv_last_step){.position = layer->length - layer->rows,
                                          .rows = layer->rows,
                                          .digest = {layer->digest[0], layer->digest[1]}};
    }
    return steps;
}

static bool write_file(const struct srv_snapshot_entry *entry, struct srv_store *store, bool sync)
{
    struct srv_file file;
    struct srv_last_step *steps = last_steps_of(entry->description);
    const struct srv_session_moment then = {entry->frozen, steps, entry->listed.used_ns,
                                            entry->description->next_record,
                                            entry->description->revision};
    struct attn_export *export =
        steps != NULL ? srv_notes_open_export(entry->session, &then, true) : NULL;
    free(steps);
    srv_file_name(&file, SRV_FILE_SESSION, entry->listed.generation, entry->listed.epoch);
    if (export == NULL)
        return srv_store_fail_file(store, file.name, 0);
    bool written = srv_file_export(store->directory, file.name, export, sync) ||
                   srv_store_fail_file(store, file.name, attn_export_bytes(export));
    attn_export_close(export);
    return written;
}

static bool write_files(const struct srv_snapshot *snapshot, struct srv_store *store)
{
    size_t files = 0;
    for (size_t i = 0; i < snapshot->count; i++)
        files += snapshot->entries[i].frozen != NULL;
    for (size_t i = 0; i < snapshot->count; i++) {
        struct srv_snapshot_entry *entry = &snapshot->entries[i];
        if (entry->frozen == NULL)
            continue;
        if (!write_file(entry, store, files <= MANY_FILES))
            return false;
        entry->written = true;
        srv_snapshot_release(entry);
    }
    return ((files <= MANY_FILES || syncfs(store->directory) == 0) &&
            srv_sync_directory(store->directory)) ||
           srv_store_fail_file(store, "", 0);
}

/* ---- The base -------------------------------------------------------------------------------- */

/* Writes the base, and frees the descriptions of sessions: removing files takes memory too. */
static bool write_base(const struct srv_snapshot *snapshot, struct srv_store *store)
{
    struct srv_file file;
    struct srv_base_entry *entries = malloc((snapshot->count + 1) * sizeof *entries);
    struct srv_base_session **descriptions =
        malloc((snapshot->count + 1) * sizeof(struct srv_base_session *));
    const struct srv_base base = {
        .generation = snapshot->generation,
        .time_ns = srv_sessions_clock(store->context.sessions, store->context.index),
        .entries = entries,
        .sessions = descriptions,
        .shares = snapshot->sharing.shares,
        .num_entries = snapshot->count,
        .num_shares = snapshot->sharing.count};
    const bool made = entries != NULL && descriptions != NULL;
    for (size_t i = 0; made && i < snapshot->count; i++) {
        entries[i] = snapshot->entries[i].listed;
        descriptions[i] = snapshot->entries[i].description;
    }
    srv_file_name(&file, SRV_FILE_BASE, base.generation, 0);
    bool written = (made && srv_base_write(store->directory, &base)) ||
                   srv_store_fail_file(store, file.name, made ? srv_base_bytes(&base) : 0);
    for (size_t i = 0; i < snapshot->count; i++) {
        free(snapshot->entries[i].description);
        snapshot->entries[i].description = NULL;
    }
    free(descriptions);
    free(entries);
    return written;
}

/* ---- Afterwards ------------------------------------------------------------------------------ */

/* Removes the files of a snapshot that failed, since no base names them.  Where its base may
 * stand on the disk nevertheless, the files stay, and the next snapshot has a new generation. */
static void give_up(const struct srv_snapshot *snapshot, struct srv_store *store)
{
    struct srv_file file;
    srv_file_name(&file, SRV_FILE_BASE, snapshot->generation, 0);
    if (faccessat(store->directory, file.name, F_OK, 0) == 0 || errno != ENOENT) {
        pthread_mutex_lock(&store->lock);
        store->owed_generation = store->generation + 1;
        pthread_mutex_unlock(&store->lock);
        return;
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct srv_base_entry *base = &snapshot->entries[i].listed;
        srv_file_name(&file, SRV_FILE_SESSION, base->generation, base->epoch);
        if (snapshot->entries[i].written)
            unlinkat(store->directory, file.name, 0);
    }
}

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

/* Whether the file may say what a session was that the snapshot does not have: a journal, or a
 * file that the records of a journal follow, such as that of a lost fork's parent. */
static bool is_salvageable(const struct srv_file *file)
{
    return file->kind == SRV_FILE_JOURNAL || file->kind == SRV_FILE_SESSION;
}

/* Removes the files that a whole snapshot replaces, or after damage sets them aside.  Session
 * files go before journals, so that also without a base no file outlives the record of its
 * session's deletion. */
static void remove_replaced(const struct srv_store *store, const struct srv_snapshot *snapshot)
{
    struct srv_file *files;
    size_t count;
    struct srv_base_entry *base = malloc((snapshot->count + 1) * sizeof *base);
    if (base == NULL || !srv_files_list(&files, &count, store->directory)) {
        free(base);
        return;
    }
    for (size_t i = 0; i < snapshot->count; i++)
        base[i] = snapshot->entries[i].listed;
    qsort(base, snapshot->count, sizeof *base, by_epoch);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            if ((files[i].kind == SRV_FILE_SESSION) != (pass == 0) ||
                !is_replaced(&files[i], base, snapshot->count, snapshot->generation))
                continue;
            if (store->keep_journals && is_salvageable(&files[i]))
                srv_file_set_aside(store->directory, files[i].name);
            else
                unlinkat(store->directory, files[i].name, 0);
        }
    free(base);
    free(files);
}

/* ---- From beginning to end ------------------------------------------------------------------- */

static bool write_snapshot(const struct srv_snapshot *snapshot, struct srv_store *store)
{
    char why[SRV_UNWRITTEN_TEXT];
    if (!write_files(snapshot, store) || !write_base(snapshot, store)) {
        srv_store_describe_unwritten(why, store);
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "no snapshot of %zu sessions was made: %s", snapshot->count, why);
        give_up(snapshot, store);
        return false;
    }
    remove_replaced(store, snapshot);
    srv_log_event(store->context.log, SRV_LOG_INFO, "snapshot", "generation %llu: %zu sessions",
                  (unsigned long long)snapshot->generation, snapshot->count);
    return true;
}

/* Closes the journal that was left.  Where it cannot be brought to the disk, the snapshot stands
 * in for it. */
static void close_old_journal(struct srv_store *store)
{
    pthread_mutex_lock(&store->flushing);
    (void)srv_store_sync_old(store);
    pthread_mutex_lock(&store->records);
    srv_journal_close(&store->old);
    pthread_mutex_unlock(&store->records);
    pthread_mutex_unlock(&store->flushing);
}

bool srv_snapshot_finish(struct srv_store *store, struct srv_snapshot *snapshot)
{
    bool written = false;
    errno = ENOMEM; /* of a snapshot that cannot be frozen */
    (void)srv_store_fail_file(store, "", 0);
    if (snapshot != NULL)
        find_shares(snapshot, store);
    close_old_journal(store);
    if (snapshot != NULL && snapshot->failed)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "no snapshot was made: %s",
                      snapshot->error.message);
    else if (snapshot != NULL)
        written = write_snapshot(snapshot, store);
    pthread_mutex_lock(&store->records);
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->last_snapshot_failed, !written);
    if (written) { /* the base stands in for the journals before */
        store->removed = false;
        store->keep_journals = false;
        store->journal.older_synced = true;
        store->base_generation = snapshot->generation;
        store->older_bytes = 0;
        store->older_journals = 0;
        if (store->held)
            store->journal.broken = store->broken = store->held = false;
    }
    pthread_mutex_unlock(&store->lock);
    pthread_mutex_unlock(&store->records);
    srv_metrics_store(store->context.metrics, written ? SRV_SNAPSHOT_MADE : SRV_SNAPSHOT_FAILED, 1);
    srv_snapshot_free(snapshot);
    return written;
}

bool srv_snapshot_begin_journal(struct srv_store *store)
{
    char why[SRV_UNWRITTEN_TEXT];
    if (!srv_store_cut_journal(store))
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "a change that was refused stands in a journal and cannot be cut off: %s: "
                      "changes are refused until a snapshot is written",
                      strerrordesc_np(errno));
    if (srv_store_new_journal(&store->next, store))
        return true;
    srv_store_describe_unwritten(why, store);
    srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "no new journal: %s", why);
    srv_metrics_store(store->context.metrics, SRV_SNAPSHOT_FAILED, 1);
    return false;
}

bool srv_store_make_snapshot(struct srv_store *store)
{
    return srv_snapshot_begin_journal(store) &&
           srv_snapshot_finish(store, srv_snapshot_freeze(store));
}
