/* search.h: all that a search of the model can reach. */
#ifndef TESTS_STORE_MODEL_SEARCH_H
#define TESTS_STORE_MODEL_SEARCH_H

#include "model.h"

/* *starts: disks that a start read. */
struct outcome model_explore(uint64_t *starts, const struct search *search);

/* Prints the way in a line; nothing where nothing is wrong. */
void model_print(const struct outcome *outcome);

#endif
