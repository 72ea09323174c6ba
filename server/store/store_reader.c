/* store_reader.c: the tokens that a start has left on the disk.
 *
 * The store's thread reads one session after the other, in the order of their files, and between
 * two pieces of one those for which a request waits.  What a session needs follows from its extents
 * (extents.h): tokens of its file, then rows of records, oldest first.  Blocks that sessions share
 * are filled once (attn_cache_fill).  A session becomes SRV_PRESENT when each of its tokens is
 * there; nobody uses its cache before, and its lengths do not change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attn_state.h"
#include "base/clock.h"
#include "store/session_notes.h"
#include "store/store_load.h"

#define PIECE ((size_t)256 << 10) /* bytes of a file that are read at a time */
#define WINDOW ((size_t)16 << 10) /* bytes of a journal that are read at a time */
#define DEPTH 4                   /* a small session need not wait for a large one that is read */
#define RETRY_NS 200000000L       /* where memory is short */

/* ---- Handing over ---------------------------------------------------------------------------- */

/* Whether tokens of the session are missing. */
static bool is_unread(const struct srv_session *session)
{
    bool filled = true;
    for (size_t i = 0; i < session->model->info.num_layers && filled; i++)
        filled = attn_cache_filled(session->cache, i) == attn_cache_length(session->cache, i);
    return !filled;
}

static int by_order(const void *a, const void *b)
{
    const struct srv_unread *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

bool srv_load_hand_over(struct srv_load *load)
{
    struct srv_store *store = load->store;
    const struct srv_restore *restore = &load->restore;
    store->last_wanted = &store->wanted;
    if (restore->extents == NULL) {
        srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED, load->published);
        return true;
    }
    store->unread = calloc(restore->count + 1, sizeof *store->unread);
    if (store->unread == NULL)
        return srv_load_refuse_memory(load);
    for (size_t i = 0; i < restore->capacity; i++) {
        const struct srv_restored_session *entry = &restore->entries[i];
        if (!entry->published || !is_unread(entry->session))
            continue;
        atomic_fetch_add(&entry->session->references, 1);
        store->unread[store->num_unread++] = (struct srv_unread){
            .session = entry->session, .newest = entry->newest, .order = entry->order};
    }
    qsort(store->unread, store->num_unread, sizeof *store->unread, by_order);
    for (size_t i = 0; i < store->num_unread; i++) {
        store->unread[i].session->unread = &store->unread[i];
        atomic_store(&store->unread[i].session->presence, SRV_UNREAD);
    }
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED,
                      load->published - store->num_unread);
    atomic_store(&store->restoring, store->num_unread);
    store->extents = load->extents;
    load->extents = (struct srv_extents){0};
    return true;
}

void srv_store_forget_unread(struct srv_store *store)
{
    for (size_t i = 0; i < store->num_unread; i++)
        srv_session_put(store->unread[i].session);
    free(store->unread);
    srv_extents_fini(&store->extents);
    store->unread = NULL;
    store->num_unread = 0;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

bool srv_store_want(struct srv_store *store, struct srv_session *session)
{
    store = srv_store_of(store, session);
    pthread_mutex_lock(&store->lock);
    struct srv_unread *unread = session->unread;
    if (unread != NULL && !unread->listed) {
        unread->wanted = unread->listed = true;
        *store->last_wanted = unread;
        store->last_wanted = &unread->next_wanted;
        pthread_cond_broadcast(&store->wake);
    }
    pthread_mutex_unlock(&store->lock);
    return unread != NULL;
}

bool srv_store_has_restored(struct srv_store *store)
{
    return store != NULL && atomic_load(&store->restored);
}

bool srv_store_take_restored(struct srv_store *store)
{
    return store != NULL && atomic_exchange(&store->restored, false);
}

size_t srv_store_restoring(const struct srv_store *store)
{
    return store != NULL ? atomic_load(&store->restoring) : 0;
}

/* ---- What a session needs -------------------------------------------------------------------- */

/* A session that is being read. */
struct reading {
    struct srv_store *store;
    const struct srv_session *session;
    const struct srv_extent *file; /* NULL: none */
    size_t *ends; /* [num_layers] tokens before these come from the file; then as many are there */
    const struct srv_extent **records; /* [count] newest first */
    size_t *record_ends;               /* [count] tokens of that record that count end here */
    size_t count, capacity;
    unsigned depth; /* readings of other sessions that wait for this one's end */
    char why[256];
};

static bool add_record(struct reading *r, const struct srv_extent *extent, size_t end)
{
    if (r->count == r->capacity) {
        const size_t capacity = 2 * r->capacity + 64;
        const struct srv_extent **records =
            realloc(r->records, capacity * sizeof(struct srv_extent *));
        r->records = records != NULL ? records : r->records;
        size_t *ends = realloc(r->record_ends, capacity * sizeof *ends);
        r->record_ends = ends != NULL ? ends : r->record_ends;
        if (records == NULL || ends == NULL)
            return false;
        r->capacity = capacity;
    }
    r->records[r->count] = extent;
    r->record_ends[r->count++] = end;
    return true;
}

/* Finds the extents of tokens that are missing.  False where memory is short. */
static bool find_extents(struct reading *r, const struct srv_extent *newest)
{
    const struct attn_cache *cache = r->session->cache;
    const size_t layers = r->session->model->info.num_layers;
    bool found = true, missing = false;
    r->ends = calloc(2 * layers, sizeof *r->ends);
    if (r->ends == NULL)
        return false;
    size_t *filled = r->ends + layers;
    for (size_t i = 0; i < layers; i++) {
        r->ends[i] = attn_cache_length(cache, i);
        filled[i] = attn_cache_filled(cache, i);
    }
    for (const struct srv_extent *e = newest; e != NULL && found; e = e->previous) {
        if (e->rows == 0) {
            r->file = e;
        } else if (e->first < r->ends[e->layer]) {
            const size_t end = r->ends[e->layer];
            if (filled[e->layer] < end)
                found = add_record(r, e, end);
            r->ends[e->layer] = e->first;
        }
    }
    for (size_t i = 0; i < layers; i++)
        missing = missing || filled[i] < r->ends[i];
    r->file = missing ? r->file : NULL;
    return found;
}

static void free_reading(struct reading *r)
{
    free(r->ends);
    free(r->records);
    free(r->record_ends);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool is_deleted(struct srv_store *store, const struct srv_session *session)
{
    pthread_mutex_lock(&store->lock);
    const bool deleted = session->record_state == SRV_DELETED;
    pthread_mutex_unlock(&store->lock);
    return deleted;
}

static bool has_stopped(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    const bool stop = store->stop;
    pthread_mutex_unlock(&store->lock);
    return stop;
}

static void read_wanted(struct srv_store *store, unsigned depth);

/* Between two pieces: others go first, and this thread leaves the CPU to requests.  False where
 * reading is to end. */
static bool give_way(const struct reading *r)
{
    if (r->depth < DEPTH)
        read_wanted(r->store, r->depth + 1);
    return !has_stopped(r->store) && !is_deleted(r->store, r->session);
}

static enum attn_status fail_errno(struct reading *r, const char *name)
{
    const int error = errno;
    snprintf(r->why, sizeof r->why, "%s: %s", name, strerrordesc_np(error));
    return error == ENOENT ? ATTN_MALFORMED : ATTN_IO;
}

static enum attn_status run_import(struct reading *r, struct attn_import *import,
                                   struct attn_error *cause)
{
    bool more = true;
    enum attn_status status = attn_import_begin_fill(import, r->session->cache, r->ends, cause);
    if (status == ATTN_OK && srv_notes_number(import, "epoch") != r->file->at)
        status = ATTN_MALFORMED;
    while (status == ATTN_OK && more) {
        status = attn_import_run(&more, import, PIECE, cause);
        r->store->read_bytes += PIECE;
        if (more && status == ATTN_OK && !give_way(r))
            status = ATTN_CANCELLED;
    }
    return status;
}

static enum attn_status read_file(struct reading *r)
{
    struct srv_file file;
    struct srv_file_reader reader;
    struct attn_error cause = {0};
    struct attn_import *import = NULL;
    srv_file_name(&file, SRV_FILE_SESSION, r->file->generation, r->file->at);
    if (!srv_file_reader_open(&reader, r->store->directory, file.name))
        return fail_errno(r, file.name);
    enum attn_status status = attn_import_open_file(&import, reader.fd, reader.size, &cause);
    if (status == ATTN_OK)
        status = run_import(r, import, &cause);
    attn_import_close(import);
    srv_file_reader_close(&reader);
    snprintf(r->why, sizeof r->why, "%s: %.180s", file.name, cause.message);
    return status;
}

/* Reads one record, whose head says what its extent says. */
static enum attn_status read_record(struct reading *r, size_t i, struct srv_file_reader *journal)
{
    const struct srv_extent *e = r->records[i];
    struct srv_record record;
    struct srv_record_rows head;
    if (!srv_journal_read_at(&record, journal, (size_t)e->at) ||
        record.head.type != SRV_RECORD_ROWS || record.head.length < sizeof head ||
        !srv_record_read(&head, &record, 0, sizeof head) || head.layer != e->layer ||
        head.position != e->first || head.rows != e->rows)
        return journal->error != 0 ? ATTN_IO : ATTN_MALFORMED;
    r->store->read_bytes += (size_t)record.head.length;
    return srv_restore_rows(r->session, &record, &head, &r->record_ends[i]);
}

/* Reads the records of one journal from records[i - 1] down; returns the index of the next. */
static enum attn_status read_journal(struct reading *r, size_t *i)
{
    struct srv_file file;
    struct srv_file_reader journal;
    enum attn_status status = ATTN_OK;
    const uint64_t generation = r->records[*i - 1]->generation;
    srv_file_name(&file, SRV_FILE_JOURNAL, generation, 0);
    if (!srv_file_reader_open(&journal, r->store->directory, file.name))
        return fail_errno(r, file.name);
    journal.room = WINDOW;
    while (*i > 0 && r->records[*i - 1]->generation == generation && status == ATTN_OK) {
        status = read_record(r, --*i, &journal);
        if (status == ATTN_OK && *i % 16 == 0 && !give_way(r))
            status = ATTN_CANCELLED;
    }
    snprintf(r->why, sizeof r->why, "%s: %s", file.name,
             status == ATTN_IO ? strerrordesc_np(journal.error) : "a record's rows are damaged");
    srv_file_reader_close(&journal);
    return status;
}

static enum attn_status read_session(struct reading *r, const struct srv_extent *newest)
{
    enum attn_status status = find_extents(r, newest) ? ATTN_OK : ATTN_NO_MEMORY;
    if (status == ATTN_OK && r->file != NULL)
        status = read_file(r);
    for (size_t i = r->count; i > 0 && status == ATTN_OK;)
        status = read_journal(r, &i);
    if (status == ATTN_OK && is_unread(r->session)) {
        snprintf(r->why, sizeof r->why, "its files do not have all of its tokens");
        status = ATTN_MALFORMED;
    }
    return status;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* Takes a session out of the table whose tokens are damaged.  The files stay until the next
 * snapshot, which is due at once and sets them aside. */
static void lose(struct srv_store *store, struct srv_session *session, const char *why)
{
    srv_log_event(store->context.log, SRV_LOG_ERROR, "damaged",
                  "a session is lost, its files will be set aside: %s", why);
    srv_metrics_store(store->context.metrics, SRV_FILE_DAMAGED, 1);
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_LOST, 1);
    pthread_mutex_lock(&store->lock);
    session->record_state = SRV_DELETED;
    store->keep_journals = true;
    store->owed_generation = store->generation + 1;
    pthread_mutex_unlock(&store->lock);
    srv_session_remove(store->context.sessions, session);
}

/* Ends the reading of a session: from here on requests see what became of it. */
static void end_reading(struct srv_store *store, struct srv_unread *unread,
                        enum srv_presence presence)
{
    struct srv_session *session = unread->session;
    pthread_mutex_lock(&store->lock);
    atomic_store(&session->presence, presence);
    const bool wanted = unread->wanted;
    srv_metrics_store(store->context.metrics, SRV_SESSIONS_RESTORED, presence == SRV_PRESENT);
    session->unread = NULL;
    unread->session = NULL;
    atomic_fetch_sub(&store->restoring, 1);
    if (wanted)
        atomic_store(&store->restored, true);
    pthread_mutex_unlock(&store->lock);
    srv_session_put(session);
    if (wanted)
        store->context.wake_engine_owner(store->context.callback_context);
}

/* Whether the session is to be tried again: the store stops, memory is short, or a file that may be
 * sound cannot be read now, which is logged once. */
static bool is_put_off(struct srv_store *store, struct srv_unread *unread, const struct reading *r,
                       enum attn_status status)
{
    if (status == ATTN_IO && !unread->logged)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage",
                      "a session waits until its tokens can be read: %s", r->why);
    unread->logged = unread->logged || status == ATTN_IO;
    return status == ATTN_NO_MEMORY || status == ATTN_IO || status == ATTN_NOT_FOUND ||
           (status == ATTN_CANCELLED && !is_deleted(store, r->session));
}

static void read_one(struct srv_store *store, struct srv_unread *unread, unsigned depth)
{
    struct reading r = {.store = store, .session = unread->session, .depth = depth};
    unread->reading = true;
    enum attn_status status =
        is_deleted(store, unread->session) ? ATTN_CANCELLED : read_session(&r, unread->newest);
    free_reading(&r);
    unread->reading = false;
    if (is_put_off(store, unread, &r, status))
        return;
    if (status != ATTN_OK && status != ATTN_CANCELLED)
        lose(store, unread->session, r.why);
    end_reading(store, unread,
                status == ATTN_OK          ? SRV_PRESENT
                : status == ATTN_CANCELLED ? SRV_DROPPED
                                           : SRV_LOST);
}

/* The next session for which requests wait; NULL: none. */
static struct srv_unread *take_wanted(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct srv_unread *unread = NULL;
    while (unread == NULL && store->wanted != NULL && !store->stop) {
        const bool due = store->wanted->session != NULL && !store->wanted->reading;
        unread = due ? store->wanted : NULL;
        store->wanted->listed = false;
        store->wanted = store->wanted->next_wanted;
        if (store->wanted == NULL)
            store->last_wanted = &store->wanted;
    }
    pthread_mutex_unlock(&store->lock);
    return unread;
}

static void read_wanted(struct srv_store *store, unsigned depth)
{
    for (struct srv_unread *unread; (unread = take_wanted(store)) != NULL;)
        read_one(store, unread, depth);
}

/* Reads all sessions once. */
static void read_all(struct srv_store *store)
{
    for (size_t i = 0; i < store->num_unread && !has_stopped(store); i++) {
        read_wanted(store, 0);
        if (store->unread[i].session != NULL)
            read_one(store, &store->unread[i], 0);
    }
}

void srv_store_read_tokens(struct srv_store *store)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    const uint64_t start = srv_now_ns();
    const size_t sessions = store->num_unread;
    while (atomic_load(&store->restoring) > 0 && !has_stopped(store)) {
        read_all(store);
        if (atomic_load(&store->restoring) > 0 && !has_stopped(store))
            nanosleep(&pause, NULL);
    }
    if (sessions == 0 || atomic_load(&store->restoring) > 0)
        return;
    srv_log_event(store->context.log, SRV_LOG_INFO, "read",
                  "the tokens of %zu sessions are in memory: %zu bytes in %llu ms", sessions,
                  store->read_bytes, (unsigned long long)((srv_now_ns() - start) / 1000000));
    pthread_mutex_lock(&store->lock);
    srv_store_forget_unread(store);
    pthread_mutex_unlock(&store->lock);
}
