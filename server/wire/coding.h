/* coding.h: content codings of HTTP: request bodies that arrive as gzip or deflate, replies that
 * leave as one of them.
 *
 * A coded body is one member of gzip (RFC 1952) or one stream of zlib (RFC 1950, which HTTP calls
 * deflate): complete, with a correct checksum, and followed by nothing. */
#ifndef SRV_CODING_H
#define SRV_CODING_H

#include "base/cancel.h"

enum srv_coding { SRV_IDENTITY, SRV_GZIP, SRV_DEFLATE };

/* The option reply_compression: which large replies are compressed where the body does not say. */
enum srv_reply_compression {
    SRV_COMPRESS_ASKED, /* none: clients' libraries send Accept-Encoding whether it pays or not */
    SRV_COMPRESS_JSON,
    SRV_COMPRESS_ALL,
};

/* The coding's name in Content-Encoding. */
const char *srv_coding_name(enum srv_coding coding);

struct srv_decompress_limits {
    size_t most;                                /* bytes of output */
    bool (*grant)(void *context, size_t bytes); /* asked before memory is taken; NULL: not */
    void *context;
    struct srv_cancel cancel; /* asked between pieces */
};

/* Decompresses `size` bytes.  *out, of *length bytes and a NUL after them, is the caller's to free.
 * Errors: malformed_encoding, body_too_large, out_of_memory, and those of limits->cancel. */
enum srv_error_code srv_decompress(char **out, size_t *length, enum srv_coding coding,
                                   const char *bytes, size_t size,
                                   const struct srv_decompress_limits *limits,
                                   struct srv_error *error);

struct srv_request;

/* Replaces a request's coded body by its plain form of at most `most` bytes, whose memory is
 * charged to the request; an identity body stays as it is.  `cancel` is asked between pieces; NULL:
 * nobody is.  Errors: as srv_decompress. */
enum srv_error_code srv_body_decompress(struct srv_request *request, size_t most,
                                        const struct srv_cancel *cancel, struct srv_error *error);

/* Compresses one piece, a few milliseconds' work, of a reply of more than SRV_LARGE_BYTES that is
 * to be compressed (request->compresses), with the coding that the client accepts.  True while
 * pieces are left.  The caller then calls again, or `stop`, which drops what was compressed.  The
 * reply's body is replaced with the last piece, and stays plain where it would not get shorter or
 * memory is short. */
bool srv_reply_compress(struct srv_request *request);

/* Does nothing for a reply that is not being compressed. */
void srv_reply_compress_stop(struct srv_request *request);

#endif
