/* state_edit.h: edits a session's exported state as an entry's lines `state` say. */
#ifndef TESTS_CATALOGUE_STATE_EDIT_H
#define TESTS_CATALOGUE_STATE_EDIT_H

#include "entries.h"

/* Appends `state` after these edits, in the order of the lines:
 *
 *     as is             nothing
 *     cut N             the first N bytes only; -N: without the last N
 *     flip N            bit N of the tensors' bytes
 *     header OLD => NEW the first OLD in the header becomes NEW; the header's length is adapted
 *     length N          the bytes that say the header's length become N
 *     data TEXT         TEXT replaces the first of the tensors' bytes
 *     append TEXT       TEXT is added at the end
 *     sum               the checksum is made right again */
void state_edit(struct text *out, const struct catalogue *catalogue, const struct entry *entry,
                const struct text *state);

#endif
