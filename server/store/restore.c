/* restore.c: entries by epoch, sessions from their files, and publishing them. */
#include "store/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "session/weightless.h"
#include "store/session_notes.h"

#define SPARE_SESSIONS 128 /* added to max_sessions in both bounds on what files may hold */
#define MANY_LOST 8        /* beyond so many times that sum, lost sessions have the start refused */
#define PIECE ((size_t)16 << 20) /* bytes of a session's file between two reports of progress */

static enum srv_restore_status fail(struct srv_restore *restore, enum srv_restore_status what,
                                    const char *message)
{
    snprintf(restore->message, sizeof restore->message, "%s", message);
    return what;
}

/* ---- Entries --------------------------------------------------------------------------------- */

void srv_restore_init(struct srv_restore *restore, struct srv_sessions *sessions,
                      size_t max_sessions, const struct srv_models *models)
{
    *restore =
        (struct srv_restore){.sessions = sessions, .models = models, .max_sessions = max_sessions};
}

void srv_restore_fini(struct srv_restore *restore)
{
    for (size_t i = 0; i < restore->capacity; i++)
        srv_session_put(restore->entries[i].session);
    free(restore->entries);
    *restore = (struct srv_restore){0};
}

/* Where the epoch's entry is or would be; epochs count up from a random number, so that their low
 * bits are as good as a hash. */
static struct srv_restored_session *slot_of(struct srv_restored_session *entries, size_t capacity,
                                            uint64_t epoch)
{
    size_t i = (size_t)epoch & (capacity - 1);
    while (entries[i].epoch != 0 && entries[i].epoch != epoch)
        i = (i + 1) & (capacity - 1);
    return &entries[i];
}

/* The entry of a deleted session can be dropped, since no record of it follows. */
static bool is_wanted(const struct srv_restored_session *entry)
{
    return entry->epoch != 0 && (entry->session != NULL || entry->lost);
}

/* Rehashes the wanted entries into a table at most a quarter full.  `recount_at` is the count at
 * which the next call comes: a quarter more. */
static bool rehash(struct srv_restore *restore)
{
    size_t capacity = 64, count = 0, sessions = 0, limit = restore->max_sessions + SPARE_SESSIONS;
    for (size_t i = 0; i < restore->capacity; i++) {
        count += is_wanted(&restore->entries[i]);
        sessions += restore->entries[i].session != NULL;
    }
    while (capacity < 4 * count)
        capacity *= 2;
    bool crowded = sessions / 2 > limit, lost = (count - sessions) / MANY_LOST > limit;
    struct srv_restored_session *entries =
        crowded || lost ? NULL : calloc(capacity, sizeof *entries);
    if (entries == NULL) {
        fail(restore, SRV_RESTORE_FULL,
             crowded ? "they are more than twice max_sessions"
             : lost  ? "more than eight times max_sessions are lost"
                     : "out of memory");
        return false;
    }
    for (size_t i = 0; i < restore->capacity; i++)
        if (is_wanted(&restore->entries[i]))
            *slot_of(entries, capacity, restore->entries[i].epoch) = restore->entries[i];
    free(restore->entries);
    restore->entries = entries;
    restore->capacity = capacity;
    restore->count = count;
    restore->recount_at = count + count / 4 + 8;
    return true;
}

struct srv_restored_session *srv_restore_find(const struct srv_restore *restore, uint64_t epoch)
{
    if (restore->capacity == 0 || epoch == 0)
        return NULL;
    struct srv_restored_session *entry = slot_of(restore->entries, restore->capacity, epoch);
    return entry->epoch != 0 ? entry : NULL;
}

struct srv_restored_session *srv_restore_entry(struct srv_restore *restore, uint64_t epoch)
{
    if (restore->count >= restore->recount_at && !rehash(restore))
        return NULL;
    struct srv_restored_session *entry = slot_of(restore->entries, restore->capacity, epoch);
    if (entry->epoch == 0) {
        *entry = (struct srv_restored_session){.epoch = epoch, .order = ++restore->made};
        restore->count++;
    }
    return entry;
}

const struct srv_restored_session *srv_restore_parent(const struct srv_restore *restore,
                                                      const struct srv_record_create *create,
                                                      const struct srv_model *model)
{
    const struct srv_restored_session *parent = srv_restore_find(restore, create->parent);
    if (parent == NULL || parent->session == NULL || parent->session->model != model ||
        parent->session->next_record != create->parent_chain)
        return NULL;
    return parent;
}

void srv_restore_mark_lost(const struct srv_restore *restore, struct srv_restored_session *entry)
{
    if (!restore->keeps_parts) {
        srv_session_put(entry->session);
        entry->session = NULL;
    }
    entry->lost = true;
}

void srv_restore_forget(struct srv_restored_session *entry)
{
    srv_session_put(entry->session);
    *entry = (struct srv_restored_session){.epoch = entry->epoch, .order = entry->order};
}

void srv_restore_note_time(struct srv_restore *restore, uint64_t time_ns)
{
    if (time_ns > restore->newest_ns)
        restore->newest_ns = time_ns;
}

enum srv_restore_status srv_restore_model(const struct srv_model **out, struct srv_restore *restore,
                                          const char *name, const char *fingerprint)
{
    struct srv_error error = {.code = SRV_OK};
    *out = NULL;
    if (name != NULL && fingerprint != NULL)
        srv_models_get(out, restore->models, name, &error);
    if (error.code == SRV_E_SESSION_LIMIT || error.code == SRV_E_UNSUPPORTED ||
        error.code == SRV_E_OUT_OF_MEMORY)
        return fail(restore, SRV_RESTORE_FULL, error.message);
    if (*out != NULL && strcmp((*out)->info.fingerprint, fingerprint) == 0)
        return SRV_RESTORE_OK;
    srv_model_put(*out);
    *out = NULL;
    return fail(restore, SRV_RESTORE_NO_MODEL, "its model, by name and fingerprint, is not here");
}

/* ---- Session files --------------------------------------------------------------------------- */

static enum srv_restore_status fail_attn(struct srv_restore *restore,
                                         const struct attn_error *cause)
{
    bool full = cause->status == ATTN_POOL_FULL || cause->status == ATTN_NO_MEMORY;
    bool unreadable = cause->status == ATTN_IO || cause->status == ATTN_NOT_FOUND;
    enum srv_restore_status damaged = unreadable ? SRV_RESTORE_UNREADABLE : SRV_RESTORE_DAMAGED;
    return fail(restore, full ? SRV_RESTORE_FULL : damaged, cause->message);
}

/* A file that fits the reader's window is read at once. */
static enum srv_restore_status open_import(struct attn_import **out, struct srv_restore *restore,
                                           struct srv_file_reader *reader)
{
    struct attn_error cause = {0};
    const void *bytes = srv_file_reader_whole(reader);
    if (reader->error != 0)
        return fail(restore, SRV_RESTORE_UNREADABLE, strerrordesc_np(reader->error));
    enum attn_status status = bytes != NULL
                                  ? attn_import_open(out, bytes, reader->size, &cause)
                                  : attn_import_open_file(out, reader->fd, reader->size, &cause);
    return status == ATTN_OK ? SRV_RESTORE_OK : fail_attn(restore, &cause);
}

/* A session's file while it is being restored. */
struct file_restore {
    const struct srv_session_file *listed;
    const struct srv_file_reader *reader;
    struct attn_import *import;
    const struct srv_model *model;
};

/* Has the import share what the base says, with sessions that were restored. */
static enum attn_status share_blocks(const struct srv_restore *restore,
                                     const struct file_restore *file, struct attn_error *cause)
{
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < file->listed->num_shares && status == ATTN_OK; i++) {
        const struct srv_share *share = &file->listed->shares[i];
        const struct srv_restored_session *parent = srv_restore_find(restore, share->parent);
        if (parent == NULL || parent->session == NULL || parent->session->model != file->model)
            continue;
        parent->session->shares_blocks = true;
        status = attn_import_share_blocks(file->import, share->layer, parent->session->cache,
                                          share->blocks, cause);
    }
    return status;
}

/* Makes a cache, which no session has yet, and fills it from the file. */
static enum srv_restore_status read_cache(struct attn_cache **out, struct srv_restore *restore,
                                          const struct file_restore *file)
{
    struct attn_error cause = {0};
    struct attn_import *import = file->import;
    const struct srv_model *model = file->model;
    bool more = true;
    enum attn_status status = attn_cache_new(
        out, model->pool, model->attn, (size_t)srv_notes_number(import, "max_length"), &cause);
    if (status == ATTN_OK)
        status = attn_import_begin(import, *out, &cause);
    if (status == ATTN_OK)
        status = share_blocks(restore, file, &cause);
    for (size_t done = PIECE; status == ATTN_OK && more; done += PIECE) {
        status = attn_import_run(&more, import, PIECE, &cause);
        if (more) /* each byte is read twice: summed up, and later copied */
            srv_file_reader_report(file->reader, done / 2);
    }
    return status == ATTN_OK ? SRV_RESTORE_OK : fail_attn(restore, &cause);
}

static bool is_name(const char *text) { return text == NULL || srv_id_valid(text); }

/* Reads the options of the session from the notes; their texts belong to the import. */
static bool read_options(struct srv_session_options *out, const struct attn_import *import,
                         uint64_t epoch)
{
    const char *key = attn_import_note(import, "key");
    *out = (struct srv_session_options){
        .id = attn_import_note(import, "id"),
        .ttl_s = (size_t)srv_notes_number(import, "ttl_s"),
        .idempotency_key = key,
        .owner = attn_import_note(import, "owner"),
        .group = attn_import_note(import, "group"),
        .shared = srv_notes_number(import, "shared") == 1,
        .epoch = epoch,
    };
    return out->id != NULL && srv_id_valid(out->id) && out->ttl_s >= 1 &&
           out->ttl_s <= SRV_MAX_TTL_S && srv_notes_number(import, "epoch") == epoch &&
           srv_notes_number(import, "used") > 0 && srv_notes_number(import, "chain") > 0 &&
           is_name(out->owner) && is_name(out->group) &&
           srv_notes_revision(&out->revision, import) &&
           (key == NULL ||
            (srv_id_valid(key) && srv_notes_digest(out->key_digest, import, "key_digest")));
}

/* The session from its cache, which becomes the session's or is freed. */
static enum srv_restore_status new_session(struct srv_restored_session *entry,
                                           struct srv_restore *restore,
                                           const struct file_restore *file,
                                           const struct srv_session_options *options)
{
    struct srv_error error = {0};
    const struct attn_import *import = file->import;
    if (srv_session_new(&entry->session, restore->sessions, file->model, options, &error) != SRV_OK)
        return fail(restore, SRV_RESTORE_FULL, error.message);
    entry->session->used_ns = srv_notes_number(import, "used");
    srv_restore_note_time(restore, entry->session->used_ns);
    entry->session->next_record = srv_notes_number(import, "chain");
    entry->session->record_state = SRV_RECORDED;
    entry->session->changed = false;
    entry->session->file_generation = file->listed->generation;
    entry->session->shares_blocks = file->listed->num_shares > 0;
    return SRV_RESTORE_OK;
}

static enum srv_restore_status make_session(struct srv_restored_session *entry,
                                            struct srv_restore *restore,
                                            const struct file_restore *file)
{
    struct srv_session_options options = {0};
    struct srv_error error = {0};
    struct attn_cache *cache = NULL;
    const struct srv_model *model = file->model;
    struct srv_last_step *last = calloc(model->info.num_layers, sizeof *last);
    enum srv_restore_status result = fail(restore, SRV_RESTORE_FULL, "out of memory");
    if (last != NULL)
        result = read_cache(&cache, restore, file);
    if (result == SRV_RESTORE_OK &&
        (!read_options(&options, file->import, entry->epoch) ||
         srv_notes_last_steps(last, file->import, model, cache, &error) != SRV_OK))
        result = fail(restore, SRV_RESTORE_DAMAGED, "its notes are not those of a session");
    options.cache = cache;
    options.last_steps = last;
    options.store = restore->store + 1;
    if (result == SRV_RESTORE_OK)
        result = new_session(entry, restore, file, &options);
    else
        attn_cache_free(cache);
    free(last);
    return result;
}

enum srv_restore_status srv_restore_file(struct srv_restore *restore,
                                         const struct srv_session_file *listed,
                                         struct srv_file_reader *reader)
{
    struct file_restore file = {.listed = listed, .reader = reader};
    struct srv_restored_session *entry = srv_restore_entry(restore, listed->epoch);
    if (entry == NULL)
        return SRV_RESTORE_FULL;
    enum srv_restore_status result = open_import(&file.import, restore, reader);
    if (result != SRV_RESTORE_OK) {
        entry->lost = true;
        return result;
    }
    if (restore->counts) {
        result = srv_restore_count_file(entry, restore, listed, file.import);
        attn_import_close(file.import);
        return result;
    }
    result = srv_restore_model(&file.model, restore, attn_import_note(file.import, "model"),
                               attn_import_note(file.import, "fingerprint"));
    if (result == SRV_RESTORE_OK)
        result = make_session(entry, restore, &file);
    entry->lost = result != SRV_RESTORE_OK;
    entry->unknown_model = result == SRV_RESTORE_NO_MODEL;
    srv_model_put(file.model);
    attn_import_close(file.import);
    return result;
}

/* ---- Publishing ------------------------------------------------------------------------------ */

/* By id, the youngest of one id first. */
static int by_id(const void *a, const void *b)
{
    const struct srv_restored_session *x = *(struct srv_restored_session *const *)a;
    const struct srv_restored_session *y = *(struct srv_restored_session *const *)b;
    int order = strcmp(x->session->id, y->session->id);
    return order != 0 ? order : (x->order < y->order) - (x->order > y->order);
}

/* Collects the entries to be published and counts the others. */
static size_t collect(struct srv_restored_session *out[], struct srv_restore_result *result,
                      struct srv_restore *restore)
{
    size_t found = 0;
    if (restore->newest_ns > 0)
        srv_sessions_set_clock(restore->sessions, restore->store, restore->newest_ns);
    uint64_t now = srv_now_ns();
    for (size_t i = 0; i < restore->capacity; i++) {
        struct srv_restored_session *entry = &restore->entries[i];
        if (entry->session != NULL && entry->unproven)
            srv_restore_mark_lost(restore, entry);
        result->unknown_model += entry->unknown_model;
        result->lost += entry->lost && !entry->unknown_model;
        if (entry->session == NULL || entry->pending)
            continue;
        srv_session_set_used(restore->sessions, entry->session, entry->session->used_ns);
        if (now - entry->session->used_ns >= entry->session->ttl_ns)
            result->expired++;
        else
            out[found++] = entry;
    }
    return found;
}

static void fail_twin(struct srv_restore *restore, const struct srv_session *session)
{
    bool owned = session->owner[0] != '\0';
    snprintf(restore->message, sizeof restore->message,
             "another directory has a session of the same id, %s%s%s: serve the two apart, and "
             "delete one of them",
             session->id, owned ? " of the owner " : "", session->owner);
}

bool srv_restore_publish(struct srv_restore_result *out, struct srv_restore *restore)
{
    struct srv_error error = {0};
    struct srv_restored_session **list =
        malloc((restore->count + 1) * sizeof(struct srv_restored_session *));
    *out = (struct srv_restore_result){0};
    if (list == NULL) {
        fail(restore, SRV_RESTORE_FULL, "out of memory");
        return false;
    }
    size_t count = collect(list, out, restore);
    if (restore->store > 0 && out->unknown_model > 0) { /* it is another daemon's to serve again */
        free(list);
        fail(restore, SRV_RESTORE_FULL, "it has a session whose model is not here");
        return false;
    }
    qsort(list, count, sizeof(struct srv_restored_session *), by_id);
    bool inserted = true;
    for (size_t i = 0; i < count && inserted; i++) {
        enum srv_error_code code = srv_session_insert(restore->sessions, list[i]->session, &error);
        list[i]->published = code == SRV_OK;
        out->published += list[i]->published;
        /* Of two sessions that cannot both have an id (session.h), the older one was deleted before
         * the younger was created. */
        inserted =
            list[i]->published || (code == SRV_E_SESSION_EXISTS &&
                                   !srv_session_is_elsewhere(restore->sessions, list[i]->session));
        if (!inserted && code == SRV_E_SESSION_EXISTS)
            fail_twin(restore, list[i]->session);
        else if (!inserted)
            fail(restore, SRV_RESTORE_FULL, error.message);
    }
    free(list);
    return inserted;
}
