/* coding.h: content codings: bodies that arrive as gzip or deflate, replies that leave so.
 *
 * A body is one member of gzip (RFC 1952) or one stream of zlib (RFC 1950, which HTTP calls
 * deflate), whole, with its checksum right and nothing behind it. */
#ifndef SRV_CODING_H
#define SRV_CODING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"
#include "base/errors.h"

enum srv_coding { SRV_IDENTITY, SRV_GZIP, SRV_DEFLATE };

/* What it is in Content-Encoding. */
const char *srv_coding_name(enum srv_coding coding);

struct srv_decompress_limits {
    size_t most;                                /* bytes of what comes out */
    bool (*grant)(void *context, size_t bytes); /* asked before memory is taken */
    void *context;
    struct srv_cancel pause; /* asked between pieces */
};

/* Expands bytes of a coding; *out, of *length bytes with a NUL behind them, is the caller's to
 * free.  Errors: malformed_encoding, body_too_large, out_of_memory, and what `pause` says. */
enum srv_error_code srv_decompress(char **out, size_t *length, enum srv_coding coding,
                                   const char *bytes, size_t size,
                                   const struct srv_decompress_limits *limits,
                                   struct srv_error *error);

struct srv_request;

/* Puts a request's body in place of its coded form, charging what that takes; `most` bytes. */
enum srv_error_code srv_body_decompress(struct srv_request *request, size_t most,
                                        struct srv_error *error);

/* Codes a piece of a reply of more than SRV_LARGE_BYTES (clerk.h) if the client takes that and it
 * gets shorter and memory is there; else leaves it as it is.  True while there is more to do, for
 * which it is called again, or `stop`, which leaves the reply as it was; either is a few
 * milliseconds at most. */
bool srv_reply_compress(struct srv_request *request);
void srv_reply_compress_stop(
    struct srv_request *request); /* does nothing where none is being coded */

#endif
