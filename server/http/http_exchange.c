/* http_exchange.c: the life of a request, from its first line to the one exit.
 *
 * libmicrohttpd calls once for the request line, once for the head, once for each piece of the body
 * and once more when the body is whole.  Where there is no reply then, it calls again each turn: so
 * a job waits, and only one that has been called in vain for long is suspended, for suspending and
 * resuming cost several system calls.  An exchange carries a request through these calls:
 *
 *   AT_HEAD -> AT_BODY -> AT_JOB -> AT_END     a job
 *                     \-----------> AT_END     a handler, on the event thread
 *          \-> AT_DROP -----------> AT_END     refused, but the body is short: read and dropped
 *          \----------------------> AT_END     refused at once; the connection is closed
 *
 * All of it runs on the connection's event thread (http_loop.c); between submit and resume the
 * request belongs to the scheduler, and `hold` says who acts next.  srv_exchange_close is the one
 * exit: log line, metrics, memory. */
#include "http/http_exchange.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "app.h"
#include "base/clock.h"
#include "base/hash.h"
#include "http/http_auth.h"
#include "http/http_guard.h"
#include "http/http_reply.h"
#include "http/tls.h"

/* ---- Replying -------------------------------------------------------------------------------- */

static bool draining(const struct srv_exchange *x)
{
    return atomic_load(&x->request.app->phase) == SRV_DRAINING;
}

/* Whether the client has closed its side.  libmicrohttpd takes a read that fills less than its
 * buffer for all that is there, so an end that arrived along with the last bytes would not be seen
 * before the deadline. */
static bool client_left(const struct srv_exchange *x)
{
    char byte;
    const struct srv_connection *connection = x->connection;
    if (connection->tls != NULL && srv_tls_pending(connection->tls))
        return false;
    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Nothing is read behind chunks: libmicrohttpd ends their lines at a bare LF too, so another parser
 * may see the end of the body elsewhere. */
static bool reply(struct srv_exchange *x)
{
    const struct srv_limits *limits = &x->request.app->config.limits;
    bool ends = x->unread || x->framing.chunked || draining(x);
    x->stage = AT_END;
    x->request.t_replied = srv_now_ns();
    if (!srv_reply_queue(x->mhd, &x->request, ends || client_left(x)))
        return false;
    uint64_t seconds = x->request.reply.body.length / SRV_MIN_WRITE_RATE;
    srv_connection_deadline(x->connection, limits->body_timeout_ms + 1000 * seconds);
    return true;
}

/* Replies while the body still arrives, where libmicrohttpd takes no reply.  The connection must
 * end after this. */
static void reply_now(struct srv_exchange *x)
{
    x->stage = AT_END;
    x->unread = true;
    x->request.t_replied = srv_now_ns();
    srv_reply_send(x->connection, &x->request);
}

/* Replies with an error.  A short body is read and dropped first, so that the connection can go on;
 * with any other the reply goes out at once and the connection lingers. */
static bool refuse(struct srv_exchange *x, const struct srv_error *error, bool framed)
{
    const struct srv_framing *framing = &x->framing;
    srv_reply_error(&x->request, error);
    if (framed && !framing->chunked && !framing->expects_continue &&
        framing->length <= SRV_DISCARD_BYTES) {
        x->stage = AT_DROP;
        return true;
    }
    x->unread = true;
    return reply(x);
}

/* ---- The head -------------------------------------------------------------------------------- */

static enum MHD_Result take_field(void *context, enum MHD_ValueKind kind, const char *name,
                                  size_t name_length, const char *value, size_t value_length)
{
    (void)kind;
    struct srv_head *head = context;
    if (head->count < SRV_MAX_HEADERS)
        head->fields[head->count] = (struct srv_header_field){
            .name = name,
            .name_length = name_length,
            .value = value != NULL ? value : "",
            .value_length = value_length,
        };
    head->count++;
    return MHD_YES;
}

static void read_head(struct srv_head *head, const struct srv_exchange *x, const char *method,
                      const char *path, const char *version)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    head->method = method;
    head->path = path;
    head->target = x->target;
    head->version = version;
    head->bytes = size != NULL ? size->header_size : 0;
    head->end = method + head->bytes;
    head->count = 0;
    MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, take_field, head);
}

/* splitmix64 over a counter: ids of one run never repeat, those of two hardly. */
static void make_request_id(char out[SRV_ID_MAX + 1], struct srv_http *http)
{
    uint64_t count = atomic_fetch_add(&http->ids, 1) + 1;
    uint64_t z = srv_hash_mix(http->id_seed + count * SRV_HASH_GOLDEN);
    for (int i = 0; i < 16; i++) /* no printf: number.h says why */
        out[i] = "0123456789abcdef"[z >> (60 - 4 * i) & 15];
    out[16] = '\0';
}

static enum srv_error_code find_route(struct srv_request *request, const struct srv_head *head,
                                      struct srv_error *error)
{
    static const struct {
        const char *name;
        enum srv_method method;
    } methods[] = {{"GET", SRV_GET},
                   {"HEAD", SRV_GET},
                   {"POST", SRV_POST},
                   {"PUT", SRV_PUT},
                   {"DELETE", SRV_DELETE},
                   {"OPTIONS", SRV_METHOD_COUNT},
                   {"PATCH", SRV_METHOD_COUNT},
                   {"TRACE", SRV_METHOD_COUNT},
                   {"CONNECT", SRV_METHOD_COUNT}};
    size_t i = 0, count = sizeof methods / sizeof methods[0];
    while (i < count && strcmp(methods[i].name, head->method) != 0)
        i++;
    if (i == count)
        return srv_fail(error, SRV_E_NOT_IMPLEMENTED, NULL, "unknown method '%.32s'", head->method);
    request->method = methods[i].method;
    request->route = srv_route_find(request->path_arg, request->reply.allow, request->app->routes,
                                    request->method, head->path);
    if (request->route != NULL)
        return SRV_OK;
    if (request->reply.allow[0] != '\0')
        return srv_fail(error, SRV_E_METHOD_NOT_ALLOWED, NULL, "this path allows %s, not %s",
                        request->reply.allow, head->method);
    return srv_fail(error, SRV_E_ROUTE_NOT_FOUND, NULL, "no such path");
}

static enum srv_error_code check_phase(const struct srv_request *request, struct srv_error *error)
{
    int phase = atomic_load(&request->app->phase);
    if (phase == SRV_READY || request->route->while_draining)
        return SRV_OK;
    if (phase == SRV_LOADING)
        return srv_fail(error, SRV_E_LOADING, NULL, "models are being loaded");
    return srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

/* The forms of body and reply. */
static enum srv_error_code check_forms(struct srv_request *request, const struct srv_head *head,
                                       bool has_body, struct srv_error *error)
{
    const struct srv_route *route = request->route;
    bool tensors = route->body == SRV_BODY_TENSORS;
    if (tensors &&
        srv_guard_json_length(&request->framed, &request->json_length, head, error) != SRV_OK)
        return error->code;
    if (route->body == SRV_BODY_BYTES && srv_guard_content_type_bytes(head, error) != SRV_OK)
        return error->code;
    if (has_body && route->body != SRV_BODY_BYTES &&
        srv_guard_content_type(head, tensors, error) != SRV_OK)
        return error->code;
    if (has_body && srv_guard_content_encoding(&request->coding, head, error) != SRV_OK)
        return error->code;
    request->accepted = srv_guard_accept_encoding(head);
    if (tensors)
        return srv_guard_accept_binary(&request->binary, head, error);
    return srv_guard_accept(head, route->type != NULL ? route->type : "application/json", error);
}

static enum srv_error_code check_media(struct srv_exchange *x, const struct srv_head *head,
                                       struct srv_error *error)
{
    const struct srv_route *route = x->request.route;
    bool has_body = x->framing.chunked || x->framing.length > 0;
    uint64_t deadline_ms;
    if (has_body && route->body == SRV_BODY_NONE)
        return srv_fail(error, SRV_E_BAD_REQUEST, NULL, "%s takes no body", head->method);
    if (route->body >= SRV_BODY_TENSORS && !x->framing.chunked && !x->framing.has_length)
        return srv_fail(error, SRV_E_LENGTH_REQUIRED, "Content-Length",
                        "a body with Content-Length or chunked is needed");
    if (check_forms(&x->request, head, has_body, error) != SRV_OK)
        return error->code;
    if (srv_guard_deadline(&deadline_ms, head, error) != SRV_OK)
        return error->code;
    if (deadline_ms > 0)
        x->request.deadline_ns = srv_now_ns() + deadline_ms * SRV_MS_NS;
    if (srv_guard_id(x->request.session_header, head, "X-Session-Id", error) != SRV_OK)
        return error->code;
    if (srv_guard_id(x->request.idempotency_key, head, "Idempotency-Key", error) != SRV_OK)
        return error->code;
    srv_auth_own_key(&x->request);
    return SRV_OK;
}

/* ---- The body -------------------------------------------------------------------------------- */

/* What can be said before the body: is there room for it, and a place in the queue?  Memory is
 * charged as bytes arrive, so that a length that is only declared takes none from others. */
static enum srv_error_code check_room(struct srv_exchange *x, struct srv_error *error)
{
    struct srv_app *app = x->request.app;
    const struct srv_limits *limits = &app->config.limits;
    if (x->request.route->parse != NULL &&
        srv_scheduler_admits(app->scheduler, &x->request, error) != SRV_OK)
        return error->code;
    if (srv_exchange_check_length(x, x->framing.length, error) != SRV_OK)
        return error->code;
    size_t used = atomic_load(&app->in_flight.used);
    if (used > limits->max_in_flight_bytes ||
        x->framing.length > limits->max_in_flight_bytes - used)
        return srv_exchange_full(error);
    return SRV_OK;
}

/* Passes over a refused body: where it is short the connection goes on after the reply. */
static bool drop(struct srv_exchange *x, size_t *count)
{
    x->dropped += *count;
    *count = 0;
    if (x->dropped <= SRV_DISCARD_BYTES && !client_left(x))
        return true;
    reply_now(x);
    return false;
}

static bool take_body(struct srv_exchange *x, const char *bytes, size_t *count)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    if (srv_exchange_grow(x, request->body_length + *count, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        x->stage = AT_DROP;
        return drop(x, count);
    }
    memcpy(request->body + request->body_length, bytes, *count);
    request->body_length += *count;
    *count = 0;
    /* How much is missing of chunks is not known: the end of what was read may be theirs. */
    return x->framing.chunked || request->body_length == x->framing.length || !client_left(x);
}

/* ---- The steps ------------------------------------------------------------------------------- */

/* A path is looked up before the key, whose scope it says, but spoken of behind it. */
static enum srv_error_code check_head(struct srv_exchange *x, const struct srv_head *head,
                                      struct srv_error *error)
{
    struct srv_request *request = &x->request;
    struct srv_error route;
    enum srv_error_code found = find_route(request, head, &route);
    struct srv_app *app = request->app;
    struct srv_keyring *keys = app->config.api_keys != NULL ? &app->keys : NULL;
    if (srv_auth_check(request, keys, head, error) != SRV_OK) {
        request->reply.allow[0] = '\0';
        return error->code;
    }
    if (found != SRV_OK) {
        *error = route;
        return found;
    }
    if (check_phase(request, error) != SRV_OK || check_media(x, head, error) != SRV_OK)
        return error->code;
    return check_room(x, error);
}

static bool begin(struct srv_exchange *x, const char *method, const char *path, const char *version)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    struct srv_head head;
    read_head(&head, x, method, path, version);
    char id[SRV_ID_MAX + 1];
    if (srv_header_field_id(id, srv_head_find(&head, "X-Request-Id")))
        memcpy(request->request_id, id, sizeof id);
    x->stage = AT_BODY;
    x->interim = strcmp(version, "HTTP/1.1") == 0;
    srv_connection_deadline(x->connection, request->app->config.limits.body_timeout_ms);
    if (srv_guard_head(&x->framing, &head, &error) != SRV_OK)
        return refuse(x, &error, false);
    return check_head(x, &head, &error) == SRV_OK || refuse(x, &error, true);
}

static bool finish_body(struct srv_exchange *x)
{
    struct srv_request *request = &x->request;
    srv_connection_deadline(x->connection, 0);
    request->t_body = srv_now_ns();
    if (request->body != NULL)
        request->body[request->body_length] = '\0';
    if (request->route->parse != NULL)
        return srv_exchange_submit(x) || reply(x);
    struct srv_error error = {0};
    if (request->body_length <= SRV_MAX_DOCUMENT_BYTES &&
        srv_body_decompress(request, SRV_MAX_DOCUMENT_BYTES, &error) != SRV_OK)
        srv_reply_error(request, &error);
    else
        request->route->handle(request);
    size_t size = request->reply.body.capacity;
    if (size > SMALL_REPLY && !srv_request_charge(request, size)) {
        srv_exchange_full(&error);
        srv_reply_error(request, &error);
    }
    return reply(x);
}

/* ---- What http.c calls ----------------------------------------------------------------------- */

struct srv_exchange *srv_exchange_open(struct srv_connection *connection,
                                       struct MHD_Connection *mhd, const char *target)
{
    struct srv_http *http = connection->loop->http;
    struct srv_exchange *x = srv_exchange_new(connection->loop);
    if (x == NULL)
        return NULL;
    const struct srv_limits *limits = &http->app->config.limits;
    struct srv_request *request = &x->request;
    x->mhd = mhd;
    x->loop = connection->loop;
    x->connection = connection;
    request->app = http->app;
    request->limits = limits;
    request->stopping = &http->app->stopping;
    request->in_flight = &http->app->in_flight;
    request->small_body = x->body;
    request->method = SRV_METHOD_COUNT;
    request->connection = x;
    request->t_start = srv_now_ns();
    make_request_id(request->request_id, http);
    srv_exchange_target(x, target);
    srv_arena_init(&request->arena, limits->max_in_flight_bytes, srv_exchange_grant, x);
    srv_arena_lend(&request->arena, x->arena);
    srv_buffer_init(&request->reply.body, limits->max_reply_bytes);
    srv_buffer_lend(&request->reply.body, x->reply, sizeof x->reply);
    srv_connection_deadline(connection, limits->header_timeout_ms);
    connection->exchange = x;
    atomic_fetch_add(&http->active, 1);
    return x;
}

bool srv_exchange_step(struct srv_exchange *x, const struct srv_step *step, size_t *count)
{
    switch (x->stage) {
    case AT_HEAD:
        return begin(x, step->method, step->path, step->version);
    case AT_BODY:
        return *count > 0 ? take_body(x, step->bytes, count) : finish_body(x);
    case AT_DROP:
        return *count > 0 ? drop(x, count) : reply(x);
    case AT_JOB:
        srv_exchange_stop_waiting(x);
        return !atomic_load(&x->request.left) && reply(x);
    case AT_END:
        break;
    }
    return false;
}

void srv_exchange_late(struct srv_exchange *x)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    struct srv_error error = {0};
    if (x->stage == AT_HEAD || x->stage == AT_BODY) {
        srv_fail(&error, SRV_E_TIMEOUT, NULL, "the request did not arrive in time");
        srv_reply_error(&x->request, &error);
    }
    if (x->stage != AT_END)
        reply_now(x);
    else /* what the system keeps of the reply for a client that does not read goes too */
        setsockopt(x->connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Whether a request is worth a log line: not where its client left before the head was whole.  One
 * that libmicrohttpd could not parse was answered by it, with 400 or a neighbour. */
static bool is_told(struct srv_exchange *x, enum srv_end end)
{
    struct srv_reply *out = &x->request.reply;
    if (x->stage == AT_HEAD && end == SRV_END_ERROR) {
        out->code = SRV_E_BAD_REQUEST;
        out->status = srv_error_status(out->code);
    }
    return x->stage != AT_HEAD || out->code != SRV_OK;
}

void srv_exchange_tell(struct srv_request *request)
{
    if (request->t_replied == 0)
        request->t_replied = srv_now_ns();
    srv_metrics_request(request->app->metrics, request);
    srv_log_request(&request->app->log, request);
}

void srv_exchange_close(struct srv_exchange *x, enum srv_end end)
{
    struct srv_request *request = &x->request;
    srv_exchange_stop_waiting(x);
    if (x->stage == AT_JOB && srv_exchange_leave(x))
        return;
    if (is_told(x, end))
        srv_exchange_tell(request);
    if ((x->unread || x->framing.chunked) && end != SRV_END_GONE)
        srv_loop_linger(x->loop, x->connection->fd);
    srv_connection_deadline(x->connection, request->app->config.limits.idle_timeout_s * 1000);
    x->connection->exchange = NULL;
    srv_exchange_free(x, true);
}
