/* serve.h: the main thread's work from the moment the daemon is ready until its requests have
 * ended.
 *
 *   ready      all is served
 *   lame duck  all is served, and /readyz is 503: who sends requests here has time to see it
 *   draining   no connection is accepted, new requests are refused, running ones end */
#ifndef SRV_SERVE_H
#define SRV_SERVE_H

#include <signal.h>

#include "app.h"

/* How the daemon was asked to stop. */
struct srv_stop {
    uint64_t asked_ns; /* when, of srv_now_ns; 0: it was not */
    bool signalled;    /* by a signal: a further one ends the process at once */
};

/* Waits for `signals` (SIGTERM, SIGINT, SIGHUP, SRV_DRAIN_SIGNAL, all blocked in all threads) until
 * it is time to drain: SIGHUP reads keys and certificate again; SIGTERM and POST /admin/drain make
 * a lame duck of the daemon for `lame_duck_s`; SIGINT does not wait for that.  A second SIGTERM or
 * SIGINT ends the process, with status 1. */
void srv_serve(struct srv_stop *stop, struct srv_app *app, const sigset_t *signals);

/* Takes no new requests and lets the running ones finish, within `drain_timeout_s`. */
void srv_drain(struct srv_app *app, const struct srv_stop *stop);

/* Logs, as the last of all, how long the end took. */
void srv_log_stopped(struct srv_app *app, const struct srv_stop *stop);

#endif
