/* steps.h: the requests that faults are injected into, and what right answers to them are. */
#ifndef TESTS_FAULT_STEPS_H
#define TESTS_FAULT_STEPS_H

#include "client.h"
#include "text.h"

#define STEPS_MAX 64

/* What the sessions are. */
struct step_state {
    json_t *sessions;
    char *bits; /* of the next decode of `work`, NULL where there is none */
};

struct step {
    char name[48];
    const char *method, *path;
    struct text body;
    char header[2][64]; /* "" where there is none */
    bool loose;         /* only the status of answers is compared */
    bool forks;         /* works on `work`, a fork of `base` */
    /* What a run without faults gives. */
    struct answer answer;
    struct step_state before, after;
};

struct steps {
    struct step items[STEPS_MAX];
    size_t count;
    char *witness; /* the bits of the next decode of `base` */
};

/* Makes the sessions `base` and `formed`, and the steps with their right answers. */
void steps_open(struct steps *steps, struct client *client);
void steps_close(struct steps *steps);

/* step_prepare makes the fork that the step needs; step_clean deletes what steps left. */
void step_prepare(const struct step *step, struct client *client);
void step_clean(struct client *client);

/* Sends the step over a connection of its own; false where no answer came. */
bool step_send(struct answer *out, const struct step *step, const struct client *client);

/* Whether an answer is the right one, apart from what differs each time. */
bool step_right(const struct step *step, const struct answer *answer);

/* Whether the sessions, and the next decode of the session that the step works on, are what they
 * must be before or after it; where not, `wrong` gets one line. */
bool step_state(char wrong[600], const struct step_state *state, struct client *client);

/* Whether an answer is an error that a fault may have. */
bool steps_refused(const struct answer *answer);

/* The bits of the next decode of a session. */
char *steps_bits(struct client *client, const char *id);

#endif
