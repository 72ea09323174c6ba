/* bounds.h: every bound of the daemon.
 *
 * The bounds that options set are members of one struct, named as the options are (defaults:
 * options.c); the others are constants.  The table of all (bounds.c) is what --check prints
 * and docs/OPERATIONS.md shows. */
#ifndef SRV_BOUNDS_H
#define SRV_BOUNDS_H

#include "base/errors.h"

struct srv_limits {
    size_t max_body_bytes;             /* of one request */
    size_t max_reply_bytes;            /* of one reply, estimated before computing */
    size_t max_state_bytes;            /* of one exported or imported session */
    size_t max_in_flight_bytes;        /* bodies, tensors and replies of all requests together */
    size_t inputs_bytes;               /* of all inputs that are kept together */
    size_t max_client_in_flight_bytes; /* of these, what one API key or address may hold */
    size_t max_connections;
    size_t max_queue; /* requests waiting or running */
    size_t max_sessions;
    size_t max_weightless_shapes; /* different shapes of weightless sessions */
    size_t max_session_length;    /* tokens; also the default max_length */
    size_t max_tokens;            /* T and S of one /attend; rows of one decode item */
    size_t max_scores;            /* scores of one computation: B * H * T * S */
    size_t max_sequences;         /* items of one /decode */
    size_t max_session_waiting;   /* requests waiting for one session, beside the one that runs */
    size_t cache_bytes;           /* the cache pool's budget */
    size_t session_ttl_s;         /* idle seconds until a session expires */
    size_t header_timeout_ms;     /* from connecting, and again from the request line, to the last
                                 * header */
    size_t body_timeout_ms;       /* from the last header to the last byte of the body */
    size_t reply_timeout_ms;      /* of a client that takes nothing of its reply, or too slowly */
    size_t idle_timeout_s;        /* from a reply to the next request line */
    size_t drain_timeout_s;       /* of running requests after SIGTERM; the final save follows */
};

/* Bounds that are not options. */
#define SRV_JSON_MAX_DEPTH 16      /* nesting of a request body */
#define SRV_MAX_HEADERS 64         /* header and trailer fields, query parameters of a request */
#define SRV_MAX_HEADER_BYTES 16384 /* of request line, header fields and trailer fields */
#define SRV_MAX_CHUNK_LINE 1024    /* bytes of a chunk's size and extensions, with CR LF */
#define SRV_TENSOR_RANK 4
#define SRV_CONNECTION_BYTES ((size_t)24576) /* buffers of one connection, for its headers */
#define SRV_TLS_SESSION_BYTES 49152  /* GnuTLS: 11 KiB idle, and a record of 16 KiB each way */
#define SRV_MAX_MODELS 256           /* entries of `models` */
#define SRV_MAX_ADOPTED 16           /* directories of `adopt` */
#define SRV_MAX_CONFIG_BYTES 1048576 /* of the configuration file */
#define SRV_MAX_DOCUMENT_BYTES 32768 /* of a body that is read into a tree */
#define SRV_MAX_INPUTS 1024          /* that PUT /inputs/{digest} keeps, of all keys together */
#define SRV_INPUT_TTL_S 600          /* for which one is kept without a use */
#define SRV_MAX_TTL_S 31536000       /* a year */
#define SRV_JOURNAL_WAIT_S 10        /* for the disk, until the daemon is not ready */
#define SRV_MAX_DEADLINE_MS 86400000 /* of X-Deadline-Ms: a day */
#define SRV_MAX_RETRY_S 60           /* of Retry-After */
#define SRV_MAX_CALLERS 64           /* API keys */
#define SRV_MAX_EVENT_THREADS 64     /* event threads */
#define SRV_MAX_HANDSHAKES 512       /* TLS handshakes under way, of one event thread */
#define SRV_MAX_RESERVED 32          /* connections beyond max_connections, of one event thread */
#define SRV_RESERVED_MS 1000         /* for the head of one of these, or its reply */
#define SRV_MAX_PAGE_SESSIONS 100    /* sessions of one page of their list */
#define SRV_DISCARD_BYTES 1048576    /* of a refused body, read so that the connection goes on */
#define SRV_LINGER_BYTES ((size_t)1 << 30) /* more of it, thrown away after the reply */
#define SRV_LINGER_MS 30000                /* the same; the connection is then closed */
#define SRV_LINGER_IDLE_MS 5000            /* the same, without a byte */
#define SRV_CLIENT_COUNTERS 4096           /* of what addresses hold in flight */
#define SRV_BATCH_STEPS 256                /* most items of one batch */
#define SRV_BATCH_ROWS 1024                /* most rows of one batch */
#define SRV_BATCH_KEYS ((size_t)1 << 20) /* most keys of its masked items, unless it is one item */
#define SRV_DECODE_ROWS_MAX 64           /* a step of more rows is a prefill, which runs alone */
#define SRV_PROBE_BYTES 1048576  /* that probes and metrics may take beyond max_in_flight_bytes */
#define SRV_MIN_WRITE_RATE 65536 /* bytes per second; a slower reader of replies is disconnected */

/* A row of the table of bounds. */
struct srv_bound {
    const char *name;
    size_t value;             /* of a constant; of an option its offset in struct srv_config */
    bool is_option;           /* the size_t at that offset is the bound */
    const char *unit;         /* "bytes"; NULL where the number counts what the name says */
    enum srv_error_code code; /* the error beyond the bound; SRV_OK: `beyond` instead */
    const char *beyond;       /* what happens beyond it where no caller gets an error */
    const char *subject;      /* what is bounded, in words */
};

extern const struct srv_bound srv_bounds[];
extern const size_t srv_bound_count;

/* Appends the table with the configuration's values, one row a line, as --check prints it. */
struct srv_config;
struct srv_buffer;
void srv_bounds_print(struct srv_buffer *out, const struct srv_config *config);

/* Beyond SRV_DECOMPRESS_FREE_BYTES a body expands to no more than so many times its length: text of
 * numbers comes nowhere near. */
#define SRV_DECOMPRESS_RATIO_MAX 200
#define SRV_DECOMPRESS_FREE_BYTES 1048576

#endif
