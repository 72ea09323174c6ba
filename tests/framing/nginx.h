/* nginx.h: nginx in front of a daemon. */
#ifndef TESTS_FRAMING_NGINX_H
#define TESTS_FRAMING_NGINX_H

#include "daemon.h"

struct nginx {
    struct process process;
    char directory[64];
    unsigned ports[2]; /* bodies are gathered; bodies are passed on as they come */
};

/* Starts the program that NGINX_PROGRAM names (default /usr/sbin/nginx) with nginx.conf; it serves
 * when this returns. */
void nginx_start(struct nginx *nginx, const struct daemon *daemon);

/* Ends nginx when it has finished its requests; returns the lines of its log, the caller's to
 * free. */
char *nginx_stop(struct nginx *nginx);

#endif
