/* message.h: the requests in a stream of bytes, by the letter of RFC 9112.
 *
 * The reader shares no code with attnd, and where the RFC leaves a choice it is the strict one, as
 * docs/API.md promises: a folded line, a bare LF, a second length, a length beside a coding are
 * wrong; one empty line before a request is passed over; the authority of an absolute target has
 * to be Host's. */
#ifndef TESTS_FRAMING_MESSAGE_H
#define TESTS_FRAMING_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

#define MESSAGE_ID_MAX 64

enum message_kind {
    MESSAGE_NONE,    /* no byte is left */
    MESSAGE_WHOLE,   /* a request, and where it ends is beyond doubt */
    MESSAGE_REFUSED, /* a wrong head, or the stream ends within it */
    MESSAGE_BROKEN,  /* behind a right head a wrong chunk, or the stream ends within the body */
};

struct message {
    enum message_kind kind;
    size_t size;        /* bytes of the stream; of MESSAGE_WHOLE only, as all that follows */
    struct text line;   /* method, target and version, without line end */
    struct text host;   /* the value of Host; empty without it */
    struct text fields; /* lines that say nothing about framing, each with CR LF; never NULL */
    struct text body;   /* without its framing; never NULL */
    char id[MESSAGE_ID_MAX + 1]; /* X-Request-Id; "" where there is no valid one */
    bool is_head;                /* the method is HEAD */
    bool has_body;               /* framed by a length, which may be 0, or by chunks */
    bool chunked, expects;       /* Transfer-Encoding; Expect */
    bool closes;                 /* the client wants no further reply on this connection */
};

/* Reads the request at the beginning of the bytes; message_free releases it, whatever its kind. */
void message_read(struct message *out, const char *bytes, size_t length);
void message_free(struct message *message);

/* Copies a value that is a valid request id; false, with out empty, for any other. */
bool message_id(char out[MESSAGE_ID_MAX + 1], const char *value, size_t length);

#endif
