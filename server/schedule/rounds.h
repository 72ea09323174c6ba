/* rounds.h: what a round of the scheduler consists of: reading, batches of steps, long
 * computations, pieces, replies.
 *
 * Whoever drives (scheduler.c says who) calls these; nothing here locks.  Items and jobs wait in
 * lines (lines.h); of a session's items only the first does, and the others behind it. */
#ifndef SRV_ROUNDS_H
#define SRV_ROUNDS_H

#include "schedule/admission.h"
#include "schedule/clerk.h"
#include "schedule/job.h"

struct srv_rounds {
    struct srv_app *app;
    struct srv_admission admission;
    struct srv_clerk *clerk;    /* reads large bodies and writes large replies */
    struct srv_request **ended; /* [most requests at a time] to be replied to */
    size_t num_ended;
    struct srv_lines lines;
    struct attn_yield yield;  /* of long computations */
    struct srv_item *prefill; /* that runs, whose session nobody may change; or NULL */
    const struct srv_request *long_request; /* whose long computation runs; or NULL */
    struct srv_error stopped;               /* why it is to stop; SRV_OK: it goes on */
    bool more;                              /* short items were left over when it paused */
};

/* Makes the lists empty and room for `capacity` requests; false where memory is short. */
bool srv_rounds_init(struct srv_rounds *rounds, struct srv_app *app, size_t capacity);
void srv_rounds_fini(struct srv_rounds *rounds);

/* Reads bodies, `bytes` in all, on as many threads as pay, and queues what they ask for. */
void srv_rounds_read(struct srv_rounds *rounds, struct srv_request *requests[], size_t count,
                     size_t bytes);

/* Runs a batch of waiting steps of one layer: short ones, or one that is long.  False where none
 * wait. */
bool srv_rounds_batch(struct srv_rounds *rounds, bool want_long);
void srv_rounds_attend(struct srv_rounds *rounds); /* one attention over given rows, if any waits */
void srv_rounds_piece(struct srv_rounds *rounds); /* a piece of an export or import, if any waits */

/* Between two pieces of a long computation: false, with `stopped` set, where it has nobody to go on
 * for. */
bool srv_rounds_go_on(struct srv_rounds *rounds);

/* Ends all that nobody waits for any more, wherever it stands in line, or behind a step of its
 * session. */
void srv_rounds_sweep(struct srv_rounds *rounds);

/* Writes the replies of what has ended and hands them back. */
void srv_rounds_reply(struct srv_rounds *rounds);

/* Refuses, with `draining`, all that has not been computed, and `requests` that have not been
 * read. */
void srv_rounds_refuse(struct srv_rounds *rounds, struct srv_request *requests[], size_t count);

/* On a clerk's thread: writes a piece of a large reply, true while there is more, and hands it
 * back. */
bool srv_rounds_write(struct srv_rounds *rounds, struct srv_request *request);

/* The error of what is refused or stopped because the daemon ends. */
void srv_rounds_fail_draining(struct srv_error *error);

bool srv_rounds_waiting(const struct srv_rounds *rounds);

/* Whether short steps wait that a pause may run. */
bool srv_rounds_have_short(const struct srv_rounds *rounds);

/* Whether what waits is over before another thread would have woken. */
bool srv_rounds_are_small(struct srv_rounds *rounds);

#endif
