/* http_loop.c: the threads that wait for sockets.
 *
 * One turn: wait for libmicrohttpd's epoll descriptor, our wake descriptor or a lingering socket;
 * let libmicrohttpd do all it can without blocking; four times a second look at the deadlines. */
#include "http/http_loop.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http.h"

#define SWEEP_MS 250
#define SILENT_TURNS 64
#define WAITING_TURNS 4 /* the same, where that work is requests that wait to be answered */
#define SILENT_MS 5
#define VAIN_MS 100
#define LAST_TURNS 16 /* after the end, for replies that were made just before it */
#define LINGER_MS 2000
#define LINGER_BYTES ((size_t)1 << 20)

bool srv_loop_open(struct srv_loop *loop, struct srv_http *http)
{
    loop->http = http;
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_init(&loop->wish, SRV_LOOP_RUN);
    return loop->wake_fd >= 0;
}

/* One of the two sees what the other has written, so no wake is lost and most cost no call. */
void srv_loop_wake(struct srv_loop *loop)
{
    uint64_t one = 1;
    ssize_t written;
    atomic_store(&loop->woken, true);
    if (!atomic_load(&loop->asleep))
        return;
    do
        written = write(loop->wake_fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

/* ---- Connections and deadlines --------------------------------------------------------------- */

struct srv_connection *srv_loop_connected(struct srv_loop *loop, int fd)
{
    struct srv_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    connection->loop = loop;
    connection->fd = fd;
    connection->link = &loop->connections;
    connection->next = loop->connections;
    if (connection->next != NULL)
        connection->next->link = &connection->next;
    loop->connections = connection;
    return connection;
}

void srv_loop_disconnected(struct srv_connection *connection)
{
    if (connection == NULL)
        return;
    *connection->link = connection->next;
    if (connection->next != NULL)
        connection->next->link = connection->link;
    connection->loop->emptied = connection->loop->connections == NULL;
    free(connection);
}

void srv_connection_deadline(struct srv_connection *connection, uint64_t after_ms)
{
    connection->deadline_ns = after_ms > 0 ? srv_now_ns() + after_ms * SRV_MS_NS : 0;
}

/* Shuts down what is late; libmicrohttpd then sees the end of the connection and closes it. */
static void sweep(struct srv_loop *loop, uint64_t now)
{
    for (struct srv_connection *c = loop->connections; c != NULL; c = c->next) {
        if (c->deadline_ns == 0 || c->deadline_ns > now) {
            if (c->exchange != NULL)
                loop->look(c->exchange, now);
            continue;
        }
        c->deadline_ns = 0;
        if (c->exchange != NULL)
            loop->late(c->exchange);
        shutdown(c->fd, SHUT_RDWR);
    }
}

/* Where it was refused a descriptor libmicrohttpd accepts nobody until one of its connections ends,
 * which may be never.  So where somebody waits for two sweeps it gets one that ends at once. */
static void hear_again(struct srv_loop *loop)
{
    struct pollfd caller = {.fd = loop->listen_fd, .events = POLLIN};
    const struct sockaddr nobody = {.sa_family = AF_UNIX};
    size_t open =
        MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
    bool waits = open < loop->max_connections && poll(&caller, 1, 0) > 0;
    bool deaf = waits && loop->unheard;
    int pair[2];
    loop->unheard = waits;
    if (!deaf || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    close(pair[1]);
    (void)MHD_add_connection(loop->daemon, pair[0], &nobody, sizeof nobody); /* closes it always */
}

/* Where it was refused a descriptor and nobody is connected, libmicrohttpd asks for one again at
 * once, as long as somebody waits.  So where that was so for two turns it is let be for a while. */
static void note_strangers(struct srv_loop *loop)
{
    struct pollfd caller = {.fd = loop->listen_fd, .events = POLLIN};
    bool waits = loop->connections == NULL && poll(&caller, 1, 0) > 0;
    loop->vain = waits && loop->stranger;
    loop->stranger = waits;
}

/* ---- Lingering sockets ----------------------------------------------------------------------- */

void srv_loop_linger(struct srv_loop *loop, int fd)
{
    if (loop->lingering_count == SRV_LINGER_MAX)
        return;
    int copy = dup(fd);
    if (copy < 0)
        return;
    loop->lingering[loop->lingering_count++] =
        (struct srv_linger){.fd = copy, .deadline_ns = srv_now_ns() + LINGER_MS * SRV_MS_NS};
}

/* Reads and drops; false once there is no more reason to keep the socket. */
static bool still_lingers(struct srv_linger *linger, uint64_t now)
{
    char dropped[16384];
    ssize_t got;
    do {
        got = recv(linger->fd, dropped, sizeof dropped, MSG_DONTWAIT);
        if (got > 0)
            linger->bytes += (size_t)got;
    } while (got > 0 && linger->bytes < LINGER_BYTES);
    bool waiting = got < 0 && (errno == EAGAIN || errno == EINTR);
    return waiting && now < linger->deadline_ns;
}

static void serve_lingering(struct srv_loop *loop, uint64_t now)
{
    size_t kept = 0;
    for (size_t i = 0; i < loop->lingering_count; i++) {
        if (still_lingers(&loop->lingering[i], now))
            loop->lingering[kept++] = loop->lingering[i];
        else
            close(loop->lingering[i].fd);
    }
    loop->lingering_count = kept;
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* No connection has a timeout of libmicrohttpd's, so one means that there is work left.  A chunk
 * header that fills the reading buffer and goes on counts as work for ever, as does a request that
 * waits to be answered: after some turns in which nothing was heard, each waits a little, until the
 * connection's deadline ends it or the answer wakes us.  The turn behind the end of the last
 * connection makes libmicrohttpd listen again, if it had ceased to. */
static int wait_ms(struct srv_loop *loop)
{
    MHD_UNSIGNED_LONG_LONG pending;
    size_t most = loop->waiting > 0 ? WAITING_TURNS : SILENT_TURNS;
    bool emptied = loop->emptied;
    loop->emptied = false;
    if (MHD_get_timeout(loop->daemon, &pending) == MHD_YES)
        return loop->silent_turns++ < most ? 0 : SILENT_MS;
    loop->silent_turns = 0;
    if (loop->vain)
        return VAIN_MS;
    if (emptied)
        return 0;
    return loop->connections != NULL || loop->lingering_count > 0 ? SWEEP_MS : -1;
}

static void sleep_for(struct srv_loop *loop, int ms)
{
    struct pollfd fds[2 + SRV_LINGER_MAX];
    size_t count = 2;
    fds[0].fd =
        loop->vain ? -1 : MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    fds[1].fd = loop->wake_fd;
    for (size_t i = 0; i < loop->lingering_count; i++)
        fds[count++].fd = loop->lingering[i].fd;
    for (size_t i = 0; i < count; i++)
        fds[i].events = POLLIN;
    uint64_t wakes;
    if (poll(fds, count, ms) > 0 && fds[1].revents != 0)
        (void)!read(loop->wake_fd, &wakes, sizeof wakes);
}

/* MHD_run looks at the sockets itself, so where there is work no call is spent on asking first. */
static void wait_for_work(struct srv_loop *loop)
{
    int ms = wait_ms(loop);
    if (ms != 0) {
        atomic_store(&loop->asleep, true);
        if (!atomic_load(&loop->woken))
            sleep_for(loop, ms);
        atomic_store(&loop->asleep, false);
    }
    atomic_store(&loop->woken, false);
}

static void *serve(void *context)
{
    struct srv_loop *loop = context;
    sigset_t pipe;
    pthread_setname_np(pthread_self(), "attnd-event");
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    int wish;
    bool quiet = false;
    while ((wish = atomic_load(&loop->wish)) != SRV_LOOP_STOP) {
        if (wish == SRV_LOOP_QUIESCE && !quiet) {
            MHD_quiesce_daemon(loop->daemon);
            quiet = true;
        }
        wait_for_work(loop);
        MHD_run(loop->daemon);
        loop->turned(loop);
        if (!quiet)
            note_strangers(loop);
        uint64_t now = srv_now_ns();
        serve_lingering(loop, now);
        if (now >= loop->sweep_ns) {
            sweep(loop, now);
            if (!quiet)
                hear_again(loop);
            loop->sweep_ns = now + SWEEP_MS * SRV_MS_NS;
        }
    }
    for (int i = 0; i < LAST_TURNS; i++)
        MHD_run(loop->daemon);
    return NULL;
}

bool srv_loop_start(struct srv_loop *loop)
{
    loop->running = pthread_create(&loop->thread, NULL, serve, loop) == 0;
    return loop->running;
}

void srv_loop_quiesce(struct srv_loop *loop)
{
    atomic_store(&loop->wish, SRV_LOOP_QUIESCE);
    srv_loop_wake(loop);
}

void srv_loop_stop(struct srv_loop *loop)
{
    if (loop->running) {
        atomic_store(&loop->wish, SRV_LOOP_STOP);
        srv_loop_wake(loop);
        pthread_join(loop->thread, NULL);
        loop->running = false;
    }
    if (loop->daemon != NULL) {
        MHD_quiesce_daemon(loop->daemon); /* leaves the listening socket, which loops share, open */
        MHD_stop_daemon(loop->daemon);
        loop->daemon = NULL;
    }
    for (size_t i = 0; i < loop->lingering_count; i++)
        close(loop->lingering[i].fd);
    loop->lingering_count = 0;
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    loop->wake_fd = -1;
}
