/* raw.h: a client that sends any bytes at any pace, for requests that libcurl would never make.
 *
 * Every wait has a deadline.  Only a refused connection fails a test here; the test itself judges
 * the answers. */
#ifndef TESTS_HTTP_RAW_H
#define TESTS_HTTP_RAW_H

#include <stdbool.h>
#include <stddef.h>

#include "record.h"

#define RAW_MAX_BYTES ((size_t)64 << 20) /* of answers that are held at once */

struct raw {
    int fd;
    void *tls;   /* a gnutls_session_t; NULL: plain */
    void *trust; /* its credentials */
    bool cut;    /* TLS ended without a close_notify */
    char *data;  /* received and not yet taken, NUL-terminated */
    size_t length;
    struct sent sent; /* requests without an answer, where exchanges are recorded */
};

struct raw_answer {
    unsigned status; /* 0: no answer came */
    char *head;      /* status line and fields, NUL-terminated; NULL for none */
    char *body;      /* NUL-terminated */
    size_t length;   /* of the body */
};

void raw_open(struct raw *raw, const char *host, unsigned port);
bool raw_accept(struct raw *raw, int listener); /* the next connection; false where none comes */

/* Opens a connection over TLS, and accepts any certificate.  `priorities`: NULL, or "NORMAL:..."
 * with the ciphers and versions.  False where the handshake fails or takes longer than a minute. */
bool raw_open_tls(struct raw *raw, const char *host, unsigned port, const char *priorities);

void raw_close(struct raw *raw);
void raw_reset(struct raw *raw); /* closes with a reset instead of a proper end */

/* False where the other side no longer takes bytes. */
bool raw_send(struct raw *raw, const void *bytes, size_t count);
bool raw_text(struct raw *raw, const char *text);
bool raw_slowly(struct raw *raw, const void *bytes, size_t count, size_t piece, unsigned pause_ms);
void raw_half_close(struct raw *raw); /* nothing more will be sent; answers are still read */

/* Takes the next answer or, on the server's end, the next request, whose status is 0; skips 100
 * Continue.  `head_only` is for answers to HEAD.  Status 0 where the connection ended or the time
 * was up before the answer was whole. */
struct raw_answer raw_read(struct raw *raw, bool head_only, unsigned timeout_ms);
void raw_answer_free(struct raw_answer *answer);

/* Copies the value of a header field; false, with out empty, where there is none. */
bool raw_header(char out[256], const struct raw_answer *answer, const char *name);

/* Reads until the other side ends the connection; true where it did in time.  The bytes are in
 * raw->data. */
bool raw_read_to_end(struct raw *raw, unsigned timeout_ms);

/* Opens a connection, sends the text, reads one answer, and closes the connection. */
struct raw_answer raw_exchange(const char *host, unsigned port, const char *text,
                               unsigned timeout_ms);

#endif
