/* mhd_workarounds.c: answers to defects of libmicrohttpd 0.9.75, and the list of all of them.
 *
 * Each entry has the defect and how it shows; the answer and its place, this file unless another is
 * named; the version that ends the defect, by libmicrohttpd's NEWS and ChangeLog, not by trial.
 * Where no version is named the defect is open in 0.9.75 and later versions were not examined.
 *
 *  1 The library's epoll thread blocks in epoll_wait before it serves what it has whenever a
 *    multiple of 128 connections are ready at once: replies wait for the next event.  Answer:
 *    external mode, in which MHD_run never blocks (loop.c).
 *  2 The library's poll thread starves connections beyond a few hundred.  Answer: as 1.
 *  3 The library's timeout restarts on every byte: a client that sends one now and then holds a
 *    connection for ever.  Answer: no timeout of the library's, absolute deadlines
 *    (srv_connection_deadline in loop.c).
 *  4 After accept fails for want of descriptors (EMFILE), a daemon with open connections accepts
 *    nobody until one of them ends, which may be never.  Measured with the limit of descriptors
 *    lowered and lifted again beside one busy connection: nobody was accepted within 12 s.  Answer:
 *    srv_mhd_accept_at_sweep, with which a client was answered 0.2 to 0.7 s after the limit was
 *    lifted.  When the last connection has ended, accepting begins again in the turn after that,
 *    which therefore must not wait.
 *  5 After EMFILE with no connection open, the library calls accept again in every turn for as long
 *    as a client waits: a whole CPU.  Answer: srv_mhd_accept_after_turn, which pauses accepting for
 *    100 ms at a time.
 *  6 A chunk header longer than the reading buffer counts as work for ever: MHD_get_timeout says 0
 *    in every turn, a whole CPU until the deadline.  Answer: the scan (13) refuses lines of chunks
 *    for which there might be no room; and after 64 turns without input each turn waits 5 ms
 *    (wait_ms in loop.c).
 *  7 A read that fills less than its buffer counts as all there is, so where a client's end arrived
 *    with its last bytes the end is not seen before the deadline.  Answer: srv_mhd_client_closed,
 *    asked when a reply is made, while a body is read, and in each sweep
 *    (srv_connection_is_cut_off in job.c).
 *  8 Heads are read leniently: the first of two Content-Lengths wins, Transfer-Encoding beats
 *    Content-Length, values end at a NUL, a folded line is glued to the field's name, lines may end
 *    in a bare LF.  Behind a proxy that reads otherwise each of these smuggles a request.  Answer:
 *    the scan (13) and the guard (guard.c).  Ends: 1.0.0 rewrote the parser and lets an
 *    application choose its strictness; 1.0.4 refuses a second Content-Length, 1.0.5 a second of
 *    other single fields.
 *  9 Lines of chunks may end in a bare LF, so another parser may see the end of the body elsewhere.
 *    Answer: nothing is read after a body in chunks, whose reply ends the connection (is_last_reply
 *    in exchange.c).
 * 10 At strictness 1 some heads are refused without our reply.  Answer: strictness 0 (http.c),
 *    and the guard.
 * 11 No reply can be queued while a body still arrives.  Answer: a reply that cannot wait for the
 *    body's end is written to the socket (srv_reply_past_mhd in reply.c).
 * 12 Suspending and resuming a connection costs several system calls and locks.  Answer: a request
 *    that waits for its reply is polled, and suspended only where that takes long (job.c).
 * 13 What the library cannot parse, or has no memory for, it answers itself, and twice: the head of
 *    its page is sent again in the place of the page, and our log has another status.  So are heads
 *    with 350 cookies or parameters of the query, for each of which it takes memory.  Answer: the
 *    library's calls of recv and gnutls_record_recv come here, since the program's own functions
 *    stand before those of libraries, and bytes that have not passed scan.c do not reach it.
 *    A head that came another way is refused (read_head in exchange.c).
 * 14 A socket that a TLS handshake has emptied still counts as readable, so the handshake is asked
 *    to go on in every turn, a whole CPU until the deadline.  Answer: the connection is
 *    suspended until its socket is ready (handshake.c).
 * 15 A run reads from every socket that is ready, so that all requests of 1,000 connections are
 *    read, then computed, then answered, and none of their memory is still in the CPU's caches when
 *    it is needed again.  Answer: epoll_wait here reports at most TURN_SOCKETS at a time. */
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "http/exchange.h"

#define BACKOFF_MS 100
#define TURN_SOCKETS 32 /* that are read from in one turn, at most */

/* ---- Accepting: 4 and 5 ---------------------------------------------------------------------- */

static bool client_waits(const struct srv_loop *loop)
{
    struct pollfd listener = {.fd = loop->listen_fd, .events = POLLIN};
    return poll(&listener, 1, 0) > 0;
}

/* Where a client has waited for two sweeps, the daemon is given one end of a socket pair whose
 * other end is closed: a connection that ends at once, which makes it accept again. */
void srv_mhd_accept_at_sweep(struct srv_loop *loop)
{
    const struct sockaddr nobody = {.sa_family = AF_UNIX};
    bool waits = client_waits(loop);
    bool stopped = waits && loop->accept.waited_at_sweep;
    int pair[2];
    loop->accept.waited_at_sweep = waits;
    if (!stopped || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    close(pair[1]);
    (void)MHD_add_connection(loop->daemon, pair[0], &nobody, sizeof nobody); /* closes it always */
}

void srv_mhd_accept_after_turn(struct srv_loop *loop)
{
    bool waits = LIST_EMPTY(&loop->connections) && client_waits(loop);
    loop->accept.backing_off = waits && loop->accept.waited_last_turn;
    loop->accept.waited_last_turn = waits;
}

int srv_mhd_accept_wait_ms(struct srv_mhd_accept *accept)
{
    bool last_closed = accept->last_closed;
    accept->last_closed = false;
    if (accept->backing_off)
        return BACKOFF_MS;
    return last_closed ? 0 : -1;
}

static _Thread_local struct srv_loop *reading_loop; /* whose libmicrohttpd runs on this thread */

void srv_mhd_begin_reading(struct srv_loop *loop) { reading_loop = loop; }

bool srv_mhd_reads(void) { return reading_loop != NULL; }

/* ---- Looking at sockets: 7 and 15 ------------------------------------------------------------ */

bool srv_mhd_client_closed(const struct srv_connection *connection)
{
    char byte;
    if (!connection->may_have_ended ||
        (connection->tls != NULL && srv_tls_pending(connection->tls)))
        return false;
    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* libmicrohttpd's, whose connections are its only edge-triggered sockets. */
int epoll_ctl(int epoll_fd, int what, int fd, struct epoll_event *event)
{
    struct epoll_event also_end;
    if (reading_loop != NULL && event != NULL && (event->events & (uint32_t)EPOLLET) != 0) {
        also_end = *event;
        also_end.events |= EPOLLRDHUP;
        event = &also_end;
    }
    return (int)syscall(SYS_epoll_ctl, epoll_fd, what, fd, event);
}

int epoll_wait(int epoll_fd, struct epoll_event *events, int most, int ms)
{
    bool is_turn = reading_loop != NULL && epoll_fd != reading_loop->handshakes.epoll_fd;
    int limit = is_turn && most > TURN_SOCKETS ? TURN_SOCKETS : most;
    int count = epoll_pwait(epoll_fd, events, limit, ms, NULL);
    for (int i = 0; is_turn && i < count; i++) {
        bool ended = (events[i].events & EPOLLRDHUP) != 0;
        struct srv_connection *connection = ended ? srv_connection_of(events[i].data.ptr) : NULL;
        if (connection != NULL)
            connection->may_have_ended = true;
    }
    return count;
}

/* ---- Reading: 8 and 13 ----------------------------------------------------------------------- */

/* A fault behind whole requests waits until they are answered (srv_exchange_close). */
ssize_t srv_mhd_scan(struct srv_connection *connection, void *bytes, size_t count)
{
    struct srv_scan *scan = &connection->scan;
    size_t passed = scan->fault == NULL ? srv_scan(scan, bytes, count) : 0;
    if (scan->fault == NULL || passed > 0)
        return (ssize_t)passed;
    srv_exchange_refuse(connection);
    return -1;
}

/* libmicrohttpd's recv; gnutls_record_recv is in tls.c.  Other calls set flags or are of threads
 * that serve nobody. */
ssize_t recv(int fd, void *bytes, size_t most, int flags)
{
    bool is_read = flags == 0 && reading_loop != NULL;
    struct srv_connection *connection = is_read ? srv_loop_find(reading_loop, fd) : NULL;
    ssize_t count;
    if (is_read && (connection == NULL || connection->finished))
        return 0; /* memory was short when it was accepted, or there is nothing more to say */
    do {
        count = recvfrom(fd, bytes, most, flags, NULL, NULL);
        if (count <= 0 || connection == NULL || connection->tls != NULL)
            return count;
        count = srv_mhd_scan(connection, bytes, (size_t)count);
    } while (count == 0);
    if (count < 0)
        errno = EIO;
    return count;
}
