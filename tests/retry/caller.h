/* caller.h: callers, their sessions, and asking until there is an answer. */
#ifndef TESTS_RETRY_CALLER_H
#define TESTS_RETRY_CALLER_H

#include "calls.h"
#include "mirror.h"

#define SESSIONS 6 /* of each caller */
#define LONG 120   /* tokens of a layer after which a session is deleted */

struct session {
    struct mirror mirror;
    unsigned seeds[MIRROR_LAYERS][2 * LONG]; /* of the rows that it has */
    bool broken; /* an answer was one that its caller cannot explain: it goes on with another */
};

struct caller {
    unsigned number, random, rows;
    size_t requests;
    struct client client, direct; /* through the proxy; past the proxy */
    struct session sessions[SESSIONS];
    size_t decodes, retries, wrong, compared[MIRROR_KINDS], differing, encoders, names;
    size_t held_rows, copied, cut; /* rows that sessions had at their end; of forks; truncated */
    size_t truncated, forked;      /* requests */
    size_t explained, unexplained; /* refusals */
    size_t swept;                  /* sessions that a late start or fork had made, deleted */
};

/* Whether requests name the revision that their caller knows. */
extern bool caller_sends_revisions;

unsigned caller_draw(struct caller *caller, unsigned n);

struct call {
    const char *method, *path, *json; /* json NULL: no body */
    const char *idempotency_key;      /* or NULL */
    size_t again,
        first; /* replays in the answer: where the daemon had the request before, or not */
};

/* Sends the call, one of /decode as JSON or in binary form, until an answer comes, in either
 * form. */
struct answer caller_ask(struct caller *caller, const struct call *call);

/* Writes what is known of the session as members of a body, after a comma. */
void caller_write_known(char out[80], const struct mirror *mirror);

/* Counts a refusal that nothing explains, and has the session given up. */
void caller_break(struct caller *caller, struct session *session, const char *what,
                  const struct answer *answer);

/* Steps a layer of the session. */
void caller_step(struct caller *caller, struct session *session, size_t layer);

/* Applies an answered step, or one of its items, and counts an answer that differs from the
 * mirror's. */
void caller_take_step(struct caller *caller, struct session *session, size_t layer,
                      const json_t *answer);

/* The next row of a layer as a step, and its seed, which the session notes. */
void caller_write_step(struct text *body, struct caller *caller, struct session *session,
                       size_t layer);

/* Ends the session: the daemon has none of its id, or one that it never knew of. */
void caller_delete(struct caller *caller, struct session *session);

/* Compares the session with its twin and with the mirror, and deletes it (twin.c). */
void caller_compare(struct caller *caller, struct session *session);

#endif
