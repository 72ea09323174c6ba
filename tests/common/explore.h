/* explore.h: every state that a model can reach from one, the nearest first.
 *
 * A model is a struct without pointers and without padding that is not zero, and a function that
 * takes each step that is possible in a state. */
#ifndef TESTS_COMMON_EXPLORE_H
#define TESTS_COMMON_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE 64
#define MAX_STATES 60000000 /* at most */

/* A step with its arguments, as the model numbers them. */
struct move {
    uint8_t step, a;
    uint16_t b;
};

struct outcome {
    uint64_t states, moves;
    const char *wrong;  /* NULL: nothing */
    unsigned num_trace; /* of the shortest way there */
    struct move trace[TRACE];
    bool full; /* the search ended early: more than MAX_STATES */
};

struct explorer;

struct explore_model {
    size_t bytes; /* of a state */
    /* Calls explore_reach for each state that one step leads to. */
    void (*expand)(struct explorer *explorer, const void *state, void *context);
    void *context;
};

/* wrong: what that step shows to be wrong, which ends the search; NULL: nothing. */
void explore_reach(struct explorer *explorer, const void *state, struct move move,
                   const char *wrong);

struct outcome explore(const struct explore_model *model, const void *first);

#endif
