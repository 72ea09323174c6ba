/* proxy.h: a proxy between clients and a daemon that loses replies and doubles requests.
 *
 * Of each 20 requests about one reaches the daemon and its reply is lost: the connection ends, half
 * of the time within the reply.  One more reaches the daemon twice: one after the other, or on two
 * connections at once.  What clients send says in X-Request-Id what to expect of the replies. */
#ifndef TESTS_RETRY_PROXY_H
#define TESTS_RETRY_PROXY_H

#include <stdio.h>

#include "daemon.h"

#define PROXY_CALLERS 8

/* X-Request-Id: the caller, below PROXY_CALLERS, the number of its request, from 1 and ascending,
 * the same for one that is repeated; how many `replayed` its reply has where the daemon had the
 * request before; and how many where it had not. */
#define PROXY_ID "%u-%zu-%zu-%zu"

struct proxy_figures {
    size_t requests, dropped, doubled;
    size_t expected, replayed; /* items of replies of the daemon: to be replays; that were */
};

/* Listens on a port of its own and starts to serve; *through is the daemon as clients reach it. */
void proxy_open(struct daemon *through, const struct daemon *daemon);

/* Waits until all connections have ended. */
struct proxy_figures proxy_close(void);

#endif
