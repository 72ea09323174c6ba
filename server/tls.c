/* tls.c: PEM files, checked before libmicrohttpd is given them: it would only say that it cannot
 * start. */
#include "tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http_loop.h"
#include "text_file.h"

/* libmicrohttpd takes texts up to their NUL, so that is what is looked at. */
static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

static bool refuse(const char *path, const char *what, int cause, char *message, size_t size)
{
    snprintf(message, size, "%s: %s: %s", path, what, gnutls_strerror(cause));
    return false;
}

static bool check_certificate(struct srv_tls *tls, const char *path, char *message, size_t size)
{
    gnutls_x509_crt_t *chain = NULL;
    unsigned count = 0;
    gnutls_datum_t text = datum(tls->certificate);
    int result = gnutls_x509_crt_list_import2(&chain, &count, &text, GNUTLS_X509_FMT_PEM,
                                              GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    if (result < 0)
        return refuse(path, "no certificate in PEM form", result, message, size);
    tls->expires = gnutls_x509_crt_get_expiration_time(chain[0]);
    for (unsigned i = 0; i < count; i++)
        gnutls_x509_crt_deinit(chain[i]);
    gnutls_free(chain);
    return true;
}

static bool check_key(struct srv_tls *tls, const char *path, char *message, size_t size)
{
    gnutls_x509_privkey_t key;
    gnutls_datum_t text = datum(tls->key);
    int result = gnutls_x509_privkey_init(&key);
    if (result == GNUTLS_E_SUCCESS) {
        result = gnutls_x509_privkey_import2(key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
        gnutls_x509_privkey_deinit(key);
    }
    return result == GNUTLS_E_SUCCESS ||
           refuse(path, "no key in PEM form without a password", result, message, size);
}

static bool check_pair(struct srv_tls *tls, const char *path, char *message, size_t size)
{
    gnutls_certificate_credentials_t both;
    gnutls_datum_t certificate = datum(tls->certificate), key = datum(tls->key);
    int result = gnutls_certificate_allocate_credentials(&both);
    if (result == GNUTLS_E_SUCCESS) {
        result = gnutls_certificate_set_x509_key_mem(both, &certificate, &key, GNUTLS_X509_FMT_PEM);
        gnutls_certificate_free_credentials(both);
    }
    return result == GNUTLS_E_SUCCESS ||
           refuse(path, "not the key of the certificate", result, message, size);
}

bool srv_tls_read(struct srv_tls *out, const char *certificate, const char *key, char *message,
                  size_t size)
{
    size_t length;
    *out = (struct srv_tls){.certificate = NULL};
    if (certificate == NULL || key == NULL)
        return true;
    bool read =
        srv_text_read(&out->certificate, &length, certificate, SRV_MAX_PEM_BYTES, SRV_TEXT_OPEN,
                      message, size) &&
        srv_text_read(&out->key, &length, key, SRV_MAX_PEM_BYTES, SRV_TEXT_SECRET, message, size) &&
        check_certificate(out, certificate, message, size) && check_key(out, key, message, size) &&
        check_pair(out, key, message, size);
    if (!read)
        srv_tls_fini(out);
    return read;
}

void srv_tls_fini(struct srv_tls *tls)
{
    free(tls->certificate);
    if (tls->key != NULL)
        srv_text_wipe(tls->key, strlen(tls->key));
    *tls = (struct srv_tls){.certificate = NULL};
}

void srv_tls_date(char out[SRV_TLS_DATE], const struct srv_tls *tls)
{
    struct tm utc = {0};
    gmtime_r(&tls->expires, &utc);
    if (strftime(out, SRV_TLS_DATE, "%Y-%m-%d", &utc) == 0)
        out[0] = '\0';
}

/* A reply goes out a record a turn, so a turn in which one went is not a silent one. */
static ssize_t push(gnutls_transport_ptr_t to, const void *bytes, size_t count)
{
    const struct srv_connection *connection = to;
    ssize_t sent = send(connection->fd, bytes, count, MSG_NOSIGNAL);
    if (sent > 0)
        connection->loop->silent_turns = 0;
    return sent;
}

/* GnuTLS writes its part of a handshake in pieces, of which all but the first would wait 40 ms for
 * the peer's delayed acknowledgement. */
void srv_tls_begin(struct srv_connection *connection)
{
    int on = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    gnutls_transport_set_ptr2(connection->tls, (gnutls_transport_ptr_t)(intptr_t)connection->fd,
                              connection);
    gnutls_transport_set_push_function(connection->tls, push);
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
