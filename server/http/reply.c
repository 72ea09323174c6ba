/* reply.c: the one place where replies get their header fields and go out.
 *
 * Nearly all replies go through libmicrohttpd.  The few that cannot wait for the end of a body that
 * still arrives are written to the socket (mhd_workarounds.c, 11). */
#include <linux/tcp.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/exchange.h"
#include "ops/stage.h"
#include "schedule/scheduler.h"

#define MOVED_S 1 /* until a proxy may know where a session is that is not here */

/* The body of an error for which there is no memory either. */
static const char no_memory[] =
    "{\"error\":{\"code\":\"out_of_memory\",\"message\":\"no memory for the reply\","
    "\"retryable\":true}}";

static const char no_memory_v2[] =
    "{\"error\":\"no memory for the reply\",\"code\":\"out_of_memory\",\"retryable\":true}";

/* Settles the reply's status, body and Retry-After: a reply without a status, and one whose body
 * met its ceiling or the end of memory, becomes an error.  Returns the body. */
static const char *finish_reply(size_t *length, struct srv_request *request,
                                const struct srv_loop *loop)
{
    struct srv_error error = {0};
    struct srv_reply *reply = &request->reply;
    if (reply->status == 0)
        srv_fail(&error, SRV_E_INTERNAL, NULL, "no reply was made");
    else if (reply->body.failed)
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
    if (error.code != SRV_OK)
        srv_reply_error(request, &error);
    if (srv_error_retryable(reply->code) && (reply->status == 429 || reply->status == 503))
        reply->retry_after_s = srv_scheduler_retry_after_s(loop->http->context.scheduler, request);
    if (reply->code == SRV_E_WRONG_INSTANCE)
        reply->retry_after_s = MOVED_S;
    const char *failure = request->is_v2 ? no_memory_v2 : no_memory;
    *length = reply->body.failed ? strlen(failure) : reply->body.length;
    return reply->body.failed ? failure : reply->body.data;
}

/* ---- Header fields --------------------------------------------------------------------------- */

/* Appends a line as it is sent, with its CR LF.  No value holds CR or LF: values are our own text,
 * or ids. */
static inline void add(struct srv_buffer *out, const char *name, const char *value)
{
    srv_buffer_text(out, name);
    srv_buffer_text(out, ": ");
    srv_buffer_text(out, value);
    srv_buffer_text(out, "\r\n");
}

static void add_number(struct srv_buffer *out, const char *name, uint64_t number)
{
    srv_buffer_number(out, name, number);
    srv_buffer_text(out, "\r\n");
}

/* "parse;dur=0.123, ...": milliseconds, to the microsecond. */
static void add_timing(struct srv_buffer *out, const struct srv_request *request)
{
    srv_buffer_text(out, "Server-Timing: ");
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL; stage++) {
        uint64_t us = srv_stage_ns(request, stage) / 1000;
        srv_buffer_text(out, stage > 0 ? ", " : "");
        srv_buffer_text(out, srv_stage_name(stage));
        srv_buffer_number(out, ";dur=", us / 1000);
        srv_buffer_text(out, ".");
        srv_buffer_unsigned(out, us % 1000, 3);
    }
    srv_buffer_text(out, "\r\n");
}

/* Every field but Connection, Date and Content-Length, which libmicrohttpd writes. */
static void list_fields(struct srv_buffer *out, struct srv_loop *loop,
                        const struct srv_request *request)
{
    const struct srv_reply *reply = &request->reply;
    char tag[SRV_TAG_SIZE], trace[SRV_TRACEPARENT + 1];
    add(out, "Cache-Control", reply->tag != 0 ? "no-cache" : "no-store");
    if (reply->tag != 0) {
        srv_reply_write_tag(tag, reply);
        add(out, "ETag", tag);
    }
    if (reply->body.length > 0 || reply->body.failed)
        add(out, "Content-Type", reply->content_type ? reply->content_type : "application/json");
    if (reply->fields != NULL)
        srv_buffer_text(out, reply->fields);
    if (reply->json_length > 0)
        add_number(out, "Inference-Header-Content-Length: ", reply->json_length);
    if (reply->coding != SRV_IDENTITY)
        add(out, "Content-Encoding", srv_coding_name(reply->coding));
    srv_origin_write_fields(out, request, loop->http->context.allow_origins != NULL);
    add(out, "X-Request-Id", request->request_id);
    if (request->trace.trace_id[0] != '\0') {
        srv_trace_write(trace, &request->trace);
        add(out, "traceparent", trace);
    }
    add(out, "X-Attn-Instance", loop->http->context.instance);
    if (reply->instance[0] != '\0')
        add(out, "X-Attn-Owner", reply->instance);
    if (reply->allow[0] != '\0')
        add(out, "Allow", reply->allow);
    if (reply->code == SRV_E_UNAUTHORIZED)
        add(out, "WWW-Authenticate", "Bearer");
    if (reply->retry_after_s > 0)
        add_number(out, "Retry-After: ", reply->retry_after_s);
    if (request->t_popped != 0)
        add_timing(out, request);
}

/* ---- Sending --------------------------------------------------------------------------------- */

#define LINES_MAX 2048                /* header lines of a reply */
#define PART_BYTES ((size_t)64 << 10) /* sent to one connection before others have their turn */

/* A turn in which a piece is sent is not idle. */
static ssize_t read_part(void *context, uint64_t at, char *out, size_t most)
{
    const struct srv_request *request = context;
    const struct srv_exchange *x = request->connection;
    if (at > 0 && !srv_turn_begins(x->connection))
        return 0;
    x->loop->idle_turns = 0;
    memcpy(out, request->reply.body.data + at, most); /* at + most stays within the body */
    return (ssize_t)most;
}

/* A small body is sent from where it lies.  A large one is sent in pieces, since the socket of a
 * client that reads meanwhile would take many MiB in one call. */
static struct MHD_Response *make_response(struct srv_request *request, const char *body,
                                          size_t length)
{
    if (length <= PART_BYTES || !srv_request_charge(request, PART_BYTES))
        return MHD_create_response_from_buffer(length, (char *)body, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_callback(length, PART_BYTES, read_part, request, NULL);
}

/* Adds the lines, which are changed, to a reply of libmicrohttpd's. */
static bool add_lines(struct MHD_Response *response, struct srv_buffer *lines)
{
    char *line = lines->data, *end = lines->data + lines->length;
    srv_buffer_append(lines, "", 1);
    bool added = !lines->failed;
    while (added && line < end) {
        char *value = strstr(line, ": "), *next = strstr(value, "\r\n");
        *value = *next = '\0';
        added = MHD_add_response_header(response, line, value + 2) == MHD_YES;
        line = next + 2;
    }
    return added;
}

/* Where a field cannot be added nothing is sent: a reply that lacks one could be read as another
 * one. */
bool srv_reply_through_mhd(struct srv_exchange *x, bool close)
{
    struct srv_request *request = &x->request;
    char space[LINES_MAX];
    struct srv_buffer lines;
    size_t length;
    const char *body = finish_reply(&length, request, x->loop);
    struct MHD_Response *response = make_response(request, body, length);
    if (response == NULL)
        return false;
    srv_buffer_init(&lines, sizeof space);
    srv_buffer_lend(&lines, space, sizeof space);
    list_fields(&lines, x->loop, request);
    bool good = !close || MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    good = good && add_lines(response, &lines);
    good = good && MHD_queue_response(x->mhd, request->reply.status, response) == MHD_YES;
    MHD_destroy_response(response);
    return good;
}

/* The fields stand in libmicrohttpd's order, so that all replies have one form. */
void srv_reply_past_mhd(struct srv_exchange *x)
{
    const struct srv_connection *connection = x->connection;
    struct srv_request *request = &x->request;
    char date[sizeof "Sun, 06 Nov 1994 08:49:37 GMT"];
    struct tm utc;
    struct srv_buffer out;
    size_t length;
    x->state = REPLIED;
    x->body_unread = true;
    request->t_replied = srv_now_ns();
    const char *body = finish_reply(&length, request, x->loop);
    srv_buffer_init(&out, SIZE_MAX);
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &utc));
    srv_buffer_printf(&out, "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: close\r\n",
                      request->reply.status, MHD_get_reason_phrase_for(request->reply.status),
                      date);
    list_fields(&out, x->loop, request);
    srv_buffer_printf(&out, "Content-Length: %zu\r\n\r\n", length);
    if (!x->is_head)
        srv_buffer_append(&out, body, length);
    if (!out.failed && connection->tls != NULL)
        srv_tls_send(connection->tls, out.data, out.length);
    else if (!out.failed)
        (void)!send(connection->fd, out.data, out.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    srv_buffer_fini(&out);
}

/* ---- Slow readers ---------------------------------------------------------------------------- */

void srv_reply_follow(struct srv_exchange *x, uint64_t now_ns)
{
    struct srv_connection *connection = x->connection;
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (connection->finished ||
        getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return;
    uint64_t latest = now_ns + x->request.limits->reply_timeout_ms * SRV_MS_NS;
    uint64_t bytes = info.tcpi_bytes_acked - x->acknowledged;
    uint64_t granted = connection->deadline_ns + bytes * (1000 * SRV_MS_NS / SRV_MIN_WRITE_RATE);
    connection->deadline_ns = x->followed && granted < latest ? granted : latest;
    x->acknowledged = info.tcpi_bytes_acked;
    x->followed = true;
}
