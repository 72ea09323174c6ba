/* store_write.c: a snapshot becomes blocks and a section of the manifest.
 *
 * The store's thread writes the blocks that are new, flushes them, adds a section that names them
 * to the manifest, and removes the files that the manifest replaces.  Until the section is there,
 * the manifest as it was and the journals of both generations say the same as it will: so writing
 * may end anywhere. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session/models.h"
#include "store/store_internal.h"

#define PUNCHED ((size_t)64 << 20) /* bytes that are given back at a time */

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

/* ---- Blocks and what the manifest says ------------------------------------------------------- */

static bool write_blocks(struct srv_block_writer *writer, const struct srv_snapshot *snapshot)
{
    bool written = true;
    for (size_t i = 0; i < snapshot->count && written; i++) {
        const struct srv_snapshot_entry *entry = &snapshot->entries[i];
        if (entry->frozen != NULL)
            written =
                srv_blocks_write(writer, entry->frozen, entry->session->model->info.num_layers);
    }
    return srv_blocks_end(writer, written);
}

static void add_session(struct srv_store *store, const struct srv_block_writer *writer,
                        struct srv_snapshot_entry *entry)
{
    struct srv_description session = {.epoch = entry->epoch, .facts = entry->facts};
    struct srv_block_place *places = NULL;
    struct srv_record_create create;
    if (entry->frozen != NULL) {
        const size_t layers = entry->session->model->info.num_layers;
        places = malloc((srv_blocks_count(entry->frozen, layers) + 1) * sizeof *places);
        if (places == NULL) {
            store->manifest.error = ENOMEM;
            return;
        }
        session.facts.num_layers = (uint32_t)layers;
        session.facts.num_blocks = (uint32_t)srv_blocks_list(
            entry->layers, places, writer, entry->frozen, layers, entry->say == SRV_SAY_ALL);
        session.layers = entry->layers;
        session.blocks = places;
    }
    if (entry->say == SRV_SAY_ALL) {
        create = srv_store_describe_session(store, entry->session);
        session.options = &create;
    }
    srv_manifest_add(&store->manifest, &session);
    free(places);
}

/* Lists the epochs that the manifest has and the snapshot has not; both are in order. */
static size_t list_ended(uint64_t ended[], const struct srv_epochs *told,
                         const struct srv_snapshot *snapshot)
{
    size_t count = 0, j = 0;
    for (size_t i = 0; i < told->count; i++) {
        while (j < snapshot->count && snapshot->entries[j].epoch < told->items[i])
            j++;
        if (j == snapshot->count || snapshot->entries[j].epoch != told->items[i])
            ended[count++] = told->items[i];
    }
    return count;
}

static int by_epoch(const void *a, const void *b)
{
    const struct srv_snapshot_entry *x = a, *y = b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* Writes what has changed since the manifest's last section.  False with errno. */
static bool write_section(struct srv_snapshot *snapshot, struct srv_store *store,
                          const struct srv_block_writer *writer)
{
    const size_t count = snapshot->count;
    struct srv_epochs now = {malloc((count + 1) * sizeof *now.items), count, count + 1};
    uint64_t *ended = malloc((store->told.count + 1) * sizeof *ended);
    bool written = now.items != NULL && ended != NULL;
    if (written) {
        qsort(snapshot->entries, count, sizeof *snapshot->entries, by_epoch);
        srv_manifest_begin(&store->manifest, store->directory, snapshot->generation);
        for (size_t i = 0; i < count; i++) {
            now.items[i] = snapshot->entries[i].epoch;
            if (snapshot->entries[i].say != SRV_SAY_NOTHING)
                add_session(store, writer, &snapshot->entries[i]);
        }
        written = srv_manifest_end(
            &store->manifest, srv_sessions_clock(store->context.sessions, store->context.index),
            ended, store->manifest.is_first ? 0 : list_ended(ended, &store->told, snapshot));
    }
    const int error = errno;
    struct srv_epochs *unneeded = written ? &store->told : &now;
    free(unneeded->items);
    if (written)
        store->told = now;
    free(ended);
    errno = error;
    return written;
}

/* ---- Afterwards ------------------------------------------------------------------------------ */

static bool is_replaced(const struct srv_file *file, const struct srv_store *store,
                        uint64_t generation)
{
    switch (file->kind) {
    case SRV_FILE_JOURNAL:
        return file->generation < generation;
    case SRV_FILE_MANIFEST:
    case SRV_FILE_COPY:
        return file->generation != store->manifest.named;
    case SRV_FILE_BLOCKS: /* a manifest that was set aside may name it */
        return !srv_slots_need(store->slots, file->generation, file->slot_bytes);
    default:
        return false;
    }
}

/* Removes the files that a snapshot replaces; after damage sets them aside. */
static void remove_replaced(const struct srv_store *store, uint64_t generation)
{
    struct srv_file *files;
    size_t count;
    if (!srv_files_list(&files, &count, store->directory))
        return;
    for (size_t i = 0; i < count; i++)
        if (!is_replaced(&files[i], store, generation))
            continue;
        else if (store->keep_journals && files[i].kind != SRV_FILE_BLOCKS)
            srv_file_set_aside(store->directory, files[i].name);
        else
            unlinkat(store->directory, files[i].name, 0);
    free(files);
}

/* ---- From beginning to end ------------------------------------------------------------------- */

static bool write_snapshot(struct srv_snapshot *snapshot, struct srv_store *store)
{
    char why[SRV_UNWRITTEN_TEXT];
    struct srv_file manifest;
    struct srv_block_writer writer = {
        .slots = store->slots, .moment = snapshot->moment, .told = store->told_moment};
    const bool stored = write_blocks(&writer, snapshot);
    if (!stored || !write_section(snapshot, store, &writer)) {
        srv_file_name(&manifest, SRV_FILE_MANIFEST, snapshot->generation);
        (void)srv_store_fail_file(store, stored ? manifest.name : srv_slots_failed(store->slots),
                                  0);
        srv_store_describe_unwritten(why, store);
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "no snapshot of %zu sessions was made: %s", snapshot->count, why);
        return false;
    }
    store->told_moment = writer.moment;
    store->manifest_named = store->manifest.named;
    srv_metrics_store(store->context.metrics, SRV_BLOCK_BYTES_WRITTEN, (size_t)writer.bytes);
    srv_slots_end_moment(store->slots);
    remove_replaced(store, snapshot->generation);
    while (srv_slots_punch(store->slots, PUNCHED))
        ;
    srv_log_event(store->context.log, SRV_LOG_INFO, "snapshot",
                  "generation %llu: %zu sessions, %llu bytes of blocks",
                  (unsigned long long)snapshot->generation, snapshot->count,
                  (unsigned long long)writer.bytes);
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
    const bool moves = store->removed; /* blocks that are not in memory get other places */
    errno = ENOMEM;                    /* of a snapshot that cannot be frozen */
    (void)srv_store_fail_file(store, "", 0);
    close_old_journal(store);
    if (snapshot != NULL && snapshot->failed)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "no snapshot was made: %s",
                      snapshot->error.message);
    else if (snapshot != NULL) {
        if (moves)
            pthread_mutex_lock(&store->moving);
        written = write_snapshot(snapshot, store);
        if (moves)
            pthread_mutex_unlock(&store->moving);
    }
    pthread_mutex_lock(&store->records);
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->last_snapshot_failed, !written);
    if (written) { /* the manifest stands in for the journals before */
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
    srv_store_note_damage(store);
    return srv_snapshot_begin_journal(store) &&
           srv_snapshot_finish(store, srv_snapshot_freeze(store));
}
