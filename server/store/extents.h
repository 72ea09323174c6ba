/* extents.h: where on the disk the tokens stand of sessions that are read later.
 *
 * A start that does not read tokens notes, for each session, its file and its ROWS records, the
 * newest first.  A fork's list goes on with that of its parent at the time, so that a fork costs
 * nothing and needs no other session to be read.  A truncation is no member: what follows it
 * begins where it ended, and tokens of older members from there on do not count. */
#ifndef SRV_EXTENTS_H
#define SRV_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_extent {
    const struct srv_extent *previous; /* the one before it; NULL: none */
    uint64_t generation;               /* of the session's file, or of the journal */
    uint64_t at;                       /* the file's epoch; the record's place in the journal */
    uint32_t layer, first, rows;       /* of the record; rows 0: a session's file */
};

#define SRV_MAX_EXTENTS ((size_t)400000) /* of all sessions: 16 MB */

/* All extents, which are freed together.  Zeroed at first. */
struct srv_extents {
    struct srv_extents_chunk *chunks;
    size_t count;
};

/* Adds a copy; NULL where memory is short or there are SRV_MAX_EXTENTS. */
const struct srv_extent *srv_extents_add(struct srv_extents *extents,
                                         const struct srv_extent *extent);
void srv_extents_fini(struct srv_extents *extents);

#endif
