/* http.c: the server: its listening socket, its event threads, libmicrohttpd's callbacks.
 *
 * Each event thread runs a libmicrohttpd daemon of its own.  All daemons share the listening
 * socket, so whichever thread is free accepts.  The callbacks here only pass on: a request's life
 * is exchange.c's, a thread's loop.c's. */
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/exchange.h"
#include "ops/log.h"

#define BACKLOG 4096
#define VANISHED_MS 5000  /* beyond reply_timeout_ms */
#define ACCEPT_TRIES 5000 /* of 100 us, without a connection that was accepted */

const char *srv_http_library_version(void) { return MHD_get_version(); }

/* ---- libmicrohttpd's callbacks --------------------------------------------------------------- */

/* The request line has been read.  The result becomes *state of the other callbacks. */
static void *on_request_line(void *context, const char *target, struct MHD_Connection *mhd)
{
    (void)context;
    struct srv_connection *connection = srv_connection_of(mhd);
    return connection != NULL ? srv_exchange_open(connection, mhd, target) : NULL;
}

static enum MHD_Result on_input(void *context, struct MHD_Connection *mhd, const char *path,
                                const char *method, const char *version, const char *bytes,
                                size_t *count, void **state)
{
    (void)mhd;
    if (*state != NULL && srv_exchange_poll(*state))
        return MHD_YES;
    ((struct srv_loop *)context)->idle_turns = 0;
    struct srv_http_input input = {
        .method = method, .path = path, .version = version, .bytes = bytes};
    bool goes_on = *state != NULL && srv_exchange_advance(*state, &input, count);
    return goes_on ? MHD_YES : MHD_NO;
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)context, (void)mhd, (void)how;
    if (*state != NULL)
        srv_exchange_close(*state);
    *state = NULL;
}

/* A TLS connection counts as open before its handshake, which has half the time of a head.  Where
 * memory is short the connection is ended. */
static void on_connection(void *context, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct srv_loop *loop = context;
    struct srv_http *http = loop->http;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*socket_context != NULL)
            srv_loop_disconnected(*socket_context);
        *socket_context = NULL;
        atomic_fetch_sub(&http->connections, 1);
        return;
    }
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    atomic_fetch_add(&http->connections, 1);
    struct srv_connection *connection = srv_loop_connected(loop, mhd, fd);
    *socket_context = connection;
    if (connection == NULL) {
        shutdown(fd, SHUT_RDWR);
        return;
    }
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    connection->client_bytes =
        srv_clients_bytes(&http->clients, srv_client_address(peer->client_addr));
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    connection->tls = tls != NULL ? tls->tls_session : NULL;
    size_t timeout_ms = http->context.limits->header_timeout_ms;
    srv_connection_deadline(connection, connection->tls != NULL ? timeout_ms / 2 : timeout_ms);
    if (connection->tls != NULL)
        srv_tls_session_init(connection, &http->certificate);
}

/* Paths stay as they were sent. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context, (void)mhd;
    return strlen(text);
}

/* Most messages of libmicrohttpd report a client's mistake, so their level is that of requests. */
static void log_message(void *context, const char *format, va_list args)
{
    struct srv_loop *loop = context;
    char message[256];
    vsnprintf(message, sizeof message, format, args);
    message[strcspn(message, "\r\n")] = '\0';
    srv_log_event(loop->http->context.log, SRV_LOG_ACCESS, "http", "%s", message);
}

static void panic(void *log, const char *file, unsigned line, const char *reason)
{
    srv_log_event(log, SRV_LOG_ERROR, "panic", "libmicrohttpd %s:%u: %s", file, line,
                  reason != NULL ? reason : "");
    srv_log_flush(log);
    abort();
}

/* ---- The listening socket -------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* The port stands in the same place in both families. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "sin_port is the port of either");

static bool read_address(union address *out, socklen_t *size, const char *host, unsigned port)
{
    memset(out, 0, sizeof *out);
    const bool v4 = inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
    out->any.sa_family = v4 ? AF_INET : AF_INET6;
    out->v4.sin_port = htons((uint16_t)port);
    *size = v4 ? sizeof out->v4 : sizeof out->v6;
    return v4 || inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1;
}

/* The remedy for an error of bind, or "". */
static const char *listen_remedy(int error)
{
    switch (error) {
    case EADDRINUSE:
        return ": another program has the port (`ss -ltnp` names it); end that one or give another "
               "--port";
    case EACCES:
        return ": a port below 1024 needs CAP_NET_BIND_SERVICE; give a higher --port";
    case EADDRNOTAVAIL:
        return ": no interface of this machine has the address; give another --host";
    default:
        return "";
    }
}

/* Sets listen_fd and port.  TCP_USER_TIMEOUT, which connections inherit: what is sent to a machine
 * that has vanished would be sent again for 15 minutes.  A client that is there and does not read
 * is reset before: the system would drop the connection without telling the client. */
static bool listen_at(struct srv_http *http, const char *host, unsigned port)
{
    union address address;
    socklen_t size;
    int on = 1;
    unsigned timeout_ms = (unsigned)http->context.limits->reply_timeout_ms + VANISHED_MS;
    if (port > UINT16_MAX || !read_address(&address, &size, host, port)) {
        errno = EINVAL;
        return false;
    }
    http->listen_fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (http->listen_fd < 0 ||
        setsockopt(http->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(http->listen_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                   sizeof timeout_ms) != 0 ||
        bind(http->listen_fd, &address.any, size) != 0 || listen(http->listen_fd, BACKLOG) != 0 ||
        getsockname(http->listen_fd, &address.any, &size) != 0)
        return false;
    http->port = ntohs(address.v4.sin_port);
    return true;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

/* Strictness 0: at level 1 libmicrohttpd refuses some heads without a reply of ours, and the guard
 * checks the same and more.  No timeout: deadlines are loop.c's. */
static bool start_loop(struct srv_loop *loop, const struct srv_tls *tls)
{
    struct srv_http *http = loop->http;
    bool https = tls->certificate != NULL;
    struct MHD_OptionItem https_options[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, tls->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, tls->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, SRV_TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    loop->listen_fd = http->listen_fd;
    loop->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
            (https ? (unsigned)MHD_USE_TLS : 0),
        0, NULL, NULL, on_input, loop, MHD_OPTION_EXTERNAL_LOGGER, log_message, loop,
        MHD_OPTION_LISTEN_SOCKET, http->listen_fd, MHD_OPTION_CONNECTION_LIMIT, UINT_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, SRV_CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 0,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, loop,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, loop, MHD_OPTION_NOTIFY_COMPLETED, on_completed, loop, MHD_OPTION_ARRAY,
        https ? https_options : https_options + 3, MHD_OPTION_END);
    return loop->daemon != NULL && srv_loop_start(loop);
}

static bool start_loops(struct srv_http *http, const struct srv_tls *tls, size_t count)
{
    http->loop_count = count;
    for (size_t i = 0; i < count; i++) {
        if (!srv_loop_open(&http->loops[i], http))
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!start_loop(&http->loops[i], tls))
            return false;
    }
    return true;
}

static struct srv_http *new_http(const struct srv_http_context *context)
{
    struct srv_http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return NULL;
    http->context = *context;
    http->certificate = (struct srv_tls_holder){.lock = PTHREAD_MUTEX_INITIALIZER};
    http->listen_fd = -1;
    for (size_t i = 0; i < SRV_MAX_EVENT_THREADS; i++)
        http->loops[i].wake_fd = http->loops[i].handshakes.epoll_fd =
            http->loops[i].lingers.epoll_fd = -1;
    if (getrandom(&http->id_seed, sizeof http->id_seed, 0) != (ssize_t)sizeof http->id_seed)
        http->id_seed = srv_now_ns();
    if (getrandom(&http->clients.seed, sizeof http->clients.seed, 0) < 0)
        http->clients.seed = (uintptr_t)http; /* moved about by the system */
    return http;
}

bool srv_http_open(struct srv_http **out, const struct srv_http_context *context,
                   const struct srv_http_options *options, char *message, size_t size)
{
    struct srv_http *http = *out = new_http(context);
    size_t loops =
        options->threads < SRV_MAX_EVENT_THREADS ? options->threads : SRV_MAX_EVENT_THREADS;
    MHD_set_panic_func(panic, context->log);
    if (http != NULL)
        atomic_init(&http->certificate_expires, options->tls->expires);
    if (http == NULL)
        snprintf(message, size, "out of memory");
    else if (!listen_at(http, options->host, options->port))
        snprintf(message, size, "cannot listen on %s port %u: %s%s", options->host, options->port,
                 strerror(errno), listen_remedy(errno));
    else if (!start_loops(http, options->tls, loops > 0 ? loops : 1)) {
        snprintf(message, size, "cannot start %zu event threads", loops);
        srv_thread_explain(message, size);
    } else
        return true;
    srv_http_close(http);
    *out = NULL;
    return false;
}

bool srv_http_replace_certificate(struct srv_http *http, const struct srv_tls *tls)
{
    bool replaced = srv_tls_replace(&http->certificate, tls);
    if (replaced)
        atomic_store(&http->certificate_expires, tls->expires);
    return replaced;
}

long long srv_http_certificate_expires(const struct srv_http *http)
{
    return atomic_load(&http->certificate_expires);
}

unsigned srv_http_port(const struct srv_http *http) { return http->port; }

/* Connections that are established and not accepted yet would be reset, whose requests may be on
 * their way.  Waits until there are none, or for half a second in which they did not become fewer,
 * since descriptors may be short. */
static void await_accepted(int listen_fd)
{
    const struct timespec poll = {.tv_nsec = 100 * 1000};
    unsigned least = UINT_MAX;
    for (unsigned tries = 0; tries < ACCEPT_TRIES; tries++) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        if (getsockopt(listen_fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
            info.tcpi_unacked == 0) /* of a listening socket: those that wait */
            return;
        if (info.tcpi_unacked < least) {
            least = info.tcpi_unacked;
            tries = 0;
        }
        nanosleep(&poll, NULL);
    }
}

void srv_http_quiesce(struct srv_http *http)
{
    await_accepted(http->listen_fd);
    shutdown(http->listen_fd, SHUT_RDWR); /* clients are refused from here on */
    for (size_t i = 0; i < http->loop_count; i++)
        srv_loop_quiesce(&http->loops[i]);
}

size_t srv_http_active(const struct srv_http *http) { return atomic_load(&http->active); }

size_t srv_http_connections(const struct srv_http *http) { return atomic_load(&http->connections); }

void srv_http_close(struct srv_http *http)
{
    if (http == NULL)
        return;
    for (size_t i = 0; i < http->loop_count; i++) {
        srv_loop_stop(&http->loops[i]);
        srv_exchange_free_pool(&http->loops[i]);
    }
    if (http->listen_fd >= 0)
        close(http->listen_fd);
    srv_tls_holder_fini(&http->certificate);
    free(http);
}
