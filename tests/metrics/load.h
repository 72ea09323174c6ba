/* load.h: a little of everything at once, so that every metric of the dashboard has data. */
#ifndef TESTS_METRICS_LOAD_H
#define TESTS_METRICS_LOAD_H

#include "daemon.h"

/* Starts callers of a daemon with CONFIG_SMALL's models, which go on until load_stop. */
void load_start(const struct daemon *daemon);

/* Ends the callers, if any run; returns how many requests they sent. */
size_t load_stop(void);

#endif
