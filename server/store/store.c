/* store.c: opening and closing the directory, and recording.
 *
 * The store's lock orders the records of all threads, and a session's state of record is read and
 * changed under it alone.  So a step that races with the deletion of its session is recorded before
 * the deletion or not at all. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/models.h"
#include "store/store_internal.h"

/* ---- The directory --------------------------------------------------------------------------- */

static bool refuse(char *message, size_t size, const char *path, const char *what)
{
    snprintf(message, size, "state_dir %s: %s", path, what);
    return false;
}

static bool open_directory(struct srv_store *store, char *message, size_t size)
{
    const char *path = store->context.state_dir;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return refuse(message, size, path, strerror(errno));
    store->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->directory < 0)
        return refuse(message, size, path, strerror(errno));
    store->lock_file =
        openat(store->directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock_file < 0)
        return refuse(message, size, path, strerror(errno));
    if (flock(store->lock_file, LOCK_EX | LOCK_NB) != 0)
        return refuse(message, size, path,
                      errno == EWOULDBLOCK ? "another attnd uses it" : strerror(errno));
    return true;
}

static void free_store(struct srv_store *store)
{
    srv_journal_close(&store->journal);
    if (store->lock_file >= 0)
        close(store->lock_file);
    if (store->directory >= 0)
        close(store->directory);
    pthread_cond_destroy(&store->wake);
    pthread_mutex_destroy(&store->lock);
    free(store->deletions);
    free(store);
}

bool srv_store_open(struct srv_store **out, const struct srv_store_context *context, char *message,
                    size_t size)
{
    pthread_condattr_t monotonic;
    *out = NULL;
    if (context->durability == SRV_DURABLE_NONE)
        return true;
    struct srv_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        snprintf(message, size, "out of memory");
        return false;
    }
    store->context = *context;
    store->directory = store->lock_file = -1;
    store->journal.fd = store->next.fd = store->old.fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!open_directory(store, message, size)) {
        free_store(store);
        return false;
    }
    *out = store;
    return true;
}

int srv_store_directory(const struct srv_store *store)
{
    return store != NULL ? store->directory : -1;
}

static bool finish_on_disk(struct srv_store *store)
{
    if (!srv_store_journals(store))
        return srv_store_make_checkpoint(store);
    if (store->journal.fd < 0 || fdatasync(store->journal.fd) == 0)
        return true;
    srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "the journal is not on disk: %s",
                  strerror(errno));
    return false;
}

bool srv_store_close(struct srv_store *store)
{
    if (store == NULL)
        return true;
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->lock);
    for (size_t i = 0; i < store->started; i++)
        pthread_join(store->threads[i], NULL);
    bool saved = !store->loaded || finish_on_disk(store);
    free_store(store);
    return saved;
}

/* ---- Records, under the lock ----------------------------------------------------------------- */

/* The list is bounded: its sessions have ended since the last record, and each was in the table or
 * in the files at some time since then. */
void srv_store_defer_deletion(struct srv_store *store, uint64_t epoch)
{
    if (!srv_store_journals(store))
        return;
    if (store->num_deletions == store->deletions_capacity) {
        size_t capacity = 2 * store->deletions_capacity + 8;
        uint64_t *more = realloc(store->deletions, capacity * sizeof *more);
        if (more == NULL) {
            store->owed_generation = store->generation + 1; /* its base omits the session */
            return;
        }
        store->deletions = more;
        store->deletions_capacity = capacity;
    }
    store->deletions[store->num_deletions++] = epoch;
}

/* The heads need no `chain`: a replay applies the record of a deletion whatever its number is. */
static void add_deletions(struct srv_store *store)
{
    for (size_t i = 0; i < store->num_deletions && !store->deletions_added; i++) {
        struct srv_record_head head = {.type = SRV_RECORD_DELETE, .epoch = store->deletions[i]};
        srv_journal_add(&store->journal, &head, NULL, 0);
    }
    store->deletions_added = true;
}

void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count)
{
    struct srv_record_head head = {.type = (uint16_t)type, .epoch = session->epoch, .chain = chain};
    add_deletions(store);
    srv_journal_add(&store->journal, &head, parts, count);
}

static struct srv_record_create describe(const struct srv_session *session)
{
    struct srv_record_create create = {
        .used_ns = srv_session_used(session),
        .ttl_s = session->ttl_ns / 1000000000,
        .max_length = attn_cache_max_length(session->cache),
        .key_digest = {session->key_digest[0], session->key_digest[1]},
        .shared = session->shared,
    };
    snprintf(create.id, sizeof create.id, "%s", session->id);
    snprintf(create.model, sizeof create.model, "%s", session->model->name);
    snprintf(create.key, sizeof create.key, "%s", session->idempotency_key);
    snprintf(create.owner, sizeof create.owner, "%s", session->owner);
    snprintf(create.group, sizeof create.group, "%s", session->group);
    snprintf(create.fingerprint, sizeof create.fingerprint, "%s", session->model->info.fingerprint);
    return create;
}

void srv_store_add_create(struct srv_store *store, const struct srv_session *session, bool pending)
{
    struct srv_record_create create = describe(session);
    create.pending = pending;
    srv_store_add(store, session, SRV_RECORD_CREATE, 0,
                  &(struct srv_record_part){&create, sizeof create}, 1);
}

enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error)
{
    uint64_t before = store->journal.length;
    int wrong = srv_journal_flush(&store->journal, store->context.fsync == SRV_FSYNC_ALWAYS);
    if (wrong == 0 && store->deletions_added)
        store->num_deletions = 0;
    store->deletions_added = false;
    if (wrong == 0) {
        srv_metrics_store(store->context.metrics, SRV_JOURNAL_BYTES,
                          (size_t)(store->journal.length - before));
        store->unsynced = true;
        return SRV_OK;
    }
    srv_metrics_store(store->context.metrics, SRV_JOURNAL_REFUSED, 1);
    if (store->journal.broken)
        pthread_cond_broadcast(&store->wake); /* a new journal is due */
    return srv_fail(error, SRV_E_STORAGE, NULL, "the journal cannot be written: %s",
                    strerrordesc_np(wrong));
}

void srv_store_count_change(struct srv_store *store, size_t by)
{
    atomic_fetch_add(&store->changes, by);
}

/* ---- Records --------------------------------------------------------------------------------- */

/* After the attempt to write a session's first record.  On failure the state is SRV_DELETED: the
 * maker removes the session, and no step that holds it may record it. */
static void settle_first_record(struct srv_session *session, enum srv_error_code code)
{
    if (session->record_state != SRV_UNRECORDED)
        return;
    session->record_state = code == SRV_OK ? SRV_RECORDED : SRV_DELETED;
    session->next_record = 1;
}

static enum srv_error_code fail_deleted(struct srv_error *error)
{
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id", "there is no such session");
}

enum srv_error_code srv_store_create(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    if (store == NULL)
        return SRV_OK;
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_UNRECORDED && srv_store_journals(store)) {
        srv_store_add_create(store, session, false);
        code = srv_store_flush(store, error);
    } else if (session->record_state == SRV_DELETED) {
        code = fail_deleted(error);
    }
    settle_first_record(session, code);
    srv_store_count_change(store, 1);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum srv_error_code srv_store_delete(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    if (store == NULL)
        return SRV_OK;
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_RECORDED && srv_store_journals(store)) {
        srv_store_add(store, session, SRV_RECORD_DELETE, session->next_record, NULL, 0);
        code = srv_store_flush(store, error);
    }
    if (code == SRV_OK)
        session->record_state = SRV_DELETED;
    srv_store_count_change(store, 1);
    pthread_mutex_unlock(&store->lock);
    return code;
}

void srv_store_expire(struct srv_store *store, struct srv_session *session)
{
    struct srv_error error;
    if (srv_store_delete(store, session, &error) == SRV_OK)
        return;
    pthread_mutex_lock(&store->lock);
    session->record_state = SRV_DELETED;
    srv_store_defer_deletion(store, session->epoch);
    pthread_mutex_unlock(&store->lock);
}

/* Refuses a fork of a parent that was deleted meanwhile: no file says what the parent was. */
static enum srv_error_code record_fork(struct srv_store *store, struct srv_session *session,
                                       const struct srv_session *parent, size_t length,
                                       struct srv_error *error)
{
    struct srv_record_create create = describe(session);
    create.parent = parent->epoch;
    create.parent_chain = parent->next_record;
    create.length = length;
    bool empty = parent->record_state == SRV_UNRECORDED; /* its maker is about to record it */
    if (parent->record_state == SRV_DELETED)
        return fail_deleted(error);
    srv_store_add(store, session, empty ? SRV_RECORD_CREATE : SRV_RECORD_FORK, 0,
                  &(struct srv_record_part){&create, sizeof create}, 1);
    return srv_store_flush(store, error);
}

enum srv_error_code srv_store_fork(struct srv_store *store, struct srv_session *session,
                                   struct srv_session *parent, size_t length,
                                   struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    session->shares_blocks = parent->shares_blocks = true;
    if (store == NULL)
        return SRV_OK;
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_UNRECORDED && srv_store_journals(store))
        code = record_fork(store, session, parent, length, error);
    settle_first_record(session, code);
    srv_store_count_change(store, 1);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum srv_error_code srv_store_truncate(struct srv_store *store, struct srv_session *session,
                                       size_t length, struct srv_error *error)
{
    const struct srv_record_truncate truncate = {srv_session_used(session), length};
    enum srv_error_code code = SRV_OK;
    if (store == NULL)
        return SRV_OK;
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_RECORDED && srv_store_journals(store)) {
        srv_store_add(store, session, SRV_RECORD_TRUNCATE, session->next_record,
                      &(struct srv_record_part){&truncate, sizeof truncate}, 1);
        code = srv_store_flush(store, error);
        session->next_record += code == SRV_OK;
    }
    session->changed = true;
    srv_store_count_change(store, 1);
    pthread_mutex_unlock(&store->lock);
    return code;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value)
{
    const struct attn_layer_spec *spec =
        attn_model_layer(session->model->attn, (size_t)rows->layer);
    size_t heads = (size_t)rows->rows * spec->num_kv_heads * sizeof(float);
    const struct srv_record_part parts[] = {
        {rows, sizeof *rows},
        {key, heads * spec->head_dim},
        {value, heads * spec->value_head_dim},
    };
    srv_store_add(store, session, SRV_RECORD_ROWS, chain, parts, 3);
}

static void add_step(struct srv_store *store, const struct srv_store_step *step)
{
    const struct srv_session *session = step->session;
    const struct srv_record_rows rows = {
        .used_ns = srv_session_used(session),
        .position = step->rows->step->position,
        .rows = step->rows->step->rows,
        .layer = step->layer,
        .digest = {step->digest[0], step->digest[1]},
    };
    bool starts = session->record_state == SRV_UNRECORDED;
    if (starts)
        srv_store_add_create(store, session, false);
    if (session->record_state != SRV_DELETED)
        srv_store_add_rows(store, session, starts ? 1 : session->next_record, &rows,
                           step->rows->key, step->rows->value);
}

static void count_step(struct srv_store *store, const struct srv_store_step *step)
{
    struct srv_session *session = step->session;
    bool starts = session->record_state == SRV_UNRECORDED;
    session->next_record = starts ? 2 : session->next_record + 1;
    session->record_state = starts ? SRV_RECORDED : session->record_state;
    session->changed = true;
    srv_store_count_change(store, step->rows->step->rows);
}

enum srv_error_code srv_store_steps(struct srv_store *store, const struct srv_store_step steps[],
                                    size_t count, struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    if (store == NULL)
        return SRV_OK;
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < count && srv_store_journals(store); i++)
        add_step(store, &steps[i]);
    if (srv_store_journals(store))
        code = srv_store_flush(store, error);
    for (size_t i = 0; i < count && code == SRV_OK; i++)
        count_step(store, &steps[i]);
    pthread_mutex_unlock(&store->lock);
    return code;
}
