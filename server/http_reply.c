/* http_reply.c: the one place where replies get their header fields and go out.
 *
 * Nearly all go through libmicrohttpd; it takes none while a body still arrives, so the few replies
 * that cannot wait for its end are written to the socket. */
#include "http_reply.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "app.h"
#include "clerk.h"
#include "error_body.h"
#include "http_exchange.h"
#include "number.h"
#include "stage.h"
#include "tls.h"

void srv_reply_status(struct srv_request *request, unsigned status)
{
    request->reply.status = status;
    request->reply.code = SRV_OK;
}

void srv_reply_error(struct srv_request *request, const struct srv_error *error)
{
    struct srv_reply *reply = &request->reply;
    size_t limit = reply->body.limit;
    srv_buffer_fini(&reply->body);
    srv_buffer_init(&reply->body, limit);
    reply->status = srv_error_status(error->code);
    reply->code = error->code;
    reply->content_type = NULL;
    reply->json_length = 0;
    reply->coding = SRV_IDENTITY;
    reply->varies = false;
    if (srv_error_retryable(error->code) && (reply->status == 429 || reply->status == 503))
        reply->retry_after_s = srv_scheduler_retry_s(request->app->scheduler, request);
    srv_buffer_text(&reply->body, "{\"error\":");
    srv_error_write(&reply->body, error, request->request_id);
    srv_buffer_text(&reply->body, "}");
}

/* The body of an error for which there is no memory either. */
static const char no_memory[] =
    "{\"error\":{\"code\":\"out_of_memory\",\"message\":\"no memory for the reply\","
    "\"retryable\":true}}";

static const char *body_of(size_t *length, const struct srv_reply *reply)
{
    *length = reply->body.failed ? sizeof no_memory - 1 : reply->body.length;
    return reply->body.failed ? no_memory : reply->body.data;
}

/* A handler that set no status, or whose body met its ceiling or the end of memory, has failed. */
static void settle(struct srv_request *request)
{
    struct srv_error error = {0};
    struct srv_reply *reply = &request->reply;
    if (reply->status == 0)
        srv_fail(&error, SRV_E_INTERNAL, NULL, "no reply was made");
    else if (reply->body.failed)
        srv_fail(&error, SRV_E_OUT_OF_MEMORY, NULL, "no memory for the reply");
    else
        return;
    srv_reply_error(request, &error);
}

#define TIMING_MAX 256 /* of which five stages at their longest take less */

static size_t put_text(char *out, const char *text)
{
    size_t length = strlen(text);
    memcpy(out, text, length);
    return length;
}

/* "parse;dur=0.123, ...": milliseconds, to the microsecond. */
static void print_timing(char out[TIMING_MAX], const struct srv_request *request)
{
    char *at = out;
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL; stage++) {
        uint64_t us = srv_stage_ns(request, stage) / 1000;
        at += put_text(at, stage > 0 ? ", " : "");
        at += put_text(at, srv_stage_name(stage));
        at += put_text(at, ";dur=");
        at += srv_unsigned_write(at, us / 1000, 1);
        at += put_text(at, ".");
        at += srv_unsigned_write(at, us % 1000, 3);
    }
    *at = '\0';
}

/* ---- Header fields --------------------------------------------------------------------------- */

#define FIELDS_MAX 12
#define DATE_MAX sizeof "Sun, 06 Nov 1994 08:49:37 GMT"

struct fields {
    size_t count;
    const char *names[FIELDS_MAX], *values[FIELDS_MAX];
    /* What values point into. */
    char retry_after[16], json_length[24], timing[TIMING_MAX];
};

static void add(struct fields *out, const char *name, const char *value)
{
    out->names[out->count] = name;
    out->values[out->count++] = value;
}

static void print_date(char out[DATE_MAX])
{
    static const char days[] = "SunMonTueWedThuFriSat",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    memcpy(out, "Sun, 06 Nov 1994 08:49:37 GMT", DATE_MAX);
    memcpy(out, days + 3 * utc.tm_wday, 3);
    srv_unsigned_write(out + 5, (uint64_t)utc.tm_mday, 2);
    memcpy(out + 8, months + 3 * utc.tm_mon, 3);
    srv_unsigned_write(out + 12, (uint64_t)utc.tm_year + 1900, 4);
    srv_unsigned_write(out + 17, (uint64_t)utc.tm_hour, 2);
    srv_unsigned_write(out + 20, (uint64_t)utc.tm_min, 2);
    srv_unsigned_write(out + 23, (uint64_t)utc.tm_sec, 2);
}

/* Those of our own; Content-Length and Date are libmicrohttpd's. */
static void list_fields(struct fields *out, const struct srv_request *request, bool close)
{
    const struct srv_reply *reply = &request->reply;
    out->count = 0;
    if (reply->body.length > 0 || reply->body.failed)
        add(out, "Content-Type", reply->content_type ? reply->content_type : "application/json");
    if (reply->json_length > 0) {
        out->json_length[srv_unsigned_write(out->json_length, reply->json_length, 1)] = '\0';
        add(out, "Inference-Header-Content-Length", out->json_length);
    }
    if (reply->coding != SRV_IDENTITY)
        add(out, "Content-Encoding", srv_coding_name(reply->coding));
    if (reply->varies)
        add(out, "Vary", "Accept-Encoding");
    add(out, "Cache-Control", "no-store");
    add(out, "X-Request-Id", request->request_id);
    add(out, "X-Attn-Instance", request->app->config.instance);
    if (reply->allow[0] != '\0')
        add(out, "Allow", reply->allow);
    if (reply->code == SRV_E_UNAUTHORIZED)
        add(out, "WWW-Authenticate", "Bearer");
    if (reply->retry_after_s > 0) {
        snprintf(out->retry_after, sizeof out->retry_after, "%u", reply->retry_after_s);
        add(out, "Retry-After", out->retry_after);
    }
    if (request->t_taken != 0) {
        print_timing(out->timing, request);
        add(out, "Server-Timing", out->timing);
    }
    if (close)
        add(out, "Connection", "close");
}

/* ---- Sending --------------------------------------------------------------------------------- */

#define PIECE_BYTES ((size_t)128 << 10) /* that one connection gets before others are looked at */

/* A piece that goes out is no silent turn (http_loop.c). */
static ssize_t copy_piece(void *context, uint64_t at, char *out, size_t most)
{
    const struct srv_request *request = context;
    const struct srv_exchange *x = request->connection;
    x->loop->silent_turns = 0;
    memcpy(out, request->reply.body.data + at, most); /* most: within its length */
    return (ssize_t)most;
}

/* The socket is given small bodies as they are.  Of a large one it would take many MiB at once from
 * a client that reads meanwhile. */
static struct MHD_Response *make_response(struct srv_request *request, const char *body,
                                          size_t length)
{
    if (length <= SRV_LARGE_BYTES || !srv_request_charge(request, PIECE_BYTES))
        return MHD_create_response_from_buffer(length, (char *)body, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_callback(length, PIECE_BYTES, copy_piece, request, NULL);
}

bool srv_reply_queue(struct MHD_Connection *connection, struct srv_request *request, bool close)
{
    settle(request);
    struct fields fields;
    size_t length;
    const char *body = body_of(&length, &request->reply);
    struct MHD_Response *response = make_response(request, body, length);
    if (response == NULL)
        return false;
    list_fields(&fields, request, close);
    enum MHD_Result good = MHD_YES;
    for (size_t i = 0; i < fields.count && good == MHD_YES; i++)
        good = MHD_add_response_header(response, fields.names[i], fields.values[i]);
    if (good == MHD_YES) /* a reply that lacks a field could be read as another */
        good = MHD_queue_response(connection, request->reply.status, response);
    MHD_destroy_response(response);
    return good == MHD_YES;
}

void srv_reply_send(const struct srv_connection *connection, struct srv_request *request)
{
    settle(request);
    struct fields fields;
    struct srv_buffer out;
    char date[DATE_MAX];
    size_t length;
    const char *body = body_of(&length, &request->reply);
    srv_buffer_init(&out, SIZE_MAX);
    srv_buffer_printf(&out, "HTTP/1.1 %u %s\r\nContent-Length: %zu\r\n", request->reply.status,
                      MHD_get_reason_phrase_for(request->reply.status), length);
    list_fields(&fields, request, true);
    print_date(date);
    srv_buffer_printf(&out, "Date: %s\r\n", date);
    for (size_t i = 0; i < fields.count; i++)
        srv_buffer_printf(&out, "%s: %s\r\n", fields.names[i], fields.values[i]);
    srv_buffer_text(&out, "\r\n");
    srv_buffer_append(&out, body, length);
    if (!out.failed && connection->tls != NULL)
        srv_tls_send(connection->tls, out.data, out.length);
    else if (!out.failed)
        (void)!send(connection->fd, out.data, out.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    srv_buffer_fini(&out);
}
