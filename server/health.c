/* health.c: --health-check: asks the daemon of the same configuration whether it is ready.
 *
 * Over TLS, where the daemon has a certificate, but without a look at it: the question goes to this
 * machine and is no secret, and names in certificates are not those of loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands.h"
#include "http/http.h"

struct asker {
    int fd;
    uint64_t deadline_ns;
    gnutls_session_t tls; /* NULL: plain HTTP */
    gnutls_certificate_credentials_t trust;
    const char *trouble; /* why there was no answer, where it is not errno */
};

/* Where to reach a daemon that listens on `host`; the address that means any is taken for here. */
static socklen_t address_of(struct sockaddr_storage *out, const char *host, unsigned port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        if (v4.sin_addr.s_addr == htonl(INADDR_ANY))
            v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        memcpy(out, &v4, sizeof v4);
        return sizeof v4;
    }
    inet_pton(AF_INET6, host, &v6.sin6_addr);
    if (memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0)
        v6.sin6_addr = in6addr_loopback;
    memcpy(out, &v6, sizeof v6);
    return sizeof v6;
}

/* Waits for `events`; false where the deadline passes first. */
static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd wanted = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = srv_now_ns();
        int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / 1000000) : 0;
        int ready = poll(&wanted, 1, left_ms);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true;
        if (left_ms == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool connect_within(int fd, const struct sockaddr_storage *address, socklen_t length,
                           uint64_t deadline_ns)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, (const struct sockaddr *)address, length) == 0)
        return true;
    if (errno != EINPROGRESS || !wait_for(fd, POLLOUT, deadline_ns) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    errno = error;
    return error == 0;
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Whether the call is to be made again, having waited for what it waits for. */
static bool again(struct asker *asker, ssize_t result)
{
    if (result >= 0)
        return false;
    if (result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED) {
        bool writes = gnutls_record_get_direction(asker->tls) != 0;
        return wait_for(asker->fd, writes ? POLLOUT : POLLIN, asker->deadline_ns);
    }
    if (gnutls_error_is_fatal((int)result) == 0)
        return true;
    asker->trouble = gnutls_strerror((int)result);
    return false;
}

static bool shake_hands(struct asker *asker)
{
    int result;
    if (gnutls_init(&asker->tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK) != GNUTLS_E_SUCCESS ||
        gnutls_certificate_allocate_credentials(&asker->trust) != GNUTLS_E_SUCCESS ||
        gnutls_set_default_priority(asker->tls) != GNUTLS_E_SUCCESS ||
        gnutls_credentials_set(asker->tls, GNUTLS_CRD_CERTIFICATE, asker->trust) !=
            GNUTLS_E_SUCCESS) {
        asker->trouble = "TLS cannot be had";
        return false;
    }
    gnutls_transport_set_int(asker->tls, asker->fd);
    do
        result = gnutls_handshake(asker->tls);
    while (again(asker, result));
    return result == GNUTLS_E_SUCCESS;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static bool send_all(struct asker *asker, const char *bytes, size_t count)
{
    ssize_t sent;
    if (asker->tls == NULL)
        return send(asker->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
    do
        sent = gnutls_record_send(asker->tls, bytes, count);
    while (again(asker, sent));
    return sent == (ssize_t)count;
}

/* At least one byte; 0 at the end, less where there is an error. */
static ssize_t receive(struct asker *asker, char *out, size_t most)
{
    ssize_t got;
    if (asker->tls == NULL)
        return wait_for(asker->fd, POLLIN, asker->deadline_ns) ? read(asker->fd, out, most) : -1;
    do
        got = gnutls_record_recv(asker->tls, out, most);
    while (again(asker, got));
    return got;
}

/* Sends the request and reads the status line, of which 12 bytes matter: "HTTP/1.1 200". */
static bool exchange(char line[13], struct asker *asker)
{
    static const char request[] =
        "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    size_t have = 0;
    if (!send_all(asker, request, sizeof request - 1))
        return false;
    while (have < 12) {
        ssize_t got = receive(asker, line + have, 12 - have);
        if (got == 0)
            errno = ECONNRESET;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    line[12] = '\0';
    return true;
}

static void close_asker(struct asker *asker)
{
    if (asker->tls != NULL)
        gnutls_deinit(asker->tls);
    if (asker->trust != NULL)
        gnutls_certificate_free_credentials(asker->trust);
    if (asker->fd >= 0)
        close(asker->fd);
}

int srv_command_health(const struct srv_config *config)
{
    struct sockaddr_storage address;
    char url[SRV_URL_MAX], line[13] = "";
    struct asker asker = {.deadline_ns = srv_now_ns() + SRV_HEALTH_SECONDS * UINT64_C(1000000000)};
    socklen_t length = address_of(&address, config->host, (unsigned)config->port);
    srv_print_url(url, config, (unsigned)config->port);
    asker.fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool answered = asker.fd >= 0 &&
                    connect_within(asker.fd, &address, length, asker.deadline_ns) &&
                    (config->tls_cert == NULL || shake_hands(&asker)) && exchange(line, &asker);
    const char *why = asker.trouble != NULL ? asker.trouble : strerror(errno);
    if (!answered)
        fprintf(stderr, "attnd: %s: %s\n", url, why);
    else if (strcmp(line + 9, "200") != 0)
        fprintf(stderr, "attnd: %s is not ready: status %s\n", url, line + 9);
    close_asker(&asker);
    return answered && strcmp(line + 9, "200") == 0 ? 0 : 1;
}
