/* serve.h: the main thread's work from the moment the daemon is ready until its requests have
 * ended. */
#ifndef SRV_SERVE_H
#define SRV_SERVE_H

#include <signal.h>

#include "app.h"

/* Reads keys and certificate again on SIGHUP, until a stopping signal of `signals` comes.  The set
 * is blocked in all threads. */
void srv_serve(struct srv_app *app, const sigset_t *signals);

/* Takes no new requests and lets the running ones finish, within `drain_timeout_s`. */
void srv_drain(struct srv_app *app);

#endif
