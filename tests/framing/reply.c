/* reply.c: heads are cut into lines; a request alone is written in the plainest way there is. */
#include "reply.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_FIELDS 32

struct lines {
    const char *at[MAX_FIELDS];
    size_t length[MAX_FIELDS], count;
};

/* Cuts the head, behind the status line, into lines; false where one of them is no field. */
static bool cut(struct lines *out, const struct raw_answer *reply)
{
    const char *line = reply->head + strcspn(reply->head, "\r") + 2;
    out->count = 0;
    while (line[0] != '\r' && out->count < MAX_FIELDS) {
        size_t length = strcspn(line, "\r\n"), name = strcspn(line, ": \t\r\n");
        if (name == 0 || line[name] != ':' || line[length] != '\r')
            return false;
        out->at[out->count] = line;
        out->length[out->count++] = length;
        line += length + 2;
    }
    return line[0] == '\r';
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, ":");
    return strcspn(b, ":") == length && strncasecmp(a, b, length) == 0;
}

static bool refuse(char wrong[200], const char *what, const char *text)
{
    snprintf(wrong, 200, "%s: %.120s", what, text);
    return false;
}

static bool body_is_json(const struct raw_answer *reply)
{
    json_t *json = json_loadb(reply->body, reply->length, JSON_REJECT_DUPLICATES, NULL);
    json_decref(json);
    return json != NULL;
}

bool reply_is_sound(char wrong[200], const struct raw_answer *reply, bool head_only)
{
    struct lines lines;
    char value[256];
    if (strncmp(reply->head, "HTTP/1.1 ", 9) != 0 && strncmp(reply->head, "HTTP/1.0 ", 9) != 0)
        return refuse(wrong, "no status line", reply->head);
    if (reply->status < 200 || reply->status > 599 || !cut(&lines, reply))
        return refuse(wrong, "no sound head", reply->head);
    for (size_t i = 0; i < lines.count; i++)
        for (size_t j = 0; j < i; j++)
            if (same_name(lines.at[i], lines.at[j]))
                return refuse(wrong, "a field twice", lines.at[i]);
    if (!raw_header(value, reply, "Content-Length") && reply->status != 204)
        return refuse(wrong, "no length", reply->head);
    if (head_only || reply->status == 204)
        return true;
    raw_header(value, reply, "Content-Type");
    if (strcmp(value, "application/json") == 0 && !body_is_json(reply))
        return refuse(wrong, "no JSON", reply->body);
    return true;
}

bool reply_is_attnds(const struct raw_answer *reply)
{
    char value[256];
    return reply->status != 0 && raw_header(value, reply, "X-Attn-Instance") &&
           raw_header(value, reply, "X-Request-Id");
}

bool reply_refuses_head(const struct raw_answer *reply)
{
    static const struct {
        unsigned status;
        const char *code;
    } refusals[] = {
        {400, "bad_request"},       {408, "request_timeout"}, {413, "body_too_large"},
        {431, "headers_too_large"}, {501, "not_implemented"},
    };
    bool found = false;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char code[64];
        snprintf(code, sizeof code, "{\"error\":{\"code\":\"%s\"", refusals[i].code);
        bool has_code = reply->length == 0 || strncmp(reply->body, code, strlen(code)) == 0;
        found = found || (reply->status == refusals[i].status && has_code);
    }
    return found;
}

bool reply_is_last(const struct raw_answer *reply)
{
    char value[256];
    return raw_header(value, reply, "Connection") && strcasecmp(value, "close") == 0;
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static bool is_one_of(const char *line, const char *const names[])
{
    for (; *names != NULL; names++)
        if (same_name(line, *names))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const char *left = *(const char *const *)a, *right = *(const char *const *)b;
    return strncasecmp(left, right, strcspn(left, ":") + 1);
}

/* Adds a body, with the request id of an error as "ID". */
static void add_body(struct text *out, const struct raw_answer *reply, const char *id)
{
    char member[300];
    int size = snprintf(member, sizeof member, "\"request_id\":\"%s\"", id);
    const char *found = memmem(reply->body, reply->length, member, (size_t)size);
    size_t before = found != NULL ? (size_t)(found - reply->body) : reply->length;
    text_bytes(out, reply->body, before);
    if (found == NULL)
        return;
    text_add(out, "\"request_id\":\"ID\"");
    text_bytes(out, found + size, reply->length - before - (size_t)size);
}

void reply_mask(struct text *out, const struct raw_answer *reply, bool order)
{
    static const char *const varying[] = {"Date", "Server-Timing", "X-Request-Id", NULL};
    static const char *const of_hop[] = {"Connection", "Keep-Alive", "Server", NULL};
    struct lines lines;
    char id[256];
    bool is_sound = cut(&lines, reply);
    raw_header(id, reply, "X-Request-Id");
    if (!order)
        qsort(lines.at, lines.count, sizeof lines.at[0], by_name);
    text_add(out, "%.*s\n", (int)strcspn(reply->head, "\r") - (order ? 0 : 9),
             reply->head + (order ? 0 : 9));
    for (size_t i = 0; is_sound && i < lines.count; i++) {
        const char *line = lines.at[i], *value = strchr(line, ':');
        if (is_one_of(line, of_hop))
            continue;
        for (const char *c = line; c < value; c++)
            text_add(out, "%c", order || *c < 'A' || *c > 'Z' ? *c : *c + ('a' - 'A'));
        if (is_one_of(line, varying))
            text_add(out, ": *\n");
        else
            text_add(out, "%.*s\n", (int)strcspn(value, "\r"), value);
    }
    add_body(out, reply, id);
}

/* ---- Alone ----------------------------------------------------------------------------------- */

void reply_open(struct raw *raw, unsigned port, bool tls)
{
    if (tls)
        ck_assert(raw_open_tls(raw, "127.0.0.1", port, NULL));
    else
        raw_open(raw, "127.0.0.1", port);
}

struct raw_answer reply_alone(const struct message *message, size_t id, unsigned port, bool tls)
{
    struct raw raw;
    struct text request = {0};
    text_bytes(&request, message->line.data, message->line.length);
    text_add(&request, "\r\nHost: ");
    if (message->host.length > 0)
        text_bytes(&request, message->host.data, message->host.length);
    else
        text_add(&request, "x");
    text_add(&request, "\r\nX-Request-Id: ");
    for (size_t i = 0; i < id; i++)
        text_add(&request, "r");
    text_add(&request, "\r\n");
    text_bytes(&request, message->fields.data, message->fields.length);
    if (message->has_body)
        text_add(&request, "Content-Length: %zu\r\n", message->body.length);
    text_add(&request, "\r\n");
    text_bytes(&request, message->body.data, message->body.length);
    reply_open(&raw, port, tls);
    raw_send(&raw, request.data, request.length);
    struct raw_answer reply = raw_read(&raw, message->is_head, REPLY_TIMEOUT_MS);
    raw_close(&raw);
    text_free(&request);
    return reply;
}
