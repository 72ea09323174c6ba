/* replay.c: a journal's records, applied to the sessions that are being restored.
 *
 * Each record has its number among the records of its session (`chain`).  The one that follows what
 * the session has is applied, and where a number is
 * missing or there twice the session is lost.  What follows from a gap in the journal stands in
 * restore_gap.c. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "attn_state.h"
#include "base/id.h"
#include "session/weightless.h"
#include "store/restore.h"

/* ---- Making sessions ------------------------------------------------------------------------- */

static bool is_text(const char *text, size_t room) { return memchr(text, '\0', room) != NULL; }

/* An id, or no text at all. */
static bool is_name(const char text[SRV_RECORD_TEXT])
{
    return is_text(text, SRV_RECORD_TEXT) && (text[0] == '\0' || srv_id_valid(text));
}

bool srv_restore_is_possible(const struct srv_record_create *create)
{
    return is_name(create->id) && create->id[0] != '\0' &&
           is_text(create->model, sizeof create->model) && is_name(create->key) &&
           is_text(create->fingerprint, sizeof create->fingerprint) && is_name(create->owner) &&
           is_name(create->group) && create->shared <= 1 && create->ttl_s >= 1 &&
           create->ttl_s <= SRV_MAX_TTL_S && create->max_length >= 1 &&
           create->max_length <= ATTN_MAX_TOKENS;
}

static bool read_made(struct srv_record_made *out, const struct srv_record *record)
{
    size_t length = (size_t)record->head.length;
    *out = (struct srv_record_made){0};
    return length == sizeof *out && srv_record_read(out, record, 0, length) &&
           srv_restore_is_possible(&out->create) && out->revision != 0 &&
           out->revision <= SRV_REVISION_MAX;
}

/* Copies the parent's last steps that end where the fork's layers end: a retry of those is known in
 * the fork too. */
static void inherit_last_steps(struct srv_session *session, const struct srv_session *parent)
{
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        const struct srv_last_step *last = &parent->last_steps[i];
        if (last->position + last->rows == attn_cache_length(session->cache, i))
            session->last_steps[i] = *last;
    }
}

static enum srv_restore_status make_session(struct srv_restored_session *entry,
                                            const struct srv_restore *restore,
                                            const struct srv_record_made *made,
                                            const struct srv_model *model, bool fork)
{
    const struct srv_record_create *create = &made->create;
    struct attn_error cause = {0};
    struct srv_error error = {0};
    struct srv_session_options options = srv_restore_options(restore, entry, create);
    options.max_length = (size_t)create->max_length;
    options.revision.number = made->revision;
    const struct srv_restored_session *from =
        fork ? srv_restore_parent(restore, create, model) : NULL;
    const struct srv_session *parent = from != NULL ? from->session : NULL;
    entry->unknown_model = model == NULL;
    entry->lost = model == NULL || (fork && parent == NULL);
    if (entry->lost)
        return SRV_RESTORE_OK;
    if (fork &&
        attn_cache_fork(&options.cache, parent->cache, (size_t)create->length, &cause) != ATTN_OK) {
        entry->lost = cause.status == ATTN_FORGOTTEN;
        return entry->lost ? SRV_RESTORE_OK : SRV_RESTORE_FULL;
    }
    if (srv_session_new(&entry->session, restore->sessions, model, &options, &error) != SRV_OK)
        return SRV_RESTORE_FULL;
    if (fork)
        inherit_last_steps(entry->session, parent);
    entry->session->used_ns = create->used_ns;
    entry->session->record_state = SRV_RECORDED;
    entry->session->next_record = 1;
    entry->pending = create->pending != 0;
    return SRV_RESTORE_OK;
}

static enum srv_restore_status apply_create(struct srv_restored_session *entry,
                                            struct srv_restore *restore,
                                            const struct srv_record *record)
{
    struct srv_record_made made;
    if (record->head.chain != 0 || !read_made(&made, record)) {
        entry->lost = true;
        return SRV_RESTORE_OK;
    }
    if (restore->counts)
        return srv_restore_count_made(entry, restore, &made, record->head.type == SRV_RECORD_FORK);
    const struct srv_model *model;
    enum srv_restore_status status =
        srv_restore_model(&model, restore, made.create.model, made.create.fingerprint);
    if (status == SRV_RESTORE_FULL)
        return status;
    status = make_session(entry, restore, &made, model, record->head.type == SRV_RECORD_FORK);
    srv_model_put(model); /* the session holds it */
    return status;
}

/* ---- Changing them --------------------------------------------------------------------------- */

/* Each function returns ATTN_OK; ATTN_POOL_FULL or ATTN_NO_MEMORY, with which restoring ends; or
 * another status where the record is not one that its session can have.  A record that cannot be
 * read shows in the error of its file reader. */

/* Appends the rows of a record to a layer.  Where sessions share the layer's last block and its
 * first tokens are absent, the session's own copy is to have them. */
static enum attn_status append_rows(struct srv_restore *restore, const struct srv_session *session,
                                    const struct srv_record *record,
                                    const struct srv_record_rows *head)
{
    const size_t layer = (size_t)head->layer;
    enum attn_status status = srv_restore_rows(session, record, head);
    if (status != ATTN_INVALID || attn_cache_length(session->cache, layer) != head->position)
        return status;
    struct attn_error error;
    status = attn_cache_admit(session->cache, layer, &error);
    if (status == ATTN_OK)
        status = srv_blocks_fill(session->cache, session->model->attn, layer, restore->slots,
                                 &restore->reader);
    if (status == ATTN_IO)
        snprintf(restore->message, sizeof restore->message, "its blocks cannot be read: %s",
                 strerrordesc_np(errno));
    if (status == ATTN_OK)
        status = srv_restore_rows(session, record, head);
    attn_cache_evict(session->cache, layer);
    return status;
}

/* Has the empty layer of a session that is being imported begin where its first record does. */
static bool begin_layer(const struct srv_restored_session *entry,
                        const struct srv_record_rows *rows)
{
    struct attn_error error;
    struct attn_cache *cache = entry->session->cache;
    return entry->pending && attn_cache_length(cache, (size_t)rows->layer) == 0 &&
           attn_cache_begin_at(cache, (size_t)rows->layer, (size_t)rows->position, &error) ==
               ATTN_OK;
}

static enum attn_status apply_rows(struct srv_restore *restore, struct srv_restored_session *entry,
                                   const struct srv_record *record)
{
    struct srv_session *session = entry->session;
    struct srv_record_rows rows;
    if (record->head.length < sizeof rows || !srv_record_read(&rows, record, 0, sizeof rows))
        return ATTN_MALFORMED;
    if (rows.rows < 1 || rows.rows > ATTN_MAX_TOKENS ||
        rows.layer >= session->model->info.num_layers)
        return ATTN_MALFORMED;
    size_t layer = (size_t)rows.layer, n = (size_t)rows.rows;
    const struct attn_layer_spec *spec = attn_model_layer(session->model->attn, layer);
    if (spec == NULL ||
        (rows.position != attn_cache_length(session->cache, layer) && !begin_layer(entry, &rows)))
        return ATTN_MALFORMED;
    const struct attn_cached_sizes sizes = attn_cached_sizes(spec);
    const size_t keys = sizes.heads * sizes.key, values = sizes.heads * sizes.value;
    if (record->head.length != sizeof rows + n * (keys + values) * sizeof(float))
        return ATTN_MALFORMED;
    enum attn_status status = append_rows(restore, session, record, &rows);
    if (status == ATTN_OK && !entry->pending)
        attn_cache_forget(session->cache, layer, (size_t)rows.position);
    session->last_steps[layer] = (struct srv_last_step){
        .position = (size_t)rows.position, .rows = n, .digest = {rows.digest[0], rows.digest[1]}};
    session->used_ns = rows.used_ns;
    return status;
}

static enum attn_status apply_truncate(struct srv_restore *restore,
                                       struct srv_restored_session *entry,
                                       const struct srv_record *record)
{
    struct srv_session *session = entry->session;
    struct srv_record_truncate truncate;
    (void)restore;
    if (record->head.length != sizeof truncate ||
        !srv_record_read(&truncate, record, 0, sizeof truncate))
        return ATTN_MALFORMED;
    const struct srv_revision after = {truncate.revision, truncate.before, truncate.length};
    if (!srv_revision_possible(&after) || !srv_session_truncate(session, &after))
        return ATTN_MALFORMED;
    session->used_ns = truncate.used_ns;
    return ATTN_OK;
}

static enum attn_status apply_commit(struct srv_restore *restore,
                                     struct srv_restored_session *entry,
                                     const struct srv_record *record)
{
    struct srv_session *session = entry->session;
    struct srv_record_last last;
    size_t layers = session->model->info.num_layers;
    (void)restore;
    if (record->head.length != layers * sizeof last)
        return ATTN_MALFORMED;
    for (size_t i = 0; i < layers; i++) {
        size_t length = attn_cache_length(session->cache, i);
        if (!srv_record_read(&last, record, i * sizeof last, sizeof last) || last.rows > length ||
            (last.rows > 0 && last.position != length - last.rows))
            return ATTN_MALFORMED;
        session->last_steps[i] = (struct srv_last_step){.position = (size_t)last.position,
                                                        .rows = (size_t)last.rows,
                                                        .digest = {last.digest[0], last.digest[1]}};
        if (last.rows > 0)
            attn_cache_note_step(session->cache, i, (size_t)last.position);
    }
    return ATTN_OK;
}

/* Applies a record to the session that it belongs to.  One that the session cannot have loses the
 * session as a whole, since part of the record may have been applied. */
static enum srv_restore_status apply_change(struct srv_restore *restore,
                                            struct srv_restored_session *entry,
                                            const struct srv_record *record)
{
    static enum attn_status (*const changes[])(struct srv_restore *, struct srv_restored_session *,
                                               const struct srv_record *) = {
        [SRV_RECORD_ROWS] = apply_rows,
        [SRV_RECORD_TRUNCATE] = apply_truncate,
        [SRV_RECORD_COMMIT] = apply_commit,
    };
    size_t type = record->head.type;
    enum attn_status status = ATTN_MALFORMED;
    if (record->head.chain != entry->session->next_record) {
        srv_restore_mark_lost(restore, entry);
        return SRV_RESTORE_OK;
    }
    if (restore->counts)
        status = srv_restore_count_change(entry, record) ? ATTN_OK : ATTN_MALFORMED;
    else if (type < sizeof changes / sizeof changes[0] && changes[type] != NULL)
        status = changes[type](restore, entry, record);
    if (status == ATTN_POOL_FULL || status == ATTN_NO_MEMORY)
        return SRV_RESTORE_FULL;
    if (status == ATTN_IO)
        return SRV_RESTORE_UNREADABLE;
    if (status != ATTN_OK) {
        srv_restore_forget(entry);
        entry->lost = true;
        return SRV_RESTORE_OK;
    }
    entry->session->next_record++;
    entry->session->changed = true;
    entry->unproven = false;
    if (type == SRV_RECORD_COMMIT)
        entry->pending = false;
    return SRV_RESTORE_OK;
}

/* ---- The journal ----------------------------------------------------------------------------- */

/* A record whose number the session has passed: the manifest's section is later, or it is left of a
 * write that failed and could not be truncated, after which another record got its number. */
static enum srv_restore_status skip(const struct srv_restore *restore,
                                    struct srv_restored_session *entry, uint64_t generation)
{
    if (entry->generation <= generation)
        srv_restore_mark_lost(restore, entry);
    return SRV_RESTORE_OK;
}

static enum srv_restore_status apply_to_session(struct srv_restore *restore,
                                                const struct srv_record *record,
                                                uint64_t generation)
{
    struct srv_restored_session *entry = srv_restore_find(restore, record->head.epoch);
    if (record->head.type == SRV_RECORD_DELETE) {
        if (entry != NULL)
            srv_restore_forget(entry);
        return SRV_RESTORE_OK;
    }
    bool makes = record->head.type == SRV_RECORD_CREATE || record->head.type == SRV_RECORD_FORK;
    if (entry == NULL && makes && record->head.epoch != 0) {
        entry = srv_restore_entry(restore, record->head.epoch);
        return entry != NULL ? apply_create(entry, restore, record) : SRV_RESTORE_FULL;
    }
    if (entry == NULL || entry->session == NULL || entry->lost)
        return SRV_RESTORE_OK; /* lost before, or deleted later */
    if (record->head.chain < entry->session->next_record)
        return skip(restore, entry, generation);
    return apply_change(restore, entry, record);
}

static enum srv_restore_status apply(struct srv_restore *restore, const struct srv_record *record,
                                     uint64_t generation)
{
    struct srv_record_mark mark;
    if (record->head.type == SRV_RECORD_MARK)
        return srv_restore_read_mark(&mark, record)
                   ? srv_restore_apply_mark(restore, record, &mark, generation)
                   : SRV_RESTORE_OK;
    enum srv_restore_status result = apply_to_session(restore, record, generation);
    const struct srv_restored_session *entry = srv_restore_find(restore, record->head.epoch);
    if (entry != NULL && entry->session != NULL)
        srv_restore_note_time(restore, entry->session->used_ns);
    return result;
}

/* Drops imports that a journal does not commit: the daemon ended before it answered them, and the
 * next journal may hold as much again.  Where the import is damaged, the damage may have hit its
 * commit, and the import counts as lost. */
static void drop_pending(struct srv_restore *restore)
{
    for (size_t i = 0; i < restore->capacity; i++) {
        struct srv_restored_session *entry = &restore->entries[i];
        if (!entry->pending)
            continue;
        bool lost = entry->lost || entry->unproven;
        srv_restore_forget(entry);
        entry->lost = lost;
    }
}

/* Whether the journal follows records that are missing and were never known to be on the disk: then
 * what it says did not follow from anything that is left. */
static bool follows_nothing(const struct srv_restore *restore, uint64_t generation,
                            struct srv_file_reader *journal)
{
    struct srv_journal_reader reader;
    struct srv_record record;
    struct srv_record_mark mark;
    srv_journal_read_open(&reader, journal, generation);
    return srv_journal_read(&record, &reader) == SRV_READ_RECORD && record.head.sequence == 1 &&
           srv_restore_read_mark(&mark, &record) && srv_restore_misses(restore, &mark) &&
           srv_journal_synced(&record, journal, generation) == 0 &&
           (restore->synced_later == NULL || restore->synced_later(restore->context) == 0);
}

/* Reads records to the end, or to where nothing more can be restored. */
static enum srv_restore_status read_records(struct srv_replay_result *out,
                                            struct srv_restore *restore, uint64_t generation,
                                            struct srv_file_reader *journal)
{
    struct srv_journal_reader reader;
    struct srv_record record;
    enum srv_restore_status result = SRV_RESTORE_OK;
    enum srv_reading reading = SRV_READ_RECORD;
    srv_journal_read_open(&reader, journal, generation);
    reader.synced_later = restore->synced_later;
    reader.context = restore->context;
    out->gaps = reader.head_damaged;
    while (result == SRV_RESTORE_OK && (reading == SRV_READ_RECORD || reading == SRV_READ_GAP)) {
        const struct srv_place place = {generation, reader.sequence};
        out->good = reader.at;
        reading = srv_journal_read(&record, &reader);
        if (reading == SRV_READ_GAP) {
            out->gaps++;
            result = srv_restore_skip_gap(restore, place, &record, reader.missing);
        } else if (reading == SRV_READ_RECORD) {
            out->records++;
            result = apply(restore, &record, generation);
        }
    }
    out->torn = reading == SRV_READ_TORN;
    out->dropped = reader.dropped;
    out->last = out->dropped > 0;
    if (reader.sequence > 1)
        restore->end = (struct srv_place){generation, reader.sequence};
    return result;
}

enum srv_restore_status srv_restore_journal(struct srv_replay_result *out,
                                            struct srv_restore *restore, uint64_t generation,
                                            struct srv_file_reader *journal)
{
    enum srv_restore_status result = SRV_RESTORE_OK;
    restore->message[0] = '\0';
    *out = (struct srv_replay_result){.last = follows_nothing(restore, generation, journal)};
    if (!out->last)
        result = read_records(out, restore, generation, journal);
    if (journal->error != 0)
        result = SRV_RESTORE_UNREADABLE;
    else if (result == SRV_RESTORE_FULL && restore->message[0] == '\0')
        snprintf(restore->message, sizeof restore->message,
                 "there is no room in the pool or in memory for what a journal holds");
    drop_pending(restore);
    return result;
}
