/* command_health.c: attnd --health-check: asks GET /readyz of the daemon with the same
 * configuration.
 *
 * The probe is a process of its own that does nothing else, so it uses blocking calls, and an
 * interval timer interrupts them once the time is over.
 *
 * A daemon with a certificate listens for TLS only, and nothing but the status of /readyz tells
 * ready from loading, so the probe has to speak TLS too.  GnuTLS takes some 35 lines for that; a
 * second, plain listener in the daemon would take more, and be one more port to guard.  The
 * certificate is not verified: the question goes to this machine, is no secret, and names in
 * certificates are not those of loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <sys/time.h>
#include <unistd.h>

#include "main.h"

#define STATUS_LINE 12 /* bytes of it that matter: "HTTP/1.1 200" */
#define STATUS_CODE 9  /* where the code begins */

static const char request[] =
    "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/* The address to reach a daemon that listens on `host`: loopback where that is the wildcard. */
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

static void interrupt(int signal_number) { (void)signal_number; }

/* Makes every call that blocks after SRV_HEALTH_SECONDS fail with EINTR.  The timer repeats, for a
 * signal between two calls interrupts none. */
static void limit_time(void)
{
    const struct sigaction action = {.sa_handler = interrupt}; /* without SA_RESTART */
    const struct itimerval timer = {.it_value.tv_sec = SRV_HEALTH_SECONDS,
                                    .it_interval.tv_usec = 100000};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static const char *system_error(int error) { return strerror(error == EINTR ? ETIMEDOUT : error); }

/* Sends the request and reads the status line; NULL, or why there was none. */
static const char *ask(char line[STATUS_LINE + 1], int fd)
{
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return system_error(errno);
    ssize_t received = recv(fd, line, STATUS_LINE, MSG_WAITALL);
    if (received == STATUS_LINE)
        return NULL;
    return system_error(received < 0 ? errno : ECONNRESET);
}

static bool is_to_repeat(ssize_t result)
{
    return result < 0 && result != GNUTLS_E_INTERRUPTED && gnutls_error_is_fatal((int)result) == 0;
}

static ssize_t ask_session(char line[STATUS_LINE + 1], gnutls_session_t tls)
{
    ssize_t result, received = 0;
    do
        result = gnutls_handshake(tls);
    while (is_to_repeat(result));
    if (result == GNUTLS_E_SUCCESS)
        result = gnutls_record_send(tls, request, sizeof request - 1);
    while (result > 0 && received < STATUS_LINE) {
        do
            result = gnutls_record_recv(tls, line + received, (size_t)(STATUS_LINE - received));
        while (is_to_repeat(result));
        received += result > 0 ? result : 0;
    }
    return result;
}

/* Does what ask() does, over TLS. */
static const char *ask_tls(char line[STATUS_LINE + 1], int fd)
{
    gnutls_session_t tls = NULL;
    gnutls_certificate_credentials_t trust = NULL;
    ssize_t result = GNUTLS_E_MEMORY_ERROR;
    if (gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) == GNUTLS_E_SUCCESS &&
        gnutls_certificate_allocate_credentials(&trust) == GNUTLS_E_SUCCESS &&
        gnutls_set_default_priority(tls) == GNUTLS_E_SUCCESS &&
        gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, trust) == GNUTLS_E_SUCCESS) {
        gnutls_transport_set_int(tls, fd);
        result = ask_session(line, tls);
    }
    gnutls_deinit(tls);
    if (trust != NULL)
        gnutls_certificate_free_credentials(trust);
    if (result > 0)
        return NULL;
    if (result == 0 || result == GNUTLS_E_INTERRUPTED)
        return strerror(result == 0 ? ECONNRESET : ETIMEDOUT);
    return gnutls_strerror((int)result);
}

int srv_command_health(const struct srv_config *config)
{
    struct sockaddr_storage address;
    char url[SRV_URL_MAX], line[STATUS_LINE + 1] = "";
    const char *status = line + STATUS_CODE, *why;
    socklen_t length = address_of(&address, config->host, (unsigned)config->port);
    srv_config_print_url(url, config, (unsigned)config->port);
    limit_time();
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, length) != 0)
        why = system_error(errno);
    else
        why = config->tls_cert != NULL ? ask_tls(line, fd) : ask(line, fd);
    if (fd >= 0)
        close(fd);
    if (why != NULL)
        fprintf(stderr, "attnd: %s: %s\n", url, why);
    else if (strcmp(status, "200") != 0)
        fprintf(stderr, "attnd: %s is not ready: status %s\n", url, status);
    return why == NULL && strcmp(status, "200") == 0 ? 0 : 1;
}
