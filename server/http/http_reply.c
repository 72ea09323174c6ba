/* http_reply.c: the one place where replies get their header fields and go out.
 *
 * Nearly all go through libmicrohttpd; it takes none while a body still arrives, so the few replies
 * that cannot wait for its end are written to the socket. */
#include "http/http_reply.h"

#include <assert.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "app.h"
#include "base/number.h"
#include "http/http_exchange.h"
#include "http/tls.h"
#include "ops/stage.h"
#include "schedule/scheduler.h"

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

static void set_retry_after(struct srv_request *request)
{
    struct srv_reply *reply = &request->reply;
    if (srv_error_retryable(reply->code) && (reply->status == 429 || reply->status == 503))
        reply->retry_after_s = srv_scheduler_retry_after_s(request->app->scheduler, request);
}

/* ---- Header fields --------------------------------------------------------------------------- */

#define FIELDS_MAX 1024 /* bytes, of which all fields at their longest take less */

/* Lines as they are sent, each with its CR LF.  No text in them has one: they are ours, or ids. */
struct fields {
    size_t length;
    char text[FIELDS_MAX];
};

static inline void put(struct fields *out, const char *text)
{
    size_t length = strlen(text);
    assert(length <= sizeof out->text - out->length);
    memcpy(out->text + out->length, text, length);
    out->length += length;
}

static inline void put_number(struct fields *out, uint64_t number, size_t width)
{
    assert(SRV_UNSIGNED_MAX <= sizeof out->text - out->length);
    out->length += srv_unsigned_write(out->text + out->length, number, width);
}

static inline void add(struct fields *out, const char *name, const char *value)
{
    put(out, name);
    put(out, ": ");
    put(out, value);
    put(out, "\r\n");
}

static void add_number(struct fields *out, const char *name, uint64_t number)
{
    put(out, name);
    put(out, ": ");
    put_number(out, number, 1);
    put(out, "\r\n");
}

/* "parse;dur=0.123, ...": milliseconds, to the microsecond. */
static void add_timing(struct fields *out, const struct srv_request *request)
{
    put(out, "Server-Timing: ");
    for (enum srv_stage stage = 0; stage < SRV_STAGE_TOTAL; stage++) {
        uint64_t us = srv_stage_ns(request, stage) / 1000;
        put(out, stage > 0 ? ", " : "");
        put(out, srv_stage_name(stage));
        put(out, ";dur=");
        put_number(out, us / 1000, 1);
        put(out, ".");
        put_number(out, us % 1000, 3);
    }
    put(out, "\r\n");
}

static void print_date(char out[SRV_DATE_MAX], time_t now)
{
    static const char days[] = "SunMonTueWedThuFriSat",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm utc;
    gmtime_r(&now, &utc);
    memcpy(out, "Sun, 06 Nov 1994 08:49:37 GMT", SRV_DATE_MAX);
    memcpy(out, days + 3 * utc.tm_wday, 3);
    srv_unsigned_write(out + 5, (uint64_t)utc.tm_mday, 2);
    memcpy(out + 8, months + 3 * utc.tm_mon, 3);
    srv_unsigned_write(out + 12, (uint64_t)utc.tm_year + 1900, 4);
    srv_unsigned_write(out + 17, (uint64_t)utc.tm_hour, 2);
    srv_unsigned_write(out + 20, (uint64_t)utc.tm_min, 2);
    srv_unsigned_write(out + 23, (uint64_t)utc.tm_sec, 2);
}

/* The date of this second, which the loop keeps: it is printed once for all replies of a second. */
static const char *date_of(struct srv_loop *loop)
{
    time_t now = time(NULL);
    if (now != loop->dated || loop->date[0] == '\0')
        print_date(loop->date, now);
    loop->dated = now;
    return loop->date;
}

#define FIRST "Date" /* every reply has it */

/* Those of our own; Content-Length and Connection are libmicrohttpd's. */
static void list_fields(struct fields *out, struct srv_loop *loop,
                        const struct srv_request *request)
{
    const struct srv_reply *reply = &request->reply;
    out->length = 0;
    add(out, FIRST, date_of(loop));
    add(out, "Cache-Control", "no-store");
    if (reply->body.length > 0 || reply->body.failed)
        add(out, "Content-Type", reply->content_type ? reply->content_type : "application/json");
    if (reply->json_length > 0)
        add_number(out, "Inference-Header-Content-Length", reply->json_length);
    if (reply->coding != SRV_IDENTITY)
        add(out, "Content-Encoding", srv_coding_name(reply->coding));
    if (reply->varies)
        add(out, "Vary", "Accept-Encoding");
    add(out, "X-Request-Id", request->request_id);
    add(out, "X-Attn-Instance", request->app->config.instance);
    if (reply->allow[0] != '\0')
        add(out, "Allow", reply->allow);
    if (reply->code == SRV_E_UNAUTHORIZED)
        add(out, "WWW-Authenticate", "Bearer");
    if (reply->retry_after_s > 0)
        add_number(out, "Retry-After", reply->retry_after_s);
    if (request->t_taken != 0)
        add_timing(out, request);
}

/* Each field that libmicrohttpd is given costs three allocations and a dozen searches for bytes it
 * must not have.  So it is given one, whose value has room for all of them, and they are written
 * over the copy that it made of that, which it sends as it stands. */
static bool add_fields(struct MHD_Response *response, const struct fields *fields)
{
    size_t name = sizeof FIRST ": " - 1, end = sizeof "\r\n" - 1;
    size_t length = fields->length - name - end;
    char room[FIELDS_MAX];
    memset(room, '-', length);
    room[length] = '\0';
    if (MHD_add_response_header(response, FIRST, room) != MHD_YES)
        return false;
    const char *copy = MHD_get_response_header(response, FIRST);
    memcpy((char *)(uintptr_t)copy, fields->text + name, length);
    return true;
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
    set_retry_after(request);
    struct fields fields;
    size_t length;
    const char *body = body_of(&length, &request->reply);
    struct MHD_Response *response = make_response(request, body, length);
    if (response == NULL)
        return false;
    list_fields(&fields, ((const struct srv_exchange *)request->connection)->loop, request);
    /* Before the date, which libmicrohttpd would add once more if this came behind it. */
    bool good = !close || MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    good = good && add_fields(response, &fields);
    if (good) /* a reply that lacks a field could be read as another */
        good = MHD_queue_response(connection, request->reply.status, response) == MHD_YES;
    MHD_destroy_response(response);
    return good;
}

void srv_reply_send(const struct srv_connection *connection, struct srv_request *request)
{
    settle(request);
    set_retry_after(request);
    struct fields fields;
    struct srv_buffer out;
    size_t length;
    const char *body = body_of(&length, &request->reply);
    srv_buffer_init(&out, SIZE_MAX);
    srv_buffer_printf(&out, "HTTP/1.1 %u %s\r\nContent-Length: %zu\r\n", request->reply.status,
                      MHD_get_reason_phrase_for(request->reply.status), length);
    list_fields(&fields, connection->loop, request);
    srv_buffer_append(&out, fields.text, fields.length);
    srv_buffer_text(&out, "Connection: close\r\n\r\n");
    srv_buffer_append(&out, body, length);
    if (!out.failed && connection->tls != NULL)
        srv_tls_send(connection->tls, out.data, out.length);
    else if (!out.failed)
        (void)!send(connection->fd, out.data, out.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    srv_buffer_fini(&out);
}
