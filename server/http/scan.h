/* scan.h: the framing of HTTP/1.1 in the bytes of a connection, before anything parses them.
 *
 * libmicrohttpd answers what it cannot parse with pages of its own and reads much too leniently
 * (mhd_workarounds.c, 8 and 13).  So it gets only bytes that have passed here: request lines and
 * field lines that end in CR LF and hold no control character, lengths that are numbers, chunks
 * with their sizes.  The scan sees no socket and no memory but the bytes, wherever they are cut. */
#ifndef SRV_HTTP_SCAN_H
#define SRV_HTTP_SCAN_H

#include "config/bounds.h"

/* Why bytes are no request: the reply.  Rows of constant tables. */
struct srv_scan_fault {
    enum srv_error_code code;
    const char *param, *message;
};

#define SRV_SCAN_WORD sizeof "transfer-encoding"

/* One connection's scan; begins zeroed. */
struct srv_scan {
    const struct srv_scan_fault *fault; /* the scan has ended with this; NULL: it goes on */
    uint64_t requests;                  /* heads that have ended */
    uint64_t left;                      /* bytes of the body or chunk; while it is read its size */
    size_t bytes;                       /* of the head and the trailer, so far */
    size_t fields;                      /* the same; a parameter of the query counts as one */
    size_t line;                        /* bytes of the line before a chunk */
    uint8_t state, field;               /* scan.c's */
    uint8_t word_length;                /* of `word`; SRV_SCAN_WORD: longer */
    char word[SRV_SCAN_WORD];           /* the version, name or coding being read, small letters */
    bool skipped;                       /* an empty line before the request line */
    bool blank;                         /* blanks were taken out of the value's end */
    bool is_v2;                         /* the target is /v2 or below: errors have another form */
    bool is_old;                        /* HTTP/1.0 */
    bool in_trailer;                    /* after the last chunk */
    bool has_length, has_coding;        /* the head frames a body so */
    bool unframed;                      /* the guard refuses the head for how it frames the body */
};

/* Scans `count` bytes at `bytes`, the next of the connection, and returns how many of them, from
 * the first on, libmicrohttpd may see.  Changes three things in place: an empty line before a
 * request line is taken out, so are blanks behind a length or a coding, and the name Cookie becomes
 * Cooki_, since libmicrohttpd would take memory for each cookie.  At a fault those bytes are whole
 * requests, and the faulty one is not counted unless bytes of its head were let through before. */
size_t srv_scan(struct srv_scan *scan, char *bytes, size_t count);

/* Whether bytes are missing at the end of the body, or of the trailer, of the last request. */
bool srv_scan_in_body(const struct srv_scan *scan);

#endif
