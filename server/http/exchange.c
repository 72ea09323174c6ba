/* exchange.c: the life of a request, from its first line to the one exit.
 *
 * libmicrohttpd calls once for the request line, once for the head, once for each piece of the body
 * and once more when the body is whole.  Where there is no reply then, it calls again each turn:
 * the exchange is polled while its job runs (job.c).  An exchange passes through these states:
 *
 *   READING_HEAD    -> READING_BODY     the head is accepted
 *                   -> DISCARDING_BODY  refused; the body is short, so the connection goes on
 *                   -> REPLIED          refused; the connection ends
 *   READING_BODY    -> RUNNING_JOB      the body is whole and the scheduler has taken the request
 *                   -> REPLIED          the handler has replied, or the scheduler has refused
 *                   -> DISCARDING_BODY  the body is too large, or memory is short
 *   DISCARDING_BODY -> REPLIED          the body has ended, or is too long to be discarded
 *   RUNNING_JOB     -> REPLIED          the scheduler has handed the request back
 *
 * A deadline that passes leads from the first three states to REPLIED, and the connection ends;
 * none runs in RUNNING_JOB.  A connection may also break in any state.
 *
 * The connection's event thread (loop.c) runs everything here but srv_exchange_log.  An
 * exchange ends in srv_exchange_close, with log line, metrics and memory.  The exception is an
 * exchange whose connection is gone while its job runs: srv_http_resume (job.c) ends that one
 * in the same way, on the thread that hands the request back. */
#include "http/exchange.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "ops/log.h"
#include "ops/metrics.h"
#include "schedule/scheduler.h"

static const struct srv_http_context *context_of(const struct srv_exchange *x)
{
    return &x->loop->http->context;
}

/* ---- Replying -------------------------------------------------------------------------------- */

/* The connection ends after the reply where the rest of the request was not read or cannot be
 * trusted (mhd_workarounds.c, 9), where it has a reserved place, where the daemon drains, and where
 * the client has ended it, or the daemon is a lame duck, and no further request of it waits for a
 * reply. */
static bool is_last_reply(const struct srv_exchange *x)
{
    const struct srv_connection *connection = x->connection;
    const struct srv_scan *scan = &connection->scan;
    bool more = scan->requests > connection->served + 1 || scan->fault != NULL;
    int phase = atomic_load(context_of(x)->phase);
    return x->body_unread || x->framing.chunked || connection->place.reserved ||
           phase == SRV_DRAINING ||
           (!more && (phase == SRV_LAME_DUCK || srv_mhd_client_closed(connection)));
}

/* Gives the reply to libmicrohttpd.  The deadline moves on as the client takes the reply
 * (srv_reply_follow). */
static bool reply_through_mhd(struct srv_exchange *x)
{
    x->state = REPLIED;
    x->request.t_replied = srv_now_ns();
    if (!srv_reply_through_mhd(x, is_last_reply(x)))
        return false;
    srv_connection_deadline(x->connection, x->request.limits->reply_timeout_ms);
    return true;
}

/* Replies with what the reply is now.  A short body is read and discarded first where the
 * connection can go on then; with any other the reply goes out at once, and the connection
 * lingers. */
static bool reply_early(struct srv_exchange *x, bool framing_known)
{
    const struct srv_framing *framing = &x->framing;
    if (framing_known && !framing->chunked && !framing->expects_continue &&
        framing->length <= (x->connection->place.reserved ? 0 : SRV_DISCARD_BYTES)) {
        x->state = DISCARDING_BODY;
        return true;
    }
    x->body_unread = true;
    return reply_through_mhd(x);
}

/* Passes over the body of a refused request: where it is short the connection goes on. */
static bool discard_body(struct srv_exchange *x, size_t *count)
{
    x->discarded += *count;
    *count = 0;
    if (x->discarded <= SRV_DISCARD_BYTES && !srv_connection_is_cut_off(x->connection))
        return true;
    srv_reply_past_mhd(x);
    return false;
}

static bool refuse(struct srv_exchange *x, const struct srv_error *error, bool framing_known)
{
    srv_reply_error(&x->request, error);
    return reply_early(x, framing_known);
}

/* ---- The head -------------------------------------------------------------------------------- */

static enum MHD_Result add_field(void *context, enum MHD_ValueKind kind, const char *name,
                                 size_t name_length, const char *value, size_t value_length)
{
    (void)kind;
    struct srv_head *head = context;
    while (value_length > 0 && (value[value_length - 1] == ' ' || value[value_length - 1] == '\t'))
        value_length--; /* blanks behind a value are no part of it: RFC 9112, 5.1 */
    if (head->count == SRV_MAX_HEADERS)
        return MHD_NO; /* the scan lets no more pass */
    head->fields[head->count++] = (struct srv_header_field){
        .name = name,
        .name_length = name_length,
        .value = value != NULL ? value : "",
        .value_length = value_length,
    };
    return MHD_YES;
}

static enum srv_error_code find_route(struct srv_request *request, const struct srv_routes *routes,
                                      const struct srv_head *head, struct srv_error *error)
{
    if (!srv_route_read_method(&request->method, head->method))
        return srv_fail(error, SRV_E_NOT_IMPLEMENTED, NULL, "unknown method '%.32s'", head->method);
    request->route = srv_route_find(request->path_arg, request->reply.allow, routes,
                                    request->method, head->path);
    if (request->route != NULL)
        return SRV_OK;
    if (request->reply.allow[0] != '\0')
        return srv_fail(error, SRV_E_METHOD_NOT_ALLOWED, NULL, "this path allows %s, not %s",
                        request->reply.allow, head->method);
    return srv_fail(error, SRV_E_ROUTE_NOT_FOUND, NULL, "no such path; %s",
                    request->is_v2 ? srv_v2_why_absent(head->path) : "GET /openapi.json lists all");
}

static enum srv_error_code check_phase(const struct srv_exchange *x, struct srv_error *error)
{
    int phase = atomic_load(context_of(x)->phase);
    if (phase == SRV_READY || phase == SRV_LAME_DUCK || x->request.route->while_draining)
        return SRV_OK;
    if (phase == SRV_LOADING)
        return srv_fail(error, SRV_E_LOADING, NULL, "models are being loaded");
    return srv_fail(error, SRV_E_DRAINING, NULL, "attnd is stopping");
}

/* Media types and codings of body and reply. */
static enum srv_error_code check_types(struct srv_request *request, const struct srv_head *head,
                                       bool has_body, struct srv_error *error)
{
    const struct srv_route *route = request->route;
    const bool binary_reply = route->body == SRV_BODY_TENSORS,
               bytes = route->body == SRV_BODY_BYTES;
    const bool tensors = binary_reply || route->body == SRV_BODY_OPTIONAL_TENSORS;
    if (request->is_v2)
        return srv_v2_check_types(request, head, has_body, error);
    has_body = has_body && route->body != SRV_BODY_IGNORED;
    if ((tensors &&
         srv_guard_json_length(&request->framed, &request->json_length, head, error) != SRV_OK) ||
        (bytes && srv_guard_content_type_bytes(head, error) != SRV_OK) ||
        (has_body && !bytes && srv_guard_content_type(head, tensors, error) != SRV_OK) ||
        (has_body && srv_guard_content_encoding(&request->coding, head, error) != SRV_OK))
        return error->code;
    request->accepted = srv_guard_accept_encoding(head);
    if (binary_reply)
        return srv_guard_accept_binary(&request->binary, head, error);
    const char *type = route->type != NULL ? route->type : "application/json";
    return strchr(type, ' ') != NULL ? SRV_OK : srv_guard_accept(head, type, error);
}

#define IF_NONE_MATCH_MAX 256 /* bytes; a longer list is ignored */

static const char *if_none_match(struct srv_request *request, const struct srv_head *head)
{
    bool repeated;
    const struct srv_header_field *tags = srv_head_single(&repeated, head, "If-None-Match");
    if (tags == NULL || repeated || tags->value_length > IF_NONE_MATCH_MAX)
        return NULL;
    return srv_arena_copy(&request->arena, tags->value, tags->value_length);
}

static enum srv_error_code check_fields(struct srv_exchange *x, const struct srv_head *head,
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
    if (check_types(&x->request, head, has_body, error) != SRV_OK ||
        srv_guard_deadline(&deadline_ms, head, error) != SRV_OK)
        return error->code;
    if (deadline_ms > 0)
        x->request.deadline_ns = srv_now_ns() + deadline_ms * SRV_MS_NS;
    if (x->request.method == SRV_GET)
        x->request.if_none_match = if_none_match(&x->request, head);
    if (srv_guard_id(x->request.session_header, head, "X-Session-Id", error) != SRV_OK ||
        srv_guard_id(x->request.idempotency_key, head, "Idempotency-Key", error) != SRV_OK)
        return error->code;
    srv_auth_scope_idempotency_key(&x->request);
    return SRV_OK;
}

/* Checks for a place in the queue and room for the body before any byte of it is read.  Memory is
 * charged as bytes arrive, so a length that is only declared takes none from others. */
static enum srv_error_code check_capacity(struct srv_exchange *x, struct srv_error *error)
{
    const struct srv_request *request = &x->request;
    size_t limit = request->limits->max_in_flight_bytes;
    if ((request->route->parse != NULL &&
         srv_scheduler_admits(context_of(x)->scheduler, request, error) != SRV_OK) ||
        srv_exchange_check_length(x, x->framing.length, error) != SRV_OK)
        return error->code;
    size_t used = atomic_load(&request->in_flight->used);
    if (used > limit || x->framing.length > limit - used ||
        !srv_request_client_allows(&x->request, x->framing.length))
        return srv_fail_in_flight(error);
    if (x->framing.length > srv_account_limit(request->key.account, SRV_QUOTA_IN_FLIGHT))
        return srv_account_refuse(request->key.account, SRV_QUOTA_IN_FLIGHT, error);
    return SRV_OK;
}

/* In a reserved place there is what needs no key. */
static enum srv_error_code check_place(const struct srv_exchange *x, struct srv_error *error)
{
    const struct srv_route *route = x->request.route;
    if (srv_place_make_ordinary(x->connection) || (route != NULL && route->access == SRV_FOR_ALL))
        return SRV_OK;
    return srv_fail(error, SRV_E_CONNECTION_LIMIT, "max_connections",
                    "%zu connections are open: beyond them only probes are answered",
                    x->request.limits->max_connections);
}

/* The route is found before the key is checked, since the route says which scope the key needs;
 * only callers with a key are told that there is no such route.  After a preflight the reply is
 * made. */
static enum srv_error_code check_head(struct srv_exchange *x, const struct srv_head *head,
                                      struct srv_error *error)
{
    const struct srv_http_context *context = context_of(x);
    struct srv_request *request = &x->request;
    struct srv_error route_error;
    if (srv_origin_check(request, context, head, x->connection->tls != NULL, error) != SRV_OK)
        return error->code;
    if (srv_origin_answer_preflight(request, head, &x->framing))
        return SRV_OK;
    enum srv_error_code found = find_route(request, context->routes, head, &route_error);
    if (check_place(x, error) != SRV_OK)
        return error->code;
    if (srv_auth_check(request, context->keys, head, error) != SRV_OK) {
        request->reply.allow[0] = '\0';
        return error->code;
    }
    if (found != SRV_OK) {
        *error = route_error;
        return found;
    }
    if (check_phase(x, error) != SRV_OK || check_fields(x, head, error) != SRV_OK)
        return error->code;
    return check_capacity(x, error);
}

/* False where the client has left along with its head. */
static bool await_body(struct srv_exchange *x)
{
    size_t none = 0;
    return x->state == DISCARDING_BODY ? discard_body(x, &none)
                                       : !srv_connection_is_cut_off(x->connection);
}

/* Collects the head and what even a reply that refuses it needs; the fields beyond `count` stay
 * unset. */
static void collect_head(struct srv_head *head, struct srv_exchange *x,
                         const struct srv_http_input *input)
{
    head->method = input->method;
    head->path = input->path;
    head->target = x->target;
    head->version = input->version;
    head->count = 0;
    MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, add_field, head);
    srv_exchange_read_names(x, head);
    x->knows_interim = strcmp(head->version, "HTTP/1.1") == 0;
    x->is_head = strcmp(head->method, "HEAD") == 0;
}

static bool read_head(struct srv_exchange *x, const struct srv_http_input *input)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    struct srv_head head;
    collect_head(&head, x, input);
    x->state = READING_BODY;
    srv_connection_deadline(x->connection, request->limits->body_timeout_ms);
    if (x->connection->scan.requests <= x->connection->served)
        srv_fail(&error, SRV_E_INTERNAL, NULL, "libmicrohttpd has read past the scan");
    if (error.code != SRV_OK || srv_guard_head(&x->framing, &head, &error) != SRV_OK)
        return refuse(x, &error, false);
    head.path += x->framing.origin_length;
    head.path = head.path[0] != '\0' ? head.path : "/";
    request->is_v2 = srv_v2_is_path(head.path);
    if (check_head(x, &head, &error) == SRV_OK)
        return (!request->preflight || reply_early(x, true)) && await_body(x);
    return refuse(x, &error, true) && await_body(x);
}

/* ---- The body -------------------------------------------------------------------------------- */

static bool read_body(struct srv_exchange *x, const char *bytes, size_t *count)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    if (srv_exchange_grow_body(x, request->body_length + *count, &error) != SRV_OK) {
        srv_reply_error(request, &error);
        x->state = DISCARDING_BODY;
        return discard_body(x, count);
    }
    memcpy(request->body + request->body_length, bytes, *count);
    request->body_length += *count;
    *count = 0;
    return !srv_connection_is_cut_off(x->connection);
}

/* Replies with what the route's handler has written, or with an error where that cannot be
 * charged. */
static bool reply_handled(struct srv_exchange *x)
{
    struct srv_request *request = &x->request;
    struct srv_error error = {0};
    size_t size = srv_buffer_allocated(&request->reply.body);
    if (size > SMALL_REPLY && !srv_request_charge(request, size)) {
        srv_fail_in_flight(&error);
        srv_reply_error(request, &error);
    }
    return reply_through_mhd(x);
}

static bool finish_body(struct srv_exchange *x)
{
    struct srv_request *request = &x->request;
    if (x->connection->pipelines && !srv_turn_begins(x->connection))
        return true;
    srv_connection_deadline(x->connection, 0);
    request->t_body = srv_now_ns();
    if (request->body != NULL)
        request->body[request->body_length] = '\0';
    if (request->route->parse != NULL)
        return srv_exchange_submit(x) || reply_through_mhd(x);
    if (request->route->is_long != NULL && request->route->is_long(request) &&
        srv_exchange_handle_elsewhere(x))
        return true;
    request->route->handle(request);
    return reply_handled(x);
}

/* ---- What http.c calls ----------------------------------------------------------------------- */

struct srv_exchange *srv_exchange_open(struct srv_connection *connection,
                                       struct MHD_Connection *mhd, const char *target)
{
    const struct srv_http_context *context = &connection->loop->http->context;
    struct srv_exchange *x = srv_exchange_new(connection->loop);
    if (x == NULL)
        return NULL;
    struct srv_request *request = &x->request;
    x->mhd = mhd;
    x->loop = connection->loop;
    x->connection = connection;
    srv_exchange_set_target(x, target);
    request->app = context->app;
    request->limits = context->limits;
    request->stopping = context->stopping;
    request->in_flight = context->in_flight;
    request->inputs = context->inputs;
    request->client_bytes = connection->client_bytes;
    request->small_body = x->body;
    request->method = SRV_METHOD_COUNT;
    request->connection = x;
    request->t_start = srv_now_ns();
    srv_exchange_name(x);
    srv_arena_init(&request->arena, context->limits->max_in_flight_bytes, srv_request_charge,
                   request);
    srv_arena_lend(&request->arena, x->arena);
    srv_buffer_init(&request->reply.body, context->limits->max_reply_bytes);
    srv_buffer_lend(&request->reply.body, x->reply, sizeof x->reply);
    srv_connection_deadline(connection, context->limits->header_timeout_ms);
    connection->exchange = x;
    atomic_fetch_add(&connection->loop->http->active, 1);
    return x;
}

bool srv_exchange_advance(struct srv_exchange *x, const struct srv_http_input *input, size_t *count)
{
    switch (x->state) {
    case READING_HEAD:
        return read_head(x, input);
    case READING_BODY:
        return *count > 0 ? read_body(x, input->bytes, count) : finish_body(x);
    case DISCARDING_BODY:
        return *count > 0 ? discard_body(x, count) : reply_through_mhd(x);
    case RUNNING_JOB:
        srv_exchange_stop_polling(x);
        if (atomic_load(&x->request.client_gone))
            return false;
        return x->request.route->handle != NULL ? reply_handled(x) : reply_through_mhd(x);
    case REPLIED:
        break;
    }
    return false;
}

void srv_exchange_sweep(struct srv_exchange *x, uint64_t now_ns)
{
    if (x->state == REPLIED)
        srv_reply_follow(x, now_ns);
    else
        srv_exchange_check_client(x, now_ns);
}

void srv_exchange_timeout(struct srv_exchange *x)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    struct srv_error error = {0};
    if (x->state == READING_HEAD || x->state == READING_BODY) {
        srv_fail(&error, SRV_E_TIMEOUT, NULL, "the request did not arrive in time");
        srv_reply_error(&x->request, &error);
    }
    if (x->state != REPLIED) {
        srv_reply_past_mhd(x);
        srv_connection_finish(x->connection);
    } else /* the client does not read its reply: the system, too, discards the rest */
        setsockopt(x->connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void srv_exchange_log(struct srv_request *request)
{
    const struct srv_http_context *context = context_of(request->connection);
    if (request->t_replied == 0)
        request->t_replied = srv_now_ns();
    srv_metrics_request(context->metrics, request);
    srv_log_request(context->log, request);
}

void srv_exchange_close(struct srv_exchange *x)
{
    struct srv_request *request = &x->request;
    srv_exchange_stop_polling(x);
    if (x->state == RUNNING_JOB && srv_exchange_abandon(x))
        return;
    /* A client that left before its head was whole has made no request. */
    if (x->state != READING_HEAD || request->reply.code != SRV_OK)
        srv_exchange_log(request);
    if (x->body_unread || x->framing.chunked)
        srv_linger_begin(x->loop, x->connection->fd);
    if (!x->connection->finished)
        srv_connection_deadline(x->connection, request->limits->idle_timeout_s * 1000);
    x->connection->exchange = NULL;
    if (x->mhd != NULL)
        srv_connection_count_served(x->connection);
    srv_exchange_free(x, true);
}
