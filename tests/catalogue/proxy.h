/* proxy.h: HAProxy before a daemon. */
#ifndef TESTS_CATALOGUE_PROXY_H
#define TESTS_CATALOGUE_PROXY_H

#include "daemon.h"

struct proxy {
    struct process process;
    unsigned port;
};

/* Starts the program named by HAPROXY (default: found in PATH or /usr/sbin) with haproxy.cfg; it
 * serves when this returns. */
void proxy_start(struct proxy *proxy, const struct daemon *daemon);
void proxy_stop(struct proxy *proxy);

#endif
