/* request.h: one HTTP request and its reply, as every room sees them.
 *
 * The http room makes a request, reads its head and body and sends its reply; the rooms that act on
 * it in between know nothing of libmicrohttpd.  One thread at a time has a request: its event
 * thread, the engine thread or an I/O worker (schedule/).  The job and its tensors live in the
 * request's arena, which is freed when the exchange ends at the latest; every byte that a request
 * takes is charged to the daemon's budget of bytes in flight. */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include "base/arena.h"
#include "base/budget.h"
#include "base/buffer.h"
#include "base/cancel.h"
#include "config/keys.h"
#include "wire/coding.h"
#include "wire/trace.h"

struct srv_app;           /* app.h; for api/ only */
struct srv_codec_workers; /* schedule/dispatch.h */
struct srv_input_ref;     /* wire/inputs.c */
struct srv_inputs;        /* wire/inputs.h */
struct srv_item;          /* schedule/job.h */
struct srv_job;           /* schedule/job.h */
struct srv_request;
struct srv_route;      /* wire/route.h */
struct srv_v2_outputs; /* wire/v2.h */

/* The member by which a request or an item waits in a fair queue (schedule/fair_queue.h). */
struct srv_queue_node {
    struct srv_queue_node *next;
    struct srv_request *request; /* that waits, or whose job waits */
    struct srv_item *item;       /* of that job, which waits instead; or NULL */
    unsigned caller; /* index of the API key that the request came with, below SRV_MAX_CALLERS */
    size_t cost;     /* that the caller is charged, in units of the queue's user; at least 1 */
};

#define SRV_TAG_SIZE (sizeof "W/\"01234567\"") /* of an entity tag, with NUL */
#define SRV_LARGE_BYTES ((size_t)256 << 10)    /* of a body, or of a reply's outputs */
#define SRV_QUERY_MAX 191 /* characters that are kept of a query; no route has a meaning for more */

enum srv_method { SRV_GET, SRV_POST, SRV_PUT, SRV_DELETE, SRV_METHOD_COUNT };
const char *srv_method_name(enum srv_method method); /* "GET" */

struct srv_reply {
    unsigned status; /* 0 until set, and where the client left during its upload */
    uint32_t tag;    /* ETag header of what a client may keep; 0: it may keep nothing */
    struct srv_buffer body;
    const char *content_type; /* static text; NULL: application/json */
    const char *fields;       /* static lines of more header fields, each with CR LF; or NULL */
    size_t json_length;       /* of a body in binary form; 0 otherwise */
    char allow[64];           /* Allow header, "" for none */
    unsigned retry_after_s;   /* Retry-After header, 0 for none; set when the reply is sent */
    enum srv_coding coding;   /* of the body */
    char instance[SRV_INSTANCE_MAX + 1]; /* X-Attn-Owner header, "" for none */
    bool varies;                         /* another Accept-Encoding could give another coding */
    enum srv_error_code code;            /* SRV_OK or the error sent, for log and metrics */
};

struct srv_request {
    struct srv_app *app;
    const struct srv_limits *limits;
    const atomic_bool *stopping;      /* set once the daemon stops: running and waiting jobs end */
    struct srv_budget *in_flight;     /* of the daemon; `charged` bytes of it are this request's */
    size_t charged;                   /* bytes */
    struct srv_inputs *inputs;        /* of the daemon */
    struct srv_input_ref *input_refs; /* in the arena: those that the body names; or NULL */
    atomic_size_t *client_bytes; /* [2], by client address: bytes of requests, of probes; or NULL */
    const struct srv_route *route; /* NULL where none matched */
    enum srv_method method;
    char path_arg[SRV_ID_MAX + 1]; /* the segment that matched {id} or {name}; "" without one */
    char request_id[SRV_ID_MAX + 1];
    struct srv_trace trace;
    char session_header[SRV_ID_MAX + 1];  /* X-Session-Id, "" without one */
    char idempotency_key[SRV_ID_MAX + 1]; /* a digest of caller and key (http/auth.c), likewise */
    const char *origin; /* of the page: up to a comma or the end, in allow_origins; or NULL */
    union {
        const char *asked_fields;  /* that a preflight asks to send beside API.md's; or NULL */
        const char *if_none_match; /* If-None-Match of a GET: what the client has kept; or NULL */
    };
    const char *query; /* text after '?', its first SRV_QUERY_MAX bytes; NULL without */
    char *body;        /* followed by a NUL; NULL without one */
    char *small_body;  /* room in the exchange for a small body; never freed */
    size_t body_length;
    const struct srv_v2_outputs *v2_outputs; /* which outputs of an infer request are bytes */
    uint64_t json_length;     /* Inference-Header-Content-Length; may exceed body_length */
    bool framed;              /* the body's JSON ends at json_length; bytes of tensors follow it */
    bool binary;              /* the reply's tensors are to be bytes */
    bool is_v2;               /* its path is /v2 or below: errors and media types are otherwise */
    bool compresses;          /* a large reply is to have the coding `accepted` */
    enum srv_coding coding;   /* of the body; SRV_IDENTITY once it is decompressed */
    enum srv_coding accepted; /* of a reply, by Accept-Encoding */
    struct srv_arena arena;
    struct srv_reply reply;
    struct srv_key key;                /* the API key; all zero without keys */
    bool over_quota;                   /* memory was refused by the key's max_in_flight_bytes */
    bool over_client_limit;            /* or by max_client_in_flight_bytes */
    bool preflight;                    /* a browser asks whether a page may send a request */
    unsigned caller;                   /* index of the API key in its file; 0 without keys */
    size_t reply_bytes;                /* bound of the reply's size, as outputs are allocated */
    struct srv_compressor *compressor; /* of a reply that is being compressed (coding.c), or NULL */
    struct srv_codec_workers *codec_workers; /* that have the request, or NULL */
    struct srv_queue_node node;              /* in their queue */
    bool expands;        /* the body, to more than SRV_LARGE_BYTES: for I/O workers */
    struct srv_job *job; /* in the arena; NULL until the body is read */
    /* Monotonic nanoseconds: first header seen, body whole, job taken, computing, computed,
     * replied.  0 where a stage was not reached. */
    uint64_t t_start, t_body, t_popped, t_compute, t_computed, t_replied;
    uint64_t deadline_ns;    /* likewise: the end of X-Deadline-Ms; 0: none */
    bool by_timeout;         /* which the parameter `timeout` of an infer request has set */
    bool begun;              /* its computation; the engine thread's (schedule/admission.c) */
    atomic_bool client_gone; /* the client has left: nobody waits for the reply */
    void *connection;        /* the http room's exchange */
};

/* Charges memory that a request takes beyond body and arena to max_in_flight_bytes, the daemon's
 * and its key's, until the request ends (srv_request_uncharge).  False where that would pass one of
 * the two.  Where the key has none, or there are no keys, max_client_in_flight_bytes bounds what
 * requests of the key, or else of the address, hold together; a request that alone passes it is
 * granted memory while no other request of the client has any.  Routes that are served while
 * draining are counted by address and apart, up to SRV_PROBE_BYTES, by which they may also pass the
 * daemon's bound: probes and metrics are answered when requests have used up theirs.  Also the
 * `grant` of a request's arena. */
bool srv_request_charge(void *request, size_t bytes);
void srv_request_uncharge(struct srv_request *request);

/* The error of a charge that is refused: out_of_memory. */
enum srv_error_code srv_fail_in_flight(struct srv_error *error);

/* Whether max_client_in_flight_bytes has room for so many bytes at this moment; takes nothing. */
bool srv_request_client_allows(struct srv_request *request, size_t bytes);

/* Whether the API key may list and inspect the sessions of all; without keys any caller may. */
bool srv_request_is_admin(const struct srv_request *request);

/* Replaces the request's body by `body`, from malloc, of `length` bytes and a NUL, which have been
 * charged; frees the old one. */
void srv_request_replace_body(struct srv_request *request, char *body, size_t length);

/* Frees the body and the arena, and with it the job, once the reply is written, so that the event
 * thread need not do it.  Both stay charged until the request ends. */
void srv_request_release(struct srv_request *request);

/* Whether the request is cancelled: its client has left, its deadline has passed, or the daemon
 * stops.  Any thread.  Errors: client_gone, deadline_exceeded, draining. */
enum srv_error_code srv_request_check_cancelled(const struct srv_request *request, uint64_t now_ns,
                                                struct srv_error *error);

/* The most bytes that a request's body may have, uncompressed. */
size_t srv_body_limit(const struct srv_request *request);

/* Makes the reply an error: status, code, and the error's JSON as its only body.  out_of_memory
 * becomes quota_exceeded where the API key's max_in_flight_bytes was what refused, and names
 * max_client_in_flight_bytes where that was. */
void srv_reply_error(struct srv_request *request, const struct srv_error *error);

/* Writes the ETag of a reply that has one: a weak tag, since all codings of a file have one. */
void srv_reply_write_tag(char out[SRV_TAG_SIZE], const struct srv_reply *reply);

/* Makes the reply a success with this status; its body is in reply.body. */
void srv_reply_status(struct srv_request *request, unsigned status);

/* Appends {"code","message","param"?,"retryable","length"?,"owner"?,"request_id"?}.  request_id is
 * left out where it is NULL, as in items of a list. */
void srv_error_write(struct srv_buffer *out, const struct srv_error *error, const char *request_id);

/* Likewise in the form of the Open Inference Protocol: {"error": the message, "code", ...}. */
void srv_error_write_v2(struct srv_buffer *out, const struct srv_error *error,
                        const char *request_id);

#endif
