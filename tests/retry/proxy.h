/* proxy.h: a proxy between clients and a daemon that loses replies and duplicates requests.
 *
 * Of each 20 requests, about one reaches the daemon and loses its reply: the connection is closed,
 * half of the time within the reply.  About one more reaches the daemon twice: one after the other,
 * or on two connections at once.  Clients say in X-Request-Id what to expect of the replies. */
#ifndef TESTS_RETRY_PROXY_H
#define TESTS_RETRY_PROXY_H

#include <stdio.h>

#include "daemon.h"

#define PROXY_CALLERS 8

/* X-Request-Id has four numbers: the caller, below PROXY_CALLERS; the number of its request, from 1
 * and ascending, the same for a retry; how many `replayed` the reply has where the daemon had the
 * request before; and how many where it had not. */
#define PROXY_ID "%u-%zu-%zu-%zu"

struct proxy_figures {
    size_t requests, dropped, doubled;
    size_t expected, replayed; /* items of the daemon's replies that had to be replays; that were */
};

/* Listens on a port of its own and starts to serve; *through is the daemon as clients reach it. */
void proxy_open(struct daemon *through, const struct daemon *daemon);

/* Waits until all connections have ended; returns the counts. */
struct proxy_figures proxy_close(void);

#endif
