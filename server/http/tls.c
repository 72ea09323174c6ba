/* tls.c: PEM files, the certificate in use, sessions.
 *
 * Files are checked before libmicrohttpd gets them, since it would only say that it cannot start.
 * A certificate read again later is kept here, counted by the sessions that use it. */
#include "http/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/text_file.h"
#include "http/exchange.h"

/* The text up to its NUL, which is what libmicrohttpd reads of it. */
static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

/* Makes credentials of a certificate and its key; returns GnuTLS's status. */
static int new_pair(gnutls_certificate_credentials_t *out, const struct srv_tls *tls)
{
    gnutls_datum_t certificate = datum(tls->certificate), key = datum(tls->key);
    int result = gnutls_certificate_allocate_credentials(out);
    if (result != GNUTLS_E_SUCCESS)
        return result;
    result = gnutls_certificate_set_x509_key_mem(*out, &certificate, &key, GNUTLS_X509_FMT_PEM);
    if (result != GNUTLS_E_SUCCESS)
        gnutls_certificate_free_credentials(*out);
    return result;
}

/* Returns a text about what is wrong, with the key where *of_key is set, and GnuTLS's cause; NULL,
 * with `expires` set, where nothing is. */
static const char *find_fault(int *cause, bool *of_key, struct srv_tls *tls)
{
    gnutls_x509_crt_t *chain = NULL;
    gnutls_x509_privkey_t key;
    gnutls_certificate_credentials_t pair;
    unsigned count = 0;
    gnutls_datum_t certificate_text = datum(tls->certificate), key_text = datum(tls->key);
    *cause = gnutls_x509_crt_list_import2(&chain, &count, &certificate_text, GNUTLS_X509_FMT_PEM,
                                          GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    *of_key = *cause >= 0;
    if (*cause < 0)
        return "no certificate in PEM form";
    tls->expires = gnutls_x509_crt_get_expiration_time(chain[0]);
    for (unsigned i = 0; i < count; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    *cause = gnutls_x509_privkey_init(&key);
    if (*cause == GNUTLS_E_SUCCESS) {
        *cause = gnutls_x509_privkey_import2(key, &key_text, GNUTLS_X509_FMT_PEM, NULL, 0);
        gnutls_x509_privkey_deinit(key);
    }
    if (*cause != GNUTLS_E_SUCCESS)
        return "no key in PEM form without a password";
    *cause = new_pair(&pair, tls);
    if (*cause != GNUTLS_E_SUCCESS)
        return "not the key of the certificate";
    gnutls_certificate_free_credentials(pair);
    return NULL;
}

bool srv_tls_read(struct srv_tls *out, const char *certificate, const char *key, char *message,
                  size_t size)
{
    size_t length;
    int cause;
    bool of_key;
    *out = (struct srv_tls){.certificate = NULL};
    if (certificate == NULL || key == NULL)
        return true;
    bool read =
        srv_text_read(&out->certificate, &length, certificate, SRV_MAX_PEM_BYTES, SRV_TEXT_PUBLIC,
                      message, size) &&
        srv_text_read(&out->key, &length, key, SRV_MAX_PEM_BYTES, SRV_TEXT_SECRET, message, size);
    const char *fault = read ? find_fault(&cause, &of_key, out) : NULL;
    if (fault != NULL)
        snprintf(message, size, "%s: %s: %s", of_key ? key : certificate, fault,
                 gnutls_strerror(cause));
    if (!read || fault != NULL)
        srv_tls_fini(out);
    return read && fault == NULL;
}

void srv_tls_fini(struct srv_tls *tls)
{
    free(tls->certificate);
    if (tls->key != NULL)
        srv_text_wipe(tls->key, strlen(tls->key));
    *tls = (struct srv_tls){.certificate = NULL};
}

bool srv_tls_expired(const struct srv_tls *tls)
{
    return tls->certificate != NULL && tls->expires <= time(NULL);
}

void srv_tls_date(char out[SRV_TLS_DATE], const struct srv_tls *tls)
{
    struct tm utc = {0};
    gmtime_r(&tls->expires, &utc);
    size_t length = strftime(out, SRV_TLS_DATE, "%Y-%m-%d", &utc);
    snprintf(out + length, SRV_TLS_DATE - length, "%s",
             srv_tls_expired(tls) ? ", which is past: clients refuse it" : "");
}

/* ---- The certificate in use ------------------------------------------------------------------ */

struct srv_tls_credentials {
    atomic_size_t users; /* sessions, and the holder */
    gnutls_certificate_credentials_t pair;
};

static void put_credentials(struct srv_tls_credentials *credentials)
{
    if (credentials == NULL || atomic_fetch_sub(&credentials->users, 1) > 1)
        return;
    gnutls_certificate_free_credentials(credentials->pair);
    free(credentials);
}

bool srv_tls_replace(struct srv_tls_holder *holder, const struct srv_tls *tls)
{
    struct srv_tls_credentials *made = calloc(1, sizeof *made);
    if (made == NULL || new_pair(&made->pair, tls) != GNUTLS_E_SUCCESS) {
        free(made);
        return false;
    }
    atomic_init(&made->users, 1);
    pthread_mutex_lock(&holder->lock);
    struct srv_tls_credentials *old = holder->current;
    holder->current = made;
    pthread_mutex_unlock(&holder->lock);
    put_credentials(old);
    return true;
}

void srv_tls_holder_fini(struct srv_tls_holder *holder)
{
    put_credentials(holder->current);
    holder->current = NULL;
}

/* ---- Sessions -------------------------------------------------------------------------------- */

/* GnuTLS reads errno after the call that failed. */
static void wait_for_client(struct srv_connection *connection, bool to_write)
{
    srv_handshake_waits(connection, to_write);
    errno = EAGAIN;
}

/* libmicrohttpd sends one record of a reply a turn: a turn in which a record is sent is not
 * idle. */
static ssize_t send_record(gnutls_transport_ptr_t to, const void *bytes, size_t count)
{
    struct srv_connection *connection = to;
    ssize_t sent = send(connection->fd, bytes, count, MSG_NOSIGNAL);
    if (sent > 0)
        connection->loop->idle_turns = 0;
    else if (sent < 0 && errno == EAGAIN)
        wait_for_client(connection, true);
    return sent;
}

/* A request in plain HTTP gets an answer that a person can read.  What else of it has come is taken
 * from the socket, since closing would reset the connection, and the answer with it. */
static void answer_plain(int fd)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
                                 "Content-Type: text/plain\r\n"
                                 "Content-Length: 36\r\n"
                                 "Connection: close\r\n\r\n"
                                 "This port speaks TLS: ask https://.\n";
    char rest[4096];
    for (int i = 0; i < 8 && recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++)
        continue;
    if (send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        (void)shutdown(fd, SHUT_WR);
}

/* A method begins with a capital, no record of TLS does. */
static ssize_t receive(gnutls_transport_ptr_t from, void *out, size_t count)
{
    struct srv_connection *connection = from;
    ssize_t got = recv(connection->fd, out, count, 0);
    if (got < 0 && errno == EAGAIN)
        wait_for_client(connection, false);
    if (got > 0 && connection->handshake.under_way && !connection->handshake.heard) {
        const char first = *(const char *)out;
        connection->handshake.heard = true;
        if (first >= 'A' && first <= 'Z')
            answer_plain(connection->fd);
    }
    return got;
}

/* The client's last message: the head has its whole time from here. */
static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message)
{
    (void)type, (void)when, (void)message;
    struct srv_connection *connection = gnutls_transport_get_ptr(session);
    if (!incoming || !connection->handshake.under_way)
        return GNUTLS_E_SUCCESS;
    srv_handshake_ended(connection);
    srv_connection_deadline(connection, connection->loop->http->context.limits->header_timeout_ms);
    return GNUTLS_E_SUCCESS;
}

/* TCP_NODELAY: GnuTLS writes its part of a handshake in pieces, of which all but the first would
 * otherwise wait 40 ms for the peer's delayed acknowledgement. */
void srv_tls_session_init(struct srv_connection *connection, struct srv_tls_holder *holder)
{
    int on = 1;
    pthread_mutex_lock(&holder->lock);
    connection->credentials = holder->current;
    if (holder->current != NULL)
        atomic_fetch_add(&holder->current->users, 1);
    pthread_mutex_unlock(&holder->lock);
    if (connection->credentials != NULL)
        (void)gnutls_credentials_set(connection->tls, GNUTLS_CRD_CERTIFICATE,
                                     connection->credentials->pair);
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    gnutls_transport_set_ptr(connection->tls, connection);
    gnutls_transport_set_push_function(connection->tls, send_record);
    gnutls_transport_set_pull_function(connection->tls, receive);
    gnutls_handshake_set_hook_function(connection->tls, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST,
                                       on_finished);
    srv_handshake_begins(connection);
}

void srv_tls_session_fini(struct srv_connection *connection)
{
    put_credentials(connection->credentials);
}

void srv_tls_send(void *session, const void *bytes, size_t count)
{
    const char *at = bytes;
    ssize_t sent = 1;
    while (count > 0 && sent > 0) {
        sent = gnutls_record_send(session, at, count);
        if (sent > 0) {
            at += sent;
            count -= (size_t)sent;
        }
    }
    if (count == 0)
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}

bool srv_tls_pending(void *session) { return gnutls_record_check_pending(session) > 0; }

/* libmicrohttpd's, in place of GnuTLS's own function, which is the same without the numbers of
 * records (mhd_workarounds.c, 13). */
ssize_t gnutls_record_recv(gnutls_session_t session, void *bytes, size_t most)
{
    unsigned char number[8];
    ssize_t count;
    do {
        count = gnutls_record_recv_seq(session, bytes, most, number);
        if (count <= 0 || !srv_mhd_reads())
            return count;
        count = srv_mhd_scan(gnutls_transport_get_ptr(session), bytes, (size_t)count);
    } while (count == 0);
    return count > 0 ? count : GNUTLS_E_INVALID_REQUEST;
}
