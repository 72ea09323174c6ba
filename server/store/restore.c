/* restore.c: entries by epoch, sessions of a manifest, and publishing them. */
#include "store/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "session/weightless.h"

#define SPARE_SESSIONS 128 /* added to max_sessions in both bounds on what files may hold */
#define MANY_LOST 8        /* beyond so many times that sum, lost sessions have the start refused */

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
    srv_restore_forget_blocks(restore);
    srv_slot_reader_fini(&restore->reader);
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

/* ---- Sessions of a manifest ------------------------------------------------------------------ */

static enum srv_restore_status fail_attn(struct srv_restore *restore,
                                         const struct attn_error *cause)
{
    const bool full = cause->status == ATTN_POOL_FULL || cause->status == ATTN_NO_MEMORY;
    return fail(restore,
                full                       ? SRV_RESTORE_FULL
                : cause->status == ATTN_IO ? SRV_RESTORE_UNREADABLE
                                           : SRV_RESTORE_DAMAGED,
                cause->message);
}

/* Keeps a cache of which the map may have blocks. */
static void keep_damaged(struct srv_restore *restore, struct attn_cache *cache)
{
    struct attn_cache **more =
        realloc(restore->damaged, (restore->num_damaged + 1) * sizeof(struct attn_cache *));
    if (more == NULL) { /* no block of it is shared from here on */
        srv_block_map_fini(&restore->map);
        attn_cache_free(cache);
        return;
    }
    restore->damaged = more;
    restore->damaged[restore->num_damaged++] = cache;
}

void srv_restore_forget_blocks(struct srv_restore *restore)
{
    srv_block_map_fini(&restore->map);
    for (size_t i = 0; i < restore->num_damaged; i++)
        attn_cache_free(restore->damaged[i]);
    free(restore->damaged);
    restore->damaged = NULL;
    restore->num_damaged = 0;
}

/* Makes a cache, which no session has yet, with its blocks absent. */
static enum srv_restore_status make_cache(struct attn_cache **out, struct srv_restore *restore,
                                          const struct srv_manifest_entry *said,
                                          const struct srv_model *model)
{
    struct attn_error cause = {0};
    if (attn_cache_new(out, model->pool, model->attn, (size_t)said->options->max_length, &cause) !=
        ATTN_OK)
        return fail_attn(restore, &cause);
    if (srv_blocks_restore(*out, &restore->map, restore->slots, said, &cause) == ATTN_OK)
        return SRV_RESTORE_OK;
    keep_damaged(restore, *out);
    *out = NULL;
    return fail_attn(restore, &cause);
}

struct srv_session_options srv_restore_options(const struct srv_restore *restore,
                                               const struct srv_restored_session *entry,
                                               const struct srv_record_create *create)
{
    return (struct srv_session_options){
        .id = create->id,
        .ttl_s = (size_t)create->ttl_s,
        .idempotency_key = create->key,
        .key_digest = {create->key_digest[0], create->key_digest[1]},
        .owner = create->owner,
        .group = create->group,
        .shared = create->shared != 0,
        .epoch = entry->epoch,
        .store = restore->store + 1,
    };
}

/* The session from its cache, which becomes the session's or is freed. */
static enum srv_restore_status new_session(struct srv_restored_session *entry,
                                           struct srv_restore *restore,
                                           const struct srv_manifest_entry *said,
                                           const struct srv_model *model, struct attn_cache *cache)
{
    struct srv_error error;
    struct srv_last_step *last = calloc(said->facts.num_layers, sizeof *last);
    for (size_t i = 0; i < said->facts.num_layers && last != NULL; i++) {
        const struct srv_manifest_layer *layer = &said->layers[i];
        last[i] = (struct srv_last_step){.position = layer->length - layer->rows,
                                         .rows = layer->rows,
                                         .digest = {layer->digest[0], layer->digest[1]}};
    }
    struct srv_session_options options = srv_restore_options(restore, entry, said->options);
    options.revision = said->facts.revision;
    options.cache = cache;
    options.last_steps = last;
    enum srv_restore_status result = SRV_RESTORE_OK;
    if (last == NULL)
        result = fail(restore, SRV_RESTORE_FULL, "out of memory");
    else if (srv_session_new(&entry->session, restore->sessions, model, &options, &error) != SRV_OK)
        result = fail(restore, SRV_RESTORE_FULL, error.message);
    free(last);
    if (result != SRV_RESTORE_OK)
        return result;
    entry->session->used_ns = said->facts.used_ns;
    entry->session->next_record = said->facts.next_record;
    entry->session->record_state = SRV_RECORDED;
    entry->session->changed = false;
    return SRV_RESTORE_OK;
}

static enum srv_restore_status make_session(struct srv_restored_session *entry,
                                            struct srv_restore *restore,
                                            const struct srv_manifest_entry *said)
{
    const struct srv_model *model;
    struct attn_cache *cache = NULL;
    enum srv_restore_status result =
        srv_restore_model(&model, restore, said->options->model, said->options->fingerprint);
    if (result != SRV_RESTORE_OK)
        return result;
    result = said->facts.num_layers == model->info.num_layers
                 ? make_cache(&cache, restore, said, model)
                 : fail(restore, SRV_RESTORE_DAMAGED, "its layers are not those of its model");
    if (result == SRV_RESTORE_OK)
        result = new_session(entry, restore, said, model, cache);
    srv_model_put(model); /* the session holds it */
    return result;
}

enum srv_restore_status srv_restore_described(struct srv_restore *restore,
                                              const struct srv_manifest_entry *said)
{
    struct srv_restored_session *entry = srv_restore_entry(restore, said->epoch);
    if (entry == NULL)
        return SRV_RESTORE_FULL;
    enum srv_restore_status result;
    entry->generation = restore->base_generation;
    srv_restore_note_time(restore, said->facts.used_ns);
    if (said->lost)
        result = fail(restore, SRV_RESTORE_DAMAGED, "its record is damaged");
    else if (said->facts.next_record == 0 || !srv_restore_is_possible(said->options) ||
             !srv_revision_possible(&said->facts.revision))
        result = fail(restore, SRV_RESTORE_DAMAGED, "no session can be what its record says");
    else if (restore->counts)
        result = srv_restore_count_described(entry, restore, said);
    else
        result = make_session(entry, restore, said);
    entry->lost = entry->without_manifest = result != SRV_RESTORE_OK;
    entry->unknown_model = result == SRV_RESTORE_NO_MODEL;
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
