/* watch.h: whether a request left a trace in two sessions that must stay equal, the list of all
 * sessions, or the daemon's gauges.
 *
 * The sessions `witness` and `twin` get the same rows.  The twin's next step is done before a
 * request, the witness's after it: both must have the same bits, at the same position. */
#ifndef TESTS_CATALOGUE_WATCH_H
#define TESTS_CATALOGUE_WATCH_H

#include "client.h"

struct watch {
    const struct daemon *daemon;
    struct daemon front; /* where steps are sent: the daemon, or a proxy in front of it */
    struct client steps, looks;
    bool proxied;
    unsigned row; /* the next one */
    /* Values before the request. */
    struct answer twin;
    json_t *sessions;
    double gauges[4], cpu_s;
};

/* `port`: of the proxy in front of the daemon, 0 for none. */
void watch_open(struct watch *watch, const struct daemon *daemon, unsigned port);
void watch_close(struct watch *watch);

void watch_before(struct watch *watch);

/* False, with one line in `wrong`, where there is a trace.  `stepped`: the proxy made one good step
 * of the witness out of the request, which is checked and truncated again. */
bool watch_after(char wrong[600], struct watch *watch, bool stepped);

#endif
