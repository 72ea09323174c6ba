/* request.h: one HTTP request and its reply, as every room sees them.
 *
 * The http room makes a request, reads its head and body and sends its reply; what happens between
 * is done by rooms that know nothing of libmicrohttpd.  One thread at a time has a request: its
 * event thread, the engine owner or an I/O worker (schedule/).  Its memory is the arena's, freed at
 * the one exit; all of it is charged to the daemon's budget of bytes in flight. */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/buffer.h"
#include "base/errors.h"
#include "base/id.h"
#include "base/queue_node.h"
#include "config/bounds.h"
#include "wire/coding.h"

struct srv_app;        /* app.h; for api/ only */
struct srv_io_workers; /* schedule/io_workers.h */
struct srv_job;        /* schedule/job.h */
struct srv_route;      /* wire/route.h */

#define SRV_LARGE_BYTES ((size_t)256 << 10) /* of a body, or of a reply's outputs */

enum srv_method { SRV_GET, SRV_POST, SRV_PUT, SRV_DELETE, SRV_METHOD_COUNT };

struct srv_reply {
    unsigned status; /* 0 until set, and where the client left during its upload */
    struct srv_buffer body;
    const char *content_type; /* static text; application/json unless set */
    size_t json_length;       /* of a body in binary form; 0 otherwise */
    char allow[64];           /* Allow header, "" for none */
    unsigned retry_after_s;   /* Retry-After header, 0 for none; set when the reply is sent */
    enum srv_coding coding;   /* of the body */
    bool varies;              /* it would be coded, or not, for another Accept-Encoding */
    enum srv_error_code code; /* SRV_OK or the error sent, for log and metrics */
};

struct srv_request {
    struct srv_app *app;
    const struct srv_limits *limits;
    const atomic_bool *stopping;   /* the daemon ends: what still runs or waits is refused */
    struct srv_budget *in_flight;  /* of the daemon; `charged` of it is this request's */
    size_t charged;                /* bytes */
    const struct srv_route *route; /* NULL where none matched */
    enum srv_method method;
    char path_arg[SRV_ID_MAX + 1]; /* what stood for {id} or {name}; "" without */
    char request_id[SRV_ID_MAX + 1];
    char session_header[SRV_ID_MAX + 1];  /* X-Session-Id, "" without */
    char idempotency_key[SRV_ID_MAX + 1]; /* the caller's own (http_auth.h), likewise */
    const char *query;                    /* text after '?', cut at 127; NULL without */
    char *body;                           /* NUL-terminated for convenience; NULL without one */
    char *small_body;                     /* room of the exchange: never freed */
    size_t body_length;
    bool framed;              /* the body's JSON ends at json_length; tensors follow it */
    uint64_t json_length;     /* as Inference-Header-Content-Length says; may pass body_length */
    bool binary;              /* the reply's tensors are to be bytes */
    enum srv_coding coding;   /* of the body, until it is expanded */
    enum srv_coding accepted; /* of a large reply */
    struct srv_arena arena;   /* freed at the one exit */
    struct srv_reply reply;
    char caller_name[SRV_ID_MAX + 1]; /* of that key, "" without one */
    unsigned caller;                  /* place of the API key it came with; 0 without keys */
    size_t reply_bytes;               /* that the outputs taken so far will take at most */
    struct srv_compressor
        *compressor; /* of a reply that is being coded (coding.h); NULL: none is */
    struct srv_io_workers *io_workers; /* that have the request, or NULL (schedule/io_workers.h) */
    struct srv_queue_node node;        /* in their queue */
    bool expands;                      /* the body, to more than is small */
    struct srv_job *job;               /* the scheduler's, in the arena; job.h */
    /* Monotonic nanoseconds: first header seen, body whole, job taken, computing, computed,
     * replied.  0 where a stage was not reached. */
    uint64_t t_start, t_body, t_taken, t_compute, t_computed, t_replied;
    uint64_t deadline_ns; /* likewise: its reply is of no use from then on; 0: it always is */
    atomic_bool left;     /* its client has gone, and nobody waits for the reply */
    void *connection;     /* the http room's exchange */
};

/* Charges memory that a request takes beyond body and arena to max_in_flight_bytes, until it ends.
 * False where that would pass the limit; routes that are served while draining may pass it by
 * SRV_PROBE_BYTES, so that probes and metrics are answered when requests have used it up. */
bool srv_request_charge(struct srv_request *request, size_t bytes);

/* The body becomes `body`, from malloc, of `length` bytes and a NUL, which have been charged. */
void srv_request_replace_body(struct srv_request *request, char *body, size_t length);

/* Frees the body and the arena, and with it the job, once the reply is written: at leisure, while
 * the event thread has better to do.  They stay charged until the request ends. */
void srv_request_release(struct srv_request *request);

/* Bytes that the body of a request may have at most, once it is expanded. */
size_t srv_body_limit(const struct srv_request *request);

/* Makes the reply an error: status, code, and the one form of an error's body. */
void srv_reply_error(struct srv_request *request, const struct srv_error *error);

/* Makes the reply a success, whose body stands in reply.body. */
void srv_reply_status(struct srv_request *request, unsigned status);

#endif
