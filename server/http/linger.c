/* linger.c: a list of sockets, the oldest first, and an epoll descriptor that says which of
 * them have bytes.  The calls of epoll are those of libmicrohttpd's turns only under other names
 * (mhd_workarounds.c), so here epoll_pwait stands. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/exchange.h"

struct srv_linger {
    int fd;
    uint64_t end_ns, idle_end_ns;
    size_t bytes; /* thrown away so far */
    TAILQ_ENTRY(srv_linger) entry;
};

#define EVENTS 32                      /* sockets of one turn */
#define TURN_BYTES ((size_t)256 << 10) /* of one socket in one turn */

static void end(struct srv_loop *loop, struct srv_linger *linger)
{
    TAILQ_REMOVE(&loop->lingers.list, linger, entry);
    atomic_fetch_sub(&loop->http->lingering, 1);
    close(linger->fd);
    free(linger);
}

void srv_lingers_close(struct srv_loop *loop)
{
    while (!TAILQ_EMPTY(&loop->lingers.list))
        end(loop, TAILQ_FIRST(&loop->lingers.list));
}

/* The descriptor is a copy, since libmicrohttpd closes its own. */
void srv_linger_begin(struct srv_loop *loop, int fd)
{
    struct srv_lingers *lingers = &loop->lingers;
    struct srv_linger *linger = calloc(1, sizeof *linger);
    if (linger == NULL)
        return;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = linger};
    uint64_t now = srv_now_ns();
    linger->fd = dup(fd);
    linger->end_ns = now + SRV_LINGER_MS * SRV_MS_NS;
    linger->idle_end_ns = now + SRV_LINGER_IDLE_MS * SRV_MS_NS;
    TAILQ_INSERT_TAIL(&lingers->list, linger, entry);
    atomic_fetch_add(&loop->http->lingering, 1);
    if (linger->fd < 0 || epoll_ctl(lingers->epoll_fd, EPOLL_CTL_ADD, linger->fd, &event) != 0)
        end(loop, linger);
}

/* False once the socket is to be closed.  MSG_TRUNC: the system copies nothing. */
static bool throw_away(struct srv_linger *linger, uint64_t now)
{
    char dropped[65536];
    ssize_t got = 1;
    for (size_t bytes = 0; got > 0 && bytes < TURN_BYTES; bytes += (size_t)got) {
        got = recv(linger->fd, dropped, sizeof dropped, MSG_DONTWAIT | MSG_TRUNC);
        if (got <= 0)
            break;
        linger->bytes += (size_t)got;
        linger->idle_end_ns = now + SRV_LINGER_IDLE_MS * SRV_MS_NS;
    }
    bool goes_on = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    return goes_on && linger->bytes < SRV_LINGER_BYTES;
}

void srv_lingers_serve(struct srv_loop *loop, uint64_t now)
{
    struct epoll_event events[EVENTS];
    if (TAILQ_EMPTY(&loop->lingers.list))
        return;
    int count = epoll_pwait(loop->lingers.epoll_fd, events, EVENTS, 0, NULL);
    for (int i = 0; i < count; i++)
        if (!throw_away(events[i].data.ptr, now))
            end(loop, events[i].data.ptr);
}

void srv_lingers_sweep(struct srv_loop *loop, uint64_t now)
{
    struct srv_linger *next, *linger = TAILQ_FIRST(&loop->lingers.list);
    for (; linger != NULL; linger = next) {
        next = TAILQ_NEXT(linger, entry);
        if (now >= linger->end_ns || now >= linger->idle_end_ns)
            end(loop, linger);
    }
    srv_lingers_bound(loop); /* connections may have come to other loops */
}

void srv_lingers_bound(struct srv_loop *loop)
{
    const struct srv_http *http = loop->http;
    size_t limit = http->context.limits->max_connections + http->loop_count * SRV_MAX_RESERVED;
    while (!TAILQ_EMPTY(&loop->lingers.list) &&
           atomic_load(&http->connections) + atomic_load(&http->lingering) > limit)
        end(loop, TAILQ_FIRST(&loop->lingers.list));
}
