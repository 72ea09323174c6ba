/* skim.h: a journal whose rows are read later.
 *
 * Rows that were flushed, as a later record says, are read later: where the disk has damaged them,
 * only their sessions are lost.  Rows after the last flush may never have been written, and then no
 * record after them counts, so those rows are verified at once. */
#ifndef SRV_SKIM_H
#define SRV_SKIM_H

#include "store/record.h"

/* Places of records, so that reading may begin again near a record.  Zeroed at first. */
struct srv_places {
    struct srv_journal_reader *items; /* [count] readers, each after another 64 records */
    size_t count, capacity;
    uint64_t synced; /* the largest one of the records */
};

/* Notes a record that was read, before the reader's place; false where memory is short. */
bool srv_places_note(struct srv_places *places, const struct srv_journal_reader *reader,
                     const struct srv_record *record);

/* Whether records up to `end` are sound, from the first one on that no later record says was on the
 * disk; `first` is a reader before all records. */
bool srv_places_tail_is_sound(const struct srv_places *places,
                              const struct srv_journal_reader *first, size_t end);

void srv_places_fini(struct srv_places *places);

#endif
