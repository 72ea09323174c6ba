/* exchange.c: a strict reader's view of the bytes, compared with the replies one by one.
 *
 * Directly, each sound request gets the bytes that it gets alone.  The first wrong request, if
 * there is one, gets one refusal or none, and the connection ends: what follows it is not read.  A
 * body in chunks ends the connection as well (docs/API.md).
 *
 * Through a proxy the same holds up to the first wrong request.  A proxy may repair that one; then
 * the proxy says what is a request, and the logs are compared (records.h). */
#include "exchange.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "process.h"
#include "raw.h"
#include "reply.h"

#define MAX_MESSAGES 40
#define TIMEOUT_MS 20000 /* for a reply */
#define REFUSAL_MS 100
#define BROKEN_MS 200 /* attnd may wait for the rest of a body, to its own timeout */

struct exchange {
    struct way *way;
    unsigned number;
    struct generated sent;
    struct rng rng; /* of pieces and pauses */
    struct raw raw;
    struct message messages[MAX_MESSAGES];
    size_t count;           /* of sound requests that are to be answered */
    enum message_kind tail; /* of what follows them */
    bool tail_is_head;      /* its method is HEAD */
    char tail_id[MESSAGE_ID_MAX + 1];
    bool half_closed; /* with the last byte, before any reply */
    char wrong[600];  /* "": nothing */
};

/* ---- What is expected ------------------------------------------------------------------------ */

static bool ends(const struct exchange *x, const struct message *message)
{
    return message->closes || (message->chunked && !x->way->proxied);
}

/* Reads the requests up to the first that is wrong or ends the connection. */
static void read_messages(struct exchange *x)
{
    const char *at = x->sent.bytes.data, *end = at + x->sent.bytes.length;
    bool ended = false;
    x->tail = MESSAGE_NONE;
    while (!ended && x->count < MAX_MESSAGES) {
        struct message *message = &x->messages[x->count];
        message_read(message, at, (size_t)(end - at));
        if (message->kind != MESSAGE_WHOLE) {
            x->tail = message->kind;
            x->tail_is_head = message->is_head;
            memcpy(x->tail_id, message->id, sizeof x->tail_id);
            message_free(message);
            return;
        }
        at += message->size;
        ended = ends(x, message);
        x->count++;
    }
}

/* ---- Complaints ------------------------------------------------------------------------------ */

static bool complain(struct exchange *x, const char *what, const char *detail)
{
    if (x->wrong[0] == '\0')
        snprintf(x->wrong, sizeof x->wrong, "%s: %.500s", what, detail);
    return false;
}

static void show_bytes(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (isprint(c) && c != '\\')
            putchar(c);
        else
            printf(c == '\r' ? "\\r" : c == '\n' ? "\\n" : "\\x%02x", c);
    }
    putchar('\n');
}

static void show(struct exchange *x)
{
    if (atomic_fetch_add(&x->way->wrong, 1) >= x->way->shown)
        return;
    flockfile(stdout);
    printf("%s, connection %u of seed %llu, %zu sound requests, oddity ", x->way->name, x->number,
           (unsigned long long)x->way->seed, x->count);
    show_bytes(x->sent.oddity != NULL ? x->sent.oddity : "none",
               strlen(x->sent.oddity != NULL ? x->sent.oddity : "none"));
    printf("  sent: ");
    show_bytes(x->sent.bytes.data, x->sent.bytes.length);
    printf("  wrong: ");
    show_bytes(x->wrong, strlen(x->wrong));
    funlockfile(stdout);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Sends the bytes in up to nine pieces, with pauses after some of them. */
static void send_pieces(struct exchange *x)
{
    size_t done = 0, length = x->sent.bytes.length;
    unsigned pieces = rng_below(&x->rng, 3) == 0 ? 0 : rng_below(&x->rng, 9);
    while (done < length) {
        size_t size =
            pieces == 0 ? length - done : 1 + rng_below(&x->rng, (unsigned)(length - done));
        if (!raw_send(&x->raw, x->sent.bytes.data + done, size))
            return;
        done += size;
        pieces -= pieces > 0;
        if (rng_below(&x->rng, 4) == 0)
            pause_ms(1);
    }
}

/* ---- Judging --------------------------------------------------------------------------------- */

static void record_reply(struct exchange *x, const struct raw_answer *reply)
{
    char id[256];
    struct record record = {.status = reply->status, .connection = x->number};
    if (!raw_header(id, reply, "X-Request-Id"))
        return;
    message_id(record.id, id, strlen(id));
    records_add(&x->way->replies, &record);
}

/* attnd makes an id where it finds no valid one, such as one before a tab that a proxy leaves. */
static bool id_is_right(const struct exchange *x, const struct message *message,
                        const struct raw_answer *reply)
{
    char id[256];
    raw_header(id, reply, "X-Request-Id");
    bool is_made = strlen(id) == REPLY_MADE_ID && strchr(id, '-') == NULL;
    return strcmp(id, message->id) == 0 ||
           (is_made && (message->id[0] == '\0' || (x->way->proxied && x->sent.oddity != NULL)));
}

/* Whether the reply is the one that the request gets alone, byte for byte. */
static bool is_same(struct exchange *x, const struct message *message,
                    const struct raw_answer *reply)
{
    bool order = !x->way->proxied && !x->half_closed;
    struct text got = {0}, want = {0};
    char id[256];
    raw_header(id, reply, "X-Request-Id");
    struct raw_answer alone = reply_alone(message, strlen(id), x->way->attnd_port, x->way->tls);
    reply_mask(&got, reply, order);
    if (alone.status != 0)
        reply_mask(&want, &alone, order);
    bool same = got.length == want.length && memcmp(got.data, want.data, got.length) == 0;
    if (!same) {
        struct text both = {0};
        text_add(&both, "%s\n-- alone --\n%s", got.data, want.data != NULL ? want.data : "none");
        complain(x, "not the reply that it gets alone", both.data);
        text_free(&both);
    }
    raw_answer_free(&alone);
    text_free(&got);
    text_free(&want);
    return same;
}

/* Whether the reply ends the connection where, and only where, attnd says that it does. */
static bool end_is_right(const struct exchange *x, const struct message *message,
                         const struct raw_answer *reply)
{
    bool is_last = message == &x->messages[x->count - 1];
    bool may = x->way->proxied || (message->expects && reply->status >= 400) ||
               (x->half_closed && is_last);
    return may || reply_is_last(reply) == ends(x, message);
}

enum judged { GOES_ON, ENDS_HERE, WRONG, PROXY_REFUSED };

/* Takes the reply to a sound request.  nginx hangs up, without saying so before, where attnd has
 * replied before all chunks had come. */
static enum judged judge(struct exchange *x, const struct message *message)
{
    char why[200];
    enum judged judged = WRONG;
    struct raw_answer reply = raw_read(&x->raw, message->is_head, TIMEOUT_MS);
    bool may_hang_up = x->way->proxied && message > x->messages && message[-1].chunked;
    if (reply.status == 0 && may_hang_up)
        judged = PROXY_REFUSED;
    else if (reply.status == 0)
        complain(x, "no reply to a sound request", message->line.data);
    else if (x->way->proxied && !reply_is_attnds(&reply) && reply.status >= 400)
        judged = PROXY_REFUSED;
    else if (!reply_is_sound(why, &reply, message->is_head))
        complain(x, "a reply of no sound form", why);
    else if (!id_is_right(x, message, &reply))
        complain(x, "the reply to another request", reply.head);
    else if (!end_is_right(x, message, &reply))
        complain(x, "the connection ends or goes on where it should not", reply.head);
    else if (is_same(x, message, &reply))
        judged = reply_is_last(&reply) ? ENDS_HERE : GOES_ON;
    if (judged == ENDS_HERE || judged == GOES_ON) {
        atomic_fetch_add(&x->way->same, 1);
        record_reply(x, &reply);
    }
    raw_answer_free(&reply);
    return judged;
}

/* A wrong head is not known to be a HEAD's: a body may follow the reply, which ends all. */
static void drop_body_of_head(struct exchange *x, const struct raw_answer *reply)
{
    char length[256];
    if (x->tail_is_head && raw_header(length, reply, "Content-Length") &&
        x->raw.length == strtoul(length, NULL, 10))
        x->raw.length = 0;
}

/* Takes what comes after the sound requests: at most one reply to a wrong one, which refuses it. */
static void judge_tail(struct exchange *x)
{
    char why[200];
    struct record tail = {.connection = x->number};
    memcpy(tail.id, x->tail_id, sizeof tail.id);
    unsigned wait_ms = x->tail == MESSAGE_BROKEN ? BROKEN_MS : TIMEOUT_MS;
    struct raw_answer reply = raw_read(&x->raw, x->tail_is_head, wait_ms);
    if (x->tail != MESSAGE_NONE && !(reply.status != 0 && reply_is_attnds(&reply)))
        records_add(&x->way->tails, &tail);
    if (reply.status != 0) {
        if (x->tail == MESSAGE_NONE || reply.status < 400)
            complain(x, "a reply too many", reply.head);
        else if (!reply_is_attnds(&reply) || !reply_is_sound(why, &reply, x->tail_is_head))
            complain(x, "a refusal that attnd did not write in its form", reply.head);
        else if (x->tail == MESSAGE_REFUSED && !reply_refuses_head(&reply))
            complain(x, "a wrong head is taken for a request's", reply.head);
        else if (!reply_is_last(&reply))
            complain(x, "the connection goes on after a wrong request", reply.head);
        record_reply(x, &reply);
    }
    bool may_go_on = x->wrong[0] != '\0' || (x->tail == MESSAGE_BROKEN && reply.status == 0);
    if (!raw_read_to_end(&x->raw, may_go_on ? 0 : TIMEOUT_MS) && !may_go_on)
        complain(x, "the connection does not end", x->sent.oddity != NULL ? x->sent.oddity : "");
    drop_body_of_head(x, &reply);
    raw_answer_free(&reply);
    if (x->raw.length > 0)
        complain(x, "bytes after the last reply", x->raw.data);
    atomic_fetch_add(&x->way->refused, x->tail != MESSAGE_NONE);
}

/* Whether attnd has made the id, or it stands in the bytes of this connection. */
static bool id_is_ours(const struct exchange *x, const char *id)
{
    const struct text *sent = &x->sent.bytes;
    bool is_made = strlen(id) == REPLY_MADE_ID && strchr(id, '-') == NULL;
    return is_made || memmem(sent->data, sent->length, id, strlen(id)) != NULL;
}

/* Takes what a proxy makes of the rest: attnd's replies are to this connection's requests. */
static void judge_rest(struct exchange *x)
{
    char id[256];
    struct raw_answer reply = raw_read(&x->raw, false, TIMEOUT_MS);
    while (reply.status != 0 && strncmp(reply.head, "HTTP/1.", 7) == 0) {
        raw_header(id, &reply, "X-Request-Id");
        if (reply_is_attnds(&reply)) {
            record_reply(x, &reply);
            if (!id_is_ours(x, id))
                complain(x, "the reply to another connection's request", reply.head);
        }
        raw_answer_free(&reply);
        reply = raw_read(&x->raw, false, TIMEOUT_MS);
    }
    raw_answer_free(&reply);
    atomic_fetch_add(&x->way->refused, x->tail != MESSAGE_NONE);
}

/* ---- One connection -------------------------------------------------------------------------- */

/* Over HTTP/1.0 and TLS the end of the sending side counts as leaving (docs/API.md); nginx takes it
 * so always. */
static bool may_half_close(const struct exchange *x)
{
    for (size_t i = 0; i < x->count; i++) {
        const struct text *line = &x->messages[i].line;
        if (line->data[line->length - 1] == '0')
            return false;
    }
    return !x->way->proxied && !x->way->tls && x->tail == MESSAGE_NONE;
}

/* Waits a little for bytes: over TLS, a client that has left gets no refusal any more. */
static bool has_come(const struct exchange *x)
{
    struct pollfd readable = {.fd = x->raw.fd, .events = POLLIN};
    return x->raw.length > 0 || poll(&readable, 1, REFUSAL_MS) > 0;
}

static void carry_out(struct exchange *x)
{
    enum judged judged = GOES_ON;
    send_pieces(x);
    x->half_closed = may_half_close(x) && rng_below(&x->rng, 8) == 0;
    if (x->half_closed)
        raw_half_close(&x->raw);
    for (size_t i = 0; i < x->count && judged == GOES_ON; i++) {
        atomic_fetch_add(&x->way->requests, 1);
        judged = judge(x, &x->messages[i]);
    }
    if (judged == WRONG)
        return;
    atomic_fetch_add(&x->way->by_proxy, judged == PROXY_REFUSED);
    if (!x->way->tls || x->tail == MESSAGE_NONE || !has_come(x))
        raw_half_close(&x->raw);
    if (x->way->proxied)
        judge_rest(x);
    else
        judge_tail(x);
}

void exchange_try(struct way *way, unsigned number)
{
    struct exchange x = {.way = way, .number = number, .rng = {way->seed + number}};
    generate(&x.sent, way->seed, number);
    read_messages(&x);
    reply_open(&x.raw, way->ports[number % 2], way->tls);
    carry_out(&x);
    raw_close(&x.raw);
    atomic_fetch_add(&way->connections, 1);
    if (x.wrong[0] != '\0')
        show(&x);
    for (size_t i = 0; i < x.count; i++)
        message_free(&x.messages[i]);
    text_free(&x.sent.bytes);
}
