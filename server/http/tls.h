/* tls.h: the certificate and key of HTTPS, and what attnd does to TLS sessions, which libmicrohttpd
 * makes and serves.  GnuTLS's header is seen by tls.c only: a session is a void *. */
#ifndef SRV_TLS_H
#define SRV_TLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define SRV_MAX_PEM_BYTES 262144 /* of the file of a certificate or key */

/* TLS 1.3 and 1.2, with forward secrecy and without SHA-1, in GnuTLS's words. */
#define SRV_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-SHA1"

struct srv_connection;
struct srv_tls_credentials; /* a certificate and its key as GnuTLS has them, counted by users */

struct srv_tls {
    char *certificate, *key; /* PEM; NULL: plain HTTP */
    time_t expires;          /* of the certificate */
};

/* Reads both files and checks that they are a pair; a chain stands in the certificate's file, its
 * own first.  Where a name is NULL *out is empty.  False: *out is empty and `message` [size] one
 * line that names the file at fault. */
bool srv_tls_read(struct srv_tls *out, const char *certificate, const char *key, char *message,
                  size_t size);

/* Wipes the texts, which libmicrohttpd needs only while it starts. */
void srv_tls_fini(struct srv_tls *tls);

/* Whether the certificate's time is over. */
bool srv_tls_expired(const struct srv_tls *tls);

/* "2027-01-31", and that this is past where it is. */
#define SRV_TLS_DATE 64
void srv_tls_date(char out[SRV_TLS_DATE], const struct srv_tls *tls);

/* The certificate that new sessions get, where it is no longer the one that libmicrohttpd began
 * with.  Starts as {.lock = PTHREAD_MUTEX_INITIALIZER}. */
struct srv_tls_holder {
    pthread_mutex_t lock;
    struct srv_tls_credentials *current; /* NULL: the one that libmicrohttpd began with */
};

/* Gives this certificate to sessions that begin from now on; those that have begun keep theirs.
 * False where memory is short: nothing has changed then.  Any thread. */
bool srv_tls_replace(struct srv_tls_holder *holder, const struct srv_tls *tls);
void srv_tls_holder_fini(struct srv_tls_holder *holder);

/* Prepares connection->tls, the session of a connection that was just accepted; `fini` gives back
 * its certificate when the connection has ended. */
void srv_tls_session_init(struct srv_connection *connection, struct srv_tls_holder *holder);
void srv_tls_session_fini(struct srv_connection *connection);

/* Sends as many bytes as the socket takes without waiting, and after the last the session's end. */
void srv_tls_send(void *session, const void *bytes, size_t count);

/* Whether the session holds bytes of the peer that have left the socket. */
bool srv_tls_pending(void *session);

#endif
