/* http_exchange.h: a request on its way through the HTTP layer, and the server that all share.
 * Private to http*.c. */
#ifndef SRV_HTTP_EXCHANGE_H
#define SRV_HTTP_EXCHANGE_H

#include "http/http.h"
#include "http/http_guard.h"
#include "http/http_loop.h"
#include "http/tls.h"

struct MHD_Connection;

#define BODY_FIRST 4096  /* bytes: first room for a body */
#define SMALL_REPLY 4096 /* and for a reply; one that fits is not charged */
#define QUERY_MAX 127    /* characters; no route has a meaning for more */

enum stage { AT_HEAD, AT_BODY, AT_DROP, AT_JOB, AT_END };

/* Of a job, and changed by both sides. */
enum hold {
    FREE,      /* it can be answered */
    HELD,      /* the scheduler has it */
    SUSPENDED, /* the scheduler has it, and resumes the connection */
    LEFT,      /* the scheduler has it, and ends the exchange: the connection is gone */
};

struct srv_exchange {
    struct srv_request request;
    struct MHD_Connection *mhd;
    struct srv_loop *loop;
    struct srv_connection *connection; /* NULL: gone */
    atomic_int hold;                   /* enum hold */
    bool waits;                        /* is one of loop->waiting */
    bool interim;                      /* its client knows interim replies: HTTP/1.1 */
    bool asked;                        /* one was sent, to see whether somebody is there */
    size_t vain;                       /* calls while it waits */
    struct srv_framing framing;
    enum stage stage;
    bool unread;     /* refused before the body was read */
    size_t capacity; /* of request.body */
    size_t dropped;
    struct srv_exchange *next; /* in a list of the loop's; nothing below is cleared */
    char query[QUERY_MAX + 1]; /* request.query */
    _Alignas(64) union {
        /* Path and query as they came, of which more is refused, until the head is looked at. */
        char target[SRV_MAX_HEADER_BYTES];
        struct {
            _Alignas(64) char body[BODY_FIRST + 64]; /* request.body where it fits */
            _Alignas(64) char arena[SRV_ARENA_FIRST];
            char reply[SMALL_REPLY]; /* reply.body where it fits */
        };
    };
};

struct srv_http {
    struct srv_app *app;
    int listen_fd;
    unsigned port;
    uint64_t id_seed;
    atomic_uint_fast64_t ids; /* request ids made so far */
    atomic_size_t active, connections;
    struct srv_tls_use certificate;
    size_t loop_count;
    struct srv_loop loops[SRV_MAX_EVENT_THREADS];
};

/* What libmicrohttpd's handler is told; `bytes` are a piece of the body. */
struct srv_step {
    const char *method, *path, *version, *bytes;
};

enum srv_end {
    SRV_END_DONE,  /* the reply went out */
    SRV_END_ERROR, /* the request could not be parsed or the connection broke */
    SRV_END_GONE,  /* the client left */
};

/* All on the connection's event thread.  `open` when the request line has been read: `target` is
 * path and query, and gone after the call; NULL where memory is short.  `step` takes *count bytes
 * and leaves in *count those it did not take (none); false ends the connection.  `close` is the one
 * exit. */
struct srv_exchange *srv_exchange_open(struct srv_connection *connection,
                                       struct MHD_Connection *mhd, const char *target);
bool srv_exchange_step(struct srv_exchange *exchange, const struct srv_step *step, size_t *count);
void srv_exchange_late(struct srv_exchange *exchange); /* the connection will be shut down */
void srv_exchange_close(struct srv_exchange *exchange, enum srv_end end);

/* The log line and metrics of a request that has ended. */
void srv_exchange_tell(struct srv_request *request);

/* ---- http_job.c ---- */

/* Hands the request to the scheduler; false where it was refused, with the reply made. */
bool srv_exchange_submit(struct srv_exchange *exchange);
bool srv_exchange_waits(struct srv_exchange *exchange); /* for its job: there is no step to take */
void srv_exchange_stop_waiting(struct srv_exchange *exchange); /* it is answered, or gone */

/* Four times a second, of each request: notes whether the client of one that waits for its job has
 * left. */
void srv_exchange_look(struct srv_exchange *exchange, uint64_t now_ns);

/* The client is gone: true where the scheduler has the request and will end it. */
bool srv_exchange_leave(struct srv_exchange *exchange);
void srv_exchange_turned(struct srv_loop *loop); /* what was submitted is to be computed */

/* ---- http_memory.c ---- */

/* NULL where memory is short.  Zeroes, up to `next`. */
struct srv_exchange *srv_exchange_new(struct srv_loop *loop);
void srv_exchange_target(struct srv_exchange *exchange, const char *target); /* keeps a copy */

/* Frees all that a request has taken; and one that took nothing yet.  `own`: on its loop's
 * thread. */
void srv_exchange_free(struct srv_exchange *exchange, bool own);
void srv_exchange_discard(struct srv_exchange *exchange, bool own);
void srv_exchange_free_kept(struct srv_loop *loop); /* when it has stopped */

bool srv_exchange_grant(void *exchange, size_t bytes); /* for the arena: srv_request_charge */

/* Grows the room for the body to hold `needed` bytes, at least doubling it, no further than it may
 * get. */
enum srv_error_code srv_exchange_grow(struct srv_exchange *exchange, size_t needed,
                                      struct srv_error *error);
enum srv_error_code srv_exchange_check_length(const struct srv_exchange *exchange, uint64_t length,
                                              struct srv_error *error);
enum srv_error_code srv_exchange_full(struct srv_error *error); /* max_in_flight_bytes are used */

#endif
