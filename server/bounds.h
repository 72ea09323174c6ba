/* bounds.h: every bound of the daemon in one struct.  Options of the same names set them; the
 * defaults stand in their table (config_options.c). */
#ifndef SRV_BOUNDS_H
#define SRV_BOUNDS_H

#include <stddef.h>

struct srv_limits {
    size_t max_body_bytes;      /* of one request */
    size_t max_reply_bytes;     /* of one reply, estimated before computing */
    size_t max_state_bytes;     /* of one exported or imported session */
    size_t max_in_flight_bytes; /* bodies, tensors and replies of all requests together */
    size_t max_connections;
    size_t max_queue; /* requests waiting or running */
    size_t max_sessions;
    size_t max_session_length;  /* tokens; also the default max_length */
    size_t max_tokens;          /* T, and S, of one /attend; rows of one decode item */
    size_t max_scores;          /* scores of one computation: B * H * T * S */
    size_t max_sequences;       /* items of one /decode */
    size_t max_session_waiting; /* requests waiting for one session */
    size_t cache_bytes;         /* the cache pool's budget */
    size_t session_ttl_s;       /* idle seconds until a session expires */
    size_t header_timeout_ms;   /* from the first byte, or the last reply, to the last header */
    size_t body_timeout_ms;     /* from the last header to the last byte of the body */
    size_t idle_timeout_s;      /* of a kept-alive connection */
    size_t drain_timeout_s;     /* from SIGTERM to exit */
};

/* Bounds that are not options. */
#define SRV_JSON_MAX_DEPTH 16      /* nesting of a request body */
#define SRV_MAX_HEADERS 64         /* header fields of a request */
#define SRV_MAX_HEADER_BYTES 16384 /* of all header fields together */
#define SRV_ID_MAX 64              /* characters of a session id, model name or request id */
#define SRV_TENSOR_RANK 4
#define SRV_CONNECTION_BYTES 24576   /* buffers of one connection, for its headers */
#define SRV_TLS_SESSION_BYTES 49152  /* GnuTLS: 11 KiB idle, and a record of 16 KiB each way */
#define SRV_MAX_MODELS 256           /* entries of `models` */
#define SRV_MAX_CONFIG_BYTES 1048576 /* of the configuration file */
#define SRV_MAX_DOCUMENT_BYTES 16384 /* of a body that is read into a tree */
#define SRV_MAX_TTL_S 31536000       /* a year */

#endif
