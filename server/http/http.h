/* http.h: requests and replies without libmicrohttpd; only http*.c see it.
 *
 * They read a request (framing guard, route, limits, body), then either call the route's handler on
 * the event thread or suspend the connection and hand the request to the scheduler.  Either fills
 * request->reply and ends in srv_exchange_close, the one exit: log line, metrics, memory. */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/errors.h"
#include "config/bounds.h"
#include "schedule/lines.h"
#include "wire/coding.h"

struct srv_app;
struct srv_http;
struct srv_job; /* scheduler.h */

enum srv_method { SRV_GET, SRV_POST, SRV_PUT, SRV_DELETE, SRV_METHOD_COUNT };

struct srv_reply {
    unsigned status; /* 0 until set, and where the client left during its upload */
    struct srv_buffer body;
    const char *content_type; /* static text; application/json unless set */
    size_t json_length;       /* of a body in binary form; 0 otherwise */
    char allow[64];           /* Allow header, "" for none */
    unsigned retry_after_s;   /* Retry-After header, 0 for none */
    enum srv_coding coding;   /* of the body */
    bool varies;              /* it would be coded, or not, for another Accept-Encoding */
    enum srv_error_code code; /* SRV_OK or the error sent, for log and metrics */
};

struct srv_request {
    struct srv_app *app;
    const struct srv_route *route; /* NULL where none matched */
    enum srv_method method;
    char path_arg[SRV_ID_MAX + 1]; /* what stood for {id} or {name}; "" without */
    char request_id[SRV_ID_MAX + 1];
    char session_header[SRV_ID_MAX + 1];  /* X-Session-Id, "" without */
    char idempotency_key[SRV_ID_MAX + 1]; /* the caller's own (http_auth.h), likewise */
    const char *query;                    /* text after '?', cut at 127; NULL without */
    char *body;                           /* NUL-terminated for convenience; NULL without one */
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
    struct srv_coder *coder;          /* of a reply that is being coded (coding.h); NULL: none is */
    struct srv_clerk *clerk;          /* that has it (clerk.h), or NULL; as is the next: */
    struct srv_waiting waiting;       /* in its line */
    bool expands;                     /* the body, to more than is small */
    struct srv_job *job;              /* the scheduler's, in the arena; job.h */
    /* Monotonic nanoseconds: first header seen, body whole, job taken, computing, computed,
     * replied.  0 where a stage was not reached. */
    uint64_t t_start, t_body, t_taken, t_compute, t_computed, t_replied;
    uint64_t deadline_ns; /* likewise: its reply is of no use from then on; 0: it always is */
    atomic_bool left;     /* its client has gone, and nobody waits for the reply */
    void *connection;     /* http_exchange.c's */
};

/* A handler of the event thread: fills request->reply and returns.  It must not block. */
typedef void srv_handler(struct srv_request *request);

/* Reads a suspended request's body into request->job, on a compute thread; on failure it fills the
 * reply with the error. */
typedef enum srv_error_code srv_job_parser(struct srv_request *request, struct srv_error *error);

/* From SRV_BODY_TENSORS on there must be one. */
enum srv_body_rule {
    SRV_BODY_NONE,
    SRV_BODY_OPTIONAL, /* JSON */
    SRV_BODY_TENSORS,  /* JSON, behind which tensors may follow; replies likewise */
    SRV_BODY_BYTES,    /* a state */
};

/* Who may ask, where keys are configured: a key of the scope `infer` unless a route says else. */
enum srv_access {
    SRV_FOR_INFER,
    SRV_FOR_ADMIN,
    SRV_FOR_ANY_KEY,
    SRV_FOR_ALL, /* no key is needed */
};

struct srv_route {
    enum srv_method method;
    const char *path; /* "/sessions/{id}": whole segments, at most one {..} */
    enum srv_body_rule body;
    srv_handler *handle;   /* exactly one of these two is set */
    srv_job_parser *parse; /* a job: queued for the scheduler */
    enum srv_access access;
    bool while_draining; /* served while models load and after SIGTERM too */
    const char *type;    /* media type of replies, for Accept; NULL: application/json */
};

/* routes.c: all of them, and their number. */
extern const struct srv_route srv_routes[];
extern const size_t srv_route_count;

/* The route for a path, or NULL with `allowed` filled as an Allow header where the path is known
 * under other methods ("" where it is unknown).  HEAD is answered as GET.  *arg receives what stood
 * for {..}, as it was sent (percent-decoding is refused: ids need none). */
const struct srv_route *srv_route_find(char arg[SRV_ID_MAX + 1], char allowed[64],
                                       enum srv_method method, const char *path);

struct srv_tls; /* tls.h */

struct srv_http_options {
    const char *host;          /* numeric address to bind, IPv4 or IPv6 */
    unsigned port;             /* 0: any free one */
    unsigned threads;          /* event threads */
    const struct srv_tls *tls; /* needed during srv_http_open only; empty: plain HTTP */
};

/* Binds, listens and serves from then on.  Errors are one line in `message`. */
bool srv_http_open(struct srv_http **out, struct srv_app *app,
                   const struct srv_http_options *options, char *message, size_t size);
unsigned srv_http_port(const struct srv_http *http);

/* Connections that are accepted from now on see this certificate, where it was HTTPS from the
 * start.  False where memory is short: nothing has changed. */
bool srv_http_certify(struct srv_http *http, const struct srv_tls *tls);
const char *srv_http_library(void); /* libmicrohttpd's version, "0.9.75" */

/* Stops accepting connections; those that are open go on. */
void srv_http_quiesce(struct srv_http *http);
size_t srv_http_active(const struct srv_http *http);      /* requests not yet completed */
size_t srv_http_connections(const struct srv_http *http); /* open connections */
void srv_http_close(struct srv_http *http);               /* after the scheduler has stopped */

/* Hands `count` finished requests back to their connections: from any thread, once for each request
 * that was handed to the scheduler. */
void srv_http_resume(struct srv_http *http, struct srv_request *const requests[], size_t count);

/* Charges memory that a request takes beyond body and arena to max_in_flight_bytes, until it ends.
 * False where that would pass the limit. */
bool srv_request_charge(struct srv_request *request, size_t bytes);

/* The body becomes `body`, from malloc, of `length` bytes and a NUL, which have been charged. */
void srv_request_replace_body(struct srv_request *request, char *body, size_t length);

/* Frees the body and the arena, and with it the job, once the reply is written: at leisure, while
 * the event thread has better to do.  They stay charged until the request ends. */
void srv_request_release(struct srv_request *request);

/* Memory that each request takes, whatever it is charged. */
size_t srv_request_memory(void);

/* Bytes that the body of a request may have at most, once it is expanded. */
size_t srv_body_limit(const struct srv_request *request);

/* Filling a reply. */
void srv_reply_error(struct srv_request *request, const struct srv_error *error);
void srv_reply_status(struct srv_request *request, unsigned status); /* body stands in reply.body */

#define SRV_MS_NS UINT64_C(1000000)
uint64_t srv_now_ns(void); /* CLOCK_MONOTONIC */

#endif
