/* signals.h: which signals the daemon takes, and how. */
#ifndef SRV_SIGNALS_H
#define SRV_SIGNALS_H

#include <signal.h>

/* Blocks the signals that serving waits for, in this thread and in those that it starts, so that
 * the main thread takes them (serve.c): SIGTERM, SIGINT and SIGQUIT stop the daemon, SIGHUP
 * reloads, SRV_DRAIN_SIGNAL tells of POST /admin/drain. */
void srv_signals_hold(void);
sigset_t srv_signals_served(void);

/* Ignores the signals that would end the process without its last snapshot and mean nothing to it;
 * a file that may not grow (SIGXFSZ) fails its write instead. */
void srv_signals_ignore(void);

/* From now on a signal that stops the daemon ends the process at once, with this status; or, since
 * a request has asked it to drain and no signal has, the second one does. */
void srv_signals_stop_at_once(int status);
void srv_signals_expect_another(void);

#endif
