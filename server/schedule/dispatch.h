/* dispatch.h: what a round of the scheduler consists of: reading, batches of steps, long
 * computations, pieces, replies.
 *
 * Whoever drives (scheduler.c says who) calls these; nothing here locks.  Items and jobs wait in
 * lines (lines.h); of a session's items only the first does, and the others behind it. */
#ifndef SRV_DISPATCH_H
#define SRV_DISPATCH_H

#include "schedule/admission.h"
#include "schedule/io_workers.h"
#include "schedule/job.h"

struct srv_dispatch {
    struct srv_app *app;
    struct srv_admission admission;
    struct srv_io_workers *clerk; /* reads large bodies and writes large replies */
    struct srv_request **ended;   /* [most requests at a time] to be replied to */
    size_t num_ended;
    struct srv_fair_queue lines;
    struct attn_yield yield;  /* of long computations */
    struct srv_item *prefill; /* that runs, whose session nobody may change; or NULL */
    const struct srv_request *long_request; /* whose long computation runs; or NULL */
    struct srv_error stopped;               /* why it is to stop; SRV_OK: it goes on */
    bool more;                              /* short items were left over when it paused */
};

/* Makes the lists empty and room for `capacity` requests; false where memory is short. */
bool srv_dispatch_init(struct srv_dispatch *rounds, struct srv_app *app, size_t capacity);
void srv_dispatch_fini(struct srv_dispatch *rounds);

/* Reads bodies, `bytes` in all, on as many threads as pay, and queues what they ask for. */
void srv_dispatch_read(struct srv_dispatch *rounds, struct srv_request *requests[], size_t count,
                       size_t bytes);

/* Runs a batch of waiting steps of one layer: short ones, or one that is long.  False where none
 * wait. */
bool srv_dispatch_batch(struct srv_dispatch *rounds, bool want_long);
void srv_dispatch_attend(
    struct srv_dispatch *rounds); /* one attention over given rows, if any waits */
void srv_dispatch_piece(
    struct srv_dispatch *rounds); /* a piece of an export or import, if any waits */

/* Between two pieces of a long computation: false, with `stopped` set, where it has nobody to go on
 * for. */
bool srv_dispatch_check_long(struct srv_dispatch *rounds);

/* Ends all that nobody waits for any more, wherever it stands in line, or behind a step of its
 * session. */
void srv_dispatch_drop_cancelled(struct srv_dispatch *rounds);

/* Writes the replies of what has ended and hands them back. */
void srv_dispatch_reply(struct srv_dispatch *rounds);

/* Refuses, with `draining`, all that has not been computed, and `requests` that have not been
 * read. */
void srv_dispatch_refuse(struct srv_dispatch *rounds, struct srv_request *requests[], size_t count);

/* On a clerk's thread: writes a piece of a large reply, true while there is more, and hands it
 * back. */
bool srv_dispatch_write_piece(struct srv_dispatch *rounds, struct srv_request *request);

/* The error of what is refused or stopped because the daemon ends. */
void srv_dispatch_fail_draining(struct srv_error *error);

bool srv_dispatch_has_work(const struct srv_dispatch *rounds);

/* Whether short steps wait that a pause may run. */
bool srv_dispatch_has_short_steps(const struct srv_dispatch *rounds);

/* Whether what waits is over before another thread would have woken. */
bool srv_dispatch_is_small(struct srv_dispatch *rounds);

#endif
