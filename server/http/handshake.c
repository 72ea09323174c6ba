/* handshake.c: suspending handshakes that wait for their client, and bounding their number. */
#include <microhttpd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/loop.h"

#define GRACE_MS 1000 /* a younger handshake is not ended for its number */
#define EVENTS 64

/* ---- Suspending ------------------------------------------------------------------------------ */

/* Where the socket cannot be watched the connection goes on as it is. */
void srv_handshake_waits(struct srv_connection *connection, bool to_write)
{
    struct srv_handshakes *handshakes = &connection->loop->handshakes;
    struct epoll_event event = {.events = to_write ? EPOLLOUT : EPOLLIN | EPOLLRDHUP,
                                .data.ptr = connection};
    event.events |= EPOLLONESHOT;
    if (!connection->handshake.under_way || connection->handshake.suspended ||
        connection->loop->stopping ||
        epoll_ctl(handshakes->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        return;
    connection->handshake.suspended = true;
    handshakes->suspended++;
    MHD_suspend_connection(connection->mhd);
}

static void stop_watching(struct srv_connection *connection)
{
    struct srv_handshakes *handshakes = &connection->loop->handshakes;
    (void)epoll_ctl(handshakes->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    connection->handshake.suspended = false;
    handshakes->suspended--;
}

void srv_handshake_release(struct srv_connection *connection)
{
    if (!connection->handshake.suspended)
        return;
    stop_watching(connection);
    MHD_resume_connection(connection->mhd);
}

void srv_handshakes_resume(struct srv_loop *loop)
{
    struct epoll_event events[EVENTS];
    int count = EVENTS;
    while (count == EVENTS && loop->handshakes.suspended > 0) {
        count = epoll_wait(loop->handshakes.epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < count; i++)
            srv_handshake_release(events[i].data.ptr);
    }
}

/* ---- Number ---------------------------------------------------------------------------------- */

void srv_handshake_begins(struct srv_connection *connection)
{
    struct srv_handshakes *handshakes = &connection->loop->handshakes;
    connection->handshake.under_way = true;
    connection->handshake.begun_ns = srv_now_ns();
    TAILQ_INSERT_TAIL(&handshakes->list, connection, handshake.entry);
    handshakes->count++;
}

void srv_handshake_ended(struct srv_connection *connection)
{
    struct srv_handshakes *handshakes = &connection->loop->handshakes;
    if (!connection->handshake.under_way)
        return;
    TAILQ_REMOVE(&handshakes->list, connection, handshake.entry);
    connection->handshake.under_way = false;
    handshakes->count--;
}

void srv_handshake_forget(struct srv_connection *connection)
{
    srv_handshake_ended(connection);
    if (connection->handshake.suspended)
        stop_watching(connection);
}

void srv_handshakes_bound(struct srv_loop *loop, uint64_t now_ns)
{
    while (loop->handshakes.count > SRV_MAX_HANDSHAKES) {
        struct srv_connection *oldest = TAILQ_FIRST(&loop->handshakes.list);
        if (now_ns < oldest->handshake.begun_ns + GRACE_MS * SRV_MS_NS)
            return;
        srv_handshake_ended(oldest);
        srv_connection_end(oldest);
    }
}
