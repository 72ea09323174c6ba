/* salvage.c: the files that were set aside, read once more.
 *
 * Session files are read first, the newest of each session alone, then the journals in their order.
 * Damage ends no journal here, and a session that misses a record stays as it was before. */
#include "store/salvage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn_state.h"
#include "store/restore.h"
#include "store/session_notes.h"
#include "store/store_files.h"

static bool refuse(char message[SRV_SALVAGE_MESSAGE], const char *name, const char *why)
{
    snprintf(message, SRV_SALVAGE_MESSAGE, "%s: %s", name, why);
    return false;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* As struct srv_journal_reader has it: whatever follows damage is read. */
static uint64_t all_synced(void *context)
{
    (void)context;
    return UINT64_MAX;
}

static enum srv_restore_status read_file(struct srv_restore *restore, const struct srv_file *file,
                                         struct srv_file_reader *reader)
{
    struct srv_replay_result replayed;
    const struct srv_session_file session = {.epoch = file->epoch, .generation = file->generation};
    if (file->kind == SRV_FILE_JOURNAL)
        return srv_restore_journal(&replayed, restore, file->generation, reader);
    if (file->kind == SRV_FILE_SESSION && srv_restore_find(restore, file->epoch) == NULL)
        return srv_restore_file(restore, &session, reader);
    return SRV_RESTORE_OK;
}

static bool read_files(struct srv_restore *restore, const struct srv_salvage_context *context,
                       const struct srv_file *const files[], size_t count, char *message)
{
    enum srv_restore_status result = SRV_RESTORE_OK;
    for (size_t i = 0; i < count; i++) {
        struct srv_file_reader reader;
        if (!srv_file_reader_open(&reader, context->directory, files[i]->name))
            return refuse(message, files[i]->name, strerror(errno));
        result = read_file(restore, files[i], &reader);
        srv_file_reader_close(&reader);
        if (result == SRV_RESTORE_FULL || result == SRV_RESTORE_UNREADABLE)
            return refuse(message, files[i]->name,
                          reader.error != 0 ? strerror(reader.error) : restore->message);
    }
    return true;
}

/* Session files before journals; of session files the newer before the older. */
static int by_reading(const void *a, const void *b)
{
    const struct srv_file *x = *(const struct srv_file *const *)a;
    const struct srv_file *y = *(const struct srv_file *const *)b;
    if (x->kind != y->kind)
        return x->kind == SRV_FILE_SESSION ? -1 : y->kind == SRV_FILE_SESSION ? 1 : 0;
    int order = (x->generation > y->generation) - (x->generation < y->generation);
    return x->kind == SRV_FILE_SESSION ? -order : order;
}

/* Lists what is to be read, in that order: the files that were set aside, and session files that no
 * snapshot has replaced since, which records of those journals may follow.  Returns how many. */
static size_t list_order(const struct srv_file *order[], const struct srv_file aside[],
                         size_t num_aside, const struct srv_file kept[], size_t num_kept)
{
    uint64_t last = 0; /* generation of the newest journal that was set aside */
    size_t count = 0;
    for (size_t i = 0; i < num_aside; i++) {
        order[count++] = &aside[i];
        if (aside[i].kind == SRV_FILE_JOURNAL && aside[i].generation > last)
            last = aside[i].generation;
    }
    for (size_t i = 0; i < num_kept; i++)
        if (kept[i].kind == SRV_FILE_SESSION && kept[i].generation <= last)
            order[count++] = &kept[i];
    qsort(order, count, sizeof(const struct srv_file *), by_reading);
    return count;
}

static bool read_all(struct srv_restore *restore, const struct srv_salvage_context *context,
                     char *message)
{
    struct srv_file *aside = NULL, *kept = NULL;
    size_t num_aside = 0, num_kept = 0;
    bool listed = srv_files_list_set_aside(&aside, &num_aside, context->directory) &&
                  srv_files_list(&kept, &num_kept, context->directory);
    const struct srv_file **order =
        malloc((num_aside + num_kept + 1) * sizeof(const struct srv_file *));
    bool read = listed && order != NULL;
    if (read) {
        size_t count = list_order(order, aside, num_aside, kept, num_kept);
        read = read_files(restore, context, order, count, message);
    } else {
        refuse(message, "the directory", strerror(errno));
    }
    free(order);
    free(aside);
    free(kept);
    return read;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int by_epoch(const void *a, const void *b)
{
    const struct srv_salvage_served *x = a, *y = b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

static bool is_served(const struct srv_salvage_context *context,
                      const struct srv_restored_session *entry)
{
    const struct srv_salvage_served key = {.epoch = entry->epoch};
    const struct srv_salvage_served *found =
        bsearch(&key, context->served, context->num_served, sizeof key, by_epoch);
    return found != NULL &&
           (entry->session == NULL || found->next_record >= entry->session->next_record);
}

static bool write_session(int directory, const struct srv_session *session, const char *name)
{
    const struct srv_session_moment moment = {.cache = session->cache,
                                              .last_steps = session->last_steps};
    struct attn_export *export = srv_notes_open_export(session, &moment, false);
    bool written = export != NULL && srv_file_export(directory, name, export, true);
    int error = errno;
    attn_export_close(export);
    errno = error;
    return written;
}

static void print_saved(struct srv_buffer *text, const struct srv_session *session,
                        const char *name)
{
    size_t most = 0;
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        size_t length = attn_cache_length(session->cache, i);
        most = length > most ? length : most;
    }
    srv_buffer_printf(text, SRV_SALVAGE_DIRECTORY "/%s: session %s of model %s, %zu tokens", name,
                      session->id, session->model->name, most);
    if (session->owner[0] != '\0')
        srv_buffer_printf(text, ", of key %s", session->owner);
    srv_buffer_text(text, "\n");
}

/* Saves one session, or says why it cannot be saved.  False where its file cannot be written. */
static bool save(struct srv_salvage *out, struct srv_buffer *text, int directory,
                 const struct srv_restored_session *entry)
{
    char name[SRV_FILE_NAME];
    if (entry->session == NULL) {
        out->unsaved++;
        srv_buffer_printf(text, "%016llx: %s\n", (unsigned long long)entry->epoch,
                          entry->unknown_model ? "its model, by name and fingerprint, is not here"
                                               : "nothing is left of it");
        return true;
    }
    snprintf(name, sizeof name, "%016llx.safetensors", (unsigned long long)entry->epoch);
    if (!write_session(directory, entry->session, name))
        return false;
    out->saved++;
    print_saved(text, entry->session, name);
    return true;
}

static bool save_all(struct srv_salvage *out, struct srv_buffer *text,
                     const struct srv_salvage_context *context, const struct srv_restore *restore,
                     char *message)
{
    if (mkdirat(context->directory, SRV_SALVAGE_DIRECTORY, 0700) != 0 && errno != EEXIST)
        return refuse(message, SRV_SALVAGE_DIRECTORY, strerror(errno));
    int directory = openat(context->directory, SRV_SALVAGE_DIRECTORY,
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    bool saved = directory >= 0;
    for (size_t i = 0; i < restore->capacity && saved; i++) {
        const struct srv_restored_session *entry = &restore->entries[i];
        bool wanted = entry->epoch != 0 && (entry->session != NULL || entry->lost) &&
                      !entry->pending && !is_served(context, entry);
        saved = !wanted || save(out, text, directory, entry);
    }
    saved = saved && srv_sync_directory(directory);
    if (!saved)
        refuse(message, SRV_SALVAGE_DIRECTORY, strerror(errno));
    if (directory >= 0)
        close(directory);
    return saved;
}

bool srv_salvage(struct srv_salvage *out, struct srv_buffer *text,
                 const struct srv_salvage_context *context, char message[SRV_SALVAGE_MESSAGE])
{
    struct srv_restore restore;
    *out = (struct srv_salvage){0};
    srv_restore_init(&restore, context->sessions, context->max_sessions, context->models);
    restore.keeps_parts = true;
    restore.synced_later = all_synced;
    bool saved =
        read_all(&restore, context, message) && save_all(out, text, context, &restore, message);
    srv_restore_fini(&restore);
    return saved;
}
