/* record.c: one line for each exchange: {"method","path","type","coding","request","status",
 * "fields","reply"}.
 *
 * "request" and "reply" are the bodies where they are JSON, or begin with JSON in the binary form;
 * otherwise "request_is" or "reply_is" says what they are: none, long, no json. */
#include "record.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LONG_BYTES ((size_t)256 << 10) /* of a body: beyond, its JSON is not recorded */
#define LIST_MAX 4                     /* numbers or lists of a list, recorded whatever they are */
#define OBJECTS_MAX 16                 /* objects of a list, likewise */
#define SENT_BYTES ((size_t)1 << 20)   /* of requests of a connection, not answered yet */

bool record_wanted(void) { return getenv("EXCHANGES") != NULL; }

bool record_field(char out[256], const char *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = head; line != NULL && *line != '\0';) {
        const char *end = strstr(line, "\r\n");
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1 + strspn(line + length + 1, " \t");
            size_t size = strcspn(value, "\r\n");
            size = size < 255 ? size : 255;
            memcpy(out, value, size);
            out[size] = '\0';
            return true;
        }
        line = end != NULL ? end + 2 : NULL;
    }
    return false;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Shortens long lists: of what follows the first elements only those stay whose type is not that of
 * the element before, so that no kind of element is lost. */
static void shorten(json_t *value)
{
    const char *name;
    json_t *member;
    json_object_foreach(value, name, member)
        shorten(member);
    for (size_t i = json_array_size(value); i-- > 0;) {
        json_t *element = json_array_get(value, i);
        size_t most = json_is_object(element) ? OBJECTS_MAX : LIST_MAX;
        if (i < most || json_typeof(element) != json_typeof(json_array_get(value, i - 1)))
            shorten(element);
        else
            json_array_remove(value, i);
    }
}

/* Adds a body as `name`, or what it is as `is`. */
static void add_body(json_t *line, const char *name, const char *is, const char *head,
                     const char *body, size_t length)
{
    char value[256];
    json_t *json = NULL;
    if (record_field(value, head, "Inference-Header-Content-Length")) {
        size_t json_length = strtoul(value, NULL, 10);
        length = json_length < length ? json_length : length;
    }
    if (length > 0 && length <= LONG_BYTES && !record_field(value, head, "Content-Encoding"))
        json = json_loadb(body, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    shorten(json);
    bool chunked = record_field(value, head, "Transfer-Encoding");
    if (json != NULL)
        json_object_set_new(line, name, json);
    else
        json_object_set_new(line, is,
                            json_string(length == 0 && !chunked ? "none"
                                        : length > LONG_BYTES   ? "long"
                                                                : "no json"));
}

/* The fields of a head, names in lower case as keys. */
static json_t *list_fields(const char *head)
{
    json_t *fields = json_object();
    const char *line = head != NULL ? strstr(head, "\r\n") : NULL;
    while (line != NULL && line[2] != '\0' && line[2] != '\r') {
        char name[64];
        line += 2;
        size_t length = strcspn(line, ":\r\n");
        const char *end = strstr(line, "\r\n");
        if (line[length] == ':' && length < sizeof name) {
            for (size_t i = 0; i < length; i++)
                name[i] = (char)(line[i] >= 'A' && line[i] <= 'Z' ? line[i] + 32 : line[i]);
            name[length] = '\0';
            const char *value = line + length + 1 + strspn(line + length + 1, " ");
            size_t size = end != NULL ? (size_t)(end - value) : strlen(value);
            json_object_set_new(fields, name, json_stringn(value, size));
        }
        line = end;
    }
    return fields;
}

static void append(const char *text, size_t length)
{
    int fd = open(getenv("EXCHANGES"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    (void)!write(fd, text, length);
    close(fd);
}

void record_exchange(const struct recorded *exchange)
{
    char type[256], coding[256];
    bool has_type = record_field(type, exchange->head, "Content-Type");
    bool has_coding = record_field(coding, exchange->head, "Content-Encoding");
    if (!record_wanted() || exchange->status == 0)
        return;
    json_t *line = json_pack("{s:s?, s:s?, s:s?, s:s?, s:I, s:o}", "method", exchange->method,
                             "path", exchange->path, "type", has_type ? type : NULL, "coding",
                             has_coding ? coding : NULL, "status", (json_int_t)exchange->status,
                             "fields", list_fields(exchange->reply_head));
    if (line == NULL) /* a path that is no UTF-8 */
        return;
    add_body(line, "request", "request_is", exchange->head, exchange->body, exchange->length);
    add_body(line, "reply", "reply_is", exchange->reply_head, exchange->reply,
             exchange->reply_length);
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    size_t length = text != NULL ? strlen(text) : 0;
    if (length > 0) {
        text[length] = '\n'; /* in place of the NUL: the length is known */
        append(text, length + 1);
    }
    free(text);
}

/* ---- Requests of a connection ---------------------------------------------------------------- */

void sent_add(struct sent *sent, const void *bytes, size_t count)
{
    if (!record_wanted() || sent->lost)
        return;
    char *grown =
        sent->length + count <= SENT_BYTES ? realloc(sent->data, sent->length + count + 1) : NULL;
    sent->lost = grown == NULL;
    if (sent->lost)
        return;
    memcpy(grown + sent->length, bytes, count);
    sent->data = grown;
    sent->length += count;
    grown[sent->length] = '\0';
}

/* Where the first request's head ends, behind its empty line; NULL where it is not whole. */
static const char *find_end(const struct sent *sent)
{
    const char *end = sent->data != NULL ? strstr(sent->data, "\r\n\r\n") : NULL;
    return end != NULL ? end + 4 : NULL;
}

/* Whether the head is written plainly: lines end in CR LF, each field as "name: value", a length in
 * digits.  A proxy may forward another one as something else. */
static bool is_plain(const char *head)
{
    static const char token[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char value[256];
    const char *line = strstr(head, "\r\n") + 2;
    if (record_field(value, head, "Content-Length") && value[strspn(value, "0123456789")] != '\0')
        return false;
    for (const char *end; line[0] != '\r'; line = end + 2) {
        size_t name = strspn(line, token);
        end = strstr(line, "\r\n");
        if (name == 0 || line[name] != ':' || memchr(line, '\n', (size_t)(end - line)) != NULL)
            return false;
    }
    return memchr(head, '\n', strcspn(head, "\r")) == NULL;
}

/* Reads the request of this head: its length in all, or 0 where it is none, or not plain. */
static size_t read_request(struct recorded *out, const struct sent *sent, const char *head,
                           char method[16], char path[512])
{
    char value[256];
    size_t length = strlen(head), rest = sent->length - length;
    if (sscanf(head, "%15[A-Z] %511s HTTP/", method, path) != 2 || !is_plain(head))
        return 0;
    *out = (struct recorded){.method = method, .path = path, .head = head};
    if (record_field(value, head, "Content-Length"))
        out->length = strtoul(value, NULL, 10);
    out->length = out->length < rest ? out->length : rest;
    out->body = sent->data + length;
    return length + out->length;
}

void sent_answered(struct sent *sent, long status, const char *reply_head, const char *reply,
                   size_t reply_length)
{
    char method[16], path[512], value[256];
    struct recorded exchange = {0};
    if (!record_wanted() || sent->lost || !record_field(value, reply_head, "X-Attn-Instance"))
        return;
    const char *end = find_end(sent);
    char *head = end != NULL ? strndup(sent->data, (size_t)(end - sent->data)) : NULL;
    size_t taken = head != NULL ? read_request(&exchange, sent, head, method, path) : 0;
    exchange.status = status;
    exchange.reply_head = reply_head;
    exchange.reply = reply;
    exchange.reply_length = reply_length;
    record_exchange(&exchange);
    sent->lost = taken == 0 || record_field(value, head, "Transfer-Encoding");
    sent->length -= taken;
    if (sent->data != NULL)
        memmove(sent->data, sent->data + taken, sent->length + 1);
    free(head);
}
