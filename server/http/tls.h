/* tls.h: the certificate and key of HTTPS, and what is done to a TLS session beside libmicrohttpd,
 * which makes and serves the sessions. */
#ifndef SRV_TLS_H
#define SRV_TLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define SRV_MAX_PEM_BYTES 262144 /* of the file of a certificate or key */

/* TLS 1.3 and 1.2, with forward secrecy and without SHA-1: for GnuTLS, of which a session is a
 * gnutls_session_t. */
#define SRV_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-SHA1"

struct srv_tls {
    char *certificate, *key; /* PEM; NULL: plain HTTP */
    time_t expires;          /* of the certificate */
};

/* Reads both files and checks that they are a pair; without names *out stays empty.  A chain stands
 * in the certificate's file, its own first.  Where that is not so *out is empty and `message` one
 * line that names the file. */
bool srv_tls_read(struct srv_tls *out, const char *certificate, const char *key, char *message,
                  size_t size);

/* Wipes the texts.  libmicrohttpd needs them while it starts only. */
void srv_tls_fini(struct srv_tls *tls);

/* "2027-01-31" */
#define SRV_TLS_DATE 16
void srv_tls_date(char out[SRV_TLS_DATE], const struct srv_tls *tls);

/* The certificate in use where it is no longer the one that libmicrohttpd began with.  Starts as
 * {.lock = PTHREAD_MUTEX_INITIALIZER}. */
struct srv_credentials; /* a certificate and its key as GnuTLS has them, and who uses them */
struct srv_tls_use {
    pthread_mutex_t lock;
    struct srv_credentials *current; /* NULL: the first */
};

/* Sessions that begin from now on have this certificate; those that have begun keep theirs.  False
 * where memory is short: nothing has changed. */
bool srv_tls_replace(struct srv_tls_use *use, const struct srv_tls *tls);
void srv_tls_use_fini(struct srv_tls_use *use);

/* Readies the session of a connection that was just accepted: connection->tls.  `end` when that is
 * over. */
struct srv_connection;
void srv_tls_begin(struct srv_connection *connection, struct srv_tls_use *use);
void srv_tls_end(struct srv_connection *connection);

/* Sends as much as the socket takes without waiting, and that this is the end. */
void srv_tls_send(void *session, const void *bytes, size_t count);

/* Whether bytes of the peer have left the socket, but not the session. */
bool srv_tls_pending(void *session);

#endif
