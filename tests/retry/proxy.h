/* proxy.h: a proxy between clients and a daemon that loses, doubles, holds and reorders requests.
 *
 * Of forty requests about two reach the daemon and lose their reply: the connection is closed, half
 * of the time within the reply.  Two reach it twice: one after the other, or on two connections at
 * once.  One is lost.  Of six the proxy holds a copy: of four while the request goes on, of two
 * instead of that, so that the client has to send it again.  A copy that is held is delivered when
 * later requests of its client have been answered: before one of them, or at once with it on
 * another connection; which of the copies is drawn, so that they come in another order than they
 * were sent.  Clients say in X-Request-Id what to expect of the replies. */
#ifndef TESTS_RETRY_PROXY_H
#define TESTS_RETRY_PROXY_H

#include <stdio.h>

#include "daemon.h"

#define PROXY_CALLERS 8

/* X-Request-Id has four numbers: the caller, below PROXY_CALLERS; the number of its request, from 1
 * and ascending, the same for a retry; how many `replayed` the reply has where the daemon had the
 * request before; and how many where it had not.  PROXY_ANY: nobody knows. */
#define PROXY_ID "%u-%zu-%zu-%zu"
#define PROXY_ANY 99

struct proxy_figures {
    size_t requests, dropped, doubled;
    size_t expected, replayed; /* items of the daemon's replies that had to be replays; that were */
    size_t held, reordered;    /* copies that were delivered late; of these in another order */
    size_t begun;              /* sessions that a late start or fork has made */
    size_t applied;            /* late requests with another effect, or a reply that is none */
};

/* Listens on a port of its own and starts to serve; *through is the daemon as clients reach it. */
void proxy_open(struct daemon *through, const struct daemon *daemon);

/* Waits until all connections have ended; returns the counts, and drops what is held. */
struct proxy_figures proxy_close(void);

#endif
