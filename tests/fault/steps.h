/* steps.h: the requests that faults are injected into, and what right answers to them are. */
#ifndef TESTS_FAULT_STEPS_H
#define TESTS_FAULT_STEPS_H

#include "client.h"
#include "text.h"

#define STEPS_MAX 64

struct step {
    char name[48];
    const char *method, *path;
    struct text body;
    char header[2][64]; /* "" where there is none */
    bool loose;         /* answers of the same status are the same */
    bool forks;         /* works on `work`, a fork of `base` */
    /* Of the right answer. */
    struct answer answer;
    json_t *sessions; /* behind it */
    char *bits;       /* of the next decode of `work`, NULL where there is none */
};

struct steps {
    struct step items[STEPS_MAX];
    size_t count;
    char *witness; /* the bits of the next decode of `base` */
};

/* Makes the sessions `base` and `formed`, and the steps with their right answers.  `durable`: POST
 * /snapshot is among them. */
void steps_open(struct steps *steps, struct client *client);
void steps_close(struct steps *steps);

/* Makes what the step needs; takes away what steps left. */
void step_prepare(const struct step *step, struct client *client);
void step_clean(struct client *client);

/* Sends it over a connection of its own; false where no answer came. */
bool step_send(struct answer *out, const struct step *step, const struct client *client);

/* Whether an answer is the right one, apart from what differs each time. */
bool step_right(const struct step *step, const struct answer *answer);

/* Whether sessions, and the next decode of the one that was worked on, are what they must be behind
 * it; one line in `wrong` where they are not. */
bool step_state(char wrong[600], const struct step *step, struct client *client);

/* Whether an answer is an error that a fault may have. */
bool steps_refused(const struct answer *answer);

/* The bits of the next decode of a session. */
char *steps_bits(struct client *client, const char *id);

#endif
