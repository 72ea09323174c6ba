/* loop.c: the threads that wait for sockets.
 *
 * One turn: wait for libmicrohttpd's epoll descriptor, our wake descriptor or a lingering socket;
 * let libmicrohttpd do all it can without blocking; four times a second sweep over the connections
 * for deadlines that have passed. */
#include "http/loop.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/exchange.h"

#define SWEEP_MS 250
#define GAP_MS 1000        /* from one turn to the next */
#define MAX_IDLE_TURNS 64  /* in a row before a turn waits (mhd_workarounds.c, 6) */
#define MAX_POLLED_TURNS 4 /* the same while requests are polled for their replies */
#define IDLE_WAIT_MS 5
#define LAST_TURNS 16    /* after the command to stop, for replies made just before it */
#define FINISHED_MS 2000 /* of a client that neither sends nor ends its side */

bool srv_loop_open(struct srv_loop *loop, struct srv_http *http)
{
    loop->http = http;
    TAILQ_INIT(&loop->handshakes.list);
    TAILQ_INIT(&loop->lingers.list);
    TAILQ_INIT(&loop->turns.waiting);
    TAILQ_INIT(&loop->reserved.list);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->handshakes.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->lingers.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    atomic_init(&loop->command, SRV_LOOP_RUN);
    return loop->wake_fd >= 0 && loop->handshakes.epoll_fd >= 0 && loop->lingers.epoll_fd >= 0;
}

/* The waker sets wake_pending and then reads `sleeping`, the loop sets `sleeping` and then reads
 * wake_pending: one of the two sees the other's flag, so no wake is lost and most cost no call. */
void srv_loop_wake(struct srv_loop *loop)
{
    uint64_t one = 1;
    ssize_t written;
    atomic_store(&loop->wake_pending, true);
    if (!atomic_load(&loop->sleeping))
        return;
    do
        written = write(loop->wake_fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

/* ---- Connections and deadlines --------------------------------------------------------------- */

/* Makes loop->by_fd long enough for this descriptor. */
static bool grow_by_fd(struct srv_loop *loop, int fd)
{
    size_t needed = (size_t)fd + 1, count = needed + needed / 2;
    if (needed <= loop->num_fds)
        return true;
    struct srv_connection **grown = realloc(loop->by_fd, count * sizeof *grown);
    if (grown == NULL)
        return false;
    memset(grown + loop->num_fds, 0, (count - loop->num_fds) * sizeof *grown);
    loop->by_fd = grown;
    loop->num_fds = count;
    return true;
}

struct srv_connection *srv_loop_find(const struct srv_loop *loop, int fd)
{
    return fd >= 0 && (size_t)fd < loop->num_fds ? loop->by_fd[fd] : NULL;
}

struct srv_connection *srv_connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

struct srv_connection *srv_loop_connected(struct srv_loop *loop, struct MHD_Connection *mhd, int fd)
{
    struct srv_connection *connection = grow_by_fd(loop, fd) ? calloc(1, sizeof *connection) : NULL;
    if (connection == NULL)
        return NULL;
    loop->by_fd[fd] = connection;
    connection->loop = loop;
    connection->mhd = mhd;
    connection->fd = fd;
    LIST_INSERT_HEAD(&loop->connections, connection, link);
    srv_place_take(connection);
    srv_lingers_bound(loop);
    return connection;
}

void srv_loop_disconnected(struct srv_connection *connection)
{
    srv_tls_session_fini(connection);
    if (connection->is_faulty)
        LIST_REMOVE(connection, faulty_link);
    connection->loop->by_fd[connection->fd] = NULL;
    srv_handshake_forget(connection);
    srv_turn_forget(connection);
    srv_place_leave(connection);
    LIST_REMOVE(connection, link);
    connection->loop->accept.last_closed = LIST_EMPTY(&connection->loop->connections);
    free(connection);
}

void srv_connection_deadline(struct srv_connection *connection, uint64_t after_ms)
{
    if (connection->place.reserved && after_ms > SRV_RESERVED_MS)
        after_ms = SRV_RESERVED_MS;
    connection->deadline_ns = after_ms > 0 ? srv_now_ns() + after_ms * SRV_MS_NS : 0;
}

void srv_connection_finish(struct srv_connection *connection)
{
    shutdown(connection->fd, SHUT_WR);
    connection->finished = true;
    srv_connection_deadline(connection, FINISHED_MS);
}

void srv_connection_end(struct srv_connection *connection)
{
    shutdown(connection->fd, SHUT_RDWR);
    srv_handshake_release(connection);
}

/* Ends connections whose deadline has passed, unless its exchange sets another.  For a
 * while after a gap, as of SIGSTOP or a paused container, none is ended: what clients have sent in
 * time is still in their sockets. */
static void sweep(struct srv_loop *loop, uint64_t now)
{
    struct srv_connection *c;
    LIST_FOREACH(c, &loop->connections, link) {
        if (c->exchange != NULL)
            srv_exchange_sweep(c->exchange, now);
        if (srv_connection_is_cut_off(c))
            srv_connection_end(c);
        if (c->deadline_ns == 0 || c->deadline_ns > now || now < loop->gap_ns + GAP_MS * SRV_MS_NS)
            continue;
        c->deadline_ns = 0;
        if (c->exchange != NULL && !c->finished)
            srv_exchange_timeout(c->exchange);
        if (c->deadline_ns == 0)
            srv_connection_end(c);
    }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* How long this turn may wait, -1: until something happens.  libmicrohttpd has no timeouts of its
 * own here, so MHD_get_timeout says YES only where it has work left.  A request that is polled for
 * its reply counts as such work, as does a certain chunk header (mhd_workarounds.c, 6): after some
 * turns without input each turn waits a little, until input comes or srv_loop_wake is called. */
static int wait_ms(struct srv_loop *loop)
{
    MHD_UNSIGNED_LONG_LONG timeout;
    size_t max_turns = loop->num_polled > 0 ? MAX_POLLED_TURNS : MAX_IDLE_TURNS;
    int accept_ms = srv_mhd_accept_wait_ms(&loop->accept);
    if (MHD_get_timeout(loop->daemon, &timeout) == MHD_YES)
        return loop->idle_turns++ < max_turns ? 0 : IDLE_WAIT_MS;
    loop->idle_turns = 0;
    if (!TAILQ_EMPTY(&loop->turns.waiting))
        return 0;
    if (accept_ms >= 0)
        return accept_ms;
    return !LIST_EMPTY(&loop->connections) || !TAILQ_EMPTY(&loop->lingers.list) ? SWEEP_MS : -1;
}

static void sleep_for(struct srv_loop *loop, int ms)
{
    const int sockets = MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    struct pollfd fds[] = {
        {.fd = loop->wake_fd, .events = POLLIN},
        {.fd = loop->accept.backing_off ? -1 : sockets, .events = POLLIN},
        {.fd = loop->handshakes.epoll_fd, .events = POLLIN},
        {.fd = loop->lingers.epoll_fd, .events = POLLIN},
    };
    uint64_t wakes;
    if (poll(fds, sizeof fds / sizeof fds[0], ms) > 0 && fds[0].revents != 0)
        (void)!read(loop->wake_fd, &wakes, sizeof wakes);
}

/* MHD_run checks the sockets itself, so a turn that need not wait spends no call on poll. */
static void wait_for_work(struct srv_loop *loop)
{
    int ms = wait_ms(loop);
    if (ms != 0) {
        atomic_store(&loop->sleeping, true);
        if (!atomic_load(&loop->wake_pending))
            sleep_for(loop, ms);
        atomic_store(&loop->sleeping, false);
    }
    atomic_store(&loop->wake_pending, false);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void run_turn(struct srv_loop *loop, bool accepting)
{
    wait_for_work(loop);
    srv_handshakes_resume(loop);
    srv_turns_resume(loop);
    MHD_run(loop->daemon);
    srv_exchange_run_submitted(loop);
    if (accepting)
        srv_mhd_accept_after_turn(loop);
    uint64_t now = srv_now_ns();
    if (now - loop->turn_ns > GAP_MS * SRV_MS_NS)
        loop->gap_ns = now;
    loop->turn_ns = now;
    srv_handshakes_bound(loop, now);
    srv_places_bound(loop);
    srv_lingers_serve(loop, now);
    if (now < loop->next_sweep_ns)
        return;
    sweep(loop, now);
    srv_lingers_sweep(loop, now);
    if (accepting)
        srv_mhd_accept_at_sweep(loop);
    loop->next_sweep_ns = now + SWEEP_MS * SRV_MS_NS;
}

static void *serve(void *context)
{
    struct srv_loop *loop = context;
    int command;
    bool accepting = true;
    sigset_t pipe;
    pthread_setname_np(pthread_self(), "attnd-event");
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    srv_mhd_begin_reading(loop);
    while ((command = atomic_load(&loop->command)) != SRV_LOOP_STOP) {
        if (command == SRV_LOOP_QUIESCE && accepting) {
            MHD_quiesce_daemon(loop->daemon);
            accepting = false;
        }
        run_turn(loop, accepting);
    }
    struct srv_connection *c;
    loop->stopping = true; /* for good: no connection may be suspended when the daemon is stopped */
    LIST_FOREACH(c, &loop->connections, link)
        srv_handshake_release(c);
    srv_turns_resume(loop);
    for (int i = 0; i < LAST_TURNS; i++)
        MHD_run(loop->daemon);
    return NULL;
}

bool srv_loop_start(struct srv_loop *loop)
{
    loop->running = srv_thread_start(&loop->thread, serve, loop);
    return loop->running;
}

void srv_loop_quiesce(struct srv_loop *loop)
{
    atomic_store(&loop->command, SRV_LOOP_QUIESCE);
    srv_loop_wake(loop);
}

void srv_loop_stop(struct srv_loop *loop)
{
    if (loop->running) {
        atomic_store(&loop->command, SRV_LOOP_STOP);
        srv_loop_wake(loop);
        pthread_join(loop->thread, NULL);
        loop->running = false;
    }
    if (loop->daemon != NULL) {
        MHD_quiesce_daemon(loop->daemon); /* leaves open the listening socket, which loops share */
        MHD_stop_daemon(loop->daemon);
        loop->daemon = NULL;
    }
    srv_lingers_close(loop);
    free(loop->by_fd);
    loop->by_fd = NULL;
    const int fds[] = {loop->wake_fd, loop->handshakes.epoll_fd, loop->lingers.epoll_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
