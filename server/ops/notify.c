/* notify.c: one datagram for each state.
 *
 * The address goes with every datagram, so that a service manager may make its socket anew.
 * libsystemd would do the same, and bring four libraries into a daemon that gives up rights. */
#include "ops/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"

#define SEND_SECONDS 5
#define DATAGRAM_MAX 512

static const char *const states[] = {[SRV_NOTICE_LOADING] = "",
                                     [SRV_NOTICE_READY] = "READY=1\n",
                                     [SRV_NOTICE_RELOADING] = "RELOADING=1\n",
                                     [SRV_NOTICE_STOPPING] = "STOPPING=1\n"};

static void complain(const struct srv_notifier *notifier, int error)
{
    srv_log_event(notifier->log, SRV_LOG_ERROR, "notify", "NOTIFY_SOCKET: %s", strerror(error));
}

void srv_notifier_open(struct srv_notifier *notifier, struct srv_log *log)
{
    const struct timeval patience = {.tv_sec = SEND_SECONDS};
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un *address = &notifier->address;
    size_t length = name != NULL ? strlen(name) : 0;
    *notifier = (struct srv_notifier){.fd = -1, .log = log, .address.sun_family = AF_UNIX};
    if (length == 0)
        return;
    if ((name[0] != '/' && name[0] != '@') || length < 2 || length >= sizeof address->sun_path) {
        complain(notifier, EAFNOSUPPORT);
        return;
    }
    memcpy(address->sun_path, name, length);
    if (name[0] == '@')
        address->sun_path[0] = '\0';
    notifier->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    notifier->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (notifier->fd < 0)
        complain(notifier, errno);
    else
        setsockopt(notifier->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

void srv_notifier_close(struct srv_notifier *notifier)
{
    if (notifier->fd >= 0)
        close(notifier->fd);
    notifier->fd = -1;
}

void srv_notify(const struct srv_notifier *notifier, enum srv_notice notice, const char *detail)
{
    char text[DATAGRAM_MAX];
    ssize_t sent;
    if (notifier->fd < 0)
        return;
    snprintf(text, sizeof text, "%sMONOTONIC_USEC=%" PRIu64 "\nSTATUS=%s", states[notice],
             srv_clock_ns(CLOCK_MONOTONIC) / 1000, detail); /* a reload is known by its time */
    do
        sent = sendto(notifier->fd, text, strlen(text), MSG_NOSIGNAL,
                      (const struct sockaddr *)&notifier->address, notifier->length);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        complain(notifier, errno);
}
