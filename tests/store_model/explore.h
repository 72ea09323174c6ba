/* explore.h: every state that a search can reach, the nearest first. */
#ifndef TESTS_STORE_MODEL_EXPLORE_H
#define TESTS_STORE_MODEL_EXPLORE_H

#include "model.h"

#define TRACE 64

struct outcome {
    uint64_t states, moves;
    uint64_t starts;    /* disks that a start read */
    const char *wrong;  /* NULL: nothing */
    unsigned num_trace; /* of the shortest way there */
    struct move trace[TRACE];
    bool full; /* the search ended early: more than MAX_STATES */
};

#define MAX_STATES 60000000

struct outcome model_explore(const struct search *search);

/* Prints the way in a line; nothing where nothing is wrong. */
void model_print(const struct outcome *outcome);

#endif
