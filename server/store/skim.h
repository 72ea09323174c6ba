/* skim.h: a journal whose rows are read later.
 *
 * Rows that a later record says were on the disk are passed over: what becomes of them is the
 * disk's doing, and costs the sessions that have them.  Rows after those may never have been
 * written, and then nothing after them counts, so they are read at once. */
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
