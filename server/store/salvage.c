/* salvage.c: the files that were set aside, read once more.
 *
 * Manifests are read first, the newest that has a session counts, then the journals in their order.
 * Damage ends no journal here, a session that misses a record stays as it was before, and one of
 * which a block is damaged is cut off there. */
#include "store/salvage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn_limits.h"
#include "attn_state.h"
#include "session/notes.h"
#include "store/restore.h"
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

/* Makes the sessions of a manifest that no newer one has. */
static bool read_manifest(struct srv_restore *restore, const struct srv_salvage_context *context,
                          const struct srv_file *file, bool set_aside, char *message)
{
    struct srv_manifest_state state;
    enum srv_restore_status result = SRV_RESTORE_OK;
    if (srv_manifest_read(&state, context->directory, file->generation, set_aside) ==
        SRV_MANIFEST_UNREADABLE)
        return refuse(message, file->name, strerror(errno));
    restore->base_generation = state.generation;
    for (size_t i = 0;
         i < state.capacity && result != SRV_RESTORE_FULL && result != SRV_RESTORE_UNREADABLE; i++)
        if (state.entries[i].epoch != 0 &&
            srv_restore_find(restore, state.entries[i].epoch) == NULL)
            result = srv_restore_described(restore, &state.entries[i]);
    srv_manifest_state_fini(&state);
    return (result != SRV_RESTORE_FULL && result != SRV_RESTORE_UNREADABLE) ||
           refuse(message, file->name, restore->message);
}

/* Reads the manifests of a list, the newest first, of generations before that one. */
static bool read_manifests(struct srv_restore *restore, const struct srv_salvage_context *context,
                           const struct srv_file files[], size_t count, bool set_aside,
                           uint64_t before, char *message)
{
    bool read = true;
    const struct srv_file *file = srv_files_newest_manifest(files, count, before);
    for (; read && file != NULL; file = srv_files_newest_manifest(files, count, file->generation))
        read = read_manifest(restore, context, file, set_aside, message);
    return read;
}

static bool read_journals(struct srv_restore *restore, const struct srv_salvage_context *context,
                          const struct srv_file files[], size_t count, char *message)
{
    for (size_t i = 0; i < count; i++) {
        struct srv_file_reader reader;
        struct srv_replay_result replayed;
        if (files[i].kind != SRV_FILE_JOURNAL)
            continue;
        if (!srv_file_reader_open(&reader, context->directory, files[i].name))
            return refuse(message, files[i].name, strerror(errno));
        const enum srv_restore_status result =
            srv_restore_journal(&replayed, restore, files[i].generation, &reader);
        srv_file_reader_close(&reader);
        if (result == SRV_RESTORE_FULL || result == SRV_RESTORE_UNREADABLE)
            return refuse(message, files[i].name,
                          reader.error != 0 ? strerror(reader.error) : restore->message);
    }
    return true;
}

/* Reads what was set aside, and the manifest that has taken its place, whose sessions records of
 * those journals may follow. */
static bool read_all(struct srv_restore *restore, const struct srv_salvage_context *context,
                     char *message)
{
    struct srv_file *aside = NULL, *kept = NULL;
    size_t num_aside = 0, num_kept = 0;
    uint64_t after = 1; /* the generation after that of the newest journal that was set aside */
    bool read = srv_files_list_set_aside(&aside, &num_aside, context->directory) &&
                srv_files_list(&kept, &num_kept, context->directory);
    if (!read)
        refuse(message, "the directory", strerror(errno));
    for (size_t i = 0; i < num_aside; i++)
        if (aside[i].kind == SRV_FILE_JOURNAL && aside[i].generation >= after)
            after = aside[i].generation < UINT64_MAX ? aside[i].generation + 1 : UINT64_MAX;
    read = read && read_manifests(restore, context, aside, num_aside, true, UINT64_MAX, message) &&
           read_manifests(restore, context, kept, num_kept, false, after, message);
    srv_restore_forget_blocks(restore);
    restore->base_generation = 0;
    read = read && read_journals(restore, context, aside, num_aside, message);
    free(aside);
    free(kept);
    return read;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* The first token of a layer that is absent; its length: none is. */
static size_t first_absent(const struct attn_cache *cache, size_t layer)
{
    size_t count, i = 0;
    struct attn_block *const *blocks = attn_cache_blocks(&count, cache, layer);
    while (i < count && attn_block_absent(blocks[i]) == 0)
        i++;
    return i < count ? attn_cache_first(cache, layer) + i * ATTN_BLOCK_TOKENS
                     : attn_cache_length(cache, layer);
}

/* Reads the blocks of a session, and cuts it off before the first that is damaged.  Errors:
 * ATTN_MALFORMED (the cache cannot end there), ATTN_IO and ATTN_NO_MEMORY (errno). */
static enum attn_status read_blocks(const struct srv_restore *restore,
                                    struct srv_slot_reader *reader,
                                    const struct srv_session *session)
{
    struct attn_error error;
    size_t good = SIZE_MAX;
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        enum attn_status status = attn_cache_admit(session->cache, i, &error);
        if (status == ATTN_OK)
            status =
                srv_blocks_fill(session->cache, session->model->attn, i, restore->slots, reader);
        const size_t end = status == ATTN_OK ? SIZE_MAX : first_absent(session->cache, i);
        good = end < good ? end : good;
        if (status == ATTN_OK || status == ATTN_MALFORMED)
            continue;
        errno = status == ATTN_IO ? errno : ENOMEM;
        return status;
    }
    return good == SIZE_MAX || attn_cache_truncate(session->cache, good) ? ATTN_OK : ATTN_MALFORMED;
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

/* Opens an export of a session as GET /sessions/{id}/state sends it; NULL with errno. */
static struct attn_export *open_export(const struct srv_session *session)
{
    struct attn_export *export = NULL;
    struct attn_error cause = {.status = ATTN_NO_MEMORY};
    size_t most = SRV_NOTES + session->model->info.num_layers;
    struct srv_note_text *texts = malloc(most * sizeof *texts);
    struct attn_note *notes = malloc(most * sizeof *notes);
    enum attn_status status = ATTN_NO_MEMORY;
    if (texts != NULL && notes != NULL) {
        size_t count = srv_notes_print(texts, session);
        for (size_t i = 0; i < count; i++)
            notes[i] = (struct attn_note){texts[i].name, texts[i].value};
        status = attn_export_open(&export, session->cache, notes, count, &cause);
    }
    free(texts);
    free(notes);
    errno = status == ATTN_NO_MEMORY ? ENOMEM : EOVERFLOW;
    return status == ATTN_OK ? export : NULL;
}

static bool write_session(int directory, const struct srv_session *session, const char *name)
{
    struct attn_export *export = open_export(session);
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

/* Saves one session, or says why it cannot be saved.  False with errno where its
 * blocks cannot be read now, or its file cannot be written. */
static bool save(struct srv_salvage *out, struct srv_buffer *text, int directory,
                 struct srv_restore *restore, const struct srv_restored_session *entry)
{
    char name[SRV_FILE_NAME];
    const enum attn_status status = entry->session != NULL
                                        ? read_blocks(restore, &restore->reader, entry->session)
                                        : ATTN_MALFORMED;
    if (status == ATTN_MALFORMED) {
        out->unsaved++;
        srv_buffer_printf(text, "%016llx: %s\n", (unsigned long long)entry->epoch,
                          entry->unknown_model ? "its model, by name and fingerprint, is not here"
                                               : "nothing is left of it");
        return true;
    }
    snprintf(name, sizeof name, "%016llx.safetensors", (unsigned long long)entry->epoch);
    if (status != ATTN_OK || !write_session(directory, entry->session, name))
        return false;
    out->saved++;
    print_saved(text, entry->session, name);
    return true;
}

static bool save_all(struct srv_salvage *out, struct srv_buffer *text,
                     const struct srv_salvage_context *context, struct srv_restore *restore,
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
        saved = !wanted || save(out, text, directory, restore, entry);
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
    restore.slots = srv_slots_new(context->directory, UINT64_MAX, 0);
    bool saved = restore.slots != NULL || refuse(message, "the directory", "out of memory");
    saved = saved && read_all(&restore, context, message) &&
            save_all(out, text, context, &restore, message);
    struct srv_slots *slots = restore.slots;
    srv_restore_fini(&restore);
    srv_slots_free(slots);
    return saved;
}
