/* marks.c: notes of records, in two intervals.
 *
 * A mark ends an interval where that has grown to SRV_MARK_BYTES; the notes of the interval before
 * it are dropped then. */
#include "store/marks.h"

#include <stdlib.h>
#include <string.h>

void srv_marks_fini(struct srv_marks *marks)
{
    free(marks->notes);
    *marks = (struct srv_marks){0};
}

/* Drops all notes: marks list what follows. */
static void restart(struct srv_marks *marks, struct srv_place place)
{
    free(marks->notes);
    *marks = (struct srv_marks){.since = place, .next_since = place};
}

void srv_marks_note(struct srv_marks *marks, const struct srv_mark_note *note,
                    struct srv_place next)
{
    if (marks->count == marks->capacity) {
        size_t capacity = 2 * marks->capacity + 64;
        struct srv_mark_note *more = realloc(marks->notes, capacity * sizeof *more);
        if (more == NULL) {
            restart(marks, next);
            return;
        }
        marks->notes = more;
        marks->capacity = capacity;
    }
    marks->notes[marks->count++] = *note;
}

/* By session, and of one session in the order of its records. */
static int by_epoch(const void *a, const void *b)
{
    const struct srv_mark_note *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->next_record > y->next_record) - (x->next_record < y->next_record);
}

struct srv_mark_note *srv_marks_list(size_t *count, struct srv_marks *marks, struct srv_place here)
{
    struct srv_mark_note *list = malloc((marks->count + 1) * sizeof *list);
    size_t found = 0;
    *count = 0;
    if (list == NULL) {
        restart(marks, here);
        return NULL;
    }
    for (size_t i = 0; i < marks->count; i++)
        list[i] = marks->notes[i];
    qsort(list, marks->count, sizeof *list, by_epoch);
    for (size_t i = 0; i < marks->count; i++)
        if (i + 1 == marks->count || list[i + 1].epoch != list[i].epoch)
            list[found++] = list[i];
    *count = found;
    return list;
}

/* Begins a new interval with the mark, which lists the first `marked` notes. */
static void slide(struct srv_marks *marks, struct srv_place mark)
{
    size_t dropped = marks->older;
    marks->count -= dropped;
    if (marks->count > 0) /* else there may be no list */
        memmove(marks->notes, marks->notes + dropped, marks->count * sizeof *marks->notes);
    marks->marked -= dropped;
    marks->older = marks->marked;
    marks->since = marks->next_since;
    marks->next_since = mark;
    marks->bytes = 0;
}

void srv_marks_commit(struct srv_marks *marks, uint64_t bytes, struct srv_place mark)
{
    if (bytes == 0) {
        marks->count = marks->whole < marks->count ? marks->whole : marks->count;
        return;
    }
    if (mark.generation != 0) {
        marks->marked = marks->whole;
        if (marks->bytes >= SRV_MARK_BYTES || marks->since.generation == 0)
            slide(marks, mark);
        marks->unmarked = 0;
    }
    marks->bytes += bytes;
    marks->unmarked += bytes;
    marks->whole = marks->count;
}
