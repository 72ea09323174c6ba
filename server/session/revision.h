/* revision.h: which truncations a session has had.
 *
 * The network may hold a request up, its sender send another copy, and the first copy arrive after
 * later requests were answered.  So each truncation gives the session another revision.  A request
 * that names the revision its sender knows is refused once another truncation has come first, and a
 * truncation that is sent again is known by the revision before it.
 *
 * Revisions are random, not counted: none is used twice, also where a crash has lost the truncation
 * that made it. */
#ifndef SRV_REVISION_H
#define SRV_REVISION_H

#include <stdbool.h>
#include <stdint.h>

#define SRV_REVISION_MAX ((UINT64_C(1) << 52) - 1) /* as an epoch: exact in a double */

struct srv_revision {
    uint64_t number; /* 1 to SRV_REVISION_MAX; 0: not given */
    uint64_t before; /* the one before the last truncation; 0: the session has had none */
    uint64_t length; /* of that truncation */
};

/* Draws the revision of a new session (`now` NULL), or that after a truncation to `length`.  False
 * where there are no random numbers. */
bool srv_revision_draw(struct srv_revision *out, const struct srv_revision *now, uint64_t length);

/* Whether a file may say so. */
bool srv_revision_possible(const struct srv_revision *revision);

/* Whether a truncation to `length` that names `number` is the last one, sent again. */
bool srv_revision_repeats(const struct srv_revision *now, uint64_t number, uint64_t length);

#endif
