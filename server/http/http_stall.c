/* http_stall.c: suspending what waits for its client, refusing what waits for nothing.
 *
 * libmicrohttpd says only that some connection has work left, never which.  So where it says that,
 * each body in chunks of which nothing has come for STALLED_MS is looked at.  Where its socket is
 * empty the client is waited for.  Bytes that are read meanwhile belong to the line of a chunk's
 * size, which libmicrohttpd looks through from its beginning each time; the body is refused where
 * they are more than SRV_MAX_CHUNK_LINE, and where no more are read of what is there, since the
 * buffer is full.  A handshake says itself when it waits (tls.c). */
#include "http/http_stall.h"

#include <limits.h>
#include <linux/tcp.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/bounds.h"
#include "http/http_loop.h"

#define STALLED_MS 2
#define UNREAD_TURNS 4 /* in a row that read nothing: bytes may come just before the look */
#define HANDSHAKE_GRACE_MS 1000 /* a younger handshake is not ended for its number */
#define TLS_RECORD_BYTES 16709  /* with its header and what encryption adds, of TLS 1.2 */
#define EVENTS 64

bool srv_stall_open(struct srv_stalls *stalls)
{
    TAILQ_INIT(&stalls->handshakes);
    TAILQ_INIT(&stalls->watched);
    stalls->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return stalls->epoll_fd >= 0;
}

void srv_stall_close(struct srv_stalls *stalls)
{
    if (stalls->epoll_fd >= 0)
        close(stalls->epoll_fd);
    stalls->epoll_fd = -1;
}

/* ---- Suspending ------------------------------------------------------------------------------ */

/* Where the descriptor cannot be watched the connection goes on as it is. */
static void suspend(struct srv_connection *connection, uint32_t events)
{
    struct srv_stalls *stalls = &connection->loop->stalls;
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.ptr = connection};
    if (stalls->stopping || epoll_ctl(stalls->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        return;
    if (connection->stall.state == SRV_STALL_WATCHED)
        TAILQ_REMOVE(&stalls->watched, connection, stall.entry);
    connection->stall.state = SRV_STALL_SUSPENDED;
    stalls->suspended++;
    MHD_suspend_connection(connection->mhd);
}

static void stop_waiting(struct srv_connection *connection)
{
    struct srv_stalls *stalls = &connection->loop->stalls;
    (void)epoll_ctl(stalls->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    connection->stall.state = SRV_STALL_NONE;
    stalls->suspended--;
}

static void watch(struct srv_connection *connection)
{
    connection->stall.state = SRV_STALL_WATCHED;
    connection->stall.since_ns = srv_now_ns();
    connection->stall.unread_turns = 0;
    TAILQ_INSERT_TAIL(&connection->loop->stalls.watched, connection, stall.entry);
}

static void resume(struct srv_connection *connection)
{
    stop_waiting(connection);
    MHD_resume_connection(connection->mhd);
    connection->stall.resumed = true;
    if (connection->stall.in_body)
        watch(connection);
}

void srv_stall_before_turn(struct srv_loop *loop)
{
    struct epoll_event events[EVENTS];
    int count = EVENTS;
    while (count == EVENTS && loop->stalls.suspended > 0) {
        count = epoll_wait(loop->stalls.epoll_fd, events, EVENTS, 0);
        for (int i = 0; i < count; i++)
            resume(events[i].data.ptr);
    }
}

void srv_stall_stop(struct srv_loop *loop)
{
    loop->stalls.stopping = true;
    for (struct srv_connection *c = loop->connections; c != NULL; c = c->next)
        if (c->stall.state == SRV_STALL_SUSPENDED)
            resume(c);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* The end of its socket is an event, which libmicrohttpd closes a connection for in any state.  A
 * connection that was once suspended need not be registered with its descriptor, though; where it
 * is, adding it fails. */
void srv_stall_end(struct srv_connection *connection)
{
    struct MHD_Daemon *daemon = connection->loop->daemon;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLET,
                                .data.ptr = connection->mhd};
    int fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    shutdown(connection->fd, SHUT_RDWR);
    if (connection->stall.state == SRV_STALL_SUSPENDED)
        resume(connection);
    if (epoll_ctl(fd, EPOLL_CTL_ADD, connection->fd, &event) == 0)
        connection->stall.registered = true;
}

void srv_stall_forget(struct srv_connection *connection)
{
    struct MHD_Daemon *daemon = connection->loop->daemon;
    srv_stall_handshake_ended(connection);
    srv_stall_body_ended(connection);
    if (connection->stall.state == SRV_STALL_SUSPENDED)
        stop_waiting(connection);
    if (connection->stall.registered)
        (void)epoll_ctl(MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
                        EPOLL_CTL_DEL, connection->fd, NULL);
}

/* ---- Bodies in chunks ------------------------------------------------------------------------ */

void srv_stall_input(struct srv_connection *connection)
{
    srv_stall_body_ended(connection);
    connection->stall.in_body = true;
    connection->stall.resumed = connection->stall.looked_at = false;
    watch(connection);
}

void srv_stall_body_ended(struct srv_connection *connection)
{
    if (connection->stall.state == SRV_STALL_WATCHED) {
        TAILQ_REMOVE(&connection->loop->stalls.watched, connection, stall.entry);
        connection->stall.state = SRV_STALL_NONE;
    }
    connection->stall.in_body = false;
}

/* Counts the bytes that were taken from the socket and those left in it; *left is 0 at its end and
 * -1 where there are none.  Bytes that arrive in between count as left.  MSG_TRUNC counts without
 * copying. */
static void count_bytes(uint64_t *taken, ssize_t *left, int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
    *left = recv(fd, NULL, INT_MAX, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    *taken = info.tcpi_bytes_received - (uint64_t)(*left > 0 ? *left : 0);
}

static void refuse(struct srv_connection *connection)
{
    srv_stall_body_ended(connection);
    if (connection->exchange != NULL)
        connection->loop->on_stalled(connection->exchange);
    srv_stall_end(connection);
}

/* Of a TLS record all but its last byte may have been taken before any of it counts.  A client that
 * has closed its side may have done so along with its last bytes, which libmicrohttpd does not see
 * (mhd_workarounds.c, 7) until the connection is resumed. */
static void look_at(struct srv_connection *connection)
{
    struct srv_stall *stall = &connection->stall;
    uint64_t taken, most = SRV_MAX_CHUNK_LINE + (connection->tls != NULL ? TLS_RECORD_BYTES : 0);
    ssize_t left;
    count_bytes(&taken, &left, connection->fd);
    if (!stall->looked_at)
        stall->taken_first = taken;
    stall->unread_turns = stall->looked_at && taken == stall->taken ? stall->unread_turns + 1 : 0;
    stall->looked_at = true;
    stall->taken = taken;
    if (taken > stall->taken_first + most)
        refuse(connection);
    else if (left < 0 || (left == 0 && !stall->resumed))
        suspend(connection, EPOLLIN | EPOLLRDHUP);
    else if (stall->unread_turns >= UNREAD_TURNS)
        refuse(connection);
}

static void look_at_bodies(struct srv_loop *loop, uint64_t now_ns)
{
    MHD_UNSIGNED_LONG_LONG timeout;
    struct srv_connection *next, *c = TAILQ_FIRST(&loop->stalls.watched);
    if (c == NULL || now_ns < c->stall.since_ns + STALLED_MS * SRV_MS_NS ||
        MHD_get_timeout(loop->daemon, &timeout) != MHD_YES)
        return;
    for (; c != NULL && now_ns >= c->stall.since_ns + STALLED_MS * SRV_MS_NS; c = next) {
        next = TAILQ_NEXT(c, stall.entry);
        look_at(c);
    }
}

/* ---- Handshakes ------------------------------------------------------------------------------ */

void srv_stall_handshake_begins(struct srv_connection *connection)
{
    struct srv_stalls *stalls = &connection->loop->stalls;
    connection->stall.handshaking = true;
    connection->stall.since_ns = srv_now_ns();
    TAILQ_INSERT_TAIL(&stalls->handshakes, connection, stall.entry);
    stalls->num_handshakes++;
}

void srv_stall_handshake_waits(struct srv_connection *connection, bool to_write)
{
    if (connection->stall.handshaking && connection->stall.state == SRV_STALL_NONE)
        suspend(connection, to_write ? EPOLLOUT : EPOLLIN | EPOLLRDHUP);
}

void srv_stall_handshake_ended(struct srv_connection *connection)
{
    struct srv_stalls *stalls = &connection->loop->stalls;
    if (!connection->stall.handshaking)
        return;
    TAILQ_REMOVE(&stalls->handshakes, connection, stall.entry);
    connection->stall.handshaking = false;
    stalls->num_handshakes--;
}

static void bound_handshakes(struct srv_loop *loop, uint64_t now_ns)
{
    struct srv_stalls *stalls = &loop->stalls;
    while (stalls->num_handshakes > SRV_MAX_HANDSHAKES) {
        struct srv_connection *oldest = TAILQ_FIRST(&stalls->handshakes);
        if (now_ns < oldest->stall.since_ns + HANDSHAKE_GRACE_MS * SRV_MS_NS)
            return;
        srv_stall_handshake_ended(oldest);
        srv_stall_end(oldest);
    }
}

void srv_stall_after_turn(struct srv_loop *loop, uint64_t now_ns)
{
    look_at_bodies(loop, now_ns);
    bound_handshakes(loop, now_ns);
}
