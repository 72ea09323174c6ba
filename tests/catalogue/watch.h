/* watch.h: whether a request left a trace: two sessions that must stay alike, the list of all
 * sessions, and the daemon's gauges.
 *
 * The sessions `witness` and `twin` get the same rows.  The twin's next step is taken before a
 * request, the witness's behind it: it must have the same bits, at the same position. */
#ifndef TESTS_CATALOGUE_WATCH_H
#define TESTS_CATALOGUE_WATCH_H

#include "client.h"

struct watch {
    const struct daemon *daemon;
    struct daemon front; /* where steps are sent: the daemon, or a proxy before it */
    struct client steps, looks;
    bool proxied;
    unsigned row; /* that comes next */
    /* Before the request. */
    struct answer twin;
    json_t *sessions;
    double gauges[4], cpu_s;
};

/* `port` is of what stands before the daemon, 0 for nothing. */
void watch_open(struct watch *watch, const struct daemon *daemon, unsigned port);
void watch_close(struct watch *watch);

void watch_before(struct watch *watch);

/* False, with one line in `wrong`, where there is a trace.  `stepped`: the proxy made one good
 * request of what was sent, a step of the witness, which is taken back after a look at it. */
bool watch_after(char wrong[600], struct watch *watch, bool stepped);

#endif
