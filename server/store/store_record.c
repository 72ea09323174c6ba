/* store_record.c: batches of records on their way into the journal.
 *
 * Each batch begins with what is not of its caller: a mark where one is due, and the deletions that
 * were deferred.  The first batch of a journal begins with a mark, which says where the journal
 * before ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store_internal.h"

/* ---- Deletions ------------------------------------------------------------------------------- */

/* Adds epochs to a list; false where memory is short. */
static bool add_epochs(struct srv_epochs *list, const uint64_t epochs[], size_t count)
{
    if (count > list->capacity - list->count) {
        size_t capacity = 2 * list->capacity + count + 8;
        uint64_t *more = realloc(list->items, capacity * sizeof *more);
        if (more == NULL)
            return false;
        list->items = more;
        list->capacity = capacity;
    }
    memcpy(list->items + list->count, epochs, count * sizeof *epochs);
    list->count += count;
    return true;
}

/* The list is bounded: its sessions have ended since the last record, and each was in the table or
 * in the files at some time since then. */
void srv_store_defer_deletion(struct srv_store *store, uint64_t epoch)
{
    if (srv_store_journals(store) && !add_epochs(&store->deferred, &epoch, 1))
        store->owed_generation = store->generation + 1; /* its base omits the session */
}

void srv_store_begin(struct srv_store *store)
{
    pthread_mutex_lock(&store->records);
    atomic_store(&store->batch_ns, srv_now_ns());
    pthread_mutex_lock(&store->lock);
    if (store->deferred.count > 0 &&
        add_epochs(&store->deletions, store->deferred.items, store->deferred.count))
        store->deferred.count = 0;
    pthread_mutex_unlock(&store->lock);
}

void srv_store_end(struct srv_store *store)
{
    atomic_store(&store->batch_ns, 0);
    pthread_mutex_unlock(&store->records);
}

size_t srv_store_waited_s(struct srv_store *store)
{
    const uint64_t now = srv_now_ns(), batch = atomic_load(&store->batch_ns);
    const uint64_t flush = atomic_load(&store->flush_ns);
    const uint64_t since = batch != 0 && (flush == 0 || batch < flush) ? batch : flush;
    return since != 0 && since < now ? (now - since) / SRV_S_NS : 0;
}

/* ---- Records --------------------------------------------------------------------------------- */

static struct srv_place place_of(const struct srv_journal *journal)
{
    return (struct srv_place){journal->generation, journal->sequence};
}

static void add_record(struct srv_store *store, struct srv_record_head *head, uint64_t next_record,
                       const struct srv_record_part parts[], size_t count)
{
    store->last_change = store->journal.sequence;
    srv_journal_add(&store->journal, head, parts, count);
    srv_marks_note(&store->marks, &(struct srv_mark_note){head->epoch, next_record},
                   place_of(&store->journal));
}

static void add_mark(struct srv_store *store)
{
    struct srv_record_head head = {.type = SRV_RECORD_MARK};
    size_t count;
    store->mark = place_of(&store->journal);
    struct srv_mark_note *notes = srv_marks_list(&count, &store->marks, store->mark);
    const struct srv_record_mark mark = {
        .time_ns = srv_sessions_clock(store->context.sessions, store->context.index),
        .since = store->marks.since,
        .previous = store->previous,
        .count = count};
    const struct srv_record_part parts[] = {{&mark, sizeof mark}, {notes, count * sizeof *notes}};
    srv_journal_add(&store->journal, &head, parts, count > 0 ? 2 : 1);
    free(notes);
}

/* The heads of deletions need no `chain`: a replay applies the record of a deletion whatever its
 * number is. */
static void begin_batch(struct srv_store *store, bool mark)
{
    if (store->batch_begun)
        return;
    store->batch_begun = true;
    if (mark || store->journal.sequence == 1 || store->marks.unmarked >= SRV_MARK_BYTES)
        add_mark(store);
    for (size_t i = 0; i < store->deletions.count; i++) {
        struct srv_record_head head = {.type = SRV_RECORD_DELETE,
                                       .epoch = store->deletions.items[i]};
        add_record(store, &head, SRV_MARK_DELETED, NULL, 0);
    }
}

void srv_store_add(struct srv_store *store, const struct srv_session *session,
                   enum srv_record_type type, uint64_t chain, const struct srv_record_part parts[],
                   size_t count)
{
    struct srv_record_head head = {.type = (uint16_t)type, .epoch = session->epoch, .chain = chain};
    begin_batch(store, false);
    add_record(store, &head, type == SRV_RECORD_DELETE ? SRV_MARK_DELETED : chain + 1, parts,
               count);
}

/* ---- Flushing -------------------------------------------------------------------------------- */

void srv_store_note_journal(struct srv_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->current_bytes = store->journal.fd >= 0 ? store->journal.length : 0;
    store->broken = store->journal.broken != 0;
    store->gone = store->journal.gone;
    if (store->broken)
        pthread_cond_broadcast(&store->wake); /* a new journal is due */
    pthread_mutex_unlock(&store->lock);
}

/* With `always`: what the journal before was not flushed for goes to the disk before anything of
 * this one. */
static void sync_older(struct srv_store *store)
{
    if (store->journal.older_synced || store->old.fd < 0 || store->old.broken)
        return;
    if (fdatasync(store->old.fd) == 0)
        store->journal.older_synced = store->old.older_synced;
    else { /* a second fdatasync would succeed, and say nothing of what the first has lost */
        store->journal.error = store->old.broken = errno;
    }
}

/* Writes the batch; 0 or an errno. */
static int write_batch(struct srv_store *store, bool sync)
{
    uint64_t before = store->journal.length;
    uint64_t stated = store->journal.older_synced ? store->journal.synced : 0;
    if (sync)
        sync_older(store);
    int wrong = srv_journal_flush(&store->journal, sync);
    uint64_t bytes = wrong == 0 ? store->journal.length - before : 0;
    if (wrong == 0 && store->batch_begun) {
        store->deletions.count = 0;
        store->stated = stated;
    }
    srv_marks_commit(&store->marks, bytes, store->mark);
    if (bytes > 0 && store->mark.generation != 0)
        store->mark_ns = srv_now_ns();
    store->mark = (struct srv_place){0};
    store->batch_begun = false;
    store->unsynced = store->unsynced || bytes > 0;
    srv_metrics_store(store->context.metrics, SRV_JOURNAL_BYTES, (size_t)bytes);
    srv_store_note_journal(store);
    return wrong;
}

enum srv_error_code srv_store_flush(struct srv_store *store, struct srv_error *error)
{
    int wrong = write_batch(store, store->context.fsync == SRV_FSYNC_ALWAYS);
    if (wrong == 0)
        return SRV_OK;
    srv_metrics_store(store->context.metrics, SRV_JOURNAL_REFUSED, 1);
    return srv_fail(error, SRV_E_STORAGE, NULL, "the journal cannot be written: %s",
                    strerrordesc_np(wrong));
}

/* ---- What no request records ----------------------------------------------------------------- */

/* Whether a mark is due, beside those that come with batches: there are changes that no mark lists,
 * or that are on the disk and no record says so, or the time is to be recorded.  An empty journal
 * that a snapshot may begin with again is left empty. */
static bool is_mark_due(const struct srv_store *store, bool keep_empty)
{
    const struct srv_marks *marks = &store->marks;
    const struct srv_journal *journal = &store->journal;
    if (keep_empty && journal->sequence == 1)
        return false;
    bool untold = journal->older_synced && journal->synced > store->last_change &&
                  store->stated <= store->last_change && store->last_change > 0;
    return marks->whole > marks->marked || untold ||
           (srv_now_ns() - store->mark_ns >= SRV_MARK_NS &&
            srv_sessions_count(store->context.sessions) > 0);
}

void srv_store_record_rest(struct srv_store *store, bool at_end)
{
    srv_store_begin(store);
    pthread_mutex_lock(&store->lock);
    bool keep_empty = store->running || atomic_load(&store->last_snapshot_failed);
    pthread_mutex_unlock(&store->lock);
    bool usable = store->journal.fd >= 0 && !store->journal.broken;
    bool mark = is_mark_due(store, keep_empty) ||
                (at_end && srv_sessions_count(store->context.sessions) > 0);
    if (usable && (mark || store->deletions.count > 0)) {
        begin_batch(store, mark);
        (void)write_batch(store, false); /* tried again a second later */
    }
    srv_store_end(store);
}
