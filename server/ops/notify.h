/* notify.h: tells the service manager what the daemon does (the protocol of sd_notify(3)). */
#ifndef SRV_NOTIFY_H
#define SRV_NOTIFY_H

#include <sys/socket.h>
#include <sys/un.h>

#include "ops/log.h"

/* The states that a service manager waits for. */
enum srv_notice {
    SRV_NOTICE_LOADING,   /* the port is open, /readyz answers 503 */
    SRV_NOTICE_READY,     /* /readyz answers 200 */
    SRV_NOTICE_RELOADING, /* SIGHUP has come; SRV_NOTICE_READY follows */
    SRV_NOTICE_STOPPING,  /* a lame duck, or requests drain */
};

/* For one thread at a time. */
struct srv_notifier {
    int fd; /* -1: nobody is told */
    socklen_t length;
    struct sockaddr_un address;
    struct srv_log *log; /* borrowed */
};

/* Opens a socket for what the variable NOTIFY_SOCKET names: a path, or @ and an abstract name.
 * Without the variable srv_notify does nothing.  An address that cannot be used is logged as an
 * error.  To be called before srv_sandbox_restrict_calls, after which no socket can be made. */
void srv_notifier_open(struct srv_notifier *notifier, struct srv_log *log);
void srv_notifier_close(struct srv_notifier *notifier);

/* Sends one datagram; `detail` is a line for people (systemctl status).  Waits a few seconds at
 * most where the receiver does not read; what cannot be sent is logged as an error. */
void srv_notify(const struct srv_notifier *notifier, enum srv_notice notice, const char *detail);

#endif
