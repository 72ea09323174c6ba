/* store.c: opening and closing the directory, and recording.
 *
 * A session's state of record is read when the batch has begun.  So a step that races with the
 * expiry of its session is recorded before the deletion, which then goes with a later batch, or not
 * at all. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/owner.h"
#include "base/thread.h"
#include "session/models.h"
#include "store/store_internal.h"
#include "store/versions.h"

/* ---- The directory --------------------------------------------------------------------------- */

static bool refuse(char *message, size_t size, const char *path, const char *what)
{
    snprintf(message, size, "state_dir %s: %s", path, what);
    return false;
}

/* Refuses with what errno says and, where that is a permission, with the owner: a directory that is
 * mounted into a container is often root's, and so is what a first start as root has left in it. */
static bool refuse_errno(char *message, size_t size, const char *path)
{
    char remedy[SRV_OWNER_TEXT] = "", what[SRV_OWNER_TEXT + 64];
    const int why = errno;
    if (why == EACCES || why == EPERM)
        srv_owner_remedy(remedy, path, SRV_OWNER_WRITE);
    snprintf(what, sizeof what, "%s%s", strerror(why), remedy);
    return refuse(message, size, path, what);
}

bool srv_store_lock_directory(int directory)
{
    return flock(directory, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* Locks the directory, and takes the lock file; -1 with the message.  Files of another version are
 * looked for before the lock file is made, and while nobody else writes any. */
static int lock_directory(const struct srv_store *store, char *message, size_t size)
{
    const char *path = store->context.state_dir;
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    if (!srv_store_lock_directory(store->directory)) {
        refuse(message, size, path, "another attnd uses it");
        return -1;
    }
    int lock_file = openat(store->directory, SRV_LOCK_FILE, flags);
    if (lock_file < 0 && errno == ENOENT) {
        if (!srv_versions_are_known(store->directory, path, message, size))
            return -1;
        lock_file = openat(store->directory, SRV_LOCK_FILE, flags | O_CREAT, 0600);
    }
    if (lock_file < 0)
        refuse_errno(message, size, path);
    else if (flock(lock_file, LOCK_EX | LOCK_NB) != 0)
        refuse(message, size, path,
               errno == EWOULDBLOCK ? "another attnd uses it" : strerror(errno));
    else if (srv_versions_are_known(store->directory, path, message, size))
        return lock_file;
    if (lock_file >= 0)
        close(lock_file);
    return -1;
}

static bool open_directory(struct srv_store *store, char *message, size_t size)
{
    const char *path = store->context.state_dir;
    if (store->context.index == 0 && mkdir(path, 0700) != 0 && errno != EEXIST)
        return refuse_errno(message, size, path);
    store->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->directory < 0)
        return refuse_errno(message, size, path);
    store->lock_file = lock_directory(store, message, size);
    return store->lock_file >= 0;
}

/* Makes the identity of the directory that of its store in the table. */
static bool resolve_identity(struct srv_store *store, char *message, size_t size)
{
    const struct srv_store_context *context = &store->context;
    struct srv_identity identity = *srv_sessions_identity(context->sessions);
    if (!srv_identity_resolve(&identity, store->directory, context->state_dir, context->naming,
                              message, size))
        return false;
    if (!srv_sessions_set_identity(context->sessions, context->index, &identity))
        return refuse(message, size, context->state_dir,
                      "it is a copy of another directory that is to be served: both have the same "
                      "identity");
    store->identity = identity;
    srv_log_event(context->log, SRV_LOG_INFO, "identity", "instance %s, generation %s%s",
                  identity.instance, identity.generation, context->index > 0 ? ", adopted" : "");
    return true;
}

static void free_store(struct srv_store *store)
{
    srv_journal_close(&store->journal);
    srv_manifest_fini(&store->manifest);
    srv_slots_free(store->slots);
    srv_slot_reader_fini(&store->reader);
    srv_marks_fini(&store->marks);
    srv_store_forget_unread(store);
    if (store->lock_file >= 0)
        close(store->lock_file);
    if (store->directory >= 0)
        close(store->directory);
    pthread_cond_destroy(&store->wake);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->moving);
    pthread_mutex_destroy(&store->records);
    pthread_mutex_destroy(&store->flushing);
    free(store->told.items);
    free(store->deletions.items);
    free(store->deferred.items);
    free(store->path);
    free(store);
}

bool srv_store_open(struct srv_store **out, const struct srv_store_context *context, char *message,
                    size_t size)
{
    *out = NULL;
    if (context->durability == SRV_DURABLE_NONE)
        return true;
    struct srv_store *store = calloc(1, sizeof *store);
    char *path = strdup(context->state_dir);
    if (store == NULL || path == NULL) {
        free(store);
        free(path);
        snprintf(message, size, "out of memory");
        return false;
    }
    store->context = *context;
    store->context.state_dir = store->path = path;
    store->directory = store->lock_file = -1;
    store->journal.fd = store->next.fd = store->old.fd = -1;
    pthread_mutex_init(&store->flushing, NULL);
    pthread_mutex_init(&store->records, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->moving, NULL);
    srv_cond_init(&store->wake);
    if (!open_directory(store, message, size) || !resolve_identity(store, message, size)) {
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
    if (srv_store_find_removed(store) || !srv_store_journals(store))
        return srv_store_make_snapshot(store);
    srv_store_record_rest(store, true);
    bool synced = srv_store_sync(store) & srv_store_cut_journal(store);
    srv_store_record_rest(store, false); /* says that it is on the disk */
    return srv_store_sync(store) && synced;
}

bool srv_store_close(struct srv_store *store)
{
    if (store == NULL)
        return true;
    attn_cache_pool_set_dropped(store->context.pool, NULL, NULL);
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

/* ---- Records --------------------------------------------------------------------------------- */

struct srv_record_create srv_store_describe_session(const struct srv_store *store,
                                                    const struct srv_session *session)
{
    struct srv_record_create create = {
        .used_ns = srv_session_used(store->context.sessions, session),
        .ttl_s = session->ttl_ns / SRV_S_NS,
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
    struct srv_record_made made = {srv_store_describe_session(store, session), session->revision};
    made.create.pending = pending;
    srv_store_add(store, session, SRV_RECORD_CREATE, 0,
                  &(struct srv_record_part){&made, sizeof made}, 1);
}

void srv_store_count_change(struct srv_store *store, size_t by)
{
    atomic_fetch_add(&store->changes, by);
}

/* Under `records`. */
static int state_of(struct srv_store *store, const struct srv_session *session)
{
    pthread_mutex_lock(&store->lock);
    int state = session->record_state;
    pthread_mutex_unlock(&store->lock);
    return state;
}

/* After the attempt to write a session's first record.  On failure the state is SRV_DELETED: the
 * maker removes the session, and no step that holds it may record it. */
static void record_created(struct srv_store *store, struct srv_session *session,
                           enum srv_error_code code)
{
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_UNRECORDED) {
        session->record_state = code == SRV_OK ? SRV_RECORDED : SRV_DELETED;
        session->next_record = 1;
    }
    pthread_mutex_unlock(&store->lock);
    srv_store_count_change(store, 1);
}

static enum srv_error_code fail_deleted(struct srv_error *error)
{
    return srv_fail(error, SRV_E_SESSION_NOT_FOUND, "session_id", "there is no such session");
}

enum srv_error_code srv_store_create(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = srv_store_of(store, session);
    if (store == NULL)
        return SRV_OK;
    srv_store_begin(store);
    int state = state_of(store, session);
    if (state == SRV_UNRECORDED && srv_store_journals(store)) {
        srv_store_add_create(store, session, false);
        code = srv_store_flush(store, error);
    } else if (state == SRV_DELETED) {
        code = fail_deleted(error);
    }
    record_created(store, session, code);
    srv_store_end(store);
    return code;
}

/* True where the session was not deleted before. */
static bool set_deleted(struct srv_store *store, struct srv_session *session, bool defer)
{
    pthread_mutex_lock(&store->lock);
    bool live = session->record_state != SRV_DELETED;
    session->record_state = SRV_DELETED;
    if (live && defer)
        srv_store_defer_deletion(store, session->epoch);
    pthread_mutex_unlock(&store->lock);
    if (session->presence == SRV_UNREAD) /* the reading thread drops it, and its blocks are free */
        (void)srv_store_want(store, session);
    srv_store_count_change(store, 1);
    return live;
}

enum srv_error_code srv_store_delete(struct srv_store *store, struct srv_session *session,
                                     struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = srv_store_of(store, session);
    if (store == NULL)
        return SRV_OK;
    srv_store_begin(store);
    if (state_of(store, session) == SRV_RECORDED && srv_store_journals(store)) {
        srv_store_add(store, session, SRV_RECORD_DELETE, session->next_record, NULL, 0);
        code = srv_store_flush(store, error);
    }
    if (code == SRV_OK)
        set_deleted(store, session, false);
    srv_store_end(store);
    return code;
}

void srv_store_expire(struct srv_store *store, struct srv_session *session)
{
    store = srv_store_of(store, session);
    if (store != NULL)
        set_deleted(store, session, true);
}

/* Refuses a fork of a parent that was deleted meanwhile: no file says what the parent was. */
static enum srv_error_code record_fork(struct srv_store *store, struct srv_session *session,
                                       const struct srv_session *parent, size_t length,
                                       struct srv_error *error)
{
    struct srv_record_made made = {srv_store_describe_session(store, session), session->revision};
    made.create.parent = parent->epoch;
    made.create.parent_chain = parent->next_record;
    made.create.length = length;
    int state = state_of(store, parent);
    bool empty = state == SRV_UNRECORDED; /* its maker is about to record it */
    if (state == SRV_DELETED)
        return fail_deleted(error);
    srv_store_add(store, session, empty ? SRV_RECORD_CREATE : SRV_RECORD_FORK, 0,
                  &(struct srv_record_part){&made, sizeof made}, 1);
    return srv_store_flush(store, error);
}

enum srv_error_code srv_store_fork(struct srv_store *store, struct srv_session *session,
                                   struct srv_session *parent, size_t length,
                                   struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = srv_store_of(store, session);
    if (store == NULL)
        return SRV_OK;
    srv_store_begin(store);
    if (state_of(store, session) == SRV_UNRECORDED && srv_store_journals(store))
        code = record_fork(store, session, parent, length, error);
    record_created(store, session, code);
    srv_store_end(store);
    return code;
}

enum srv_error_code srv_store_truncate(struct srv_store *store, struct srv_session *session,
                                       const struct srv_revision *after, struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = srv_store_of(store, session);
    if (store == NULL)
        return SRV_OK;
    const struct srv_record_truncate truncate = {srv_session_used(store->context.sessions, session),
                                                 after->length, after->number, after->before};
    srv_store_begin(store);
    if (state_of(store, session) == SRV_RECORDED && srv_store_journals(store)) {
        srv_store_add(store, session, SRV_RECORD_TRUNCATE, session->next_record,
                      &(struct srv_record_part){&truncate, sizeof truncate}, 1);
        code = srv_store_flush(store, error);
        session->next_record += code == SRV_OK;
    }
    session->changed = true;
    srv_store_count_change(store, 1);
    srv_store_end(store);
    return code;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void srv_store_add_rows(struct srv_store *store, const struct srv_session *session, uint64_t chain,
                        const struct srv_record_rows *rows, const float *key, const float *value)
{
    const struct attn_cached_sizes sizes =
        attn_cached_sizes(attn_model_layer(session->model->attn, (size_t)rows->layer));
    size_t heads = (size_t)rows->rows * sizes.heads * sizeof(float);
    const struct srv_record_part parts[] = {
        {rows, sizeof *rows},
        {key, heads * sizes.key},
        {value, heads * sizes.value},
    };
    srv_store_add(store, session, SRV_RECORD_ROWS, chain, parts, 3);
}

static void add_step(struct srv_store *store, const struct srv_store_step *step)
{
    const struct srv_session *session = step->session;
    const struct srv_record_rows rows = {
        .used_ns = srv_session_used(store->context.sessions, session),
        .position = step->rows->step->position,
        .rows = step->rows->step->rows,
        .layer = step->layer,
        .digest = {step->digest[0], step->digest[1]},
    };
    int state = state_of(store, session);
    bool starts = state == SRV_UNRECORDED;
    if (starts)
        srv_store_add_create(store, session, false);
    if (state != SRV_DELETED)
        srv_store_add_rows(store, session, starts ? 1 : session->next_record, &rows,
                           step->rows->key, step->rows->value);
}

static void count_step(struct srv_store *store, const struct srv_store_step *step)
{
    struct srv_session *session = step->session;
    bool starts = session->next_record == 0;
    session->next_record = starts ? 2 : session->next_record + 1;
    pthread_mutex_lock(&store->lock);
    if (session->record_state == SRV_UNRECORDED) /* it has not expired meanwhile */
        session->record_state = SRV_RECORDED;
    pthread_mutex_unlock(&store->lock);
    session->changed = true;
    srv_store_count_change(store, step->rows->step->rows);
}

enum srv_error_code srv_store_steps(struct srv_store *store, const struct srv_store_step steps[],
                                    size_t count, struct srv_error *error)
{
    enum srv_error_code code = SRV_OK;
    store = count > 0 ? srv_store_of(store, steps[0].session) : NULL;
    if (store == NULL)
        return SRV_OK;
    srv_store_begin(store);
    for (size_t i = 0; i < count && srv_store_journals(store); i++)
        add_step(store, &steps[i]);
    if (srv_store_journals(store))
        code = srv_store_flush(store, error);
    for (size_t i = 0; i < count && code == SRV_OK; i++)
        count_step(store, &steps[i]);
    srv_store_end(store);
    return code;
}
