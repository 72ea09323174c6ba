/* marks.h: what the marks of a journal list (record.h).
 *
 * For each record that is written the store notes its session and the number of the session's next
 * record.  A mark lists the notes since some place in the journal, which is at least
 * SRV_MARK_BYTES before the previous mark.  So a gap of up to that length is explained by the next
 * mark that is sound.
 *
 * The notes are bounded by the records of 2 * SRV_MARK_BYTES of journal and of two writes.  Where
 * memory is short they are dropped, and marks list what comes after.  The caller serializes
 * calls. */
#ifndef SRV_MARKS_H
#define SRV_MARKS_H

#include "store/record.h"

#define SRV_MARK_BYTES ((uint64_t)256 << 10) /* of journal; beyond it a mark is due */

struct srv_marks {
    struct srv_mark_note *notes; /* [count], in the order of the records */
    size_t count, capacity;
    size_t whole;                /* notes of writes that are whole */
    size_t marked;               /* notes that the newest mark lists, or an older one */
    struct srv_place since;      /* the next mark lists sessions of records from here on */
    struct srv_place next_since; /* once the older notes are dropped */
    size_t older;                /* notes of records before next_since */
    uint64_t bytes;              /* of journal since next_since */
    uint64_t unmarked;           /* and since the newest mark */
};

void srv_marks_fini(struct srv_marks *marks);

/* Notes a record that was added before `next`. */
void srv_marks_note(struct srv_marks *marks, const struct srv_mark_note *note,
                    struct srv_place next);

/* The sessions of the notes, once each and sorted by epoch; the caller's to free.  NULL where
 * memory is short: then the notes are dropped, and the mark at `here` lists nothing. */
struct srv_mark_note *srv_marks_list(size_t *count, struct srv_marks *marks, struct srv_place here);

/* After the attempt to write a batch of so many bytes, which began with a mark at `mark`, or with
 * none (generation 0).  bytes 0: it was not written, and its notes go. */
void srv_marks_commit(struct srv_marks *marks, uint64_t bytes, struct srv_place mark);

#endif
