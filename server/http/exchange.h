/* exchange.h: a request on its way through the HTTP room, and the server that all share.
 * Private to server/http/. */
#ifndef SRV_HTTP_EXCHANGE_H
#define SRV_HTTP_EXCHANGE_H

#include "http/guard.h"
#include "http/loop.h"
#include "http/tls.h"

struct MHD_Connection;
struct sockaddr;

#define BODY_FIRST 4096  /* bytes: first room for a body */
#define SMALL_REPLY 4096 /* bytes: first room for a reply; one that fits is not charged */

/* exchange.c draws the transitions. */
enum exchange_state { READING_HEAD, READING_BODY, DISCARDING_BODY, RUNNING_JOB, REPLIED };

/* Who holds a request, and what the scheduler does when it hands the request back.  Event thread
 * and scheduler both change `held_by`, each in one atomic step. */
enum exchange_holder {
    HELD_BY_EVENT_THREAD,        /* the reply can be queued */
    HELD_BY_SCHEDULER,           /* the event thread polls for the reply */
    HELD_BY_SCHEDULER_TO_RESUME, /* the connection is suspended; the scheduler resumes it */
    HELD_BY_SCHEDULER_TO_END,    /* the connection is gone; the scheduler ends the exchange */
};

struct srv_exchange {
    struct srv_request request;
    struct MHD_Connection *mhd;
    struct srv_loop *loop;
    struct srv_connection *connection; /* NULL: gone */
    atomic_int held_by;                /* enum exchange_holder */
    bool polled;                       /* counted in loop->num_polled */
    bool is_head;                      /* the reply has no body */
    bool knows_interim;                /* the client understands interim replies: HTTP/1.1 */
    bool probed;                       /* one was sent, to see whether the client is there */
    size_t num_polls;                  /* while the job runs */
    struct srv_framing framing;
    enum exchange_state state;
    bool followed;                  /* the next holds */
    uint64_t acknowledged;          /* bytes of the connection that its client has, at the sweep */
    bool body_unread;               /* refused before the body was read to its end */
    size_t capacity;                /* of request.body */
    size_t discarded;               /* bytes of the body */
    struct srv_exchange *next_free; /* in a list of the loop's; nothing from `query` on is zeroed */
    char query[SRV_QUERY_MAX + 1];  /* request.query */
    _Alignas(64) union {
        /* Until the head is checked: path and query as received; longer ones are refused. */
        char target[SRV_MAX_HEADER_BYTES];
        struct {
            _Alignas(64) char body[BODY_FIRST + 64]; /* request.body where it fits */
            _Alignas(64) char arena[SRV_ARENA_FIRST];
            char reply[SMALL_REPLY]; /* reply.body where it fits */
        };
    };
};

/* clients.c: bytes that the requests of each address hold in flight.  Addresses (of IPv6 the first
 * 64 bits) share SRV_CLIENT_COUNTERS counters by a hash, so the table never grows, and nobody can
 * choose an address that shares a counter with another's. */
struct srv_clients {
    uint64_t seed;                               /* of the hash; secret */
    atomic_size_t bytes[SRV_CLIENT_COUNTERS][2]; /* bytes: of requests, and of probes */
};

struct srv_http {
    struct srv_http_context context;
    int listen_fd;
    unsigned port;
    uint64_t id_seed;
    atomic_uint_fast64_t ids; /* of requests and spans, made so far */
    atomic_size_t active, connections;
    atomic_size_t places;    /* of these, connections that are in no reserved one */
    atomic_size_t lingering; /* sockets, of all loops */
    struct srv_tls_holder certificate;
    atomic_llong certificate_expires; /* seconds since 1970; 0: plain HTTP */
    struct srv_clients clients;
    size_t loop_count;
    struct srv_loop loops[SRV_MAX_EVENT_THREADS];
};

/* The arguments of libmicrohttpd's request handler: the head, and a piece of the body. */
struct srv_http_input {
    const char *method, *path, *version, *bytes;
};

/* ---- clients.c: any thread ---- */

/* The peer of a socket as a number: 32 bits of IPv4, also where IPv6 carries it, or the first 64
 * of IPv6; 0 where it has none. */
uint64_t srv_client_address(const struct sockaddr *peer);

/* The two counters of an address (srv_client_address), which last as long as the table. */
atomic_size_t *srv_clients_bytes(struct srv_clients *clients, uint64_t address);

/* ---- exchange.c: the connection's event thread only, but for srv_exchange_log ---- */

/* Begins an exchange once the request line has been read.  `target` is path and query, and gone
 * after the call.  NULL where memory is short. */
struct srv_exchange *srv_exchange_open(struct srv_connection *connection,
                                       struct MHD_Connection *mhd, const char *target);

/* Takes the next piece of the request: *count bytes of the body, in which it leaves 0.  False ends
 * the connection. */
bool srv_exchange_advance(struct srv_exchange *exchange, const struct srv_http_input *input,
                          size_t *count);

/* ---- fault.c: the connection's event thread only ---- */

/* The connection's bytes are no request: replies with scan.fault, to the request in progress or to
 * one of its own, past libmicrohttpd, which is to get no more bytes. */
void srv_exchange_refuse(struct srv_connection *connection);

/* At the end of a turn: the same for connections whose earlier requests have been answered. */
void srv_exchange_refuse_faulty(struct srv_loop *loop);

/* Notes that a request has ended, and whether that was the last before the fault. */
void srv_connection_count_served(struct srv_connection *connection);

/* ---- exchange.c again ---- */

/* Four times a second, for each exchange: looks after its client. */
void srv_exchange_sweep(struct srv_exchange *exchange, uint64_t now_ns);

/* The deadline has passed; the caller then shuts the connection down, unless another is set. */
void srv_exchange_timeout(struct srv_exchange *exchange);

/* Ends an exchange: log line, metrics, memory.  One that the scheduler holds is abandoned instead,
 * and srv_http_resume ends it. */
void srv_exchange_close(struct srv_exchange *exchange);

/* Writes the log line and counts the metrics of a request that has ended.  Any thread: that of the
 * connection, or the one that calls srv_http_resume for an abandoned exchange. */
void srv_exchange_log(struct srv_request *request);

/* ---- names.c: the connection's event thread only ---- */

/* Gives the request an id; takes the caller's own id and its trace from the head instead. */
void srv_exchange_name(struct srv_exchange *exchange);
void srv_exchange_read_names(struct srv_exchange *exchange, const struct srv_head *head);

/* ---- job.c: the connection's event thread only, but for srv_http_resume (http.h) ---- */

/* Hands the request to the scheduler; false where it was refused, with the reply made. */
bool srv_exchange_submit(struct srv_exchange *exchange);

/* Has an I/O worker run the route's handler, as a job; false where none can. */
bool srv_exchange_handle_elsewhere(struct srv_exchange *exchange);

/* Whether the job still runs, so that there is nothing to advance.  May suspend the connection. */
bool srv_exchange_poll(struct srv_exchange *exchange);
void srv_exchange_stop_polling(struct srv_exchange *exchange); /* it is replied to, or gone */

/* Notes in request.client_gone that the client of a running job has left. */
void srv_exchange_check_client(struct srv_exchange *exchange, uint64_t now_ns);

/* Whether the client has closed its side before the end of the request that is being read: such a
 * connection is of no use any more, and no event will tell so (mhd_workarounds.c, 7). */
bool srv_connection_is_cut_off(const struct srv_connection *connection);

/* The connection is gone: true where the scheduler holds the request, so that srv_http_resume will
 * end the exchange. */
bool srv_exchange_abandon(struct srv_exchange *exchange);

/* At the end of a turn: has the requests that were submitted in it computed. */
void srv_exchange_run_submitted(struct srv_loop *loop);

/* ---- reply.c: from a filled struct srv_reply to bytes on a connection ---- */

/* Gives request->reply to libmicrohttpd, which closes the connection after it where `close` is set.
 * The body is not copied: the request must live until libmicrohttpd has completed it.  False where
 * memory is short: nothing is sent then. */
bool srv_reply_through_mhd(struct srv_exchange *exchange, bool close);

/* Writes the reply to the socket itself, as far as it goes without waiting, since libmicrohttpd
 * sends none while the body still arrives (mhd_workarounds.c, 11).  The caller ends the
 * connection. */
void srv_reply_past_mhd(struct srv_exchange *exchange);

/* At each sweep while the reply is sent: moves the deadline on by the time in which
 * SRV_MIN_WRITE_RATE sends what the client's system has taken since the last, up to
 * reply_timeout_ms from now.  So a client that takes nothing for so long, or less than that rate,
 * meets its deadline. */
void srv_reply_follow(struct srv_exchange *exchange, uint64_t now_ns);

/* ---- v2.c ---- */

/* The text about a path below /v2 that no route has: what there is instead. */
const char *srv_v2_why_absent(const char *path);

/* Reads the codings of body and reply, and the length of the JSON where it is sent.  Clients of the
 * protocol send any media type or none, which therefore means nothing.  Errors:
 * unsupported_media_type, bad_request. */
enum srv_error_code srv_v2_check_types(struct srv_request *request, const struct srv_head *head,
                                       bool has_body, struct srv_error *error);

/* ---- memory.c ---- */

/* A zeroed exchange (up to next_free), or NULL where memory is short. */
struct srv_exchange *srv_exchange_new(struct srv_loop *loop);
void srv_exchange_set_target(struct srv_exchange *exchange, const char *target); /* copies it */

/* Frees an exchange and everything its request holds.  `on_loop_thread`: the caller is the
 * exchange's event thread. */
void srv_exchange_free(struct srv_exchange *exchange, bool on_loop_thread);
void srv_exchange_free_pool(struct srv_loop *loop); /* of a loop that has stopped */

/* Grows the room for the body to hold `needed` bytes, in steps that at least double it, within the
 * limit.  Errors: body_too_large, out_of_memory. */
enum srv_error_code srv_exchange_grow_body(struct srv_exchange *exchange, size_t needed,
                                           struct srv_error *error);
enum srv_error_code srv_exchange_check_length(const struct srv_exchange *exchange, uint64_t length,
                                              struct srv_error *error);

#endif
