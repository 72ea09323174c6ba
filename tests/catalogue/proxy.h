/* proxy.h: HAProxy in front of a daemon. */
#ifndef TESTS_CATALOGUE_PROXY_H
#define TESTS_CATALOGUE_PROXY_H

#include "daemon.h"

struct proxy {
    struct process process;
    unsigned port;
};

/* Starts the program that HAPROXY names (default /usr/sbin/haproxy) with haproxy.cfg; it serves
 * when this returns. */
void proxy_start(struct proxy *proxy, const struct daemon *daemon);
void proxy_stop(struct proxy *proxy);

/* Ends HAProxy when it has finished its requests; returns its log, a line for each request, the
 * caller's to free. */
char *proxy_drain(struct proxy *proxy);

#endif
