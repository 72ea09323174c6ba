/* requests.c: requests as bytes, sent through sockets: no HTTP client would send half of them. */
#include "requests.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "raw.h"
#include "replies.h"
#include "state_edit.h"

#define TIMEOUT_MS 30000
#define HOST "127.0.0.1"
#define JSON_LENGTH "Inference-Header-Content-Length"

const char *const request_keys[] = {"ask",  "bytes", "state", "header", "also",       "without",
                                    "send", "end",   "want",  "proxy",  "proxy-step", NULL};

/* ---- Building -------------------------------------------------------------------------------- */

/* Whether one of the entry's lines `key` names the field. */
static bool names(const struct entry *entry, const char *key, const char *field)
{
    size_t length = strlen(field);
    for (const struct line *l = entry_line(entry, key, NULL); l; l = entry_line(entry, key, l))
        if (strncasecmp(l->value.data, field, length) == 0 &&
            (l->value.data[length] == ':' || l->value.data[length] == '\0'))
            return true;
    return false;
}

/* Adds a field, unless the entry replaces it or leaves it out. */
static void add_field(struct text *out, const struct entry *entry, const char *field,
                      const char *value)
{
    if (!names(entry, "header", field) && !names(entry, "without", field))
        text_add(out, "%s: %s\r\n", field, value);
}

static void add_fields(struct text *out, const struct entry *entry, const char *key)
{
    for (const struct line *l = entry_line(entry, key, NULL); l; l = entry_line(entry, key, l)) {
        text_bytes(out, l->value.data, l->value.length);
        text_bytes(out, "\r\n", 2);
    }
}

/* Adds the fields of a body of `length` bytes, the first `json` of which are JSON. */
static void add_body_fields(struct text *out, const struct entry *entry, size_t json, size_t length)
{
    char number[32];
    bool binary = entry_line(entry, "bytes", NULL) != NULL;
    bool bytes = binary || entry_line(entry, "state", NULL) != NULL;
    add_field(out, entry, "Content-Type", bytes ? "application/octet-stream" : "application/json");
    snprintf(number, sizeof number, "%zu", length);
    add_field(out, entry, "Content-Length", number);
    snprintf(number, sizeof number, "%zu", json);
    if (binary)
        add_field(out, entry, JSON_LENGTH, number);
}

/* ask METHOD PATH [BODY] */
static void build_ask(struct text *out, const struct catalogue *c, const struct entry *entry,
                      const struct line *ask, const struct text *state)
{
    struct text body = {0};
    const char *text = ask->value.data, *end = text + ask->value.length;
    const char *path = memchr(text, ' ', ask->value.length);
    ck_assert_msg(path != NULL, "%s:%u: ask METHOD PATH [BODY]", c->file, ask->number);
    const char *stop = memchr(path + 1, ' ', (size_t)(end - path - 1));
    bool has_body = stop != NULL;
    stop = has_body ? stop : end;
    if (has_body)
        text_bytes(&body, stop + 1, (size_t)(end - stop - 1));
    size_t json = body.length;
    const struct line *bytes = entry_line(entry, "bytes", NULL);
    if (bytes != NULL)
        text_bytes(&body, bytes->value.data, bytes->value.length);
    if (entry_line(entry, "state", NULL) != NULL) {
        state_edit(&body, c, entry, state);
        has_body = true;
    }
    text_bytes(out, text, (size_t)(stop - text));
    text_add(out, " HTTP/1.1\r\n");
    add_field(out, entry, "Host", "x");
    if (has_body || bytes != NULL)
        add_body_fields(out, entry, json, body.length);
    add_fields(out, entry, "header");
    add_fields(out, entry, "also");
    text_add(out, "\r\n");
    text_bytes(out, body.data, body.length);
    text_free(&body);
}

void request_build(struct text *out, const struct catalogue *c, const struct entry *entry,
                   const struct text *state)
{
    const struct line *ask = entry_line(entry, "ask", NULL), *l = NULL;
    text_bytes(out, "", 0);
    if (ask != NULL)
        build_ask(out, c, entry, ask, state);
    while ((l = entry_line(entry, "send", l)) != NULL)
        text_bytes(out, l->value.data, l->value.length);
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* A parsed line `want`: "400 malformed_json", "400 bad_request PARAM MESSAGE" (PARAM may be "-"),
 * "200", or "end" (no reply, or 408 where the end is not noticed before the deadline).  A line
 * `proxy` may also be "400 -" (a page of HAProxy's), or "refused", by HAProxy or the daemon. */
struct expected {
    bool refused;
    unsigned status; /* 0: end */
    char code[40], param[64];
    const char *message; /* NULL: any */
};

static struct expected read_expected(const struct line *line)
{
    struct expected expected = {.refused = strcmp(line->value.data, "refused") == 0};
    if (expected.refused || strcmp(line->value.data, "end") == 0)
        return expected;
    int at = 0, read = sscanf(line->value.data, "%u %39s %63s %n", &expected.status, expected.code,
                              expected.param, &at);
    ck_assert_msg(read >= 1, "line %u: \"%s\"?", line->number, line->value.data);
    if (at > 0)
        expected.message = line->value.data + at;
    return expected;
}

struct exchange {
    struct raw raw;
    char *wrong;
    struct replies_seen *seen; /* NULL: replies are a proxy's */
    bool ends, bare;           /* of the last reply */
    bool silent;               /* no HTTP reply came, perhaps bytes of another protocol */
};

static bool complain(struct exchange *x, const char *what, const char *text)
{
    snprintf(x->wrong, 600, "%s: %.400s", what, text);
    for (char *at = x->wrong; *at != '\0'; at++)
        *at = *at == '\n' || *at == '\r' ? ' ' : *at;
    return false;
}

/* Whether an error body of attnd has all its members, and the request id of the header. */
static bool sound(const json_t *error, const char *id)
{
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *request = json_string_value(json_object_get(error, "request_id"));
    return message != NULL && message[0] != '\0' && strchr(message, '\n') == NULL &&
           json_is_boolean(json_object_get(error, "retryable")) && request != NULL &&
           strcmp(request, id) == 0;
}

static bool judge(struct exchange *x, const struct raw_answer *answer,
                  const struct expected *expected)
{
    char id[256], got[600], form[600] = "a bare page";
    json_t *json = json_loads(answer->body != NULL ? answer->body : "", 0, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    bool bare = json == NULL && answer->status >= 300;
    raw_header(id, answer, "X-Request-Id");
    snprintf(got, sizeof got, "%u %s %.300s", answer->status,
             code != NULL ? code : (bare ? "-" : ""), answer->body != NULL ? answer->body : "");
    bool late = expected->status == 0 && answer->status == 408;
    bool refused = expected->refused && answer->status >= 400 && answer->status < 500;
    bool right = late || refused ||
                 (answer->status == expected->status &&
                  strcmp(code != NULL ? code : (bare ? "-" : ""), expected->code) == 0);
    bool good = right && (error == NULL || sound(error, id));
    x->bare = bare;
    if (x->seen != NULL)
        replies_note(x->seen, answer, code != NULL ? code : "");
    if (good && x->seen != NULL && answer->status >= 300)
        good = error != NULL && reply_has_form(form, answer, expected->param, expected->message);
    json_decref(json);
    return good || complain(x, right ? form : "got", right ? "" : got);
}

/* Reads one reply and compares it with the expected one. */
static bool take(struct exchange *x, const struct line *line)
{
    char connection[256];
    struct expected expected = read_expected(line);
    struct raw_answer answer = raw_read(&x->raw, false, TIMEOUT_MS);
    bool ended = expected.status == 0 && !expected.refused;
    bool right = answer.status == 0 ? ended || complain(x, "no reply", x->raw.data)
                                    : judge(x, &answer, &expected);
    raw_header(connection, &answer, "Connection");
    x->silent = answer.status == 0;
    x->ends =
        answer.status == 0 || x->bare || expected.refused || strcasecmp(connection, "close") == 0;
    if (expected.refused)
        raw_half_close(&x->raw); /* the request is incomplete; HAProxy may wait for more */
    raw_answer_free(&answer);
    return right;
}

/* Sends a request of its own; the connection must answer that, once, and nothing else. */
static bool probe(struct exchange *x)
{
    char id[256];
    raw_text(&x->raw, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: probe\r\n\r\n");
    struct raw_answer answer = raw_read(&x->raw, false, TIMEOUT_MS);
    raw_header(id, &answer, "X-Request-Id");
    bool right = (answer.status == 200 && strcmp(id, "probe") == 0) ||
                 complain(x, "more than one reply", answer.head != NULL ? answer.head : "none");
    raw_answer_free(&answer);
    raw_half_close(&x->raw);
    return right;
}

/* HAProxy's own pages end the connection, and it answers HTTP/2 in another form. */
static bool nothing_follows(struct exchange *x)
{
    if (!raw_read_to_end(&x->raw, TIMEOUT_MS))
        return complain(x, "the connection goes on", x->raw.data);
    bool silent = x->silent && strncmp(x->raw.data, "HTTP/", 5) != 0;
    return x->raw.length == 0 || (x->seen == NULL && (x->bare || silent)) ||
           complain(x, "more than one reply", x->raw.data);
}

bool request_try(char wrong[600], struct replies_seen *seen, const struct request_way *way,
                 const struct entry *entry, const char *key, const struct text *bytes)
{
    struct exchange x = {.wrong = wrong, .seen = way->proxied ? NULL : seen};
    const bool ends = entry_line(entry, "end", NULL) != NULL;
    /* HAProxy may drop whole requests that it still has of a client that has ended. */
    const bool ends_late =
        ends && way->proxied && read_expected(entry_line(entry, "want", NULL)).status != 0;
    const struct line *line = NULL;
    bool right = true;
    if (way->tls)
        ck_assert(raw_open_tls(&x.raw, HOST, way->port, NULL));
    else
        raw_open(&x.raw, HOST, way->port);
    raw_send(&x.raw, bytes->data, bytes->length); /* may fail: the other side may stop reading */
    if (ends && !ends_late)
        raw_half_close(&x.raw);
    while (right && (line = entry_line(entry, key, line)) != NULL)
        right = take(&x, line);
    if (right && !x.ends && !ends)
        right = probe(&x);
    if (ends_late)
        raw_half_close(&x.raw);
    right = right && nothing_follows(&x);
    raw_close(&x.raw);
    return right;
}
