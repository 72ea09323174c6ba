/* restore_gap.c: what missing records cost.
 *
 * A record that is missing may be of any session, so that after a gap every session is unproven.
 * The next record of a session proves it, since it has the number that the session expects, or
 * shows that one is missing.  Sessions without a record are proven by the first mark that lists all
 * changes since the gap: a session that the mark does not list has none.  What is unproven at the
 * end is lost. */
#include "store/restore.h"

#define NOTES 256 /* of a mark that are read at a time */

/* ---- Gaps ------------------------------------------------------------------------------------ */

static bool is_before(struct srv_place a, struct srv_place b)
{
    return a.generation < b.generation || (a.generation == b.generation && a.sequence < b.sequence);
}

static void note_gap(struct srv_restore *restore, struct srv_place place)
{
    if (restore->gap.generation == 0 || is_before(place, restore->gap))
        restore->gap = place;
}

void srv_restore_open_gap(struct srv_restore *restore, struct srv_place place)
{
    note_gap(restore, place);
    for (size_t i = 0; i < restore->capacity; i++)
        restore->entries[i].unproven = restore->entries[i].session != NULL;
}

enum srv_restore_status srv_restore_skip_gap(struct srv_restore *restore, struct srv_place place,
                                             const struct srv_record *record, uint64_t missing)
{
    if (missing != 1) {
        srv_restore_open_gap(restore, place);
        return SRV_RESTORE_OK;
    }
    if (record->head.previous == 0) /* a mark, which is of no session */
        return SRV_RESTORE_OK;
    struct srv_restored_session *entry = srv_restore_entry(restore, record->head.previous);
    if (entry == NULL)
        return SRV_RESTORE_FULL;
    note_gap(restore, place);
    entry->lost = entry->session == NULL;
    entry->unproven = !entry->lost;
    return SRV_RESTORE_OK;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

bool srv_restore_read_mark(struct srv_record_mark *out, const struct srv_record *record)
{
    const size_t each = sizeof(struct srv_mark_note);
    return record->head.type == SRV_RECORD_MARK && record->head.length >= sizeof *out &&
           srv_record_read(out, record, 0, sizeof *out) &&
           (record->head.length - sizeof *out) % each == 0 &&
           (record->head.length - sizeof *out) / each == out->count;
}

bool srv_restore_misses(const struct srv_restore *restore, const struct srv_record_mark *mark)
{
    return mark->previous.generation != 0 &&
           mark->previous.generation >= restore->base_generation &&
           is_before(restore->end, mark->previous);
}

/* Compares a session with what a mark says of it. */
static enum srv_restore_status compare(struct srv_restore *restore,
                                       const struct srv_mark_note *note, uint64_t generation)
{
    struct srv_restored_session *entry = srv_restore_find(restore, note->epoch);
    if (note->next_record == SRV_MARK_DELETED) {
        if (entry != NULL)
            srv_restore_forget(entry);
        return SRV_RESTORE_OK;
    }
    if (entry == NULL && note->epoch != 0) { /* made in the gap */
        entry = srv_restore_entry(restore, note->epoch);
        if (entry == NULL)
            return SRV_RESTORE_FULL;
        entry->lost = true;
    }
    if (entry == NULL || entry->session == NULL || entry->lost)
        return SRV_RESTORE_OK;
    bool newer = entry->generation > generation; /* than the mark */
    if (entry->session->next_record == note->next_record ||
        (newer && entry->session->next_record > note->next_record))
        entry->unproven = false;
    else
        srv_restore_mark_lost(restore, entry);
    return SRV_RESTORE_OK;
}

/* Sessions that the mark does not list have no record in the gap; where it lists all that there
 * are, they have been deleted. */
static void clear_unlisted(struct srv_restore *restore, bool all_listed)
{
    for (size_t i = 0; i < restore->capacity; i++) {
        struct srv_restored_session *entry = &restore->entries[i];
        if (entry->unproven && all_listed && !entry->lost)
            srv_restore_forget(entry);
        entry->unproven = false;
    }
}

enum srv_restore_status srv_restore_apply_mark(struct srv_restore *restore,
                                               const struct srv_record *record,
                                               const struct srv_record_mark *mark,
                                               uint64_t generation)
{
    struct srv_mark_note notes[NOTES];
    enum srv_restore_status result = SRV_RESTORE_OK;
    srv_restore_note_time(restore, mark->time_ns);
    if (srv_restore_misses(restore, mark)) {
        const struct srv_place first = {1, 1};
        srv_restore_open_gap(restore, restore->end.generation != 0 ? restore->end : first);
        restore->end = mark->previous;
    }
    if (restore->gap.generation == 0 || is_before(restore->gap, mark->since))
        return SRV_RESTORE_OK;
    size_t count = (size_t)mark->count, n;
    for (size_t i = 0; i < count && result == SRV_RESTORE_OK; i += n) {
        n = count - i < NOTES ? count - i : NOTES;
        if (!srv_record_read(notes, record, sizeof *mark + i * sizeof *notes, n * sizeof *notes))
            return SRV_RESTORE_OK; /* the reader has the error */
        for (size_t k = 0; k < n && result == SRV_RESTORE_OK; k++)
            result = compare(restore, &notes[k], generation);
    }
    if (result == SRV_RESTORE_OK)
        clear_unlisted(restore, mark->since.generation == 0);
    restore->gap = (struct srv_place){0};
    return result;
}
